"""A file of MindCluster's as a policy file of ours.

The one rule: what is written here is read back by `agent.wire.policyfile` without a mistake.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent.domain.policy import CodeRule, DurationRule, FrequencyRule, Policy, chip_number
from agent.domain.vocab import SECOND
from agent.wire.mindcluster.entries import Foreign
from agent.wire.policyfile import RULES, TABLE_FILES, TABLES, VERSION
from agent.wire.relationrules import FAULT_TYPES, RELATION, TIMEOUT

_HEAD: Final = """\
# Imported from {names}.
# Every code stands in quotes: without them YAML reads 81078603 as a number.
version: {version}
"""


def policy_texts(files: Sequence[Foreign], known: Policy) -> dict[str, str]:
    """Policy files by name (chip.yaml, rules.yaml, …) for what the files hold, one of a kind.

    Meanings and modules come from `known`; so do `unknown_held_level` and the rules that none of the files holds.
    """
    found: dict[str, str] = {}
    rules = [file for file in files if not file.table and not file.refusal]
    for file in files:
        if file.table and not file.refusal:
            found[TABLE_FILES[file.table]] = _table(file, known)
    if rules:
        found[RULES] = _rules({file.name: file for file in rules}, known)
    return found


def kept_rules(files: Sequence[Foreign], known: Policy) -> list[tuple[str, str, bool]]:
    """What the rules.yaml of `policy_texts` has from `known`: in words, the file that would hold it, and whether that
    was given and refused. Empty when no rules.yaml is made.
    """
    given = {file.name: bool(file.refusal) for file in files if not file.table}
    if all(given.values()):
        return []
    numbers = {
        "faultCustomization.json": (
            (len(known.frequencies), "frequency rule"),
            (len(known.durations), "duration rule"),
        ),
        "relationFaultCustomization.json": ((len(known.relations), "relation rule"),),
        "faultDuration.json": ((len(known.relation_timeouts), "relation time-out"),),
    }
    return [
        (" and ".join(f"{number} {kind}{'' if number == 1 else 's'}" for number, kind in kinds), name, name in given)
        for name, kinds in numbers.items()
        if given.get(name, True)
    ]


def _table(file: Foreign, known: Policy) -> str:
    lines = [_HEAD.format(names=file.name, version=VERSION).rstrip()]
    if file.table == "public":
        lines += [
            f"resources:{'' if file.resources else ' []'}",
            *(f"  - {_quoted(name)}" for name in file.resources),
        ]
    lines.append("levels:")
    rows: Mapping[Any, CodeRule] = getattr(known, file.table)
    for level in TABLES[TABLE_FILES[file.table]].levels:
        lines.append(f"  {level}:")
        for code in sorted(code for code, its in file.levels.items() if its == level):
            row = rows.get(chip_number(code) if file.table == "chip" else code)
            notes = () if row is None else (("module", row.module), ("meaning", row.meaning))
            words = ", ".join(f"{key}: {_quoted(value)}" for key, value in notes if value)
            lines.append(f"    {_quoted(code)}:{f' {{{words}}}' if words else ''}")
    return "\n".join(lines) + "\n"


def _rules(files: Mapping[str, Foreign], known: Policy) -> str:
    """A rules file stands for the whole of the one it replaces, so what none of the files holds is `known`'s."""
    over_time = files.get("faultCustomization.json", known)
    pairs, waits = files.get("relationFaultCustomization.json", known), files.get("faultDuration.json", known)
    head = _HEAD.format(names=", ".join(files), version=VERSION)
    lines = [f"{head}unknown_held_level: {known.unknown_held_level}"]
    lines += _listed("FaultFrequency", tuple(_values(over_time.frequencies)), _frequency)
    lines += _listed("FaultDuration", tuple(_values(over_time.durations)), _duration)
    lines.append(f"{RELATION}:{'' if pairs.relations else ' []'}")
    for one in pairs.relations:
        lines.append(f"  - TriggerFault: {_quoted(one.trigger)}")
        lines.append(f"    RelationFaults: [{', '.join(map(_quoted, one.relations))}]")
        lines.append(f"    FaultStrategy: {one.strategy}")
    lines.append(f"{TIMEOUT}:{'' if waits.relation_timeouts else ' []'}")
    for code, span in waits.relation_timeouts.items():
        lines.append(f"  - FaultCode: {_quoted(code)}")
        lines.append(f"    FaultType: {FAULT_TYPES[code.startswith('[')]}")
        lines.append(f"    TimeOutInterval: {span // SECOND}")
    return "\n".join(lines) + "\n"


def _values(rules: Any) -> Iterable[Any]:
    """The rules of a file, or of a policy, which has them by number."""
    return rules.values() if isinstance(rules, Mapping) else rules


def _frequency(rule: FrequencyRule) -> tuple[tuple[str, Any], ...]:
    release = (("ReleaseTimeWindow", rule.release_ms // SECOND),) if rule.release_ms else ()
    return (
        ("TimeWindow", rule.window_ms // SECOND),
        ("Times", rule.times),
        *release,
        ("FaultHandling", rule.level),
    )


def _duration(rule: DurationRule) -> tuple[tuple[str, Any], ...]:
    return (
        ("FaultTimeout", rule.fault_timeout_ms // SECOND),
        ("RecoverTimeout", rule.recover_timeout_ms // SECOND),
        ("FaultHandling", rule.level),
    )


def _listed(key: str, rules: Sequence[Any], values: Any) -> Iterable[str]:
    """The rules of one kind, codes with the same values together."""
    groups: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for rule in rules:
        groups.setdefault(values(rule), []).append(rule.code)
    yield f"{key}:{'' if groups else ' []'}"
    for group, codes in groups.items():
        yield f"  - EventId: [{', '.join(map(_quoted, codes))}]"
        yield from (f"    {name}: {value}" for name, value in group)


def _quoted(value: str) -> str:
    """A YAML double-quoted scalar; JSON's is one."""
    return json.dumps(value, ensure_ascii=False)
