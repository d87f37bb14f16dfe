"""Relation rules of a policy: FaultRelation and FaultRelationTimeout.

Keys are those of ClusterD's relationFaultCustomization.json and faultDuration.json. The one rule: as in
`agent.wire.rulesfile`, a rule is taken whole or its mistake is noted with file and line.
"""

from collections.abc import Mapping
from typing import Final

from yaml.nodes import Node, SequenceNode

from agent.domain.policy import CODE_SHAPES, RelationRule, chip_number, well_formed
from agent.domain.relation import Strategy
from agent.domain.vocab import SECOND, Millis, Source
from agent.wire.yamlnodes import YamlFile, shown

RELATION: Final = "FaultRelation"
TIMEOUT: Final = "FaultRelationTimeout"
RELATION_KEYS: Final = ("TriggerFault", "RelationFaults", "FaultStrategy")
TIMEOUT_KEYS: Final = ("FaultCode", "FaultType", "TimeOutInterval")
STRATEGIES: Final = tuple(map(str, Strategy))
FAULT_TYPES: Final = ("faultDevice", "faultSwitch")
TIMEOUT_S: Final = (0, 86_400)
"""Ours: ClusterD checks no range, and a day is longer than any use of it."""


def read_relations(file: YamlFile, top: Mapping[str, Node]) -> tuple[tuple[RelationRule, ...], dict[str, Millis]]:
    """The rules and the time-outs by code; mistakes are noted in `file`."""
    rules: dict[tuple[str, frozenset[str]], RelationRule] = {}
    for item in file.items(top[RELATION], RELATION) if RELATION in top else ():
        rule = _rule(file, item)
        if rule is None:
            continue
        key = (rule.trigger, frozenset(rule.relations))
        if key in rules:
            file.wrong(item, f"{shown(rule.trigger)} with these codes already has a relation rule, {rules[key].place}")
        else:
            rules[key] = rule
    timeouts: dict[str, Millis] = {}
    for item in file.items(top[TIMEOUT], TIMEOUT) if TIMEOUT in top else ():
        _timeout(file, item, timeouts)
    return tuple(rules.values()), timeouts


def _given(file: YamlFile, item: Node, what: str, keys: tuple[str, ...]) -> dict[str, Node] | None:
    given = {key: value for key, _, value in file.pairs(item, what, keys)}
    missing = [key for key in keys if key not in given]
    for key in missing:
        file.wrong(item, f"{what} has no {key}")
    return None if missing else given


def _rule(file: YamlFile, item: Node) -> RelationRule | None:
    given = _given(file, item, "a relation rule", RELATION_KEYS)
    if given is None:
        return None
    trigger = _code(file, given["TriggerFault"], switch=False)
    nodes = list(file.items(given["RelationFaults"], "RelationFaults"))
    if isinstance(given["RelationFaults"], SequenceNode) and not nodes:
        file.wrong(given["RelationFaults"], "RelationFaults lists no code")
    relations = [code for node in nodes if (code := _code(file, node)) is not None]
    strategy = file.level(given["FaultStrategy"], "FaultStrategy", STRATEGIES)
    if trigger is None or strategy is None or not nodes or len(relations) < len(nodes):
        return None
    return RelationRule(trigger, tuple(dict.fromkeys(relations)), strategy, file.place(item))


def _timeout(file: YamlFile, item: Node, timeouts: dict[str, Millis]) -> None:
    given = _given(file, item, "a relation time-out", TIMEOUT_KEYS)
    if given is None:
        return
    code = _code(file, given["FaultCode"])
    kind = file.text(given["FaultType"], "FaultType")
    seconds = file.number(given["TimeOutInterval"], "TimeOutInterval (seconds)", *TIMEOUT_S)
    if code is None or kind is None or seconds is None:
        return
    wanted = FAULT_TYPES[code.startswith("[")]
    if kind != wanted:
        file.wrong(given["FaultType"], f"FaultType of {shown(code)} is {wanted}, not {shown(kind)}")
    elif code in timeouts:
        file.wrong(item, f"{shown(code)} already has a relation time-out")
    else:
        timeouts[code] = Millis(seconds * SECOND)


def _code(file: YamlFile, node: Node, switch: bool = True) -> str | None:
    """A chip code in upper case, or a switch's code in its brackets; None after a mistake."""
    text = file.text(node, "a code")
    if text is None:
        return None
    if text.startswith("[") and switch:
        if well_formed(Source.LINGQU, text):
            return text
        file.wrong(node, f"{shown(text)} is no code of a switch: {CODE_SHAPES[Source.LINGQU].expected}")
        return None
    if chip_number(text) is None or text[:2] in ("0x", "0X"):
        file.wrong(node, f"{shown(text)} is no chip code: 1 to 9 hex digits, without 0x")
        return None
    return text.upper()
