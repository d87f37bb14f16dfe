"""The coordinator's own rules over a change of leader: kept back faults are released, separated devices stay."""

import json
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, a_config_map, the_demo
from rig import POLICY
from rolerig import CLUSTER, CoordinatorRig

from agent.adapters.otel import SilentTracer
from agent.app import coordinator_role
from agent.app.node_app import NodeSide, Taken
from agent.domain.vocab import Millis, NodeName
from agent.wire.inbound import Limits as BorderLimits

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
FILTERED = {"huawei.com/schedule.filter.faultCode": "80BB8003:30"}
OFTEN = "80C98000"
"""Trips its node's frequency rule with the second occurrence."""
N1 = NodeName("n1")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_role, "BACK_OFF_S", 0.0)


class Node:
    """Node n1's own agent, as the coordinators see it."""

    def __init__(self, rig: CoordinatorRig) -> None:
        self._rig = rig
        self._read = 0
        self._side = NodeSide(POLICY, CLUSTER, N1, BorderLimits(), Millis(900_000), SilentTracer())
        self._side.caught_up = True

    def report(self) -> None:
        """Read all there is and report it."""
        self._side.claim(N1)
        for record in self._rig.stream._records[self._read :]:
            self._side.take(record, self._rig.clock.wall(), Taken())
        self._read = len(self._rig.stream._records)
        self._rig.bus.foreign(self._side.reports()[N1])


def demo(annotations: dict[str, str] | None = None) -> CoordinatorRig:
    return CoordinatorRig(objects=the_demo(LABELS, annotations))


def next_of(rig: CoordinatorRig, *more: dict[str, Any], annotations: dict[str, str] | None = None) -> CoordinatorRig:
    objects = [*the_demo(LABELS, annotations), *more]
    return CoordinatorRig(rig.bus, rig.stream, store=rig.memory, objects=objects)


def of_job(rig: CoordinatorRig) -> list[str]:
    return [
        str(line.decision.reason) for line in rig.bus.lines() if line.decision.job == DEMO_JOB and line.decision.fault
    ]


async def levels(rig: CoordinatorRig) -> list[tuple[str, str]]:
    text = (await rig.data("volcano-system/vcjob-fault-npu-cm")).get("fault-node") or "[]"
    return [(one["npu_name"], one["fault_level"]) for node in json.loads(text) for one in node["FaultDeviceList"]]


async def test_the_next_leader_releases_what_the_first_kept_back_at_its_time_and_says_it_once() -> None:
    first = demo(FILTERED)
    await first.lead(1)
    node = Node(first)
    first.stream.fault("80BB8003")
    node.report()
    await first.clock.advance(10)
    assert (of_job(first), await levels(first)) == (["QUIET"], [])
    await first.end()
    second = next_of(first, annotations=FILTERED)
    await second.lead(2)
    await second.clock.advance(19)
    assert (of_job(second), await levels(second)) == (["QUIET"], [])
    await second.clock.advance(1.01)
    assert of_job(second) == ["QUIET", "RECOVERY_STARTED"]
    assert await levels(second) == [("Ascend910-2", "RestartRequest")]
    await second.end()


async def test_a_separation_passes_to_the_next_leader_and_a_person_releases_it_there() -> None:
    first = demo()
    await first.lead(1)
    node = Node(first)
    for _ in range(2):
        first.stream.fault(OFTEN, assertion="once")
        node.report()
        await first.clock.advance(1)
    assert await levels(first) == [("Ascend910-2", "ManuallySeparateNPU")]
    await first.end()
    value = json.dumps({"Total": ["Ascend910-2"], "Detail": {}})
    listed = a_config_map("clusterd-manual-info-cm", {"n1": value}, namespace="cluster-system")
    second = next_of(first, listed)
    await second.lead(2)
    await second.clock.advance(1)
    assert await levels(second) == [("Ascend910-2", "ManuallySeparateNPU")]
    second.objects.gone("ConfigMap", "cluster-system", "clusterd-manual-info-cm")
    await second.clock.advance(2)
    assert await levels(second) == []
    node.report()
    await second.clock.advance(2)
    assert await levels(second) == []
    reasons = second.reasons()
    assert (reasons.count("SEPARATED"), reasons.count("SEPARATION_RELEASED")) == (1, 1)
    await second.end()
