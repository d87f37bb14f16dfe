"""The duration rule against a slow and obvious reading of the same words."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.duration import TABLE, Effect, Phase, Signal, asserted, in_force, moment, overdue, step
from agent.domain.events import DurationTimer, FaultEvent, FaultKey
from agent.domain.vocab import Assertion, Millis, NodeName, OccurrenceId, Plane, Source


@dataclass(frozen=True, slots=True)
class Spans:
    fault_timeout_ms: int = 20_000
    recover_timeout_ms: int = 60_000


KEY = FaultKey(NodeName("n1"), Plane.NETWORK, "0", "81078603")
RULE = Spans()


def event(at: int, assertion: Assertion = Assertion.OCCUR) -> FaultEvent:
    return FaultEvent(KEY, assertion, Millis(at), OccurrenceId(f"0:0:{at}:0"), Source.HCCN, "hccn")


def timer(phase: str, since: int, due: int) -> DurationTimer:
    return DurationTimer(KEY, phase, Millis(since), Millis(due), event(1_000))


@pytest.mark.parametrize(
    ("before", "signal", "at", "effect", "after"),
    [
        (None, Signal.OCCUR, 1_000, Effect.OPENED, timer("down", 1_000, 21_000)),
        (None, Signal.RECOVER, 1_000, Effect.NOTHING, None),
        (None, Signal.EXPIRE, 1_000, Effect.NOTHING, None),
        (timer("down", 1_000, 21_000), Signal.OCCUR, 5_000, Effect.NOTHING, timer("down", 1_000, 21_000)),
        (timer("down", 1_000, 21_000), Signal.RECOVER, 5_000, Effect.CLOSED, None),
        (timer("down", 1_000, 21_000), Signal.EXPIRE, 99_000, Effect.RAISED, timer("raised", 21_000, 21_000)),
        (timer("raised", 21_000, 21_000), Signal.OCCUR, 30_000, Effect.NOTHING, timer("raised", 21_000, 21_000)),
        (timer("raised", 21_000, 21_000), Signal.RECOVER, 30_000, Effect.LEFT, timer("up", 30_000, 90_000)),
        (timer("raised", 21_000, 21_000), Signal.EXPIRE, 30_000, Effect.NOTHING, timer("raised", 21_000, 21_000)),
        (timer("up", 30_000, 90_000), Signal.RECOVER, 40_000, Effect.NOTHING, timer("up", 30_000, 90_000)),
        (timer("up", 30_000, 90_000), Signal.EXPIRE, 99_000, Effect.CLEARED, None),
    ],
)
def test_each_step_of_an_episode(
    before: DurationTimer | None, signal: Signal, at: int, effect: Effect, after: DurationTimer | None
) -> None:
    assert step(before, signal, Millis(at), KEY, RULE, event(1_000)) == (effect, after)


def test_an_occur_while_up_returns_to_raised_and_remembers_the_new_occurrence() -> None:
    effect, after = step(timer("up", 30_000, 90_000), Signal.OCCUR, Millis(40_000), KEY, RULE, event(40_000))
    assert effect is Effect.RETURNED
    assert after == DurationTimer(KEY, "raised", Millis(40_000), Millis(40_000), event(40_000))


def test_a_once_moves_nothing() -> None:
    assert step(None, Assertion.ONCE, Millis(1), KEY, RULE) == (Effect.NOTHING, None)


@pytest.mark.parametrize(("at", "late"), [(21_000, False), (21_001, True)], ids=["at the deadline", "1 ms after"])
def test_longer_than_is_strict(at: int, late: bool) -> None:
    assert overdue(timer("down", 1_000, 21_000), Millis(at)) is late
    assert overdue(timer("up", 1_000, 21_000), Millis(at)) is late
    assert not overdue(timer("raised", 1_000, 21_000), Millis(at))


def test_an_unknown_phase_counts_as_clean() -> None:
    assert step(timer("sideways", 1, 2), Signal.RECOVER, Millis(3), KEY, RULE)[0] is Effect.NOTHING
    assert not overdue(timer("sideways", 1, 2), Millis(3))


def test_a_recover_that_repeats_the_time_of_its_occur_took_place_when_it_came() -> None:
    assert moment(timer("down", 1_000, 21_000), event(1_000, Assertion.RECOVER), Millis(9_000)) == 9_000
    assert moment(timer("down", 1_000, 21_000), event(1_001, Assertion.RECOVER), Millis(9_000)) == 1_001


def test_the_table_leads_only_to_what_it_leaves_again() -> None:
    assert {to for to, _ in TABLE.values()} == {phase for phase, _ in TABLE} == set(Phase)


def slow_reading(told: list[tuple[int, str]], now: int, spans: Spans) -> tuple[bool, bool]:
    """(down, raised) at `now`, from the whole history: cut it into stretches, then read them one after another."""
    collapsed: list[tuple[int, str]] = []
    for at, word in told:
        if (collapsed[-1][1] if collapsed else "recover") != word:
            collapsed.append((at, word))
    raised = False
    ends = [at for at, _ in collapsed[1:]] + [now]
    for (begin, word), end in zip(collapsed, ends, strict=False):
        if word == "occur":
            raised = raised or end - begin > spans.fault_timeout_ms
        else:
            raised = raised and not end - begin > spans.recover_timeout_ms
    return (collapsed[-1][1] if collapsed else "recover") == "occur", raised


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 7), st.sampled_from(["occur", "recover"])), max_size=14),
    st.integers(0, 9),
    st.integers(0, 6),
    st.integers(0, 6),
    st.booleans(),
)
def test_it_agrees_with_the_slow_reading(
    told: list[tuple[int, str]], rest: int, fault: int, recover: int, ticks: bool
) -> None:
    spans = Spans(fault, recover)
    history: list[tuple[int, str]] = []
    now, state = 100, None
    for gap, word in [*told, (rest, "")]:
        times = range(now + 1, now + gap + 1) if ticks else [now + gap]
        now += gap
        for at in times:
            if overdue(state, Millis(at)):
                _, state = step(state, Signal.EXPIRE, Millis(at), KEY, spans)
        if word:
            _, state = step(state, Assertion(word), Millis(now), KEY, spans, event(now))
            history.append((now, word))
    down, raised = slow_reading(history, now, spans)
    assert (state is not None and asserted(state), in_force(state)) == (down, raised)
