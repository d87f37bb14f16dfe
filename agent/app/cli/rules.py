"""Every rule that looks at a fault, and what each says of it now: what was counted, how far it is, until when.

The one rule: what a rule has counted comes from the report, what it counts to from the policy that was in force there;
with another policy at hand its numbers are not told.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.app.cli.asked import Asked, is_fault
from agent.app.standing import Standing
from agent.domain.duration import Phase, phase_of
from agent.domain.events import ActiveFault, DurationTimer, FaultKey
from agent.domain.policy import UNKNOWN_RULE, DurationRule, Policy
from agent.domain.vocab import Millis, Plane, span_text, utc_text

_OVER_TIME = (Plane.CHIP, Plane.NETWORK)
"""Planes with rules over time."""


@dataclass(frozen=True, slots=True)
class Word:
    """What one rule says of one fault."""

    rule: str
    said: str
    place: str = ""
    """`file:line` of the policy."""
    level: str = ""
    """The level it gives now; empty: none yet."""
    counted: int | None = None
    """In ms or in faults, as `said` tells, of `needed`."""
    needed: int | None = None
    until: Millis | None = None
    """When it changes by itself."""

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        return f"{self.rule}{place}: {self.said}"


def asked_for(asked: Asked, standing: Standing) -> list[FaultKey]:
    """Identities that are asked for and of which a report knows something now, in the order of their text."""
    if asked.kind != "fault":
        return []
    keys = {who: fault.key for who, fault in standing.active.items()}
    keys |= {who: timer.key for who, timer in standing.timers.items()}
    return [keys[who] for who in sorted(keys) if is_fault(f"{who}@{_since(standing.active.get(who))}", asked.ref)]


def _since(fault: ActiveFault | None) -> int:
    return fault.since if fault is not None else 0


def strangers(standing: Standing, policy: Policy) -> list[str]:
    """Nodes whose report was rated by another policy than this one."""
    return sorted(node for node, report in standing.reports.items() if report.policy not in ("", policy.digest))


def words(key: FaultKey, standing: Standing, policy: Policy, at: Millis) -> Iterator[Word]:
    """What every rule that looks at this fault says of it at that time (ms), by its node's report."""
    report = standing.reports.get(key.node)
    if report is None:
        return
    who = str(key)
    fault = standing.active.get(who)
    in_force = policy if report.policy in ("", policy.digest) else None
    if fault is not None:
        yield _table(fault, in_force)
    if key.plane in _OVER_TIME:
        yield from _duration(key, standing.timers.get(who), at, in_force)


def _table(fault: ActiveFault, policy: Policy | None) -> Word:
    key = fault.key
    if policy is None:
        return Word(fault.rule, f"{fault.level}, as the report says", level=fault.level)
    rating = policy.rate(key.plane, key.code, fault.severity)
    if rating.rule != UNKNOWN_RULE:
        return Word(rating.rule, rating.level, rating.place, rating.level)
    severity = "without a severity" if fault.severity is None else f"severity {fault.severity}"
    held = "held until a person adds the code to the policy" if rating.held else "shown, nothing is done"
    return Word(rating.rule, f"{rating.level}; no table knows it, {severity}: {held}", level=rating.level)


def _duration(key: FaultKey, timer: DurationTimer | None, at: Millis, policy: Policy | None) -> Iterator[Word]:
    """The duration rule of the code, or what the report knows of its episode under another policy."""
    rule = policy.duration(key.code) if policy is not None else None
    if timer is None:
        if rule is not None:
            yield Word(rule.name, f"nothing is timed; {rule.level} {_needs(rule)}", rule.place)
        return
    name, place = (rule.name, rule.place) if rule is not None else (f"duration:{key.code}", "")
    level = rule.level if rule is not None else "its level"
    passed = max(0, at - timer.since)
    span = timer.due - timer.since
    match phase_of(timer):
        case Phase.DOWN:
            said = (
                f"down for {span_text(passed)} of {span_text(span)}; {level} if still down after {utc_text(timer.due)}"
            )
            yield Word(name, said, place, "", passed, span, timer.due)
        case Phase.RAISED:
            said = f"{level} since {utc_text(timer.since)}, while it is down"
            if rule is not None:
                said += f" and until it was up for longer than {span_text(rule.recover_timeout_ms)}"
            yield Word(name, said, place, rule.level if rule is not None else "")
        case Phase.UP:
            said = f"{level} stays: up for {span_text(passed)} of {span_text(span)}; cleared if still up after"
            said += f" {utc_text(timer.due)}"
            yield Word(name, said, place, rule.level if rule is not None else "", passed, span, timer.due)
        case Phase.CLEAN:
            return


def _needs(rule: DurationRule) -> str:
    return f"once down for longer than {span_text(rule.fault_timeout_ms)}"
