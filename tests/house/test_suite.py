"""The suite tells how a run can be had again."""

import re
import subprocess
import sys

from houseplan import ROOT


def test_the_seed_of_the_random_order_is_said_also_when_little_else_is() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cov", "tests/domain/test_vocab.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:]
    (seed,) = re.findall(r"^the same order and data again: --randomly-seed=(\d+) ", done.stdout, flags=re.MULTILINE)
    again = subprocess.run([*command, f"--randomly-seed={seed}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"--randomly-seed={seed} " in again.stdout
