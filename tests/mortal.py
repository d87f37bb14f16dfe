"""A disk that dies at the n-th durable write, before that write has any effect: what a kill -9 leaves behind.

The one rule: every durable write of a solo run goes through one counter; after the death nothing more is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rig import Disk

from agent.adapters.memory import MemoryFaultSource
from agent.domain.vocab import NodeName
from agent.ports import Batch, Cabinet, ConfigMap, DocumentStore, Journal, ReportLog


class Died(BaseException):
    """The process is gone; nothing may catch it."""


@dataclass
class Clock:
    """Counts durable writes; the one with number `last` is not made any more."""

    last: int
    writes: int = 0

    def strike(self) -> None:
        self.writes += 1
        if self.writes >= self.last:
            raise Died


class MortalStore:
    """DocumentStore."""

    def __init__(self, inner: DocumentStore, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        return await self._inner.get(namespace, name)

    async def put(self, document: ConfigMap) -> ConfigMap:
        self._clock.strike()
        return await self._inner.put(document)

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        self._clock.strike()
        await self._inner.delete(namespace, name, resource_version)

    async def list(self) -> Sequence[ConfigMap]:
        return await self._inner.list()

    def watch(self) -> Any:
        return self._inner.watch()

    def as_manager(self, manager: str) -> "MortalStore":
        """Another writer of the same objects, who dies with us."""
        return MortalStore(self._inner.as_manager(manager), self._clock)  # type: ignore[attr-defined]  # memory only


class MortalJournal:
    """Journal."""

    def __init__(self, inner: Journal, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def append(self, lines: Sequence[bytes]) -> None:
        self._clock.strike()
        await self._inner.append(lines)

    async def read(self) -> Sequence[bytes]:
        return await self._inner.read()


class MortalCabinet:
    """Cabinet."""

    def __init__(self, inner: Cabinet, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def load(self, name: str) -> bytes | None:
        return await self._inner.load(name)

    async def store(self, name: str, data: bytes) -> None:
        self._clock.strike()
        await self._inner.store(name, data)


class MortalReports:
    """ReportLog."""

    def __init__(self, inner: ReportLog, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock

    async def publish(self, reports: Mapping[NodeName, bytes]) -> None:
        self._clock.strike()
        await self._inner.publish(reports)

    async def latest(self) -> Mapping[NodeName, bytes]:
        return await self._inner.latest()


def mortal(disk: Disk, last: int) -> tuple[Disk, Clock]:
    """The same disk, as a process sees it that dies at its write number `last`."""
    clock = Clock(last)
    store = MortalStore(disk.store, clock)
    seen = Disk(
        reports=MortalReports(disk.reports, clock),
        cabinet=MortalCabinet(disk.cabinet, clock),
        letters=MortalJournal(disk.letters, clock),
        audit=MortalJournal(disk.audit, clock),
        store=store,
        foreign=store.as_manager(""),
    )
    return seen, clock


class SmallReads(MemoryFaultSource):
    """A source that gives a few items at a time, so that its place is kept often."""

    async def read(self, limit: int) -> Batch:
        return await super().read(min(limit, 7))
