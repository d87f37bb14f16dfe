"""The deputy: the leading coordinator's ear on the event stream, for nodes whose agent is silent.

The one rule: a record is decided here only when its node's report has not covered it in time, by the same decider
on that node's last report, and nothing is published; so the returning agent's report repeats the same occurrence
ids and changes nothing twice.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from agent.app.node_app import NodeSide, Taken, letter_of
from agent.domain.events import Decision, NodeReport, Record, Refusal
from agent.domain.vocab import SECOND, DeadReason, Millis, NodeName

PATIENCE = 3 * SECOND
"""How long (ms) a node's own agent has to report a record before the deputy decides it."""


class Partitioner(Protocol):
    """Which partitions a key may have gone to: for the count now and for each count there was."""

    def __call__(self, key: bytes) -> frozenset[int]: ...


@dataclass(slots=True)
class Heard:
    """What the deputy has decided: reports that stand in for the silent nodes', letters and reasons."""

    reports: dict[NodeName, NodeReport]
    taken: Taken


class Deputy:
    """Holds each record until its node's report covers it, or until the patience is over."""

    def __init__(
        self,
        make_side: Callable[[], NodeSide],
        reports: Mapping[NodeName, NodeReport],
        knows_node: Callable[[NodeName], bool],
        partitions: Partitioner,
    ) -> None:
        self._make_side = make_side
        self._reports = reports
        self._knows_node = knows_node
        self._partitions = partitions
        self._waiting: deque[tuple[Millis, Record]] = deque()
        self._sides: dict[NodeName, tuple[tuple[int, int], NodeSide]] = {}

    def hear(self, records: Iterable[Record], now: Millis) -> None:
        """Records as they arrive at the coordinator."""
        self._waiting.extend((now, record) for record in records)

    def next_deadline(self) -> Millis | None:
        """When the oldest record held has waited long enough."""
        return Millis(self._waiting[0][0] + PATIENCE) if self._waiting else None

    def due(self, now: Millis) -> Heard:
        """Decide every record that has waited long enough and that no report has covered."""
        heard = Heard({}, Taken())
        while self._waiting and self._waiting[0][0] + PATIENCE <= now:
            _, record = self._waiting.popleft()
            self._one(record, now, heard)
        return heard

    def _one(self, record: Record, now: Millis, heard: Heard) -> None:
        node = NodeName(record.key.decode("utf-8", "replace")) if record.key else NodeName("")
        report = self._reports.get(node)
        if covers(report, record):
            return
        stray = self._stray(record, node, report)
        if stray is not None:
            heard.taken.letters.append(letter_of(record, stray))
            return
        side = self._side(node, report)
        side.take(record, now, heard.taken)
        decided = side.reports().get(node)
        if decided is not None and report is not None:
            heard.reports[node] = replace(decided, epoch=report.epoch, seq=report.seq, instance="deputy")
        elif decided is not None:
            heard.reports[node] = replace(decided, epoch=0, seq=0, instance="deputy")

    def _stray(self, record: Record, node: NodeName, report: NodeReport | None) -> Refusal | None:
        """A record that no node agent will ever look at; without a key, or in a partition its key does not choose."""
        if not record.key:
            return Refusal(DeadReason.KEY_MISSING, "key: a record needs its node's name as key", record.value)
        if record.position.partition not in self._partitions(record.key):
            detail = f"partition {record.position.partition}: the key chooses another one, where its agent looks"
            return Refusal(DeadReason.MISROUTED, detail, record.value)
        if report is None and not self._knows_node(node):
            return Refusal(DeadReason.NODE_UNKNOWN, f"key: the cluster has no node {node[:80]!r}", record.value)
        return None

    def _side(self, node: NodeName, report: NodeReport | None) -> NodeSide:
        """The node's decider on its last report; made anew when the node itself has reported since."""
        version = (report.epoch, report.seq) if report is not None else (0, 0)
        known = self._sides.get(node)
        if known is not None and known[0] == version:
            return known[1]
        side = self._make_side()
        if report is not None:
            side.restore(report)
        side.caught_up = True
        self._sides[node] = (version, side)
        return side

    def forget(self, node: NodeName) -> None:
        """The node has spoken for itself."""
        self._sides.pop(node, None)


def covers(report: NodeReport | None, record: Record) -> bool:
    """Whether a node's report has scanned the record."""
    at = report.scanned.get(record.position.partition) if report is not None else None
    if at is None:
        return False
    return (at.generation, at.offset) > (record.position.generation, record.position.offset)


def told_by_deputy(decision: Decision) -> Decision:
    """The same decision, saying who made it."""
    return replace(decision, detail=f"{decision.detail}; decided by the coordinator, the node's agent is silent")
