"""In-place recoveries while other things happen: what is shown, how often readers restart, and that each one ends."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import DEMO_GROUP, DEMO_JOB, a_config_map, a_group, a_pod, the_demo
from readers import RUNNING, MsrunPod, TaskdManager
from rig import Rig

from agent.domain.vocab import Reason

RESET = "train/reset-config-demo"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
TWICE = "80BB8003"
"""RestartRequest as 80C98000, and no frequency rule counts it."""
REQUEST, BUSINESS, SEPARATE, NPU = "80C98000", "81B38002", "80E18402", "80E24E00"


def demo(labels: dict[str, str] | None = None, **settings: Any) -> Rig:
    return Rig(the_demo(labels or LABELS), settings)


def group(**labels: str) -> dict[str, Any]:
    return a_group(labels={**LABELS, **labels})


def shown(rig: Rig) -> list[tuple[int, int, list[tuple[int, str, str]]]]:
    """Second, RetryTime and (rank, status, policy) of each state of the list, in order."""
    found = []
    for text in rig.texts(RESET, "reset.json"):
        item = json.loads(text)
        entries = [(one["RankId"], one["Status"], one["Policy"]) for one in item["RankList"] or []]
        found.append((item["UpdateTime"] - 1767225600, item["RetryTime"], entries))
    return found


def brief(rig: Rig) -> list[tuple[int, int, str]]:
    """Second, RetryTime, and the statuses that are shown, each with how many ranks."""
    found = []
    for second, retry, entries in shown(rig):
        words = [status for _, status, _ in entries]
        found.append((second, retry, " ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))))
    return found


COUNTING = (Reason.FAULT_COUNTED, Reason.SOFTWARE_FAULT)
"""Words of a rule of its own, see test_software."""


def of_job(rig: Rig) -> list[tuple[int, str]]:
    return [
        ((one.at - 1767225600000) // 1000, str(one.reason))
        for one in rig.decisions
        if one.job == DEMO_JOB and one.fault and one.reason not in COUNTING
    ]


async def test_a_second_fault_on_the_node_joins_with_its_code() -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.fault("80CB8008", 5, device=1)
    rig.clear(REQUEST, 10)
    rig.tick(11)
    rig.clear("80CB8008", 12, device=1)
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [
        (0, 0, "4 unrecovered"),
        (5, 0, "4 unrecovered"),
        (12, 1, "4 recovered"),
        (102, 1, ""),
    ]
    codes = [one["ErrorCodeHex"] for one in json.loads(rig.texts(RESET, "reset.json")[1])["RankList"]]
    assert codes == ["", "80CB8008", "80C98000", ""]


async def test_a_stronger_fault_on_the_node_changes_the_policy_of_all() -> None:
    rig = demo(reset={"executor": "external"})
    rig.fault(REQUEST)
    rig.fault(NPU, 5, device=1)
    rig.tick(6)
    await rig.run()
    assert [entry[2] for entry in shown(rig)[-1][2]] == ["reset"] * 4
    assert of_job(rig) == [(0, Reason.RECOVERY_STARTED), (5, Reason.RECOVERY_ESCALATED)]


async def test_a_reset_that_nobody_can_do_fails_the_recovery_that_runs() -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.fault(NPU, 5, device=1)
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [(0, 0, "4 unrecovered"), (5, 0, "4 failed"), (125, 1, "")]


async def test_a_second_node_fails_the_recovery_that_runs() -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.fault(REQUEST, 5, node="n2")
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [(0, 0, "4 unrecovered"), (5, 0, "4 failed"), (125, 1, "")]
    assert of_job(rig) == [
        (0, Reason.RECOVERY_STARTED),
        (5, Reason.RECOVERY_FAILED),
        (5, Reason.RECOVERY_RUNNING),
        (125, Reason.RECOVERY_ENDED),
    ]


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_an_isolating_fault_anywhere_in_the_job_fails_the_recovery_that_runs(node: str) -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.fault(SEPARATE, 5, node=node, device=0)
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [(0, 0, "4 unrecovered"), (5, 0, "4 failed"), (125, 1, "")]


async def test_nothing_is_started_while_a_device_of_the_job_is_isolated() -> None:
    rig = demo()
    rig.fault(SEPARATE, node="n2")
    rig.fault(REQUEST, 5)
    rig.tick(300)
    await rig.run()
    assert await rig.data(RESET) is None
    assert of_job(rig) == [(0, Reason.ISOLATION_ONLY), (5, Reason.ISOLATION_ONLY)]


@pytest.mark.parametrize("word", ["on", "pause"])
async def test_process_recover_turned_on_in_the_middle_takes_our_entries_out(word: str) -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.apply(group(**{"process-recover-enable": word}), 10)
    rig.fault("80CB8008", 20, device=1)
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [(0, 0, "4 unrecovered"), (10, 1, "")]
    assert [reason for _, reason in of_job(rig)] == [
        Reason.RECOVERY_STARTED,
        Reason.PROCESS_RECOVER_OWNS,
        Reason.PROCESS_RECOVER_OWNS,
    ]


async def test_a_job_that_finishes_in_the_middle_is_left_alone_without_a_restart() -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.apply(a_group(labels=LABELS, phase="Completed"), 10)
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [(0, 0, "4 unrecovered"), (10, 0, "")]


async def test_a_job_that_is_deleted_in_the_middle_leaves_no_entries_and_no_ledger() -> None:
    rig = demo()
    rig.fault(REQUEST)
    for name in ("demo-0", "demo-1"):
        rig.delete("Pod", "train", name, 10)
    rig.delete("PodGroup", "train", DEMO_GROUP, 11)
    rig.tick(300)
    await rig.run()
    assert brief(rig)[-1][2] == ""
    assert await rig.data(f"train/fault-agent-job-{DEMO_GROUP}") is None
    assert rig.coordinator.next_deadline() is None


async def test_a_pod_that_goes_fails_the_recovery_at_once_and_its_replacement_ends_it() -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 40)
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [(0, 0, "4 unrecovered"), (10, 0, "4 failed"), (40, 1, "")]


async def test_reaching_min_member_without_the_lost_pod_is_no_replacement() -> None:
    objects = the_demo(LABELS)
    objects[3] = a_group(labels=LABELS, min_member=1)
    rig = Rig(objects)
    rig.fault(REQUEST)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [(0, 0, "4 unrecovered"), (10, 0, "4 failed"), (130, 1, "")]


async def test_codes_that_come_back_while_settling_are_waited_for_again() -> None:
    rig = demo()
    rig.fault(BUSINESS)
    rig.clear(BUSINESS, 10)
    rig.fault(BUSINESS, 20)
    rig.clear(BUSINESS, 40)
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [(0, 0, "4 unrecovered"), (55, 1, "4 recovered"), (145, 1, "")]


async def test_a_fault_after_recovery_begins_a_second_one_and_a_third_joins_that() -> None:
    rig = demo()
    rig.fault(TWICE)
    rig.clear(TWICE, 5)
    rig.fault(TWICE, 20)
    rig.fault("80CB8008", 25, device=1)
    rig.clear(TWICE, 30)
    rig.clear("80CB8008", 30, device=1)
    rig.tick(400)
    await rig.run()
    assert [reason for _, reason in of_job(rig)] == [
        Reason.RECOVERY_STARTED,
        Reason.RECOVERY_SUCCEEDED,
        Reason.RECOVERY_STARTED,
        Reason.RECOVERY_ENDED,
        Reason.RECOVERY_JOINED,
        Reason.RECOVERY_SUCCEEDED,
        Reason.RECOVERY_ENDED,
    ]
    assert "recovery 1: its ranks went to recovery 2" in [one.detail for one in rig.decisions]
    assert brief(rig) == [
        (0, 0, "4 unrecovered"),
        (5, 1, "4 recovered"),
        (20, 1, "4 unrecovered"),
        (25, 1, "4 unrecovered"),
        (30, 2, "4 recovered"),
        (120, 2, ""),
    ]


async def test_a_second_node_fails_the_newer_recovery_while_the_older_is_still_shown_recovered() -> None:
    rig = demo()
    rig.fault(TWICE)
    rig.clear(TWICE, 5)
    rig.fault(TWICE, 20)
    rig.fault(TWICE, 25, node="n2")
    rig.tick(400)
    await rig.run()
    assert (25, Reason.RECOVERY_FAILED) in of_job(rig)
    assert [reason for _, reason in of_job(rig)].count(Reason.RECOVERY_STARTED) == 2


async def test_somebody_else_s_clear_ends_ours() -> None:
    rig = demo()
    rig.fault(REQUEST)
    cleared = (
        '{"RankList":[],"UpdateTime":1767225610,"RetryTime":4,"FaultFlushing":false,"GracefulExit":0,'
        '"RestartFaultProcess":false}'
    )
    rig.apply(a_config_map("reset-config-demo", {"reset.json": cleared}), 10)
    rig.tick(300)
    await rig.run()
    data = await rig.data(RESET)
    assert data is not None
    assert data["reset.json"] == cleared
    assert of_job(rig)[-1][1] == Reason.RECOVERY_ENDED


async def test_an_edge_within_one_moment_is_acted_on_and_ends_well() -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.clear(REQUEST, 0.1)
    rig.tick(300)
    await rig.run()
    assert [row[1:] for row in brief(rig)][-2:] == [(1, "4 recovered"), (1, "")]


async def test_an_edge_that_joins_a_recovery_is_over_as_soon_as_it_is_read() -> None:
    rig = demo()
    rig.fault(BUSINESS, assertion="once")
    rig.fault(REQUEST, 1, assertion="once")
    rig.tick(300)
    await rig.run()
    assert brief(rig) == [(0, 0, "4 unrecovered"), (1, 0, "4 unrecovered"), (16, 1, "4 recovered"), (106, 1, "")]


async def test_a_fault_that_was_over_before_the_pod_was_created_stops_no_training() -> None:
    rig = demo()
    for name in ("demo-0", "demo-1"):
        rig.delete("Pod", "train", name, 0)
    rig.fault(REQUEST, 10)
    rig.clear(REQUEST, 12)
    for step, name in enumerate(("demo-0", "demo-1")):
        pod = a_pod(name, uid=f"uid-{name}-2", node=f"n{step + 1}", rank_index=step, labels=LABELS)
        pod["metadata"]["creationTimestamp"] = "2026-01-01T00:01:00Z"
        rig.apply(pod, 60 + step)
    rig.tick(300)
    await rig.run()
    assert await rig.data(RESET) is None


async def test_leaving_act_for_the_document_hands_the_recovery_over() -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.tick(1)
    await rig.run()
    later = Rig(the_demo(LABELS), {"documents": {"reset_config": {"mode": "observe"}}}, disk=rig.disk)
    later.tick(5)
    await later.run()
    assert brief(later) == [(0, 1, "")]
    assert [reason for _, reason in of_job(later)] == [Reason.RECOVERY_ENDED]


async def test_without_a_reset_config_a_recovery_still_ends() -> None:
    rig = demo(documents={"reset_config": {"create": False}})
    rig.fault(REQUEST)
    rig.tick(600)
    await rig.run()
    assert await rig.data(RESET) is None
    assert rig.book.ledger(DEMO_JOB).courses == ()  # type: ignore[arg-type]  # a JobId


async def test_the_reset_ring_of_a_known_product_is_listed_and_no_more() -> None:
    objects = the_demo({**LABELS, "accelerator-type": "module-910b-8"})
    labels = {**LABELS, "accelerator-type": "module-910b-8"}
    objects[-2] = a_pod("demo-0", devices=tuple(range(16)), labels=labels)
    objects[-1] = a_pod("demo-1", node="n2", rank_index=1, devices=tuple(range(16)), labels=labels)
    rig = Rig(objects)
    rig.fault(REQUEST, device=9)
    rig.tick(1)
    await rig.run()
    assert [rank for rank, _, _ in shown(rig)[0][2]] == list(range(16))
    infer = {**LABELS, "accelerator-type": "card-910b-infer"}
    rig = demo(infer)
    rig.fault(REQUEST, device=2)
    rig.tick(1)
    await rig.run()
    assert [rank for rank, _, _ in shown(rig)[0][2]] == [2]


STEP = st.sampled_from(
    ["request", "business", "npu", "separate", "other node", "clear", "clear other", "pod", "wait", "foreign clear"]
)


@settings(max_examples=40)
@given(steps=st.lists(st.tuples(STEP, st.integers(1, 70)), min_size=1, max_size=8), external=st.booleans())
def test_whatever_happens_training_runs_again_and_the_list_is_empty(
    steps: list[tuple[str, int]], external: bool
) -> None:
    import asyncio

    rig = demo(reset={"executor": "external" if external else "none"})
    codes = {"request": REQUEST, "business": BUSINESS, "npu": NPU, "separate": SEPARATE}
    at, pods = 0, 1
    for what, seconds in steps:
        at += seconds
        if what in codes:
            rig.fault(codes[what], at)
        elif what == "other node":
            rig.fault(REQUEST, at, node="n2")
        elif what == "clear":
            for code in codes.values():
                rig.clear(code, at)
        elif what == "clear other":
            rig.clear(REQUEST, at, node="n2")
        elif what == "pod":
            pods += 1
            pod = a_pod("demo-0", uid=f"uid-{pods}", node="n1", labels=LABELS)
            rig.delete("Pod", "train", "demo-0", at)
            rig.apply(pod, at)
        else:
            rig.tick(at)
    for code in codes.values():
        rig.clear(code, at + 1)
    rig.clear(REQUEST, at + 1, node="n2")
    rig.tick(at + 1000)
    asyncio.run(_run(rig))
    texts = rig.texts(RESET, "reset.json")
    if not texts:
        return
    assert json.loads(texts[-1])["RankList"] == []
    survivor, manager = MsrunPod((4, 5, 6, 7)), TaskdManager()
    survivor.poll("")
    for text in texts:
        survivor.poll(text, "hotReset")
        manager.poll(text)
    for _ in range(4):
        survivor.poll(texts[-1], "hotReset")
    assert survivor.state == RUNNING
    retries = [json.loads(text)["RetryTime"] for text in texts]
    assert retries == sorted(retries)
    assert manager.errors == 0


async def _run(rig: Rig) -> None:
    await rig.run()


async def test_a_pod_gone_a_moment_before_its_fault_is_read_has_the_job_told_and_nobody_else() -> None:
    rig = demo()
    rig.tick(0)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.fault(REQUEST, 10)
    rig.fault(SEPARATE, 11, device=3)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 15)
    rig.fault(REQUEST, 20, device=1)
    rig.tick(21)
    await rig.run()
    told = [(one.fault.partition("@")[0], str(one.reason)) for one in rig.decisions if one.occurrence]
    assert [row for row in told if row[1] not in ("FAULT_SHOWN", "RESCHEDULE_RECORDED")] == [
        (f"n1/chip/2/{REQUEST}", "NO_RANK"),
        (f"n1/chip/3/{SEPARATE}", "ISOLATION_ONLY"),
        (f"n1/chip/1/{REQUEST}", "NO_JOB"),
    ]
    assert await rig.data(RESET) is None
