"""The life of a borrow: what leads where, by when, and what changes nothing."""

import pytest
from houseplan import cells

from agent.domain.rail.life import LIFE, HoldState, LifeSignal, deadline, step
from agent.domain.vocab import Millis

STEPS = {
    ("observed", "allowed"): "planned",
    ("observed", "denied"): "refused",
    ("observed", "too_old"): "expired",
    ("observed", "new_life"): "superseded",
    ("planned", "held"): "reserved",
    ("planned", "denied"): "refused",
    ("planned", "too_old"): "expired",
    ("planned", "new_life"): "superseded",
    ("reserved", "told"): "advised",
    ("reserved", "new_life"): "superseded",
    ("reserved", "handed_back"): "returned",
    ("advised", "new_life"): "superseded",
    ("advised", "handed_back"): "returned",
}


@pytest.mark.parametrize("signal", LifeSignal)
@pytest.mark.parametrize("state", HoldState)
def test_every_pair_leads_where_the_table_says_or_changes_nothing(state: HoldState, signal: LifeSignal) -> None:
    after = step(state, signal)
    assert (None if after is None else str(after)) == STEPS.get((str(state), str(signal)))


def test_npus_are_held_from_the_reservation_to_the_end() -> None:
    assert [str(state) for state in HoldState if state.holds] == ["reserved", "advised"]


def test_every_state_is_reached_and_every_one_before_its_end_can_end() -> None:
    reached = {HoldState.OBSERVED}
    for _ in HoldState:
        reached |= {after for state in reached for after in LIFE[state].values()}
    assert reached == set(HoldState)
    ends = {state for state in HoldState if not LIFE[state]}
    assert ends == {HoldState.REFUSED, HoldState.EXPIRED, HoldState.SUPERSEDED, HoldState.RETURNED}
    assert all(LIFE[state].get(LifeSignal.NEW_LIFE) is HoldState.SUPERSEDED for state in set(HoldState) - ends)


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("observed", 1_900),
        ("planned", 1_900),
        ("reserved", 61_000),
        ("advised", None),
        ("refused", None),
        ("expired", None),
        ("superseded", None),
        ("returned", None),
    ],
)
def test_what_waits_for_us_has_a_deadline(state: str, wanted: int | None) -> None:
    assert deadline(HoldState(state), Millis(1_000), Millis(900)) == wanted


def test_the_page_of_the_ledger_explains_every_state() -> None:
    named = cells("docs/rail-ledger.md", 0)
    assert [state for state in HoldState if state not in named] == []
