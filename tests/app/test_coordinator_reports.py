"""What comes in at the coordinator role: a bad report costs its node alone, and nothing is lost or waits."""

import json
from dataclasses import replace

import pytest
from coordinatorscene import JOB_LEDGER, LABELS, REQUEST, RESET, SEPARATE, VCJOB, Agent, demo, settle, without_pauses
from kubebuilders import DEMO_JOB, a_group, a_node, a_pod, the_demo
from rolerig import N1, Bus, Clock, CoordinatorRig, a_report

from agent.ports import ConfigMap
from agent.wire.report import encode


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


# --- reports ----------------------------------------------------------------------------------------------------------


async def test_a_report_that_has_not_caught_up_is_not_taken() -> None:
    rig = demo()
    await rig.lead()
    rig.stream.fault(SEPARATE)
    agent = Agent(rig)
    agent.report()
    await settle(rig, 1)
    assert await rig.fault_nodes() == ["n1"]
    rig.bus.foreign(a_report(epoch=9, seq=1, caught_up=False))
    await settle(rig, 1)
    assert await rig.fault_nodes() == ["n1"]
    assert rig.book.reports[N1].active
    rig.bus.foreign(a_report(epoch=9, seq=2, caught_up=True))
    await settle(rig, 1)
    assert await rig.fault_nodes() == []
    await rig.end()


async def test_an_older_report_is_not_taken() -> None:
    rig = demo()
    await rig.lead()
    rig.stream.fault(SEPARATE)
    Agent(rig).report(epoch=3, seq=7)
    await settle(rig, 1)
    rig.bus.foreign(a_report(epoch=3, seq=6, caught_up=True))
    rig.bus.foreign(a_report(epoch=2, seq=99, caught_up=True))
    await settle(rig, 1)
    assert await rig.fault_nodes() == ["n1"]
    await rig.end()


@pytest.mark.parametrize(
    ("bad", "counted"),
    [
        pytest.param(b"garbage", "unreadable", id="unreadable"),
        pytest.param(encode(a_report()).replace(b'"schema":1', b'"schema":2'), "unreadable", id="newer schema"),
        pytest.param(encode(a_report(cluster="b", epoch=9, caught_up=True)), "foreign", id="another cluster"),
    ],
)
async def test_a_report_that_cannot_be_used_freezes_its_node_alone(bad: bytes, counted: str) -> None:
    rig = demo()
    await rig.lead()
    one, two = Agent(rig), Agent(rig, "n2")
    rig.stream.fault(SEPARATE)
    one.report()
    await settle(rig, 1)
    rig.bus.put(N1, bad)
    rig.stream.fault(SEPARATE, 1, assertion="recover")
    rig.stream.fault(SEPARATE, 1, node="n2")
    two.report()
    await settle(rig, 10)
    assert await rig.fault_nodes() == ["n1", "n2"]
    assert getattr(rig.role.pulse, counted) == {"n1"}
    assert rig.reasons().count("DOCUMENT_UNREADABLE") == (counted == "unreadable")
    one.report(epoch=20)
    await settle(rig, 1)
    assert await rig.fault_nodes() == ["n2"]
    assert getattr(rig.role.pulse, counted) == set()
    await rig.end()


async def test_after_a_take_over_a_report_without_some_faults_clears_nothing_and_heals_nothing() -> None:
    first = demo()
    await first.lead(1)
    first.stream.fault(REQUEST)
    agent = Agent(first)
    agent.report()
    await settle(first, 1)
    await first.end()
    whole = first.bus.last()
    first.bus.foreign(replace(whole, seq=whole.seq + 1, active=(), cut=("active:1",)))
    second = CoordinatorRig(first.bus, first.stream, store=first.memory, objects=the_demo(LABELS))
    await second.lead(2)
    await settle(second, 8)
    assert await second.fault_nodes() == ["n1"]
    assert '"Status":"unrecovered"' in (await second.data(RESET))["reset.json"]
    assert len([line for line in second.said if "has no room for 1 active faults" in line]) == 1
    first.bus.foreign(replace(whole, seq=whole.seq + 2, active=()))
    await settle(second, 1)
    assert await second.fault_nodes() == []
    assert "RECOVERY_SUCCEEDED" in second.reasons()
    await second.end()


async def test_after_a_take_over_an_unreadable_report_clears_nothing_and_heals_nothing() -> None:
    first = demo()
    await first.lead(1)
    first.stream.fault(REQUEST)
    Agent(first).report()
    await settle(first, 1)
    await first.end()
    first.bus.put(N1, b"garbage")
    second = CoordinatorRig(first.bus, first.stream, store=first.memory, objects=the_demo(LABELS))
    await second.lead(2)
    second.objects.set(a_node("n1", internal_ip="10.0.0.1", labels={"new": "label"}))
    await settle(second, 20)
    assert await second.fault_nodes() == ["n1"]
    assert '"Status":"unrecovered"' in (await second.data(RESET))["reset.json"]
    assert "RECOVERY_SUCCEEDED" not in second.reasons()
    await second.end()


async def test_an_entry_of_a_node_that_is_no_more_does_not_stay_for_ever() -> None:
    first = demo()
    await first.lead(1)
    first.stream.fault(SEPARATE)
    Agent(first).report()
    await settle(first, 1)
    await first.end()
    second = CoordinatorRig(Bus(Clock()), store=first.memory, objects=[a_node("n2")])
    await second.lead(2)
    assert await second.fault_nodes() == []
    await second.end()


async def test_a_tombstone_takes_the_node_out() -> None:
    rig = demo()
    await rig.lead()
    rig.stream.fault(SEPARATE)
    Agent(rig).report()
    await settle(rig, 1)
    rig.bus.put(N1, None)
    await settle(rig, 1)
    assert await rig.fault_nodes() == []
    assert N1 not in rig.book.reports
    assert rig.role.unknown_nodes() == ()
    await rig.end()


async def test_a_report_is_buried_a_day_after_its_node_went() -> None:
    rig = demo()
    Agent(rig).report()
    await rig.lead()
    rig.objects.gone("Node", "", "n1")
    await settle(rig, 2)
    rig.clock.set_by = 23 * 3_600_000
    await settle(rig, 2)
    assert "tombstone" not in rig.bus.writes
    rig.clock.set_by = 24 * 3_600_000
    await settle(rig, 5)
    assert rig.bus.writes.count("tombstone") == 1
    assert N1 not in rig.book.reports
    await rig.end()


async def test_nothing_is_buried_while_no_node_is_seen_at_all() -> None:
    rig = CoordinatorRig()
    rig.bus.foreign(a_report(caught_up=True))
    await rig.lead()
    rig.clock.set_by = 48 * 3_600_000
    await settle(rig, 5)
    assert "tombstone" not in rig.bus.writes
    await rig.end()


async def test_a_node_is_unknown_after_180_s_of_silence_and_keeps_its_entry() -> None:
    rig = demo()
    rig.stream.fault(SEPARATE)
    Agent(rig).report()
    await rig.lead()
    await settle(rig, 180)
    assert rig.role.unknown_nodes() == ()
    await settle(rig, 3)
    assert rig.role.unknown_nodes() == (N1,)
    assert await rig.fault_nodes() == ["n1"]
    await rig.end()


# --- nothing that comes in is lost or waits ---------------------------------------------------------------------------


async def test_a_report_that_comes_while_a_ledger_is_written_is_acted_on() -> None:
    rig = demo()
    await rig.lead()
    agent = Agent(rig)
    rig.stream.fault(REQUEST)
    agent.report()
    came: list[str] = []

    async def meanwhile(document: ConfigMap) -> None:
        if document.name == JOB_LEDGER and not came:
            came.append("report")
            rig.stream.fault(SEPARATE, 1, device=0)
            agent.report()
            await rig.clock.sleep(0.05)

    rig.real.before = meanwhile
    await settle(rig, 0.5)
    assert came == ["report"]
    assert {"RECOVERY_STARTED", "ISOLATION_ONLY", "RECOVERY_FAILED"} <= set(rig.reasons())
    devices = json.loads((await rig.data(f"volcano-system/{VCJOB}"))["fault-node"])[0]["FaultDeviceList"]
    assert [one["npu_name"] for one in devices] == ["Ascend910-0", "Ascend910-2"]
    await rig.end()


async def test_a_document_that_others_change_while_it_is_written_is_rendered_again() -> None:
    rig = demo()
    await rig.lead()
    came: list[str] = []

    async def meanwhile(document: ConfigMap) -> None:
        if document.name == VCJOB and not came:
            came.append("change")
            rig.coordinator.document_changed("volcano-system", VCJOB)

    rig.real.before = meanwhile
    rig.stream.fault(SEPARATE)
    Agent(rig).report()
    await rig.clock.settle()
    assert came == ["change"]
    assert rig.coordinator.idle
    assert await rig.fault_nodes() == ["n1"]
    await rig.end()


async def test_an_object_that_changes_wakes_the_leader_at_once() -> None:
    rig = CoordinatorRig(objects=[a_node("n1")])
    rig.stream.fault(REQUEST)
    Agent(rig).report()
    await rig.lead()
    rig.objects.set(a_group(labels=LABELS))
    rig.objects.set(a_pod("demo-0", node="n1", rank_index=0, labels=LABELS))
    await rig.clock.settle()
    retries = json.loads((await rig.data(f"volcano-system/{VCJOB}"))["remain-retry-times"])
    assert list(retries) == [DEMO_JOB]
    await rig.end()


async def test_an_object_that_cannot_be_read_is_told_once_and_costs_itself() -> None:
    rig = demo()
    await rig.lead()
    for number in range(3):
        rig.objects.set({"kind": "Pod", "metadata": {"name": "odd", "namespace": "train", "labels": number}})
        await settle(rig, 1)
    told = [said for said in rig.said if "odd" in said]
    assert 1 <= len(told) <= 3
    assert rig.role._p.world.findings == []
    assert not rig.acting.done()
    await rig.end()


async def test_a_label_that_counts_otherwise_than_it_reads_is_told_once_by_the_leader() -> None:
    rig = CoordinatorRig(objects=[a_node("n1"), a_group(labels={**LABELS, "subHealthyStrategy": "leave"})])
    rig.follow()
    await settle(rig, 2)
    assert rig.said == []
    await rig.lead()
    for number in range(3):
        rig.objects.set(a_pod("demo-0", node="n1", rank_index=0, labels=LABELS, pod_ip=f"10.0.0.{number}"))
        await settle(rig, 2)
    told = (
        f"LABEL_BAD PodGroup {DEMO_JOB}: subHealthyStrategy: 'leave' is none of ignore, graceExit, forceExit, hotSwitch"
    )
    assert rig.said == [told]
    await rig.end()
