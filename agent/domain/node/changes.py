"""Changes of a node's book: what the decider answers and `evolve` applies.

The one rule: a change says what is so afterwards, not how to get there, so applying it needs no knowledge.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.domain.events import (
    ActiveFault,
    DurationTimer,
    FaultEvent,
    FaultKey,
    FrequencyCounter,
    Link,
    Occurrence,
    Position,
    Scanned,
)
from agent.domain.vocab import Millis, OccurrenceId, Reason


@dataclass(frozen=True, slots=True)
class Recovered:
    """Last recover of a public fault: its own time, and the stream time at which we were told."""

    at: Millis
    told: Millis


@dataclass(frozen=True, slots=True)
class Advanced:
    """The stream moved: clock, and with a position the place up to which it is read."""

    clock: Millis
    position: Position | None = None
    digest: str = ""
    mark: bytes = b""
    """Hash of the message id to remember; empty for none or a repeat."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A partition is read in which nothing was found so far."""

    partition: int
    at: Scanned


@dataclass(frozen=True, slots=True)
class Policed:
    """Another policy is in force."""

    digest: str
    learned: tuple[str, ...] = ()
    """Names of codes that no table knew and one knows now."""


@dataclass(frozen=True, slots=True)
class Probed:
    """A link probe: device -> `up` or `down`; any other word means unknown."""

    links: Mapping[int, str]
    at: Millis


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record read before (same place in the stream): nothing happens."""

    position: Position
    reason: Reason
    detail: str


End = tuple[OccurrenceId, Millis]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one event, deadline (event None) or policy change, and how its identity stands afterwards."""

    identity: str
    key: FaultKey
    reason: Reason
    detail: str
    event: FaultEvent | None
    active: ActiveFault | None
    timer: DurationTimer | None
    counter: FrequencyCounter | None
    recovered: Recovered | None
    total: int
    begun: Occurrence | None = None
    """A new entry among the recent occurrences; `total` counts it already."""
    ended: tuple[End, ...] = ()
    """The entries that got their ends, where they are still kept."""
    link: Link | None = None
    """What this tells of the die's link."""
    unknown: bool = False
    """A fault began whose code no table knows."""


class Shown(Outcome):
    """A fault is shown: begun, happened once, or shown on after its recover as a rule over time wants it."""

    __slots__ = ()


class Cleared(Outcome):
    """A fault is gone from the active ones."""

    __slots__ = ()


class Relevelled(Outcome):
    """An active fault has another level or rule than before."""

    __slots__ = ()


class Ignored(Outcome):
    """An event without effect on what is active; the reason says why."""

    __slots__ = ()


Change = Advanced | Placed | Policed | Probed | Skipped | Outcome
