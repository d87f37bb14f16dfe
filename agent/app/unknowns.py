"""Codes that were seen and that no table of a policy lists: in reasons, in reports, and in records that were refused.

The one rule: the policy that is asked decides what is unknown, so that a code that was added since is none of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from agent.domain.events import NodeReport, Record
from agent.domain.policy import Policy
from agent.domain.vocab import DeadReason, Plane, Reason
from agent.wire.audit import AuditLine


@dataclass(slots=True)
class SeenCode:
    """An unknown code and where it was met. Times in Unix ms, 0 where none is known."""

    code: str
    plane: Plane
    levels: set[str] = field(default_factory=set)
    """What it was shown as; empty when every record with it was refused."""
    held: bool = False
    """It waited for a person, or does."""
    occurrences: set[str] = field(default_factory=set)
    counted: int = 0
    """Faults that the reports remember, also where a journal of theirs is gone."""
    refused: int = 0
    """Records that were dead-lettered for it."""
    nodes: set[str] = field(default_factory=set)
    severities: set[int] = field(default_factory=set)
    """As their senders told them."""
    active: int = 0
    first: int = 0
    last: int = 0

    @property
    def times(self) -> int:
        """How often it was met."""
        return max(len(self.occurrences), self.counted) + self.refused

    def at(self, time: int) -> None:
        """Note a time at which it was met."""
        self.first = min(self.first or time, time)
        self.last = max(self.last, time)


def unknown_codes(
    policy: Policy, lines: Iterable[AuditLine], reports: Iterable[NodeReport], letters: Iterable[Record]
) -> list[SeenCode]:
    """The unknown codes of a journal, of nodes' reports and of dead letters; those met last first."""
    found: dict[tuple[Plane, str], SeenCode] = {}

    def seen(plane: Plane, code: str) -> SeenCode | None:
        if policy.rule(plane, code) is not None:
            return None
        return found.setdefault((plane, code), SeenCode(code, plane))

    for line in lines:
        decision = line.decision
        identity = decision.fault.rpartition("@")[0].split("/", 3)
        if len(identity) != 4 or identity[1] not in tuple(Plane):
            continue
        if one := seen(Plane(identity[1]), identity[3]):
            one.at(decision.at)
            one.nodes.add(identity[0])
            one.held = one.held or decision.reason is Reason.HELD
            if decision.level:
                one.levels.add(decision.level)
            if decision.occurrence:
                one.occurrences.add(decision.occurrence)
    for report in reports:
        for fault in report.active:
            if one := seen(fault.key.plane, fault.key.code):
                one.at(fault.since)
                one.nodes.add(report.node)
                one.active += 1
                one.held = one.held or fault.held
                one.levels.add(fault.level)
                one.occurrences.add(fault.occurrence)
        for met in report.unknown:
            if one := seen(met.plane, met.code):
                one.at(met.first)
                one.at(met.last)
                one.nodes.add(report.node)
                one.counted += met.count
                if met.severity is not None:
                    one.severities.add(met.severity)
    for letter in letters:
        for code in _refused_codes(letter):
            if one := seen(Plane.PUBLIC, code):
                one.refused += 1
                one.at(letter.timestamp)
                one.nodes.add((letter.key or b"").decode("utf-8", "replace"))
    return sorted(found.values(), key=lambda one: (-one.last, one.plane, one.code))


def _refused_codes(letter: Record) -> set[str]:
    """The codes of a letter that was refused for a code of no public table."""
    if dict(letter.headers).get("fault-agent-reason") != str(DeadReason.CODE_UNKNOWN).encode():
        return set()
    try:
        faults = orjson.loads(letter.value or b"")["faults"]
        return {fault["faultCode"] for fault in faults if isinstance(fault["faultCode"], str)}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return set()
