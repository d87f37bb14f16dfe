"""HCCL variables in words."""

import pytest

from agent.domain.hccl import VARIABLES, HcclEnv, env_from
from agent.domain.hcclwords import variable_words, variables_of


def test_every_variable_that_is_read_has_its_words() -> None:
    assert set(variables_of(HcclEnv())) == set(VARIABLES)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("HCCL_OP_RETRY_ENABLE", "L0:1,L2:1", "L1:0, L2:1 (L0 has no effect)"),
        ("HCCL_OP_RETRY_PARAMS", "MaxCnt:3,HoldTime:0,IntervalTime:9", "MaxCnt:3, HoldTime:0, IntervalTime:9"),
        ("HCCL_OP_EXPANSION_MODE", "HOST", "HOST"),
        ("HCCL_INTER_HCCS_DISABLE", "true", "TRUE"),
        ("HCCL_RDMA_TIMEOUT", "18", "18"),
        ("ASCEND_RT_VISIBLE_DEVICES", "2, 3", "2,3"),
        ("ASCEND_RT_VISIBLE_DEVICES", "", "none"),
    ],
)
def test_a_value_is_told_as_hccl_reads_it(name: str, text: str, words: str) -> None:
    assert variable_words(env_from({name: text}, visible=True), name) == words


def test_the_name_of_a_variable_that_cannot_be_read_is_not_said_again() -> None:
    env = env_from({"HCCL_OP_RETRY_ENABLE": "L9:1"}, visible=True)
    assert variable_words(env, "HCCL_OP_RETRY_ENABLE") == "invalid: entry 'L9:1' is not L0, L1 or L2 with :0 or :1"


def test_unset_and_unknown_are_told_apart_and_with_the_default_of_the_version() -> None:
    shown, hidden = (env_from({}, visible, "8.3.RC1") for visible in (True, False))
    assert variable_words(shown, "HCCL_OP_RETRY_ENABLE") == "unset: L1:1, L2:0"
    assert variable_words(hidden, "HCCL_OP_RETRY_ENABLE") == (
        "unknown: not shown, a script may set it (default L1:1, L2:0)"
    )
    assert variable_words(shown, "HCCL_CONNECT_TIMEOUT") == "unset: 120 s"
