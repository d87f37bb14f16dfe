"""The election's loop: campaign, lead while the lease is surely ours, let go in time.

The one rule: work runs only between the start of a renewal that succeeded and the deadline counted from it; when that
is over, work is cancelled and waited for before anything else is done.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from agent.domain.lease import LeaseTimes, Silence, Stage, Step, stamp, step, whose
from agent.errors import AgentError, Conflict, Fenced, Refused, Unavailable
from agent.ports import LeaseState, LeaseStore, Now

_AT_ONCE_S = 0.05
"""Before the next look after a lost race: the winner's name is there by then."""

Work = Callable[[int], Awaitable[None]]
"""What a leader does; its argument is the term. It must end soon after it is cancelled."""


class Turn(StrEnum):
    """What the election came to."""

    STANDBY = "standby"
    LEADING = "leading"
    LOST = "lost"
    RELEASED = "released"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True)
class Election:
    """One turn, for logs and metrics."""

    turn: Turn
    term: int
    detail: str = ""
    """Who leads, or what went wrong."""


class Elector:
    """One candidate. `me` is unique to this process's life.

    `clock` is monotonic and goes on while the process is stopped, in seconds; `sleep` waits seconds; `now` is the
    wall clock, only written down for people.
    """

    def __init__(
        self,
        store: LeaseStore,
        me: str,
        times: LeaseTimes,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        now: Now,
        tell: Callable[[Election], None],
    ) -> None:
        self._store = store
        self._me = me
        self._times = times
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._tell = tell
        self._until = -math.inf
        self._renew_at = -math.inf
        self._lease: LeaseState | None = None
        """The lease as we last wrote or read it while leading; None when the outcome of a write is unknown."""
        self._told = ""
        self.term = 0
        """The term of the present or last leadership."""

    def is_leader(self, now: float | None = None) -> bool:
        """Whether one may write at `now` (monotonic seconds, else this moment). Ask right before each write."""
        return (self._clock() if now is None else now) < self._until

    async def lead(self, work: Work) -> None:
        """Run `work` whenever the lease is ours; returns when `work` does, and raises what it raises.

        Cancelled, it ends the work first and then gives the lease back, so that the next takes over at once.
        """
        try:
            while True:
                await self._campaign()
                if await self._reign(work):
                    return
        finally:
            await self._release()

    async def _campaign(self) -> None:
        """Return as leader."""
        silence = Silence()
        while True:
            pause = self._times.look_every
            try:
                lease = await self._store.read(self._times.request)
                seen = self._clock()
                silence = silence.seeing((lease.holder, lease.renewed, lease.version), seen)
                ends = silence.ends(lease.seconds, self._times)
                if step(Stage.STANDBY, whose(lease.holder, self._me), silent=seen >= ends) is Step.TAKE:
                    if await self._take(lease):
                        return
                    pause = _AT_ONCE_S
                else:
                    self._once(Election(Turn.STANDBY, lease.term, lease.holder))
                    pause = max(min(pause, ends - self._clock()), _AT_ONCE_S)
            except Conflict:
                pause = _AT_ONCE_S
            except (Unavailable, Refused) as error:
                self._once(Election(Turn.TROUBLE, self.term, str(error)))
            await self._sleep(pause)

    async def _take(self, lease: LeaseState) -> bool:
        started = self._clock()
        wanted = LeaseState(self._me, lease.term + 1, lease.version, self._times.stated, stamp(self._now()))
        written = await self._store.write(wanted, min(self._times.request, self._times.reign))
        self._lease = written
        if not self._extend(started):
            # The answer came when the leadership it gave was over already.
            return False
        self.term = written.term
        self._once(Election(Turn.LEADING, self.term, self._me))
        return True

    async def _reign(self, work: Work) -> bool:
        """Lead until the work ends (True) or the lease is lost (False)."""
        task: asyncio.Future[None] = asyncio.ensure_future(work(self.term))
        if isinstance(task, asyncio.Task):
            task.set_name(f"leader-{self.term}")
        try:
            while await self._pause_or(task):
                if not await self._renew():
                    break
        finally:
            by_itself = task.done()
            if not by_itself:
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled() and (error := task.exception()) is not None:
                    self._once(
                        Election(Turn.TROUBLE, self.term, f"the work ended with {type(error).__name__}: {error}")
                    )
        if by_itself:
            task.result()
            return True
        self._until = -math.inf
        self._once(Election(Turn.LOST, self.term, self._lease.holder if self._lease is not None else ""))
        self._lease = None
        if not task.cancelled():
            # Fenced is what work says that found out by itself; anything else is a fault to be seen.
            with suppress(Fenced):
                task.result()
        return False

    async def _pause_or(self, task: asyncio.Future[None]) -> bool:
        """Sleep until the next renewal is due; False as soon as the work has ended."""
        pause = self._renew_at - self._clock()
        if pause > 0 and not task.done():
            sleeper = asyncio.ensure_future(self._sleep(pause))
            try:
                await asyncio.wait([task, sleeper], return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeper.cancel()
                await asyncio.wait([sleeper])
        return not task.done()

    async def _renew(self) -> bool:
        """Renew before the deadline; False when that did not work out or the lease is another's."""
        while True:
            started = self._clock()
            left = self._until - started
            if left <= 0:
                return False
            within = min(left, self._times.request)
            try:
                if self._lease is None:
                    lease = await self._store.read(within)
                    if step(Stage.LEADING, whose(lease.holder, self._me), silent=False) is Step.LOST:
                        self._lease = lease
                        return False
                    self._lease = lease
                    continue
                renewed = replace(self._lease, seconds=self._times.stated, renewed=stamp(self._now()))
                self._lease = None
                self._lease = await self._store.write(renewed, within)
                return self._extend(started)
            except Conflict:
                continue
            except (Unavailable, Refused) as error:
                self._once(Election(Turn.TROUBLE, self.term, str(error)))
                await self._sleep(max(min(self._times.look_every, self._until - self._clock()), 0.0))

    def _extend(self, started: float) -> bool:
        """Lead on, counted from the start of what has just succeeded; False when that is over already."""
        self._until = started + self._times.reign
        self._renew_at = started + self._times.renew_every
        return self.is_leader()

    async def _release(self) -> None:
        """Give the lease back if it is known to be ours; bounded."""
        lease, self._lease = self._lease, None
        self._until = -math.inf
        if lease is None or lease.holder != self._me:
            return
        try:
            free = replace(lease, holder="", seconds=1, renewed=stamp(self._now()))
            await self._store.write(free, self._times.request)
        except AgentError as error:
            # The next waits until it is over.
            self._once(Election(Turn.TROUBLE, self.term, f"the lease is not given back: {error}"))
        else:
            self._once(Election(Turn.RELEASED, self.term))

    def _once(self, election: Election) -> None:
        """Tell what is new; the same trouble each second is told once."""
        text = f"{election.turn}/{election.term}/{election.detail}"
        if text != self._told:
            self._told = text
            self._tell(election)
