"""Calls side by side: how many at a time, in which order, and what one that fails means for the others."""

import asyncio

import pytest

from agent.app.abreast import abreast, together
from agent.errors import Fenced, Unavailable


class Calls:
    """Notes when each begins and ends; each ends when it is let go."""

    def __init__(self, failing: tuple[int, ...] = ()) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.go = asyncio.Event()
        self._failing = failing

    async def __call__(self, number: int) -> None:
        self.begun.append(number)
        try:
            await self.go.wait()
            await asyncio.sleep(0)
            if number in self._failing:
                raise Unavailable(f"call {number}")
        finally:
            self.ended.append(number)


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_as_many_as_the_width_are_under_way_and_the_rest_follow_in_order() -> None:
    calls = Calls()
    task = asyncio.create_task(abreast(calls, range(7), 3))
    await turn()
    assert calls.begun == [0, 1, 2]
    calls.go.set()
    await task
    assert calls.begun == [0, 1, 2, 3, 4, 5, 6]
    assert sorted(calls.ended) == [0, 1, 2, 3, 4, 5, 6]


async def test_with_a_width_of_one_each_waits_for_the_one_before() -> None:
    calls = Calls()
    task = asyncio.create_task(abreast(calls, range(3), 1))
    await turn()
    assert calls.begun == [0]
    calls.go.set()
    await task
    assert calls.begun == [0, 1, 2]


async def test_after_one_that_fails_none_is_begun_and_those_under_way_end_first() -> None:
    calls = Calls(failing=(1,))
    task = asyncio.create_task(abreast(calls, range(6), 2))
    await turn()
    calls.go.set()
    with pytest.raises(Unavailable, match="call 1"):
        await task
    assert sorted(calls.ended) == calls.begun
    assert len(calls.begun) < 6


async def test_nothing_to_do_is_done() -> None:
    await abreast(Calls(), ())


async def test_cancelled_it_ends_when_every_call_has_ended() -> None:
    calls = Calls()
    task = asyncio.create_task(abreast(calls, range(4), 2))
    await turn()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(calls.ended) == calls.begun == [0, 1]


async def test_together_begins_each_whatever_becomes_of_the_others_and_raises_the_first_error_in_order() -> None:
    begun: list[str] = []

    async def works() -> None:
        begun.append("works")

    async def fails_late() -> None:
        begun.append("late")
        await turn()
        raise Unavailable("late")

    async def fails_at_once() -> None:
        begun.append("at once")
        raise Unavailable("at once")

    with pytest.raises(Unavailable, match="late"):
        await together(fails_late, fails_at_once, works)
    assert begun == ["late", "at once", "works"]


async def test_an_error_that_ends_the_term_is_raised_before_one_that_would_be_tried_again() -> None:
    async def away() -> None:
        await asyncio.sleep(0)
        raise Unavailable("away")

    async def fenced() -> None:
        await turn()
        raise Fenced("another writer")

    with pytest.raises(Fenced):
        await together(away, fenced)
    with pytest.raises(Fenced):
        await abreast(lambda work: work(), (away, fenced), 2)
