"""Relation rules on a job: which pods, told once, kept over restarts, and what acts on it (faultcodes.md §5)."""

from dataclasses import replace
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, a_group, a_node, a_pod, the_demo
from rig import POLICY, T0, Rig

from agent.domain.vocab import JobId, Millis, Reason

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
LINK, L2, REQUEST = "81078603", "[0x08520003,na,L2,na]", "80BB8003"
RETRY_OVER, RETRIED, CQE = "8C1F860B", "8C1F8609", "8C1F8608"
WORDS = (Reason.RELATION_SEPARATE, Reason.RELATION_SUB_HEALTH, Reason.RELATION_IGNORED)
SWITCH: dict[str, Any] = {
    "device": None,
    "resource": "lingqu",
    "location": {"switchChipId": 0, "switchPortId": 3},
}


def demo(**labels: str) -> Rig:
    return Rig(the_demo({**LABELS, **labels}))


def told(rig: Rig) -> list[tuple[float, str, str]]:
    return [((one.at - T0) / 1000, str(one.reason), one.level) for one in rig.decisions if one.reason in WORDS]


def related(rig: Rig) -> dict[str, bool]:
    """Pod UID -> separated; False: sub-healthy."""
    return {uid: one.separate for uid, one in rig.book.ledger(JobId(DEMO_JOB)).related.items()}


async def test_a_trigger_anywhere_in_the_job_separates_the_pods_on_the_link_fault() -> None:
    rig = demo()
    rig.fault(LINK, 1)
    rig.fault(RETRY_OVER, 10, node="n2", device=0, assertion="once")
    rig.tick(400)
    await rig.run()
    assert told(rig) == [(10, "RELATION_SEPARATE", "SeparateNPU")]
    assert related(rig) == {"uid-demo-0": True}


async def test_sub_health_first_and_separate_later_but_never_back() -> None:
    rig = demo()
    rig.fault(LINK, 1)
    rig.fault(RETRIED, 10, assertion="once")
    rig.fault(RETRY_OVER, 20, assertion="once")
    rig.fault(RETRIED, 30, assertion="once")
    rig.tick(400)
    await rig.run()
    assert told(rig) == [(10, "RELATION_SUB_HEALTH", "SubHealthFault"), (20, "RELATION_SEPARATE", "SeparateNPU")]


async def test_a_link_alone_is_ignored_in_the_end() -> None:
    rig = demo()
    rig.fault(LINK, 1)
    rig.tick(400)
    await rig.run()
    assert [one[:2] for one in told(rig)] == [(301.001, "RELATION_IGNORED")]
    assert related(rig) == {}


async def test_a_switch_alone_makes_every_pod_on_its_node_sub_healthy_in_the_end() -> None:
    rig = demo()
    rig.fault(L2, 1, **SWITCH)
    rig.tick(400)
    await rig.run()
    assert told(rig) == [(301.001, "RELATION_SUB_HEALTH", "SubHealthFault")]
    assert related(rig) == {"uid-demo-0": False}


@pytest.mark.parametrize(("product", "at"), [("module-910b-8", 10), ("module-a3-16", 301.001)])
async def test_cqe_errors_of_an_a3_job_act_at_the_time_out(product: str, at: float) -> None:
    objects = [one for one in the_demo(LABELS) if one["kind"] != "Node"]
    rig = Rig([*objects, *(a_node(name, accelerator_type=product, devices=range(8)) for name in ("n1", "n2"))])
    rig.fault(LINK, 1)
    rig.fault(CQE, 10, node="n2", device=1, assertion="once")
    rig.tick(400)
    await rig.run()
    assert [one[:2] for one in told(rig)] == [(at, "RELATION_SEPARATE")]


async def test_a_trigger_in_another_job_is_none() -> None:
    second = a_group("other-1", owner="other", owner_uid="other", min_member=1, labels=LABELS)
    rig = Rig([*the_demo(LABELS), second, a_pod("other-0", group="other-1", uid="uid-o", node="n3", labels=LABELS)])
    rig.fault(LINK, 1)
    rig.fault(RETRY_OVER, 10, node="n3", assertion="once")
    rig.tick(20)
    await rig.run()
    assert told(rig) == []


async def test_what_is_older_than_the_job_is_skipped() -> None:
    objects = the_demo(LABELS)
    for one in objects:
        if one["kind"] == "Pod":
            one["metadata"]["creationTimestamp"] = "2026-01-01T00:01:00Z"
    rig = Rig(objects)
    rig.fault(LINK, 50)
    rig.fault(RETRY_OVER, 70, assertion="once")
    rig.tick(400)
    await rig.run()
    assert told(rig) == []


async def test_a_separated_pod_that_is_replaced_is_recorded_and_forgotten() -> None:
    rig = demo()
    rig.fault(LINK, 1)
    rig.fault(RETRY_OVER, 2, assertion="once")
    rig.clear(LINK, 3)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-new", node="n3", labels=LABELS), 20)
    rig.tick(30)
    await rig.run()
    details = [one.detail for one in rig.decisions if one.reason is Reason.RESCHEDULE_RECORDED]
    assert details == ["replaced: demo-0 on n1 (RelationFaultSeparate); restart 1 of the job"]
    assert related(rig) == {}


@pytest.mark.parametrize(("strategy", "count"), [("ignore", 0), ("graceExit", 1)])
async def test_a_sub_healthy_pod_counts_as_hit_when_the_job_says_so(strategy: str, count: int) -> None:
    rig = demo(subHealthyStrategy=strategy)
    labels = {**LABELS, "subHealthyStrategy": strategy}
    rig.fault(LINK, 1)
    rig.fault(RETRIED, 2, assertion="once")
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-new", node="n3", labels=labels), 20)
    rig.tick(30)
    await rig.run()
    assert [one.reason for one in rig.decisions].count(Reason.RESCHEDULE_RECORDED) == count


async def test_nothing_is_recovered_in_place_beside_a_separated_pod() -> None:
    rig = demo()
    rig.fault(REQUEST, 1, node="n2")
    rig.fault(LINK, 2)
    rig.fault(RETRY_OVER, 3, assertion="once")
    rig.fault(REQUEST, 200, device=1)
    rig.tick(210)
    await rig.run()
    reasons = [(one.at - T0, str(one.reason)) for one in rig.decisions if one.job == DEMO_JOB and one.fault]
    assert (3000, "RECOVERY_FAILED") in reasons
    assert (200_000, "ISOLATION_ONLY") in reasons


async def test_what_isolates_is_named_so_that_it_can_be_asked_for() -> None:
    rig = demo()
    rig.fault(LINK, 2)
    rig.fault(RETRY_OVER, 3, assertion="once")
    rig.fault(REQUEST, 200, device=1)
    rig.tick(210)
    await rig.run()
    details = [one.detail for one in rig.decisions if one.reason is Reason.ISOLATION_ONLY]
    assert details == [f"the job already has a pod separated by a relation rule over n1/network/2/{LINK}"]


async def test_a_pod_that_came_after_the_link_was_up_again_is_left_alone() -> None:
    rig = demo()
    rig.fault(LINK, 1)
    rig.clear(LINK, 5)
    rig.delete("Pod", "train", "demo-0", 40)
    new = a_pod("demo-0", uid="uid-new", node="n1", labels=LABELS)
    new["metadata"]["creationTimestamp"] = "2026-01-01T00:00:50Z"
    rig.apply(new, 50)
    rig.fault(RETRY_OVER, 100, node="n2", device=0, assertion="once")
    rig.fault(REQUEST, 120)
    rig.tick(400)
    await rig.run()
    assert related(rig) == {}
    assert told(rig) == [(100, "RELATION_IGNORED", "NotHandleFault")]
    assert Reason.RECOVERY_STARTED in [one.reason for one in rig.decisions]


async def test_a_pod_that_came_while_the_link_was_down_is_on_it_too() -> None:
    rig = demo()
    rig.fault(LINK, 1)
    rig.delete("Pod", "train", "demo-0", 40)
    new = a_pod("demo-0", uid="uid-new", node="n1", labels=LABELS)
    new["metadata"]["creationTimestamp"] = "2026-01-01T00:00:50Z"
    rig.apply(new, 50)
    rig.fault(RETRY_OVER, 100, node="n2", device=0, assertion="once")
    rig.tick(400)
    await rig.run()
    assert related(rig) == {"uid-new": True}


@pytest.mark.parametrize("noise", [[], [1000], [950, 1500]])
@pytest.mark.parametrize("again", [False, True])
async def test_a_wait_longer_than_reports_tell_their_faults_ends_as_any_other(noise: list[float], again: bool) -> None:
    policy = replace(POLICY, relation_timeouts={L2: Millis(1_800_000), LINK: Millis(1_800_000)})
    rig = Rig(the_demo(LABELS), policy=policy)
    rig.fault(L2, 1, **SWITCH)
    rig.fault(LINK, 2, device=3)
    rig.clear(LINK, 3, device=3)
    rig.fault(CQE, 700, node="n2", device=1)
    rig.clear(CQE, 701, node="n2", device=1)
    for at in noise:
        for node in ("n1", "n2"):
            rig.fault("80818200", at, node=node, device=1, assertion="once")
    heard = []
    if again:
        rig.tick(1600)
        await rig.run()
        heard = told(rig)
        rig = Rig(rig.objects, disk=rig.disk, source=rig.source, policy=policy, _number=rig._number)
    rig.tick(2300)
    await rig.run(resume=again)
    assert [one[:2] for one in (*heard, *told(rig))] == [
        (700, "RELATION_SEPARATE"),
        (1801.001, "RELATION_SUB_HEALTH"),
    ]
    assert related(rig) == {"uid-demo-0": True}
    assert rig.book.ledger(JobId(DEMO_JOB)).waiting == {}


async def test_a_link_that_flaps_leaves_nothing_in_the_ledger_that_its_report_tells_anyway() -> None:
    rig = demo()
    for at in (1, 300, 650, 800):
        rig.fault(LINK, at)
        rig.clear(LINK, at + 1)
    rig.tick(810)
    await rig.run()
    assert rig.book.ledger(JobId(DEMO_JOB)).waiting == {}


async def test_an_error_long_past_still_counts_at_the_end_of_a_long_wait_of_a_super_pod() -> None:
    policy = replace(POLICY, relation_timeouts={LINK: Millis(3_000_000)})
    objects = [one for one in the_demo(LABELS) if one["kind"] != "Node"]
    nodes = [a_node(name, accelerator_type="module-a3-16", devices=range(8)) for name in ("n1", "n2")]
    rig = Rig([*objects, *nodes], policy=policy)
    rig.fault(LINK, 1)
    rig.fault(CQE, 10, node="n2", device=1, assertion="once")
    for at in (1000, 2000, 2900):
        for node in ("n1", "n2"):
            rig.fault("80818200", at, node=node, device=1, assertion="once")
    rig.tick(3100)
    await rig.run()
    assert [one[:2] for one in told(rig)] == [(3001.001, "RELATION_SEPARATE")]


@pytest.mark.parametrize("at", [5, 15, 25, 200, 350])
async def test_a_restart_at_any_time_changes_nothing(at: float) -> None:
    rig = demo()
    events = [(1, LINK, "occur"), (10, RETRIED, "once"), (20, RETRY_OVER, "once"), (30, LINK, "recover")]
    for when, code, assertion in (one for one in events if one[0] < at):
        rig.fault(code, when, assertion=assertion)
    rig.tick(at)
    await rig.run()
    again = Rig(rig.objects, disk=rig.disk, source=rig.source, _number=rig._number)
    for when, code, assertion in (one for one in events if one[0] >= at):
        again.fault(code, when, assertion=assertion)
    again.tick(700)
    await again.run(resume=True)
    assert [one[:2] for one in (*told(rig), *told(again))] == [(10, "RELATION_SUB_HEALTH"), (20, "RELATION_SEPARATE")]
    assert related(again) == {"uid-demo-0": True}
