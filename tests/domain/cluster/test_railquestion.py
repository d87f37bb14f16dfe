"""The question about rails as the coordinator asks it while it runs: what counts as down, as visible, as one leaf."""

from typing import Any

import orjson
from a3cluster import DEMO, see_links, the_a3
from a3table import a3_document
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import a_config_map
from rig import Disk, Rig

from agent.wire.railfile import decode_ledger

LINK = "81078603"
PLAN = "train/fault-agent-rail-demo"
RAILS = "fault-agent/fault-agent-rails"


def a3(settings: dict[str, Any] | None = None, objects: list[dict[str, Any]] | None = None) -> Rig:
    return Rig(the_a3() if objects is None else objects, settings or {}, Disk())


def down(rig: Rig, at: float, node: str = "n0", device: int = 0) -> None:
    rig.fault(LINK, at, node=node, device=device)


async def answers(rig: Rig) -> list[tuple[str, str]]:
    """What was said of each link fault in the end: its device, and the rule."""
    rig.tick(400)
    await rig.run()
    return [
        ("/".join((one.fault.split("/")[0], one.fault.split("/")[2])), one.detail.partition(":")[0])
        for one in rig.decisions
        if str(one.reason).startswith("RAIL_") and one.reason != "RAIL_OBSERVING"
    ]


async def plan(rig: Rig) -> dict[str, Any]:
    data = await rig.data(PLAN)
    assert data is not None
    found: dict[str, Any] = orjson.loads(data["plan.json"])
    return found


async def test_a_die_whose_link_fault_is_still_active_is_no_way_out_until_somebody_has_seen_it_up() -> None:
    for seen, answer in (("unknown", "rule 21 BACKUP_LINK_DOWN"), ("up", "rule 28 BORROW")):
        rig = a3()
        see_links(rig, 0, n0={"d0": "down"})
        down(rig, 1, device=1)
        see_links(rig, 100, n0={"d1": seen})
        down(rig, 101)
        assert await answers(rig) == [("n0/1", "rule 21 BACKUP_LINK_DOWN"), ("n0/0", answer)]


async def test_a_die_that_has_recovered_and_is_only_shown_on_is_up_if_a_probe_says_so() -> None:
    """Die 1 was down for 25 s and is shown as PreSeparateNPU until it is clean for 60 s."""
    rig = a3()
    see_links(rig, 0)
    down(rig, 1, device=1)
    rig.clear(LINK, 26, node="n0", device=1)
    down(rig, 30)
    see_links(rig, 40)
    assert await answers(rig) == [("n0/1", "rule 3 CLEAR"), ("n0/0", "rule 28 BORROW")]


async def test_a_leaf_switch_is_told_in_the_one_plan_of_the_job() -> None:
    rig = a3()
    see_links(rig, 0)
    down(rig, 1)
    down(rig, 2, device=2)
    assert await answers(rig) == [("n0/0", "rule 28 BORROW"), ("n0/2", "rule 28 BORROW")]
    told = await plan(rig)
    assert [move["rank"] for move in told["moves"]] == [0, 2, 8, 10, 12, 14]
    (leaf,) = (one["detail"] for one in told["warnings"] if one["code"] == "LEAF_SWITCH")
    assert leaf == "n0: even devices 0, 2 went down together: their leaf switch?"


async def test_in_mode_source_an_npu_that_was_moved_as_a_peer_takes_more_links() -> None:
    """Of ranks 0, 4, 8 and 12: when 0 has moved with 8 and 12, HCCL lets 4 follow, to the same side."""
    rig = a3({"rail": {"strictness": "source"}})
    see_links(rig, 0)
    down(rig, 1)
    see_links(rig, 60)
    down(rig, 70, "n1")
    assert await answers(rig) == [("n0/0", "rule 28 BORROW"), ("n1/0", "rule 28 BORROW")]
    data = await rig.data(RAILS)
    assert data is not None
    held = decode_ledger(data["ledger.json"], "solo").entries
    assert sorted((one.node, one.npu) for one in held) == [("n0", 0), ("n1", 0), ("n2", 0), ("n3", 0)]


async def test_a_table_that_contradicts_itself_refuses_by_that_name() -> None:
    rig = a3(objects=the_a3(lambda d: d["server_list"][1]["device"][0].__setitem__("rank_id", "0")))
    see_links(rig, 0)
    down(rig, 1)
    assert await answers(rig) == [("n0/0", "rule 1 TABLES_CONTRADICT")]
    assert "RANK_DUP" in (await plan(rig))["detail"]


async def test_a_table_that_was_put_right_is_asked_again_for_the_next_fault() -> None:
    rig = a3(objects=the_a3(lambda d: d["server_list"][1]["device"][0].__setitem__("rank_id", "0")))
    see_links(rig, 0)
    down(rig, 1)
    rig.apply(a_config_map("rings-config-demo", {"hccl.json": orjson.dumps(a3_document()).decode()}), 60)
    see_links(rig, 61)
    down(rig, 70, device=2)
    assert await answers(rig) == [("n0/0", "rule 1 TABLES_CONTRADICT"), ("n0/2", "rule 28 BORROW")]


async def test_a_table_of_version_2_refuses_by_the_product() -> None:
    rig = a3(objects=the_a3(lambda d: d.update({"version": "2.0", "rank_count": 1, "rank_list": []})))
    see_links(rig, 0)
    down(rig, 1)
    assert await answers(rig) == [("n0/0", "rule 5 UNSUPPORTED_PRODUCT")]


async def test_a_job_without_a_table_is_told_why() -> None:
    rig = a3(objects=the_a3(lambda d: d.__setitem__("status", "initializing")))
    see_links(rig, 0)
    down(rig, 1)
    assert await answers(rig) == [("n0/0", "rule 1 UNKNOWN_TARGET")]
    detail = (await plan(rig))["detail"]
    assert detail.startswith(f"no completed rank table of job '{DEMO}' is known: ")
    assert "status is 'initializing'" in detail


places = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3, unique=True)


@settings(max_examples=12)
@given(places, st.randoms(use_true_random=False))
async def test_faults_of_one_window_leave_the_same_plan_in_whatever_order_they_came_and_when_run_again(
    dies: list[tuple[int, int]], chance: Any
) -> None:
    mixed = list(dies)
    chance.shuffle(mixed)
    left = []
    for order in (dies, mixed, dies):
        rig = a3()
        see_links(rig, 0)
        for number, device in order:
            down(rig, 1, f"n{number}", device)
        rules = {rule for _, rule in await answers(rig)}
        told = await plan(rig)
        left.append((rules, *(told[key] for key in ("state", "rule", "detail", "moves", "links", "warnings"))))
    assert left[0] == left[1] == left[2]
    assert len(left[0][0]) == 1
