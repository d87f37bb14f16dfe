"""What is right in some policy files and yet not meant: rules that never act, overrides that change nothing.

The one rule: a finding names its line and what to do; an error is what the agent would refuse, a warning what it would
take and somebody surely did not mean, a note what is worth knowing.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final

from agent.domain.policy import CodeRule, DurationRule, FrequencyRule, Policy, RelationRule, chip_number
from agent.domain.vocab import L2_LEVEL, L2_LINK_DOWN, L2_PORTS, SECOND, Plane
from agent.wire.overridefile import OverrideEntry
from agent.wire.policyfile import OVERRIDES, RULES, TABLE_FILES, Examined, examine

SOON: Final = timedelta(days=14)
"""An override that ends within this time is worth a note."""


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: `kind` is a word to filter by, `place` is `file:line`."""

    severity: Severity
    kind: str
    place: str
    text: str


def lint(files: Mapping[str, bytes], shipped: Mapping[str, bytes], today: date) -> list[Finding]:
    """Findings on the policy that `files` give (the site's laid over the shipped ones), by place.

    `today` (UTC) decides which overrides have expired. Nothing is raised, whatever the bytes are.
    """
    examined = examine(files, today)
    found = [
        Finding(Severity.ERROR, "mistake", f"{problem.path}:{problem.line}", problem.reason)
        for problem in examined.problems
    ]
    own = frozenset(files) - frozenset(shipped)
    # What seems to be missing may stand on a line that has a mistake, so nothing is said of it before that is mended.
    broken = {_name(problem.path) for problem in examined.problems}
    found += _overrides(examined, files, own, today)
    found += _rules(examined.policy)
    if RULES not in broken:
        found += _relation_times(examined.policy, next((path for path in files if _name(path) == RULES), RULES))
    if broken.isdisjoint((*TABLE_FILES.values(), OVERRIDES)):
        found += _unlisted(examined.policy)
    found += _lost(examined.policy, {path: data for path, data in files.items() if _name(path) not in broken}, shipped)
    return sorted(found, key=_in_order)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _in_order(finding: Finding) -> tuple[str, int]:
    path, _, line = finding.place.rpartition(":")
    return path, int(line) if line.isdecimal() else 0


def _overrides(examined: Examined, files: Mapping[str, bytes], own: frozenset[str], today: date) -> Iterator[Finding]:
    below = examine({path: data for path, data in files.items() if not path.endswith("overrides.yaml")}).policy
    for entry in examined.overrides:
        rows: Mapping[Any, CodeRule] = getattr(below, entry.table)
        place, code, row = entry.rule.place, entry.rule.code, rows.get(entry.key)
        if entry.expired(today):
            holds = f"{row.level} ({row.place}) holds again" if row else "the code is unknown again"
            text = f"the override of {code} ended with {entry.expires}: {holds}; remove it or give it a new day"
            yield Finding(Severity.WARNING, "expired", place, text)
            continue
        if entry.expires is not None and entry.expires - today <= SOON:
            text = f"the override of {code} ends with {entry.expires}"
            yield Finding(Severity.NOTE, "expires-soon", place, text)
        if row is None:
            yield _added(entry, rows)
        elif row.level == entry.rule.level:
            text = f"the override of {code} changes nothing: it is {row.level} already, {row.place}"
            yield Finding(Severity.WARNING, "changes-nothing", place, text)
        elif row.place.rpartition(":")[0] in own:
            text = f"{code} stands here as {row.level} and is shadowed by the override at {place}: keep one of them"
            yield Finding(Severity.WARNING, "shadowed", row.place, text)


def _added(entry: OverrideEntry, rows: Mapping[Any, CodeRule]) -> Finding:
    near = get_close_matches(entry.rule.code, [row.code for row in rows.values()], n=1, cutoff=0.8)
    meant = f"; the nearest that is listed is {near[0]}" if near else ""
    text = f"{entry.rule.code} is in no {entry.table} table and is added as {entry.rule.level}{meant}"
    return Finding(Severity.NOTE, "adds-code", entry.rule.place, text)


def _rules(policy: Policy) -> Iterator[Finding]:
    for number, duration in policy.durations.items():
        yield from _never_above(policy, number, duration, "duration")
    for number, frequency in policy.frequencies.items():
        yield from _never_above(policy, number, frequency, "frequency")
        beside = policy.durations.get(number)
        if beside is None:
            continue
        shortest = (frequency.times - 1) * beside.fault_timeout_ms
        if frequency.times > 1 and shortest >= frequency.window_ms:
            text = (
                f"the frequency rule of {frequency.code} can never trip: {frequency.times} faults, each down for more "
                f"than {beside.fault_timeout_ms // SECOND} s ({beside.place}), do not fit into "
                f"{frequency.window_ms // SECOND} s"
            )
            yield Finding(Severity.WARNING, "unreachable", frequency.place, text)

    row = policy.switch.get(L2_LINK_DOWN)
    if row is not None and policy.worst(Plane.SWITCH, (row.level, L2_LEVEL)) == row.level:
        text = f"{row.code} is {row.level} anyway, which leaves the rule of {L2_PORTS} L2 ports nothing to raise"
        yield Finding(Severity.NOTE, "unreachable", row.place, text)


def _relation_times(policy: Policy, path: str) -> Iterator[Finding]:
    named: set[str] = set()
    for rule in policy.relations:
        named.update(rule.relations)
        for code in rule.relations:
            if not policy.relation_timeouts.get(code):
                text = f"{code} waits for no trigger, for FaultRelationTimeout gives it no time: the rule never acts"
                yield Finding(Severity.WARNING, "unreachable", rule.place, text)
    for code in policy.relation_timeouts:
        if code not in named:
            text = f"FaultRelationTimeout gives a time to {code}, which no relation rule waits with"
            yield Finding(Severity.WARNING, "changes-nothing", f"{path}:1", text)


def _never_above(policy: Policy, number: int, rule: DurationRule | FrequencyRule, kind: str) -> Iterator[Finding]:
    base = policy.chip.get(number)
    if base is None or policy.worst(Plane.CHIP, (base.level, rule.level)) != base.level:
        return
    severity, left, place = Severity.WARNING, "", rule.place
    if kind == "duration" and number in policy.frequencies:
        severity, left = Severity.NOTE, "; it still decides which faults the frequency rule counts"
    text = (
        f"the {kind} rule of {rule.code} never raises it: {base.level} ({base.place}) is not below {rule.level}{left}"
    )
    if base.override is not None:
        place = base.place
        text = (
            f"the override of {rule.code} to {base.level} leaves its {kind} rule to {rule.level} ({rule.place}) "
            f"nothing to raise{left}"
        )
    yield Finding(severity, "unreachable", place, text)


def _unlisted(policy: Policy) -> Iterator[Finding]:
    over_time = [("duration", number, rule.code, rule.place) for number, rule in policy.durations.items()]
    over_time += [("frequency", number, rule.code, rule.place) for number, rule in policy.frequencies.items()]
    for kind, number, code, place in over_time:
        if number not in policy.chip:
            near = get_close_matches(code, [row.code for row in policy.chip.values()], n=1, cutoff=0.8)
            meant = f"; the nearest that is listed is {near[0]}" if near else ""
            text = f"the {kind} rule is for {code}, which the chip table does not list{meant}"
            yield Finding(Severity.WARNING, "unlisted-code", place, text)
    for relation in policy.relations:
        for code in (relation.trigger, *relation.relations):
            if (code not in policy.switch) if code.startswith("[") else chip_number(code) not in policy.chip:
                text = f"the relation rule of {relation.trigger} names {code}, which its table does not list"
                yield Finding(Severity.WARNING, "unlisted-code", relation.place, text)


def _lost(policy: Policy, files: Mapping[str, bytes], shipped: Mapping[str, bytes]) -> Iterator[Finding]:
    """Files of the site's own that hold less than the shipped ones they stand for."""
    with_us = examine(shipped).policy
    own = {_name(path): f"{path}:1" for path in files if path not in shipped}
    for table, name in TABLE_FILES.items():
        if name in own:
            rows, all_rows = _rows(policy, table), _rows(with_us, table)
            then = "unknown", "; to change single codes use overrides.yaml"
            yield from _missing("codes-lost", own[name], "codes", rows, all_rows, then)
    if (name := TABLE_FILES["public"]) in own:
        then = "their records refused (RESOURCE_UNKNOWN)", "; list them under resources"
        senders = _as_is(sorted(policy.public_resources)), _as_is(sorted(with_us.public_resources))
        yield from _missing("senders-lost", own[name], "senders", *senders, then)
    for what, rules, all_rules in _rule_kinds(policy, with_us) if RULES in own else ():
        copy = f"(`fault-agent policy export FOLDER --only {RULES}`)"
        then = "act no more", f"; the file stands for all of them, so copy those that shall stay {copy}"
        yield from _missing("rules-lost", own[RULES], what, rules, all_rules, then)


def _missing(
    kind: str, place: str, what: str, mine: Mapping[Any, str], theirs: Mapping[Any, str], then: tuple[str, str]
) -> Iterator[Finding]:
    """A finding when some of theirs are not among mine: what would follow, and what to do."""
    lost = [code for key, code in theirs.items() if key not in mine]
    if lost:
        name = _name(place).rpartition(":")[0]
        first = ", ".join(lost[:3]) + (", …" if len(lost) > 3 else "")
        text = f"{len(lost)} of the {len(theirs)} {what} of the shipped {name} would be lost and {then[0]}: {first}"
        yield Finding(Severity.WARNING, kind, place, text + then[1])


def _rows(policy: Policy, table: str) -> Mapping[Any, str]:
    rows: Mapping[Any, CodeRule] = getattr(policy, table)
    return {key: row.code for key, row in rows.items()}


def _rule_kinds(mine: Policy, theirs: Policy) -> Iterator[tuple[str, Mapping[Any, str], Mapping[Any, str]]]:
    """Each kind of rules in words, and both policies' of it: the code by what makes two rules one."""
    yield "frequency rules", _by_number(mine.frequencies), _by_number(theirs.frequencies)
    yield "duration rules", _by_number(mine.durations), _by_number(theirs.durations)
    yield "relation rules", _by_codes(mine.relations), _by_codes(theirs.relations)
    yield "relation time-outs", _as_is(mine.relation_timeouts), _as_is(theirs.relation_timeouts)


def _by_number(rules: Mapping[int, DurationRule] | Mapping[int, FrequencyRule]) -> Mapping[Any, str]:
    return {number: rule.code for number, rule in rules.items()}


def _by_codes(rules: Iterable[RelationRule]) -> Mapping[Any, str]:
    return {
        (rule.trigger, frozenset(rule.relations)): " + ".join((rule.trigger, *sorted(rule.relations))) for rule in rules
    }


def _as_is(codes: Iterable[str]) -> Mapping[Any, str]:
    return {code: code for code in codes}
