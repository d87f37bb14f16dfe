"""Where a job's pods are, which of them a fault has hit, and what their replacement means.

The one rule: a record is made once, when pods that were hit as they went are gone and the job is whole again without
them; what was over before is no reason.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import tzinfo

from agent.domain.cluster.book import Cause, ClusterBook, Draft, Shared, on_chip
from agent.domain.cluster.effective import JobFault, faults_of
from agent.domain.effects import chip_healthy, node_status, switch_status
from agent.domain.events import fault_ref
from agent.domain.jobs import FaultScheduling, Job, Pod
from agent.domain.ledger import Member, Suspect
from agent.domain.reschedule import JobRecords, RescheduleReason, TaskReason, add_record, record_of
from agent.domain.vocab import NodeName, Plane, Reason

_STRENGTH = {
    RescheduleReason.SUB_HEALTH_FAULT: 0,
    RescheduleReason.PROCESS_EXCEPTION: 1,
    RescheduleReason.POD_FAILED: 2,
    RescheduleReason.RELATION_FAULT_SEPARATE: 3,
    RescheduleReason.CARD_UNHEALTHY: 4,
    RescheduleReason.NODE_UNHEALTHY: 5,
}
"""Of several reasons for one pod the strongest is told; a card outranks a failed pod and so costs no retry."""
_COSTS = {RescheduleReason.POD_FAILED, RescheduleReason.PROCESS_EXCEPTION}
"""A restart for these alone costs a retry, if a pod failed; every other reason makes it free."""
_UNWATCHED = (FaultScheduling.ABSENT, FaultScheduling.OFF)
"""Volcano does not evaluate the job; a word it does not know is not one of these (reschedule.go:108, 128)."""
_MARK = "fault-type"
"""Pod label by which ClusterD says what it made of a pod: Separate, SubHealth or software."""


def follow(draft: Draft, job: Job, zone: tzinfo) -> None:
    """Bring members, suspects, retries and records up to what the pods and faults say now."""
    _owner(draft, job)
    _retries(draft, job)
    pods = draft.book.jobs.pods_of(job.id)
    there = {pod.uid: pod for pod in pods}
    members = {member.uid: member for member in draft.ledger.members}
    placed = {pod.uid: _member(pod) for pod in pods if pod.live and pod.node}
    known = members or _first_seen(job, pods)
    # A pod that failed or is on its way out may stay as an object long after another has taken its place.
    gone = {uid: member for uid, member in known.items() if uid not in placed}
    suspects = _suspects(draft, job, known | placed, there)
    whole = job.placed and (not gone or any(uid not in known for uid in placed))
    if whole:
        hit = [suspect for suspect in suspects if suspect.uid in gone]
        if hit and job.settings.fault_scheduling not in _UNWATCHED:
            _record(draft, job, hit, gone, zone)
        suspects = tuple(suspect for suspect in suspects if suspect.uid not in gone)
        kept = placed
    else:
        kept = known | placed
    ordered = tuple(kept[uid] for uid in sorted(kept, key=lambda uid: (_place(kept[uid]), uid)))
    if ordered != draft.ledger.members or suspects != draft.ledger.suspects:
        draft.ledger = replace(draft.ledger, members=ordered, suspects=suspects)
    life = draft.book.jobs.life(job.id)
    if life is not None and life != draft.ledger.life:
        draft.ledger = replace(draft.ledger, life=life)


def _first_seen(job: Job, pods: Iterable[Pod]) -> dict[str, Member]:
    """Members of a job that was not known before: a pod that the fault ended before we looked is one of them, unless
    the job is whole without it.
    """
    return {} if job.placed else {pod.uid: _member(pod) for pod in pods if pod.node and pod.phase != "Succeeded"}


def _owner(draft: Draft, job: Job) -> None:
    """Another owner under the same name is another job: its retries and pods begin anew."""
    if draft.ledger.owner != job.owner_uid:
        draft.ledger = replace(draft.ledger, owner=job.owner_uid, retry_times=None, members=(), suspects=())


def _retries(draft: Draft, job: Job) -> None:
    """A job that Volcano would evaluate is in remain-retry-times from before its first fault, and stays there until it
    is gone or another owner's (reschedule.go:128, 442).
    """
    if draft.ledger.retry_times is None:
        draft.ledger = replace(draft.ledger, retry_times=first_retries(draft.book, job))


def first_retries(book: ClusterBook, job: Job) -> int | None:
    """Retries of a job of which no ledger tells: what the document said of it, else its label; None: it has none.

    A job that waits has them too: its first pod may fail before its devices are known, and the operator fails a job
    that is not listed. One that is over, or runs on nodes and holds no device there, gets none.
    """
    if job.settings.fault_scheduling in _UNWATCHED:
        return None
    if not job.devices and (job.finished or any(pod.live and pod.node for pod in book.jobs.pods_of(job.id))):
        return None
    known = book.known_retries.get(job.id)
    return known[1] if known is not None and known[0] == job.owner_uid else job.settings.fault_retry_times


def _member(pod: Pod) -> Member:
    rank_index = "" if pod.rank_index is None else str(pod.rank_index)
    return Member(pod.uid, pod.name, pod.node or NodeName(""), pod.devices, rank_index)


def _place(member: Member) -> tuple[bool, int, str]:
    return not member.rank_index, int(member.rank_index or 0), member.pod


def _suspects(draft: Draft, job: Job, members: dict[str, Member], there: dict[str, Pod]) -> tuple[Suspect, ...]:
    """Every pod that is hit now, and those hit before that went without getting well."""
    before = {suspect.uid: suspect for suspect in draft.ledger.suspects}
    failed = {uid for uid, pod in there.items() if pod.phase == "Failed" or any(pod.exit_codes)}
    found: list[Suspect] = []
    for uid, member in members.items():
        reason = _reason(draft, job, member, there.get(uid), failed)
        known = before.get(uid)
        if reason is not None and known is not None and _STRENGTH[known.reason] >= _STRENGTH[reason]:
            found.append(known)
        elif reason is not None:
            found.append(Suspect(uid, reason, draft.now if known is None else known.since))
        elif known is not None and not (uid in there and there[uid].live):
            found.append(known)
    found.sort(key=lambda one: (_place(members[one.uid]), one.uid))
    return tuple(found)


def _reason(
    draft: Draft, job: Job, member: Member, pod: Pod | None, failed: Collection[str]
) -> RescheduleReason | None:
    """Why this pod would have to be replaced, the strongest first (volcano rescheduling reschedule.go:1006)."""
    reasons = set(_fault_reasons(draft, job, member))
    mark = pod.labels.get(_MARK) if pod is not None else None
    related = draft.ledger.related.get(member.uid)
    sub_health = job.settings.sub_healthy_strategy != "ignore"
    if mark == "Separate" or (related is not None and related.separate):
        reasons.add(RescheduleReason.RELATION_FAULT_SEPARATE)
    elif sub_health and (mark == "SubHealth" or related is not None):
        reasons.add(RescheduleReason.SUB_HEALTH_FAULT)
    if member.uid in failed and job.settings.fault_retry_times:
        reasons.add(RescheduleReason.POD_FAILED)
    if mark == "software" and any(uid != member.uid for uid in failed):
        reasons.add(RescheduleReason.PROCESS_EXCEPTION)
    return max(reasons, key=_STRENGTH.__getitem__, default=None)


def _fault_reasons(draft: Draft, job: Job, member: Member) -> Iterator[RescheduleReason]:
    if member.node in draft.book.vanished:
        yield RescheduleReason.NODE_UNHEALTHY
    sub_health = job.settings.sub_healthy_strategy != "ignore"
    for found in faults_of(draft.book, member.node, frozenset(member.devices), job, draft.now):
        reason = _of_fault(found)
        if reason is not None and (reason is not RescheduleReason.SUB_HEALTH_FAULT or sub_health):
            yield reason


def _of_fault(found: JobFault) -> RescheduleReason | None:
    fault = found.fault
    if fault.held:
        return None
    match fault.key.plane:
        case Plane.NODE:
            return RescheduleReason.NODE_UNHEALTHY if node_status(fault.level, in_use=True) == "UnHealthy" else None
        case Plane.SWITCH:
            status = switch_status(fault.level, in_use=True)
            if status == "UnHealthy":
                return RescheduleReason.NODE_UNHEALTHY
            return RescheduleReason.SUB_HEALTH_FAULT if status == "SubHealthy" else None
        case plane if on_chip(plane) and found.device is not None:
            if not chip_healthy(fault.level, in_use=True):
                return RescheduleReason.CARD_UNHEALTHY
            return RescheduleReason.SUB_HEALTH_FAULT if fault.level == "SubHealthFault" else None
        case _:
            return None


def _record(draft: Draft, job: Job, hit: list[Suspect], gone: dict[str, Member], zone: tzinfo) -> None:
    """The restart that has been carried out: one record, and one retry less if failed pods alone were its reason; what
    another writer of the document counts is left to it.
    """
    tasks = [TaskReason(one.reason, gone[one.uid].pod, gone[one.uid].node, gone[one.uid].rank_index) for one in hit]
    reasons = {one.reason for one in hit}
    left = draft.ledger.retry_times
    costs = RescheduleReason.POD_FAILED in reasons and reasons <= _COSTS and Shared.VCJOB not in draft.book.foreign
    if costs and left is not None and left > 0:
        draft.ledger = replace(draft.ledger, retry_times=left - 1)
    told, count = Reason.FOREIGN_WRITER_LIVE, "recorded by the other writer of the document"
    if Shared.RECORDS not in draft.book.foreign:
        told = Reason.RESCHEDULE_RECORDED
        records = draft.ledger.records or JobRecords(draft.job, draft.book.known_records.get(draft.job, 0))
        records = add_record(records, record_of(draft.now, zone, tasks))
        draft.ledger = replace(draft.ledger, records=records)
        count = f"restart {records.total} of the job"
    names = ", ".join(f"{task.pod} on {task.node} ({task.reason})" for task in tasks[:3])
    more = f" and {len(tasks) - 3} more" if len(tasks) > 3 else ""
    draft.say(told, f"replaced: {names}{more}; {count}", _cause(draft, job, hit, gone))


def _cause(draft: Draft, job: Job, hit: list[Suspect], gone: dict[str, Member]) -> Cause:
    """The first active fault on what was lost, if it is still there."""
    for one in hit:
        member = gone[one.uid]
        for found in faults_of(draft.book, member.node, frozenset(member.devices), job, draft.now):
            if _of_fault(found) is one.reason:
                fault = found.fault
                reference = fault_ref(fault.key, fault.since)
                return Cause(member.node, reference, fault.level, fault.occurrence, trace=fault.trace)
    return Cause(NodeName(gone[hit[0].uid].node))
