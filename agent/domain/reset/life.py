"""The life of a recovery as a table: which signal moves which phase, and until when each phase waits.

The one rule: what is not in TRANSITIONS changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from agent.domain.reset.values import (
    POLICIES,
    Executor,
    Phase,
    Policy,
    RankEntry,
    Recovery,
    ResetDevice,
    ResetLimits,
    Status,
)
from agent.domain.vocab import Millis, NodeName, Reason


class Signal(StrEnum):
    """What can happen to a recovery."""

    CODES_GONE = "codes_gone"
    """No device of it has a code of policy restart_request or stronger any more."""
    CODES_BACK = "codes_back"
    """Such a code is there again."""
    DEADLINE = "deadline"
    """The clock reached `due(recovery)`."""
    BINDING_ENDED = "binding_ended"
    """A pod of the job that held devices of it is gone or finished."""
    ISOLATION_FAULT = "isolation_fault"
    """A fault that isolates a device, on any node of the job."""
    STRONGER_FAULT = "stronger_fault"
    """A fault on its devices that needs a reset."""
    PODS_REPLACED = "pods_replaced"
    """The pods that went have been replaced and placed; other pods of the job live on."""
    JOB_RENEWED = "job_renewed"
    """Every pod the job has now was created after the recovery's `phase_since`; none saw it unrecovered."""
    PROCESS_RECOVER_ON = "process_recover_on"
    """ClusterD's process recovery owns the list from now on."""
    JOB_ENDED = "job_ended"
    LEAVE_ACT = "leave_act"
    """Mode left act, or a person released the recovery."""
    FOREIGN_CLEAR = "foreign_clear"
    """Somebody else took our entries out (merge said ABSENT)."""
    LEFT = "left"
    """The write that takes the entries out went through, or there was nothing to write (merge said LEFT)."""
    SETTLED = "settled"
    """Made by `step`: codes gone under a policy that needs no settling."""
    ESCALATE = "escalate"
    """Made by `step`: the time is over or the fault is stronger, and somebody can reset the device."""


_U, _S, _R, _F = Phase.UNRECOVERED, Phase.SETTLING, Phase.RECOVERED, Phase.FAILED
_L, _E = Phase.LEAVING, Phase.ENDED

TRANSITIONS: Final[Mapping[tuple[Phase, Signal], tuple[Phase, Reason]]] = {
    (_U, Signal.CODES_GONE): (_S, Reason.FAULT_CLEARED),
    (_U, Signal.SETTLED): (_R, Reason.RECOVERY_SUCCEEDED),
    (_U, Signal.DEADLINE): (_F, Reason.RECOVERY_FAILED),
    (_U, Signal.ESCALATE): (_U, Reason.RECOVERY_ESCALATED),
    (_U, Signal.STRONGER_FAULT): (_F, Reason.RECOVERY_FAILED),
    (_U, Signal.BINDING_ENDED): (_F, Reason.RECOVERY_FAILED),
    (_U, Signal.PODS_REPLACED): (_F, Reason.RECOVERY_FAILED),
    (_U, Signal.ISOLATION_FAULT): (_F, Reason.RECOVERY_FAILED),
    (_U, Signal.PROCESS_RECOVER_ON): (_L, Reason.PROCESS_RECOVER_OWNS),
    (_U, Signal.JOB_ENDED): (_L, Reason.JOB_FINISHED),
    (_U, Signal.LEAVE_ACT): (_L, Reason.RECOVERY_ENDED),
    (_U, Signal.FOREIGN_CLEAR): (_L, Reason.RECOVERY_ENDED),
    (_S, Signal.DEADLINE): (_R, Reason.RECOVERY_SUCCEEDED),
    (_S, Signal.CODES_BACK): (_U, Reason.FAULT_SHOWN),
    (_S, Signal.ESCALATE): (_U, Reason.RECOVERY_ESCALATED),
    (_S, Signal.STRONGER_FAULT): (_F, Reason.RECOVERY_FAILED),
    (_S, Signal.BINDING_ENDED): (_F, Reason.RECOVERY_FAILED),
    (_S, Signal.PODS_REPLACED): (_F, Reason.RECOVERY_FAILED),
    (_S, Signal.ISOLATION_FAULT): (_F, Reason.RECOVERY_FAILED),
    (_S, Signal.PROCESS_RECOVER_ON): (_L, Reason.PROCESS_RECOVER_OWNS),
    (_S, Signal.JOB_ENDED): (_L, Reason.JOB_FINISHED),
    (_S, Signal.LEAVE_ACT): (_L, Reason.RECOVERY_ENDED),
    (_S, Signal.FOREIGN_CLEAR): (_L, Reason.RECOVERY_ENDED),
    (_R, Signal.DEADLINE): (_L, Reason.RECOVERY_ENDED),
    (_R, Signal.BINDING_ENDED): (_R, Reason.RECOVERY_SUCCEEDED),
    (_R, Signal.PODS_REPLACED): (_R, Reason.RECOVERY_SUCCEEDED),
    (_R, Signal.JOB_RENEWED): (_L, Reason.RECOVERY_ENDED),
    (_R, Signal.PROCESS_RECOVER_ON): (_L, Reason.PROCESS_RECOVER_OWNS),
    (_R, Signal.JOB_ENDED): (_L, Reason.JOB_FINISHED),
    (_R, Signal.LEAVE_ACT): (_L, Reason.RECOVERY_ENDED),
    (_R, Signal.FOREIGN_CLEAR): (_L, Reason.RECOVERY_ENDED),
    (_F, Signal.DEADLINE): (_L, Reason.RECOVERY_ENDED),
    (_F, Signal.PODS_REPLACED): (_L, Reason.RECOVERY_ENDED),
    (_F, Signal.JOB_RENEWED): (_L, Reason.RECOVERY_ENDED),
    (_F, Signal.PROCESS_RECOVER_ON): (_L, Reason.PROCESS_RECOVER_OWNS),
    (_F, Signal.JOB_ENDED): (_L, Reason.JOB_FINISHED),
    (_F, Signal.LEAVE_ACT): (_L, Reason.RECOVERY_ENDED),
    (_F, Signal.FOREIGN_CLEAR): (_L, Reason.RECOVERY_ENDED),
    (_L, Signal.LEFT): (_E, Reason.RECOVERY_ENDED),
}
"""(phase, signal) -> (next phase, reason)."""

_STARTS_NOTHING: Final = frozenset({Signal.JOB_ENDED, Signal.JOB_RENEWED})
"""After these no worker is left that our entries stopped."""


@dataclass(frozen=True, slots=True)
class Step:
    """The recovery after a signal, and why."""

    recovery: Recovery
    reason: Reason


def due(recovery: Recovery) -> Millis | None:
    """When to send DEADLINE, Unix ms; None: never."""
    return recovery.settle_until if recovery.phase is Phase.SETTLING else recovery.deadline


def start(
    recovery_id: int,
    policy: Policy,
    devices: Sequence[ResetDevice],
    node: NodeName,
    now: Millis,
    limits: ResetLimits,
    executor: Executor = Executor.NONE,
) -> Recovery | Reason:
    """A new recovery, or the reason why there is none for this policy.

    `policy` is the strongest over the devices. An empty one needs nothing, free_reset and isolate are left to the
    books that isolate; reset needs somebody who resets.
    """
    if policy is Policy.EMPTY:
        return Reason.LEVEL_NEEDS_NOTHING
    if policy in (Policy.FREE_RESET, Policy.ISOLATE):
        return Reason.ISOLATION_ONLY
    if policy is Policy.RESET and executor is Executor.NONE:
        return Reason.NO_RESET_EXECUTOR
    if not devices:
        return Reason.NO_RANK
    return Recovery(
        id=recovery_id,
        phase=Phase.UNRECOVERED,
        policy=policy,
        initial_policy=policy,
        devices=tuple(sorted(devices, key=lambda device: device.rank)),
        node=node,
        started=now,
        phase_since=now,
        deadline=_patience(policy, now, limits),
        executor=executor,
    )


def orphan(recovery_id: int, entries: Sequence[RankEntry], now: Millis, high: int = 0) -> Recovery:
    """A recovery for entries of ours that no ledger knows (it was lost): it only leaves.

    Without it an unrecovered entry would keep the workers dead for ever. `entries`: those with that RecoveryId; `high`:
    the highest RetryTime that is known of.
    """
    seen = {entry.status for entry in entries}
    shown = Status.RECOVERED if seen == {Status.RECOVERED} else Status.UNRECOVERED
    return Recovery(
        id=recovery_id,
        phase=Phase.LEAVING,
        policy=Policy.ISOLATE,
        initial_policy=Policy.ISOLATE,
        devices=(),
        node=NodeName(""),
        started=now,
        phase_since=now,
        workers_stopped=shown is not Status.RECOVERED,
        shown=shown,
        retry_base=high,
    )


def step(recovery: Recovery, signal: Signal, now: Millis, limits: ResetLimits) -> Step | None:
    """The recovery after the signal, or None when the table has no such move, it is too early, or nothing changes."""
    if signal is Signal.DEADLINE and not _is_due(recovery, now):
        return None
    meant = _meant(recovery, signal, now, limits)
    move = TRANSITIONS.get((recovery.phase, meant))
    if move is None:
        return None
    phase, reason = move
    after = _enter(recovery, phase, meant, now, limits)
    return None if after == recovery else Step(after, reason)


def join(
    recovery: Recovery, policy: Policy, devices: Sequence[ResetDevice], now: Millis, limits: ResetLimits
) -> Step | None:
    """A further fault on the recovery's node: its codes come in, and the stronger policy holds.

    `policy` and `devices` are as judged now over the whole node. Devices the recovery has and `devices` has not stay,
    for what is shown unrecovered must be shown to its end. A stronger policy begins its own wait; reset without an
    executor and isolate end failed. Outside UNRECOVERED and SETTLING: None, a new recovery is due.
    """
    if recovery.phase not in (Phase.UNRECOVERED, Phase.SETTLING):
        return None
    listed = {device.rank: device for device in recovery.devices} | {device.rank: device for device in devices}
    joined = replace(recovery, devices=tuple(listed[rank] for rank in sorted(listed)))
    if policy in (Policy.FREE_RESET, Policy.ISOLATE):
        return step(joined, Signal.ISOLATION_FAULT, now, limits)
    if POLICIES[policy] > POLICIES[recovery.policy]:
        if policy is Policy.RESET:
            return step(joined, Signal.STRONGER_FAULT, now, limits)
        harder = replace(joined, policy=policy, deadline=_patience(policy, now, limits))
        return Step(_enter(harder, Phase.UNRECOVERED, Signal.CODES_BACK, now, limits), Reason.RECOVERY_ESCALATED)
    if policy is not Policy.EMPTY and recovery.phase is Phase.SETTLING:
        joined = _enter(joined, Phase.UNRECOVERED, Signal.CODES_BACK, now, limits)
    return None if joined == recovery else Step(joined, Reason.RECOVERY_JOINED)


def _is_due(recovery: Recovery, now: Millis) -> bool:
    at = due(recovery)
    return at is not None and now >= at


def _meant(recovery: Recovery, signal: Signal, now: Millis, limits: ResetLimits) -> Signal:
    """The signal as the table knows it: some depend on policy, executor or time."""
    shown_unrecovered = recovery.phase in (Phase.UNRECOVERED, Phase.SETTLING)
    if signal is Signal.CODES_GONE and recovery.policy is Policy.RESTART_REQUEST:
        return Signal.SETTLED
    over = signal is Signal.DEADLINE and recovery.phase is Phase.UNRECOVERED
    if over or (signal is Signal.STRONGER_FAULT and shown_unrecovered):
        can = recovery.executor is Executor.EXTERNAL and recovery.policy is not Policy.RESET
        return Signal.ESCALATE if can else signal
    if signal in (Signal.BINDING_ENDED, Signal.PODS_REPLACED) and recovery.phase is Phase.RECOVERED:
        return Signal.DEADLINE if now >= recovery.phase_since + limits.recovered_least else signal
    return signal


def _enter(recovery: Recovery, phase: Phase, signal: Signal, now: Millis, limits: ResetLimits) -> Recovery:
    """The recovery in its next phase, with that phase's clock."""
    if phase is recovery.phase is Phase.RECOVERED:
        return replace(recovery, deadline=Millis(recovery.phase_since + limits.recovered_least))
    moved = replace(recovery, phase=phase, phase_since=now, settle_until=None)
    match phase:
        case Phase.SETTLING:
            quiet = limits.npu_ready if recovery.policy is Policy.RESET else limits.self_healing
            return replace(moved, settle_until=Millis(now + quiet))
        case Phase.RECOVERED:
            return replace(moved, deadline=Millis(now + limits.recovered_shown))
        case Phase.FAILED:
            return replace(moved, policy=Policy.ISOLATE, deadline=Millis(now + limits.replacement))
        case Phase.LEAVING:
            # Whoever had not yet looked at the recovered list missed the start, if RetryTime was set back with it.
            unseen = recovery.phase is Phase.RECOVERED and signal is Signal.FOREIGN_CLEAR
            stopped = (recovery.workers_stopped or unseen) and signal not in _STARTS_NOTHING
            return replace(moved, deadline=None, workers_stopped=stopped)
        case Phase.ENDED:
            return replace(moved, deadline=None)
        case _ if signal is Signal.ESCALATE:
            return replace(moved, policy=Policy.RESET, deadline=_patience(Policy.RESET, now, limits))
        case _:
            return moved


def _patience(policy: Policy, now: Millis, limits: ResetLimits) -> Millis:
    """Until when the codes must be gone under this policy."""
    spans = {Policy.RESTART_REQUEST: limits.request_clean, Policy.RESTART: limits.processes_gone}
    return Millis(now + spans.get(policy, limits.device_reset))
