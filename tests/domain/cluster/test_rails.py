"""Link faults of a job in the cluster book: gathered, waited out, asked about once, and the NPUs held by one plan.

Job `demo` stands on the documented A3 table: nodes n0 to n3, four dies each, two super-pods. A rank's peers over the
rail are the ranks of the same device id in the other super-pod.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from a3cluster import QUICK_ENV, a3_pod, see_links, the_a3
from kubebuilders import DEMO_GROUP, DEMO_JOB
from rig import Disk, Rig

from agent.adapters.memory import MemoryDocumentStore
from agent.app.keep import SAID
from agent.domain.vocab import Reason
from agent.ports import ConfigMap

LINK = "81078603"
PLAN = "train/fault-agent-rail-demo"
RAILS = "fault-agent/fault-agent-rails"
LEDGER = f"train/fault-agent-job-{DEMO_GROUP}"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3"}


def pod(number: int, life: int = 1, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    return a3_pod(number, uid=f"uid-{number}-{life}", labels=LABELS, env={**QUICK_ENV, **(env or {})})


def objects(**env: str) -> list[dict[str, Any]]:
    others = [one for one in the_a3(labels=LABELS) if one["kind"] != "Pod"]
    return [*others, *(pod(number, env=env) for number in range(4))]


def a3(disk: Disk | None = None, settings: dict[str, Any] | None = None, **env: str) -> Rig:
    return Rig(objects(**env), settings or {}, disk or Disk())


def down(rig: Rig, at: float, node: str = "n0", device: int = 0) -> None:
    rig.fault(LINK, at, node=node, device=device)


def rail(rig: Rig) -> list[tuple[float, str, str]]:
    """Second, reason and rule code of what was said about rails."""
    return [
        ((one.at - 1767225600000) / 1000, str(one.reason), one.detail.partition(":")[0])
        for one in rig.decisions
        if str(one.reason).startswith("RAIL_")
    ]


async def plan(rig: Rig) -> dict[str, Any]:
    data = await rig.data(PLAN)
    assert data is not None
    found: dict[str, Any] = json.loads(data["plan.json"])
    return found


async def held(rig: Rig) -> list[tuple[str, int, str]]:
    """Node, NPU and state of every reservation."""
    data = await rig.data(RAILS)
    if data is None:
        return []
    plans = json.loads(data["ledger.json"])["plans"]
    return [(one["node"], one["die"] // 2, one["state"]) for plan in plans for one in plan["npus"]]


async def test_a_link_that_outlasts_the_retransmission_is_borrowed_at_both_ends() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    rig.tick(60)
    await rig.run()
    assert rail(rig) == [
        (1, "RAIL_OBSERVING", "a flap until proven otherwise"),
        (8.517, "RAIL_ADVISED", "rule 28 BORROW"),
    ]
    assert await held(rig) == [
        ("n0", 0, "advised"),
        ("n2", 0, "advised"),
        ("n3", 0, "advised"),
    ]


async def test_all_npus_of_a_plan_are_held_by_one_write_and_told_by_the_next() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    rig.tick(60)
    await rig.run()
    texts = [json.loads(text)["plans"] for text in rig.texts(RAILS, "ledger.json")]
    assert [[one["state"] for plan in plans for one in plan["npus"]] for plans in texts] == [
        ["reserved"] * 3,
        ["advised"] * 3,
    ]


async def test_a_shorter_down_is_a_flap_and_leaves_no_plan() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    rig.clear(LINK, 6, node="n0", device=0)
    rig.tick(60)
    await rig.run()
    assert [(reason, code) for _, reason, code in rail(rig)] == [
        ("RAIL_OBSERVING", "a flap until proven otherwise"),
        ("RAIL_NOOP", "rule 3 CLEAR"),
    ]
    assert await rig.data(PLAN) is None
    assert await held(rig) == []


async def test_faults_of_one_window_are_judged_together_and_a_later_one_apart() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1, "n0", 0)
    down(rig, 3, "n1", 2)
    down(rig, 5, "n0", 2)
    rig.tick(60)
    await rig.run()
    advised = [row for row in rail(rig) if row[1] != "RAIL_OBSERVING"]
    assert [second for second, _, _ in advised] == [10.517, 10.517, 12.517]


async def test_a_flap_in_the_window_of_a_borrow_is_told_to_need_none() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    down(rig, 2, "n1", 2)
    rig.clear(LINK, 3, node="n1", device=2)
    rig.tick(60)
    await rig.run()
    assert [row for row in rail(rig) if row[1] != "RAIL_OBSERVING"] == [
        (8.517, "RAIL_ADVISED", "rule 28 BORROW"),
        (8.517, "RAIL_NOOP", "rule 3 CLEAR"),
    ]
    assert {node for node, _, _ in await held(rig)} == {"n0", "n2", "n3"}


async def test_without_fresh_link_facts_the_borrow_is_refused_by_name() -> None:
    rig = a3()
    down(rig, 100)
    rig.tick(200)
    await rig.run()
    assert rail(rig)[-1][1:] == ("RAIL_REFUSED", "rule 22 BACKUP_LINK_UNKNOWN")
    assert (await plan(rig))["state"] == "refused"
    assert await held(rig) == []


async def test_both_dies_down_are_refused_and_nothing_is_held() -> None:
    rig = a3()
    see_links(rig, 0, n0={"d0": "up", "d1": "down"})
    down(rig, 1)
    rig.tick(60)
    await rig.run()
    assert rail(rig)[-1][1:] == ("RAIL_REFUSED", "rule 21 BACKUP_LINK_DOWN")
    assert await held(rig) == []


async def test_a_leaf_switch_takes_half_of_a_node_s_dies_of_one_parity() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1, "n0", 0)
    down(rig, 2, "n0", 2)
    rig.tick(60)
    await rig.run()
    answers = [row for row in rail(rig) if row[1] != "RAIL_OBSERVING"]
    assert len(answers) == 2
    assert {row[1] for row in answers} == {"RAIL_ADVISED"}
    assert sorted({(node, npu) for node, npu, _ in await held(rig)}) == [
        ("n0", 0),
        ("n0", 1),
        ("n2", 0),
        ("n2", 1),
        ("n3", 0),
        ("n3", 1),
    ]


async def test_a_repaired_link_is_not_switched_back_by_itself() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    rig.clear(LINK, 40, node="n0", device=0)
    rig.tick(60)
    await rig.run()
    (back,) = (one for one in rig.decisions if one.reason is Reason.RAIL_NOOP)
    assert back.detail.startswith("NO_SWITCH_BACK")
    assert await held(rig) == [("n0", 0, "advised"), ("n2", 0, "advised"), ("n3", 0, "advised")]


async def test_an_npu_is_borrowed_once() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    see_links(rig, 95)
    down(rig, 100, "n0", 1)
    rig.tick(200)
    await rig.run()
    assert rail(rig)[-1][1] == "RAIL_REFUSED"
    assert len(await held(rig)) == 3


async def test_a_new_life_of_the_job_frees_what_the_old_one_held() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    rig.tick(30)
    for number in range(4):
        rig.delete("Pod", "train", f"demo-{number}", 40)
    for number in range(4):
        rig.apply(pod(number, life=2), 50)
    rig.tick(60)
    await rig.run()
    assert {state for _, _, state in await held(rig)} == {"superseded"}


async def test_a_job_that_is_gone_frees_its_npus() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    rig.tick(30)
    for number in range(4):
        rig.delete("Pod", "train", f"demo-{number}", 40)
    rig.delete("PodGroup", "train", DEMO_GROUP, 41)
    rig.tick(60)
    await rig.run()
    assert {state for _, _, state in await held(rig)} == {"superseded"}


async def test_an_unreadable_book_of_npus_refuses_and_is_not_overwritten() -> None:
    disk = Disk(store=MemoryDocumentStore([ConfigMap("fault-agent", "fault-agent-rails", {"ledger.json": "{"})]))
    rig = a3(disk)
    see_links(rig, 0)
    down(rig, 1)
    rig.tick(60)
    await rig.run()
    assert rail(rig)[-1][1] == "RAIL_REFUSED"
    assert await rig.data(RAILS) == {"ledger.json": "{"}
    assert Reason.LEDGER_UNREADABLE in [one.reason for one in rig.decisions]


async def test_old_links_are_not_planned_for() -> None:
    rig = a3(settings={"max_event_age_s": 60})
    see_links(rig, 0)
    rig.tick(500)
    other = Rig()
    other.fault(LINK, 100, node="n0", device=0)
    rig.raw(other.source._items[0].value, 500, node="n0")  # type: ignore[union-attr]  # a record
    rig.tick(600)
    await rig.run()
    assert [one.detail for one in rig.decisions if one.reason is Reason.TOO_OLD] == [
        "no borrow is planned for old news"
    ]
    assert await rig.data(PLAN) is None


@pytest.mark.parametrize("flap_too", [False, True], ids=["one link", "with a flap in the window"])
async def test_killed_between_reservation_and_ledger_the_same_plan_is_made_once(flap_too: bool) -> None:
    def story() -> Rig:
        rig = a3()
        see_links(rig, 0)
        down(rig, 1)
        if flap_too:
            down(rig, 2, "n1", 2)
            rig.clear(LINK, 3, node="n1", device=2)
        rig.tick(8)
        return rig

    whole = story()
    whole.tick(60)
    await whole.run()

    killed = story()
    await killed.run()
    before = await killed.disk.store.get("train", f"fault-agent-job-{DEMO_GROUP}")
    said = await killed.disk.cabinet.load(SAID)
    assert before is not None
    assert said is not None
    killed.source.finished = False
    killed.tick(60)
    killed.source.finished = True
    again = Rig(objects(), disk=killed.disk, source=killed.source)
    await again.run(resume=True)
    # The job's ledger and the mark of an end in order go back to before the decision, the rails stay as reserved.
    after = await killed.disk.store.get("train", f"fault-agent-job-{DEMO_GROUP}")
    assert after is not None
    await killed.disk.store.put(ConfigMap(**{**_fields(after), "data": before.data}))
    await killed.disk.cabinet.store(SAID, said)
    third = Rig(objects(), disk=killed.disk, source=killed.source)
    third.tick(61)
    await third.run(resume=True)
    assert rail(third) == []  # nothing but what the journal already holds
    assert sorted(await held(third)) == sorted(await held(whole))
    assert (await plan(third))["plan"] == (await plan(whole))["plan"]


def _fields(document: ConfigMap) -> dict[str, Any]:
    return {name: getattr(document, name) for name in ConfigMap.__dataclass_fields__}


async def test_a_plan_that_a_kill_left_unpublished_is_published_by_the_next_run() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    rig.tick(60)
    await rig.run()
    wanted = await plan(rig)
    live = await rig.disk.store.get("train", "fault-agent-rail-demo")
    assert live is not None
    await rig.disk.store.delete("train", "fault-agent-rail-demo", live.resource_version)
    ledger = await rig.disk.store.get("fault-agent", "fault-agent-rails")
    assert ledger is not None
    text = ledger.data["ledger.json"].replace('"advised"', '"reserved"')
    await rig.disk.store.put(ConfigMap(**{**_fields(ledger), "data": {"ledger.json": text}}))
    later = Rig(objects(), disk=rig.disk)
    later.tick(61)
    await later.run()
    assert await plan(later) == wanted
    assert await held(later) == [("n0", 0, "advised"), ("n2", 0, "advised"), ("n3", 0, "advised")]


async def test_unset_timers_wait_half_a_minute() -> None:
    found = objects()
    for item in found:
        if item["kind"] == "Pod":
            env = item["spec"]["containers"][0]["env"]
            item["spec"]["containers"][0]["env"] = [one for one in env if "RDMA" not in one["name"]]
    rig = Rig(found)
    see_links(rig, 0)
    down(rig, 1)
    rig.tick(60)
    await rig.run()
    # 4.096 µs × 2^20 × 7 = 30.0648 s, and strictly longer than it
    assert rail(rig)[-1][0] == 31.065


async def test_strange_visible_devices_never_break_the_question() -> None:
    rig = a3(ASCEND_RT_VISIBLE_DEVICES="0,1,x,٣," + "9" * 5000)
    see_links(rig, 0)
    down(rig, 1, "n0", 2)
    rig.tick(60)
    await rig.run()
    assert rail(rig)[-1][1:] == ("RAIL_REFUSED", "rule 18 BACKUP_NOT_VISIBLE")
    assert DEMO_JOB in {one.job for one in rig.decisions}
