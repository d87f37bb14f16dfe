"""Rail-borrow: 28 rules, the edge cases, and what holds for every plan."""

from dataclasses import replace
from typing import Any

import pytest
from a3table import GOOD_ENV, JOB, NODES, NOW, a3_table, fault, question
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.events import Link
from agent.domain.hccl import VISIBLE_DEVICES, env_from
from agent.domain.rail import RULES, LeafFault, decide, leaf_faults
from agent.domain.rail.case import BorrowPolicy, CommMode, RailQuestion, Strictness
from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import RailLedger, Reservation, close_job, close_where, reserve
from agent.domain.rail.words import (
    Answer,
    Borrow,
    Delegate,
    Move,
    Noop,
    Observe,
    Outcome,
    RailCode,
    RailFault,
    Refuse,
    advice_for,
    code_advice,
)
from agent.domain.ranktable import RankDevice, RankTable, Server, SuperPod
from agent.domain.vocab import JobId, Millis, NodeName

N0, N1, N2, N3 = NODES
OTHER = JobId("train/other")
RING = {0: (8, 12), 8: (0, 12), 12: (0, 8)}


def device(document: dict[str, Any], rank: int) -> dict[str, Any]:
    found: dict[str, Any] = document["server_list"][rank // 4]["device"][rank % 4]
    return found


def without(rank: int, field: str) -> RankTable:
    return a3_table(lambda document: device(document, rank).pop(field))


def having(rank: int, field: str, value: str) -> RankTable:
    return a3_table(lambda document: device(document, rank).__setitem__(field, value))


def backup_port_is_the_default_of_the_pair() -> RankTable:
    def change(document: dict[str, Any]) -> None:
        del device(document, 1)["device_port"]
        device(document, 0)["backup_device_port"] = "16666"

    return a3_table(change)


def no_host(server: int) -> RankTable:
    return a3_table(lambda document: document["server_list"][server].pop("host_ip"))


def envs(*nodes: NodeName, visible: bool = True, **changed: str | None) -> dict[NodeName, Any]:
    values = {**GOOD_ENV, **changed}
    kept = {name: value for name, value in values.items() if value is not None}
    good = env_from(GOOD_ENV, visible=True)
    return {node: env_from(kept, visible) if node in (nodes or NODES) else good for node in NODES}


def links(**changed: Link | None) -> dict[tuple[NodeName, int], Link]:
    states = {(node, die): Link("up", NOW) for node in NODES for die in range(4)}
    for place, link in changed.items():
        key = (NodeName(place[:2]), int(place[3:]))
        if link is None:
            del states[key]
        else:
            states[key] = link
    return states


DOWN = Link("down", NOW)


def held(node: NodeName = N0, npu: int = 0, die_from: int = 0, **given: Any) -> Reservation:
    made = Reservation(
        id=f"p/{node}/{npu}",
        plan="p",
        job=JOB,
        job_uid="u",
        incarnation="first",
        node=node,
        npu=npu,
        die_from=die_from,
        die_to=die_from ^ 1,
        rank=0,
        at=NOW,
        rule=28,
        reason="BORROW",
        state=HoldState.ADVISED,
        faulted=True,
    )
    return replace(made, **given)


def book(*entries: Reservation) -> RailLedger:
    return RailLedger(entries)


def said(answer: Answer) -> tuple[str, int, str]:
    return type(answer).__name__, answer.rule, answer.code


RULE_CASES: list[tuple[str, RailQuestion, tuple[str, int, str]]] = [
    ("1 no table", question(fault(), table=None), ("Refuse", 1, "UNKNOWN_TARGET")),
    ("1 no job", question(fault(), job=JobId("")), ("Refuse", 1, "UNKNOWN_TARGET")),
    ("1 foreign node", question(fault(node=7)), ("Refuse", 1, "UNKNOWN_TARGET")),
    ("1 foreign node as a whole", question(fault(node=7, device=-1, kind="hccs")), ("Refuse", 1, "UNKNOWN_TARGET")),
    (
        "1 foreign node of a job with table 2.0",
        question(fault(node=7), table=RankTable("completed", "2.0"), servers={}),
        ("Refuse", 1, "UNKNOWN_TARGET"),
    ),
    (
        "1 foreign device of a job with table 2.0",
        question(fault(device=4), table=RankTable("completed", "2.0"), servers={}),
        ("Refuse", 1, "UNKNOWN_TARGET"),
    ),
    (
        "1 tables that contradict each other",
        question(fault(), contradiction="rank 0 is on n0 and on n1"),
        ("Refuse", 1, "TABLES_CONTRADICT"),
    ),
    ("1 foreign device", question(fault(device=4)), ("Refuse", 1, "UNKNOWN_TARGET")),
    ("1 another job's device", question(fault(), owners={(N0, 0): OTHER}), ("Refuse", 1, "UNKNOWN_TARGET")),
    ("1 peer not in the table", question(fault(), peers={0: (8, 99)}), ("Refuse", 1, "UNKNOWN_TARGET")),
    ("2 same occurrence", question(fault(), ledger=book(held(events=("1:0:0:0",)))), ("Noop", 2, "ALREADY_DONE")),
    (
        "2 no link left on the default side",
        question(fault(node=2), ledger=book(held(N2, rank=8, faulted=False, links=((0, 8), (4, 8))))),
        ("Noop", 2, "ALREADY_DONE"),
    ),
    ("2 ledger unreadable", question(fault(), ledger=None), ("Refuse", 2, "LEDGER_UNREADABLE")),
    ("3 recovered", question(fault(ended_at=NOW)), ("Noop", 3, "CLEAR")),
    ("4 recovered after a borrow", question(fault(ended_at=NOW), ledger=book(held())), ("Noop", 4, "NO_SWITCH_BACK")),
    ("5 A2", question(fault(), product="A2"), ("Refuse", 5, "UNSUPPORTED_PRODUCT")),
    ("5 unknown product", question(fault(), product=""), ("Refuse", 5, "UNSUPPORTED_PRODUCT")),
    (
        "5 table 2.0, which lists no servers",
        question(fault(), table=RankTable("completed", "2.0"), servers={}),
        ("Refuse", 5, "UNSUPPORTED_PRODUCT"),
    ),
    ("6 HCCS", question(fault(kind="hccs")), ("Delegate", 6, "HCCS_PATH_SWITCH")),
    ("6 HCCS of a switch port", question(fault(device=-1, kind="hccs")), ("Delegate", 6, "HCCS_PATH_SWITCH")),
    ("7 other", question(fault(kind="other")), ("Refuse", 7, "NOT_RAIL_FAULT")),
    ("7 other of the whole node", question(fault(device=-1, kind="other")), ("Refuse", 7, "NOT_RAIL_FAULT")),
    (
        "8 one super-pod",
        question(
            fault(),
            table=a3_table(
                lambda d: d.__setitem__(
                    "super_pod_list",
                    [{"super_pod_id": "0", "server_list": [{"server_id": f"node_{n}"} for n in range(4)]}],
                )
            ),
        ),
        ("Noop", 8, "NO_RDMA_PEER"),
    ),
    ("8 AI-server mode", question(fault(), table=without(3, "super_device_id")), ("Noop", 8, "NO_RDMA_PEER")),
    ("8 peers given, none", question(fault(), peers={}), ("Noop", 8, "NO_RDMA_PEER")),
    ("9 flap", question(fault(kind="rdma_flap", started_at=NOW - 1000)), ("Observe", 9, "FLAP")),
    ("10 ENABLE", question(fault(), env=envs(HCCL_OP_RETRY_ENABLE="L2")), ("Refuse", 10, "ENV_INVALID")),
    ("10 PARAMS", question(fault(), env=envs(HCCL_OP_RETRY_PARAMS="")), ("Refuse", 10, "ENV_INVALID")),
    ("10 PARAMS of a peer", question(fault(), env=envs(N3, HCCL_OP_RETRY_PARAMS="x")), ("Refuse", 10, "ENV_INVALID")),
    ("10 none given", question(fault(), env={}), ("Refuse", 10, "ENV_UNKNOWN")),
    (
        "10 ENABLE hidden",
        question(fault(), env=envs(N2, visible=False, HCCL_OP_RETRY_ENABLE=None)),
        ("Refuse", 10, "ENV_UNKNOWN"),
    ),
    (
        "10 expansion hidden",
        question(fault(), env=envs(visible=False, HCCL_OP_EXPANSION_MODE=None)),
        ("Refuse", 10, "ENV_UNKNOWN"),
    ),
    ("11 unset", question(fault(), env=envs(HCCL_OP_RETRY_ENABLE=None)), ("Refuse", 11, "RETRY_L2_OFF")),
    ("11 L1 only", question(fault(), env=envs(HCCL_OP_RETRY_ENABLE="L1:1")), ("Refuse", 11, "RETRY_L2_OFF")),
    ("12 HOST", question(fault(), env=envs(HCCL_OP_EXPANSION_MODE="HOST")), ("Refuse", 12, "EXPANSION_MODE")),
    (
        "12 unknown word by source",
        question(fault(), strictness=Strictness.SOURCE, env=envs(HCCL_OP_EXPANSION_MODE="CPU")),
        ("Refuse", 12, "EXPANSION_MODE"),
    ),
    (
        "12 unknown word of a peer by source",
        question(fault(), strictness=Strictness.SOURCE, env=envs(N3, HCCL_OP_EXPANSION_MODE="CPU")),
        ("Refuse", 12, "EXPANSION_MODE"),
    ),
    (
        "13 HOST at a peer",
        question(fault(), env=envs(N3, HCCL_OP_EXPANSION_MODE="HOST")),
        ("Refuse", 13, "ENV_MISMATCH"),
    ),
    (
        "13 levels",
        question(fault(), env=envs(N2, HCCL_OP_RETRY_ENABLE="L1:0,L2:1")),
        ("Refuse", 13, "ENV_MISMATCH"),
    ),
    ("13 L2 off at a peer", question(fault(), env=envs(N3, HCCL_OP_RETRY_ENABLE="")), ("Refuse", 13, "ENV_MISMATCH")),
    (
        "13 timers, hidden on the first node of the plan",
        question(
            fault(),
            env={
                N0: env_from(
                    GOOD_ENV | {"HCCL_INTER_HCCS_DISABLE": "FALSE", VISIBLE_DEVICES: "0,1,2,3"}, visible=False
                ),
                **{n: env_from(GOOD_ENV | {"HCCL_RDMA_TIMEOUT": t}, visible=True) for n, t in ((N2, "18"), (N3, "19"))},
            },
        ),
        ("Refuse", 13, "ENV_MISMATCH"),
    ),
    ("13 timers", question(fault(), env=envs(N2, HCCL_RDMA_TIMEOUT="18")), ("Refuse", 13, "ENV_MISMATCH")),
    ("14 host_ip", question(fault(), table=no_host(0)), ("Refuse", 14, "HOST_IP_MISSING")),
    ("14 mode unknown", question(fault(), comm_mode=CommMode.UNKNOWN), ("Refuse", 14, "COMM_MODE_UNKNOWN")),
    ("15 no backup", question(fault(), table=without(0, "backup_device_ip")), ("Refuse", 15, "NO_BACKUP_CONFIGURED")),
    (
        "16 another NPU's address",
        question(fault(), table=having(0, "backup_device_ip", "192.168.1.8")),
        ("Refuse", 16, "BACKUP_NOT_PAIR"),
    ),
    (
        "17 one port in both roles",
        question(fault(), table=having(0, "backup_device_port", "16666")),
        ("Refuse", 17, "PORT_CLASH"),
    ),
    (
        "18 not visible",
        question(fault(), visible={N0: frozenset({0, 2}), N2: frozenset(range(4)), N3: frozenset(range(4))}),
        ("Refuse", 18, "BACKUP_NOT_VISIBLE"),
    ),
    ("18 visibility not known", question(fault(), visible={N0: None}), ("Refuse", 18, "BACKUP_NOT_VISIBLE")),
    ("19 failed as a backup", question(fault(), ledger=book(held(die_from=1))), ("Refuse", 19, "BACKUP_IN_USE_FAILED")),
    ("20 NPU held", question(fault(), ledger=book(held())), ("Refuse", 20, "ALREADY_BORROWED")),
    (
        "20 per communicator",
        question(fault(), policy=BorrowPolicy.PER_COMMUNICATOR, ledger=book(held(N1, 1, 2, rank=6, links=((6, 10),)))),
        ("Refuse", 20, "ALREADY_BORROWED"),
    ),
    ("21 pair down", question(fault(), links=links(n0_1=DOWN)), ("Refuse", 21, "BACKUP_LINK_DOWN")),
    (
        "21 a fault holds the pair down, whatever was seen of it",
        question(fault(), down=frozenset({(N0, 1)})),
        ("Refuse", 21, "BACKUP_LINK_DOWN"),
    ),
    ("22 never probed", question(fault(), links=links(n0_1=None)), ("Refuse", 22, "BACKUP_LINK_UNKNOWN")),
    (
        "22 probe of 60 s ago",
        question(fault(), links=links(n0_1=Link("up", Millis(NOW - 60_000)))),
        ("Refuse", 22, "BACKUP_LINK_UNKNOWN"),
    ),
    (
        "22 stale down is unknown",
        question(fault(), links=links(n0_1=Link("down", Millis(NOW - 60_000)))),
        ("Refuse", 22, "BACKUP_LINK_UNKNOWN"),
    ),
    ("22 odd word", question(fault(), links=links(n0_1=Link("UP", NOW))), ("Refuse", 22, "BACKUP_LINK_UNKNOWN")),
    ("23 flagged", question(fault(), cross_die_traffic=True), ("Refuse", 23, "CROSS_DIE_TRAFFIC")),
    ("23 other parity", question(fault(), peers={0: (8, 9)}), ("Refuse", 23, "CROSS_DIE_TRAFFIC")),
    ("24 host_ip", question(fault(), table=no_host(3)), ("Refuse", 24, "PEER_HOST_IP_MISSING")),
    (
        "24 backup",
        question(fault(), table=without(12, "backup_device_ip")),
        ("Refuse", 24, "PEER_NO_BACKUP_CONFIGURED"),
    ),
    (
        "24 pair",
        question(fault(), table=having(8, "backup_device_ip", "192.168.3.9")),
        ("Refuse", 24, "PEER_BACKUP_NOT_PAIR"),
    ),
    (
        "24 port",
        question(fault(), table=having(8, "backup_device_port", "16666")),
        ("Refuse", 24, "PEER_PORT_CLASH"),
    ),
    (
        "24 visible",
        question(fault(), visible={N0: frozenset(range(4)), N2: frozenset(range(4)), N3: frozenset({0})}),
        ("Refuse", 24, "PEER_BACKUP_NOT_VISIBLE"),
    ),
    ("24 link", question(fault(), links=links(n3_1=None)), ("Refuse", 24, "PEER_BACKUP_LINK_UNKNOWN")),
    (
        "25 peer's NPU held",
        question(fault(), ledger=book(held(N3, job=OTHER))),
        ("Refuse", 25, "PEER_ALREADY_BORROWED"),
    ),
    ("26 peer's backup down", question(fault(), links=links(n3_1=DOWN)), ("Refuse", 26, "NO_COMMON_RAIL")),
    (
        "26 a fault holds the peer's backup down",
        question(fault(), down=frozenset({(N3, 1)})),
        ("Refuse", 26, "NO_COMMON_RAIL"),
    ),
    ("27 host plane", question(fault(), host_plane_ok=False), ("Refuse", 27, "HOST_PLANE_DOWN")),
    ("27 operator", question(fault(), op_constraints_ok=False), ("Refuse", 27, "OP_NOT_RETRYABLE")),
    ("27 retries", question(fault(), retries_used=3), ("Refuse", 27, "RETRY_EXHAUSTED")),
    (
        "27 one retry by default",
        question(fault(), retries_used=1, env=envs(HCCL_OP_RETRY_PARAMS=None)),
        ("Refuse", 27, "RETRY_EXHAUSTED"),
    ),
    ("28 borrow", question(fault()), ("Borrow", 28, "BORROW")),
    ("28 leaf switch", question(fault(kind="leaf_switch")), ("Borrow", 28, "BORROW")),
    ("28 error completion", question(fault(kind="cqe_error")), ("Borrow", 28, "BORROW")),
]


@pytest.mark.parametrize(("asked", "expected"), [c[1:] for c in RULE_CASES], ids=[c[0] for c in RULE_CASES])
def test_each_rule_answers_by_its_name(asked: RailQuestion, expected: tuple[str, int, str]) -> None:
    assert said(decide(asked)) == expected


def test_every_rule_of_the_28_has_a_case_above() -> None:
    assert {int(case[0].split()[0]) for case in RULE_CASES} == set(range(1, 29))
    assert [rule.number for rule in RULES] == list(range(1, 28))


def test_every_code_of_an_answer_is_reached() -> None:
    reached = {case[2][2] for case in RULE_CASES}
    warnings = {
        "BANDWIDTH_HALVED",
        "LEAF_SWITCH",
        "SHARED_NPU",
        "SUBHEALTH_POLICY_EXIT",
        "NOT_JUDGED",
        "PEERS_ASSUMED",
        "PORT_DEFAULT_CLASH",
        "EXPANSION_DEFAULT",
        "EXPANSION_WORD_UNKNOWN",
        "RETRY_L0_IGNORED",
        "RDMA_TIMER_INVALID",
    }
    assert set(RailCode) - reached - warnings == {"LEDGER_FULL", "TOO_OLD", "BEFORE_ACT"}


def borrowed(asked: RailQuestion) -> Borrow:
    answer = decide(asked)
    assert isinstance(answer, Borrow), answer
    return answer


def refused(asked: RailQuestion) -> Refuse:
    answer = decide(asked)
    assert isinstance(answer, Refuse), answer
    return answer


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


@pytest.mark.parametrize(
    ("given_", "code"),
    [
        ({"owners": {(N0, 0): JOB, (N0, 1): OTHER}}, "SHARED_NPU"),
        ({"faults": (fault(kind="leaf_switch"), fault(device=2, kind="leaf_switch"))}, "LEAF_SWITCH"),
        ({"sub_health_strategy": "graceExit"}, "SUBHEALTH_POLICY_EXIT"),
        ({"sub_health_strategy": "forceExit"}, "SUBHEALTH_POLICY_EXIT"),
        ({"sub_health_strategy": "hotSwitch"}, "SUBHEALTH_POLICY_EXIT"),
        ({"sub_health_strategy": "ignore"}, None),
        ({"host_plane_ok": None}, "NOT_JUDGED"),
        ({"op_constraints_ok": None}, "NOT_JUDGED"),
        ({"retries_used": None}, "NOT_JUDGED"),
        ({}, "PEERS_ASSUMED"),
        ({"table": without(1, "device_port"), "env": envs()}, None),
        (
            {
                "table": backup_port_is_the_default_of_the_pair(),
            },
            "PORT_DEFAULT_CLASH",
        ),
        ({"env": envs(HCCL_OP_EXPANSION_MODE=None)}, "EXPANSION_DEFAULT"),
        ({"env": envs(HCCL_OP_EXPANSION_MODE="CPU")}, "EXPANSION_WORD_UNKNOWN"),
        ({"env": envs(HCCL_OP_RETRY_ENABLE="L0:0, L1:1, L2:1")}, "RETRY_L0_IGNORED"),
        ({"env": envs(HCCL_RDMA_TIMEOUT="99")}, "RDMA_TIMER_INVALID"),
    ],
)
def test_a_plan_carries_its_warnings(given_: dict[str, Any], code: str | None) -> None:
    faults = given_.get("faults", (fault(),))
    others = {name: value for name, value in given_.items() if name != "faults"}
    codes = {str(note.code) for note in borrowed(question(*faults, **others)).warnings}
    assert codes == {"BANDWIDTH_HALVED", "PEERS_ASSUMED"} | ({code} if code else set())


@pytest.mark.parametrize(
    ("strategy", "what"),
    [
        pytest.param("graceExit", "asks the training to end", id="graceExit"),
        pytest.param("forceExit", "deletes its pods at once", id="forceExit"),
        pytest.param("hotSwitch", "makes a backup pod", id="hotSwitch"),
    ],
)
def test_the_warning_says_what_the_job_s_strategy_will_do(strategy: str, what: str) -> None:
    notes = borrowed(question(fault(), sub_health_strategy=strategy)).warnings
    (exits,) = (note.detail for note in notes if note.code is RailCode.SUBHEALTH_POLICY_EXIT)
    assert strategy in exits
    assert what in exits


def test_what_is_not_given_is_said_not_to_be_judged_in_the_checks_too() -> None:
    plan = borrowed(question(fault(), retries_used=None))
    assert [(c.rule, c.detail) for c in plan.checked if c.outcome is Outcome.NOT_JUDGED] == [
        (27, "not given: retries used")
    ]


def test_the_advice_never_speaks_of_an_automatic_return() -> None:
    plan = borrowed(question(fault(), sub_health_strategy="forceExit"))
    assert advice_for(plan) == (
        "Save a checkpoint soon, then repair the link. HCCL does not switch back by itself."
        " The job's subHealthyStrategy ends it: the borrow buys time only until it is rescheduled."
    )
    assert "by hand" in advice_for(decide(question(fault(ended_at=NOW), ledger=book(held()))))
    assert advice_for(decide(question(fault(ended_at=NOW)))) == ""


def test_every_refusal_says_what_to_do() -> None:
    refusals = {case[2][2] for case in RULE_CASES if case[2][0] == "Refuse"} | {"LEDGER_FULL", "TOO_OLD", "BEFORE_ACT"}
    assert [code for code in sorted(refusals) if not code_advice(RailCode(code))] == []


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


# --- edge cases -----------------------------------------------------------------------------------------------------


def taken(asked: RailQuestion, ledger: RailLedger | None = None, **given_: Any) -> RailLedger:
    made = reserve(
        ledger or RailLedger(),
        borrowed(asked),
        job=asked.job,
        job_uid="u",
        incarnation=asked.incarnation,
        now=NOW,
        **given_,
    )
    assert isinstance(made, RailLedger), made
    return made


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


def half_table() -> RankTable:
    """The job has only the even dies, another job the odd ones."""

    def drop(document: dict[str, Any]) -> None:
        for number, server in enumerate(document["server_list"]):
            server["device"] = server["device"][::2]
            for index, item in enumerate(server["device"]):
                item["rank_id"] = str(2 * number + index)

    return a3_table(drop)


def test_edge_12_two_jobs_share_an_npu() -> None:
    owners = {(node, die): JOB if die % 2 == 0 else OTHER for node in NODES for die in range(4)}
    shared = question(fault(), table=half_table(), owners=owners, comm_mode=CommMode.ROOTINFO)
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
        table=half_table(),
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


# --- several faults -------------------------------------------------------------------------------------------------


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


faults_of_a_window = st.lists(
    st.builds(
        fault,
        node=st.integers(0, 3),
        device=st.integers(0, 4),
        kind=st.sampled_from(["rdma_down", "rdma_down", "leaf_switch", "rdma_flap", "cqe_error", "hccs"]),
        started_at=st.sampled_from([NOW - 60_000, NOW - 10_000]),
        ended_at=st.sampled_from([None, None, None, NOW]),
    ),
    min_size=1,
    max_size=4,
)
link_states = st.dictionaries(
    st.tuples(st.sampled_from(NODES), st.integers(0, 3)),
    st.sampled_from([Link("up", NOW), Link("down", NOW), Link("up", Millis(NOW - 61_000))]),
    max_size=3,
)
seen_devices = st.dictionaries(
    st.sampled_from(NODES), st.sampled_from([None, frozenset(range(4)), frozenset({0, 1, 2})]), max_size=2
)
held_entries = st.lists(
    st.builds(
        lambda number, die, **rest: held(NODES[number], 1, die, id=f"e{number}{die}", rank=4 * number + die, **rest),
        number=st.integers(0, 3),
        die=st.sampled_from([2, 3]),
        job=st.sampled_from([JOB, OTHER]),
        faulted=st.booleans(),
        state=st.sampled_from([HoldState.ADVISED, HoldState.SUPERSEDED]),
    ),
    max_size=2,
    unique_by=lambda entry: entry.node,
)
questions = st.builds(
    lambda found, changed, seen, entries, mode, strictness, policy, down: question(
        *found,
        links={**links(), **changed},
        visible={**{node: frozenset(range(4)) for node in NODES}, **seen},
        ledger=book(*entries),
        comm_mode=mode,
        strictness=strictness,
        policy=policy,
        down=frozenset(down),
    ),
    faults_of_a_window,
    link_states,
    seen_devices,
    held_entries,
    st.sampled_from([CommMode.RANKTABLE, CommMode.ROOTINFO]),
    st.sampled_from(list(Strictness)),
    st.sampled_from(list(BorrowPolicy)),
    st.sets(st.tuples(st.sampled_from(NODES), st.integers(0, 3)), max_size=1),
)


@settings(max_examples=300)
@given(questions)
def test_every_plan_moves_both_ends_once_to_a_die_that_is_up_seen_and_free(asked: RailQuestion) -> None:
    answer = decide(asked)
    assert answer.code in RailCode
    if not isinstance(answer, Borrow):
        return
    npus = [(move.node, move.npu) for move in answer.moves]
    assert len(npus) == len(set(npus))
    assert {rank for link in answer.links for rank in link} == {move.rank for move in answer.moves}
    ended = {(f.ref, f.kind) for f in asked.faults if f.recovered}  # a fault given twice has ended if either says so
    failed = {(f.node, f.device) for f in asked.faults if (f.ref, f.kind) not in ended and f.kind.on_rail}
    ledger = asked.ledger
    assert ledger is not None
    for move in answer.moves:
        assert move.device_to == move.device_from ^ 1
        assert asked.links[(move.node, move.device_to)] == Link("up", NOW)
        assert (move.node, move.device_to) not in failed | asked.down
        seen = asked.visible[move.node]
        assert seen is not None
        assert move.device_to in seen
        holder = ledger.holder(move.node, move.npu)
        if asked.strictness is Strictness.STRICT:
            assert holder is None
        elif holder is not None:  # by HCCL's source a rank that was moved may take more links the same way
            assert (holder.job, holder.incarnation, holder.die_from) == (JOB, "first", move.device_from)


@settings(max_examples=150)
@given(questions, st.randoms(use_true_random=False))
def test_the_order_of_simultaneous_faults_does_not_matter(asked: RailQuestion, chance: Any) -> None:
    mixed: list[RailFault] = list(asked.faults)
    chance.shuffle(mixed)
    assert decide(replace(asked, faults=tuple(mixed))) == decide(asked)


@settings(max_examples=150)
@given(questions)
def test_what_is_decided_can_be_reserved_on_the_same_ledger(asked: RailQuestion) -> None:
    answer = decide(asked)
    if isinstance(answer, Borrow):
        assert asked.ledger is not None
        made = reserve(
            asked.ledger,
            answer,
            job=JOB,
            job_uid="u",
            incarnation="first",
            now=NOW,
            extend=asked.strictness is Strictness.SOURCE,
        )
        assert isinstance(made, RailLedger)
        for move in answer.moves:
            holder = made.holder(move.node, move.npu)
            assert holder is not None
            assert holder.die_from == move.device_from


# --- leaf faults ----------------------------------------------------------------------------------------------------


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
