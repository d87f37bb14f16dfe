"""One request to the API server, or one stream from it: bounded in time, with the credentials of the moment.

The one rule: what leaves here is parsed JSON or an error of `agent.errors`; the client library's exceptions stay here.
"""

import asyncio
import gc
import io
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Final

import aiohttp
import orjson

from agent.adapters.kube.access import Access, KubeSettings, open_access
from agent.adapters.kube.errors import Call, Throttled, Unauthorised, Untrusted, error_of
from agent.adapters.kube.resources import Resource
from agent.errors import CannotRun, Unavailable

LINE_LIMIT: Final = 32 * 1024 * 1024
"""Bytes of one watch event. A ConfigMap of 1 MiB whose every byte the server escapes as six is 6 MiB."""
WHOLE_BODY_LIMIT: Final = 512 * 1024
"""Bytes of a body that is handed to the socket in one piece; a longer one goes in chunks, between other tasks."""
ERROR_LIMIT: Final = 64 * 1024
"""Bytes read of an error's body."""
_VERSION: Final = Resource("Version", "version", "")


class KubeClient:
    """Requests over one pool of connections. `clock` is monotonic, in seconds; `sleep` waits seconds."""

    def __init__(
        self,
        access: Access,
        settings: KubeSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._access = access
        self._settings = settings
        self._rest = access.api.rest_client
        self.clock = clock
        self.sleep = sleep

    async def __aenter__(self) -> "KubeClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; idempotent."""
        await self._access.api.close()

    async def version(self) -> str:
        """The server's version; whoever is not let in learns so here. Raises as `call` does."""
        answer = await self._answer(Call("get", _VERSION), "/version", {}, None, "", self._settings.request_seconds)
        return str(answer.get("gitVersion", ""))

    async def call(
        self,
        verb: str,
        resource: Resource,
        namespace: str = "",
        name: str = "",
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
        within: float | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """One request; the answer as parsed JSON.

        A 401 is tried once more with the credentials read anew, a 429 after the wait it asks for, both only inside
        `within` seconds (else the settings' request time-out).

        Raises Unavailable (5xx, no answer, 410 as Gone, 429 as Throttled with what it asks for), Conflict (409) and
        Refused (the other 4xx; 404 as NotFound, 401 as Unauthorised).
        """
        call = Call(verb, resource, namespace, name)
        data = None if body is None else orjson.dumps(body)
        seconds = self._settings.request_seconds if within is None else within
        return await self._answer(call, call.path, dict(params or {}), data, content_type, seconds)

    @asynccontextmanager
    async def stream(
        self, resource: Resource, namespace: str, params: Mapping[str, str], read_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch, as they come. It ends when the server ends it.

        Raises as `call` does when it is not let in; Unavailable when the stream is cut or silent for `read_seconds`.
        """
        call = Call("watch", resource, namespace)
        timeout = aiohttp.ClientTimeout(total=None, connect=self._settings.connect_seconds, sock_read=read_seconds)
        for attempt in (1, 2):
            token = await self._access.token.current()
            async with (
                self._ours(call, read_seconds),
                self._request(call, call.path, params, None, "", token, timeout) as response,
            ):
                if response.status == 200:
                    try:
                        async with aclosing(self._lines(call, response)) as lines:
                            yield lines
                    finally:
                        _abort(response)
                    return
                body = await response.content.read(ERROR_LIMIT)
                if response.status != 401 or attempt == 2 or not await self._access.token.again(token):
                    raise error_of(call, response.status, body, response.headers)

    async def _answer(
        self, call: Call, path: str, params: Mapping[str, str], data: bytes | None, content_type: str, seconds: float
    ) -> dict[str, Any]:
        deadline = self.clock() + seconds
        renewed = False
        while True:
            left = deadline - self.clock()
            if left <= 0:
                raise Unavailable(f"{call}: no time is left for the request")
            token = await self._access.token.current()
            timeout = aiohttp.ClientTimeout(total=left, connect=min(self._settings.connect_seconds, left))
            async with (
                self._ours(call, left),
                self._request(call, path, params, data, content_type, token, timeout) as response,
            ):
                status, headers, body = response.status, response.headers, await response.read()
            if 200 <= status < 300:
                return _parsed(call, body)
            error = error_of(call, status, body, headers)
            if isinstance(error, Unauthorised) and not renewed:
                renewed = True
                if await self._access.token.again(token):
                    continue
            if isinstance(error, Throttled) and error.retry_after < deadline - self.clock():
                # A 429 was not carried out, so it may be repeated whatever it was.
                await self.sleep(error.retry_after)
                continue
            raise error

    def _request(
        self,
        call: Call,
        path: str,
        params: Mapping[str, str],
        data: bytes | None,
        content_type: str,
        token: str,
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        # Not the library's own request: it encodes bodies as ASCII, which makes half a MiB of é three times as long
        # as the server takes, and loads answers into models.
        session: aiohttp.ClientSession = self._rest.pool_manager
        if session.closed:
            raise Unavailable(f"{call}: the client is closed")
        headers = {
            **self._access.api.default_headers,
            "Accept": "application/json",
            # Within a cluster compressing costs both ends more than it saves.
            "Accept-Encoding": "identity",
        }
        if data is not None:
            headers["Content-Type"] = content_type
        if token:
            headers["Authorization"] = token
        more: dict[str, Any] = {}
        if self._rest.proxy:
            more["proxy"] = self._rest.proxy
            more["proxy_headers"] = self._rest.proxy_headers
        if self._rest.server_hostname:
            more["server_hostname"] = self._rest.server_hostname
        return session.request(
            call.method,
            self._access.host + path,
            params=params,
            data=data if data is None or len(data) <= WHOLE_BODY_LIMIT else io.BytesIO(data),
            headers=headers,
            timeout=timeout,
            allow_redirects=False,
            **more,
        )

    async def _lines(self, call: Call, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        tail = bytearray()
        async for chunk in response.content.iter_any():
            if b"\n" not in chunk:
                tail += chunk
                if len(tail) > LINE_LIMIT:
                    raise Unavailable(f"{call}: an event is longer than {LINE_LIMIT} bytes")
                continue
            lines = bytes(tail + chunk).split(b"\n")
            tail = bytearray(lines.pop())
            for line in lines:
                if line:
                    yield line

    @asynccontextmanager
    async def _ours(self, call: Call, seconds: float) -> AsyncIterator[None]:
        """Turn what the client library raises in the block into errors of the agent."""
        try:
            yield
        except TimeoutError as error:
            raise Unavailable(f"{call}: {self._access.host} gave no answer within {seconds:.1f} s") from error
        except aiohttp.ClientSSLError as error:
            certificate = (
                error.certificate_error if isinstance(error, aiohttp.ClientConnectorCertificateError) else None
            )
            reason = getattr(certificate, "verify_message", "")
            raise Untrusted(
                f"{call}: TLS with {self._access.host} failed: {reason or type(error).__name__}",
                hint=f"the CA of {self._access.ca} must be the one that signed the server's certificate",
            ) from error
        except aiohttp.ClientConnectorError as error:
            raise Unavailable(
                f"{call}: {self._access.host} cannot be reached: {error.os_error.strerror or 'no route'}"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{call}: the connection to {self._access.host} broke: {type(error).__name__}") from error


async def connect(settings: KubeSettings) -> KubeClient:
    """A client that the server has let in.

    Raises, within seconds: CannotRun (no or bad kubeconfig, wrong CA, credentials not accepted), Unavailable (the
    server cannot be reached or does not answer; the same may work later).
    """
    client = KubeClient(await open_access(settings), settings)
    try:
        await client.version()
    except (Untrusted, Unauthorised) as error:
        await client.close()
        raise CannotRun(error.message, hint=error.hint) from error
    except BaseException:
        await client.close()
        raise
    return client


def _abort(response: Any) -> None:
    """End a stream that is not read to its end at once: TLS would wait for the server's goodbye, and who closes the
    client meanwhile leaves a socket open.
    """
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _parsed(call: Call, body: bytes) -> dict[str, Any]:
    # A page of a list is fifty thousand new objects and not one cycle: collecting while they are made would take
    # two thirds of the time, and stop the loop for a tenth of a second now and then.
    collecting = gc.isenabled()
    gc.disable()
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unavailable(f"{call}: the answer is no JSON; is this a Kubernetes API server?") from error
    finally:
        if collecting:
            gc.enable()
    if not isinstance(answer, dict):
        raise Unavailable(f"{call}: the answer is no JSON object")
    return answer
