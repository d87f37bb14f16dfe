"""Who is silent and which policies there are, kept as reports come, against a look at all of them."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from agent.app.rollcall import UNKNOWN_AFTER, RollCall
from agent.domain.vocab import Millis, NodeName

A, B = NodeName("a"), NodeName("b")


def test_silent_is_who_has_not_reported_for_more_than_180_s() -> None:
    roll = RollCall()
    roll.heard(A, Millis(0), "p")
    roll.heard(B, Millis(1), "p")
    assert UNKNOWN_AFTER == 180_000
    assert roll.unknown(Millis(180_000)) == ()
    assert roll.unknown(Millis(180_001)) == (A,)
    assert roll.unknown(Millis(180_002)) == (A, B)
    roll.heard(A, Millis(180_002), "p")
    assert roll.unknown(Millis(180_002)) == (B,)


def test_a_policy_that_no_node_has_any_more_is_none() -> None:
    roll = RollCall()
    roll.heard(A, Millis(0), "old")
    roll.heard(B, Millis(0), "old")
    roll.heard(B, Millis(1), "new")
    assert roll.policies() == {"old": 1, "new": 1}
    roll.heard(A, Millis(1), "")
    assert roll.policies() == {"new": 1}
    roll.forget(B)
    roll.forget(B)
    assert roll.policies() == {}


def test_a_clock_that_is_set_back_hides_nobody() -> None:
    roll = RollCall()
    roll.heard(A, Millis(3_600_000), "p")
    roll.heard(B, Millis(0), "p")
    assert roll.unknown(Millis(180_000)) == ()
    assert roll.unknown(Millis(180_001)) == (A, B)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["", "p", "q", None]), st.integers(0, 200_000))))
def test_what_is_kept_is_what_a_look_at_all_would_find(turns: list[tuple[str, str | None, int]]) -> None:
    roll, now = RollCall(), 0
    last: dict[NodeName, tuple[int, str]] = {}
    for name, policy, later in turns:
        now += later
        node = NodeName(name)
        if policy is None:
            roll.forget(node)
            last.pop(node, None)
        else:
            roll.heard(node, Millis(now), policy)
            last[node] = (now, policy)
        assert set(roll.unknown(Millis(now))) == {one for one, (at, _) in last.items() if now - at > 180_000}
        assert roll.policies() == Counter(one for _, one in last.values() if one)
