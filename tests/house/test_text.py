"""The project speaks of the field and of itself, not of how it came about."""

import re
import subprocess

from houseplan import ROOT

FOREIGN = re.compile(
    "|".join(
        (r"\bseed[s]? 0\d\d\b", r"\bS00\d\b", r"/wo" + r"rk/", r"\bclau" + r"de\b", r"\bissue #?\d", r"\bLL" + r"M\b")
    ),
    re.IGNORECASE,
)


def test_no_file_speaks_of_its_making() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    names = listed.stdout.split("\n") if listed.returncode == 0 else []
    found = []
    for name in names:
        path = ROOT / name
        if path.suffix not in (".py", ".md", ".toml", ".yaml", ".yml") or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if FOREIGN.search(line):
                found.append(f"{name}:{number}: {line.strip()[:80]}")
    assert found == []
