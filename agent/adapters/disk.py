"""Files that are whole at every moment: replaced by rename, guarded by one lock file per folder tree.

For the adapters that keep state on disk. The one rule: only a holder of the lock writes, and a reader never needs it.
All calls block; callers run them in a thread.
"""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from agent.errors import AgentError, Refused, Unavailable

LOCK_PATIENCE: Final = 10.0
"""Seconds to wait for another process's lock; a write under it takes milliseconds."""
_LOCK_PAUSE: Final = 0.002
_RACY_NS: Final = 2_000_000_000
"""A file touched this short a time ago may change again without its stat showing it (coarse file times)."""

Signature = tuple[int, int, int, int]
"""Inode, size, modification and change time: differs when the file may have changed."""


def signature(status: os.stat_result) -> Signature:
    """What to compare to see that a file has not changed."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_settled(status: os.stat_result) -> bool:
    """Whether the file was last touched long enough ago for its signature to be relied on."""
    return time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _RACY_NS


@contextmanager
def as_ours(doing: str) -> Iterator[None]:
    """Turn the system's errors into the agent's: no right to write is Refused, anything else Unavailable."""
    try:
        yield
    except PermissionError as error:
        raise Refused(f"{doing}: {error}") from error
    except OSError as error:
        raise Unavailable(f"{doing}: {error}") from error


class Folder:
    """A folder tree this and other processes write to. `durable=False` leaves out every fsync, for replays."""

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        self.root = root
        self.durable = durable

    @contextmanager
    def locked(self) -> Iterator[int]:
        """Hold `<root>/.lock`, making the root if need be; gives the lock file's descriptor.

        The system lets go of the lock of a killed process. Raises Unavailable when another keeps it too long.
        """
        with as_ours(f"lock {self.root}"):
            self.make(self.root)
            descriptor = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            hold(descriptor, self.root)
            yield descriptor
        finally:
            os.close(descriptor)

    def make(self, folder: Path) -> None:
        """Make a folder and what leads to it, so that it survives a power cut."""
        if folder.is_dir():
            return
        self.make(folder.parent)
        folder.mkdir(exist_ok=True)
        self.sync(folder.parent)

    def replace(self, path: Path, data: bytes) -> None:
        """Give a file new content, whole or not at all. Call with the lock held."""
        self.replace_all({path: data})

    def replace_all(self, files: Mapping[Path, bytes]) -> None:
        """Give files new content, each whole or not at all. Call with the lock held.

        A temporary file has a fixed name beside its target: what a killed writer left is overwritten by the next.
        """
        folders: dict[Path, None] = {}
        for path, data in files.items():
            if path.parent not in folders:
                self.make(path.parent)
                folders[path.parent] = None
            temporary = _temporary(path)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                write_all(descriptor, data)
                if self.durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
        for folder in folders:
            self.sync(folder)

    def remove(self, path: Path) -> None:
        """Take a file away for good, with what a killed writer may have left of it. Call with the lock held."""
        _temporary(path).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        self.sync(path.parent)

    def sync(self, folder: Path) -> None:
        """Make the folder's entries durable."""
        if not self.durable:
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def hold(descriptor: int, place: Path, patience: float = LOCK_PATIENCE) -> None:
    """Lock an open file for this descriptor alone. Raises Unavailable after `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise Unavailable(f"lock {place}: another process has held it for {patience:.0f} s") from error
            time.sleep(_LOCK_PAUSE)
        else:
            return


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte, however many calls the system wants for it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_or_none(path: Path) -> bytes | None:
    """A file's bytes, or None when it is not there. Raises Unavailable, Refused."""
    try:
        with as_ours(f"read {path}"):
            return path.read_bytes()
    except AgentError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")
