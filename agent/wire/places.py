"""Where reading of each partition stands, as the text that a fault source is opened with.

The one rule: what cannot be read as places is no place at all; it never stops a reader.
"""

from collections.abc import Mapping

import orjson

from agent.domain.events import Scanned
from agent.domain.vocab import Millis


def encode_places(scanned: Mapping[int, Scanned]) -> bytes | None:
    """The token of these places; None when there are none, which begins at the earliest record."""
    if not scanned:
        return None
    return orjson.dumps(
        {
            str(partition): {"generation": at.generation, "offset": at.offset, "digest": at.digest, "time": at.time}
            for partition, at in sorted(scanned.items())
        }
    )


def decode_places(token: bytes) -> dict[int, Scanned]:
    """Places of a token that a batch came with; empty when it holds none."""
    try:
        return {
            int(partition): Scanned(
                int(place["generation"]), int(place["offset"]), Millis(int(place.get("time", 0))), str(place["digest"])
            )
            for partition, place in orjson.loads(token).items()
            if "digest" in place
        }
    except (orjson.JSONDecodeError, AttributeError, TypeError, ValueError, KeyError):
        return {}
