"""Killed at every single durable write, then started again: the end is the same, nothing is lost or counted twice.

This is the proof of exactly once in one process: for each n a run dies at its n-th write (documents, ledgers, reports,
dead letters, reasons, its place in the stream), a second run goes on from what is on disk, and its end is compared
with that of a run that was never killed.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from a3cluster import QUICK_ENV, see_links, the_a3
from kubebuilders import DEMO_JOB, a_config_map, a_group, a_pod, the_demo
from mortal import Died, SmallReads, mortal
from rig import Disk, Rig

from agent.wire.report import decode

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, SEPARATE, LINK = "80C98000", "80E18402", "81078603"


def recoveries(rig: Rig) -> None:
    """A recovery that gets well, one that fails, a replacement, bad records, and another writer's document."""
    rig.apply(a_config_map("reset-config-demo", {"reset.json": '{"status":"initializing"}'}), 0)
    rig.fault(REQUEST, 1)
    rig.raw(b"no json", 2)
    rig.clear(REQUEST, 5)
    rig.fault("80CB8008", 60, device=1)
    rig.fault("FFFF", 61, node="n9", location={"severity": 1})
    rig.fault("80CB8008", 61, device=1)
    rig.fault(REQUEST, 62, node="n2")
    rig.raw(b'{"version":"9.9"}', 63)
    rig.delete("Pod", "train", "demo-0", 70)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 75)
    rig.clear(REQUEST, 80, node="n2")
    rig.clear("80CB8008", 80, device=1)
    rig.apply(a_pod("demo-1", node="n2", rank_index=1, phase="Failed", labels=LABELS), 90)
    rig.delete("Pod", "train", "demo-1", 91)
    rig.apply(a_pod("demo-1", uid="uid-3", node="n4", rank_index=1, labels=LABELS), 95)
    rig.fault(REQUEST, 100, node="n4")
    rig.clear(REQUEST, 100, node="n4")
    rig.tick(400)


def rails(rig: Rig) -> None:
    """A borrow with a flap beside it, a refusal, a link that the duration rule raises; the borrow is returned by hand,
    another is made, and the job begins a new life.
    """
    see_links(rig, 0)
    rig.fault(LINK, 1, node="n0", device=0)
    rig.fault(LINK, 2, node="n1", device=2)
    rig.clear(LINK, 3, node="n1", device=2)
    rig.fault(LINK, 40, node="n0", device=1)
    rig.tick(60)
    rig.clear(LINK, 70, node="n0", device=0)
    rig.tick(200)
    annotated = {"fault-agent/rail-returned": "8c4ff11067de"}
    rig.apply(a_group(labels=LABELS, min_member=4, annotations=annotated), 210)
    see_links(rig, 220)
    rig.fault(LINK, 221, node="n1", device=2)
    rig.tick(240)
    for number in range(4):
        rig.delete("Pod", "train", f"demo-{number}", 250)
    rig.tick(260)


def rules(rig: Rig) -> None:
    """Faults kept back and dropped, software faults, a device separated and released by a person."""
    rig.fault("80CB8009", 1, device=3)
    rig.fault("80E01801", 3, device=3)
    rig.fault("80C98009", 4, device=1)
    rig.clear("80C98009", 20, device=1)
    rig.fault("80C9800A", 100, assertion="once")
    rig.fault("80C9800A", 200, assertion="once")
    rig.fault("80C9800A", 300, device=0, node="n2", assertion="once")
    rig.fault("80C9800A", 310, device=1, node="n2", assertion="once")
    rig.fault("80C9800A", 400, assertion="once")
    rig.fault("80C98000", 410, device=0, assertion="once")
    rig.fault("80C98000", 420, device=0, assertion="once")
    rig.fault("81078603", 430, device=1)
    rig.fault("8C1F8609", 435, node="n2", device=2, assertion="once")
    rig.fault("8C1F860B", 440, node="n2", device=2, assertion="once")
    rig.apply(manual_info("Ascend910-2"), 450)
    rig.apply(manual_info(), 500)
    rig.tick(600)


def manual_info(*names: str) -> dict[str, Any]:
    value = json.dumps({"Total": names, "Detail": {}})
    return a_config_map("clusterd-manual-info-cm", {"n1": value}, namespace="cluster-system")


def demo_objects() -> list[dict[str, Any]]:
    return the_demo(LABELS)


def a3_objects() -> list[dict[str, Any]]:
    return the_a3(env=QUICK_ENV, labels=LABELS)


def run(rig: Rig, *, resume: bool) -> bool:
    """Whether it came to its end."""
    try:
        asyncio.run(_run(rig, resume))
    except Died:
        return False
    return True


async def _run(rig: Rig, resume: bool) -> None:
    await rig.run(resume=resume)


def rig_of(objects: list[dict[str, Any]], story: Callable[[Rig], None], disk: Disk) -> Rig:
    rig = Rig(objects, disk=disk, source=SmallReads())
    story(rig)
    return rig


async def _end(rig: Rig) -> dict[str, Any]:
    documents = {f"{one.namespace}/{one.name}": dict(one.data) for one in await rig.disk.store.list()}
    reports = {}
    for node, data in (await rig.disk.reports.latest()).items():
        report = decode(data)
        reports[node] = (report.active, report.occurrences, report.totals, report.timers, report.ids, report.links)
    letters = [letter["headers"]["fault-agent-source"] for letter in await rig.letters()]
    lines = [line.decision for line in await rig.journal()]
    told = Counter((one.occurrence, one.reason, one.job, one.detail) for one in lines if one.occurrence)
    return {"documents": documents, "reports": reports, "letters": letters, "told": told}


CASES = [
    pytest.param(demo_objects, recoveries, id="recoveries"),
    pytest.param(a3_objects, rails, id="rails"),
    pytest.param(demo_objects, rules, id="rules"),
]


@pytest.mark.parametrize(("objects", "story"), CASES)
def test_killed_at_any_write_the_end_is_the_same(
    objects: Callable[[], list[dict[str, Any]]], story: Callable[[Rig], None]
) -> None:
    whole = rig_of(objects(), story, Disk())
    assert run(whole, resume=False)
    wanted = asyncio.run(_end(whole))
    assert max(wanted["told"].values()) == 1
    for last in range(1, 1000):
        disk = Disk()
        seen, clock = mortal(disk, last)
        if run(rig_of(objects(), story, seen), resume=False):
            break
        assert clock.writes == last
        again = rig_of(objects(), story, disk)
        assert run(again, resume=True)
        assert asyncio.run(_end(again)) == wanted, f"killed at write {last}"
    assert last > 40


def test_killed_twice_the_end_is_the_same() -> None:
    whole = rig_of(demo_objects(), recoveries, Disk())
    run(whole, resume=False)
    wanted = asyncio.run(_end(whole))
    for first in range(5, 100, 19):
        for second in (1, 3, 8):
            disk = Disk()
            run(rig_of(demo_objects(), recoveries, mortal(disk, first)[0]), resume=False)
            run(rig_of(demo_objects(), recoveries, mortal(disk, second)[0]), resume=True)
            again = rig_of(demo_objects(), recoveries, disk)
            assert run(again, resume=True)
            assert asyncio.run(_end(again)) == wanted, f"killed at writes {first} and {second}"


def test_the_story_holds_what_it_is_meant_to_hold() -> None:
    whole = rig_of(demo_objects(), recoveries, Disk())
    run(whole, resume=False)
    data = asyncio.run(whole.data("train/reset-config-demo"))
    assert data is not None
    info = json.loads(data["reset.json"])
    assert (info["RankList"], info["RetryTime"]) == ([], 3)
    records = asyncio.run(whole.data("mindx-dl/job-reschedule-reason"))
    assert records is not None
    assert json.loads(records["recent-reschedule-records"])[DEMO_JOB]["TotalRescheduleTimes"] == 2


def test_the_story_of_the_rails_holds_what_it_is_meant_to_hold() -> None:
    whole = rig_of(a3_objects(), rails, Disk())
    run(whole, resume=False)
    told = Counter(str(one.reason) for one in whole.decisions if one.reason.startswith("RAIL_"))
    assert (told["RAIL_ADVISED"], told["RAIL_REFUSED"], told["RAIL_RETURNED"], told["RAIL_SUPERSEDED"]) == (2, 1, 1, 3)
    data = asyncio.run(whole.data("fault-agent/fault-agent-rails"))
    assert data is not None
    plans = json.loads(data["ledger.json"])["plans"]
    assert [{one["state"] for one in plan["npus"]} for plan in plans] == [{"returned"}, {"superseded"}]


def test_the_story_of_the_rules_holds_what_it_is_meant_to_hold() -> None:
    whole = rig_of(demo_objects(), rules, Disk())
    run(whole, resume=False)
    reasons = Counter(str(one.reason) for one in whole.decisions)
    wanted = (
        "QUIET",
        "DROPPED",
        "SOFTWARE_FAULT",
        "FAULT_COUNTED",
        "SEPARATED",
        "SEPARATION_RELEASED",
        "RELATION_SUB_HEALTH",
        "RELATION_SEPARATE",
    )
    assert {reason: reasons[reason] for reason in wanted} == {
        "QUIET": 2,
        "DROPPED": 1,
        "SOFTWARE_FAULT": 2,
        "FAULT_COUNTED": 2,
        "SEPARATED": 2,
        "SEPARATION_RELEASED": 1,
        "RELATION_SUB_HEALTH": 1,
        "RELATION_SEPARATE": 1,
    }
