"""A site's overrides: what they lie over, until when, and that each mistake is told with its line."""

from datetime import date

import pytest

from agent.domain.policy import Override, Policy
from agent.domain.vocab import Plane
from agent.errors import BadPolicy
from agent.wire.policyfile import load_policy

CHIP = b'version: 1\nlevels:\n  SeparateNPU:\n    "80E18402": {module: HBM, meaning: "rows isolated"}\n'
NODE = b'version: 1\nlevels:\n  PreSeparateFault:\n    "2C000031":\n'
LAST_DAY = date(2026, 12, 31)


def laid(text: str, today: date | None = None) -> Policy:
    files = {"chip.yaml": CHIP, "node.yaml": NODE, "/site/overrides.yaml": text.encode()}
    return load_policy(files, today)


def one(table: str, code: str, level: str, expires: str = "2026-12-31") -> str:
    return f'version: 1\n{table}:\n  "{code}": {{level: {level}, reason: "ticket 4711", expires: {expires}}}\n'


def test_an_override_changes_the_level_and_keeps_what_is_known_of_the_code() -> None:
    rule = laid(one("chip", "80e18402", "RestartNPU")).chip[0x80E18402]
    assert (rule.code, rule.level, rule.place) == ("80E18402", "RestartNPU", "/site/overrides.yaml:3")
    assert (rule.meaning, rule.module) == ("rows isolated", "HBM")
    assert rule.override == Override("ticket 4711", LAST_DAY, "SeparateNPU", "chip.yaml:4")


def test_a_rating_names_the_override_and_its_line() -> None:
    rating = laid(one("chip", "80E18402", "RestartNPU")).rate(Plane.CHIP, "80e18402", 3)
    assert (rating.level, rating.rule, rating.place) == ("RestartNPU", "chip-override", "/site/overrides.yaml:3")


def test_a_code_that_no_table_lists_is_added() -> None:
    policy = laid(one("node", "2c0000ff", "SeparateFault", "never"))
    assert policy.node["2C0000FF"].override == Override("ticket 4711", None)
    assert policy.node["2C0000FF"].level == "SeparateFault"
    assert policy.node["2C000031"].override is None


@pytest.mark.parametrize(
    ("today", "level"),
    [
        pytest.param(date(2026, 12, 31), "RestartNPU", id="on-its-last-day"),
        pytest.param(date(2027, 1, 1), "SeparateNPU", id="the-day-after"),
        pytest.param(None, "RestartNPU", id="no-day-asked"),
    ],
)
def test_an_override_holds_until_the_end_of_its_last_day(today: date | None, level: str) -> None:
    assert laid(one("chip", "80E18402", "RestartNPU"), today).chip[0x80E18402].level == level


def test_an_expired_override_gives_the_digest_of_none() -> None:
    plain = load_policy({"chip.yaml": CHIP, "node.yaml": NODE})
    text = one("chip", "80E18402", "RestartNPU")
    assert laid(text, date(2027, 1, 1)).digest == plain.digest
    assert laid(text).digest != plain.digest


@pytest.mark.parametrize("text", ["version: 1\n", "version: 1\nchip:\n"], ids=["nothing", "an-empty-table"])
def test_a_file_without_entries_changes_nothing(text: str) -> None:
    assert laid(text) == load_policy({"chip.yaml": CHIP, "node.yaml": NODE})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(
            "version: 1\nchips:\n", "overrides.yaml:2: the file has no key 'chips'; did you mean 'chip'", id="table"
        ),
        pytest.param(one("chip", "80E18402", "SeperateNPU"), "did you mean 'SeparateNPU'?", id="level"),
        pytest.param(one("chip", "80E18402", "ManuallySeparateNPU"), "level cannot be 'ManuallyS", id="counted-level"),
        pytest.param(one("node", "2C000031", "RestartNPU"), "level cannot be 'RestartNPU'", id="level-of-other-plane"),
        pytest.param(one("chip", "81078603", "RestartNPU"), "is a network code and cannot be RestartNPU", id="network"),
        pytest.param(one("chip", "80E18402x", "RestartNPU"), "'80E18402x' is no chip code", id="code"),
        pytest.param(
            'version: 1\nchip:\n  020001002: {level: SeparateNPU, reason: "r", expires: never}\n',
            "overrides.yaml:3: YAML reads '020001002' as a number; a key of chip must be text, put it in quotes",
            id="unquoted",
        ),
        pytest.param(one("chip", "80E18402", "RestartNPU", "soon"), "expires (or never) must be a day", id="day"),
        pytest.param(
            one("chip", "80E18402", "RestartNPU", "2026-02-30"), "must be a day such as 2026-12-31", id="no-day"
        ),
        pytest.param(
            'version: 1\nchip:\n  "80E18402": {level: RestartNPU}\n',
            "overrides.yaml:3: the override of '80E18402' has no reason\n"
            "/site/overrides.yaml:3: the override of '80E18402' has no expires",
            id="no-reason",
        ),
        pytest.param('version: 1\nchip:\n  "80E18402": RestartNPU\n', "must be a mapping", id="level-alone"),
        pytest.param(
            one("chip", "80E18402", "RestartNPU").replace("reason", "resaon"), "did you mean 'reason'?", id="key"
        ),
        pytest.param(
            one("chip", "80E18402", "RestartNPU")
            + '  "080e18402": {level: SeparateNPU, reason: "again", expires: never}\n',
            "overrides.yaml:4: '080e18402' is shadowed by the entry of the same code in line 3",
            id="twice",
        ),
        pytest.param("version: 1\nchip: [1]\n", "overrides.yaml:2: chip must be a mapping", id="list"),
        pytest.param("chip:\n", "overrides.yaml:1: the file has no 'version'", id="no-version"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(BadPolicy) as caught:
        laid(text)
    assert told in str(caught.value)
