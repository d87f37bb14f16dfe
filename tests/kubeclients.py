"""Clients of a real API server, and ways to disturb the connection to it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from services.kubeserver import KubeEndpoint

from agent.adapters.kube import KubeClient, KubeSettings, connect

PATIENCE_S = 60.0


@asynccontextmanager
async def client_of(endpoint: KubeEndpoint, kubeconfig: Path | None = None) -> AsyncIterator[KubeClient]:
    """A connected client; no connection of it is left when it ends."""
    path = kubeconfig or endpoint.kubeconfig
    try:
        async with await connect(KubeSettings(path)) as client:
            yield client
    finally:
        await _let_go_of(json.loads(path.read_text())["clusters"][0]["cluster"]["server"])


async def _let_go_of(server: str) -> None:
    """Break off what still says goodbye to the server. The connection of a request that was given up waits for the
    server's end of TLS, up to half a minute and known to no client: the loop would end before it.
    """
    loop: Any = asyncio.get_running_loop()
    waiting = [one for one in loop._transports.values() if _port(one) == urlsplit(server).port]
    lost = [asyncio.create_task(_lost(one)) for one in waiting]
    await asyncio.gather(*lost)


def _port(transport: asyncio.Transport) -> int | None:
    peer = transport.get_extra_info("peername")
    return peer[1] if peer else None


async def _lost(transport: asyncio.Transport) -> None:
    """Abort it, and return once its socket is closed."""
    open_socket = transport.get_extra_info("socket")
    transport.abort()
    while open_socket.fileno() != -1:  # noqa: ASYNC110  # a turn or two: its protocol is TLS's, nobody hears of the end
        await asyncio.sleep(0)


async def until(what: str, condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Look until it holds. Raises AssertionError naming `what`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.02)


def make_namespace(endpoint: KubeEndpoint, name: str) -> str:
    """Create it if it is not there."""
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    answer = endpoint.request("POST", "/api/v1/namespaces", made)
    assert answer.status in (201, 409), answer.body
    return name


def clear(endpoint: KubeEndpoint, path: str) -> None:
    """Delete everything of a collection at once."""
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    answer = endpoint.request("DELETE", path, body)
    assert answer.status == 200, answer.body


class Proxy:
    """A TCP relay before an API server: connections can be cut, and new ones turned away."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._to = parts.hostname or "", parts.port or 443
        self._pairs: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False
        """New connections are closed at once."""
        self.connections = 0
        self.port = 0

    @property
    def open(self) -> int:
        """How many connections there are, counted at both ends."""
        return len(self._pairs)

    def cut(self) -> None:
        """Break every connection there is, as a firewall that forgot them."""
        for writer in self._pairs:
            writer.transport.abort()

    def kubeconfig(self, endpoint: KubeEndpoint, path: Path) -> Path:
        """The endpoint's kubeconfig with this proxy as its server."""
        path.write_text(endpoint.kubeconfig.read_text().replace(endpoint.server, f"https://127.0.0.1:{self.port}"))
        return path

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.closed:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        pair = {writer}
        try:
            with suppress(OSError):
                there, away = await asyncio.open_connection(*self._to)
                pair.add(away)
                self._pairs |= pair
                await asyncio.gather(_pour(reader, away), _pour(there, writer))
        finally:
            for end in pair:
                end.transport.abort()
            self._pairs -= pair
            self._tasks.discard(task)

    async def end(self) -> None:
        """Break all there is, and what is only being made, however late it comes."""
        self.closed = True
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def proxied(endpoint: KubeEndpoint) -> AsyncIterator[Proxy]:
    """A running proxy before the endpoint."""
    proxy = Proxy(endpoint.server)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
        await server.wait_closed()


def token_kubeconfig(endpoint: KubeEndpoint, path: Path, token: str) -> Path:
    """The endpoint's kubeconfig with another token."""
    config = json.loads(endpoint.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path.write_text(json.dumps(config))
    return path
