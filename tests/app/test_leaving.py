"""Leaving act mode, entries no ledger knows, and storms: nothing of ours keeps training dead or stops the agent."""

import json
from typing import Any

import pytest
from kubebuilders import DEMO_GROUP, DEMO_JOB, a_config_map, a_group, a_node, a_pod, the_demo
from rig import Rig

from agent.domain.vocab import Reason

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, SEPARATE = "80C98000", "80E18402"
RESET = "train/reset-config-demo"


async def reset_json(rig: Rig) -> dict[str, Any]:
    data = await rig.data(RESET)
    assert data is not None
    found: dict[str, Any] = json.loads(data["reset.json"])
    return found


@pytest.mark.parametrize("mode", ["observe", "disabled"])
async def test_leaving_act_mode_in_a_recovery_ends_it_in_the_real_document(mode: str) -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(REQUEST)
    await rig.run()
    assert [entry["Status"] for entry in (await reset_json(rig))["RankList"]] == ["unrecovered"] * 4
    later = Rig(the_demo(LABELS), settings={"mode": mode}, disk=rig.disk)
    later.tick(20)
    await later.run()
    left = await reset_json(later)
    assert (left["RankList"], left["RetryTime"]) == ([], 1)
    assert Reason.WRITTEN in [one.reason for one in later.decisions if one.document == RESET]


async def test_what_began_between_two_spells_of_act_mode_starts_nothing_in_the_second() -> None:
    first = Rig(the_demo(LABELS))
    first.tick(1)
    await first.run()
    between = Rig(the_demo(LABELS), settings={"mode": "observe"}, disk=first.disk)
    between.fault(REQUEST, 5)
    between.fault(SEPARATE, 10, node="n2")
    await between.run()
    again = Rig(the_demo(LABELS), disk=first.disk)
    again.tick(20)
    await again.run()
    told = [one.reason for one in again.decisions if one.fault.startswith("n1/chip/2/80C98000")]
    assert Reason.BEFORE_ACT in told
    assert Reason.RECOVERY_STARTED not in told
    assert await again.data(RESET) is None


async def test_a_start_outside_act_mode_with_nothing_begun_writes_nothing() -> None:
    rig = Rig(the_demo(LABELS), settings={"mode": "observe"})
    rig.fault(REQUEST)
    await rig.run()
    assert await rig.disk.store.list() == []


def entry(rank: int, status: str, recovery: int) -> dict[str, Any]:
    return {
        "RankId": rank,
        "LogicId": rank,
        "Status": status,
        "Policy": "restart_request",
        "InitialPolicy": "restart_request",
        "ErrorCode": [],
        "ErrorCodeHex": "",
        "RecoveryId": recovery,
    }


def standing(status: str, retry: int, recovery: int = 7) -> dict[str, Any]:
    text = json.dumps(
        {
            "RankList": [entry(rank, status, recovery) for rank in range(4)],
            "UpdateTime": 1767225000,
            "RetryTime": retry,
            "FaultFlushing": False,
            "GracefulExit": 0,
            "RestartFaultProcess": False,
        }
    )
    return a_config_map("reset-config-demo", {"reset.json": text, "checkCode": ""}, labels={"reset": "true"})


@pytest.mark.parametrize(("status", "retry"), [("unrecovered", 1), ("failed", 1), ("recovered", 0)])
async def test_entries_that_no_ledger_knows_leave_and_stopped_workers_are_started(status: str, retry: int) -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(standing(status, 0), 1)
    rig.tick(10)
    rig.fault(REQUEST, 20)
    await rig.run()
    texts = [json.loads(text) for text in rig.texts(RESET, "reset.json")]
    assert (texts[0]["RankList"], texts[0]["RetryTime"]) == ([], retry)
    begun = texts[1]
    assert {one["RecoveryId"] for one in begun["RankList"]} == {8}, "a lost ledger must not use an id again"


@pytest.mark.parametrize("recovery", [10**20, 2**64 - 1, 2**53, 0, -5, -(10**20)])
async def test_an_id_that_no_recovery_of_ours_can_have_is_somebody_else_s(recovery: int) -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(standing("fault", 0, recovery), 1)
    rig.tick(10)
    await rig.run()
    assert rig.texts(RESET, "reset.json") == [], "it is left as it stands"
    later = Rig(the_demo(LABELS), disk=rig.disk)
    later.fault(REQUEST, 20)
    await later.run()
    assert later.reasons(DEMO_JOB) == ["RECOVERY_STARTED"], "the job's ledger can be kept and read"


@pytest.mark.parametrize(("recovery", "next_one"), [(2**52, 2**52 + 1), (2**53 - 1, 1)])
async def test_entries_with_a_very_high_id_leave_and_the_next_recovery_is_known_as_ours(
    recovery: int, next_one: int
) -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(standing("unrecovered", 0, recovery), 1)
    rig.fault(REQUEST, 20)
    rig.clear(REQUEST, 25)
    rig.tick(26)
    await rig.run()
    shown = await reset_json(rig)
    assert [(one["RecoveryId"], one["Status"]) for one in shown["RankList"]] == [(next_one, "recovered")] * 4
    assert shown["RetryTime"] == 2


async def test_an_old_list_that_another_writer_puts_back_leaves_again() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(REQUEST)
    rig.clear(REQUEST, 5)
    rig.tick(200)
    rig.apply(standing("unrecovered", 1, recovery=1), 210)
    rig.tick(220)
    await rig.run()
    left = await reset_json(rig)
    assert (left["RankList"], left["RetryTime"]) == ([], 2)


async def test_a_storm_on_idle_devices_fits_the_ledger_and_stops_no_job() -> None:
    rig = Rig([*the_demo(LABELS)])
    for node in range(60):
        for code in (SEPARATE, "A8028801", REQUEST, "8C1F8609"):
            rig.fault(code, 1, node=f"idle-{node:04d}-with-a-long-name", device=None, devices=tuple(range(16)))
    rig.fault(REQUEST, 2)
    await rig.run()
    assert rig.reasons(DEMO_JOB) == ["RECOVERY_STARTED"]
    ledger = await rig.data("fault-agent/fault-agent-cluster")
    assert ledger is not None
    assert len(ledger["ledger.json"]) < 400
    assert rig.reasons().count("NO_JOB") == 60 * 4 * 16


async def test_a_storm_in_a_job_of_many_ranks_fits_its_ledger() -> None:
    pods = 40
    objects = [a_group("big-uid-1", owner="big", owner_uid="uid-1", labels=LABELS)]
    for number in range(pods):
        objects += [
            a_node(f"b{number}"),
            a_pod(
                f"big-{number}",
                node=f"b{number}",
                group="big-uid-1",
                rank_index=number,
                labels=LABELS,
                devices=tuple(range(16)),
            ),
        ]
    rig = Rig(objects)
    for number in range(pods):
        for code in (SEPARATE, "A8028801", "8C1F8609", "80818C00"):
            rig.fault(code, 1, node=f"b{number}", device=None, devices=tuple(range(16)))
    await rig.run()
    ledger = await rig.data("train/fault-agent-job-big-uid-1")
    assert ledger is not None
    assert len(ledger["ledger.json"]) < 200_000
    again = Rig(objects, disk=rig.disk)
    again.tick(5)
    await again.run()
    assert again.reasons("train/big-uid-1") == [], "nothing is told or decided again"


async def test_a_ledger_that_went_with_its_job_fences_nobody_and_the_entries_leave() -> None:
    # Kubernetes removes the ledger with the PodGroup that owns it, perhaps before the end of the job is written there.
    rig = Rig(the_demo(LABELS))
    rig.apply(a_config_map("reset-config-demo", {"reset.json": ""}, labels={"reset": "true"}), 0)
    rig.fault(REQUEST, 5)
    rig.tick(6)
    rig.delete("ConfigMap", "train", f"fault-agent-job-{DEMO_GROUP}", 9)
    rig.delete("PodGroup", "train", DEMO_GROUP, 10)
    for name in ("demo-0", "demo-1"):
        rig.delete("Pod", "train", name, 11)
    rig.tick(200)
    await rig.run()
    left = await reset_json(rig)
    assert (left["RankList"], left["RetryTime"]) == ([], 0)
    assert await rig.data(f"train/fault-agent-job-{DEMO_GROUP}") is None
