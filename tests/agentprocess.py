"""`fault-agent run --role solo` as a process of its own: started, waited on by what it writes, ended or killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

PROGRAM = "from agent.app.cli.main import main; main()"
PATIENCE = 240.0
"""Seconds after which a process that does not get there is a failure; nothing is timed by it."""


class AgentProcess:
    """A run on files; killed when the test leaves it."""

    def __init__(self, events: Path | str, cluster: Path, out: Path, *more: str, seed: str = "0") -> None:
        words = ["run", "--role", "solo", "--events", str(events), "--cluster", str(cluster), "--out", str(out), *more]
        self.log = out.parent / f"{out.name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, "PYTHONHASHSEED": seed},
            )

    def until(self, true: Callable[[], bool]) -> None:
        """Look until it is so; fails when the process ends first."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"not within {PATIENCE} s: {self.log.read_text()}"
            time.sleep(0.02)

    def wait(self, seconds: float) -> None:
        """Let it work for a while, or until it ends."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def kill(self) -> None:
        """End it as kill -9 does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Told to end; its exit code."""
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    def __enter__(self) -> "AgentProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


def replay(*words: str | Path, seed: str = "0") -> subprocess.CompletedProcess[bytes]:
    """A replay as a process of its own."""
    command: Sequence[str] = [sys.executable, "-c", PROGRAM, "replay", *map(str, words)]
    return subprocess.run(command, capture_output=True, check=False, env={**os.environ, "PYTHONHASHSEED": seed})
