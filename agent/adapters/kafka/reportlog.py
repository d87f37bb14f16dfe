"""The reports topic as a ReportLog: one node's report always in the same partition, one in flight.

The one rule: after a failure the caller sends the newest state, never the one that failed.
"""

from collections.abc import Collection, Mapping

from agent.adapters.kafka.drain import Shelf, shelf
from agent.adapters.kafka.lookout import EARLIEST, LATEST
from agent.adapters.kafka.settings import KafkaSettings
from agent.adapters.kafka.writer import Message, Writer
from agent.domain.partition import partition_of
from agent.domain.vocab import Millis, NodeName
from agent.errors import CannotRun


class KafkaReportLog:
    """ReportLog over one topic. `partitions`: the fixed count that reports are spread over by node name.

    `deadline_s`: how long one `publish` may take to be acknowledged.
    """

    def __init__(self, settings: KafkaSettings, topic: str, partitions: int, *, deadline_s: float = 5.0) -> None:
        self._settings = settings
        self._topic = topic
        self._partitions = partitions
        self._writer = Writer(settings, topic, deadline_s=deadline_s)

    async def open(self) -> None:
        """Connect and check the topic. Raises CannotRun (no topic, too few partitions), Refused, Unavailable."""
        there = len((await self._writer.open()).leaders)
        if there < self._partitions:
            raise CannotRun(
                f"topic {self._topic} has {there} partitions and reports are spread over {self._partitions}",
                hint="make kafka.report_partitions and the topic agree",
            )

    async def publish(self, reports: Mapping[NodeName, bytes]) -> None:
        """See ReportLog; until it has worked once also CannotRun and Refused."""
        await self._writer.write([self._message(node, report) for node, report in reports.items()])

    async def tombstone(self, node: NodeName) -> None:
        """Forget a node: compaction then removes its reports. Raises as `publish` does."""
        await self._writer.write([self._message(node, None)])

    async def last(self, node: NodeName, since: Millis) -> bytes | None:
        """The newest report of one node, or None (also after a tombstone).

        Looks first at what is as young as `since` (ms; now less two heartbeats finds it for a node that was alive),
        then at the rest of the partition. Raises CannotRun, Refused, Unavailable.
        """
        partition = self._partition(node)
        async with shelf(self._settings, self._topic) as opened:
            begin = await opened.lookout.offsets([partition], EARLIEST)
            end = await opened.lookout.offsets([partition], LATEST)
            middle = end | await opened.lookout.offsets([partition], max(since, Millis(0)))
            for starts, ends in ((middle, end), (begin, middle)):
                found = await _newest(opened, node, starts, ends)
                if found is not None:
                    return found[0]
        return None

    async def of(self, nodes: Collection[NodeName]) -> Mapping[NodeName, bytes]:
        """Newest report of each of these nodes that has one; reads their partitions. Raises as `last` does."""
        newest: dict[NodeName, bytes | None] = {}
        partitions = {self._partition(node) for node in nodes}
        async with shelf(self._settings, self._topic) as opened:
            begin = await opened.lookout.offsets(partitions, EARLIEST)
            end = await opened.lookout.offsets(partitions, LATEST)
            async for records in opened.records(begin, end):
                for record in records:
                    node = NodeName((record.key or b"").decode("utf-8", "replace"))
                    if node in nodes:
                        newest[node] = record.value
        return {node: report for node, report in newest.items() if report is not None}

    async def latest(self) -> Mapping[NodeName, bytes]:
        """See ReportLog. Reads the whole topic. Raises CannotRun, Refused, Unavailable."""
        newest: dict[NodeName, bytes | None] = {}
        async with shelf(self._settings, self._topic) as opened:
            async for records in opened.everything():
                for record in records:
                    if record.key is not None:
                        newest[NodeName(record.key.decode("utf-8", "replace"))] = record.value
        return {node: report for node, report in newest.items() if report is not None}

    async def close(self) -> None:
        """Bounded; may be called again."""
        await self._writer.close()

    def _partition(self, node: NodeName) -> int:
        return partition_of(node.encode(), self._partitions)

    def _message(self, node: NodeName, report: bytes | None) -> Message:
        return Message(node.encode(), report, self._partition(node))


async def _newest(
    opened: Shelf, node: NodeName, starts: Mapping[int, int], ends: Mapping[int, int]
) -> tuple[bytes | None] | None:
    """The last value under this key in that stretch, in a tuple because it may be a tombstone; None: no such key."""
    key = node.encode()
    found: tuple[bytes | None] | None = None
    async for records in opened.records(starts, ends):
        for record in records:
            if record.key == key:
                found = (record.value,)
    return found
