"""HCCL's variables are read as HCCL reads them, and what cannot be seen is unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.hccl import (
    Expansion,
    OpRetry,
    RetryParams,
    Sight,
    borrow_eligible,
    default_op_retry,
    env_from,
    flap_threshold_ms,
    parse_connect_timeout,
    parse_expansion_mode,
    parse_inter_hccs_disable,
    parse_op_retry_enable,
    parse_op_retry_params,
    parse_rdma_retry_cnt,
    parse_rdma_timeout,
    parse_visible_devices,
    retry_eligible,
    together,
    visible_among,
)
from agent.errors import BadInput


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L1:1,L2:1", OpRetry(True, True)),
        (" L0:0, L1:1, L2:1 ", OpRetry(True, True, True)),
        ("L0:0, L1:1, L2:1", OpRetry(True, True, True)),
        ("", OpRetry(False, False)),
        ("   ", OpRetry(False, False)),
        ("L2:1", OpRetry(False, True)),
        ("L 2 : 1", OpRetry(False, True)),
        ("L1:1,L2:0", OpRetry(True, False)),
    ],
)
def test_retry_levels_are_read_with_spaces_anywhere(text: str, expected: OpRetry) -> None:
    assert parse_op_retry_enable(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "L1:1,",
        ",L1:1",
        "L1:1,,L2:1",
        "L1",
        "L1:2",
        "l1:1",
        "L3:1",
        "L1:1,L1:0",
        "L1:1:0",
        "L1:1,L2:1,L0:0,L1:0",
        "L1:1,\tL2:1",
        "L1:",
        ":1",
        "L1:１",
    ],
)
def test_retry_levels_that_hccl_would_not_take_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="HCCL_OP_RETRY_ENABLE"):
        parse_op_retry_enable(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MaxCnt:3, HoldTime:5000, IntervalTime:1000", RetryParams(3, 5000, 1000)),
        ("MaxCnt:3,HoldTime:5000,IntervalTime:1000", RetryParams(3, 5000, 1000)),
        ("MaxCnt:3,HoldTime:0,IntervalTime:60000junk", RetryParams(3, 0, 60000)),
        ("MaxCnt: 10,\tHoldTime: 60000,  IntervalTime: 0", RetryParams(10, 60000, 0)),
        ("MaxCnt:0003,HoldTime:1,IntervalTime:1", RetryParams(3, 1, 1)),
    ],
)
def test_retry_times_are_read(text: str, expected: RetryParams) -> None:
    assert parse_op_retry_params(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "MaxCnt:0,HoldTime:5000,IntervalTime:1000",
        "MaxCnt:11,HoldTime:5000,IntervalTime:1000",
        "MaxCnt:3,HoldTime:60001,IntervalTime:1000",
        "MaxCnt:3,HoldTime:5000,IntervalTime:60001",
        "MaxCnt:3,HoldTime:-1,IntervalTime:1000",
        "MaxCnt:99999999999999999999999999,HoldTime:1,IntervalTime:1",
        "HoldTime:5000,MaxCnt:3,IntervalTime:1000",
        "MaxCnt:3",
        "maxcnt:3,HoldTime:5000,IntervalTime:1000",
        " MaxCnt:3,HoldTime:5000,IntervalTime:1000",
        "MaxCnt:3 ,HoldTime:5000,IntervalTime:1000",
        "MaxCnt :3,HoldTime:5000,IntervalTime:1000",
        "",
    ],
)
def test_retry_times_that_hccl_would_not_take_are_refused_and_not_clamped(text: str) -> None:
    with pytest.raises(BadInput, match="HCCL_OP_RETRY_PARAMS"):
        parse_op_retry_params(text)


@pytest.mark.parametrize(
    ("word", "on_ai_cpu"),
    [("AI_CPU", True), ("AICPU_CacheDisable", True), ("AIV", False), ("HOST", False), ("HOST_TS", False)],
)
def test_only_the_ai_cpu_kinds_can_borrow(word: str, on_ai_cpu: bool) -> None:
    assert parse_expansion_mode(word).on_ai_cpu is on_ai_cpu


@pytest.mark.parametrize("word", ["", "ai_cpu", "AICPU", "AI_CPU "])
def test_an_unknown_expansion_word_is_named(word: str) -> None:
    with pytest.raises(BadInput, match="HCCL_OP_EXPANSION_MODE"):
        parse_expansion_mode(word)


def test_rdma_timers_have_their_ranges() -> None:
    assert [parse_rdma_timeout(text) for text in ("5", "20")] == [5, 20]
    assert [parse_rdma_retry_cnt(text) for text in ("1", "7")] == [1, 7]
    for text in ("4", "21", "x", "", "1.5", " 20", "٢"):
        with pytest.raises(BadInput, match="HCCL_RDMA_TIMEOUT"):
            parse_rdma_timeout(text)
    for text in ("0", "8", "-1"):
        with pytest.raises(BadInput, match="HCCL_RDMA_RETRY_CNT"):
            parse_rdma_retry_cnt(text)


def test_hccs_can_be_switched_off_between_servers() -> None:
    assert parse_inter_hccs_disable("TRUE") is True
    assert parse_inter_hccs_disable("false") is False
    with pytest.raises(BadInput, match="HCCL_INTER_HCCS_DISABLE"):
        parse_inter_hccs_disable("1")


def test_an_absent_variable_is_unset_only_where_the_environment_is_seen() -> None:
    assert env_from(None, visible=False).retry.sight is Sight.UNKNOWN
    assert env_from({}, visible=True).retry.sight is Sight.UNSET
    assert env_from({"HCCL_OP_RETRY_ENABLE": None}, visible=True).retry.sight is Sight.UNKNOWN
    stated = env_from({"HCCL_OP_RETRY_ENABLE": "L2:1"}, visible=False)
    assert stated.retry.value == OpRetry(False, True)
    assert stated.params.sight is Sight.UNKNOWN
    assert stated.retry.effective(OpRetry()) == OpRetry(False, True)


def test_a_variable_that_cannot_be_read_keeps_its_problem() -> None:
    seen = env_from({"HCCL_OP_RETRY_ENABLE": "L9:1"}, visible=True).retry
    assert (seen.sight, seen.value) == (Sight.INVALID, None)
    assert "L9:1" in seen.problem


def test_unset_expansion_means_ai_cpu() -> None:
    assert env_from({}, visible=True).expansion.effective(Expansion.AI_CPU) is Expansion.AI_CPU


@pytest.mark.parametrize(
    ("env", "visible", "expected"),
    [
        ({}, True, 30064.8),
        ({}, False, 30000.0),
        ({"HCCL_RDMA_TIMEOUT": "20", "HCCL_RDMA_RETRY_CNT": "7"}, False, 30064.8),
        ({"HCCL_RDMA_TIMEOUT": "18"}, True, 7516.2),
        ({"HCCL_RDMA_TIMEOUT": "5", "HCCL_RDMA_RETRY_CNT": "1"}, True, 0.1),
        ({"HCCL_RDMA_TIMEOUT": "18"}, False, 30000.0),
        ({"HCCL_RDMA_TIMEOUT": "99"}, True, 30000.0),
    ],
    ids=["visibly unset", "invisible", "stated", "18 and 7", "shortest", "one of two", "unreadable"],
)
def test_the_flap_threshold_is_what_rdma_itself_sends_again(
    env: dict[str, str], visible: bool, expected: float
) -> None:
    assert flap_threshold_ms(env_from(env, visible)) == pytest.approx(expected, abs=0.05)


@given(st.text(max_size=60))
def test_no_text_crashes_a_parser(text: str) -> None:
    names = (
        "HCCL_OP_RETRY_ENABLE",
        "HCCL_OP_RETRY_PARAMS",
        "HCCL_OP_EXPANSION_MODE",
        "HCCL_RDMA_TIMEOUT",
        "HCCL_RDMA_RETRY_CNT",
        "HCCL_INTER_HCCS_DISABLE",
    )
    env = env_from(dict.fromkeys(names, text), visible=True)
    seen = (env.retry, env.params, env.expansion, env.rdma_timeout, env.rdma_retry_cnt, env.inter_hccs_disable)
    assert {item.sight for item in seen} <= {Sight.KNOWN, Sight.INVALID}


@pytest.mark.parametrize(
    ("cann", "expected"),
    [
        ("", False),
        ("8.1.RC1", False),
        ("8.2.RC1", False),
        ("8.3.RC1", True),
        ("8.3", True),
        ("8.30", False),
        ("9.0", False),
    ],
)
def test_the_levels_that_are_on_by_default_hang_on_the_version(cann: str, expected: bool) -> None:
    assert default_op_retry(cann) == OpRetry(l1=expected)


@pytest.mark.parametrize(("text", "expected"), [("120", 120), ("7200", 7200)])
def test_the_connect_timeout_is_read(text: str, expected: int) -> None:
    assert parse_connect_timeout(text) == expected


@pytest.mark.parametrize("text", ["119", "7201", "", "2m"])
def test_a_connect_timeout_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="HCCL_CONNECT_TIMEOUT"):
        parse_connect_timeout(text)


@pytest.mark.parametrize(("text", "expected"), [("0,1", (0, 1)), (" 3 , 2", (3, 2)), ("", ()), ("15", (15,))])
def test_visible_devices_are_read(text: str, expected: tuple[int, ...]) -> None:
    assert parse_visible_devices(text) == expected


@pytest.mark.parametrize("text", ["0,,1", "a", "-1", "64", "0-3"])
def test_visible_devices_that_are_no_list_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="ASCEND_RT_VISIBLE_DEVICES"):
        parse_visible_devices(text)


ON = {"HCCL_OP_RETRY_ENABLE": "L1:1,L2:1", "HCCL_OP_EXPANSION_MODE": "AI_CPU"}


@pytest.mark.parametrize(
    ("env", "visible", "retry", "borrow"),
    [
        pytest.param(ON, True, True, True, id="all set"),
        pytest.param({"HCCL_OP_RETRY_ENABLE": "L2:1"}, True, True, True, id="expansion unset is the AI CPU"),
        pytest.param({"HCCL_OP_RETRY_ENABLE": "L2:1"}, False, True, None, id="expansion unknown"),
        pytest.param({}, True, False, False, id="unset is off"),
        pytest.param({}, False, None, None, id="unknown is not off"),
        pytest.param({**ON, "HCCL_OP_RETRY_ENABLE": "L1:1"}, True, True, False, id="within a super-pod only"),
        pytest.param({**ON, "HCCL_OP_EXPANSION_MODE": "HOST"}, True, True, False, id="retry on the host, no borrow"),
        pytest.param({**ON, "HCCL_OP_EXPANSION_MODE": "HOST_TS"}, True, True, False, id="the same with HOST_TS"),
        pytest.param({**ON, "HCCL_OP_EXPANSION_MODE": "AIV"}, True, None, False, id="nothing is said of AIV"),
        pytest.param({**ON, "HCCL_OP_EXPANSION_MODE": "cpu"}, True, True, None, id="document and HCCL differ"),
        pytest.param({**ON, "HCCL_OP_RETRY_ENABLE": "L9:1"}, True, False, False, id="HCCL fails"),
        pytest.param({**ON, "HCCL_OP_RETRY_PARAMS": "MaxCnt:0"}, True, False, False, id="HCCL fails for params too"),
        pytest.param({"HCCL_OP_EXPANSION_MODE": "HOST"}, False, None, False, id="whatever retry is, no borrow"),
    ],
)
def test_retry_is_wider_than_borrow(
    env: dict[str, str], visible: bool, retry: bool | None, borrow: bool | None
) -> None:
    read = env_from(env, visible)
    assert (retry_eligible(read).answer, borrow_eligible(read).answer) == (retry, borrow)


def test_by_the_default_of_cann_83_operators_are_retried_and_nothing_is_borrowed() -> None:
    read = env_from({}, visible=True, cann="8.3.RC1")
    assert (retry_eligible(read).answer, borrow_eligible(read).answer) == (True, False)


# --- several pods on one node, and what a process sees ----------------------------------------------------------------


def test_pods_that_agree_are_one_environment() -> None:
    one, two = (
        env_from(ON, True),
        env_from({**ON, "HCCL_OP_RETRY_PARAMS": "MaxCnt:1,HoldTime:5000,IntervalTime:1000"}, True),
    )
    assert together([one, two]).differs == ()  # unset is the default that the other states
    assert together([one, one]) == one


def test_pods_that_differ_are_told_by_variable() -> None:
    one = env_from({**ON, "HCCL_RDMA_TIMEOUT": "18"}, True)
    two = env_from({**ON, "HCCL_RDMA_TIMEOUT": "19", "HCCL_OP_RETRY_ENABLE": "L1:1"}, True)
    assert together([one, two]).differs == ("HCCL_OP_RETRY_ENABLE", "HCCL_RDMA_TIMEOUT")


def test_of_several_pods_what_is_known_least_counts() -> None:
    known, unknown = env_from(ON, True), env_from({}, False)
    wrong = env_from({"HCCL_OP_RETRY_ENABLE": "L9:1"}, False)
    assert together([known, unknown]).retry.sight is Sight.UNKNOWN
    assert together([known, unknown, wrong]).retry.sight is Sight.INVALID
    assert together([known, unknown]).differs == ()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (None, None),
        ("0,1,2,3", {4, 5, 6, 7}),
        ("2, 3", {6, 7}),
        ("", set()),
        ("0,x", None),
        ("0,", None),
        ("0,0", None),
        ("0,4", None),
        ("0;1", None),
        ("-1", None),
    ],
)
def test_a_process_sees_the_places_among_its_containers_devices_or_nobody_knows(
    text: str | None, seen: set[int] | None
) -> None:
    given = {} if text is None else {"ASCEND_RT_VISIBLE_DEVICES": text}
    assert visible_among((4, 5, 6, 7), env_from(given, visible=False).visible_devices) == seen


def test_a_process_whose_environment_narrows_nothing_sees_all_of_its_container() -> None:
    assert visible_among((4, 5), env_from({}, visible=True).visible_devices) == frozenset({4, 5})


@given(st.text(alphabet="0123456789, -x", max_size=12))
def test_what_is_seen_is_never_more_than_the_container_has(text: str) -> None:
    seen = visible_among((4, 5), env_from({"ASCEND_RT_VISIBLE_DEVICES": text}, visible=True).visible_devices)
    assert seen is None or seen <= {4, 5}
