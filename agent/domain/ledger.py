"""The coordinator's memory: what has been done, what is under way, and which counters we own.

The one rule: nothing of this is kept in a document of others; each value here is absolute, so writing it twice
changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.domain.events import FaultKey, Occurrence, Scanned
from agent.domain.isolation import Counts, Isolation
from agent.domain.jobs.view import Incarnation
from agent.domain.reschedule import JobRecords, RescheduleReason
from agent.domain.reset import Recovery
from agent.domain.vocab import JobId, Millis, NodeName, Reason

KEEP_DONE_FACTOR = 2
"""A done mark is kept for this many times max_event_age: longer than any report repeats its occurrence."""


@dataclass(frozen=True, slots=True)
class Done:
    """An occurrence (at one level) that has been decided, when and how."""

    at: Millis
    reason: Reason


@dataclass(frozen=True, slots=True)
class Member:
    """Where a pod of the job was placed; kept until the job is whole again without it."""

    uid: str
    pod: str
    node: NodeName
    devices: tuple[int, ...]
    rank_index: str = ""
    """Its `hccl/rankIndex`, or empty."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pod that a fault has hit, remembered until it is replaced or well again."""

    uid: str
    reason: RescheduleReason
    since: Millis


@dataclass(frozen=True, slots=True)
class Course:
    """A recovery under way, with what binds it to pods and to the fault that started it."""

    recovery: Recovery
    pods: tuple[str, ...]
    """UIDs of the pods that held the listed devices when it began."""
    fault: str
    level: str
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """An occurrence that a quiet rule keeps back from the job."""

    until: Millis | None
    """Its last quiet moment; None: until the rule's cause is over."""
    node: NodeName
    rule: str


@dataclass(frozen=True, slots=True)
class Separation:
    """A device that is separated by hand, as MindCluster calls it: until a person or its window releases it."""

    device: int
    code: str
    since: Millis
    """When it was last separated."""
    occurrence: str = ""
    trace: str = ""
    trip: str = ""
    """The trip of a node's frequency rule that it keeps; empty: it comes of counting here."""
    due: Millis | None = None
    """Of a trip whose fault has recovered: its release, as the node last told it."""


@dataclass(frozen=True, slots=True)
class Related:
    """What a relation rule has come to for a pod; a separation stays until the pod is replaced."""

    key: FaultKey
    """The relation fault."""
    separate: bool
    """Otherwise sub-healthy."""
    since: Millis
    occurrence: str = ""


@dataclass(frozen=True, slots=True)
class JobLedger:
    """All that must survive of one job. ConfigMap fault-agent-job-<PodGroup>, one per job."""

    job: JobId
    cluster: str
    owner: str = ""
    """UID of the job's owner; another owner under the same name starts the counters anew."""
    term: int = 0
    life: Incarnation | None = None
    last_recovery: int = 0
    """RecoveryId of the newest recovery; counts up over the job's life."""
    retry_high: int = 0
    """The highest RetryTime that readers may have acted on. Others set it back; only a higher one starts who stands at
    it."""
    courses: tuple[Course, ...] = ()
    done: Mapping[str, Done] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    retry_times: int | None = None
    """Remaining pod-failed restarts, absolute; None: the job is not in remain-retry-times."""
    records: JobRecords | None = None
    """Our newest reschedule records and the total, absolute, what the document held before us included."""
    quiet: Mapping[str, Kept] = field(default_factory=dict)
    """Occurrences that are kept back and still to be decided, by the key of their mark."""
    related: Mapping[str, Related] = field(default_factory=dict)
    """By pod UID."""
    waiting: Mapping[str, Occurrence] = field(default_factory=dict)
    """What a relation rule still needs and the reports may let go of first, by occurrence and device. Empty while every
    wait is shorter than max_event_age."""


@dataclass(frozen=True, slots=True)
class ClusterLedger:
    """What belongs to no single job. ConfigMap fault-agent-cluster."""

    cluster: str
    term: int = 0
    act_since: Millis | None = None
    """Since when we act; an occurrence from before never starts anything."""
    told: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Partition -> generation and offset up to which occurrences of no job have been told; a mark for each of them
    would outgrow the ConfigMap in one bad night. After a restart of the coordinator this decides what is said again."""
    told_at: Millis = Millis(0)
    heard: Mapping[int, Scanned] = field(default_factory=dict)
    """Partition -> how far the event stream was heard and nothing is left to be decided. The next leader begins there:
    a record without a key, or where no agent looks, is in no node's report."""
    dropped: Mapping[str, NodeName] = field(default_factory=dict)
    """Faults that are no faults of their own (UCE accompany), by reference, for as long as they are active, whatever
    another policy makes of them."""
    separations: Mapping[NodeName, tuple[Separation, ...]] = field(default_factory=dict)
    """Devices separated by hand; the same after every restart."""
    freed: Mapping[str, FaultKey] = field(default_factory=dict)
    """Trips that a person has released and of which the node may still tell."""
    counts: Counts = field(default_factory=dict)
    """Faults that count towards a manual separation."""
    counted: int = 0
    """At most so much is counted in all; tells when the oldest has to go."""
    isolation: Isolation | None = None
    """The policy by which they were counted last; for people, who ask what it takes."""
    counts_since: Millis | None = Millis(0)
    """Faults from before do not count: manual separation was switched off then. None: it is switched off."""
    listed: Mapping[NodeName, Mapping[int, Millis]] = field(default_factory=dict)
    """Devices that clusterd-manual-info-cm last listed, each with its newest LastSeparateTime (0: none): what goes from
    it before its time a person has released."""
    machines: Mapping[NodeName, str] = field(default_factory=dict)
    """Of what machine that was kept, of nodes of which something is."""


def moved(
    before: Mapping[NodeName, tuple[Separation, ...]], after: Mapping[NodeName, tuple[Separation, ...]]
) -> set[NodeName]:
    """Nodes whose separations are others than before."""
    return {node for node in (*before, *after) if before.get(node) != after.get(node)} if after is not before else set()


def place_of(occurrence: str) -> tuple[int, int, int] | None:
    """Generation, partition and offset of an occurrence id, or None for an id of another shape."""
    parts = occurrence.split(":")
    if len(parts) != 4 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def told_before(ledger: ClusterLedger, occurrence: Occurrence) -> bool:
    """Whether an earlier coordinator has told it; what a rule over time raised later is known by its time."""
    place = place_of(occurrence.id)
    if place is None or place[1] not in ledger.told or (place[0], place[2]) > ledger.told[place[1]]:
        return False
    return not occurrence.raised or occurrence.begin <= ledger.told_at


def last_decided(ledger: JobLedger) -> Millis:
    """When something was last decided for the job, as far as its ledger still knows, ms; 0: it does not."""
    steps = (course.recovery.phase_since for course in ledger.courses)
    return max((*steps, *(mark.at for mark in ledger.done.values())), default=Millis(0))


def prune(done: Mapping[str, Done], now: Millis, max_event_age: int) -> Mapping[str, Done]:
    """The marks that can still matter: younger than KEEP_DONE_FACTOR × max_event_age. The same mapping if all can.

    The oldest comes first. A mark of a clock that stood ahead is one of now, else none after it would ever go.
    """
    oldest = now - KEEP_DONE_FACTOR * max_event_age
    if not done or oldest <= next(iter(done.values())).at <= now:
        return done
    kept = {key: mark if mark.at <= now else replace(mark, at=now) for key, mark in done.items() if mark.at >= oldest}
    return dict(sorted(kept.items(), key=lambda item: item[1].at))
