"""The policy in force of a running role: looked at again when its files change, the last good one kept.

The one rule: a policy is taken as a whole or not at all, and while the newest files cannot be used that is said.
"""

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from agent.domain.policy import CodeRule, Policy
from agent.errors import AgentError

LOOK_S: Final = 5.0
"""Seconds between two looks at the files; a hang-up signal looks at once."""
SHORT: Final = 12
"""Digits of the digest in decisions, spans and messages."""
_MOST_ENDED: Final = 5
"""Overrides that are named when they end together."""


class PolicyKeep:
    """Holds the policy in force. `load` reads and checks the files (raises AgentError); `mark` says cheaply whether
    they may have changed. Without them it never changes, as in a replay.
    """

    def __init__(
        self,
        policy: Policy,
        load: Callable[[], Policy] | None = None,
        mark: Callable[[], Hashable] = lambda: None,
    ) -> None:
        self.policy = policy
        self.trouble = ""
        """Why the newest files are not in force; empty: they are."""
        self.loads = 0
        self.failures = 0
        self._load = load
        self._mark = mark
        self._seen = mark()
        self._nudge = asyncio.Event()

    @property
    def short(self) -> str:
        """The digest's first digits, as decisions and spans carry it."""
        return self.policy.digest[:SHORT]

    @property
    def degraded(self) -> str:
        """What readiness says of it; empty: nothing."""
        return f"degraded: policy {self.short} stays in force, for {self.trouble}" if self.trouble else ""

    def nudge(self) -> None:
        """Look at the files at once and read them whatever their marks say. To be called in the loop."""
        self._nudge.set()

    def look(self, *, force: bool = False) -> str:
        """Take the files if they have changed and are right; what there is to say of it, or nothing. Blocks."""
        if self._load is None:
            return ""
        mark = self._mark()
        if mark == self._seen and not force:
            return ""
        try:
            policy = self._load()
        except Exception as error:  # a defect of ours must not end the watch, nor go unsaid
            self._seen = mark
            self.failures += 1
            lines = (str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}").splitlines()
            more = f" (and {len(lines) - 1} more mistake{'' if len(lines) == 2 else 's'})" if len(lines) > 1 else ""
            trouble = f"{lines[0]}{more}"
            told, self.trouble = trouble == self.trouble and not force, trouble
            return "" if told else f"policy not taken, {self.short} stays in force: {trouble}"
        if self._mark() != mark:
            return ""  # changed while it was read: the next look reads what is whole
        self._seen = mark
        self.loads += 1
        before, mended, ended = self.short, self.trouble, _ended(self.policy, policy)
        self.policy, self.trouble = policy, ""
        if self.short != before:
            return f"policy {self.short} in force, {before} before{ended}"
        return f"policy {self.short} stays in force: the files say the same" if mended or force else ""

    async def follow(self, say: Callable[[str], None]) -> None:
        """Look again and again until cancelled; the files are read beside the loop."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nudge.wait(), LOOK_S)
            force = self._nudge.is_set()
            self._nudge.clear()
            if told := await asyncio.to_thread(self.look, force=force):
                say(told)


def _ended(before: Policy, after: Policy) -> str:
    """The overrides that held and are over, as the end of a message; empty when there are none."""
    over: list[str] = []
    for one in after.ended:
        rows: Mapping[Any, CodeRule] = getattr(before, one.table)
        row = rows.get(one.key)
        if row is not None and row.override is not None and row.override.expires == one.expires:
            over.append(str(one))
    more = f"; and {len(over) - _MOST_ENDED} more ended" if len(over) > _MOST_ENDED else ""
    return "".join(f"; {words}" for words in over[:_MOST_ENDED]) + more
