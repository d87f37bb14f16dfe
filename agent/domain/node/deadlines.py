"""What the passing of a deadline means: a duration raises or clears, a trip is released.

The one rule: the deadline itself is the time of what it brings, however late it is looked at.
"""

from collections.abc import Iterable
from dataclasses import replace

from agent.domain import duration, frequency
from agent.domain.duration import Effect, Signal, step
from agent.domain.events import ActiveFault, DurationTimer, FaultKey, FrequencyCounter, NodeReport, Occurrence
from agent.domain.node.changes import Cleared, Ignored, Relevelled
from agent.domain.node.draft import Draft, LevelRule, Standing
from agent.domain.node.entries import base_of, counted_fault, fault, raised_entry, raised_id, rated, said
from agent.domain.vocab import MANUAL, Millis, Reason, span_text


def due_of(report: NodeReport) -> Millis | None:
    """The earliest stream time (ms) at which a rule over time changes something of a report, or None."""
    timers = (timer.due for timer in report.timers if duration.running(timer))
    releases = (counter.due for counter in report.counters if frequency.releasing(counter))
    first = min((*timers, *releases), default=None)
    return None if first is None else Millis(first + 1)  # the deadline itself is not yet past


def expire(draft: Draft, keys: Iterable[FaultKey], at: Millis) -> None:
    """Let the deadlines of these identities that lie before `at` (ms) take effect, each identity's in their order."""
    for key in keys:
        for _ in range(2):  # a duration and a release
            s = draft.state(key)
            timed, counted = duration.overdue(s.timer, at), frequency.overdue(s.counter, at)
            if timed and not (counted and s.counter and s.timer and s.counter.due < s.timer.due):
                _time_out(draft, key, s, at)
            elif counted:
                _release(draft, key, s)


def expire_latest(draft: Draft) -> None:
    """The same for all that this draft has touched, up to now."""
    late = [
        one.key
        for one in draft.latest.values()
        if duration.overdue(one.timer, draft.now) or frequency.overdue(one.counter, draft.now)
    ]
    if late:
        expire(draft, late, draft.now)


def _time_out(draft: Draft, key: FaultKey, s: Standing, at: Millis) -> None:
    rule, active, timer = draft.duration_of(key), s.active, s.timer
    if timer is None:
        return
    if active is None and timer.event is not None:
        rating = draft.level(key, timer.event.severity)
        active = fault(timer.event, rating, timer.event.occurrence, timer.since, s.total)
    if rule is None or active is None:
        draft.put(Ignored, key, Reason.UNCHANGED, "nothing left to time", None, active, None, s.counter)
        return
    due = timer.due
    effect, after = step(timer, Signal.EXPIRE, at, key, rule)
    if effect is Effect.RAISED:
        _raise(draft, active, after, s.counter, rule, due)
        return
    ended = (active.occurrence, due)
    detail = f"clean for longer than {span_text(rule.recover_timeout_ms)}"
    if frequency.holds(s.counter):
        rating = draft.level(key, active.severity, counter=s.counter, there=False)
        shown = rated(active, rating)
        detail = f"{detail}; stays {said(rating)}"
        draft.put(Relevelled, key, Reason.FAULT_SHOWN, detail, None, shown, after, s.counter, ended=(ended,))
    else:
        draft.put(Cleared, key, Reason.FAULT_CLEARED, detail, None, None, after, s.counter, ended=(ended,))


def _raise(
    draft: Draft,
    active: ActiveFault,
    timer: DurationTimer | None,
    counter: FrequencyCounter | None,
    rule: LevelRule,
    begin: Millis,
) -> None:
    """Down for too long: the rule's level from start + FaultTimeout on, as an occurrence of its own. Of a code that has
    a frequency rule too, this is the fault that counts.
    """
    key, counting = active.key, draft.frequency_of(active.key)
    tripped = frequency.Effect.NOTHING
    if counting is not None and timer is not None and timer.event is not None:
        tripped, counter = frequency.fault(counter, begin, begin, key, counting, timer.event)
    rating = draft.level(key, active.severity, timer=timer, counter=counter)
    entry: Occurrence | None = None
    if rating.level != active.level:
        opening = base_of(active, timer)
        active = replace(active, occurrence=raised_id(opening), count=draft.state(key).total + 1)
        entry = raised_entry(active, rating, begin)
    detail = f"down for longer than {span_text(rule.fault_timeout_ms)}: {said(rating)}"
    shown = rated(active, rating)
    draft.put(Relevelled, key, Reason.FAULT_SHOWN, detail, None, shown, timer, counter, begun=entry)
    draft.tell_trip(tripped, key, active.devices, begin)


def _release(draft: Draft, key: FaultKey, s: Standing) -> None:
    """Clean for longer than the release window: the level of the trip goes."""
    counter, rule = s.counter, draft.frequency_of(key)
    if counter is None:
        return
    after = frequency.expire(counter)
    span = f" than {span_text(rule.release_ms)}" if rule is not None else ""
    detail = f"no fault for longer{span} since the last recover: {counter.level} by frequency:{key.code} is released"
    if counter.level == MANUAL:
        ended = (counter.trip, counter.due)
        draft.put(Relevelled, key, Reason.FAULT_CLEARED, detail, None, s.active, s.timer, after, ended=(ended,))
        return
    still = s.active is not None and (s.there or duration.in_force(s.timer))
    if s.active is None or not still:
        over = () if s.active is None else ((base_of(s.active, s.timer, counter), counter.due),)
        draft.put(Cleared, key, Reason.FAULT_CLEARED, detail, None, None, s.timer, after, ended=over)
        return
    rating = draft.level(key, s.active.severity, timer=s.timer, there=s.there)
    shown = rated(s.active, rating)
    draft.put(Relevelled, key, Reason.FAULT_SHOWN, detail, None, shown, s.timer, after)


def restore(draft: Draft, s: Standing) -> Standing:
    """A fault that only its trip shows, and that is not among the active ones, is put back there."""
    if s.active is not None or s.counter is None or not frequency.holds(s.counter):
        return s
    rating = draft.level(s.counter.key, s.counter.severity, counter=s.counter, there=False)
    return replace(s, active=counted_fault(s.counter, rating, s.total))
