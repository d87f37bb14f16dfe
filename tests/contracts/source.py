"""What every FaultSource must do. A filler's test gives the fixture `stream`: a source and the hand that feeds it.

SourceContract is for all; ResumeContract for those that can go back to a place.
"""

import asyncio
from typing import Protocol

from agent.domain.events import Record
from agent.ports import Batch, FaultSource


class Stream(Protocol):
    """A source that is not open yet, and its producer."""

    source: FaultSource

    async def send(self, *values: bytes) -> None:
        """Add records with key `n1` and these values."""

    def again(self) -> FaultSource:
        """Another source on the same stream, as a restarted process has it."""

    async def remake(self, *values: bytes) -> None:
        """Delete the stream and make it anew with these records."""


def values(batch: Batch) -> list[bytes | None]:
    """The values of a batch's records."""
    return [item.value for item in batch.items if isinstance(item, Record)]


class SourceContract:
    async def test_records_come_in_order_with_rising_positions(self, stream: Stream) -> None:
        await stream.send(b'{"a":1}', b"not json", b"\xff\x00")
        await stream.source.open(None)
        batch = await stream.source.read(10)
        assert values(batch) == [b'{"a":1}', b"not json", b"\xff\x00"]
        assert [item.key for item in batch.items if isinstance(item, Record)] == [b"n1", b"n1", b"n1"]
        offsets = [item.position.offset for item in batch.items]
        assert offsets == sorted(set(offsets))
        assert {(item.position.generation, item.position.partition) for item in batch.items} == {(0, 0)}
        await stream.source.close()

    async def test_an_empty_stream_is_at_its_end(self, stream: Stream) -> None:
        await stream.source.open(None)
        batch = await stream.source.read(10)
        assert (batch.items, batch.at_end) == ((), True)
        await stream.source.close()

    async def test_the_end_is_told_only_when_nothing_is_left(self, stream: Stream) -> None:
        await stream.send(b"1", b"2", b"3")
        await stream.source.open(None)
        first = await stream.source.read(2)
        assert (values(first), first.at_end) == ([b"1", b"2"], False)
        second = await stream.source.read(2)
        assert (values(second), second.at_end) == ([b"3"], True)
        await stream.source.close()

    async def test_a_full_batch_may_be_the_last(self, stream: Stream) -> None:
        await stream.send(b"1", b"2")
        await stream.source.open(None)
        batch = await stream.source.read(2)
        assert (values(batch), batch.at_end) == ([b"1", b"2"], True)
        await stream.source.close()

    async def test_what_is_sent_later_ends_the_wait_and_is_read_once(self, stream: Stream) -> None:
        await stream.send(b"1")
        await stream.source.open(None)
        await stream.source.read(10)
        waiting = asyncio.create_task(stream.source.wait(30))
        await stream.send(b"2")
        await waiting
        assert values(await stream.source.read(10)) == [b"2"]
        assert values(await stream.source.read(10)) == []
        await stream.source.close()

    async def test_a_wait_ends_by_itself(self, stream: Stream) -> None:
        await stream.source.open(None)
        await stream.source.read(10)
        await stream.source.wait(0.01)
        await stream.source.close()

    async def test_closing_twice_is_closing_once(self, stream: Stream) -> None:
        await stream.source.open(None)
        await stream.source.close()
        await stream.source.close()


class ResumeContract:
    async def test_a_restart_goes_on_right_after_the_batch(self, stream: Stream) -> None:
        await stream.send(b"1", b"2", b"3", b"4")
        await stream.source.open(None)
        first = await stream.source.read(1)
        second = await stream.source.read(1)
        await stream.source.close()
        for batch, rest in [(first, [b"2", b"3", b"4"]), (second, [b"3", b"4"])]:
            again = stream.again()
            await again.open(batch.resume)
            came = await again.read(10)
            await again.close()
            assert values(came) == rest
            assert came.notices == ()
            assert {item.position.generation for item in came.items} == {0}

    async def test_positions_are_the_same_after_a_restart(self, stream: Stream) -> None:
        await stream.send(b"1", b"2", b"3")
        await stream.source.open(None)
        whole = await stream.source.read(10)
        await stream.source.close()
        again = stream.again()
        await again.open(None)
        first = await again.read(2)
        await again.close()
        third = stream.again()
        await third.open(first.resume)
        last = await third.read(10)
        await third.close()
        assert first.items + last.items == whole.items

    async def test_a_restart_at_the_end_waits_for_what_is_new(self, stream: Stream) -> None:
        await stream.send(b"1")
        await stream.source.open(None)
        batch = await stream.source.read(10)
        await stream.source.close()
        again = stream.again()
        await again.open(batch.resume)
        assert (await again.read(10)).at_end
        await stream.send(b"2")
        assert values(await again.read(10)) == [b"2"]
        await again.close()

    async def test_a_stream_made_anew_is_read_from_its_beginning_as_a_new_generation(self, stream: Stream) -> None:
        await stream.send(b"1", b"2")
        await stream.source.open(None)
        batch = await stream.source.read(10)
        await stream.source.close()
        await stream.remake(b"3")
        again = stream.again()
        await again.open(batch.resume)
        came = await again.read(10)
        await again.close()
        assert values(came) == [b"3"]
        assert [str(item.position) for item in came.items] == ["1:0:0"]
        assert came.notices
