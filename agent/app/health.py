"""Liveness that sees a silent stall, readiness that says what is missing.

The one rule: alive means that the reader moves when there is something to read; a process that merely answers is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.domain.vocab import MINUTE, Millis
from agent.ports import Progress

STALL = MINUTE
"""A reader that has not moved for so long (ms) while records wait is stalled."""


@dataclass(slots=True)
class Watchdog:
    """Compares positions over time; also knows when the loop itself last turned."""

    stall: int = STALL
    _seen: dict[int, tuple[int, Millis]] = field(default_factory=dict)
    _turned: Millis | None = None
    _stalled: str = ""

    def turned(self, now: Millis) -> None:
        """The main loop has come round."""
        self._turned = now

    def observe(self, progress: Mapping[int, Progress], now: Millis) -> None:
        """Positions and ends as the reader sees them now."""
        self._stalled = ""
        for partition, at in progress.items():
            position, since = self._seen.get(partition, (-1, now))
            if at.position != position or at.position >= at.end:
                self._seen[partition] = (at.position, now)
            elif now - since > self.stall:
                waiting = at.end - at.position
                self._stalled = (
                    f"partition {partition}: {waiting} records wait, nothing read for {(now - since) // 1000} s"
                )

    def dead(self, now: Millis) -> str:
        """Why the process should be restarted; empty: it lives."""
        if self._stalled:
            return self._stalled
        if self._turned is not None and now - self._turned > self.stall:
            return f"the main loop has not turned for {(now - self._turned) // 1000} s"
        return ""
