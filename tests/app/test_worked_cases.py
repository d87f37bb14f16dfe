"""A small job worked to the byte: what each document holds, and when, after one fault.

Job `demo`: two pods (rank index 0 on n1, 1 on n2) with devices 0 to 3 each, no Volcano at work, act mode. Every text
here is written by hand from the formats of the documents' readers.
"""

import hashlib
import json
from typing import Any

import pytest
from kubebuilders import DEMO_GROUP, DEMO_UID, a_config_map, a_pod, the_demo
from rig import T0, Rig

from agent.domain.vocab import Reason

JOB = f"train/{DEMO_GROUP}"
RESET = "train/reset-config-demo"
VCJOB = "volcano-system/vcjob-fault-npu-cm"
RECORDS = "mindx-dl/job-reschedule-reason"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3"}
MINDSPORE = {**LABELS, "framework": "mindspore"}

RETRIES = f'{{"{JOB}":{{"UUID":"{DEMO_UID}","Times":3}}}}'
SEPARATED = (
    '[{"FaultDeviceList":[{"fault_type":"CardUnhealthy","npu_name":"Ascend910-2","fault_level":"SeparateNPU",'
    '"fault_handling":"SeparateNPU","large_model_fault_level":"SeparateNPU","fault_code":"80E18402"}],'
    '"NodeName":"n1","UnhealthyNPU":["Ascend910-2"],"NetworkUnhealthyNPU":null,"NodeDEnable":false,'
    '"NodeHealthState":"CardUnhealthy","UpdateTime":1767225600}]'
)


def reset(
    status: str,
    *,
    at: int,
    retry: int,
    policy: str = "restart_request",
    initial: str = "restart_request",
    number: int = 2160689152,
    code: str = "80C98000",
) -> str:
    """The list of the four ranks on n1, rank 2 with the code."""
    entries = ",".join(
        f'{{"RankId":{rank},"LogicId":{rank},"Status":"{status}","Policy":"{policy}","InitialPolicy":"{initial}",'
        f'"ErrorCode":[{number if rank == 2 else ""}],"ErrorCodeHex":"{code if rank == 2 else ""}",'
        f'"RecoveryId":1}}'
        for rank in range(4)
    )
    return _info(entries, at, retry)


def empty(*, at: int, retry: int) -> str:
    return _info("", at, retry)


def _info(entries: str, at: int, retry: int) -> str:
    return (
        f'{{"RankList":[{entries}],"UpdateTime":{1767225600 + at},"RetryTime":{retry},"FaultFlushing":false,'
        '"GracefulExit":0,"RestartFaultProcess":false}'
    )


def demo(labels: dict[str, str], annotations: dict[str, str] | None = None, **settings: Any) -> Rig:
    return Rig(the_demo(labels, annotations), settings)


async def test_a_separated_chip_is_listed_and_no_reset_entry_is_written() -> None:
    rig = demo(LABELS)
    rig.fault("80E18402")
    rig.tick(600)
    await rig.run()
    assert rig.texts(VCJOB, "fault-node") == ["[]", SEPARATED]
    assert await rig.data(RESET) is None
    assert await rig.data(RECORDS) is None


async def test_remaining_retries_are_there_before_the_fault_and_unchanged_by_it() -> None:
    rig = demo(LABELS)
    rig.tick(0)
    rig.fault("80E18402", 10)
    rig.tick(20)
    await rig.run()
    assert rig.texts(VCJOB, "remain-retry-times") == [RETRIES]
    assert rig.texts(VCJOB, "fault-node")[0] == "[]"


async def test_the_record_appears_once_the_pods_have_been_replaced() -> None:
    rig = demo(LABELS)
    rig.fault("80E18402")
    rig.delete("Pod", "train", "demo-0", 30)
    rig.apply(a_pod("demo-0", uid="uid-new", node="n3", rank_index=0, labels=LABELS), 60)
    rig.tick(61)
    await rig.run()
    record = (
        f'{{"{JOB}":{{"JobID":"{JOB}","TotalRescheduleTimes":1,"RescheduleRecords":[{{"LogFileFormatTime":'
        '"I0101 00:01:00","RescheduleTimeStamp":1767225660,"ReasonOfTask":[{"RescheduleReason":"CardUnhealthy",'
        '"PodName":"demo-0","NodeName":"n1","NodeRankIndex":"0"}]}]}}'
    )
    assert rig.texts(RECORDS, "recent-reschedule-records") == [record]
    assert rig.texts(VCJOB, "remain-retry-times") == [RETRIES]


async def test_a_request_that_clears_in_time_is_unrecovered_recovered_and_gone() -> None:
    rig = demo(MINDSPORE)
    rig.fault("80C98000")
    rig.clear("80C98000", 20)
    rig.tick(300)
    await rig.run()
    assert rig.texts(RESET, "reset.json") == [
        reset("unrecovered", at=0, retry=0),
        reset("recovered", at=20, retry=1),
        empty(at=110, retry=1),
    ]
    assert rig.texts(RESET, "restartType") == ["hotReset"]


async def test_the_check_code_is_the_hash_of_the_text_beside_it() -> None:
    rig = demo(MINDSPORE)
    rig.fault("80C98000")
    rig.tick(1)
    await rig.run()
    text = reset("unrecovered", at=0, retry=0)
    assert rig.texts(RESET, "checkCode") == [hashlib.sha256(text.encode()).hexdigest()]


async def test_a_request_that_does_not_clear_fails_and_lets_the_survivors_start() -> None:
    rig = demo(MINDSPORE)
    rig.fault("80C98000")
    rig.tick(600)
    await rig.run()
    assert rig.texts(RESET, "reset.json") == [
        reset("unrecovered", at=0, retry=0),
        reset("failed", at=30, retry=0, policy="isolate"),
        empty(at=150, retry=1),
    ]


async def test_replaced_pods_end_a_failed_recovery_at_once() -> None:
    rig = demo(MINDSPORE)
    rig.fault("80C98000")
    rig.delete("Pod", "train", "demo-0", 40)
    rig.apply(a_pod("demo-0", uid="uid-new", node="n3", rank_index=0, labels=MINDSPORE), 50)
    rig.tick(600)
    await rig.run()
    assert rig.texts(RESET, "reset.json")[1:] == [
        reset("failed", at=30, retry=0, policy="isolate"),
        empty(at=50, retry=1),
    ]


@pytest.mark.parametrize(
    ("labels", "settings", "code", "reason"),
    [
        pytest.param(MINDSPORE, {}, "80E24E00", Reason.NO_RESET_EXECUTOR, id="reset-without-executor"),
        pytest.param(LABELS, {}, "80C98000", Reason.FRAMEWORK_NOT_SUPPORTED, id="framework-absent"),
        pytest.param(MINDSPORE, {"volcano": "alive"}, "80C98000", Reason.VOLCANO_RESCHEDULES, id="volcano-alive"),
        pytest.param(MINDSPORE, {}, "80E18402", Reason.ISOLATION_ONLY, id="separated"),
    ],
)
async def test_a_fault_that_starts_no_recovery_writes_no_entry_and_says_why(
    labels: dict[str, str], settings: dict[str, Any], code: str, reason: Reason
) -> None:
    rig = demo(labels, **settings)
    rig.fault(code)
    rig.tick(600)
    await rig.run()
    assert await rig.data(RESET) is None
    assert rig.reasons(JOB) == [reason]


async def test_with_an_external_executor_a_reset_settles_before_it_counts() -> None:
    rig = demo(MINDSPORE, reset={"executor": "external"})
    rig.fault("80E24E00")
    rig.clear("80E24E00", 140)
    rig.tick(600)
    await rig.run()
    code = 2162314752  # 0x80E24E00
    assert rig.texts(RESET, "reset.json") == [
        reset("unrecovered", at=0, retry=0, policy="reset", initial="reset", number=code, code="80E24E00"),
        reset("recovered", at=170, retry=1, policy="reset", initial="reset", number=code, code="80E24E00"),
        empty(at=260, retry=1),
    ]


async def test_with_an_external_executor_a_request_that_does_not_clear_goes_up_to_reset() -> None:
    rig = demo(MINDSPORE, reset={"executor": "external"})
    rig.fault("80C98000")
    rig.tick(600)
    await rig.run()
    assert rig.texts(RESET, "reset.json") == [
        reset("unrecovered", at=0, retry=0),
        reset("unrecovered", at=30, retry=0, policy="reset"),
        reset("failed", at=180, retry=0, policy="isolate"),
        empty(at=300, retry=1),
    ]
    assert rig.reasons(JOB) == [
        Reason.RECOVERY_STARTED,
        Reason.RECOVERY_ESCALATED,
        Reason.RECOVERY_FAILED,
        Reason.RECOVERY_ENDED,
    ]


async def test_what_others_keep_in_the_reset_config_is_carried_over() -> None:
    rig = demo(MINDSPORE)
    document = a_config_map(
        "reset-config-demo",
        {"reset.json": '{"status":"initializing"}', "checkCode": "", "note": "mine"},
        labels={"reset": "true", "team": "blue"},
    )
    rig.apply(document, 0)
    rig.fault("80C98000", 1)
    rig.clear("80C98000", 5)
    rig.tick(300)
    await rig.run()
    assert rig.texts(RESET, "reset.json")[0] == reset("unrecovered", at=1, retry=0)
    live = await rig.disk.store.get("train", "reset-config-demo")
    assert live is not None
    assert live.data["note"] == "mine"
    assert live.labels == {"reset": "true", "team": "blue"}
    assert live.data["reset.json"] == empty(at=95, retry=1)


async def test_a_reset_config_of_ours_is_labelled_for_the_device_plugin_and_owned_by_the_pod_group() -> None:
    rig = demo(MINDSPORE)
    rig.fault("80C98000")
    await rig.run()
    live = await rig.disk.store.get("train", "reset-config-demo")
    assert live is not None
    assert live.labels == {"reset": "true"}
    assert live.extra["ownerReferences"] == [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "name": DEMO_GROUP,
            "uid": f"uid-{DEMO_GROUP}",
        }
    ]


async def test_both_planes_of_a_node_are_listed_apart_and_held_codes_not_at_all() -> None:
    rig = demo(LABELS)
    rig.fault("80E18402", device=3)
    rig.fault("A8028801", device=0)
    rig.fault("81078603", device=0)
    rig.fault("DEADBEEF", device=1, location={"severity": 2})
    rig.tick(30)
    await rig.run()
    nodes = json.loads(rig.texts(VCJOB, "fault-node")[-1])
    assert [(one["npu_name"], one["fault_type"], one["fault_code"]) for one in nodes[0]["FaultDeviceList"]] == [
        ("Ascend910-0", "CardUnhealthy", "A8028801"),
        ("Ascend910-0", "CardNetworkUnhealthy", "81078603"),
        ("Ascend910-3", "CardUnhealthy", "80E18402"),
    ]
    assert nodes[0]["NetworkUnhealthyNPU"] == ["Ascend910-0"]


async def test_a_silent_cluster_writes_one_document_and_says_nothing_of_faults() -> None:
    rig = demo(LABELS)
    rig.tick(0)
    rig.tick(3600)
    await rig.run()
    assert [(str(one.reason), one.document, one.at) for one in rig.decisions] == [("WRITTEN", VCJOB, T0)]
