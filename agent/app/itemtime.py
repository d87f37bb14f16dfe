"""When an item of a stream happened, by its own word.

The one rule: a word that cannot be meant (seconds for milliseconds, a slip of digits) moves no clock and is told.
"""

from dataclasses import dataclass

import orjson

from agent.domain.events import Record
from agent.domain.vocab import Millis
from agent.ports import Control
from agent.wire.controls import credible
from agent.wire.envelope import EARLIEST


@dataclass(frozen=True, slots=True)
class ItemTime:
    """The time an item gives, None when it gives none that is credible, and what is wrong with one it gives."""

    at: Millis | None
    wrong: str = ""
    """The same words for the same kind of slip, so that it can be told once; empty when nothing is wrong."""


def time_of(item: Record | Control) -> ItemTime:
    """The line's time, else the message's own timestamp; only from 2025 until before 2100 (Unix ms)."""
    if isinstance(item, Control):
        at = credible(item.time)
        return ItemTime(at, "" if at is not None or item.time is None else _wrong(item.kind, item.time))
    at = credible(item.timestamp)
    if at is not None:
        return ItemTime(at)
    try:
        value = orjson.loads(item.value or b"")
    except orjson.JSONDecodeError:
        value = None
    own = value.get("timestamp") if isinstance(value, dict) else None
    at = credible(own)
    if item.timestamp != 0:
        return ItemTime(at, _wrong("record", item.timestamp))
    return ItemTime(at, "" if at is not None or type(own) is not int else _wrong("message", own))


def _wrong(what: str, at: int) -> str:
    side = "before 2025" if at < EARLIEST else "in 2100 or later"
    return f"stream: the time of a {what} is {side}, which moves no clock; Unix milliseconds are expected"
