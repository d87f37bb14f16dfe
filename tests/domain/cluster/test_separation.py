"""Trips of a node's frequency rules: the coordinator keeps and releases them, once (faultcodes.md §3, frequency)."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kubebuilders import a_config_map, a_node, a_pod, the_demo
from rig import POLICY, T0, Rig

from agent.adapters.memory import MemoryJobView
from agent.app.world import World
from agent.domain.cluster import ClusterBook, Limits, decide_node, evolve
from agent.domain.events import ActiveFault, FaultKey, FrequencyCounter, NodeReport
from agent.domain.isolation import Isolation
from agent.domain.ledger import ClusterLedger
from agent.domain.policy import FrequencyRule
from agent.domain.vocab import HOUR, MANUAL, Millis, NodeName, OccurrenceId, Plane, Reason, Source

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
CODE = "80C98000"
"""Trips to ManuallySeparateNPU with its second occurrence within a day, and never ends by itself."""
WHO = f"n1/chip/2/{CODE}"
N1 = NodeName("n1")
DCMI = Source.DCMI


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


async def test_a_policy_that_gives_it_another_level_for_a_while_brings_no_released_trip_back() -> None:
    rig = demo()
    flash(rig, 10)
    flash(rig, 110)
    rig.apply(manual("Ascend910-2"), 200)
    rig.apply(manual(), 300)
    rig.tick(310)
    await rig.run()
    heard, by_hand = told(rig), rig.policy
    milder = FrequencyRule(CODE, Millis(86_400_000), 2, "PreSeparateNPU", Millis(600_000))
    for at, policy in ((400, replace(POLICY, frequencies={int(CODE, 16): milder})), (500, by_hand)):
        rig = again(rig)
        rig.policy = policy
        rig.fault("80818200", at, device=1, assertion="once")
        rig.tick(at + 10)
        await rig.run(resume=True)
        heard += told(rig)
    assert heard == [(110, "SEPARATED", WHO), (300, "SEPARATION_RELEASED", WHO)]
    assert KEPT[0] not in listed(rig)


def tripped(number: int) -> FrequencyCounter:
    at = Millis(T0 + number)
    trip, opening = OccurrenceId(f"0:0:{number}:20000000"), OccurrenceId(f"0:0:{number}:0")
    return FrequencyCounter(KEY, "held", (), Millis(0), MANUAL, at, at, Millis(0), trip, opening)


KEY = FaultKey(N1, Plane.CHIP, "2", CODE)


class Node:
    """A book of one node's reports, decided one after the other."""

    def __init__(self) -> None:
        self.book = ClusterBook("c", Limits(), POLICY)
        self.seq = 0

    def see(
        self, *counters: FrequencyCounter, listed: Mapping[int, Millis] | None = None, at: int = 0, **given: Any
    ) -> list[str]:
        """What is said of separations once this report is read, `at` hours later."""
        self.seq += 1
        report = NodeReport("c", N1, 1, self.seq, "i", **{"caught_up": True, "counters": counters, **given})
        self.book.reports[N1] = report
        self.book.listed.clear()
        self.book.listed.update({} if listed is None else {N1: listed})
        return self.decide(at)

    def decide(self, at: int = 0) -> list[str]:
        verdict = decide_node(self.book, N1, Millis(T0 + at * HOUR + self.seq))
        evolve(self.book, verdict)
        return [str(one.reason) for one in verdict.decisions]

    @property
    def kept(self) -> list[str]:
        return [one.trip for one in self.book.cluster.separations.get(N1, ())]


THERE = {2: Millis(0)}


@pytest.mark.parametrize(
    "given", [{"cut": ("counters:1", "active:619")}, {"caught_up": False}], ids=["cut", "not caught up"]
)
def test_a_report_that_is_not_whole_makes_no_release_forgotten(given: dict[str, Any]) -> None:
    node = Node()
    assert node.see(tripped(1)) == ["SEPARATED"]
    node.see(tripped(1), listed=THERE)
    assert node.see(tripped(1)) == ["SEPARATION_RELEASED"]
    assert node.see(**given) == []
    assert node.see(tripped(1)) == []
    assert node.see() == []  # a whole report without the counter
    assert node.book.cluster.freed == {}


def test_a_trip_that_came_after_its_name_was_removed_is_not_released_by_that() -> None:
    node = Node()
    node.see(tripped(1))
    node.see(tripped(1), listed=THERE)
    assert node.see(tripped(2)) == ["SEPARATED"]
    assert node.kept == [tripped(2).trip]


@pytest.mark.parametrize(
    ("hours", "policy", "released"),
    [
        pytest.param(47, Isolation(), True, id="before its hours are over"),
        pytest.param(48, Isolation(), False, id="when they are over"),
        pytest.param(1000, Isolation(free=None), True, id="hours that never end"),
        pytest.param(1, Isolation(enabled=False), False, id="while it is switched off"),
        pytest.param(0, None, True, id="at once, of a policy that cannot be read"),
        pytest.param(1, None, False, id="later, of a policy that cannot be read"),
    ],
)
def test_what_clusterd_itself_takes_from_its_list_no_person_has(
    hours: int, policy: Isolation | None, released: bool
) -> None:
    node = Node()
    node.see(tripped(1))
    node.see(tripped(1), listed={2: Millis(T0)})
    node.book.isolation = policy
    assert node.see(tripped(1), at=hours) == (["SEPARATION_RELEASED"] if released else [])
    assert node.kept == ([] if released else [tripped(1).trip])


def test_another_machine_under_the_name_inherits_nothing() -> None:
    node = Node()
    node.see(tripped(1), machine="AAA", listed={3: Millis(0)})
    assert node.see(machine="", at=24) == []
    assert node.see(machine="BBB", at=25) == ["SEPARATION_RELEASED"]
    node.decide(26)
    assert node.book.cluster == replace(ClusterLedger("c"), told=node.book.cluster.told)
    assert node.book.entries == {}


@pytest.mark.parametrize(
    ("nodes", "gone"),
    [
        pytest.param(["n2"], True, id="its Node is gone"),
        pytest.param(["n1", "n2"], False, id="its Node is there, so a person removed the report"),
        pytest.param([], False, id="no Nodes are seen at all"),
    ],
)
def test_of_a_node_that_is_gone_for_good_nothing_is_kept(nodes: list[str], gone: bool) -> None:
    node = Node()
    World(node.book).replace([a_node(name, devices=range(8)) for name in nodes], ())
    bus_and_memory = tuple(
        ActiveFault(replace(KEY, code=code), Millis(T0), "RestartRequest", "t", OccurrenceId(id_), DCMI, devices=(2,))
        for code, id_ in (("80C98009", "0:0:8:0"), ("80E01801", "0:0:9:0"))
    )
    node.see(tripped(1), active=bus_and_memory, listed={3: Millis(0)})
    assert len(node.book.cluster.dropped) == 1
    coordinator_forgets(node.book)
    assert node.decide(48) == (["SEPARATION_RELEASED"] if gone else [])
    if gone:
        assert node.book.cluster == ClusterLedger("c")
    else:
        assert node.kept == [tripped(1).trip]


def coordinator_forgets(book: ClusterBook) -> None:
    """What the coordinator does with a tombstone."""
    book.reports.pop(N1)
    book.buried.add(N1)


async def test_a_separation_is_named_so_that_it_is_no_other_fault() -> None:
    rig = demo()
    flash(rig, 10)
    flash(rig, 110)
    rig.fault("80BB8003", 200, device=1)
    rig.tick(300)
    await rig.run()
    details = [one.detail for one in rig.decisions if one.reason is Reason.ISOLATION_ONLY and "80BB8003" in one.fault]
    assert details == ["the job already has a separation by hand of device 2 of n1 for 80C98000"]


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
