"""The link query of the vendor's driver, as a command of this machine.

The one rule: a query ends, by itself or killed with all that it started; what it may see of us is its arguments.
"""

import asyncio
import os
import signal
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from agent.errors import Unavailable

DEVICE: Final = "{device}"
"""Stands in the command for the physical id of the die."""
MOST_BYTES: Final = 4096
"""Of an answer; one line is expected."""
KILL_S: Final = 1.0
"""How long a killed query may take to be gone. One that waits in the driver cannot be killed, and is left."""
_TAKEN_ON: Final = ("LD_LIBRARY_PATH",)
"""The driver's tools find their libraries by it. Nothing else of our environment is handed on: it may hold secrets."""
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CommandLinkProbe:
    """A LinkProbe that runs a command for each query: no shell, no input, its own process group.

    `command` is a program by its absolute path and its arguments, `{device}` in them for the die; `timeout_s` is for
    one query.
    """

    def __init__(self, command: Sequence[str], *, timeout_s: float) -> None:
        self._command = tuple(command)
        self._timeout_s = timeout_s
        self._env = {"PATH": _PATH, **{name: os.environ[name] for name in _TAKEN_ON if name in os.environ}}
        self._running: dict[int, _Query] = {}
        self._closed = False

    async def ask(self, device: int) -> bytes:
        """See the port."""
        before = self._running.get(device)
        if before is not None and before.process.returncode is None:
            raise Unavailable(f"device {device}: the query before this one cannot be ended; it may wait in the driver")
        try:
            query = await _started([part.replace(DEVICE, str(device)) for part in self._command], self._env)
        except OSError as error:
            why = error.strerror or error
            raise Unavailable(f"{self._command[0]} cannot be run: {why}", hint="see node.link_probe.command") from error
        self._running[device], process = query, query.process
        if self._closed:
            _kill(process)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer, complaint = await _streams(process)
                code = await process.wait()
        except TimeoutError:
            raise Unavailable(f"device {device}: no answer within {self._timeout_s:g} s") from None
        finally:
            await self._end(device, query)
        if len(answer) > MOST_BYTES:
            raise Unavailable(f"device {device}: an answer of more than {MOST_BYTES} bytes")
        if code:
            raise Unavailable(f"device {device}: {_ended(code)}{_first_line(complaint or answer)}")
        return answer

    async def close(self) -> None:
        """See the port."""
        self._closed = True
        for device, query in tuple(self._running.items()):
            await self._end(device, query)

    async def _end(self, device: int, query: "_Query") -> None:
        """Kill what is left of a query, also what it started and left behind. What has left its process group lives on,
        but no pipe to it is kept: each round would leave more of them open.
        """
        process = query.process
        _kill(process)
        for pipe in map(query.transport.get_pipe_transport, (1, 2)):
            if pipe is not None:
                pipe.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_S):
                await process.wait()
        if process.returncode is not None and self._running.get(device) is query:
            del self._running[device]


@dataclass(frozen=True, slots=True)
class _Query:
    """A command that runs, and what holds our ends of its pipes."""

    process: Process
    transport: asyncio.SubprocessTransport


async def _started(command: Sequence[str], env: Mapping[str, str]) -> _Query:
    """Raises OSError."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=MOST_BYTES, loop=loop),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env=env,
        start_new_session=True,
    )
    return _Query(Process(transport, protocol, loop), transport)


async def _streams(process: Process) -> tuple[bytes, bytes]:
    """Both outputs, read side by side; one that goes beyond MOST_BYTES ends the query."""
    assert process.stdout is not None
    assert process.stderr is not None
    return await asyncio.gather(_upto(process, process.stdout), _upto(process, process.stderr))


async def _upto(process: Process, stream: asyncio.StreamReader) -> bytes:
    read = b""
    while more := await stream.read(MOST_BYTES + 1):  # to the end also when killed: who stops reading may never see it
        if len(read) <= MOST_BYTES:
            read += more
        if len(read) > MOST_BYTES:
            _kill(process)
    return read


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _ended(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"exit code {code}"


def _first_line(text: bytes) -> str:
    words = text.decode("utf-8", "replace").strip().partition("\n")[0].strip()
    return f": {words[:120]}" if words else ""
