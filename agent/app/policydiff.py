"""What one policy says otherwise than another: codes, rules over time, settings.

The one rule: two policies of the same digest have no difference, and two of different digests have at least one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.domain.policy import CodeRule, DurationRule, FrequencyRule, Policy, chip_number
from agent.domain.vocab import SECOND
from agent.wire.mindcluster import Foreign
from agent.wire.policyfile import RULES, TABLE_FILES

TABLES: Final = ("chip", "switch", "node", "dpu", "public")
_Rule = FrequencyRule | DurationRule


@dataclass(frozen=True, slots=True)
class CodeChange:
    """A code that is rated otherwise; None on the side whose table does not list it."""

    table: str
    code: str
    before: CodeRule | None
    after: CodeRule | None


@dataclass(frozen=True, slots=True)
class RuleChange:
    """A rule or setting that says otherwise, in words; empty on the side that has none."""

    kind: str
    """`frequency`, `duration`, `relation`, `relation time-out`, `unknown_held_level`, `public_resources`."""
    what: str
    """The code of a rule, or the codes; empty of a setting."""
    before: str
    after: str
    place: str = ""
    """`file:line` of the rule, the file of a setting."""


@dataclass(frozen=True, slots=True)
class Changes:
    """All differences. `same`: codes rated alike in the tables that were compared."""

    codes: tuple[CodeChange, ...]
    rules: tuple[RuleChange, ...]
    same: int

    def __bool__(self) -> bool:
        return bool(self.codes or self.rules)


def diff(before: Policy, after: Policy) -> Changes:
    """Everything that decides and differs."""
    codes, same = _codes(before, after, TABLES)
    rules = _rules("frequency", before.frequencies, after.frequencies)
    rules += _rules("duration", before.durations, after.durations)
    rules += _relations(before, after)
    if before.unknown_held_level != after.unknown_held_level:
        levels = before.unknown_held_level, after.unknown_held_level
        rules.append(RuleChange("unknown_held_level", "", *levels, RULES))
    rules += _resources(before, after)
    return Changes(tuple(codes), tuple(rules), same)


def coverage(file: Foreign, in_force: Policy) -> Changes:
    """What a file of MindCluster's (before) says otherwise than the policy in force (after), in what it holds."""
    theirs = foreign_policy(file)
    codes, same = _codes(theirs, in_force, (file.table,) if file.table else ())
    rules: list[RuleChange] = []
    if file.name == "faultCustomization.json" and not file.refusal:
        rules += _rules("frequency", theirs.frequencies, in_force.frequencies)
        rules += _rules("duration", theirs.durations, in_force.durations)
    if file.name == "relationFaultCustomization.json" and not file.refusal:
        rules += _worded("relation", _relation_words(theirs), _relation_words(in_force))
    if file.name == "faultDuration.json" and not file.refusal:
        rules += _worded("relation time-out", _timeout_words(theirs), _timeout_words(in_force))
    if file.table == "public":
        rules += _resources(theirs, in_force)
    return Changes(tuple(codes), tuple(rules), same)


def lost_rules(file: Foreign, in_force: Policy) -> list[tuple[str, str]]:
    """Rules and senders in force that a file of MindCluster's does not hold and that it would take away: kind, code."""
    found: list[tuple[str, str]] = []
    for one in coverage(file, in_force).rules:
        if one.kind == "public_resources":
            found += [("sender", name) for name in one.after.split(", ") if name]
        elif not one.before:
            found.append((one.kind, one.what))
    return found


def foreign_policy(file: Foreign) -> Policy:
    """A file of MindCluster's as a policy that holds nothing else."""
    rows = {
        chip_number(code) if file.table == "chip" else code: CodeRule(code, level, file.name)
        for code, level in file.levels.items()
    }
    tables: dict[str, Any] = {file.table: rows} if file.table else {}
    return Policy(
        **tables,
        frequencies={number: rule for rule in file.frequencies if (number := chip_number(rule.code)) is not None},
        durations={number: rule for rule in file.durations if (number := chip_number(rule.code)) is not None},
        relations=file.relations,
        relation_timeouts=file.relation_timeouts,
        public_resources=frozenset(file.resources),
    )


def _codes(before: Policy, after: Policy, tables: Sequence[str]) -> tuple[list[CodeChange], int]:
    found: list[CodeChange] = []
    same = 0
    for table in tables:
        old: Mapping[Any, CodeRule] = getattr(before, table)
        new: Mapping[Any, CodeRule] = getattr(after, table)
        for key in dict.fromkeys([*old, *new]):
            was, its = old.get(key), new.get(key)
            # The spelling stands in reports and documents, so that it is a difference too.
            if was is not None and its is not None and (was.level, was.code) == (its.level, its.code):
                same += 1
                continue
            code = its.code if its is not None else was.code if was is not None else ""
            found.append(CodeChange(table, code, was, its))
    return found, same


def _rules(kind: str, before: Mapping[int, _Rule], after: Mapping[int, _Rule]) -> list[RuleChange]:
    found: list[RuleChange] = []
    for number in dict.fromkeys([*before, *after]):
        was, its = before.get(number), after.get(number)
        words = rule_words(was), rule_words(its)
        if words[0] != words[1]:
            rule = its or was
            found.append(RuleChange(kind, rule.code if rule else "", *words, rule.place if rule else ""))
    return found


def _relations(before: Policy, after: Policy) -> list[RuleChange]:
    rules = _worded("relation", _relation_words(before), _relation_words(after))
    return rules + _worded("relation time-out", _timeout_words(before), _timeout_words(after))


_Worded = Mapping[str, tuple[str, str]]
"""What a rule is for -> what it says, and its place."""


def _relation_words(policy: Policy) -> _Worded:
    return {
        f"{one.trigger} + {', '.join(sorted(one.relations))}": (one.strategy, one.place) for one in policy.relations
    }


def _timeout_words(policy: Policy) -> _Worded:
    return {code: (f"{span // SECOND} s", RULES) for code, span in policy.relation_timeouts.items()}


def _worded(kind: str, before: _Worded, after: _Worded) -> list[RuleChange]:
    found: list[RuleChange] = []
    for what in dict.fromkeys([*before, *after]):
        (was, there), (its, here) = before.get(what, ("", "")), after.get(what, ("", ""))
        if was != its:
            found.append(RuleChange(kind, what, was, its, here or there))
    return found


def _resources(before: Policy, after: Policy) -> list[RuleChange]:
    gone = ", ".join(sorted(before.public_resources - after.public_resources))
    new = ", ".join(sorted(after.public_resources - before.public_resources))
    return [RuleChange("public_resources", "", gone, new, TABLE_FILES["public"])] if gone or new else []


def rule_words(rule: _Rule | None) -> str:
    """What a rule over time does, in a few words; empty without one."""
    match rule:
        case None:
            return ""
        case DurationRule():
            down, up = rule.fault_timeout_ms // SECOND, rule.recover_timeout_ms // SECOND
            return f"{rule.level} after more than {down} s down, until more than {up} s up"
        case FrequencyRule():
            until = f"clean for more than {rule.release_ms // SECOND} s" if rule.release_ms else "a person ends it"
            return f"{rule.level} after {rule.times} in {rule.window_ms // SECOND} s, until {until}"
