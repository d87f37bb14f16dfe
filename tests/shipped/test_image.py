"""The image: a named Python, the lock, the command itself as a numbered user."""

import json

from houseplan import ROOT
from manifests import DEPLOY


def instructions() -> list[tuple[str, str]]:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return [
        (word, rest) for word, _, rest in (line.partition(" ") for line in lines if line and not line.startswith("#"))
    ]


def test_the_image_stands_on_a_named_python_and_fetches_nothing_but_the_lock() -> None:
    assert ("ARG", "PYTHON=python:3.11-slim") in instructions()
    assert [rest for word, rest in instructions() if word == "FROM"] == ["${PYTHON} AS build", "${PYTHON}"]
    runs = [json.loads(rest) for word, rest in instructions() if word == "RUN"]
    pip = ["/opt/fault-agent/bin/python", "-m", "pip"]
    assert runs == [
        ["python", "-m", "venv", "/opt/fault-agent"],
        [*pip, "install", "--only-binary=:all:", "--require-hashes", "-r", "requirements.lock"],
        [*pip, "install", "--no-index", "--no-deps", "--no-build-isolation", "."],
        [*pip, "uninstall", "--yes", "pip", "setuptools"],
    ]
    assert {word for word, _ in instructions()} == {
        "ARG", "FROM", "WORKDIR", "ENV", "RUN", "COPY", "USER", "ENTRYPOINT", "CMD",
    }  # fmt: skip


def test_the_image_runs_the_command_itself_as_a_numbered_user() -> None:
    last = dict(instructions())
    assert last["USER"] == "10001:10001"
    assert json.loads(last["ENTRYPOINT"]) == ["fault-agent"]


def test_the_image_copies_what_the_build_context_lets_through() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == let_through
    assert "*" in ignored
    assert all((ROOT / source).exists() for source in copied)
