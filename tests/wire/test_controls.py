"""Control lines: what is taken, and what is refused with its field."""

from typing import Any

import pytest

from agent.errors import BadDocument
from agent.wire.controls import check_object, gone_of, probe_of


def test_a_probe_gives_its_node_and_the_word_of_each_device() -> None:
    body = {"node": "n1.rack-2", "links": {"0": "up", "63": "down", "07": "flaky"}}
    assert probe_of(body) == ("n1.rack-2", {0: "up", 63: "down", 7: "flaky"})
    assert probe_of({"node": "n1", "links": {}}) == ("n1", {})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param({"links": {}}, "probe: node: None is no node name", id="no node"),
        pytest.param({"node": "", "links": {}}, "probe: node: '' is no node name", id="empty node"),
        pytest.param({"node": "N1", "links": {}}, "probe: node: 'N1' is no node name", id="upper case"),
        pytest.param({"node": "../../X", "links": {}}, "probe: node: '../../X' is no node name", id="path"),
        pytest.param({"node": "n1\n", "links": {}}, r"probe: node: 'n1\\n' is no node name", id="line end"),
        pytest.param({"node": "n" * 254, "links": {}}, f"probe: node: '{'n' * 60}' is no node name", id="too long"),
        pytest.param({"node": 5, "links": {}}, "probe: node: 5 is no node name", id="number"),
        pytest.param({"node": ["n1"], "links": {}}, "probe: node: a list is no node name", id="list"),
        pytest.param({"node": "n1"}, "probe: links: None is no mapping", id="no links"),
        pytest.param({"node": "n1", "links": ["up"]}, "probe: links: a list is no mapping", id="links are a list"),
        pytest.param({"node": "n1", "links": {"64": "up"}}, "'64' is no device of 0 to 63", id="device 64"),
        pytest.param({"node": "n1", "links": {"-1": "up"}}, "'-1' is no device of 0 to 63", id="negative"),
        pytest.param({"node": "n1", "links": {"x": "up"}}, "'x' is no device of 0 to 63", id="no number"),
        pytest.param({"node": "n1", "links": {"٣": "up"}}, "'٣' is no device of 0 to 63", id="other digits"),
        pytest.param({"node": "n1", "links": {"9" * 5000: "up"}}, "is no device of 0 to 63", id="endless"),
        pytest.param({"node": "n1", "links": {"0": ["up"]}}, r"probe: links\[0\]: a list is no word", id="no word"),
    ],
)
def test_a_probe_that_cannot_be_is_refused_with_its_field(body: dict[str, Any], said: str) -> None:
    with pytest.raises(BadDocument, match=said):
        probe_of(body)


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        ({"kind": "Pod", "namespace": "train", "name": "demo-0"}, ("Pod", "train", "demo-0")),
        ({"kind": "Node", "name": "n1"}, ("Node", "", "n1")),
        ({"kind": "ConfigMap", "namespace": None, "name": "x.y"}, ("ConfigMap", "", "x.y")),
    ],
)
def test_an_object_that_is_gone_is_named_by_three_words(body: dict[str, Any], gone: tuple[str, str, str]) -> None:
    assert gone_of(body) == gone


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param({}, "delete: kind: None is no text", id="nothing"),
        pytest.param({"kind": ["a"], "name": "x"}, "delete: kind: a list is no text", id="kind"),
        pytest.param({"kind": "Pod", "namespace": 5, "name": "x"}, "delete: namespace: 5 is no text", id="namespace"),
        pytest.param({"kind": "Pod", "namespace": "a"}, "delete: name: None is no text", id="no name"),
        pytest.param({"kind": "Pod", "name": "../x"}, "delete: Pod: metadata.name: '../x' is no DNS-1123", id="path"),
        pytest.param(
            {"kind": "ConfigMap", "namespace": "..", "name": "x"}, "metadata.namespace: '..' is no DNS-1123", id="up"
        ),
    ],
)
def test_what_no_object_can_be_called_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(BadDocument, match=said):
        gone_of(body)


def test_an_object_nested_deeper_than_can_be_kept_is_refused() -> None:
    body: dict[str, Any] = {"kind": "Pod"}
    for _ in range(240):
        body = {"a": body}
    check_object(body)
    for _ in range(14):
        body = {"a": body}
    with pytest.raises(BadDocument, match="apply: the object cannot be kept"):
        check_object(body)
