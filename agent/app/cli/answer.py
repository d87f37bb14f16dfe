"""The answer of `why`: what was decided, oldest first, and how it stands now; for people and for machines.

The one rule: a reference is never broken or cut, and what is not known is not said.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from agent.app.cli.account import many
from agent.app.cli.asked import Asked
from agent.app.cli.rules import Word, separation_words
from agent.app.cli.show import folded, local_offset
from agent.app.rollcall import UNKNOWN_AFTER
from agent.app.standing import Evidence, Standing
from agent.app.telling import Letter
from agent.domain.events import ActiveFault, Decision, FaultKey, FrequencyCounter
from agent.domain.relation import Strategy
from agent.domain.reset import due
from agent.domain.vocab import JobId, Millis, NodeName, Reason, span_text, utc_text
from agent.wire.audit import AuditLine, rfc3339

Item = AuditLine | Letter
FEW: Final = 10
"""Faults that are over, and rules of faults, are listed one by one up to this many."""
_INSET: Final = "           "


def in_order(lines: Sequence[AuditLine], letters: Sequence[Letter]) -> list[Item]:
    """Decisions in the order of the journal, and each dead letter before the first decision that is younger."""
    items: list[Item] = []
    waiting = sorted(letters, key=lambda letter: letter.at)
    for line in lines:
        while waiting and waiting[0].at <= line.decision.at:
            items.append(waiting.pop(0))
        items.append(line)
    return [*items, *waiting]


def plain(item: Item, standing: Standing) -> dict[str, object]:
    """For machines."""
    if isinstance(item, Letter):
        return {
            "kind": "dead_letter",
            "time": rfc3339(item.at),
            "reason": item.reason,
            "detail": item.detail,
            "source": item.source,
            "key": item.key,
        }
    decision = item.decision
    return {
        "kind": "decision",
        "time": rfc3339(decision.at),
        "reason": str(decision.reason),
        "detail": decision.detail,
        "fault": decision.fault,
        "meaning": item.meaning,
        "active": standing.is_active(decision.fault),
        "level": decision.level,
        "node": decision.node,
        "job": decision.job,
        "ranks": list(decision.ranks),
        "document": decision.document,
        "causes": [{"fault": one.fault, "job": one.job} for one in decision.causes],
        "mode": item.mode,
        "policy": item.policy,
        "trace": decision.trace,
    }


def blocks(items: Sequence[Item]) -> Iterator[str]:
    """One block an item: a line that says what, and below it, indented, the rest."""
    if not items:
        yield "Nothing was decided about it in what was read."
        return
    last = items[-1]
    yield f"Times are UTC; local time is UTC{local_offset(last.at if isinstance(last, Letter) else last.decision.at)}."
    yield ""
    meant: set[str] = set()
    for item in items:
        if isinstance(item, Letter):
            yield f"{utc_text(item.at)}  DEAD_LETTER  {item.reason}  {item.source}"
            yield from folded("detail", item.detail)
            continue
        decision = item.decision
        what = decision.fault or decision.document or decision.job or str(decision.node)
        yield "  ".join(filter(None, (utc_text(decision.at), str(decision.reason), decision.level, what)))
        code = decision.fault.rpartition("@")[0].rpartition("/")[2]
        if item.meaning and code not in meant:
            meant.add(code)
            yield from folded("meaning", item.meaning)
        if decision.job and decision.job != what:
            ranks = f"  rank {','.join(map(str, decision.ranks))}" if decision.ranks else ""
            yield f"    {'job':<10}{decision.job}{ranks}"
        if decision.document and decision.document != what:
            yield f"    {'document':<10}{decision.document}"
        if decision.detail:
            yield from folded("detail", decision.detail)
        yield from _causes(decision)


def _causes(decision: Decision) -> Iterator[str]:
    for place, cause in enumerate(decision.causes):
        own = cause.job if cause.job != decision.job else ""
        yield f"    {'' if place else 'because':<10}{'  '.join(filter(None, (cause.fault, own)))}".rstrip()


def plain_word(key: FaultKey, word: Word) -> dict[str, object]:
    """What a rule says of a fault, for machines."""
    return {
        "kind": "rule",
        "identity": str(key),
        "rule": word.rule,
        "place": word.place,
        "level": word.level,
        "said": word.said,
        "counted": word.counted,
        "needed": word.needed,
        "until": None if word.until is None else rfc3339(word.until),
    }


def rules(said: Mapping[FaultKey, Sequence[Word]], at: Millis) -> Iterator[str]:
    """Every rule that looks at the faults that were asked for, and what each says at that time."""
    if said:
        yield ""
        yield f"Rules, as of {utc_text(at)}:"
    for key in list(said)[:FEW]:
        yield f"  {key}"
        for word in said[key]:
            yield from folded("", str(word), 0)
    if len(said) > FEW:
        yield f"  and {many(len(said) - FEW, 'fault')} more; ask for one of them"


def now(asked: Asked, items: Sequence[Item], evidence: Evidence) -> Iterator[str]:
    """How the faults that were told of stand now, what is still to come, and what a ledger that is asked for holds."""
    standing = evidence.standing
    decisions = [item.decision for item in items if isinstance(item, AuditLine)]
    jobs = _jobs_of(decisions)
    refs = list(jobs)
    states = {ref: standing.is_active(ref) for ref in refs}
    last_rail = {one.fault: one.reason for one in decisions if one.reason.startswith("RAIL_")}
    yield ""
    yield "Now:"
    for ref in (ref for ref, active in states.items() if active):
        yield from _active(ref, standing.active[ref.rpartition("@")[0]], jobs[ref], standing)
        if last_rail.get(ref) is Reason.RAIL_OBSERVING:
            yield f"{_INSET}pending: whether a rail is borrowed"
    for word, active in (("cleared", False), ("unknown", None)):
        which = [ref for ref, is_active in states.items() if is_active is active]
        if len(which) <= FEW:
            yield from (f"  {word}  {ref}" for ref in which)
        else:
            yield f"  {word}  {many(len(which), 'fault')}"
    for job in dict.fromkeys(one.job for one in decisions if one.job):
        yield from _pending(job, standing)
    yield from _kept_apart(decisions, standing)
    yield from _held(asked, standing)
    yield from _reports(asked, refs, evidence)
    if not refs and asked.kind != "node":
        nodes = sorted({identity.partition("/")[0] for identity in standing.active})
        yield "  none of these decisions names a fault"
        if nodes:
            named = ", ".join(nodes[:FEW]) + (" …" if len(nodes) > FEW else "")
            yield f"  active   {len(standing.active)} in all, on {named}; ask why node NODE"


def _jobs_of(decisions: Iterable[Decision]) -> dict[str, dict[JobId, None]]:
    """Every fault that was told of or is behind a document, each with the jobs that were told of with it."""
    found: dict[str, dict[JobId, None]] = {}
    for one in decisions:
        for fault, job in ((one.fault, one.job), *((cause.fault, cause.job) for cause in one.causes)):
            if fault:
                jobs = found.setdefault(fault, {})
                if job:
                    jobs[job] = None
    return found


def _active(ref: str, fault: ActiveFault, jobs: Iterable[JobId], standing: Standing) -> Iterator[str]:
    yield f"  active   {ref}  {fault.level}{', held for a person' if fault.held else ''}"
    for job in jobs:
        if standing.has_left(job, fault):
            place = "the device" if fault.devices else "the node"
            yield f"{_INSET}{job} has left {place}: it is no fault of the job now"
    counter = standing.counters.get(ref.rpartition("@")[0])
    if counter is not None:
        yield f"{_INSET}{counted(counter)}"
    kept = standing.kept.get(fault.occurrence)
    if kept is not None:
        yield f"{_INSET}kept back{'' if kept.until is None else f' until {utc_text(kept.until)}'} by {kept.rule}"
    timer = standing.timers.get(ref.rpartition("@")[0])
    if timer is not None and timer.phase in ("down", "up"):
        what = "raised if still down" if timer.phase == "down" else "cleared if still up"
        yield f"{_INSET}pending: {what} after {utc_text(timer.due)}"


def counted(counter: FrequencyCounter) -> str:
    """What the frequency rule of a fault has counted or done."""
    match counter.phase:
        case "counting":
            return f"counted: {len(counter.times)} since {utc_text(min(counter.times, default=counter.due))}"
        case "released":
            return f"tripped: {counter.level} at {utc_text(counter.tripped)}, released at {utc_text(counter.due)}"
    ends = f"; released after {utc_text(counter.due)} if clean" if counter.due else ""
    return f"tripped: {counter.level} at {utc_text(counter.tripped)}{ends}"


def _pending(job: JobId, standing: Standing) -> Iterator[str]:
    ledger = standing.ledgers.get(job)
    for course in ledger.courses if ledger is not None else ():
        one = course.recovery
        until = due(one)
        yield (
            f"  pending  {job}  recovery {one.id} by {one.policy}: {one.phase}"
            f"{f' until {utc_text(until)}' if until is not None else ''}"
        )


def _kept_apart(decisions: Iterable[Decision], standing: Standing) -> Iterator[str]:
    """Devices separated by hand on the nodes told of, and pods of the jobs that a relation rule made faulty."""
    told = list(decisions)
    separations = standing.cluster.separations if standing.cluster is not None else {}
    for node in dict.fromkeys(one.node for one in told if one.node):
        for one in separations.get(node, ()):
            said = separation_words(one, standing.cluster.isolation if standing.cluster is not None else None)
            yield f"  separated  {node} device {one.device} for {one.code}: {said}"
    for job in dict.fromkeys(one.job for one in told if one.job):
        ledger = standing.ledgers.get(job)
        for uid, related in ledger.related.items() if ledger is not None else ():
            word = Strategy.SEPARATE if related.separate else Strategy.SUB_HEALTH
            pod = next((member.pod for member in ledger.members if member.uid == uid), uid) if ledger else uid
            yield f"  related  {job}  pod {pod}: {word} by {related.key} since {utc_text(related.since)}"


def _held(asked: Asked, standing: Standing) -> Iterator[str]:
    """What the ledger of borrowed NPUs holds, when it is asked for."""
    if asked.ledger and standing.rails is not None and asked.ledger.endswith("-rails"):
        held = [one for one in standing.rails.entries if one.open]
        for one in held:
            yield (
                f"  held     NPU {one.npu} of {one.node}, die {one.die_from}→{one.die_to}, by {one.job}: {one.state},"
                f" plan {one.plan} of {utc_text(one.at)}"
            )
        if not held:
            yield "  held     no NPU"


def _reports(asked: Asked, refs: Iterable[str], evidence: Evidence) -> Iterator[str]:
    """The report of the node that is asked for; of others only what makes their word doubtful."""
    nodes = {asked.ref} if asked.kind == "node" else {ref.partition("/")[0] for ref in refs}
    for node in sorted(nodes):
        report = evidence.standing.reports.get(NodeName(node))
        if report is None:
            if evidence.at is not None:
                yield f"  report   {node}: there is none"
            continue
        doubts = []
        if not report.caught_up:
            doubts.append("it had not read all that had come")
        if evidence.at is not None and evidence.at - report.clock > UNKNOWN_AFTER:
            doubts.append(f"silent for {span_text(evidence.at - report.clock)}, so what is active is as of then")
        if asked.kind == "node" or doubts:
            told = "; ".join((f"of {utc_text(report.clock)}, policy {report.policy[:12]}", *doubts))
            yield f"  report   {node}: {told}"
