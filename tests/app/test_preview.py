"""The preview: what act mode would write, why, and nothing written; what is right already is not shown."""

import json
from dataclasses import replace

import pytest
from a3cluster import the_a3
from kubebuilders import DEMO_JOB, a_config_map, the_demo
from rig import T0, Rig

from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.otel import SilentTracer
from agent.adapters.overlay import OverlayStore
from agent.app.bootstrap.common import if_acting, modes_of
from agent.app.preview import Layers, Preview, preview
from agent.app.settings import settings_from
from agent.app.world import World
from agent.domain.cluster import ClusterBook
from agent.domain.events import Behind
from agent.domain.vocab import JobId, Millis, Mode, Reason

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
SEPARATE, REQUEST = "80E18402", "80C98000"
VCJOB, RESET = "volcano-system/vcjob-fault-npu-cm", "train/reset-config-demo"


async def shown(rig: Rig, at: int = 60) -> dict[str, Preview]:
    """The preview of what a rig has left, `at` seconds after T0."""
    settings = settings_from(rig.settings, "test")
    limits, wishes = if_acting(settings, solo=True)
    book = ClusterBook(settings.cluster.id, limits, rig.policy)
    book.reports.update(rig.book.reports)
    World(book).replace(rig.objects, ())
    upper = MemoryDocumentStore(manager="fault-agent")
    real = rig.disk.store
    layers = Layers(real, upper, OverlayStore(upper, real))
    before = await real.list()
    modes = modes_of(settings, settings.mode or Mode.ACT)
    found = await preview(book, layers, "fault-agent", wishes, modes, SilentTracer(), Millis(T0 + at * 1000))
    assert await real.list() == before, "a preview writes nothing"
    return {one.document: one for one in found}


@pytest.mark.parametrize("code", [SEPARATE, REQUEST])
async def test_after_a_run_in_act_mode_nothing_would_change(code: str) -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(code, 1)
    await rig.run()
    assert await shown(rig, at=1) == {}


async def test_in_observe_mode_it_shows_what_act_would_write_and_the_fault_and_job_behind_it() -> None:
    rig = Rig(the_demo(LABELS), {"mode": "observe"})
    rig.fault(SEPARATE, 1)
    await rig.run()
    found = await shown(rig)
    assert set(found) == {VCJOB}
    one = found[VCJOB]
    assert (one.reason, one.mode, one.changes, one.before) == (Reason.WRITTEN, Mode.OBSERVE, True, {})
    assert [node["NodeName"] for node in json.loads(one.after["fault-node"])] == ["n1"]
    assert set(one.causes) == {Behind(f"n1/chip/2/{SEPARATE}@{T0 + 1000}"), Behind("", JobId(DEMO_JOB))}


@pytest.mark.parametrize("at", [2, 60])
async def test_what_began_before_act_mode_starts_no_recovery_and_the_fault_is_named(at: int) -> None:
    rig = Rig(the_demo(LABELS), {"mode": "observe"})
    rig.fault(REQUEST, 1)
    await rig.run()
    found = await shown(rig, at=at)
    assert set(found) == {VCJOB, RESET}
    one = found[RESET]
    assert (one.reason, one.changes, one.diff()) == (Reason.BEFORE_ACT, False, [])
    assert one.detail == f"nothing is begun for what began before act mode: n1/chip/2/{REQUEST}@{T0 + 1000}"


async def test_what_begins_at_the_very_moment_is_acted_on_as_the_agent_then_does() -> None:
    rig = Rig(the_demo(LABELS), {"mode": "observe"})
    rig.fault(REQUEST, 1)
    await rig.run()
    one = (await shown(rig, at=1))[RESET]
    assert (one.reason, one.changes) == (Reason.WRITTEN, True)
    acting = Rig(rig.objects, disk=rig.disk)
    acting.tick(1)
    await acting.run()
    assert [str(each.reason) for each in acting.decisions if each.job and each.fault] == ["RECOVERY_STARTED"]


async def test_a_link_that_failed_before_act_mode_gets_no_plan_and_is_named_beside_the_plan_document() -> None:
    rig = Rig(the_a3(), {"mode": "observe"})
    rig.fault("81078603", 1, node="n0", device=0, resource="hccn")
    rig.tick(2)
    await rig.run()
    found = await shown(rig, at=100)
    one = found["train/fault-agent-rail-demo"]
    assert (one.reason, one.changes) == (Reason.BEFORE_ACT, False)
    assert one.detail.endswith(f"before act mode: n0/network/0/81078603@{T0 + 1000}")


async def test_of_many_faults_from_before_act_mode_three_are_named_and_the_rest_counted() -> None:
    rig = Rig(the_demo(LABELS), {"mode": "observe"})
    for device in range(4):
        rig.fault(REQUEST, 1 + device, device=device)
    await rig.run()
    detail = (await shown(rig))[RESET].detail
    assert (detail.count(REQUEST), detail.endswith(" and 1 more")) == (3, True)


async def test_an_agent_that_starts_in_act_mode_does_what_the_preview_has_shown() -> None:
    rig = Rig(the_demo(LABELS), {"mode": "observe"})
    rig.fault(REQUEST, 1)
    rig.fault(SEPARATE, 10, node="n2")
    await rig.run()
    found = await shown(rig, at=10)
    acting = Rig(rig.objects, disk=rig.disk)
    acting.tick(10)
    await acting.run()
    assert await acting.data(VCJOB) == found[VCJOB].after
    assert (found[RESET].changes, await acting.data(RESET)) == (False, None)
    assert [one.fault for one in acting.decisions if one.reason is Reason.BEFORE_ACT] == [
        f"n1/chip/2/{REQUEST}@{T0 + 1000}"
    ]


def test_the_difference_names_the_key_and_shows_json_a_value_a_line() -> None:
    before = {"kept": "{}", "remain-retry-times": '{"a/b":{"UUID":"u","Times":9}}'}
    after = {"kept": "{}", "remain-retry-times": '{"a/b":{"UUID":"u","Times":3}}'}
    one = Preview("a/b", Reason.WRITTEN, "", before=before, after=after)
    assert one.diff()[:2] == [
        "--- a/b remain-retry-times, as it stands",
        "+++ a/b remain-retry-times, as it would be",
    ]
    assert [line for line in one.diff()[2:] if line[0] in "+-"] == ['-    "Times": 9', '+    "Times": 3']


async def test_what_somebody_else_has_changed_would_be_put_right() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(SEPARATE, 1)
    await rig.run()
    foreign = rig.disk.foreign
    assert foreign is not None
    live = await foreign.get(*VCJOB.split("/"))
    assert live is not None
    await foreign.put(replace(live, data={**live.data, "fault-node": "[]"}))
    one = (await shown(rig))[VCJOB]
    assert (one.changes, one.before["fault-node"]) == (True, "[]")
    assert json.loads(one.after["fault-node"])[0]["NodeName"] == "n1"
    assert one.before["remain-retry-times"] == one.after["remain-retry-times"]


async def test_an_annotation_of_ours_that_is_missing_would_be_put_back() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(SEPARATE, 1)
    await rig.run()
    foreign = rig.disk.foreign
    assert foreign is not None
    live = await foreign.get(*VCJOB.split("/"))
    assert live is not None
    kept = {key: value for key, value in live.annotations.items() if key != "fault-agent/cluster"}
    await foreign.put(replace(live, annotations=kept))
    one = (await shown(rig))[VCJOB]
    assert (one.reason, one.changes) == (Reason.WRITTEN, True)
    assert one.diff() == [
        f"--- {VCJOB} annotation fault-agent/cluster, as it stands",
        f"+++ {VCJOB} annotation fault-agent/cluster, as it would be",
        "@@ -0,0 +1 @@",
        "+solo",
    ]


async def test_a_document_that_another_writes_stays_and_says_whose_it_is() -> None:
    rig = Rig(the_demo(LABELS))
    document = a_config_map("vcjob-fault-npu-cm", {"fault-node": ""}, namespace="volcano-system")
    document["metadata"]["managedFields"] = [{"manager": "vc-scheduler"}]
    rig.apply(document, 0)
    rig.fault(SEPARATE, 1)
    await rig.run()
    one = (await shown(rig))[VCJOB]
    assert (one.reason, one.changes, one.diff()) == (Reason.FOREIGN_WRITER_LIVE, False, [])
    assert "vc-scheduler" in one.detail


async def test_a_document_that_is_disabled_says_so_and_one_that_is_observed_is_shown_as_act_would_have_it() -> None:
    documents = {"vcjob_fault_npu_cm": {"mode": "disabled"}}
    rig = Rig(the_demo(LABELS), {"documents": documents})
    rig.fault(SEPARATE, 1)
    await rig.run()
    assert {place: one.reason for place, one in (await shown(rig)).items()} == {VCJOB: Reason.DISABLED}
    rig = Rig(the_demo(LABELS), {"documents": {"vcjob_fault_npu_cm": {"mode": "observe"}}})
    rig.fault(SEPARATE, 1)
    await rig.run()
    one = (await shown(rig))[VCJOB]
    assert (one.mode, one.changes) == (Mode.OBSERVE, True)


async def test_the_next_step_of_a_recovery_is_shown_with_the_fault_that_began_it() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(REQUEST, 1)
    await rig.run()
    one = (await shown(rig, at=1000))[RESET]
    entries = json.loads(one.after["reset.json"])["RankList"]
    assert {entry["Status"] for entry in json.loads(one.before["reset.json"])["RankList"]} == {"unrecovered"}
    assert {entry["Status"] for entry in entries} == {"failed"}
    assert [cause.job for cause in one.causes] == [DEMO_JOB]
    assert one.causes[0].fault == f"n1/chip/2/{REQUEST}@{T0 + 1000}"


def test_text_that_is_no_json_is_compared_as_it_is() -> None:
    one = Preview("a/b", Reason.WRITTEN, "", before={"k": "{"}, after={"k": "{}"})
    assert one.diff()[3:] == ["-{", "+{}"]
