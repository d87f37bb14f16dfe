"""The book of `fault-node`: which nodes are faulty, with which devices, told from one node's faults.

The one rule: a healthy node is not listed, and UpdateTime moves only when something else of the entry does.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from agent.domain.vocab import CHIP_LEVELS, SECOND, Millis, NodeName, Plane


class HealthState(StrEnum):
    """NodeHealthState (volcano rescheduling type.go:104); a node is listed with one of the last three."""

    HEALTHY = "Healthy"
    NODE_UNHEALTHY = "NodeUnhealthy"
    CARD_UNHEALTHY = "CardUnhealthy"
    CARD_NETWORK_UNHEALTHY = "CardNetworkUnhealthy"


LOSS: Final[Mapping[str, int]] = {
    HealthState.CARD_NETWORK_UNHEALTHY: 1,
    HealthState.CARD_UNHEALTHY: 2,
    HealthState.NODE_UNHEALTHY: 3,
}
"""Which state outranks which."""

FAULT_TYPES: Final[Mapping[Plane, str]] = {
    Plane.CHIP: "CardUnhealthy",
    Plane.NETWORK: "CardNetworkUnhealthy",
    Plane.PUBLIC: "PublicFault",
}
"""fault_type of a device element, in the order the elements of one device are listed."""

_TYPE_ORDER: Final = {plane: place for place, plane in enumerate(FAULT_TYPES)}


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """One active fault on one device (physical id). A held fault is not given here: it goes into no document."""

    device: int
    plane: Plane
    """CHIP, NETWORK or PUBLIC."""
    code: str
    """Hex in the table's spelling; empty for a manual separation."""
    level: str
    """A level of CHIP_LEVELS."""
    healthy: bool
    """The device stays available under this fault, as judged with level and use."""


@dataclass(frozen=True, slots=True)
class NodeFaults:
    """All that `fault-node` says of one node comes from this."""

    node: NodeName
    devices: tuple[DeviceFault, ...] = ()
    switch_healthy: bool = True
    node_healthy: bool = True
    vanished: bool = False
    """The Node object is gone while a job still counts on it."""
    prefix: str = "Ascend910"
    """Device names are `<prefix>-<physical id>`; `npu` on A5."""
    node_d_enabled: bool = False
    """NodeD's own object for the node is known."""


@dataclass(frozen=True, slots=True)
class FaultDevice:
    """An element of FaultDeviceList: one device and one kind of fault, the strongest level, all codes."""

    fault_type: str
    npu_name: str
    level: str
    fault_code: str
    """Upper-case hex, ascending, joined by commas."""
    differing: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of another writer: the level fields that differ from `level`, as read; ours never do."""
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Keys nobody here knows, kept as read."""


@dataclass(frozen=True, slots=True)
class FaultNodeEntry:
    """An element of `fault-node`. `update_time` in Unix seconds; 0 until `with_update_time`."""

    node: NodeName
    health: str
    devices: tuple[FaultDevice, ...] | None = ()
    """None is `null`, read from another writer; ours are never null."""
    unhealthy: tuple[str, ...] | None = None
    """Device names by physical id; None is `null` and means none."""
    network_unhealthy: tuple[str, ...] | None = None
    node_d_enabled: bool = False
    update_time: int = 0
    bare: bool = False
    """Name and state alone are told, the other keys are left out: there is no room for them."""
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Keys nobody here knows, kept as read."""


def fault_node(faults: NodeFaults) -> FaultNodeEntry | None:
    """The node's entry, or None while it is healthy (volcano rescheduling cache.go:128, node.go:168).

    Listed when the node, its switch or a card is unhealthy; then every device fault is told, mild ones too. A node
    fault outranks cards in the state, cards outrank the network plane. Public faults count for the card.
    """
    card = {fault.device for fault in faults.devices if not fault.healthy and fault.plane is not Plane.NETWORK}
    network = {fault.device for fault in faults.devices if not fault.healthy and fault.plane is Plane.NETWORK}
    if not faults.node_healthy or not faults.switch_healthy or faults.vanished:
        health = HealthState.NODE_UNHEALTHY
    elif card:
        health = HealthState.CARD_UNHEALTHY
    elif network:
        health = HealthState.CARD_NETWORK_UNHEALTHY
    else:
        return None
    return FaultNodeEntry(
        node=faults.node,
        health=health,
        devices=_devices(faults),
        unhealthy=_names(faults.prefix, card),
        network_unhealthy=_names(faults.prefix, network),
        node_d_enabled=faults.node_d_enabled,
    )


def at_least(previous: FaultNodeEntry | None, entry: FaultNodeEntry | None) -> FaultNodeEntry | None:
    """The entry with all that `previous` says too: each device's worst level and all its codes, the worst state."""
    if previous is None or entry is None:
        return entry or previous
    devices: dict[tuple[str, str], FaultDevice] = {}
    for one in (*(previous.devices or ()), *(entry.devices or ())):
        known = devices.get((one.npu_name, one.fault_type))
        devices[one.npu_name, one.fault_type] = one if known is None else _worse(known, one)
    return replace(
        entry,
        health=max(previous.health, entry.health, key=lambda state: LOSS.get(state, 0)),
        devices=tuple(devices[key] for key in sorted(devices, key=_by_device)),
        unhealthy=_all(previous.unhealthy, entry.unhealthy),
        network_unhealthy=_all(previous.network_unhealthy, entry.network_unhealthy),
    )


def _worse(known: FaultDevice, one: FaultDevice) -> FaultDevice:
    level = max(known.level, one.level, key=lambda level: CHIP_LEVELS.get(level, -1))
    codes = _ascending((*known.fault_code.split(","), *one.fault_code.split(",")))
    return replace(one, level=level, fault_code=",".join(codes))


def _by_device(key: tuple[str, str]) -> tuple[int, str, int]:
    name, fault_type = key
    number = name.rpartition("-")[2]
    types = list(FAULT_TYPES.values())
    place = types.index(fault_type) if fault_type in types else len(types)
    return int(number) if number.isdecimal() else 0, name, place


def _all(*several: tuple[str, ...] | None) -> tuple[str, ...] | None:
    names = {name for some in several for name in some or ()}
    return tuple(sorted(names, key=lambda name: _by_device((name, "")))) or None


def has_keys_of_others(entry: FaultNodeEntry) -> bool:
    """Whether the entry or one of its devices has keys that nobody here knows, or level fields that disagree."""
    return bool(entry.extra) or any(device.extra or device.differing for device in entry.devices or ())


def with_keys_of_others(entry: FaultNodeEntry, live: FaultNodeEntry | None) -> FaultNodeEntry:
    """The entry with the unknown keys that the live element has, for the node and for each of its devices."""
    known = {} if live is None else {(one.npu_name, one.fault_type): one.extra for one in live.devices or ()}
    devices = tuple(replace(one, extra=known.get((one.npu_name, one.fault_type), {})) for one in entry.devices or ())
    extra = {} if live is None else live.extra
    return replace(entry, extra=extra, devices=None if entry.devices is None else devices)


def same_but_time(one: FaultNodeEntry, other: FaultNodeEntry) -> bool:
    """Whether two entries say the same, their UpdateTime aside."""
    return one == (other if other.update_time == one.update_time else replace(other, update_time=one.update_time))


def with_update_time(previous: FaultNodeEntry | None, entry: FaultNodeEntry, now: Millis) -> FaultNodeEntry:
    """The entry with its UpdateTime: that of `previous` while nothing else differs, else `now` (ms) in seconds."""
    if previous is not None and same_but_time(previous, entry):
        return previous
    return replace(entry, update_time=now // SECOND)


def _devices(faults: NodeFaults) -> tuple[FaultDevice, ...]:
    groups: dict[tuple[int, int], list[DeviceFault]] = {}
    for fault in faults.devices:
        groups.setdefault((fault.device, _TYPE_ORDER[fault.plane]), []).append(fault)
    return tuple(_device(faults.prefix, groups[key]) for key in sorted(groups))


def _device(prefix: str, group: list[DeviceFault]) -> FaultDevice:
    return FaultDevice(
        fault_type=FAULT_TYPES[group[0].plane],
        npu_name=f"{prefix}-{group[0].device}",
        level=max((fault.level for fault in group), key=CHIP_LEVELS.__getitem__),
        fault_code=",".join(_ascending(fault.code for fault in group)),
    )


def _ascending(codes: Iterable[str]) -> list[str]:
    return sorted({code for code in codes if code}, key=_place)


def _place(code: str) -> tuple[bool, int, str]:
    """Codes by value; those of a customised public table need not be hex and come last."""
    try:
        return False, int(code, 16), code
    except ValueError:
        return True, 0, code


def _names(prefix: str, devices: set[int]) -> tuple[str, ...] | None:
    return tuple(f"{prefix}-{device}" for device in sorted(devices)) or None
