"""The border of the event stream: bytes of one record in, valid events and named refusals out.

The one rule: nothing that comes in raises. What is wrong is refused with its field and why, fault by fault; what is
right beside it goes on. The key is the authority on the node. Rules: the envelope of ClusterD's public faults
(publicfault/checker.go) with our extensions for device sources.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic import ValidationError

from agent.domain.events import Decoded, FaultEvent, Record, Refusal
from agent.domain.vocab import MINUTE, DeadReason, Millis, NodeName, Source
from agent.errors import BadRecord
from agent.wire.envelope import ENVELOPE, FAULT, MESSAGE, NODE_NAME, Envelope, Fault, Message, explain
from agent.wire.faults import CodeTable, Ground, expand


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in ms."""

    max_value_bytes: int = 1024 * 1024
    max_clock_skew: Millis = Millis(5 * MINUTE)


DEFAULT_LIMITS: Final = Limits()
_SERIALS: Final[Mapping[str, str]] = {}
_TRACE: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_SOURCES: Final[Mapping[str, Source]] = {one.value: one for one in Source if one is not Source.PUBLIC}
_SAID: Final = 3
"""Problems told in one dead letter; the value beside it holds them all."""

_Refused = tuple[int, BadRecord, Any]
"""Place in the message, why, and what of the fault goes to the dead letters."""


def decode(
    record: Record,
    table: CodeTable,
    now: Millis,
    limits: Limits = DEFAULT_LIMITS,
    serial_of: Mapping[str, str] = _SERIALS,
) -> Decoded:
    """Check one record and expand it: one event per device, or per node for switch, node and public faults.

    `now` (ms) is the receive time, used for a sender whose clock is too far ahead. `serial_of`: node name -> product
    serial number, for influences that name only a nodeSN. A record refused whole keeps `message_id` empty, so that
    the same id can come again when it is right. Never raises on any bytes.
    """
    node: NodeName | None = None
    try:
        if not record.key:
            raise _without_key(record.value, limits)
        node = _node_of(record.key)
        raw = _object_of(record.value, limits)
        message, faults = _read(raw)
        ground = _ground(record, node, message["resource"], table, now, limits, serial_of)
    except BadRecord as bad:
        return _whole(record, node, bad.code, str(bad))
    events: list[FaultEvent] = []
    refused: list[_Refused] = []
    for number, fault in enumerate(faults):
        first = ground.index
        try:
            if isinstance(fault, BadRecord):
                raise fault
            more, strangers = expand(fault, number, ground)
        except BadRecord as bad:
            ground.index = first + 1
            refused.append((number, bad, raw["faults"][number]))
            continue
        events += more
        if strangers:
            original = raw["faults"][number]
            theirs = {**original, "influence": [original["influence"][at] for at, _ in strangers]}
            refused.append((number, BadRecord(DeadReason.NODE_NOT_KEY, _told([why for _, why in strangers])), theirs))
    if not refused:
        return Decoded(record.position, node, message["id"], tuple(events))
    if not events:
        return _whole(record, node, refused[0][1].code, _told([str(bad) for _, bad, _ in refused]))
    try:
        return Decoded(record.position, node, message["id"], tuple(events), _partly(raw, refused))
    except orjson.JSONEncodeError:
        return _whole(record, node, DeadReason.FIELD_INVALID, f"{refused[0][1]}; nested too deep to be taken apart")


def _whole(record: Record, node: NodeName | None, code: str, detail: str) -> Decoded:
    return Decoded(record.position, node, "", (), (Refusal(DeadReason(code), detail, record.value),))


def _told(problems: Sequence[str]) -> str:
    more = len(problems) - _SAID
    return "; ".join(problems[:_SAID]) + (f"; and {more} more" if more > 0 else "")


def _without_key(value: bytes | None, limits: Limits) -> BadRecord:
    """A line of a file that is no record comes without key too, and then the key is not what is to be mended."""
    said = "the record has none, so no node"
    try:
        raw = _object_of(value, limits)
    except BadRecord as bad:
        said += f"; {bad}"
    else:
        if "faults" not in raw:
            held = ", ".join(f"{name[:20]!r}" for name in list(raw)[:_SAID]) or "nothing"
            said += f"; and it is no fault message: it holds {held} (docs/events.md tells what a line of a file may be)"
    return BadRecord(DeadReason.KEY_MISSING, said, place="key")


def _node_of(key: bytes) -> NodeName:
    try:
        name = key.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(DeadReason.KEY_INVALID, f"not UTF-8 at byte {error.start}", place="key") from None
    if NODE_NAME.fullmatch(name) is None:
        raise BadRecord(DeadReason.KEY_INVALID, f"{name[:60]!r} is no node name", place="key")
    return NodeName(name)


def _object_of(value: bytes | None, limits: Limits) -> dict[str, Any]:
    if value is None:
        raise BadRecord(DeadReason.NOT_JSON, "the record has none", place="value")
    if len(value) > limits.max_value_bytes:
        raise BadRecord(DeadReason.TOO_LARGE, f"{len(value)} bytes, at most {limits.max_value_bytes}", place="value")
    try:
        raw = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        try:
            value.decode()
        except UnicodeDecodeError as bad:
            raise BadRecord(DeadReason.NOT_UTF8, f"not UTF-8 at byte {bad.start}", place="value") from None
        raise BadRecord(DeadReason.NOT_JSON, f"{error}", place="value") from None
    if not isinstance(raw, dict):
        raise BadRecord(DeadReason.NOT_JSON, f"a {type(raw).__name__}, not an object", place="value")
    return raw


def _read(raw: dict[str, Any]) -> tuple[Message | Envelope, Sequence[Fault | BadRecord]]:
    """The message in one pass; if anything is wrong in it, the envelope and then each fault by itself."""
    try:
        message: Message = MESSAGE.validator.validate_python(raw)
    except ValidationError:
        pass
    else:
        return message, message["faults"]
    try:
        envelope = ENVELOPE.validate_python(raw)
    except ValidationError as error:
        raise BadRecord(*explain(error)) from None
    return envelope, [_read_fault(fault, number) for number, fault in enumerate(envelope["faults"])]


def _read_fault(fault: Any, number: int) -> Fault | BadRecord:
    try:
        return FAULT.validate_python(fault)
    except ValidationError as error:
        return BadRecord(*explain(error, ("faults", number)))


def _ground(
    record: Record,
    node: NodeName,
    resource: str,
    table: CodeTable,
    now: Millis,
    limits: Limits,
    serials: Mapping[str, str],
) -> Ground:
    source = _SOURCES.get(resource)
    if source is None:
        if resource not in table.public_resources:
            raise BadRecord(
                DeadReason.RESOURCE_UNKNOWN, f"{resource[:60]!r} is neither a device source nor known", place="resource"
            )
        source = Source.PUBLIC
    trace = ""
    for name, value in record.headers:
        if name == "traceparent":
            text = value.decode("ascii", "replace")
            trace = text if _TRACE.fullmatch(text) else ""
    latest = Millis(now + limits.max_clock_skew)
    return Ground(record.position, node, source, resource, table, now, latest, trace, serials)


def _partly(raw: dict[str, Any], refused: Sequence[_Refused]) -> tuple[Refusal, ...]:
    """One dead letter per reason: the same envelope, only the bad faults in it."""
    by_reason: dict[str, list[_Refused]] = {}
    for one in refused:
        by_reason.setdefault(one[1].code, []).append(one)
    return tuple(
        Refusal(
            DeadReason(code),
            _told([str(bad) for _, bad, _ in several]),
            orjson.dumps({**raw, "faults": [fault for _, _, fault in several]}),
            tuple(number for number, _, _ in several),
        )
        for code, several in by_reason.items()
    )
