"""What a job's PodGroup asks to be kept quiet: annotations `huawei.com/schedule.filter.faultCode` and `.faultLevel`.

The one rule: nothing of a text is dropped in silence: a bad span counts as the default, and each is a finding.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.domain.vocab import SECOND, Millis

FILTER_CODES: Final = "huawei.com/schedule.filter.faultCode"
FILTER_LEVELS: Final = "huawei.com/schedule.filter.faultLevel"
DEFAULT_S: Final = 60
MOST_S: Final = 86_400
"""Seconds a fault is kept quiet: without a span or with a bad one, and at most (ClusterD's custom filter)."""

_WIDE: Final = str.maketrans("，：", ",:")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Filter:
    """One annotation as read: how long each code or level is kept quiet, and what was wrong with its text."""

    spans: Mapping[str, Millis] = field(default_factory=dict)
    """By `filter_key`; 0: not at all."""
    problems: tuple[str, ...] = ()


def filter_key(name: str) -> str:
    """What makes two spellings of a code or level the same: case, spaces, and of a hex code 0x and leading zeros."""
    text = "".join(name.translate(_WIDE).split()).upper()
    return text if text.startswith("[") else text.removeprefix("0X").lstrip("0") or text[-1:]


def parse_filter(text: str) -> Filter:
    """Read `key[:seconds],…`; commas and colons may be full-width, codes of switches stand in brackets.

    Of a key that stands twice the last span counts.
    """
    spans: dict[str, Millis] = {}
    problems: list[str] = []
    for item in _items(text.translate(_WIDE)):
        end = item.find("]") + 1 if item.startswith("[") else item.find(":") if ":" in item else len(item)
        name, rest = item[:end].strip(), item[end:].strip()
        key = filter_key(name)
        if not key or (item.startswith("[") and not end):
            problems.append(f"{item!r:.60} names nothing")
            continue
        seconds = DEFAULT_S
        if rest:
            given = rest.removeprefix(":").strip()
            bad = rest[0] != ":" or not _INTEGER.fullmatch(given) or not 0 <= int(given) <= MOST_S
            if bad:
                problems.append(f"{item!r:.60}: {given!r:.20} is no span of 0 to {MOST_S} seconds; {DEFAULT_S} counts")
            else:
                seconds = int(given)
        spans[key] = Millis(seconds * SECOND)
    return Filter(spans, tuple(problems))


def _items(text: str) -> Iterator[str]:
    """The parts between commas, those inside of brackets left whole; empty parts are none."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth = 1
        elif letter == "]":
            depth = 0
        elif letter == "," and not depth:
            yield from filter(None, (text[begin:at].strip(),))
            begin = at + 1
    yield from filter(None, (text[begin:].strip(),))
