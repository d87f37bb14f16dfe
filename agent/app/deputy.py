"""The deputy: the leading coordinator's ear on the event stream, for nodes whose agent is silent.

The one rule: a record is decided here only when its node's report has not covered it in time, by the same decider
on that node's last report, and nothing is published; so the returning agent's report repeats the same occurrence
ids and changes nothing twice. A rule over time that is due for a silent node takes effect as late, by the same
decider. Until the report covers what was decided here, that is laid over it again: a fault that the agent has not
read yet must not look as if it had gone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Protocol

from agent.app.node_app import NodeSide, Taken, letter_of
from agent.domain.events import Decision, NodeReport, Record, Refusal, Scanned
from agent.domain.node import due_of
from agent.domain.policy import Policy
from agent.domain.vocab import SECOND, DeadReason, Millis, NodeName

PATIENCE = 3 * SECOND
"""How long (ms) a node's own agent has to report a record before the deputy decides it."""
KEPT = 1000
"""Records of one node, decided here, that are laid over its reports until these cover them; of more the newest."""
SPOKEN = SECOND
"""An agent that has reported so short a time ago (ms) is behind, not silent: under load it reports each 200 ms."""


class Partitioner(Protocol):
    """Which partitions a key may have gone to: for the count now and for each count there was."""

    def __call__(self, key: bytes) -> frozenset[int]: ...


@dataclass(slots=True)
class Heard:
    """What the deputy has decided: reports that stand in for the silent nodes', letters and reasons."""

    reports: dict[NodeName, NodeReport]
    taken: Taken


@dataclass(slots=True)
class _Ear:
    """One node as it is heard."""

    waiting: deque[tuple[Millis, Record]] = field(default_factory=deque)
    decided: deque[Record] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Decided here and covered by no report of the node's own yet."""
    side: NodeSide | None = None
    """The node's decider, on its last report and what was decided since."""

    @property
    def empty(self) -> bool:
        return not (self.waiting or self.decided)


class Deputy:
    """Holds each record until its node's report covers it, or until the patience is over."""

    def __init__(
        self,
        make_side: Callable[[], NodeSide],
        reports: Mapping[NodeName, NodeReport],
        knows_node: Callable[[NodeName], bool],
        partitions: Partitioner,
        in_force: Callable[[], Policy] | None = None,
    ) -> None:
        """`in_force`: the policy that an open decider goes over to; None: it stays with the one it was made with."""
        self._make_side = make_side
        self._reports = reports
        self._knows_node = knows_node
        self._partitions = partitions
        self._in_force = in_force
        self._ears: dict[NodeName, _Ear] = {}
        self._spoke: dict[NodeName, Millis] = {}
        self._clocks: list[tuple[Millis, NodeName]] = []
        self._planned: dict[NodeName, Millis] = {}
        """When a node's report has waited too long for its agent to let a rule over time take effect."""
        self._plan_all()
        self.frozen: set[NodeName] = set()
        """Nodes whose report cannot be read or is another cluster's: nobody here decides for them."""

    def hear(self, records: Iterable[Record], now: Millis) -> None:
        """Records as they arrive at the coordinator."""
        for record in records:
            node = _node_of(record)
            if not covers(self._reports.get(node), record):
                self._ears.setdefault(node, _Ear()).waiting.append((now, record))

    def next_deadline(self) -> Millis | None:
        """When the oldest record held has waited long enough, or a rule over time is due for a silent node."""
        return min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterator[Millis]:
        while self._clocks and self._planned.get(self._clocks[0][1]) != self._clocks[0][0]:
            heappop(self._clocks)
        if self._clocks:
            yield self._clocks[0][0]
        for node, ear in self._ears.items():
            if ear.waiting:
                yield self._due_at(node, ear.waiting[0][0])
            at = ear.side.next_deadline() if ear.side is not None else None
            if at is not None:
                yield at

    def _due_at(self, node: NodeName, heard: Millis) -> Millis:
        spoke = self._spoke.get(node)
        return Millis(max(heard + PATIENCE, 0 if spoke is None else spoke + SPOKEN))

    def due(self, now: Millis) -> Heard:
        """Decide every record that has waited long enough and that no report has covered, and what time has brought."""
        heard = Heard({}, Taken())
        self._let_time_pass(now, heard)
        for node, ear in list(self._ears.items()):
            while ear.waiting and self._due_at(node, ear.waiting[0][0]) <= now:
                _, record = ear.waiting.popleft()
                if node not in self.frozen:
                    self._one(ear, record, node, now, heard.taken)
            if ear.side is not None:
                self._tick(node, ear.side, now, heard)
            if ear.empty:
                del self._ears[node]
        return heard

    def _let_time_pass(self, now: Millis, heard: Heard) -> None:
        """Deadlines of nodes of which no record is decided here; one that waits goes first, and takes them along."""
        passed = []
        while self._clocks and self._clocks[0][0] <= now:
            at, node = heappop(self._clocks)
            if self._planned.get(node) == at:
                del self._planned[node]
                passed.append(node)
        for node in passed:
            report, ear = self._reports.get(node), self._ears.get(node)
            if report is None or node in self.frozen or (ear is not None and ear.side is not None):
                continue
            if ear is None or not ear.waiting:
                side = self._side(report)
                self._tick(node, side, now, heard)
                self._plan(heard.reports.get(node, report), now)
            else:
                self._put(node, Millis(now + PATIENCE))

    def _tick(self, node: NodeName, side: NodeSide, now: Millis, heard: Heard) -> None:
        if self._in_force is not None:
            side.use(self._in_force())
        side.tick(now, heard.taken)
        self._tell(node, side, heard)

    def _plan_all(self) -> None:
        self._clocks.clear()
        self._planned.clear()
        for report in self._reports.values():
            self._plan(report, Millis(0))

    def _plan(self, report: NodeReport, now: Millis) -> None:
        """Look at the node again when its next rule over time is due and its agent has not spoken of it."""
        at = due_of(report)
        if at is None:
            self._planned.pop(report.node, None)
        else:
            self._put(report.node, Millis(max(at + PATIENCE, now + SPOKEN)))

    def _put(self, node: NodeName, at: Millis) -> None:
        if self._planned.get(node) != at:
            self._planned[node] = at
            heappush(self._clocks, (at, node))
            if len(self._clocks) > 2 * len(self._planned) + 64:  # a release is days ahead, and moves with each fault
                self._clocks = [(when, one) for one, when in self._planned.items()]
                heapify(self._clocks)

    def _one(self, ear: _Ear, record: Record, node: NodeName, now: Millis, taken: Taken) -> None:
        report = self._reports.get(node)
        if covers(report, record):
            return
        stray = self._stray(record, node, report)
        if stray is not None:
            taken.letters.append(letter_of(record, stray))
            return
        if ear.side is None:
            ear.side = self._side(report)
        ear.side.take(record, now, taken)
        ear.side.claim(node)  # a record that could not be used has been read all the same
        ear.decided.append(record)

    def _tell(self, node: NodeName, side: NodeSide, heard: Heard) -> None:
        decided = side.reports().get(node)
        if decided is not None:
            report = self._reports.get(node)
            epoch, seq = (report.epoch, report.seq) if report is not None else (0, 0)
            heard.reports[node] = replace(decided, epoch=epoch, seq=seq, instance="deputy")

    def _stray(self, record: Record, node: NodeName, report: NodeReport | None) -> Refusal | None:
        """A record that no node agent will ever look at; without a key, or in a partition its key does not choose."""
        partition = record.position.partition
        if not record.key:
            return Refusal(DeadReason.KEY_MISSING, "key: a record needs its node's name as key", record.value)
        if partition not in self._partitions(record.key) and (report is None or partition not in report.scanned):
            detail = f"partition {partition}: the key chooses another one, where its agent looks"
            return Refusal(DeadReason.MISROUTED, detail, record.value)
        if report is None and not self._knows_node(node):
            return Refusal(DeadReason.NODE_UNKNOWN, f"key: the cluster has no node {node[:80]!r}", record.value)
        return None

    def _side(self, report: NodeReport | None) -> NodeSide:
        """The node's decider on its last report."""
        side = self._make_side()
        if report is not None:
            side.restore(report)
        side.caught_up = True
        return side

    def spoke(self, node: NodeName, report: NodeReport, now: Millis) -> NodeReport:
        """The node has spoken for itself: its report, with what it does not cover yet of what was decided here."""
        self._spoke[node] = now
        self._plan(report, now)
        ear = self._ears.get(node)
        if ear is None:
            return report
        ear.side = None
        ear.waiting = deque(one for one in ear.waiting if not covers(report, one[1]))
        ear.decided = deque((one for one in ear.decided if not covers(report, one)), maxlen=KEPT)
        if ear.empty:
            del self._ears[node]
        if not ear.decided:
            return report
        ear.side = self._side(report)
        for record in ear.decided:
            ear.side.take(record, now, Taken())
        ear.side.claim(node)
        laid = ear.side.reports().get(node, report)
        return replace(laid, epoch=report.epoch, seq=report.seq, instance=report.instance)

    def settled(self, places: Mapping[int, Scanned]) -> dict[int, Scanned]:
        """How far all is decided, when the stream has been heard up to these places; costs what is waiting."""
        settled = dict(places)
        for ear in self._ears.values():
            for _, record in ear.waiting:
                at = record.position
                last = settled.get(at.partition)
                if last is not None and (at.generation, at.offset) < (last.generation, last.offset):
                    settled[at.partition] = Scanned(at.generation, at.offset)
        return settled

    def begin(self) -> None:
        """A new term: what was heard in an earlier one is heard again."""
        self._ears.clear()
        self._plan_all()

    def forget(self, node: NodeName) -> None:
        """The node is gone for good."""
        self._ears.pop(node, None)
        self._spoke.pop(node, None)
        self._planned.pop(node, None)
        self.frozen.discard(node)


def _node_of(record: Record) -> NodeName:
    return NodeName(record.key.decode("utf-8", "replace") if record.key else "")


def covers(report: NodeReport | None, record: Record) -> bool:
    """Whether a node's report has scanned the record."""
    at = report.scanned.get(record.position.partition) if report is not None else None
    if at is None:
        return False
    return (at.generation, at.offset) > (record.position.generation, record.position.offset)


def told_by_deputy(decision: Decision) -> Decision:
    """The same decision, saying who made it."""
    return replace(decision, detail=f"{decision.detail}; decided by the coordinator, the node's agent is silent")
