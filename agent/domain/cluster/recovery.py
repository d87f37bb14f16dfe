"""In-place recoveries of a job: which fault starts one, which signals reach those that run.

The one rule: a recovery is started only when nothing else moves the job, and every fault that starts none has
the reason of the first condition that stood in its way.
"""

from collections.abc import Iterator
from dataclasses import replace

from agent.domain.cluster.book import (
    Cause,
    ClusterBook,
    Draft,
    Hurt,
    cause_of,
    on_chip,
    was_over,
)
from agent.domain.cluster.effective import SEPARATION_RULE, faults_of
from agent.domain.cluster.kept import decidable, key_of
from agent.domain.effects import node_status, switch_status
from agent.domain.events import ActiveFault, Occurrence, fault_ref
from agent.domain.jobs import FaultScheduling, Job
from agent.domain.ledger import Course
from agent.domain.reset import (
    POLICIES,
    Phase,
    Policy,
    Recovery,
    ResetDevice,
    ResetInfo,
    Signal,
    Step,
    due,
    join,
    orphan,
    orphans,
    policy_of,
    start,
    step,
)
from agent.domain.vocab import JobId, Millis, Mode, NodeName, OccurrenceId, Plane, Reason, Source

_RUNNING = (Phase.UNRECOVERED, Phase.SETTLING)
_IN_PLACE = (Policy.RESTART_REQUEST, Policy.RESTART, Policy.RESET)


def consider(draft: Draft, job: Job) -> None:
    """Decide every occurrence of the job that was not decided before, oldest first."""
    for occurrence, device, free in decidable(draft, job):
        cause = cause_of(draft.book, occurrence, ranks_on(draft.book, job.id, occurrence.key.node, device))
        reason, detail = _judge(draft, job, occurrence, device, cause, free)
        draft.say(reason, detail, cause, document_of(job) if reason in _TOUCHING else "")
        draft.mark(key_of(occurrence, device), reason)


_TOUCHING = frozenset({Reason.RECOVERY_STARTED, Reason.RECOVERY_JOINED, Reason.RECOVERY_ESCALATED})


def document_of(job: Job) -> str:
    """`namespace/name` of the job's reset.json."""
    return f"{job.namespace}/reset-config-{job.owner_name or job.name}"


def ranks_on(book: ClusterBook, job: JobId, node: NodeName, device: int | None) -> tuple[int, ...]:
    """Global ranks of the job on a device, or on the whole node."""
    devices = book.jobs.devices_of(job, node) if device is None else (device,)
    found = {
        binding.rank
        for one in devices
        for binding in book.jobs.bindings(node, one)
        if binding.job == job and binding.rank is not None
    }
    return tuple(sorted(found))


def _judge(
    draft: Draft, job: Job, occurrence: Occurrence, device: int | None, cause: Cause, free: Millis
) -> tuple[Reason, str]:
    policy = policy_of(occurrence.level)
    nature = _by_nature(draft, occurrence, policy, free)
    if nature is not None:
        return nature
    if was_over(draft, occurrence, device):
        return Reason.NOT_ACTIVE, "it was over before the job's pod was created"
    barred = _by_job(draft, job)
    if barred is not None:
        return barred
    if device is None:
        return Reason.PLANE_NEEDS_NO_RESET, "the whole node"
    return _start_or_join(draft, job, occurrence, device, cause)


def _by_nature(draft: Draft, occurrence: Occurrence, policy: Policy, free: Millis) -> tuple[Reason, str] | None:
    """Reasons that lie in the fault itself."""
    limits, ledger = draft.book.limits, draft.book.cluster
    if occurrence.held:
        return Reason.HELD, "unknown code: a person must look at it"
    if not on_chip(occurrence.key.plane):
        return Reason.PLANE_NEEDS_NO_RESET, f"the {occurrence.key.plane} plane never asks for a reset"
    if policy is Policy.EMPTY:
        return Reason.LEVEL_NEEDS_NOTHING, occurrence.level
    if occurrence.level == "PreSeparateNPU":
        return Reason.IN_USE, "separated once the job has left the device"
    if policy in (Policy.FREE_RESET, Policy.ISOLATE):
        return Reason.ISOLATION_ONLY, f"{occurrence.level} is answered by isolation, not in place"
    if ledger.act_since is not None and occurrence.begin < ledger.act_since:
        return Reason.BEFORE_ACT, "it began before the agent began to act"
    if draft.now - free > limits.max_event_age:
        return Reason.TOO_OLD, f"older than {limits.max_event_age // 1000} s"
    return None


def _by_job(draft: Draft, job: Job) -> tuple[Reason, str] | None:
    """Reasons that lie in the job, in the order in which a person would ask."""
    settings, limits = job.settings, draft.book.limits
    scheduling = settings.fault_scheduling
    if job.finished:
        return Reason.JOB_FINISHED, ""
    if settings.process_recover in ("on", "pause"):
        return Reason.PROCESS_RECOVER_OWNS, f"process-recover-enable={settings.process_recover}: ClusterD owns the list"
    if settings.in_place == "off":
        return Reason.ANNOTATION_OFF, "fault-agent/in-place-recovery: off"
    if settings.framework not in limits.frameworks and settings.in_place != "on":
        return Reason.FRAMEWORK_NOT_SUPPORTED, f"label framework={settings.framework or '(absent)'}"
    if scheduling in (FaultScheduling.ABSENT, FaultScheduling.OFF, FaultScheduling.BAD):
        return Reason.LABEL_OFF, f"fault-scheduling={scheduling or '(absent)'}"
    if scheduling in (FaultScheduling.GRACE, FaultScheduling.FORCE) and draft.book.volcano_alive:
        return Reason.VOLCANO_RESCHEDULES, f"fault-scheduling={scheduling} and Volcano's plugin is alive"
    return None


def _start_or_join(draft: Draft, job: Job, occurrence: Occurrence, device: int, cause: Cause) -> tuple[Reason, str]:
    book, now, limits = draft.book, draft.now, draft.book.limits
    node = occurrence.key.node
    isolated = isolating(draft, job)
    if isolated is not None:
        return Reason.ISOLATION_ONLY, f"the job already has {_words(isolated)}"
    policy, devices = _affected(draft, job, node, occurrence, device)
    if any(one is None for one in devices):
        return Reason.NO_RANK, "no rank is known for the device, so no entry can name it"
    listed = [one for one in devices if one is not None]
    running = next((one for one in draft.ledger.courses if one.recovery.phase in (*_RUNNING, Phase.FAILED)), None)
    if running is not None:
        if running.recovery.phase is Phase.FAILED:
            return Reason.RECOVERY_RUNNING, f"recovery {running.recovery.id} has failed; the pods are to be replaced"
        if running.recovery.node != node:
            second = step(running.recovery, Signal.ISOLATION_FAULT, now, limits.reset)
            _take(draft, running, second, cause, job, "a fault on a second node of the job")
            return Reason.RECOVERY_RUNNING, f"a second node while recovery {running.recovery.id} runs: it fails"
        joined = join(running.recovery, policy, listed, now, limits.reset)
        if joined is None:
            return Reason.RECOVERY_JOINED, f"recovery {running.recovery.id} already covers it"
        _take(draft, running, joined, None, job, "")
        return joined.reason, f"into recovery {running.recovery.id}"
    begun = start(draft.ledger.last_recovery + 1, policy, listed, node, now, limits.reset, limits.executor)
    if isinstance(begun, Reason):
        return begun, _DETAIL.get(begun, "")
    if limits.reset_mode is not Mode.ACT:
        reason = Reason.OBSERVE if limits.reset_mode is Mode.OBSERVE else Reason.DISABLED
        return reason, f"in act mode a recovery would start: policy {policy}, {len(listed)} ranks"
    pods = sorted({b.pod.uid for one in listed for b in book.jobs.bindings(node, one.device) if b.job == job.id})
    course = Course(begun, tuple(pods), cause.fault, occurrence.level, occurrence.trace)
    draft.ledger = replace(draft.ledger, last_recovery=begun.id, courses=(*draft.ledger.courses, course))
    return Reason.RECOVERY_STARTED, f"recovery {begun.id}, policy {policy}, {len(listed)} ranks"


_DETAIL = {Reason.NO_RESET_EXECUTOR: "nobody is set to reset a device (reset.executor: none)"}


def _affected(
    draft: Draft, job: Job, node: NodeName, occurrence: Occurrence, device: int
) -> tuple[Policy, tuple[ResetDevice | None, ...]]:
    """The strongest policy over the job's devices on the node, and every device of the reset rings of those hit.

    Faults of a burst that come to the same share one answer.
    """
    hurt = draft.hurt.get(node)
    if hurt is None:
        hurt = draft.hurt[node] = _hurt(draft, job, node)
    code, own = occurrence.key.code, policy_of(occurrence.level)
    place = (node, device, own, occurrence.logic_id, "" if code in hurt.codes.get(device, ()) else code)
    if place not in draft.affected:
        codes, logic = dict(hurt.codes), {**hurt.logic, device: occurrence.logic_id}
        codes[device] = codes.get(device, frozenset()) | {code}
        ring = sorted({one for hit in codes for one in (hit, *draft.book.jobs.ring_of(node, hit, job.id))})
        devices = (_device(draft.book, job, node, one, codes.get(one, frozenset()), logic.get(one)) for one in ring)
        draft.affected[place] = max(own, hurt.policy, key=POLICIES.__getitem__), tuple(devices)
    return draft.affected[place]


def _hurt(draft: Draft, job: Job, node: NodeName) -> Hurt:
    """What the active faults of the job's devices on the node ask for together."""
    policy, codes, logic = Policy.EMPTY, dict[int, set[str]](), dict[int, int | None]()
    mine = frozenset(draft.book.jobs.devices_of(job.id, node))
    for found in faults_of(draft.book, node, mine, job, draft.now):
        if found.device is None or found.fault.key.plane is not Plane.CHIP or found.fault.held:
            continue
        wanted = policy_of(found.fault.level)
        if wanted is Policy.EMPTY or found.fault.level == "PreSeparateNPU":
            continue
        policy = max(policy, wanted, key=POLICIES.__getitem__)
        codes.setdefault(found.device, set()).add(found.fault.key.code)
        logic.setdefault(found.device, found.fault.logic_id)
    return Hurt(policy, {device: frozenset(several) for device, several in codes.items()}, logic)


def _device(
    book: ClusterBook, job: Job, node: NodeName, device: int, codes: frozenset[str], logic_id: int | None
) -> ResetDevice | None:
    bound = next((b for b in book.jobs.bindings(node, device) if b.job == job.id), None)
    if bound is None or bound.rank is None:
        return None
    return ResetDevice(
        rank=bound.rank,
        logic_id=bound.logic_id if logic_id is None else logic_id,
        node=node,
        device=device,
        codes=tuple(sorted(codes)),
    )


def isolating(draft: Draft, job: Job) -> ActiveFault | None:
    """The first fault that takes a device, a node or a pod of the job away from it: in place nothing can be recovered
    then. It is looked for once in a draft, after the relation rules have been followed.
    """
    if draft.isolating is None:
        draft.isolating = (next(_isolations(draft, job), None),)
    return draft.isolating[0]


def _words(isolated: ActiveFault) -> str:
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
                because = _because(draft, job, signal)
                current = _take(draft, current, moved, cause_of_course(current), job, because)


_WORDS = {
    Signal.CODES_GONE: "its codes are gone",
    Signal.CODES_BACK: "its codes are back",
    Signal.DEADLINE: "its time is over",
    Signal.BINDING_ENDED: "a pod that held its devices has gone",
    Signal.PODS_REPLACED: "its pods have been replaced",
    Signal.JOB_RENEWED: "all pods of the job are new",
    Signal.PROCESS_RECOVER_ON: "process recovery was turned on",
    Signal.JOB_ENDED: "the job has ended",
    Signal.LEAVE_ACT: "reset-config is no longer in act mode",
}


def _because(draft: Draft, job: Job | None, signal: Signal) -> str:
    """What moved a recovery, for people."""
    if signal is Signal.ISOLATION_FAULT and job is not None:
        isolated = isolating(draft, job)
        if isolated is not None:
            return f"isolated because of {_words(isolated)}"
    return _WORDS.get(signal, str(signal))


def cause_of_course(course: Course) -> Cause:
    """The fault that began a recovery, as the cause of what becomes of it."""
    recovery = course.recovery
    return Cause(
        recovery.node, course.fault, course.level, "", tuple(one.rank for one in recovery.devices), course.trace
    )


def _take(
    draft: Draft, course: Course, moved: Step | None, cause: Cause | None, job: Job | None, because: str
) -> Course:
    """The course with its next step, in the ledger and, with a cause, told."""
    if moved is None:
        return course
    after = replace(course, recovery=moved.recovery)
    courses = tuple(after if one.recovery.id == course.recovery.id else one for one in draft.ledger.courses)
    draft.ledger = replace(draft.ledger, courses=courses)
    if cause is not None:
        detail = f"recovery {moved.recovery.id}: {course.recovery.phase} → {moved.recovery.phase}, {because}"
        draft.say(moved.reason, detail, cause, document_of(job) if job is not None else "")
    return after


def _signals(draft: Draft, job: Job | None, course: Course) -> Iterator[Signal]:
    book, recovery = draft.book, course.recovery
    if job is None or job.finished:
        yield Signal.JOB_ENDED
        return
    if job.settings.process_recover in ("on", "pause"):
        yield Signal.PROCESS_RECOVER_ON
    pods = book.jobs.pods_of(job.id)
    if pods and all(pod.created > recovery.phase_since for pod in pods):
        yield Signal.JOB_RENEWED
    there = {pod.uid for pod in pods if pod.live}
    if not there.issuperset(course.pods):
        yield Signal.PODS_REPLACED if _replaced(draft, job, course, there) else Signal.BINDING_ENDED
    if book.limits.reset_mode is not Mode.ACT:
        yield Signal.LEAVE_ACT
    if recovery.phase in _RUNNING:
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
        _take(draft, course, moved, cause_of_course(course), job, _WORDS[Signal.LEAVE_ACT])


def adopt(draft: Draft, job: Job, info: ResetInfo) -> None:
    """Entries of ours that no ledger knows (it was lost, or another writer put an old list back) leave the document:
    unrecovered ones would keep the workers dead for ever. A RetryTime that others have raised is noted.
    """
    if info.retry_time > draft.ledger.retry_high:
        draft.ledger = replace(draft.ledger, retry_high=info.retry_time)
    known = [course.recovery.id for course in draft.ledger.courses]
    for one in orphans(info, known):
        entries = [entry for entry in info.rank_list or () if entry.recovery_id == one]
        course = Course(orphan(one, entries, draft.now, draft.ledger.retry_high), (), "", "")
        newest = max(draft.ledger.last_recovery, one)
        draft.ledger = replace(draft.ledger, last_recovery=newest, courses=(*draft.ledger.courses, course))
        ranks = tuple(sorted(entry.rank_id for entry in entries))
        detail = f"recovery {one}: no ledger knows its entries; they are taken out"
        draft.say(Reason.RECOVERY_ENDED, detail, Cause(ranks=ranks), document_of(job))


def wake_of(draft: Draft) -> Millis | None:
    """When to look at the job again: the next deadline of a recovery, or of what else is waited for."""
    deadlines = (at for course in draft.ledger.courses if (at := due(course.recovery)) is not None)
    return min((*draft.wake, *deadlines), default=None)
