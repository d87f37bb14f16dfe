"""Frequency and duration rules against a slow reading, second by second, over restarts and any change of policy."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from nodestream import CHIP, LINK, Kind, S, Stream, T, levels
from rulestream import FIVE_LINKS, LINK_KEY, MANUAL, MILD, REQUEST, TWICE, policy, stream
from tinypolicy import TinyCount, TinyPolicy, TinyRule

from agent.domain.node import NodeBook
from agent.wire.report import decode as decode_report
from agent.wire.report import encode as encode_report


# -- over any stream, against a second-by-second reading -------------------------------------------------------------
class Watched:
    """One fault with both rules, read second by second: no deadline is known, every second asks what is so."""

    def __init__(self, base: str, lasting: TinyRule | None, counting: TinyCount | None) -> None:
        self.base, self.lasting, self.counting = base, lasting, counting
        self.down = self.raised = False
        self.since = 0
        self.faults: list[int] = []
        self.tripped = False
        self.last, self.recovered = 0, -1
        self.trips = 0

    def fault(self, at: int, now: int) -> None:
        rule = self.counting
        if rule is None:
            return
        self.last, self.recovered = at, -1
        if self.tripped and rule.level != MANUAL:
            return
        self.faults.append(at)
        if len([one for one in self.faults if one >= now - rule.window_ms // S]) >= rule.times:
            self.tripped, self.faults = True, []
            self.trips += 1

    def second(self, now: int) -> None:
        rule, lasting = self.counting, self.lasting
        released = rule is not None and rule.release_ms and self.tripped and self.recovered >= 0
        if released and now > self.recovered + rule.release_ms // S:  # type: ignore[union-attr]
            self.tripped = False
        if lasting is None:
            return
        if self.down and not self.raised and now - self.since > lasting.fault_timeout_ms // S:
            self.raised = True
            alarm = self.since + lasting.fault_timeout_ms // S
            self.fault(alarm, alarm)
        elif self.raised and not self.down and now - self.since > lasting.recover_timeout_ms // S:
            self.raised = False

    def say(self, word: str, now: int) -> None:
        if word == "occur" and not self.down:
            self.down, self.since = True, now
            if self.lasting is None:
                self.fault(now, now)
            elif self.raised:
                self.last, self.recovered = now, -1
        elif word == "recover" and self.down:
            counted = self.lasting is None or self.raised
            self.down, self.since = False, now
            if counted and self.recovered < 0:
                self.recovered = now

    def level(self) -> str:
        found = [self.base] if self.down else []
        if self.raised and self.lasting is not None:
            found.append(self.lasting.level)
        if self.tripped and self.counting is not None and self.counting.level != MANUAL:
            found.append(self.counting.level)
        order = ["NotHandleFault", "SubHealthFault", "RestartRequest", "PreSeparateNPU", "SeparateNPU"]
        return max(found, key=order.index, default="")


LEVELS = st.sampled_from(["SubHealthFault", "PreSeparateNPU", "SeparateNPU"])
LASTING = st.builds(
    TinyRule, st.just("81078603"), st.integers(0, 6).map(S.__mul__), st.integers(0, 8).map(S.__mul__), LEVELS
)
COUNTING = st.builds(
    TinyCount,
    st.just("81078603"),
    st.integers(5, 60).map(S.__mul__),
    st.integers(1, 3),
    LEVELS | st.just(MANUAL),
    st.integers(1, 20).map(S.__mul__),
)
SAID = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(["occur", "recover", "tick", "restart", "step back"])), max_size=30
)


@settings(max_examples=150, deadline=None)
@given(SAID, st.none() | LASTING, st.none() | COUNTING, st.sampled_from(["NotHandleFault", "SeparateNPU"]))
def test_it_agrees_with_a_reading_second_by_second_over_restarts_and_clock_steps(
    said: list[tuple[int, str]], lasting: TinyRule | None, counting: TinyCount | None, base: str
) -> None:
    one = Stream()
    one.policy = TinyPolicy(
        levels={"81078603": base},
        rules={"81078603": lasting} if lasting else {},
        counts={"81078603": counting} if counting else {},
    )
    slow, now, trips = Watched(base, lasting, counting), 0, set[str]()
    for gap, word in said:
        for second in range(now + 1, now + gap + 1):
            slow.second(second)
        now += gap
        at = T + now * S
        if word == "restart":
            offset, rules = one.offset, one.policy
            one = Stream(NodeBook.from_report(decode_report(encode_report(one.report()))))
            one.offset, one.policy = offset, rules
        elif word in ("occur", "recover"):
            one.say(LINK, word, at)
            slow.say(word, now)
        # A clock behind the stream's changes nothing: stream time never goes back.
        one.tick(at - 40 * S if word == "step back" else at)
        if word == "step back":
            one.tick(at)
        assert levels(one).get(LINK_KEY, "") == slow.level()
        trips |= {occurrence.id for occurrence in one.report().occurrences if occurrence.level == MANUAL}
        assert len(trips) == (slow.trips if counting and counting.level == MANUAL else 0)


POLICIES = [
    policy(digest="none", rules={}),
    policy(TWICE, replace(FIVE_LINKS, times=2), digest="shipped"),
    policy(replace(MILD, release_ms=30 * S), replace(FIVE_LINKS, times=1), digest="mild", rules={}),
    policy(
        replace(MILD, times=1, level="SeparateNPU", release_ms=90 * S),
        TinyCount("81078603", 60 * S, 2, "SubHealthFault", 20 * S),
        digest="hard",
        levels={"80C98000": "RestartNPU", "81078603": "SeparateNPU", "80E18402": "NotHandleFault"},
        rules={
            "81078603": TinyRule("81078603", 5 * S, 8 * S, "SubHealthFault"),
            "80C98000": TinyRule("80C98000", 5 * S, 9 * S, "SeparateNPU"),
        },
    ),
]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([REQUEST, LINK, LINK, CHIP]),
            st.sampled_from(["occur", "recover", "once"]),
            st.sampled_from(["4", "5"]),
            st.integers(0, 40),
            st.integers(-20, 1),
            st.none() | st.sampled_from(POLICIES),
            st.booleans(),
        ),
        max_size=16,
    )
)
def test_over_any_change_of_policy_a_restart_changes_nothing_and_all_ends_in_the_end(moves: list[Any]) -> None:
    steady, restarted, now = stream(TWICE), stream(TWICE), T
    for kind, word, where, gap, off, other, again in moves:
        now += gap * S
        if again:
            restarted.book = NodeBook.from_report(decode_report(encode_report(restarted.report())))
        for one in (steady, restarted):
            one.policy = other or one.policy
        assert restarted.tick(now) == steady.tick(now)
        given_ = [one.say(kind, word, now + off * S, now=now, where=where) for one in (steady, restarted)]
        assert given_[0] == given_[1]
        report = steady.report()
        assert restarted.report() == report
        ids = [one.id for one in report.occurrences]
        assert len(ids) == len(set(ids))
        assert all(fault.level != MANUAL for fault in report.active)
    for kind in (REQUEST, LINK, CHIP):
        for where in ("4", "5"):
            steady.say(kind, "recover", now, where=where)
    steady.tick(now + 100_000 * S)
    steady.tick(now + 300_000 * S)
    assert levels(steady) == {}
    assert {one.phase for one in steady.report().counters} <= {"clean", "released"}


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([REQUEST, LINK]),
    st.lists(
        st.tuples(
            st.sampled_from(["occur", "recover", "once", ""]),
            st.sampled_from([1, 7, 25, 70, 950]),
            st.none() | st.sampled_from(POLICIES),
        ),
        min_size=2,
        max_size=14,
    ),
)
def test_no_occurrence_is_told_twice_however_late_and_each_ends_once_the_fault_is_over(
    kind: Kind, moves: list[Any]
) -> None:
    assert over_and_told_once(kind, moves) == []


def over_and_told_once(kind: Kind, moves: list[Any]) -> list[str]:
    """What of the moves was told twice, or does not end when the fault does; trips to be ended by people apart.

    What a rule makes again of the same opening, once a policy has given it back, is the same raise or trip by design.
    """
    one, now, told_ids, open_ids, wrong = stream(TWICE), T, set[str](), set[str](), []
    for word, gap, other in [*moves, ("recover", 1, None), ("", 300_000, None), ("", 300_000, None)]:
        now += gap * S
        one.policy = other or one.policy
        for change in (*one.tick(now), *(one.say(kind, word, now) if word else ())):
            begun = change.begun
            open_ids -= {id_ for id_, _ in change.ended}
            if begun is not None:
                again = begun.level == MANUAL or change.detail.startswith("down for longer than")
                wrong += [begun.id] if begun.id in told_ids and not again else []
                told_ids.add(begun.id)
                open_ids |= {begun.id} if begun.end is None and begun.level != MANUAL else set()
    return [*wrong, *sorted(open_ids), *levels(one)]
