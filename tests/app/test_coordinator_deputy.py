"""The deputy in the coordinator role: for a node that is down with its agent, once, also over a change of leaders."""

import json
from dataclasses import replace

import pytest
from coordinatorscene import CLUSTER_LEDGER, DOWN, LABELS, VCJOB, Agent, demo, settle, without_pauses
from kubebuilders import a_node, the_demo
from rolerig import CoordinatorRig, a_report

from agent.domain.events import Scanned
from agent.domain.vocab import Millis
from agent.errors import Fenced, Unavailable


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pauses(monkeypatch)


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
