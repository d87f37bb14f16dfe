"""Several rank tables of one job: the same in another order, or contradicting each other, with the first difference."""

from collections.abc import Callable
from typing import Any

import pytest
from a3table import a3_table

from agent.domain.rail.tables import NamedTable, difference


def reordered(document: dict[str, Any]) -> None:
    document["server_list"].reverse()
    document["super_pod_list"].reverse()
    for server in document["server_list"]:
        server["device"].reverse()
    del document["server_count"]


def test_order_says_nothing() -> None:
    tables = [NamedTable("a", a3_table()), NamedTable("b", a3_table(reordered)), NamedTable("c", a3_table())]
    assert difference(tables) == ""
    assert difference(tables[:1]) == difference([]) == ""


def backup(document: dict[str, Any]) -> None:
    document["server_list"][0]["device"][1]["backup_device_ip"] = "192.168.1.8"


def moved(document: dict[str, Any]) -> None:
    document["server_list"][3]["host_ip"] = "172.16.0.109"


def shorter(document: dict[str, Any]) -> None:
    document["server_list"][3]["device"].pop()


def longer(document: dict[str, Any]) -> None:
    document["server_list"][3]["device"].append(
        {"device_id": "4", "super_device_id": "99", "device_ip": "192.168.4.20", "rank_id": "16"}
    )


def ports(document: dict[str, Any]) -> None:
    device = document["server_list"][0]["device"][2]
    device["device_port"] = "16700"
    del device["host_port"]


def fewer_pods(document: dict[str, Any]) -> None:
    document["super_pod_list"].pop()


def other_pods(document: dict[str, Any]) -> None:
    first, second = document["super_pod_list"]
    first["server_list"], second["server_list"] = second["server_list"], first["server_list"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            backup,
            "rank 1 has backup_device_ip 192.168.1.6 and 192.168.1.8",
        ),
        (
            moved,
            "rank 12 has host_ip 172.16.0.103 and 172.16.0.109",
        ),
        (ports, "rank 2 has device_port 16668 and 16700, host_port 16667 and absent"),
        (shorter, "rank 15 is in old.json only"),
        (longer, "rank 16 is in new.json only"),
        (other_pods, "super-pod 0 has servers node_0, node_1 and node_2, node_3"),
        (fewer_pods, "super-pod 1 is in old.json only"),
        (
            lambda document: document.__setitem__("version", "1.0"),
            "version 1.2 and 1.0",
        ),
    ],
)
def test_the_first_difference_is_told(change: Callable[[dict[str, Any]], None], told: str) -> None:
    said = difference([NamedTable("old.json", a3_table()), NamedTable("new.json", a3_table(change))])
    assert said == f"the job's rank tables in old.json and in new.json differ: {told}"


def test_a_third_table_that_differs_is_named() -> None:
    tables = (NamedTable("a", a3_table()), NamedTable("b", a3_table()), NamedTable("c", a3_table(shorter)))
    assert difference(tables) == "the job's rank tables in a and in c differ: rank 15 is in a only"
