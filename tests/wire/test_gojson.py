"""The bytes of Go's encoding/json, and what it accepts."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import BadDocument
from agent.wire import gojson


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (
            {"DeviceList": None, "UpdateTime": 0},
            "aaa60c794e2dbec298a2f3c18ea64dea9a1fd2ccdb0cc577b8dfe2c3c5966965",
        ),
        (
            {"FaultDevList": None, "NodeStatus": ""},
            "4c97cddcb947bd707778eb50b0986a69768afc2ef3e4f351db0b92e9d07d1fed",
        ),
        (
            {
                "RankList": [],
                "UpdateTime": 0,
                "RetryTime": 0,
                "FaultFlushing": False,
                "GracefulExit": 0,
                "RestartFaultProcess": False,
            },
            "2e3fdb96df01322d394485be117076da0914f97a9b3cc2abb9ceb13bcbf96e5f",
        ),
        (
            {
                "RankList": [
                    {
                        "RankId": 8,
                        "LogicId": 0,
                        "Status": "fault",
                        "Policy": "",
                        "InitialPolicy": "",
                        "ErrorCode": None,
                        "ErrorCodeHex": "",
                    }
                ],
                "UpdateTime": 1700000000,
                "RetryTime": 0,
                "FaultFlushing": False,
                "GracefulExit": 0,
                "RestartFaultProcess": True,
            },
            "ab6fb3efdc87afbd01714de44fef9f675382ea960649adc4994ea9c8c9b4b14b",
        ),
    ],
    ids=["device info", "node info", "empty reset", "reset with a fault"],
)
def test_check_codes_are_those_of_the_components(payload: dict[str, object], code: str) -> None:
    assert gojson.check_code(gojson.encode(payload)) == code


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("<a>&\u2028\u2029", '"\\u003ca\\u003e\\u0026\\u2028\\u2029"'),
        ({"<k>": "故障"}, '{"\\u003ck\\u003e":"故障"}'),
        ('"\\\n\t\x01\x7f', '"\\"\\\\\\n\\t\\u0001\x7f"'),
        ("\ud83d\ude00", '"😀"'),
        ("a\ud800b\udc00", '"a\ufffdb\ufffd"'),
        ([2**63, -1, True, None, [], {}], "[9223372036854775808,-1,true,null,[],{}]"),
        ({"b": 1, "a": 2}, '{"b":1,"a":2}'),
    ],
    ids=["html", "key and han", "controls", "pair", "lone surrogates", "values", "declared order"],
)
def test_values_are_written_as_go_writes_them(value: object, text: str) -> None:
    assert gojson.encode(value) == text
    assert gojson.size(value) == len(text.encode())


def test_what_json_cannot_say_is_a_named_error() -> None:
    with pytest.raises(BadDocument):
        gojson.encode({"a": float("nan")})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{} x",
        "NaN",
        '{"a":Infinity}',
        "1e999",
        '"a\nb"',
        "[" * 100_000,
        "9" * 5000,
        "\ufeff{}",
        "{'a':1}",
    ],
    ids=["empty", "cut", "more", "nan", "infinity", "huge", "newline", "deep", "long", "bom", "quotes"],
)
def test_what_go_would_not_read_is_a_named_error(text: str) -> None:
    with pytest.raises(BadDocument):
        gojson.decode(text)


def test_what_is_nested_too_deep_to_be_written_is_named() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(BadDocument, match="cannot be written as JSON"):
        gojson.encode(deep)


def test_a_decode_error_names_line_and_column() -> None:
    with pytest.raises(BadDocument) as caught:
        gojson.decode('{"a":1,\n"b":}')
    assert caught.value.place == "line 2 column 5"


def test_a_lone_escaped_surrogate_becomes_the_replacement_character() -> None:
    assert gojson.decode('{"\\ud800":"\\udc00x\\ud83d\\ude00"}') == {"\ufffd": "\ufffdx😀"}
    assert gojson.decode('[["\\uD800"],{"a":["\\udfff"]}]') == [["\ufffd"], {"a": ["\ufffd"]}]
    assert gojson.encode(gojson.decode('["\\ud800"]')) == '["\ufffd"]'


def test_fields_are_found_in_any_case_and_the_last_one_counts() -> None:
    obj = gojson.decode('{"ranklist":1,"RANKLIST":2,"other":3,"ranklist":4}')
    assert gojson.field(obj, "RankList") == 4
    assert gojson.field(obj, "Missing") is None
    assert gojson.has(obj, "rankList")
    assert gojson.unknown(obj, ("RankList",)) == {"other": 3}


FIELDS = ("Status", "RankList", "K")
KEYS = st.one_of(
    st.sampled_from(["Status", "STATUS", "\u017ftatus", "ranklist", "RankList", "k", "\u212a", "other", "Statu\u00df"]),
    st.text(max_size=8),
)


@given(st.dictionaries(KEYS, st.integers(0, 3) | st.none(), max_size=8))
def test_fields_found_at_one_look_are_those_found_one_by_one(obj: dict[str, Any]) -> None:
    known, others = gojson.named(obj, FIELDS)
    assert known == {name: gojson.field(obj, name) for name in FIELDS if gojson.has(obj, name)}
    assert list(others.items()) == list(gojson.unknown(obj, FIELDS).items())
    for name in FIELDS:
        assert gojson.has(known, name) is gojson.has(obj, name)
        assert gojson.field(known, name) == gojson.field(obj, name)


def test_a_text_of_more_objects_than_are_read_is_refused_before_it_is_read() -> None:
    assert gojson.not_more("[{}]") == "[{}]"
    fits = "[" + ",".join(["{}"] * 25_000) + "]"
    assert gojson.not_more(fits) is fits
    with pytest.raises(BadDocument, match="holds 25001 objects, at most 25000 are read"):
        gojson.not_more(f"{{{fits[1:]}")


def test_null_and_empty_lists_stay_apart() -> None:
    assert gojson.list_of({"a": None}, "a", "") is None
    assert gojson.list_of({}, "a", "") is None
    assert gojson.list_of({"a": []}, "a", "") == []


@pytest.mark.parametrize("value", ["3", 1.0, True, [], {}, 2**63, -(2**63) - 1])
def test_a_wrong_integer_names_its_json_pointer(value: object) -> None:
    with pytest.raises(BadDocument) as caught:
        gojson.int_of({"Times": value}, "Times", gojson.pointer("", "ns/a~b"))
    assert caught.value.place == "/ns~1a~0b/Times"


def test_wrong_types_of_the_other_kinds_are_named_too() -> None:
    with pytest.raises(BadDocument, match="wanted a string"):
        gojson.text_of({"a": 1}, "a", "")
    with pytest.raises(BadDocument, match="wanted a boolean"):
        gojson.bool_of({"a": 1}, "a", "")
    with pytest.raises(BadDocument, match="wanted an array"):
        gojson.list_of({"a": {}}, "a", "")
    with pytest.raises(BadDocument, match="wanted an object"):
        gojson.decode_object("[]")
    with pytest.raises(BadDocument, match="is null"):
        gojson.decode_object("null")
    with pytest.raises(BadDocument, match="32 bits"):
        gojson.int_of({"a": 2**31}, "a", "", gojson.INT32)


def test_absent_and_null_scalars_are_zero() -> None:
    obj = {"a": None}
    assert (gojson.int_of(obj, "a", ""), gojson.text_of(obj, "a", ""), gojson.bool_of(obj, "b", "")) == (0, "", False)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(JSONS)
def test_what_is_written_reads_back_and_has_a_utf8_form(value: object) -> None:
    text = gojson.encode(value)
    assert gojson.decode(text) == value == json.loads(text)
    assert not set("<>&\u2028\u2029") & set(text)
    assert gojson.size(value) == len(text.encode())


@given(st.text(st.characters()))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    try:
        gojson.decode(text)
    except BadDocument:
        return
    assert gojson.encode(gojson.decode(text))
