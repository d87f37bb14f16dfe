"""When an item happened, and which of its words about that are not believed."""

import pytest

from agent.app.itemtime import ItemTime, time_of
from agent.domain.events import Position, Record
from agent.domain.vocab import Millis
from agent.ports import Control

AT = Position(0, 0, 0)
FIRST, LAST = 1735689600000, 4102444799999
"""2025-01-01T00:00Z, and the last millisecond before 2100."""
EARLY = "stream: the time of a {} is before 2025, which moves no clock; Unix milliseconds are expected"
LATE = "stream: the time of a {} is in 2100 or later, which moves no clock; Unix milliseconds are expected"


@pytest.mark.parametrize(
    ("timestamp", "value", "expected"),
    [
        pytest.param(FIRST, b'{"timestamp":1767225600000}', ItemTime(Millis(FIRST)), id="the line's, the first"),
        pytest.param(LAST, None, ItemTime(Millis(LAST)), id="the last"),
        pytest.param(0, b'{"timestamp":1767225600000}', ItemTime(Millis(1767225600000)), id="the message's"),
        pytest.param(0, b'{"timestamp":"1767225600000"}', ItemTime(None), id="text"),
        pytest.param(0, b'{"timestamp":true}', ItemTime(None), id="boolean"),
        pytest.param(0, b'{"timestamp":1767225600000.0}', ItemTime(None), id="fraction"),
        pytest.param(0, b'{"timestamp":99999999999999999999}', ItemTime(None), id="beyond 64 bits"),
        pytest.param(0, b"[]", ItemTime(None), id="list"),
        pytest.param(0, b"{", ItemTime(None), id="no JSON"),
        pytest.param(0, None, ItemTime(None), id="no value"),
        pytest.param(0, b'{"timestamp":1767225600}', ItemTime(None, EARLY.format("message")), id="message in seconds"),
        pytest.param(0, b'{"timestamp":9999999999999}', ItemTime(None, LATE.format("message")), id="message in 2286"),
        pytest.param(
            1767225600,
            b'{"timestamp":1767225600000}',
            ItemTime(Millis(1767225600000), EARLY.format("record")),
            id="line in seconds, the message's is tried",
        ),
        pytest.param(FIRST - 1, b"{}", ItemTime(None, EARLY.format("record")), id="just before"),
        pytest.param(LAST + 1, b"{}", ItemTime(None, LATE.format("record")), id="just after"),
        pytest.param(-1, b'{"timestamp":-9}', ItemTime(None, EARLY.format("record")), id="negative both"),
    ],
)
def test_a_record_happened_at_the_line_s_time_else_at_its_message_s(
    timestamp: int, value: bytes | None, expected: ItemTime
) -> None:
    assert time_of(Record(AT, b"n1", value, timestamp=Millis(timestamp))) == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        pytest.param(1767225600000, ItemTime(Millis(1767225600000)), id="its own"),
        pytest.param(None, ItemTime(None), id="none"),
        pytest.param(0, ItemTime(None, EARLY.format("tick")), id="zero"),
        pytest.param(1767225600, ItemTime(None, EARLY.format("tick")), id="seconds"),
        pytest.param(10**17, ItemTime(None, LATE.format("tick")), id="far future"),
    ],
)
def test_a_control_happened_at_its_own_time_or_at_none(time: int | None, expected: ItemTime) -> None:
    assert time_of(Control(AT, "tick", None if time is None else Millis(time), {})) == expected
