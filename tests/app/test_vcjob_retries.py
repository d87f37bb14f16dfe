"""`remain-retry-times` as ascend-operator reads it: every job listed at every moment with what it has left."""

import pytest
from kubebuilders import DEMO_GROUP, DEMO_JOB, DEMO_UID, a_group, a_node, a_pod, the_demo
from readers import CRASHED, FAILED, RESTARTING, operator_decides
from rig import T0, Rig
from vcjobnight import LABELS, SEPARATE, VCJOB, holding, nodes_of

from agent.domain.vocab import Reason
from agent.ports import ConfigMap

RIGHT = f'{{"{DEMO_JOB}":{{"UUID":"{DEMO_UID}","Times":%d}}}}'
CASES = [
    # what stands there, what the operator decides by it, and what once we have written
    pytest.param(None, FAILED, RESTARTING, id="no ConfigMap"),
    pytest.param({}, FAILED, RESTARTING, id="no key"),
    pytest.param({"remain-retry-times": ""}, FAILED, RESTARTING, id="empty"),
    pytest.param({"remain-retry-times": "{"}, FAILED, RESTARTING, id="malformed"),
    pytest.param({"remain-retry-times": "[]"}, FAILED, RESTARTING, id="no object"),
    pytest.param({"remain-retry-times": "{}"}, FAILED, RESTARTING, id="absent"),
    pytest.param({"remain-retry-times": f'{{"{DEMO_JOB}":null}}'}, CRASHED, RESTARTING, id="null"),
    pytest.param(
        {"remain-retry-times": f'{{"{DEMO_JOB}":{{"UUID":"{DEMO_UID}","Times":"2"}}}}'},
        FAILED,
        RESTARTING,
        id="as text",
    ),
    pytest.param({"remain-retry-times": RIGHT % 2}, RESTARTING, RESTARTING, id="two left"),
    pytest.param({"remain-retry-times": RIGHT % 0}, FAILED, FAILED, id="none left"),
    pytest.param(
        {"remain-retry-times": f'{{"{DEMO_JOB}":{{"UUID":"another","Times":0}}}}'}, FAILED, RESTARTING, id="another's"
    ),
    pytest.param(
        {"remain-retry-times": f'{{"x/y":{{"UUID":7,"Times":2}},{(RIGHT % 1)[1:]}'},
        FAILED,
        RESTARTING,
        id="one spoils all",
    ),
]


@pytest.mark.parametrize(("data", "before", "after"), CASES)
async def test_a_job_with_retries_is_restarted_whatever_stood_there(
    data: dict[str, str] | None, before: str, after: str
) -> None:
    assert operator_decides(data, DEMO_JOB) == before
    rig = Rig(the_demo(LABELS))
    if data is not None:
        store = rig.disk.foreign
        assert store is not None
        await store.put(ConfigMap("volcano-system", "vcjob-fault-npu-cm", data))
    rig.tick(1)
    await rig.run()
    assert operator_decides(await rig.data(VCJOB), DEMO_JOB) == after


async def test_the_operator_finds_the_retries_at_every_moment_of_a_night() -> None:
    rig = Rig(the_demo(LABELS))
    for number in range(4):
        at = 10 * number
        rig.apply(a_pod("demo-0", uid=f"uid-{number}", phase="Failed", labels=LABELS), at + 1)
        rig.delete("Pod", "train", "demo-0", at + 3)
        rig.apply(a_pod("demo-0", uid=f"uid-{number + 1}", labels=LABELS), at + 6)
    rig.tick(60)
    await rig.run()
    texts = rig.texts(VCJOB, "remain-retry-times")
    assert [operator_decides({"remain-retry-times": text}, DEMO_JOB) for text in texts] == [
        RESTARTING,
        RESTARTING,
        RESTARTING,
        FAILED,
    ]
    assert texts == [RIGHT % 3, RIGHT % 2, RIGHT % 1, RIGHT % 0]


@pytest.mark.parametrize("word", ["grace", "force", "external-grace", "external-force", "maybe"])
async def test_every_job_that_the_plugin_would_list_is_listed(word: str) -> None:
    # A word that the plugin does not know is not `off` to it: the job is listed, and the operator restarts its pods.
    rig = Rig(the_demo({**LABELS, "fault-scheduling": word}))
    rig.tick(1)
    await rig.run()
    assert operator_decides(await rig.data(VCJOB), DEMO_JOB) == RESTARTING


@pytest.mark.parametrize("labels", [{"fault-retry-times": "3"}, {**LABELS, "fault-scheduling": "off"}])
async def test_a_job_that_the_plugin_leaves_alone_is_not_listed(labels: dict[str, str]) -> None:
    rig = Rig(the_demo(labels))
    rig.tick(1)
    await rig.run()
    assert (await rig.data(VCJOB) or {})["remain-retry-times"] == "{}"


@pytest.mark.parametrize("phase", ["", "Pending", "Inqueue", "Running"])
async def test_a_job_that_waits_is_listed_before_it_has_a_pod(phase: str) -> None:
    rig = Rig([a_node("n1"), a_group(labels=LABELS, phase=phase)])
    rig.tick(1)
    await rig.run()
    assert operator_decides(await rig.data(VCJOB), DEMO_JOB) == RESTARTING
    assert rig.texts(VCJOB, "remain-retry-times") == [RIGHT % 3]


async def test_a_pod_that_fails_before_its_devices_are_known_costs_no_job() -> None:
    rig = Rig([a_node("n1"), a_group(labels=LABELS, phase="Inqueue")])
    rig.apply(a_pod("demo-0", devices=(), phase="Failed", labels=LABELS), 1)
    rig.tick(2)
    await rig.run()
    assert operator_decides(await rig.data(VCJOB), DEMO_JOB) == RESTARTING


async def test_a_job_that_is_over_when_it_is_first_seen_is_not_added() -> None:
    rig = Rig([a_node("n1"), a_group(labels=LABELS, phase="Completed")])
    rig.tick(1)
    await rig.run()
    assert (await rig.data(VCJOB) or {})["remain-retry-times"] == "{}"


async def test_switched_off_and_on_again_a_job_has_what_was_left() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(a_pod("demo-0", phase="Failed", labels=LABELS), 1)
    rig.delete("Pod", "train", "demo-0", 3)
    rig.apply(a_pod("demo-0", uid="uid-2", labels=LABELS), 6)
    for at, word in ((10, "off"), (20, "grace")):
        marks = {**LABELS, "fault-scheduling": word}
        rig.apply(a_group(labels=marks), at)
        rig.apply(a_pod("demo-0", uid="uid-2", labels=marks), at + 1)
        rig.apply(a_pod("demo-1", node="n2", rank_index=1, labels=marks), at + 2)
    rig.tick(30)
    await rig.run()
    assert rig.texts(VCJOB, "remain-retry-times") == [RIGHT % 3, RIGHT % 2]


async def test_a_label_below_none_is_never_counted_further_down() -> None:
    labels = {**LABELS, "fault-retry-times": "-1"}
    rig = Rig(the_demo(labels))
    rig.apply(a_pod("demo-0", phase="Failed", labels=labels), 1)
    rig.delete("Pod", "train", "demo-0", 3)
    rig.apply(a_pod("demo-0", uid="uid-2", labels=labels), 6)
    rig.tick(10)
    await rig.run()
    assert rig.texts(VCJOB, "remain-retry-times") == [RIGHT % -1]


async def test_a_job_that_nobody_owns_has_its_label_s_retries() -> None:
    objects = [a_node("n1"), a_group("lone", owner="", min_member=1, labels=LABELS), a_pod("lone-0", group="lone")]
    rig = Rig(objects)
    rig.tick(1)
    await rig.run()
    assert (await rig.data(VCJOB) or {})["remain-retry-times"] == '{"train/lone":{"UUID":"","Times":3}}'


async def test_what_another_writer_counted_while_it_was_there_is_gone_on_from() -> None:
    rig = Rig(the_demo(LABELS))
    rig.tick(1)
    await rig.run()
    theirs = holding({"fault-node": "", "remain-retry-times": RIGHT % 2})
    theirs["metadata"]["managedFields"] = [{"manager": "vc-scheduler"}]
    beside = Rig(rig.objects, disk=rig.disk)
    beside.apply(theirs, 10)
    beside.tick(11)
    beside.apply(a_pod("demo-0", phase="Failed", labels=LABELS), 20)
    beside.delete("Pod", "train", "demo-0", 25)
    beside.apply(a_pod("demo-0", uid="uid-2", labels=LABELS), 30)
    theirs["data"]["remain-retry-times"] = RIGHT % 1
    beside.apply(theirs, 31)
    beside.tick(40)
    await beside.run()
    assert (await rig.data(VCJOB) or {})["remain-retry-times"] == RIGHT % 1
    # The plugin is declared history: its count goes on, and what it counted is not counted twice.
    alone = Rig(rig.objects, {"documents": {"vcjob_fault_npu_cm": {"sole_writer": True}}}, disk=rig.disk)
    alone.tick(100)
    await alone.run()
    assert (await rig.data(VCJOB) or {})["remain-retry-times"] == RIGHT % 1


async def test_one_wrong_entry_costs_no_right_one_of_others() -> None:
    theirs = '{"a/b":{"UUID":"u","Times":"2"},"c/d":{"UUID":"v","Times":5,"note":[1]},"e/f":null}'
    rig = Rig(the_demo(LABELS))
    rig.apply(holding({"remain-retry-times": theirs}), 0)
    rig.fault(SEPARATE, 1)
    await rig.run()
    left = (await rig.data(VCJOB) or {})["remain-retry-times"]
    assert left == f'{{"c/d":{{"UUID":"v","Times":5,"note":[1]}},{(RIGHT % 3)[1:]}'
    told = [one.detail for one in rig.decisions if one.document == VCJOB and one.reason is Reason.WRITTEN]
    assert any("/a~1b/Times" in detail and "from 1 right entries and ours" in detail for detail in told)


async def test_a_job_whose_podgroup_is_not_shown_keeps_what_others_wrote_of_it() -> None:
    objects = [a_node("n1"), a_pod("demo-0", labels=LABELS)]
    rig = Rig(objects)
    rig.apply(holding({"remain-retry-times": RIGHT % 1}), 0)
    rig.apply(a_pod("demo-0", phase="Failed", labels=LABELS), 1)
    rig.fault(SEPARATE, 2)
    await rig.run()
    assert (await rig.data(VCJOB) or {})["remain-retry-times"] == RIGHT % 1


async def test_a_job_whose_ledger_cannot_be_read_is_still_listed() -> None:
    rig = Rig(the_demo(LABELS))
    store = rig.disk.foreign
    assert store is not None
    await store.put(ConfigMap("train", f"fault-agent-job-{DEMO_GROUP}", {"ledger.json": "{"}))
    rig.fault(SEPARATE, 1)
    await rig.run()
    assert Reason.LEDGER_UNREADABLE in [one.reason for one in rig.decisions]
    assert operator_decides(await rig.data(VCJOB), DEMO_JOB) == RESTARTING


async def test_a_deleted_document_is_made_again_with_every_job_and_node() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(SEPARATE, 1)
    rig.delete("ConfigMap", "volcano-system", "vcjob-fault-npu-cm", 5)
    rig.tick(6)
    await rig.run()
    data = await rig.data(VCJOB)
    assert operator_decides(data, DEMO_JOB) == RESTARTING
    assert [one["UpdateTime"] - T0 // 1000 for one in await nodes_of(rig)] == [1]
