"""Rules over time in the node decider: frequency, duration, both on one code, and a policy that changes them.

Frequency: device-plugin fault_code.go:993-1031, 1229-1274. Duration: 1981-2246. Rules that change:
upgradefault.go:469-559.
"""

from dataclasses import replace

import pytest
from nodestream import CHIP, LINK, S, T, entries, levels, outcomes, told
from rulestream import DAY, FIVE_LINKS, KEY, LINK_KEY, MANUAL, MILD, REQUEST, TWICE, blink, counter, stream
from tinypolicy import TinyCount, TinyRule

from agent.domain.events import Decoded, Position
from agent.domain.node import Cleared, Ignored, Relevelled, Shown, next_deadline
from agent.domain.vocab import OccurrenceId, Plane, Reason, Source


# -- frequency -----------------------------------------------------------------------------------------------------
def test_the_fault_that_completes_times_within_the_window_trips() -> None:
    one = stream(TWICE)
    blink(one, T)
    assert counter(one) is not None
    given = one.say(REQUEST, "occur", T + DAY * S)
    assert told(given) == [(Shown, Reason.FAULT_SHOWN), (Relevelled, Reason.FAULT_SHOWN)]
    assert given[1].detail.startswith("2 times within 1 day: ManuallySeparateNPU by frequency:80C98000")
    assert entries(one) == [
        ("0:0:2:0", DAY * S, None, "RestartRequest"),
        ("0:0:2:20000000", DAY * S, None, MANUAL),
    ]
    assert levels(one) == {KEY: "RestartRequest"}  # what a person may end is held where people are
    assert one.report().totals == {KEY: 3}
    after = counter(one)
    assert after is not None
    assert (after.phase, after.level, after.trip, after.tripped) == ("held", MANUAL, "0:0:2:20000000", T + DAY * S)


def test_one_millisecond_outside_the_window_does_not() -> None:
    one = stream(TWICE)
    blink(one, T)
    assert told(one.say(REQUEST, "occur", T + DAY * S + 1)) == [(Shown, Reason.FAULT_SHOWN)]
    assert counter(one) == replace(counter(one), phase="counting", times=(T + DAY * S + 1,))  # type: ignore[type-var]


def test_what_is_counted_is_said() -> None:
    (shown,) = stream(TWICE).say(REQUEST, "occur", T)
    assert shown.detail == "RestartRequest by chip-table; 1 of 2 within 1 day counted"


def test_a_once_counts_and_its_trip_lasts_as_any() -> None:
    one = stream(MILD)
    one.say(REQUEST, "once", T)
    one.say(REQUEST, "once", T + 5 * S)
    assert levels(one) == {KEY: "PreSeparateNPU"}
    (fault,) = one.report().active
    assert (fault.rule, fault.since, fault.devices) == ("frequency:80C98000", T + 5 * S, (4,))
    assert one.tick(T + 605 * S) == ()
    assert told(one.tick(T + 605 * S + 1)) == [(Cleared, Reason.FAULT_CLEARED)]
    assert (levels(one), one.report().counters) == ({}, ())


def test_counters_are_apart_by_device_and_by_code() -> None:
    # quirk: the list of counters to clear is keyed by chip alone upstream (fault_code.go:1256), so of two codes that
    # reach their limit in one cycle one would go on counting.
    other = ("80E18005", Plane.CHIP, Source.DCMI)
    three = TinyCount("80E18005", DAY * S, 3, MANUAL)
    one = stream(TWICE, three)
    blink(one, T, where="4")
    blink(one, T + 2 * S, where="5")
    assert [len(each.times) for each in one.report().counters] == [1, 1]
    for at in (3, 4):
        one.say(other, "once", T + at * S)
    pair = (
        one.event(REQUEST, "occur", T + 9 * S),
        replace(one.event(other, "once", T + 9 * S), occurrence=OccurrenceId("0:0:6:1")),
    )
    changes = one.take(Decoded(Position(0, 0, one.offset), None, "both", pair), T + 9 * S)
    begun = [change.begun for change in outcomes(changes) if change.begun is not None]
    assert [str(trip.key) for trip in begun if trip.level == MANUAL] == [KEY, "n1/chip/4/80E18005"]
    emptied = {str(each.key): each.times for each in one.report().counters}
    assert emptied == {KEY: (), "n1/chip/4/80E18005": (), "n1/chip/5/80C98000": (T + 2 * S,)}


def test_a_repeated_occur_and_a_repeated_message_count_once() -> None:
    one = stream(TWICE)
    event = one.event(REQUEST, "occur", T)
    for offset in (0, 1):
        one.take(Decoded(Position(0, 0, offset), None, "same id", (event,)), T)
    one.offset = 2
    assert told(one.say(REQUEST, "occur", T + S)) == [(Ignored, Reason.ALREADY_ACTIVE)]
    assert counter(one) == replace(counter(one), times=(T,))  # type: ignore[type-var]


def test_a_milder_trip_is_the_level_until_clean_for_longer_than_its_release_window() -> None:
    one = stream(MILD)
    blink(one, T)
    assert told(one.say(REQUEST, "occur", T + 10 * S)) == [(Shown, Reason.FAULT_SHOWN)]
    assert levels(one) == {KEY: "PreSeparateNPU"}
    assert entries(one)[1] == ("0:0:2:0", 10 * S, None, "PreSeparateNPU")
    (kept,) = one.say(REQUEST, "recover", T + 20 * S)
    assert kept.detail == "it has recovered; shown on as PreSeparateNPU until clean for longer than 10 min"
    assert entries(one)[1] == ("0:0:2:0", 10 * S, 20 * S, "PreSeparateNPU")
    assert next_deadline(one.book) == T + 620 * S + 1
    blink(one, T + 30 * S)  # a further fault while tripped only begins the release anew
    assert levels(one) == {KEY: "PreSeparateNPU"}
    assert entries(one)[2] == ("0:0:4:0", 30 * S, 31 * S, "PreSeparateNPU")
    assert one.tick(T + 631 * S) == ()
    assert told(one.tick(T + 631 * S + 1)) == [(Cleared, Reason.FAULT_CLEARED)]
    blink(one, T + 640 * S)
    assert levels(one) == {}  # counted from nothing again


def test_a_recover_that_repeats_the_time_of_its_occur_took_place_when_it_came() -> None:
    one = stream(MILD)
    blink(one, T)
    one.say(REQUEST, "occur", T + 10 * S)
    one.say(REQUEST, "recover", T + 10 * S, now=T + 50 * S)
    assert next_deadline(one.book) == T + 650 * S + 1


def test_while_the_fault_is_there_nothing_is_released() -> None:
    one = stream(MILD)
    blink(one, T)
    one.say(REQUEST, "occur", T + 10 * S)
    assert next_deadline(one.book) is None
    assert one.tick(T + 10**6 * S) == ()
    assert levels(one) == {KEY: "PreSeparateNPU"}


def test_a_base_level_worse_than_the_trips_stays_while_the_fault_is_there() -> None:
    one = stream(TinyCount("80E18402", DAY * S, 1, "SubHealthFault", 60 * S))
    one.say(CHIP, "occur", T)
    assert levels(one) == {"n1/chip/4/80E18402": "SeparateNPU"}
    assert told(one.say(CHIP, "recover", T + S)) == [(Relevelled, Reason.FAULT_SHOWN)]
    assert levels(one) == {"n1/chip/4/80E18402": "SubHealthFault"}


def test_a_manual_trip_ends_with_its_window_exactly_once_and_is_kept_as_released() -> None:
    rule = replace(TWICE, release_ms=600 * S)
    one = stream(rule)
    blink(one, T)
    blink(one, T + 10 * S)
    assert one.tick(T + 611 * S) == ()
    assert told(one.tick(T + 611 * S + 1)) == [(Relevelled, Reason.FAULT_CLEARED)]
    assert entries(one)[2] == ("0:0:2:20000000", 10 * S, 611 * S, MANUAL)
    after = counter(one)
    assert after is not None
    assert (after.phase, after.due, after.trip) == ("released", T + 611 * S, "0:0:2:20000000")
    assert one.tick(T + 10**6 * S) == ()


def test_without_a_release_window_nothing_but_a_person_ends_it() -> None:
    one = stream(TWICE)
    blink(one, T)
    blink(one, T + 10 * S)
    assert next_deadline(one.book) is None
    one.tick(T + 10**7 * S)
    after = counter(one)
    assert after is not None
    assert after.phase == "clean"


def test_a_clock_that_is_set_back_puts_the_fault_in_its_place_and_loses_none() -> None:
    one = stream(replace(TWICE, times=3))
    blink(one, T + 100 * S)
    one.say(REQUEST, "occur", T - 50 * S, now=T + 110 * S)
    one.say(REQUEST, "recover", T - 50 * S, now=T + 111 * S)
    after = counter(one)
    assert after is not None
    assert after.times == (T - 50 * S, T + 100 * S)


def test_what_is_out_of_the_window_leaves_the_report() -> None:
    one = stream(TWICE)
    blink(one, T)
    one.tick(T + DAY * S)
    assert len(one.report().counters) == 1
    one.tick(T + DAY * S + 1)
    assert one.report().counters == ()


def test_a_public_code_that_looks_the_same_is_not_counted() -> None:
    one = stream(TinyCount("220001001", DAY * S, 1, "SeparateNPU", 60 * S))
    one.say(("220001001", Plane.PUBLIC, Source.PUBLIC), "once", T)
    assert one.report().counters == ()


# -- duration and frequency on one code ----------------------------------------------------------------------------
def test_of_a_code_with_a_duration_rule_only_timed_out_episodes_count() -> None:
    one = stream(FIVE_LINKS)
    for number in range(5):  # each down for 5 s: noise
        one.say(LINK, "occur", T + number * 100 * S)
        one.say(LINK, "recover", T + (number * 100 + 5) * S)
    assert one.report().counters == ()
    for number in range(5):  # each down for 21 s, clean for more than 60 s after it
        begin = T + (1_000 + number * 200) * S
        one.say(LINK, "occur", begin)
        one.say(LINK, "recover", begin + 21 * S)
    trips = [entry for entry in entries(one) if entry[3] == MANUAL]
    assert trips == [("0:0:18:20000000", 1_820 * S, None, MANUAL)]  # start + FaultTimeout of the fifth
    after = counter(one, LINK_KEY)
    assert after is not None
    assert (after.phase, after.recovered, after.due) == ("clean", T + 1_821 * S, T + (1_821 + 2 * DAY) * S)


def test_a_return_before_it_was_clean_is_the_same_episode() -> None:
    one = stream(replace(FIVE_LINKS, times=2))
    one.say(LINK, "occur", T)
    one.say(LINK, "recover", T + 30 * S)
    one.say(LINK, "occur", T + 50 * S)  # up for 20 s only
    one.tick(T + 500 * S)
    after = counter(one, LINK_KEY)
    assert after is not None
    assert after.times == (T + 20 * S,)


@pytest.mark.parametrize(
    ("base", "lasting", "counted", "level", "rule"),
    [
        ("NotHandleFault", "PreSeparateNPU", "SubHealthFault", "PreSeparateNPU", "duration:81078603"),
        ("NotHandleFault", "SubHealthFault", "SeparateNPU", "SeparateNPU", "frequency:81078603"),
        ("SeparateNPU", "SubHealthFault", "PreSeparateNPU", "SeparateNPU", "network-table"),
    ],
    ids=["duration", "frequency", "base"],
)
def test_with_both_rules_on_one_code_the_worst_of_the_three_counts(
    base: str, lasting: str, counted: str, level: str, rule: str
) -> None:
    one = stream(
        TinyCount("81078603", DAY * S, 1, counted, 600 * S),
        levels={"81078603": base},
        rules={"81078603": TinyRule("81078603", 20 * S, 60 * S, lasting)},
    )
    one.say(LINK, "occur", T)
    one.tick(T + 21 * S)
    (fault,) = one.report().active
    assert (fault.level, fault.rule) == (level, rule)


def test_a_trip_outlasts_the_duration_that_made_it() -> None:
    one = stream(TinyCount("81078603", DAY * S, 1, "SubHealthFault", 600 * S))
    one.say(LINK, "occur", T)
    one.say(LINK, "recover", T + 30 * S)
    assert levels(one) == {LINK_KEY: "PreSeparateNPU"}
    assert told(one.tick(T + 90 * S + 1)) == [(Relevelled, Reason.FAULT_SHOWN)]
    assert levels(one) == {LINK_KEY: "SubHealthFault"}
    assert told(one.say(LINK, "occur", T + 100 * S)) == [(Shown, Reason.FAULT_SHOWN)]
    one.say(LINK, "recover", T + 105 * S)  # a flap does not count and does not delay the release
    assert told(one.tick(T + 630 * S + 1)) == [(Cleared, Reason.FAULT_CLEARED)]


def test_what_ends_with_the_recover_is_the_occur_though_a_once_has_tripped_meanwhile() -> None:
    one = stream(MILD)
    one.say(REQUEST, "occur", T)
    one.say(REQUEST, "once", T + 10 * S)
    one.say(REQUEST, "recover", T + 20 * S)
    assert entries(one) == [
        ("0:0:0:0", 0, 20 * S, "RestartRequest"),
        ("0:0:1:0", 10 * S, 10 * S, "PreSeparateNPU"),
    ]
    one.tick(T + 621 * S)
    assert levels(one) == {}


# -- defects of the original: what is right --------------------------------------------------------------------------
def test_a_trip_of_one_code_leaves_the_level_of_the_others_on_its_chip() -> None:
    # quirk: a level per code is computed over the whole chip upstream (ascendcommon.go:731-757).
    one = stream(MILD)
    one.say(("200001002", Plane.CHIP, Source.DCMI), "occur", T)
    blink(one, T)
    one.say(REQUEST, "occur", T + S)
    assert levels(one) == {KEY: "PreSeparateNPU", "n1/chip/4/200001002": "SubHealthFault"}


def test_a_device_beyond_15_trips_as_any() -> None:
    # quirk: upstream gives such a chip the level and leaves it out of its list (fault_code.go:1883).
    one = stream(TWICE)
    blink(one, T, where="40")
    blink(one, T + 5 * S, where="40")
    (trip,) = (entry for entry in one.report().occurrences if entry.level == MANUAL)
    assert (trip.key.where, trip.devices) == ("40", (40,))


def test_an_unknown_code_beside_a_known_one_is_rated_alone() -> None:
    # quirk: upstream the known one hides it at chip level (fault_code.go:1192).
    one = stream()
    one.say(REQUEST, "occur", T)
    one.say(("8FFFFFFF", Plane.CHIP, Source.DCMI), "occur", T, severity=3)
    assert [(fault.level, fault.held) for fault in one.report().active] == [
        ("RestartRequest", False),
        ("NotHandleFault", True),
    ]
