"""An HTTP server on loopback that answers as a test has written down, and notes what it was asked.

For what a real API server does only now and then: a 429, a cut stream, a page that has expired. The one rule: what
was not written down is not answered at all, so a client that asks too much hangs and the test fails.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from agent.adapters.kube.access import KubeSettings, open_access
from agent.adapters.kube.client import KubeClient

Step = Callable[[web.Request], Awaitable[web.StreamResponse]]
PATIENT_S = 40.0
"""How long a client waits where a test is not about waiting: a machine that stands still for a while breaks none."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    token: str
    agent: str
    content_type: str
    body: Any


class ScriptedKube:
    """The server; `script` holds the answers, first in front."""

    def __init__(self) -> None:
        self.script: deque[Step] = deque()
        self.asked: list[Asked] = []
        self.url = ""
        self.slept: list[float] = []
        """What the client's `sleep` was asked for; it returns at once."""
        self.was_asked = asyncio.Event()
        self.has_slept = asyncio.Event()
        self._end = asyncio.Event()

    async def start(self) -> Callable[[], Awaitable[None]]:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

        async def stop() -> None:
            self._end.set()
            await runner.cleanup()

        return stop

    def answers(self, *steps: Step) -> None:
        self.script.extend(steps)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.has_slept.set()
        await asyncio.sleep(0)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(
            Asked(
                request.method,
                request.path,
                dict(request.query),
                request.headers.get("Authorization", ""),
                request.headers.get("User-Agent", ""),
                request.headers.get("Content-Type", ""),
                json.loads(body) if body else None,
            )
        )
        self.was_asked.set()
        step = self.script.popleft() if self.script else self.silent()
        return await step(request)

    def silent(self) -> Step:
        """No answer until the test ends."""

        async def step(request: web.Request) -> web.StreamResponse:
            await self._end.wait()
            return web.Response(status=503)

        return step

    def stream(self, *events: Mapping[str, Any] | bytes, then: str = "end") -> Step:
        """A watch with these events; `then` it ends, is cut in the middle, or stays open."""

        async def step(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            for event in events:
                await response.write(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
            if then == "open":
                await self._end.wait()
            elif then == "cut":
                await response.write(b'{"type":"ADDED","obj')
                assert request.transport is not None
                request.transport.abort()
            return response

        return step


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Step:
    """This answer; bytes as they are, anything else as JSON."""

    async def step(request: web.Request) -> web.StreamResponse:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(body=raw, status=status, headers=dict(headers or {}))

    return step


def refusal(status: int, message: str = "", headers: Mapping[str, str] | None = None) -> Step:
    """A Status, as the API server refuses."""
    return answer({"kind": "Status", "status": "Failure", "message": message, "code": status}, status, headers)


def page(items: Sequence[Mapping[str, Any]], version: str = "", more: str = "") -> Step:
    """A page of a list."""
    meta = {"resourceVersion": version, **({"continue": more} if more else {})}
    return answer({"kind": "List", "metadata": meta, "items": list(items)})


def thing(name: str, version: str, uid: str = "", namespace: str = "train", **more: Any) -> dict[str, Any]:
    """An object as it is in a list: without kind."""
    meta = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": version}
    return {"metadata": {**meta, "namespace": namespace} if namespace else meta, **more}


def event(kind: str, item: Mapping[str, Any], of: str = "Pod", api: str = "v1") -> dict[str, Any]:
    """A watch event; objects in it name their kind."""
    return {"type": kind, "object": {"apiVersion": api, "kind": of, **item}}


def kubeconfig(path: Path, server: str, user: Mapping[str, Any] | None = None) -> Path:
    """Write a kubeconfig with one context, `test`."""
    config = {
        "current-context": "test",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": dict({"token": "t1"} if user is None else user)}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(config))
    return path


@asynccontextmanager
async def scripted(
    folder: Path, request_seconds: float = PATIENT_S, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[ScriptedKube, KubeClient]]:
    """The server and a client of it."""
    server = ScriptedKube()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(await server.start())
        path = kubeconfig(folder / "kubeconfig", server.url)
        settings = KubeSettings(path, request_seconds=request_seconds, connect_seconds=PATIENT_S)
        client = KubeClient(await open_access(settings), settings, sleep=server.sleep, clock=clock)
        stack.push_async_callback(client.close)
        yield server, client
