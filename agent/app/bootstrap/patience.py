"""Waiting at the start for a service that does not answer yet.

The one rule: what a person has to mend (password, right, topic) ends the process at once with its clear error; what
comes back by itself is waited for, with /readyz saying no.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from agent.app.trouble import Trouble
from agent.errors import AgentError, CannotRun, Verdict

AGAIN_S = 3.0
_T = TypeVar("_T")


async def patiently(work: Callable[[], Awaitable[_T]], stop: asyncio.Event, say: Callable[[str], None]) -> _T:
    """What `work` gives, tried until it does. Raises CannotRun and Refused at once, and Stopped when told to end."""
    trouble = Trouble(say)
    while not stop.is_set():
        try:
            return await work()
        except AgentError as error:
            if error.verdict is not Verdict.RETRY:
                raise
            trouble.tell(f"{error}; tried again each {AGAIN_S:g} s")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), AGAIN_S)
    raise Stopped("stopped before it had begun")


class Stopped(CannotRun):
    """Told to end while it waited."""
