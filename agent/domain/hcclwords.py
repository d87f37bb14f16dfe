"""The HCCL variables of an environment in words: what each says, or what is in force without it.

The one rule: unset and unknown are told apart, each with the default that counts, or would.
"""

from collections.abc import Mapping
from typing import Any

from agent.domain import hccl
from agent.domain.hccl import HcclEnv, OpRetry, RetryParams, Seen, Sight


def variables_of(env: HcclEnv) -> Mapping[str, tuple[Seen[Any], str]]:
    """Each variable by its name, as it was found, and its default in words."""
    return {
        hccl.RETRY_ENABLE: (env.retry, value_words(hccl.default_op_retry(env.cann))),
        hccl.RETRY_PARAMS: (env.params, value_words(RetryParams())),
        hccl.EXPANSION_MODE: (env.expansion, "AI_CPU on A3"),
        hccl.RDMA_TIMEOUT: (env.rdma_timeout, str(hccl.DEFAULT_RDMA_TIMEOUT)),
        hccl.RDMA_RETRY_CNT: (env.rdma_retry_cnt, str(hccl.DEFAULT_RDMA_RETRY_CNT)),
        hccl.CONNECT_TIMEOUT: (env.connect_timeout, f"{hccl.DEFAULT_CONNECT_TIMEOUT} s"),
        hccl.INTER_HCCS_DISABLE: (env.inter_hccs_disable, "FALSE"),
        hccl.VISIBLE_DEVICES: (env.visible_devices, "all of the container's"),
    }


def value_words(value: object) -> str:
    """A value as HCCL reads it."""
    match value:
        case OpRetry(l1, l2, l0):
            return f"L1:{int(l1)}, L2:{int(l2)}{' (L0 has no effect)' if l0 else ''}"
        case RetryParams(count, hold, interval):
            return f"MaxCnt:{count}, HoldTime:{hold}, IntervalTime:{interval}"
        case bool():
            return str(value).upper()
        case tuple():
            return ",".join(map(str, value)) or "none"
    return str(value)


def variable_words(env: HcclEnv, name: str) -> str:
    """One variable: its value, or why there is none and which default counts then."""
    seen, default = variables_of(env)[name]
    match seen.sight:
        case Sight.KNOWN:
            return value_words(seen.value)
        case Sight.UNSET:
            return f"unset: {default}"
        case Sight.INVALID:
            return f"invalid: {seen.problem.removeprefix(name + ': ')}"
    return f"unknown: not shown, a script may set it (default {default})"
