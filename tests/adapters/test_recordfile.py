"""Record files: the contract, growth, rotation, truncation and lines of every badness."""

import asyncio
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from contracts.source import ResumeContract, SourceContract, values

from agent.adapters.recordfile import FileSource, StdinSource
from agent.adapters.recordline import to_line
from agent.domain.events import Position, Record
from agent.errors import BadDocument, CannotRun, Unavailable
from agent.ports import FaultSource


def line(value: bytes) -> bytes:
    return to_line(Record(Position(0, 0, 0), b"n1", value)) + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


class FileStream:
    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self.source: FaultSource = self.again()

    async def send(self, *values: bytes) -> None:
        await asyncio.to_thread(append, self._path, b"".join(map(line, values)))

    def again(self) -> FaultSource:
        return FileSource(self._path, interval=0.01)

    async def remake(self, *values: bytes) -> None:
        await asyncio.to_thread(self._path.unlink)
        await self.send(*values)


class TestFileSource(SourceContract, ResumeContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "events.jsonl"

    @pytest.fixture
    def stream(self, path: Path) -> FileStream:
        return FileStream(path)

    async def test_offsets_are_where_the_lines_begin(self, path: Path) -> None:
        await asyncio.to_thread(append, path, b'{"key":"a","value":"1"}\n\n \r\n{"key":"b","value":"2"}\r\n')
        source = FileSource(path, partition=3)
        await source.open(None)
        batch = await source.read(10)
        assert [str(item.position) for item in batch.items] == ["0:3:0", "0:3:28"]
        await source.close()

    @pytest.mark.parametrize(
        ("place", "said"),
        [
            ("none.jsonl", "none.jsonl: no such file"),
            (".", "is a folder (name the file of JSON Lines in it)"),
            ("/dev/null", "/dev/null: is no regular file but a device, pipe or socket"),
        ],
    )
    async def test_what_is_no_file_cannot_be_run_on(self, tmp_path: Path, place: str, said: str) -> None:
        with pytest.raises(CannotRun) as caught:
            await FileSource(tmp_path / place).open(None)
        assert said in str(caught.value)

    async def test_reading_before_opening_cannot_be_done(self, stream: FileStream) -> None:
        with pytest.raises(CannotRun):
            await stream.source.read(1)

    async def test_a_half_written_line_waits_and_is_told_once(self, path: Path) -> None:
        await asyncio.to_thread(append, path, line(b"1") + line(b"2")[:9])
        source = FileSource(path, interval=0.01)
        await source.open(None)
        first = await source.read(10)
        assert (values(first), first.at_end, len(first.notices)) == ([b"1"], True, 1)
        assert (await source.read(10)).notices == ()
        await asyncio.to_thread(append, path, line(b"2")[9:])
        await source.wait(30)
        second = await source.read(10)
        assert values(second) == [b"2"]
        assert second.items[0].position.offset == len(line(b"1"))
        await source.close()

    async def test_a_restart_in_front_of_a_half_line_reads_it_whole(self, path: Path, stream: FileStream) -> None:
        await asyncio.to_thread(append, path, line(b"1") + line(b"2")[:9])
        await stream.source.open(None)
        batch = await stream.source.read(10)
        await stream.source.close()
        await asyncio.to_thread(append, path, line(b"2")[9:])
        again = stream.again()
        await again.open(batch.resume)
        assert values(await again.read(10)) == [b"2"]
        await again.close()

    async def test_a_complete_file_gives_its_last_line_without_a_newline(self, path: Path) -> None:
        await asyncio.to_thread(append, path, line(b"1") + line(b"2").rstrip(b"\n"))
        source = FileSource(path, complete=True)
        await source.open(None)
        first = await source.read(1)
        assert (values(first), first.at_end, source.finished) == ([b"1"], False, False)
        second = await source.read(1)
        assert (values(second), second.at_end, source.finished, second.notices) == ([b"2"], True, True, ())
        assert (await source.read(1)).items == ()
        await source.close()

    async def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(self, path: Path, tmp_path: Path) -> None:
        await asyncio.to_thread(append, path, line(b"1"))
        source = FileSource(path, interval=0.01)
        await source.open(None)
        await source.read(10)
        await asyncio.to_thread(append, path, line(b"2"))
        await asyncio.to_thread(path.rename, tmp_path / "events.jsonl.1")
        assert values(await source.read(10)) == [b"2"]
        await asyncio.to_thread(append, tmp_path / "events.jsonl.1", line(b"3") + b'{"half')
        await asyncio.to_thread(append, path, line(b"4"))
        await source.wait(30)
        batch = await source.read(10)
        assert values(batch) == [b"3", b'{"half', b"4"]
        assert [item.position.generation for item in batch.items] == [0, 0, 1]
        assert batch.items[2].position.offset == 0
        assert any("rotated" in notice for notice in batch.notices)
        await source.close()

    async def test_between_the_renaming_and_the_new_file_the_old_one_is_at_its_end(
        self, path: Path, tmp_path: Path
    ) -> None:
        await asyncio.to_thread(append, path, line(b"1"))
        source = FileSource(path, interval=0.01)
        await source.open(None)
        await asyncio.to_thread(path.rename, tmp_path / "events.jsonl.1")
        first = await source.read(10)
        assert (values(first), first.at_end) == ([b"1"], True)
        await source.wait(0.02)
        again = FileSource(path)
        await again.open(first.resume)
        assert (await again.read(10)).at_end
        await again.close()
        await asyncio.to_thread(append, path, line(b"2"))
        await source.wait(30)
        assert values(await source.read(10)) == [b"2"]
        await source.close()

    async def test_an_error_after_the_first_lines_does_not_lose_them(self, path: Path, tmp_path: Path) -> None:
        await asyncio.to_thread(append, path, line(b"1"))
        source = FileSource(path)
        await source.open(None)
        # What is there now in its place is no file that could be read on.
        await asyncio.to_thread(path.rename, tmp_path / "events.jsonl.1")
        await asyncio.to_thread(path.mkdir)
        first = await source.read(10)
        assert (values(first), first.at_end) == ([b"1"], False)
        with pytest.raises(Unavailable):
            await source.read(10)
        await asyncio.to_thread(path.rmdir)
        await asyncio.to_thread(append, path, line(b"2"))
        assert values(await source.read(10)) == [b"2"]
        await source.close()

    async def test_rotated_while_away_the_rest_of_the_old_file_comes_first(
        self, path: Path, tmp_path: Path, stream: FileStream
    ) -> None:
        await stream.send(b"1", b"2")
        await stream.source.open(None)
        batch = await stream.source.read(1)
        await stream.source.close()
        # Rotated twice: what was read is .2 now, a whole file in between is .1.
        await asyncio.to_thread(path.rename, tmp_path / "events.jsonl.2")
        await asyncio.to_thread(append, tmp_path / "events.jsonl.1", line(b"3"))
        await stream.send(b"4")
        again = stream.again()
        await again.open(batch.resume)
        came = [await again.read(1) for _ in range(3)]
        assert [values(b) for b in came] == [[b"2"], [b"3"], [b"4"]]
        assert [b.items[0].position.generation for b in came] == [0, 1, 2]
        assert [b.at_end for b in came] == [False, False, True]
        await again.close()

    async def test_a_restart_in_a_rotated_file_goes_on_there(
        self, path: Path, tmp_path: Path, stream: FileStream
    ) -> None:
        await stream.send(b"1", b"2")
        await stream.source.open(None)
        await asyncio.to_thread(path.rename, tmp_path / "events.jsonl.1")
        await stream.send(b"3")
        first = await stream.source.read(1)
        await stream.source.close()
        for expected, limit in [([b"2", b"3"], 10), ([b"2"], 1)]:
            again = stream.again()
            await again.open(first.resume)
            assert values(await again.read(limit)) == expected
            await again.close()

    async def test_a_file_gone_while_away_is_told_with_what_may_be_lost(self, path: Path, stream: FileStream) -> None:
        await stream.send(b"1", b"2")
        await stream.source.open(None)
        batch = await stream.source.read(1)
        await stream.source.close()
        keep = path.with_name("kept-so-that-its-inode-is-not-used-again")
        await asyncio.to_thread(path.rename, keep)
        await stream.send(b"3")
        again = stream.again()
        await again.open(batch.resume)
        came = await again.read(10)
        await again.close()
        assert values(came) == [b"3"]
        assert came.items[0].position == Position(1, 0, 0)
        assert len(came.notices) == 1
        assert f"another file than the one it was left in at byte {len(line(b'1'))}; if that one" in came.notices[0]

    async def test_a_truncated_file_is_read_from_its_beginning_as_a_new_generation(self, path: Path) -> None:
        await asyncio.to_thread(append, path, line(b"1") + line(b"2"))
        source = FileSource(path, interval=0.01)
        await source.open(None)
        await source.read(10)
        await asyncio.to_thread(os.truncate, path, 0)
        await asyncio.to_thread(append, path, line(b"3"))
        await source.wait(30)
        batch = await source.read(10)
        assert values(batch) == [b"3"]
        assert batch.items[0].position == Position(1, 0, 0)
        assert len(batch.notices) == 1
        await source.close()

    async def test_a_file_written_anew_past_the_old_place_is_noticed_by_its_beginning(
        self, path: Path, stream: FileStream
    ) -> None:
        await stream.send(b"1")
        await stream.source.open(None)
        batch = await stream.source.read(10)
        await asyncio.to_thread(os.truncate, path, 0)
        await stream.send(b"2", b"3", b"4")
        live = await stream.source.read(10)
        await stream.source.close()
        again = stream.again()
        await again.open(batch.resume)
        later = await again.read(10)
        await again.close()
        for came in (live, later):
            assert values(came) == [b"2", b"3", b"4"]
            assert came.items[0].position == Position(1, 0, 0)
            assert len(came.notices) == 1

    @pytest.mark.parametrize(
        "token",
        [
            b"",
            b"{}",
            b"[1]",
            b'{"inode":"x"}',
            b"\xff",
            b'["generation"]',
            b'{"generation":"1"}',
            b'{"inode":1,"prefix":"","length":0,"byte":-1,"generation":0}',
            b'{"inode":1,"prefix":7,"length":0,"byte":1,"generation":0}',
        ],
    )
    async def test_a_place_that_cannot_be_read_is_refused(self, stream: FileStream, token: bytes) -> None:
        await stream.send(b"1")
        with pytest.raises(BadDocument, match="no place in a stream"):
            await stream.again().open(token)

    async def test_after_standard_input_a_file_counts_on_from_its_generation(self, stream: FileStream) -> None:
        await stream.send(b"1")
        source = stream.again()
        await source.open(b'{"generation":3}')
        batch = await source.read(10)
        await source.close()
        assert batch.items[0].position == Position(4, 0, 0)
        assert len(batch.notices) == 1

    async def test_a_line_too_long_is_cut_and_what_follows_is_whole(self, path: Path) -> None:
        long = b'{"key":"n7","value":"' + b"x" * (5 * 1024 * 1024) + b'"}'
        await asyncio.to_thread(append, path, line(b"1") + long + b"\n" + line(b"2"))
        source = FileSource(path)
        await source.open(None)
        batch = await source.read(10)
        await source.close()
        first, cut, last = batch.items
        assert isinstance(cut, Record)
        assert cut.key == b"n7"
        assert cut.value == long[: 1024 * 1024 + 1]
        assert isinstance(last, Record)
        assert last.value == b"2"
        assert last.position.offset == len(line(b"1")) + len(long) + 1
        assert first.position.offset == 0

    async def test_a_line_too_long_at_the_end_of_a_complete_file_is_given(self, path: Path) -> None:
        await asyncio.to_thread(append, path, b"x" * (6 * 1024 * 1024))
        source = FileSource(path, complete=True)
        await source.open(None)
        batch = await source.read(10)
        await source.close()
        assert [len(value or b"") for value in values(batch)] == [1024 * 1024 + 1]
        assert batch.at_end

    async def test_a_byte_order_mark_does_not_spoil_the_first_line(self, path: Path) -> None:
        await asyncio.to_thread(append, path, b"\xef\xbb\xbf" + line(b"1"))
        source = FileSource(path)
        await source.open(None)
        assert values(await source.read(10)) == [b"1"]
        await source.close()

    async def test_lines_over_many_chunks_come_each_once(self, path: Path) -> None:
        wanted = [str(n).encode() * 50 for n in range(20_000)]
        await asyncio.to_thread(append, path, b"".join(map(line, wanted)))
        source = FileSource(path, complete=True)
        await source.open(None)
        came: list[bytes | None] = []
        while not source.finished:
            came += values(await source.read(777))
        await source.close()
        assert came == wanted


class PipeStream:
    def __init__(self, read_end: int, write_end: int) -> None:
        self._write_end = write_end
        self.stream = os.fdopen(read_end, "rb")
        self.pipe = StdinSource(self.stream)
        self.source: FaultSource = self.pipe

    async def send(self, *values: bytes) -> None:
        await asyncio.to_thread(os.write, self._write_end, b"".join(map(line, values)))

    def again(self) -> FaultSource:
        return StdinSource(self.stream)

    async def remake(self, *values: bytes) -> None:
        await self.send(*values)

    def end(self) -> None:
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1


class TestStdinSource(SourceContract):
    @pytest.fixture
    def stream(self) -> Iterator[PipeStream]:
        stream = PipeStream(*os.pipe())
        yield stream
        stream.end()
        stream.stream.close()

    async def test_the_end_of_the_stream_gives_the_last_line_and_is_told(self, stream: PipeStream) -> None:
        await stream.source.open(None)
        await stream.send(b"1")
        await asyncio.to_thread(os.write, stream._write_end, b'{"key":"n1","value":"2"}')
        first = await stream.source.read(10)
        assert (values(first), first.at_end, stream.pipe.finished) == ([b"1"], True, False)
        await asyncio.to_thread(stream.end)
        second = await stream.source.read(10)
        assert (values(second), second.at_end, stream.pipe.finished) == ([b"2"], True, True)
        await stream.source.wait(0.01)

    async def test_a_restart_is_a_new_generation(self, stream: PipeStream) -> None:
        await stream.send(b"1")
        await stream.source.open(None)
        batch = await stream.source.read(10)
        await stream.send(b"2")
        again = stream.again()
        await again.open(batch.resume)
        came = await again.read(10)
        assert values(came) == [b"2"]
        assert came.items[0].position == Position(1, 0, 0)
        assert len(came.notices) == 1

    async def test_a_stream_in_memory_is_read_as_it_is(self) -> None:
        source = StdinSource(io.BytesIO(line(b"1") + line(b"2")))
        await source.open(None)
        batch = await source.read(10)
        assert (values(batch), batch.at_end, source.finished) == ([b"1", b"2"], True, True)

    @pytest.mark.parametrize("token", [b"", b"?", b"{}", b'{"generation":true}', b'{"generation":-1}'])
    async def test_a_place_that_cannot_be_read_is_refused(self, token: bytes) -> None:
        with pytest.raises(BadDocument, match="no place in a stream"):
            await StdinSource(io.BytesIO(line(b"1"))).open(token)
