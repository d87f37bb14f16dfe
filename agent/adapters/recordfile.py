"""Record files as a FaultSource: a file that may still grow, be rotated or be cut, and standard input.

The one rule: no line is skipped in silence. What cannot be read on from where it was left starts over as a new
generation, and a notice says so. Calls that touch the disk run in a thread.
"""

import asyncio
import hashlib
import io
import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from agent.adapters.disk import as_ours
from agent.adapters.linecutter import LineCutter
from agent.adapters.recordline import KEPT, parse_line
from agent.domain.events import Position, Record
from agent.errors import AgentError, BadDocument, CannotRun, Refused, Unavailable
from agent.ports import Batch, Control

CHUNK: Final = 1_048_576
_PREFIX: Final = 1024
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where reading stands: which file (inode, hash of its first bytes), which byte, which generation."""

    inode: int
    prefix: str
    length: int
    byte: int
    generation: int

    def to_bytes(self) -> bytes:
        return orjson.dumps(self)


def _to_place(token: bytes) -> _Place:
    """Raises BadDocument: begun anew instead, the stream would count as another one and all of it a second time."""
    try:
        item = orjson.loads(token)
        if list(item) == ["generation"]:  # left by standard input: no file, but a generation to count on from
            return _Place(0, "", 0, 0, _generation_of(token))
        place = _Place(item["inode"], item["prefix"], item["length"], item["byte"], item["generation"])
    except (ValueError, TypeError, KeyError) as error:
        raise BadDocument("no place in a stream") from error
    counts = (place.inode, place.length, place.byte, place.generation)
    if not isinstance(place.prefix, str) or any(type(count) is not int or count < 0 for count in counts):
        raise BadDocument("no place in a stream")
    return place


class FileSource:
    """A FaultSource over a JSON Lines file. Offsets are the bytes where lines begin.

    A file being written is followed: over rotation (`events.jsonl` to `events.jsonl.1` and on, nothing compressed)
    and truncation; its half-written last line waits. `complete=True` says that the file is finished (a replay): its
    last line needs no newline, and `finished` tells when all is read. `interval` is how often `wait` looks, in seconds.
    """

    def __init__(self, path: Path, *, complete: bool = False, partition: int = 0, interval: float = 0.2) -> None:
        self._path = path
        self._complete = complete
        self._partition = partition
        self._interval = interval
        self._file: io.FileIO | None = None
        self._cutter = LineCutter(0, KEPT)
        self._read_to = 0
        self._inode = 0
        self._generation = 0
        self._prefix = ""
        self._prefix_length = 0
        self._half_told: tuple[int, int] | None = None
        self._notices: list[str] = []
        self.finished = False
        """All of a complete file has been given."""

    async def open(self, resume: bytes | None) -> None:
        await asyncio.to_thread(self._open, resume)

    async def read(self, limit: int) -> Batch:
        return await asyncio.to_thread(self._read, limit)

    async def wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await asyncio.to_thread(self._may_be_more):
            left = deadline - loop.time()
            if left <= 0:
                return
            await asyncio.sleep(min(self._interval, left))

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _open(self, resume: bytes | None) -> None:
        self._close()
        self._notices = []
        self.finished = False
        if resume is None:
            self._begin(self._path, 0)
            return
        place = _to_place(resume)
        left = self._find(place)
        if left is not None:
            self._begin(left, place.generation, place.byte)
            self._prefix, self._prefix_length = place.prefix, place.length
            return
        self._begin(self._path, place.generation + 1)
        self._notices.append(
            f"{self._path}: another file than the one it was left in at byte {place.byte}; if that one held more, or "
            f"there were files between, it is not read; reading this one as generation {self._generation}"
        )

    def _begin(self, path: Path, generation: int, byte: int = 0) -> None:
        try:
            with as_ours(f"open {path}"):
                _check_file(path)
                file = path.open("rb", buffering=0)
        except (Refused, Unavailable) as error:
            raise CannotRun(str(error)) from error
        self._close()
        self._file = file
        self._inode = os.fstat(file.fileno()).st_ino
        self._from(generation, byte)

    def _from(self, generation: int, byte: int) -> None:
        self._generation = generation
        self._read_to = byte
        self._cutter = LineCutter(byte, KEPT)
        self._prefix, self._prefix_length = "", 0
        self._half_told = None

    def _read(self, limit: int) -> Batch:
        items, at_end = _gather(f"read {self._path}", limit, self._fill, self._take)
        self.finished = self._complete and at_end
        notices, self._notices = tuple(self._notices), []
        place = _Place(self._inode, self._prefix, self._prefix_length, self._cutter.next_start, self._generation)
        return Batch(tuple(items), place.to_bytes(), at_end, notices)

    def _take(self, count: int) -> list[Record | Control]:
        return _take(self._cutter, count, self._generation, self._partition)

    def _fill(self) -> bool:
        """Read on until a whole line waits. False: there is none now."""
        while not self._cutter.waiting:
            if self._is_another():
                # What was begun there will not be ended: it goes to the border as it is.
                if not self._cutter.finish():
                    self._notices.append(
                        f"{self._path}: cut or written anew before byte {self._read_to}; reading it from its "
                        f"beginning as generation {self._generation + 1}"
                    )
                    self._from(self._generation + 1, 0)
            elif not self._read_chunk():
                if self._complete:
                    return self._cutter.finish()
                if not self._follow():
                    self._tell_half()
                    return False
        return True

    def _read_chunk(self) -> bool:
        chunk = os.pread(self._descriptor, CHUNK, self._read_to)
        self._read_to += len(chunk)
        self._cutter.feed(chunk)
        return bool(chunk)

    def _is_another(self) -> bool:
        """Whether the open file is not the one that was read so far: shorter, or with another beginning."""
        size = os.fstat(self._descriptor).st_size
        head = os.pread(self._descriptor, _PREFIX, 0)
        if size < self._read_to or _hash(head[: self._prefix_length]) != (self._prefix or _hash(b"")):
            return True
        if self._prefix_length < len(head):
            self._prefix, self._prefix_length = _hash(head), len(head)
        return False

    def _follow(self) -> bool:
        """At the end of the open file: go on to the next one if this one was rotated away. Whether that was so."""
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            return False
        if inode == self._inode:
            return False
        # The writer may have added to it between the last look and the renaming.
        if self._read_chunk() or self._cutter.finish():
            return True
        following = self._following()
        try:
            self._begin(following, self._generation + 1)
        except CannotRun as error:
            raise Unavailable(f"{self._path}: was rotated and cannot be opened: {error}") from error
        self._notices.append(f"{self._path}: rotated; going on with {following.name} as generation {self._generation}")
        return True

    def _following(self) -> Path:
        """The file written after the open one: rotated files count down to the present one."""
        for number, path in self._rotated():
            if number > 1 and path.stat().st_ino == self._inode:
                younger = path.with_name(f"{self._path.name}.{number - 1}")
                return younger if younger.is_file() else self._path
        return self._path

    def _rotated(self) -> list[tuple[int, Path]]:
        """Files beside ours with its name and a number or another ending; 0 for no number."""
        start = f"{self._path.name}."
        names = [name for name in os.listdir(self._path.parent) if name.startswith(start)]
        endings = ((name.removeprefix(start), name) for name in names)
        return sorted((int(e) if e.isascii() and e.isdigit() else 0, self._path.with_name(n)) for e, n in endings)

    def _find(self, place: _Place) -> Path | None:
        """The file of that place: ours, or one it was renamed to."""
        with as_ours(f"read {self._path.parent}"):
            if self._path.is_file() and self._path.stat().st_ino == place.inode:
                return self._path
            if not self._path.parent.is_dir():
                return None
            for _, path in self._rotated():
                if path.is_file() and path.stat().st_ino == place.inode:
                    with path.open("rb") as file:
                        if _hash(file.read(place.length)) == (place.prefix or _hash(b"")):
                            return path
        return None

    def _tell_half(self) -> None:
        half = (self._generation, self._cutter.start)
        if self._cutter.is_half and self._half_told != half:
            self._half_told = half
            self._notices.append(f"{self._path}: a half-written line waits at byte {self._cutter.start}")

    def _may_be_more(self) -> bool:
        if self._cutter.waiting:
            return True
        with as_ours(f"look at {self._path}"):
            if os.fstat(self._descriptor).st_size != self._read_to:
                return True
            try:
                return self._path.stat().st_ino != self._inode
            except FileNotFoundError:
                return False

    @property
    def _descriptor(self) -> int:
        if self._file is None:
            raise CannotRun(f"{self._path}: the source is not open")
        return self._file.fileno()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class StdinSource:
    """A FaultSource over a stream of bytes such as standard input, as it comes.

    It cannot go back: a resume token only makes the next run a new generation. `finished` tells when the other end
    has closed. A stream with a descriptor is never waited for longer than asked; one without is read as it is.
    """

    def __init__(self, stream: BinaryIO, *, partition: int = 0) -> None:
        self._stream = stream
        self._partition = partition
        self._generation = 0
        self._cutter = LineCutter(0, KEPT)
        self._notices: list[str] = []
        self._ended = False
        self.finished = False
        """The stream has ended and all of it has been given."""

    async def open(self, resume: bytes | None) -> None:
        if resume is not None:
            self._generation = _generation_of(resume) + 1
            self._notices = [
                f"standard input cannot be read again; reading what comes now as generation {self._generation}"
            ]

    async def read(self, limit: int) -> Batch:
        return await asyncio.to_thread(self._read, limit)

    async def wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not self._cutter.waiting and (left := deadline - loop.time()) > 0:
            if self._ended:
                await asyncio.sleep(left)
            # In slices, so that a thread left behind by a cancelled wait is soon gone.
            elif await asyncio.to_thread(self._is_ready, min(left, 0.2)):
                return

    async def close(self) -> None:
        """The stream is the caller's; nothing to let go of."""

    def _read(self, limit: int) -> Batch:
        items, at_end = _gather("read standard input", limit, self._fill, self._take)
        self.finished = self._ended and at_end
        notices, self._notices = tuple(self._notices), []
        return Batch(tuple(items), orjson.dumps({"generation": self._generation}), at_end, notices)

    def _take(self, count: int) -> list[Record | Control]:
        return _take(self._cutter, count, self._generation, self._partition)

    def _fill(self) -> bool:
        while not self._cutter.waiting:
            if self._ended or not self._is_ready(0):
                return False
            descriptor = self._descriptor()
            chunk = self._stream.read(CHUNK) if descriptor is None else os.read(descriptor, CHUNK)
            self._cutter.feed(chunk)
            if not chunk:
                self._ended = True
                self._cutter.finish()
        return True

    def _is_ready(self, seconds: float) -> bool:
        descriptor = self._descriptor()
        if descriptor is None:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _descriptor(self) -> int | None:
        try:
            return self._stream.fileno()
        except (OSError, AttributeError):
            return None


def _generation_of(token: bytes) -> int:
    """Raises BadDocument, as `_to_place` does."""
    try:
        generation = orjson.loads(token)["generation"]
    except (ValueError, TypeError, KeyError) as error:
        raise BadDocument("no place in a stream") from error
    if type(generation) is not int or generation < 0:
        raise BadDocument("no place in a stream")
    return generation


def _gather(
    doing: str, limit: int, fill: Callable[[], bool], take: Callable[[int], list[Record | Control]]
) -> tuple[list[Record | Control], bool]:
    """Up to `limit` items and whether they are the last for now. Raises as `as_ours` does, with nothing taken."""
    items: list[Record | Control] = []
    at_end = False
    try:
        with as_ours(doing):
            while len(items) < limit and not at_end:
                at_end = not fill()
                items += take(limit - len(items))
            # A full batch may still be the last: only a look tells.
            at_end = at_end or not fill()
    except AgentError:
        # What was taken must not be lost with the error; the next call meets it again.
        if not items:
            raise
    return items, at_end


def _take(cutter: LineCutter, count: int, generation: int, partition: int) -> list[Record | Control]:
    items = []
    for start, line in cutter.take(count):
        text = line if start else line.removeprefix(_BOM)
        item = parse_line(text, Position(generation, partition, start))
        if item is not None:
            items.append(item)
    return items


def _check_file(path: Path) -> None:
    """Raises CannotRun saying what stands there instead of a file."""
    if path.is_file():
        return
    if path.is_dir():
        raise CannotRun(f"{path}: is a folder", hint="name the file of JSON Lines in it")
    if path.exists():
        raise CannotRun(
            f"{path}: is no regular file but a device, pipe or socket",
            hint="name a file of JSON Lines; a pipe is read as standard input, --events -",
        )
    raise CannotRun(f"{path}: no such file", hint="name a file of JSON Lines")


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
