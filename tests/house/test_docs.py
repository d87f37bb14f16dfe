"""The pages tell the truth about the code, and their links lead somewhere."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from houseplan import ROOT, cells, pages, rooms
from pydantic import BaseModel, SecretStr

from agent.app.cli.verbs import cli
from agent.app.settings import Settings
from agent.domain.jobs.values import FindingCode
from agent.domain.rail.decision import RULES
from agent.domain.rail.explain import BORROW_RULE
from agent.domain.rail.words import RailCode
from agent.domain.reset.life import TRANSITIONS, Signal
from agent.domain.vocab import DeadReason, Reason
from agent.wire.kubeobjects import (
    DEVICE_CONFIGURATIONS,
    GROUP_NAME,
    NODE_DEVICES,
    RANK_INDEX,
    RANK_TABLE_KEY,
    REAL,
    RINGS_PREFIX,
    SERIAL,
)
from agent.wire.ranktablefile import TableCode

PAGES = tuple(pages())
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == []


def test_the_readme_leads_to_every_page() -> None:
    linked = {(ROOT / link).resolve() for link in LINK.findall(README)}
    assert [_name(page) for page in PAGES if page.name != "README.md" and page.resolve() not in linked] == []


def test_every_room_on_the_map_exists() -> None:
    named = re.findall(r"^\| `([a-z/_]+(?:\.py)?/?)` \|", README, flags=re.MULTILINE)
    assert len(named) >= 30
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_folder_of_the_agent_is_on_the_map_and_every_room_of_the_domain_too() -> None:
    wanted = set()
    for room in rooms("agent"):
        parts = room.name.split("/")
        if room.path.name == "__init__.py" and len(parts) in (3, 4):
            wanted.add("/".join(parts[:-1]) + "/")
        elif parts[1] == "domain" and len(parts) == 3:
            wanted.add(room.name)
    wanted.discard("agent/")
    assert sorted(name for name in wanted if f"| `{name}` |" not in README) == []


def _said(*words: str, code: int | None = 0) -> list[str]:
    """Standard output of the command, which ends with `code` (None: with 0, or 1 for what it found)."""
    program = "from agent.app.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, cwd=ROOT, check=False)
    assert done.returncode in ((0, 1) if code is None else (code,)), done.stderr
    return done.stdout.decode().splitlines()


def test_the_demo_of_the_readme_is_the_demo_s(tmp_path: Path) -> None:
    (shown,) = re.findall(r"`make demo` shows.*?```\n(.*?)```", README, flags=re.DOTALL)
    said = [
        line.replace(str(tmp_path / "night"), "demo-out") for line in _said("demo", "--out", str(tmp_path / "night"))
    ]
    assert [line for line in shown.splitlines() if line.strip() != "…" and line not in said] == []


def test_the_explanation_in_the_readme_is_the_command_s() -> None:
    _, _, rest = README.partition("    $ fault-agent explain 80E18402\n")
    shown = [line.removeprefix("    ") for line in rest.partition("\n\n")[0].splitlines()]
    assert shown == _said("explain", "80E18402")


def test_every_verb_is_shown_in_the_readme() -> None:
    shown = set(re.findall(r"fault-agent ([a-z]+)", README))
    assert set(cli.commands) - {"version"} <= shown


def _keys(model: type[BaseModel], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        default = field.get_default()
        if isinstance(default, BaseModel):
            yield from _keys_of(default, f"{before}{name}.")
        else:
            yield f"{before}{name}", default


def _keys_of(given: BaseModel, before: str) -> Iterator[tuple[str, Any]]:
    for name in type(given).model_fields:
        value = getattr(given, name)
        if isinstance(value, BaseModel):
            yield from _keys_of(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _shown(value: Any) -> str:
    if value is None:
        return "left out"
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value in ("", ()):
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def test_every_setting_stands_in_the_page_with_its_default() -> None:
    page = dict(zip(cells("docs/settings.md", 0), cells("docs/settings.md", 1), strict=True))
    settings = {key: _shown(value) for key, value in _keys(Settings)}
    assert {key: page.get(key) for key in settings} == settings


def test_the_page_of_settings_names_no_key_that_does_not_exist() -> None:
    settings = {key for key, _ in _keys(Settings)}
    named = {key for key in cells("docs/settings.md", 0) if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+|mode|namespace", key)}
    assert named - settings == set()


def test_the_schema_of_the_settings_is_the_model_s() -> None:
    command = [sys.executable, str(ROOT / "schemas" / "generate.py"), "--check"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=240).returncode == 0


def test_every_reason_is_explained_once() -> None:
    explained = [reason for reason in cells("docs/reasons.md", 0) if reason.isupper()]
    assert sorted(explained) == sorted(Reason)


def test_every_reason_for_a_dead_letter_is_explained_once() -> None:
    explained = [reason for reason in cells("docs/events.md", 0) if re.fullmatch(r"[A-Z][A-Z0-9_]+", reason)]
    assert sorted(explained) == sorted(DeadReason)


def test_the_life_of_a_recovery_is_the_table_of_the_code() -> None:
    page = (ROOT / "docs" / "recovery.md").read_text(encoding="utf-8").partition("## Every transition")[2]
    rows = re.findall(r"^\| ([a-z]+) \| ([a-z_]+) \| ([a-z]+) \| ([A-Z_]+) \|$", page, re.MULTILINE)
    signals = {str(signal) for signal in Signal}
    shown = [row for row in rows if row[1] in signals]
    assert shown == [
        (str(phase), str(signal), str(after), str(reason)) for (phase, signal), (after, reason) in TRANSITIONS.items()
    ]


def test_the_rules_of_rail_borrow_are_the_rules_of_the_code() -> None:
    rows = zip(cells("docs/rails.md", 0), cells("docs/rails.md", 1), strict=False)
    shown = [(int(number), code) for number, code in rows if number.isdecimal()]
    assert shown == [*((rule.number, str(rule.code)) for rule in RULES), (28, "BORROW")]


def test_a_rule_of_rail_borrow_is_told_in_the_page_as_the_command_tells_it() -> None:
    numbers, hits, answers = (cells("docs/rails.md", column) for column in (0, 2, 3))
    shown = {number: (when, answer) for number, when, answer in zip(numbers, hits, answers, strict=False)}
    for rule in (*RULES, BORROW_RULE):
        further = "; ".join(f"{code}: {when}" for code, when in rule.further.items())
        assert shown[str(rule.number)] == (f"{rule.hits}. {further}" if further else rule.hits, rule.answer)


def test_the_examples_of_rail_borrow_are_the_commands_own() -> None:
    page = (ROOT / "docs" / "rails.md").read_text(encoding="utf-8")
    examples = re.findall(r"^    \$ fault-agent (rail .*)\n((?:(?:    .*)?\n)*)", page, flags=re.MULTILINE)
    assert len(examples) == 4
    for words, shown in examples:
        lines = [line.removeprefix("    ") for line in shown.rstrip("\n").split("\n")]
        assert lines == _said(*words.split(), code=None), words


def test_every_code_of_rail_borrow_stands_in_its_page() -> None:
    page = (ROOT / "docs" / "rails.md").read_text(encoding="utf-8")
    assert [code for code in RailCode if not re.search(rf"\b{code}\b", page)] == []


def test_every_finding_about_objects_is_explained_once() -> None:
    explained = [code for code in cells("docs/cluster-files.md", 0) if re.fullmatch(r"[A-Z_]+(, [A-Z_]+)*", code)]
    codes = [code for cell in explained for code in cell.split(", ")]
    stopping = list(TableCode)[:6]
    assert sorted(set(codes) - AMBIGUOUS) == sorted({*FindingCode, *stopping})
    assert len(codes) == len(set(codes))


AMBIGUOUS = {"RANK_DUP", "DEVICE_ID_DUP", "SERVER_ID_DUP"}
"""Codes of a rank table that can be read and from which no rank can be told."""


def test_every_code_of_a_rank_table_is_explained_in_its_page() -> None:
    told = {code for cell in cells("docs/ranktables.md", 0) for code in cell.split(", ")}
    assert [code for code in TableCode if code not in told] == []


def test_every_field_that_is_read_of_an_object_stands_in_the_page_of_cluster_files() -> None:
    page = (ROOT / "docs" / "cluster-files.md").read_text(encoding="utf-8")
    keys = (REAL, *DEVICE_CONFIGURATIONS, *NODE_DEVICES, GROUP_NAME, RANK_INDEX, SERIAL, RINGS_PREFIX, RANK_TABLE_KEY)
    short = [key.removeprefix("ascend.kubectl.kubernetes.io") for key in keys]
    assert [key for key in short if key not in page] == []


def test_the_minimal_cluster_file_does_what_its_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cluster-files.md").read_text(encoding="utf-8")
    for name, mark in (("cluster.yaml", "yaml"), ("events.jsonl", "json")):
        (text,) = re.findall(rf"```{mark}\n(.*?)```", page, flags=re.DOTALL)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (words,) = re.findall(r"^    fault-agent (replay .*)$", page, flags=re.MULTILINE)
    command = [sys.executable, "-c", "from agent.app.cli.main import main; main()", *words.split()]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (0, b"")
    (shown,) = re.findall(r"```\n(.*?)```", page.partition("among other lines answers")[2], flags=re.DOTALL)
    assert [line for line in shown.splitlines() if line not in done.stdout.decode().splitlines()] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_names_no_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w.])/(?:home|root|work|tmp|Users|opt)/\S*", text) == []
    assert re.findall(r"https?://(?!semver\.org)\S+", text) == []
