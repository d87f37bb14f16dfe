"""The election's rules: when a standby may take the lease, when a leader must let go.

The one rule: time is counted on one's own monotonic clock only, from what one has seen or begun oneself. A leader
stops before anyone who has watched it can have waited long enough; so two never lead at once.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from agent.domain.vocab import Millis
from agent.errors import BadUsage


class Stage(StrEnum):
    """What one is oneself."""

    STANDBY = "standby"
    LEADING = "leading"


class Holder(StrEnum):
    """Whose the lease is, as it reads."""

    NOBODY = "nobody"
    ME = "me"
    OTHER = "other"


class Step(StrEnum):
    """What follows."""

    WAIT = "wait"
    TAKE = "take"
    """Write the lease as one's own, with the next term."""
    RENEW = "renew"
    LOST = "lost"


SILENT: Final = True
HEARD: Final = False

TABLE: Final[Mapping[tuple[Stage, Holder, bool], Step]] = {
    (Stage.STANDBY, Holder.NOBODY, HEARD): Step.TAKE,
    (Stage.STANDBY, Holder.NOBODY, SILENT): Step.TAKE,
    # Written by this very process: an answer that got lost, or a leadership it has since given up. A new term either
    # way, so that no two leaderships share one.
    (Stage.STANDBY, Holder.ME, HEARD): Step.TAKE,
    (Stage.STANDBY, Holder.ME, SILENT): Step.TAKE,
    (Stage.STANDBY, Holder.OTHER, HEARD): Step.WAIT,
    (Stage.STANDBY, Holder.OTHER, SILENT): Step.TAKE,
    (Stage.LEADING, Holder.ME, HEARD): Step.RENEW,
    (Stage.LEADING, Holder.ME, SILENT): Step.RENEW,
    (Stage.LEADING, Holder.NOBODY, HEARD): Step.LOST,
    (Stage.LEADING, Holder.NOBODY, SILENT): Step.LOST,
    (Stage.LEADING, Holder.OTHER, HEARD): Step.LOST,
    (Stage.LEADING, Holder.OTHER, SILENT): Step.LOST,
}


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The election's times, in seconds."""

    duration: float = 15.0
    """A lease not renewed for this long may be taken."""
    renew_every: float = 2.0
    look_every: float = 1.0
    """How often a standby looks. It takes over at most this long (and two requests) after the duration."""
    guard: float = 3.0
    """A leader stops this long before its lease is over: its work takes time to end, and clocks run unequally."""
    request: float = 4.0
    """The longest one request may take, where less does not remain."""

    def __post_init__(self) -> None:
        if min(self.duration, self.renew_every, self.look_every, self.request) <= 0 or self.guard < 0:
            raise BadUsage("lease times must be positive")
        if self.renew_every * 2 > self.reign:
            raise BadUsage(
                f"a lease of {self.duration} s less {self.guard} s leaves no second try when renewed each"
                f" {self.renew_every} s",
                hint="renew at least twice as often",
            )

    @property
    def reign(self) -> float:
        """How long one may lead after the start of the renewal that succeeded."""
        return self.duration - self.guard

    @property
    def stated(self) -> int:
        """The duration as a lease states it: whole seconds, never less than what is meant."""
        return math.ceil(self.duration)


Mark = tuple[str, str, str]
"""Holder, renewal time as text, version: a lease in which these are the same has not been renewed."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Since when a lease has read the same."""

    mark: Mark = ("", "", "")
    since: float = -math.inf

    def seeing(self, mark: Mark, now: float) -> "Silence":
        """After a reading whose answer had come at `now` (monotonic seconds).

        The end of the reading counts: the renewal it shows was begun before, so the holder's time runs out first.
        """
        return self if mark == self.mark and self.since != -math.inf else Silence(mark, now)

    def ends(self, stated: int, times: LeaseTimes) -> float:
        """When the lease may be taken, monotonic seconds; `stated` is the duration its holder has given, 0 if none."""
        return self.since + (stated or times.duration)


def whose(holder: str, me: str) -> Holder:
    """Whose the lease is."""
    if not holder:
        return Holder.NOBODY
    return Holder.ME if holder == me else Holder.OTHER


def step(stage: Stage, holder: Holder, *, silent: bool) -> Step:
    """What follows from a reading of the lease."""
    return TABLE[stage, holder, silent]


def stamp(now: Millis) -> str:
    """`now` (Unix ms) as renewTime has it (MicroTime): for people, and to differ from the one before."""
    moment = datetime.fromtimestamp(now // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now % 1000:03d}000Z"
