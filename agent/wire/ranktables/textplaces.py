"""Where in a JSON text the things are that JSON pointers name.

The one rule: only the way to what was asked for is walked; the rest is skipped at the speed of the C parser.
"""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

_BLANK: Final = re.compile(r"[ \t\n\r]*")
_read: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str, strict=False).raw_decode

_Wanted = dict[str, Any]


def line_and_column(text: str, pointers: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Line and column, both from 1, of each pointer: of its key, or of the element of a list.

    What the text does not hold has the place of the nearest thing around it. The text is JSON; what is nested too
    deeply for the standard library's parser has the place up to which it was read.
    """
    asked = tuple(pointers)
    wanted: _Wanted = {}
    for pointer in asked:
        node = wanted
        for step in pointer.split("/")[1:]:
            node = node.setdefault(step, {})
    start = len(text) - len(text.lstrip(" \t\n\r"))
    offsets: dict[str, int] = dict.fromkeys(asked, start)
    with suppress(ValueError, IndexError, StopIteration, RecursionError):
        _walk(text, start, wanted, "", offsets)
    found: dict[str, tuple[int, int]] = {}
    line, line_start, before = 1, 0, 0
    for pointer, offset in sorted(((one, offsets[one]) for one in set(asked)), key=lambda item: item[1]):
        line += text.count("\n", before, offset)
        line_start = max(line_start, text.rfind("\n", before, offset) + 1)
        before = offset
        found[pointer] = (line, offset - line_start + 1)
    return found


def _after(text: str, at: int) -> int:
    """Where the blanks that begin here end."""
    if text[at] > " ":
        return at
    match = _BLANK.match(text, at)
    return match.end() if match is not None else at


def _settle(node: _Wanted, pointer: str, at: int, offsets: dict[str, int]) -> None:
    """The place of a thing that is there is that of all below it that is not."""
    offsets[pointer] = at
    for step, below in node.items():
        _settle(below, f"{pointer}/{step}", at, offsets)


def _walk(text: str, at: int, wanted: _Wanted, pointer: str, offsets: dict[str, int]) -> int:
    """Note what is wanted of the value that begins here; gives its end."""
    opening = text[at]
    if not wanted or opening not in "{[":
        return int(_read(text, at)[1])
    at = _after(text, at + 1)
    index = 0
    while text[at] not in "}]":
        place = at
        if opening == "{":
            key, at = _read(text, at)
            at = _after(text, _after(text, at) + 1)
        else:
            key, index = str(index), index + 1
        below = wanted.get(key)
        if below is None:
            at = _read(text, at)[1]
        elif below:
            inner = f"{pointer}/{key}"
            _settle(below, inner, place, offsets)
            at = _walk(text, at, below, inner, offsets)
        else:
            offsets[f"{pointer}/{key}"] = place
            at = _read(text, at)[1]
        at = _after(text, at)
        if text[at] == ",":
            at = _after(text, at + 1)
    return at + 1
