"""ClusterD's ConfigMaps about manual separation: what it would take, what it would refuse (contracts.md §5.6)."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.isolation import Isolation
from agent.domain.vocab import HOUR, Millis
from agent.errors import BadDocument
from agent.wire.isolationfile import CONFIG_KEY, parse_isolation, parse_manual_info

SHIPPED = """\
enabled: true
separate:
  fault_window_hours: 24
  fault_threshold: 3
release:
  fault_free_hours: 48
"""


def policy(window: Any = 24, threshold: Any = 3, free: Any = 48, enabled: Any = True) -> Isolation:
    text = json.dumps(
        {
            "enabled": enabled,
            "separate": {"fault_window_hours": window, "fault_threshold": threshold},
            "release": {"fault_free_hours": free},
        }
    )
    return parse_isolation({CONFIG_KEY: text})


def test_the_shipped_policy_is_the_default() -> None:
    assert parse_isolation({CONFIG_KEY: SHIPPED}) == Isolation()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"window": 1}, Isolation(window=Millis(HOUR))),
        ({"window": 720}, Isolation(window=Millis(720 * HOUR))),
        ({"threshold": 1}, Isolation(threshold=1)),
        ({"threshold": 50}, Isolation(threshold=50)),
        ({"free": 1}, Isolation(free=Millis(HOUR))),
        ({"free": 240}, Isolation(free=Millis(240 * HOUR))),
        ({"free": -1}, Isolation(free=None)),
        ({"enabled": False, "window": 0}, Isolation(enabled=False)),
    ],
)
def test_a_policy_in_range_is_taken(given: dict[str, Any], expected: Isolation) -> None:
    assert policy(**given) == expected


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"window": 0}, "separate.fault_window_hours"),
        ({"window": 721}, "separate.fault_window_hours"),
        ({"window": "24"}, "separate.fault_window_hours"),
        ({"window": True}, "separate.fault_window_hours"),
        ({"threshold": 0}, "separate.fault_threshold"),
        ({"threshold": 51}, "separate.fault_threshold"),
        ({"threshold": None}, "separate.fault_threshold"),
        ({"free": 0}, "release.fault_free_hours"),
        ({"free": 241}, "release.fault_free_hours"),
        ({"free": -2}, "release.fault_free_hours"),
        ({"free": 1.5}, "release.fault_free_hours"),
        ({"enabled": "yes"}, "enabled"),
    ],
)
def test_a_policy_out_of_range_is_refused_with_its_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(BadDocument) as caught:
        policy(**given)
    assert field in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1", "enabled: true", "a: [", "enabled: true\nseparate: 3", "\t- x"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(BadDocument):
        parse_isolation({CONFIG_KEY: text})


@given(st.text(max_size=80))
def test_any_text_is_a_policy_or_a_named_mistake(text: str) -> None:
    with suppress(BadDocument):
        assert parse_isolation({CONFIG_KEY: text}).threshold in range(1, 51)


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ('{"Total":[],"Detail":{}}', set()),
        ('{"Total":["Ascend910-0","Ascend910-15"],"Detail":{}}', {0, 15}),
        ('{"Total":["npu-3"]}', {3}),
    ],
)
def test_the_devices_of_a_node_are_read(text: str, devices: set[int]) -> None:
    assert parse_manual_info(text, "here").keys() == devices


@pytest.mark.parametrize(
    ("detail", "at"),
    [
        pytest.param('[{"FaultCode":"80E01801","LastSeparateTime":5},{"LastSeparateTime":7}]', 7, id="of two codes"),
        pytest.param("[]", 0, id="none"),
        pytest.param('[{"LastSeparateTime":"7"},{},3,{"LastSeparateTime":true}]', 0, id="no times"),
        pytest.param('{"LastSeparateTime":7}', 0, id="no list"),
    ],
)
def test_when_each_was_last_separated_is_read_as_far_as_it_is_told(detail: str, at: int) -> None:
    text = f'{{"Total":["Ascend910-0","Ascend910-1"],"Detail":{{"Ascend910-1":{detail}}}}}'
    assert parse_manual_info(text, "here") == {0: 0, 1: at}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"Total":null}', '{"Total":"Ascend910-0"}', '{"Total":[3]}', '{"Total":["x"]}']
)
def test_a_malformed_value_is_refused_and_no_empty_list(text: str) -> None:
    with pytest.raises(BadDocument):
        parse_manual_info(text, "here")


@given(st.text(max_size=40))
def test_any_text_is_a_list_or_a_named_mistake(text: str) -> None:
    with suppress(BadDocument):
        assert all(device >= 0 for device in parse_manual_info(text, "here"))


@pytest.mark.parametrize(
    "text", ["enabled: !!bool maybe", "enabled: !!timestamp foo", "enabled: !!int ''", "x: !!float"]
)
def test_a_tag_that_no_value_fits_is_a_finding(text: str) -> None:
    with pytest.raises(BadDocument, match="no YAML that can be read"):
        parse_isolation({CONFIG_KEY: text})


def test_an_alias_is_refused_before_it_is_followed() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(BadDocument, match="alias"):
        parse_isolation({CONFIG_KEY: "\n".join([*lines, "enabled: *a11"])})


@pytest.mark.parametrize("name", ["0", "-3", "Ascend910", "Ascend910-", "Ascend910-x", 3, None])
def test_what_is_no_name_of_a_device_releases_nothing(name: Any) -> None:
    with pytest.raises(BadDocument, match="no device name"):
        parse_manual_info(json.dumps({"Total": [name]}), "n1")
