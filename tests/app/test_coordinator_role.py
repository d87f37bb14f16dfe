"""The coordinator role: nothing from half a picture, nothing without the lease, nobody's trouble is another's."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from kubebuilders import DEMO_GROUP, DEMO_JOB, a_group, a_node, a_pod, the_demo
from rig import POLICY, T0
from rolerig import CLUSTER, N1, Bus, Clock, CoordinatorRig, Stream, a_report, quiet

from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.otel import SilentTracer
from agent.app import coordinator_role, ear
from agent.app.bootstrap.coordinator import samples
from agent.app.node_app import NodeSide, Taken
from agent.domain.events import NodeReport, Scanned
from agent.domain.vocab import JobId, Millis, NodeName
from agent.errors import CannotRun, Fenced, Refused, Unavailable
from agent.ports import ConfigMap
from agent.wire.inbound import Limits as BorderLimits
from agent.wire.report import encode

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
SEPARATE, REQUEST, DOWN = "80E18402", "80C98000", "2C000031"
CLUSTER_LEDGER, JOB_LEDGER, VCJOB = "fault-agent-cluster", f"fault-agent-job-{DEMO_GROUP}", "vcjob-fault-npu-cm"
RESET = "train/reset-config-demo"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between tries real time would pass."""
    monkeypatch.setattr(coordinator_role, "BACK_OFF_S", 0.0)
    monkeypatch.setattr(coordinator_role, "REFUSED_S", 0.0)
    monkeypatch.setattr(ear, "UNANSWERED", 0)
    monkeypatch.setattr(ear, "REFUSED", 0)


class Agent:
    """A node's own agent as the coordinator sees it: reads the stream, reports to the bus."""

    def __init__(self, rig: CoordinatorRig, node: str = "n1") -> None:
        self._rig = rig
        self._node = NodeName(node)
        self._read = 0
        self._side = NodeSide(POLICY, CLUSTER, node, BorderLimits(), Millis(900_000), SilentTracer())
        self._side.caught_up = True

    def report(self, **changed: Any) -> NodeReport:
        """Read all there is for this node and report it."""
        self._side.claim(self._node)
        for record in self._rig.stream._records[self._read :]:
            if record.key == self._node.encode():
                self._side.take(record, self._rig.clock.wall(), Taken())
        self._read = len(self._rig.stream._records)
        report = replace(self._side.reports()[self._node], **changed)
        self._rig.bus.foreign(report)
        return report


def demo(**given: Any) -> CoordinatorRig:
    return CoordinatorRig(objects=the_demo(LABELS), **given)


async def settle(rig: CoordinatorRig, seconds: float = 0.0) -> None:
    await rig.clock.advance(seconds)


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


# --- refusals and outages ---------------------------------------------------------------------------------------------


async def test_a_job_whose_ledger_is_refused_waits_alone_and_is_done_once_it_is_allowed() -> None:
    other = {**LABELS}
    rig = demo()
    await rig.lead()
    rig.objects.set(a_group("other", namespace="closed", owner="other", owner_uid="u2", labels=other))
    rig.objects.set(a_pod("other-0", namespace="closed", group="other", node="n3", labels=other, rank_index=0))
    rig.objects.set(a_node("n3"))
    closed = True

    async def refuse(document: ConfigMap) -> None:
        if closed and document.namespace == "closed":
            raise Refused("no right to create configmaps in namespace closed", hint="give it")

    rig.real.before = refuse
    await settle(rig, 1)
    assert not rig.acting.done()
    rig.stream.fault(REQUEST, 1, node="n3")
    rig.stream.fault(REQUEST, 1)
    Agent(rig, "n3").report()
    Agent(rig).report()
    await settle(rig, 1)
    assert '"Status":"unrecovered"' in (await rig.data(RESET))["reset.json"]
    assert not any(write.namespace == "closed" for write in rig.real.writes)
    refused = [line.decision for line in rig.bus.lines() if line.decision.reason == "DOCUMENT_REFUSED"]
    assert [(one.job, one.document) for one in refused] == [("closed/other", "closed/fault-agent-job-other")]
    assert "no right to create configmaps in namespace closed" in refused[0].detail
    assert rig.book.frozen == {JobId("closed/other")}
    assert JobId("closed/other") not in rig.book.ledgers
    await settle(rig, 58)
    assert rig.book.frozen
    closed = False
    await settle(rig, 65)
    assert rig.book.frozen == set()
    assert '"Status":"' in (await rig.data("closed/reset-config-other"))["reset.json"]
    await rig.end()


async def test_a_document_that_is_refused_is_tried_again_each_minute_and_told_once() -> None:
    rig = demo()
    closed = True
    tries: list[float] = []

    async def refuse(document: ConfigMap) -> None:
        if document.name == VCJOB:
            tries.append(rig.clock.now)
            if closed:
                raise Refused("no right")

    rig.real.before = refuse
    await rig.lead()
    await settle(rig, 130)
    assert [round(at / 60) for at in tries] == [0, 1, 2]
    assert rig.reasons().count("DOCUMENT_REFUSED") == 1
    closed = False
    await settle(rig, 60)
    assert await rig.data(f"volcano-system/{VCJOB}")
    await rig.end()


async def test_a_cluster_ledger_that_is_refused_is_waited_for_and_nothing_is_written_before() -> None:
    rig = demo()
    refusals = 3

    async def refuse(document: ConfigMap) -> None:
        nonlocal refusals
        if document.name == CLUSTER_LEDGER and refusals:
            refusals -= 1
            raise Refused("no right to update fault-agent-cluster")

    rig.real.before = refuse
    await rig.lead()
    assert rig.real.writes[0].name == CLUSTER_LEDGER
    assert refusals == 0
    assert "no right to update fault-agent-cluster; tried again" in rig.said
    await rig.end()


async def test_a_server_that_is_away_is_tried_until_it_is_back() -> None:
    rig = demo()
    await rig.lead()
    rig.memory.failures.fail_next(*[Unavailable("away")] * 30)
    rig.stream.fault(REQUEST)
    Agent(rig).report()
    await settle(rig, 2)
    assert '"Status":"unrecovered"' in (await rig.data(RESET))["reset.json"]
    assert rig.reasons().count("RECOVERY_STARTED") == 1
    await rig.end()


async def test_a_write_whose_answer_was_lost_is_not_made_twice() -> None:
    rig = demo()
    await rig.lead()
    rig.stream.fault(REQUEST)
    rig.stream.fault(REQUEST, 1, assertion="recover")
    for _ in range(3):
        rig.memory.failures.lose_answer(Unavailable("no answer"))
        Agent(rig).report()
        await settle(rig, 1)
    info = json.loads((await rig.data(RESET))["reset.json"])
    assert info["RetryTime"] == 1
    await rig.end()


async def test_reasons_come_before_the_ledger_that_makes_them_final() -> None:
    rig = demo()
    await rig.lead()
    rig.bus.writes.clear()
    rig.stream.fault(REQUEST)
    Agent(rig).report()
    await rig.clock.settle()
    assert (
        rig.bus.writes.index("reasons") < rig.bus.writes.index(JOB_LEDGER) < rig.bus.writes.index("reset-config-demo")
    )
    await rig.end()


async def test_a_journal_that_is_away_holds_a_decision_back_for_ten_seconds_and_loses_no_reason() -> None:
    rig = demo()
    await rig.lead()
    real = rig.audit.append
    away = True

    async def append(lines: Any) -> None:
        if away:
            rig.clock.now += 0.5
            raise Unavailable("the journal is away")
        await real(lines)

    rig.audit.append = append  # type: ignore[method-assign]  # an outage that lasts until the test ends it
    agent, began = Agent(rig), rig.clock.now
    rig.stream.fault(REQUEST)
    agent.report()
    await settle(rig, 1)
    assert '"Status":"unrecovered"' in (await rig.data(RESET))["reset.json"]
    assert rig.clock.now - began >= 10
    assert "RECOVERY_STARTED" not in rig.reasons()
    tries = rig.clock.now
    rig.stream.fault(REQUEST, 1, assertion="recover")
    agent.report()
    await settle(rig, 1)
    assert '"Status":"recovered"' in (await rig.data(RESET))["reset.json"]
    assert rig.clock.now - tries == 1
    away = False
    await settle(rig, 11)
    assert rig.reasons().count("RECOVERY_STARTED") == 1
    assert rig.role.pulse.untold == 0
    await rig.end()


async def test_who_cannot_hear_the_events_acts_on_reports_all_the_same() -> None:
    rig = demo()
    rig.stream.failures.fail_next(*[Refused("no right to read the events")] * 1000)
    await rig.lead()
    Agent(rig, "n2").report()
    rig.bus.foreign(report_of(SEPARATE))
    await settle(rig, 2)
    assert await rig.fault_nodes() == ["n1"]
    assert "no right to read the events; until then nobody speaks for silent nodes" in rig.said
    await rig.end()


def report_of(code: str) -> NodeReport:
    stream, side = Stream(Clock()), NodeSide(POLICY, CLUSTER, "a", BorderLimits(), Millis(900_000), SilentTracer())
    side.caught_up = True
    side.take(stream.fault(code), Millis(T0), Taken())
    return side.reports()[N1]


async def test_a_stream_that_was_never_there_ends_it_with_its_error() -> None:
    rig = demo()
    rig.stream.failures.fail_next(CannotRun("there is no topic events"))
    await rig.lead()
    assert isinstance(await quiet(rig.acting), CannotRun)
    await rig.end()


# --- the deputy in the role -------------------------------------------------------------------------------------------


async def test_a_node_that_goes_down_with_its_agent_is_in_fault_node_after_three_seconds_and_only_once() -> None:
    rig = demo()
    Agent(rig).report()
    await rig.lead()
    rig.stream.fault(DOWN, device=None, resource="ipmi", location={"deviceType": "BMC", "deviceId": "-"})
    await settle(rig, 2.9)
    assert await rig.fault_nodes() == []
    await settle(rig, 0.3)
    assert await rig.fault_nodes() == ["n1"]
    shown = [line.decision for line in rig.bus.lines() if line.decision.reason == "FAULT_SHOWN"]
    assert ["decided by the coordinator" in one.detail for one in shown] == [True]
    told, writes = len(rig.bus.reasons), len(rig.real.writes)
    Agent(rig).report(epoch=2)
    await settle(rig, 5)
    assert await rig.fault_nodes() == ["n1"]
    assert (len(rig.bus.reasons), len(rig.real.writes)) == (told, writes)
    await rig.end()


async def test_strays_become_letters_also_when_the_topic_is_away_at_first() -> None:
    rig = demo()
    await rig.lead()
    rig.letters.failures.fail_next(Unavailable("away"), Unavailable("away"))
    rig.stream.raw(b"{}", key=None)
    await settle(rig, 10)
    reasons = [dict(letter.headers)["fault-agent-reason"] for letter in rig.bus.letters]
    assert reasons == [b"KEY_MISSING"]
    assert rig.role.ear.lettered == 1
    await rig.end()


async def test_the_deputy_begins_at_the_place_that_no_report_has_passed() -> None:
    rig = demo()
    for node, offset in (("n1", 4), ("n2", 2)):
        rig.bus.foreign(a_report(node, caught_up=True, scanned={0: Scanned(0, offset, Millis(5), f"d{offset}")}))
    await rig.lead()
    assert json.loads(rig.stream.opened[0] or b"") == {"0": {"generation": 0, "offset": 2, "digest": "d2", "time": 5}}
    await rig.end()


@pytest.mark.parametrize("heard", ["before the leader dies", "while nobody leads"])
async def test_a_stray_that_no_report_leads_back_to_is_lettered_by_the_next_leader(heard: str) -> None:
    first = demo()
    first.stream.empty[0] = (0, 0)
    await first.lead()
    Agent(first).report()
    Agent(first, "n2").report()
    await settle(first, 1)
    if heard == "before the leader dies":
        first.stream.raw(b"{}", key=None)
        await settle(first, 1)  # less than its patience
    first.acting.cancel()
    await first.end()
    if heard == "while nobody leads":
        first.stream.raw(b"{}", key=None)
    for node in ("n1", "n2"):
        passed = {0: Scanned(0, len(first.stream._records), Millis(5))}
        first.bus.foreign(a_report(node, epoch=2, caught_up=True, scanned=passed))
    assert first.bus.letters == []
    second = CoordinatorRig(first.bus, first.stream, store=first.memory, objects=the_demo(LABELS))
    await second.lead(term=2)
    await settle(second, 5)
    assert [dict(letter.headers)["fault-agent-reason"] for letter in second.bus.letters] == [b"KEY_MISSING"]
    await second.end()


async def test_a_write_of_the_ear_that_is_fenced_ends_the_term() -> None:
    rig = demo()
    await rig.lead()
    await settle(rig, 61)
    live = await rig.memory.get("fault-agent", CLUSTER_LEDGER)
    assert live is not None
    text = live.data["ledger.json"].replace('"term":1', '"term":7')
    await rig.memory.as_manager("another").put(replace(live, data={"ledger.json": text}))
    rig.stream.raw(b"{}", key=None)
    await settle(rig, 62)
    assert isinstance(rig.acting.exception(), Fenced)
    await rig.end()


async def test_a_letter_is_not_written_again_by_a_leader_who_comes_a_while_later() -> None:
    first = demo()
    await first.lead()
    first.stream.raw(b"{}", key=None)
    await settle(first, 6)
    assert len(first.bus.letters) == 1
    first.acting.cancel()
    await first.end()
    second = CoordinatorRig(first.bus, first.stream, store=first.memory, objects=the_demo(LABELS))
    await second.lead(term=2)
    await settle(second, 6)
    assert len(second.bus.letters) == 1
    await second.end()


async def test_how_far_the_stream_was_heard_is_kept_at_most_once_a_minute() -> None:
    rig = demo()
    await rig.lead()
    agent = Agent(rig)
    agent.report()
    await settle(rig, 1)
    before = sum(1 for write in rig.real.writes if write.name == CLUSTER_LEDGER)
    for _ in range(170):
        rig.stream.raw(b"{}", key=b"n1")
        agent.report()
        await settle(rig, 1)
    assert sum(1 for write in rig.real.writes if write.name == CLUSTER_LEDGER) - before <= 3
    await rig.end()


async def test_a_node_that_went_while_nobody_was_looking_has_vanished() -> None:
    objects = [one for one in the_demo(LABELS) if one["metadata"]["name"] != "n1"]
    rig = CoordinatorRig(objects=objects)
    await rig.lead()
    entries = json.loads((await rig.data(f"volcano-system/{VCJOB}"))["fault-node"])
    assert [(one["NodeName"], one["NodeHealthState"]) for one in entries] == [("n1", "NodeUnhealthy")]
    rig.objects.set(a_node("n1", internal_ip="10.0.0.1"))
    await settle(rig, 1)
    assert await rig.fault_nodes() == []
    await rig.end()


async def test_where_no_node_objects_are_seen_none_has_vanished() -> None:
    rig = CoordinatorRig(objects=[one for one in the_demo(LABELS) if one["kind"] != "Node"])
    await rig.lead()
    assert await rig.fault_nodes() == []
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
