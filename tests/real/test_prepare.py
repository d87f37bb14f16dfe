"""Preparing the services: a folder is whole or not there, a second run builds nothing, a gap is said plainly.

The one rule: nothing is downloaded or compiled here; `go` and `mvn` are short scripts that leave what theirs would.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PREPARE = Path(__file__).parent.parent / "services" / "prepare.py"
GO = """#!/bin/sh
echo run >> "$CALLS"
while [ "$1" != -o ]; do shift; done
touch "$2/kube-apiserver" "$2/kubectl"
[ -z "$BREAK" ] || { echo "no room left" >&2; exit 1; }
touch "$2/etcd"
"""
MVN = """#!/bin/sh
mkdir lib && echo other > lib/kafka-clients-4.1.2.jar
"""


class Machine:
    """A PATH and a cache of the test's own."""

    def __init__(self, root: Path, **programs: str) -> None:
        self.cache, self.calls, self._path = root / "cache", root / "calls", root / "bin"
        self._path.mkdir()
        for name, script in {"openssl": "#!/bin/sh\n", "java": "#!/bin/sh\n", **programs}.items():
            (self._path / name).write_text(script)
            (self._path / name).chmod(0o755)
        for name in ("sh", "touch", "mkdir"):
            (self._path / name).symlink_to(f"/bin/{name}")

    def begin(self, *arguments: str, **env: str) -> "subprocess.Popen[str]":
        given = {"PATH": str(self._path), "XDG_CACHE_HOME": str(self.cache), "CALLS": str(self.calls), **env}
        command = [sys.executable, str(PREPARE), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env={**os.environ, **given}, stdout=pipe, stderr=pipe, text=True)

    def run(self, *arguments: str, **env: str) -> tuple[int, str, str]:
        with self.begin(*arguments, **env) as process:
            out, err = process.communicate(timeout=30)
            return process.returncode, out, err

    def runs(self) -> int:
        return len(self.calls.read_text().splitlines())

    def folders(self) -> list[Path]:
        return [path for path in (self.cache / "ascend-fault-agent").iterdir() if path.is_dir()]


def test_the_second_run_finds_what_the_first_built(tmp_path: Path) -> None:
    machine = Machine(tmp_path, go=GO)
    assert machine.run("kube")[0] == 0
    assert machine.run("kube")[0] == 0
    assert machine.runs() == 1
    [folder] = machine.folders()
    assert sorted(path.name for path in folder.iterdir()) == ["etcd", "kube-apiserver", "kubectl"]


def test_two_runs_at_once_build_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, go=GO)
    with machine.begin("kube") as one, machine.begin("kube") as other:
        one.communicate(timeout=30)
        other.communicate(timeout=30)
    assert (one.returncode, other.returncode, machine.runs()) == (0, 0, 1)


def test_a_build_that_fails_leaves_nothing_and_shows_its_last_lines(tmp_path: Path) -> None:
    machine = Machine(tmp_path, go=GO)
    code, out, _ = machine.run("kube", BREAK="1")
    assert code == 3
    assert "no room left" in out
    assert machine.folders() == []
    assert machine.run("kube")[0] == 0


def test_a_missing_program_is_named_with_what_to_install_and_the_others_go_on(tmp_path: Path) -> None:
    machine = Machine(tmp_path, go=GO)
    code, out, err = machine.run("kafka", "kube", "--json")
    told = json.loads(out)
    assert code == 3
    assert "mvn: install Apache Maven" in told["kafka"]["why"]
    assert (told["kafka"]["ready"], told["kube"]["ready"]) == (False, True)
    assert "cannot be made ready" in err


def test_jars_that_are_not_the_pinned_ones_are_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, mvn=MVN)
    code, out, _ = machine.run("kafka")
    assert code == 3
    assert "kafka-clients-4.1.2.jar" in out
    assert machine.folders() == []


def test_a_check_builds_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, go=GO, mvn=MVN)
    code, out, _ = machine.run("--check")
    assert (code, out.count("not built yet")) == (3, 3)
    assert not machine.cache.exists()


@pytest.mark.parametrize("arguments", [["zookeeper"], ["--chek"]], ids=["service", "option"])
def test_an_unknown_word_is_wrong_usage(arguments: list[str], tmp_path: Path) -> None:
    assert Machine(tmp_path).run(*arguments)[0] == 2
