"""Time that passes only when a test says so: a clock and a sleep for code that takes both as arguments, and a leap of
the loop's own clock for time-outs inside code that does not.
"""

import asyncio
import heapq
import itertools

TURNS = 30
"""Loop turns after each moment: enough for everything that is ready to come to its next sleep."""


def leap(seconds: float) -> None:
    """The running loop's clock goes ahead: a time-out of that length that runs ends now, and none before, however
    slow the machine is. Give such a time-out more than any machine needs for what must come first.
    """
    loop = asyncio.get_running_loop()
    before = loop.time
    setattr(loop, "time", lambda: before() + seconds)  # noqa: B010  # a plain assignment to a method is an error to mypy


class VirtualTime:
    """`clock` and `sleep` as the agent's loops want them, in seconds."""

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        """The virtual moment."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has let that much time pass."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self.now + max(seconds, 0.0), next(self._order), woken))
        await woken

    async def settle(self) -> None:
        """Let everything run that needs no time."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking sleepers in order."""
        await self.settle()
        end = self.now + seconds
        while self._waiting and self._waiting[0][0] <= end:
            due, _, woken = heapq.heappop(self._waiting)
            if woken.done():
                continue
            self.now = max(self.now, due)
            woken.set_result(None)
            await self.settle()
        self.now = end
        await self.settle()

    def jump(self, seconds: float) -> None:
        """Time passes while nobody runs, as when the process is stopped."""
        self.now += seconds
