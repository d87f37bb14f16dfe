"""The tables of codes: faultCode.json, SwitchFaultCode.json, NodeDConfiguration.json, publicFaultConfiguration.json.

The one rule: of a code in several lists the most severe counts, as its component looks it up, except in NodeD, which
then refuses the file. (device-plugin fault_code.go:690-830, NodeD, ClusterD publicfault.)
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.domain.policy import chip_number, well_formed
from agent.domain.vocab import CHIP_LEVELS, NETWORK_CODES, NODE_LEVELS, SWITCH_LEVELS, Source
from agent.errors import BadInput
from agent.wire.mindcluster.entries import Entry, Foreign, Verdict, lost
from agent.wire.mindcluster.goread import fields, texts
from agent.wire.yamlnodes import shown

CHIP_LISTS: Final[Mapping[str, str]] = {
    "NotHandleFaultCodes": "NotHandleFault",
    "SubHealthFaultCodes": "SubHealthFault",
    "RestartRequestCodes": "RestartRequest",
    "RestartBusinessCodes": "RestartBusiness",
    "FreeRestartNPUCodes": "FreeRestartNPU",
    "RestartNPUCodes": "RestartNPU",
    "PreSeparateNPUCodes": "PreSeparateNPU",
    "SeparateNPUCodes": "SeparateNPU",
}
NETWORK_LISTS: Final[Mapping[str, str]] = {
    "NotHandleFaultNetworkCodes": "NotHandleFault",
    "SubHealthFaultNetworkCodes": "SubHealthFault",
    "PreSeparateNPUNetworkCodes": "PreSeparateNPU",
    "SeparateNPUNetworkCodes": "SeparateNPU",
}
SWITCH_LISTS: Final[Mapping[str, str]] = {
    "NotHandleFaultCodes": "NotHandle",
    "SubHealthFaultCodes": "SubHealthFault",
    "RestartRequestFaultCodes": "RestartRequest",
    "PreSeparateFaultCodes": "PreSeparate",
    "SeparateFaultCodes": "Separate",
    "ResetFaultCodes": "Separate",
}
NODE_LISTS: Final[Mapping[str, str]] = {
    "NotHandleFaultCodes": "NotHandleFault",
    "PreSeparateFaultCodes": "PreSeparateFault",
    "SeparateFaultCodes": "SeparateFault",
}
PUBLIC_LISTS: Final[Mapping[str, str]] = {
    "NotHandleFaultCodes": "NotHandleFault",
    "SubHealthFaultCodes": "SubHealthFault",
    "PreSeparateNPUCodes": "PreSeparateNPU",
    "SeparateNPUCodes": "SeparateNPU",
}
_NETWORK_LEVELS: Final = frozenset(NETWORK_LISTS.values())
_GO_HEX: Final = re.compile(r"[+-]?[0-9A-Fa-f]+")
_NODE_CODE: Final = re.compile(r"[a-zA-Z0-9]{8}")
_SWITCH_LONGEST: Final = 50
_PUBLIC_BYTES: Final = 9


@dataclass(frozen=True, slots=True)
class _Read:
    """One code of a list as its component reads it: its one spelling, the level it asks for there, or why neither."""

    code: str = ""
    level: str = ""
    verdict: Verdict = Verdict.TAKEN
    reason: str = ""


_Reader = Callable[[str, str, str], _Read]
"""List, level of the list and text -> what is read."""


def chip_table(value: Any, name: str) -> Foreign:
    """faultCode.json, for device-plugin."""
    lists = {**CHIP_LISTS, **NETWORK_LISTS}
    found, other = fields(value, "the file", list(lists))
    return _table(name, "device-plugin", "chip", found, other, lists, tuple(CHIP_LEVELS), _chip)


def switch_table(value: Any, name: str) -> Foreign:
    """SwitchFaultCode.json, for device-plugin."""
    found, other = fields(value, "the file", list(SWITCH_LISTS))
    return _table(name, "device-plugin", "switch", found, other, SWITCH_LISTS, tuple(SWITCH_LEVELS), _switch)


def node_table(value: Any, name: str) -> Foreign:
    """NodeDConfiguration.json, for NodeD: one bad code, or one in two levels, refuses the file."""
    outer, other = fields(value, "the file", ["FaultTypeCode"])
    if outer.get("FaultTypeCode") is None:
        raise BadInput("the file has no FaultTypeCode")
    found, inner = fields(outer["FaultTypeCode"], "FaultTypeCode", list(NODE_LISTS))
    levels: dict[str, str] = {}
    for listed, level in NODE_LISTS.items():
        for index, text in enumerate(texts(found.get(listed), listed)):
            if not _NODE_CODE.fullmatch(text):
                raise BadInput(f"{listed}[{index}] {shown(text)} is no code: 8 letters or digits")
            if levels.setdefault(text.upper(), level) != level:
                raise BadInput(f"{listed}[{index}] {shown(text)} is {levels[text.upper()]} too: one level a code")
    read = lambda _listed, level, text: _Read(text.upper(), level)  # noqa: E731  # as short as it is
    return _table(name, "NodeD", "node", found, [*other, *inner], NODE_LISTS, tuple(NODE_LEVELS), read)


def public_table(value: Any, name: str) -> Foreign:
    """publicFaultConfiguration.json, for ClusterD."""
    outer, other = fields(value, "the file", ["publicFaultCode", "publicFaultResource"])
    found, inner = fields(outer.get("publicFaultCode"), "publicFaultCode", list(PUBLIC_LISTS))
    table = _table(
        name, "ClusterD", "public", found, [*other, *inner], PUBLIC_LISTS, tuple(PUBLIC_LISTS.values()), _public
    )
    entries = list(table.entries)
    resources: dict[str, None] = {}
    for index, resource in enumerate(texts(outer.get("publicFaultResource"), "publicFaultResource")):
        entry = Entry(f"publicFaultResource[{index}]", resource, Verdict.TAKEN)
        if resource in resources:
            entry = replace(entry, verdict=Verdict.REPEATED, reason="stands in the list before")
        elif not resource or not resource.isprintable():
            entry = replace(entry, verdict=Verdict.IMPOSSIBLE, reason="no sender can have this name")
        elif resource in tuple(Source):
            reason = "the name of a device source here; its records would be taken for device faults"
            entry = replace(entry, verdict=Verdict.IMPOSSIBLE, reason=reason)
        else:
            resources[resource] = None
        entries.append(entry)
    return replace(table, entries=tuple(entries), resources=tuple(resources))


def _table(
    name: str,
    component: str,
    table: str,
    found: Mapping[str, Any],
    other: Sequence[tuple[str, str]],
    lists: Mapping[str, str],
    ranks: Sequence[str],
    read: _Reader,
) -> Foreign:
    reads = [
        (f"{listed}[{index}]", text, read(listed, level, text))
        for listed, level in lists.items()
        for index, text in enumerate(texts(found.get(listed), listed))
    ]
    if table == "chip":  # the first spelling of a number is the one that stays
        spelled: dict[int | None, str] = {}
        reads = [
            (place, text, replace(one, code=one.code and spelled.setdefault(chip_number(one.code), one.code)))
            for place, text, one in reads
        ]
    levels: dict[str, str] = {}
    for _, _, one in reads:
        if one.code:
            levels[one.code] = max(levels.get(one.code, one.level), one.level, key=ranks.index)
    entries: list[Entry] = []
    said: set[str] = set()
    for place, text, one in reads:
        verdict, reason = one.verdict, one.reason
        if one.code and one.level != levels[one.code]:
            verdict, reason = Verdict.REPEATED, f"is {levels[one.code]} too, and the more severe counts"
        elif one.code in said:
            verdict, reason = Verdict.REPEATED, f"stands under {one.level} before"
        elif one.code:
            said.add(one.code)
        entries.append(Entry(place, text, verdict, reason, one.level))
    entries += lost(other)
    return Foreign(name, component, entries=tuple(entries), table=table, levels=levels)


def _chip(listed: str, level: str, text: str) -> _Read:
    if not _GO_HEX.fullmatch(text):
        return _Read(verdict=Verdict.SKIPPED, reason="no hex number: device-plugin skips it")
    code = text.removeprefix("+").upper()
    if len(code) > _PUBLIC_BYTES:
        code = code.lstrip("0").rjust(8, "0")
    number = chip_number(code)
    if number is None:
        return _Read(verdict=Verdict.IMPOSSIBLE, reason="no event carries such a number: 1 to 9 hex digits")
    network = number in NETWORK_CODES
    if listed in NETWORK_LISTS and not network:
        return _Read(verdict=Verdict.IMPOSSIBLE, reason="no network code: device-plugin never looks for it there")
    if network and level not in _NETWORK_LEVELS:
        reason = f"a network code cannot be {level}: device-plugin takes NotHandleFault"
        return _Read(code, "NotHandleFault", Verdict.CHANGED, reason)
    return _Read(code, level)


def _switch(listed: str, level: str, text: str) -> _Read:
    del listed
    if len(text.encode()) > _SWITCH_LONGEST or text[:1] != "[" or text[-1:] != "]" or text.count(",") != 3:
        reason = f"not four parts in brackets within {_SWITCH_LONGEST} characters: device-plugin skips it"
        return _Read(verdict=Verdict.SKIPPED, reason=reason)
    if not well_formed(Source.LINGQU, text) or not text.isprintable():
        reason = "an empty part, a blank or a second bracket: no event carries it (a missing part is written na)"
        return _Read(verdict=Verdict.IMPOSSIBLE, reason=reason)
    return _Read(text, level)


def _public(listed: str, level: str, text: str) -> _Read:
    del listed
    if len(text.encode()) != _PUBLIC_BYTES:
        return _Read(verdict=Verdict.IMPOSSIBLE, reason="not 9 bytes: ClusterD refuses every record with it")
    if not well_formed(Source.PUBLIC, text):
        return _Read(verdict=Verdict.IMPOSSIBLE, reason="holds a blank or a character outside ASCII")
    return _Read(text, level)
