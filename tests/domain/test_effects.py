"""What each level does, as MindCluster's components do it."""

import pytest

from agent.domain.effects import (
    chip_healthy,
    describe,
    network_healthy,
    node_status,
    public_healthy,
    reset_policy,
    switch_status,
)
from agent.domain.vocab import LEVELS, Plane
from agent.errors import BadInput

# level: chip idle, chip in use, network, reset policy
CHIP = {
    "NormalNPU": (True, True, True, ""),
    "NotHandleFault": (True, True, True, ""),
    "SubHealthFault": (True, True, False, ""),
    "RestartRequest": (False, False, False, "restart_request"),
    "RestartBusiness": (False, False, False, "restart"),
    "FreeRestartNPU": (False, False, False, "free_reset"),
    "RestartNPU": (False, False, False, "reset"),
    "PreSeparateNPU": (False, True, False, "isolate"),
    "SeparateNPU": (False, False, False, "isolate"),
    "ManuallySeparateNPU": (False, False, False, "isolate"),
    "SomethingNew": (False, False, False, "isolate"),
}


@pytest.mark.parametrize("level", CHIP)
def test_a_chip_level_decides_health_and_reset(level: str) -> None:
    idle, in_use, network, policy = CHIP[level]
    assert chip_healthy(level, in_use=False) is idle
    assert chip_healthy(level, in_use=True) is in_use
    assert network_healthy(level) is network
    assert reset_policy(level) == policy


@pytest.mark.parametrize(
    ("level", "idle", "in_use"),
    [
        ("NotHandleFault", True, True),
        ("SubHealthFault", True, True),
        ("PreSeparateNPU", False, True),
        ("SeparateNPU", False, False),
    ],
)
def test_a_public_level_above_sub_health_makes_the_chip_unhealthy(level: str, idle: bool, in_use: bool) -> None:
    assert public_healthy(level) is idle
    assert public_healthy(level, in_use=True) is in_use


@pytest.mark.parametrize(
    ("level", "idle", "in_use"),
    [
        ("", "Healthy", "Healthy"),
        ("NotHandle", "Healthy", "Healthy"),
        ("SubHealthFault", "SubHealthy", "SubHealthy"),
        ("RestartRequest", "UnHealthy", "UnHealthy"),
        ("PreSeparate", "UnHealthy", "Healthy"),
        ("Separate", "UnHealthy", "UnHealthy"),
    ],
)
def test_a_switch_level_decides_the_nodes_switch_status(level: str, idle: str, in_use: str) -> None:
    assert switch_status(level, in_use=False) == idle
    assert switch_status(level, in_use=True) == in_use


@pytest.mark.parametrize(
    ("level", "idle", "in_use"),
    [
        ("", "Healthy", "Healthy"),
        ("NotHandleFault", "Healthy", "Healthy"),
        ("PreSeparateFault", "UnHealthy", "Healthy"),
        ("SeparateFault", "UnHealthy", "UnHealthy"),
    ],
)
def test_a_node_level_decides_the_nodes_status(level: str, idle: str, in_use: str) -> None:
    assert node_status(level, in_use=False) == idle
    assert node_status(level, in_use=True) == in_use


def test_a_level_of_another_plane_is_named_as_wrong() -> None:
    with pytest.raises(BadInput, match="no level 'SeparateNPU' on the switch plane"):
        switch_status("SeparateNPU", in_use=True)
    with pytest.raises(BadInput, match="no level 'Separate' on the node plane"):
        node_status("Separate", in_use=False)


@pytest.mark.parametrize(
    ("plane", "level"),
    [pytest.param(plane, level, id=f"{plane}-{level}") for plane, levels in LEVELS.items() for level in levels],
)
def test_every_level_is_described_in_full(plane: Plane, level: str) -> None:
    effect = describe(plane, level)
    words = (effect.device, effect.job, effect.fault_node, effect.reset_config, effect.reschedule_reason)
    assert all((*words, effect.rail_plan))


@pytest.mark.parametrize(
    ("plane", "level", "fault_node", "reset_config"),
    [
        pytest.param(Plane.CHIP, "NotHandleFault", "no entry", "no entry", id="mild"),
        pytest.param(Plane.CHIP, "SubHealthFault", "no entry", "no entry", id="sub-health"),
        pytest.param(Plane.CHIP, "RestartRequest", "listed in UnhealthyNPU", "policy restart_request,", id="request"),
        pytest.param(Plane.CHIP, "RestartBusiness", "listed in UnhealthyNPU", "policy restart,", id="business"),
        pytest.param(Plane.CHIP, "FreeRestartNPU", "listed in UnhealthyNPU", "no entry", id="free"),
        pytest.param(Plane.CHIP, "RestartNPU", "listed in UnhealthyNPU", "policy reset,", id="reset"),
        pytest.param(Plane.CHIP, "PreSeparateNPU", "once idle", "no entry", id="pre-separate"),
        pytest.param(Plane.CHIP, "SeparateNPU", "listed in UnhealthyNPU", "no entry", id="separate"),
        pytest.param(Plane.NETWORK, "SubHealthFault", "NetworkUnhealthyNPU", "no entry", id="network-sub-health"),
        pytest.param(Plane.NETWORK, "PreSeparateNPU", "NetworkUnhealthyNPU", "no entry", id="network-pre-separate"),
        pytest.param(Plane.NETWORK, "NotHandleFault", "no entry", "no entry", id="network-mild"),
        pytest.param(Plane.SWITCH, "Separate", "NodeUnhealthy", "no entry", id="switch-separate"),
        pytest.param(Plane.SWITCH, "RestartRequest", "NodeUnhealthy", "no entry", id="switch-restart-request"),
        pytest.param(Plane.SWITCH, "SubHealthFault", "no entry", "no entry", id="switch-sub-health"),
        pytest.param(Plane.NODE, "PreSeparateFault", "once its NPUs are idle", "no entry", id="node-pre-separate"),
        pytest.param(Plane.NODE, "SeparateFault", "NodeUnhealthy", "no entry", id="node-separate"),
        pytest.param(Plane.PUBLIC, "SeparateNPU", "listed in UnhealthyNPU", "no entry", id="public-separate"),
        pytest.param(Plane.DPU, "SeparateDPU", "no entry", "no entry", id="dpu-separate"),
    ],
)
def test_the_description_says_what_each_document_gets(
    plane: Plane, level: str, fault_node: str, reset_config: str
) -> None:
    effect = describe(plane, level)
    assert fault_node in effect.fault_node
    assert reset_config in effect.reset_config


def test_only_the_switch_plane_is_delegated_and_only_the_network_plane_is_judged_for_a_borrow() -> None:
    assert describe(Plane.SWITCH, "Separate").rail_plan.startswith("delegated")
    assert "judged for a borrow" in describe(Plane.NETWORK, "NotHandleFault").rail_plan
    assert describe(Plane.CHIP, "SeparateNPU").rail_plan.startswith("not considered")
