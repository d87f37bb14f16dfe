"""Rules of version 2.0."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.wire.ranktablecheck import Finding
from agent.wire.ranktables.version2 import validate_version2


def address(**given: Any) -> dict[str, Any]:
    return {"addr_type": "EID", "addr": "0" * 32, "ports": ["0/1"], "plane_id": "0", **given}


def good() -> dict[str, Any]:
    def rank(number: int) -> dict[str, Any]:
        return {
            "rank_id": number,
            "local_id": number,
            "device_id": number,
            "level_list": [
                {
                    "net_layer": 0,
                    "net_instance_id": "rack-1",
                    "net_type": "TOPO_FILE_DESC",
                    "rank_addr_list": [address()],
                },
                {
                    "net_layer": 3,
                    "net_instance_id": "CLUSTER1",
                    "net_type": "CLOS",
                    "rank_addr_list": [address(addr_type="IPV4", addr="10.0.0.1")],
                },
            ],
        }

    return {"version": "2.0", "rank_count": 2, "rank_list": [rank(0), rank(1)]}


def level(document: dict[str, Any], number: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = document["rank_list"][0]["level_list"][number]
    return found


def test_a_good_table_has_nothing_wrong() -> None:
    assert validate_version2(good()) == ()


CASES: list[tuple[Callable[[dict[str, Any]], object], list[tuple[str, str]]]] = [
    (lambda d: d.update(rank_count=3), [("RANK_COUNT_MISMATCH", "/rank_count")]),
    (lambda d: d.update(rank_count="2"), [("NUMBER_INVALID", "/rank_count")]),
    (lambda d: d.update(rank_count=True), [("NUMBER_INVALID", "/rank_count")]),
    (lambda d: d.pop("rank_count"), [("FIELD_MISSING", "/rank_count")]),
    (
        lambda d: d.update(rank_count=1, rank_list=[]),
        [("RANK_COUNT_MISMATCH", "/rank_count"), ("FIELD_MISSING", "/rank_list")],
    ),
    (lambda d: d["rank_list"][1].update(rank_id=0), [("RANK_DUP", "/rank_list/1/rank_id")]),
    (lambda d: d["rank_list"][1].update(rank_id=2), [("RANK_NOT_CONTIGUOUS", "/rank_list/1/rank_id")]),
    (lambda d: d["rank_list"][1].update(rank_id="1"), [("NUMBER_INVALID", "/rank_list/1/rank_id")]),
    (lambda d: d["rank_list"][1].update(local_id=65), [("VALUE_RANGE", "/rank_list/1/local_id")]),
    (lambda d: d["rank_list"][1].update(local_id=64, replaced_local_id=63), []),
    (lambda d: d["rank_list"][1].update(local_id=64), [("FIELD_MISSING", "/rank_list/1/replaced_local_id")]),
    (
        lambda d: d["rank_list"][1].update(local_id=64, replaced_local_id=64),
        [("VALUE_RANGE", "/rank_list/1/replaced_local_id")],
    ),
    (
        lambda d: [rank.update(local_id=64, replaced_local_id=1) for rank in d["rank_list"]],
        [("VALUE_RANGE", "/rank_list/1/local_id")],
    ),
    (lambda d: d["rank_list"][0].update(device_id=65), [("VALUE_RANGE", "/rank_list/0/device_id")]),
    (lambda d: d["rank_list"][0].update(device_port=0), [("PORT_RANGE", "/rank_list/0/device_port")]),
    (lambda d: d["rank_list"][0].update(host_port="1023"), [("PORT_RESERVED", "/rank_list/0/host_port")]),
    (
        lambda d: level(d).update(net_layer=8),
        [
            ("VALUE_RANGE", "/rank_list/0/level_list/0/net_layer"),
            ("LAYER_ORDER", "/rank_list/0/level_list/1/net_layer"),
        ],
    ),
    (
        lambda d: level(d, 1).update(net_layer=0, net_type="TOPO_FILE_DESC"),
        [("LAYER_ORDER", "/rank_list/0/level_list/1/net_layer")],
    ),
    (lambda d: level(d).update(net_type="CLOS"), [("VALUE_UNKNOWN", "/rank_list/0/level_list/0/net_type")]),
    (lambda d: level(d).update(net_type="clos"), [("VALUE_UNKNOWN", "/rank_list/0/level_list/0/net_type")]),
    (lambda d: level(d).update(net_instance_id=""), [("VALUE_RANGE", "/rank_list/0/level_list/0/net_instance_id")]),
    (
        lambda d: level(d)["rank_addr_list"].append(address()),
        [("ADDRESS_COUNT", "/rank_list/1/level_list/0/rank_addr_list")],
    ),
    (
        lambda d: [rank["level_list"][0].update(rank_addr_list=[address()] * 25) for rank in d["rank_list"]],
        [("VALUE_RANGE", f"/rank_list/{number}/level_list/0/rank_addr_list") for number in (0, 1)],
    ),
    (
        lambda d: level(d)["rank_addr_list"][0].update(addr_type="eid"),
        [("VALUE_UNKNOWN", "/rank_list/0/level_list/0/rank_addr_list/0/addr_type")],
    ),
    (
        lambda d: level(d)["rank_addr_list"][0].update(addr="0" * 31),
        [("ADDRESS_INVALID", "/rank_list/0/level_list/0/rank_addr_list/0/addr")],
    ),
    (
        lambda d: level(d)["rank_addr_list"][0].update(addr_type="IPV6", addr="10.0.0.1"),
        [("ADDRESS_INVALID", "/rank_list/0/level_list/0/rank_addr_list/0/addr")],
    ),
    (
        lambda d: level(d)["rank_addr_list"][0].update(ports=[]),
        [("VALUE_RANGE", "/rank_list/0/level_list/0/rank_addr_list/0/ports")],
    ),
    (
        lambda d: level(d)["rank_addr_list"][0].update(ports=["0/1", "01"]),
        [("ADDRESS_INVALID", "/rank_list/0/level_list/0/rank_addr_list/0/ports/1")],
    ),
    (
        lambda d: level(d)["rank_addr_list"][0].update(detour=True),
        [("VALUE_UNKNOWN", "/rank_list/0/level_list/0/rank_addr_list/0/detour")],
    ),
    (
        lambda d: level(d)["rank_addr_list"][0].update(backup_addr=["a"] * 17),
        [("VALUE_RANGE", "/rank_list/0/level_list/0/rank_addr_list/0/backup_addr")],
    ),
    (
        lambda d: d["rank_list"].insert(0, 7),
        [("RANK_COUNT_MISMATCH", "/rank_count"), ("FIELD_MISSING", "/rank_list/0")],
    ),
]


@pytest.mark.parametrize(("change", "expected"), CASES)
def test_each_broken_rule_is_found_at_its_place(
    change: Callable[[dict[str, Any]], object], expected: list[tuple[str, str]]
) -> None:
    document = good()
    change(document)
    assert [(str(one.code), one.pointer) for one in validate_version2(document)] == expected


def test_a_type_of_network_that_only_hccl_knows_is_the_document_s_rule() -> None:
    document = good()
    level(document, 1)["net_type"] = "RING"
    (one,) = validate_version2(document)
    assert (one.by, one.severity) == ("doc", "error")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 70_000), st.floats(), st.text(max_size=3), st.just(10**30)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=5,
)
KEYS = ["rank_list", "rank_count"]
RANK_KEYS = ["rank_id", "local_id", "device_id", "device_port", "level_list", "replaced_local_id"]
LEVEL_KEYS = ["net_layer", "net_instance_id", "net_type", "rank_addr_list"]
ADDRESS_KEYS = ["addr_type", "addr", "ports", "backup_addr", "detour"]


@settings(max_examples=300)
@given(st.sampled_from([*KEYS, *RANK_KEYS, *LEVEL_KEYS, *ADDRESS_KEYS]), json_values)
def test_no_value_anywhere_crashes_it(key: str, value: Any) -> None:
    document = good()
    places = ((document, KEYS), (document["rank_list"][0], RANK_KEYS), (level(document), LEVEL_KEYS))
    for parent, keys in (*places, (level(document)["rank_addr_list"][0], ADDRESS_KEYS)):
        if key in keys:
            parent[key] = value
            break
    assert all(isinstance(one, Finding) for one in validate_version2(document))
