"""What happens to a job while a recovery of it runs, in every state of the recovery."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kubebuilders import DEMO_GROUP, DEMO_JOB, a_config_map, a_group, a_pod, the_demo
from rig import T0, Rig

from agent.domain.events import Behind, Decision
from agent.domain.reset import Phase
from agent.domain.vocab import JobId, Reason

RESET = "train/reset-config-demo"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, BUSINESS, SEPARATE = "80BB8003", "81B38002", "80E18402"
SECOND = 40
"""When the thing happens, s."""


def unrecovered(rig: Rig) -> None:
    rig.fault(BUSINESS, 1)


def settling(rig: Rig) -> None:
    rig.fault(BUSINESS, 1)
    rig.clear(BUSINESS, 30)


def recovered(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.clear(REQUEST, 20)


def failed(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.fault(SEPARATE, 20, device=1)


def left(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", labels=LABELS), 20)


STATES: dict[Phase, Callable[[Rig], None]] = {
    Phase.UNRECOVERED: unrecovered,
    Phase.SETTLING: settling,
    Phase.RECOVERED: recovered,
    Phase.FAILED: failed,
    Phase.LEFT: left,
}
RAISED_BEFORE = {Phase.RECOVERED, Phase.LEFT}
"""States in which RetryTime has been raised already."""


def in_state(phase: Phase) -> Rig:
    rig = Rig(the_demo(LABELS))
    STATES[phase](rig)
    return rig


async def seen(rig: Rig) -> list[tuple[int, int, str]]:
    """Second, RetryTime, and how many ranks have which status, of each state of the list from SECOND on."""
    rig.tick(600)
    await rig.run()
    found = []
    for text in rig.texts(RESET, "reset.json"):
        info = json.loads(text)
        words = [entry["Status"] for entry in info["RankList"]]
        brief = " ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
        found.append((info["UpdateTime"] - 1767225600, info["RetryTime"], brief))
    return [one for one in found if one[0] >= SECOND]


@pytest.mark.parametrize("phase", STATES)
async def test_the_story_is_in_that_state(phase: Phase) -> None:
    rig = in_state(phase)
    rig.tick(SECOND)
    await rig.run()
    (ledger,) = rig.book.ledgers.values()
    assert [course.recovery.phase for course in ledger.courses] == [phase]


@pytest.mark.parametrize("phase", STATES)
async def test_a_job_that_finishes_keeps_no_entry_and_nobody_is_told_to_start(phase: Phase) -> None:
    rig = in_state(phase)
    rig.apply(a_group(labels=LABELS, phase="Completed"), SECOND)
    before = 1 if phase in RAISED_BEFORE else 0
    assert await seen(rig) == ([] if phase is Phase.LEFT else [(SECOND, before, "")])
    assert not any(ledger.courses for ledger in rig.book.ledgers.values())


@pytest.mark.parametrize("phase", STATES)
async def test_a_job_that_is_deleted_keeps_no_entry_and_no_ledger(phase: Phase) -> None:
    rig = in_state(phase)
    for name in ("demo-0", "demo-1"):
        rig.delete("Pod", "train", name, SECOND)
    rig.delete("PodGroup", "train", DEMO_GROUP, SECOND)
    found = await seen(rig)
    assert [one[2] for one in found[-1:]] == ([] if phase is Phase.LEFT else [""])
    assert rig.book.ledgers == {}


@pytest.mark.parametrize("phase", STATES)
async def test_process_recovery_turned_on_gets_an_empty_list_and_stopped_workers_start(phase: Phase) -> None:
    rig = in_state(phase)
    rig.apply(a_group(labels={**LABELS, "process-recover-enable": "on"}), SECOND)
    assert await seen(rig) == ([] if phase is Phase.LEFT else [(SECOND, 1, "")])
    assert not any(ledger.courses for ledger in rig.book.ledgers.values())


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.UNRECOVERED, [(40, 0, "4 failed"), (60, 1, "")]),
        (Phase.SETTLING, [(40, 0, "4 failed"), (60, 1, "")]),
        (Phase.RECOVERED, [(50, 1, "")]),
        (Phase.FAILED, [(60, 1, "")]),
        (Phase.LEFT, []),
    ],
)
async def test_a_pod_replaced_ends_it_when_the_other_is_placed(
    phase: Phase, expected: list[tuple[int, int, str]]
) -> None:
    rig = in_state(phase)
    rig.delete("Pod", "train", "demo-0", SECOND)
    rig.apply(a_pod("demo-0", uid="uid-3", labels=LABELS), SECOND + 20)
    assert await seen(rig) == expected


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.UNRECOVERED, [(40, 0, "4 failed"), (60, 0, "")]),
        (Phase.SETTLING, [(40, 0, "4 failed"), (60, 0, "")]),
        (Phase.RECOVERED, [(50, 1, "")]),
        (Phase.FAILED, [(60, 0, "")]),
        (Phase.LEFT, []),
    ],
)
async def test_all_pods_replaced_leave_nobody_to_be_told(phase: Phase, expected: list[tuple[int, int, str]]) -> None:
    rig = in_state(phase)
    names = ("demo-0", "demo-1")
    for name in names:
        rig.delete("Pod", "train", name, SECOND)
    for number, name in enumerate(names):
        pod = a_pod(name, uid=f"uid-new-{number}", node=f"n{number + 1}", rank_index=number, labels=LABELS)
        pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:55Z"
        rig.apply(pod, SECOND + 20)
    assert await seen(rig) == expected


def of_volcano(retry: int) -> dict[str, Any]:
    text = (
        f'{{"RankList":[],"UpdateTime":1767225640,"RetryTime":{retry},"FaultFlushing":false,"GracefulExit":0,'
        '"RestartFaultProcess":false}'
    )
    return a_config_map("reset-config-demo", {"reset.json": text, "restartType": "podReschedule"})


@pytest.mark.parametrize("phase", STATES)
async def test_volcano_s_clear_with_a_raise_is_the_last_word(phase: Phase) -> None:
    rig = in_state(phase)
    rig.apply(of_volcano(2), SECOND)
    assert await seen(rig) == []
    data = await rig.data(RESET)
    assert data is not None
    assert data["reset.json"] == of_volcano(2)["data"]["reset.json"]


@pytest.mark.parametrize("phase", STATES)
async def test_volcano_s_clear_without_a_raise_is_made_good_once(phase: Phase) -> None:
    rig = in_state(phase)
    rig.apply(of_volcano(0), SECOND)
    assert await seen(rig) == [(SECOND, 1, "")]


async def test_a_pod_that_may_have_read_the_list_before_it_was_shown_failed_is_told_to_start() -> None:
    rig = in_state(Phase.UNRECOVERED)
    rig.apply(a_config_map("reset-config-demo", {"reset.json": "{"}), SECOND - 1)
    rig.delete("Pod", "train", "demo-0", SECOND)
    rig.delete("Pod", "train", "demo-1", SECOND + 1)
    for number, name in enumerate(("demo-0", "demo-1")):
        pod = a_pod(name, uid=f"uid-new-{number}", node=f"n{number + 1}", rank_index=number, labels=LABELS)
        pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:55Z"
        rig.apply(pod, SECOND + 20)
    rig.apply(a_config_map("reset-config-demo", {"reset.json": '{"RankList":[],"RetryTime":0}'}), SECOND + 30)
    assert [one[1:] for one in await seen(rig)] == [(1, "")]


RESET_ASKED = "80E24E00"
"""RestartNPU: policy reset."""


async def told(rig: Rig, reason: Reason) -> list[Decision]:
    await rig.run()
    return [one for one in rig.decisions if one.reason is reason]


async def test_a_stronger_fault_that_nobody_can_answer_says_why_and_is_behind_the_write() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(REQUEST, 1)
    rig.fault(RESET_ASKED, 10, device=3)
    rig.tick(11)
    (failing,) = await told(rig, Reason.RECOVERY_FAILED)
    stronger = f"n1/chip/3/{RESET_ASKED}@{T0 + 10_000}"
    assert (failing.fault, failing.document) == (stronger, RESET)
    assert failing.detail == "recovery 1 fails: it needs a reset, reset.executor is none; the pods are to be replaced"
    written = [one for one in rig.decisions if one.document == RESET and one.reason is Reason.WRITTEN]
    assert [(one.detail, one.causes) for one in written] == [
        (
            "recovery 1 unrecovered; RetryTime 0",
            (Behind(f"n1/chip/2/{REQUEST}@{T0 + 1000}", JobId(DEMO_JOB)),),
        ),
        ("recovery 1 failed; RetryTime 0", (Behind(stronger, JobId(DEMO_JOB)),)),
    ]


async def test_a_fault_that_isolates_is_behind_the_recovery_that_fails_and_what_is_written_then() -> None:
    rig = in_state(Phase.FAILED)
    rig.tick(21)
    (failing,) = await told(rig, Reason.RECOVERY_FAILED)
    began, isolates = f"n1/chip/2/{REQUEST}@{T0 + 1000}", f"n1/chip/1/{SEPARATE}@{T0 + 20_000}"
    assert failing.detail == f"recovery 1: unrecovered → failed, isolated because of {isolates}"
    assert (failing.fault, failing.causes) == (began, (Behind(isolates, JobId(DEMO_JOB)),))
    written = [one for one in rig.decisions if one.document == RESET and one.reason is Reason.WRITTEN]
    assert [cause.fault for cause in written[-1].causes] == [began, isolates]


async def test_an_escalation_by_a_stronger_fault_names_the_old_policy_and_the_new_one() -> None:
    rig = Rig(the_demo(LABELS), {"reset": {"executor": "external"}})
    rig.fault(REQUEST, 1)
    rig.fault(RESET_ASKED, 10, device=3)
    rig.tick(11)
    assert [one.detail for one in await told(rig, Reason.RECOVERY_ESCALATED)] == [
        "into recovery 1: policy restart_request → reset"
    ]


async def test_a_stronger_fault_may_escalate_without_a_reset() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(REQUEST, 1)
    rig.fault(BUSINESS, 10, device=3)
    rig.tick(11)
    assert [one.detail for one in await told(rig, Reason.RECOVERY_ESCALATED)] == [
        "into recovery 1: policy restart_request → restart"
    ]


async def test_an_escalation_by_time_names_the_old_policy_and_the_new_one() -> None:
    rig = Rig(the_demo(LABELS), {"reset": {"executor": "external"}})
    rig.fault(REQUEST, 1)
    rig.tick(32)
    assert [one.detail for one in await told(rig, Reason.RECOVERY_ESCALATED)] == [
        "recovery 1: policy restart_request → reset, its time is over"
    ]


async def test_a_pod_that_goes_after_a_success_is_no_second_success() -> None:
    rig = in_state(Phase.RECOVERED)
    rig.delete("Pod", "train", "demo-0", 25)
    rig.tick(600)
    assert [one.detail for one in await told(rig, Reason.RECOVERY_SUCCEEDED)] == [
        "recovery 1: unrecovered → recovered, its codes are gone"
    ]
    ended = [one for one in rig.decisions if one.reason is Reason.RECOVERY_ENDED]
    # Shown since 20, for 30 s at the least instead of 90.
    assert [(one.at - T0) // 1000 for one in ended] == [50]
