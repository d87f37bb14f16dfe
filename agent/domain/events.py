"""Values that travel: an event of the stream, an occurrence, an active fault, a node's report.

The one rule: frozen, no behaviour beyond naming; what they mean is decided in the books.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.domain.vocab import (
    RAISED_INDEX,
    Assertion,
    DeadReason,
    JobId,
    Millis,
    NodeName,
    OccurrenceId,
    Plane,
    Reason,
    Source,
)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the event stream: how often the topic or file was made anew, partition, offset."""

    generation: int
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.generation}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it came off the stream. `timestamp` is the producer's, used for lag and as the replay clock."""

    position: Position
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: Millis = Millis(0)


@dataclass(frozen=True, slots=True)
class FaultKey:
    """Identity of a fault (one device, switch port, node part or public fault id, and one code).

    `where`: chip and network, and dpu with devices: the physical id; switch: `<chip>.<port>`; node:
    `<deviceType>.<deviceId>` or `-` for the whole node; public: `<resource>:<faultId>`.
    """

    node: NodeName
    plane: Plane
    where: str
    code: str

    def __str__(self) -> str:
        return f"{self.node}/{self.plane}/{self.where}/{self.code}"


def fault_ref(key: FaultKey, at: Millis) -> str:
    """The reference every command prints and accepts: `node/plane/where/code@ms`."""
    return f"{key}@{at}"


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """One assertion about one fault, past the border: valid, in the table's spelling, times in ms."""

    key: FaultKey
    assertion: Assertion
    at: Millis
    occurrence: OccurrenceId
    source: Source
    resource: str
    severity: int | None = None
    devices: tuple[int, ...] = ()
    logic_id: int | None = None
    skewed: bool = False
    """The sender's clock was more than max_clock_skew ahead; `at` is the receive time instead."""
    trace: str = ""
    """W3C traceparent to continue, or empty."""
    ports_down: int | None = None
    """Of 81078607: how many ports of the device's bond are down; None when the sender does not tell."""
    chips: int | None = None
    """Of 81B18603: how many NPUs the node has; None when the sender does not tell."""
    because: str = ""
    """Why a fault that nobody sent is here or gone: what it follows from."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record, or some faults of it, for the dead letters: what the border or a decider would not take."""

    reason: DeadReason
    detail: str
    """Field and why."""
    value: bytes | None
    """The record's value; for a partly good message the envelope with only the bad faults."""
    indexes: tuple[int, ...] = ()
    """Positions of the bad faults in the message; empty when the whole record is refused."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What the border made of one record. Without `node` nothing of it was usable."""

    position: Position
    node: NodeName | None
    message_id: str
    events: tuple[FaultEvent, ...] = ()
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Rating:
    """What the policy says of one code: its level, whence, and whether a person must look first."""

    level: str
    rule: str
    """Name of the rule that decided, e.g. `chip-table`, `duration:81078603`, `unknown-code`."""
    place: str = ""
    """`file:line` of that rule in the policy."""
    known: bool = True
    held: bool = False


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One beginning (and end) of a fault, for those who act on edges."""

    id: OccurrenceId
    key: FaultKey
    begin: Millis
    end: Millis | None
    level: str
    held: bool = False
    devices: tuple[int, ...] = ()
    logic_id: int | None = None
    trace: str = ""

    @property
    def raised(self) -> bool:
        """Made out of another occurrence by a rule over time, a new policy or other ports, not by an event."""
        index = self.id.rpartition(":")[2]
        return index.isdecimal() and int(index) >= RAISED_INDEX


@dataclass(frozen=True, slots=True)
class ActiveFault:
    """A fault that has occurred and not recovered, with its level as rated now."""

    key: FaultKey
    since: Millis
    level: str
    rule: str
    occurrence: OccurrenceId
    source: Source
    known: bool = True
    held: bool = False
    severity: int | None = None
    devices: tuple[int, ...] = ()
    logic_id: int | None = None
    count: int = 1
    """How often this identity has occurred in the life of the report."""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """Link state of one die as a probe or an event last told it: `up`, `down`; absent means unknown."""

    state: str
    at: Millis


@dataclass(frozen=True, slots=True)
class Scanned:
    """How far a node's decider has read one partition: next offset, and time and hash of the record before it."""

    generation: int
    offset: int
    time: Millis = Millis(0)
    digest: str = ""


@dataclass(frozen=True, slots=True)
class DurationTimer:
    """An episode of a code with a duration rule: since when it is down (or up again) and when that counts."""

    key: FaultKey
    phase: str
    """`down`: raised at `due`; `raised`: in force; `up`: raised, recovered, cleared at `due`."""
    since: Millis
    due: Millis
    event: FaultEvent | None = None
    """The occurrence that opened the episode, kept to raise with."""


@dataclass(frozen=True, slots=True)
class FrequencyCounter:
    """What a frequency rule has counted of one identity, and what it did."""

    key: FaultKey
    phase: str
    """`counting`; tripped: `held` (the fault is there), `clean` (it recovered); `released` (a manual trip, over)."""
    times: tuple[Millis, ...] = ()
    """Counted faults since the last trip, oldest first, at most as many as the rule's Times."""
    due: Millis = Millis(0)
    """`counting`: when the newest leaves the window; `clean`: when it is released, 0 never; `released`: when it was."""
    level: str = ""
    """The level it tripped to; ManuallySeparateNPU is held and ended by the coordinator."""
    tripped: Millis = Millis(0)
    last: Millis = Millis(0)
    """Newest fault since the trip."""
    recovered: Millis = Millis(0)
    """The recover after it, 0 when there was none."""
    trip: OccurrenceId = OccurrenceId("")
    """The occurrence that a manual trip is; stays through later faults, another trip is another one."""
    occurrence: OccurrenceId = OccurrenceId("")
    """The newest fault's own occurrence; while the fault is there, the one that its recover ends."""
    source: Source = Source.DCMI
    severity: int | None = None
    logic_id: int | None = None
    trace: str = ""


@dataclass(frozen=True, slots=True)
class UnknownCode:
    """A code that was seen and that no table knows, for the person who is to add it."""

    plane: Plane
    code: str
    source: Source
    severity: int | None
    """The worst told, None when one came without."""
    count: int
    first: Millis
    last: Millis


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node's state and recent occurrences: the checkpoint of the node role and the input of the coordinator.

    Highest (epoch, seq) wins. `ids` is opaque to the coordinator. See docs/node-report.md for each field.
    """

    cluster: str
    node: NodeName
    epoch: int
    seq: int
    instance: str
    machine: str = ""
    clock: Millis = Millis(0)
    """Stream time: never goes back."""
    caught_up: bool = False
    policy: str = ""
    """Hash of the policy in force."""
    scanned: Mapping[int, Scanned] = field(default_factory=dict)
    active: tuple[ActiveFault, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    """Identity -> how many occurrences there were in all; a gap to `occurrences` is an alarm."""
    timers: tuple[DurationTimer, ...] = ()
    counters: tuple[FrequencyCounter, ...] = ()
    recovered: Mapping[str, Millis] = field(default_factory=dict)
    """Identity -> time of its last recover, kept for max_event_age (public faults: time decides)."""
    ids: bytes = b""
    """Hashes of the last 1,024 message ids, 8 bytes each, oldest first."""
    links: Mapping[int, Link] = field(default_factory=dict)
    unknown: tuple[UnknownCode, ...] = ()
    """Codes that no table knows, the longest unseen first."""
    cut: tuple[str, ...] = ()
    """What was left out to stay within the size limit."""

    @property
    def lost(self) -> int:
        """How many active faults the report does not tell. With any, that a fault is not in it says nothing."""
        counts = (part.partition(":")[2] for part in self.cut if part.startswith("active:"))
        return sum(int(count) if count.isdecimal() and len(count) < 10 else 1 for count in counts)


@dataclass(frozen=True, slots=True)
class Behind:
    """A fault (its reference), a job, or both, that are behind a change of a document."""

    fault: str = ""
    job: JobId = JobId("")


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing decided, done or not done, with its reason: what the audit journal keeps and `why` shows."""

    at: Millis
    reason: Reason
    node: NodeName = NodeName("")
    fault: str = ""
    """Reference of the fault, `node/plane/where/code@ms`; empty when no fault is the cause."""
    job: JobId = JobId("")
    level: str = ""
    detail: str = ""
    document: str = ""
    """`namespace/name` of the document that this was about or that changed; empty: none."""
    occurrence: str = ""
    ranks: tuple[int, ...] = ()
    trace: str = ""
    causes: tuple[Behind, ...] = ()
    """Of what became of a document: the faults and jobs behind it, the newest few. Of a recovery that failed: the fault
    that isolates, beside the one that began it."""
    policy: str = ""
    """First digits of the digest of the policy that rated it; empty: the one in force where it is told."""
