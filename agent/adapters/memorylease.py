"""A lease in memory: for tests, and for a process that has no rival.

The one rule: it compares and swaps as the API server does.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

from agent.adapters.memory import Failures
from agent.errors import Conflict, Unavailable
from agent.ports import LeaseState

_NONE = LeaseState(holder="", term=0, version="", seconds=0, renewed="")


class MemoryLease:
    """A LeaseStore in one value; candidates share the object, or have `another` view of it with its own failures."""

    def __init__(self, shared: "MemoryLease | None" = None) -> None:
        self._versions: Iterator[int] = shared._versions if shared is not None else itertools.count(1)
        self._cell: list[LeaseState] = shared._cell if shared is not None else [_NONE]
        self.failures = Failures()

    def another(self) -> "MemoryLease":
        """The same lease as another candidate reaches it."""
        return MemoryLease(self)

    async def read(self, within: float) -> LeaseState:
        self._check(within)
        return self._cell[0]

    async def write(self, state: LeaseState, within: float) -> LeaseState:
        self._check(within)
        if state.version != self._cell[0].version:
            raise Conflict(f"the lease is at version {self._cell[0].version or 'none'}, not {state.version or 'none'}")
        self._cell[0] = replace(state, version=str(next(self._versions)), seconds=max(state.seconds, 1))
        self.failures.after()
        return self._cell[0]

    def _check(self, within: float) -> None:
        if within <= 0:
            raise Unavailable("no time is left for the request")
        self.failures.before()
