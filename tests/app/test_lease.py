"""Candidates for one lease, in virtual time: who leads, when it changes hands, what survives a bad server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from virtualtime import VirtualTime

from agent.adapters.memorylease import MemoryLease
from agent.app.lease import Election, Elector, Turn
from agent.domain.lease import LeaseTimes
from agent.domain.vocab import Millis
from agent.errors import Conflict, Fenced, Refused, Unavailable
from agent.ports import LeaseState

TIMES = LeaseTimes(duration=15.0, renew_every=2.0, look_every=1.0, guard=3.0, request=4.0)


class SlowLease:
    """A lease whose answers take time; what takes longer than `within` was carried out, but nobody learns so."""

    def __init__(self, inner: MemoryLease, time: VirtualTime) -> None:
        self.inner = inner
        self._time = time
        self.read_takes = 0.0
        self.write_takes = 0.0
        self.asked: list[float] = []
        """`within` of each request."""

    async def read(self, within: float) -> LeaseState:
        state = await self.inner.read(within)
        await self._answer(self.read_takes, within)
        return state

    async def write(self, state: LeaseState, within: float) -> LeaseState:
        state = await self.inner.write(state, within)
        await self._answer(self.write_takes, within)
        return state

    async def _answer(self, takes: float, within: float) -> None:
        self.asked.append(within)
        if takes:
            await self._time.sleep(min(takes, within))
        if takes >= within:
            raise Unavailable("no answer in time")


class Candidate:
    """One process: an elector whose work notes when it leads."""

    def __init__(self, name: str, store: SlowLease, time: VirtualTime, ends_slowly: float = 0.0) -> None:
        self.name = name
        self.store = store
        self.time = time
        self.told: list[Election] = []
        self.begun: list[tuple[float, int]] = []
        self.ended: list[float] = []
        self._working = False
        self._ends_slowly = ends_slowly
        self.elector = Elector(
            store,
            name,
            TIMES,
            clock=time.clock,
            sleep=time.sleep,
            now=lambda: Millis(int(time.now * 1000)),
            tell=self.told.append,
        )
        self.task: asyncio.Task[None] | None = None

    def start(self, work: Callable[[int], Awaitable[None]] | None = None) -> None:
        self.task = asyncio.create_task(self.elector.lead(work or self.work))

    async def work(self, term: int) -> None:
        self.begun.append((self.time.now, term))
        self._working = True
        try:
            await asyncio.Event().wait()
        finally:
            if self._ends_slowly:
                await self.time.sleep(self._ends_slowly)
            self._working = False
            self.ended.append(self.time.now)

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await self.time.settle()
        await asyncio.gather(self.task, return_exceptions=True)

    def works(self) -> bool:
        return self._working

    def turns(self) -> list[str]:
        return [election.turn.value for election in self.told]


class Stage:
    """Candidates of one lease."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.lease = MemoryLease()
        self.all: list[Candidate] = []

    def candidate(self, name: str, ends_slowly: float = 0.0) -> Candidate:
        made = Candidate(name, SlowLease(self.lease.another(), self.time), self.time, ends_slowly)
        self.all.append(made)
        return made

    async def holder(self) -> str:
        return (await self.lease.read(1)).holder


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    tasks = [one.task for one in stage.all if one.task is not None]
    for task in tasks:
        task.cancel()
    await stage.time.advance(100)
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with staged() as made:
        yield made


async def test_the_first_takes_a_free_lease_at_once_and_the_second_stands_by(stage: Stage) -> None:
    a, b = stage.candidate("a"), stage.candidate("b")
    a.start()
    await stage.time.settle()
    b.start()
    await stage.time.advance(60)
    assert a.begun == [(1000.0, 1)]
    assert (a.works(), b.works()) == (True, False)
    assert (a.elector.is_leader(), b.elector.is_leader()) == (True, False)
    assert b.told == [Election(Turn.STANDBY, 1, "a")]


async def test_of_two_that_start_together_one_leads(stage: Stage) -> None:
    a, b = stage.candidate("a"), stage.candidate("b")
    a.start()
    b.start()
    await stage.time.advance(5)
    assert [a.works(), b.works()].count(True) == 1


async def test_a_dead_leader_is_followed_after_the_duration_and_not_before(stage: Stage) -> None:
    a, b = stage.candidate("a"), stage.candidate("b")
    a.start()
    b.start()
    await stage.time.advance(5)
    # Killed: it renews no more and gives nothing back. Its last renewal was at 1004.
    a.store.inner.failures.fail_next(*[Unavailable("dead")] * 1000)
    await stage.time.advance(13.9)
    assert not b.works()
    await stage.time.advance(3.1)
    assert b.works()
    (moment, term) = b.begun[0]
    assert 1019.0 <= moment <= 1004 + 15 + 2
    assert term == 2
    # The old one had stopped before: twelve seconds after its last renewal began.
    assert a.ended == [1016.0]


async def test_a_leader_that_stops_cleanly_is_followed_within_a_look(stage: Stage) -> None:
    a, b = stage.candidate("a"), stage.candidate("b")
    a.start()
    b.start()
    await stage.time.advance(5)
    await a.stop()
    assert await stage.holder() == ""
    assert a.turns() == ["leading", "released"]
    await stage.time.advance(1.0)
    assert b.works()
    assert b.begun[0][0] <= 1006.0


async def test_work_has_ended_before_the_lease_is_given_back(stage: Stage) -> None:
    a, b = stage.candidate("a", ends_slowly=2.0), stage.candidate("b")
    a.start()
    b.start()
    await stage.time.advance(5)
    assert a.task is not None
    a.task.cancel()
    await stage.time.advance(1.5)
    assert (a.works(), await stage.holder(), b.works()) == (True, "a", False)
    await stage.time.advance(1.5)
    assert (a.works(), b.works()) == (False, True)
    assert a.ended[0] <= b.begun[0][0]


async def test_a_leader_without_the_server_stops_before_its_lease_is_over(stage: Stage) -> None:
    a = stage.candidate("a")
    a.start()
    await stage.time.advance(3)
    a.store.inner.failures.fail_next(*[Unavailable("down")] * 1000)
    await stage.time.advance(10.9)
    assert a.elector.is_leader()
    await stage.time.advance(0.2)
    # The last renewal that succeeded began at 1002.
    assert a.ended == [1014.0]
    assert not a.elector.is_leader()
    assert "lost" in a.turns()


async def test_a_short_outage_does_not_cost_the_leadership(stage: Stage) -> None:
    a = stage.candidate("a")
    a.start()
    await stage.time.advance(3)
    a.store.inner.failures.fail_next(*[Unavailable("down")] * 6)
    await stage.time.advance(60)
    assert (a.begun, a.ended) == ([(1000.0, 1)], [])


async def test_a_renewal_whose_answer_was_lost_is_found_out_and_leading_goes_on(stage: Stage) -> None:
    a = stage.candidate("a")
    a.start()
    await stage.time.advance(1)
    a.store.inner.failures.lose_answer(Unavailable("lost"), Unavailable("lost"))
    await stage.time.advance(60)
    assert (a.begun, a.ended) == ([(1000.0, 1)], [])


async def test_a_take_over_whose_answer_was_lost_leads_with_a_term_of_its_own(stage: Stage) -> None:
    a = stage.candidate("a")
    a.store.inner.failures.lose_answer(Unavailable("lost"))
    a.start()
    await stage.time.advance(3)
    assert [term for _, term in a.begun] == [2]
    assert (await stage.lease.read(1)).term == 2


async def test_one_who_touches_the_lease_without_taking_it_disturbs_nobody(stage: Stage) -> None:
    a = stage.candidate("a")
    a.start()
    for _ in range(5):
        await stage.time.advance(3)
        await stage.lease.write(await stage.lease.read(1), 1)
    assert (a.begun, a.ended) == ([(1000.0, 1)], [])


async def test_a_lease_taken_away_ends_the_work_at_the_next_renewal(stage: Stage) -> None:
    a = stage.candidate("a")
    a.start()
    await stage.time.advance(3)
    live = await stage.lease.read(1)
    await stage.lease.write(LeaseState("x", 9, live.version, 15, "later"), 1)
    await stage.time.advance(2)
    assert a.ended == [1004.0]
    assert a.told[-2:] == [Election(Turn.LOST, 1, "x"), Election(Turn.STANDBY, 9, "x")]
    # x is never heard of again.
    await stage.time.advance(20)
    assert [term for _, term in a.begun] == [1, 10]


async def test_the_deadline_counts_from_the_start_of_a_slow_renewal(stage: Stage) -> None:
    a = stage.candidate("a")
    a.store.write_takes = 3.5
    a.start()
    await stage.time.advance(3.6)
    # Begun at 1000, answered at 1003.5: twelve seconds from 1000.
    assert a.elector.is_leader(1011.9)
    assert not a.elector.is_leader(1012.0)


async def test_no_request_may_take_longer_than_the_leadership_lasts(stage: Stage) -> None:
    a = stage.candidate("a")
    a.start()
    await stage.time.advance(1)
    a.store.asked.clear()
    a.store.write_takes = a.store.read_takes = 100.0
    await stage.time.advance(30)
    # Renewal at 1002 (4 s, until 1006), a second's pause, reading at 1007 (4 s), a pause, at 1012 nothing is left.
    assert a.store.asked[:2] == [4.0, 4.0]
    assert a.ended == [1012.0]


async def test_a_leader_stopped_beyond_its_lease_does_not_write_when_it_goes_on(stage: Stage) -> None:
    a, b = stage.candidate("a"), stage.candidate("b")
    a.start()
    await stage.time.advance(1)
    stage.time.jump(60)
    # Before anything of it has run again:
    assert not a.elector.is_leader()
    b.start()
    await stage.time.advance(3)
    assert len(a.ended) == 1
    assert [one.works() for one in (a, b)].count(True) == 1


async def test_a_standby_s_own_pause_is_not_the_leader_s_silence(stage: Stage) -> None:
    a, b = stage.candidate("a"), stage.candidate("b")
    a.start()
    b.start()
    await stage.time.advance(5)
    stage.time.jump(10)
    await stage.time.advance(0.5)
    assert (a.works(), b.works()) == (True, False)


async def test_a_missing_right_is_told_once_and_asked_for_again(stage: Stage) -> None:
    a = stage.candidate("a")
    a.store.inner.failures.fail_next(*[Refused("may not get leases")] * 5)
    a.start()
    await stage.time.advance(10)
    assert a.turns() == ["trouble", "leading"]
    assert a.told[0].detail == "may not get leases"
    assert a.works()


async def test_lost_races_are_tried_again(stage: Stage) -> None:
    a = stage.candidate("a")
    a.store.inner.failures.fail_next(Conflict("first"), Conflict("second"))
    a.start()
    await stage.time.advance(1)
    assert a.works()


async def test_work_that_ends_by_itself_gives_the_lease_back(stage: Stage) -> None:
    async def brief(term: int) -> None:
        await stage.time.sleep(5)

    a = stage.candidate("a")
    a.start(brief)
    await stage.time.advance(6)
    assert a.task is not None
    assert a.task.done()
    await a.task
    assert await stage.holder() == ""


@pytest.mark.parametrize("error", [Fenced("a newer term"), RuntimeError("broken")])
async def test_work_that_fails_fails_the_leading_and_gives_the_lease_back(error: Exception, stage: Stage) -> None:
    async def broken(term: int) -> None:
        await stage.time.sleep(1)
        raise error

    a = stage.candidate("a")
    a.start(broken)
    await stage.time.advance(3)
    assert a.task is not None
    with pytest.raises(type(error), match=str(error)):
        await a.task
    assert await stage.holder() == ""


async def test_a_lease_that_cannot_be_given_back_is_told_and_no_more(stage: Stage) -> None:
    a = stage.candidate("a")
    a.start()
    await stage.time.advance(1)
    a.store.inner.failures.fail_next(Unavailable("down"))
    await a.stop()
    assert a.turns() == ["leading", "trouble"]
    assert await stage.holder() == "a"


@pytest.mark.parametrize("seed", range(12))
async def test_never_do_two_lead_at_once_whatever_the_server_does(seed: int) -> None:
    """Answers late, lost and refused, processes stopped for a while: at no moment do two work."""
    async with staged() as stage:
        candidates = [stage.candidate(name) for name in "abc"]
        for one in candidates:
            one.start()
        state = seed + 1
        led = 0
        for _ in range(600):
            state = (state * 1103515245 + 12345) % 2**31
            one = candidates[state // 7 % 3]
            match state // 64 % 12:
                case 0:
                    one.store.write_takes = (state // 1024 % 60) / 10
                case 1:
                    one.store.read_takes = (state // 1024 % 60) / 10
                case 2:
                    one.store.read_takes = one.store.write_takes = 0.0
                case 3:
                    one.store.inner.failures.fail_next(*[Unavailable("x")] * (state // 1024 % 20))
                case 4:
                    one.store.inner.failures.lose_answer(Unavailable("x"))
                case _:
                    pass
            await stage.time.advance(0.3)
            assert [one.elector.is_leader() for one in candidates].count(True) <= 1
            assert [one.works() for one in candidates].count(True) <= 1
            led += any(one.works() for one in candidates)
        assert led > 20
