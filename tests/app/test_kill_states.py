"""A coordinator killed in each state of a recovery, at every write of it: the end is the same, and training runs."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from kubebuilders import a_config_map, a_group, a_pod, the_demo
from mortal import Died, SmallReads, mortal
from readers import RUNNING, MsrunPod, TaskdManager
from rig import Disk, Rig

from agent.domain.reset import Phase

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, BUSINESS, SEPARATE = "80BB8003", "81B38002", "80E18402"
RESET = "train/reset-config-demo"


def cleared(retry: int, restart_type: str = "podReschedule") -> dict[str, Any]:
    """The document as Volcano's pod rescheduling writes it."""
    text = (
        f'{{"RankList":[],"UpdateTime":1767225600,"RetryTime":{retry},"FaultFlushing":false,"GracefulExit":0,'
        '"RestartFaultProcess":false}'
    )
    return a_config_map("reset-config-demo", {"reset.json": text, "restartType": restart_type})


def unrecovered(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.fault("80CB8008", 5, device=1)
    rig.clear(REQUEST, 10)
    rig.clear("80CB8008", 12, device=1)


def unrecovered_and_cleared_by_volcano(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.apply(cleared(0), 10)


def escalated(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.clear(REQUEST, 100)


def settling(rig: Rig) -> None:
    rig.fault(BUSINESS, 1)
    rig.clear(BUSINESS, 10)
    rig.fault(BUSINESS, 20)
    rig.clear(BUSINESS, 30)


def settling_when_a_card_is_isolated(rig: Rig) -> None:
    rig.fault(BUSINESS, 1)
    rig.clear(BUSINESS, 10)
    rig.fault(SEPARATE, 20, node="n2")


def recovered(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.clear(REQUEST, 5)
    rig.apply(cleared(0), 20)


def recovered_beside_a_new_one(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.clear(REQUEST, 5)
    rig.fault(REQUEST, 20, node="n2")
    rig.clear(REQUEST, 25, node="n2")


def failed(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n1", labels=LABELS), 50)


def failed_without_a_replacement(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.fault(SEPARATE, 10)


def leaving(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.apply(a_group(labels={**LABELS, "process-recover-enable": "on"}), 10)


def left(rig: Rig) -> None:
    rig.fault(REQUEST, 1)
    rig.fault(SEPARATE, 10, device=1)
    rig.tick(131)
    rig.apply(cleared(0), 140)


STORIES: dict[Phase, list[Callable[[Rig], None]]] = {
    Phase.UNRECOVERED: [unrecovered, unrecovered_and_cleared_by_volcano, escalated],
    Phase.SETTLING: [settling, settling_when_a_card_is_isolated],
    Phase.RECOVERED: [recovered, recovered_beside_a_new_one],
    Phase.FAILED: [failed, failed_without_a_replacement],
    Phase.LEAVING: [leaving],
    Phase.LEFT: [left],
}


def rig_of(story: Callable[[Rig], None], disk: Disk) -> Rig:
    settings = {"reset": {"executor": "external" if story is escalated else "none"}}
    rig = Rig(the_demo(LABELS), settings, disk=disk, source=SmallReads())
    rig.apply(a_config_map("reset-config-demo", {"reset.json": '{"status":"initializing"}'}), 0)
    story(rig)
    rig.tick(600)
    return rig


def run(rig: Rig, *, resume: bool) -> bool:
    """Whether it came to its end."""

    async def all_of_it() -> None:
        await rig.run(resume=resume)

    try:
        asyncio.run(all_of_it())
    except Died:
        return False
    return True


def end(rig: Rig) -> dict[str, Any]:
    """What stands in the store, times of writing left out."""

    async def read() -> dict[str, Any]:
        return {f"{one.namespace}/{one.name}": dict(one.data) for one in await rig.disk.store.list()}

    found = asyncio.run(read())
    info = json.loads(found[RESET].pop("reset.json"))
    found[RESET].pop("checkCode", None)
    return {**found, "info": {key: value for key, value in info.items() if key != "UpdateTime"}}


def test_there_is_a_story_for_each_state_that_a_process_can_be_killed_in() -> None:
    assert set(STORIES) == set(Phase) - {Phase.ENDED}


@pytest.mark.parametrize(
    "story", [pytest.param(one, id=one.__name__) for stories in STORIES.values() for one in stories]
)
def test_killed_at_any_write_in_that_state_the_end_is_the_same_and_training_runs(story: Callable[[Rig], None]) -> None:
    whole = rig_of(story, Disk())
    assert run(whole, resume=False)
    wanted = end(whole)
    assert wanted["info"]["RankList"] == []
    for last in range(1, 1000):
        disk = Disk()
        seen, _ = mortal(disk, last)
        first = rig_of(story, seen)
        if run(first, resume=False):
            break
        again = rig_of(story, disk)
        assert run(again, resume=True)
        assert end(again) == wanted, f"killed at write {last}"
        survivor, manager = MsrunPod((4, 5, 6, 7)), TaskdManager()
        survivor.poll("")
        texts = [*first.texts(RESET, "reset.json"), *again.texts(RESET, "reset.json")]
        for text in [*texts, *[texts[-1]] * 3]:
            survivor.poll(text, "hotReset")
            manager.poll(text)
        assert (survivor.state, manager.errors) == (RUNNING, 0), f"killed at write {last}"
    assert last > 15
