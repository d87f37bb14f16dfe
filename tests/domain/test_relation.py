"""Relation rules by themselves, against the shipped pairs (faultcodes.md §5, relationfault; relation_faults.csv)."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.relation import Seen, Strategy, judge, sight_of
from agent.domain.vocab import Millis

LINK, L2 = "81078603", "[0x08520003,na,L2,na]"
RETRY_OVER, RETRIED, CQE_DEVICE, CQE_HOST = "8C1F860B", "8C1F8609", "8C1F8608", "4C1F8608"
WAIT = 300_000
TIMEOUTS = {LINK: Millis(WAIT), L2: Millis(WAIT)}


@dataclass(frozen=True)
class Pair:
    trigger: str
    relations: tuple[str, ...]
    strategy: str


SHIPPED = (
    Pair(RETRIED, (LINK,), "SubHealth"),
    Pair(RETRY_OVER, (LINK,), "Separate"),
    Pair(RETRY_OVER, (L2,), "Separate"),
    Pair(CQE_DEVICE, (LINK,), "Separate"),
    Pair(CQE_HOST, (LINK,), "Separate"),
)
SEPARATE, SUB_HEALTH = Strategy.SEPARATE, Strategy.SUB_HEALTH


def link(at: int = 1000, end: int | None = None) -> Seen:
    return Seen(LINK, Millis(at), None if end is None else Millis(end))


def l2(at: int = 1000) -> Seen:
    return Seen(L2, Millis(at), None, on_switch=True)


def once(code: str, at: int) -> Seen:
    return Seen(code, Millis(at), Millis(at))


@pytest.mark.parametrize(
    ("fault", "others", "now", "strategy", "final"),
    [
        pytest.param(link(), [], 2000, None, False, id="waits"),
        pytest.param(link(), [], 1000 + WAIT, None, False, id="waits to the last moment"),
        pytest.param(link(), [], 1001 + WAIT, None, True, id="a link alone is ignored"),
        pytest.param(link(), [once(RETRIED, 5000)], 5000, SUB_HEALTH, False, id="retried: sub-health, and waits on"),
        pytest.param(link(), [once(RETRY_OVER, 5000)], 5000, SEPARATE, True, id="not retried: separate"),
        pytest.param(link(), [once(CQE_DEVICE, 5000)], 5000, SEPARATE, True, id="CQE of the device"),
        pytest.param(link(), [once(CQE_HOST, 5000)], 5000, SEPARATE, True, id="CQE of the host"),
        pytest.param(link(), [once(RETRIED, 5000), once(CQE_HOST, 9000)], 9000, SEPARATE, True, id="the stronger"),
        pytest.param(link(), [once(CQE_HOST, 5000), once(RETRIED, 9000)], 9000, SEPARATE, True, id="sticky"),
        pytest.param(link(), [once(RETRY_OVER, 1000 + WAIT)], 1000 + WAIT, SEPARATE, True, id="in the last moment"),
        pytest.param(link(), [once(RETRY_OVER, 1001 + WAIT)], 1001 + WAIT, None, True, id="too late"),
        pytest.param(link(), [once(RETRY_OVER, 999)], 2000, None, False, id="over before the link failed"),
        pytest.param(link(), [Seen(RETRY_OVER, Millis(1))], 2000, SEPARATE, True, id="still there when it failed"),
        pytest.param(link(end=1500), [once(RETRY_OVER, 9000)], 9000, SEPARATE, True, id="a link that came back waits"),
        pytest.param(link(), [once("80E18402", 5000)], 9000, None, False, id="another code"),
        pytest.param(l2(), [], 1000 + WAIT, None, False, id="a switch waits"),
        pytest.param(l2(), [], 1001 + WAIT, SUB_HEALTH, True, id="a switch alone becomes sub-healthy"),
        pytest.param(l2(), [once(RETRY_OVER, 5000)], 5000, SEPARATE, True, id="a switch with its trigger"),
        pytest.param(l2(), [once(CQE_HOST, 5000)], 1001 + WAIT, SUB_HEALTH, True, id="CQE is none of a switch"),
    ],
)
def test_what_follows(fault: Seen, others: list[Seen], now: int, strategy: Strategy | None, final: bool) -> None:
    found = judge(fault, sight_of([fault, *others]), SHIPPED, TIMEOUTS, False, Millis(now))
    assert (found.strategy, found.final) == (strategy, final)


@pytest.mark.parametrize("code", [CQE_DEVICE, CQE_HOST])
@pytest.mark.parametrize(
    ("at", "now", "strategy"),
    [(5000, 5000, None), (5000, 1000 + WAIT, None), (5000, 1001 + WAIT, SEPARATE), (999, 1001 + WAIT, None)],
)
def test_in_a_super_pod_the_cqe_codes_act_at_the_time_out_only(
    code: str, at: int, now: int, strategy: Strategy | None
) -> None:
    assert judge(link(), sight_of([link(), once(code, at)]), SHIPPED, TIMEOUTS, True, Millis(now)).strategy is strategy


def test_the_other_triggers_act_at_once_in_a_super_pod_too() -> None:
    assert (
        judge(link(), sight_of([link(), once(RETRY_OVER, 5000)]), SHIPPED, TIMEOUTS, True, Millis(5000)).strategy
        is SEPARATE
    )


def test_a_code_without_a_time_out_does_not_wait() -> None:
    found = judge(link(), sight_of([link(), once(RETRY_OVER, 1001)]), SHIPPED, {}, False, Millis(1001))
    assert (found.strategy, found.final) == (None, True)
    assert (
        judge(link(), sight_of([link(), once(RETRY_OVER, 1000)]), SHIPPED, {}, False, Millis(1001)).strategy is SEPARATE
    )


def test_all_codes_of_a_rule_must_wait_together() -> None:
    both = (Pair(RETRY_OVER, (LINK, L2), "Separate"),)
    trigger = once(RETRY_OVER, 5000)
    assert judge(link(), sight_of([link(), trigger]), both, TIMEOUTS, False, Millis(5000)).strategy is None
    assert judge(link(), sight_of([link(), l2(), trigger]), both, TIMEOUTS, False, Millis(5000)).strategy is SEPARATE
    assert judge(link(), sight_of([link(), l2(5001), trigger]), both, TIMEOUTS, False, Millis(5001)).strategy is None


FAULTS = st.lists(
    st.tuples(st.sampled_from([RETRIED, RETRY_OVER, CQE_HOST]), st.integers(0, 700), st.integers(0, 100)), max_size=6
)


@given(st.integers(0, 300), FAULTS, st.integers(0, 800), st.booleans(), st.randoms(use_true_random=False))
def test_moment_by_moment_a_slow_reference_comes_to_the_same(
    begin: int, faults: list[tuple[str, int, int]], now: int, super_pod: bool, shuffled: object
) -> None:
    """Reference: walk through every millisecond and apply each rule whose trigger is there."""
    wait = 300
    seen = [Seen(code, Millis(at), Millis(at + span)) for code, at, span in faults]
    fault = Seen(LINK, Millis(begin))
    strongest: Strategy | None = None
    for moment in range(begin, min(now, begin + wait) + 1):
        for one in seen:
            if one.begin <= moment <= (one.end or 0):
                if one.code == RETRY_OVER or (one.code == CQE_HOST and not super_pod):
                    strongest = SEPARATE
                elif one.code == RETRIED and strongest is None:
                    strongest = SUB_HEALTH
    if now > begin + wait and any(one.code == CQE_HOST and begin <= one.begin <= begin + wait for one in seen):
        strongest = SEPARATE
    shuffled.shuffle(seen)  # type: ignore[attr-defined]  # a Random
    found = judge(fault, sight_of([fault, *seen]), SHIPPED, {LINK: Millis(wait)}, super_pod, Millis(now))
    assert found.strategy is strongest
    assert found.final is (strongest is SEPARATE or now > begin + wait)
