"""Files that state an environment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import BadDocument
from agent.wire.ranktables.envfile import parse_env_file


def test_what_env_prints_and_what_a_script_exports_is_read() -> None:
    text = (
        b'# of the job\nHCCL_OP_RETRY_ENABLE=L0:0, L1:1, L2:1\nexport HCCL_OP_EXPANSION_MODE="AI_CPU"\r\n\n'
        b"BASH_FUNC_x%%=() {  echo 1\n}\nPATH=/bin\nHCCL_RDMA_TIMEOUT=19\nHCCL_RDMA_TIMEOUT=18\nEMPTY=\n"
    )
    assert parse_env_file(text, "job.env") == {
        "HCCL_OP_RETRY_ENABLE": "L0:0, L1:1, L2:1",
        "HCCL_OP_EXPANSION_MODE": "AI_CPU",
        "PATH": "/bin",
        "HCCL_RDMA_TIMEOUT": "18",
        "EMPTY": "",
    }


def test_spaces_of_a_value_stay() -> None:
    assert parse_env_file(b"HCCL_OP_RETRY_PARAMS= MaxCnt:3", "e") == {"HCCL_OP_RETRY_PARAMS": " MaxCnt:3"}


@pytest.mark.parametrize(
    ("raw", "place"),
    [(b"A=1\nHCCL_OP_RETRY_ENABLE: L1:1\n", "job.env:2"), (b"A=1\n\n\xff=2", "job.env:3")],
    ids=["no assignment", "no UTF-8"],
)
def test_what_would_be_lost_is_refused(raw: bytes, place: str) -> None:
    with pytest.raises(BadDocument) as caught:
        parse_env_file(raw, "job.env")
    assert caught.value.place == place


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        found = parse_env_file(raw, "e")
    except BadDocument:
        return
    assert all("\n" not in value for value in found.values())
