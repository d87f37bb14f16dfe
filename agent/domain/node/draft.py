"""The node's book as it will be while one record is decided: the rules of occur, recover, once and of deadlines.

The one rule: it reads the book and collects changes; later events of the same record see what earlier ones gave.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Protocol

from agent.domain.duration import Effect, Phase, Rule, Signal, asserted, in_force, moment, overdue, phase_of, step
from agent.domain.events import ActiveFault, DurationTimer, FaultEvent, FaultKey, Link, Occurrence, Rating
from agent.domain.node.book import NodeBook
from agent.domain.node.changes import Change, Cleared, Ignored, Outcome, Policed, Recovered, Relevelled, Shown
from agent.domain.vocab import (
    LINK_DOWN,
    RAISED_INDEX,
    Assertion,
    Millis,
    OccurrenceId,
    Plane,
    Reason,
    span_text,
    utc_text,
)

_RULED: Final = frozenset({Plane.CHIP, Plane.NETWORK})
"""Planes with duration rules; a public code may look the same and is none of theirs."""
_ENDS_PHASE: Final = frozenset({(Phase.DOWN, Assertion.RECOVER), (Phase.UP, Assertion.OCCUR)})
_NO_FAULT: Final = "nothing to recover from"


class LevelRule(Rule, Protocol):
    """A duration rule with the level it raises to."""

    @property
    def code(self) -> str: ...
    @property
    def level(self) -> str: ...


class Rater(Protocol):
    """What the decider asks of a policy; `agent.domain.policy.Policy` is one."""

    @property
    def digest(self) -> str: ...
    def rate(self, plane: Plane, code: str, severity: int | None) -> Rating: ...
    def duration(self, code: str) -> LevelRule | None: ...
    def worst(self, plane: Plane, levels: Iterable[str]) -> str: ...


class Draft:
    """The book as it will be, while one record is decided: changes so far and the latest state they give."""

    __slots__ = ("_key", "_text", "book", "changes", "latest", "now", "policy")

    def __init__(self, book: NodeBook, now: Millis, policy: Rater) -> None:
        self.book = book
        self.now = max(now, book.clock)
        self.policy = policy
        self.changes: list[Change] = []
        self.latest: dict[str, Outcome] = {}
        self._key: FaultKey | None = None
        self._text = ""

    def identity(self, key: FaultKey) -> str:
        """Text of the key, made once for the event at hand."""
        if key is not self._key:
            self._key, self._text = key, str(key)
        return self._text

    def state(self, who: str) -> tuple[ActiveFault | None, DurationTimer | None, Recovered | None, int]:
        last = self.latest.get(who)
        if last is not None:
            return last.active, last.timer, last.recovered, last.total
        book = self.book
        told = book.recovered.get(who)
        if told is not None and told.told + book.max_event_age < self.now:
            told = None  # as old as this the clock of this very record makes it
        return book.active.get(who), book.timers.get(who), told, book.totals.get(who, 0)

    def rule_of(self, key: FaultKey) -> LevelRule | None:
        return self.policy.duration(key.code) if key.plane in _RULED else None

    def level(
        self, key: FaultKey, severity: int | None, timer: DurationTimer | None = None, rule: LevelRule | None = None
    ) -> Rating:
        """Worst of the table's level (while the fault itself is there) and the duration rule's (while in force)."""
        base = self.policy.rate(key.plane, key.code, severity)
        if rule is None or not in_force(timer):
            return base
        if asserted(timer) and self.policy.worst(key.plane, (base.level, rule.level)) == base.level:
            return base
        return Rating(rule.level, f"duration:{rule.code}")

    def put(
        self,
        kind: type[Outcome],
        key: FaultKey,
        reason: Reason,
        detail: str,
        event: FaultEvent | None,
        active: ActiveFault | None,
        timer: DurationTimer | None,
        *,
        recovered: Recovered | None = None,
        begun: Occurrence | None = None,
        ended: tuple[OccurrenceId, Millis] | None = None,
    ) -> None:
        """Add one outcome; `active` and `timer` are what is so afterwards."""
        who = self.identity(key)
        _, _, before, total = self.state(who)
        total += begun is not None
        link = None if event is None else _link(event)
        recovered = recovered or before
        change = kind(who, key, reason, detail, event, active, timer, recovered, total, begun, ended, link)
        self.changes.append(change)
        self.latest[who] = change

    def repeat(self, event: FaultEvent, message_id: str) -> None:
        """An event of a message that came before; not even its link state counts again."""
        who = self.identity(event.key)
        detail = f"message {message_id} came before"
        change = Ignored(who, event.key, Reason.DUPLICATE_MESSAGE, detail, event, *self.state(who))
        self.changes.append(change)
        self.latest[who] = change

    def device(self, event: FaultEvent) -> None:
        """Device sources: stream order decides."""
        key = event.key
        active, timer, _, _ = self.state(self.identity(key))
        if timer is not None and (timer.phase, event.assertion) in _ENDS_PHASE:
            self.expire((timer,), moment(timer, event, self.now))
            active, timer, _, _ = self.state(self.identity(key))
        if event.assertion is Assertion.ONCE:
            self.once(event, active, timer)
        elif active is None or not asserted(timer):
            if event.assertion is Assertion.OCCUR:
                self.begin(event, active, timer)
            else:
                detail = "nothing to recover from" if active is None else "recovered before"
                self.put(Ignored, key, Reason.NOT_ACTIVE, detail, event, active, timer)
        elif event.assertion is Assertion.OCCUR:
            self.again(event, active, timer)
        else:
            self.end(event, active, timer)

    def public(self, event: FaultEvent) -> None:
        """Public sources: time decides; a recover repeats the time of its occur (ClusterD publicfault)."""
        active, timer, told, _ = self.state(self.identity(event.key))
        if event.assertion is Assertion.RECOVER:
            last = Recovered(max(event.at, told.at) if told else event.at, self.now)
            if active is None:
                self.put(Ignored, event.key, Reason.NOT_ACTIVE, _NO_FAULT, event, None, timer, recovered=last)
            elif event.at < active.since:
                detail = f"older than the fault active since {utc_text(active.since)}"
                self.put(Ignored, event.key, Reason.STALE, detail, event, active, timer, recovered=last)
            else:
                self.end(event, active, timer, last)
        elif told is not None and event.at <= told.at:
            entry = _entry(event, self.level(event.key, event.severity), told.at)
            detail = f"history: recovered at {utc_text(told.at)}"
            self.put(Ignored, event.key, Reason.STALE, detail, event, active, timer, begun=entry)
        elif event.assertion is Assertion.ONCE:
            self.once(event, active, timer)
        elif active is not None:
            self.again(event, active, timer)
        else:
            self.begin(event, active, timer)

    def once(self, event: FaultEvent, active: ActiveFault | None, timer: DurationTimer | None) -> None:
        """An occurrence and its end; what is active under the same identity stays, for nothing says it is over."""
        rating = self.level(event.key, event.severity)
        entry = _entry(event, rating, event.at)
        detail = f"once, {_said(rating)}"
        self.put(Shown, event.key, Reason.FAULT_SHOWN, detail, event, active, timer, begun=entry)

    def again(self, event: FaultEvent, active: ActiveFault, timer: DurationTimer | None) -> None:
        if event.at < active.since:
            active = replace(active, since=event.at)
        self.put(
            Ignored, event.key, Reason.ALREADY_ACTIVE, f"active since {utc_text(active.since)}", event, active, timer
        )

    def begin(self, event: FaultEvent, active: ActiveFault | None, timer: DurationTimer | None) -> None:
        rule = self.rule_of(event.key)
        if rule is not None:
            _, timer = step(timer, Signal.OCCUR, event.at, event.key, rule, event)
        rating = self.level(event.key, event.severity, timer, rule)
        count = self.state(self.identity(event.key))[3] + 1
        if active is None:
            active = _fault(event, rating, event.occurrence, event.at, count)
        else:  # shown on after its recover, and back before it was clean for long enough
            active = replace(_rated(active, rating), count=count, severity=event.severity)
        entry = _entry(event, rating, None)
        self.put(Shown, event.key, Reason.FAULT_SHOWN, _said(rating), event, active, timer, begun=entry)

    def end(
        self, event: FaultEvent, active: ActiveFault, timer: DurationTimer | None, last: Recovered | None = None
    ) -> None:
        key, rule = event.key, self.rule_of(event.key)
        ended = (_base(active, timer), max(event.at, active.since))
        if rule is not None and timer is not None:
            effect, timer = step(timer, Signal.RECOVER, moment(timer, event, self.now), key, rule)
            if effect is Effect.LEFT and timer is not None:
                after = _rated(active, self.level(key, active.severity, timer, rule))
                kind = Shown if after.level == active.level else Relevelled
                clean = span_text(timer.due - timer.since)
                detail = f"it has recovered; shown on as {after.level} until clean for longer than {clean}"
                self.put(kind, key, Reason.FAULT_SHOWN, detail, event, after, timer, ended=ended)
                return
        # By the fault's own clock: a recording that is run has a wall clock far ahead of it.
        lasted = (event.at if event.at > active.since else self.now) - active.since
        detail = f"was {active.level} for {span_text(lasted)}"
        self.put(Cleared, key, Reason.FAULT_CLEARED, detail, event, None, None, recovered=last, ended=ended)

    def expire(self, timers: Iterable[DurationTimer], at: Millis) -> None:
        """Deadlines of these identities that lie before `at`."""
        for one in timers:
            key = one.key
            active, timer, _, total = self.state(self.identity(key))
            rule = self.rule_of(key)
            if timer is None or not overdue(timer, at):
                continue
            if active is None and timer.event is not None:
                active = _fault(
                    timer.event, self.level(key, timer.event.severity), timer.event.occurrence, timer.since, total
                )
            if rule is None or active is None:
                self.put(Ignored, key, Reason.UNCHANGED, "nothing left to time", None, active, None)
                continue
            due = timer.due
            effect, timer = step(timer, Signal.EXPIRE, at, key, rule)
            if effect is Effect.CLEARED:
                detail = f"clean for longer than {span_text(rule.recover_timeout_ms)}"
                ended = (active.occurrence, due)
                self.put(Cleared, key, Reason.FAULT_CLEARED, detail, None, None, None, ended=ended)
            else:
                self.raise_level(active, timer, rule, due)

    def raise_level(self, active: ActiveFault, timer: DurationTimer | None, rule: LevelRule, begin: Millis) -> None:
        """Down for too long: the rule's level from start + FaultTimeout on, as an occurrence of its own."""
        key = active.key
        rating = self.level(key, active.severity, timer, rule)
        entry = None
        if rating.level != active.level:
            count = self.state(self.identity(key))[3] + 1
            active = replace(active, occurrence=_raised_id(active.occurrence), count=count)
            entry = Occurrence(
                active.occurrence,
                key,
                begin,
                None,
                rating.level,
                rating.held,
                active.devices,
                active.logic_id,
                active.trace,
            )
        detail = f"down for longer than {span_text(rule.fault_timeout_ms)}: {_said(rating)}"
        self.put(Relevelled, key, Reason.FAULT_SHOWN, detail, None, _rated(active, rating), timer, begun=entry)

    def settle_policy(self) -> None:
        """Rate all that is active by a policy that is new here. Occurrences keep the level they had at their time."""
        if self.policy.digest == self.book.policy:
            return
        self.changes.append(Policed(self.policy.digest))
        for who, active in self.book.active.items():
            timer, rule = self.book.timers.get(who), self.rule_of(active.key)
            self._settle(active, timer, rule)

    def _settle(self, active: ActiveFault, timer: DurationTimer | None, rule: LevelRule | None) -> None:
        key, after, ended = active.key, timer, None
        if rule is None and timer is not None:
            after = None
            if in_force(timer) and active.occurrence != _base(active, timer):
                ended = (active.occurrence, self.now)
            if not asserted(timer):
                detail = "no duration rule any more"
                self.put(
                    Cleared, key, Reason.FAULT_CLEARED, detail, None, None, None, ended=(active.occurrence, self.now)
                )
                return
        elif rule is not None:
            span = rule.recover_timeout_ms if phase_of(timer) is Phase.UP else rule.fault_timeout_ms
            if timer is None:
                _, after = step(None, Signal.OCCUR, active.since, key, rule, _event(active))
            elif timer.phase != Phase.RAISED:
                after = replace(timer, due=Millis(timer.since + span))
        rating = self.level(key, active.severity, after, rule)
        rated = replace(_rated(active, rating), occurrence=_base(active, timer) if ended else active.occurrence)
        if rated != active:
            self.put(
                Relevelled, key, Reason.FAULT_SHOWN, f"policy changed: {_said(rating)}", None, rated, after, ended=ended
            )
        elif after != timer:
            self.put(Ignored, key, Reason.UNCHANGED, "policy changed", None, active, after)


def _said(rating: Rating) -> str:
    return f"{rating.level} by {rating.rule}{', held for a person' if rating.held else ''}"


def _base(active: ActiveFault, timer: DurationTimer | None) -> OccurrenceId:
    """The occurrence of the fault itself, as opposed to the one its duration raised."""
    return timer.event.occurrence if timer is not None and timer.event is not None else active.occurrence


def _raised_id(opening: OccurrenceId) -> OccurrenceId:
    place, _, index = opening.rpartition(":")
    return OccurrenceId(f"{place}:{int(index) + RAISED_INDEX}" if index.isdecimal() else f"{opening}:{RAISED_INDEX}")


def _entry(event: FaultEvent, rating: Rating, end: Millis | None) -> Occurrence:
    return Occurrence(
        event.occurrence,
        event.key,
        event.at,
        end,
        rating.level,
        rating.held,
        event.devices,
        event.logic_id,
        event.trace,
    )


def _fault(event: FaultEvent, rating: Rating, occurrence: OccurrenceId, since: Millis, count: int) -> ActiveFault:
    return ActiveFault(
        event.key,
        since,
        rating.level,
        rating.rule,
        occurrence,
        event.source,
        rating.known,
        rating.held,
        event.severity,
        event.devices,
        event.logic_id,
        count,
        event.trace,
    )


def _event(active: ActiveFault) -> FaultEvent:
    """The occur that an active fault stands for, for a timer that begins after it."""
    return FaultEvent(
        active.key,
        Assertion.OCCUR,
        active.since,
        active.occurrence,
        active.source,
        active.source,
        active.severity,
        active.devices,
        active.logic_id,
        trace=active.trace,
    )


def _rated(active: ActiveFault, rating: Rating) -> ActiveFault:
    return replace(active, level=rating.level, rule=rating.rule, known=rating.known, held=rating.held)


def _link(event: FaultEvent) -> Link | None:
    """What an event tells of its die's link: 81078603 down or up; a `once` tells nothing that lasts."""
    if event.key.plane is not Plane.NETWORK or event.assertion is Assertion.ONCE:
        return None
    try:
        code = int(event.key.code, 16)
    except ValueError:
        return None
    return None if code != LINK_DOWN else Link("down" if event.assertion is Assertion.OCCUR else "up", event.at)
