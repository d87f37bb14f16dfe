"""A table is judged from its bytes: each finding at its line, whatever the bytes are."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from a3table import A3_TABLE, GOOD_ENV, a3_document
from bench.ranks import rank_table
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.hccl import env_from
from agent.domain.jobs import Node, Pod
from agent.domain.vocab import NodeName
from agent.wire.ranktablefile import TableCode, parse_rank_table
from agent.wire.ranktables.circumstances import Circumstances, circumstances_in_cluster, circumstances_of
from agent.wire.ranktables.inspect import Inspection, inspect_table, open_table
from agent.wire.ranktables.judge import Mode, Standing

NOTHING = Circumstances()
BORROWS = Circumstances(retry=True, borrow=True, rdma_inside=False)
OFF = Circumstances(retry=False, borrow=False, rdma_inside=False)
RDMA = Circumstances(retry=False, borrow=False, rdma_inside=True)


def look(
    raw: bytes | str, around: Circumstances = NOTHING, mode: Mode = Mode.DOC, *, lenient: bool = False
) -> Inspection:
    text = raw.encode() if isinstance(raw, str) else raw
    return inspect_table(open_table(text, lenient=lenient), around, mode)


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = a3_document()
    change(document)
    return orjson.dumps(document)


def found(inspection: Inspection) -> list[tuple[str, str, str]]:
    return [(str(one.finding.code), one.finding.pointer, one.finding.severity) for one in inspection.found]


def rules(inspection: Inspection) -> dict[str, str]:
    return {str(one.code): str(one.standing) for one in inspection.judgements}


def dies(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [die for server in document["server_list"] for die in server["device"]]


def test_only_the_first_findings_of_a_kind_are_told_and_all_are_counted() -> None:
    raw = changed(lambda document: [die.update(device_port="0", host_port="1") for die in dies(document)])
    inspection = inspect_table(open_table(raw), NOTHING, Mode.DOC, most=2)
    assert found(inspection) == [
        ("PORT_RANGE", "/server_list/0/device/0/device_port", "error"),
        ("PORT_RESERVED", "/server_list/0/device/0/host_port", "warning"),
        ("PORT_RANGE", "/server_list/0/device/1/device_port", "error"),
        ("PORT_RESERVED", "/server_list/0/device/1/host_port", "warning"),
        ("HOST_PORT_DUP", "/server_list/0/device/1/host_port", "error"),
        ("HOST_PORT_DUP", "/server_list/0/device/2/host_port", "error"),
    ]
    assert (inspection.errors, inspection.warnings) == (16 + 12, 16)
    assert inspection.left_out() == {"PORT_RANGE": 14, "PORT_RESERVED": 14, "HOST_PORT_DUP": 10}


@pytest.mark.parametrize("most", [20, 1000])
def test_of_a_table_that_is_wrong_in_nearly_every_field_all_is_counted_and_the_first_of_each_kind_told(
    most: int,
) -> None:
    opened = open_table(rank_table(1024, wrong=True))
    assert Counter(one.code for one in opened.findings) == {"TYPE_NOT_STRING": 1000}
    inspection = inspect_table(opened, NOTHING, Mode.DOC, most=most)
    assert {str(code): count for (code, _), count in inspection.totals.items()} == {
        "TYPE_NOT_STRING": 6144,
        "SERVER_COUNT_MISMATCH": 1,
        "HOST_IP_INVALID": 64,
        "DEVICE_ID_DUP": 64 * 14,
        "DEVICE_IP_INVALID": 2048,
        "DEVICE_IP_DUP": 1023,
        "PORT_RANGE": 3072,
        "HOST_PORT_DUP": 64 * 15,
        "BACKUP_SELF": 1024,
        "BACKUP_DUP": 1023,
        "BACKUP_PORT_CLASH": 1024,
        "RANK_DUP": 1023,
        "SDID_DUP": 2 * 511,
    }
    assert (inspection.errors, inspection.warnings) == (19_324, 0)
    told = Counter(str(one.finding.code) for one in inspection.found)
    assert told["TYPE_NOT_STRING"] == told["RANK_DUP"] == most
    assert inspection.left_out()[TableCode.TYPE_NOT_STRING] == 6144 - most
    assert len(inspection.found) + sum(inspection.left_out().values()) == 19_324


def test_the_documented_table_has_nothing_wrong_and_says_what_was_not_judged() -> None:
    inspection = look(A3_TABLE)
    assert found(inspection) == []
    assert rules(inspection) == {
        "HOST_IP_REQUIRED": "holds",
        "DEVICE_ID_RANGE": "not judged",
        "DEVICE_IP_REQUIRED": "holds",
        "NO_BACKUP_CONFIGURED": "holds",
        "BACKUP_NOT_PAIR": "holds",
    }


def test_a_finding_has_the_line_and_column_of_its_field() -> None:
    text = A3_TABLE.replace('"host_port": "16666", "rank_id": "1"', '"host_port": "16665", "rank_id": "1"', 1)
    (one,) = look(text).found
    assert (str(one.finding.code), one.line, one.column) == ("HOST_PORT_DUP", 6, 73)


def test_an_absent_field_has_the_line_of_what_it_should_stand_in() -> None:
    text = A3_TABLE.replace(', "rank_id": "1"}', "}", 1)
    (one,) = look(text).found
    assert (str(one.finding.code), one.finding.pointer, one.line, one.column) == (
        "FIELD_MISSING",
        "/server_list/0/device/1/rank_id",
        5,
        5,
    )


def test_every_field_that_cannot_be_read_is_told_and_numbers_do_not_hide_the_rest() -> None:
    def change(document: dict[str, Any]) -> None:
        document["server_count"] = 4
        dies(document)[0]["device_port"] = 16666
        dies(document)[3]["host_port"] = "0"

    inspection = look(changed(change))
    assert found(inspection) == [
        ("TYPE_NOT_STRING", "/server_list/0/device/0/device_port", "error"),
        ("TYPE_NOT_STRING", "/server_count", "error"),
        ("PORT_RANGE", "/server_list/0/device/3/host_port", "error"),
    ]


def test_two_unreadable_ranks_are_both_told_and_the_whole_is_not_judged() -> None:
    def change(document: dict[str, Any]) -> None:
        dies(document)[0]["rank_id"] = "one"
        del dies(document)[1]["rank_id"]

    inspection = look(changed(change))
    assert [(code, pointer) for code, pointer, _ in found(inspection)] == [
        ("NUMBER_INVALID", "/server_list/0/device/0/rank_id"),
        ("FIELD_MISSING", "/server_list/0/device/1/rank_id"),
    ]
    assert inspection.opened.stopped == "FIELD_MISSING"


def test_the_list_under_initializing_is_never_judged() -> None:
    def change(document: dict[str, Any]) -> None:
        document["status"] = "initializing"
        dies(document)[0]["device_port"] = "0"

    assert found(look(changed(change))) == [("STATUS_NOT_READY", "/status", "error")]


COMMENTED = A3_TABLE.replace('"version": "1.2",', '"version": "1.2", // a "template" version\n /* two\n lines */', 1)


def test_comments_are_refused_with_a_hint_and_left_out_on_wish() -> None:
    (one,) = look(COMMENTED).found
    assert (str(one.finding.code), one.line) == ("JSON_INVALID", 1)
    assert one.finding.hint == "comments are not JSON: remove them, or give --lenient to have them left out here"
    lenient = look(COMMENTED, lenient=True)
    assert found(lenient) == [("JSON_INVALID", "", "warning")]
    assert lenient.opened.table == parse_rank_table(A3_TABLE)


def test_lines_are_those_of_the_file_with_its_comments() -> None:
    text = COMMENTED.replace('"host_port": "16666", "rank_id": "1"', '"host_port": "16665", "rank_id": "1"', 1)
    assert [(str(one.finding.code), one.line) for one in look(text, lenient=True).found] == [
        ("JSON_INVALID", 1),
        ("HOST_PORT_DUP", 8),
    ]


def test_slashes_inside_a_string_are_no_comment() -> None:
    text = A3_TABLE.replace("node_0", "a//b /* c")
    assert found(look(text, lenient=True)) == []


def test_no_utf8_names_the_line() -> None:
    (one,) = look(b'{"status":\n  "\xff"}').found
    assert (str(one.finding.code), one.line, one.column) == ("JSON_INVALID", 2, 4)


def without(key: str) -> bytes:
    return changed(lambda d: [die.pop(key) for die in dies(d)])


def no_host_ip(document: dict[str, Any]) -> None:
    del document["server_list"][2]["host_ip"]


@pytest.mark.parametrize(
    ("around", "standing", "severity"),
    [(NOTHING, "not judged", None), (OFF, "holds", None), (BORROWS, "broken", "error")],
    ids=["unknown", "off", "on"],
)
def test_host_ip_is_needed_only_with_retry(around: Circumstances, standing: str, severity: str | None) -> None:
    inspection = look(changed(no_host_ip), around)
    assert rules(inspection)["HOST_IP_REQUIRED"] == standing
    told = [one for one in found(inspection) if one[0] == "HOST_IP_REQUIRED"]
    assert told == ([("HOST_IP_REQUIRED", "/server_list/2/host_ip", severity)] if severity else [])


def test_hccl_itself_lets_a_host_ip_be_absent() -> None:
    told = found(look(changed(no_host_ip), BORROWS, Mode.SOURCE))
    assert told == [("HOST_IP_REQUIRED", "/server_list/2/host_ip", "warning")]


@pytest.mark.parametrize(
    ("around", "standing", "count"),
    [(NOTHING, "not judged", 0), (OFF, "holds", 0), (BORROWS, "broken", 16)],
    ids=["unknown", "off", "on"],
)
def test_a_table_without_backups_is_told_where_they_would_be_read(
    around: Circumstances, standing: str, count: int
) -> None:
    inspection = look(without("backup_device_ip"), around)
    assert rules(inspection)["NO_BACKUP_CONFIGURED"] == standing
    assert len([one for one in found(inspection) if one[0] == "NO_BACKUP_CONFIGURED"]) == count
    assert inspection.errors == 0


def test_on_another_product_than_a3_no_backup_is_missed() -> None:
    def change(document: dict[str, Any]) -> None:
        for die in dies(document):
            del die["backup_device_ip"]
        for server in document["server_list"]:
            server["hardware_type"] = "800I-A2-32G"

    assert rules(look(changed(change), NOTHING))["NO_BACKUP_CONFIGURED"] == "holds"
    assert found(look(changed(change), BORROWS)) == []


@pytest.mark.parametrize(
    ("around", "standing", "severity"),
    [(NOTHING, "not judged", "warning"), (OFF, "broken", "warning"), (BORROWS, "broken", "error")],
    ids=["unknown", "off", "on"],
)
def test_a_backup_of_another_npu_is_an_error_where_a_borrow_is_wanted(
    around: Circumstances, standing: str, severity: str
) -> None:
    inspection = look(changed(lambda d: dies(d)[4].update(backup_device_ip="10.9.9.9")), around)
    assert found(inspection) == [("BACKUP_NOT_PAIR", "/server_list/1/device/0/backup_device_ip", severity)]
    assert rules(inspection)["BACKUP_NOT_PAIR"] == standing


def one_super_pod(document: dict[str, Any]) -> None:
    document["super_pod_list"] = [{"super_pod_id": "0", "server_list": [{"server_id": f"node_{n}"} for n in range(4)]}]
    for number, die in enumerate(dies(document)):
        die["super_device_id"] = str(number)
    del dies(document)[5]["device_ip"]
    for die in dies(document):
        del die["backup_device_ip"]


@pytest.mark.parametrize(
    ("around", "standing"), [(NOTHING, "not judged"), (OFF, "holds"), (RDMA, "broken")], ids=["unknown", "off", "on"]
)
def test_within_one_super_pod_device_ip_is_needed_only_without_hccs(around: Circumstances, standing: str) -> None:
    inspection = look(changed(one_super_pod), around)
    assert rules(inspection)["DEVICE_IP_REQUIRED"] == standing
    told = [("DEVICE_IP_REQUIRED", "/server_list/1/device/1/device_ip", "error")] if standing == "broken" else []
    assert found(inspection) == told


def test_what_only_the_document_asks_is_a_warning_in_source_mode() -> None:
    def change(document: dict[str, Any]) -> None:
        dies(document)[3]["rank_id"], dies(document)[7]["rank_id"] = "7", "3"
        dies(document)[1]["host_port"] = "16665"

    raw = changed(change)
    assert {severity for *_, severity in found(look(raw))} == {"error"}
    assert found(look(raw, mode=Mode.SOURCE)) == [
        ("HOST_PORT_DUP", "/server_list/0/device/1/host_port", "warning"),
        ("RANK_INTERLEAVED", "/server_list/0/device", "warning"),
    ]


def test_unequal_super_pods_are_told_with_the_split() -> None:
    def change(document: dict[str, Any]) -> None:
        document["super_pod_list"][0]["server_list"].append({"server_id": "node_2"})
        document["super_pod_list"][1]["server_list"].pop(0)
        for number, die in enumerate(dies(document)):
            die["super_device_id"] = str(number)

    (one,) = look(changed(change)).found
    assert (str(one.finding.code), one.finding.severity) == ("SUPERPOD_UNEQUAL", "warning")
    assert "(0: 3, 1: 1): HCCL splits them into 4 logical super-pods of 1 server," in one.finding.message


def test_a_10_table_needs_its_count_by_the_document_alone() -> None:
    text = (
        '{"status":"completed","version":"1.0","server_list":[{"server_id":"a",'
        '"device":[{"device_id":"0","rank_id":"0"}]}]}'
    )
    assert found(look(text)) == [("FIELD_MISSING", "/server_count", "error")]
    assert found(look(text, mode=Mode.SOURCE)) == [("FIELD_MISSING", "/server_count", "warning")]


def pod(number: int, **env: str) -> Pod:
    return Pod(
        "train",
        f"p{number}",
        f"uid-{number}",
        NodeName(f"n{number}"),
        phase="Running",
        host_ip=f"172.16.0.10{number}",
        env={**GOOD_ENV, **env},
        env_complete=True,
    )


def test_the_cluster_tells_environment_and_devices_of_each_server() -> None:
    table = parse_rank_table(A3_TABLE)
    nodes = [Node(NodeName(f"n{number}"), device_ids=(0, 1, 2, 3)) for number in range(4)]
    around = circumstances_in_cluster(table, [pod(number) for number in range(4)], nodes)
    assert (around.retry, around.borrow, around.rdma_inside) == (True, True, False)
    assert rules(look(A3_TABLE, around)) == {
        "HOST_IP_REQUIRED": "holds",
        "DEVICE_ID_RANGE": "holds",
        "DEVICE_IP_REQUIRED": "holds",
        "NO_BACKUP_CONFIGURED": "holds",
        "BACKUP_NOT_PAIR": "holds",
    }
    small = circumstances_in_cluster(table, [pod(2)], [Node(NodeName("n2"), device_ids=(0, 1, 2))])
    assert (small.retry, small.borrow) == (True, True)
    inspection = look(A3_TABLE, small)
    assert found(inspection) == [("DEVICE_ID_RANGE", "/server_list/2/device/3/device_id", "error")]


def test_off_on_some_nodes_and_unknown_on_others_is_unknown() -> None:
    table = parse_rank_table(A3_TABLE)
    around = circumstances_in_cluster(table, [pod(0, HCCL_OP_RETRY_ENABLE="L1:0")], [])
    assert (around.retry, around.borrow) == (None, None)


def test_an_unreadable_variable_is_unknown_and_said() -> None:
    around = circumstances_of([env_from({"HCCL_OP_RETRY_ENABLE": "L9:1"}, visible=True)])
    assert (around.retry, around.borrow) == (None, None)
    assert len(around.trouble) == 1
    assert "HCCL_OP_RETRY_ENABLE" in around.trouble[0]


def test_hosts_that_expand_operators_read_no_backups() -> None:
    around = circumstances_of([env_from({**GOOD_ENV, "HCCL_OP_EXPANSION_MODE": "HOST"}, visible=True)])
    assert (around.retry, around.borrow) == (True, False)


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=80), st.text(max_size=80).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_no_bytes_crash_it(raw: bytes) -> None:
    for lenient in (False, True):
        inspection = look(raw, lenient=lenient)
        assert inspection.errors > 0
        assert all(one.line >= 1 and one.column >= 1 for one in inspection.found)


@settings(max_examples=150)
@given(st.integers(0, len(A3_TABLE) - 1), st.binary(max_size=3), st.integers(0, 3))
def test_no_damage_to_a_good_table_crashes_it(at: int, put: bytes, cut: int) -> None:
    raw = A3_TABLE.encode()
    inspection = look(raw[:at] + put + raw[at + cut :], BORROWS)
    assert all(one.line >= 1 and one.column >= 1 for one in inspection.found)


def test_a_rule_stands_in_one_of_three_ways() -> None:
    assert {str(standing) for standing in Standing} == {"holds", "broken", "not judged"}
