"""JSON as Go's encoding/json writes and reads it: the dialect of every ConfigMap of the field.

The one rule: the same value always gives the same bytes, and these are the bytes a Go component would have written.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, cast

from agent.errors import BadDocument

LONGEST: Final = 25_000
"""Elements of an array. What the field's writers make is longer than 40 bytes each, and a ConfigMap holds 1 MiB; it can
also hold 350,000 empty ones, which take longer to read than a lease lasts.
"""
MOST: Final = 25_000
"""Objects of a text of which each becomes a value here, for the same reason: spread over many short arrays they take as
long. What the field's writers make of the smallest of them is 50 bytes long.
"""
INT64: Final = 64
INT32: Final = 32

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_ESCAPES: Final = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}
_ESCAPED: Final = re.compile("[<>&\u2028\u2029]")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def whole(text: str) -> str:
    """The text with every lone surrogate as U+FFFD, as a Go string would hold it; pairs are joined."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def encode(value: object) -> str:
    """Compact JSON: objects in the order they were built, `<>&`, U+2028 and U+2029 escaped, the rest raw.

    Lone surrogates become U+FFFD, so the text always has a UTF-8 form. Maps that Go would sort must come sorted
    (by code point, which is the byte order of UTF-8). Raises BadDocument for what JSON cannot say (NaN, infinity) and
    for what is nested about a thousand deep.
    """
    try:
        text = _ENCODER.encode(value)
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"cannot be written as JSON: {error}", place="/") from error
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], whole(text))


def size(value: object) -> int:
    """Length in bytes of `encode(value)` in UTF-8."""
    return len(encode(value).encode())


def check_code(text: str) -> str:
    """The checksum stored beside a payload: lower-case hex SHA-256 of exactly its bytes, no salt (util.go:234)."""
    return sha256(whole(text).encode()).hexdigest()


def decode(text: str) -> Any:
    """Parse as Go would: one value, nothing after it, integers exact, of a repeated key the last one.

    Raises BadDocument naming line and column.
    """
    try:
        found = json.loads(
            whole(text), object_pairs_hook=_last_wins, parse_constant=_no_constant, parse_float=_finite, strict=True
        )
        return _whole_texts(found) if _ESCAPED_SURROGATE.search(text) else found
    except json.JSONDecodeError as error:
        raise BadDocument(f"not JSON: {error.msg}", place=f"line {error.lineno} column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"not readable as JSON: {error}", place="/") from error


def not_more(text: str) -> str:
    """The text, if it holds no more objects than are read. Raises BadDocument."""
    found = text.count("{")
    if found > MOST:
        raise BadDocument(f"holds {found} objects, at most {MOST} are read", place="/")
    return text


def decode_object(text: str) -> dict[str, Any]:
    """Parse a document whose top must be an object. Raises BadDocument."""
    return as_object(decode(text), "")


def _last_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        name = whole(key)
        found.pop(name, None)
        found[name] = value
    return found


def _whole_texts(value: Any) -> Any:
    """The value with every text in it whole."""
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, list):
        return [_whole_texts(one) for one in value]
    if isinstance(value, dict):
        return {name: _whole_texts(one) for name, one in value.items()}
    return value


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _finite(word: str) -> float:
    number = float(word)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"number {word} is out of range")
    return number


def pointer(parent: str, name: str | int) -> str:
    """JSON pointer of a member (RFC 6901)."""
    return f"{parent}/{str(name).replace('~', '~0').replace('/', '~1')}"


def same_name(key: str, name: str) -> bool:
    """Whether Go takes `key` for the struct field `name`: equal but for case."""
    return key == name or (len(key) == len(name) and key.casefold() == name.casefold())


class Named(dict[str, Any]):
    """Members of an object by the names of the fields that Go would read them into."""

    __slots__ = ()


def named(obj: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Named, dict[str, Any]]:
    """The members that Go would read into fields of these names, and the others, as `unknown` gives them.

    One look at each member: what asks for the fields of a long text asks once for each object of it.
    """
    exact, folded = _names(names)
    if obj.keys() <= exact:
        return Named(obj), {}
    known, rest = Named(), dict[str, Any]()
    for key, value in obj.items():
        name = key if key in exact else folded.get(key.casefold())
        if name is not None and len(name) == len(key):
            known[name] = value
        else:
            rest[key] = value
    return known, rest


@lru_cache(maxsize=64)
def _names(names: tuple[str, ...]) -> tuple[frozenset[str], Mapping[str, str]]:
    return frozenset(names), {name.casefold(): name for name in names}


def field(obj: Mapping[str, Any], name: str) -> Any:
    """The member Go would read into the field `name`: any case, the last of several; None if absent or null."""
    if type(obj) is Named:
        return obj.get(name)
    found = None
    for key, value in obj.items():
        if same_name(key, name):
            found = value
    return found


def has(obj: Mapping[str, Any], name: str) -> bool:
    """Whether the object has the field, in any case (its value may be null)."""
    if type(obj) is Named:
        return name in obj
    return any(same_name(key, name) for key in obj)


def unknown(obj: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The members that are none of `names` in any case, in order: what a careful writer carries over."""
    return {key: value for key, value in obj.items() if not any(same_name(key, name) for name in names)}


def _wrong(value: object, wanted: str, place: str) -> BadDocument:
    kinds = {bool: "a boolean", int: "an integer", float: "a fraction", str: "a string", list: "an array"}
    return BadDocument(f"is {kinds.get(type(value), 'an object')}, wanted {wanted}", place=place or "/")


def as_object(value: Any, place: str) -> dict[str, Any]:
    """The value as an object. Raises BadDocument at `place` for anything else, null included."""
    if value is None:
        raise BadDocument("is null, wanted an object", place=place or "/")
    if not isinstance(value, dict):
        raise _wrong(value, "an object", place)
    return cast("dict[str, Any]", value)


def text_of(obj: Mapping[str, Any], name: str, place: str) -> str:
    """A string field; absent or null is "". Raises BadDocument with the JSON pointer."""
    value = field(obj, name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong(value, "a string", pointer(place, name))
    return value


def int_of(obj: Mapping[str, Any], name: str, place: str, bits: int = INT64) -> int:
    """A signed integer field; absent or null is 0. Raises BadDocument: not an integer, or too wide for `bits`."""
    value = field(obj, name)
    return 0 if value is None else as_int(value, pointer(place, name), bits)


def as_int(value: Any, place: str, bits: int = INT64) -> int:
    """The value as a signed integer of `bits`. Go takes neither 1.0 nor true. Raises BadDocument."""
    if not isinstance(value, int) or isinstance(value, bool):
        if value is None:
            raise BadDocument("is null, wanted an integer", place=place)
        raise _wrong(value, "an integer", place)
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise BadDocument(f"does not fit in {bits} bits", place=place)
    return value


def bool_of(obj: Mapping[str, Any], name: str, place: str) -> bool:
    """A boolean field; absent or null is False. Raises BadDocument."""
    value = field(obj, name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _wrong(value, "a boolean", pointer(place, name))
    return value


def list_of(obj: Mapping[str, Any], name: str, place: str) -> list[Any] | None:
    """An array field; absent and null are None, which is not the same as empty. Raises BadDocument."""
    value = field(obj, name)
    if value is None:
        return None
    if not isinstance(value, list):
        raise _wrong(value, "an array", pointer(place, name))
    if len(value) > LONGEST:
        raise BadDocument(f"has {len(value)} elements, at most {LONGEST} are read", place=pointer(place, name))
    return value
