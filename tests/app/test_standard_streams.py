"""What becomes of the command when its output cannot be written: an exit code and a line, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import LABELS, SEPARATE
from kubebuilders import the_demo
from recordlines import fault_line, journal, write_cluster, write_lines
from rig import T0

PROGRAM = "from agent.app.cli.main import main; main()"
FULL = "standard output cannot be written: No space left on device"


def shell(redirection: str, *words: str | Path, encoding: str = "utf-8", unbuffered: str = "") -> tuple[int, str, str]:
    """The command under a shell's redirection: exit code and what still came out."""
    script = f'exec "$0" -c "{PROGRAM}" "$@" {redirection}'
    done = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable, *map(str, words)],
        capture_output=True,
        check=False,
        timeout=240,
        env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUNBUFFERED": unbuffered},
    )
    return done.returncode, done.stdout.decode(encoding), done.stderr.decode(encoding)


def unread(streams: tuple[str, ...], *words: str | Path, unbuffered: str) -> int:
    """Exit code of the command when nobody reads these streams any more."""
    reader, writer = os.pipe()
    os.close(reader)
    out, err = (writer if name in streams else subprocess.DEVNULL for name in ("stdout", "stderr"))
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    try:
        return subprocess.run(command, check=False, timeout=240, env=env, stdout=out, stderr=err).returncode
    finally:
        os.close(writer)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_cluster(tmp_path / "cluster.json", the_demo(LABELS))
    write_lines(tmp_path / "events.jsonl", [fault_line(SEPARATE, T0, 1), {"tick": T0 + 1}])
    return tmp_path


def replay(files: Path, redirection: str, **more: str) -> tuple[int, str, str]:
    words = ("replay", files / "events.jsonl", "--cluster", files / "cluster.json", "--out", files / "out")
    return shell(redirection, *words, **more)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("version",), ("--help",), ("policy", "show"), ("config", "show")])
def test_a_full_output_is_told_in_one_line(words: tuple[str, ...], unbuffered: str) -> None:
    assert shell("> /dev/full", *words, unbuffered=unbuffered) == (3, "", f"fault-agent: {FULL}\n")


def test_a_replay_whose_output_is_full_says_so_and_has_kept_its_reasons(files: Path) -> None:
    code, _, err = replay(files, "> /dev/full")
    assert (code, err) == (3, f"fault-agent: {FULL}\n")
    assert journal(files / "out") != []


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("explain", "nope"), ("replay",), ("config", "show", "--config", "/nowhere")])
def test_an_error_that_cannot_be_told_has_its_exit_code_all_the_same(words: tuple[str, ...], unbuffered: str) -> None:
    """Also where the interpreter keeps what could not be written and tries once more as it ends."""
    assert shell("2> /dev/full", *words, unbuffered=unbuffered) == (2, "", "")
    assert unread(("stderr",), *words, unbuffered=unbuffered) == 2


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_whoever_stops_reading_changes_neither_the_work_nor_its_exit_code(files: Path, unbuffered: str) -> None:
    assert unread(("stdout",), "version", unbuffered=unbuffered) == 0
    words = ("replay", files / "events.jsonl", "--cluster", files / "cluster.json", "--out", files / "out")
    assert unread(("stdout", "stderr"), *words, unbuffered=unbuffered) == 0
    assert {line["reason"] for line in journal(files / "out")} == {"WRITTEN", "FAULT_SHOWN", "ISOLATION_ONLY"}
    assert (files / "out" / "volcano-system" / "vcjob-fault-npu-cm.json").is_file()


@pytest.mark.parametrize("redirection", ["2>&-", "<&- 2>&-"])
def test_with_no_standard_error_the_answer_comes_and_no_file_gets_what_was_said(files: Path, redirection: str) -> None:
    code, out, err = replay(files, redirection)
    assert (code, err) == (0, "")
    assert "\n1 record (and 1 line of objects, probes and ticks), " in out
    assert {line["reason"] for line in journal(files / "out")} == {"WRITTEN", "FAULT_SHOWN", "ISOLATION_ONLY"}


@pytest.mark.parametrize("redirection", [">&-", "<&- >&- 2>&-"])
def test_with_no_standard_output_the_work_is_done_all_the_same(files: Path, redirection: str) -> None:
    assert replay(files, redirection) == (0, "", "")
    assert {line["reason"] for line in journal(files / "out")} == {"WRITTEN", "FAULT_SHOWN", "ISOLATION_ONLY"}


def test_a_terminal_without_our_signs_gets_their_numbers(files: Path) -> None:
    code, out, _ = replay(files, "", encoding="iso-8859-1")
    assert code == 0
    assert "\\u2192 volcano-system/vcjob-fault-npu-cm" in out
