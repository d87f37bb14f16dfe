"""The floors of the house, as pyproject.toml draws them."""

import subprocess
import sys

from houseplan import ROOT

LINT = "import sys; from importlinter.application.use_cases import lint_imports as lint; sys.exit(not lint())"


def test_imports_go_downwards_only() -> None:
    command = [sys.executable, "-c", f"from importlinter import configuration as c; c.configure(); {LINT}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-500:]
