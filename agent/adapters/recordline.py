"""One line of a record file: JSON that stands for a Kafka record, or for a change of clock, cluster or link.

The one rule: any line becomes something (a line that is none of the known forms is a record without key, which the
border refuses with a reason), and a record written out reads back the same, byte for byte.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import orjson

from agent.domain.events import Position, Record
from agent.domain.vocab import Millis
from agent.ports import Control

VALUE_LIMIT: Final = 1_048_576
"""Bytes of a record's value that the border takes."""
KEPT: Final = VALUE_LIMIT + 1
"""What is kept of a line too long to be read: one byte more than the border takes."""

_CONTROLS: Final[tuple[Literal["tick", "apply", "delete", "probe"], ...]] = ("tick", "apply", "delete", "probe")
_WORDS: Final = frozenset(_CONTROLS)
_PARTS: Final = frozenset({"key", "key_b64", "value", "value_b64"})
_KEY_FIRST: Final = re.compile(rb'\s*\{\s*"key"\s*:\s*"([^"\\\x00-\x1f]{1,253})"')
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},:]')


class _NotALine(Exception):
    """The JSON object is none of the known forms; never leaves this room."""


def parse_line(line: bytes, position: Position) -> Record | Control | None:
    """What a line stands for, None for a blank one. `line` has no newline at its end.

    A malformed line is a record with the line as its value and no key (a very long one keeps the key it begins with),
    so that it ends in the dead letters and not nowhere.
    """
    try:
        item = orjson.loads(line)
        if type(item) is dict:
            return _record(item, position, line) or _control(item, position)
    except (orjson.JSONDecodeError, _NotALine):
        pass
    if not line.strip():
        return None
    key = _KEY_FIRST.match(line) if len(line) > VALUE_LIMIT else None
    return Record(position, key[1] if key else None, line)


def to_line(record: Record) -> bytes:
    """The line, without its newline, that `parse_line` reads as this record again (at its own position).

    A value that is compact JSON is written as an object, other text as a string; what is not UTF-8 as base64.
    """
    item: dict[str, Any] = {}
    if record.key is not None:
        _put(item, "key", record.key)
    item["timestamp"] = record.timestamp
    if record.value is None:
        item["value"] = None
    elif (value := _as_object(record.value)) is not None:
        item["value"] = value
    else:
        _put(item, "value", record.value)
    if record.headers:
        texts = {name: text for name, raw in record.headers if (text := _as_text(raw)) is not None}
        if len(texts) == len(record.headers):
            item["headers"] = texts
        else:
            item["headers_b64"] = [[name, base64.b64encode(raw).decode()] for name, raw in record.headers]
    return orjson.dumps(item)


def _record(item: Mapping[str, Any], position: Position, line: bytes) -> Record | None:
    """The record, None when no part of one is named. Raises _NotALine."""
    key = item.get("key")
    value = item.get("value")
    if _PARTS.isdisjoint(item):
        return None
    if not _WORDS.isdisjoint(item):
        raise _NotALine
    timestamp = item.get("timestamp", 0)
    if type(timestamp) is not int:
        raise _NotALine
    raw: bytes | None
    if value is None:
        raw = _from_base64(item.get("value_b64"))
    elif type(value) is str:
        raw = value.encode()
    else:
        raw = _compact(value) or _member(line, "value")
    raw_key: bytes | None
    if type(key) is str:
        raw_key = key.encode()
    elif key is None:
        raw_key = _from_base64(item.get("key_b64"))
    else:
        raise _NotALine
    headers = _headers(item) if "headers" in item or "headers_b64" in item else ()
    return Record(position, raw_key, raw, headers, Millis(timestamp))


def _control(item: Mapping[str, Any], position: Position) -> Control:
    words = [word for word in _CONTROLS if word in item]
    if len(words) != 1:
        raise _NotALine
    kind = words[0]
    body = item[kind]
    if kind == "tick":
        if type(body) is not int:
            raise _NotALine
        return Control(position, kind, Millis(body), {})
    time = item.get("time")
    if type(body) is not dict or (time is not None and type(time) is not int):
        raise _NotALine
    return Control(position, kind, None if time is None else Millis(time), body)


def _headers(item: Mapping[str, Any]) -> tuple[tuple[str, bytes], ...]:
    texts = item.get("headers")
    pairs = item.get("headers_b64")
    texts = {} if texts is None else texts
    pairs = [] if pairs is None else pairs
    if type(texts) is not dict or type(pairs) is not list:
        raise _NotALine
    headers = []
    for name, text in texts.items():
        if type(text) is not str:
            raise _NotALine
        headers.append((name, text.encode()))
    for pair in pairs:
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
            raise _NotALine
        headers.append((pair[0], _from_base64(pair[1]) or b""))
    return tuple(headers)


def _from_base64(text: Any) -> bytes | None:
    if text is None:
        return None
    if type(text) is not str:
        raise _NotALine
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _NotALine from error


def _compact(value: Any) -> bytes | None:
    """The value as JSON again; None when it is nested deeper than the writer goes (254; the reader goes to 1,024)."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return None


def _member(line: bytes, name: str) -> bytes:
    """The text of one member, the last of that name, as it stands in a line that is a JSON object and has it."""
    depth = start = 0
    word = key = found = b""
    for token in _TOKEN.finditer(line):
        sign = token[0]
        if sign in b"]}":
            depth -= 1
        if depth == 1 and sign == b":":
            key, start = word, token.end()
        elif key and ((depth == 1 and sign == b",") or depth == 0):
            if orjson.loads(key) == name:
                found = line[start : token.start()].strip()
            key = b""
        elif sign in b"[{":
            depth += 1
        else:
            word = sign
    return found


def _put(item: dict[str, Any], name: str, raw: bytes) -> None:
    text = _as_text(raw)
    if text is None:
        item[f"{name}_b64"] = base64.b64encode(raw).decode()
    else:
        item[name] = text


def _as_text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _as_object(raw: bytes) -> dict[str, Any] | None:
    """The value as an object, when writing it that way and back gives the same bytes."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    # One level deeper in the line than here: what only just can be written again could not be written there.
    return value if type(value) is dict and _compact([value]) == b"[" + raw + b"]" else None
