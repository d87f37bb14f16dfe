"""`fault-agent rail explain`: the rules alone, and for a fault what each looked at, what it said, which one decided."""

import json
from pathlib import Path
from typing import Any

import pytest
from a3cluster import DEMO, the_a3
from command import Command
from recordlines import write_cluster
from rig import T0

from agent.domain.rail.words import RailCode

REF = f"n0/network/0/81078603@{T0}"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return write_cluster(tmp_path / "cluster.json", the_a3())


def test_the_rules_alone_are_all_28_in_order(call: Command) -> None:
    code, out, err = call("rail", "explain")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line[:2].strip() for line in lines if line[:2].strip()] == [str(number) for number in range(1, 29)]
    assert (
        lines[0] == " 1  refuse    UNKNOWN_TARGET: the job, its node, the die or its rank is in no completed rank table"
    )
    assert lines[-1] == "28  borrow    BORROW: nothing above has hit"


def test_for_machines_every_code_of_an_answer_is_in_the_rules(call: Command) -> None:
    _, out, _ = call("rail", "explain", "--json")
    rules: list[dict[str, Any]] = json.loads(out)
    codes = {code["code"] for rule in rules for code in rule["codes"]}
    warnings = {
        "BANDWIDTH_HALVED",
        "LEAF_SWITCH",
        "SHARED_NPU",
        "SUBHEALTH_POLICY_EXIT",
        "PEERS_ASSUMED",
        "PORT_DEFAULT_CLASH",
        "EXPANSION_DEFAULT",
        "EXPANSION_WORD_UNKNOWN",
        "RETRY_L0_IGNORED",
        "RDMA_TIMER_INVALID",
    }
    assert set(RailCode) - codes == warnings | {"TOO_OLD", "BEFORE_ACT"}


@pytest.mark.parametrize("word", ["22", "BACKUP_LINK_UNKNOWN", "backup_link_unknown"])
def test_a_rule_is_named_by_its_number_or_its_code(call: Command, word: str) -> None:
    assert call("rail", "explain", word)[1].splitlines() == [
        "22  refuse    BACKUP_LINK_UNKNOWN: nobody has seen the other die's link within rail.link_fresh_s",
        (
            "              BACKUP_LINK_UNKNOWN, what to do: Probe the link of the pair die;"
            " no borrow is planned without it."
        ),
    ]


def test_a_further_code_names_its_rule(call: Command) -> None:
    assert call("rail", "explain", "ENV_UNKNOWN")[1].splitlines() == [
        "10  refuse    ENV_INVALID: a variable that decides cannot be read",
        "              ENV_UNKNOWN: it cannot be seen",
        (
            "              ENV_INVALID, what to do: Correct the variable before the next start: HCCL does not start"
            " with it."
        ),
        (
            "              ENV_UNKNOWN, what to do: State the HCCL variables in the pod spec or the PodGroup's"
            " annotation fault-agent/hccl-env."
        ),
    ]


def test_a_word_that_is_no_rule_is_told_what_is(call: Command) -> None:
    code, out, err = call("rail", "explain", "29")
    assert (code, out) == (2, "")
    assert "'29' is no rule of rail-borrow (a number of 1 to 28, or a code such as BACKUP_LINK_UNKNOWN;" in err


def test_a_fault_is_explained_rule_by_rule_and_what_stands_behind_the_answer_is_told_too(
    call: Command, cluster: Path
) -> None:
    code, out, err = call("rail", "explain", "--cluster", cluster, "--fault", REF)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:7] == [
        f"{DEMO}: refuse, rule 22 BACKUP_LINK_UNKNOWN",
        "  assumed  nothing is borrowed yet: fault-agent-rails is not among the objects",
        "  assumed  it is 2026-01-01 00:00:30.065Z: objects have no clock; then these faults can be judged",
        "   1 UNKNOWN_TARGET: passed",
        f"       · job: {DEMO}",
        "       · rank table: version 1.2, completed, super-pod mode",
        f"       · {REF}: device 0 of n0: held by {DEMO}, rank 0 of server node_0",
    ]
    heads = [line for line in lines[1:] if line[:4].strip(" >").isdecimal()]
    assert [line.rpartition(": ")[2] for line in heads] == [
        *["passed"] * 21,
        "refuse",
        "would pass",
        "would refuse PEER_BACKUP_LINK_UNKNOWN",
        "would pass",
        "would pass",
        "would not be judged",
        "not reached",
    ]
    at = lines.index("> 22 BACKUP_LINK_UNKNOWN: refuse")
    assert lines[at + 1 : at + 3] == [
        "       rank 0 (n0 device 0): no fresh link state of device 1",
        "       · rank 0 (n0 device 0): device 1 unknown: never seen",
    ]
    assert lines[-1] == "  advice   Probe the link of the pair die; no borrow is planned without it."


def test_only_the_rules_that_are_named_are_told_of_a_fault(call: Command, cluster: Path) -> None:
    _, out, _ = call("rail", "explain", "18", "FLAP", "--cluster", cluster, "--fault", REF, "--links-up")
    lines = out.splitlines()
    assert lines[0] == f"{DEMO}: borrow, rule 28 BORROW"
    assert lines[3] == "  assumed  the links of 15 devices of which nothing fresh is known are up"
    assert lines[4] == "   9 FLAP: passed"
    assert lines[6:8] == ["  18 BACKUP_NOT_VISIBLE: passed", "       · rank 0 (n0 device 0): device 1 visible"]


def test_a_fault_that_another_mechanism_answers_ends_the_asking(call: Command, cluster: Path) -> None:
    _, out, _ = call("rail", "explain", "--cluster", cluster, "--fault", "n1/switch/3.17/[0x00f10509,132332,npu,na]")
    lines = out.splitlines()
    assert lines[0] == f"{DEMO}: delegate, rule 6 HCCS_PATH_SWITCH"
    assert ">  6 HCCS_PATH_SWITCH: delegate" in lines
    assert "   7 NOT_RAIL_FAULT: not asked: no fault is left" in lines
    assert lines[-2] == "  28 BORROW: not reached"


def test_for_machines_each_rule_has_inputs_and_a_verdict(call: Command, cluster: Path) -> None:
    _, out, _ = call("rail", "explain", "--cluster", cluster, "--fault", REF, "--link", "n0/1=down", "--json")
    (one,) = json.loads(out)
    assert (one["job"], one["answer"], one["rule"], one["code"]) == (DEMO, "refuse", 21, "BACKUP_LINK_DOWN")
    assert one["faults"] == [{"fault": REF, "kind": "rdma_down"}]
    assert one["assumed"][2:] == ["the link of device 1 of n0 is down"]
    assert [rule["rule"] for rule in one["rules"]] == list(range(1, 29))
    assert one["rules"][20] == {
        "rule": 21,
        "code": "BACKUP_LINK_DOWN",
        "hits": "both dies of the NPU are down",
        "inputs": [{"name": "rank 0 (n0 device 0)", "value": one["rules"][20]["inputs"][0]["value"]}],
        "verdict": "refused",
        "said": "BACKUP_LINK_DOWN",
        "detail": "rank 0 (n0 device 0): device 1 is down too",
        "decided": True,
        "after_the_answer": False,
    }
    assert one["rules"][20]["inputs"][0]["value"] == "device 1 down: seen down 0 ms ago, fresh for 60000 ms"
    assert (one["rules"][27]["verdict"], one["rules"][27]["after_the_answer"]) == (None, True)
