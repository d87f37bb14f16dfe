"""`volcano-scheduler-configmap`: whether Volcano's plugin for NPUs is configured, and how.

The one rule: it is read for people only. A value that the plugin would not take is a problem with its name; nothing is
decided by any of it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from agent.errors import BadDocument
from agent.wire.plainyaml import plain_yaml

NAMESPACE: Final = "volcano-system"
NAME: Final = "volcano-scheduler-configmap"
KEY: Final = "volcano-scheduler.conf"
PLACE: Final = f"ConfigMap {NAMESPACE}/{NAME}"
PLUGIN: Final = re.compile(r"volcano-npu(_.*)?")
"""The plugin goes by its file: `volcano-npu_<version>_linux-<architecture>`."""
INIT_PARAMS: Final = "init-params"


@dataclass(frozen=True, slots=True)
class Param:
    """One of the init-params: what the plugin takes, and what it takes it for when it is absent."""

    name: str
    default: str
    shape: re.Pattern[str]
    words: str
    once: bool = False
    """Read when the scheduler starts; a change needs its restart. The others are read anew each session."""


def _flag(name: str, default: str, *, once: bool = False) -> Param:
    return Param(name, default, re.compile("true|false"), "true or false", once)


_SECONDS: Final = re.compile(r"[2-9]|[1-9][0-9]{1,2}|[12][0-9]{3}|3[0-5][0-9]{2}|3600")
_WHOLE: Final = re.compile(r"[0-9]{1,9}")
PARAMS: Final[Mapping[str, Param]] = {
    one.name: one
    for one in (
        Param("grace-over-time", "900", _SECONDS, "a whole number of seconds of 2 to 3600"),
        _flag("presetVirtualDevice", "false"),
        Param("nslb-version", "1.0", re.compile(r"1\.0|2\.0"), "1.0 or 2.0", once=True),
        Param("shared-tor-num", "2", re.compile("[12]"), "1 or 2", once=True),
        _flag("useClusterInfoManager", "true", once=True),
        _flag("self-maintain-available-card", "true", once=True),
        Param("super-pod-size", "48", _WHOLE, "a whole number"),
        Param("reserve-nodes", "2", _WHOLE, "a whole number"),
        _flag("forceEnqueue", "true", once=True),
        _flag("prefer-previous-node", "false"),
    )
}
"""Names, defaults and ranges of the plugin (ascend-for-volcano plugin/factory.go:934-1111, read once: 256-268)."""
LEVELS: Final = "resource-level-config"
"""The one whose value is a JSON text: the levels of schedule_policy multilevel."""


@dataclass(frozen=True, slots=True)
class Scheduler:
    """What the scheduler's configuration says."""

    plugin: str = ""
    """As it is configured in a tier; empty: it is in none."""
    params: Mapping[str, str] = field(default_factory=dict)
    """The init-params as given."""
    problems: tuple[str, ...] = ()
    """Each init-param that the plugin would not take, and why."""

    def is_bad(self, name: str) -> bool:
        """Whether the value given for this init-param is outside its range."""
        return any(problem.startswith(f"{INIT_PARAMS} {name}: ") for problem in self.problems)


def parse_scheduler(data: Mapping[str, str]) -> Scheduler:
    """The configuration in a ConfigMap's data. Raises BadDocument with the place, when the scheduler could not read it
    either.
    """
    if KEY not in data:
        raise BadDocument(f"has no key {KEY}", place=PLACE, hint="the scheduler reads its tiers and init-params there")
    place = f"{PLACE}: {KEY}"
    found = plain_yaml(data[KEY], place)
    if not isinstance(found, Mapping):
        raise BadDocument("is no mapping", place=place)
    plugins = [
        name
        for at, tier in enumerate(_mappings(found, "tiers", place))
        for plugin in _mappings(tier, "plugins", f"{place}: tiers[{at}]")
        if isinstance(name := plugin.get("name"), str) and PLUGIN.fullmatch(name)
    ]
    params: dict[str, str] = {}
    for one in _mappings(found, "configurations", place):
        if one.get("name") != INIT_PARAMS:
            continue
        given = one.get("arguments") or {}
        if not isinstance(given, Mapping):
            raise BadDocument(f"{INIT_PARAMS}: arguments is no mapping", place=place)
        params = {str(name): _text(value) for name, value in given.items()}
    return Scheduler(", ".join(dict.fromkeys(plugins)), params, tuple(_problems(params)))


def _problems(params: Mapping[str, str]) -> Iterator[str]:
    for name, value in params.items():
        known = PARAMS.get(name)
        if known is not None and known.shape.fullmatch(value) is None:
            unsure = f"what the plugin makes of it is not known; without it, it takes {known.default}"
            yield f"{INIT_PARAMS} {name}: {value!r:.60} is not {known.words}; {unsure}"
        if name == LEVELS and value:
            try:
                orjson.loads(value)
            except orjson.JSONDecodeError as error:
                yield f"{INIT_PARAMS} {name}: no JSON: {error}"


def _mappings(of: Mapping[str, Any], key: str, place: str) -> list[Mapping[str, Any]]:
    value = of.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise BadDocument(f"{key} is no list of mappings", place=place)
    return value


def _text(value: Any) -> str:
    """An argument as text; YAML takes 900 for a number and true for a truth value where no quotes stand."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else "" if value is None else str(value)
