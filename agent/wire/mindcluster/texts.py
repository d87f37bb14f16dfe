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

_HEAD: Final = """\
# Imported from {names}.
# Every code stands in quotes: without them YAML reads 81078603 as a number.
version: {version}
"""


def policy_texts(files: Sequence[Foreign], known: Policy) -> dict[str, str]:
    """Policy files by name (chip.yaml, rules.yaml, …) for what the files hold, one of a kind.

    Meanings and modules come from `known`; so does `unknown_held_level`, which none of the files has.
    """
    found: dict[str, str] = {}
    rules = [file for file in files if not file.table and not file.refusal]
    for file in files:
        if file.table and not file.refusal:
            found[TABLE_FILES[file.table]] = _table(file, known)
    customized = [file for file in rules if file.name == "faultCustomization.json"]
    if customized:
        found[RULES] = _rules(customized[-1], known)
    return found


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


def _rules(file: Foreign, known: Policy) -> str:
    lines = [_HEAD.format(names=file.name, version=VERSION) + f"unknown_held_level: {known.unknown_held_level}"]
    lines += _listed("FaultFrequency", file.frequencies, _frequency)
    lines += _listed("FaultDuration", file.durations, _duration)
    return "\n".join(lines) + "\n"


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
