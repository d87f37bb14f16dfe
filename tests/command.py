"""The command `fault-agent` within the test's own process: words in, exit code and both outputs back."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from kubebuilders import the_demo
from recordlines import fault_line, write_cluster, write_lines
from rig import T0

from agent.app.cli.main import main

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
SEPARATE = "80E18402"
REF = f"n1/chip/2/{SEPARATE}@{T0}"


class Command:
    """Called with the words behind `fault-agent`."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, started: str = "fault-agent"
    ) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.started = started
        """What the command was started by: argv[0]."""

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        self._monkeypatch.setattr(sys, "argv", [self.started, *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        code = left.value.code
        shown = self._capsys.readouterr()
        return code if isinstance(code, int) else 0, shown.out, shown.err

    def replay(self, files: Path, *more: str | Path) -> tuple[int, str, str]:
        """Replay what lies in a folder made by `a_recording`."""
        return self(
            "replay", files / "events.jsonl", "--cluster", files / "cluster.json", "--out", files / "out", *more
        )


def a_recording(folder: Path, lines: Iterable[Mapping[str, Any] | str] = ()) -> Path:
    """A folder with an events file (without lines: one fault that isolates) and the cluster file of job `demo`."""
    write_cluster(folder / "cluster.json", the_demo(LABELS))
    write_lines(folder / "events.jsonl", lines or [fault_line(SEPARATE, T0, 1), {"tick": T0 + 60_000}])
    return folder


def decisions(out: str) -> list[dict[str, Any]]:
    """The lines of --json before the summary."""
    *lines, last = map(json.loads, out.splitlines())
    assert list(last) == ["summary"]
    return lines


def summary(out: str) -> dict[str, Any]:
    """What the last line of --json sums up."""
    found: dict[str, Any] = json.loads(out.splitlines()[-1])["summary"]
    return found
