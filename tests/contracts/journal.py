"""What every Journal must do. A filler's test gives the fixture `journal`."""

import pytest

from agent.errors import Refused
from agent.ports import Journal


class JournalContract:
    async def test_an_unwritten_journal_is_empty(self, journal: Journal) -> None:
        assert list(await journal.read()) == []

    async def test_lines_come_back_oldest_first_and_byte_for_byte(self, journal: Journal) -> None:
        await journal.append([b'{"a":1}', b""])
        await journal.append([b"\x00\xff\r"])
        assert list(await journal.read()) == [b'{"a":1}', b"", b"\x00\xff\r"]

    async def test_appending_nothing_changes_nothing(self, journal: Journal) -> None:
        await journal.append([])
        assert list(await journal.read()) == []

    async def test_a_line_with_a_newline_is_refused_and_none_of_its_company_is_written(self, journal: Journal) -> None:
        with pytest.raises(Refused):
            await journal.append([b"good", b"two\nlines"])
        assert list(await journal.read()) == []
