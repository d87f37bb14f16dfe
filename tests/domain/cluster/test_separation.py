"""Trips of a node's frequency rules: the coordinator keeps and releases them, once (faultcodes.md §3, frequency)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from kubebuilders import a_config_map, a_pod, the_demo
from rig import POLICY, T0, Rig

from agent.adapters.memory import MemoryJobView
from agent.domain.policy import FrequencyRule
from agent.domain.vocab import MANUAL, Millis, NodeName, Reason

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
CODE = "80C98000"
"""Trips to ManuallySeparateNPU with its second occurrence within a day, and never ends by itself."""
WHO = f"n1/chip/2/{CODE}"
N1 = NodeName("n1")


def demo(release: int = 0) -> Rig:
    rule = FrequencyRule(CODE, Millis(86_400_000), 2, MANUAL, Millis(release * 1000))
    return Rig(the_demo(LABELS), policy=replace(POLICY, frequencies={int(CODE, 16): rule}))


def again(rig: Rig) -> Rig:
    return Rig(rig.objects, disk=rig.disk, source=rig.source, policy=rig.policy, _number=rig._number)


def flash(rig: Rig, at: float) -> None:
    rig.fault(CODE, at)
    rig.clear(CODE, at + 1)


def told(rig: Rig) -> list[tuple[float, str, str]]:
    words = (Reason.SEPARATED, Reason.SEPARATION_RELEASED)
    return [
        ((one.at - T0) / 1000, str(one.reason), one.fault.rpartition("@")[0])
        for one in rig.decisions
        if one.reason in words
    ]


def listed(rig: Rig) -> list[tuple[str, str, str]]:
    entry = rig.book.entries.get(N1)
    return [(one.npu_name, one.level, one.fault_code) for one in (entry.devices or () if entry is not None else ())]


def manual(*names: str) -> dict[str, Any]:
    value = json.dumps({"Total": names, "Detail": {}})
    return a_config_map("clusterd-manual-info-cm", {"n1": value}, namespace="cluster-system")


SWITCHED_OFF = a_config_map(
    "clusterd-config-cm", {"manually_separate_policy.conf": "enabled: false"}, namespace="cluster-system"
)
"""ClusterD's own counting, which is no matter of a node's rules."""
KEPT = [("Ascend910-2", MANUAL, "")]


async def test_a_trip_is_kept_and_shown_also_once_the_fault_is_gone() -> None:
    rig = demo()
    flash(rig, 10)
    flash(rig, 110)
    rig.tick(400_000)
    await rig.run()
    assert told(rig) == [(110, "SEPARATED", WHO)]
    assert listed(rig) == KEPT


async def test_while_the_fault_is_there_its_code_is_listed_with_the_stronger_level() -> None:
    rig = demo()
    flash(rig, 10)
    rig.fault(CODE, 110)
    rig.tick(120)
    await rig.run()
    assert listed(rig) == [("Ascend910-2", MANUAL, CODE)]


async def test_its_window_counts_from_the_recover_and_releases_once() -> None:
    rig = demo(release=600)
    flash(rig, 10)
    flash(rig, 110)
    rig.tick(711)
    rig.tick(5000)
    await rig.run()
    assert told(rig) == [(110, "SEPARATED", WHO), (711.001, "SEPARATION_RELEASED", WHO)]
    assert listed(rig) == []


async def test_a_fault_while_it_is_kept_begins_the_window_anew() -> None:
    rig = demo(release=600)
    for at in (10, 110, 500):
        flash(rig, at)
    rig.tick(5000)
    await rig.run()
    assert told(rig)[-1] == (1101.001, "SEPARATION_RELEASED", WHO)


async def test_a_person_releases_it_and_the_same_trip_is_not_kept_again() -> None:
    rig = demo()
    flash(rig, 10)
    flash(rig, 110)
    rig.apply(manual("Ascend910-2"), 200)
    rig.apply(manual(), 300)
    rig.fault("80818200", 400, device=1)  # another report, which still tells of the trip
    rig.tick(500)
    await rig.run()
    assert told(rig) == [(110, "SEPARATED", WHO), (300, "SEPARATION_RELEASED", WHO)]
    assert listed(rig) == []
    assert len(rig.book.cluster.freed) == 1


async def test_what_was_counted_before_a_person_released_it_does_not_count_again() -> None:
    # Two faults trip the node's rule and count two of the three that clusterd-config-cm takes.
    rig = demo()
    flash(rig, 10)
    flash(rig, 110)
    rig.apply(manual("Ascend910-2"), 200)
    rig.apply(manual(), 300)
    flash(rig, 400)
    rig.tick(500)
    await rig.run()
    assert [one[:2] for one in told(rig)] == [(110, "SEPARATED"), (300, "SEPARATION_RELEASED")]
    assert [count.times for count in rig.book.cluster.counts[N1].values()] == [(T0 + 400_000,)]


async def test_another_trip_after_that_is_kept() -> None:
    rig = demo()
    rig.apply(SWITCHED_OFF, 0)
    for at in (10, 110):
        flash(rig, at)
    rig.apply(manual("Ascend910-2"), 200)
    rig.apply(manual(), 300)
    for at in (400, 500):
        flash(rig, at)
    rig.tick(600)
    await rig.run()
    assert [one[:2] for one in told(rig)] == [(110, "SEPARATED"), (300, "SEPARATION_RELEASED"), (500, "SEPARATED")]
    assert rig.book.cluster.freed == {}


@pytest.mark.parametrize("at", [50, 115, 250, 705])
async def test_a_restart_at_any_time_tells_and_releases_nothing_twice(at: float) -> None:
    rig = demo(release=600)
    early, late = [(10.0, flash), (110.0, flash)], []
    if at < 110:
        early, late = early[:1], early[1:]
    for when, what in early:
        what(rig, when)
    rig.tick(at)
    await rig.run()
    second = again(rig)
    for when, what in late:
        what(second, when)
    second.tick(5000)
    await second.run(resume=True)
    assert [*told(rig), *told(second)] == [(110, "SEPARATED", WHO), (711.001, "SEPARATION_RELEASED", WHO)]


async def test_a_rule_that_was_removed_releases_nothing() -> None:
    rig = demo()
    flash(rig, 10)
    flash(rig, 110)
    rig.tick(120)
    await rig.run()
    second = again(rig)
    second.policy = replace(POLICY, frequencies={})
    second.tick(5000)
    await second.run(resume=True)
    assert listed(second) == KEPT


async def test_a_pod_on_the_device_counts_as_hit() -> None:
    rig = demo()
    flash(rig, 10)
    flash(rig, 110)
    rig.delete("Pod", "train", "demo-0", 200)
    rig.apply(a_pod("demo-0", uid="uid-new", node="n3", labels=LABELS), 210)
    rig.tick(220)
    await rig.run()
    assert Reason.RESCHEDULE_RECORDED in [one.reason for one in rig.decisions]


async def test_switching_off_the_counting_of_clusterd_releases_no_trip() -> None:
    rig = demo()
    flash(rig, 10)
    flash(rig, 110)
    rig.apply(SWITCHED_OFF, 200)
    rig.tick(300)
    await rig.run()
    assert listed(rig) == KEPT


async def test_a_filter_of_the_job_keeps_no_trip_back() -> None:
    rig = demo()
    rig.objects = the_demo(LABELS, {"huawei.com/schedule.filter.faultCode": f"{CODE}:3600"})
    rig.view = MemoryJobView(rig.objects)
    flash(rig, 10)
    flash(rig, 110)
    rig.tick(120)
    await rig.run()
    assert listed(rig) == KEPT
    trip = [str(one.reason) for one in rig.decisions if one.level == MANUAL and one.job]
    assert trip == ["ISOLATION_ONLY"]
