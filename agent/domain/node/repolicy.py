"""A policy that is new here: everything that is active or counted is rated by it at once.

The one rule: an occurrence keeps the level that it had at its time. A level that a policy makes worse is a new one.
"""

from collections.abc import Iterable
from dataclasses import replace

from agent.domain import duration, frequency
from agent.domain.duration import Phase, Signal, asserted, in_force, phase_of, step
from agent.domain.events import ActiveFault, DurationTimer, FaultKey, FrequencyCounter
from agent.domain.node.book import OCCURRENCES_KEPT
from agent.domain.node.changes import Cleared, End, Ignored, Policed, Relevelled
from agent.domain.node.deadlines import restore
from agent.domain.node.draft import CountRule, Draft, Standing
from agent.domain.node.entries import base_of, devices_of, occur_of, raised_entry, rated, rerated_id, said
from agent.domain.vocab import Millis, OccurrenceId, Reason


def settle_policy(draft: Draft) -> None:
    """Rate all that is active or counted by the policy in force, if it is not the book's."""
    book, old = draft.book, draft.book.policy
    if draft.policy.digest == old:
        return
    codes = book.unknown.items()
    learned = tuple(name for name, one in codes if draft.policy.rate(one.plane, one.code, None).known)
    draft.changes.append(Policed(draft.policy.digest, learned))
    why = f"policy {old[:12] or 'none'} to {draft.policy.digest[:12]}"
    keys = {who: fault.key for who, fault in book.active.items()}
    keys.update((who, counter.key) for who, counter in book.counters.items() if who not in keys)
    for key in keys.values():
        _settle(draft, key, why)


def _settle(draft: Draft, key: FaultKey, why: str) -> None:
    before = draft.state(key)
    effect, counter = _recount(draft, before)
    s = restore(draft, replace(before, counter=counter))
    active = s.active
    if active is None:
        if counter != before.counter:
            draft.put(Ignored, key, Reason.UNCHANGED, why, None, None, s.timer, counter)
        draft.tell_trip(effect, key, devices_of(key), draft.now)
        return
    base = base_of(active, before.timer, before.counter)
    timer, gone = _retime(draft, active, base, before)
    if not before.there and before.active is not None and not (in_force(timer) or frequency.holds(counter)):
        detail, ended = f"{why}: no rule shows it any more", _ends((active.occurrence, base), draft.now)
        draft.put(Cleared, key, Reason.FAULT_CLEARED, detail, None, None, None, counter, ended=ended)
        draft.tell_trip(effect, key, active.devices, draft.now)
        return
    there = before.active is not None and before.there
    rating = draft.level(key, active.severity, timer=timer, counter=counter, there=there)
    after = replace(rated(active, rating), occurrence=active.occurrence if in_force(timer) else base)
    begun, over = None, [active.occurrence] if gone else []
    worse = before.active is None or draft.worse(key.plane, after.level, before.active.level)
    if worse and not _told_before(draft, key, after.occurrence, before.total):
        over.append(after.occurrence)
        fresh = rerated_id(after.occurrence, draft.policy.digest, before.total)
        timer = _reopened(timer, after.occurrence, fresh)
        after = replace(after, occurrence=fresh, count=before.total + 1)
        begun = raised_entry(after, rating, draft.now)
    if counter is not None and not in_force(timer) and (there or frequency.holds(counter)):
        counter = replace(counter, occurrence=after.occurrence)
    ended = _ends(over, draft.now)
    if after != before.active:
        detail = f"{why}: {said(rating)}"
        draft.put(Relevelled, key, Reason.FAULT_SHOWN, detail, None, after, timer, counter, begun=begun, ended=ended)
    elif (timer, counter) != (before.timer, before.counter):
        draft.put(Ignored, key, Reason.UNCHANGED, why, None, active, timer, counter)
    draft.tell_trip(effect, key, active.devices, draft.now)


def _reopened(timer: DurationTimer | None, old: OccurrenceId, new: OccurrenceId) -> DurationTimer | None:
    """The occurrence that stands for the fault from now on is the one that its recover ends."""
    if timer is None or timer.event is None or timer.event.occurrence != old:
        return timer
    return replace(timer, event=replace(timer.event, occurrence=new))


def _ends(occurrences: Iterable[OccurrenceId], at: Millis) -> tuple[End, ...]:
    return tuple((one, at) for one in occurrences)


def _told_before(draft: Draft, key: FaultKey, opening: OccurrenceId, total: int) -> bool:
    """Whether one of the recent occurrences is this policy's for the same opening: one that comes back repeats none."""
    totals = range(max(total - OCCURRENCES_KEPT, 0), total + 1)
    return any(draft.tells(key, rerated_id(opening, draft.policy.digest, one)) for one in totals)


def _recount(draft: Draft, s: Standing) -> tuple[frequency.Effect, FrequencyCounter | None]:
    """The counter by its rule as it is now; without a rule there is nothing to count for."""
    if s.counter is None:
        return frequency.Effect.NOTHING, None
    rule: CountRule | None = draft.frequency_of(s.counter.key)
    if rule is None:
        return frequency.Effect.NOTHING, None
    effect, counter = frequency.follow(s.counter, draft.now, rule)
    if effect is frequency.Effect.TRIPPED and not (s.active is not None and s.there):
        counter = frequency.recover(counter, draft.now, rule)
    if duration.in_force(s.timer) or s.timer is None:
        return effect, counter
    if draft.duration_of(s.counter.key) is None and asserted(s.timer):  # too short so far to count, and now it does
        counter = frequency.again(counter, s.timer.since)
    return effect, counter


def _retime(draft: Draft, active: ActiveFault, base: OccurrenceId, s: Standing) -> tuple[DurationTimer | None, bool]:
    """The timer by the duration rule as it is now, and whether a rule is gone that had raised an occurrence."""
    key, timer, rule = active.key, s.timer, draft.duration_of(active.key)
    if rule is None:
        return None, in_force(timer) and active.occurrence != base
    if timer is None:
        opening = occur_of(replace(active, occurrence=base))
        return (step(None, Signal.OCCUR, active.since, key, rule, opening)[1] if s.there else None), False
    if timer.phase == Phase.RAISED:
        return timer, False
    span = rule.recover_timeout_ms if phase_of(timer) is Phase.UP else rule.fault_timeout_ms
    return replace(timer, due=Millis(timer.since + span)), False
