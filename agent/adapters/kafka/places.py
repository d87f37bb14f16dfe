"""Where reading of each partition stands: the resume token of the Kafka source.

The one rule: a place says which record lies before it, so that another topic under the same name is noticed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from agent.domain.vocab import Millis


@dataclass(frozen=True, slots=True)
class Place:
    """Next offset to read, in which generation of the topic; time (ms) and digest of the record before it."""

    generation: int = 0
    offset: int = 0
    digest: str = ""
    """Empty when nothing before it was read."""
    time: Millis = Millis(0)


def to_token(places: Mapping[int, Place]) -> bytes:
    """JSON: partition (as text) to generation, offset, digest and time."""
    return orjson.dumps({str(partition): place for partition, place in sorted(places.items())})


def from_token(token: bytes) -> dict[int, Place]:
    """Reads what `to_token` made, digest and time being optional. Raises ValueError for anything else."""
    try:
        items = orjson.loads(token)
        return {int(partition): _to_place(item) for partition, item in items.items()}
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no places in it: {error!r}") from error


def _to_place(item: Mapping[str, Any]) -> Place:
    generation, offset = int(item["generation"]), int(item["offset"])
    if generation < 0 or offset < 0:
        raise ValueError(f"generation {generation}, offset {offset}: neither can be negative")
    return Place(generation, offset, str(item.get("digest", "")), Millis(int(item.get("time", 0))))
