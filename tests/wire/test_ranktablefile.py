"""Rank-table files: what is read, what is refused by name, and what is found wrong with a table that was read."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from a3table import A3_TABLE, a3_document
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.ranktable import RankDevice, RankTable, Server
from agent.errors import BadDocument
from agent.wire.ranktablecheck import Finding, ambiguity, validate
from agent.wire.ranktablefile import parse_rank_table

OPERATOR_10 = """{"status":"completed","server_list":[{"device":[
{"device_id":"0","device_ip":"192.168.101.4","rank_id":"0"},
{"device_id":"1","device_ip":"192.168.102.4","rank_id":"1"}],
"server_id":"6c0d-uid","host_ip":"10.0.0.1","container_ip":"192.168.149.7","hardware_type":"800I-A2-32G"}],
"server_count":"1","version":"1.0"}"""

OPERATOR_12 = """{"status":"completed","server_list":[{"device":[
{"device_id":"0","device_ip":"10.1.0.4","super_device_id":"37748736","rank_id":"0"},
{"device_id":"7","device_ip":"10.1.0.5","super_device_id":"38600711","rank_id":"1"}],
"server_id":"uid-1","host_ip":"10.0.0.1","container_ip":"192.168.149.7","hardware_type":"800I-A3-64G"}],
"server_count":"1","version":"1.2","super_pod_list":[{"super_pod_id":"0","server_list":[{"server_id":"uid-1"}]}]}"""


def refused(text: bytes | str) -> tuple[str, str, str]:
    with pytest.raises(BadDocument) as caught:
        parse_rank_table(text)
    return caught.value.reason.split(":")[0], caught.value.place, caught.value.hint


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    document = a3_document()
    change(document)
    return orjson.dumps(document).decode()


def test_the_documented_table_of_two_super_pods_is_read() -> None:
    table = parse_rank_table(A3_TABLE)
    assert (table.status, table.version, table.server_count) == ("completed", "1.2", 4)
    assert [server.server_id for server in table.servers] == ["node_0", "node_1", "node_2", "node_3"]
    assert table.servers[0].devices[2] == RankDevice(
        device_id=2,
        rank_id=2,
        device_ip="192.168.1.8",
        device_port=16668,
        backup_device_ip="192.168.1.9",
        backup_device_port=16670,
        host_port=16667,
        super_device_id="2",
    )
    assert [(pod.super_pod_id, pod.server_ids) for pod in table.super_pods] == [
        ("0", ("node_0", "node_1")),
        ("1", ("node_2", "node_3")),
    ]
    assert parse_rank_table(A3_TABLE.encode()) == table


def test_a_10_table_of_the_operator_is_read() -> None:
    table = parse_rank_table(OPERATOR_10)
    assert table.servers == (
        Server(
            "6c0d-uid",
            "10.0.0.1",
            "192.168.149.7",
            (RankDevice(0, 0, "192.168.101.4"), RankDevice(1, 1, "192.168.102.4")),
            "800I-A2-32G",
        ),
    )
    assert (table.effective_mode(), table.hardware_type, table.has_backup) == ("ai_server", "800I-A2-32G", False)


def test_a_12_table_of_the_operator_is_read() -> None:
    table = parse_rank_table(OPERATOR_12)
    assert (table.effective_mode(), table.hardware_type, table.rank_of("uid-1", 7)) == ("super_pod", "800I-A3-64G", 1)
    assert tuple(validate(table)) == ()


def test_a_20_table_has_no_servers_and_may_leave_out_its_status() -> None:
    assert parse_rank_table('{"version":"2.0","rank_count":1,"rank_list":[]}') == RankTable("completed", "2.0")
    assert refused('{"version":"2.0","status":"initializing"}')[0] == "STATUS_NOT_READY"
    assert tuple(validate(RankTable("completed", "2.0"))) == ()


def test_a_table_that_is_being_made_is_never_trusted() -> None:
    old = changed(lambda d: d.update(status="initializing"))
    assert refused(old)[:2] == ("STATUS_NOT_READY", "/status")
    assert refused(changed(lambda d: d.pop("status")))[:2] == ("STATUS_NOT_READY", "/status")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('{\n"status": "completed", // usable\n"version": "1.2"}', "comments are not JSON: remove them"),
        ('{"status": "completed" /* usable */}', "comments are not JSON: remove them"),
        ('\ufeff{"status": "completed"}', "the file starts with a byte order mark; save it as UTF-8 without one"),
        ('{"server_list": [{"server_id": "a"},]}', "no comma before a closing bracket"),
        ('{"server_list": [] "server_count": "1"}', ""),
        ("", ""),
        (b"\xff\xfe{}", ""),
        ("[" * 5000, ""),
        ('{"status": "\ud800"}', ""),
    ],
    ids=[
        "line comment",
        "block comment",
        "BOM",
        "trailing comma",
        "missing comma",
        "empty",
        "no UTF-8",
        "deep",
        "surrogate",
    ],
)
def test_what_is_not_json_says_so_and_why_it_may_be(text: bytes | str, hint: str) -> None:
    assert refused(text) == ("JSON_INVALID", "/", hint)


@pytest.mark.parametrize(
    ("change", "code", "place"),
    [
        (lambda d: d.update(version="3.0"), "VERSION_UNSUPPORTED", "/version"),
        (lambda d: d.pop("version"), "VERSION_UNSUPPORTED", "/version"),
        (lambda d: d.update(version=1.2), "TYPE_NOT_STRING", "/version"),
        (lambda d: d.update(server_count=4), "TYPE_NOT_STRING", "/server_count"),
        (lambda d: d.update(server_count="four"), "NUMBER_INVALID", "/server_count"),
        (lambda d: d.pop("server_list"), "FIELD_MISSING", "/server_list"),
        (lambda d: d.update(server_list=[]), "FIELD_MISSING", "/server_list"),
        (lambda d: d.update(server_list={}), "FIELD_MISSING", "/server_list"),
        (lambda d: d.update(server_list=["a"]), "FIELD_MISSING", "/server_list/0"),
        (lambda d: d["server_list"][1].pop("server_id"), "FIELD_MISSING", "/server_list/1/server_id"),
        (lambda d: d["server_list"][1].update(device=[]), "FIELD_MISSING", "/server_list/1/device"),
        (lambda d: d["server_list"][1].update(host_ip=1), "TYPE_NOT_STRING", "/server_list/1/host_ip"),
        (lambda d: dev(d).update(rank_id=0), "TYPE_NOT_STRING", "/server_list/0/device/0/rank_id"),
        (lambda d: dev(d).pop("rank_id"), "FIELD_MISSING", "/server_list/0/device/0/rank_id"),
        (lambda d: dev(d).update(device_id="-1"), "NUMBER_INVALID", "/server_list/0/device/0/device_id"),
        (lambda d: dev(d).update(device_id="٣"), "NUMBER_INVALID", "/server_list/0/device/0/device_id"),
        (lambda d: dev(d).update(device_port="9" * 5000), "NUMBER_INVALID", "/server_list/0/device/0/device_port"),
        (lambda d: d.update(super_pod_list={}), "FIELD_MISSING", "/super_pod_list"),
        (lambda d: d["super_pod_list"][0].pop("super_pod_id"), "FIELD_MISSING", "/super_pod_list/0/super_pod_id"),
        (
            lambda d: d["super_pod_list"][0]["server_list"][1].update(server_id=True),
            "TYPE_NOT_STRING",
            "/super_pod_list/0/server_list/1/server_id",
        ),
    ],
)
def test_a_field_that_cannot_be_read_is_named(
    change: Callable[[dict[str, Any]], object], code: str, place: str
) -> None:
    assert refused(changed(change))[:2] == (code, place)


def test_a_file_that_is_no_object_is_refused() -> None:
    assert refused("[]")[0] == "JSON_INVALID"
    assert refused("null")[0] == "JSON_INVALID"


def dev(document: dict[str, Any], server: int = 0, index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = document["server_list"][server]["device"][index]
    return found


def swap(document: dict[str, Any], one: int, two: int) -> None:
    servers = document["server_list"]
    servers[one], servers[two] = servers[two], servers[one]


def swap_ranks(document: dict[str, Any], one: int, two: int) -> None:
    servers = document["server_list"]
    for mine, theirs in zip(servers[one]["device"], servers[two]["device"], strict=True):
        mine["rank_id"], theirs["rank_id"] = theirs["rank_id"], mine["rank_id"]


def test_the_documented_table_has_nothing_wrong() -> None:
    assert tuple(validate(parse_rank_table(A3_TABLE))) == ()


FINDINGS: list[tuple[str, Callable[[dict[str, Any]], object], list[tuple[str, str, str]]]] = [
    ("count", lambda d: d.update(server_count="3"), [("SERVER_COUNT_MISMATCH", "/server_count", "error")]),
    ("count absent", lambda d: d.pop("server_count"), []),
    (
        "no super-pods",
        lambda d: d.pop("super_pod_list"),
        [("MODE_AI_SERVER", "/super_pod_list", "warning")],
    ),
    (
        "long id",
        lambda d: (
            d["server_list"][3].update(server_id="x" * 65),
            d["super_pod_list"][1]["server_list"][1].update(server_id="x" * 65),
        ),
        [("SERVER_ID_LEN", "/server_list/3/server_id", "error")],
    ),
    (
        "one id twice",
        lambda d: (
            d["server_list"][1].update(server_id="node_0"),
            d["super_pod_list"][0]["server_list"].pop(),
            [item.pop("host_port") for item in d["server_list"][1]["device"]],
            [item.pop("backup_device_ip") for n in (0, 1) for item in d["server_list"][n]["device"]],
            [item.update(super_device_id=f"9{item['device_id']}") for item in d["server_list"][1]["device"]],
        ),
        [
            ("SERVER_ID_DUP", "/server_list/1/server_id", "error"),
            ("DEVICE_ID_DUP", "/server_list/1/device/0/device_id", "error"),
            ("DEVICE_ID_DUP", "/server_list/1/device/1/device_id", "error"),
            ("DEVICE_ID_DUP", "/server_list/1/device/2/device_id", "error"),
            ("DEVICE_ID_DUP", "/server_list/1/device/3/device_id", "error"),
        ],
    ),
    (
        "host_ip",
        lambda d: d["server_list"][0].update(host_ip="fe80::1"),
        [("HOST_IP_INVALID", "/server_list/0/host_ip", "error")],
    ),
    (
        "device_ip unreadable",
        lambda d: dev(d).update(device_ip="-1"),
        [
            ("DEVICE_IP_INVALID", "/server_list/0/device/0/device_ip", "error"),
            ("BACKUP_NOT_PAIR", "/server_list/0/device/1/backup_device_ip", "warning"),
        ],
    ),
    (
        "device_ip absent between super-pods",
        lambda d: dev(d).pop("device_ip"),
        [
            ("DEVICE_IP_REQUIRED", "/server_list/0/device/0/device_ip", "error"),
            ("BACKUP_NOT_PAIR", "/server_list/0/device/1/backup_device_ip", "warning"),
        ],
    ),
    (
        "device_ip twice",
        lambda d: dev(d, 1, 0).update(device_ip="192.168.2.6,192.168.1.6"),
        [
            ("DEVICE_IP_INVALID", "/server_list/1/device/0/device_ip", "error"),
            ("DEVICE_IP_DUP", "/server_list/1/device/0/device_ip", "error"),
        ],
    ),
    (
        "port 0",
        lambda d: dev(d).update(device_port="0"),
        [("PORT_RANGE", "/server_list/0/device/0/device_port", "error")],
    ),
    (
        "port 65536",
        lambda d: dev(d).update(host_port="65536"),
        [("PORT_RANGE", "/server_list/0/device/0/host_port", "error")],
    ),
    (
        "port 1023",
        lambda d: dev(d).update(device_port="1023"),
        [("PORT_RESERVED", "/server_list/0/device/0/device_port", "warning")],
    ),
    ("port 1024", lambda d: dev(d).update(device_port="1024"), []),
    (
        "host_port twice",
        lambda d: dev(d, 0, 1).update(host_port="16665"),
        [("HOST_PORT_DUP", "/server_list/0/device/1/host_port", "error")],
    ),
    (
        "backup is itself",
        lambda d: dev(d).update(backup_device_ip="192.168.1.6"),
        [
            ("BACKUP_SELF", "/server_list/0/device/0/backup_device_ip", "error"),
            ("BACKUP_DUP", "/server_list/0/device/1/backup_device_ip", "error"),
        ],
    ),
    (
        "backup is another NPU's",
        lambda d: dev(d).update(backup_device_ip="10.9.9.9"),
        [("BACKUP_NOT_PAIR", "/server_list/0/device/0/backup_device_ip", "warning")],
    ),
    (
        "backup port is the NIC's own",
        lambda d: dev(d).update(backup_device_port="16666"),
        [("BACKUP_PORT_CLASH", "/server_list/0/device/0/backup_device_port", "error")],
    ),
    (
        "backup port is the NIC's default",
        lambda d: (dev(d).update(backup_device_port="16666"), dev(d, 0, 1).pop("device_port")),
        [("BACKUP_PORT_CLASH", "/server_list/0/device/0/backup_device_port", "warning")],
    ),
    ("both ports by default", lambda d: (dev(d).pop("backup_device_port"), dev(d, 0, 1).pop("device_port")), []),
    (
        "rank twice",
        lambda d: dev(d).update(rank_id="1"),
        [
            ("RANK_DUP", "/server_list/0/device/1/rank_id", "error"),
        ],
    ),
    (
        "rank too high",
        lambda d: dev(d, 3, 3).update(rank_id="16"),
        [
            ("RANK_NOT_CONTIGUOUS", "/server_list/3/device/3/rank_id", "error"),
            ("RANK_INTERLEAVED", "/server_list/3/device", "error"),
        ],
    ),
    (
        "ranks interleaved",
        lambda d: (dev(d, 0, 3).update(rank_id="7"), dev(d, 1, 3).update(rank_id="3")),
        [
            ("RANK_INTERLEAVED", "/server_list/0/device", "error"),
        ],
    ),
    (
        "super_device_id twice in a super-pod",
        lambda d: dev(d, 1, 0).update(super_device_id="0"),
        [("SDID_DUP", "/server_list/1/device/0/super_device_id", "error")],
    ),
    (
        "super_device_id absent",
        lambda d: dev(d).pop("super_device_id"),
        [
            ("MODE_AI_SERVER", "/super_pod_list", "warning"),
            ("SDID_MISSING", "/server_list/0/device/0/super_device_id", "warning"),
        ],
    ),
    (
        "super-pod twice",
        lambda d: d["super_pod_list"][1].update(super_pod_id="0"),
        [
            ("SUPERPOD_DUP", "/super_pod_list/1/super_pod_id", "error"),
            *[("SDID_DUP", f"/server_list/{s}/device/{n}/super_device_id", "error") for s in (2, 3) for n in range(4)],
        ],
    ),
    (
        "unknown server",
        lambda d: d["super_pod_list"][1]["server_list"].append({"server_id": "node_9"}),
        [("SUPERPOD_UNKNOWN_SERVER", "/super_pod_list/1/server_list/2/server_id", "error")],
    ),
    (
        "server in no super-pod",
        lambda d: d["super_pod_list"][1]["server_list"].pop(),
        [("SUPERPOD_MISSING_SERVER", "/server_list/3/server_id", "error")],
    ),
    (
        "server in two super-pods",
        lambda d: d["super_pod_list"][1]["server_list"].append({"server_id": "node_0"}),
        [("SUPERPOD_DUP", "/super_pod_list/1/server_list/2/server_id", "error")],
    ),
    (
        "super-pods interleaved",
        lambda d: swap(d, 1, 2),
        [
            ("SUPERPOD_INTERLEAVED", "/server_list/2/server_id", "error"),
            ("SUPERPOD_INTERLEAVED", "/server_list/3/server_id", "error"),
        ],
    ),
    (
        "super-pods whose ranks are interleaved",
        lambda d: swap_ranks(d, 1, 2),
        [
            ("SUPERPOD_INTERLEAVED", "/super_pod_list/0", "error"),
            ("SUPERPOD_INTERLEAVED", "/super_pod_list/1", "error"),
        ],
    ),
]


@pytest.mark.parametrize(("change", "expected"), [c[1:] for c in FINDINGS], ids=[c[0] for c in FINDINGS])
def test_each_fault_of_a_table_is_found_at_its_place(
    change: Callable[[dict[str, Any]], object], expected: list[tuple[str, str, str]]
) -> None:
    found = tuple(validate(parse_rank_table(changed(change))))
    assert [(str(item.code), item.pointer, item.severity) for item in found] == expected


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(dict, None, id="nothing wrong"),
        pytest.param(lambda d: d.update(server_count="3"), None, id="a wrong count is not ambiguous"),
        pytest.param(lambda d: dev(d, 0, 1).update(rank_id="77"), None, id="nor is a gap in the ranks"),
        pytest.param(lambda d: dev(d, 0, 1).update(rank_id="0"), "RANK_DUP", id="one rank twice"),
        pytest.param(lambda d: dev(d, 0, 1).update(device_id="0"), "DEVICE_ID_DUP", id="one device twice"),
        pytest.param(lambda d: d["server_list"][1].update(server_id="node_0"), "SERVER_ID_DUP", id="one server twice"),
    ],
)
def test_a_table_is_ambiguous_when_a_device_or_rank_stands_twice(
    change: Callable[[dict[str, Any]], object], code: str | None
) -> None:
    found = ambiguity(parse_rank_table(changed(change)))
    assert (found.code if found is not None else None) == code
    assert ambiguity(RankTable("completed", "2.0")) is None


def test_a_10_table_of_several_servers_needs_addresses() -> None:
    text = OPERATOR_10.replace('"device_ip":"192.168.101.4",', "")
    assert tuple(validate(parse_rank_table(text))) == ()
    document = orjson.loads(text)
    document["server_list"].append(
        {"server_id": "b", "device": [{"device_id": "0", "device_ip": "192.168.103.4", "rank_id": "2"}]}
    )
    document["server_count"] = "2"
    found = tuple(validate(parse_rank_table(orjson.dumps(document))))
    assert [(item.code, item.pointer) for item in found] == [
        ("DEVICE_IP_REQUIRED", "/server_list/0/device/0/device_ip")
    ]


def test_a_port_of_another_nic_is_no_clash() -> None:
    def change(document: dict[str, Any]) -> None:
        dev(document, 0, 3)["device_port"] = "16667"

    assert tuple(validate(parse_rank_table(changed(change)))) == ()


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=80), st.text(max_size=80)))
def test_no_bytes_crash_the_reader(raw: bytes | str) -> None:
    try:
        table = parse_rank_table(raw)
    except BadDocument:
        return
    assert isinstance(table, RankTable)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3), st.sampled_from(["1", "node_0"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=5,
)
PLACES = [
    ("server_list",),
    ("server_count",),
    ("super_pod_list",),
    ("server_list", 0),
    ("server_list", 1, "device"),
    ("server_list", 2, "server_id"),
    ("server_list", 0, "device", 0),
    ("server_list", 0, "device", 1, "rank_id"),
    ("server_list", 0, "device", 1, "device_id"),
    ("server_list", 0, "device", 1, "device_ip"),
    ("super_pod_list", 0, "server_list", 0),
    ("super_pod_list", 0, "super_pod_id"),
]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(PLACES), json_values), min_size=1, max_size=3))
def test_no_value_anywhere_crashes_the_reader_or_the_check(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    document: Any = a3_document()
    for place, value in changes:
        parent = document
        for step in place[:-1]:
            inside = isinstance(step, int) and isinstance(parent, list) and step < len(parent)
            parent = parent[step] if inside else parent.get(step) if isinstance(parent, dict) else None
        last = place[-1]
        named = isinstance(parent, dict) and isinstance(last, str)
        if named or (isinstance(parent, list) and isinstance(last, int) and last < len(parent)):
            parent[last] = value
    try:
        table = parse_rank_table(orjson.dumps(document))
    except BadDocument:
        return
    assert all(isinstance(item, Finding) for item in validate(table))
