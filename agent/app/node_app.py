"""The node side: records in, books changed, refusals and reasons out. It knows no Kubernetes.

The one rule: nothing waits between deciding and evolving, and a record whose deciding fails changes nothing,
is dead-lettered as INTERNAL and the next one goes on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from agent.domain.events import Decision, Decoded, NodeReport, Record, Refusal, Scanned, fault_ref
from agent.domain.node import (
    Advanced,
    Change,
    NodeBook,
    Outcome,
    Placed,
    Policed,
    decide,
    evolve,
    next_deadline,
    probe,
    record_digest,
    tick,
)
from agent.domain.policy import Policy
from agent.domain.vocab import DeadReason, Millis, NodeName
from agent.ports import Tracer
from agent.wire.inbound import Limits, decode
from agent.wire.report import encode


@dataclass(slots=True)
class Taken:
    """What came of some records: letters for the dead-letter store, and a reason for every event."""

    letters: list[Record] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    records: int = 0


class NodeSide:
    """The books of the nodes that this process decides for: one in the node role, all of them in solo."""

    def __init__(
        self,
        policy: Policy,
        cluster: str,
        instance: str,
        limits: Limits,
        max_event_age: Millis,
        tracer: Tracer,
        machine: str = "",
    ) -> None:
        self.policy = policy
        self.caught_up = False
        self._cluster = cluster
        self._instance = instance
        self._machine = machine
        self._limits = limits
        self._max_event_age = max_event_age
        self._tracer = tracer
        self._books: dict[NodeName, NodeBook] = {}
        self._versions: dict[NodeName, tuple[int, int]] = {}
        self._dirty: set[NodeName] = set()
        self.eventful = False
        """Something happened since the last reports that others should hear of at once."""
        self._due: list[tuple[Millis, NodeName]] = []
        self._planned: dict[NodeName, Millis] = {}
        self.serials: Mapping[str, str] = {}

    def use(self, policy: Policy) -> None:
        """Another policy from now on: the next tick rates by it, on every node, all that is active or counted."""
        new, self.policy = policy.digest != self.policy.digest, policy
        for node in self._books if new else ():
            self._dirty.add(node)
            self.eventful = True  # by which policy a node is rated is news too
            self._wake(node)

    def restore(self, report: NodeReport, *, fresh: bool = False) -> None:
        """Go on from a report of an earlier run, with the next epoch; `fresh`: on a new machine, with nothing of it."""
        book = (
            NodeBook(report.node, self._max_event_age) if fresh else NodeBook.from_report(report, self._max_event_age)
        )
        self._books[report.node] = book
        self._versions[report.node] = (report.epoch + 1, 0)
        self._wake(report.node)

    def claim(self, node: NodeName) -> None:
        """Report this node whole next time, also when nothing is known of it yet."""
        self._books.setdefault(node, NodeBook(node, self._max_event_age))
        self._dirty.add(node)

    def scanned(self, node: NodeName) -> Mapping[int, Scanned]:
        """How far the node's book has read each partition."""
        book = self._books.get(node)
        return book.scanned if book is not None else {}

    def note_place(self, node: NodeName, partition: int, at: Scanned) -> None:
        """A partition that is read and has given nothing yet; a place that is known stays."""
        book = self._books.setdefault(node, NodeBook(node, self._max_event_age))
        if partition not in book.scanned:
            evolve(book, Placed(partition, at))
            self._dirty.add(node)

    def skip(self, node: NodeName, record: Record, now: Millis) -> None:
        """A record that says nothing of this node: only its place is noted. Of a run of them the last is enough."""
        book = self._books.get(node)
        if book is None:
            book = self._books[node] = NodeBook(node, self._max_event_age)
        evolve(book, Advanced(now, record.position, record_digest(record)))

    def take(self, record: Record, now: Millis, taken: Taken) -> None:
        """Decode, decide and evolve one record at stream time `now` (ms); results are added to `taken`."""
        taken.records += 1
        if not self._tracer.enabled:
            self._take(record, now, taken, "")
            return
        parent = next((v.decode("ascii", "replace") for k, v in record.headers if k == "traceparent"), "")
        with self._tracer.span(
            "record", parent if len(parent) == 55 else "", position=str(record.position), policy=self.policy.digest[:12]
        ) as span:
            self._take(record, now, taken, span.traceparent)

    def _take(self, record: Record, now: Millis, taken: Taken, trace: str) -> None:
        decoded = decode(record, self.policy, now, self._limits, self.serials)
        if trace:
            decoded = replace(decoded, events=tuple(replace(event, trace=trace) for event in decoded.events))
        refusals = list(decoded.refusals)
        if decoded.node is not None and (decoded.events or decoded.message_id):
            refusals += self._decide(decoded.node, decoded, record, now, taken, trace)
        elif decoded.node in self._books:
            self.skip(decoded.node, record, now)  # refused whole: the place is read all the same
        taken.letters += [letter_of(record, refusal) for refusal in refusals]

    def _decide(
        self, node: NodeName, decoded: Decoded, record: Record, now: Millis, taken: Taken, trace: str
    ) -> Sequence[Refusal]:
        book = self._books.get(node) or NodeBook(node, self._max_event_age)
        try:
            changes = decide(book, decoded, now, self.policy, digest=record_digest(record))
        except Exception as error:  # poison must cost one record, not the stream
            self.skip(node, record, now)
            return [Refusal(DeadReason.INTERNAL, f"{type(error).__name__}: {error}", record.value)]
        self._books[node] = book
        with self._tracer.span("decide", trace, node=node, policy=self.policy.digest[:12]) as span:
            for change in changes:
                if isinstance(change, Outcome):
                    span.set(reason=str(change.reason))
            self._evolve(book, changes, now, taken)
        return ()

    def probe(self, node: NodeName, links: Mapping[int, str], at: Millis, taken: Taken) -> None:
        """Take a link probe of a node: device -> `up`, `down` or anything else for unknown."""
        book = self._books.setdefault(node, NodeBook(node, self._max_event_age))
        # A probe that is read once more after a restart says nothing against what was seen after it.
        fresh = {one: state for one, state in links.items() if one not in book.links or book.links[one].at <= at}
        self._evolve(book, probe(book, fresh, at), at, taken)

    def tick(self, now: Millis, taken: Taken) -> None:
        """Let every deadline that lies before `now` take effect, and a policy that is new."""
        while self._due and self._due[0][0] <= now:
            at, node = heappop(self._due)
            if self._planned.get(node) != at:
                continue  # another deadline took its place
            del self._planned[node]
            book = self._books[node]
            self._evolve(book, tick(book, now, self.policy), now, taken)

    def next_deadline(self) -> Millis | None:
        """The earliest stream time at which a tick changes something, or None."""
        while self._due and self._planned.get(self._due[0][1]) != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def _evolve(self, book: NodeBook, changes: Sequence[Change], now: Millis, taken: Taken) -> None:
        for change in changes:
            if isinstance(change, Outcome):
                taken.decisions.append(_told(book, change, now, self.policy))
                self.eventful = True
            evolve(book, change)
        self._dirty.add(book.node)
        self._wake(book.node)

    def _wake(self, node: NodeName) -> None:
        book = self._books[node]
        at = next_deadline(book)
        if book.policy not in ("", self.policy.digest):
            at = book.clock  # what an earlier run rated is rated anew at once
        if at is None:
            self._planned.pop(node, None)
        elif self._planned.get(node) != at:
            self._planned[node] = at
            heappush(self._due, (at, node))

    def reports(self) -> dict[NodeName, NodeReport]:
        """Reports of the nodes that changed since the last call, each with its next sequence number."""
        found: dict[NodeName, NodeReport] = {}
        for node in sorted(self._dirty):
            if not self._books[node].policy:  # nothing was rated yet: it will be by this one
                evolve(self._books[node], Policed(self.policy.digest))
            epoch, seq = self._versions.get(node, (1, 0))
            self._versions[node] = (epoch, seq + 1)
            found[node] = self._books[node].report(
                self._cluster, epoch, seq + 1, self._instance, machine=self._machine, caught_up=self.caught_up
            )
        self._dirty.clear()
        self.eventful = False
        return found

    def all_dirty(self) -> None:
        """Report every node next time: a claim is a full report."""
        self._dirty.update(self._books)
        self.eventful = True


def unheard(report: NodeReport) -> str:
    """What a person must know of a report that has no room for all active faults; empty when it tells all."""
    if not report.lost:
        return ""
    return (
        f"the report of {report.node} has no room for {report.lost} active faults: until a report tells all again,"
        " nothing of the node is taken for gone; see docs/node-report.md, What is cut"
    )


def encode_reports(reports: Mapping[NodeName, NodeReport]) -> dict[NodeName, bytes]:
    """Reports as bytes, each cut to its size limit if need be."""
    return {node: encode(report) for node, report in reports.items()}


def _told(book: NodeBook, change: Outcome, now: Millis, policy: Policy) -> Decision:
    """An outcome as a decision for people; the reference names when the fault began."""
    active = change.active or book.active.get(change.identity)
    event = change.event
    if change.begun is not None and change.begun.end is not None:
        since, level = change.begun.begin, change.begun.level
    elif active is not None:
        since, level = active.since, active.level
    else:
        since, level = (event.at if event is not None else now), ""
    if change.begun is not None:
        level = change.begun.level
    return Decision(
        at=now,
        reason=change.reason,
        node=book.node,
        fault=fault_ref(change.key, since),
        level=level,
        detail=change.detail,
        occurrence=event.occurrence if event is not None else "",
        trace=event.trace if event is not None else "",
        policy=policy.digest[:12],
    )


def letter_of(record: Record, refusal: Refusal) -> Record:
    """The dead letter of a refusal: key and headers kept, reason, detail and source added."""
    source = str(record.position)
    if refusal.indexes:
        source += "[" + ",".join(map(str, refusal.indexes)) + "]"
    headers = (
        *record.headers,
        ("fault-agent-reason", str(refusal.reason).encode()),
        ("fault-agent-detail", refusal.detail.encode("utf-8", "replace")),
        ("fault-agent-source", source.encode()),
    )
    return replace(record, value=refusal.value, headers=headers)
