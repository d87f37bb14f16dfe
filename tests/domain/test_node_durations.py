"""Duration rules in the node book: raised after the time-out, in force until clean for long enough, by any policy."""

import pytest
from nodestream import CHIP, LINK, NODE, S, Stream, T, entries, levels, told
from tinypolicy import TinyPolicy, TinyRule

from agent.domain.events import Decoded, Position
from agent.domain.node import (
    Cleared,
    Ignored,
    Relevelled,
    Shown,
    next_deadline,
)
from agent.domain.vocab import Reason

POLICY = TinyPolicy()


# -- the duration rule ---------------------------------------------------------------------------------------------
KEY = "n1/network/4/81078603"


RAISED = "0:0:0:10000000"


def test_a_link_down_for_longer_than_20_s_is_raised_as_an_occurrence_of_its_own() -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    assert levels(stream) == {KEY: "NotHandleFault"}
    assert next_deadline(stream.book) == T + 20 * S + 1
    assert stream.tick(T + 20 * S) == ()
    assert told(stream.tick(T + 20 * S + 1)) == [(Relevelled, Reason.FAULT_SHOWN)]
    (fault,) = stream.report().active
    assert (fault.level, fault.rule, fault.since) == ("PreSeparateNPU", "duration:81078603", T)
    assert (fault.occurrence, fault.count) == (RAISED, 2)
    assert entries(stream) == [
        ("0:0:0:0", 0, None, "NotHandleFault"),
        (RAISED, 20 * S, None, "PreSeparateNPU"),
    ]
    assert next_deadline(stream.book) is None


def test_a_raised_link_stays_until_clean_for_longer_than_60_s() -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    stream.tick(T + 21 * S)
    assert told(stream.say(LINK, "recover", T + 30 * S)) == [(Shown, Reason.FAULT_SHOWN)]
    assert told(stream.say(LINK, "recover", T + 31 * S)) == [(Ignored, Reason.NOT_ACTIVE)]
    assert stream.tick(T + 90 * S) == ()
    assert levels(stream) == {KEY: "PreSeparateNPU"}
    assert told(stream.tick(T + 90 * S + 1)) == [(Cleared, Reason.FAULT_CLEARED)]
    assert levels(stream) == {}
    assert entries(stream) == [
        ("0:0:0:0", 0, 30 * S, "NotHandleFault"),
        (RAISED, 20 * S, 90 * S, "PreSeparateNPU"),
    ]


def test_a_link_down_again_before_it_was_clean_is_in_force_at_once() -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    stream.say(LINK, "recover", T + 30 * S)
    assert told(stream.say(LINK, "occur", T + 50 * S)) == [(Shown, Reason.FAULT_SHOWN)]
    assert levels(stream) == {KEY: "PreSeparateNPU"}
    stream.say(LINK, "recover", T + 55 * S)
    assert told(stream.tick(T + 115 * S)) == []
    assert told(stream.tick(T + 115 * S + 1)) == [(Cleared, Reason.FAULT_CLEARED)]
    assert entries(stream) == [
        ("0:0:0:0", 0, 30 * S, "NotHandleFault"),
        (RAISED, 20 * S, 115 * S, "PreSeparateNPU"),
        ("0:0:2:0", 50 * S, 55 * S, "PreSeparateNPU"),
    ]


def test_a_flap_within_20_s_is_cleared_and_never_raised() -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    assert told(stream.say(LINK, "recover", T + 20 * S)) == [(Cleared, Reason.FAULT_CLEARED)]
    assert stream.tick(T + 3600 * S) == ()
    assert stream.report().timers == ()


def test_the_time_of_a_later_record_fires_the_deadline_before_its_events() -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    changes = stream.say(CHIP, "occur", T + 25 * S)
    assert told(changes) == [(Relevelled, Reason.FAULT_SHOWN), (Shown, Reason.FAULT_SHOWN)]


def test_a_recover_that_repeats_the_occur_time_counts_from_when_it_came() -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    assert told(stream.say(LINK, "recover", T, now=T + 19 * S)) == [(Cleared, Reason.FAULT_CLEARED)]
    stream.say(LINK, "occur", T + 30 * S)
    both = stream.say(LINK, "recover", T + 30 * S, now=T + 51 * S)
    assert told(both) == [(Relevelled, Reason.FAULT_SHOWN), (Shown, Reason.FAULT_SHOWN)]


def test_an_outage_read_late_in_one_message_is_judged_by_its_own_times() -> None:
    short, long = Stream(), Stream()
    for stream, down in ((short, 10 * S), (long, 21 * S)):
        pair = (stream.event(LINK, "occur", T), stream.event(LINK, "recover", T + down))
        stream.take(Decoded(Position(0, 0, 0), NODE, "message-0", pair), T + 50 * S)
    assert (levels(short), levels(long)) == ({}, {KEY: "PreSeparateNPU"})


def test_an_occur_read_after_its_deadline_is_raised_at_once() -> None:
    stream = Stream()
    both = stream.say(LINK, "occur", T, now=T + 30 * S)
    assert told(both) == [(Shown, Reason.FAULT_SHOWN), (Relevelled, Reason.FAULT_SHOWN)]


def test_a_base_level_worse_than_the_rules_is_kept_while_the_fault_is_there() -> None:
    stream = Stream()
    stream.policy = TinyPolicy(rules={"80E18402": TinyRule("80E18402", 20 * S, 60 * S, "SubHealthFault")})
    stream.say(CHIP, "occur", T)
    assert told(stream.tick(T + 21 * S)) == [(Relevelled, Reason.FAULT_SHOWN)]
    assert levels(stream) == {"n1/chip/4/80E18402": "SeparateNPU"}
    assert told(stream.say(CHIP, "recover", T + 30 * S)) == [(Relevelled, Reason.FAULT_SHOWN)]
    assert levels(stream) == {"n1/chip/4/80E18402": "SubHealthFault"}
    stream.tick(T + 91 * S)
    assert entries(stream) == [("0:0:0:0", 0, 30 * S, "SeparateNPU")]


# -- policy, links, limits -----------------------------------------------------------------------------------------
def test_another_policy_rates_what_is_active_and_leaves_the_occurrences() -> None:
    stream = Stream()
    stream.say(CHIP, "occur", T)
    stream.policy = TinyPolicy(digest="two", levels={"80E18402": "RestartNPU"})
    assert told(stream.tick(T)) == [(Relevelled, Reason.FAULT_SHOWN)]
    assert (levels(stream), stream.report().policy) == ({"n1/chip/4/80E18402": "RestartNPU"}, "two")
    assert entries(stream) == [("0:0:0:0", 0, None, "SeparateNPU")]
    assert stream.tick(T) == ()


NO_RULES = TinyPolicy(digest="two", rules={})
SHORTER = TinyPolicy(digest="two", rules={"81078603": TinyRule("81078603", 5 * S, 8 * S, "SubHealthFault")})


@pytest.mark.parametrize(
    ("policy", "recovered", "at_once", "later"),
    [
        (NO_RULES, False, {KEY: "NotHandleFault"}, {KEY: "NotHandleFault"}),
        (NO_RULES, True, {}, {}),
        (SHORTER, False, {KEY: "SubHealthFault"}, {KEY: "SubHealthFault"}),
        (SHORTER, True, {KEY: "SubHealthFault"}, {}),
    ],
    ids=["rule gone", "rule gone while up", "rule changed", "rule changed while up"],
)
def test_a_raised_fault_follows_the_rule_of_another_policy(
    policy: TinyPolicy, recovered: bool, at_once: dict[str, str], later: dict[str, str]
) -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    stream.tick(T + 21 * S)
    if recovered:
        stream.say(LINK, "recover", T + 22 * S)
    stream.policy = policy
    stream.tick(T + 23 * S)
    assert levels(stream) == at_once
    stream.tick(T + 30 * S + 1)
    assert levels(stream) == later


def test_a_new_duration_rule_counts_from_when_the_fault_began() -> None:
    stream = Stream()
    stream.policy = TinyPolicy(digest="none", rules={})
    stream.say(LINK, "occur", T)
    stream.policy = POLICY
    stream.tick(T + 10 * S)
    assert next_deadline(stream.book) == T + 20 * S + 1
    stream.tick(T + 21 * S)
    stream.say(LINK, "recover", T + 22 * S)
    assert entries(stream) == [("0:0:0:0", 0, 22 * S, "NotHandleFault"), (RAISED, 20 * S, None, "PreSeparateNPU")]
