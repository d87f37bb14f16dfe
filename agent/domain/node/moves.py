"""What an event does to its fault: the rules of occur, recover and once, for device and for public sources.

The one rule: device sources: stream order decides, times are for show. Public sources: time decides.
"""

from dataclasses import replace
from typing import Final

from agent.domain import frequency
from agent.domain.duration import Effect, Phase, Signal, moment, running, step
from agent.domain.events import DurationTimer, FaultEvent, FrequencyCounter
from agent.domain.node.changes import Cleared, End, Ignored, Recovered, Relevelled, Shown
from agent.domain.node.deadlines import expire
from agent.domain.node.draft import CountRule, Draft, Standing
from agent.domain.node.entries import base_of, entry, fault, rated, said
from agent.domain.vocab import Assertion, Millis, Reason, span_text, utc_text

PUBLIC_KEPT: Final = 200
"""Public faults active at once on a node. Their ids are their senders' and never end, and the report has to hold each
with all that chips, ports and the node itself may have (ClusterD holds 50,000 in a whole cluster)."""
_ENDS_PHASE: Final = frozenset({(Phase.DOWN, Assertion.RECOVER), (Phase.UP, Assertion.OCCUR)})
_NO_FAULT: Final = "nothing to recover from"


def repeat(draft: Draft, event: FaultEvent, message_id: str) -> None:
    """An event of a message that came before; not even its link state counts again."""
    s, detail = draft.state(event.key), f"message {message_id} came before"
    who = draft.identity(event.key)
    awaited = running(s.timer)
    counter = None if frequency.forgotten(s.counter, draft.now, awaited=awaited) else s.counter
    rest = (s.active, s.timer, counter, s.recovered, s.total)
    change = Ignored(who, event.key, Reason.DUPLICATE_MESSAGE, detail, event, *rest)
    draft.changes.append(change)
    draft.latest[who] = change


def device(draft: Draft, event: FaultEvent) -> None:
    """An event of a device source."""
    key = event.key
    s = draft.state(key)
    if s.timer is not None and (s.timer.phase, event.assertion) in _ENDS_PHASE:
        expire(draft, (key,), moment(s.timer, event, draft.now))
        s = draft.state(key)
    if event.assertion is Assertion.ONCE:
        _once(draft, event, s)
    elif not s.there:
        if event.assertion is Assertion.OCCUR:
            _begin(draft, event, s)
        else:
            draft.leave(Ignored, key, Reason.NOT_ACTIVE, _NO_FAULT if s.active is None else "recovered before", event)
    elif event.assertion is Assertion.OCCUR:
        _again(draft, event, s)
    else:
        _end(draft, event, s)


def public(draft: Draft, event: FaultEvent) -> None:
    """An event of a public source; a recover repeats the time of its occur (ClusterD publicfault)."""
    s = draft.state(event.key)
    told = s.recovered
    if event.assertion is Assertion.RECOVER:
        last = Recovered(max(event.at, told.at) if told else event.at, draft.now)
        if s.active is None:
            draft.leave(Ignored, event.key, Reason.NOT_ACTIVE, _NO_FAULT, event, recovered=last)
        elif event.at < s.active.since:
            detail = f"older than the fault active since {utc_text(s.active.since)}"
            draft.leave(Ignored, event.key, Reason.STALE, detail, event, recovered=last)
        else:
            _end(draft, event, s, last)
    elif told is not None and event.at <= told.at:
        begun = entry(event, draft.level(event.key, event.severity), told.at)
        draft.leave(Ignored, event.key, Reason.STALE, f"history: recovered at {utc_text(told.at)}", event, begun=begun)
    elif event.assertion is Assertion.ONCE:
        _once(draft, event, s)
    elif s.active is not None:
        _again(draft, event, s)
    elif draft.public >= PUBLIC_KEPT:
        detail = f"{draft.public} public faults are active on the node, at most {PUBLIC_KEPT} are taken at once"
        draft.leave(Ignored, event.key, Reason.TOO_MANY, detail, event)
    else:
        _begin(draft, event, s)


def _once(draft: Draft, event: FaultEvent, s: Standing) -> None:
    """An occurrence and its end; what is active under the same identity stays, for nothing says it is over."""
    key, rule = event.key, draft.frequency_of(event.key)
    effect, counter = frequency.Effect.NOTHING, s.counter
    if rule is not None and draft.duration_of(key) is None:
        effect, counter = frequency.fault(counter, event.at, draft.now, key, rule, event)
        if s.active is not None and s.there:  # what its recover ends is still the occur, whatever happened meanwhile
            counter = replace(counter, occurrence=base_of(s.active, s.timer, s.counter))
        else:
            counter = frequency.recover(counter, event.at, rule)
    rating = draft.level(key, event.severity, counter=counter)
    active = s.active
    if frequency.holds(counter):
        there = active is not None and s.there
        after = draft.level(key, event.severity, timer=s.timer, counter=counter, there=there)
        active = rated(active or fault(event, rating, event.occurrence, event.at, s.total + 1), after)
    begun = entry(event, rating, event.at)
    detail = f"once, {said(rating)}{_counted(effect, counter, rule)}"
    ended: tuple[End, ...] = ()
    if s.active is not None and not s.there:  # a policy may have begun one for what was only shown on
        ended = ((base_of(s.active, s.timer, s.counter), max(event.at, s.active.since)),)
    draft.put(Shown, key, Reason.FAULT_SHOWN, detail, event, active, s.timer, counter, begun=begun, ended=ended)
    draft.tell_trip(effect, key, event.devices, event.at)


def _again(draft: Draft, event: FaultEvent, s: Standing) -> None:
    active = s.active
    if active is None:
        return
    if event.at < active.since:
        active = replace(active, since=event.at)
    detail = f"active since {utc_text(active.since)}"
    draft.leave(Ignored, event.key, Reason.ALREADY_ACTIVE, detail, event, active=active)


def _begin(draft: Draft, event: FaultEvent, s: Standing) -> None:
    key, lasting, counting = event.key, draft.duration_of(event.key), draft.frequency_of(event.key)
    timer, counter, effect = s.timer, s.counter, frequency.Effect.NOTHING
    if lasting is not None:
        step_effect, timer = step(timer, Signal.OCCUR, event.at, key, lasting, event)
        if step_effect is Effect.RETURNED:
            counter = frequency.again(counter, event.at)
    elif counting is not None:
        effect, counter = frequency.fault(counter, event.at, draft.now, key, counting, event)
    rating = draft.level(key, event.severity, timer=timer, counter=counter)
    count = s.total + 1
    ended: tuple[End, ...] = ()
    if s.active is None:
        active = fault(event, rating, event.occurrence, event.at, count)
    else:  # shown on after its recover, and back before it was clean for long enough
        active = replace(rated(s.active, rating), count=count, severity=event.severity)
        ended = ((base_of(s.active, s.timer, s.counter), max(event.at, s.active.since)),)
    detail = f"{said(rating)}{_counted(effect, counter, counting)}{_because(event)}"
    begun = entry(event, rating, None)
    draft.put(Shown, key, Reason.FAULT_SHOWN, detail, event, active, timer, counter, begun=begun, ended=ended)
    draft.tell_trip(effect, key, event.devices, event.at)


def _end(draft: Draft, event: FaultEvent, s: Standing, last: Recovered | None = None) -> None:
    key, lasting, counting = event.key, draft.duration_of(event.key), draft.frequency_of(event.key)
    active, timer, counter = s.active, s.timer, s.counter
    if active is None:
        return
    ended = (base_of(active, timer, counter), max(event.at, active.since))
    left = False
    if lasting is not None and timer is not None:
        at = moment(timer, event, draft.now)
        effect, timer = step(timer, Signal.RECOVER, at, key, lasting)
        left = effect is Effect.LEFT
    if counting is not None and counter is not None:
        counter = frequency.recover(counter, _recovered_at(counter, event, draft.now), counting)
    if left or frequency.holds(counter):
        rating = draft.level(key, active.severity, timer=timer, counter=counter, there=False)
        after = rated(active, rating)
        kind = Shown if after.level == active.level else Relevelled
        detail = f"it has recovered; shown on as {after.level} until {_clean(timer if left else None, counter)}"
        draft.put(kind, key, Reason.FAULT_SHOWN, detail, event, after, timer, counter, ended=(ended,))
        return
    # By the fault's own clock: a recording that is run has a wall clock far ahead of it.
    lasted = (event.at if event.at > active.since else draft.now) - active.since
    detail = f"was {active.level} for {span_text(lasted)}{_because(event)}"
    draft.put(Cleared, key, Reason.FAULT_CLEARED, detail, event, None, None, counter, recovered=last, ended=(ended,))


def _recovered_at(counter: FrequencyCounter, event: FaultEvent, now: Millis) -> Millis:
    """When the recover took place: a time not after the fault's own says nothing (it may repeat that of its occur)."""
    return event.at if event.at > counter.last else now


def _clean(timer: DurationTimer | None, counter: FrequencyCounter | None) -> str:
    spans = []
    if timer is not None:
        spans.append(timer.due - timer.since)
    if counter is not None and frequency.releasing(counter) and frequency.holds(counter):
        spans.append(counter.due - counter.recovered)
    return f"clean for longer than {span_text(max(spans))}" if spans else "a person ends it"


def _counted(effect: frequency.Effect, counter: FrequencyCounter | None, rule: CountRule | None) -> str:
    if rule is None or counter is None or effect is not frequency.Effect.COUNTED:
        return ""
    return f"; {len(counter.times)} of {rule.times} within {span_text(rule.window_ms)} counted"


def _because(event: FaultEvent) -> str:
    return f"; {event.because}" if event.because else ""
