"""Reading what a topic holds at this moment, once: from an offset, a time or the beginning, up to where it ends now.

The one rule: it ends, because the end is noted before the first record is read.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import ConsumerRecord

from agent.adapters.kafka.lookout import EARLIEST, LATEST, Lookout
from agent.adapters.kafka.reader import Reader
from agent.adapters.kafka.settings import KafkaSettings
from agent.domain.vocab import Millis

CHUNK: Final = 500
SLICE_S: Final = 0.01
"""Longest time without giving way to others in the loop, apart from one chunk."""
_WAIT_S: Final = 0.5


class Shelf:
    """A topic opened for reading once, or several times over."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self.lookout: Final = Lookout(settings, topic)
        self._reader = Reader(settings, topic)

    async def partitions(self) -> frozenset[int]:
        """Raises CannotRun (no such topic), Refused, Unavailable."""
        return frozenset((await self.lookout.topic()).leaders)

    async def records(
        self, starts: Mapping[int, int], ends: Mapping[int, int]
    ) -> AsyncGenerator[list[ConsumerRecord], None]:
        """What lies from `starts` to before `ends`, partition by partition in order, in lists that are never empty.

        Raises Refused (no right to read) and Unavailable, the latter also when what is there does not come.
        """
        wanted = {p: start for p, start in starts.items() if start < ends[p]}
        await self._reader.seek(wanted)
        loop = asyncio.get_running_loop()
        yielded = loop.time()
        while not await self._reader.has_reached({p: ends[p] for p in wanted}):
            if not await self._reader.fill(CHUNK, _WAIT_S):
                await self._reader.tell_stalled()
            taken = [r for r in self._reader.take(CHUNK) if r.offset < ends[r.partition]]
            if taken:
                yield taken
            if loop.time() - yielded > SLICE_S:
                await asyncio.sleep(0)
                yielded = loop.time()

    async def everything(self) -> AsyncGenerator[list[ConsumerRecord], None]:
        """All records that are there now. Raises CannotRun, Refused, Unavailable."""
        async for records in self.newest(None):
            yield records

    async def newest(
        self, limit: int | None, since: Millis | None = None
    ) -> AsyncGenerator[list[ConsumerRecord], None]:
        """Of each partition the newest `limit` records that are there now (all for None), and of these no older ones
        than `since` (ms). Raises CannotRun, Refused, Unavailable.
        """
        partitions = await self.partitions()
        starts = await self.lookout.offsets(partitions, EARLIEST)
        ends = await self.lookout.offsets(partitions, LATEST)
        if since is not None:
            young = await self.lookout.offsets(partitions, max(since, Millis(0)))
            starts = {p: young.get(p, ends[p]) for p in starts}
        if limit is not None:
            starts = {p: max(start, ends[p] - limit) for p, start in starts.items()}
        async for records in self.records(starts, ends):
            yield records

    async def close(self) -> None:
        """Bounded; may be called again."""
        await self._reader.drop()
        await self.lookout.close()


@asynccontextmanager
async def shelf(settings: KafkaSettings, topic: str) -> AsyncGenerator[Shelf, None]:
    """A Shelf that is closed afterwards."""
    opened = Shelf(settings, topic)
    try:
        yield opened
    finally:
        await opened.close()
