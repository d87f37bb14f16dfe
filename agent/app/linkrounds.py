"""Rounds over the dies of a node: each is asked for its link, again and again, beside everything else.

The one rule: what did not answer, or not in words that are known, is unknown; nobody waits for a round.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from agent.app.trouble import Trouble
from agent.domain.vocab import Millis
from agent.errors import AgentError, BadInput
from agent.ports import LinkProbe, Now
from agent.wire.linkstatus import parse_link_status

UNKNOWN = "unknown"
ABREAST = 4
"""Queries at once: one that hangs must not hold up the dies after it, and the driver must not be crowded."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found: device -> `up`, `down` or `unknown`. `at`: before the first was asked, so that no fact
    seems younger than it is.
    """

    at: Millis
    links: dict[int, str]


@dataclass(slots=True)
class LinkRounds:
    """Asks `devices` each `every_s` seconds; the newest round waits to be taken, an older one is let go of."""

    probe: LinkProbe
    devices: Sequence[int]
    every_s: float
    now: Now
    say: Callable[[str], None]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    counts: dict[str, int] = field(default_factory=dict)
    """Answers so far by state."""
    _newest: Round | None = None

    def take(self) -> Round | None:
        """The newest round, once."""
        newest, self._newest = self._newest, None
        return newest

    async def follow(self) -> None:
        """Rounds until cancelled."""
        trouble = Trouble(self.say)
        while True:
            links, why = await self._round()
            if why:
                told = f"{len(why)} of {len(self.devices)} links could not be looked at, first {why[0]}"
                trouble.tell(f"{told}; they count as unknown")
            else:
                trouble.over()
            self._newest = links
            await self.sleep(self.every_s)

    async def _round(self) -> tuple[Round, list[str]]:
        begun, gate = self.now(), asyncio.Semaphore(ABREAST)
        why: dict[int, str] = {}

        async def one(device: int) -> str:
            async with gate:
                try:
                    return parse_link_status(await self.probe.ask(device))
                except BadInput as error:
                    why[device] = f"device {device}: {error.reason}"
                except AgentError as error:
                    why[device] = str(error)
                return UNKNOWN

        states = await asyncio.gather(*map(one, self.devices))
        for state in states:
            self.counts[state] = self.counts.get(state, 0) + 1
        return Round(begun, dict(zip(self.devices, states, strict=True))), [why[device] for device in sorted(why)]
