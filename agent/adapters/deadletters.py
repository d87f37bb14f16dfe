"""Dead letters in a record file: one line per letter, readable again by whatever reads record files.

The one rule: a letter of the same source is kept once, so that a restart before the checkpoint doubles nothing.
"""

from collections.abc import Sequence

from agent.adapters.recordline import parse_line, to_line
from agent.domain.events import Position, Record
from agent.ports import Journal

SOURCE_HEADER = "fault-agent-source"


class JournalDeadLetters:
    """DeadLetters kept in a Journal. What was there before is read at the first append."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._sources: set[bytes] | None = None

    async def append(self, letters: Sequence[Record]) -> None:
        if not letters:
            return
        if self._sources is None:
            kept = (parse_line(line, Position(0, 0, at)) for at, line in enumerate(await self._journal.read()))
            self._sources = {_source(record) for record in kept if isinstance(record, Record)}
        known, self._sources = self._sources, None  # to be read anew if the answer gets lost
        fresh = {_source(letter): letter for letter in letters if _source(letter) not in known}
        await self._journal.append([to_line(letter) for letter in fresh.values()])
        self._sources = known | fresh.keys()


def _source(letter: Record) -> bytes:
    """The last one: a letter that was put back on the stream and refused again still has its old one before it."""
    return next((value for name, value in reversed(letter.headers) if name == SOURCE_HEADER), b"")
