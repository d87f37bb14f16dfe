"""`ranktable show`, as a person and as a machine see it."""

import json
from pathlib import Path
from typing import Any

import pytest
from a3table import A3_TABLE, a3_document
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.app.cli.ranktableshow import show_command


def shown(folder: Path, text: str | bytes, *words: str) -> Result:
    path = folder / "hccl.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return CliRunner().invoke(show_command, [str(path), *words])


def drawing(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    return lines[lines.index("", 2) + 1 :]


def test_a_table_is_shown_rank_by_rank(tmp_path: Path) -> None:
    lines = shown(tmp_path, A3_TABLE).stdout.splitlines()
    assert lines[0].endswith("hccl.json: version 1.2, super-pod mode, 16 ranks on 4 servers in 2 super-pods")
    assert lines[2].split() == [
        *("rank", "super-pod", "server", "host_ip", "device", "super_device_id"),
        *("device_ip", "backup_device_ip", "host_port"),
    ]
    assert lines[5].split() == [
        *("2", "0", "node_0", "172.16.0.100", "2", "2", "192.168.1.8:16668", "192.168.1.9:16670", "16667")
    ]


def test_the_drawing_has_an_arrow_to_each_backup(tmp_path: Path) -> None:
    document = a3_document()
    first, _, third, _ = document["server_list"][0]["device"]
    del first["backup_device_ip"]
    third["backup_device_ip"] = "192.168.1.6"
    del document["server_list"][1]["device"][3], document["server_list"][1]["host_ip"]
    del document["server_list"][2]["device"][0]["backup_device_ip"]
    del document["server_list"][2]["device"][1]["backup_device_ip"]
    document["super_pod_list"][1]["server_list"].pop()
    assert drawing(shown(tmp_path, json.dumps(document))) == [
        "super-pod 0",
        "├─ server node_0 (172.16.0.100)",
        "│  ├─ NPU 0: die 0 rank 0 <-- die 1 rank 1",
        "│  └─ NPU 1: die 2 rank 2 (backup 192.168.1.6 elsewhere) <-- die 3 rank 3",
        "└─ server node_1 (no host_ip)",
        "   ├─ NPU 0: die 0 rank 4 <-> die 1 rank 5",
        "   └─ NPU 1: die 2 rank 6 (backup 192.168.2.9 elsewhere)",
        "super-pod 1",
        "└─ server node_2 (172.16.0.102)",
        "   ├─ NPU 0: die 0 rank 8     die 1 rank 9",
        "   └─ NPU 1: die 2 rank 10 <-> die 3 rank 11",
        "in no super-pod",
        "└─ server node_3 (172.16.0.103)",
        "   ├─ NPU 0: die 0 rank 12 <-> die 1 rank 13",
        "   └─ NPU 1: die 2 rank 14 <-> die 3 rank 15",
    ]


def test_a_table_of_the_operator_is_drawn_without_super_pods(tmp_path: Path) -> None:
    text = (
        '{"status":"completed","version":"1.0","server_count":"1","server_list":[{"server_id":"uid",'
        '"hardware_type":"800I-A2-32G","host_ip":"10.0.0.1","device":[{"device_id":"5","device_ip":"fe80::1","rank_id":"0",'
        '"device_port":"2000"}]}]}'
    )
    result = shown(tmp_path, text)
    assert drawing(result) == ["server uid (10.0.0.1, 800I-A2-32G)", "└─ NPU 2: die 5 rank 0"]
    assert "[fe80::1]:2000" in result.stdout


def test_version_20_is_shown_level_by_level(tmp_path: Path) -> None:
    address = {"addr_type": "IPV4", "addr": "10.0.0.1"}
    level = {"net_layer": 0, "net_type": "TOPO_FILE_DESC", "net_instance_id": "r1", "rank_addr_list": [address]}
    document = {
        "version": "2.0",
        "rank_list": [
            {"rank_id": 0, "local_id": 3, "device_id": 3, "level_list": [level, {"net_layer": 1}]},
            {"rank_id": None},
            7,
        ],
    }
    rows = [line.split() for line in shown(tmp_path, json.dumps(document)).stdout.splitlines()[3:]]
    assert rows == [
        ["0", "3", "3", "0", "TOPO_FILE_DESC", "r1", "IPV4", "10.0.0.1"],
        ["1", "-", "-", "-"],
        ["-", "-", "-", "-", "-", "-", "-"],
    ]


def test_what_cannot_be_shown_says_why(tmp_path: Path) -> None:
    result = shown(tmp_path, A3_TABLE.replace("completed", "initializing"))
    assert result.exit_code == 1
    assert "not judged as a whole: STATUS_NOT_READY" in result.stdout
    assert "node_0" not in result.stdout


def test_for_machines_dies_lie_in_npus_servers_and_super_pods(tmp_path: Path) -> None:
    result = shown(tmp_path, A3_TABLE, "--json")
    (answer,) = json.loads(result.stdout)
    assert (answer["version"], answer["effective_mode"]) == ("1.2", "super_pod")
    die: dict[str, Any] = answer["super_pods"][1]["servers"][0]["npus"][1]["dies"][0]
    assert die == {
        "device_id": 2,
        "rank_id": 10,
        "super_device_id": "2",
        "device_ip": "192.168.3.8",
        "device_port": 16668,
        "backup_device_ip": "192.168.3.9",
        "backup_device_port": 16670,
        "host_port": 16667,
        "backup_is_pair": True,
    }


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(A3_TABLE) - 1), put=st.binary(max_size=2), cut=st.integers(0, 40))
@pytest.mark.parametrize("words", [(), ("--json",)], ids=["text", "json"])
def test_no_damage_crashes_it(tmp_path: Path, words: tuple[str, ...], at: int, put: bytes, cut: int) -> None:
    raw = A3_TABLE.encode()
    assert shown(tmp_path, raw[:at] + put + raw[at + cut :], *words).exit_code in (0, 1)
