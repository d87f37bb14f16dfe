"""One process at a time on a folder, and the lock goes with its holder however that ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.adapters.folderlock import FolderLock
from agent.errors import AgentError, CannotRun

HOLDER = """
import sys, time
from pathlib import Path
from agent.adapters.folderlock import FolderLock
with FolderLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    place = tmp_path / "out" / ".state" / "lock"
    with FolderLock(place), pytest.raises(CannotRun) as told, FolderLock(place):
        pass
    assert str(told.value) == (
        f"another process (pid {os.getpid()}) works on {tmp_path / 'out'} (stop it first, or give another --out)"
    )


def test_after_it_was_let_go_another_may_hold_it(tmp_path: Path) -> None:
    place = tmp_path / ".state" / "lock"
    for _ in range(2):
        with FolderLock(place):
            assert place.read_text() == str(os.getpid())


def test_an_error_inside_lets_go(tmp_path: Path) -> None:
    place = tmp_path / ".state" / "lock"
    with pytest.raises(ZeroDivisionError), FolderLock(place):
        raise ZeroDivisionError
    with FolderLock(place):
        pass


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    place = tmp_path / ".state" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place)], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CannotRun, match=f"pid {holder.pid}"), FolderLock(place):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with FolderLock(place):
        pass


def test_a_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AgentError, match="lock"), FolderLock(tmp_path / "file" / "lock"):
        pass
