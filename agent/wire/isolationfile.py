"""ClusterD's two ConfigMaps about manual separation, read only: its policy, and the devices that it has separated.

The one rule: what cannot be read is a BadDocument and never an empty answer, for an empty list releases devices.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from agent.domain.isolation import FREE_HOURS, NEVER, THRESHOLD, WINDOW_HOURS, Isolation
from agent.domain.vocab import HOUR, Millis
from agent.errors import BadDocument
from agent.wire.plainyaml import plain_yaml

NAMESPACE: Final = "cluster-system"
CONFIG: Final = "clusterd-config-cm"
CONFIG_KEY: Final = "manually_separate_policy.conf"
MANUAL_INFO: Final = "clusterd-manual-info-cm"
_PLACE: Final = f"ConfigMap {NAMESPACE}/{CONFIG}: {CONFIG_KEY}"


def parse_isolation(data: Mapping[str, str]) -> Isolation:
    """The policy of `clusterd-config-cm`. Raises BadDocument with the field, for a value that ClusterD would refuse."""
    found = plain_yaml(data.get(CONFIG_KEY, ""), _PLACE)
    top = _mapping(found, "")
    enabled = top.get("enabled")
    if not isinstance(enabled, bool):
        raise BadDocument(f"enabled: {enabled!r:.40} is neither true nor false", place=_PLACE)
    if not enabled:
        return Isolation(enabled=False)
    separate, release = _mapping(top.get("separate"), "separate"), _mapping(top.get("release"), "release")
    window = _number(separate, "separate.fault_window_hours", WINDOW_HOURS)
    threshold = _number(separate, "separate.fault_threshold", THRESHOLD)
    free = _number(release, "release.fault_free_hours", FREE_HOURS, NEVER)
    return Isolation(True, Millis(window * HOUR), threshold, None if free == NEVER else Millis(free * HOUR))


def parse_manual_info(text: str, place: str) -> dict[int, Millis]:
    """Physical ids in Total of one node's value of `clusterd-manual-info-cm`, each with the newest LastSeparateTime of
    its Detail, 0 where that tells none. Raises BadDocument.
    """
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadDocument(f"no JSON: {error}", place=place, hint=_HINT) from error
    total = found.get("Total") if isinstance(found, dict) else None
    if not isinstance(total, list):
        raise BadDocument("Total is no list of device names", place=place, hint=_HINT)
    devices: dict[int, Millis] = {}
    for name in total:
        front, _, back = name.rpartition("-") if isinstance(name, str) else ("", "", "")
        number = back.partition("_")[0] if front else ""
        if not (number.isascii() and number.isdecimal()) or len(number) > 9:
            raise BadDocument(f"Total: {name!r:.60} is no device name such as Ascend910-3", place=place, hint=_HINT)
        devices[int(number)] = _last_separated(found.get("Detail"), name)
    return devices


def _last_separated(detail: Any, name: str) -> Millis:
    found = detail.get(name) if isinstance(detail, dict) else None
    several = found if isinstance(found, list) else []
    told = [one.get("LastSeparateTime") for one in several if isinstance(one, dict)]
    return Millis(max((at for at in told if type(at) is int), default=0))


_HINT: Final = "nothing is released by it; write what was there before without the name that is to be released"


def _mapping(found: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise BadDocument(f"{name or 'the policy'} is no mapping", place=_PLACE)
    return found


def _number(group: Mapping[str, Any], name: str, limits: tuple[int, int], beside: int | None = None) -> int:
    value = group.get(name.rpartition(".")[2])
    low, high = limits
    if isinstance(value, bool) or not isinstance(value, int) or not (low <= value <= high or value == beside):
        or_ = "" if beside is None else f", or {beside}"
        raise BadDocument(f"{name}: {value!r:.40} is no whole number of {low} to {high}{or_}", place=_PLACE)
    return value
