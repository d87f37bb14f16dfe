"""Relation rules on a job: which of its pods a link fault and a communication error together make faulty.

The one rule: the result is kept per pod in the job's ledger; a separation stays until the pod is replaced. No label is
written on the pod: nothing here acts on objects of others.
"""

from collections.abc import Iterator
from dataclasses import replace

from agent.domain.cluster.book import Draft, cause_of
from agent.domain.cluster.kept import known_occurrences
from agent.domain.cluster.recovery import ranks_on
from agent.domain.events import ActiveFault, Occurrence, fault_ref
from agent.domain.jobs import Job, Product
from agent.domain.jobs.filters import filter_key
from agent.domain.ledger import Related
from agent.domain.relation import Outcome, Seen, Strategy, judge
from agent.domain.vocab import Millis, NodeName, Plane, Reason

_REASON = {
    Strategy.SEPARATE: Reason.RELATION_SEPARATE,
    Strategy.SUB_HEALTH: Reason.RELATION_SUB_HEALTH,
    None: Reason.RELATION_IGNORED,
}
_LEVEL = {Strategy.SEPARATE: "SeparateNPU", Strategy.SUB_HEALTH: "SubHealthFault", None: ""}
_SWITCH_LEVEL = {Strategy.SEPARATE: "Separate", Strategy.SUB_HEALTH: "SubHealthFault", None: ""}


def follow(draft: Draft, job: Job) -> None:
    """Judge every relation fault of the job that still waits."""
    policy = draft.book.policy
    if not policy.relations:
        return
    waiting = {code for rule in policy.relations for code in rule.relations}
    named = waiting | {rule.trigger for rule in policy.relations}
    spelled = {filter_key(code): code for code in named}
    faults = [
        (occurrence, device, spelled[key])
        for occurrence, device in known_occurrences(draft)
        if not occurrence.raised and (key := filter_key(occurrence.key.code)) in spelled
    ]
    if not any(code in waiting for _, _, code in faults):
        return
    seen = [_seen(occurrence, code) for occurrence, _, code in faults]
    seen += [
        Seen(spelled[key], fault.since, None, fault.key.plane is Plane.SWITCH, fault_ref(fault.key, fault.since))
        for fault in _active(draft, job)
        if (key := filter_key(fault.key.code)) in spelled
    ]
    super_pod = _is_super_pod(draft, job)
    begun = min((pod.created for pod in draft.book.jobs.pods_of(job.id)), default=Millis(0))
    for occurrence, device, code in faults:
        key = f"rel~{occurrence.id}~{'-' if device is None else device}"
        due = occurrence.begin + policy.relation_timeouts.get(code, 0)
        old = draft.now - due > draft.book.limits.max_event_age or occurrence.begin < begun
        if code not in waiting or draft.is_done(key) or old:
            continue
        fault = _seen(occurrence, code)
        outcome = judge(fault, seen, policy.relations, policy.relation_timeouts, super_pod, draft.now)
        _take(draft, job, occurrence, device, outcome)
        if outcome.final:
            draft.mark(key, _REASON[outcome.strategy])
        else:
            draft.wake.append(Millis(due + 1))


def _seen(occurrence: Occurrence, code: str) -> Seen:
    on_switch = occurrence.key.plane is Plane.SWITCH
    return Seen(code, occurrence.begin, occurrence.end, on_switch, fault_ref(occurrence.key, occurrence.begin))


def _active(draft: Draft, job: Job) -> Iterator[ActiveFault]:
    """Faults that are still there, also those whose occurrence is so old that no report tells it any more."""
    book = draft.book
    for node in book.jobs.nodes_of(job.id):
        report, mine = book.reports.get(node), frozenset(book.jobs.devices_of(job.id, node))
        for fault in report.active if report is not None else ():
            if not fault.devices or not mine.isdisjoint(fault.devices):
                yield fault


def _is_super_pod(draft: Draft, job: Job) -> bool:
    """An A3 job: its nodes are of that product, or its rank table lists super-pods."""
    book = draft.book
    table = book.tables.get((job.namespace, job.owner_name or job.name))
    a3 = any(book.jobs.product_of(node) is Product.A3 for node in book.jobs.nodes_of(job.id))
    return a3 or (table is not None and bool(table.super_pods))


def _take(draft: Draft, job: Job, occurrence: Occurrence, device: int | None, outcome: Outcome) -> None:
    """Put the outcome on the pods concerned; tell it when it is new, or when nothing came of the wait."""
    node, strategy = occurrence.key.node, outcome.strategy
    changed = False
    if strategy is not None:
        related = dict(draft.ledger.related)
        pods = list(_pods_on(draft, job, node, device))
        if not pods:
            return
        for uid in pods:
            known = related.get(uid)
            separate = strategy is Strategy.SEPARATE
            if known is None or (separate and not known.separate):
                related[uid] = Related(occurrence.key, separate, draft.now, occurrence.id)
                changed = True
        draft.ledger = replace(draft.ledger, related=related) if changed else draft.ledger
    if not changed and not outcome.final:
        return
    if strategy is not None and not changed and draft.is_done(_told(occurrence, device, strategy)):
        return
    cause = cause_of(draft.book, occurrence, ranks_on(draft.book, job.id, node, device))
    level = (_SWITCH_LEVEL if occurrence.key.plane is Plane.SWITCH else _LEVEL)[strategy]
    if strategy is not None:
        draft.mark(_told(occurrence, device, strategy), _REASON[strategy])
    detail = outcome.because if strategy is None else f"{strategy} for the pods on it: {outcome.because}"
    draft.say(_REASON[strategy], detail, replace(cause, level=level or cause.level))


def _told(occurrence: Occurrence, device: int | None, strategy: Strategy) -> str:
    return f"related~{occurrence.id}~{'-' if device is None else device}~{strategy}"


def _pods_on(draft: Draft, job: Job, node: NodeName, device: int | None) -> Iterator[str]:
    for pod in draft.book.jobs.pods_of(job.id):
        if pod.node == node and pod.live and (device in pod.bound if device is not None else bool(pod.bound)):
            yield pod.uid


def forget(draft: Draft, job: Job) -> None:
    """Let go of what pods had that the job no longer remembers."""
    there = {pod.uid for pod in draft.book.jobs.pods_of(job.id)} | {member.uid for member in draft.ledger.members}
    if not there.issuperset(draft.ledger.related):
        kept = {uid: one for uid, one in draft.ledger.related.items() if uid in there}
        draft.ledger = replace(draft.ledger, related=kept)
