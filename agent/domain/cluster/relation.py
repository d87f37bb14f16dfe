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
from agent.domain.jobs import Job, Product, config_name
from agent.domain.jobs.filters import filter_key
from agent.domain.ledger import Related
from agent.domain.relation import Outcome, Seen, Strategy, judge, sight_of
from agent.domain.vocab import Millis, Plane, Reason

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
    waiting = {code for rule in policy.relations for code in rule.relations}
    named = waiting | {rule.trigger for rule in policy.relations}
    spelled = {filter_key(code): code for code in named}
    faults = [
        (occurrence, device, spelled[key])
        for occurrence, device in _known(draft)
        if not occurrence.raised and (key := filter_key(occurrence.key.code)) in spelled
    ]
    if not any(code in waiting for _, _, code in faults):
        _remember(draft, faults, [])
        return
    seen = [_seen(occurrence, code) for occurrence, _, code in faults]
    seen += [
        Seen(spelled[key], fault.since, None, fault.key.plane is Plane.SWITCH, fault_ref(fault.key, fault.since))
        for fault in _active(draft, job)
        if (key := filter_key(fault.key.code)) in spelled
    ]
    sight = sight_of(seen)
    super_pod = _is_super_pod(draft, job)
    begun = min((pod.created for pod in draft.book.jobs.pods_of(job.id)), default=Millis(0))
    waits: list[tuple[Millis, Millis]] = []
    for occurrence, device, code in faults:
        key = f"rel~{_place(occurrence, device)}"
        due = Millis(occurrence.begin + policy.relation_timeouts.get(code, 0))
        old = draft.now - due > draft.book.limits.max_event_age or occurrence.begin < begun
        if code not in waiting or draft.is_done(key) or old:
            continue
        fault = _seen(occurrence, code)
        outcome = judge(fault, sight, policy.relations, policy.relation_timeouts, super_pod, draft.now)
        reason = _take(draft, job, occurrence, device, outcome)
        if outcome.final:
            draft.mark(key, reason)
        else:
            draft.wake.append(Millis(due + 1))
            waits.append((occurrence.begin, due))
    _remember(draft, faults, waits)


def _place(occurrence: Occurrence, device: int | None) -> str:
    return f"{occurrence.id}~{'-' if device is None else device}"


def _known(draft: Draft) -> Iterator[tuple[Occurrence, int | None]]:
    """The job's occurrences, and those a wait needs that the reports have let go of since."""
    recent = known_occurrences(draft)
    yield from recent
    if draft.ledger.waiting:
        told = {_place(*pair) for pair in recent}
        for place, occurrence in draft.ledger.waiting.items():
            if place not in told:
                device = place.rpartition("~")[2]
                yield _ended(draft, occurrence), None if device == "-" else int(device)


def _ended(draft: Draft, occurrence: Occurrence) -> Occurrence:
    """What ended after its report had let go of it ends when that is first seen."""
    report = draft.book.reports.get(occurrence.key.node)
    there = report is None or any(fault.occurrence == occurrence.id for fault in report.active)
    return occurrence if there or occurrence.end is not None else replace(occurrence, end=draft.now)


def _remember(
    draft: Draft, faults: list[tuple[Occurrence, int | None, str]], waits: list[tuple[Millis, Millis]]
) -> None:
    """Keep what began during the waits (first and last moment of each) and the reports may let go of before the last
    is over.
    """
    first, last = min((begin for begin, _ in waits), default=0), max((due for _, due in waits), default=0)
    age = draft.book.limits.max_event_age
    waiting = {_place(one, device): one for one, device, _ in faults if first <= one.begin <= last - age}
    if waiting != draft.ledger.waiting:
        draft.ledger = replace(draft.ledger, waiting=waiting)


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
    table = book.tables.get((job.namespace, config_name(job)))
    a3 = any(book.jobs.product_of(node) is Product.A3 for node in book.jobs.nodes_of(job.id))
    return a3 or (table is not None and bool(table.super_pods))


def _take(draft: Draft, job: Job, occurrence: Occurrence, device: int | None, outcome: Outcome) -> Reason:
    """Put the outcome on the pods concerned; tell it when it is new, or when nothing came of the wait."""
    node, strategy, because = occurrence.key.node, outcome.strategy, outcome.because
    changed = False
    pods = list(_pods_on(draft, occurrence, device)) if strategy is not None else []
    if strategy is not None and not pods and not draft.is_done(_told(occurrence, device, strategy)):
        strategy, because = None, f"no pod is left on it that was there with it; {because}"
    if strategy is not None and pods:
        related = dict(draft.ledger.related)
        for uid in pods:
            known = related.get(uid)
            separate = strategy is Strategy.SEPARATE
            if known is None or (separate and not known.separate):
                related[uid] = Related(occurrence.key, separate, draft.now, occurrence.id)
                changed = True
        draft.ledger = replace(draft.ledger, related=related) if changed else draft.ledger
    if not changed and not outcome.final:
        return _REASON[strategy]
    if strategy is not None and not changed and draft.is_done(_told(occurrence, device, strategy)):
        return _REASON[strategy]
    cause = cause_of(draft.book, occurrence, ranks_on(draft.book, job.id, node, device))
    level = (_SWITCH_LEVEL if occurrence.key.plane is Plane.SWITCH else _LEVEL)[strategy]
    if strategy is not None:
        draft.mark(_told(occurrence, device, strategy), _REASON[strategy])
    detail = because if strategy is None else f"{strategy} for the pods on it: {because}"
    draft.say(_REASON[strategy], detail, replace(cause, level=level or cause.level))
    return _REASON[strategy]


def _told(occurrence: Occurrence, device: int | None, strategy: Strategy) -> str:
    return f"related~{_place(occurrence, device)}~{strategy}"


def _pods_on(draft: Draft, occurrence: Occurrence, device: int | None) -> Iterator[str]:
    """Live pods on the fault; one that was created after it had ended never met it."""
    for pod in draft.pods_on(occurrence.key.node):
        met = occurrence.end is None or pod.created <= occurrence.end
        if met and pod.live and (device in pod.bound if device is not None else bool(pod.bound)):
            yield pod.uid


def forget(draft: Draft, job: Job) -> None:
    """Let go of what pods had that the job no longer remembers."""
    there = {pod.uid for pod in draft.book.jobs.pods_of(job.id)} | {member.uid for member in draft.ledger.members}
    if not there.issuperset(draft.ledger.related):
        kept = {uid: one for uid, one in draft.ledger.related.items() if uid in there}
        draft.ledger = replace(draft.ledger, related=kept)
