"""Pods of job `demo` being replaced, and what became of it in the documents."""

import json
from typing import Any

from kubebuilders import DEMO_JOB, a_pod, the_demo
from rig import Rig

VCJOB = "volcano-system/vcjob-fault-npu-cm"
RECORDS = "mindx-dl/job-reschedule-reason"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3"}
SEPARATE = "80E18402"
Task = tuple[str, str, str, str]


def demo(**labels: str) -> Rig:
    return Rig(the_demo({**LABELS, **labels}))


def new_pod(name: str = "demo-0", *, number: int = 2, node: str = "n3", **given: Any) -> dict[str, Any]:
    given.setdefault("labels", LABELS)
    return a_pod(name, uid=f"uid-{name}-{number}", node=node, **given)


def replace_pod(rig: Rig, at: float, name: str = "demo-0", **given: Any) -> None:
    """The pod is deleted, and five seconds later another is placed."""
    rig.delete("Pod", "train", name, at)
    rig.apply(new_pod(name, **given), at + 5)
    rig.tick(at + 6)


def evict_all(rig: Rig, at: float, number: int = 2) -> None:
    """Every pod of the job goes, and all are placed again, one after the other."""
    for name in ("demo-0", "demo-1"):
        rig.delete("Pod", "train", name, at)
    for step, name in enumerate(("demo-0", "demo-1")):
        rig.apply(new_pod(name, number=number, node=f"n{3 + step}", rank_index=step), at + 5 + step)
    rig.tick(at + 10)


async def records(rig: Rig, job: str = DEMO_JOB) -> tuple[int, list[list[Task]]]:
    """Total, and the tasks of each record, newest first; 0 and nothing when there is none."""
    data = await rig.data(RECORDS)
    if data is None:
        return 0, []
    found = json.loads(data["recent-reschedule-records"])[job]
    tasks = [
        [(t["RescheduleReason"], t["PodName"], t["NodeName"], t["NodeRankIndex"]) for t in record["ReasonOfTask"]]
        for record in found["RescheduleRecords"]
    ]
    return found["TotalRescheduleTimes"], tasks


async def retries(rig: Rig, job: str = DEMO_JOB) -> int | None:
    data = await rig.data(VCJOB)
    assert data is not None
    entry = json.loads(data["remain-retry-times"]).get(job)
    return None if entry is None else entry["Times"]
