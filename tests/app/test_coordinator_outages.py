"""The coordinator role when it is refused or not answered: it waits for what is right again, and says so once."""

import json
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
from kubebuilders import a_group, a_node, a_pod
from rig import POLICY, T0
from rolerig import CLUSTER, N1, Clock, Stream, quiet

from agent.adapters.otel import SilentTracer
from agent.app.node_app import NodeSide, Taken
from agent.domain.events import NodeReport
from agent.domain.vocab import JobId, Millis
from agent.errors import CannotRun, Refused, Unavailable
from agent.ports import ConfigMap
from agent.wire.inbound import Limits as BorderLimits


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


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
