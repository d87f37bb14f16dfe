"""What goes into documents that others write too: only our entries, never over what cannot be read, within budget."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, DEMO_UID, a_config_map, a_pod, the_demo
from rig import T0, Disk, Rig

from agent.adapters.memory import MemoryDocumentStore
from agent.app.documents import NodesShown, render_reset, render_vcjob
from agent.app.reschedule_document import merge_records
from agent.domain.cluster import ClusterBook, Limits
from agent.domain.events import Decision
from agent.domain.faultnodes import DeviceFault, NodeFaults, fault_node
from agent.domain.ledger import JobLedger
from agent.domain.reschedule import JobRecords, RescheduleRecord, TaskReason
from agent.domain.vocab import JobId, Millis, NodeName, Plane, Reason
from agent.ports import ConfigMap

VCJOB = "volcano-system/vcjob-fault-npu-cm"
RECORDS = "mindx-dl/job-reschedule-reason"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
SEPARATE, REQUEST = "80E18402", "80C98000"


def foreign(name: str, namespace: str, data: dict[str, str], manager: str = "vc-scheduler") -> dict[str, Any]:
    document = a_config_map(name, data, namespace=namespace)
    document["metadata"]["managedFields"] = [{"manager": manager}]
    return document


def about(rig: Rig, document: str) -> list[Decision]:
    return [one for one in rig.decisions if one.document == document]


async def test_while_volcano_writes_its_document_ours_is_only_compared() -> None:
    rig = Rig(the_demo(LABELS))
    theirs = {"fault-node": "", "remain-retry-times": '{"x/y":{"UUID":"u","Times":1}}'}
    rig.apply(foreign("vcjob-fault-npu-cm", "volcano-system", theirs), 0)
    rig.fault(SEPARATE, 1)
    rig.tick(2)
    await rig.run()
    assert await rig.data(VCJOB) is not None
    before = Rig(the_demo(LABELS), disk=rig.disk)
    before.fault(SEPARATE, 5, device=1)
    before.tick(6)
    await before.run()
    assert {one.reason for one in about(before, VCJOB)} == {Reason.FOREIGN_WRITER_LIVE}
    assert "vc-scheduler" in about(before, VCJOB)[0].detail


async def test_a_writer_that_comes_later_is_seen_at_the_next_look() -> None:
    rig = Rig(the_demo(LABELS))
    rig.tick(0)
    theirs = {"fault-node": "", "remain-retry-times": ""}
    rig.apply(foreign("vcjob-fault-npu-cm", "volcano-system", theirs), 10)
    rig.fault(SEPARATE, 11, node="n9")
    rig.fault(REQUEST, 20)
    rig.tick(21)
    await rig.run()
    data = await rig.data(VCJOB)
    assert data == theirs
    assert Reason.VOLCANO_RESCHEDULES in [one.reason for one in rig.decisions]


async def test_declared_sole_writer_we_write_and_volcano_is_history() -> None:
    rig = Rig(the_demo(LABELS), {"documents": {"vcjob_fault_npu_cm": {"sole_writer": True}}})
    rig.apply(foreign("vcjob-fault-npu-cm", "volcano-system", {"fault-node": "", "remain-retry-times": ""}), 0)
    rig.fault(REQUEST, 1)
    rig.tick(2)
    await rig.run()
    data = await rig.data(VCJOB)
    assert data is not None
    assert DEMO_UID in data["remain-retry-times"]
    assert Reason.RECOVERY_STARTED in [one.reason for one in rig.decisions]


@pytest.mark.parametrize(
    ("volcano", "reason"), [("alive", Reason.VOLCANO_RESCHEDULES), ("absent", Reason.RECOVERY_STARTED)]
)
async def test_what_is_stated_of_volcano_goes_before_what_is_seen(volcano: str, reason: Reason) -> None:
    rig = Rig(the_demo(LABELS), {"volcano": volcano})
    if volcano == "absent":
        rig.apply(foreign("vcjob-fault-npu-cm", "volcano-system", {"fault-node": ""}), 0)
    rig.fault(REQUEST, 1)
    rig.tick(2)
    await rig.run()
    assert reason in [one.reason for one in rig.decisions]


async def test_foreign_keys_of_volcano_s_document_survive() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(
        a_config_map("vcjob-fault-npu-cm", {"job-recovery": "old", "fault-node": ""}, namespace="volcano-system"), 0
    )
    rig.fault(SEPARATE, 1)
    rig.tick(2)
    await rig.run()
    data = await rig.data(VCJOB)
    assert data is not None
    assert data["job-recovery"] == "old"


@pytest.mark.parametrize("text", ["{", "[]", '{"a/b":null}', '{"a/b":{"UUID":1,"Times":2}}', '{"a/b":{"Times":"2"}}'])
async def test_retries_that_nobody_can_read_are_made_anew_and_said(text: str) -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(a_config_map("vcjob-fault-npu-cm", {"remain-retry-times": text}, namespace="volcano-system"), 0)
    rig.fault(SEPARATE, 1)
    rig.tick(2)
    await rig.run()
    data = await rig.data(VCJOB)
    assert data is not None
    found = json.loads(data["remain-retry-times"])
    assert found[DEMO_JOB] == {"UUID": DEMO_UID, "Times": 3}
    assert None not in found.values()


async def test_unreadable_records_are_never_written_over() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(a_config_map("job-reschedule-reason", {"recent-reschedule-records": "{"}, namespace="mindx-dl"), 0)
    rig.fault(SEPARATE, 1)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 20)
    rig.tick(30)
    await rig.run()
    assert await rig.data(RECORDS) == {"recent-reschedule-records": "{"}
    assert [one.reason for one in about(rig, RECORDS)] == [Reason.DOCUMENT_UNREADABLE]


async def test_records_of_other_jobs_and_foreign_keys_stay() -> None:
    rig = Rig(the_demo(LABELS))
    other = '{"x/y":{"JobID":"x/y","TotalRescheduleTimes":4,"RescheduleRecords":null,"New":1}}'
    data = {"recent-reschedule-records": other, "mine": "1"}
    rig.apply(a_config_map("job-reschedule-reason", data, namespace="mindx-dl"), 0)
    rig.fault(SEPARATE, 1)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 20)
    rig.tick(30)
    await rig.run()
    live = await rig.data(RECORDS)
    assert live is not None
    assert live["mine"] == "1"
    found = json.loads(live["recent-reschedule-records"])
    assert json.dumps(found["x/y"], separators=(",", ":")) == other[7:-1]
    assert found[DEMO_JOB]["TotalRescheduleTimes"] == 1


async def test_keys_of_others_in_our_own_entries_stay_when_these_change() -> None:
    records = {
        DEMO_JOB: {"JobID": DEMO_JOB, "TotalRescheduleTimes": 1, "RescheduleRecords": None, "Note": {"by": "us"}},
        "x/y": {"JobID": "x/y", "TotalRescheduleTimes": 4, "RescheduleRecords": None},
    }
    nodes = [{"NodeName": "n2", "NodeHealthState": "NodeUnhealthy", "UpdateTime": 5, "rack": [1]}]
    retries = {
        DEMO_JOB: {"UUID": DEMO_UID, "Times": 2, "Note": ["a"]},
        "x/y": {"UUID": "u", "Times": 1, "New": None},
    }
    vcjob = {"fault-node": json.dumps(nodes), "remain-retry-times": json.dumps(retries)}
    rig = Rig(the_demo(LABELS))
    for namespace, name, data in (
        ("volcano-system", "vcjob-fault-npu-cm", vcjob),
        ("mindx-dl", "job-reschedule-reason", {"recent-reschedule-records": json.dumps(records)}),
    ):
        assert rig.disk.foreign is not None
        await rig.disk.foreign.put(ConfigMap(namespace, name, data))
    rig.fault(SEPARATE, 1)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 20)
    rig.tick(30)
    await rig.run()
    live, vcjob_now = await rig.data(RECORDS), await rig.data(VCJOB)
    assert live is not None
    assert vcjob_now is not None
    found = json.loads(live["recent-reschedule-records"])
    assert found["x/y"] == records["x/y"]
    assert (found[DEMO_JOB]["TotalRescheduleTimes"], found[DEMO_JOB]["Note"]) == (2, {"by": "us"})
    assert json.loads(vcjob_now["remain-retry-times"]) == retries
    assert [(node["NodeName"], node.get("rack")) for node in json.loads(vcjob_now["fault-node"])] == [
        ("n1", None),
        ("n2", [1]),
    ]


@pytest.mark.parametrize("text", ["{", "7", '{"RankList":7}', '{"RetryTime":"1"}', "[1]"])
async def test_a_reset_json_that_cannot_be_read_is_left_alone(text: str) -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(a_config_map("reset-config-demo", {"reset.json": text}), 0)
    rig.fault(REQUEST, 1)
    rig.tick(600)
    await rig.run()
    assert await rig.data("train/reset-config-demo") == {"reset.json": text}
    assert Reason.DOCUMENT_UNREADABLE in [one.reason for one in about(rig, "train/reset-config-demo")]


async def test_a_reset_json_that_becomes_readable_again_is_written() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(a_config_map("reset-config-demo", {"reset.json": "{"}), 0)
    rig.fault(REQUEST, 1)
    rig.apply(a_config_map("reset-config-demo", {"reset.json": ""}), 5)
    rig.fault(SEPARATE, 10, node="n9")
    rig.tick(600)
    await rig.run()
    data = await rig.data("train/reset-config-demo")
    assert data is not None
    assert json.loads(data["reset.json"])["RankList"] == []


async def test_a_stuck_document_holds_up_no_other() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(a_config_map("reset-config-demo", {"reset.json": "", "theirs": "x" * 1_048_400}), 0)
    rig.fault(REQUEST, 1)
    rig.tick(2)
    await rig.run()
    data = await rig.data(VCJOB)
    assert data is not None
    assert json.loads(data["fault-node"])[0]["UnhealthyNPU"] == ["Ascend910-2"]
    refused = [one for one in about(rig, "train/reset-config-demo") if one.reason is Reason.DOCUMENT_REFUSED]
    assert len(refused) == 1


def test_fault_nodes_are_cut_to_what_is_left_beside_foreign_keys() -> None:
    book = ClusterBook("solo", Limits())
    for number in range(2000):
        node = NodeName(f"node-{number:05d}")
        devices = tuple(DeviceFault(device, Plane.CHIP, SEPARATE, "SeparateNPU", False) for device in range(8))
        entry = fault_node(NodeFaults(node, devices=devices))
        assert entry is not None
        book.entries[node] = entry
        book.judged.add(node)
    live = ConfigMap("volcano-system", "vcjob-fault-npu-cm", {"theirs": "x" * 300_000})
    rendered = render_vcjob(book, frozenset(), live, NodesShown())
    assert rendered.data is not None
    size = 300_000 + sum(len(text.encode()) for text in rendered.data.values())
    assert size <= 1_000_000
    assert len(json.loads(rendered.data["fault-node"])) == 2000
    assert "left out to fit" in rendered.detail


def _record(second: int, pod: str) -> RescheduleRecord:
    return RescheduleRecord("I0101 00:00:00", second, (TaskReason("CardUnhealthy", pod, "n1", "0"),))


def test_merged_records_are_each_there_once_newest_first_ten_at_most() -> None:
    theirs = JobRecords("a/b", 12, tuple(_record(100 - n, "p") for n in range(8)), "kept")
    ours = JobRecords("a/b", 14, (_record(101, "p"), _record(100, "p"), _record(100, "q"), _record(2, "p")))
    seen = replace(_record(100, "p"), log_time="as it stands there", extra={"New": 1})
    merged = merge_records(replace(theirs, records=(seen, *theirs.records[1:])), ours)
    assert (merged.records[1].log_time, merged.records[1].extra) == ("as it stands there", {"New": 1})
    assert (merged.total, merged.additional_info) == (14, "kept")
    assert [one.timestamp for one in merged.records] == [101, 100, 100, 99, 98, 97, 96, 95, 94, 93]
    assert merge_records(None, ours) == ours


def test_a_ledger_without_recoveries_wants_nothing_of_the_reset_config() -> None:
    ledger = JobLedger(JobId(DEMO_JOB), "solo")
    rendered = render_reset(ledger, None, True, Millis(T0), {}, None)
    assert (rendered.reason, rendered.data) == (Reason.UNCHANGED, None)


EAST = {"cluster": {"id": "east"}, "namespace": "agent-east"}
WEST = {
    "cluster": {"id": "west"},
    "namespace": "agent-west",
    "documents": {"vcjob_fault_npu_cm": {"sole_writer": True}, "job_reschedule_reason": {"sole_writer": True}},
}


async def test_two_agents_of_different_cluster_ids_never_write_one_document() -> None:
    east = Rig(the_demo(LABELS), EAST)
    east.fault(REQUEST, 1)
    east.fault(SEPARATE, 2, node="n9")
    await east.run()
    theirs = {(one.namespace, one.name): one for one in await east.disk.store.list()}
    west = Rig(the_demo(LABELS), WEST, disk=Disk(store=east.disk.store))
    west.fault(REQUEST, 3)
    west.fault(SEPARATE, 4, node="n8")
    west.delete("Pod", "train", "demo-0", 10)
    west.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 20)
    west.tick(200)
    await west.run()
    now = {(one.namespace, one.name): one for one in await east.disk.store.list()}
    assert {key: one for key, one in now.items() if key in theirs} == theirs
    assert set(now) - set(theirs) == {("agent-west", "fault-agent-cluster")}
    assert [one.reason for one in about(west, VCJOB)] == [Reason.FOREIGN_WRITER_LIVE]
    assert "'east'" in about(west, VCJOB)[0].detail
    assert Reason.LEDGER_UNREADABLE in [one.reason for one in west.decisions]


async def test_entries_of_another_agent_are_not_taken_for_lost_ones_of_ours() -> None:
    east = Rig(the_demo(LABELS), EAST)
    east.fault(REQUEST, 1)
    await east.run()
    reset = await east.disk.store.get("train", "reset-config-demo")
    assert reset is not None
    west = Rig(the_demo(LABELS), WEST)
    store = west.disk.store
    assert isinstance(store, MemoryDocumentStore)
    await store.put(replace(reset, resource_version="", uid=""))
    west.tick(5)
    await west.run()
    assert await west.data("train/reset-config-demo") == reset.data
    assert Reason.RECOVERY_ENDED not in [one.reason for one in west.decisions]


# --- which mode is allowed beside which other writer -------------------------------------------------------------

_PAGE = (Path(__file__).parents[2] / "docs" / "documents.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^\| `([a-z<>-]+)` \| ([a-z]+) \| ([a-z]+)[¹²]* \| ([a-z]+)[¹²]* \| ([a-z]+)[¹²]* \|$", re.MULTILINE)
BESIDE = ((False, False), (True, False), (False, True), (True, True))
"""Volcano's plugin alive, ClusterD alive: the columns of the table."""
ALLOWED = {
    found[0]: dict(zip(BESIDE, found[1:], strict=True))
    for found in _ROW.findall(_PAGE.replace("&lt;", "<").replace("&gt;", ">"))
}


def beside(name: str, namespace: str, *, volcano: bool, clusterd: bool) -> ConfigMap:
    """The live document as the writers that are at work have left it."""
    writes = {"vcjob-fault-npu-cm": (volcano, False), "job-reschedule-reason": (volcano, False)}
    hands = zip(("vc-scheduler", "clusterd"), writes.get(name, (volcano, clusterd)), strict=True)
    return ConfigMap(namespace, name, {}, managers=tuple(manager for manager, alive in hands if alive))


async def mode_found(document: str, *, volcano: bool, clusterd: bool) -> str:
    """The strongest mode in which the agent works on it: a job of external rescheduling, process recovery left off."""
    labels = {**LABELS, "fault-scheduling": "external-grace"}
    name = document.replace("<job>", "demo")
    namespace = {"vcjob-fault-npu-cm": "volcano-system", "job-reschedule-reason": "mindx-dl"}.get(name, "train")
    store = MemoryDocumentStore([beside(name, namespace, volcano=volcano, clusterd=clusterd)])
    rig = Rig(the_demo(labels), {"volcano": "auto"}, disk=Disk(store=store))
    rig.fault(REQUEST, 1)
    rig.clear(REQUEST, 5)
    rig.fault(SEPARATE, 300)
    rig.delete("Pod", "train", "demo-0", 310)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=labels), 320)
    rig.tick(400)
    await rig.run()
    reasons = {one.reason for one in about(rig, f"{namespace}/{name}")}
    assert reasons & {Reason.WRITTEN, Reason.FOREIGN_WRITER_LIVE}, reasons
    return "act" if Reason.WRITTEN in reasons else "observe"


def test_the_page_has_a_row_for_every_document_of_others() -> None:
    assert set(ALLOWED) == {"reset-config-<job>", "vcjob-fault-npu-cm", "job-reschedule-reason"}


@pytest.mark.parametrize(("volcano", "clusterd"), BESIDE)
@pytest.mark.parametrize("document", ["reset-config-<job>", "vcjob-fault-npu-cm", "job-reschedule-reason"])
async def test_the_mode_beside_other_writers_is_as_the_page_says(
    document: str, *, volcano: bool, clusterd: bool
) -> None:
    assert await mode_found(document, volcano=volcano, clusterd=clusterd) == ALLOWED[document][volcano, clusterd]


async def recovery_reason(labels: dict[str, str], **settings: Any) -> Reason:
    rig = Rig(the_demo({**LABELS, **labels}), settings)
    rig.fault(REQUEST, 1)
    await rig.run()
    return next(one.reason for one in rig.decisions if one.fault and one.job)


@pytest.mark.parametrize(
    ("labels", "settings", "reason"),
    [
        ({"fault-scheduling": "grace"}, {"volcano": "alive"}, Reason.VOLCANO_RESCHEDULES),
        ({"fault-scheduling": "force"}, {"volcano": "alive"}, Reason.VOLCANO_RESCHEDULES),
        ({"fault-scheduling": "external-grace"}, {"volcano": "alive"}, Reason.RECOVERY_STARTED),
        ({"fault-scheduling": "external-force"}, {"volcano": "alive"}, Reason.RECOVERY_STARTED),
        ({"process-recover-enable": "on"}, {}, Reason.PROCESS_RECOVER_OWNS),
        ({"process-recover-enable": "pause"}, {}, Reason.PROCESS_RECOVER_OWNS),
        ({"process-recover-enable": "off"}, {}, Reason.RECOVERY_STARTED),
    ],
)
async def test_in_reset_config_it_is_the_job_that_says_whose_it_is(
    labels: dict[str, str], settings: dict[str, Any], reason: Reason
) -> None:
    assert await recovery_reason(labels, **settings) is reason


@pytest.mark.parametrize("place", [VCJOB, RECORDS])
async def test_a_plugin_that_is_declared_alive_is_left_its_documents_before_its_first_write(place: str) -> None:
    rig = Rig(the_demo(LABELS), {"volcano": "alive"})
    rig.fault(SEPARATE, 1)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 20)
    rig.tick(30)
    await rig.run()
    assert await rig.data(place) is None
    assert [one.reason for one in about(rig, place)] == [Reason.FOREIGN_WRITER_LIVE]
