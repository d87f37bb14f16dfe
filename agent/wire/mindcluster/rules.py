"""The rules: faultCustomization.json, relationFaultCustomization.json, faultDuration.json.

The one rule: a rule is taken as a whole or not at all, as its component does, and of two for one code the first counts.
(device-plugin fault_code.go:876-1102, ClusterD relationfault.)
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from agent.domain.policy import DurationRule, FrequencyRule, RelationRule, chip_number, well_formed
from agent.domain.vocab import MANUAL, NETWORK_CODES, SECOND, Millis, Source
from agent.errors import BadInput
from agent.wire.mindcluster.entries import Entry, Foreign, Verdict, lost
from agent.wire.mindcluster.goread import fields, items, text, texts, whole
from agent.wire.relationrules import RELATION_KEYS, STRATEGIES, TIMEOUT_KEYS, TIMEOUT_S
from agent.wire.rulesfile import (
    DURATION_KEYS,
    FAULT_TIMEOUT_S,
    FREQUENCY_LEVELS,
    FREQUENCY_MAY,
    NETWORK_LEVELS,
    RECOVER_TIMEOUT_S,
    RELEASE_TIME_WINDOW_S,
    RULE_LEVELS,
    TIME_WINDOW_S,
    TIMES,
)
from agent.wire.yamlnodes import nearest, shown

GRACE_S: Final = {
    "WaitProcessReadCMTime": (5, 90, 30),
    "WaitDeviceResetTime": (60, 180, 150),
    "WaitFaultSelfHealingTime": (1, 30, 15),
}
"""Lowest, highest, and what device-plugin takes instead of anything else (constants.go:636-676)."""


def customization(value: Any, name: str) -> Foreign:
    """faultCustomization.json, for device-plugin: a rule out of its range is skipped, the others count."""
    found, other = fields(value, "the file", ["GraceTolerance", "FaultFrequency", "FaultDuration"])
    entries = list(_grace(found.get("GraceTolerance")))
    frequencies: dict[int, FrequencyRule] = {}
    for index, item in enumerate(items(found.get("FaultFrequency"), "FaultFrequency")):
        entries += _rule(item, f"FaultFrequency[{index}]", _Frequency, frequencies)
    durations: dict[int, DurationRule] = {}
    for index, item in enumerate(items(found.get("FaultDuration"), "FaultDuration")):
        entries += _rule(item, f"FaultDuration[{index}]", _Duration, durations)
    entries += lost(other)
    return Foreign(
        name,
        "device-plugin",
        entries=tuple(entries),
        frequencies=tuple(frequencies.values()),
        durations=tuple(durations.values()),
    )


def _grace(value: Any) -> Iterator[Entry]:
    found, other = fields(value, "GraceTolerance", list(GRACE_S))
    for key, (low, high, usual) in GRACE_S.items():
        if key not in found:
            continue
        place, seconds = f"GraceTolerance.{key}", whole(found[key], f"GraceTolerance.{key}")
        if low <= seconds <= high:
            yield Entry(place, str(seconds), Verdict.UNUSED, "belongs to a mode that device-plugin never switches on")
        else:
            reason = f"{seconds} is not from {low} to {high}: device-plugin takes {usual}; nothing here asks for it"
            yield Entry(place, str(seconds), Verdict.UNUSED, reason)
    yield from lost(other, "GraceTolerance.")


@dataclass(frozen=True, slots=True)
class _Frequency:
    """A frequency rule as it is written; seconds."""

    window: int
    times: int
    release: int
    level: str

    @classmethod
    def read(cls, found: dict[str, Any], place: str) -> "_Frequency":
        return cls(
            whole(found.get("TimeWindow"), f"{place}.TimeWindow"),
            whole(found.get("Times"), f"{place}.Times"),
            whole(found.get("ReleaseTimeWindow"), f"{place}.ReleaseTimeWindow"),
            text(found.get("FaultHandling"), f"{place}.FaultHandling"),
        )

    @staticmethod
    def keys() -> tuple[str, ...]:
        return FREQUENCY_MAY

    def wrong(self) -> str:
        """Why device-plugin skips it; empty: it does not."""
        endless = RELEASE_TIME_WINDOW_S[1]
        release = self.release or endless
        return (
            _outside("TimeWindow", self.window, TIME_WINDOW_S)
            or _outside("ReleaseTimeWindow", release, RELEASE_TIME_WINDOW_S)
            or _outside("Times", self.times, TIMES)
            or _no_level(self.level, FREQUENCY_LEVELS)
            or ("" if self.level == MANUAL or release != endless else f"{self.level} needs a ReleaseTimeWindow")
        )

    def rule(self, code: str, place: str) -> FrequencyRule:
        release = 0 if self.release == RELEASE_TIME_WINDOW_S[1] else self.release
        spans = Millis(self.window * SECOND), Millis(release * SECOND)
        return FrequencyRule(code, spans[0], self.times, self.level, spans[1], place)


@dataclass(frozen=True, slots=True)
class _Duration:
    """A duration rule as it is written; seconds."""

    fault: int
    recover: int
    level: str

    @classmethod
    def read(cls, found: dict[str, Any], place: str) -> "_Duration":
        return cls(
            whole(found.get("FaultTimeout"), f"{place}.FaultTimeout"),
            whole(found.get("RecoverTimeout"), f"{place}.RecoverTimeout"),
            text(found.get("FaultHandling"), f"{place}.FaultHandling"),
        )

    @staticmethod
    def keys() -> tuple[str, ...]:
        return DURATION_KEYS

    def wrong(self) -> str:
        """Why device-plugin skips it; empty: it does not."""
        return (
            _outside("FaultTimeout", self.fault, FAULT_TIMEOUT_S)
            or _outside("RecoverTimeout", self.recover, RECOVER_TIMEOUT_S)
            or _no_level(self.level, RULE_LEVELS)
        )

    def rule(self, code: str, place: str) -> DurationRule:
        return DurationRule(code, Millis(self.fault * SECOND), Millis(self.recover * SECOND), self.level, place)


def _rule(value: Any, place: str, form: type[_Frequency] | type[_Duration], taken: dict[int, Any]) -> Iterator[Entry]:
    found, other = fields(value, place, list(form.keys()))
    rule = form.read(found, place)
    codes = texts(found.get("EventId"), f"{place}.EventId")
    wrong = rule.wrong()
    if not codes:
        yield Entry(f"{place}.EventId", "", Verdict.SKIPPED, "lists no code: device-plugin skips the rule")
    for index, code in enumerate(codes):
        where = f"{place}.EventId[{index}]"
        if wrong:
            yield Entry(where, code, Verdict.SKIPPED, f"{wrong}: device-plugin skips the rule", rule.level)
        else:
            yield _one(where, code, rule, taken)
    yield from lost(other, f"{place}.")


def _one(where: str, code: str, rule: _Frequency | _Duration, taken: dict[int, Any]) -> Entry:
    number = chip_number(code) if code[:2].lower() != "0x" else None
    if number is None:
        reason = "no hex number of 1 to 9 digits: no fault has this code"
        return Entry(where, code, Verdict.IMPOSSIBLE, reason, rule.level)
    if number in taken:
        reason = f"has a rule before, {taken[number].place}, and the first counts"
        return Entry(where, code, Verdict.REPEATED, reason, rule.level)
    if number in NETWORK_CODES and rule.level not in (*NETWORK_LEVELS, MANUAL):
        reason = f"a network code cannot become {rule.level} here; it may become {', '.join(NETWORK_LEVELS)}"
        return Entry(where, code, Verdict.IMPOSSIBLE, reason, rule.level)
    taken[number] = rule.rule(code.upper(), where)
    return Entry(where, code, Verdict.TAKEN, "", rule.level)


def _outside(key: str, value: int, span: tuple[int, int]) -> str:
    low, high = span
    return "" if low <= value <= high else f"{key} {value} is not from {low} to {high}"


def _no_level(level: str, levels: tuple[str, ...]) -> str:
    return "" if level in levels else f"FaultHandling cannot be {shown(level)}{nearest(level, levels)}"


def relations(value: Any, name: str) -> Foreign:
    """relationFaultCustomization.json, for ClusterD, which takes each rule as it is."""
    rules: dict[tuple[str, frozenset[str]], RelationRule] = {}
    entries: list[Entry] = []
    for index, item in enumerate(items(value, "the file")):
        place = f"[{index}]"
        found, other = fields(item, place, list(RELATION_KEYS))
        trigger = text(found.get("TriggerFault"), f"{place}.TriggerFault")
        codes = texts(found.get("RelationFaults"), f"{place}.RelationFaults")
        strategy = text(found.get("FaultStrategy"), f"{place}.FaultStrategy")
        reason = _no_relation(trigger, codes, strategy)
        verdict = Verdict.IMPOSSIBLE if reason else Verdict.TAKEN
        what = f"{trigger} + {', '.join(codes)} → {strategy}"
        key = (trigger, frozenset(codes))
        if not reason and key in rules:
            # ClusterD acts on both, and a separation sticks.
            strongest = max(rules[key].strategy, strategy, key=STRATEGIES.index)
            rules[key] = replace(rules[key], strategy=strongest)
            verdict, reason = Verdict.REPEATED, f"is at {rules[key].place} before; the stronger, {strongest}, counts"
        elif not reason:
            rules[key] = RelationRule(trigger, tuple(dict.fromkeys(codes)), strategy, place)
        entries.append(Entry(place, what, verdict, reason))
        entries += lost(other, f"{place}.")
    return Foreign(name, "ClusterD", entries=tuple(entries), relations=tuple(rules.values()))


def _no_relation(trigger: str, codes: list[str], strategy: str) -> str:
    if not _code(trigger) or trigger.startswith("["):
        return f"TriggerFault {shown(trigger)} is no code that a fault can have, so the rule never acts"
    if not codes:
        return "RelationFaults lists no code, so the rule never acts"
    bad = [code for code in codes if not _code(code)]
    if bad:
        return f"RelationFaults {shown(bad[0])} is no code that a fault can have, so the rule never acts"
    if strategy not in STRATEGIES:
        return f"FaultStrategy cannot be {shown(strategy)}{nearest(strategy, STRATEGIES)}"
    return ""


def _code(code: str) -> bool:
    """A chip code in upper case, as ClusterD compares it, or a switch code."""
    hex_code = well_formed(Source.DCMI, code) and code == code.upper() and not code.startswith("0X")
    return hex_code or well_formed(Source.LINGQU, code)


def relation_timeouts(value: Any, name: str) -> Foreign:
    """faultDuration.json, for ClusterD: how long a relation code waits for its trigger. The last of a code counts."""
    entries: list[Entry] = []
    timeouts: dict[str, Millis] = {}
    for index, item in enumerate(items(value, "the file")):
        place = f"[{index}]"
        found, other = fields(item, place, list(TIMEOUT_KEYS))
        code = text(found.get("FaultCode"), f"{place}.FaultCode")
        text(found.get("FaultType"), f"{place}.FaultType")
        seconds = whole(found.get("TimeOutInterval"), f"{place}.TimeOutInterval")
        what = f"{code}: {seconds} s"
        if not code:
            entries.append(Entry(place, what, Verdict.SKIPPED, "has no FaultCode: ClusterD skips it"))
        elif seconds < 0:
            entries.append(Entry(place, what, Verdict.SKIPPED, "TimeOutInterval is below 0: ClusterD skips it"))
        elif not _code(code):
            entries.append(Entry(place, what, Verdict.IMPOSSIBLE, "no code that a fault can have"))
        elif seconds > TIMEOUT_S[1]:
            reason = f"longer than {TIMEOUT_S[1]} s, the longest that can be said here"
            entries.append(Entry(place, what, Verdict.IMPOSSIBLE, reason))
        else:
            again = code in timeouts and timeouts[code] != seconds * SECOND
            reason = f"takes the place of {timeouts[code] // SECOND} s before it" if again else ""
            entries.append(Entry(place, what, Verdict.CHANGED if again else Verdict.TAKEN, reason))
            timeouts[code] = Millis(seconds * SECOND)
        entries += lost(other, f"{place}.")
    if not timeouts:
        raise BadInput("no entry is left that ClusterD takes")
    return Foreign(name, "ClusterD", entries=tuple(entries), relation_timeouts=timeouts)
