"""What a plan warns of, and what people are told to do."""

from typing import Any

import pytest
from a3table import JOB, NOW, a3_table, fault, question
from railcase import N0, OTHER, book, borrowed, device, envs, held, without

from agent.domain.rail import decide
from agent.domain.rail.words import Outcome, RailCode, advice_for
from agent.domain.ranktable import RankTable


def backup_port_is_the_default_of_the_pair() -> RankTable:
    def change(document: dict[str, Any]) -> None:
        del device(document, 1)["device_port"]
        device(document, 0)["backup_device_port"] = "16666"

    return a3_table(change)


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
