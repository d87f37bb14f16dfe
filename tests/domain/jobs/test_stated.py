"""What a job states of its processes: read whole or not at all, and after what the pod's spec shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.hccl import Expansion, OpRetry, RetryParams, Sight
from agent.domain.jobs import FindingCode, Stated, parse_labels, stated_by
from agent.domain.vocab import JobId

TEXT = "HCCL_OP_RETRY_ENABLE=L0:0, L1:1, L2:1; HCCL_OP_RETRY_PARAMS=MaxCnt:3,HoldTime:5000,IntervalTime:1000"


def env(text: str, cann: str = "") -> Stated:
    return stated_by({"fault-agent/hccl-env": text, "fault-agent/cann-version": cann})


def test_what_is_stated_is_known_and_what_it_leaves_out_is_unset() -> None:
    seen = env(TEXT).seen(None, False)
    assert seen.retry.value == OpRetry(True, True, True)
    assert seen.params.value == RetryParams(3, 5000, 1000)
    assert seen.expansion.sight is Sight.UNSET
    assert seen.inter_hccs_disable.effective(False) is False


def test_nothing_stated_is_unknown_and_not_off() -> None:
    seen = stated_by({}).seen({"HCCL_OP_EXPANSION_MODE": "AI_CPU"}, False)
    assert (seen.retry.sight, seen.expansion.value) == (Sight.UNKNOWN, Expansion.AI_CPU)


def test_an_empty_statement_says_that_nothing_is_set() -> None:
    assert env("").seen(None, False).retry.sight is Sight.UNSET


def test_the_spec_of_the_pod_goes_before_the_statement() -> None:
    seen = env("HCCL_OP_RETRY_ENABLE=L2:1").seen({"HCCL_OP_RETRY_ENABLE": "L2:0"}, False)
    assert seen.retry.value == OpRetry(False, False)


def test_lines_may_stand_for_semicolons_and_a_value_may_hold_an_equals_sign() -> None:
    assert env("HCCL_RDMA_TIMEOUT=18\n\n HCCL_RDMA_RETRY_CNT=7 ;").env == (
        ("HCCL_RDMA_RETRY_CNT", "7"),
        ("HCCL_RDMA_TIMEOUT", "18"),
    )
    assert env("HCCL_OP_EXPANSION_MODE=a=b").env == (("HCCL_OP_EXPANSION_MODE", "a=b"),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("HCCL_OP_RETRY_ENABLE", "'HCCL_OP_RETRY_ENABLE' is no NAME=value; pairs are parted by a semicolon"),
        (
            "HCCL_OP_RETRY_ENABLED=L2:1",
            "'HCCL_OP_RETRY_ENABLED' is no variable of it; did you mean HCCL_OP_RETRY_ENABLE?",
        ),
        ("PATH=/bin", "'PATH' is no variable of it; known: HCCL_OP_RETRY_ENABLE, "),
        ("HCCL_RDMA_TIMEOUT=18;HCCL_RDMA_TIMEOUT=19", "HCCL_RDMA_TIMEOUT stands twice"),
    ],
)
def test_a_statement_that_cannot_be_read_leaves_all_of_it_unknown(text: str, told: str) -> None:
    stated = env(f"HCCL_OP_EXPANSION_MODE=AI_CPU;{text}")
    assert stated.env is None
    assert stated.problems[0].startswith(f"fault-agent/hccl-env: {told}")
    assert stated.seen(None, False).expansion.sight is Sight.UNKNOWN


def test_a_value_that_hccl_would_not_take_is_invalid_and_not_unknown() -> None:
    assert env("HCCL_OP_RETRY_ENABLE=L9:1").seen(None, False).retry.sight is Sight.INVALID


@pytest.mark.parametrize(("cann", "l1"), [("8.1.RC1", False), ("8.2.RC1", False), ("8.3.RC1", True), ("9.0.0", False)])
def test_defaults_follow_the_version_of_cann(cann: str, l1: bool) -> None:
    assert env("", cann).seen(None, False).retry.effective(OpRetry()) == OpRetry(l1=l1)
    assert Stated(cann=cann).seen({}, True).retry.effective(OpRetry()) == OpRetry(l1=l1)


def test_a_version_that_is_none_counts_as_not_known_and_is_a_finding_of_the_job() -> None:
    annotations = {"fault-agent/cann-version": "newest", "fault-agent/hccl-env": "x"}
    _, findings = parse_labels(JobId("train/demo"), {}, annotations)
    assert (stated_by(annotations).cann, stated_by(annotations).env) == ("", None)
    assert [(one.code, one.reason.partition(":")[0]) for one in findings] == [
        (FindingCode.ANNOTATION_BAD, "fault-agent/hccl-env"),
        (FindingCode.ANNOTATION_BAD, "fault-agent/cann-version"),
    ]


@given(st.text(max_size=60), st.text(max_size=20))
def test_any_text_is_read_or_told_as_a_problem(text: str, cann: str) -> None:
    stated = env(text, cann)
    assert (stated.env is None) == any(one.startswith("fault-agent/hccl-env") for one in stated.problems)
