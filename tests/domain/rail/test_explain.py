"""Rail-borrow explained: all 28 rules in order, what each looked at, what it said, and which one decided."""

from dataclasses import replace
from typing import Any

import pytest
from a3table import JOB, NODES, NOW, fault, question
from hypothesis import given, settings
from hypothesis import strategies as st
from railcase import N0, N2

from agent.domain.events import Link
from agent.domain.hccl import HcclEnv, env_from
from agent.domain.rail.case import CommMode, RailQuestion
from agent.domain.rail.decision import decide
from agent.domain.rail.explain import RuleTold, explain
from agent.domain.rail.inputs import INPUTS
from agent.domain.rail.words import Borrow, Outcome
from agent.domain.ranktable import RankTable
from agent.domain.vocab import JobId

REF = "n0/network/0/81078603@1767225540000"


def told(asked: RailQuestion) -> dict[int, RuleTold]:
    _, rules = explain(asked)
    return {one.rule.number: one for one in rules}


def said(one: RuleTold) -> str:
    return "" if one.word is None else f"{one.word.outcome} {one.word.code}"


def test_every_rule_has_its_inputs() -> None:
    assert sorted(INPUTS) == list(range(1, 29))


def test_a_borrow_shows_what_each_of_the_28_rules_looked_at() -> None:
    rules = told(question(fault()))
    assert list(rules) == list(range(1, 29))
    assert [number for number, one in rules.items() if one.decided] == [28]
    assert {said(one).split()[0] for one in rules.values()} == {"passed"}
    first, pair = "rank 0 (n0 device 0)", "192.168.1.7"
    assert {number: one.inputs for number, one in rules.items()} == {
        1: (
            ("job", "train/demo"),
            ("rank table", "version 1.2, completed, super-pod mode"),
            (REF, "device 0 of n0: held by train/demo, rank 0 of server node_0"),
        ),
        2: (
            ("ledger", "NPUs held: 0"),
            ("links of this life on their backup side", "none"),
            (REF, "occurrence 1:0:0:0"),
        ),
        3: ((REF, "began 2025-12-31 23:59:00.000Z, has not ended"),),
        4: ((REF, "free"),),
        5: (("product", "A3"), ("rank table", "version 1.2, completed, super-pod mode")),
        6: ((REF, "rdma_down"),),
        7: ((REF, "rdma_down"),),
        8: (
            ("rank table", "version 1.2, completed, super-pod mode"),
            ("peers", "taken from the table"),
            ("n0 HCCL_INTER_HCCS_DISABLE", "unset: FALSE"),
            (first, "ranks 8, 12"),
        ),
        9: ((REF, "rdma_down, 60000 ms old, threshold 30064.8 ms"),),
        10: tuple(
            (f"{node} {name}", value)
            for node in ("n0", "n2", "n3")
            for name, value in (
                ("HCCL_OP_RETRY_ENABLE", "L1:1, L2:1"),
                ("HCCL_OP_RETRY_PARAMS", "MaxCnt:3, HoldTime:5000, IntervalTime:1000"),
                ("HCCL_OP_EXPANSION_MODE", "AI_CPU"),
                ("HCCL_INTER_HCCS_DISABLE", "unset: FALSE"),
                ("ASCEND_RT_VISIBLE_DEVICES", "unset: all of the container's"),
            )
        ),
        11: tuple((f"{node} HCCL_OP_RETRY_ENABLE", "L1:1, L2:1") for node in ("n0", "n2", "n3")),
        12: tuple((f"{node} HCCL_OP_EXPANSION_MODE", "AI_CPU") for node in ("n0", "n2", "n3")),
        13: tuple(
            (f"{node} {name}", value)
            for node in ("n0", "n2", "n3")
            for name, value in (
                ("HCCL_OP_RETRY_ENABLE", "L1:1, L2:1"),
                ("HCCL_OP_RETRY_PARAMS", "MaxCnt:3, HoldTime:5000, IntervalTime:1000"),
                ("HCCL_OP_EXPANSION_MODE", "AI_CPU"),
                ("HCCL_RDMA_TIMEOUT", "unset: 20"),
                ("HCCL_RDMA_RETRY_CNT", "unset: 7"),
            )
        ),
        14: (("communication mode", "ranktable"), (first, "host_ip 172.16.0.100")),
        15: (("communication mode", "ranktable"), (first, f"backup_device_ip {pair}")),
        16: ((first, f"backup {pair}, device 1 {pair}"),),
        17: ((first, "backup port 16667, main port of device 1 16666"),),
        18: ((first, "device 1 visible"),),
        19: (("policy", "per_npu, strict"), (first, "NPU 0 free")),
        20: (("policy", "per_npu, strict"), (first, "NPU 0 free")),
        21: ((first, "device 1 up: seen up 0 ms ago, fresh for 60000 ms"),),
        22: ((first, "device 1 up: seen up 0 ms ago, fresh for 60000 ms"),),
        23: (("traffic between the dies of an NPU", "not flagged"), ("links that would change", "0-8, 0-12")),
        24: (
            (
                "rank 8 (n2 device 0)",
                (
                    "host_ip 172.16.0.102; backup 192.168.3.7, device 1 192.168.3.7, visible;"
                    " device 1 up: seen up 0 ms ago, fresh for 60000 ms"
                ),
            ),
            (
                "rank 12 (n3 device 0)",
                (
                    "host_ip 172.16.0.103; backup 192.168.4.7, device 1 192.168.4.7, visible;"
                    " device 1 up: seen up 0 ms ago, fresh for 60000 ms"
                ),
            ),
        ),
        25: (("strictness", "strict"), ("rank 8 (n2 device 0)", "NPU 0 free"), ("rank 12 (n3 device 0)", "NPU 0 free")),
        26: (
            ("rank 8 (n2 device 0)", "device 1 up: seen up 0 ms ago, fresh for 60000 ms"),
            ("rank 12 (n3 device 0)", "device 1 up: seen up 0 ms ago, fresh for 60000 ms"),
        ),
        27: (
            ("hosts reach each other", "yes"),
            ("operator can run again", "yes"),
            ("retries used", "0"),
            *(
                (f"{node} HCCL_OP_RETRY_PARAMS", "MaxCnt:3, HoldTime:5000, IntervalTime:1000")
                for node in ("n0", "n2", "n3")
            ),
        ),
        28: (
            (first, "device 0 → 1"),
            ("rank 8 (n2 device 0)", "device 0 → 1"),
            ("rank 12 (n3 device 0)", "device 0 → 1"),
            ("links that change", "0-8, 0-12"),
        ),
    }


def test_rules_behind_the_deciding_one_say_what_they_would_say() -> None:
    dark = question(fault(), env={}, links={})
    rules = told(dark)
    assert [number for number, one in rules.items() if one.decided] == [10]
    assert [number for number, one in rules.items() if one.after] == list(range(11, 29))
    assert {number: said(one) for number, one in rules.items() if "passed" not in said(one)} == {
        10: "refused ENV_UNKNOWN",
        11: "refused RETRY_L2_OFF",
        22: "refused BACKUP_LINK_UNKNOWN",
        24: "refused PEER_BACKUP_LINK_UNKNOWN",
        28: "",
    }
    hidden = "unknown: not shown, a script may set it (default L1:0, L2:0)"
    assert rules[10].inputs[0] == ("n0 HCCL_OP_RETRY_ENABLE", hidden)
    assert rules[22].inputs == (("rank 0 (n0 device 0)", "device 1 unknown: never seen"),)


def test_when_no_fault_is_left_the_other_rules_are_not_asked() -> None:
    rules = told(question(fault(kind="hccs")))
    assert [number for number, one in rules.items() if one.decided] == [6]
    assert {number for number, one in rules.items() if one.word is None} == set(range(7, 29))


def test_a_fault_that_was_set_aside_is_shown_where_it_was_and_not_behind() -> None:
    rules = told(question(fault(), fault(device=2, ended_at=NOW)))
    assert [name for name, _ in rules[3].inputs] == [REF, "n0/network/2/81078603@1767225540000"]
    assert said(rules[3]) == "set_aside CLEAR"
    assert not rules[3].decided
    assert [name for name, _ in rules[4].inputs] == [REF]


def test_a_leaf_switch_of_many_dies_is_shown_in_part() -> None:
    many = question(*(fault(device=number) for number in range(20)), job=JobId(""))
    inputs = told(many)[1].inputs
    assert len(inputs) == 2 + 16 + 1
    assert inputs[-1] == ("more", "4 not shown")


def env(**values: str) -> dict[Any, HcclEnv]:
    return dict.fromkeys(NODES, env_from(values, visible=False))


questions = st.builds(
    lambda faults, **given_: question(*faults, **given_),
    st.lists(
        st.builds(
            fault,
            node=st.integers(0, 4),
            device=st.integers(-1, 5),
            kind=st.sampled_from(["rdma_down", "rdma_flap", "hccs", "leaf_switch", "cqe_error", "other"]),
            started_at=st.sampled_from([NOW - 60_000, NOW - 1000, NOW + 1000]),
            ended_at=st.sampled_from([None, NOW, NOW - 90_000]),
        ),
        max_size=3,
    ),
    job=st.sampled_from([JOB, JobId("")]),
    table=st.sampled_from([None, question().table, RankTable("completed", "2.0"), RankTable("completed", "1.2")]),
    comm_mode=st.sampled_from(list(CommMode)),
    servers=st.sampled_from([{}, {"node_0": N0, "node_2": N2}, {f"node_{n}": node for n, node in enumerate(NODES)}]),
    ledger=st.sampled_from([None, question().ledger]),
    product=st.sampled_from(["A3", "A2", ""]),
    links=st.sampled_from([{}, {(N0, 1): Link("down", NOW)}, question().links]),
    env=st.sampled_from([{}, env(), env(HCCL_OP_RETRY_ENABLE="x", HCCL_OP_EXPANSION_MODE="x"), question().env]),
    peers=st.sampled_from([None, {}, {0: (8, 99), 2: (1,)}]),
    visible=st.sampled_from([{}, question().visible]),
    owners=st.sampled_from([{}, question().owners]),
)


@settings(max_examples=300)
@given(questions)
def test_any_question_is_explained_and_by_the_answer_that_decide_gives(asked: RailQuestion) -> None:
    answer, rules = explain(asked)
    assert answer == decide(asked)
    assert [one.rule.number for one in rules] == list(range(1, 29))
    if not asked.faults:
        return
    words = tuple(one.word for one in rules if one.word is not None and not one.after)
    assert words == answer.checked
    (decided,) = (one for one in rules if one.decided)
    assert decided.rule.number == answer.rule
    assert isinstance(answer, Borrow) == (decided.rule.number == 28)


@pytest.mark.parametrize("kind", ["rdma_down", "hccs"])
def test_explaining_changes_nothing_of_the_answer(kind: str) -> None:
    asked = question(fault(kind=kind))
    assert explain(asked)[0] == explain(replace(asked))[0] == decide(asked)
    assert Outcome.REFUSED not in {check.outcome for check in decide(asked).checked}
