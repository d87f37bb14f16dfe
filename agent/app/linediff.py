"""What differs between two texts of a data key, as a unified diff that people read: JSON one value a line.

The one rule: members of JSON are compared with those of the same name, so that the time it takes grows with the text
and not with its square.
"""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from agent.wire.gojson import whole

_NAMES: Final = ("NodeName", "RankId", "npu_name", "PodName", "RescheduleTimeStamp")
"""Which member tells elements of a list apart, in the documents that are compared here."""
_COMPARED: Final = 500
"""Lines on both sides up to which two pieces are compared line by line; longer ones are shown as replaced."""
_CONTEXT: Final = 3

Chunk = tuple[list[str], list[str]]
Opcode = tuple[str, int, int, int, int]


def unified(old: str | None, new: str | None, old_name: str, new_name: str) -> Iterator[str]:
    """The lines of the diff; none when both show the same. None: there is no such key."""
    chunks = list(_chunks(old, new))
    before = list(chain.from_iterable(one for one, _ in chunks))
    after = list(chain.from_iterable(other for _, other in chunks))
    if before == after:
        return
    matcher: difflib.SequenceMatcher[str] = difflib.SequenceMatcher(None, (), ())
    matcher.opcodes = list(_opcodes(chunks))  # type: ignore[attr-defined]  # what get_opcodes gives once it is computed
    yield f"--- {old_name}"
    yield f"+++ {new_name}"
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        yield f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@"
        for tag, a, b, c, d in group:
            if tag == "equal":
                yield from (f" {line}" for line in before[a:b])
                continue
            yield from (f"-{line}" for line in before[a:b])
            yield from (f"+{line}" for line in after[c:d])


def _span(start: int, stop: int) -> str:
    """A range of lines as a unified diff has it."""
    length = stop - start
    if length == 1:
        return f"{start + 1}"
    return f"{start + 1 if length else start},{length}"


def _opcodes(chunks: Sequence[Chunk]) -> Iterator[Opcode]:
    """How to get from one side to the other, equal lines next to each other as one piece."""
    a = c = same = 0
    for old, new in chunks:
        if old == new:
            same += len(old)
        else:
            if same:
                yield "equal", a - same, a, c - same, c
            same = 0
            yield from ((tag, a + i, a + j, c + k, c + n) for tag, i, j, k, n in _piece(old, new))
        a, c = a + len(old), c + len(new)
    if same:
        yield "equal", a - same, a, c - same, c


def _piece(old: list[str], new: list[str]) -> Sequence[Opcode]:
    if not old or not new or len(old) + len(new) > _COMPARED:
        return [("replace", 0, len(old), 0, len(new))]
    return difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _chunks(old: str | None, new: str | None) -> Iterator[Chunk]:
    """Both texts in pieces that belong together."""
    try:
        if old is None or new is None:
            yield _shown(old), _shown(new)
            return
        found = list(_pairs(json.loads(old), json.loads(new), "", ("", ""), ("", "")))
    except (ValueError, RecursionError):
        found = [(_shown(old), _shown(new))]
    yield from found


def _shown(text: str | None) -> list[str]:
    """For people; what is no JSON, or is nested too deep, as it is."""
    if text is None:
        return []
    try:
        return _lines(json.loads(text), "", "", "")
    except (ValueError, RecursionError):
        return text.splitlines()


def _lines(value: Any, lead: str, head: str, tail: str) -> list[str]:
    lines = whole(json.dumps(value, indent=2, ensure_ascii=False)).split("\n")
    lines[0] = head + lines[0]
    lines[-1] += tail
    return [lead + line for line in lines]


def _pairs(old: Any, new: Any, lead: str, heads: tuple[str, str], tails: tuple[str, str]) -> Iterator[Chunk]:
    """The lines of two values: members of the same name beside each other, the others alone."""
    alike = (isinstance(old, dict) and isinstance(new, dict)) or (isinstance(old, list) and isinstance(new, list))
    if not (alike and old and new) or old == new:
        yield _lines(old, lead, heads[0], tails[0]), _lines(new, lead, heads[1], tails[1])
        return
    opening, closing = ("{", "}") if isinstance(old, dict) else ("[", "]")
    yield [lead + heads[0] + opening], [lead + heads[1] + opening]
    ours, theirs = _members(old), _members(new)
    names = [name for name, _, _ in ours], [name for name, _, _ in theirs]
    inner = f"{lead}  "
    for _, a, b, c, d in difflib.SequenceMatcher(None, *names).get_opcodes():
        if names[0][a:b] == names[1][c:d]:
            for i, j in zip(range(a, b), range(c, d), strict=True):
                ends = _comma(ours, i), _comma(theirs, j)
                yield from _pairs(ours[i][2], theirs[j][2], inner, (ours[i][1], theirs[j][1]), ends)
            continue
        for i in range(a, b):
            yield _lines(ours[i][2], inner, ours[i][1], _comma(ours, i)), []
        for j in range(c, d):
            yield [], _lines(theirs[j][2], inner, theirs[j][1], _comma(theirs, j))
    yield [lead + closing + tails[0]], [lead + closing + tails[1]]


Member = tuple[str, str, Any]
"""Name for comparing, what stands before the value, the value."""


def _members(value: Mapping[str, Any] | Sequence[Any]) -> list[Member]:
    if isinstance(value, Mapping):
        named = ((json.dumps(name, ensure_ascii=False), one) for name, one in value.items())
        return [(name, f"{name}: ", one) for name, one in named]
    return [(_name(one), "", one) for one in value]


def _name(value: Any) -> str:
    if isinstance(value, Mapping):
        name = next((key for key in _NAMES if key in value), None)
        if name is not None:
            return f"{name} {value[name]}"
    return json.dumps(value, sort_keys=True)


def _comma(members: Sequence[Member], place: int) -> str:
    return "," if place + 1 < len(members) else ""
