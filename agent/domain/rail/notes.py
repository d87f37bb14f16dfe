"""The warnings of a borrow: what a person should know of a plan that may go ahead.

The one rule: a warning never stands in a plan's way; what would is a rule.
"""

from typing import Final

from agent.domain.hccl import Sight
from agent.domain.rail.case import Case, CommMode, Seat, node_envs
from agent.domain.rail.moves import retry_constraints
from agent.domain.rail.words import BANDWIDTH, FaultKind, RailCode, RailNote
from agent.domain.vocab import NodeName

DEFAULT_PORT = 16666
"""HCCL's port of a device NIC in its own role."""
DEFAULT_BACKUP_PORT = 16667
"""HCCL's port of a device NIC as somebody's backup."""


_EXITS: Final = {
    "graceExit": "Volcano asks the training to end (GracefulExit in reset-config, unless process-recover-enable is on),"
    " then deletes its pods",
    "forceExit": "Volcano deletes its pods at once, with no checkpoint but the last",
    "hotSwitch": "ClusterD makes a backup pod, pauses the training and moves it there, then has the old pod deleted",
}
"""What the strategies of a sub-healthy job do to it (Volcano's reschedule.go, ClusterD's hot_switch_controller.go);
`ignore` does nothing but place other jobs elsewhere first."""


def notes_of(case: Case) -> tuple[RailNote, ...]:
    """Warnings of the plan of this case, in one fixed order."""
    notes = [BANDWIDTH]
    notes += _leaves(case)
    notes += _sharing(case)
    exits = _EXITS.get(case.q.sub_health_strategy)
    if exits is not None:
        detail = f"a borrow that works makes the job sub-healthy, and by {case.q.sub_health_strategy} {exits}"
        notes.append(RailNote(RailCode.SUBHEALTH_POLICY_EXIT, detail))
    notes += [RailNote(hit.code, hit.detail) for hit in retry_constraints(case)]
    if case.q.peers is None:
        detail = "peers are not known; taken to be every rank of that device id in the other super-pods"
        notes.append(RailNote(RailCode.PEERS_ASSUMED, detail))
    notes += [
        RailNote(RailCode.PORT_DEFAULT_CLASH, f"{seat}: with default ports its backup port is device {seat.pair}'s own")
        for seat in case.involved
        if _default_clash(case, seat)
    ]
    return tuple(notes + _environment(case))


def _leaves(case: Case) -> list[RailNote]:
    """Which dies lost their link together; the fault is then where their links meet, and so is the repair."""
    lost: dict[tuple[NodeName, int], list[int]] = {}
    for fault in case.faults:
        if fault.kind is FaultKind.LEAF_SWITCH:
            lost.setdefault((fault.node, fault.device % 2), []).append(fault.device)
    notes = []
    for (node, parity), dies in lost.items():
        which = f"{'odd' if parity else 'even'} devices {', '.join(map(str, sorted(dies)))}"
        notes.append(RailNote(RailCode.LEAF_SWITCH, f"{node}: {which} went down together: their leaf switch?"))
    return notes


def _sharing(case: Case) -> list[RailNote]:
    notes = []
    for seat in case.involved:
        owner = case.q.owners.get((seat.node, seat.pair))
        in_table = case.q.table is not None and case.q.table.rank_of(seat.server.server_id, seat.pair) is not None
        if owner is not None and owner != case.q.job:
            detail = f"{seat}: device {seat.pair} belongs to {owner}, both jobs get slower"
            notes.append(RailNote(RailCode.SHARED_NPU, detail))
        elif owner is None and not in_table:
            notes.append(RailNote(RailCode.NOT_JUDGED, f"{seat}: whose device {seat.pair} is, is not known"))
    return notes


def _default_clash(case: Case, seat: Seat) -> bool:
    table = case.q.table
    rank = table.rank_of(seat.server.server_id, seat.pair) if table is not None else None
    other = case.seat(rank) if rank is not None else None
    if case.q.comm_mode != CommMode.RANKTABLE or other is None:
        return False
    backup, main = seat.device.backup_device_port, other.device.device_port
    if backup is not None and main is not None:
        return False
    return (DEFAULT_BACKUP_PORT if backup is None else backup) == (DEFAULT_PORT if main is None else main)


def _environment(case: Case) -> list[RailNote]:
    notes = []
    for node, env in node_envs(case):
        if env.expansion.sight is Sight.UNSET:
            detail = f"{node}: HCCL_OP_EXPANSION_MODE is not set; AI_CPU is the default on A3"
            notes.append(RailNote(RailCode.EXPANSION_DEFAULT, detail))
        elif env.expansion.sight is Sight.INVALID:
            notes.append(RailNote(RailCode.EXPANSION_WORD_UNKNOWN, f"{node}: {env.expansion.problem}"))
        if env.retry.value is not None and env.retry.value.l0_given:
            detail = f"{node}: L0 of HCCL_OP_RETRY_ENABLE has no effect in current HCCL"
            notes.append(RailNote(RailCode.RETRY_L0_IGNORED, detail))
        notes += [
            RailNote(RailCode.RDMA_TIMER_INVALID, f"{node}: {timer.problem}")
            for timer in (env.rdma_timeout, env.rdma_retry_cnt)
            if timer.sight is Sight.INVALID
        ]
    return notes
