"""What the objects of a cluster say of a job, as the coordinator reads them."""

from collections.abc import Mapping
from typing import Any

from kubebuilders import DEMO_GROUP, DEMO_JOB, UNSCHEDULED, a_config_map, a_group, a_pod, the_demo

from agent.app.jobpicture import Picture, picture_of
from agent.domain.jobs import FindingCode
from agent.domain.jobs.conditions import Condition
from agent.domain.vocab import Millis
from agent.wire.schedulerfile import KEY, Scheduler

PARAMS = "configurations: [{name: init-params, arguments: {grace-over-time: '1'}}]"


def of_demo(*objects: Mapping[str, Any], laid: Any = ()) -> Picture:
    return picture_of(objects, (), lambda job: job == DEMO_JOB, laid)


def test_what_a_job_waits_for_and_asks_for_is_told_and_of_others_nothing() -> None:
    labels = {"fault-scheduling": "maybe", "team": "blue"}
    found = of_demo(
        a_group(phase="Pending", conditions=[UNSCHEDULED], labels=labels, annotations={"sp-block": "16"}),
        a_group("other", labels={"fault-scheduling": "never"}),
        a_pod("demo-0", node="", labels={"tor-affinity": "null"}),
    )
    (now,) = found.jobs
    assert now.job.id == DEMO_JOB
    assert now.placed == 0
    assert now.waits == (Condition("Unschedulable", "JobEnqueueFailed", "too few", Millis(1767225600000)),)
    assert now.says == {"fault-scheduling": "maybe", "sp-block": "16", "tor-affinity": "null"}
    assert [(one.code, one.object) for one in now.findings] == [(FindingCode.LABEL_BAD, f"PodGroup {DEMO_JOB}")]
    assert found.unread == ()


def test_findings_of_its_pods_are_its_own() -> None:
    (now,) = of_demo(a_group(), a_pod("demo-0", rank_index=None), a_pod("demo-1", rank_index="x", devices=(4,))).jobs
    told = {(one.code, one.object) for one in now.findings}
    assert told == {
        (FindingCode.POD_WITHOUT_RANK, "Pod train/demo-0"),
        (FindingCode.POD_WITHOUT_RANK, "Pod train/demo-1"),
        (FindingCode.ANNOTATION_BAD, "Pod train/demo-1"),
    }
    assert now.placed == 2


def test_pods_that_hold_slices_are_named_with_their_cards() -> None:
    sliced = a_pod("demo-1", devices=(), annotations={"huawei.com/AscendReal": "Ascend310P-1c-400-1_0"})
    (now,) = of_demo(a_group(), a_pod("demo-0"), sliced).jobs
    assert now.slices == {"demo-1": (1,)}


def test_the_scheduler_is_told_once_with_what_it_would_not_take() -> None:
    config = a_config_map("volcano-scheduler-configmap", {KEY: PARAMS}, namespace="volcano-system")
    found = of_demo(*the_demo({}), config)
    problem = (
        "init-params grace-over-time: '1' is not a whole number of seconds of 2 to 3600;"
        " what the plugin makes of it is not known; without it, it takes 900"
    )
    assert found.scheduler == Scheduler("", {"grace-over-time": "1"}, (problem,))
    assert found.unread == ()
    assert of_demo(*the_demo({})).scheduler is None


def test_a_scheduler_of_another_namespace_is_none() -> None:
    config = a_config_map("volcano-scheduler-configmap", {KEY: PARAMS}, namespace="elsewhere")
    assert of_demo(*the_demo({}), config).scheduler is None


def test_what_cannot_be_read_costs_itself() -> None:
    config = a_config_map("volcano-scheduler-configmap", {KEY: "a: ["}, namespace="volcano-system")
    found = of_demo(a_group(conditions=[{"status": "True", "reason": 7}]), config)
    assert found.scheduler is None
    assert [one.partition(": ")[0] for one in found.unread] == [
        "ConfigMap volcano-system/volcano-scheduler-configmap",
        f"PodGroup {DEMO_JOB}",
    ]
    assert found.jobs[0].waits == ()


def test_what_the_stream_has_laid_over_the_files_counts() -> None:
    on_top = [["PodGroup", "train", DEMO_GROUP, a_group(conditions=[UNSCHEDULED])]]
    assert of_demo(a_group(), laid=on_top).jobs[0].waits
    assert of_demo(a_group(), laid=[["PodGroup", "train", DEMO_GROUP, None]]).jobs == ()
