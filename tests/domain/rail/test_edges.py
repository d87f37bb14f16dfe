"""The edge cases of rail-borrow, one by one; test_edge_cases.py has them in every mode."""

from dataclasses import replace
from typing import Any

import pytest
from a3table import JOB, NODES, NOW, a3_table, fault, question, without_odd
from railcase import DOWN, N0, N2, OTHER, RING, book, borrowed, envs, held, links, refused, said, taken

from agent.domain.events import Link
from agent.domain.rail import decide
from agent.domain.rail.case import BorrowPolicy, CommMode, Strictness
from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import close_job, close_where
from agent.domain.rail.words import Borrow, Observe, RailCode
from agent.domain.vocab import Millis, NodeName


def test_edge_1_both_dies_of_one_npu_fail() -> None:
    assert said(decide(question(fault(), fault(device=1)))) == ("Refuse", 21, "BACKUP_LINK_DOWN")


def test_edge_2_a_peer_npu_borrowed_before() -> None:
    peer = held(N2, rank=8, links=((4, 8),))
    assert refused(question(fault(), ledger=book(peer))).code is RailCode.PEER_ALREADY_BORROWED
    plan = borrowed(question(fault(), ledger=book(peer), strictness=Strictness.SOURCE))
    assert plan.links == ((0, 8), (0, 12))


def test_edge_2_even_by_source_another_jobs_hold_or_the_other_direction_refuses() -> None:
    foreign = book(held(N2, rank=8, job=OTHER))
    assert refused(question(fault(), ledger=foreign, strictness=Strictness.SOURCE)).rule == 25
    crossed = book(held(N2, die_from=1, rank=9))
    assert refused(question(fault(), ledger=crossed, strictness=Strictness.SOURCE)).rule == 25


def test_edge_3_both_ends_of_a_link_fail_with_the_same_parity() -> None:
    pair = {0: (8,), 8: (0,)}
    plan = borrowed(question(fault(), fault(node=2), peers=pair))
    assert plan.links == ((0, 8),)
    assert [(m.rank, m.faulted) for m in plan.moves] == [(0, True), (8, True)]
    later = taken(question(fault(), peers=pair))
    assert said(decide(question(fault(node=2), peers=pair, ledger=later))) == ("Noop", 2, "ALREADY_DONE")


def test_edge_4_both_ends_fail_with_opposite_parity() -> None:
    pair = {0: (8,), 8: (0,), 1: (9,), 9: (1,)}
    asked = question(fault(), fault(node=2, device=1), peers=pair)
    assert said(decide(asked)) == ("Refuse", 26, "NO_COMMON_RAIL")


def test_edge_5_a_ring_of_three_moves_all_but_keeps_the_far_link() -> None:
    plan = borrowed(question(fault(), peers=RING))
    assert [move.rank for move in plan.moves] == [0, 8, 12]
    assert plan.links == ((0, 8), (0, 12))
    assert refused(question(fault(), peers=RING, links=links(n3_1=DOWN))).code is RailCode.NO_COMMON_RAIL


def test_edge_6_the_next_fault_in_the_ring_is_refused_unless_the_source_rules() -> None:
    after = taken(question(fault(), peers=RING))
    strict = question(fault(node=2), peers=RING, ledger=after)
    assert said(decide(strict)) == ("Refuse", 20, "ALREADY_BORROWED")
    lax = replace(strict, strictness=Strictness.SOURCE)
    plan = borrowed(lax)
    assert plan.links == ((8, 12),)
    assert [move.rank for move in plan.moves] == [8, 12]
    grown = taken(lax, after, extend=True)
    assert [(e.rank, e.links, e.faulted) for e in grown.entries] == [
        (0, ((0, 8), (0, 12)), True),
        (8, ((0, 8), (8, 12)), True),
        (12, ((0, 12), (8, 12)), False),
    ]


def test_edge_7_a_die_fails_that_serves_as_a_backup() -> None:
    after = taken(question(fault()))
    for asked in (question(fault(device=1), ledger=after), question(fault(node=2, device=1), ledger=after)):
        assert said(decide(asked)) == ("Refuse", 19, "BACKUP_IN_USE_FAILED")


def test_edge_8_a_recover_after_the_borrow_changes_nothing() -> None:
    after = taken(question(fault()))
    assert said(decide(question(fault(ended_at=NOW), ledger=after))) == ("Noop", 4, "NO_SWITCH_BACK")


def test_edge_9_a_flap_is_watched_and_then_nothing() -> None:
    answer = decide(question(fault(kind="rdma_flap", started_at=NOW - 1000)))
    assert isinstance(answer, Observe)
    assert answer.until == NOW - 1000 + 30_065
    ended = fault(kind="rdma_flap", started_at=NOW - 1000, ended_at=NOW)
    assert said(decide(question(ended))) == ("Noop", 3, "CLEAR")


def test_edge_10_each_short_flap_is_watched_anew() -> None:
    for started in (NOW - 90_000, NOW - 50_000, NOW - 10_000):
        asked = question(fault(kind="rdma_flap", started_at=started), now=Millis(started + 5000))
        assert said(decide(asked)) == ("Observe", 9, "FLAP")


def test_edge_11_a_leaf_switch_takes_all_even_dies_in_one_plan() -> None:
    plan = borrowed(question(fault(kind="leaf_switch"), fault(device=2, kind="leaf_switch")))
    assert [(m.rank, m.npu) for m in plan.moves] == [(0, 0), (2, 1), (8, 0), (10, 1), (12, 0), (14, 1)]
    one_bad = question(fault(kind="leaf_switch"), fault(device=2, kind="leaf_switch"), links=links(n3_3=DOWN))
    assert refused(one_bad).code is RailCode.NO_COMMON_RAIL


def test_edge_12_two_jobs_share_an_npu() -> None:
    owners = {(node, die): JOB if die % 2 == 0 else OTHER for node in NODES for die in range(4)}
    shared = question(fault(), table=a3_table(without_odd), owners=owners, comm_mode=CommMode.ROOTINFO)
    plan = borrowed(shared)
    assert [str(note.code) for note in plan.warnings].count("SHARED_NPU") == 3
    own_only = {node: frozenset({0, 2}) for node in NODES}
    assert refused(replace(shared, visible=own_only)).code is RailCode.BACKUP_NOT_VISIBLE
    assert refused(replace(shared, comm_mode=CommMode.RANKTABLE)).code is RailCode.BACKUP_NOT_PAIR
    unowned = borrowed(replace(shared, owners={}))
    assert [str(note.code) for note in unowned.warnings].count("NOT_JUDGED") == 3


def test_edge_12_a_second_job_cannot_borrow_on_the_same_npu() -> None:
    theirs = book(held(N0, die_from=1, job=OTHER, rank=0))
    assert refused(question(fault(), ledger=theirs)).code is RailCode.BACKUP_IN_USE_FAILED
    same = book(held(N0, die_from=0, job=OTHER, rank=0))
    assert refused(question(fault(), ledger=same)).code is RailCode.ALREADY_BORROWED


def test_edge_13_a_restart_of_the_job_frees_its_npus_but_not_the_dead_die() -> None:
    after = taken(question(fault()))
    assert refused(question(fault(event="new"), incarnation="second", ledger=after)).code is RailCode.ALREADY_BORROWED
    closed = close_job(after, JOB, now=NOW, keep="second")
    assert borrowed(question(fault(), incarnation="second", ledger=closed)).links == ((0, 8), (0, 12))
    assert [entry.state for entry in closed.entries] == [HoldState.SUPERSEDED] * 3
    pair = question(fault(device=1), incarnation="second", ledger=closed, links=links(n0_0=DOWN))
    assert refused(pair).code is RailCode.BACKUP_LINK_DOWN


def test_edge_14_within_one_life_of_the_job_the_ledger_stays() -> None:
    after = taken(question(fault()))
    assert refused(question(fault(node=1, device=0, event="later"), ledger=after)).code is (
        RailCode.PEER_ALREADY_BORROWED
    )


def test_edge_15_a_communicator_made_anew_may_borrow_again_but_not_on_a_held_npu() -> None:
    after = taken(question(fault(), policy=BorrowPolicy.PER_COMMUNICATOR))
    anew = close_where(after, lambda entry: entry.rank == 0, now=NOW)
    in_part = close_where(after, lambda entry: entry.rank == 8, now=NOW)
    later: dict[str, Any] = {"event": "later", "started_at": NOW - 50_000}
    other = question(fault(node=0, device=2, **later), ledger=after, policy=BorrowPolicy.PER_COMMUNICATOR)
    assert said(decide(other)) == ("Refuse", 20, "ALREADY_BORROWED")
    assert said(decide(replace(other, ledger=in_part))) == ("Refuse", 20, "ALREADY_BORROWED")
    assert borrowed(replace(other, ledger=anew)).links == ((2, 10), (2, 14))
    same = question(fault(**later), ledger=after, policy=BorrowPolicy.PER_COMMUNICATOR)
    assert said(decide(same)) == ("Noop", 2, "ALREADY_DONE")
    assert said(decide(replace(same, ledger=in_part))) == ("Refuse", 20, "ALREADY_BORROWED")
    held_at_the_other_end = ("Refuse", 25, "PEER_ALREADY_BORROWED")
    assert said(decide(replace(same, ledger=anew))) == held_at_the_other_end
    assert said(decide(replace(same, ledger=anew, policy=BorrowPolicy.PER_NPU))) == held_at_the_other_end


def test_edge_19_a_recover_older_than_the_fault_is_ignored() -> None:
    assert said(decide(question(fault(ended_at=NOW - 90_000)))) == ("Borrow", 28, "BORROW")


def test_edge_20_an_unpaired_last_device() -> None:
    asked = question(
        fault(),
        table=a3_table(without_odd),
        comm_mode=CommMode.ROOTINFO,
        owners={},
        links={},
        visible={node: frozenset({0, 2}) for node in NODES},
    )
    assert said(decide(asked)) == ("Refuse", 16, "BACKUP_NOT_PAIR")


def test_edge_21_a_table_of_the_operator_in_rank_table_mode() -> None:
    def strip(document: dict[str, Any]) -> None:
        for server in document["server_list"]:
            for item in server["device"]:
                for name in ("backup_device_ip", "backup_device_port", "device_port", "host_port"):
                    del item[name]

    plain = question(fault(), table=a3_table(strip))
    assert refused(plain).code is RailCode.NO_BACKUP_CONFIGURED
    assert borrowed(replace(plain, comm_mode=CommMode.ROOTINFO)).links == ((0, 8), (0, 12))


@pytest.mark.parametrize(
    ("age", "env", "expected"),
    [
        (30_000, envs(), "Observe"),
        (30_064, envs(), "Observe"),
        (30_065, envs(), "Borrow"),
        (30_000, {}, "Observe"),
        (30_001, {}, "Refuse"),
        (7_516, envs(HCCL_RDMA_TIMEOUT="18"), "Observe"),
        (7_517, envs(HCCL_RDMA_TIMEOUT="18"), "Borrow"),
    ],
)
def test_edge_23_only_longer_than_the_threshold_borrows(age: int, env: dict[NodeName, Any], expected: str) -> None:
    asked = question(fault(kind="rdma_flap", started_at=NOW - age), env=env)
    assert type(decide(asked)).__name__ == expected


def test_an_observed_flap_is_past_its_threshold_when_it_is_asked_again() -> None:
    young = question(fault(kind="rdma_flap", started_at=NOW), env=envs(HCCL_RDMA_TIMEOUT="18"))
    answer = decide(young)
    assert isinstance(answer, Observe)
    again = replace(young, now=answer.until, links={k: Link("up", answer.until) for k in young.links})
    assert isinstance(decide(again), Borrow)
