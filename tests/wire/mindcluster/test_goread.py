"""JSON as Go's decoder reads it into structs: what it lets through, and what it refuses with a place."""

import pytest

from agent.errors import BadInput
from agent.wire.mindcluster.goread import Pairs, fields, parse, text, texts, whole


def test_names_are_found_in_any_case_and_the_last_of_a_name_counts() -> None:
    found, other = fields(parse(b'{"EVENTID":["a"],"eventId":["b"],"More":1}'), "the file", ["EventId"])
    assert found == {"EventId": ["b"]}
    assert other == [
        ("EventId", "stands again further down, and the last one counts"),
        ("More", "its component knows no such key; there is EventId"),
    ]


def test_two_objects_of_one_name_are_read_together() -> None:
    found, _ = fields(parse(b'{"X":{"a":"1"},"x":{"b":"2"}}'), "the file", ["X"])
    assert found == {"X": Pairs([("a", "1"), ("b", "2")])}


def test_null_is_nothing() -> None:
    assert fields(None, "the file", ["X"]) == ({}, [])
    assert texts(None, "X") == []
    assert texts(parse(b'["a",null]'), "X") == ["a", ""]
    assert whole(None, "X") == 0


@pytest.mark.parametrize(
    ("data", "told"),
    [
        pytest.param(b"", "no JSON: Expecting value, line 1 column 1", id="empty"),
        pytest.param(b'{"a":1,}', "line 1 column 8", id="trailing-comma"),
        pytest.param(b"\xef\xbb\xbf{}", "byte order mark", id="bom"),
        pytest.param(b'{"a":NaN}', "NaN is no number", id="nan"),
        pytest.param(b"[" * 100_000, "nested too deep", id="deep"),
        pytest.param(b" " * (10 * 1024 * 1024 + 1), "at most 10485760 are read", id="long"),
    ],
)
def test_what_is_no_json_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parse(data)


@pytest.mark.parametrize("number", [b"1.0", b"1e3", b"9223372036854775808", b"true", b'"5"', b"1" * 5_000])
def test_a_number_must_be_whole_and_fit_in_64_bits(number: bytes) -> None:
    with pytest.raises(BadInput, match=r"X is .*, not a whole number"):
        whole(parse(number), "X")


def test_the_largest_number_fits() -> None:
    assert whole(parse(b"9223372036854775807"), "X") == 9_223_372_036_854_775_807


def test_half_a_surrogate_pair_becomes_the_mark_that_go_writes() -> None:
    assert text(parse(b'"\\ud800"'), "X") == "\ufffd"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b"{}", "X is an object, not a list"),
        (b'"a"', "X is text, not a list"),
        (b"[7]", r"X\[0\] is the number 7, not"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(value: bytes, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        texts(parse(value), "X")
