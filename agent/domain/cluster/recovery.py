"""In-place recoveries of a job: which fault starts one, or joins the one that runs.

The one rule: a recovery is started only when nothing else moves the job, and every fault that starts none has
the reason of the first condition that stood in its way.
"""

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
from agent.domain.cluster.courses import RUNNING, document_of, isolating, policy_words, take, words_of
from agent.domain.cluster.effective import faults_of
from agent.domain.cluster.kept import decidable, key_of
from agent.domain.events import Occurrence
from agent.domain.jobs import FaultScheduling, Job
from agent.domain.ledger import Course
from agent.domain.reset import (
    POLICIES,
    Phase,
    Policy,
    Recovery,
    ResetDevice,
    Signal,
    Step,
    join,
    policy_of,
    start,
    step,
)
from agent.domain.vocab import JobId, Millis, Mode, NodeName, Plane, Reason


def consider(draft: Draft, job: Job) -> None:
    """Decide every occurrence of the job that was not decided before, oldest first."""
    for occurrence, device, free in decidable(draft, job):
        cause = cause_of(draft.book, occurrence, ranks_on(draft.book, job.id, occurrence.key.node, device))
        reason, detail = _judge(draft, job, occurrence, device, cause, free)
        draft.say(reason, detail, cause, document_of(job) if reason in _TOUCHING else "")
        draft.mark(key_of(occurrence, device), reason)


_TOUCHING = frozenset(
    {Reason.RECOVERY_STARTED, Reason.RECOVERY_JOINED, Reason.RECOVERY_ESCALATED, Reason.RECOVERY_FAILED}
)
"""Reasons of a fault that changes the job's reset.json: it is behind what is written there."""


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
        return Reason.LABEL_OFF, _scheduling_words(job)
    if scheduling in (FaultScheduling.GRACE, FaultScheduling.FORCE) and draft.book.volcano_alive:
        return Reason.VOLCANO_RESCHEDULES, f"fault-scheduling={scheduling} and Volcano's plugin is alive"
    others = draft.book.jobs.sharers(job.id)
    if others:
        # One list of ranks and one RetryTime for two jobs: what starts the one would start or stop the other.
        return Reason.SHARED_RESET_CONFIG, f"{document_of(job)} is also that of {', '.join(others[:3])}"
    return None


def _start_or_join(draft: Draft, job: Job, occurrence: Occurrence, device: int, cause: Cause) -> tuple[Reason, str]:
    book, now, limits = draft.book, draft.now, draft.book.limits
    node = occurrence.key.node
    isolated = isolating(draft, job)
    if isolated is not None:
        return Reason.ISOLATION_ONLY, f"the job already has {words_of(isolated)}"
    policy, devices = _affected(draft, job, node, occurrence, device)
    if any(one is None for one in devices):
        return Reason.NO_RANK, "no rank is known for the device, so no entry can name it"
    listed = [one for one in devices if one is not None]
    running = next((one for one in draft.ledger.courses if one.recovery.phase in (*RUNNING, Phase.FAILED)), None)
    if running is not None:
        if running.recovery.phase is Phase.FAILED:
            return Reason.RECOVERY_RUNNING, f"recovery {running.recovery.id} has failed; the pods are to be replaced"
        if running.recovery.node != node:
            second = step(running.recovery, Signal.ISOLATION_FAULT, now, limits.reset)
            take(draft, running, second, cause, job, "a fault on a second node of the job")
            return Reason.RECOVERY_RUNNING, f"a second node while recovery {running.recovery.id} runs: it fails"
        joined = join(running.recovery, policy, listed, now, limits.reset)
        if joined is None:
            return Reason.RECOVERY_JOINED, f"recovery {running.recovery.id} already covers it"
        take(draft, running, joined, None, job, "")
        return joined.reason, _into(running.recovery, joined, policy)
    seen = draft.ledger.retry_seen
    begun = start(draft.ledger.last_recovery + 1, policy, listed, node, now, limits.reset, limits.executor, seen)
    if isinstance(begun, Reason):
        return begun, _DETAIL.get(begun, "")
    if limits.reset_mode is not Mode.ACT:
        reason = Reason.OBSERVE if limits.reset_mode is Mode.OBSERVE else Reason.DISABLED
        return reason, f"in act mode a recovery would start: policy {policy}, {len(listed)} ranks"
    pods = sorted({b.pod.uid for one in listed for b in book.jobs.bindings(node, one.device) if b.job == job.id})
    course = Course(begun, tuple(pods), cause.fault, occurrence.level, occurrence.trace)
    draft.ledger = replace(draft.ledger, last_recovery=begun.id, courses=(*draft.ledger.courses, course))
    return Reason.RECOVERY_STARTED, f"recovery {begun.id}, policy {policy}, {len(listed)} ranks"


def _into(before: Recovery, joined: Step, policy: Policy) -> str:
    """What a further fault does to the recovery that runs; `policy` is what the faults ask for together."""
    match joined.reason:
        case Reason.RECOVERY_FAILED if policy is Policy.RESET:
            why = f"it needs a reset, reset.executor is {before.executor}"
        case Reason.RECOVERY_FAILED:
            why = f"policy {policy} is answered by isolation"
        case Reason.RECOVERY_ESCALATED:
            return f"into recovery {before.id}: {policy_words(before, joined)}"
        case _:
            return f"into recovery {before.id}"
    return f"recovery {before.id} fails: {why}; the pods are to be replaced"


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


def _scheduling_words(job: Job) -> str:
    """The label as it stands; a value that its reader does not know is read as none."""
    scheduling = job.settings.fault_scheduling
    if scheduling is FaultScheduling.BAD:
        return f"fault-scheduling={job.labels.get('fault-scheduling', '')[:60]!r} is no value that Volcano knows"
    return f"fault-scheduling={scheduling or '(absent)'}"
