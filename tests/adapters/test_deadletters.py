"""Dead letters in a journal: each source once, over restarts, repeats and lost answers."""

import pytest

from agent.adapters.deadletters import JournalDeadLetters
from agent.adapters.memory import MemoryJournal
from agent.adapters.recordline import parse_line
from agent.domain.events import Position, Record
from agent.domain.vocab import Millis
from agent.errors import Unavailable


def letter(source: str, value: bytes = b"x", *more: tuple[str, bytes]) -> Record:
    headers = (*more, ("fault-agent-reason", b"NOT_JSON"), ("fault-agent-source", source.encode()))
    return Record(Position(0, 0, 0), b"n1", value, headers, Millis(5))


async def sources(journal: MemoryJournal) -> list[str]:
    found = []
    for at, line in enumerate(await journal.read()):
        record = parse_line(line, Position(0, 0, at))
        assert isinstance(record, Record)
        found.append([value.decode() for name, value in record.headers if name == "fault-agent-source"][-1])
    return found


async def test_a_letter_reads_back_as_the_record_it_was() -> None:
    journal = MemoryJournal()
    await JournalDeadLetters(journal).append([letter("0:0:1", b"\xff\x00")])
    record = parse_line((await journal.read())[0], Position(0, 0, 0))
    assert record == letter("0:0:1", b"\xff\x00")


async def test_a_source_is_kept_once_within_a_call_between_calls_and_over_a_restart() -> None:
    journal = MemoryJournal()
    letters = JournalDeadLetters(journal)
    await letters.append([letter("0:0:1"), letter("0:0:1"), letter("0:0:2")])
    await letters.append([letter("0:0:2"), letter("0:0:2[1]")])
    await JournalDeadLetters(journal).append([letter("0:0:1"), letter("0:0:3")])
    assert await sources(journal) == ["0:0:1", "0:0:2", "0:0:2[1]", "0:0:3"]


async def test_two_records_put_back_from_one_letter_and_refused_again_are_two_letters() -> None:
    journal = MemoryJournal()
    old = ("fault-agent-source", b"0:0:1")
    await JournalDeadLetters(journal).append([letter("0:0:8", b"x", old), letter("0:0:9", b"x", old)])
    await JournalDeadLetters(journal).append([letter("0:0:9", b"x", old)])
    assert await sources(journal) == ["0:0:8", "0:0:9"]


async def test_a_letter_whose_answer_got_lost_is_not_doubled_and_one_that_was_not_written_not_lost() -> None:
    journal = MemoryJournal()
    letters = JournalDeadLetters(journal)
    journal.failures.fail_next()
    journal.failures.lose_answer(Unavailable("lost"))
    with pytest.raises(Unavailable):
        await letters.append([letter("0:0:1")])
    await letters.append([letter("0:0:1"), letter("0:0:2")])
    assert await sources(journal) == ["0:0:1", "0:0:2"]


async def test_nothing_is_read_or_written_for_nothing() -> None:
    journal = MemoryJournal()
    journal.failures.fail_next(Unavailable("must not be asked"))
    await JournalDeadLetters(journal).append([])


async def test_lines_of_others_in_the_journal_are_left_alone() -> None:
    journal = MemoryJournal()
    await journal.append([b"no json", b'{"tick":1}', b""])
    await JournalDeadLetters(journal).append([letter("0:0:1")])
    assert len(await journal.read()) == 4
