"""What a level does: to the health of a device, switch or node, to the job on it, and to each document.

The one rule: an effect follows from the level (and whether the device is in use), never from a code's digits.
The tables are MindCluster's own, because its scheduler and its readers act by them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.domain.vocab import Plane
from agent.errors import BadInput

_MILD: Final = frozenset({"NormalNPU", "NotHandleFault", "SubHealthFault"})
_NETWORK_MILD: Final = frozenset({"NormalNPU", "NormalNetwork", "NotHandleFault"})

_RESET_POLICY: Final[Mapping[str, str]] = {
    "NormalNPU": "",
    "NotHandleFault": "",
    "SubHealthFault": "",
    "RestartRequest": "restart_request",
    "RestartBusiness": "restart",
    "FreeRestartNPU": "free_reset",
    "RestartNPU": "reset",
}

_PRE: Final = "while idle"
_SWITCH_STATUS: Final[Mapping[str, str]] = {
    "": "Healthy",
    "NotHandle": "Healthy",
    "SubHealthFault": "SubHealthy",
    "RestartRequest": "UnHealthy",
    "PreSeparate": _PRE,
    "Separate": "UnHealthy",
}
_NODE_STATUS: Final[Mapping[str, str]] = {
    "": "Healthy",
    "NotHandleFault": "Healthy",
    "PreSeparateFault": _PRE,
    "SeparateFault": "UnHealthy",
}


def chip_healthy(level: str, in_use: bool) -> bool:
    """Whether a chip of that worst level stays out of UnhealthyNPU; `in_use`: an active pod has it.

    PreSeparateNPU waits until the chip is idle. FreeRestartNPU would too, but only under a grace tolerance that
    nothing switches on any more (device-plugin ascendcommon.go:1137-1149). A level nobody knows is unhealthy.
    """
    return level in _MILD or (level == "PreSeparateNPU" and in_use)


def network_healthy(level: str) -> bool:
    """Whether the network plane of that worst level stays out of NetworkUnhealthyNPU: here SubHealthFault and
    PreSeparateNPU already count as unhealthy, in use or not (device-plugin ascendcommon.go:1151-1158).
    """
    return level in _NETWORK_MILD


def public_healthy(level: str, in_use: bool = False) -> bool:
    """Whether a public fault of that level leaves its devices healthy: up to SubHealthFault (ClusterD
    pub_fault_processor.go:61-88), and PreSeparateNPU while in use (preseparate_fault_processor.go:62-92).
    """
    return chip_healthy(level, in_use)


def reset_policy(level: str) -> str:
    """The Policy word of reset.json for a chip level: empty, restart_request, restart, free_reset, reset, or isolate
    for everything else, unknown levels included (device-plugin ascendtolerance.go:515-530).
    """
    return _RESET_POLICY.get(level, "isolate")


def switch_status(level: str, in_use: bool) -> str:
    """Healthy, SubHealthy or UnHealthy for a node's worst switch level (empty: no fault). PreSeparate is Healthy while
    any NPU of the node is in use (device-plugin device.go:229-246, ClusterD preseparate_fault_processor.go:94-130).

    Raises BadInput for a level the switch plane does not have.
    """
    return _status(_SWITCH_STATUS, Plane.SWITCH, level, in_use)


def node_status(level: str, in_use: bool) -> str:
    """Healthy or UnHealthy for a node's worst node level (empty: no fault). PreSeparateFault is Healthy while any NPU
    of the node is in use (ClusterD preseparate_fault_processor.go:94-130).

    Raises BadInput for a level the node plane does not have.
    """
    return _status(_NODE_STATUS, Plane.NODE, level, in_use)


def _status(table: Mapping[str, str], plane: Plane, level: str, in_use: bool) -> str:
    if level not in table:
        raise BadInput(f"no level {level!r} on the {plane} plane", hint=f"it has {', '.join(filter(None, table))}")
    status = table[level]
    if status is _PRE:
        return "Healthy" if in_use else "UnHealthy"
    return status


@dataclass(frozen=True, slots=True)
class Effect:
    """What a level does, one plain sentence each: to the device (or node), to the job, and to each document."""

    device: str
    job: str
    fault_node: str
    reset_config: str
    reschedule_reason: str
    rail_plan: str


_NO_ENTRY: Final = "no entry"
_RAIL: Final[Mapping[Plane, str]] = {
    Plane.CHIP: "not considered: only a link fault is",
    Plane.NETWORK: "a link down (81078603) is judged for a borrow, whatever its level; other network codes are not",
    Plane.SWITCH: "delegated: a super-pod switch is the HCCS plane, no rail to borrow on",
    Plane.NODE: "not considered: only a link fault is",
    Plane.PUBLIC: "not considered: only a link fault is",
    Plane.DPU: "not considered: only a link fault is",
}
_NO_RECORD: Final = "no record"
_NOT_A_CHIP: Final = "no entry: not a fault of a chip"
_SUB_HEALTHY_JOB: Final = "none with subHealthyStrategy ignore (the default); graceExit, forceExit, hotSwitch act"
_SUB_HEALTHY_RECORD: Final = "SubHealthFault, if the strategy had the job's pods replaced"
_EVICTED: Final = "rescheduled when fault-scheduling is grace or force; free of fault-retry-times"
_IN_PLACE: Final = "recovery with policy {}, if the job allows recovery in place"
_RESET_ENTRY: Final[Mapping[str, str]] = {
    "restart_request": _IN_PLACE.format("restart_request"),
    "restart": _IN_PLACE.format("restart"),
    "free_reset": "no entry: the chip is reset once it is free, not under the job",
    "reset": _IN_PLACE.format("reset") + " and there is a reset executor",
    "isolate": "no entry: isolation only; a recovery that runs for the job is marked failed",
}
_NODE_SHAPES: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "NotHandle": ("none; the node stays Healthy", "none", _NO_ENTRY, _NO_RECORD),
    "NotHandleFault": ("none; the node stays Healthy", "none", _NO_ENTRY, _NO_RECORD),
    "SubHealthFault": ("node SubHealthy", _SUB_HEALTHY_JOB, _NO_ENTRY, _SUB_HEALTHY_RECORD),
    "PreSeparate": (
        "node Healthy while any of its NPUs is in use, UnHealthy once all are idle",
        "runs on; once all are idle no new job is placed there",
        "node listed NodeUnhealthy once its NPUs are idle",
        _NO_RECORD,
    ),
    "UnHealthy": ("node UnHealthy", _EVICTED, "node listed NodeUnhealthy", "NodeUnhealthy, once pods were replaced"),
}


def describe(plane: Plane, level: str) -> Effect:
    """What a fault of that level does, in words for `explain`. Unknown levels read as the strongest of their plane."""
    rail = _RAIL[plane]
    match plane:
        case Plane.SWITCH | Plane.NODE:
            shape = "PreSeparate" if level == "PreSeparateFault" else level
            device, job, listed, record = _NODE_SHAPES.get(shape, _NODE_SHAPES["UnHealthy"])
            return Effect(device, job, listed, _NOT_A_CHIP, record, rail)
        case Plane.DPU:
            device = "DPU sub-healthy" if level == "SubHealthFault" else "DPU to be separated"
            return Effect(f"{device}; its NPUs stay healthy", "none", _NO_ENTRY, _NOT_A_CHIP, _NO_RECORD, rail)
        case Plane.NETWORK:
            return _network(level, rail)
        case Plane.CHIP | Plane.PUBLIC:
            return _chip(level, rail)


def _network(level: str, rail: str) -> Effect:
    reset = "no entry: a network fault never asks for a reset"
    if network_healthy(level):
        return Effect("none; the chip's network stays healthy", "none", _NO_ENTRY, reset, _NO_RECORD, rail)
    return Effect(
        "network of the chip unhealthy; the chip itself is not",
        "runs on: an unhealthy network alone has no job rescheduled",
        "listed in NetworkUnhealthyNPU, element CardNetworkUnhealthy",
        reset,
        _NO_RECORD,
        rail,
    )


def _chip(level: str, rail: str) -> Effect:
    if level == "SubHealthFault":
        device = "chip stays healthy, sub-health shown"
        return Effect(device, _SUB_HEALTHY_JOB, _NO_ENTRY, _NO_ENTRY, _SUB_HEALTHY_RECORD, rail)
    if chip_healthy(level, in_use=False):
        return Effect("none; the chip stays healthy", "none", _NO_ENTRY, _NO_ENTRY, _NO_RECORD, rail)
    if level == "PreSeparateNPU":
        device = "chip healthy while in use, unhealthy once idle"
        listed = "listed in UnhealthyNPU once idle; no entry while in use"
        return Effect(device, "runs on; once idle the chip takes no new job", listed, _NO_ENTRY, _NO_RECORD, rail)
    entry = _RESET_ENTRY[reset_policy(level)]
    record = "CardUnhealthy, once pods were replaced"
    return Effect("chip unhealthy", _EVICTED, "listed in UnhealthyNPU", entry, record, rail)
