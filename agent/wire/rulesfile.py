"""The rules over time of a policy: FaultFrequency and FaultDuration, keys and ranges as in faultCustomization.json.

The one rule: a rule is taken whole or its mistake is noted with file and line; device-plugin would skip it in silence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from yaml.nodes import MappingNode, Node, SequenceNode

from agent.domain.policy import DurationRule, FrequencyRule, RelationRule, chip_number
from agent.domain.vocab import CHIP_LEVELS, MANUAL, NETWORK_CODES, SECOND, Millis
from agent.wire.relationrules import RELATION, TIMEOUT, read_relations
from agent.wire.yamlnodes import YamlFile, shown

FAULT_TIMEOUT_S: Final = (0, 600)
RECOVER_TIMEOUT_S: Final = (0, 86_400)
TIME_WINDOW_S: Final = (60, 864_000)
TIMES: Final = (1, 100)
RELEASE_TIME_WINDOW_S: Final = (60, 2**32)
"""Ranges of device-plugin's faultCustomization.json (constants.go:636-676)."""
NEVER_S: Final = (0, RELEASE_TIME_WINDOW_S[1])
"""A ReleaseTimeWindow that means never, as an absent one does: 0, and device-plugin's own mark for it, 2^32."""

NETWORK_LEVELS: Final = ("NotHandleFault", "SubHealthFault", "PreSeparateNPU", "SeparateNPU")
"""A network code cannot ask for a restart; device-plugin turns such a level into NotHandleFault (fault_code.go:702)."""

RULE_LEVELS: Final = tuple(level for level in CHIP_LEVELS if level not in ("NormalNPU", MANUAL))
"""What a table or a duration rule may ask for. ManuallySeparateNPU is only ever the result of counting."""
FREQUENCY_LEVELS: Final = (*RULE_LEVELS, MANUAL)

RULES_KEYS: Final = ("version", "unknown_held_level", "FaultFrequency", "FaultDuration", RELATION, TIMEOUT)
DURATION_KEYS: Final = ("EventId", "FaultTimeout", "RecoverTimeout", "FaultHandling")
FREQUENCY_KEYS: Final = ("EventId", "TimeWindow", "Times", "FaultHandling")
FREQUENCY_MAY: Final = (*FREQUENCY_KEYS, "ReleaseTimeWindow")


@dataclass(slots=True)
class Rules:
    """What a rules file says; one rule of each kind a code."""

    unknown_held_level: str = "NotHandleFault"
    frequencies: dict[int, FrequencyRule] = field(default_factory=dict)
    durations: dict[int, DurationRule] = field(default_factory=dict)
    relations: tuple[RelationRule, ...] = ()
    relation_timeouts: dict[str, Millis] = field(default_factory=dict)


def read_rules(file: YamlFile, top: Mapping[str, Node]) -> Rules:
    """The rules under the top-level keys of a rules file; mistakes are noted in `file`."""
    rules = Rules()
    if "unknown_held_level" in top:
        level = file.level(top["unknown_held_level"], "unknown_held_level", RULE_LEVELS)
        rules.unknown_held_level = level or rules.unknown_held_level
    for item in file.items(top["FaultFrequency"], "FaultFrequency") if "FaultFrequency" in top else ():
        _frequency(file, item, rules.frequencies)
    for item in file.items(top["FaultDuration"], "FaultDuration") if "FaultDuration" in top else ():
        _duration(file, item, rules.durations)
    rules.relations, rules.relation_timeouts = read_relations(file, top)
    return rules


def chip_code(file: YamlFile, text: str, node: Node) -> int | None:
    """A chip code as integer; None after a mistake. Bare, because the table's spelling is the one that is shown."""
    number = chip_number(text)
    if number is None:
        file.wrong(node, f"{shown(text)} is no chip code: 1 to 9 hex digits")
    elif text[:2] in ("0x", "0X"):
        file.wrong(node, f"write {shown(text)} without 0x, as the tables do")
        return None
    return number


def _given(file: YamlFile, item: Node, what: str, must: Sequence[str], may: Sequence[str]) -> dict[str, Node] | None:
    """The values of a rule by key; None after a missing one."""
    given = {key: value for key, _, value in file.pairs(item, f"a {what} rule", may)}
    missing = [key for key in must if key not in given]
    for key in missing if isinstance(item, MappingNode) else ():
        file.wrong(item, f"the {what} rule has no {key}")
    return None if missing else given


def _codes(
    file: YamlFile, listed: Node, what: str, level: str | None, taken: Mapping[int, FrequencyRule | DurationRule]
) -> list[tuple[int, str, str]]:
    """Number, spelling and place of each code that such a rule may have."""
    found: list[tuple[int, str, str]] = []
    nodes = list(file.items(listed, "EventId"))
    if isinstance(listed, SequenceNode) and not nodes:
        file.wrong(listed, "EventId lists no code")
    here: dict[int, str] = {number: rule.place for number, rule in taken.items()}
    for node in nodes:
        text = file.text(node, "a code")
        number = chip_code(file, text, node) if text is not None else None
        if text is None or number is None:
            continue
        if number in here:
            file.wrong(node, f"{shown(text)} already has a {what} rule, {here[number]}")
        elif level in RULE_LEVELS and number in NETWORK_CODES and level not in NETWORK_LEVELS:
            file.wrong(node, f"{shown(text)} is a network code and cannot become {level}")
        else:
            here[number] = file.place(node)
            found.append((number, text.upper(), file.place(node)))
    return found


def _duration(file: YamlFile, item: Node, durations: dict[int, DurationRule]) -> None:
    given = _given(file, item, "duration", DURATION_KEYS, DURATION_KEYS)
    if given is None:
        return
    fault = file.number(given["FaultTimeout"], "FaultTimeout (seconds)", *FAULT_TIMEOUT_S)
    recover = file.number(given["RecoverTimeout"], "RecoverTimeout (seconds)", *RECOVER_TIMEOUT_S)
    level = file.level(given["FaultHandling"], "FaultHandling", RULE_LEVELS)
    codes = _codes(file, given["EventId"], "duration", level, durations)
    if fault is not None and recover is not None and level is not None:
        timeouts = Millis(fault * SECOND), Millis(recover * SECOND)
        durations.update({number: DurationRule(text, *timeouts, level, place) for number, text, place in codes})


def _frequency(file: YamlFile, item: Node, frequencies: dict[int, FrequencyRule]) -> None:
    given = _given(file, item, "frequency", FREQUENCY_KEYS, FREQUENCY_MAY)
    if given is None:
        return
    window = file.number(given["TimeWindow"], "TimeWindow (seconds)", *TIME_WINDOW_S)
    times = file.number(given["Times"], "Times", *TIMES)
    level = file.level(given["FaultHandling"], "FaultHandling", FREQUENCY_LEVELS)
    release = _release(file, given["ReleaseTimeWindow"]) if "ReleaseTimeWindow" in given else 0
    if release == 0 and level in RULE_LEVELS:
        file.wrong(
            given.get("ReleaseTimeWindow", item),
            f"a frequency rule to {level} needs a ReleaseTimeWindow of {RELEASE_TIME_WINDOW_S[0]} or more seconds; "
            f"only {MANUAL} may be without, because a person ends it",
        )
        return
    codes = _codes(file, given["EventId"], "frequency", level, frequencies)
    if window is None or times is None or level is None or release is None:
        return
    spans = Millis(window * SECOND), Millis(release * SECOND)
    for number, text, place in codes:
        frequencies[number] = FrequencyRule(text, spans[0], times, level, spans[1], place)


def _release(file: YamlFile, node: Node) -> int | None:
    """Seconds, 0 for never; None after a mistake."""
    low, high = RELEASE_TIME_WINDOW_S
    seconds = file.number(node, "ReleaseTimeWindow (seconds)", 0, high)
    if seconds is not None and seconds not in NEVER_S and seconds < low:
        file.wrong(node, f"ReleaseTimeWindow (seconds) is {seconds}; it must be 0 (never) or from {low} to {high}")
        return None
    return 0 if seconds in NEVER_S else seconds
