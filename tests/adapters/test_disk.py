"""Files that are whole: the lock, leftovers, and errors in the agent's words."""

import os
from pathlib import Path

import pytest

from agent.adapters.disk import Folder, as_ours, hold, read_or_none
from agent.errors import Refused, Unavailable


def test_a_lock_that_another_keeps_is_waited_for_only_so_long(tmp_path: Path) -> None:
    with Folder(tmp_path).locked():
        descriptor = os.open(tmp_path / ".lock", os.O_RDWR)
        with pytest.raises(Unavailable, match="another process"):
            hold(descriptor, tmp_path, patience=0)
    hold(descriptor, tmp_path, patience=0)
    os.close(descriptor)


def test_errors_of_the_system_become_ours() -> None:
    with pytest.raises(Refused), as_ours("write"):
        raise PermissionError
    with pytest.raises(Unavailable, match="write: disk full"), as_ours("write"):
        raise OSError("disk full")


def test_an_absent_file_is_none_and_a_folder_in_its_place_an_error(tmp_path: Path) -> None:
    assert read_or_none(tmp_path / "none") is None
    (tmp_path / "file").touch()
    assert read_or_none(tmp_path / "file" / "none") is None
    with pytest.raises(Unavailable):
        read_or_none(tmp_path)


def test_a_link_left_as_temporary_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".x.tmp").symlink_to(tmp_path / "elsewhere")
    folder = Folder(tmp_path)
    with pytest.raises(Unavailable), folder.locked(), as_ours("write"):
        folder.replace(tmp_path / "x", b"1")
    assert not (tmp_path / "elsewhere").exists()


def test_removing_takes_the_leftover_along(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / ".x.tmp").write_bytes(b"half")
    folder.replace(tmp_path / "deep" / "x", b"1")
    folder.remove(tmp_path / "x")
    folder.remove(tmp_path / "deep" / "x")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
