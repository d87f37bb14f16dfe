"""The border: each reason for a refusal with its field, what is taken beside it, and that no bytes make it raise."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinypolicy import TinyPolicy

from agent.domain.events import Decoded, Position, Record
from agent.domain.vocab import Assertion, DeadReason, Millis, NodeName, Plane, Source
from agent.wire.inbound import Limits, decode

NOW = Millis(1_767_225_600_200)
T = 1_767_225_600_000
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
POLICY = TinyPolicy()


def fault(**other: Any) -> dict[str, Any]:
    base = {
        "faultId": "n1-4-80E18402",
        "faultType": "NPU",
        "faultCode": "80E18402",
        "faultTime": T,
        "assertion": "occur",
        "influence": [{"nodeName": "n1", "deviceIds": [4]}],
    }
    return {key: value for key, value in {**base, **other}.items() if value is not ...}


def message(*faults: Any, **other: Any) -> dict[str, Any]:
    base = {
        "id": "n1-000042",
        "timestamp": T + 123,
        "version": "1.0",
        "resource": "dcmi",
        "faults": list(faults) or [fault()],
    }
    return {key: value for key, value in {**base, **other}.items() if value is not ...}


def read(value: Any, key: bytes | None = b"n1", **other: Any) -> Decoded:
    raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return decode(Record(Position(2, 3, 40), key, raw, other.pop("headers", ())), POLICY, NOW, **other)


def public(**other: Any) -> dict[str, Any]:
    return message(fault(faultCode="220001001", **other), resource="CCAE")


def place(**other: Any) -> dict[str, Any]:
    return message(fault(faultLocation=other))


WHOLE = [
    ("no key", None, message(), DeadReason.KEY_MISSING, "key: "),
    ("empty key", b"", message(), DeadReason.KEY_MISSING, "key: the record has none, so no node"),
    ("no key, no JSON", None, b"{bad", DeadReason.KEY_MISSING, "key: the record has none, so no node; value: "),
    (
        "a line of a file that is no record",
        None,
        b'{"aply":{},"time":5}',
        DeadReason.KEY_MISSING,
        "key: the record has none, so no node; and it is no fault message: it holds 'aply', 'time' (docs/events.md",
    ),
    ("key not UTF-8", b"\xff", message(), DeadReason.KEY_INVALID, "key: not UTF-8 at byte 0"),
    ("key upper case", b"N1", message(), DeadReason.KEY_INVALID, "key: 'N1'"),
    ("key of 254", b"a" * 254, message(), DeadReason.KEY_INVALID, "key: "),
    ("key with newline", b"n1\n", message(), DeadReason.KEY_INVALID, "key: "),
    ("no value", b"n1", None, DeadReason.NOT_JSON, "value: "),
    ("empty value", b"n1", b"", DeadReason.NOT_JSON, "value: "),
    ("value not UTF-8", b"n1", b'{"id":"\xff"}', DeadReason.NOT_UTF8, "value: not UTF-8 at byte 7"),
    ("half an object", b"n1", b'{"id":', DeadReason.NOT_JSON, "value: "),
    ("a list", b"n1", b"[]", DeadReason.NOT_JSON, "value: a list"),
    ("too large", b"n1", b" " * 1_048_577, DeadReason.TOO_LARGE, "value: 1048577 bytes, at most 1048576"),
    ("id missing", b"n1", message(id=...), DeadReason.FIELD_MISSING, "id: "),
    ("id short", b"n1", message(id="1234567"), DeadReason.FIELD_INVALID, "id: "),
    ("id with blank", b"n1", message(id="12345 678"), DeadReason.FIELD_INVALID, "id: "),
    ("timestamp text", b"n1", message(timestamp=str(T)), DeadReason.TIME_INVALID, "timestamp: "),
    ("timestamp seconds", b"n1", message(timestamp=1_767_225_600), DeadReason.TIME_INVALID, "timestamp: "),
    ("timestamp 2024", b"n1", message(timestamp=1_735_689_599_999), DeadReason.TIME_INVALID, "timestamp: "),
    ("timestamp 14 digits", b"n1", message(timestamp=10_000_000_000_000), DeadReason.TIME_INVALID, "timestamp: "),
    ("version 1.1", b"n1", message(version="1.1"), DeadReason.VERSION_UNSUPPORTED, "version: "),
    ("version number", b"n1", message(version=1.0), DeadReason.VERSION_UNSUPPORTED, "version: "),
    ("version missing", b"n1", message(version=...), DeadReason.FIELD_MISSING, "version: "),
    ("resource unknown", b"n1", message(resource="DCMI"), DeadReason.RESOURCE_UNKNOWN, "resource: 'DCMI'"),
    ("faults missing", b"n1", message(faults=...), DeadReason.FIELD_MISSING, "faults: "),
    ("faults empty", b"n1", message(faults=[]), DeadReason.FIELD_INVALID, "faults: "),
    ("101 faults", b"n1", message(*[fault()] * 101), DeadReason.TOO_MANY_FAULTS, "faults: "),
    ("fault no object", b"n1", message("x"), DeadReason.FIELD_INVALID, "faults[0]: "),
    ("fault id missing", b"n1", message(fault(faultId=...)), DeadReason.FIELD_MISSING, "faults[0].faultId: "),
    ("fault type", b"n1", message(fault(faultType="npu")), DeadReason.FIELD_INVALID, "faults[0].faultType: "),
    ("fault time float", b"n1", message(fault(faultTime=T + 0.5)), DeadReason.TIME_INVALID, "faults[0].faultTime: "),
    ("assertion number", b"n1", message(fault(assertion=1)), DeadReason.FIELD_INVALID, "faults[0].assertion: "),
    ("code 10 digits", b"n1", message(fault(faultCode="0123456789")), DeadReason.CODE_INVALID, "faults[0].faultCode: "),
    ("code number", b"n1", message(fault(faultCode=8)), DeadReason.CODE_INVALID, "faults[0].faultCode: "),
    ("code zero", b"n1", message(fault(faultCode="0x0")), DeadReason.CODE_INVALID, "faults[0].faultCode: "),
    (
        "switch code without brackets",
        b"n1",
        message(fault(faultCode="0x08520003,na,L2,na"), resource="lingqu"),
        DeadReason.CODE_INVALID,
        "faults[0].faultCode: ",
    ),
    (
        "node code of 7",
        b"n1",
        message(fault(faultCode="0300000"), resource="ipmi"),
        DeadReason.CODE_INVALID,
        "faults[0].faultCode: ",
    ),
    ("public code of 8", b"n1", message(fault(), resource="CCAE"), DeadReason.CODE_INVALID, "faults[0].faultCode: "),
    (
        "public code unknown",
        b"n1",
        message(fault(faultCode="999999999"), resource="CCAE"),
        DeadReason.CODE_UNKNOWN,
        "faults[0].faultCode: ",
    ),
    ("severity 4", b"n1", place(severity="4"), DeadReason.FIELD_INVALID, "faults[0].faultLocation.severity: '4'"),
    ("severity number", b"n1", place(severity=2), DeadReason.FIELD_INVALID, "faults[0].faultLocation.severity: "),
    (
        "ports 9",
        b"n1",
        place(portsDown="9"),
        DeadReason.FIELD_INVALID,
        "faults[0].faultLocation.portsDown: '9' is not 0",
    ),
    (
        "chips 0",
        b"n1",
        place(chipCount="0"),
        DeadReason.FIELD_INVALID,
        "faults[0].faultLocation.chipCount: '0' is not 1",
    ),
    ("logic id 64", b"n1", place(logicId="64"), DeadReason.FIELD_INVALID, "faults[0].faultLocation.logicId: "),
    ("location key 17 bytes", b"n1", place(**{"k" * 17: ""}), DeadReason.FIELD_INVALID, "faults[0].faultLocation: "),
    ("location value bytes", b"n1", place(k="é" * 65), DeadReason.FIELD_INVALID, "faults[0].faultLocation.k: "),
    (
        "location 11 pairs",
        b"n1",
        place(**{f"k{i}": "" for i in range(11)}),
        DeadReason.FIELD_INVALID,
        "faults[0].faultLocation: ",
    ),
    (
        "description tab",
        b"n1",
        message(fault(description="a\tb")),
        DeadReason.FIELD_INVALID,
        "faults[0].description: ",
    ),
    (
        "description 513",
        b"n1",
        message(fault(description="a" * 513)),
        DeadReason.FIELD_INVALID,
        "faults[0].description: ",
    ),
    ("influence missing", b"n1", message(fault(influence=...)), DeadReason.FIELD_MISSING, "faults[0].influence: "),
    ("influence empty", b"n1", message(fault(influence=[])), DeadReason.FIELD_INVALID, "faults[0].influence: "),
    (
        "1001 influences",
        b"n1",
        message(fault(influence=[{"nodeName": "n1", "deviceIds": [1]}] * 1001)),
        DeadReason.FIELD_INVALID,
        "faults[0].influence: ",
    ),
    (
        "no node in influence",
        b"n1",
        message(fault(influence=[{"deviceIds": [1]}])),
        DeadReason.FIELD_MISSING,
        "faults[0].influence[0]: ",
    ),
    (
        "bad node name",
        b"n1",
        message(fault(influence=[{"nodeName": "N 1", "deviceIds": [1]}])),
        DeadReason.FIELD_INVALID,
        "faults[0].influence[0].nodeName: ",
    ),
    (
        "another node",
        b"n1",
        message(fault(influence=[{"nodeName": "n2", "deviceIds": [1]}])),
        DeadReason.NODE_NOT_KEY,
        "faults[0].influence[0].nodeName: n2 is not the key n1",
    ),
    (
        "serial of nobody known",
        b"n1",
        message(fault(influence=[{"nodeSN": "SN9", "deviceIds": [1]}])),
        DeadReason.NODE_NOT_KEY,
        "faults[0].influence[0].nodeSN: ",
    ),
    (
        "no devices",
        b"n1",
        message(fault(influence=[{"nodeName": "n1"}])),
        DeadReason.FIELD_MISSING,
        "faults[0].influence[0].deviceIds: ",
    ),
    (
        "device 64",
        b"n1",
        message(fault(influence=[{"nodeName": "n1", "deviceIds": [1, 64]}])),
        DeadReason.FIELD_INVALID,
        "faults[0].influence[0].deviceIds[1]: ",
    ),
    (
        "device true",
        b"n1",
        message(fault(influence=[{"nodeName": "n1", "deviceIds": [True]}])),
        DeadReason.FIELD_INVALID,
        "faults[0].influence[0].deviceIds[0]: ",
    ),
    (
        "device twice",
        b"n1",
        message(fault(influence=[{"nodeName": "n1", "deviceIds": [1, 2, 1]}])),
        DeadReason.DUPLICATE_DEVICE,
        "faults[0].influence[0].deviceIds[2]: 1 is listed twice",
    ),
    (
        "devices of a node fault",
        b"n1",
        message(fault(faultCode="0300000D"), resource="ipmi"),
        DeadReason.FIELD_INVALID,
        "faults[0].influence[0].deviceIds: ",
    ),
]


@pytest.mark.parametrize(
    ("key", "value", "reason", "detail"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE]
)
def test_a_bad_record_is_refused_whole_with_its_field(
    key: bytes | None, value: Any, reason: DeadReason, detail: str
) -> None:
    raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    decoded = read(raw, key)
    (refusal,) = decoded.refusals
    assert (refusal.reason, refusal.value, refusal.indexes) == (reason, raw, ())
    assert refusal.detail.startswith(detail)
    assert (decoded.events, decoded.message_id) == ((), "")


def test_a_good_record_gives_the_event_of_its_device() -> None:
    body = place(severity="2", logicId="5", moduleType="8")
    decoded = read({**body, "unknown": {"ignored": 1}}, headers=(("traceparent", TRACE.encode()),))
    (event,) = decoded.events
    assert (decoded.node, decoded.message_id, decoded.refusals) == (NodeName("n1"), "n1-000042", ())
    assert str(event.key) == "n1/chip/4/80E18402"
    assert (event.assertion, event.at, event.occurrence) == (Assertion.OCCUR, T, "2:3:40:0")
    assert (event.source, event.resource, event.severity) == (Source.DCMI, "dcmi", 2)
    assert (event.devices, event.logic_id, event.skewed, event.trace) == ((4,), 5, False, TRACE)


@pytest.mark.parametrize(
    "text", ["80e18402", "0x80E18402", "0X080e18402", "080E18402"], ids=["lower", "0x", "0X and zero", "zero"]
)
def test_a_chip_code_is_the_same_however_it_is_written(text: str) -> None:
    assert read(message(fault(faultCode=text))).events[0].key.code == "80E18402"


def test_what_a5_tells_of_ports_and_chips_is_read_from_device_sources_only() -> None:
    (event,) = read(place(portsDown="2", chipCount="8")).events
    assert (event.ports_down, event.chips) == (2, 8)
    (event,) = read(public(faultLocation={"portsDown": "many", "chipCount": "?"})).events
    assert (event.ports_down, event.chips) == (None, None)


def test_events_of_several_faults_and_devices_are_numbered_over_the_message() -> None:
    both = fault(influence=[{"nodeName": "n1", "deviceIds": [7, 2]}], faultLocation={"logicId": "7"})
    decoded = read(message(both, fault(faultCode="81078603")))
    assert [(str(e.key), e.occurrence, e.logic_id) for e in decoded.events] == [
        ("n1/chip/7/80E18402", "2:3:40:0", None),
        ("n1/chip/2/80E18402", "2:3:40:1", None),
        ("n1/network/4/81078603", "2:3:40:2", None),
    ]


def test_a_bad_fault_among_good_ones_goes_alone_and_keeps_its_place_in_the_numbering() -> None:
    bad = fault(faultCode="nonsense", extra=1)
    worse = fault(assertion="maybe")
    decoded = read(message(fault(), bad, worse, fault(faultCode="80C98000"), note="kept"))
    assert [(e.key.code, e.occurrence) for e in decoded.events] == [("80E18402", "2:3:40:0"), ("80C98000", "2:3:40:3")]
    assert decoded.message_id == "n1-000042"
    codes, fields = decoded.refusals
    assert (codes.reason, codes.indexes) == (DeadReason.CODE_INVALID, (1,))
    assert json.loads(codes.value or b"") == message(bad, note="kept")
    assert (fields.reason, fields.indexes) == (DeadReason.FIELD_INVALID, (2,))
    assert json.loads(fields.value or b"") == message(worse, note="kept")


def test_an_influence_of_another_node_goes_alone() -> None:
    theirs = {"nodeName": "n2", "deviceIds": [1]}
    decoded = read(message(fault(influence=[{"nodeName": "n1", "deviceIds": [4]}, theirs])))
    assert [str(event.key) for event in decoded.events] == ["n1/chip/4/80E18402"]
    (refusal,) = decoded.refusals
    assert (refusal.reason, refusal.indexes) == (DeadReason.NODE_NOT_KEY, (0,))
    assert json.loads(refusal.value or b"") == message(fault(influence=[theirs]))


def test_a_serial_number_alone_is_enough_when_it_is_the_nodes() -> None:
    body = message(fault(influence=[{"nodeSN": "SN1", "nodeName": "", "deviceIds": [4]}]))
    assert read(body, serial_of={NodeName("n1"): "SN1"}).events[0].key.node == "n1"
    assert read(body, serial_of={NodeName("n1"): "SN2"}).refusals[0].reason is DeadReason.NODE_NOT_KEY


def test_a_public_fault_is_one_event_with_all_devices() -> None:
    two = [{"nodeName": "n1", "deviceIds": [4, 5]}, {"nodeName": "n1", "deviceIds": [5, 6]}]
    (event,) = read(public(influence=two, faultLocation={"severity": "high"})).events
    assert str(event.key) == "n1/public/CCAE:n1-4-80E18402/220001001"
    assert (event.devices, event.severity, event.source, event.resource) == ((4, 5, 6), None, Source.PUBLIC, "CCAE")


def test_200001002_is_a_public_code_only_from_a_public_source() -> None:
    assert read(message(fault(faultCode="200001002"))).events[0].key.plane is Plane.CHIP
    assert read(message(fault(faultCode="200001002"), resource="CCAE")).events[0].key.plane is Plane.PUBLIC


@pytest.mark.parametrize(
    ("resource", "code", "location", "where"),
    [
        ("lingqu", "[0x08520003,na,L2,na]", {"switchChipId": "1", "switchPortId": "31"}, "switch/1.31"),
        ("lingqu", "[0x08520003,na,L2,na]", {"switchChipId": "1"}, "switch/1.-"),
        ("ipmi", "0300000D", {"deviceType": "PCIe.A/B", "deviceId": "3"}, "node/PCIe%2EA%2FB.3"),
        ("ipmi", "0300000d", None, "node/-"),
    ],
    ids=["switch port", "switch chip", "node part with marks", "whole node"],
)
def test_switch_and_node_faults_lie_on_no_device(resource: str, code: str, location: Any, where: str) -> None:
    one = fault(faultCode=code, faultLocation=location, influence=[{"nodeName": "n1", "deviceIds": []}])
    (event,) = read(message(one, resource=resource)).events
    assert str(event.key) == f"n1/{where}/{code.upper() if resource == 'ipmi' else code}"
    assert event.devices == ()


@pytest.mark.parametrize(
    ("ahead", "at", "skewed"), [(300_000, NOW + 300_000, False), (300_001, NOW, True)], ids=["at the limit", "beyond"]
)
def test_a_clock_too_far_ahead_is_replaced_by_the_receive_time(ahead: int, at: int, skewed: bool) -> None:
    (event,) = read(message(fault(faultTime=NOW + ahead))).events
    assert (event.at, event.skewed) == (at, skewed)


@pytest.mark.parametrize(
    "header",
    [b"", b"\xff", TRACE.upper().encode(), b"ff" + TRACE[2:].encode(), ("00-" + "0" * 32 + TRACE[35:]).encode()],
    ids=["empty", "bytes", "upper", "version ff", "zero id"],
)
def test_a_bad_traceparent_is_ignored(header: bytes) -> None:
    assert read(message(), headers=(("traceparent", header),)).events[0].trace == ""


def test_sizes_come_from_the_limits() -> None:
    assert read(message(), limits=Limits(max_value_bytes=10)).refusals[0].reason is DeadReason.TOO_LARGE


def test_a_partly_bad_message_nested_too_deep_to_write_again_is_refused_whole() -> None:
    deep = b"[" * 600 + b"]" * 600
    raw = json.dumps(message(fault(), fault(assertion="maybe"))).encode()[:-1] + b',"deep":' + deep + b"}"
    (refusal,) = read(raw).refusals
    assert (refusal.reason, refusal.value, refusal.indexes) == (DeadReason.FIELD_INVALID, raw, ())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["faultId", "faultType", "faultCode", "faultTime", "assertion", "faultLocation", "influence", "description"]


@settings(max_examples=150, deadline=None)
@given(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=60), st.binary(max_size=60))
def test_no_bytes_make_it_raise(key: bytes | None, value: bytes | None, header: bytes) -> None:
    assert read(value, key, headers=(("traceparent", header),)).refusals


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FIELDS), JSON, st.sampled_from(["id", "timestamp", "version", "resource", "faults"]), JSON)
def test_nothing_is_lost_whatever_a_field_holds(inner: str, first: Any, outer: str, second: Any) -> None:
    for body in (message(fault(**{inner: first}), fault()), message(**{outer: second})):
        decoded = read(body)
        assert decoded.events or decoded.refusals
        told = {index for refusal in decoded.refusals for index in refusal.indexes}
        taken = {int(event.occurrence.rpartition(":")[2]) for event in decoded.events}
        assert not decoded.events or not decoded.refusals or told | taken >= {0, 1}
