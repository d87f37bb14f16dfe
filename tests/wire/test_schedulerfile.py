"""The scheduler's configuration: is the plugin for NPUs there, and would it take its init-params; one test a row."""

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import BadDocument
from agent.wire.schedulerfile import KEY, LEVELS, PARAMS, PLACE, Scheduler, parse_scheduler

PAGE = (Path(__file__).parents[2] / "docs" / "job-settings.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## The scheduler's own configuration")[2]
ROWS = re.findall(r"^\| `([A-Za-z-]+)` \| ([^|]+) \| ([^|]+) \| `([^`]+)` \| (at the start|each s)", SECTION, re.M)
SHIPPED = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enableNodeOrder: false
  - name: volcano-npu_v7.3.0_linux-aarch64
- plugins:
  - name: drf
configurations:
- name: init-params
  arguments: {"grace-over-time":"900","presetVirtualDevice":"true","useClusterInfoManager":"false"}
"""


def with_params(**given: object) -> Scheduler:
    text = yaml.safe_dump({"configurations": [{"name": "init-params", "arguments": given}]})
    return parse_scheduler({KEY: text})


def test_the_plugin_and_its_params_are_found() -> None:
    assert parse_scheduler({KEY: SHIPPED}) == Scheduler(
        "volcano-npu_v7.3.0_linux-aarch64",
        {"grace-over-time": "900", "presetVirtualDevice": "true", "useClusterInfoManager": "false"},
    )


@pytest.mark.parametrize(
    ("text", "plugin"),
    [
        ("", None),
        ("{}", ""),
        ("tiers: [{plugins: [{name: gang}]}]", ""),
        ("tiers: [{plugins: [{name: volcano-npux}, {name: 7}, {}]}, {}]", ""),
        ("tiers: [{plugins: [{name: volcano-npu}]}]", "volcano-npu"),
        (
            "tiers: [{plugins: [{name: volcano-npu_a}]}, {plugins: [{name: volcano-npu_b}]}]",
            "volcano-npu_a, volcano-npu_b",
        ),
    ],
)
def test_a_plugin_is_configured_where_a_tier_names_it(text: str, plugin: str | None) -> None:
    if plugin is None:
        with pytest.raises(BadDocument):
            parse_scheduler({KEY: text})
    else:
        assert parse_scheduler({KEY: text}) == Scheduler(plugin)


def test_the_page_has_every_param() -> None:
    assert {row[0] for row in ROWS} == {*PARAMS, LEVELS}
    assert len(ROWS) == 11


@pytest.mark.parametrize(("name", "values", "absent", "bad", "read"), ROWS, ids=[row[0] for row in ROWS])
def test_a_param_of_the_page(name: str, values: str, absent: str, bad: str, read: str) -> None:
    for value in re.findall(r"`([^`]+)`", values):
        assert with_params(**{name: value}).problems == ()
    (problem,) = with_params(**{name: bad}).problems
    assert problem.startswith(f"init-params {name}: ")
    if name != LEVELS:
        assert (PARAMS[name].default, PARAMS[name].once) == (absent, read == "at the start")
        assert problem.endswith(f"; what the plugin makes of it is not known; without it, it takes {absent}")


@pytest.mark.parametrize(
    ("seconds", "good"),
    [
        ("1", False),
        ("2", True),
        ("9", True),
        ("99", True),
        ("3600", True),
        ("3601", False),
        ("04", False),
        ("-2", False),
    ],
)
def test_the_grace_is_two_seconds_to_an_hour(seconds: str, *, good: bool) -> None:
    assert (not with_params(**{"grace-over-time": seconds}).problems) is good


def test_every_whole_number_of_two_to_3600_is_a_grace_and_no_other() -> None:
    taken = [n for n in range(10_000) if PARAMS["grace-over-time"].shape.fullmatch(str(n))]
    assert taken == list(range(2, 3601))


def test_values_without_quotes_are_read_as_they_stand() -> None:
    given = "{grace-over-time: 60, forceEnqueue: false, nslb-version: 2.0}"
    found = parse_scheduler({KEY: f"configurations: [{{name: init-params, arguments: {given}}}]"})
    assert found.params == {"grace-over-time": "60", "forceEnqueue": "false", "nslb-version": "2.0"}
    assert found.problems == ()


def test_other_configurations_and_names_that_are_not_known_are_left_alone() -> None:
    text = "configurations: [{name: other, arguments: [1]}, {name: init-params, arguments: {my-own: x}}]"
    assert parse_scheduler({KEY: text}).problems == ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, f"{PLACE}: has no key {KEY}"),
        ({KEY: "- 1"}, f"{PLACE}: {KEY}: is no mapping"),
        ({KEY: "tiers: 1"}, f"{PLACE}: {KEY}: tiers is no list of mappings"),
        ({KEY: "tiers: [{plugins: x}]"}, f"{PLACE}: {KEY}: tiers[0]: plugins is no list of mappings"),
        ({KEY: "configurations: [1]"}, f"{PLACE}: {KEY}: configurations is no list of mappings"),
        ({KEY: "configurations: [{name: init-params, arguments: x}]"}, "init-params: arguments is no mapping"),
        ({KEY: "a: ["}, f"{PLACE}: {KEY}: no YAML that can be read"),
    ],
)
def test_what_the_scheduler_could_not_read_names_the_place(data: dict[str, str], said: str) -> None:
    with pytest.raises(BadDocument) as bad:
        parse_scheduler(data)
    assert said in str(bad.value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "arguments", "x"]), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["tiers", "configurations", "actions"]), VALUES))
def test_any_yaml_gives_a_scheduler_or_that_error(found: object) -> None:
    with suppress(BadDocument):
        assert isinstance(parse_scheduler({KEY: json.dumps(found)}), Scheduler)
