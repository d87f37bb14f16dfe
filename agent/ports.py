"""What the agent asks of the world, in few methods whose promises are in the words.

Ports carry bytes and ConfigMap data; `app` encodes and decodes. Each filler (memory, folder, Kafka, Kubernetes)
passes the same contract cases in tests/contracts. Fillers raise only errors of `agent.errors`:
Conflict, Unavailable, Refused, Fenced, CannotRun, BadDocument.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from agent.domain.events import Position, Record
from agent.domain.vocab import Millis, NodeName

Now = Callable[[], Millis]
"""The wall clock, Unix ms. Only the shell calls it; the domain gets its value as an argument."""


@dataclass(frozen=True, slots=True)
class Control:
    """A line of a record file that is no event: the clock moves, an object changes, a link is probed."""

    position: Position
    kind: Literal["tick", "apply", "delete", "probe"]
    time: Millis | None
    """The line's own time; None when it gives none (then the clock stays where it is)."""
    body: Mapping[str, Any]
    """apply: the object; delete: kind, namespace, name; probe: node, links; tick: empty."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Items in stream order."""

    items: tuple[Record | Control, ...]
    resume: bytes
    """Opaque; given to `open` it goes on right after these items."""
    at_end: bool
    """Nothing more was there at the time of reading. Never true while a complete item is left unread."""
    notices: tuple[str, ...] = ()
    """What the reader noticed on the way: rotation, truncation, a half line left waiting."""


class FaultSource(Protocol):
    """The stream of records: order kept, at least once, nothing skipped in silence."""

    finished: bool
    """Nothing more will ever come: the end of a finished file, the other end of a pipe closed."""

    async def open(self, resume: bytes | None) -> None:
        """Begin after `resume`, or at the earliest record. A stream made anew counts as a new generation and begins
        at its earliest record; records lost to retention are named; both are said in the next batch's notices.

        Raises CannotRun when there is no such source.
        """
        ...

    async def read(self, limit: int) -> Batch:
        """At most `limit` items that are there now; does not wait. A half-written last item is not given."""
        ...

    async def wait(self, seconds: float) -> None:
        """Return when more may be there, at the latest after `seconds`."""
        ...

    async def close(self) -> None:
        """Bounded; idempotent."""
        ...


class ReportLog(Protocol):
    """The newest NodeReport of each node, as bytes. Keyed and compacted."""

    async def publish(self, reports: Mapping[NodeName, bytes]) -> None:
        """Durable when it returns, each report whole or not at all. Raises Unavailable."""
        ...

    async def latest(self) -> Mapping[NodeName, bytes]:
        """Newest report of every node. Raises Unavailable."""
        ...


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """One ConfigMap. `resource_version` empty: not stored yet."""

    namespace: str
    name: str
    data: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resource_version: str = ""
    uid: str = ""
    managers: tuple[str, ...] = ()
    """Names in metadata.managedFields; who has written here."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Everything else of the object (`ownerReferences`, `immutable`, `binaryData`, …), kept as read."""


class DocumentStore(Protocol):
    """ConfigMaps with compare-and-swap."""

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        """The live object, or None. Raises Unavailable, Refused, BadDocument (it is there but unreadable)."""
        ...

    async def put(self, document: ConfigMap) -> ConfigMap:
        """Create (resource_version empty) or replace, atomically; returns what is stored now.

        The same content again changes nothing, the version included. Keeps uid and managers; records this
        writer among the managers. Raises Conflict (exists already, or another version, or gone), Unavailable,
        Refused (for instance more than 1,048,576 bytes of data).
        """
        ...

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        """Remove that version. Absent already: nothing. Raises Conflict, Unavailable, Refused."""
        ...

    async def list(self) -> Sequence[ConfigMap]:
        """All readable ConfigMaps, sorted by namespace and name."""
        ...

    def watch(self) -> AsyncIterator[tuple[Literal["set", "gone"], ConfigMap]]:
        """First every existing object as `set`, then each change once, in order per object."""
        ...


class JobView(Protocol):
    """The Kubernetes objects that say which job runs where, as plain mappings."""

    async def snapshot(self) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
        """Every object of PodGroup, Pod, Node and the like (ConfigMaps too), and a finding per unreadable
        file or document. Raises CannotRun when the place does not exist.
        """
        ...

    async def changed(self) -> bool:
        """True once after something changed since the last snapshot."""
        ...


class Journal(Protocol):
    """Append-only lines: dead letters, audit."""

    async def append(self, lines: Sequence[bytes]) -> None:
        """Durable when it returns. Lines hold no newline. A torn last line of an earlier crash is closed first."""
        ...

    async def read(self) -> Sequence[bytes]:
        """All whole lines, oldest first."""
        ...


class Cabinet(Protocol):
    """Small named states of one process, replaced whole (where the stream was left, the epoch)."""

    async def load(self, name: str) -> bytes | None:
        """What was stored last, or None. Raises Unavailable."""
        ...

    async def store(self, name: str, data: bytes) -> None:
        """Durable and whole when it returns: fsync, rename, fsync of the folder."""
        ...


class Span(Protocol):
    """One step of a fault's way, while it is taken."""

    traceparent: str
    """W3C traceparent of this span, to hand to the next step; empty when tracing is off."""

    def set(self, **attributes: str | int | bool) -> None:
        """Attributes; ids belong here, never in metric labels."""
        ...


class Tracer(Protocol):
    """Traces. Off the decision path: never raises, never waits for a collector."""

    enabled: bool

    def span(self, name: str, parent: str = "", **attributes: str | int | bool) -> AbstractContextManager[Span]:
        """A span around a block; `parent` is a W3C traceparent or empty for a new trace."""
        ...

    def close(self) -> None:
        """Hand over what is left; bounded in time."""
        ...


class LinkProbe(Protocol):
    """Asks this machine for the link of a die's own NIC. Changes nothing on it."""

    async def ask(self, device: int) -> bytes:
        """What the machine answers for a die (its physical id), as it came: a short text. Bounded in time and length;
        several may be asked at once.

        Raises Unavailable: no answer in time, an answer too long, or the query failed or could not be made.
        """
        ...

    async def close(self) -> None:
        """End what still runs; bounded; idempotent."""
        ...


class DeadLetters(Protocol):
    """Records nobody could use, unchanged, with the headers `fault-agent-reason`, `-detail` and `-source`."""

    async def append(self, letters: Sequence[Record]) -> None:
        """Durable when it returns; the same source (header) is kept once. Raises Unavailable."""
        ...


class ReportFeed(Protocol):
    """Reports as they are published, newest per node; of all nodes, or of one."""

    async def open(self) -> None:
        """Begin where nothing that still counts is missed, and note where the log ends now.

        Raises Unavailable, Refused, CannotRun (no such topic).
        """
        ...

    async def read(self) -> Mapping[NodeName, bytes | None]:
        """The newest report of each node since the last read, None for a tombstone; does not wait.

        Raises Unavailable.
        """
        ...

    @property
    def complete(self) -> bool:
        """Everything that was there at `open` has been given."""
        ...

    async def wait(self, seconds: float) -> None:
        """Return when more may be there, at the latest after `seconds`."""
        ...

    async def close(self) -> None:
        """Bounded; idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a reader is in one partition: next offset to read, and one past the last record there is."""

    position: int
    end: int


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease as it was last seen. `holder` empty: nobody."""

    holder: str
    term: int
    """leaseTransitions: how often it has changed hands."""
    version: str
    """resourceVersion, for the next compare-and-swap; empty: the lease does not exist."""
    seconds: int
    """leaseDurationSeconds as its holder states it."""
    renewed: str
    """renewTime as text: only compared for being different, never with a clock."""


class LeaseStore(Protocol):
    """One lease, by compare-and-swap."""

    async def read(self, within: float) -> LeaseState:
        """Raises Unavailable (also after `within` seconds), Refused."""
        ...

    async def write(self, state: LeaseState, within: float) -> LeaseState:
        """Create or replace at `state.version`. Raises Conflict, Unavailable (the outcome is then unknown), Refused."""
        ...


class Announcer(Protocol):
    """Words for people beside an object (Kubernetes Events), deduplicated, never in the way."""

    async def announce(self, kind: str, namespace: str, name: str, reason: str, note: str, warning: bool) -> None:
        """At most once per (object, reason, note); a refusal is counted, not raised."""
        ...


class ObjectFeed(Protocol):
    """The cluster's objects as changes, each object as a plain mapping."""

    async def open(self) -> None:
        """Begin to list and watch. Raises Unavailable, Refused, CannotRun."""
        ...

    @property
    def complete(self) -> bool:
        """Every list has been given whole at least once."""
        ...

    def changes(self) -> Sequence[tuple[Literal["set", "gone"], str, Mapping[str, Any]]]:
        """What has changed since the last call: what happened, the kind, the object (only its names if gone)."""
        ...

    def findings(self) -> Sequence[str]:
        """What cannot be watched and why (a missing CRD, a missing right)."""
        ...

    async def wait(self, seconds: float) -> None:
        """Return when there are changes, at the latest after `seconds`."""
        ...

    async def close(self) -> None:
        """Bounded; idempotent."""
        ...
