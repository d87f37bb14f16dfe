"""Words of rail-borrow: its codes, the faults it is asked about and the answers it gives.

The one rule: every answer carries the number and code of the rule that gave it, and what was looked at before.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from agent.domain.vocab import RAIL_RETURNED, Millis, NodeName


class RailCode(StrEnum):
    """Every code that an answer or a warning of rail-borrow can carry. Closed."""

    # answers
    UNKNOWN_TARGET = "UNKNOWN_TARGET"
    TABLES_CONTRADICT = "TABLES_CONTRADICT"
    LEDGER_UNREADABLE = "LEDGER_UNREADABLE"
    ALREADY_DONE = "ALREADY_DONE"
    CLEAR = "CLEAR"
    NO_SWITCH_BACK = "NO_SWITCH_BACK"
    UNSUPPORTED_PRODUCT = "UNSUPPORTED_PRODUCT"
    HCCS_PATH_SWITCH = "HCCS_PATH_SWITCH"
    NOT_RAIL_FAULT = "NOT_RAIL_FAULT"
    NO_RDMA_PEER = "NO_RDMA_PEER"
    FLAP = "FLAP"
    ENV_INVALID = "ENV_INVALID"
    ENV_UNKNOWN = "ENV_UNKNOWN"
    RETRY_L2_OFF = "RETRY_L2_OFF"
    EXPANSION_MODE = "EXPANSION_MODE"
    ENV_MISMATCH = "ENV_MISMATCH"
    COMM_MODE_UNKNOWN = "COMM_MODE_UNKNOWN"
    HOST_IP_MISSING = "HOST_IP_MISSING"
    NO_BACKUP_CONFIGURED = "NO_BACKUP_CONFIGURED"
    BACKUP_NOT_PAIR = "BACKUP_NOT_PAIR"
    PORT_CLASH = "PORT_CLASH"
    BACKUP_NOT_VISIBLE = "BACKUP_NOT_VISIBLE"
    BACKUP_IN_USE_FAILED = "BACKUP_IN_USE_FAILED"
    ALREADY_BORROWED = "ALREADY_BORROWED"
    BACKUP_LINK_DOWN = "BACKUP_LINK_DOWN"
    BACKUP_LINK_UNKNOWN = "BACKUP_LINK_UNKNOWN"
    CROSS_DIE_TRAFFIC = "CROSS_DIE_TRAFFIC"
    PEER_HOST_IP_MISSING = "PEER_HOST_IP_MISSING"
    PEER_NO_BACKUP_CONFIGURED = "PEER_NO_BACKUP_CONFIGURED"
    PEER_BACKUP_NOT_PAIR = "PEER_BACKUP_NOT_PAIR"
    PEER_PORT_CLASH = "PEER_PORT_CLASH"
    PEER_BACKUP_NOT_VISIBLE = "PEER_BACKUP_NOT_VISIBLE"
    PEER_BACKUP_LINK_UNKNOWN = "PEER_BACKUP_LINK_UNKNOWN"
    PEER_ALREADY_BORROWED = "PEER_ALREADY_BORROWED"
    NO_COMMON_RAIL = "NO_COMMON_RAIL"
    HOST_PLANE_DOWN = "HOST_PLANE_DOWN"
    OP_NOT_RETRYABLE = "OP_NOT_RETRYABLE"
    RETRY_EXHAUSTED = "RETRY_EXHAUSTED"
    BORROW = "BORROW"
    LEDGER_FULL = "LEDGER_FULL"
    TOO_OLD = "TOO_OLD"
    BEFORE_ACT = "BEFORE_ACT"
    # warnings
    BANDWIDTH_HALVED = "BANDWIDTH_HALVED"
    LEAF_SWITCH = "LEAF_SWITCH"
    SHARED_NPU = "SHARED_NPU"
    SUBHEALTH_POLICY_EXIT = "SUBHEALTH_POLICY_EXIT"
    NOT_JUDGED = "NOT_JUDGED"
    PEERS_ASSUMED = "PEERS_ASSUMED"
    PORT_DEFAULT_CLASH = "PORT_DEFAULT_CLASH"
    EXPANSION_DEFAULT = "EXPANSION_DEFAULT"
    EXPANSION_WORD_UNKNOWN = "EXPANSION_WORD_UNKNOWN"
    RETRY_L0_IGNORED = "RETRY_L0_IGNORED"
    RDMA_TIMER_INVALID = "RDMA_TIMER_INVALID"


class FaultKind(StrEnum):
    """What happened to a die, in the terms of rail-borrow."""

    RDMA_DOWN = "rdma_down"
    RDMA_FLAP = "rdma_flap"
    HCCS = "hccs"
    LEAF_SWITCH = "leaf_switch"
    CQE_ERROR = "cqe_error"
    OTHER = "other"

    @property
    def on_rail(self) -> bool:
        """The fault lies on the RDMA link of a die."""
        return self not in (FaultKind.HCCS, FaultKind.OTHER)


WHOLE_NODE: Final = -1
"""Device of a fault that lies on no die: a switch port, a part of the node."""


@dataclass(frozen=True, slots=True)
class RailFault:
    """One fault of one die, or of a whole node (device WHOLE_NODE). `ref` is its printed reference, `event` the id of
    its occurrence.
    """

    ref: str
    node: NodeName
    device: int
    kind: FaultKind
    started_at: Millis
    ended_at: Millis | None = None
    event: str = ""

    @property
    def recovered(self) -> bool:
        """It has ended; a recover that is older than the fault itself came late and says nothing."""
        return self.ended_at is not None and self.ended_at >= self.started_at

    @property
    def place(self) -> str:
        """Its die, or its node, in words."""
        return f"node {self.node}" if self.device == WHOLE_NODE else f"device {self.device} of {self.node}"


@dataclass(frozen=True, slots=True)
class Move:
    """One rank's traffic from its own die to the other die of the same NPU."""

    node: NodeName
    device_from: int
    device_to: int
    npu: int
    rank: int
    faulted: bool = False
    """Its own link failed; else it moves because the other end does."""


@dataclass(frozen=True, slots=True)
class RailNote:
    """A warning of a plan: something to know that does not stand in its way."""

    code: RailCode
    detail: str


BANDWIDTH: Final = RailNote(RailCode.BANDWIDTH_HALVED, "two dies share one NIC: half the bandwidth, until repaired")
"""The warning that every borrow carries."""


class Outcome(StrEnum):
    """What a rule said of what it looked at."""

    PASSED = "passed"
    REFUSED = "refused"
    SET_ASIDE = "set_aside"
    """Some faults needed nothing more here; the others went on."""
    NOT_JUDGED = "not_judged"
    """What the rule needs was not given."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One rule that was looked at, in order, with its word."""

    rule: int
    outcome: Outcome
    code: RailCode
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Borrow:
    """Both ends of every link of the failed dies go to the other die: all of these moves, or none."""

    moves: tuple[Move, ...]
    links: tuple[tuple[int, int], ...]
    """Pairs of ranks, the lower one first, whose traffic changes its rail."""
    warnings: tuple[RailNote, ...] = ()
    faults: tuple[str, ...] = ()
    """References of the faults that the plan answers."""
    events: tuple[str, ...] = ()
    """Occurrence ids of those faults."""
    rule: int = 28
    code: RailCode = RailCode.BORROW
    detail: str = ""
    checked: tuple[Checked, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """No borrow, for this reason. Rule 0: no rule says so, but the ledger (LEDGER_FULL) or the age of the fault
    (TOO_OLD, BEFORE_ACT).
    """

    code: RailCode
    rule: int
    detail: str
    checked: tuple[Checked, ...] = ()
    advice: str = ""
    """What to do, where that of the code does not fit the cause."""


@dataclass(frozen=True, slots=True)
class Observe:
    """Too early to say: ask again at `until`, the first millisecond past the threshold."""

    until: Millis
    detail: str
    code: RailCode = RailCode.FLAP
    rule: int = 9
    checked: tuple[Checked, ...] = ()


@dataclass(frozen=True, slots=True)
class Noop:
    """Nothing is to be done, for this reason."""

    code: RailCode
    rule: int
    detail: str
    checked: tuple[Checked, ...] = ()


@dataclass(frozen=True, slots=True)
class Delegate:
    """Another mechanism answers this fault (HCCS: the 1520 switches change the path, HCCL retries)."""

    detail: str
    code: RailCode = RailCode.HCCS_PATH_SWITCH
    rule: int = 6
    checked: tuple[Checked, ...] = ()


Answer: TypeAlias = Borrow | Refuse | Observe | Noop | Delegate

_BACKUPS: Final = "Give the rank table backups before the next start: fault-agent ranktable backup."
_HOSTS: Final = "Give every server of the rank table its host_ip: HCCL retries nothing without it."
_PORTS: Final = "Give the backup a port of its own in the rank table: fault-agent ranktable check names both."
_VISIBLE: Final = "Give both dies of an NPU to one pod, and leave both in ASCEND_RT_VISIBLE_DEVICES."
_PROBE: Final = "no borrow is planned without it."
_ONCE: Final = "One borrow each: reschedule the job, or return the earlier one by hand when its link is repaired."
_NOT_ASKED: Final = "The rules are not asked any more: rail explain shows what they would say of it."
TABLE_WRONG: Final = "Put the rank table right: fault-agent ranktable check tells all that is wrong with it."
"""Advice for a rank table that cannot be used, in the place of that of the code."""
TABLE_UNREAD: Final = (
    "A rank table counts once it is completed and can be read: fault-agent ranktable check tells what is in the way."
)
TABLE_MISSING: Final = (
    "The job needs a completed rank table: ConfigMap rings-config-<job>, key hccl.json; a what-if takes --table."
)
NODE_OF_NONE: Final = "Name a die that a running job holds: pods and their devices are read from the cluster's objects."
PEER_UNKNOWN: Final = "Name peers that are ranks of the job's rank table: fault-agent ranktable show lists them."
_ADVICE: Final = {
    RailCode.UNKNOWN_TARGET: "Name a die that a running job holds and its completed rank table lists.",
    RailCode.TABLES_CONTRADICT: "Find out which rank table the job runs with, and take the other away.",
    RailCode.LEDGER_UNREADABLE: "Restore fault-agent-rails, or delete it if nothing is borrowed.",
    RailCode.UNSUPPORTED_PRODUCT: "Nothing to borrow: only an A3 server has a second NIC on the same NPU.",
    RailCode.NOT_RAIL_FAULT: "Nothing to borrow: fault-agent explain CODE tells what this fault leads to.",
    RailCode.NO_SWITCH_BACK: "Traffic stays on the backup rail: save a checkpoint, check the repair, return by hand.",
    RailCode.HCCS_PATH_SWITCH: "Nothing to borrow: the switches change the path and HCCL retries the operator.",
    RailCode.ENV_INVALID: "Correct the variable before the next start: HCCL does not start with it.",
    RailCode.ENV_UNKNOWN: "State the HCCL variables in the pod spec or the PodGroup's annotation fault-agent/hccl-env.",
    RailCode.RETRY_L2_OFF: "Set HCCL_OP_RETRY_ENABLE to L1:1,L2:1 in every pod before the next start.",
    RailCode.EXPANSION_MODE: "Leave HCCL_OP_EXPANSION_MODE out, or say AI_CPU, before the next start.",
    RailCode.ENV_MISMATCH: "Give every pod of the job the same HCCL variables before the next start.",
    RailCode.COMM_MODE_UNKNOWN: (
        "Annotate the PodGroup with fault-agent/comm-mode: ranktable or rootinfo; a what-if takes --comm-mode."
        " A rank table that names backups says ranktable by itself."
    ),
    RailCode.HOST_IP_MISSING: _HOSTS,
    RailCode.PEER_HOST_IP_MISSING: _HOSTS,
    RailCode.NO_BACKUP_CONFIGURED: _BACKUPS,
    RailCode.PEER_NO_BACKUP_CONFIGURED: _BACKUPS,
    RailCode.BACKUP_NOT_PAIR: _BACKUPS,
    RailCode.PEER_BACKUP_NOT_PAIR: _BACKUPS,
    RailCode.PORT_CLASH: _PORTS,
    RailCode.PEER_PORT_CLASH: _PORTS,
    RailCode.BACKUP_NOT_VISIBLE: _VISIBLE,
    RailCode.PEER_BACKUP_NOT_VISIBLE: _VISIBLE,
    RailCode.BACKUP_IN_USE_FAILED: "Its own rank and the borrowed one are both affected: reschedule the job.",
    RailCode.ALREADY_BORROWED: _ONCE,
    RailCode.PEER_ALREADY_BORROWED: _ONCE,
    RailCode.BACKUP_LINK_DOWN: "Both dies of the NPU are down: reschedule the job away from it.",
    RailCode.BACKUP_LINK_UNKNOWN: f"Probe the link of the pair die; {_PROBE}",
    RailCode.PEER_BACKUP_LINK_UNKNOWN: f"Probe the link of the peer's pair die; {_PROBE}",
    RailCode.CROSS_DIE_TRAFFIC: "Even and odd dies cannot both move: repair the link, or reschedule the job.",
    RailCode.NO_COMMON_RAIL: "No rail is up at both ends: repair one of the links, or reschedule the job.",
    RailCode.HOST_PLANE_DOWN: "Repair the hosts' own network: the ends agree on a retry over it.",
    RailCode.OP_NOT_RETRYABLE: "HCCL ends this operator with an error: be ready to start from a checkpoint.",
    RailCode.RETRY_EXHAUSTED: "Raise MaxCnt of HCCL_OP_RETRY_PARAMS before the next start.",
    RailCode.LEDGER_FULL: "No NPU more is held until a job ends or a borrow is returned by hand.",
    RailCode.TOO_OLD: _NOT_ASKED,
    RailCode.BEFORE_ACT: _NOT_ASKED,
}


def code_advice(code: RailCode) -> str:
    """What a person should do about an answer of this code; empty when there is nothing to do."""
    return _ADVICE.get(code, "")


def advice_for(answer: Answer) -> str:
    """What a person should do about an answer, in a sentence or two; empty when there is nothing to do."""
    if isinstance(answer, Refuse) and answer.advice:
        return answer.advice
    if not isinstance(answer, Borrow):
        return _ADVICE.get(answer.code, "")
    return borrow_advice(note.code for note in answer.warnings)


def borrow_advice(warnings: Iterable[str]) -> str:
    """What a person should do about a borrow with these warnings (their codes)."""
    text = "Save a checkpoint soon, then repair the link. HCCL does not switch back by itself."
    if RailCode.SUBHEALTH_POLICY_EXIT in set(warnings):
        text += " The job's subHealthyStrategy ends it: the borrow buys time only until it is rescheduled."
    return text


def return_advice(plan: str) -> str:
    """What a person should do once the link of a borrow is up again (rule 4)."""
    return (
        f"The link is up again, traffic of plan {plan} stays on the other die: save a checkpoint (a return that fails"
        f" ends the job), check the repair, return by hand, then record it: {RAIL_RETURNED}={plan}."
    )
