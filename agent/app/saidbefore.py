"""What a run that was killed has said already, so that what is decided once more is not said once more.

The one rule: each of its lines answers for one; what was said before a run ended in order answers for none.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from agent.app.keep import SAID
from agent.ports import Cabinet, Journal
from agent.wire.audit import AuditLine, encode_audit, fact_of

RECENT_LINES: Final = 10_000
"""Lines of the journal looked back over after a restart; what is read once more has said fewer."""


class SaidBefore:
    """The journal of reasons, which an earlier run may have written to before it was killed."""

    def __init__(self, journal: Journal, cabinet: Cabinet) -> None:
        self._journal = journal
        self._cabinet = cabinet
        self._facts: Counter[bytes] = Counter()
        self._lines = 0
        """In the journal by now."""

    async def read(self) -> None:
        """Look at what was said since a run last ended in order. Raises Unavailable."""
        lines, settled = await self._journal.read(), 0
        with suppress(ValueError):
            settled = int(await self._cabinet.load(SAID) or b"0")
        if not 0 <= settled <= len(lines):  # another journal than the one that was counted
            settled = 0
        self._lines = len(lines)
        self._facts = Counter(filter(None, map(fact_of, lines[settled:][-RECENT_LINES:])))

    def forget(self) -> None:
        """All that may be decided once more has been."""
        self._facts.clear()

    def new(self, lines: Sequence[AuditLine]) -> list[AuditLine]:
        """The lines without what was said already."""
        return [line for line in lines if not self._facts or not self._was_said(fact_of(encode_audit(line)))]

    def _was_said(self, fact: bytes | None) -> bool:
        if fact is None or not self._facts[fact]:
            return False
        self._facts[fact] -= 1
        return True

    async def append(self, lines: Sequence[AuditLine]) -> None:
        """Into the journal. Raises Unavailable."""
        if lines:
            await self._journal.append([encode_audit(line) for line in lines])
            self._lines += len(lines)

    async def settle(self) -> None:
        """The run ends in order: all that it has said stands in its ledgers and reports. Raises Unavailable."""
        await self._cabinet.store(SAID, str(self._lines).encode())
