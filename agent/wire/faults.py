"""From a well-shaped fault to events: code, devices, node and identity, each checked against its source.

The one rule: what a field may hold depends on the source alone, and a fault is taken whole or refused with BadRecord;
only influences that are another node's are set aside one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from agent.domain.events import FaultEvent, FaultKey, Position
from agent.domain.policy import CODE_SHAPES
from agent.domain.vocab import Assertion, DeadReason, Millis, NodeName, OccurrenceId, Plane, Source
from agent.errors import BadRecord
from agent.wire.envelope import NODE_NAME, Fault, Influence

_PUBLIC: Final = Source.PUBLIC
WHOLE_NODE: Final = frozenset({Source.LINGQU, Source.IPMI})
"""Sources whose faults lie on no device of ours; they carry no deviceIds."""
PER_DEVICE: Final = frozenset({Source.DCMI, Source.HCCN, Source.DPU})
"""Sources whose faults are one event per device."""
_ASSERTIONS: Final = {assertion.value: assertion for assertion in Assertion}
_SEVERITIES: Final = {str(severity): severity for severity in range(4)}
_LOGIC_IDS: Final = {str(device): device for device in range(64)}
_PORTS: Final = {str(ports): ports for ports in range(9)}
_CHIPS: Final = {str(chips): chips for chips in range(1, 65)}
_ESCAPES: Final = str.maketrans({mark: f"%{ord(mark):02X}" for mark in "/@.,:%"})
"""Parts of an identity are told apart by these marks; inside a part they are written as %XX."""


class CodeTable(Protocol):
    """What the border asks of a policy: which table a code is in, how it is spelled, which public ones exist."""

    @property
    def public_resources(self) -> frozenset[str]: ...
    def plane_of(self, source: Source, code: str) -> Plane: ...
    def spell(self, source: Source, code_text: str) -> str: ...
    def public_known(self, code: str) -> bool: ...


@dataclass(slots=True)
class Ground:
    """What all faults of a record share while they are expanded."""

    position: Position
    node: NodeName
    source: Source
    resource: str
    table: CodeTable
    now: Millis
    latest: Millis
    trace: str
    serials: Mapping[str, str]
    index: int = 0
    """Running over all events the message could give, refused ones too, so that ids do not depend on the policy."""


class _Memo:
    """Codes read lately, for the table in use: the same few come again and again."""

    __slots__ = ("codes", "table")

    def __init__(self) -> None:
        self.table: CodeTable | None = None
        self.codes: dict[tuple[Source, str], tuple[str, Plane]] = {}


_memo: Final = _Memo()
_MEMO_SIZE: Final = 4096


def expand(fault: Fault, number: int, ground: Ground) -> tuple[list[FaultEvent], list[tuple[int, str]]]:
    """Events of one fault, and the influences (place, why) that are another node's. Raises BadRecord."""
    place = f"faults[{number}]"
    source = ground.source
    location = fault.get("fault_location") or {}
    if location:
        _check_location(location, place)
    code, plane = _code(fault["fault_code"], place, ground)
    severity = logic_id = None
    if source is not _PUBLIC:
        severity = _known(location, "severity", _SEVERITIES, place)
        logic_id = _known(location, "logicId", _LOGIC_IDS, place)
    ports_down = chips = None
    if location and source in (Source.DCMI, Source.HCCN):
        ports_down = _known(location, "portsDown", _PORTS, place)
        chips = _known(location, "chipCount", _CHIPS, place)
    ours: dict[int, None] = {}
    named = False
    strangers: list[tuple[int, str]] = []
    first, all_devices = ground.index, 0
    for at, influence in enumerate(fault["influence"]):
        listed = _devices(influence, source, place, at)
        why = _stranger(influence, ground, place, at)
        all_devices += len(listed)
        if why:
            strangers.append((at, why))
        else:
            named = True
            ours.update(dict.fromkeys(listed))
    per_device = source in PER_DEVICE
    ground.index = first + (all_devices if per_device else 1)
    if not named:
        return [], strangers
    assertion = _ASSERTIONS[fault["assertion"]]
    at_ms = Millis(fault["fault_time"])
    skewed = at_ms > ground.latest
    if skewed:
        at_ms = ground.now
    targets: list[tuple[str, tuple[int, ...]]]
    if per_device:
        targets = [(str(device), (device,)) for device in ours]
    else:
        targets = [(_where(source, fault["fault_id"], location, ground.resource), tuple(ours))]
    if len(targets) > 1:
        logic_id = None  # one number cannot be the logic id of several devices
    position = str(ground.position)
    events = [
        FaultEvent(
            FaultKey(ground.node, plane, where, code),
            assertion,
            at_ms,
            OccurrenceId(f"{position}:{index}"),
            source,
            ground.resource,
            severity,
            devices,
            logic_id,
            skewed,
            ground.trace,
            ports_down,
            chips,
        )
        for index, (where, devices) in enumerate(targets, first)
    ]
    return events, strangers


def _code(text: str, place: str, ground: Ground) -> tuple[str, Plane]:
    """Spelling and plane of a code. Raises BadRecord CODE_INVALID or CODE_UNKNOWN."""
    if _memo.table is not ground.table or len(_memo.codes) > _MEMO_SIZE:
        _memo.table, _memo.codes = ground.table, {}
    known = _memo.codes.get((ground.source, text))
    if known is None:
        known = _memo.codes[ground.source, text] = _read_code(text, f"{place}.faultCode", ground.source, ground.table)
    return known


def _read_code(text: str, place: str, source: Source, table: CodeTable) -> tuple[str, Plane]:
    shape = CODE_SHAPES[source]
    strange = source is Source.LINGQU and ("/" in text or "@" in text)  # marks of a fault reference
    if strange or shape.pattern.fullmatch(text) is None:
        raise BadRecord(DeadReason.CODE_INVALID, f"{text[:60]!r} is not {shape.expected}", place=place)
    if source in (Source.DCMI, Source.HCCN):
        number = int(text, 16)
        if number == 0:  # device-plugin ignores event id 0
            raise BadRecord(DeadReason.CODE_INVALID, "0 is no code", place=place)
        text = f"{number:X}"  # one identity however it was written; the table's own zeros come back with `spell`
    code = table.spell(source, text)
    if source is _PUBLIC and not table.public_known(code):
        raise BadRecord(DeadReason.CODE_UNKNOWN, f"the public table has no {text[:60]!r}", place=place)
    return code, table.plane_of(source, code)


def _check_location(location: Mapping[str, str], place: str) -> None:
    for key, value in location.items():
        if len(key.encode()) > 16:
            raise BadRecord(
                DeadReason.FIELD_INVALID, f"key {key[:60]!r} is over 16 bytes", place=f"{place}.faultLocation"
            )
        if len(value.encode()) > 128:
            raise BadRecord(DeadReason.FIELD_INVALID, "over 128 bytes", place=f"{place}.faultLocation.{key}")


def _known(location: Mapping[str, str], name: str, values: Mapping[str, int], place: str) -> int | None:
    text = location.get(name)
    if text is None:
        return None
    if text not in values:
        raise BadRecord(
            DeadReason.FIELD_INVALID,
            f"{text[:60]!r} is not {min(values.values())} to {max(values.values())}",
            place=f"{place}.faultLocation.{name}",
        )
    return values[text]


def _devices(influence: Influence, source: Source, place: str, at: int) -> Sequence[int]:
    devices = influence.get("device_ids") or ()
    if source in WHOLE_NODE:
        if devices:
            raise BadRecord(
                DeadReason.FIELD_INVALID, f"{source} faults name no devices", place=f"{place}.influence[{at}].deviceIds"
            )
    elif not devices:
        reason = DeadReason.FIELD_INVALID if "device_ids" in influence else DeadReason.FIELD_MISSING
        raise BadRecord(reason, "1 to 64 physical ids are needed", place=f"{place}.influence[{at}].deviceIds")
    elif len(devices) > 1 and len(set(devices)) != len(devices):
        twice = next(step for step, device in enumerate(devices) if device in devices[:step])
        raise BadRecord(
            DeadReason.DUPLICATE_DEVICE,
            f"{devices[twice]} is listed twice",
            place=f"{place}.influence[{at}].deviceIds[{twice}]",
        )
    return devices


def _stranger(influence: Influence, ground: Ground, place: str, at: int) -> str:
    """Why this influence is not the key's node; empty when it is. Raises BadRecord when it names no node at all."""
    name = influence.get("node_name")
    if name == ground.node:
        return ""
    if name:
        if NODE_NAME.fullmatch(name) is None:
            raise BadRecord(
                DeadReason.FIELD_INVALID, f"{name[:60]!r} is no node name", place=f"{place}.influence[{at}].nodeName"
            )
        return f"{place}.influence[{at}].nodeName: {name} is not the key {ground.node}"
    serial = influence.get("node_sn")
    if not serial:
        raise BadRecord(DeadReason.FIELD_MISSING, "neither nodeName nor nodeSN", place=f"{place}.influence[{at}]")
    own = ground.serials.get(ground.node)
    if own == serial:
        return ""
    why = "is another's" if own else "cannot be compared, the node's serial number is not known"
    return f"{place}.influence[{at}].nodeSN: {serial[:60]!r} {why}"


def _where(source: Source, fault_id: str, location: Mapping[str, str], resource: str) -> str:
    """The middle of the identity: switch chip and port, node part, or the public fault's own id."""
    if source is Source.PUBLIC:
        return f"{resource}:{fault_id}"
    one, two = ("switchChipId", "switchPortId") if source is Source.LINGQU else ("deviceType", "deviceId")
    first, second = location.get(one, ""), location.get(two, "")
    if source is Source.IPMI and not first and not second:
        return "-"
    return f"{first.translate(_ESCAPES) or '-'}.{second.translate(_ESCAPES) or '-'}"
