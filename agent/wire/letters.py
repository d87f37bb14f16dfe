"""Which nodes a dead letter speaks of: the one whose key it has, and those that its value names.

The one rule: nothing in a letter raises; what cannot be read names nobody.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from agent.domain.events import Record


def nodes_of(letter: Record) -> frozenset[str]:
    """Names of nodes, as far as the letter has any that can be read."""
    names = {(letter.key or b"").decode("utf-8", "replace")}
    try:
        value = orjson.loads(letter.value or b"")
    except orjson.JSONDecodeError:
        value = None
    names.update(_named(value))
    return frozenset(names - {""})


def _named(value: Any) -> Iterator[str]:
    """`faults[].influence[].nodeName`."""
    for fault in _list(value, "faults"):
        for place in _list(fault, "influence"):
            name = place.get("nodeName") if isinstance(place, dict) else None
            if isinstance(name, str):
                yield name


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
