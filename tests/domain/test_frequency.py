"""The frequency rule against a slow and obvious reading of the same words (device-plugin fault_code.go:993-1031)."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.events import FaultEvent, FaultKey, FrequencyCounter
from agent.domain.frequency import (
    TABLE,
    Effect,
    Phase,
    Signal,
    again,
    expire,
    fault,
    follow,
    forgotten,
    holds,
    overdue,
    phase_of,
    recover,
    releasing,
    shown_on,
    trip_id,
)
from agent.domain.vocab import Assertion, Millis, NodeName, OccurrenceId, Plane, Source

KEY = FaultKey(NodeName("n1"), Plane.CHIP, "0", "80C98000")
MANUAL = "ManuallySeparateNPU"


@dataclass(frozen=True, slots=True)
class Rule:
    window_ms: int = 1_000
    times: int = 2
    level: str = "SeparateNPU"
    release_ms: int = 500


def event(at: int) -> FaultEvent:
    return FaultEvent(KEY, Assertion.OCCUR, Millis(at), OccurrenceId(f"0:0:{at}:3"), Source.DCMI, "dcmi", 2, (0,), 4)


def say(counter: FrequencyCounter | None, at: int, rule: Rule, now: int | None = None) -> FrequencyCounter:
    return fault(counter, Millis(at), Millis(at if now is None else now), KEY, rule, event(at))[1]


def tripped(rule: Rule) -> FrequencyCounter:
    return say(say(None, 100, rule), 200, rule)


def test_faults_are_counted_and_the_last_of_times_within_the_window_trips() -> None:
    effect, counter = fault(None, Millis(100), Millis(100), KEY, Rule(times=3), event(100))
    assert effect is Effect.COUNTED
    assert (counter.phase, counter.times, counter.due) == ("counting", (100,), 1_100)
    counter = say(counter, 200, Rule(times=3))
    effect, counter = fault(counter, Millis(300), Millis(300), KEY, Rule(times=3), event(300))
    assert effect is Effect.TRIPPED
    assert (counter.phase, counter.level, counter.tripped, counter.last) == ("held", "SeparateNPU", 300, 300)
    assert counter.times == ()  # the counter is emptied
    assert (counter.occurrence, counter.severity, counter.logic_id) == ("0:0:300:3", 2, 4)


@pytest.mark.parametrize(("second", "phase"), [(1_100, "held"), (1_101, "counting")])
def test_a_fault_exactly_as_old_as_the_window_still_counts(second: int, phase: str) -> None:
    assert say(say(None, 100, Rule()), second, Rule()).phase == phase


def test_one_time_trips_at_once() -> None:
    assert say(None, 5, Rule(times=1)).phase == "held"


def test_a_milder_level_is_released_once_clean_for_longer_than_its_window() -> None:
    counter = recover(tripped(Rule()), Millis(250), Rule())
    assert counter is not None
    assert (counter.phase, counter.recovered, counter.due) == ("clean", 250, 750)
    assert holds(counter)
    assert shown_on(counter)
    assert not overdue(counter, Millis(750))
    assert overdue(counter, Millis(751))
    assert expire(counter) is None


def test_a_fault_while_tripped_only_begins_the_release_anew() -> None:
    counter = recover(tripped(Rule()), Millis(250), Rule())
    effect, counter = fault(counter, Millis(600), Millis(600), KEY, Rule(), event(600))
    assert effect is Effect.REFRESHED
    assert (counter.phase, counter.times, counter.last, counter.due) == ("held", (), 600, 0)
    assert say(counter, 610, Rule()).times == ()
    after = recover(counter, Millis(700), Rule())
    assert after is not None
    assert after.due == 1_200


def test_without_a_release_window_a_person_ends_it() -> None:
    rule = Rule(level=MANUAL, release_ms=0)
    counter = recover(tripped(rule), Millis(250), rule)
    assert counter is not None
    assert (counter.phase, counter.due, releasing(counter)) == ("clean", 0, False)
    assert not overdue(counter, Millis(2**50))


def test_a_manual_trip_has_an_occurrence_of_its_own_and_is_no_level_here() -> None:
    counter = tripped(Rule(level=MANUAL))
    assert counter.trip == "0:0:200:20000003"
    assert not holds(counter)
    assert tripped(Rule()).trip == ""


def test_after_a_manual_trip_faults_count_for_the_next_one_for_a_person_may_have_ended_it() -> None:
    rule = Rule(level=MANUAL)
    counter = say(tripped(rule), 400, rule)
    assert (counter.phase, counter.times, counter.trip) == ("held", (400,), "0:0:200:20000003")
    counter = say(counter, 500, rule)
    assert (counter.tripped, counter.times, counter.trip) == (500, (), "0:0:500:20000003")


def test_a_manual_trip_stays_on_record_as_released_and_counts_anew() -> None:
    rule = Rule(level=MANUAL)
    counter = recover(tripped(rule), Millis(250), rule)
    assert counter is not None
    counter = expire(counter)
    assert counter is not None
    assert (counter.phase, counter.due, counter.trip) == ("released", 750, "0:0:200:20000003")
    counter = say(counter, 900, rule)
    assert (counter.phase, counter.due, counter.times) == ("released", 750, (900,))
    assert recover(counter, Millis(950), rule) == counter
    assert say(counter, 1_000, rule).phase == "held"


def test_a_recover_is_never_before_its_fault() -> None:
    counter = recover(tripped(Rule()), Millis(50), Rule())
    assert counter is not None
    assert counter.recovered == 200


def test_a_fault_that_comes_late_takes_its_place_and_one_outside_the_window_none() -> None:
    rule = Rule(times=3)
    counter = say(say(None, 500, rule), 300, rule, now=510)
    assert counter.times == (300, 500)
    assert say(counter, 400, rule, now=1_450).times == (500,)
    assert say(counter, 700, rule, now=1_300).phase == "held"


def test_a_fault_that_is_back_without_counting_is_not_released_while_it_is_there() -> None:
    counter = again(recover(tripped(Rule()), Millis(250), Rule()), Millis(300))
    assert counter is not None
    assert (counter.phase, counter.last, counter.due, counter.times) == ("held", 300, 0, ())
    assert again(None, Millis(1)) is None


def test_what_was_counted_is_forgotten_when_it_is_out_of_the_window() -> None:
    counter = say(None, 100, Rule())
    assert not forgotten(counter, Millis(1_100), awaited=False)
    assert forgotten(counter, Millis(1_101), awaited=False)
    assert not forgotten(counter, Millis(1_101), awaited=True)
    assert not forgotten(tripped(Rule()), Millis(10**9), awaited=False)
    assert not forgotten(None, Millis(1), awaited=False)


def test_a_phase_nobody_knows_counts_as_none() -> None:
    odd = replace(tripped(Rule()), phase="sideways")
    assert phase_of(odd) is Phase.NONE
    assert say(odd, 300, Rule(times=5)).phase == "counting"
    assert (recover(odd, Millis(1), Rule()), expire(odd)) == (odd, odd)


def test_every_phase_takes_a_fault_and_leads_only_to_phases_of_the_table() -> None:
    assert {phase for phase, signal in TABLE if signal is Signal.FAULT} == set(Phase)
    assert {phase for phase, signal in TABLE if signal is Signal.FULL} == set(Phase)
    assert {to for to, _ in TABLE.values()} == set(Phase) - {Phase.NONE}


# -- another rule (faultcodes: rule changed, existing reasons get the new level) ------------------------------------


def test_what_has_tripped_takes_the_new_level_and_release() -> None:
    counter = recover(tripped(Rule()), Millis(250), Rule())
    assert counter is not None
    effect, after = follow(counter, Millis(300), Rule(level="SubHealthFault", release_ms=900))
    assert (effect, after and after.level, after and after.due) == (Effect.NOTHING, "SubHealthFault", 1_150)
    effect, after = follow(counter, Millis(300), Rule(level=MANUAL, release_ms=0))
    assert effect is Effect.TRIPPED
    assert after is not None
    assert (after.level, after.trip, after.due) == (MANUAL, "0:0:200:20000003", 0)


def test_what_was_counted_is_measured_by_the_new_window_and_times() -> None:
    counter = say(say(None, 100, Rule(times=5)), 600, Rule(times=5))
    assert follow(counter, Millis(700), Rule(window_ms=200, times=5))[1] == replace(
        counter, times=(Millis(600),), due=Millis(800)
    )
    effect, after = follow(counter, Millis(700), Rule(times=2))
    assert (effect, after and after.phase, after and after.tripped) == (Effect.TRIPPED, "held", 600)
    assert follow(counter, Millis(10_000), Rule(times=5)) == (Effect.NOTHING, None)


def test_a_released_trip_stays_on_record_under_any_rule() -> None:
    rule = Rule(level=MANUAL)
    counter = recover(tripped(rule), Millis(250), rule)
    assert counter is not None
    released = expire(counter)
    assert released is not None
    assert follow(released, Millis(800), Rule()) == (Effect.NOTHING, released)


@pytest.mark.parametrize(
    ("opening", "trip"),
    [("0:1:7:0", "0:1:7:20000000"), ("0:1:7:10000002", "0:1:7:20000002"), ("odd", "odd:20000000")],
)
def test_the_id_of_a_trip_follows_from_the_fault_that_completed_it(opening: str, trip: str) -> None:
    assert trip_id(OccurrenceId(opening)) == trip


# -- over any history ----------------------------------------------------------------------------------------------


def slow_reading(history: list[tuple[int, int, str]], now: int, rule: Rule) -> tuple[list[int], bool, int]:
    """(faults in the window, in force, trips) at `now`, from the whole history read from its beginning."""
    counted: list[int] = []
    tripped = clean_since = None
    last = trips = 0
    for known, at, word in [*history, (now, 0, "")]:
        if clean_since is not None and rule.release_ms and known > clean_since + rule.release_ms:
            tripped = clean_since = None
        if word == "fault":
            last = max(last, at) if tripped is not None else at
            clean_since = None
            if tripped is None or rule.level == MANUAL:
                counted.append(at)
                if sum(one >= known - rule.window_ms for one in counted) >= rule.times:
                    last = max(one for one in counted if one >= known - rule.window_ms)
                    tripped, counted, trips = at, [], trips + 1
        elif word == "recover" and tripped is not None and clean_since is None:
            clean_since = max(at, last)
    within = sorted(one for one in counted if one >= now - rule.window_ms)
    return within, tripped is not None, trips


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-12, 2), st.sampled_from(["fault", "recover"])), max_size=20),
    st.integers(0, 30),
    st.builds(
        Rule,
        window_ms=st.integers(1, 20),
        times=st.integers(1, 4),
        level=st.sampled_from(["SubHealthFault", MANUAL]),
        release_ms=st.integers(1, 15),
    ),
    st.booleans(),
)
def test_it_agrees_with_the_slow_reading(told: list[tuple[int, int, str]], rest: int, rule: Rule, never: bool) -> None:
    rule = replace(rule, release_ms=0) if never and rule.level == MANUAL else rule
    history: list[tuple[int, int, str]] = []
    now, counter, trips = 100, None, 0
    for gap, off, word in [*told, (rest, 0, "")]:
        now += gap
        if overdue(counter, Millis(now)) and counter is not None:
            counter = expire(counter)
        if forgotten(counter, Millis(now), awaited=False):
            counter = None
        if word == "fault":
            effect, counter = fault(counter, Millis(now + off), Millis(now), KEY, rule, event(now + off))
            trips += effect is Effect.TRIPPED
        elif word == "recover":
            counter = recover(counter, Millis(now + off), rule)
        if word:
            history.append((now, now + off, word))
    within, in_force, trips_read = slow_reading(history, now, rule)
    assert phase_of(counter) in (
        (Phase.HELD, Phase.CLEAN) if in_force else (Phase.NONE, Phase.COUNTING, Phase.RELEASED)
    )
    assert trips == trips_read
    kept = [one for one in counter.times if one >= now - rule.window_ms] if counter is not None else []
    assert kept == within
