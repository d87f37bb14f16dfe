"""Retries of jobs in `remain-retry-times`: taken by failed pods alone, never below none, gone with the job."""

import json

from kubebuilders import DEMO_JOB, a_config_map, a_group, a_node, a_pod, the_demo
from placements import LABELS, SEPARATE, VCJOB, demo, evict_all, new_pod, records, replace_pod, retries
from rig import Rig


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
