"""A defect while deciding costs one job or node its answer, never the others theirs."""

from kubebuilders import DEMO_JOB, the_demo
from rig import T0, Rig

from agent.domain.events import ActiveFault, FaultKey, NodeReport
from agent.domain.vocab import Millis, NodeName, OccurrenceId, Plane, Reason, Source

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
NODE = NodeName("n1")
FROM_TOMORROW = ActiveFault(
    FaultKey(NODE, Plane.SWITCH, "1.2", "[0x08520003,na,L2,na]"),
    Millis(T0),
    "LevelOfALaterVersion",
    "switch-table",
    OccurrenceId("0:0:1:0"),
    Source.LINGQU,
)


async def test_a_level_nobody_here_knows_costs_its_job_and_node_alone() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault("80E18402", 0, node="n9")
    await rig.run()
    rig.coordinator.stand_in(NODE, NodeReport("solo", NODE, 9, 9, "later", active=(FROM_TOMORROW,), caught_up=True))
    await rig.coordinator.step(Millis(T0 + 1000))
    await rig.solo.flush_audit()
    told = [(one.job, one.node) for one in rig.decisions if one.reason is Reason.INTERNAL]
    assert told == [("", "n1"), (DEMO_JOB, "")]
    assert all("left as it is until the next start" in one.detail for one in rig.decisions if one.reason == "INTERNAL")
    data = await rig.data("volcano-system/vcjob-fault-npu-cm")
    assert data is not None
    assert '"NodeName":"n9"' in data["fault-node"]
    await rig.coordinator.step(Millis(T0 + 2000))
    assert [one.reason for one in rig.decisions].count(Reason.INTERNAL) == 2, "told once, and nothing goes in circles"
