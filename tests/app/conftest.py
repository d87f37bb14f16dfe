"""What tests of the command share."""

from pathlib import Path

import pytest
from command import Command, a_recording


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line, in this process."""
    return Command(capsys, monkeypatch)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with an events file and a cluster file."""
    return a_recording(tmp_path)
