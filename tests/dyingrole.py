"""A role that stops itself at a named moment, as kill -9 or SIGSTOP would in that very instant.

    python -m dyingrole ARMED run --role ...

The one rule: the product is as it is; only here are its adapters wrapped. ARMED is a file: while it holds
`<signal> <point>`, the process that gets to the point first removes it and sends itself the signal.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from agent.adapters.kafka import KafkaDeadLetters, KafkaFaultSource, KafkaReportFeed, KafkaReportLog
from agent.adapters.kube import KubeDocumentStore
from agent.app.node_app import NodeSide

IN_FLIGHT_S: Final = 0.002
"""After this long a request has left and its answer has hardly come: either end of the race is a valid story."""
LEDGER, RESET = "fault-agent-job-", "reset-config-"


class Trap:
    """Counts how often each point is reached once it is armed."""

    def __init__(self, armed: Path) -> None:
        self._armed = armed
        self._seen: dict[str, int] = {}

    def spring(self, *points: str) -> None:
        """Here is one of these points; a point `x#2` is the second x since it was armed."""
        try:
            number, wanted = self._armed.read_text().split(" ", 1)
        except (OSError, ValueError):
            self._seen.clear()
            return
        point, _, count = wanted.partition("#")
        if point not in points:
            return
        self._seen[point] = self._seen.get(point, 0) + 1
        if self._seen[point] < int(count or 1):
            return
        self._armed.unlink(missing_ok=True)
        os.kill(os.getpid(), int(number))


def wrap(
    cls: type,
    method: str,
    *,
    before: Callable[..., None] = lambda *_: None,
    during: Callable[..., None] | None = None,
    after: Callable[..., None] = lambda *_: None,
) -> None:
    """Call these with the arguments (and `after` with the result first) around each call of an async method."""
    original: Callable[..., Awaitable[Any]] = getattr(cls, method)

    async def wrapped(self: Any, *args: Any) -> Any:
        before(*args)
        call = asyncio.ensure_future(original(self, *args))
        try:
            if during is not None:
                await asyncio.sleep(IN_FLIGHT_S)
                during(*args)
            result = await call
        finally:  # whoever is cancelled here takes its call along, as without us
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        after(result, *args)
        return result

    setattr(cls, method, wrapped)


def lay(trap: Trap) -> None:
    """Put the traps at the moments that the tests name."""

    def put(word: str) -> Callable[..., None]:
        def spring(*args: Any) -> None:
            name = args[-1].name
            for prefix, what in ((LEDGER, "ledger"), (RESET, "document")):
                if name.startswith(prefix):
                    trap.spring(f"{what} {word}")

        return spring

    wrap(KafkaFaultSource, "read", after=lambda batch, *_: trap.spring("record read") if batch.items else None)
    wrap(
        KafkaReportLog,
        "publish",
        before=lambda *_: trap.spring("report due"),
        during=lambda *_: trap.spring("report sent"),
        after=lambda *_: trap.spring("report acknowledged"),
    )
    wrap(KafkaDeadLetters, "append", after=lambda _, letters: trap.spring("letter sent") if letters else None)
    wrap(KafkaReportFeed, "read", after=lambda found, *_: trap.spring("report consumed") if found else None)
    wrap(KubeDocumentStore, "put", before=put("rendered"), during=put("sent"), after=put("answered"))
    take = NodeSide.take

    def decided(self: NodeSide, *args: Any) -> None:
        take(self, *args)
        trap.spring("record decided")

    setattr(NodeSide, "take", decided)  # noqa: B010  # a plain assignment to a method is an error to mypy


def arm(armed: Path, point: str, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the next process that comes to the point stop there."""
    made = armed.with_suffix(".new")
    made.write_text(f"{int(number)} {point}")
    made.rename(armed)


def main(words: Sequence[str]) -> None:
    """The command of the agent, trapped."""
    from agent.app.cli.main import main as command

    lay(Trap(Path(words[0])))
    sys.argv = ["fault-agent", *words[1:]]
    command()


if __name__ == "__main__":
    main(sys.argv[1:])
