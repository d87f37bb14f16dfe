"""Pods that a fault has hit and what their replacement means: one record, and a retry only for failed pods alone."""

import json
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, DEMO_UID, a_config_map, a_group, a_node, a_pod, an_ascend_job, the_demo
from rig import Rig

from agent.domain.vocab import Reason

VCJOB = "volcano-system/vcjob-fault-npu-cm"
RECORDS = "mindx-dl/job-reschedule-reason"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3"}
SEPARATE = "80E18402"
Task = tuple[str, str, str, str]


def demo(**labels: str) -> Rig:
    return Rig(the_demo({**LABELS, **labels}))


def new_pod(name: str = "demo-0", *, number: int = 2, node: str = "n3", **given: Any) -> dict[str, Any]:
    given.setdefault("labels", LABELS)
    return a_pod(name, uid=f"uid-{name}-{number}", node=node, **given)


def replace_pod(rig: Rig, at: float, name: str = "demo-0", **given: Any) -> None:
    """The pod is deleted, and five seconds later another is placed."""
    rig.delete("Pod", "train", name, at)
    rig.apply(new_pod(name, **given), at + 5)
    rig.tick(at + 6)


def evict_all(rig: Rig, at: float, number: int = 2) -> None:
    """Every pod of the job goes, and all are placed again, one after the other."""
    for name in ("demo-0", "demo-1"):
        rig.delete("Pod", "train", name, at)
    for step, name in enumerate(("demo-0", "demo-1")):
        rig.apply(new_pod(name, number=number, node=f"n{3 + step}", rank_index=step), at + 5 + step)
    rig.tick(at + 10)


async def records(rig: Rig, job: str = DEMO_JOB) -> tuple[int, list[list[Task]]]:
    """Total, and the tasks of each record, newest first; 0 and nothing when there is none."""
    data = await rig.data(RECORDS)
    if data is None:
        return 0, []
    found = json.loads(data["recent-reschedule-records"])[job]
    tasks = [
        [(t["RescheduleReason"], t["PodName"], t["NodeName"], t["NodeRankIndex"]) for t in record["ReasonOfTask"]]
        for record in found["RescheduleRecords"]
    ]
    return found["TotalRescheduleTimes"], tasks


async def retries(rig: Rig, job: str = DEMO_JOB) -> int | None:
    data = await rig.data(VCJOB)
    assert data is not None
    entry = json.loads(data["remain-retry-times"]).get(job)
    return None if entry is None else entry["Times"]


async def test_only_the_pods_that_were_hit_are_named_when_all_are_replaced() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    evict_all(rig, 10)
    await rig.run()
    assert await records(rig) == (1, [[("CardUnhealthy", "demo-0", "n1", "0")]])
    assert await retries(rig) == 3


async def test_records_are_newest_first_and_the_total_counts_on() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    replace_pod(rig, 10)
    rig.fault(SEPARATE, 100, node="n2")
    replace_pod(rig, 110, "demo-1", node="n4", rank_index=1)
    await rig.run()
    assert await records(rig) == (
        2,
        [[("CardUnhealthy", "demo-1", "n2", "1")], [("CardUnhealthy", "demo-0", "n1", "0")]],
    )


async def test_the_total_goes_on_from_what_the_document_already_holds() -> None:
    rig = demo()
    held = {
        DEMO_JOB: {
            "JobID": DEMO_JOB,
            "TotalRescheduleTimes": 7,
            "RescheduleRecords": [
                {
                    "LogFileFormatTime": "I1231 10:00:00",
                    "RescheduleTimeStamp": 1767175200,
                    "ReasonOfTask": [
                        {
                            "RescheduleReason": "NodeUnhealthy",
                            "PodName": "demo-1",
                            "NodeName": "n9",
                            "NodeRankIndex": "1",
                        }
                    ],
                }
            ],
        }
    }
    before = Rig(disk=rig.disk)
    text = json.dumps(held)
    before.apply(a_config_map("job-reschedule-reason", {"recent-reschedule-records": text}, namespace="mindx-dl"), -10)
    await before.run()
    rig.fault(SEPARATE)
    replace_pod(rig, 10)
    await rig.run()
    assert await records(rig) == (
        8,
        [[("CardUnhealthy", "demo-0", "n1", "0")], [("NodeUnhealthy", "demo-1", "n9", "1")]],
    )


async def test_a_job_made_anew_under_the_same_name_counts_on_and_gets_its_retries_back() -> None:
    rig = demo()
    for pod in (0, 1):
        rig.apply(a_pod(f"demo-{pod}", node=f"n{pod + 1}", rank_index=pod, phase="Failed", labels=LABELS), 1 + pod)
    evict_all(rig, 10)
    for name in ("demo-0", "demo-1"):
        rig.delete("Pod", "train", name, 50)
    rig.delete("PodGroup", "train", DEMO_JOB.partition("/")[2], 51)
    rig.apply(a_group(labels=LABELS, owner_uid="other-uid"), 60)
    for step in (0, 1):
        rig.apply(new_pod(f"demo-{step}", number=3, node=f"n{1 + step}", rank_index=step), 61)
    rig.fault(SEPARATE, 70)
    evict_all(rig, 80, number=4)
    await rig.run()
    total, found = await records(rig)
    assert total == 2
    assert found[0] == [("CardUnhealthy", "demo-0", "n1", "0")]
    assert await retries(rig) == 3


@pytest.mark.parametrize("first", ["pod", "fault"])
async def test_a_card_outranks_the_failed_pod_whichever_is_read_first(first: str) -> None:
    rig = demo()
    failed = a_pod("demo-0", phase="Failed", exit_code=1, labels=LABELS)
    if first == "pod":
        rig.apply(failed, 1)
        rig.fault(SEPARATE, 2)
    else:
        rig.fault(SEPARATE, 1)
        rig.apply(failed, 2)
    replace_pod(rig, 10)
    await rig.run()
    assert await records(rig) == (1, [[("CardUnhealthy", "demo-0", "n1", "0")]])
    assert await retries(rig) == 3


async def test_failed_pods_alone_cost_one_retry_for_all_of_them() -> None:
    rig = demo()
    for pod in (0, 1):
        rig.apply(a_pod(f"demo-{pod}", node=f"n{pod + 1}", rank_index=pod, phase="Failed", labels=LABELS), 1 + pod)
    evict_all(rig, 10)
    await rig.run()
    assert await records(rig) == (1, [[("pod-failed", "demo-0", "n1", "0"), ("pod-failed", "demo-1", "n2", "1")]])
    assert await retries(rig) == 2


async def test_a_failed_pod_beside_a_broken_card_costs_no_retry() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    rig.apply(a_pod("demo-1", node="n2", rank_index=1, phase="Failed", labels=LABELS), 1)
    evict_all(rig, 10)
    await rig.run()
    assert await records(rig) == (1, [[("CardUnhealthy", "demo-0", "n1", "0"), ("pod-failed", "demo-1", "n2", "1")]])
    assert await retries(rig) == 3


async def test_retries_do_not_go_below_none() -> None:
    rig = demo(**{"fault-retry-times": "1"})
    labels = {**LABELS, "fault-retry-times": "1"}
    for number, uid in ((2, "uid-demo-0"), (3, "uid-demo-0-2")):
        at = number * 20
        rig.apply(a_pod("demo-0", uid=uid, phase="Failed", labels=labels), at)
        replace_pod(rig, at + 5, number=number, node="n1", labels=labels)
    await rig.run()
    assert (await records(rig))[0] == 2
    assert await retries(rig) == 0


async def test_a_failed_pod_of_a_job_without_retries_is_no_reason() -> None:
    rig = demo(**{"fault-retry-times": "0"})
    labels = {**LABELS, "fault-retry-times": "0"}
    rig.apply(a_pod("demo-0", phase="Failed", labels=labels), 1)
    replace_pod(rig, 10, labels=labels)
    await rig.run()
    assert await records(rig) == (0, [])
    assert await retries(rig) == 0


async def test_a_pod_gone_a_moment_before_its_fault_is_read_is_still_the_one_that_was_hit() -> None:
    rig = demo()
    rig.tick(0)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.tick(11)
    rig.fault(SEPARATE, 11)
    rig.apply(new_pod(), 15)
    rig.tick(16)
    await rig.run()
    assert await records(rig) == (1, [[("CardUnhealthy", "demo-0", "n1", "0")]])


async def test_a_pod_that_had_failed_before_we_looked_is_a_member_too() -> None:
    objects = the_demo(LABELS)
    objects[-2] = a_pod("demo-0", phase="Failed", labels=LABELS)
    rig = Rig(objects)
    rig.fault(SEPARATE)
    replace_pod(rig, 10)
    await rig.run()
    assert await records(rig) == (1, [[("CardUnhealthy", "demo-0", "n1", "0")]])


async def test_a_failed_pod_that_stays_as_an_object_is_replaced_by_one_of_another_name_and_told_once() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    rig.apply(a_pod("demo-0", phase="Failed", labels=LABELS), 10)
    rig.apply(new_pod("demo-0b"), 20)
    rig.tick(30)
    rig.delete("Pod", "train", "demo-0", 40)
    rig.fault(SEPARATE, 50, node="n2")
    replace_pod(rig, 60, "demo-1", node="n4", rank_index=1)
    await rig.run()
    assert await records(rig) == (
        2,
        [[("CardUnhealthy", "demo-1", "n2", "1")], [("CardUnhealthy", "demo-0", "n1", "0")]],
    )


async def test_a_pod_on_its_way_out_counts_as_replaced_when_the_new_one_is_placed() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    rig.apply(a_pod("demo-0", deleted=True, labels=LABELS), 10)
    rig.clear(SEPARATE, 12)
    rig.apply(new_pod("demo-0b"), 20)
    rig.delete("Pod", "train", "demo-0", 40)
    rig.tick(41)
    await rig.run()
    assert await records(rig) == (1, [[("CardUnhealthy", "demo-0", "n1", "0")]])


async def test_a_pod_that_got_well_before_it_was_replaced_for_another_reason_is_not_told() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    rig.clear(SEPARATE, 5)
    replace_pod(rig, 10)
    await rig.run()
    assert await records(rig) == (0, [])


async def test_a_job_that_ends_leaves_no_record() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    for pod in (0, 1):
        rig.apply(a_pod(f"demo-{pod}", node=f"n{pod + 1}", rank_index=pod, phase="Succeeded", labels=LABELS), 10)
    rig.tick(20)
    await rig.run()
    assert await records(rig) == (0, [])


async def test_a_deleted_job_leaves_remain_retry_times_and_its_ledger_goes() -> None:
    rig = demo()
    rig.tick(0)
    for name in ("demo-0", "demo-1"):
        rig.delete("Pod", "train", name, 10)
    rig.delete("PodGroup", "train", DEMO_JOB.partition("/")[2], 11)
    rig.tick(12)
    await rig.run()
    assert await retries(rig) is None
    assert await rig.data(f"train/fault-agent-job-{DEMO_JOB.partition('/')[2]}") is None


async def test_a_job_deleted_while_nobody_looked_leaves_remain_retry_times_too() -> None:
    rig = demo()
    rig.tick(0)
    await rig.run()
    later = Rig([a_node("n1"), a_node("n2")], disk=rig.disk)
    later.tick(100)
    await later.run()
    assert await retries(later) is None


async def test_a_job_of_somebody_else_in_remain_retry_times_stays() -> None:
    rig = demo()
    theirs = '{"other/job-1":{"UUID":"u","Times":2}}'
    document = {"fault-node": "", "remain-retry-times": theirs}
    rig.apply(a_config_map("vcjob-fault-npu-cm", document, namespace="volcano-system"), 0)
    rig.tick(1)
    rig.fault(SEPARATE, 2)
    rig.tick(3)
    await rig.run()
    assert await retries(rig, "other/job-1") == 2
    assert await retries(rig) == 3


async def test_another_owner_under_the_same_name_begins_anew() -> None:
    rig = demo()
    rig.apply(a_pod("demo-0", phase="Failed", labels=LABELS), 1)
    replace_pod(rig, 10)
    rig.apply(a_group(labels=LABELS, owner_uid="other-uid"), 30)
    rig.tick(31)
    await rig.run()
    assert await retries(rig) == 3
    data = await rig.data(VCJOB)
    assert data is not None
    assert json.loads(data["remain-retry-times"])[DEMO_JOB]["UUID"] == "other-uid"


async def test_a_restart_keeps_the_retries_that_are_left() -> None:
    rig = demo()
    rig.apply(a_pod("demo-0", phase="Failed", labels=LABELS), 1)
    replace_pod(rig, 10)
    await rig.run()
    lost = await rig.disk.store.get("train", f"fault-agent-job-{DEMO_JOB.partition('/')[2]}")
    assert lost is not None
    await rig.disk.store.delete(lost.namespace, lost.name, lost.resource_version)
    later = Rig(the_demo(LABELS), disk=rig.disk)
    later.tick(100)
    await later.run()
    assert await retries(later) == 2


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("ignore", (0, [])),
        ("graceExit", (1, [[("SubHealthFault", "demo-0", "n1", "0")]])),
        ("forceExit", (1, [[("SubHealthFault", "demo-0", "n1", "0")]])),
        ("hotSwitch", (1, [[("SubHealthFault", "demo-0", "n1", "0")]])),
        ("nonsense", (0, [])),
    ],
)
async def test_a_sub_healthy_chip_is_a_reason_by_the_job_s_strategy(
    strategy: str, expected: tuple[int, list[list[Task]]]
) -> None:
    labels = {**LABELS, "subHealthyStrategy": strategy}
    rig = demo(subHealthyStrategy=strategy)
    rig.fault("80DE0207", device=1)
    replace_pod(rig, 10, labels=labels)
    await rig.run()
    assert await records(rig) == expected


@pytest.mark.parametrize(
    ("code", "given", "reason"),
    [
        pytest.param("0300000D", {"resource": "ipmi", "device": None}, None, id="node-pre-separate"),
        pytest.param(
            "[0x00f103b0,155907,na,na]",
            {"resource": "lingqu", "device": None, "location": {"switchChipId": 0, "switchPortId": 1}},
            "NodeUnhealthy",
            id="switch-separate",
        ),
        pytest.param("81078603", {}, None, id="network-plane"),
    ],
)
async def test_faults_of_other_planes_tell_the_node_or_nothing(
    code: str, given: dict[str, Any], reason: str | None
) -> None:
    rig = demo()
    rig.fault(code, **given)
    replace_pod(rig, 10)
    await rig.run()
    total, found = await records(rig)
    assert [task[0] for record in found for task in record] == ([] if reason is None else [reason])
    assert total == len(found)


async def test_a_vanished_node_is_unhealthy_and_its_pods_replacement_is_told_by_it() -> None:
    rig = demo()
    rig.tick(0)
    rig.delete("Node", "", "n1", 5)
    rig.tick(6)
    replace_pod(rig, 10)
    await rig.run()
    states = [json.loads(text) for text in rig.texts(VCJOB, "fault-node")]
    assert [[(one["NodeName"], one["NodeHealthState"]) for one in state] for state in states] == [
        [],
        [("n1", "NodeUnhealthy")],
        [],
    ]
    assert await records(rig) == (1, [[("NodeUnhealthy", "demo-0", "n1", "0")]])


async def test_a_job_without_the_label_is_in_no_retry_times_and_stays_there_once_it_is() -> None:
    rig = Rig(the_demo({}))
    rig.tick(0)
    await rig.run()
    assert await retries(rig) is None
    rig = demo()
    off = {**LABELS, "fault-scheduling": "off"}
    rig.tick(0)
    rig.apply(a_group(labels=off), 5)
    for pod in (0, 1):
        rig.apply(a_pod(f"demo-{pod}", node=f"n{pod + 1}", rank_index=pod, labels=off), 6 + pod)
    rig.tick(10)
    await rig.run()
    # Volcano takes an entry out only with the job or its owner (reschedule.go:442): without it the operator fails it.
    assert await retries(rig) == 3


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("grace", 1),
        ("force", 1),
        ("external-grace", 1),
        ("external-force", 1),
        ("maybe", 1),
        ("off", 0),
        ("", 0),
    ],
)
async def test_a_job_that_volcano_does_not_evaluate_leaves_no_record(word: str, expected: int) -> None:
    labels = {"fault-scheduling": word, "fault-retry-times": "3"} if word else {"fault-retry-times": "3"}
    rig = Rig(the_demo(labels))
    rig.fault(SEPARATE)
    replace_pod(rig, 10, labels=labels)
    await rig.run()
    assert (await records(rig))[0] == expected


def marked(pod: int, kind: str = "", **given: Any) -> dict[str, Any]:
    """A pod of the job with ClusterD's label."""
    labels = {**LABELS, "subHealthyStrategy": "graceExit"} | ({"fault-type": kind} if kind else {})
    return a_pod(f"demo-{pod}", node=f"n{pod + 1}", rank_index=pod, labels=labels, **given)


FAILED: dict[str, Any] = {"phase": "Failed", "exit_code": 1}


@pytest.mark.parametrize(
    ("before", "named", "left"),
    [
        pytest.param([marked(0, "Separate")], ["RelationFaultSeparate"], 3, id="relation"),
        pytest.param([marked(0, "SubHealth")], ["SubHealthFault"], 3, id="sub-health"),
        pytest.param([marked(0, "software")], [], 3, id="software alone"),
        pytest.param([marked(0, "software", **FAILED)], ["pod-failed"], 2, id="software, failed itself"),
        pytest.param(
            [marked(0, "software"), marked(1, **FAILED)], ["process-exception", "pod-failed"], 2, id="software, another"
        ),
        pytest.param(
            [marked(0, "Separate"), marked(1, **FAILED)],
            ["RelationFaultSeparate", "pod-failed"],
            3,
            id="relation first",
        ),
        pytest.param([marked(0, "other")], [], 3, id="a word nobody knows"),
    ],
)
async def test_what_clusterd_marks_on_a_pod_is_a_reason(
    before: list[dict[str, Any]], named: list[str], left: int
) -> None:
    rig = demo(subHealthyStrategy="graceExit")
    for step, pod in enumerate(before):
        rig.apply(pod, 1 + step)
    for step in (0, 1):
        rig.delete("Pod", "train", f"demo-{step}", 10)
    for step in (0, 1):
        rig.apply({**marked(step, uid=f"uid-new-{step}")}, 20 + step)
    rig.tick(30)
    await rig.run()
    total, found = await records(rig)
    assert [task[0] for record in found for task in record] == named
    assert (total, await retries(rig)) == (1 if named else 0, left)


async def test_a_job_without_devices_is_no_npu_job() -> None:
    objects = [an_ascend_job(), a_group(labels=LABELS), a_pod("demo-0", devices=(), labels=LABELS)]
    rig = Rig(objects)
    rig.tick(0)
    await rig.run()
    assert await retries(rig) is None


async def test_two_jobs_on_one_node_are_told_apart_by_their_devices() -> None:
    other = "train/other-1"
    objects = the_demo(LABELS)
    objects.append(a_group("other-1", owner="other", owner_uid="u2", min_member=1, labels=LABELS))
    objects.append(a_pod("other-0", group="other-1", devices=(4, 5), labels=LABELS))
    rig = Rig(objects)
    rig.fault(SEPARATE, device=5)
    replace_pod(rig, 10, "other-0", group="other-1", devices=(4, 5))
    await rig.run()
    assert await records(rig, other) == (1, [[("CardUnhealthy", "other-0", "n1", "0")]])
    assert rig.reasons(DEMO_JOB) == []
    assert await retries(rig, other) == 3
    assert DEMO_UID in (await rig.data(VCJOB) or {})["remain-retry-times"]


async def test_more_than_ten_pods_are_cut_to_ten_and_the_decision_says_how_many() -> None:
    objects: list[dict[str, Any]] = [an_ascend_job(), a_group(labels=LABELS, min_member=12)]
    objects += [a_pod(f"demo-{n}", node=f"n{n}", rank_index=n, labels=LABELS) for n in range(12)]
    rig = Rig(objects)
    for number in range(12):
        rig.fault(SEPARATE, node=f"n{number}")
    for number in range(12):
        rig.delete("Pod", "train", f"demo-{number}", 10)
    for number in range(12):
        rig.apply(new_pod(f"demo-{number}", node=f"m{number}", rank_index=number), 20)
    rig.tick(30)
    await rig.run()
    total, found = await records(rig)
    assert total == 1
    assert [task[1] for task in found[0]] == [f"demo-{number}" for number in range(10)]
    (told,) = (one for one in rig.decisions if one.reason is Reason.RESCHEDULE_RECORDED)
    assert told.detail.endswith("and 9 more; restart 1 of the job")
