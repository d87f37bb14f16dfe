"""Rail-borrow: may the traffic of a failed die go over the other die of its NPU? One question, one answer.

The one rule: 28 rules in one order, the first that matches answers; a rule that cannot be judged refuses or says so.
The order and outcomes follow HCCL's operator retry (operator_retry/opretry_server.cc, opretry_base.cc) and the
rank-table document of CANN 9.0; where HCCL is laxer than the document, strictness `strict` keeps the document.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from agent.domain.rail import moves as m
from agent.domain.rail import rules as r
from agent.domain.rail.case import Case, Die, Hit, HitKind, RailQuestion, open_case
from agent.domain.rail.notes import notes_of
from agent.domain.rail.words import (
    Answer,
    Borrow,
    Checked,
    Delegate,
    Move,
    Noop,
    Observe,
    Outcome,
    RailCode,
    Refuse,
)
from agent.domain.vocab import NodeName


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its number in the order, its name, and the test that gives what it found."""

    number: int
    code: RailCode
    test: Callable[[Case], tuple[Hit, ...]]


RULES: Final[tuple[Rule, ...]] = (
    Rule(1, RailCode.UNKNOWN_TARGET, r.unknown_target),
    Rule(2, RailCode.ALREADY_DONE, r.already_done),
    Rule(3, RailCode.CLEAR, r.clear),
    Rule(4, RailCode.NO_SWITCH_BACK, r.no_switch_back),
    Rule(5, RailCode.UNSUPPORTED_PRODUCT, r.unsupported_product),
    Rule(6, RailCode.HCCS_PATH_SWITCH, r.hccs_path_switch),
    Rule(7, RailCode.NOT_RAIL_FAULT, r.not_rail_fault),
    Rule(8, RailCode.NO_RDMA_PEER, r.no_rdma_peer),
    Rule(9, RailCode.FLAP, r.flap),
    Rule(10, RailCode.ENV_INVALID, r.env_invalid),
    Rule(11, RailCode.RETRY_L2_OFF, r.retry_l2_off),
    Rule(12, RailCode.EXPANSION_MODE, r.expansion_mode),
    Rule(13, RailCode.ENV_MISMATCH, r.env_mismatch),
    Rule(14, RailCode.HOST_IP_MISSING, m.host_ip_missing),
    Rule(15, RailCode.NO_BACKUP_CONFIGURED, m.no_backup_configured),
    Rule(16, RailCode.BACKUP_NOT_PAIR, m.backup_not_pair),
    Rule(17, RailCode.PORT_CLASH, m.port_clash),
    Rule(18, RailCode.BACKUP_NOT_VISIBLE, m.backup_not_visible),
    Rule(19, RailCode.BACKUP_IN_USE_FAILED, m.backup_in_use_failed),
    Rule(20, RailCode.ALREADY_BORROWED, m.already_borrowed),
    Rule(21, RailCode.BACKUP_LINK_DOWN, m.backup_link_down),
    Rule(22, RailCode.BACKUP_LINK_UNKNOWN, m.backup_link_unknown),
    Rule(23, RailCode.CROSS_DIE_TRAFFIC, m.cross_die_traffic),
    Rule(24, RailCode.PEER_NO_BACKUP_CONFIGURED, m.peer_preconditions),
    Rule(25, RailCode.PEER_ALREADY_BORROWED, m.peer_already_borrowed),
    Rule(26, RailCode.NO_COMMON_RAIL, m.no_common_rail),
    Rule(27, RailCode.HOST_PLANE_DOWN, m.retry_constraints),
)
"""Rule 28 is what is left: borrow. Rules 10, 14, 24 and 27 have further codes, named by what they found."""


def decide(question: RailQuestion) -> Answer:
    """Answer for all faults of the window together: the plan of every move, or why there is none.

    Total: any question gets an answer, and the order of the faults does not matter. A fault that needs nothing
    (recovered, too young, HCCS) is set aside and the others go on; a refusal of one refuses all, since a retry of
    HCCL that lacks one link fails for the whole communicator.
    """
    case = open_case(question)
    checked: list[Checked] = []
    aside: list[tuple[Rule, Hit]] = []
    if not case.faults:
        return Noop(RailCode.CLEAR, 3, "no fault was given")
    for rule in RULES:
        hits = rule.test(case)
        refused = [hit for hit in hits if hit.kind is HitKind.REFUSE]
        if refused:
            code, detail = refused[0].code, _joined(hit.detail for hit in refused)
            checked.append(Checked(rule.number, Outcome.REFUSED, code, detail))
            return Refuse(code, rule.number, detail, tuple(checked))
        unjudged = [hit for hit in hits if hit.kind is HitKind.NOT_JUDGED]
        settled = [hit for hit in hits if hit.kind not in (HitKind.REFUSE, HitKind.NOT_JUDGED)]
        if settled:
            checked.append(
                Checked(rule.number, Outcome.SET_ASIDE, settled[0].code, _joined(hit.detail for hit in settled))
            )
            aside += [(rule, hit) for hit in settled]
            case = case.without(frozenset(hit.fault for hit in settled))
            if not case.faults:
                return _settled(aside, tuple(checked))
        elif unjudged:
            detail = _joined(hit.detail for hit in unjudged)
            checked.append(Checked(rule.number, Outcome.NOT_JUDGED, rule.code, detail))
        else:
            checked.append(Checked(rule.number, Outcome.PASSED, rule.code))
    return _borrow(case, tuple(checked))


def _settled(aside: list[tuple[Rule, Hit]], checked: tuple[Checked, ...]) -> Answer:
    """The answer when no fault is left: waiting goes before delegating, that before nothing; then the rule's order."""
    waiting = [(hit.until, hit.detail) for _, hit in aside if hit.kind is HitKind.OBSERVE]
    if waiting:
        return Observe(min(until for until, _ in waiting), _joined(detail for _, detail in waiting), checked=checked)
    handed = [hit for _, hit in aside if hit.kind is HitKind.DELEGATE]
    if handed:
        return Delegate(_joined(hit.detail for hit in handed), checked=checked)
    rule, first = aside[0]
    return Noop(first.code, rule.number, _joined(hit.detail for _, hit in aside), checked)


def _borrow(case: Case, checked: tuple[Checked, ...]) -> Borrow:
    failed = {seat.rank for seat in case.faulted}
    moves = tuple(
        Move(seat.node, seat.device.device_id, seat.pair, seat.npu, seat.rank, seat.rank in failed)
        for seat in case.involved
    )
    return Borrow(
        moves,
        case.changes,
        notes_of(case),
        faults=tuple(sorted({fault.ref for fault in case.faults})),
        events=tuple(sorted({fault.event or fault.ref for fault in case.faults})),
        detail=f"{len(moves)} ranks go to the other die of their NPU",
        checked=(*checked, Checked(28, Outcome.PASSED, RailCode.BORROW)),
    )


def _joined(details: Iterable[str]) -> str:
    unique = list(dict.fromkeys(details))
    more = f"; and {len(unique) - 8} more" if len(unique) > 8 else ""
    return "; ".join(unique[:8]) + more


@dataclass(frozen=True, slots=True)
class LeafFault:
    """A leaf switch that is probably down: all devices of one parity on a node go to the same leaf."""

    node: NodeName
    parity: int
    devices: tuple[int, ...]


def leaf_faults(down: AbstractSet[Die], dies_of_node: Mapping[NodeName, Iterable[int]]) -> tuple[LeafFault, ...]:
    """Nodes on which at least half of the dies of one parity, and two or more, are down within one window.

    `down` are the dies with a link fault in the window; `dies_of_node` all dies a node has. By node and parity.
    """
    found = []
    for node in sorted(dies_of_node):
        dies = sorted(set(dies_of_node[node]))
        for parity in (0, 1):
            plane = [die for die in dies if die % 2 == parity]
            lost = tuple(die for die in plane if (node, die) in down)
            if len(lost) >= 2 and 2 * len(lost) >= len(plane):
                found.append(LeafFault(node, parity, lost))
    return tuple(found)
