"""The coordinator role: nothing from half a picture, nothing without the lease, nobody's trouble is another's."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from coordinatorscene import (
    CLUSTER_LEDGER,
    JOB_LEDGER,
    LABELS,
    REQUEST,
    RESET,
    SEPARATE,
    VCJOB,
    Agent,
    demo,
    settle,
    without_pauses,
)
from kubebuilders import DEMO_JOB, a_pod, the_demo
from rig import T0
from rolerig import N1, CoordinatorRig, quiet

from agent.adapters.memory import MemoryDocumentStore
from agent.app.bootstrap.coordinator import samples
from agent.errors import Fenced
from agent.ports import ConfigMap


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


# --- the picture and the term -----------------------------------------------------------------------------------------


async def test_nothing_is_written_before_reports_and_objects_are_complete() -> None:
    rig = demo()
    rig.objects.complete = False
    await rig.lead()
    await settle(rig, 5)
    assert rig.bus.writes == []
    rig.objects.complete = True
    await settle(rig, 1.1)
    assert rig.bus.writes[0] == CLUSTER_LEDGER
    await rig.end()


async def test_the_term_is_written_before_anything_else_and_stands_in_the_ledgers() -> None:
    rig = demo()
    await rig.lead(4)
    documents = [write for write in rig.bus.writes if write != "reasons"]
    assert documents[:3] == [CLUSTER_LEDGER, JOB_LEDGER, VCJOB]
    for place in (f"fault-agent/{CLUSTER_LEDGER}", f"train/{JOB_LEDGER}"):
        assert json.loads((await rig.data(place))["ledger.json"])["term"] == 4
    await rig.end()


async def test_a_later_term_that_has_written_fences_this_one() -> None:
    first = demo()
    await first.lead(7)
    await first.end()
    second = CoordinatorRig(store=first.memory, objects=the_demo(LABELS))
    await second.lead(5)
    assert isinstance(await quiet(second.acting), Fenced)
    assert second.bus.writes == []
    await second.end()


async def test_a_standby_reads_along_and_writes_nothing() -> None:
    rig = demo()
    rig.follow()
    rig.stream.fault(SEPARATE)
    Agent(rig).report()
    await settle(rig, 5)
    assert rig.role.pulse.complete
    assert rig.book.reports[N1].active
    assert rig.bus.writes == []
    await rig.end()


async def test_a_take_over_goes_on_where_the_other_was() -> None:
    first = demo()
    await first.lead(1)
    first.stream.fault(REQUEST)
    Agent(first).report()
    await settle(first, 1)
    written = dict(await first.data(RESET))
    assert '"Status":"unrecovered"' in written["reset.json"]
    second = CoordinatorRig(first.bus, first.stream, store=first.memory, objects=the_demo(LABELS))
    second.follow()
    await settle(second)
    await first.end()
    first.bus.writes.clear()
    await second.lead(2)
    assert await second.data(RESET) == written
    assert [write for write in first.bus.writes if write not in ("reasons", CLUSTER_LEDGER, JOB_LEDGER)] == []
    assert second.reasons().count("RECOVERY_STARTED") == 1
    await second.end()


async def test_once_the_lease_may_have_passed_on_no_write_is_sent() -> None:
    rig = demo()
    await rig.lead()
    count = len(rig.real.writes)
    rig.holds = False
    rig.stream.fault(SEPARATE)
    Agent(rig).report()
    await settle(rig, 1)
    assert isinstance(await quiet(rig.acting), Fenced)
    assert len(rig.real.writes) == count
    assert not rig.role.pulse.leading
    await rig.end()


async def test_another_writer_in_a_ledger_ends_the_term() -> None:
    rig = demo()
    await rig.lead()
    live = await rig.memory.get("train", JOB_LEDGER)
    assert live is not None
    other = rig.memory.as_manager("other")
    await other.put(replace(live, data={**live.data, "ledger.json": "{}"}))
    rig.stream.fault(REQUEST)
    Agent(rig).report()
    await settle(rig, 1)
    assert isinstance(await quiet(rig.acting), Fenced)
    assert await rig.data(RESET) == {}
    await rig.end()


# --- observe ----------------------------------------------------------------------------------------------------------


async def test_observe_writes_neither_documents_nor_ledgers_and_says_what_it_would_do() -> None:
    rig = CoordinatorRig(objects=the_demo(LABELS), settings={"mode": "observe"})
    await rig.lead()
    rig.stream.fault(REQUEST)
    Agent(rig).report()
    await settle(rig, 1)
    assert list(await rig.memory.list()) == []
    assert rig.real.writes == []
    told = [line.decision for line in rig.bus.lines()]
    assert {one.reason for one in told} == {"OBSERVE"}
    assert [one.fault for one in told if one.job == DEMO_JOB] == [f"n1/chip/2/{REQUEST}@{T0}"]
    assert all(line.mode == "observe" for line in rig.bus.lines())
    await rig.end()


async def test_observe_is_the_default_of_the_cluster_roles() -> None:
    rig = CoordinatorRig(objects=the_demo(LABELS), settings={"mode": None})
    await rig.lead()
    assert rig.role._p.mode == "observe"
    assert rig.real.writes == []
    await rig.end()


# --- two hands in one document ----------------------------------------------------------------------------------------


def spoil(text: str) -> str:
    """The same list with the first rank marked as something else."""
    return text.replace('"unrecovered"', '"recovered"', 1)


async def test_two_hands_in_one_document_end_in_an_alarm_and_few_writes_and_then_it_is_right_again() -> None:
    rig = demo(settings={"reset": {"executor": "external"}})
    await rig.lead()
    rig.stream.fault("80E24E00")
    Agent(rig).report()
    await settle(rig, 1)
    text = (await rig.data(RESET))["reset.json"]
    assert text.count('"unrecovered"') == 4
    other = rig.memory.as_manager("other")
    writes = sum(1 for write in rig.real.writes if write.name == "reset-config-demo")
    for _ in range(400):
        live = await rig.memory.get("train", "reset-config-demo")
        assert live is not None
        await other.put(replace(live, data={**live.data, "reset.json": spoil(text)}))
        rig.objects.set({"kind": "ConfigMap", "metadata": {"namespace": "train", "name": "reset-config-demo"}})
        await settle(rig, 0.05)
    ours = sum(1 for write in rig.real.writes if write.name == "reset-config-demo") - writes
    assert ours <= 12
    alarms = [line.decision for line in rig.bus.lines() if line.decision.reason == "FOREIGN_WRITER_LIVE"]
    assert 1 <= len(alarms) <= 8
    assert alarms[0].detail == "other changed it back 5 times; left as it is for 2 s"
    await settle(rig, 11)
    assert without_time((await rig.data(RESET))["reset.json"]) == without_time(text)
    await rig.end()


async def test_what_others_erase_is_counted_by_writer_also_at_zero() -> None:
    rig = demo()
    await rig.lead()
    rig.stream.fault(REQUEST)
    Agent(rig).report()
    await settle(rig, 1)
    live = await rig.memory.get("train", "reset-config-demo")
    assert live is not None
    text = '{"RankList":[],"UpdateTime":1767225600,"RetryTime":1,"FaultFlushing":false,"GracefulExit":0}'
    data = {"reset.json": text, "restartType": "podReschedule"}
    await rig.memory.as_manager("vc-scheduler").put(replace(live, data=data, annotations={}))
    rig.objects.set({"kind": "ConfigMap", "metadata": {"namespace": "train", "name": "reset-config-demo"}})
    await settle(rig, 1)
    found = {labels: value for _, name, _, value, labels in samples(rig.role) if name == "fault_agent_erasures"}
    assert found == {
        (("writer", "volcano-pod-rescheduling"),): 1,
        (("writer", "volcano-grace-exit"),): 0,
        (("writer", "clusterd"),): 0,
        (("writer", "other"),): 0,
    }
    assert (await rig.data(RESET))["reset.json"] == text
    await rig.end()


def without_time(text: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(text).items() if key != "UpdateTime"}


async def test_what_has_no_room_in_a_document_is_counted() -> None:
    long = {"RescheduleReason": "pod-failed", "PodName": "x" * 480_000, "NodeName": "n", "NodeRankIndex": ""}
    records = [{"LogFileFormatTime": "", "RescheduleTimeStamp": at, "ReasonOfTask": [long]} for at in (9, 8)]
    theirs = {"a/b": {"JobID": "a/b", "TotalRescheduleTimes": 2, "RescheduleRecords": records}}
    full = {"recent-reschedule-records": json.dumps(theirs), "theirs": "x" * 39_600}
    documents = [
        ConfigMap("mindx-dl", "job-reschedule-reason", full),
        ConfigMap("volcano-system", VCJOB, {"theirs": "x" * 999_650}),
    ]
    rig = demo(store=MemoryDocumentStore(documents))
    rig.stream.fault(SEPARATE)
    Agent(rig).report()
    await rig.lead()
    rig.objects.gone("Pod", "train", "demo-0")
    await rig.clock.settle()
    rig.objects.set(a_pod("demo-0", uid="uid-2", node="n1", rank_index=0, labels=LABELS))
    await rig.clock.settle()
    found = json.loads((await rig.data("mindx-dl/job-reschedule-reason"))["recent-reschedule-records"])
    assert {job: len(one["RescheduleRecords"]) for job, one in found.items()} == {"a/b": 1, DEMO_JOB: 1}
    told = {(name, *labels): value for _, name, _, value, labels in samples(rig.role)}
    assert told["fault_agent_records_dropped", ("what", "records")] == 1
    assert told["fault_agent_records_dropped", ("what", "jobs")] == 0
    assert told["fault_agent_fault_node_left_out", ("what", "devices")] == 1
    assert told["fault_agent_fault_node_left_out", ("what", "nodes")] == 0
    await rig.end()


async def test_every_task_of_the_role_ends_when_it_is_stopped() -> None:
    rig = demo()
    await rig.lead()
    rig.acting.cancel()
    rig.stop.set()
    await settle(rig, 2)
    await asyncio.gather(*rig.tasks, return_exceptions=True)
    assert not rig.feed.is_open
    assert not rig.role.ear.is_open
    assert not rig.role.pulse.leading
