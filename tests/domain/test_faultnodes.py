"""Which nodes `fault-node` lists, and as what."""

from dataclasses import replace

import pytest

from agent.domain.faultnodes import (
    DeviceFault,
    FaultDevice,
    FaultNodeEntry,
    NodeFaults,
    at_least,
    fault_node,
    has_keys_of_others,
    with_keys_of_others,
    with_update_time,
)
from agent.domain.vocab import Millis, NodeName, Plane

N1 = NodeName("n1")


def test_keys_of_another_writer_stay_with_the_node_and_make_no_change_of_it() -> None:
    ours = fault_node(NodeFaults(NodeName("n1"), node_healthy=False))
    assert ours is not None
    theirs = replace(ours, update_time=5, extra={"zone": 1})
    assert with_update_time(theirs, ours, Millis(9_000)) is theirs
    changed = with_keys_of_others(with_update_time(theirs, replace(ours, node_d_enabled=True), Millis(9_000)), theirs)
    assert (changed.update_time, changed.extra) == (9, {"zone": 1})


def test_keys_of_another_writer_go_where_its_element_and_its_devices_are() -> None:
    ours = entry_of(NodeFaults(N1, (chip(0, "80E18402"), network(0), chip(1, "80E18402"))))
    card, link, other = ours.devices or ()
    theirs = replace(ours, extra={"zone": 1}, devices=(replace(link, extra={"rail": 3}), replace(card, level="odd")))
    kept = with_keys_of_others(ours, theirs)
    assert kept.extra == {"zone": 1}
    assert [(one.level, dict(one.extra)) for one in kept.devices or ()] == [
        (card.level, {}),
        (link.level, {"rail": 3}),
        (other.level, {}),
    ]
    gone = with_keys_of_others(kept, None)
    assert (gone.extra, [dict(one.extra) for one in gone.devices or ()]) == ({}, [{}, {}, {}])
    assert [has_keys_of_others(one) for one in (ours, kept, gone)] == [False, True, False]


def test_level_fields_of_another_writer_that_disagree_are_not_taken_for_ours() -> None:
    ours = entry_of(NodeFaults(N1, (chip(0, "80E18402"),)))
    (card,) = ours.devices or ()
    theirs = replace(ours, update_time=5, devices=(replace(card, differing={"fault_handling": "RestartNPU"}),))
    now = with_update_time(theirs, ours, Millis(9_000))
    assert (now.update_time, now.devices) == (9, (card,))


def chip(device: int, code: str, level: str = "SeparateNPU", healthy: bool = False) -> DeviceFault:
    return DeviceFault(device, Plane.CHIP, code, level, healthy)


def network(device: int, code: str = "81078603", level: str = "PreSeparateNPU", healthy: bool = False) -> DeviceFault:
    return DeviceFault(device, Plane.NETWORK, code, level, healthy)


def entry_of(faults: NodeFaults) -> FaultNodeEntry:
    entry = fault_node(faults)
    assert entry is not None
    return entry


@pytest.mark.parametrize(
    "faults",
    [
        NodeFaults(N1),
        NodeFaults(N1, (chip(0, "80CB8002", "SubHealthFault", healthy=True),)),
        NodeFaults(N1, (chip(0, "80F78006", "PreSeparateNPU", healthy=True),)),
    ],
    ids=["no fault", "sub-health only", "in use"],
)
def test_a_healthy_node_is_not_listed(faults: NodeFaults) -> None:
    assert fault_node(faults) is None


@pytest.mark.parametrize(
    ("faults", "health"),
    [
        (NodeFaults(N1, (chip(0, "80E18402"),)), "CardUnhealthy"),
        (NodeFaults(N1, (network(0),)), "CardNetworkUnhealthy"),
        (NodeFaults(N1, (network(0), chip(1, "80E18402"))), "CardUnhealthy"),
        (NodeFaults(N1, (network(0), chip(1, "80E18402")), node_healthy=False), "NodeUnhealthy"),
        (NodeFaults(N1, switch_healthy=False), "NodeUnhealthy"),
        (NodeFaults(N1, vanished=True), "NodeUnhealthy"),
        (
            NodeFaults(N1, (DeviceFault(0, Plane.PUBLIC, "220001001", "SeparateNPU", healthy=False),)),
            "CardUnhealthy",
        ),
    ],
    ids=["card", "network", "both planes", "node over cards", "switch", "vanished", "public"],
)
def test_the_state_is_that_of_the_worst_part(faults: NodeFaults, health: str) -> None:
    assert entry_of(faults).health == health


def test_a_node_listed_for_itself_has_no_devices() -> None:
    assert entry_of(NodeFaults(N1, node_healthy=False, node_d_enabled=True)) == FaultNodeEntry(
        N1, "NodeUnhealthy", (), None, None, node_d_enabled=True
    )


def test_devices_come_by_number_and_kind_with_codes_ascending_and_the_strongest_level() -> None:
    faults = NodeFaults(
        N1,
        (
            chip(10, "80E18402"),
            network(2),
            chip(2, "A8028801", "SubHealthFault", healthy=True),
            chip(2, "80C98000", "RestartRequest"),
            chip(2, "80C98000", "RestartRequest"),
            DeviceFault(2, Plane.PUBLIC, "220001001", "NotHandleFault", healthy=True),
        ),
    )
    entry = entry_of(faults)
    assert entry.devices == (
        FaultDevice("CardUnhealthy", "Ascend910-2", "RestartRequest", "80C98000,A8028801"),
        FaultDevice("CardNetworkUnhealthy", "Ascend910-2", "PreSeparateNPU", "81078603"),
        FaultDevice("PublicFault", "Ascend910-2", "NotHandleFault", "220001001"),
        FaultDevice("CardUnhealthy", "Ascend910-10", "SeparateNPU", "80E18402"),
    )
    assert (entry.unhealthy, entry.network_unhealthy) == (("Ascend910-2", "Ascend910-10"), ("Ascend910-2",))


def test_codes_are_ordered_by_value_and_those_that_are_no_hex_come_last() -> None:
    entry = entry_of(NodeFaults(N1, (chip(0, "zone-down"), chip(0, "110001024"), chip(0, "08520003"))))
    assert [device.fault_code for device in entry.devices or ()] == ["08520003,110001024,zone-down"]


def test_a_manual_separation_has_no_code_and_a5_devices_their_own_name() -> None:
    entry = entry_of(NodeFaults(N1, (chip(3, "", "ManuallySeparateNPU"),), prefix="npu"))
    assert entry.devices == (FaultDevice("CardUnhealthy", "npu-3", "ManuallySeparateNPU", ""),)
    assert entry.unhealthy == ("npu-3",)


def test_update_time_moves_only_with_the_content() -> None:
    entry = entry_of(NodeFaults(N1, (chip(0, "80E18402"),)))
    first = with_update_time(None, entry, Millis(1767225600999))
    assert first.update_time == 1767225600
    assert with_update_time(first, entry, Millis(1767225700000)) is first
    other = replace(entry, node_d_enabled=True)
    assert with_update_time(first, other, Millis(1767225700000)).update_time == 1767225700


def test_an_entry_that_may_only_grow_keeps_each_device_at_its_worst_with_all_its_codes() -> None:
    before = entry_of(NodeFaults(N1, (chip(2, "80E18402"), chip(10, "80CB8002", "SubHealthFault", True), network(3))))
    now = entry_of(NodeFaults(N1, (chip(2, "80C98000", "RestartRequest"), network(1)), node_healthy=False))
    both = at_least(before, now)
    assert both is not None
    assert (both.health, both.unhealthy, both.network_unhealthy) == (
        "NodeUnhealthy",
        ("Ascend910-2",),
        ("Ascend910-1", "Ascend910-3"),
    )
    assert [(one.npu_name, one.fault_type, one.level, one.fault_code) for one in both.devices or ()] == [
        ("Ascend910-1", "CardNetworkUnhealthy", "PreSeparateNPU", "81078603"),
        ("Ascend910-2", "CardUnhealthy", "SeparateNPU", "80C98000,80E18402"),
        ("Ascend910-3", "CardNetworkUnhealthy", "PreSeparateNPU", "81078603"),
        ("Ascend910-10", "CardUnhealthy", "SubHealthFault", "80CB8002"),
    ]
    assert at_least(before, None) is before
    assert at_least(None, now) is now
    assert at_least(replace(now, health="Odd"), before) == at_least(before, replace(now, health="CardUnhealthy"))
    assert at_least(None, None) is None
