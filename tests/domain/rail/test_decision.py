"""Rail-borrow: the shape of an answer, several faults in one window, leaf switches."""

from dataclasses import replace
from typing import Any

import pytest
from a3table import GOOD_ENV, JOB, NOW, a3_table, fault, question
from railcase import N0, N1, N2, N3, borrowed, envs, refused, said, without

from agent.domain.events import Link
from agent.domain.hccl import env_from
from agent.domain.rail import LeafFault, decide, leaf_faults
from agent.domain.rail.case import CommMode, RailQuestion, Strictness
from agent.domain.rail.words import Delegate, Move, Noop, Observe, Outcome, RailCode
from agent.domain.ranktable import RankDevice, RankTable, Server, SuperPod
from agent.domain.vocab import JobId, NodeName


def test_a_borrow_moves_both_ends_of_every_link_of_the_failed_die() -> None:
    plan = borrowed(question(fault()))
    assert plan.moves == (
        Move(N0, 0, 1, 0, 0, faulted=True),
        Move(N2, 0, 1, 0, 8),
        Move(N3, 0, 1, 0, 12),
    )
    assert plan.links == ((0, 8), (0, 12))
    assert plan.faults == ("n0/network/0/81078603@1767225540000",)
    assert [check.rule for check in plan.checked] == list(range(1, 29))
    assert {check.outcome for check in plan.checked} == {Outcome.PASSED}


def test_an_odd_die_goes_to_the_even_one() -> None:
    plan = borrowed(question(fault(node=3, device=3)))
    assert [(m.node, m.device_from, m.device_to, m.npu, m.rank) for m in plan.moves] == [
        (N0, 3, 2, 1, 3),
        (N1, 3, 2, 1, 7),
        (N3, 3, 2, 1, 15),
    ]


def test_without_hccs_the_other_servers_of_a_super_pod_are_peers_too() -> None:
    plan = borrowed(question(fault(), env=envs(HCCL_INTER_HCCS_DISABLE="TRUE")))
    assert plan.links == ((0, 4), (0, 8), (0, 12))


def test_a_refusal_names_the_rank_and_what_was_passed_before() -> None:
    answer = refused(question(fault(), table=without(12, "backup_device_ip")))
    assert "rank 12 (n3 device 0)" in answer.detail
    assert [check.rule for check in answer.checked] == list(range(1, 25))
    assert answer.checked[-1].outcome is Outcome.REFUSED


def test_no_fault_at_all_is_nothing_to_do() -> None:
    assert said(decide(question())) == ("Noop", 3, "CLEAR")


def every_die_alone(count: int) -> RailQuestion:
    """As many servers of one die, each its own super-pod, and the link of each is down."""
    servers = tuple(
        Server(f"s{n}", f"10.0.{n >> 8}.{n & 255}", devices=(RankDevice(0, n, super_device_id="0"),))
        for n in range(count)
    )
    pods = tuple(SuperPod(str(n), (f"s{n}",)) for n in range(count))
    nodes = {f"s{n}": NodeName(f"m{n}") for n in range(count)}
    return question(
        *(replace(fault(), ref=f"m{n}", node=NodeName(f"m{n}"), event=f"e{n}") for n in range(count)),
        table=RankTable("completed", "1.2", servers, pods),
        servers=nodes,
        owners={},
        comm_mode=CommMode.ROOTINFO,
        env={node: env_from(GOOD_ENV, visible=True) for node in nodes.values()},
        visible=dict.fromkeys(nodes.values(), frozenset({0, 1})),
        links={(node, 1): Link("up", NOW) for node in nodes.values()},
    )


def test_more_links_than_the_ledger_can_hold_are_refused_unlisted() -> None:
    """448 dies of which each talks to the 447 others have 200,256 ends; one server less has 199,362."""
    answer = refused(every_die_alone(448))
    assert (answer.rule, answer.code) == (24, "LEDGER_FULL")
    assert answer.detail == "200256 ends of links would change, 200000 are looked at; the ledger holds fewer"
    assert len(borrowed(every_die_alone(447)).links) == 99_681


def test_links_too_many_to_list_hide_no_reason_of_a_failed_die() -> None:
    asked = every_die_alone(448)
    links = {**asked.links, (NodeName("m7"), 1): Link("down", NOW)}
    assert said(decide(replace(asked, links=links))) == ("Refuse", 21, "BACKUP_LINK_DOWN")


def test_faults_that_need_nothing_do_not_hold_up_the_others() -> None:
    plan = borrowed(question(fault(), fault(device=2, ended_at=NOW), fault(node=1, device=3, kind="hccs")))
    assert plan.faults == ("n0/network/0/81078603@1767225540000",)
    aside = [(c.rule, str(c.code)) for c in plan.checked if c.outcome is Outcome.SET_ASIDE]
    assert aside == [(3, "CLEAR"), (6, "HCCS_PATH_SWITCH")]


def test_a_rank_without_a_peer_is_told_why() -> None:
    alone = question(fault(), peers={})
    assert decide(alone).detail == "rank 0 (n0 device 0) has no RDMA peer: none was given"
    one_pod = a3_table(
        lambda d: d.__setitem__(
            "super_pod_list", [{"super_pod_id": "0", "server_list": [{"server_id": f"node_{n}"} for n in range(4)]}]
        )
    )
    unseen = decide(question(fault(), table=one_pod, env=envs(visible=False)))
    assert said(unseen) == ("Noop", 8, "NO_RDMA_PEER")
    assert unseen.detail.endswith("unless HCCL_INTER_HCCS_DISABLE, which cannot be seen, is TRUE")
    seen = decide(question(fault(), table=one_pod))
    assert seen.detail == "rank 0 (n0 device 0) has no RDMA peer: HCCS carries all its traffic"


def test_a_refusal_for_want_of_a_table_says_what_is_wrong_with_the_one_there_is() -> None:
    answer = refused(question(fault(), table=None, table_problem="/status: STATUS_NOT_READY: status is 'initializing'"))
    assert answer.detail == (
        "no completed rank table of job 'train/demo' is known: /status: STATUS_NOT_READY: status is 'initializing'"
    )
    nobody = refused(question(fault(), fault(device=2), job=JobId(""), table=None))
    assert nobody.detail == "no pod of a known job is on device 0 of n0; no pod of a known job is on device 2 of n0"


def test_several_servers_of_a_job_on_one_node_are_told_apart() -> None:
    """Two pods of four dies on each node: node_1 stands on n0 too, with devices 4 to 7."""

    def second_half(document: dict[str, Any]) -> None:
        for server in (1, 3):
            for item in document["server_list"][server]["device"]:
                item["device_id"] = str(int(item["device_id"]) + 4)

    table = a3_table(second_half)
    places = {(node, die) for node in (N0, N2) for die in range(8)}
    asked = question(
        fault(device=4),
        table=table,
        servers={"node_0": N0, "node_1": N0, "node_2": N2, "node_3": N2},
        links={place: Link("up", NOW) for place in places},
        visible={node: frozenset(range(8)) for node in (N0, N2)},
        owners=dict.fromkeys(places, JOB),
    )
    plan = borrowed(asked)
    assert [(move.node, move.device_from, move.device_to, move.rank) for move in plan.moves] == [
        (N0, 4, 5, 4),
        (N2, 4, 5, 12),
    ]


def test_when_all_are_set_aside_waiting_goes_first() -> None:
    flap = fault(kind="rdma_flap", started_at=NOW - 1)
    hccs = fault(device=2, kind="hccs")
    clear = fault(device=3, ended_at=NOW)
    assert isinstance(decide(question(clear, hccs, flap)), Observe)
    assert isinstance(decide(question(clear, hccs)), Delegate)
    assert isinstance(decide(question(clear)), Noop)


def test_a_flapping_pair_die_is_down_while_it_is_watched() -> None:
    young = fault(device=1, kind="rdma_flap", started_at=NOW - 1)
    assert refused(question(fault(), young)).code is RailCode.BACKUP_LINK_DOWN


def test_one_plan_never_moves_an_npu_both_ways() -> None:
    for strictness in Strictness:
        answer = refused(question(fault(), fault(node=1, device=1), strictness=strictness))
        assert answer.code is RailCode.PEER_ALREADY_BORROWED
        assert "both ways" in answer.detail


def test_a_fault_given_twice_counts_once_and_its_end_counts() -> None:
    assert borrowed(question(fault(), fault())) == borrowed(question(fault()))
    assert said(decide(question(fault(), fault(ended_at=NOW)))) == ("Noop", 3, "CLEAR")
    assert said(decide(question(fault(ended_at=NOW), fault()))) == ("Noop", 3, "CLEAR")


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ((0, 2, 4, 6), (LeafFault(N0, 0, (0, 2, 4, 6)),)),
        ((0, 2), (LeafFault(N0, 0, (0, 2)),)),
        ((0,), ()),
        ((0, 1), ()),
        ((1, 3, 5), (LeafFault(N0, 1, (1, 3, 5)),)),
        ((0, 2, 1, 3), (LeafFault(N0, 0, (0, 2)), LeafFault(N0, 1, (1, 3)))),
    ],
)
def test_half_of_one_parity_and_two_or_more_make_a_leaf_fault(
    lost: tuple[int, ...], expected: tuple[LeafFault, ...]
) -> None:
    assert leaf_faults({(N0, die) for die in lost}, {N0: range(8)}) == expected


def test_three_of_eight_even_dies_are_not_yet_a_leaf() -> None:
    assert leaf_faults({(N0, 0), (N0, 2), (N0, 4)}, {N0: range(16)}) == ()
    assert leaf_faults({(N1, 0), (N1, 2)}, {N0: range(4)}) == ()
