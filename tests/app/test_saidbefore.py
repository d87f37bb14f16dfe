"""What a killed run has said is not said again; what was said before an orderly end says nothing about what comes."""

import pytest

from agent.adapters.memory import MemoryCabinet, MemoryJournal
from agent.app.saidbefore import SaidBefore
from agent.domain.events import Decision
from agent.domain.vocab import Millis, Reason
from agent.wire.audit import AuditLine


def a_line(number: int, reason: Reason = Reason.FAULT_SHOWN) -> AuditLine:
    return AuditLine(Decision(Millis(number), reason, fault="n1/chip/2/A@1", occurrence="0:0:1:0"), "act", "p")


async def of_a_run(journal: MemoryJournal, cabinet: MemoryCabinet, *, orderly: bool) -> SaidBefore:
    """What a next process finds after a run that has said one thing twice."""
    run = SaidBefore(journal, cabinet)
    await run.read()
    await run.append([a_line(1), a_line(2)])
    if orderly:
        await run.settle()
    after = SaidBefore(journal, cabinet)
    await after.read()
    return after


async def test_each_line_of_a_killed_run_answers_for_one() -> None:
    after = await of_a_run(MemoryJournal(), MemoryCabinet(), orderly=False)
    assert after.new([a_line(3), a_line(4, Reason.HELD)]) == [a_line(4, Reason.HELD)]
    assert after.new([a_line(5)]) == []
    assert after.new([a_line(6)]) == [a_line(6)]


async def test_what_was_said_before_an_orderly_end_answers_for_none() -> None:
    journal, cabinet = MemoryJournal(), MemoryCabinet()
    after = await of_a_run(journal, cabinet, orderly=True)
    assert after.new([a_line(3)]) == [a_line(3)]
    await after.append([a_line(3)])
    killed = SaidBefore(journal, cabinet)
    await killed.read()
    assert killed.new([a_line(4), a_line(5)]) == [a_line(5)], "only what came after that end"


async def test_what_has_been_decided_once_more_is_forgotten() -> None:
    after = await of_a_run(MemoryJournal(), MemoryCabinet(), orderly=False)
    after.forget()
    assert after.new([a_line(3)]) == [a_line(3)]


@pytest.mark.parametrize("kept", [b"", b"x", b"-1", b"3"], ids=str)
async def test_a_count_that_cannot_be_of_this_journal_is_none(kept: bytes) -> None:
    journal, cabinet = MemoryJournal(), MemoryCabinet()
    await cabinet.store("said", kept)
    after = await of_a_run(journal, cabinet, orderly=False)
    assert after.new([a_line(3)]) == []
