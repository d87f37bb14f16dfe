"""The reports topic as a ReportFeed: newest report per node, from the beginning, then as they come.

The one rule: nothing is given before the end noted at `open` is reached, so that only the newest bytes of each node
are ever decoded; compaction lags ten minutes and a node's older reports are of no use to anyone.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from aiokafka import ConsumerRecord

from agent.adapters.kafka.drain import CHUNK, SLICE_S
from agent.adapters.kafka.lookout import EARLIEST, LATEST, Lookout
from agent.adapters.kafka.reader import OutOfRange, Reader
from agent.adapters.kafka.settings import KafkaSettings
from agent.domain.partition import partition_of
from agent.domain.vocab import Millis, NodeName
from agent.errors import AgentError, CannotRun, Unavailable
from agent.ports import Progress

_SURVEY_S: Final = 5.0
_ABSORB_S: Final = 0.25


class KafkaReportFeed:
    """ReportFeed over all partitions of the reports topic.

    `nodes`: only these nodes' reports. With `partitions`, the fixed count that reports are spread over, only the
    partitions of those nodes are read at all. `since` (ms) begins by the time index instead of at the beginning.
    `each=True` gives every report in turn, one of a node per read, as someone needs who must not miss that another
    wrote in between.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        nodes: frozenset[NodeName] | None = None,
        *,
        partitions: int | None = None,
        since: Millis | None = None,
        each: bool = False,
    ) -> None:
        self._topic = topic
        self._nodes = nodes
        self._count = partitions
        self._since = since
        self._each = each
        self._lookout = Lookout(settings, topic)
        self._reader = Reader(settings, topic)
        self._is_open = False
        self._identity = b""
        self._awaited: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._newest: dict[NodeName, deque[bytes | None]] = {}
        self._survey_at = 0.0
        self._is_complete = False

    @property
    def complete(self) -> bool:
        return self._is_open and self._is_complete

    async def open(self) -> None:
        await self.close()
        self._newest = {}
        await self._begin(self._since)
        self._is_complete = not self._awaited
        self._is_open = True

    async def read(self) -> Mapping[NodeName, bytes | None]:
        if not self._is_open:
            raise CannotRun(f"topic {self._topic}: the feed is not open")
        try:
            try:
                await self._absorb()
                if self._now() >= self._survey_at:
                    await self._survey()
            except OutOfRange:
                # Not within what the topic holds: it was made anew, for retention spares the newest of a key.
                await self._begin(None)
        except CannotRun as error:
            # What has worked may work again: the topic is gone, or the password is refused now.
            await self._reader.drop()
            raise Unavailable(error.message, hint=error.hint) from error
        if self._awaited:
            return {}
        given = {node: reports.popleft() for node, reports in self._newest.items()}
        self._newest = {node: reports for node, reports in self._newest.items() if reports}
        self._is_complete = self._is_complete or not self._newest
        return given

    async def wait(self, seconds: float) -> None:
        if not self._is_open or self._reader.buffered or (self._newest and not self._awaited):
            return
        try:
            await self._reader.fill(CHUNK, seconds)
        except OutOfRange:
            self._survey_at = 0.0
        except AgentError:
            # `read` meets it again and says so.
            await asyncio.sleep(min(seconds, 1.0))

    async def close(self) -> None:
        self._is_open = False
        await self._reader.drop()
        await self._lookout.close()

    def progress(self) -> Mapping[int, Progress]:
        """Next offset to read and last known end, by partition."""
        return {
            p: Progress(at, max(at, self._ends.get(p, 0), self._reader.highwater(p)))
            for p, at in self._reader.positions.items()
        }

    async def _begin(self, since: Millis | None) -> None:
        topic = await self._lookout.topic()
        partitions = self._chosen(frozenset(topic.leaders))
        self._ends = await self._lookout.offsets(partitions, LATEST)
        starts = await self._lookout.offsets(partitions, EARLIEST if since is None else since)
        starts = self._ends | starts  # no record is that young: what comes will be
        self._identity = topic.identity
        self._awaited = {p: end for p, end in self._ends.items() if starts[p] < end}
        await self._reader.seek(starts)
        self._survey_at = self._now() + _SURVEY_S

    def _chosen(self, there: frozenset[int]) -> frozenset[int]:
        if self._nodes is None or self._count is None:
            return there
        chosen = frozenset(partition_of(node.encode(), self._count) for node in self._nodes)
        if missing := chosen - there:
            raise CannotRun(
                f"topic {self._topic} has {len(there)} partitions and reports are spread over {self._count}; "
                f"partition {min(missing)} is missing",
                hint="make kafka.report_partitions and the topic agree",
            )
        return chosen

    async def _absorb(self) -> None:
        """Take in what has come, giving way to others every few milliseconds, for a quarter of a second at most."""
        began = yielded = self._now()
        while (await self._reader.fill(CHUNK, 0) or self._reader.buffered) and self._now() - began < _ABSORB_S:
            for record in self._reader.take(CHUNK):
                self._keep(record)
            if self._now() - yielded > SLICE_S:
                await asyncio.sleep(0)
                yielded = self._now()
        if self._awaited and not self._reader.buffered and await self._reader.has_reached(self._awaited):
            self._awaited = {}

    def _keep(self, record: ConsumerRecord) -> None:
        node = NodeName((record.key or b"").decode("utf-8", "replace"))
        if not node or (self._nodes is not None and node not in self._nodes):
            return
        if self._each:
            self._newest.setdefault(node, deque()).append(record.value)
        else:
            self._newest[node] = deque((record.value,))

    async def _survey(self) -> None:
        """Find out what a consumer does not tell: that the topic is another one, or that nothing comes any more."""
        topic = await self._lookout.topic()
        if topic.identity != self._identity:
            await self._begin(None)
            return
        self._ends = await self._lookout.offsets(self._reader.positions, LATEST)
        self._survey_at = self._now() + _SURVEY_S
        if any(at > self._ends[p] for p, at in self._reader.positions.items()):
            await self._begin(None)
        elif not await self._reader.has_reached(self._ends) and not await self._reader.fill(CHUNK, 0):
            await self._reader.tell_stalled()

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
