"""Several rank tables of one job: the same in another order, or contradicting each other, with the first difference."""

from collections.abc import Callable
from typing import Any

import pytest
from a3table import a3_table

from agent.domain.rail.tables import difference


def reordered(document: dict[str, Any]) -> None:
    document["server_list"].reverse()
    document["super_pod_list"].reverse()
    for server in document["server_list"]:
        server["device"].reverse()
    del document["server_count"]


def test_order_says_nothing() -> None:
    assert difference([a3_table(), a3_table(reordered), a3_table()]) == ""
    assert difference([a3_table()]) == difference([]) == ""


def backup(document: dict[str, Any]) -> None:
    document["server_list"][0]["device"][1]["backup_device_ip"] = "192.168.1.8"


def moved(document: dict[str, Any]) -> None:
    document["server_list"][3]["host_ip"] = "172.16.0.109"


def shorter(document: dict[str, Any]) -> None:
    document["server_list"][3]["device"].pop()


def other_pods(document: dict[str, Any]) -> None:
    first, second = document["super_pod_list"]
    first["server_list"], second["server_list"] = second["server_list"], first["server_list"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            backup,
            (
                "rank tables 1 and 2 of the job differ: rank 1 is device 1 192.168.1.7 of node_0 at 172.16.0.100,"
                " backup 192.168.1.6 and device 1 192.168.1.7 of node_0 at 172.16.0.100, backup 192.168.1.8"
            ),
        ),
        (
            moved,
            (
                "rank tables 1 and 2 of the job differ: rank 12 is device 0 192.168.4.6 of node_3 at 172.16.0.103,"
                " backup 192.168.4.7 and device 0 192.168.4.6 of node_3 at 172.16.0.109, backup 192.168.4.7"
            ),
        ),
        (shorter, "rank tables 1 and 2 of the job differ: rank 15 is in one of them only"),
        (other_pods, "rank tables 1 and 2 of the job differ: their super-pods"),
        (
            lambda document: document.__setitem__("version", "1.0"),
            "rank tables 1 and 2 of the job differ: version 1.2 and 1.0",
        ),
    ],
)
def test_the_first_difference_is_told(change: Callable[[dict[str, Any]], None], told: str) -> None:
    assert difference([a3_table(), a3_table(change)]) == told


def test_a_third_table_that_differs_is_named_by_its_place() -> None:
    assert difference([a3_table(), a3_table(), a3_table(shorter)]).startswith("rank tables 1 and 3 of the job differ")
