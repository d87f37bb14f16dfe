"""What a control line of a stream must look like: an object to lay, one that is gone, a link probe, a time.

The one rule: what Kubernetes or a report could never hold is refused here with its field and why, so that nothing
further in stumbles over it or keeps it.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from agent.domain.vocab import Millis, NodeName
from agent.errors import BadDocument
from agent.wire.envelope import EARLIEST, NODE_NAME
from agent.wire.kubereader import bad_name

LATEST: Final = 4_102_444_800_000
"""2100-01-01T00:00Z in ms; a time from here on is a slip of the sender, and would end every deadline there is."""
MAX_DEVICE: Final = 63
_DEPTH: Final = 8
"""Levels in which an object is wrapped where it is kept."""


def credible(at: object) -> Millis | None:
    """A time in Unix ms that a clock may be set by: a whole number from 2025 until before 2100; None for all else."""
    if type(at) is int and EARLIEST <= at < LATEST:
        return Millis(at)
    return None


def probe_of(body: Mapping[str, Any]) -> tuple[NodeName, dict[int, str]]:
    """Node and links of a probe: device -> `up`, `down` or another word, which means unknown. Raises BadDocument."""
    node = body.get("node")
    if not isinstance(node, str) or NODE_NAME.fullmatch(node) is None:
        raise BadDocument(f"{_shown(node)} is no node name", place="probe: node")
    links = body.get("links")
    if not isinstance(links, Mapping):
        raise BadDocument(f"{_shown(links)} is no mapping of devices to words", place="probe: links")
    states: dict[int, str] = {}
    for device, state in links.items():
        if not _is_device(device):
            raise BadDocument(f"{_shown(device)} is no device of 0 to {MAX_DEVICE}", place="probe: links")
        if not isinstance(state, str):
            raise BadDocument(
                f"{_shown(state)} is no word", place=f"probe: links[{device}]", hint="up, down or unknown"
            )
        states[int(device)] = state
    return NodeName(node), states


def gone_of(body: Mapping[str, Any]) -> tuple[str, str, str]:
    """Kind, namespace and name of an object that is gone. Raises BadDocument."""
    found: dict[str, str] = {}
    for key in ("kind", "namespace", "name"):
        value = body.get(key)
        if not isinstance(value, str) and not (key == "namespace" and value is None):
            raise BadDocument(f"{_shown(value)} is no text", place=f"delete: {key}")
        found[key] = value or ""
    kind, namespace, name = found["kind"], found["namespace"], found["name"]
    if bad := bad_name(kind, namespace or "default", name):
        raise BadDocument(bad, place=f"delete: {kind[:60]}")
    return kind, namespace, name


def check_object(body: Mapping[str, Any]) -> None:
    """Refuse an object that could not be kept: nested too deep to be written. Raises BadDocument."""
    wrapped: Any = body
    for _ in range(_DEPTH):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except TypeError as error:
        raise BadDocument(f"the object cannot be kept: {error}", place="apply") from error


def _is_device(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 2 and int(text) <= MAX_DEVICE


def _shown(value: object) -> str:
    """A value for people: short whatever it is, and not walked into."""
    if isinstance(value, str):
        return repr(value[:60])
    return repr(value) if value is None or isinstance(value, int | float) else f"a {type(value).__name__}"
