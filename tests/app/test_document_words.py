"""What is said of documents that are left alone or written: the key, the setting, and who has how many retries left."""

from typing import Any

import pytest
from kubebuilders import DEMO_JOB, a_config_map, a_group, a_node, a_pod, the_demo
from rig import Rig
from vcjobnight import LABELS, VCJOB, holding

from agent.app.documents import barred
from agent.domain.vocab import Reason
from agent.ports import ConfigMap

RESET, RECORDS = "train/reset-config-demo", "mindx-dl/job-reschedule-reason"
REQUEST, SEPARATE = "80C98000", "80E18402"
MEND = "nothing is written over it: mend it, or set it to an empty text and it is made anew"


def details(rig: Rig, document: str, reason: Reason) -> list[str]:
    return [one.detail for one in rig.decisions if one.document == document and one.reason is reason]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "reset.json line 1 column 2: not JSON: "),
        ("7", "reset.json /: is an integer, wanted an object"),
        ('{"RankList":7}', "reset.json /RankList: is an integer, wanted an array"),
        ('{"RetryTime":"1"}', "reset.json /RetryTime: is a string, wanted an integer"),
    ],
)
async def test_an_unreadable_reset_json_is_told_with_its_key_and_the_way_out(text: str, said: str) -> None:
    rig = Rig(the_demo({**LABELS, "framework": "mindspore"}))
    rig.apply(a_config_map("reset-config-demo", {"reset.json": text}), 0)
    rig.fault(REQUEST, 1)
    rig.tick(2)
    await rig.run()
    told = details(rig, RESET, Reason.DOCUMENT_UNREADABLE)
    assert told
    assert [one for one in told if not (one.startswith(said) and one.endswith(f"({MEND})"))] == []


async def test_unreadable_records_are_told_with_their_key_and_the_way_out() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(a_config_map("job-reschedule-reason", {"recent-reschedule-records": "[]"}, namespace="mindx-dl"), 0)
    rig.fault(SEPARATE, 1)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 20)
    rig.tick(30)
    await rig.run()
    assert details(rig, RECORDS, Reason.DOCUMENT_UNREADABLE) == [
        f"recent-reschedule-records: /: is an array, wanted an object; {MEND}"
    ]


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("vcjob-fault-npu-cm", "documents.vcjob_fault_npu_cm.sole_writer"),
        ("job-reschedule-reason", "documents.job_reschedule_reason.sole_writer"),
    ],
)
def test_another_writer_is_told_with_the_setting_of_that_document(name: str, setting: str) -> None:
    live = ConfigMap("volcano-system", name, {}, managers=("fault-agent", "vc-scheduler"))
    found = barred(live, "fault-agent", name, sole_writer=False)
    assert found is not None
    assert found.detail == f"written by vc-scheduler; compared only ({setting} declares them gone)"


async def test_another_writer_seen_in_the_live_document_is_told_so() -> None:
    theirs = holding({"fault-node": "", "remain-retry-times": ""})
    theirs["metadata"]["managedFields"] = [{"manager": "vc-scheduler"}]
    rig = Rig(the_demo(LABELS))
    rig.apply(theirs, 0)
    rig.tick(1)
    await rig.run()
    after = Rig(rig.objects, disk=rig.disk)
    after.fault(SEPARATE, 5)
    after.tick(6)
    await after.run()
    assert set(details(after, VCJOB, Reason.FOREIGN_WRITER_LIVE)) == {
        "written by vc-scheduler; compared only (documents.vcjob_fault_npu_cm.sole_writer declares them gone)"
    }


async def test_a_write_says_whose_retries_have_changed_to_what() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(SEPARATE, 1, node="n9")
    rig.apply(a_pod("demo-0", phase="Failed", labels=LABELS), 5)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", labels=LABELS), 20)
    rig.tick(30)
    await rig.run()
    assert details(rig, VCJOB, Reason.WRITTEN) == [
        f"no faulty node; retries: {DEMO_JOB} 3 left",
        "faulty: n9 CardUnhealthy",
        f"faulty: n9 CardUnhealthy; retries: {DEMO_JOB} 2 left",
    ]


def lone(name: str, times: str) -> list[dict[str, Any]]:
    labels = {**LABELS, "fault-retry-times": times}
    return [a_group(name, owner="", min_member=1, labels=labels), a_pod(f"{name}-0", group=name, labels=labels)]


async def test_of_many_jobs_a_few_are_named_and_one_that_goes_too() -> None:
    jobs = [one for name, times in zip("abcde", "01234", strict=True) for one in lone(name, times)]
    rig = Rig([a_node("n1"), *jobs])
    rig.tick(1)
    rig.delete("Pod", "train", "b-0", 10)
    rig.delete("PodGroup", "train", "b", 10)
    rig.tick(20)
    await rig.run()
    assert details(rig, VCJOB, Reason.WRITTEN) == [
        "no faulty node; retries: train/a 0 left, train/b 1 left, train/c 2 left and 2 more",
        "no faulty node; retries: train/b taken out",
    ]
