"""The answers of the vendor's link query: up, down, and everything that is neither."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import BadDocument
from agent.wire.linkstatus import parse_link_status


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (b"link status: UP\n", "up"),
        (b"link status: DOWN\n", "down"),
        (b"link status: DOWN", "down"),
        (b"\r\n link status:UP \r\n\n", "up"),
        (b"Link Status : down\n", "down"),
    ],
)
def test_a_link_is_up_or_down(answer: bytes, state: str) -> None:
    assert parse_link_status(answer) == state


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"", "answered nothing"),
        (b" \n\n", "answered nothing"),
        (b"link status: UNKNOWN\n", "'link status: UNKNOWN'"),
        (b"link status:\n", "'link status:'"),
        (b"link status: UP DOWN\n", "'link status: UP DOWN'"),
        (b"link status: UPPER\n", "UPPER"),
        ("lin\u212a status: UP\n".encode(), "status: UP"),  # KELVIN SIGN, a k to who folds case in Unicode
        (b"link status: UP\nlink status: DOWN\n", "UP\\\\nlink status: DOWN"),
        (b"warning: driver is old\nlink status: UP\n", "warning: driver is old"),
        (b"Speed: 200000 Mb/s\n", "Speed"),
        (b"hccn_tool is busy, please try again.\n", "hccn_tool is busy"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b"x" * 4096, "'" + "x" * 60 + "'"),
    ],
)
def test_anything_else_is_bad_input_that_tells_what_came(answer: bytes, told: str) -> None:
    with pytest.raises(BadDocument, match=told):
        parse_link_status(answer)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_state_or_bad_input(answer: bytes) -> None:
    with suppress(BadDocument):
        assert parse_link_status(answer) in ("up", "down")
