"""Each of the 28 rules by its number: what hits it, and with which code it answers."""

import pytest
from a3table import GOOD_ENV, NOW, a3_table, fault, question
from railcase import DOWN, N0, N1, N2, N3, OTHER, book, envs, having, held, links, no_host, said, without

from agent.domain.events import Link
from agent.domain.hccl import VISIBLE_DEVICES, env_from
from agent.domain.rail import RULES, decide
from agent.domain.rail.case import BorrowPolicy, CommMode, RailQuestion, Strictness
from agent.domain.rail.words import RailCode, advice_for, code_advice
from agent.domain.ranktable import RankTable
from agent.domain.vocab import JobId, Millis

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


def test_every_refusal_says_what_to_do() -> None:
    refusals = {case[2][2] for case in RULE_CASES if case[2][0] == "Refuse"} | {"LEDGER_FULL", "TOO_OLD", "BEFORE_ACT"}
    assert [code for code in sorted(refusals) if not code_advice(RailCode(code))] == []


@pytest.mark.parametrize(
    ("asked", "advice"),
    [
        (question(fault(), job=JobId("")), "Name a die that a running job holds: pods"),
        (question(fault(), table=None, table_problem="STATUS_NOT_READY"), "A rank table counts once it is completed"),
        (question(fault(), table=None), "The job needs a completed rank table: ConfigMap rings-config-<job>"),
        (question(fault(), table=None, contradiction="RANK_DUP"), "Put the rank table right: "),
        (question(fault(), contradiction="two differ"), "Find out which rank table the job runs with"),
        (question(fault(), peers={0: (8, 99)}), "Name peers that are ranks of the job's rank table"),
        (question(fault(device=9)), "Name a die that a running job holds and its completed rank table lists."),
    ],
)
def test_the_advice_of_rule_1_fits_the_cause(asked: RailQuestion, advice: str) -> None:
    answer = decide(asked)
    assert answer.rule == 1
    assert advice_for(answer).startswith(advice)
