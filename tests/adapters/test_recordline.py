"""Every line becomes something, and a record written out reads back the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.adapters.recordline import parse_line, to_line
from agent.domain.events import Position, Record
from agent.domain.vocab import Millis
from agent.ports import Control

AT = Position(1, 0, 42)
TEXTS = st.text(max_size=20).map(str.encode)
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=30),
    TEXTS,
    st.sampled_from(
        [
            b'{"a":1}',
            b'{"a": 1}',
            b'{"a":1,"a":2}',
            b'{"a":1e400}',
            b'{"a":123456789012345678901234567890}',
            b'"x"',
            b"7",
        ]
    ),
    st.sampled_from([b"null", b"[]", b"{}", b'{"tick":1}', b'{"a":1.0}', b'{"a":1E2}', b'{"a":"\\u0041"}', b" {}"]),
)
HEADERS = st.lists(
    st.tuples(st.sampled_from(["traceparent", "tracestate", "é", ""]), st.one_of(TEXTS, st.binary(max_size=8))),
    max_size=3,
).map(tuple)


@given(
    key=st.one_of(st.none(), TEXTS, st.binary(max_size=8)),
    value=VALUES,
    headers=HEADERS,
    timestamp=st.integers(-1, 2**53).map(Millis),
)
@settings(max_examples=300)
def test_a_record_comes_back_without_loss(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes], ...], timestamp: Millis
) -> None:
    record = Record(AT, key, value, headers, timestamp)
    text = to_line(record)
    assert b"\n" not in text
    assert parse_line(text, AT) == record


@given(st.binary(max_size=60))
def test_a_line_of_any_bytes_is_a_record_or_blank(raw: bytes) -> None:
    item = parse_line(raw, AT)
    assert item is not None or not raw.strip()


@pytest.mark.parametrize(
    ("text", "key", "value", "headers", "timestamp"),
    [
        pytest.param(
            '{"key":"n1","timestamp":1767225600123,"value":{"id": "x", "n": [1, 2]},"headers":{"traceparent":"00-a"}}',
            b"n1",
            b'{"id":"x","n":[1,2]}',
            (("traceparent", b"00-a"),),
            1767225600123,
            id="the usual form",
        ),
        pytest.param('{"key":"n1","value":"{broken"}', b"n1", b"{broken", (), 0, id="value as raw text"),
        pytest.param('{"value":{}}', None, b"{}", (), 0, id="no key"),
        pytest.param('{"key":"n1"}', b"n1", None, (), 0, id="no value"),
        pytest.param('{"key":null,"value":null}', None, None, (), 0, id="nulls"),
        pytest.param('{"key":"","value":""}', b"", b"", (), 0, id="empty texts"),
        pytest.param('{"key_b64":"/w==","value_b64":"/wA="}', b"\xff", b"\xff\x00", (), 0, id="base64"),
        pytest.param('{"key":"n1","value":[1]}', b"n1", b"[1]", (), 0, id="a list is a value"),
        pytest.param('{"key":"n1","value":false}', b"n1", b"false", (), 0, id="false is a value"),
        pytest.param('{"key":"n1","value":{},"other":1}', b"n1", b"{}", (), 0, id="unknown keys are ignored"),
        pytest.param(
            '{"key":"n1","value":{},"headers_b64":[["a","/w=="],["a",""]]}',
            b"n1",
            b"{}",
            (("a", b"\xff"), ("a", b"")),
            0,
            id="headers that are no text",
        ),
    ],
)
def test_a_record_line_is_its_record(
    text: str, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes], ...], timestamp: int
) -> None:
    assert parse_line(text.encode(), AT) == Record(AT, key, value, headers, Millis(timestamp))


@pytest.mark.parametrize(
    ("text", "control"),
    [
        pytest.param('{"tick":1767225700000}', Control(AT, "tick", Millis(1767225700000), {}), id="tick"),
        pytest.param('{"apply":{"kind":"Pod"},"time":5}', Control(AT, "apply", Millis(5), {"kind": "Pod"}), id="apply"),
        pytest.param('{"apply":{"kind":"Pod"}}', Control(AT, "apply", None, {"kind": "Pod"}), id="apply without time"),
        pytest.param(
            '{"delete":{"kind":"Pod","namespace":"a","name":"x"},"time":6}',
            Control(AT, "delete", Millis(6), {"kind": "Pod", "namespace": "a", "name": "x"}),
            id="delete",
        ),
        pytest.param(
            '{"probe":{"node":"n1","links":{"0":"up"}},"time":7}',
            Control(AT, "probe", Millis(7), {"node": "n1", "links": {"0": "up"}}),
            id="probe",
        ),
    ],
)
def test_a_control_line_is_its_control(text: str, control: Control) -> None:
    assert parse_line(text.encode(), AT) == control


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("not json", id="no JSON"),
        pytest.param("[]", id="list"),
        pytest.param("7", id="number"),
        pytest.param("{}", id="empty object"),
        pytest.param('{"id":"x","faults":[]}', id="a bare message"),
        pytest.param('{"key":7,"value":{}}', id="key is a number"),
        pytest.param('{"key":"n1","value":{},"timestamp":"now"}', id="timestamp is text"),
        pytest.param('{"key":"n1","value":{},"timestamp":1.5}', id="timestamp is a fraction"),
        pytest.param('{"key":"n1","value":{},"timestamp":true}', id="timestamp is a boolean"),
        pytest.param('{"key":"n1","value":{},"headers":[]}', id="headers is an empty list"),
        pytest.param('{"key":"n1","value":{},"headers":["a"]}', id="headers is a list"),
        pytest.param('{"key":"n1","value":{},"headers":{"a":1}}', id="header is a number"),
        pytest.param('{"key":"n1","value":{},"headers_b64":[["a"]]}', id="half a header"),
        pytest.param('{"key_b64":"?","value":{}}', id="no base64"),
        pytest.param('{"key":"n1","value_b64":7}', id="base64 is a number"),
        pytest.param('{"key":"n1","value":{},"tick":1}', id="record and control"),
        pytest.param('{"tick":1,"apply":{}}', id="two controls"),
        pytest.param('{"tick":"now"}', id="tick is text"),
        pytest.param('{"tick":true}', id="tick is a boolean"),
        pytest.param('{"apply":[],"time":1}', id="apply is a list"),
        pytest.param('{"apply":{},"time":"x"}', id="time is text"),
    ],
)
def test_a_malformed_line_is_a_record_without_key_and_with_the_line_as_value(text: str) -> None:
    assert parse_line(text.encode(), AT) == Record(AT, None, text.encode())


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize("levels", [253, 254, 255, 300, 999, 1022])
def test_a_value_nested_deeper_than_can_be_written_keeps_its_own_text(levels: int) -> None:
    value = b'{"a": ' + nested(levels) + b', "b\\"]}": "\\\\"}'
    line = b'{"value":{"no":[1]}, "key":"n1" ,"valu\\u0065" : ' + value + b',"timestamp":5,"headers":{"a":"b,]}"}}'
    record = parse_line(line, AT)
    assert record == Record(
        AT,
        b"n1",
        value if levels >= 254 else value.replace(b": ", b":").replace(b", ", b","),
        (("a", b"b,]}"),),
        Millis(5),
    )
    assert isinstance(record, Record)
    assert parse_line(to_line(record), AT) == record


def test_a_line_nested_deeper_than_can_be_read_is_a_malformed_one() -> None:
    line = b'{"key":"n1","value":' + nested(1100) + b"}"
    assert parse_line(line, AT) == Record(AT, None, line)


@pytest.mark.parametrize("levels", [252, 253, 254, 255, 1000])
def test_a_value_of_any_depth_is_written_and_comes_back(levels: int) -> None:
    record = Record(AT, b"n1", b'{"a":' + nested(levels) + b"}")
    assert parse_line(to_line(record), AT) == record


@pytest.mark.parametrize("text", [b"", b" ", b"\r", b"\t "])
def test_a_blank_line_is_nothing(text: bytes) -> None:
    assert parse_line(text, AT) is None


def test_an_export_reads_as_the_page_says() -> None:
    record = Record(AT, b"n1", b'{"id":"x"}', (("traceparent", b"00-a"),), Millis(5))
    assert to_line(record) == b'{"key":"n1","timestamp":5,"value":{"id":"x"},"headers":{"traceparent":"00-a"}}'
    assert to_line(Record(AT, b"\xff", b"\xfe")) == b'{"key_b64":"/w==","timestamp":0,"value_b64":"/g=="}'
    assert to_line(Record(AT, None, b"{bad")) == b'{"timestamp":0,"value":"{bad"}'
