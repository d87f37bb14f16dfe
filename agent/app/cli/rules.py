"""Every rule that looks at a fault, and what each says of it now: what was counted, how far it is, until when.

The one rule: what a rule has counted comes from the report, what it counts to from the policy that was in force there;
with another policy at hand its numbers are not told.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from agent.app.cli.asked import Asked, is_fault
from agent.app.standing import Standing
from agent.domain import frequency
from agent.domain.duration import Phase, phase_of
from agent.domain.events import ActiveFault, DurationTimer, FaultKey, FrequencyCounter
from agent.domain.isolation import Isolation, count_key
from agent.domain.jobs.filters import filter_key
from agent.domain.ledger import Separation
from agent.domain.policy import UNKNOWN_RULE, DurationRule, FrequencyRule, Policy
from agent.domain.relation import Strategy
from agent.domain.vocab import MANUAL, Millis, Plane, span_text, utc_text

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
    keys |= {who: counter.key for who, counter in standing.counters.items()}
    keys |= {str(key): key for key in standing.separated}
    keys |= {str(key): key for key in _counted(standing)}
    return [keys[who] for who in sorted(keys) if is_fault(f"{who}@{_since(standing.active.get(who))}", asked.ref)]


def _counted(standing: Standing) -> Iterator[FaultKey]:
    """Faults of which some count towards a manual separation."""
    for node, counts in (standing.cluster.counts if standing.cluster is not None else {}).items():
        for name, count in counts.items():
            device, _, code = name.partition("/")
            if count.times:
                yield FaultKey(node, Plane.CHIP, device, code)


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
        freed = standing.cluster.freed if standing.cluster is not None else {}
        yield from _frequency(key, standing.counters.get(who), at, in_force, freed)
    kept = standing.kept.get(fault.occurrence) if fault is not None else None
    if kept is not None:
        until = "for as long as that lasts" if kept.until is None else f"up to {utc_text(kept.until)}"
        yield Word("quiet", f"kept back {until} by {kept.rule}", until=kept.until)
    if fault is not None and in_force is not None:
        yield from _related(fault, at, in_force)
    yield from _related_pods(key, standing)
    yield from _by_hand(key, standing)


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


def _frequency(
    key: FaultKey,
    counter: FrequencyCounter | None,
    at: Millis,
    policy: Policy | None,
    freed: Collection[str],
) -> Iterator[Word]:
    """The frequency rule of the code, or what the report has counted under another policy."""
    rule = policy.frequency(key.code) if policy is not None else None
    if counter is None:
        if rule is not None:
            yield Word(rule.name, f"nothing is counted; {rule.level} at {_trips(rule)}", rule.place, needed=rule.times)
        return
    name, place = (rule.name, rule.place) if rule is not None else (f"frequency:{key.code}", "")
    if counter.trip and counter.trip in freed:
        said = f"{counter.level} of {utc_text(counter.tripped)} was released by a person"
        yield Word(name, said, place)
        return
    match frequency.phase_of(counter):
        case frequency.Phase.COUNTING:
            yield _counting(counter, rule, at, name, place)
        case frequency.Phase.HELD:
            said = f"{counter.level} since {utc_text(counter.tripped)}; {_ends(counter, rule)}"
            yield Word(name, said, place, counter.level)
        case frequency.Phase.CLEAN if not counter.due:
            said = f"{counter.level} since {utc_text(counter.tripped)}, recovered; {_ends(counter, rule)}"
            yield Word(name, said, place, counter.level)
        case frequency.Phase.CLEAN:
            passed, span = max(0, at - counter.recovered), counter.due - counter.recovered
            said = f"{counter.level} stays: clean for {span_text(passed)} of {span_text(span)}; released if still clean"
            said += f" after {utc_text(counter.due)}"
            yield Word(name, said, place, counter.level, passed, span, counter.due)
        case frequency.Phase.RELEASED:
            yield Word(
                name, f"{counter.level} of {utc_text(counter.tripped)} was released at {utc_text(counter.due)}", place
            )
        case frequency.Phase.NONE:
            return


def _counting(counter: FrequencyCounter, rule: FrequencyRule | None, at: Millis, name: str, place: str) -> Word:
    if rule is None:
        return Word(name, f"{len(counter.times)} counted", place, counted=len(counter.times), until=counter.due)
    counted = sum(at - one <= rule.window_ms for one in counter.times)
    more = rule.times - counted
    said = f"{counted} of {_trips(rule)} counted; {rule.level} with {more} more"
    if counted:
        oldest = min(one for one in counter.times if at - one <= rule.window_ms)
        said += f", the oldest counts up to {utc_text(oldest + rule.window_ms)}"
    return Word(name, said, place, "", counted, rule.times, counter.due)


def _trips(rule: FrequencyRule) -> str:
    return f"{rule.times} times within {span_text(rule.window_ms)}"


def _ends(counter: FrequencyCounter, rule: FrequencyRule | None) -> str:
    if counter.level == MANUAL:
        window = "" if rule is not None and not rule.release_ms else " or its window"
        return f"held by the coordinator, until a person{window} releases it"
    if rule is None or not rule.release_ms:
        return "nothing releases it by itself"
    return f"released once clean for longer than {span_text(rule.release_ms)}"


def _by_hand(key: FaultKey, standing: Standing) -> Iterator[Word]:
    """A manual separation of the device for this code, and what is counted towards one."""
    cluster = standing.cluster
    if cluster is None or key.plane is not Plane.CHIP:
        return
    for one in standing.separated.get(key, ()):
        until = separation_end(one, cluster.isolation)
        yield Word("manual-separation", separation_words(one, cluster.isolation), level=MANUAL, until=until)
    count = cluster.counts.get(key.node, {}).get(count_key(int(key.where), key.code)) if key.where.isdecimal() else None
    if count is not None and count.times:
        times, needed = len(count.times), cluster.isolation.threshold if cluster.isolation is not None else None
        of = "" if needed is None else f" of {needed}"
        said = f"{times}{of} counted towards a manual separation (clusterd-config-cm), the newest of"
        yield Word("manual-count", f"{said} {utc_text(count.times[-1])}", counted=times, needed=needed)


def separation_end(one: Separation, isolation: Isolation | None) -> Millis | None:
    """When time releases it; None: not by itself, or not before its fault has recovered."""
    if one.trip:
        return one.due
    return None if isolation is None or isolation.free is None else Millis(one.since + isolation.free)


def separation_words(one: Separation, isolation: Isolation | None) -> str:
    """Since when a device is separated by hand, by what, and until when."""
    cause = "a trip of its frequency rule" if one.trip else "counting (clusterd-config-cm)"
    end = separation_end(one, isolation)
    until = f"until {utc_text(end)}, or until a person releases it" if end is not None else "until a person releases it"
    return f"{MANUAL} since {utc_text(one.since)} by {cause}; {until}"


def _related(fault: ActiveFault, at: Millis, policy: Policy) -> Iterator[Word]:
    """The relation rules that know the code, as a trigger or as a fault that waits for one."""
    code = filter_key(fault.key.code)
    for rule in policy.relations:
        waiting = {filter_key(one): one for one in rule.relations}
        others = [one for key, one in waiting.items() if key != code]
        if code == filter_key(rule.trigger):
            said = f"a trigger: {rule.strategy} for pods on {_listed(rule.relations)}, once the job has all of them"
            yield Word(rule.name, said, rule.place)
        elif code in waiting:
            due = Millis(fault.since + policy.relation_timeouts.get(waiting[code], 0))
            wanted = f"{_listed((rule.trigger, *others))} in the job gives {rule.strategy} to the pods on it"
            wait = f"waited for up to {utc_text(due)}" if at <= due else f"the wait for it was over at {utc_text(due)}"
            yield Word(rule.name, f"{wanted}; {wait}", rule.place, until=due if at <= due else None)


def _listed(codes: Iterable[str]) -> str:
    return " and ".join(codes)


def _related_pods(key: FaultKey, standing: Standing) -> Iterator[Word]:
    """What relation rules have come to for pods because of this fault."""
    for job, ledger in standing.ledgers.items():
        for uid, one in ledger.related.items():
            if one.key == key:
                pod = next((member.pod for member in ledger.members if member.uid == uid), uid)
                strategy = Strategy.SEPARATE if one.separate else Strategy.SUB_HEALTH
                yield Word("relation", f"{strategy} for pod {pod} of {job} since {utc_text(one.since)}")


def _needs(rule: DurationRule) -> str:
    return f"once down for longer than {span_text(rule.fault_timeout_ms)}"
