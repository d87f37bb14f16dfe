"""What a person is told while a run goes on, beside its decisions: letters as they are kept, objects as they come.

The one rule: it looks on; nothing that it does or fails to do changes what the run does.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.domain.events import Record
from agent.domain.vocab import Millis
from agent.ports import Batch, Control, DeadLetters, FaultSource
from agent.wire.requeue import header


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter as it is told."""

    at: Millis
    """The clock of the run when it was kept."""
    key: str
    """The record's key, which is the node's name; empty when it had none."""
    reason: str
    detail: str
    source: str
    """`generation:partition:offset`, and in brackets the places of the faults that were refused."""
    generation: int
    offset: int
    """In a file the byte at which its line begins."""


class ToldLetters:
    """DeadLetters that are told once they are durable, off the loop: who is told may look into the file for its line.

    After a kill a letter may be told again, as it is read again.
    """

    def __init__(self, inner: DeadLetters, clock: Callable[[], Millis], tell: Callable[[Letter], None]) -> None:
        self._inner = inner
        self._clock = clock
        self._tell = tell

    async def append(self, letters: Sequence[Record]) -> None:
        await self._inner.append(letters)
        clock = self._clock()
        await asyncio.to_thread(self._tell_all, [letter_of(letter, clock) for letter in letters])

    def _tell_all(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._tell(letter)


def letter_of(record: Record, clock: Millis) -> Letter:
    """A dead letter in the words in which it is told; its time is the record's own if that lies before the clock."""
    return Letter(
        at=record.timestamp if 0 < record.timestamp <= clock else clock,
        key=(record.key or b"").decode("utf-8", "replace"),
        reason=header(record, "reason"),
        detail=header(record, "detail"),
        source=header(record, "source"),
        generation=record.position.generation,
        offset=record.position.offset,
    )


class WatchedSource:
    """A FaultSource that lets somebody look before each read, when all that was read before has had its effect.

    `look` is told whether the items of the last read changed objects.
    """

    def __init__(self, inner: FaultSource, look: Callable[[bool], None]) -> None:
        self._inner = inner
        self._look = look
        self._moved = True
        self.finished = inner.finished

    async def open(self, resume: bytes | None) -> None:
        await self._inner.open(resume)

    async def read(self, limit: int) -> Batch:
        self._look(self._moved)
        batch = await self._inner.read(limit)
        self._moved = any(isinstance(item, Control) and item.kind in ("apply", "delete") for item in batch.items)
        self.finished = self._inner.finished
        return batch

    async def wait(self, seconds: float) -> None:
        await self._inner.wait(seconds)

    async def close(self) -> None:
        await self._inner.close()
