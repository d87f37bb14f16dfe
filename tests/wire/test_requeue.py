"""A dead letter that is sent again gets a new id; one that could never be read is refused."""

import pytest

from agent.domain.events import Position, Record
from agent.errors import BadRecord
from agent.wire.requeue import header, requeued

AT = Position(0, 1, 2)
DEEP = b"[" * 300 + b"]" * 300


def letter(value: bytes | None, key: bytes | None = b"n1") -> Record:
    headers = (("traceparent", b"00-a"), ("fault-agent-reason", b"FIELD_INVALID"))
    return Record(AT, key, value, headers)


def test_it_is_the_same_record_with_a_new_id_and_without_our_headers() -> None:
    again = requeued(letter(b'{"id":"n1-msg-1","faults":[]}'), "again-1")
    assert again == Record(AT, b"n1", b'{"id":"n1-msg-1-again-1","faults":[]}', (("traceparent", b"00-a"),))


@pytest.mark.parametrize(
    ("value", "new"),
    [
        pytest.param(b'{"id":"' + b"x" * 128 + b'"}', b'{"id":"' + b"x" * 126 + b'-a"}', id="cut to 128"),
        pytest.param(b"{}", b'{"id":"requeued-a"}', id="no id"),
        pytest.param(b'{"id":7}', b'{"id":"requeued-a"}', id="a number"),
        pytest.param(b'{"id":' + DEEP + b"}", b'{"id":"requeued-a"}', id="nested"),
    ],
)
def test_the_new_id_fits_whatever_the_old_one_was(value: bytes, new: bytes) -> None:
    assert requeued(letter(value), "a").value == new


@pytest.mark.parametrize(
    ("record", "code"),
    [
        pytest.param(letter(b"{}", None), "KEY_MISSING", id="no key"),
        pytest.param(letter(None), "NOT_JSON", id="no value"),
        pytest.param(letter(b"{"), "NOT_JSON", id="broken"),
        pytest.param(letter(b"[]"), "NOT_JSON", id="list"),
        pytest.param(letter(b'{"x":' + DEEP + b"}"), "NOT_JSON", id="nested too deep"),
    ],
)
def test_what_could_never_be_read_is_refused(record: Record, code: str) -> None:
    with pytest.raises(BadRecord) as caught:
        requeued(record, "a")
    assert caught.value.code == code


def test_our_headers_are_read_by_their_short_names() -> None:
    assert header(letter(b"{}"), "reason") == "FIELD_INVALID"
    assert header(letter(b"{}"), "detail") == ""
