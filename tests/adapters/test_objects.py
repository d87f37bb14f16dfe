"""ConfigMaps as objects: what is refused, what conflicts, and that nothing is lost on the way."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.adapters.objects import check, check_swap, from_object, same_content, stamped, to_bytes, to_object
from agent.errors import BadDocument, Conflict, Refused
from agent.ports import ConfigMap

TEXTS = st.dictionaries(st.from_regex(r"[a-z][a-z0-9.-]{0,5}", fullmatch=True), st.text(max_size=6), max_size=3)
LIVE = ConfigMap("a", "x", data={"v": "1"}, resource_version="5", uid="u-1", managers=("volcano",))


@given(data=TEXTS, labels=TEXTS, annotations=TEXTS, managers=st.lists(st.sampled_from(["a", "b"]), unique=True))
@settings(max_examples=50)
def test_an_object_reads_back_as_the_document_it_was(
    data: dict[str, str], labels: dict[str, str], annotations: dict[str, str], managers: list[str]
) -> None:
    extra: dict[str, Any] = {
        "ownerReferences": [{"name": "p"}],
        "finalizers": ["f"],
        "binaryData": {"b": "AA=="},
        "immutable": False,
        "unknown": {"k": 1},
        "metadata": {"unknown": 2},
    }
    document = ConfigMap("a", "x", data, labels, annotations, "7", "u-1", tuple(managers), extra)
    assert from_object(to_object(document), "here") == document


@pytest.mark.parametrize(
    ("document", "why"),
    [
        pytest.param(ConfigMap("a", "x", data={"v": "\ud800"}), "not valid Unicode", id="lone surrogate"),
        pytest.param(ConfigMap("a", "x", extra={"binaryData": {"b": "?"}}), "not base64", id="bad binary data"),
        pytest.param(
            ConfigMap("a", "x", data={"v": "x" * 1_048_575}, extra={"binaryData": {"b": "AAA="}}),
            "1048577 bytes",
            id="binary data counts decoded",
        ),
        pytest.param(ConfigMap("a", "x" * 254), "subdomain", id="name too long"),
        pytest.param(ConfigMap("a" * 64, "x"), "label", id="namespace too long"),
        pytest.param(ConfigMap("a", "x", data={"k" * 254: ""}), "data key", id="key too long"),
    ],
)
def test_what_the_api_server_would_not_take_is_refused(document: ConfigMap, why: str) -> None:
    with pytest.raises(Refused, match=why):
        check(document)


def test_another_object_of_the_same_name_and_version_is_a_conflict() -> None:
    with pytest.raises(Conflict, match="u-1"):
        check_swap(replace(LIVE, uid="u-2"), LIVE)
    check_swap(replace(LIVE, uid=""), LIVE)


def test_the_creation_time_stays_whatever_a_writer_sends() -> None:
    live = replace(LIVE, extra={"creationTimestamp": "2026-01-01T00:00:00Z"})
    sent = replace(LIVE, data={"v": "2"}, extra={"creationTimestamp": "2027-01-01T00:00:00Z"})
    assert stamped(sent, live, "6", "fault-agent").extra == {"creationTimestamp": "2026-01-01T00:00:00Z"}
    assert same_content(replace(sent, data={"v": "1"}), live)


def test_absent_and_empty_extras_are_the_same_content() -> None:
    assert same_content(replace(LIVE, extra={"ownerReferences": [], "immutable": None}), LIVE)
    assert not same_content(replace(LIVE, extra={"ownerReferences": [{"name": "p"}]}), LIVE)


def test_what_json_has_not_is_refused() -> None:
    for strange in ({"x"}, float("nan"), "\ud800"):
        with pytest.raises(Refused):
            to_bytes({"kind": "ConfigMap", "x": strange})


def nested(levels: int) -> object:
    found: object = 1
    for _ in range(levels):
        found = [found]
    return found


def test_what_is_nested_without_end_is_refused() -> None:
    with pytest.raises(Refused, match="cannot be written as JSON"):
        to_bytes({"x": nested(5000)})


@pytest.mark.parametrize(
    ("strange", "why"),
    [
        pytest.param(nested(300), "Recursion limit", id="deep"),
        pytest.param(2**70, "64-bit", id="beyond 64 bits"),
        pytest.param("\ud800", "UTF-8", id="half a surrogate pair"),
    ],
)
@pytest.mark.parametrize("field", ["x", "data", "metadata"])
def test_an_object_that_nobody_could_write_back_is_not_read(field: str, strange: object, why: str) -> None:
    item = {"kind": "ConfigMap", "metadata": {"name": "x", "namespace": "a"}}
    item[field] = {"name": "x", "y": strange}
    with pytest.raises(BadDocument, match=rf"here: cannot be written as JSON: .*{why}"):
        from_object(item, "here")


def test_the_bytes_escape_as_go_does() -> None:
    assert to_bytes({"b": "<&>\u2028é", "a": {}}) == (
        b'{\n    "a": {},\n    "b": "\\u003c\\u0026\\u003e\\u2028\xc3\xa9"\n}\n'
    )
