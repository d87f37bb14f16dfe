"""Slots: what we decide is rendered at once, what another hand undoes is answered less and less often."""

import pytest

from agent.app.slots import Slots
from agent.domain.vocab import JobId, Millis

RESET, VCJOB = ("reset", JobId("train/a")), ("vcjob", JobId(""))


def at(seconds: float) -> Millis:
    return Millis(round(seconds * 1000))


def test_what_is_due_is_taken_once_and_in_order() -> None:
    slots = Slots()
    slots.add(VCJOB)
    slots.add(RESET)
    slots.add(RESET)
    assert bool(slots)
    assert slots.take(at(0)) == [RESET, VCJOB]
    assert not slots
    assert slots.take(at(0)) == []


def test_what_is_for_later_waits_for_its_time_unless_something_renders_it_before() -> None:
    slots = Slots()
    slots.later(RESET, at(60))
    assert slots.next_at() == at(60)
    assert slots.take(at(59)) == []
    assert slots.take(at(60)) == [RESET]
    slots.later(RESET, at(120))
    slots.add(RESET)
    assert slots.take(at(61)) == [RESET]
    assert slots.next_at() is None


def overwrite(slots: Slots, seconds: float) -> tuple[int, Millis] | None:
    slots.changed_by_other(RESET)
    return slots.seen(RESET, True, at(seconds)) if slots.take(at(seconds)) else None


def test_the_fifth_time_in_a_row_the_other_hand_has_it_for_two_seconds_then_longer_and_ten_at_most() -> None:
    slots = Slots()
    assert [overwrite(slots, number / 10) for number in range(4)] == [None] * 4
    assert overwrite(slots, 0.4) == (5, at(2.4))
    assert overwrite(slots, 1) is None
    assert slots.next_at() == at(2.4)
    assert [overwrite(slots, moment) for moment in (2.4, 6.4, 14.4, 24.4)] == [
        (6, at(6.4)),
        (7, at(14.4)),
        (8, at(24.4)),
        (9, at(34.4)),
    ]


def test_what_we_decide_ourselves_never_waits() -> None:
    slots = Slots()
    for number in range(9):
        overwrite(slots, number / 10)
    slots.add(RESET)
    assert slots.take(at(1)) == [RESET]


@pytest.mark.parametrize("wrote", [True, False])
def test_only_a_change_by_another_that_we_wrote_over_counts(wrote: bool) -> None:
    slots = Slots()
    for number in range(20):
        (slots.add if wrote else slots.changed_by_other)(RESET)
        assert slots.take(at(number / 100)) == [RESET]
        assert slots.seen(RESET, wrote, at(number / 100)) is None


def test_after_a_quiet_minute_the_count_begins_anew() -> None:
    slots = Slots()
    for number in range(5):
        overwrite(slots, number)
    assert [overwrite(slots, 70 + number) for number in range(4)] == [None] * 4


def test_a_new_term_forgets_what_waited_and_remembers_the_quarrel() -> None:
    slots = Slots()
    for number in range(4):
        overwrite(slots, number)
    slots.add(VCJOB)
    slots.later(RESET, at(9))
    slots.clear()
    assert (bool(slots), slots.next_at()) == (False, None)
    assert overwrite(slots, 5) == (5, at(7))
