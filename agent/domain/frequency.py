"""The frequency rule: one fault is an accident, the same one again and again on a device is a broken device.

One counter per identity, so per code and device; what one code reaches empties no other's counter. The one rule: the
phase changes only as TABLE says; what is not in it changes nothing.
Times are absolute event time in ms. *Longer than* is strict: a fault exactly as old as the window still counts, and at
the release deadline itself nothing happens yet (device-plugin fault_code.go:993-1031, 1229-1274).
"""

from bisect import insort
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final, Protocol

from agent.domain.events import FaultEvent, FaultKey, FrequencyCounter
from agent.domain.vocab import MANUAL, RAISED_INDEX, Millis, OccurrenceId


class Phase(StrEnum):
    """Where a counter stands; `none` is its absence."""

    NONE = "none"
    COUNTING = "counting"
    HELD = "held"
    CLEAN = "clean"
    RELEASED = "released"


class Signal(StrEnum):
    """What moves a counter. FULL: a fault with which the window holds as many as the rule's Times."""

    FAULT = "fault"
    FULL = "full"
    RECOVER = "recover"
    EXPIRE = "expire"


class Effect(StrEnum):
    """What a step means to those who show the fault."""

    NOTHING = "nothing"
    COUNTED = "counted"
    TRIPPED = "tripped"
    REFRESHED = "refreshed"
    """A further fault while tripped: the time until the release begins anew with its recover."""
    RECOVERED = "recovered"
    RELEASED = "released"


TABLE: Final[Mapping[tuple[Phase, Signal], tuple[Phase, Effect]]] = {
    (Phase.NONE, Signal.FAULT): (Phase.COUNTING, Effect.COUNTED),
    (Phase.NONE, Signal.FULL): (Phase.HELD, Effect.TRIPPED),
    (Phase.COUNTING, Signal.FAULT): (Phase.COUNTING, Effect.COUNTED),
    (Phase.COUNTING, Signal.FULL): (Phase.HELD, Effect.TRIPPED),
    (Phase.HELD, Signal.FAULT): (Phase.HELD, Effect.REFRESHED),
    (Phase.HELD, Signal.FULL): (Phase.HELD, Effect.TRIPPED),
    (Phase.HELD, Signal.RECOVER): (Phase.CLEAN, Effect.RECOVERED),
    (Phase.CLEAN, Signal.FAULT): (Phase.HELD, Effect.REFRESHED),
    (Phase.CLEAN, Signal.FULL): (Phase.HELD, Effect.TRIPPED),
    (Phase.CLEAN, Signal.EXPIRE): (Phase.RELEASED, Effect.RELEASED),
    (Phase.RELEASED, Signal.FAULT): (Phase.RELEASED, Effect.COUNTED),
    (Phase.RELEASED, Signal.FULL): (Phase.HELD, Effect.TRIPPED),
}
"""FULL while tripped comes to pass with ManuallySeparateNPU only: a person may have ended that trip long ago, and this
side is not told. Other levels count nothing while they are held."""

_PHASES: Final[Mapping[str, Phase]] = {phase.value: phase for phase in Phase}
_TRIPPED: Final = frozenset({Phase.HELD, Phase.CLEAN})


class Rule(Protocol):
    """A frequency rule: TimeWindow and ReleaseTimeWindow in ms (0: never released), Times, and the level it gives."""

    @property
    def window_ms(self) -> int: ...
    @property
    def times(self) -> int: ...
    @property
    def level(self) -> str: ...
    @property
    def release_ms(self) -> int: ...


def phase_of(counter: FrequencyCounter | None) -> Phase:
    """The phase; no counter is `none`, and so is a phase nobody knows."""
    return Phase.NONE if counter is None else _PHASES.get(counter.phase, Phase.NONE)


def holds(counter: FrequencyCounter | None) -> bool:
    """Whether the counter's level is in force here. That of a manual trip is in force where people can end it."""
    return counter is not None and phase_of(counter) in _TRIPPED and counter.level != MANUAL


def shown_on(counter: FrequencyCounter | None) -> bool:
    """Whether the fault itself is over and only its trip keeps it shown."""
    return holds(counter) and phase_of(counter) is Phase.CLEAN


def releasing(counter: FrequencyCounter | None) -> bool:
    """Whether the counter has a release deadline."""
    return counter is not None and counter.due > 0 and phase_of(counter) is Phase.CLEAN


def overdue(counter: FrequencyCounter | None, at: Millis) -> bool:
    """Whether at `at` (event time, ms) the release deadline has passed, strictly."""
    return counter is not None and releasing(counter) and at > counter.due


def forgotten(counter: FrequencyCounter | None, at: Millis, *, awaited: bool) -> bool:
    """Whether at `at` all that a counter has counted is out of its window, and nothing was tripped. Not while one is
    `awaited`: a deadline that runs may bring it one more, however late that is looked at.
    """
    return counter is not None and not awaited and phase_of(counter) is Phase.COUNTING and at > counter.due


def fault(
    counter: FrequencyCounter | None, at: Millis, now: Millis, key: FaultKey, rule: Rule, event: FaultEvent
) -> tuple[Effect, FrequencyCounter]:
    """A fault of `at` that counts, known at `now`; `event` is the occur that it stands on.

    `now` only says which counted faults have left the window. A clock that is set back gives a fault its place among
    the others, or none if that is outside the window.
    """
    before = phase_of(counter)
    counter = counter or FrequencyCounter(key, Phase.COUNTING.value)
    silent = before in _TRIPPED and rule.level != MANUAL
    times = () if silent else _within(counter.times, at, now, rule)
    signal = Signal.FULL if len(times) >= rule.times else Signal.FAULT
    phase, effect = TABLE[before, signal]
    counter = replace(
        counter,
        phase=phase.value,
        times=times,
        due=Millis(max(times, default=at) + rule.window_ms) if phase is Phase.COUNTING else counter.due,
        occurrence=event.occurrence,
        source=event.source,
        severity=event.severity,
        logic_id=event.logic_id,
        trace=event.trace,
    )
    if effect is Effect.TRIPPED:
        return effect, _tripped(counter, rule)
    if phase is Phase.HELD:
        counter = replace(counter, last=max(counter.last, at), recovered=Millis(0), due=Millis(0))
    return effect, counter


def again(counter: FrequencyCounter | None, at: Millis) -> FrequencyCounter | None:
    """The fault is back in a way that does not count (its episode had not ended): no release while it is there."""
    if counter is None or phase_of(counter) is not Phase.CLEAN:
        return counter
    return replace(counter, phase=Phase.HELD.value, last=max(counter.last, at), recovered=Millis(0), due=Millis(0))


def recover(counter: FrequencyCounter | None, at: Millis, rule: Rule) -> FrequencyCounter | None:
    """The fault recovered at `at`, which is never taken as before the fault itself."""
    move = TABLE.get((phase_of(counter), Signal.RECOVER))
    if counter is None or move is None:
        return counter
    at = max(at, counter.last)
    return replace(counter, phase=move[0].value, recovered=at, due=_release(at, rule))


def expire(counter: FrequencyCounter) -> FrequencyCounter | None:
    """The release deadline has passed. A manual trip stays on record as released, at its deadline; others are gone."""
    move = TABLE.get((phase_of(counter), Signal.EXPIRE))
    if move is None:
        return counter
    return replace(counter, phase=move[0].value) if counter.level == MANUAL else None


def follow(counter: FrequencyCounter, now: Millis, rule: Rule) -> tuple[Effect, FrequencyCounter | None]:
    """The counter under a rule that has changed: what was tripped takes the new level and release, what was counted is
    measured by the new window and Times (device-plugin upgradefault.go:469-559).
    """
    phase = phase_of(counter)
    times = tuple(one for one in counter.times if one >= now - rule.window_ms)
    if phase in _TRIPPED:
        times = times if rule.level == MANUAL else ()
        due = _release(counter.recovered, rule) if phase is Phase.CLEAN else Millis(0)
        after = replace(counter, times=times, due=due, level=rule.level)
        if rule.level == MANUAL and counter.level != MANUAL:
            if counter.trip:
                return Effect.NOTHING, after  # it was one before, and nothing has tripped anew
            return Effect.TRIPPED, replace(after, trip=trip_id(counter.occurrence))
        return Effect.NOTHING, after
    if not times:
        return Effect.NOTHING, counter if phase is Phase.RELEASED else None
    if len(times) >= rule.times:
        return Effect.TRIPPED, _tripped(replace(counter, phase=Phase.HELD.value, times=times), rule)
    due = Millis(times[-1] + rule.window_ms) if phase is Phase.COUNTING else counter.due
    return Effect.NOTHING, replace(counter, times=times, due=due)


def trip_id(opening: OccurrenceId) -> OccurrenceId:
    """The id of the occurrence that a manual trip is, from the one that opened the fault: the same on every reader."""
    place, _, index = opening.rpartition(":")
    number = int(index) % RAISED_INDEX if index.isdecimal() else 0
    return OccurrenceId(f"{place}:{number + 2 * RAISED_INDEX}" if place else f"{opening}:{2 * RAISED_INDEX}")


def _within(times: tuple[Millis, ...], at: Millis, now: Millis, rule: Rule) -> tuple[Millis, ...]:
    """The counted faults in the window that ends now, with one more; no more than a trip needs, the newest."""
    kept = [one for one in times if one >= now - rule.window_ms]
    if at >= now - rule.window_ms:
        insort(kept, at)
    return tuple(kept[-rule.times :])


def _tripped(counter: FrequencyCounter, rule: Rule) -> FrequencyCounter:
    newest = counter.times[-1]
    return replace(
        counter,
        times=(),
        due=Millis(0),
        level=rule.level,
        tripped=newest,
        last=newest,
        recovered=Millis(0),
        trip=trip_id(counter.occurrence) if rule.level == MANUAL else OccurrenceId(""),
    )


def _release(recovered: Millis, rule: Rule) -> Millis:
    return Millis(recovered + rule.release_ms) if rule.release_ms else Millis(0)
