"""Calls to a service made side by side: a round trip of one is no reason for the next to wait.

The one rule: when it returns or raises, every call that was begun has ended.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from agent.errors import AgentError, Verdict

T = TypeVar("T")

WIDTH: Final = 8
"""Calls under way at one time: enough to hide a round trip, too few to crowd others out of an API server."""


async def abreast(work: Callable[[T], Awaitable[None]], items: Iterable[T], width: int = WIDTH) -> None:
    """`work` for each item, begun in their order, at most `width` at a time.

    Once one has raised, none is begun any more; those under way end, then an error is raised: the first that ends this
    process or its term, else the first.
    """
    waiting = deque(items)
    failed: list[BaseException] = []

    async def take_turns() -> None:
        while waiting and not failed:
            try:
                await work(waiting.popleft())
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                failed.append(error)

    if len(waiting) == 1:
        await work(waiting.popleft())
        return
    async with asyncio.TaskGroup() as group:
        for _ in range(min(width, len(waiting))):
            group.create_task(take_turns())
    _raise(failed)


async def together(*works: Callable[[], Awaitable[None]]) -> None:
    """All of them side by side, each begun whatever becomes of the others; then an error is raised as by `abreast`."""
    outcomes = await asyncio.gather(*(work() for work in works), return_exceptions=True)
    _raise([outcome for outcome in outcomes if outcome is not None])


def _raise(failed: Sequence[BaseException]) -> None:
    ending = (error for error in failed if not isinstance(error, AgentError) or error.verdict is Verdict.STOP)
    error = next(ending, next(iter(failed), None))
    if error is not None:
        raise error
