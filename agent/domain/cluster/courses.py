"""Recoveries that run in a job: which signals reach them, and what is taken into the ledger of where they are.

The one rule: every signal comes from what is true now, so that whoever takes over goes on from the ledger alone.
"""

from collections.abc import Iterator
from dataclasses import replace

from agent.domain.cluster.book import Cause, Draft, on_chip
from agent.domain.cluster.effective import SEPARATION_RULE, faults_of
from agent.domain.effects import node_status, switch_status
from agent.domain.events import ActiveFault, Behind, fault_ref
from agent.domain.jobs import Job, config_name
from agent.domain.ledger import Course
from agent.domain.reset import (
    UNSURE,
    Phase,
    Policy,
    Recovery,
    ResetInfo,
    Signal,
    Step,
    due,
    orphan,
    orphans,
    policy_of,
    step,
)
from agent.domain.vocab import Millis, Mode, OccurrenceId, Plane, Reason, Source

RUNNING = (Phase.UNRECOVERED, Phase.SETTLING)
_COUNTED = 2**52
"""Nobody has counted recoveries so far: to go on from a higher id would lead beyond what is known as ours."""
_IN_PLACE = (Policy.RESTART_REQUEST, Policy.RESTART, Policy.RESET)


def document_of(job: Job) -> str:
    """`namespace/name` of the job's reset.json."""
    return f"{job.namespace}/reset-config-{config_name(job)}"


def isolating(draft: Draft, job: Job) -> ActiveFault | None:
    """The first fault that takes a device, a node or a pod of the job away from it: in place nothing can be recovered
    then. It is looked for once in a draft, after the relation rules have been followed.
    """
    if draft.isolating is None:
        draft.isolating = (next(_isolations(draft, job), None),)
    return draft.isolating[0]


def words_of(isolated: ActiveFault) -> str:
    """A fault that isolates, by a reference that can be asked for: what a rule or a hand made has none of its own."""
    if isolated.rule == _RELATION:
        return f"a pod separated by a relation rule over {isolated.key}"
    if isolated.rule == SEPARATION_RULE:
        return f"a separation by hand of device {isolated.key.where} of {isolated.key.node} for {isolated.key.code}"
    return fault_ref(isolated.key, isolated.since)


_RELATION = "relation"


def _isolations(draft: Draft, job: Job) -> Iterator[ActiveFault]:
    book, now = draft.book, draft.now
    there = {pod.uid for pod in book.jobs.pods_of(job.id)}
    for uid, related in draft.ledger.related.items():
        if related.separate and uid in there:
            key, id_ = related.key, OccurrenceId(related.occurrence)
            source = Source.LINGQU if key.plane is Plane.SWITCH else Source.HCCN
            yield ActiveFault(key, related.since, "SeparateNPU", _RELATION, id_, source)
    for node in book.jobs.nodes_of(job.id):
        for found in faults_of(book, node, frozenset(book.jobs.devices_of(job.id, node)), job, now):
            fault = found.fault
            if fault.held:
                continue
            if on_chip(fault.key.plane) and found.device is not None:
                isolating = policy_of(fault.level) in (Policy.FREE_RESET, Policy.ISOLATE)
                if isolating and fault.level != "PreSeparateNPU":
                    yield fault
            elif (fault.key.plane is Plane.SWITCH and switch_status(fault.level, in_use=True) == "UnHealthy") or (
                fault.key.plane is Plane.NODE and node_status(fault.level, in_use=True) == "UnHealthy"
            ):
                yield fault


def follow(draft: Draft, job: Job | None) -> None:
    """Send every recovery that runs the signals that are true now."""
    for course in draft.ledger.courses:
        current = course
        for signal in _signals(draft, job, course):
            moved = step(current.recovery, signal, draft.now, draft.book.limits.reset)
            if moved is not None:
                cause = replace(cause_of_course(current), behind=_behind(draft, job, signal))
                current = take(draft, current, moved, cause, job, _because(draft, job, signal))
    _let_go(draft)


def _let_go(draft: Draft) -> None:
    """What has ended is no part of the ledger any more."""
    left = tuple(one for one in draft.ledger.courses if one.recovery.phase is not Phase.ENDED)
    if left != draft.ledger.courses:
        draft.ledger = replace(draft.ledger, courses=left)


_WORDS = {
    Signal.CODES_GONE: "its codes are gone",
    Signal.CODES_BACK: "its codes are back",
    Signal.DEADLINE: "its time is over",
    Signal.BINDING_ENDED: "a pod that held its devices has gone",
    Signal.PODS_REPLACED: "its pods have been replaced",
    Signal.JOB_RENEWED: "all pods of the job are new",
    Signal.PROCESS_RECOVER_ON: "process recovery was turned on",
    Signal.JOB_ENDED: "the job has ended",
    Signal.LEAVE_ACT: "its document is let go of: out of act mode, or released",
}


def _because(draft: Draft, job: Job | None, signal: Signal) -> str:
    """What moved a recovery, for people."""
    if signal is Signal.ISOLATION_FAULT and job is not None:
        isolated = isolating(draft, job)
        if isolated is not None:
            return f"isolated because of {words_of(isolated)}"
    return _WORDS.get(signal, str(signal))


def _behind(draft: Draft, job: Job | None, signal: Signal) -> tuple[Behind, ...]:
    """The fault that moved a recovery and is not the one that began it, where it can be asked for."""
    if signal is not Signal.ISOLATION_FAULT or job is None:
        return ()
    isolated = isolating(draft, job)
    if isolated is None or isolated.rule in (_RELATION, SEPARATION_RULE):
        return ()
    return (Behind(fault_ref(isolated.key, isolated.since), job.id),)


def cause_of_course(course: Course) -> Cause:
    """The fault that began a recovery, as the cause of what becomes of it."""
    recovery = course.recovery
    return Cause(
        recovery.node, course.fault, course.level, "", tuple(one.rank for one in recovery.devices), course.trace
    )


def take(
    draft: Draft, course: Course, moved: Step | None, cause: Cause | None, job: Job | None, because: str
) -> Course:
    """The course with its next step, in the ledger and, with a cause, told."""
    if moved is None:
        return course
    after = replace(course, recovery=moved.recovery)
    courses = tuple(after if one.recovery.id == course.recovery.id else one for one in draft.ledger.courses)
    draft.ledger = replace(draft.ledger, courses=courses)
    before = course.recovery
    # Pods that go while it is shown recovered only have it leave sooner: it has succeeded once.
    again = moved.recovery.phase is before.phase is Phase.RECOVERED
    if cause is not None and moved.recovery.phase is not Phase.ENDED and not again:
        escalated = moved.reason is Reason.RECOVERY_ESCALATED
        change = policy_words(before, moved) if escalated else f"{before.phase} → {moved.recovery.phase}"
        detail = f"recovery {before.id}: {change}, {because}"
        draft.say(moved.reason, detail, cause, document_of(job) if job is not None else "")
    return after


def policy_words(before: Recovery, moved: Step) -> str:
    """Which policy a recovery has left for which stronger one."""
    return f"policy {before.policy} → {moved.recovery.policy}"


def _signals(draft: Draft, job: Job | None, course: Course) -> Iterator[Signal]:
    book, recovery = draft.book, course.recovery
    if job is None or job.finished:
        yield Signal.JOB_ENDED
        return
    if job.settings.process_recover in ("on", "pause"):
        yield Signal.PROCESS_RECOVER_ON
    pods = book.jobs.pods_of(job.id)
    # What was decided and not yet shown, no pod has seen: it may have read the list as it was before.
    shows = recovery.phase is Phase.LEFT or recovery.shown in ("", UNSURE, recovery.phase)
    if shows and pods and all(pod.created > recovery.phase_since for pod in pods):
        yield Signal.JOB_RENEWED
    there = {pod.uid for pod in pods if pod.live}
    if not there.issuperset(course.pods):
        yield Signal.PODS_REPLACED if _replaced(draft, job, course, there) else Signal.BINDING_ENDED
    if book.limits.reset_mode is not Mode.ACT:
        yield Signal.LEAVE_ACT
    if recovery.phase in RUNNING:
        if isolating(draft, job) is not None:
            yield Signal.ISOLATION_FAULT
        report = book.reports.get(recovery.node)
        if report is not None and codes_there(draft, job, recovery):
            yield Signal.CODES_BACK
        elif report is not None and not report.lost:  # otherwise it is not known that the codes have gone
            yield Signal.CODES_GONE
    yield Signal.DEADLINE


def _replaced(draft: Draft, job: Job, course: Course, there: set[str]) -> bool:
    """Whether others stand in for the pods that went: a new one is placed now, or the ledger has let go of the old.

    minMember may be reached without them, so that the job counts as placed says nothing by itself.
    """
    members = {member.uid for member in draft.ledger.members}
    return job.placed and (not there <= members or members.isdisjoint(set(course.pods) - there))


def codes_there(draft: Draft, job: Job, recovery: Recovery) -> bool:
    """Whether a device of the recovery still has a fault that needs it."""
    devices = frozenset(one.device for one in recovery.devices) & frozenset(
        draft.book.jobs.devices_of(job.id, recovery.node)
    )
    return any(
        found.device is not None
        and found.fault.key.plane is Plane.CHIP
        and not found.fault.held
        and policy_of(found.fault.level) in _IN_PLACE
        for found in faults_of(draft.book, recovery.node, devices, job, draft.now)
    )


def leave(draft: Draft, job: Job | None) -> None:
    """Act mode is over: every recovery that runs is to leave the document."""
    for course in draft.ledger.courses:
        moved = step(course.recovery, Signal.LEAVE_ACT, draft.now, draft.book.limits.reset)
        take(draft, course, moved, cause_of_course(course), job, _WORDS[Signal.LEAVE_ACT])
    _let_go(draft)


def adopt(draft: Draft, job: Job, info: ResetInfo) -> None:
    """Entries of ours that no ledger knows (it was lost, or another writer put an old list back) leave the document:
    unrecovered ones would keep the workers dead for ever.
    """
    note_retry(draft, info)
    ledgers = (draft.ledger, *map(draft.book.ledger, draft.book.jobs.sharers(job.id)))
    known = [course.recovery.id for ledger in ledgers for course in ledger.courses]
    for one in orphans(info, known):
        entries = [entry for entry in info.rank_list or () if entry.recovery_id == one]
        course = Course(orphan(one, entries, draft.now, draft.ledger.retry_seen), (), "", "")
        newest = draft.ledger.last_recovery if one > _COUNTED else max(draft.ledger.last_recovery, one)
        draft.ledger = replace(draft.ledger, last_recovery=newest, courses=(*draft.ledger.courses, course))
        ranks = tuple(sorted(entry.rank_id for entry in entries))
        detail = f"recovery {one}: no ledger knows its entries; they are taken out"
        draft.say(Reason.RECOVERY_ENDED, detail, Cause(ranks=ranks), document_of(job))


def note_retry(draft: Draft, info: ResetInfo) -> None:
    """The job's readers may have acted on this RetryTime."""
    if info.retry_time > draft.ledger.retry_seen:
        draft.ledger = replace(draft.ledger, retry_seen=info.retry_time)


def wake_of(draft: Draft) -> Millis | None:
    """When to look at the job again: the next deadline of a recovery, or of what else is waited for."""
    deadlines = (at for course in draft.ledger.courses if (at := due(course.recovery)) is not None)
    return min((*draft.wake, *deadlines), default=None)
