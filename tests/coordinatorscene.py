"""A coordinator role over job `demo`, for its tests: the nodes' agents that report to it, and names of what it writes.

The one rule: time passes only when a test says so, also between tries.
"""

from dataclasses import replace
from typing import Any

import pytest
from kubebuilders import DEMO_GROUP, the_demo
from rig import POLICY
from rolerig import CLUSTER, CoordinatorRig

from agent.adapters.otel import SilentTracer
from agent.app import coordinator_role, ear
from agent.app.node_app import NodeSide, Taken
from agent.domain.events import NodeReport
from agent.domain.vocab import Millis, NodeName
from agent.wire.inbound import Limits as BorderLimits

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
SEPARATE, REQUEST, DOWN = "80E18402", "80C98000", "2C000031"
CLUSTER_LEDGER, JOB_LEDGER, VCJOB = "fault-agent-cluster", f"fault-agent-job-{DEMO_GROUP}", "vcjob-fault-npu-cm"
RESET = "train/reset-config-demo"


def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between tries real time would pass."""
    monkeypatch.setattr(coordinator_role, "BACK_OFF_S", 0.0)
    monkeypatch.setattr(coordinator_role, "REFUSED_S", 0.0)
    monkeypatch.setattr(ear, "UNANSWERED", 0)
    monkeypatch.setattr(ear, "REFUSED", 0)


class Agent:
    """A node's own agent as the coordinator sees it: reads the stream, reports to the bus."""

    def __init__(self, rig: CoordinatorRig, node: str = "n1") -> None:
        self._rig = rig
        self._node = NodeName(node)
        self._read = 0
        self._side = NodeSide(POLICY, CLUSTER, node, BorderLimits(), Millis(900_000), SilentTracer())
        self._side.caught_up = True

    def report(self, **changed: Any) -> NodeReport:
        """Read all there is for this node and report it."""
        self._side.claim(self._node)
        for record in self._rig.stream._records[self._read :]:
            if record.key == self._node.encode():
                self._side.take(record, self._rig.clock.wall(), Taken())
        self._read = len(self._rig.stream._records)
        report = replace(self._side.reports()[self._node], **changed)
        self._rig.bus.foreign(report)
        return report


def demo(**given: Any) -> CoordinatorRig:
    return CoordinatorRig(objects=the_demo(LABELS), **given)


async def settle(rig: CoordinatorRig, seconds: float = 0.0) -> None:
    await rig.clock.advance(seconds)
