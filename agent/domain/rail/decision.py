"""Rail-borrow: may the traffic of a failed die go over the other die of its NPU? One question, one answer.

The one rule: 28 rules in one order, the first that matches answers; a rule that cannot be judged refuses or says so.
The order and outcomes follow HCCL's operator retry (operator_retry/opretry_server.cc, opretry_base.cc) and the
rank-table document of CANN 9.0; where HCCL is laxer than the document, strictness `strict` keeps the document.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
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
    RailFault,
    Refuse,
)
from agent.domain.vocab import NodeName


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its number in the order, its name, the test that gives what it found, and both in words."""

    number: int
    code: RailCode
    test: Callable[[Case], tuple[Hit, ...]]
    answer: str
    """What it answers with when it hits."""
    hits: str
    """When it hits."""
    further: Mapping[RailCode, str] = field(default_factory=dict)
    """Codes that it answers with beside its own, and when."""


RULES: Final[tuple[Rule, ...]] = (
    Rule(
        1,
        RailCode.UNKNOWN_TARGET,
        r.unknown_target,
        "refuse",
        "the job, its node, the die or its rank is in no completed rank table",
        {RailCode.TABLES_CONTRADICT: "tables of the job say different things, or one contradicts itself"},
    ),
    Rule(
        2,
        RailCode.ALREADY_DONE,
        r.already_done,
        "noop",
        "this occurrence was answered, or no link of the die is left on its own side",
        {RailCode.LEDGER_UNREADABLE: "without the ledger: refuse"},
    ),
    Rule(3, RailCode.CLEAR, r.clear, "noop", "it recovered and nothing was borrowed for it"),
    Rule(
        4,
        RailCode.NO_SWITCH_BACK,
        r.no_switch_back,
        "noop",
        "it recovered after a borrow; HCCL's mark stays, so does ours",
    ),
    Rule(
        5,
        RailCode.UNSUPPORTED_PRODUCT,
        r.unsupported_product,
        "refuse",
        "not A3, or product unknown, or a rank table of version 2.0",
    ),
    Rule(
        6,
        RailCode.HCCS_PATH_SWITCH,
        r.hccs_path_switch,
        "delegate",
        "the fault lies on the HCCS plane (super-pod switches)",
    ),
    Rule(7, RailCode.NOT_RAIL_FAULT, r.not_rail_fault, "refuse", "it is no fault of an RDMA link"),
    Rule(8, RailCode.NO_RDMA_PEER, r.no_rdma_peer, "noop", "the rank talks to nobody over RDMA"),
    Rule(9, RailCode.FLAP, r.flap, "observe", "it is a flap and not older than the threshold"),
    Rule(
        10,
        RailCode.ENV_INVALID,
        r.env_invalid,
        "refuse",
        "a variable that decides cannot be read",
        {RailCode.ENV_UNKNOWN: "it cannot be seen"},
    ),
    Rule(11, RailCode.RETRY_L2_OFF, r.retry_l2_off, "refuse", "L2 of HCCL_OP_RETRY_ENABLE is not 1"),
    Rule(
        12,
        RailCode.EXPANSION_MODE,
        r.expansion_mode,
        "refuse",
        "HCCL_OP_EXPANSION_MODE expands operators elsewhere than on the AI CPU",
    ),
    Rule(
        13, RailCode.ENV_MISMATCH, r.env_mismatch, "refuse", "the variables in force differ between nodes of the plan"
    ),
    Rule(
        14,
        RailCode.HOST_IP_MISSING,
        m.host_ip_missing,
        "refuse",
        "the host's address, over which ends agree on a retry, is not in the table",
        {RailCode.COMM_MODE_UNKNOWN: "nobody knows how communicators are made"},
    ),
    Rule(
        15,
        RailCode.NO_BACKUP_CONFIGURED,
        m.no_backup_configured,
        "refuse",
        "rank-table mode and the rank names no backup",
    ),
    Rule(
        16,
        RailCode.BACKUP_NOT_PAIR,
        m.backup_not_pair,
        "refuse",
        "the backup is not the other die of the same NPU and server",
    ),
    Rule(17, RailCode.PORT_CLASH, m.port_clash, "refuse", "the other die's NIC would use one port in both roles"),
    Rule(18, RailCode.BACKUP_NOT_VISIBLE, m.backup_not_visible, "refuse", "the process does not see the other die"),
    Rule(
        19,
        RailCode.BACKUP_IN_USE_FAILED,
        m.backup_in_use_failed,
        "refuse",
        "the failed die carries what was borrowed from its pair",
    ),
    Rule(20, RailCode.ALREADY_BORROWED, m.already_borrowed, "refuse", "the NPU is held already (one borrow each)"),
    Rule(21, RailCode.BACKUP_LINK_DOWN, m.backup_link_down, "refuse", "both dies of the NPU are down"),
    Rule(
        22,
        RailCode.BACKUP_LINK_UNKNOWN,
        m.backup_link_unknown,
        "refuse",
        "nobody has seen the other die's link within rail.link_fresh_s",
    ),
    Rule(23, RailCode.CROSS_DIE_TRAFFIC, m.cross_die_traffic, "refuse", "an even die talks to an odd one"),
    Rule(
        24,
        RailCode.PEER_NO_BACKUP_CONFIGURED,
        m.peer_preconditions,
        "refuse",
        "a rank at the other end names no backup",
        {
            RailCode.PEER_HOST_IP_MISSING: "as rule 14",
            RailCode.PEER_BACKUP_NOT_PAIR: "as rule 16",
            RailCode.PEER_PORT_CLASH: "as rule 17",
            RailCode.PEER_BACKUP_NOT_VISIBLE: "as rule 18",
            RailCode.PEER_BACKUP_LINK_UNKNOWN: "as rule 22",
            RailCode.LEDGER_FULL: "they are more than the ledger can hold",
        },
    ),
    Rule(
        25,
        RailCode.PEER_ALREADY_BORROWED,
        m.peer_already_borrowed,
        "refuse",
        "an NPU at the other end is held, or would move both ways",
    ),
    Rule(
        26,
        RailCode.NO_COMMON_RAIL,
        m.no_common_rail,
        "refuse",
        "the other end's backup is down, so no rail is up at both ends",
    ),
    Rule(
        27,
        RailCode.HOST_PLANE_DOWN,
        m.retry_constraints,
        "refuse",
        "hosts cannot agree on a retry over their own network",
        {
            RailCode.OP_NOT_RETRYABLE: "HCCL cannot execute the operator again",
            RailCode.RETRY_EXHAUSTED: "its retries are used up",
            RailCode.NOT_JUDGED: "not known: a warning of the plan",
        },
    ),
)
"""Rule 28 is what is left: borrow."""


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
        word = word_of(rule, hits)
        checked.append(word)
        if word.outcome is Outcome.REFUSED:
            advice = next(hit.advice for hit in hits if hit.kind is HitKind.REFUSE)
            return Refuse(word.code, rule.number, word.detail, tuple(checked), advice)
        if word.outcome is Outcome.SET_ASIDE:
            aside += [(rule, hit) for hit in hits if hit.kind is not HitKind.NOT_JUDGED]
            case = case.without(settled_by(hits))
            if not case.faults:
                return _settled(aside, tuple(checked))
    return _borrow(case, tuple(checked))


def word_of(rule: Rule, hits: tuple[Hit, ...]) -> Checked:
    """What a rule said by what it found: a refusal goes before all else, then what it set aside."""
    refused = [hit for hit in hits if hit.kind is HitKind.REFUSE]
    if refused:
        return Checked(rule.number, Outcome.REFUSED, refused[0].code, _joined(hit.detail for hit in refused))
    settled = [hit for hit in hits if hit.kind is not HitKind.NOT_JUDGED]
    if settled:
        return Checked(rule.number, Outcome.SET_ASIDE, settled[0].code, _joined(hit.detail for hit in settled))
    if hits:
        return Checked(rule.number, Outcome.NOT_JUDGED, rule.code, _joined(hit.detail for hit in hits))
    return Checked(rule.number, Outcome.PASSED, rule.code)


def settled_by(hits: tuple[Hit, ...]) -> frozenset[RailFault | None]:
    """Faults that need nothing more after a rule."""
    return frozenset(hit.fault for hit in hits if hit.kind is not HitKind.NOT_JUDGED)


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
