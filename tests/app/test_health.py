"""Liveness: a reader that stands still while records wait is found out, one that has nothing to read is not."""

import pytest

from agent.app.health import Watchdog
from agent.domain.vocab import Millis
from agent.ports import Progress


def at(seconds: float) -> Millis:
    return Millis(round(seconds * 1000))


def test_a_reader_that_stands_still_while_records_wait_is_stalled_after_a_minute() -> None:
    dog = Watchdog()
    dog.observe({0: Progress(5, 5), 1: Progress(7, 9)}, at(0))
    dog.observe({0: Progress(5, 5), 1: Progress(7, 12)}, at(60))
    assert dog.dead(at(60)) == ""
    dog.observe({0: Progress(5, 5), 1: Progress(7, 12)}, at(61))
    assert dog.dead(at(61)) == "partition 1: 5 records wait, nothing read for 61 s"


def test_it_lives_again_as_soon_as_the_position_moves() -> None:
    dog = Watchdog()
    dog.observe({1: Progress(7, 9)}, at(0))
    dog.observe({1: Progress(7, 9)}, at(70))
    dog.observe({1: Progress(8, 9)}, at(75))
    assert dog.dead(at(75)) == ""


@pytest.mark.parametrize("end", [7, 6], ids=["at the end", "past an end that is not known yet"])
def test_a_reader_with_nothing_to_read_may_stand_for_ever(end: int) -> None:
    dog = Watchdog()
    for hour in range(3):
        dog.observe({1: Progress(7, end)}, at(3600 * hour))
        assert dog.dead(at(3600 * hour)) == ""


def test_records_that_come_after_a_long_quiet_have_their_own_minute() -> None:
    dog = Watchdog()
    dog.observe({1: Progress(7, 7)}, at(0))
    dog.observe({1: Progress(7, 7)}, at(3600))
    dog.observe({1: Progress(7, 8)}, at(3605))
    assert dog.dead(at(3605)) == ""


def test_a_loop_that_does_not_turn_is_dead_and_one_that_has_not_begun_is_not() -> None:
    dog = Watchdog()
    assert dog.dead(at(9999)) == ""
    dog.turned(at(0))
    assert dog.dead(at(60)) == ""
    assert dog.dead(at(61)) == "the main loop has not turned for 61 s"
