"""JSON as Go's decoder fills a struct with it: names in any case, the last of a repeated name, null for nothing.

The one rule: what Go would refuse is refused with the place of the value, and nothing is converted.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NoReturn

from agent.errors import BadInput
from agent.wire.yamlnodes import MAX_BYTES, nearest, shown

_INT64: Final = 2**63
_MOST_MEANT: Final = 20
"""Wrong names of one object that get the nearest right one: a search each, and a file may hold a million."""
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written."""

    text: str


class Pairs(list[tuple[str, Any]]):
    """The names and values of an object, in order, repeated ones too."""


def parse(data: bytes) -> Any:
    """The value of a JSON text. Raises BadInput with line and column for what is none, or is over 10 MiB."""
    if len(data) > MAX_BYTES:
        raise BadInput(f"the file has {len(data)} bytes; at most {MAX_BYTES} are read")
    text = data.decode("utf-8", "replace")  # as Go does
    if text.startswith("\ufeff"):
        raise BadInput("the file starts with a byte order mark, which Go refuses; save it as UTF-8 without one")
    try:
        return json.loads(
            text, object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        raise BadInput(f"no JSON: {error.msg}, line {error.lineno} column {error.colno}") from error
    except RecursionError as error:
        raise BadInput("no JSON that can be read: it is nested too deep") from error


def _refuse_constant(name: str) -> NoReturn:
    raise BadInput(f"no JSON: {name} is no number there")


def fields(value: Any, where: str, names: Sequence[str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """The struct fields of an object; and, with the reason, each name of which nothing comes. A repeated name counts as
    it stands last, two objects of one name together. Raises BadInput when the value is no object.
    """
    if value is None:
        return {}, []
    if not isinstance(value, Pairs):
        raise BadInput(f"{where} is {kind(value)}, not an object")
    exact = {name: name for name in names}
    folded = {name.casefold(): name for name in names}
    found: dict[str, Any] = {}
    lost: list[tuple[str, str]] = []
    ours: set[str] = set()
    for key, item in value:
        name = exact.get(key) or folded.get(key.casefold())
        if name is None:
            meant = _meant(clean(key), tuple(names)) if len(lost) < _MOST_MEANT else ""
            lost.append((clean(key), f"its component knows no such key{meant}"))
        elif isinstance(item, Pairs) and isinstance(found.get(name), Pairs):
            if name not in ours:
                ours.add(name)
                found[name] = Pairs(found[name])
            found[name].extend(item)
        else:
            ours.discard(name)
            if name in found:
                lost.append((name, "stands again further down, and the last one counts"))
            found[name] = item
    return found, lost


@lru_cache(maxsize=256)
def _meant(key: str, names: tuple[str, ...]) -> str:
    """The nearest right name; kept, because the objects of a list share their mistakes."""
    return nearest(key, names)


def texts(value: Any, where: str) -> list[str]:
    """A list of texts. Raises BadInput for anything else; null is none."""
    return [_text(item, f"{where}[{index}]") for index, item in enumerate(items(value, where))]


def items(value: Any, where: str) -> list[Any]:
    """The elements of a list. Raises BadInput for anything else; null is none."""
    if value is None:
        return []
    if not isinstance(value, list) or isinstance(value, Pairs):
        raise BadInput(f"{where} is {kind(value)}, not a list")
    return value


def text(value: Any, where: str) -> str:
    """A text, empty for null. Raises BadInput for anything else."""
    return _text(value, where)


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{where} is {kind(value)}, not text")
    return clean(value)


def whole(value: Any, where: str) -> int:
    """A 64-bit number, 0 for null. Raises BadInput for anything else."""
    if value is None:
        return 0
    if isinstance(value, Number) and _WHOLE.fullmatch(value.text) and -_INT64 <= int(value.text) < _INT64:
        return int(value.text)
    raise BadInput(f"{where} is {kind(value)}, not a whole number")


def clean(value: str) -> str:
    """A text without halves of surrogate pairs, which Go replaces too."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def kind(value: Any) -> str:
    """What a value is, for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case Number():
            return f"the number {shown(value.text)[1:-1]}"
        case str():
            return "text"
        case Pairs():
            return "an object"
        case _:
            return "a list"
