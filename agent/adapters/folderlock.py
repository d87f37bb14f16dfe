"""One process at a time on one folder: a lock that the system lets go of however its holder ends.

The one rule: the second process does not start; it says who holds the folder.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType

from agent.adapters.disk import as_ours
from agent.errors import CannotRun


class FolderLock:
    """Held from `__enter__` to `__exit__`. Raises CannotRun when another process holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def __enter__(self) -> "FolderLock":
        with as_ours(f"lock {self._path}"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise CannotRun(
                f"another process (pid {holder}) works on {self._path.parent.parent}",
                hint="stop it first, or give another --out",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
