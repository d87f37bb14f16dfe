"""The duration rule: a link that is down for a short while is noise, one that stays down is a fault.

One episode per identity. The one rule: the phase changes only as TABLE says; what is not in it changes nothing.
Deadlines are absolute event time, and *longer than* is strict: at the deadline itself nothing happens yet
(device-plugin fault_code.go:1981-2246).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

from agent.domain.events import DurationTimer, FaultEvent, FaultKey
from agent.domain.vocab import Assertion, Millis


class Phase(StrEnum):
    """Where an episode stands; `clean` is the absence of a timer."""

    CLEAN = "clean"
    DOWN = "down"
    RAISED = "raised"
    UP = "up"


class Signal(StrEnum):
    """What moves an episode: the two assertions and the passing of its deadline."""

    OCCUR = "occur"
    RECOVER = "recover"
    EXPIRE = "expire"


class Effect(StrEnum):
    """What a step means to those who show the fault."""

    NOTHING = "nothing"
    OPENED = "opened"
    CLOSED = "closed"
    """Recovered in time: a flap, nothing was raised."""
    RAISED = "raised"
    LEFT = "left"
    """Recovered after it was raised: shown on until clean for long enough."""
    RETURNED = "returned"
    CLEARED = "cleared"


TABLE: Final[Mapping[tuple[Phase, Signal], tuple[Phase, Effect]]] = {
    (Phase.CLEAN, Signal.OCCUR): (Phase.DOWN, Effect.OPENED),
    (Phase.DOWN, Signal.RECOVER): (Phase.CLEAN, Effect.CLOSED),
    (Phase.DOWN, Signal.EXPIRE): (Phase.RAISED, Effect.RAISED),
    (Phase.RAISED, Signal.RECOVER): (Phase.UP, Effect.LEFT),
    (Phase.UP, Signal.OCCUR): (Phase.RAISED, Effect.RETURNED),
    (Phase.UP, Signal.EXPIRE): (Phase.CLEAN, Effect.CLEARED),
}
"""Absent pairs are repeats (occur while down, recover while clean): they collapse into the first."""


_RUNNING: Final = frozenset({Phase.DOWN.value, Phase.UP.value})
_PHASES: Final[Mapping[str, Phase]] = {phase.value: phase for phase in Phase}


class Rule(Protocol):
    """The two spans of a duration rule, in ms (FaultTimeout 0..600 s, RecoverTimeout 0..86,400 s)."""

    @property
    def fault_timeout_ms(self) -> int: ...
    @property
    def recover_timeout_ms(self) -> int: ...


def phase_of(timer: DurationTimer | None) -> Phase:
    """The phase; no timer is `clean`, and so is a phase nobody knows."""
    return Phase.CLEAN if timer is None else _PHASES.get(timer.phase, Phase.CLEAN)


def asserted(timer: DurationTimer | None) -> bool:
    """Whether the fault itself is there, as opposed to being shown on after its recover."""
    return timer is None or timer.phase != Phase.UP


def in_force(timer: DurationTimer | None) -> bool:
    """Whether the rule's level counts now."""
    return timer is not None and timer.phase in (Phase.RAISED, Phase.UP)


def running(timer: DurationTimer | None) -> bool:
    """Whether the timer has a deadline that is still to come."""
    return timer is not None and timer.phase in _RUNNING


def overdue(timer: DurationTimer | None, at: Millis) -> bool:
    """Whether at `at` (event time, ms) the deadline has passed; strictly, as the original compares."""
    return timer is not None and at > timer.due and running(timer)


def moment(timer: DurationTimer, event: FaultEvent, now: Millis) -> Millis:
    """When an event that ends the timer's phase took place, in ms.

    A time not after the phase's start tells nothing (a recover may repeat the time of its occur): then it is
    the record's time.
    """
    return event.at if event.at > timer.since else now


def step(
    timer: DurationTimer | None,
    signal: Signal | Assertion,
    at: Millis,
    key: FaultKey,
    rule: Rule,
    event: FaultEvent | None = None,
) -> tuple[Effect, DurationTimer | None]:
    """One move of the episode: what it means, and the timer from now on (None: clean).

    `at` is the event's moment; for EXPIRE it is not used, the deadline itself is the time of the alarm
    (start + FaultTimeout) or of the clearing. `event`: the occurrence to remember with the timer.
    Total: a pair outside TABLE gives NOTHING and the timer as it was.
    """
    move = TABLE.get((phase_of(timer), Signal(signal))) if signal != Assertion.ONCE else None
    if move is None:
        return Effect.NOTHING, timer
    phase, effect = move
    if phase is Phase.CLEAN:
        return effect, None
    if phase is Phase.DOWN:
        return effect, DurationTimer(key, phase.value, at, Millis(at + rule.fault_timeout_ms), event)
    kept = event if effect is Effect.RETURNED else timer.event if timer is not None else None
    if phase is Phase.UP:
        return effect, DurationTimer(key, phase.value, at, Millis(at + rule.recover_timeout_ms), kept)
    since = timer.due if effect is Effect.RAISED and timer is not None else at
    return effect, DurationTimer(key, phase.value, since, since, kept)
