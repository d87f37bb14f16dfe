"""Shapes of a recovery: the entries of `reset.json`, the object that holds them, and the recovery itself.

The one rule: frozen values; what belongs to others is kept as it was read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from agent.domain.vocab import SECOND, Millis, NodeName


class Policy(StrEnum):
    """How a device gets well, mildest first (device-plugin constants.go:549)."""

    EMPTY = ""
    RESTART_REQUEST = "restart_request"
    RESTART = "restart"
    FREE_RESET = "free_reset"
    RESET = "reset"
    ISOLATE = "isolate"


POLICIES: Final[Mapping[Policy, int]] = {
    Policy.EMPTY: 0,
    Policy.RESTART_REQUEST: 2,
    Policy.RESTART: 3,
    Policy.FREE_RESET: 4,
    Policy.RESET: 5,
    Policy.ISOLATE: 6,
}
"""Strength of each policy; of several on a node the strongest holds (constants.go:549)."""

_BY_LEVEL: Final[Mapping[str, Policy]] = {
    "NormalNPU": Policy.EMPTY,
    "NotHandleFault": Policy.EMPTY,
    "SubHealthFault": Policy.EMPTY,
    "RestartRequest": Policy.RESTART_REQUEST,
    "RestartBusiness": Policy.RESTART,
    "FreeRestartNPU": Policy.FREE_RESET,
    "RestartNPU": Policy.RESET,
}


def policy_of(level: str) -> Policy:
    """Policy of a chip level; whatever is not in the table isolates (device-plugin ascendtolerance.go:515)."""
    return _BY_LEVEL.get(level, Policy.ISOLATE)


class Status(StrEnum):
    """Words of `Status` in an entry; `fault` is ClusterD's alone."""

    UNRECOVERED = "unrecovered"
    RECOVERED = "recovered"
    FAILED = "failed"
    FAULT = "fault"


class Executor(StrEnum):
    """Who resets a device: nobody, or somebody outside whose success shows as a recover event."""

    NONE = "none"
    EXTERNAL = "external"


class Phase(StrEnum):
    """Where a recovery is in its life."""

    UNRECOVERED = "unrecovered"
    """Shown unrecovered; its codes are still there."""
    SETTLING = "settling"
    """Shown unrecovered; its codes are gone and must stay so for a while."""
    RECOVERED = "recovered"
    """Shown recovered for readers to see."""
    FAILED = "failed"
    """Shown isolate and failed until the pods are replaced."""
    LEAVING = "leaving"
    """Its entries are to be taken out."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class RankEntry:
    """One element of `RankList`. `rank_id` is the global rank.

    `status` None: the key is missing, which readers take as recovered, so it is not filled in.
    """

    rank_id: int
    logic_id: int = 0
    status: str | None = ""
    policy: str = ""
    initial_policy: str = ""
    error_code: tuple[int, ...] | None = None
    """None is `null`, as ClusterD writes it; not the same as empty."""
    error_code_hex: str = ""
    recovery_id: int | None = None
    """Ours alone: which recovery of the job wrote the entry. None: somebody else's."""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """Keys nobody here knows, kept as read."""


@dataclass(frozen=True, slots=True)
class ResetInfo:
    """The object in `reset.json` (TaskResetInfo, device-plugin proto.go:245). `update_time` in Unix seconds."""

    rank_list: tuple[RankEntry, ...] | None = None
    """None is `null`; not the same as empty."""
    update_time: int = 0
    retry_time: int = 0
    fault_flushing: bool = False
    graceful_exit: int = 0
    restart_fault_process: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys nobody here knows, kept as read."""


@dataclass(frozen=True, slots=True)
class ResetDevice:
    """One device of a recovery: its global rank, logic id, node, physical id and the codes on it (hex, table spelling).

    A healthy device of the reset ring is listed with no codes.
    """

    rank: int
    logic_id: int
    node: NodeName
    device: int
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResetLimits:
    """Spans in ms, with the numbers of the last component that drove such recoveries (ascend910.go at 40bc27dd^)."""

    request_clean: Millis = Millis(30 * SECOND)
    """restart_request: codes gone within this, else it goes up to reset."""
    processes_gone: Millis = Millis(60 * SECOND)
    """restart: codes gone within the time workers have to stop, else it goes up to reset."""
    self_healing: Millis = Millis(15 * SECOND)
    """restart: codes stay gone this long before it counts."""
    device_reset: Millis = Millis(150 * SECOND)
    """reset: codes gone within this, else failed."""
    npu_ready: Millis = Millis(30 * SECOND)
    """reset: codes stay gone this long before it counts."""
    recovered_shown: Millis = Millis(90 * SECOND)
    """How long recovered entries stay: a mounted ConfigMap may reach a container a minute late."""
    recovered_least: Millis = Millis(30 * SECOND)
    """Recovered entries stay at least this long, also when a pod goes."""
    replacement: Millis = Millis(120 * SECOND)
    """Failed: how long replacement pods are waited for before the survivors are told to start."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """One attempt to get the devices of a job on one node well without moving the job. Times in Unix ms.

    Kept in the job's ledger, which is written before `reset.json` is.
    """

    id: int
    """From the job's ledger, counting up; it goes into every entry as RecoveryId."""
    phase: Phase
    policy: Policy
    initial_policy: Policy
    devices: tuple[ResetDevice, ...]
    node: NodeName
    started: Millis
    phase_since: Millis
    deadline: Millis | None = None
    """When the phase gives up or is over; None: it waits for no clock."""
    settle_until: Millis | None = None
    workers_stopped: bool = True
    """Our entries, once shown, may have stopped workers that nothing has told to start again yet."""
    executor: Executor = Executor.NONE
    shown: str = ""
    """Status last found in or written to the live object; empty: never seen there."""
    retry_base: int = 0
    """The highest RetryTime so far when the entries were last seen unrecovered; a higher one restarts readers."""
