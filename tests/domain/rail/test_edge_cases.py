"""The edge cases of rail-borrow in every mode: strict and source, one borrow for each NPU and for each communicator.

Where HCCL's source is laxer than its document only mode `source` follows it (cases 2, 6 and 14), and only where one
borrow an NPU is counted: one for each communicator counts all that the job has borrowed for a failed die.
"""

from dataclasses import replace
from typing import Any, Final

import pytest
from a3table import JOB, NODES, NOW, a3_table, fault, question, without_odd
from railcase import N0, N3, OTHER, RING, taken

from agent.domain.events import Link
from agent.domain.rail import decide
from agent.domain.rail.case import BorrowPolicy, CommMode, RailQuestion, Strictness
from agent.domain.rail.reservations import close_job, close_where
from agent.domain.vocab import NodeName

PAIR = {0: (8,), 8: (0,)}
BORROW, OBSERVE = "Borrow 28 BORROW", "Observe 9 FLAP"
ONCE = "Refuse 20 ALREADY_BORROWED"
MODES: Final = {
    "strict, NPU": (Strictness.STRICT, BorrowPolicy.PER_NPU),
    "source, NPU": (Strictness.SOURCE, BorrowPolicy.PER_NPU),
    "strict, communicator": (Strictness.STRICT, BorrowPolicy.PER_COMMUNICATOR),
    "source, communicator": (Strictness.SOURCE, BorrowPolicy.PER_COMMUNICATOR),
}


def later(node: int = 0, device: int = 0, **given: Any) -> Any:
    return fault(node, device, event="later", **given)


def down(*dies: tuple[NodeName, int]) -> dict[tuple[NodeName, int], Link]:
    states = {(node, die): Link("up", NOW) for node in NODES for die in range(4)}
    return states | {die: Link("down", NOW) for die in dies}


def as_the_operator_writes(document: dict[str, Any]) -> None:
    for server in document["server_list"]:
        for item in server["device"]:
            for name in ("backup_device_ip", "backup_device_port", "device_port", "host_port"):
                del item[name]


SHARED = question(
    fault(),
    table=a3_table(without_odd),
    comm_mode=CommMode.ROOTINFO,
    owners={(node, die): JOB if die % 2 == 0 else OTHER for node in NODES for die in range(4)},
)
FIRST = taken(question(fault()))
ANEW = close_where(FIRST, lambda entry: entry.rank == 0, now=NOW)
"""After the process of rank 0 was replaced: whoever it talks to is in a communicator made anew."""
RING_FIRST = taken(question(fault(), peers=RING))
OF_N1 = taken(question(fault(node=1)))

EDGES: list[tuple[str, RailQuestion, dict[str, str] | str]] = [
    ("1 both dies of an NPU fail", question(fault(), fault(device=1)), "Refuse 21 BACKUP_LINK_DOWN"),
    (
        "2 the peers were moved for another link",
        question(fault(), ledger=OF_N1),
        {
            "strict, NPU": "Refuse 25 PEER_ALREADY_BORROWED",
            "source, NPU": BORROW,
            "strict, communicator": ONCE,
            "source, communicator": ONCE,
        },
    ),
    ("3 both ends fail, same parity, in one window", question(fault(), fault(node=2), peers=PAIR), BORROW),
    (
        "3 the second end fails later",
        question(later(2), peers=PAIR, ledger=taken(question(fault(), peers=PAIR))),
        "Noop 2 ALREADY_DONE",
    ),
    (
        "4 both ends fail, opposite parity",
        question(fault(), fault(node=2, device=1), peers={**PAIR, 1: (9,), 9: (1,)}),
        "Refuse 26 NO_COMMON_RAIL",
    ),
    ("5 a ring of three", question(fault(), peers=RING), BORROW),
    (
        "5 the backup of one of the ring is down",
        question(fault(), peers=RING, links=down((N3, 1))),
        "Refuse 26 NO_COMMON_RAIL",
    ),
    (
        "6 the next of the ring fails",
        question(later(2), peers=RING, ledger=RING_FIRST),
        {"strict, NPU": ONCE, "source, NPU": BORROW, "strict, communicator": ONCE, "source, communicator": ONCE},
    ),
    ("7 the backup of the failed rank fails", question(later(0, 1), ledger=FIRST), "Refuse 19 BACKUP_IN_USE_FAILED"),
    ("7 the backup of a peer fails", question(later(2, 1), ledger=FIRST), "Refuse 19 BACKUP_IN_USE_FAILED"),
    ("8 the link recovers after a borrow", question(fault(ended_at=NOW), ledger=FIRST), "Noop 4 NO_SWITCH_BACK"),
    ("9 a flap", question(fault(kind="rdma_flap", started_at=NOW - 1000)), OBSERVE),
    ("9 a flap is over", question(fault(kind="rdma_flap", started_at=NOW - 1000, ended_at=NOW)), "Noop 3 CLEAR"),
    ("10 a flap again", question(fault(kind="rdma_flap", started_at=NOW - 30_064)), OBSERVE),
    (
        "11 a leaf switch",
        question(fault(kind="leaf_switch"), fault(device=2, kind="leaf_switch")),
        BORROW,
    ),
    (
        "11 a leaf switch, one pair of its own broken",
        question(fault(kind="leaf_switch"), fault(device=2, kind="leaf_switch"), links=down((N0, 3))),
        "Refuse 21 BACKUP_LINK_DOWN",
    ),
    (
        "11 a leaf switch, one pair of the other ends broken",
        question(fault(kind="leaf_switch"), fault(device=2, kind="leaf_switch"), links=down((N3, 3))),
        "Refuse 26 NO_COMMON_RAIL",
    ),
    ("12 two jobs share an NPU, its dies visible to both", SHARED, BORROW),
    (
        "12 two jobs share an NPU, each sees its own die",
        replace(SHARED, visible=dict.fromkeys(NODES, frozenset({0, 2}))),
        "Refuse 18 BACKUP_NOT_VISIBLE",
    ),
    (
        "12 the other job has borrowed this die",
        question(fault(), ledger=taken(question(fault(device=1)), job=OTHER)),
        "Refuse 19 BACKUP_IN_USE_FAILED",
    ),
    (
        "12 the other job has borrowed from this die",
        question(fault(event="mine"), ledger=taken(question(fault()), job=OTHER)),
        ONCE,
    ),
    (
        "13 the job has begun a new life",
        question(later(), incarnation="second", ledger=close_job(FIRST, JOB, now=NOW)),
        BORROW,
    ),
    (
        "13 the job has begun a new life, the dead die is still dead",
        question(later(0, 1), incarnation="second", ledger=close_job(FIRST, JOB, now=NOW), links=down((N0, 0))),
        "Refuse 21 BACKUP_LINK_DOWN",
    ),
    (
        "14 a step is run again: the ledger stays",
        question(later(1), ledger=FIRST),
        {
            "strict, NPU": "Refuse 25 PEER_ALREADY_BORROWED",
            "source, NPU": BORROW,
            "strict, communicator": ONCE,
            "source, communicator": ONCE,
        },
    ),
    (
        "15 another NPU, same communicator",
        question(later(0, 2), ledger=FIRST),
        {"strict, NPU": BORROW, "source, NPU": BORROW, "strict, communicator": ONCE, "source, communicator": ONCE},
    ),
    ("15 another NPU, the process of rank 0 replaced", question(later(0, 2), ledger=ANEW), BORROW),
    (
        "15 the NPU of rank 0 itself, its process replaced",
        question(later(), ledger=ANEW),
        {
            "strict, NPU": "Refuse 25 PEER_ALREADY_BORROWED",
            "source, NPU": BORROW,
            "strict, communicator": "Refuse 25 PEER_ALREADY_BORROWED",
            "source, communicator": BORROW,
        },
    ),
    ("19 a recover older than its fault", question(fault(ended_at=NOW - 90_000)), BORROW),
    (
        "20 an unpaired last die",
        replace(SHARED, owners={}, links={}, visible=dict.fromkeys(NODES, frozenset({0, 2}))),
        "Refuse 16 BACKUP_NOT_PAIR",
    ),
    (
        "21 a table of the operator in rank-table mode",
        question(fault(), table=a3_table(as_the_operator_writes)),
        "Refuse 15 NO_BACKUP_CONFIGURED",
    ),
    ("23 exactly 30 s", question(fault(kind="rdma_flap", started_at=NOW - 30_000)), OBSERVE),
    ("23 longer than 30.0648 s", question(fault(kind="rdma_flap", started_at=NOW - 30_065)), BORROW),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("asked", "expected"), [case[1:] for case in EDGES], ids=[case[0] for case in EDGES])
def test_each_edge_case_in_each_mode(asked: RailQuestion, expected: dict[str, str] | str, mode: str) -> None:
    strictness, policy = MODES[mode]
    answer = decide(replace(asked, strictness=strictness, policy=policy))
    assert f"{type(answer).__name__} {answer.rule} {answer.code}" == (
        expected if isinstance(expected, str) else expected[mode]
    )
