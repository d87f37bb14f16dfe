"""What a job's PodGroup asks to be kept quiet: annotations `huawei.com/schedule.filter.faultCode` and `.faultLevel`.

The one rule: nothing of a text is dropped in silence: a bad span counts as the default, a name that no fault can have
counts for nothing, and each is a finding.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from agent.domain.vocab import CHIP_LEVELS, SECOND, SWITCH_LEVELS, Millis

FILTER_CODES: Final = "huawei.com/schedule.filter.faultCode"
FILTER_LEVELS: Final = "huawei.com/schedule.filter.faultLevel"
DEFAULT_S: Final = 60
MOST_S: Final = 86_400
"""Seconds a fault is kept quiet: without a span or with a bad one, and at most (ClusterD's custom filter)."""

_WIDE: Final = str.maketrans("，：", ",:")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}")
_CODE: Final = re.compile(r"(?:0X)?[0-9A-F]{1,9}|[!-~]{9}|(?=.{1,50}\Z)\[[^\[\],]+(?:,[^\[\],]+){3}\]")
"""A chip's code, a public one, a switch's: what a quiet rule may hold, in capitals. Whether a table lists it is not
asked, for the policy may be another one tomorrow."""
_LEVELS: Final = {level.upper(): level for level in (*CHIP_LEVELS, *SWITCH_LEVELS) if level != "NormalNPU"}
"""Levels of the faults that can be kept quiet; those of servers' own parts and of DPUs never are."""


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


def job_filters(annotations: Mapping[str, str]) -> Mapping[str, Filter]:
    """Both filters of a job, by annotation."""
    return {
        FILTER_CODES: parse_filter(annotations.get(FILTER_CODES, "")),
        FILTER_LEVELS: parse_filter(annotations.get(FILTER_LEVELS, ""), levels=True),
    }


def parse_filter(text: str, *, levels: bool = False) -> Filter:
    """Read `key[:seconds],…`; commas and colons may be full-width, codes of switches stand in brackets. Keys are codes,
    or levels. Of a key that stands twice the last span counts.
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
        wrong = _no_level(name) if levels else _no_code(name)
        if wrong:
            problems.append(f"{item!r:.60}: {wrong}")
        if key not in _LEVELS if levels else wrong:
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


def _no_code(name: str) -> str:
    """What is wrong with the name of a code; empty: nothing."""
    if _CODE.fullmatch("".join(name.split()).upper()):
        return ""
    return "no fault has such a code: 1 to 9 hex digits, or a switch's four parts in brackets; nothing is kept quiet"


def _no_level(name: str) -> str:
    """What is wrong with the name of a level; empty: nothing. In another case it counts, and is told nevertheless."""
    level = _LEVELS.get(filter_key(name))
    if level is not None:
        return "" if level == "".join(name.split()) else f"the level is written {level}; it counts as that"
    near = get_close_matches(filter_key(name)[:64], _LEVELS, n=1, cutoff=0.5)
    meant = f"did you mean {_LEVELS[near[0]]}?" if near else f"there is {', '.join(_LEVELS.values())}"
    return f"no level, and nothing is kept quiet; {meant}"


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
