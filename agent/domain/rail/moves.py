"""Rules 14 to 27 of rail-borrow, one function each: can the failed ranks move, and can the ranks at the other end?

The one rule: both ends or none; what is asked of a failed rank's pair die is asked of every peer's too.
"""

from collections.abc import Callable
from typing import Final

from agent.domain.hccl import RetryParams
from agent.domain.rail.case import (
    MOST_ENDS,
    BorrowPolicy,
    Case,
    CommMode,
    Hit,
    HitKind,
    Hits,
    Seat,
    Strictness,
    node_envs,
    refuse,
)
from agent.domain.rail.words import RailCode
from agent.domain.ranktable import addresses
from agent.domain.vocab import NodeName

# --- 14 to 18 and 22: can this rank move? Asked of failed ranks and, in rule 24, of the other ends ------------------


def _no_host_ip(case: Case, seat: Seat) -> str:
    missing = case.q.comm_mode == CommMode.RANKTABLE and not seat.server.host_ip
    return f"server {seat.server.server_id} has no host_ip" if missing else ""


def _no_backup(case: Case, seat: Seat) -> str:
    missing = case.q.comm_mode == CommMode.RANKTABLE and not seat.device.backup_device_ip
    return f"{seat} has no backup_device_ip" if missing else ""


def _not_pair(case: Case, seat: Seat) -> str:
    other = _pair_seat(case, seat)
    if case.q.comm_mode == CommMode.RANKTABLE:
        if other is None:
            return f"{seat}: device {seat.pair}, the other die of its NPU, is not in the table"
        if not addresses(seat.device.backup_device_ip) & addresses(other.device.device_ip):
            return f"{seat}: backup {seat.device.backup_device_ip} is not the address of device {seat.pair}"
        return ""
    die = (seat.node, seat.pair)
    known = die in case.q.links or die in case.q.owners or case.visible(*die) is True
    return "" if other is not None or known else f"{seat}: the node has no device {seat.pair}"


def _port_clash(case: Case, seat: Seat) -> str:
    """HCCL compares only ports that are given; with defaults in play it is a warning."""
    other = _pair_seat(case, seat)
    if case.q.comm_mode != CommMode.RANKTABLE or other is None:
        return ""
    port = seat.device.backup_device_port
    if port is None or port != other.device.device_port:
        return ""
    return f"{seat}: backup port {port} is already the main port of device {seat.pair}"


def _not_visible(case: Case, seat: Seat) -> str:
    seen = case.visible(seat.node, seat.pair)
    if seen is None:
        return f"{seat}: which devices its process sees is not known"
    return "" if seen else f"{seat}: its process does not see device {seat.pair}"


def _link_unknown(case: Case, seat: Seat) -> str:
    unknown = case.link(seat.node, seat.pair) == "unknown"
    return f"{seat}: no fresh link state of device {seat.pair}" if unknown else ""


def _pair_seat(case: Case, seat: Seat) -> Seat | None:
    rank = case.q.table.rank_of(seat.server.server_id, seat.pair) if case.q.table is not None else None
    return None if rank is None else case.seat(rank)


def _each(case: Case, code: RailCode, test: Callable[[Case, Seat], str]) -> Hits:
    return tuple(refuse(code, detail) for seat in case.faulted if (detail := test(case, seat)))


def host_ip_missing(case: Case) -> Hits:
    """Rule 14: the host's address, over which ends agree on a retry, is not in the table. Needs the comm mode."""
    if case.q.comm_mode not in (CommMode.RANKTABLE, CommMode.ROOTINFO):
        return (refuse(RailCode.COMM_MODE_UNKNOWN, "communicators from a rank table or by root broadcast?"),)
    return _each(case, RailCode.HOST_IP_MISSING, _no_host_ip)


def no_backup_configured(case: Case) -> Hits:
    """Rule 15: in rank-table mode the rank names no backup; tables of ascend-operator never do."""
    return _each(case, RailCode.NO_BACKUP_CONFIGURED, _no_backup)


def backup_not_pair(case: Case) -> Hits:
    """Rule 16: the backup is not the other die of the same NPU on the same server, or there is none."""
    return _each(case, RailCode.BACKUP_NOT_PAIR, _not_pair)


def port_clash(case: Case) -> Hits:
    """Rule 17: the pair die's NIC would use one port in both roles."""
    return _each(case, RailCode.PORT_CLASH, _port_clash)


def backup_not_visible(case: Case) -> Hits:
    """Rule 18: the process does not see the pair die; HCCL then fails to make the communicator at all."""
    return _each(case, RailCode.BACKUP_NOT_VISIBLE, _not_visible)


# --- 19 to 22: is the other die free and up? ----------------------------------------------------------------------


def backup_in_use_failed(case: Case) -> Hits:
    """Rule 19: the failed die carries what was borrowed from its pair; nothing is left to go to."""
    hits = []
    for seat in case.faulted:
        held = case.holder(seat.node, seat.device.device_id)
        if held is not None and held.die_to == seat.device.device_id:
            detail = f"{seat} is the backup of rank {held.rank} of {held.job}"
            hits.append(refuse(RailCode.BACKUP_IN_USE_FAILED, detail))
    return tuple(hits)


def already_borrowed(case: Case) -> Hits:
    """Rule 20: one borrow for each NPU, or by policy per_communicator for all that was borrowed and is linked yet."""
    if case.q.policy == BorrowPolicy.PER_COMMUNICATOR:
        counted = [
            entry
            for entry in case.own()
            if entry.open and entry.links and (entry.faulted or case.q.strictness == Strictness.STRICT)
        ]
        if counted:
            return (refuse(RailCode.ALREADY_BORROWED, f"the job borrowed in plan {counted[0].plan}"),)
    hits = []
    for seat in case.faulted:
        held = case.holder(seat.node, seat.device.device_id)
        if held is None:
            continue
        own = held.job == case.q.job and held.incarnation == case.q.incarnation
        if not (own and case.q.strictness == Strictness.SOURCE and not held.faulted):
            detail = f"NPU {seat.npu} of {seat.node} is held by {held.job} (plan {held.plan})"
            hits.append(refuse(RailCode.ALREADY_BORROWED, detail))
    return tuple(hits)


def backup_link_down(case: Case) -> Hits:
    """Rule 21: both dies of the NPU are down."""
    return tuple(
        refuse(RailCode.BACKUP_LINK_DOWN, f"{seat}: device {seat.pair} is down too")
        for seat in case.faulted
        if case.link(seat.node, seat.pair) == "down"
    )


def backup_link_unknown(case: Case) -> Hits:
    """Rule 22: nobody has seen the pair die's link lately."""
    return _each(case, RailCode.BACKUP_LINK_UNKNOWN, _link_unknown)


# --- 23 to 27: can both ends move? --------------------------------------------------------------------------------


def cross_die_traffic(case: Case) -> Hits:
    """Rule 23: die 0 talks to die 1. The document forbids it and can mean two things; both are refused."""
    if case.q.cross_die_traffic:
        return (refuse(RailCode.CROSS_DIE_TRAFFIC, "RDMA traffic between the dies of an NPU is flagged"),)
    hits = []
    for one, other in case.changes:
        ends = case.seat(one), case.seat(other)
        if ends[0] is None or ends[1] is None:
            continue
        if ends[0].device.device_id % 2 != ends[1].device.device_id % 2:
            hits.append(refuse(RailCode.CROSS_DIE_TRAFFIC, f"{ends[0]} and {ends[1]} are on different rails"))
    return tuple(hits)


_PEER_TESTS: Final = (
    (RailCode.PEER_HOST_IP_MISSING, _no_host_ip),
    (RailCode.PEER_NO_BACKUP_CONFIGURED, _no_backup),
    (RailCode.PEER_BACKUP_NOT_PAIR, _not_pair),
    (RailCode.PEER_PORT_CLASH, _port_clash),
    (RailCode.PEER_BACKUP_NOT_VISIBLE, _not_visible),
    (RailCode.PEER_BACKUP_LINK_UNKNOWN, _link_unknown),
)


def peer_preconditions(case: Case) -> Hits:
    """Rule 24: rules 14 to 18 and 22 for every rank at the other end, unless they are more than the book can hold."""
    if case.too_wide:
        detail = f"{case.too_wide} ends of links would change, {MOST_ENDS} are looked at; the ledger holds fewer"
        return (refuse(RailCode.LEDGER_FULL, detail),)
    found = ((code, test(case, seat)) for code, test in _PEER_TESTS for seat in case.other_ends)
    return tuple(refuse(code, detail) for code, detail in found if detail)


def peer_already_borrowed(case: Case) -> Hits:
    """Rule 25: an NPU at the other end is held, or this plan would move one NPU both ways.

    Strictness `source` lets an NPU pass that the same life of the job already moved the same way.
    """
    hits = []
    for seat in case.other_ends:
        held = case.holder(seat.node, seat.device.device_id)
        if held is None:
            continue
        own = held.job == case.q.job and held.incarnation == case.q.incarnation
        same_way = own and held.die_from == seat.device.device_id
        if not (same_way and case.q.strictness == Strictness.SOURCE):
            detail = f"{seat}: NPU {seat.npu} is held by {held.job} (plan {held.plan})"
            hits.append(refuse(RailCode.PEER_ALREADY_BORROWED, detail))
    ways: dict[tuple[NodeName, int], int] = {}
    for seat in case.involved:
        die = seat.device.device_id
        if {(seat.node, die), (seat.node, seat.pair)} & case.down:
            continue  # if both of its dies are to move, the one that is up has no backup: rule 26
        if ways.setdefault((seat.node, seat.npu), die) != die:
            hits.append(refuse(RailCode.PEER_ALREADY_BORROWED, f"{seat}: this plan would move its NPU both ways"))
    return tuple(hits)


def no_common_rail(case: Case) -> Hits:
    """Rule 26: the other end's backup is down, so no rail is up at both ends (opretry_server.cc:570-624)."""
    return tuple(
        refuse(RailCode.NO_COMMON_RAIL, f"{seat}: device {seat.pair} is down")
        for seat in case.other_ends
        if case.link(seat.node, seat.pair) == "down"
    )


def retry_constraints(case: Case) -> Hits:
    """Rule 27: what HCCL's retry itself needs, as far as the caller knows it."""
    q = case.q
    hits = []
    if q.host_plane_ok is False:
        hits.append(refuse(RailCode.HOST_PLANE_DOWN, "hosts cannot agree on a retry over their own network"))
    if q.op_constraints_ok is False:
        hits.append(refuse(RailCode.OP_NOT_RETRYABLE, "HCCL cannot execute this operator again"))
    counts = [params.max_cnt for _, env in node_envs(case) if (params := env.params.effective(RetryParams()))]
    if q.retries_used is not None and counts and q.retries_used >= min(counts):
        hits.append(refuse(RailCode.RETRY_EXHAUSTED, f"retries used: {q.retries_used}, MaxCnt is {min(counts)}"))
    given = {"host plane": q.host_plane_ok, "operator": q.op_constraints_ok, "retries used": q.retries_used}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        hits.append(Hit(HitKind.NOT_JUDGED, RailCode.NOT_JUDGED, f"not given: {', '.join(missing)}"))
    return tuple(hits)
