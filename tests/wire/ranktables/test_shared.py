"""Ports of processes that share chips."""

from typing import Any

from a3table import a3_table

from agent.domain.ranktable import RankTable
from agent.wire.ranktables.judge import Mode, severity_under
from agent.wire.ranktables.shared import shared_ports


def alone(document: dict[str, Any], *, ports: dict[str, str] | None = None, backups: bool = False) -> None:
    """One die of one server, with the ports given."""
    document.update(server_count="1", server_list=document["server_list"][:1], super_pod_list=[])
    for die in document["server_list"][0]["device"]:
        for key in ("device_port", "backup_device_port", "host_port"):
            die.pop(key)
        die.update(ports or {})
        if not backups:
            die.pop("backup_device_ip")
    del document["server_list"][0]["device"][0 if backups else 1 :][2 if backups else 0 :]
    document["server_list"][0]["device"] = document["server_list"][0]["device"][: 2 if backups else 1]


def table(ports: dict[str, str] | None = None, *, backups: bool = False) -> RankTable:
    return a3_table(lambda d: alone(d, ports=ports, backups=backups))


def told(*tables: RankTable, mode: Mode = Mode.DOC) -> list[tuple[int, str, str]]:
    found = shared_ports([(f"t{number}.json", one) for number, one in enumerate(tables)])
    return [(number, one.pointer, severity_under(mode, one)) for number, some in found.items() for one in some]


MAIN = "/server_list/0/device/0/device_port"


def test_two_processes_of_a_chip_need_different_ports() -> None:
    same, other = {"device_port": "20000"}, {"device_port": "20001"}
    assert told(table(same), table(other)) == []
    assert told(table(same), table(same)) == [(1, MAIN, "error")]
    assert told(table(same), table(same), mode=Mode.SOURCE) == [(1, MAIN, "warning")]


def test_a_port_left_to_its_default_is_a_warning_and_clashes_with_a_written_one() -> None:
    assert told(table(), table()) == [(1, MAIN, "warning")]
    assert told(table(), table({"device_port": "16666"})) == [(1, MAIN, "error")]


def test_a_backup_port_clashes_on_the_card_that_it_uses() -> None:
    first = table({"device_port": "20000", "backup_device_port": "20001"}, backups=True)
    second = table({"device_port": "20001", "backup_device_port": "20002"}, backups=True)
    assert told(first, second) == [(1, f"/server_list/0/device/{die}/device_port", "error") for die in (0, 1)]


def test_host_ports_clash_on_one_host() -> None:
    def ports(device: str, host: str) -> dict[str, str]:
        return {"device_port": device, "host_port": host}

    assert told(table(ports("20000", "30000")), table(ports("20001", "30000"))) == [
        (1, "/server_list/0/device/0/host_port", "error")
    ]


def test_the_third_table_is_compared_with_both_before_it() -> None:
    ports = [{"device_port": port} for port in ("20000", "20001", "20000")]
    assert told(*(table(one) for one in ports)) == [(2, MAIN, "error")]
