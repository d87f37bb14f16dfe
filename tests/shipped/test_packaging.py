"""What is installed works anywhere: from a wheel and from an editable install, far from the sources, without a home."""

import json
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from houseplan import ROOT

LIMIT_S = 240
"""Of one child process; hanging is a failure, slowness is none."""


def _run(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """A command in `folder`, with an empty home and no variable of ours but the path of the system."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONNOUSERSITE": "1"}
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command: list[str | Path] = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", out, ROOT]
    done = _run(command, tmp_path_factory.mktemp("build"))
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def from_wheel(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`fault-agent` of an environment that holds the wheel, and the dependencies of this one beside it."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    # A path file adds the folder without its own path files, so the editable install of these sources stays unseen.
    (inner,) = home.glob("lib/python*/site-packages")
    theirs = [path for path in map(Path, sys.path) if path.name == "site-packages"]
    (inner / "dependencies.pth").write_text("\n".join(map(str, theirs)) + "\n", encoding="utf-8")
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        wheel,
    ]
    done = _run(pip, home)
    assert done.returncode == 0, done.stderr[-1500:]
    return home / "bin" / "fault-agent"


@pytest.fixture(scope="module")
def from_sources() -> Path:
    """`fault-agent` of the editable install that runs these tests."""
    return Path(sys.executable).parent / "fault-agent"


@pytest.fixture(params=["from_wheel", "from_sources"])
def command(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_the_wheel_holds_what_the_agent_reads_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "agent/_shipped/policies/chip.yaml",
        "agent/_shipped/policies/rules.yaml",
        "agent/_shipped/schemas/policy.schema.json",
        "agent/_shipped/schemas/settings.schema.json",
        "agent/app/scenario/events.jsonl",
        "agent/app/scenario/expected.json",
    ):
        assert wanted in names
    assert [name for name in names if name.startswith("tests") or "/test_" in name] == []
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"agent"}


def test_the_wheel_is_the_agent_that_runs(from_wheel: Path, tmp_path: Path) -> None:
    done = _run([from_wheel.parent / "python", "-c", "import agent; print(agent.__file__)"], tmp_path)
    assert done.stdout.startswith(str(from_wheel.parents[1]))


def test_the_demo_ends_as_expected_in_another_folder(command: Path, tmp_path: Path) -> None:
    done = _run([command, "demo", "--out", "night"], tmp_path)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]
    assert "The scenario ended as expected." in done.stdout
    assert (tmp_path / "night" / "volcano-system" / "vcjob-fault-npu-cm.json").is_file()


def test_explain_knows_the_shipped_tables_in_another_folder(command: Path, tmp_path: Path) -> None:
    done = _run([command, "explain", "80E18402", "--json"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (told,) = json.loads(done.stdout)
    assert (told["code"], told["level"], told["known"], told["source"]) == ("80E18402", "SeparateNPU", True, "dcmi")
