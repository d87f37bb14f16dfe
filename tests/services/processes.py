"""One service as a process of ours: started, probed, paused, stopped and started again on the same data.

The one rule: a process is addressed by the id we got when we started it, never by a name, and none outlives us:
each has a guard that kills it when the test process is gone, however that ended.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

POLL_S = 0.05


class ServiceMissingError(Exception):
    """The service is not on this machine; the message says what was not run and how to get it."""


class ServiceFailedError(Exception):
    """A service that is there did not start, answer or stop as it should; the message holds its last log lines."""


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports of 127.0.0.1 that nobody listens on.

    Below the range from which the kernel takes ports for outgoing connections (32768 and up on Linux): there, a
    client that keeps trying while the service is down can be given the very port it calls, connect to itself, and
    so keep the service from coming back.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                if port not in ports:
                    ports.append(port)
    return ports


def port_closed(port: int) -> str:
    """Empty when somebody listens on this port of 127.0.0.1; else why not."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError as error:
        return str(error)
    return ""


def wait_until(what: str, probe: Callable[[], str], *, seconds: float) -> None:
    """Poll `probe` until it returns an empty text; any other text says what is still wrong.

    Raises ServiceFailedError with the last such text when the time is over.
    """
    end = time.monotonic() + seconds
    while reason := probe():
        if time.monotonic() > end:
            raise ServiceFailedError(f"{what}: not within {seconds:g} s: {reason}")
        time.sleep(POLL_S)


class Process:
    """A command that runs until it is stopped; its output goes to `log`, one run after the other."""

    def __init__(self, name: str, command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self._command = tuple(command)
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the current run. Raises ServiceFailedError when it does not run."""
        if self._process is None:
            raise ServiceFailedError(f"{self.name} does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True from start until it ended, by us or by itself; a paused process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the command; nothing is said about readiness."""
        if self.running:
            raise ServiceFailedError(f"{self.name} runs already")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C goes to the tests, which then stop the service in order.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, start_new_session=True
            )
        # The guard waits for the end of a pipe that only this process holds open.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -KILL "$0"', str(self._process.pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_ready(self, probe: Callable[[], str], *, seconds: float) -> None:
        """Poll `probe` as `wait_until` does; an end of the process ends the wait. Stops the process on failure."""

        def alive_and_ready() -> str:
            if self._process is not None and self._process.poll() is not None:
                raise ServiceFailedError(f"{self.name} ended with {self._process.returncode}")
            return probe()

        try:
            wait_until(f"{self.name} ready", alive_and_ready, seconds=seconds)
        except ServiceFailedError as error:
            tail = self.log_tail()
            self.kill()
            raise ServiceFailedError(f"{error}\n  last lines of {self.log}:\n  " + "\n  ".join(tail)) from None

    def log_tail(self, lines: int = 30) -> list[str]:
        """The last lines of the log, of all runs."""
        if not self.log.exists():
            return []
        return self.log.read_text(errors="replace").splitlines()[-lines:]

    def stop(self, *, grace_s: float = 20) -> None:
        """Ask it to end (SIGTERM), kill it when it has not within `grace_s`. Idempotent."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)  # a paused process would not see the first one
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reap()

    def kill(self) -> None:
        """End it as kill -9 does. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait(10)
            self._process = None
        if self._guard is not None:
            self._guard.kill()
            if self._guard.stdin is not None:
                self._guard.stdin.close()
            self._guard.wait(10)
            self._guard = None
