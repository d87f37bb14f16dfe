"""Pods that a fault has hit and what their replacement means: one record, and a retry only for failed pods alone."""

import json
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, DEMO_UID, a_config_map, a_group, a_pod, an_ascend_job, the_demo
from placements import LABELS, SEPARATE, VCJOB, Task, demo, evict_all, new_pod, records, replace_pod, retries
from rig import Rig

from agent.domain.vocab import Reason


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


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        pytest.param(20, (0, []), id="over before the pod went"),
        pytest.param(45, (1, [[("CardUnhealthy", "demo-0", "n1", "0")]]), id="over once the pod had gone"),
        pytest.param(None, (1, [[("CardUnhealthy", "demo-0", "n1", "0")]]), id="never over"),
    ],
)
async def test_pods_replaced_after_a_failed_recovery_are_recorded_if_the_fault_was_there_as_they_went(
    over: int | None, expected: tuple[int, list[list[Task]]]
) -> None:
    labels = {**LABELS, "framework": "mindspore"}
    rig = Rig(the_demo(labels))
    rig.fault("80C98000", 1)
    rig.fault("80A18008", 10, device=3)
    rig.clear("80C98000", 14)
    if over == 20:
        rig.clear("80A18008", 20, device=3)
    rig.delete("Pod", "train", "demo-0", 40)
    if over == 45:
        rig.clear("80A18008", 45, device=3)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=labels), 55)
    rig.tick(60)
    await rig.run()
    assert Reason.RECOVERY_FAILED in [one.reason for one in rig.decisions]
    assert await records(rig) == expected
    assert await retries(rig) == 3


async def test_a_job_that_ends_leaves_no_record() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    for pod in (0, 1):
        rig.apply(a_pod(f"demo-{pod}", node=f"n{pod + 1}", rank_index=pod, phase="Succeeded", labels=LABELS), 10)
    rig.tick(20)
    await rig.run()
    assert await records(rig) == (0, [])


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
