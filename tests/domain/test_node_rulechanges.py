"""Frequency and duration rules that change under a node book: what tripped follows, and nothing is told twice."""

from dataclasses import replace

from nodestream import LINK, S, T, entries, levels, told
from rulestream import DAY, KEY, MANUAL, MILD, REQUEST, TWICE, blink, counter, policy, stream
from tinypolicy import TinyRule

from agent.domain.node import Cleared, Relevelled
from agent.domain.vocab import Reason


# -- a policy that changes rules -----------------------------------------------------------------------------------
def test_a_rule_that_changed_gives_what_tripped_its_new_level_at_once() -> None:
    one = stream(MILD)
    blink(one, T)
    blink(one, T + 10 * S)
    one.policy = policy(replace(MILD, level="SubHealthFault", release_ms=60 * S), digest="two")
    (changed,) = one.tick(T + 20 * S)
    assert changed.detail == "policy tiny to two: SubHealthFault by frequency:80C98000"
    assert levels(one) == {KEY: "SubHealthFault"}
    assert told(one.tick(T + 71 * S + 1)) == [(Cleared, Reason.FAULT_CLEARED)]


def test_a_rule_that_is_gone_takes_its_level_along() -> None:
    one = stream(MILD)
    blink(one, T)
    blink(one, T + 10 * S)
    one.policy = policy(digest="two")
    assert told(one.tick(T + 20 * S)) == [(Cleared, Reason.FAULT_CLEARED)]
    assert (levels(one), one.report().counters) == ({}, ())


def test_a_rule_that_is_gone_leaves_the_fault_that_is_there_its_own_level() -> None:
    one = stream(MILD)
    blink(one, T)
    one.say(REQUEST, "occur", T + 10 * S)
    one.policy = policy(digest="two")
    assert told(one.tick(T + 20 * S)) == [(Relevelled, Reason.FAULT_SHOWN)]
    assert levels(one) == {KEY: "RestartRequest"}


def test_a_new_rule_counts_from_now_on() -> None:
    one = stream()
    blink(one, T)
    one.policy = policy(TWICE, digest="two")
    blink(one, T + 10 * S)
    assert [entry for entry in entries(one) if entry[3] == MANUAL] == []
    blink(one, T + 20 * S)
    assert [entry[0] for entry in entries(one) if entry[3] == MANUAL] == ["0:0:4:20000000"]


def test_times_that_came_down_trip_on_what_was_counted() -> None:
    one = stream(replace(MILD, times=3))
    blink(one, T)
    blink(one, T + 10 * S)
    one.policy = policy(MILD, digest="two")
    assert told(one.tick(T + 20 * S)) == [(Relevelled, Reason.FAULT_SHOWN)]
    assert levels(one) == {KEY: "PreSeparateNPU"}
    assert told(one.tick(T + 620 * S + 1)) == [(Cleared, Reason.FAULT_CLEARED)]


def test_a_mild_trip_that_becomes_a_manual_one_is_told_as_one() -> None:
    one = stream(MILD)
    blink(one, T)
    one.say(REQUEST, "occur", T + 10 * S)
    one.policy = policy(TWICE, digest="two")
    one.tick(T + 20 * S)
    assert levels(one) == {KEY: "RestartRequest"}
    assert entries(one)[-1] == ("0:0:2:20000000", 20 * S, None, MANUAL)


def test_a_level_that_a_policy_makes_worse_is_an_occurrence_with_both_hashes() -> None:
    one = stream(digest="a" * 64)
    one.say(REQUEST, "occur", T)
    one.policy = policy(digest="b" * 64, levels={"80C98000": "RestartNPU"})
    (changed,) = one.tick(T + 20 * S)
    assert told((changed,)) == [(Relevelled, Reason.FAULT_SHOWN)]
    assert changed.detail == "policy aaaaaaaaaaaa to bbbbbbbbbbbb: RestartNPU by chip-table"
    before, after = entries(one)
    assert before == ("0:0:0:0", 0, 20 * S, "RestartRequest")
    assert after[1:] == (20 * S, None, "RestartNPU")
    (fault,) = one.report().active
    assert (fault.occurrence, fault.count) == (after[0], 2)
    assert one.report().occurrences[1].raised
    one.say(REQUEST, "recover", T + 30 * S)
    assert entries(one)[1][2] == 30 * S


def test_a_level_that_a_policy_makes_milder_begins_nothing() -> None:
    one = stream(digest="one")
    one.say(REQUEST, "occur", T)
    one.policy = policy(digest="two", levels={"80C98000": "NotHandleFault"})
    (changed,) = one.tick(T + 20 * S)
    assert changed.detail == "policy one to two: NotHandleFault by chip-table"
    assert entries(one) == [("0:0:0:0", 0, None, "RestartRequest")]


def test_a_worse_level_on_a_raised_link_ends_with_it() -> None:
    one = stream()
    one.say(LINK, "occur", T)
    one.tick(T + 21 * S)
    one.policy = policy(digest="two", rules={"81078603": TinyRule("81078603", 20 * S, 60 * S, "SeparateNPU")})
    one.tick(T + 22 * S)
    one.say(LINK, "recover", T + 30 * S)
    one.tick(T + 91 * S)
    assert [entry[1:] for entry in entries(one)] == [
        (0, 30 * S, "NotHandleFault"),
        (20 * S, 22 * S, "PreSeparateNPU"),
        (22 * S, 90 * S, "SeparateNPU"),
    ]


def test_a_rule_that_goes_with_a_worse_level_ends_the_raise_and_what_it_was_raised_from() -> None:
    one = stream(digest="one")
    one.say(LINK, "occur", T)
    one.tick(T + 21 * S)
    one.policy = policy(digest="two", rules={}, levels={"81078603": "SeparateNPU"})
    one.tick(T + 30 * S)
    one.say(LINK, "recover", T + 40 * S)
    assert [entry[1:] for entry in entries(one)] == [
        (0, 30 * S, "NotHandleFault"),
        (20 * S, 30 * S, "PreSeparateNPU"),
        (30 * S, 40 * S, "SeparateNPU"),
    ]


def test_a_policy_that_comes_back_tells_nothing_twice_and_later_under_another_id() -> None:
    worse = {"80C98000": "RestartNPU"}
    one = stream(digest="mild")
    one.say(REQUEST, "occur", T)
    ids = []
    for seconds, digest, levels_ in (
        (10, "worse", worse),
        (20, "mild", None),
        (30, "worse", worse),
        (40, "mild", None),
    ):
        one.policy = policy(digest=digest, **({"levels": levels_} if levels_ else {}))
        ids += [change.begun.id for change in one.tick(T + seconds * S) if change.begun is not None]
    one.tick(T + 949 * S)
    one.policy = policy(digest="worse", levels=worse)
    ids += [change.begun.id for change in one.tick(T + 950 * S) if change.begun is not None]
    assert len(ids) == len(set(ids)) == 2
    one.say(REQUEST, "recover", T + 960 * S)
    assert [entry[1:] for entry in entries(one)] == [(950 * S, 960 * S, "RestartNPU")]


def test_a_trip_that_is_manual_again_by_a_policy_is_the_one_that_it_was() -> None:
    one = stream(replace(TWICE, times=1), digest="manual")
    blink(one, T)
    trips = [begun.id for begun in one.report().occurrences if begun.level == MANUAL]
    one.policy = policy(replace(MILD, times=1, release_ms=DAY * S), digest="mild")
    one.tick(T + 100 * S)
    one.policy = policy(replace(TWICE, times=1), digest="manual")
    assert [change.begun for change in one.tick(T + 2_000 * S)] == [None]
    kept = counter(one)
    assert trips == ["0:0:0:20000000"]
    assert kept is not None
    assert kept.trip == trips[0]
