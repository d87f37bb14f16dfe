"""The node's book as it will be while one record is decided, and what the rules say of a fault in it.

The one rule: it reads the book and collects changes; later events of the same record see what earlier ones gave.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from agent.domain import duration, frequency
from agent.domain.events import ActiveFault, DurationTimer, FaultEvent, FaultKey, FrequencyCounter, Occurrence, Rating
from agent.domain.node.book import NodeBook, l2_chip
from agent.domain.node.changes import Change, End, Outcome, Recovered, Relevelled
from agent.domain.node.entries import link_of, trip_entry
from agent.domain.vocab import L2_LEVEL, L2_PORTS, MANUAL, Millis, OccurrenceId, Plane, Reason, span_text

_RULED: Final = frozenset({Plane.CHIP, Plane.NETWORK})
"""Planes with rules over time; a public code may look the same and is none of theirs."""


class LevelRule(duration.Rule, Protocol):
    """A duration rule with the level it raises to."""

    @property
    def code(self) -> str: ...
    @property
    def level(self) -> str: ...


class CountRule(frequency.Rule, Protocol):
    """A frequency rule with its name."""

    @property
    def name(self) -> str: ...


class Rater(Protocol):
    """What the decider asks of a policy; `agent.domain.policy.Policy` is one."""

    @property
    def digest(self) -> str: ...
    def rate(self, plane: Plane, code: str, severity: int | None) -> Rating: ...
    def duration(self, code: str) -> LevelRule | None: ...
    def frequency(self, code: str) -> CountRule | None: ...
    def worst(self, plane: Plane, levels: Iterable[str]) -> str: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """How one identity stands: what the last change of it said, else what the book holds."""

    active: ActiveFault | None
    timer: DurationTimer | None
    counter: FrequencyCounter | None
    recovered: Recovered | None
    total: int

    @property
    def there(self) -> bool:
        """Whether the fault itself is there, as opposed to being shown on by a rule after its recover."""
        if self.active is None or self.timer is not None:
            return self.active is not None and duration.asserted(self.timer)
        return not frequency.shown_on(self.counter)


class Draft:
    """The book as it will be, while one record is decided: changes so far and the latest state they give."""

    __slots__ = ("_key", "_l2", "_text", "book", "changes", "latest", "now", "policy", "public")

    def __init__(self, book: NodeBook, now: Millis, policy: Rater) -> None:
        self.book = book
        self.now = max(now, book.clock)
        self.policy = policy
        self.changes: list[Change] = []
        self.latest: dict[str, Outcome] = {}
        self.public = book.public
        """How many public faults are active."""
        self._l2: dict[str, dict[str, FaultKey]] = {}
        self._key: FaultKey | None = None
        self._text = ""

    def identity(self, key: FaultKey) -> str:
        """Text of the key, made once for the event at hand."""
        if key is not self._key:
            self._key, self._text = key, str(key)
        return self._text

    def state(self, key: FaultKey) -> Standing:
        """How the fault stands now."""
        who = self.identity(key)
        last = self.latest.get(who)
        if last is not None:
            return Standing(last.active, last.timer, last.counter, last.recovered, last.total)
        book = self.book
        counter, total = book.counters.get(who), book.totals.get(who, 0)
        return Standing(book.active.get(who), book.timers.get(who), counter, self._told(who), total)

    def _told(self, who: str) -> Recovered | None:
        told = self.book.recovered.get(who)
        if told is not None and told.told + self.book.max_event_age < self.now:
            return None  # as old as this the clock of this very record makes it
        return told

    def tells(self, key: FaultKey, occurrence: OccurrenceId) -> bool:
        """Whether the fault's recent occurrences hold this one: a policy that comes back tells nothing twice."""
        return any(one.id == occurrence for one in self.book.occurrences.get(self.identity(key), ()))

    def duration_of(self, key: FaultKey) -> LevelRule | None:
        """The duration rule of a fault, if there is one."""
        return self.policy.duration(key.code) if key.plane in _RULED else None

    def frequency_of(self, key: FaultKey) -> CountRule | None:
        """The frequency rule of a fault, if there is one."""
        return self.policy.frequency(key.code) if key.plane in _RULED else None

    def level(
        self,
        key: FaultKey,
        severity: int | None,
        *,
        timer: DurationTimer | None = None,
        counter: FrequencyCounter | None = None,
        there: bool = True,
    ) -> Rating:
        """Worst of the table's level (while the fault itself is there), the duration rule's and the frequency rule's
        (while they are in force).
        """
        best = self.policy.rate(key.plane, key.code, severity)
        if key.plane is Plane.SWITCH and self._l2_level(key, best):
            return Rating(L2_LEVEL, f"l2-ports:{l2_chip(key)}")
        rule = self.duration_of(key)
        raised = rule is not None and duration.in_force(timer)
        if rule is not None and raised and (not there or self.worse(key.plane, rule.level, best.level)):
            best = Rating(rule.level, f"duration:{rule.code}")
        if counter is not None and frequency.holds(counter):
            alone = not there and not raised
            if alone or self.worse(key.plane, counter.level, best.level):
                best = Rating(counter.level, f"frequency:{key.code}")
        return best

    def worse(self, plane: Plane, level: str, than: str) -> bool:
        """Whether a level of that plane is more severe than another."""
        return self.policy.worst(plane, (than, level)) != than

    def put(
        self,
        kind: type[Outcome],
        key: FaultKey,
        reason: Reason,
        detail: str,
        event: FaultEvent | None,
        active: ActiveFault | None,
        timer: DurationTimer | None,
        counter: FrequencyCounter | None,
        *,
        recovered: Recovered | None = None,
        begun: Occurrence | None = None,
        ended: tuple[End, ...] = (),
    ) -> None:
        """Add one outcome; `active`, `timer` and `counter` are what is so afterwards."""
        who = self.identity(key)
        if begun is not None and begun.raised and self.tells(key, begun.id):
            begun = None  # a rule that a policy took away and another one gave back
        before = self.latest.get(who)
        if before is not None:
            total, recovered = before.total, recovered or before.recovered
        else:
            total, recovered = self.book.totals.get(who, 0), recovered or self._told(who)
        total += begun is not None
        link = None if event is None else link_of(event)
        if frequency.forgotten(counter, self.now, awaited=duration.running(timer)):
            counter = None
        unknown = event is not None and begun is not None and not self.policy.rate(key.plane, key.code, None).known
        now = (active, timer, counter, recovered, total)
        change = kind(who, key, reason, detail, event, *now, begun, ended, link, unknown)
        self.changes.append(change)
        self.latest[who] = change
        if key.plane is Plane.PUBLIC:
            was = before.active if before is not None else self.book.active.get(who)
            self.public += (active is not None) - (was is not None)
        if key.plane is Plane.SWITCH and (chip := l2_chip(key)):
            ports = self._ports(chip)
            if active is None:
                ports.pop(who, None)
            else:
                ports[who] = key

    def l2_ports(self, key: FaultKey) -> list[FaultKey]:
        """The L2 port faults that are there on this one's switch chip."""
        return list(self._ports(l2_chip(key)).values())

    def _ports(self, chip: str) -> dict[str, FaultKey]:
        if chip not in self._l2:
            self._l2[chip] = dict(self.book.l2_ports.get(chip, {}))
        return self._l2[chip]

    def _l2_level(self, key: FaultKey, base: Rating) -> bool:
        """Whether so many ports of its switch chip are down, this one among them, that all are Separate."""
        chip = l2_chip(key)
        if not chip:
            return False
        ports = self._ports(chip)
        full = len(ports) + (self.identity(key) not in ports) >= L2_PORTS
        return full and self.worse(key.plane, L2_LEVEL, base.level)

    def leave(
        self,
        kind: type[Outcome],
        key: FaultKey,
        reason: Reason,
        detail: str,
        event: FaultEvent | None = None,
        *,
        active: ActiveFault | None = None,
        recovered: Recovered | None = None,
        begun: Occurrence | None = None,
    ) -> None:
        """Add one outcome that leaves the fault as it stands; `active`: but for this."""
        s = self.state(key)
        active = active or s.active
        self.put(kind, key, reason, detail, event, active, s.timer, s.counter, recovered=recovered, begun=begun)

    def tell_trip(self, effect: frequency.Effect, key: FaultKey, devices: tuple[int, ...], begin: Millis) -> None:
        """A trip to ManuallySeparateNPU is an occurrence of its own; the coordinator holds what follows from it, until
        a person or the rule's release window ends it.
        """
        s = self.state(key)
        if effect is not frequency.Effect.TRIPPED or s.counter is None or s.counter.level != MANUAL:
            return
        if self.tells(key, s.counter.trip):
            return
        begun = trip_entry(s.counter, begin, devices)
        rule = self.frequency_of(key)
        detail = f"{MANUAL} by frequency:{key.code}"
        if rule is not None:
            detail = f"{rule.times} times within {span_text(rule.window_ms)}: {detail}, held by the coordinator"
        if s.active is not None:
            s = replace(s, active=replace(s.active, count=s.total + 1))
        self.put(Relevelled, key, Reason.FAULT_SHOWN, detail, None, s.active, s.timer, s.counter, begun=begun)
