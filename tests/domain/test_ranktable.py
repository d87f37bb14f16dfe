"""A rank table answers who sits where."""

from typing import Any

from a3table import a3_table

from agent.domain.ranktable import RankTable, Server, addresses, npu_of, pair_die


def test_each_rank_is_found_by_its_server_and_device_and_back() -> None:
    table = a3_table()
    assert table.rank_of("node_2", 1) == 9
    assert table.rank_of("node_2", 4) is None
    assert table.rank_of("nowhere", 0) is None
    seat = table.seat(14)
    assert seat is not None
    assert (seat[0].server_id, seat[1].device_id, seat[1].device_ip) == ("node_3", 2, "192.168.4.8")
    assert table.seat(16) is None


def test_the_two_dies_of_an_npu_are_2k_and_2k_plus_1() -> None:
    assert [pair_die(device) for device in (0, 1, 6, 7)] == [1, 0, 7, 6]
    assert [npu_of(device) for device in (0, 1, 6, 7)] == [0, 0, 3, 3]


def test_servers_know_their_super_pod() -> None:
    table = a3_table()
    assert [table.super_pod_of(f"node_{number}") for number in range(4)] == ["0", "0", "1", "1"]
    assert table.super_pod_of("node_9") is None


def test_one_device_id_has_a_rank_on_each_server() -> None:
    assert a3_table().same_device(2) == (2, 6, 10, 14)
    assert a3_table().same_device(9) == ()


def test_a_pod_is_matched_by_uid_then_host_then_pod_address() -> None:
    table = RankTable(
        "completed",
        "1.0",
        (Server("uid-a", "10.0.0.1", "10.1.0.1"), Server("uid-b", "10.0.0.2", "10.1.0.2")),
    )
    assert table.server_for(pod_uid="uid-b", host_ip="10.0.0.1") is table.server("uid-b")
    assert table.server_for(pod_uid="other", host_ip="10.0.0.1") is table.server("uid-a")
    assert table.server_for(pod_ip="10.1.0.2") is table.server("uid-b")
    assert table.server_for(pod_uid="other") is None


def test_a_host_address_that_two_pods_share_names_none_of_them() -> None:
    table = RankTable("completed", "1.0", (Server("a", "10.0.0.1", "10.1.0.1"), Server("b", "10.0.0.1", "10.1.0.2")))
    assert table.server_for(host_ip="10.0.0.1") is None
    assert table.server_for(pod_ip="10.1.0.2") is table.server("b")


def test_a_12_table_without_super_pods_or_super_device_ids_is_in_ai_server_mode() -> None:
    def no_list(document: dict[str, Any]) -> None:
        del document["super_pod_list"]

    def one_sdid_less(document: dict[str, Any]) -> None:
        del document["server_list"][3]["device"][0]["super_device_id"]

    assert a3_table().effective_mode() == "super_pod"
    assert a3_table(no_list).effective_mode() == "ai_server"
    assert a3_table(one_sdid_less).effective_mode() == "ai_server"
    assert RankTable("completed", "1.0").effective_mode() == "ai_server"


def test_a_table_of_the_operator_names_no_backup() -> None:
    def strip(document: dict[str, Any]) -> None:
        for server in document["server_list"]:
            for device in server["device"]:
                del device["backup_device_ip"]

    assert a3_table().has_backup is True
    assert a3_table(strip).has_backup is False


def test_the_product_is_named_only_if_the_servers_agree() -> None:
    def servers(*types: str) -> RankTable:
        named = tuple(Server(str(number), hardware_type=name) for number, name in enumerate(types))
        return RankTable("completed", "1.2", named)

    assert servers("800I-A3-64G", "", "800I-A3-64G").hardware_type == "800I-A3-64G"
    assert servers("800I-A3-64G", "800I-A2-32G").hardware_type == ""
    assert servers("").hardware_type == ""


def test_addresses_are_compared_in_one_spelling() -> None:
    assert addresses("192.168.1.6, fe80:0::1") == {"192.168.1.6", "fe80::1"}
    assert addresses("") == frozenset()
    assert addresses("-1") == {"-1"}


def test_equal_tables_are_equal_whatever_their_indices() -> None:
    assert a3_table() == a3_table()
