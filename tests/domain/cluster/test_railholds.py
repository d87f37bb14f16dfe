"""What a job holds of NPUs over its life: freed with its processes, returned by hand, finished by who takes over.

The job, its table and its nodes are those of test_rails.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from a3cluster import QUICK_ENV, a3_pod, see_links, the_a3
from kubebuilders import DEMO_GROUP, DEMO_JOB, a_group, a_node
from rig import T0, Disk, Rig

from agent.domain.cluster import ClusterBook, Verdict, decide_job, evolve
from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import RailLedger
from agent.domain.rail.words import Borrow
from agent.domain.vocab import JobId, Millis, Reason

LINK = "81078603"
JOB = JobId(DEMO_JOB)
RAILS = "fault-agent/fault-agent-rails"
PLAN = "train/fault-agent-rail-demo"
NAME = "8c4ff11067de"
"""The plan that answers the first record of the stream behind the four probes: it follows from job, life and record."""
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3"}


def pod(number: int, **given: Any) -> dict[str, Any]:
    return a3_pod(number, labels=LABELS, env=QUICK_ENV, **given)


def returned(word: str = NAME) -> dict[str, Any]:
    return a_group(labels=LABELS, min_member=4, annotations={"fault-agent/rail-returned": word})


def objects() -> list[dict[str, Any]]:
    return the_a3(env=QUICK_ENV, labels=LABELS)


def borrowing(given: list[dict[str, Any]] | None = None, disk: Disk | None = None) -> Rig:
    """Die 0 of node n0 fails at 1 s, and its rank 0 and the other ends, ranks 8 and 12, are advised at 8.517 s."""
    rig = Rig(objects() if given is None else given, disk=disk or Disk())
    see_links(rig, 0)
    rig.fault(LINK, 1, node="n0", device=0)
    rig.tick(30)
    return rig


async def held(rig: Rig) -> dict[str, str]:
    """State of each NPU, by node."""
    data = await rig.data(RAILS)
    assert data is not None
    return {one["node"]: one["state"] for plan in json.loads(data["ledger.json"])["plans"] for one in plan["npus"]}


async def plan(rig: Rig) -> dict[str, Any]:
    data = await rig.data(PLAN)
    assert data is not None
    found: dict[str, Any] = json.loads(data["plan.json"])
    return found


def told(rig: Rig, reason: Reason) -> list[str]:
    return [one.detail for one in rig.decisions if one.reason is reason]


ALL = {"n0": "advised", "n2": "advised", "n3": "advised"}


# --- the end of its processes ---------------------------------------------------------------------------------------


async def test_a_pod_that_is_replaced_in_its_place_frees_its_own_npu_alone() -> None:
    rig = borrowing()
    rig.delete("Pod", "train", "demo-2", 40)
    rig.apply(pod(2, uid="uid-new", created="2026-01-01T00:00:45Z"), 45)
    rig.tick(60)
    await rig.run()
    assert await held(rig) == {**ALL, "n2": "superseded"}
    assert told(rig, Reason.RAIL_SUPERSEDED) == [
        f"plan {NAME}: NPU 0 of n2 free again, the processes that borrowed are gone"
    ]
    assert (await plan(rig))["state"] == "advised"
    assert (await plan(rig))["held"][0]["npus"] == 2


def replaced(number: int = 0, policy: str = "per_npu") -> Rig:
    """After the borrow of n0, n2 and n3 a pod of them is replaced in its place and all links are up again."""
    rig = Rig(objects(), settings={"rail": {"policy": policy}})
    see_links(rig, 0)
    rig.fault(LINK, 1, node="n0", device=0)
    rig.tick(30)
    rig.delete("Pod", "train", f"demo-{number}", 40)
    rig.apply(pod(number, uid="uid-new", created="2026-01-01T00:00:45Z"), 45)
    rig.clear(LINK, 50, node="n0", device=0)
    rig.tick(60)
    see_links(rig, 99)
    return rig


async def test_the_links_of_a_process_that_was_replaced_are_on_their_own_side_again() -> None:
    rig = replaced()
    rig.fault(LINK, 100, node="n0", device=0)
    rig.tick(115)
    await rig.run()
    (refused,) = told(rig, Reason.RAIL_REFUSED)
    assert refused.startswith("rule 25 PEER_ALREADY_BORROWED: rank 8 (n2 device 0): NPU 0 is held by train/demo-")
    document = await rig.data(RAILS)
    assert document is not None
    (kept,) = json.loads(document["ledger.json"])["plans"]
    assert [(one["rank"], one["state"], one.get("links")) for one in kept["npus"]] == [
        (0, "superseded", [8, 12]),
        (8, "advised", None),
        (12, "advised", None),
    ]


@pytest.mark.parametrize(
    ("number", "word"),
    [
        pytest.param(0, "RAIL_ADVISED", id="an-end-of-every-link"),
        pytest.param(2, "RAIL_REFUSED", id="an-end-of-one-link-the-other-stays"),
        pytest.param(1, "RAIL_REFUSED", id="nobody-who-borrowed"),
    ],
)
async def test_edge_15_per_communicator_a_job_may_borrow_again_when_no_link_of_it_is_left(
    number: int, word: str
) -> None:
    rig = replaced(number, "per_communicator")
    rig.fault(LINK, 100, node="n0", device=2)
    rig.tick(115)
    await rig.run()
    said = [str(one.reason) for one in rig.decisions if one.fault.startswith("n0/network/2/")]
    assert [one for one in said if one.startswith("RAIL_") and one != "RAIL_OBSERVING"] == [word]


async def test_pods_that_are_younger_than_a_recording_s_clock_are_those_that_borrowed() -> None:
    late = [one for one in objects() if one["kind"] != "Pod"]
    late += [pod(number, created="2026-01-02T00:00:00Z") for number in range(4)]
    rig = borrowing(late)
    rig.tick(60)
    await rig.run()
    assert await held(rig) == ALL


async def test_a_pod_that_goes_elsewhere_frees_the_npu_it_left() -> None:
    rig = borrowing()
    rig.apply(a_node("n4", accelerator_type="module-a3-16", devices=range(4), internal_ip="172.16.0.104"), 35)
    rig.delete("Pod", "train", "demo-0", 40)
    rig.apply(pod(0, node=4, uid="uid-new", created="2026-01-01T00:00:45Z"), 45)
    rig.tick(60)
    await rig.run()
    assert await held(rig) == {**ALL, "n0": "superseded"}


async def test_a_job_whose_pods_have_all_ended_holds_nothing() -> None:
    rig = borrowing()
    for number in range(4):
        rig.apply(pod(number, phase="Succeeded"), 40)
    rig.tick(60)
    await rig.run()
    assert set((await held(rig)).values()) == {"superseded"}
    document = await plan(rig)
    assert (document["state"], document["held"]) == ("superseded", [])


async def test_pods_that_are_gone_hold_nothing_before_others_come() -> None:
    rig = borrowing()
    for number in range(4):
        rig.delete("Pod", "train", f"demo-{number}", 40)
    rig.tick(60)
    await rig.run()
    assert set((await held(rig)).values()) == {"superseded"}


async def test_a_pod_on_its_way_out_still_holds() -> None:
    rig = borrowing()
    rig.apply(pod(0, deleted=True), 40)
    rig.tick(60)
    await rig.run()
    assert await held(rig) == ALL


async def test_a_job_that_went_while_nobody_led_is_freed_though_its_own_ledger_went_with_it() -> None:
    rig = await borrowing().run()
    store = rig.disk.store
    for name in (f"fault-agent-job-{DEMO_GROUP}", "fault-agent-rail-demo"):
        live = await store.get("train", name)
        assert live is not None
        await store.delete("train", name, live.resource_version)
    nodes = [one for one in objects() if one["kind"] == "Node"]
    later = Rig(nodes, disk=rig.disk)
    later.tick(100)
    await later.run()
    assert set((await held(later)).values()) == {"superseded"}


async def test_a_ledger_that_is_gone_while_a_job_holds_npus_by_it_refuses_every_borrow() -> None:
    rig = await borrowing().run()
    live = await rig.disk.store.get("fault-agent", "fault-agent-rails")
    assert live is not None
    await rig.disk.store.delete("fault-agent", "fault-agent-rails", live.resource_version)
    rig.source.finished = False
    see_links(rig, 100)
    rig.fault(LINK, 101, node="n1", device=2)
    rig.tick(150)
    later = Rig(objects(), disk=rig.disk, source=rig.source)
    await later.run(resume=True)
    assert await later.data(RAILS) is None
    (why,) = told(later, Reason.LEDGER_UNREADABLE)
    assert why == f"it is gone, and {JOB} holds 3 NPUs by it; restore it, or wait until that job has ended"
    assert "rule 2 LEDGER_UNREADABLE" in told(later, Reason.RAIL_REFUSED)[0]


# --- a return by hand -----------------------------------------------------------------------------------------------


async def test_a_return_by_hand_that_is_recorded_lets_the_npus_borrow_again() -> None:
    rig = borrowing()
    rig.clear(LINK, 40, node="n0", device=0)
    rig.apply(returned(), 50)
    rig.tick(55)
    see_links(rig, 100)
    rig.fault(LINK, 110, node="n0", device=0)
    rig.tick(150)
    await rig.run()
    (word,) = told(rig, Reason.RAIL_RETURNED)
    npus = "NPU 0 of n0, NPU 0 of n2, NPU 0 of n3"
    assert word == f"plan {NAME}: {npus} free again, returned by hand, as recorded; may borrow again"
    assert len(told(rig, Reason.RAIL_ADVISED)) == 2
    data = await rig.data(RAILS)
    assert data is not None
    first, second = json.loads(data["ledger.json"])["plans"]
    assert [one["state"] for one in first["npus"]] == ["returned"] * 3
    assert [one["state"] for one in second["npus"]] == ["advised"] * 3
    assert (await plan(rig))["plan"] == second["plan"] != first["plan"]


async def test_after_the_return_the_document_says_so() -> None:
    rig = borrowing()
    rig.clear(LINK, 40, node="n0", device=0)
    rig.apply(returned(f" {NAME}/n0/0 ,"), 50)
    rig.tick(55)
    await rig.run()
    document = await plan(rig)
    assert (document["state"], document["held"]) == ("returned", [])
    assert document["advice"] == "Returned by hand, as recorded: its NPUs may borrow again."


EARLY = (
    f"fault-agent/rail-returned: {NAME}: the link of rank 0 (n0 device 0) is down, and a return needs it up at both"
    " ends; it stays held. This record came too early and does not count later: take the annotation away, return by"
    " hand once the link is up, then record it anew."
)


async def test_a_return_that_is_recorded_over_a_link_that_is_down_counts_only_when_it_is_recorded_anew() -> None:
    rig = borrowing()
    rig.apply(returned(), 35)
    rig.tick(38)
    await rig.run()
    assert await held(rig) == ALL
    assert told(rig, Reason.RAIL_UNVERIFIED) == [EARLY]
    again = borrowing()
    again.apply(returned(), 35)
    again.tick(38)
    again.clear(LINK, 40, node="n0", device=0)
    # Longer than marks of a job's ledger are kept, and a coordinator that takes over.
    again.tick(4000)
    await again.run()
    assert told(again, Reason.RAIL_UNVERIFIED) == [EARLY]
    assert await held(again) == ALL
    there = [returned() if one["kind"] == "PodGroup" else one for one in objects()]
    later = Rig(there, disk=again.disk, source=again.source)
    see_links(later, 4010)
    later.apply(a_group(labels=LABELS, min_member=4), 4020)
    later.apply(returned(), 4030)
    later.tick(4040)
    await later.run()
    assert told(later, Reason.RAIL_UNVERIFIED) == []
    assert set((await held(later)).values()) == {"returned"}


async def test_each_record_that_comes_too_early_is_told() -> None:
    rig = borrowing()
    rig.apply(returned(), 35)
    rig.apply(a_group(labels=LABELS, min_member=4), 36)
    rig.apply(returned(), 37)
    rig.tick(38)
    await rig.run()
    assert told(rig, Reason.RAIL_UNVERIFIED) == [EARLY, EARLY]
    assert await held(rig) == ALL


async def test_what_cannot_have_returned_stays_held() -> None:
    """Retry between super-pods is off in the pods that stand there: HCCL reports success and has done nothing."""
    rig = borrowing()
    rig.clear(LINK, 40, node="n0", device=0)
    for number in range(4):
        changed = pod(number)
        changed["spec"]["containers"][0]["env"] = [
            {"name": key, "value": "L1:1" if "ENABLE" in key else value} for key, value in QUICK_ENV.items()
        ]
        rig.apply(changed, 45)
    rig.apply(returned(), 50)
    rig.tick(55)
    await rig.run()
    assert await held(rig) == ALL
    (why,) = told(rig, Reason.RAIL_UNVERIFIED)
    assert "rule 11 RETRY_L2_OFF" in why


@pytest.mark.parametrize("word", ["0123456789ab", f"{NAME}/n1/0"])
async def test_a_return_of_what_was_never_borrowed_is_harmless_and_told_once(word: str) -> None:
    rig = borrowing()
    rig.apply(returned(word), 35)
    see_links(rig, 40)
    rig.tick(45)
    await rig.run()
    assert told(rig, Reason.RAIL_UNVERIFIED) == [
        f"fault-agent/rail-returned: {word}: no plan or NPU of that name is known of this job"
    ]
    assert await held(rig) == ALL


async def test_a_return_that_was_taken_is_not_told_again() -> None:
    rig = borrowing()
    rig.clear(LINK, 40, node="n0", device=0)
    rig.apply(returned(), 50)
    rig.tick(55)
    see_links(rig, 60)
    rig.tick(5000)
    await rig.run()
    assert len(told(rig, Reason.RAIL_RETURNED)) == 1
    assert told(rig, Reason.RAIL_UNVERIFIED) == []


# --- links that are up again ----------------------------------------------------------------------------------------


async def test_when_the_link_is_up_again_the_document_advises_a_return_by_hand() -> None:
    rig = borrowing()
    rig.clear(LINK, 40, node="n0", device=0)
    rig.tick(60)
    await rig.run()
    document = await plan(rig)
    assert document["state"] == "advised"
    assert len(document["moves"]) == 3
    assert document["advice"].startswith(f"The link is up again, traffic of plan {NAME} stays on the other die: save")
    assert document["held"][0]["failed"] == [
        {"node": "n0", "npu": 0, "device": 0, "rank": 0, "link_back": "2026-01-01T00:00:40.000Z"}
    ]
    (back,) = (one for one in rig.decisions if one.reason is Reason.RAIL_NOOP)
    assert back.detail.startswith("NO_SWITCH_BACK: The link is up again")
    assert back.document == PLAN


async def test_a_link_that_fails_again_while_it_is_borrowed_leaves_its_plan_in_place() -> None:
    rig = borrowing()
    rig.clear(LINK, 40, node="n0", device=0)
    rig.fault(LINK, 50, node="n0", device=0)
    rig.tick(100)
    await rig.run()
    document = await plan(rig)
    assert (document["plan"], document["state"]) == (NAME, "advised")
    assert document["advice"].startswith("Save a checkpoint soon, then repair the link.")
    assert "link_back" not in document["held"][0]["failed"][0]
    assert await held(rig) == ALL


# --- who takes over -------------------------------------------------------------------------------------------------


async def left(rails: HoldState | None, **changed: Any) -> ClusterBook:
    """The book of who takes over from one that was killed: nothing of the borrow is in the job's ledger; the NPUs
    stand as given, or are not held.
    """
    rig = await borrowing(**changed).run()
    book = rig.book
    known = book.ledgers[JOB]
    done = {key: mark for key, mark in known.done.items() if not key.startswith("rail~") or key.endswith("~seen")}
    book.ledgers[JOB] = replace(known, done=done)
    assert book.rails is not None
    entries = () if rails is None else tuple(replace(one, state=rails) for one in book.rails.entries)
    book.rails = RailLedger(entries)
    return book


def turn(book: ClusterBook, seconds: float) -> tuple[Verdict, dict[str, str]]:
    """What the next one decides at that time, and reasons with their details; taken into the book."""
    verdict = decide_job(book, JOB, Millis(T0 + round(seconds * 1000)))
    evolve(book, verdict)
    return verdict, {str(one.reason): one.detail for one in verdict.decisions if one.reason.startswith(("RAIL", "TOO"))}


def states(book: ClusterBook) -> list[str]:
    return [str(entry.state) for entry in book.rails.entries] if book.rails is not None else []


def a_plan(verdict: Verdict) -> tuple[str, Mapping[str, Any]]:
    made = verdict.plans[JOB]
    assert isinstance(made.answer, Borrow)
    return made.id, {"ranks": [move.rank for move in made.answer.moves], "links": made.answer.links}


WHOLE = (NAME, {"ranks": [0, 8, 12], "links": ((0, 8), (0, 12))})


async def test_killed_while_observed_or_planned_it_is_judged_again() -> None:
    book = await left(None)
    verdict, said = turn(book, 31)
    assert list(said) == ["RAIL_ADVISED"]
    assert a_plan(verdict) == WHOLE
    assert states(book) == ["reserved"] * 3


async def test_killed_while_planned_it_expires_when_nobody_comes_in_time() -> None:
    book = await left(None)
    verdict, said = turn(book, 1 + 900 + 1)
    assert said == {"TOO_OLD": "no borrow is planned for old news"}
    assert (verdict.plans, states(book)) == ({}, [])


async def test_killed_while_planned_what_has_changed_since_counts() -> None:
    book = await left(None)
    _, said = turn(book, 100)
    assert list(said) == ["RAIL_REFUSED"]
    assert said["RAIL_REFUSED"].startswith("rule 22 BACKUP_LINK_UNKNOWN")
    assert states(book) == []


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(31, id="soon"),
        pytest.param(100, id="when the link facts are stale"),
        pytest.param(2000, id="when it is too old to be planned"),
    ],
)
async def test_killed_while_reserved_it_is_finished_whatever_has_changed(seconds: int) -> None:
    book = await left(HoldState.RESERVED)
    verdict, said = turn(book, seconds)
    assert list(said) == ["RAIL_ADVISED"]
    assert a_plan(verdict) == WHOLE
    assert states(book) == ["reserved"] * 3
    again, _ = turn(book, seconds + 1)
    assert again.plans == {}


async def test_killed_while_reserved_it_is_finished_also_when_its_fault_is_known_no_more() -> None:
    book = await left(HoldState.RESERVED)
    book.reports.clear()
    verdict, said = turn(book, 2000)
    assert list(said) == ["RAIL_ADVISED"]
    assert a_plan(verdict) == WHOLE
    again, _ = turn(book, 2001)
    assert (again.plans, again.decisions) == ({}, ())


async def test_killed_while_reserved_it_is_undone_when_the_job_lives_anew() -> None:
    book = await left(HoldState.RESERVED)
    for number in range(4):
        book.jobs.remove_pod("train", f"demo-{number}")
    verdict, said = turn(book, 100)
    assert list(said) == ["RAIL_SUPERSEDED"]
    assert (verdict.plans, states(book)) == ({}, ["superseded"] * 3)


async def test_killed_once_advised_the_same_is_advised() -> None:
    book = await left(HoldState.ADVISED)
    verdict, said = turn(book, 2000)
    assert (list(said), a_plan(verdict), states(book)) == (["RAIL_ADVISED"], WHOLE, ["advised"] * 3)


@pytest.mark.parametrize("state", [HoldState.SUPERSEDED, HoldState.RETURNED])
async def test_killed_after_its_end_nothing_is_done_again(state: HoldState) -> None:
    book = await left(state)
    verdict, said = turn(book, 31)
    assert (verdict.plans, states(book)) == ({}, [str(state)] * 3)
    assert said["RAIL_NOOP"].startswith("rule 2 ALREADY_DONE")
