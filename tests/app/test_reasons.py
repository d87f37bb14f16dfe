"""Every reason of the closed enum, reached by a situation: what happens, and the word that is given for it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from a3cluster import QUICK_ENV, see_links, the_a3
from kubebuilders import DEMO_GROUP, DEMO_JOB, a_config_map, a_group, a_pod, the_demo
from rig import Disk, Rig

from agent.adapters.memory import MemoryDocumentStore
from agent.domain.vocab import Reason
from agent.ports import ConfigMap

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, RESET, SEPARATE, NOTHING = "80C98000", "80E24E00", "80E18402", "80818200"
LINK = "81078603"


def demo(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **settings: Any) -> Rig:
    return Rig(the_demo(LABELS if labels is None else labels, annotations), settings)


def with_another_group() -> Rig:
    """A second PodGroup whose owner has the name of the first one's."""
    return Rig([*the_demo(LABELS), a_group("second", uid="g2", labels=LABELS)], {})


def a3(**env: str) -> Rig:
    """Job `demo` on the four nodes of the documented A3 table, every link up."""
    rig = Rig(the_a3(env={**QUICK_ENV, **env}, labels=LABELS))
    see_links(rig, 0)
    return rig


# --- node side --------------------------------------------------------------------------------------------------------


def shown_and_cleared(rig: Rig) -> None:
    rig.fault(SEPARATE)
    rig.clear(SEPARATE, 10)


def again(rig: Rig) -> None:
    rig.fault(SEPARATE)
    rig.fault(SEPARATE, 1)


def recover_of_nothing(rig: Rig) -> None:
    rig.clear(SEPARATE, 1)


def repeated_message(rig: Rig) -> None:
    rig.fault(SEPARATE)
    rig.raw(next(iter(rig.source._items)).value, 1)  # type: ignore[union-attr]  # the record just added


def stale_recover(rig: Rig) -> None:
    rig.fault("220001001", 100, resource="pingmesh", fault_id="public-0001")
    rig.clear("220001001", 50, resource="pingmesh", fault_id="public-0001")


def too_many(rig: Rig) -> None:
    for number in range(201):
        rig.fault("220001001", number, resource="pingmesh", fault_id=f"public-{number:04d}")


def held(rig: Rig) -> None:
    rig.fault("DEADBEEF", location={"severity": 3})


# --- by nature --------------------------------------------------------------------------------------------------------


def one(code: str, **given: Any) -> Callable[[Rig], None]:
    def happen(rig: Rig) -> None:
        rig.fault(code, **given)
        rig.tick(1)

    return happen


def too_old(rig: Rig) -> None:
    rig.tick(0)
    rig.tick(2000)
    rig.source.add(b"n1", _at(REQUEST, rig, 100), timestamp=_ms(2000))
    rig.tick(2001)


def before_act(rig: Rig) -> None:
    rig.tick(100)
    rig.source.add(b"n1", _at(REQUEST, rig, 50), timestamp=_ms(100))
    rig.tick(101)


def _ms(seconds: float) -> Any:
    return 1767225600000 + round(seconds * 1000)


def _at(code: str, rig: Rig, at: float) -> bytes:
    other = Rig()
    other.fault(code, at)
    return other.source._items[0].value or b""  # type: ignore[union-attr]  # a record


def without_pods() -> Rig:
    return Rig([one for one in the_demo(LABELS) if one["kind"] != "Pod"])


def over_before_the_pod(rig: Rig) -> None:
    rig.fault(REQUEST, 10)
    rig.clear(REQUEST, 12)
    late = a_pod("demo-0", uid="uid-late", labels=LABELS)
    late["metadata"]["creationTimestamp"] = "2026-01-01T00:01:00Z"
    rig.apply(late, 60)
    rig.tick(61)


# --- by the job -------------------------------------------------------------------------------------------------------


def no_job(rig: Rig) -> None:
    rig.fault(REQUEST, node="n9")
    rig.tick(1)


def no_rank(rig: Rig) -> None:
    rig.apply(a_pod("demo-0", rank_index=None, labels=LABELS), 0)
    rig.fault(REQUEST, 1)
    rig.tick(2)


def finished(rig: Rig) -> None:
    rig.apply(a_group(labels=LABELS, phase="Completed"), 0)
    rig.fault(REQUEST, 1)
    rig.tick(2)


def volcano_writes(rig: Rig) -> None:
    rig.apply(_volcanos_own(), 0)
    rig.tick(1)
    rig.fault(SEPARATE, 1, device=0)
    rig.tick(2)


def _volcanos_own() -> dict[str, Any]:
    document = a_config_map("vcjob-fault-npu-cm", {"fault-node": "", "remain-retry-times": ""})
    document["metadata"]["namespace"] = "volcano-system"
    document["metadata"]["managedFields"] = [{"manager": "vc-scheduler"}]
    return document


def second_node(rig: Rig) -> None:
    rig.fault(REQUEST)
    rig.fault(REQUEST, 5, node="n2")
    rig.tick(6)


def same_node(rig: Rig) -> None:
    rig.fault(REQUEST)
    rig.fault("80CB8008", 5, device=1)
    rig.tick(6)


def replaced(rig: Rig) -> None:
    rig.fault(SEPARATE)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-new", node="n3", labels=LABELS), 20)
    rig.tick(21)


def bad_document(name: str, namespace: str, data: dict[str, str], code: str = REQUEST) -> Callable[[Rig], None]:
    def happen(rig: Rig) -> None:
        rig.apply(a_config_map(name, data, namespace=namespace), 0)
        rig.fault(code, 1)
        rig.tick(2)

    return happen


def too_large(rig: Rig) -> None:
    document = a_config_map("reset-config-demo", {"reset.json": "", "theirs": "x" * 1_048_300})
    rig.apply(document, 0)
    rig.fault(REQUEST, 1)
    rig.tick(2)


def with_bad_ledger() -> Rig:
    ledger = ConfigMap("train", f"fault-agent-job-{DEMO_GROUP}", {"ledger.json": "{"})
    return Rig(the_demo(LABELS), disk=Disk(store=MemoryDocumentStore([ledger])))


# --- rails ------------------------------------------------------------------------------------------------------------


def link_down(rig: Rig) -> None:
    rig.fault(LINK, 1, node="n0", device=0)
    rig.tick(40)


def link_down_without_probes(rig: Rig) -> None:
    rig.fault(LINK, 100, node="n0", device=0)
    rig.tick(200)


def flap(rig: Rig) -> None:
    rig.fault(LINK, 1, node="n0", device=0)
    rig.clear(LINK, 2, node="n0", device=0)
    rig.tick(40)


def returned_by_hand(rig: Rig) -> None:
    """The record names the plan; its id follows from job, life and the place of the fault in the stream."""
    rig.fault(LINK, 1, node="n0", device=0)
    rig.clear(LINK, 20, node="n0", device=0)
    rig.apply(a_group(labels=LABELS, min_member=4, annotations={"fault-agent/rail-returned": "8c4ff11067de"}), 30)
    rig.tick(40)


def returned_what_is_not_borrowed(rig: Rig) -> None:
    rig.apply(a_group(labels=LABELS, min_member=4, annotations={"fault-agent/rail-returned": "0123456789ab"}), 30)
    rig.tick(40)


def ended_while_borrowed(rig: Rig) -> None:
    rig.fault(LINK, 1, node="n0", device=0)
    rig.tick(20)
    for number in range(4):
        rig.delete("Pod", "train", f"demo-{number}", 30)
    rig.tick(40)


def hccs_switch(rig: Rig) -> None:
    rig.fault(
        "[0x00f103b6,155908,na,na]",
        1,
        node="n0",
        device=None,
        resource="lingqu",
        location={"switchChipId": 0, "switchPortId": 3},
    )
    rig.tick(2)


off = {**LABELS, "fault-scheduling": "off"}
pytorch = {**LABELS, "framework": "pytorch"}

TABLE: list[Any] = [
    (Reason.FAULT_SHOWN, demo, shown_and_cleared),
    (Reason.FAULT_CLEARED, demo, shown_and_cleared),
    (Reason.ALREADY_ACTIVE, demo, again),
    (Reason.NOT_ACTIVE, demo, recover_of_nothing),
    (Reason.NOT_ACTIVE, without_pods, over_before_the_pod),
    (Reason.DUPLICATE_MESSAGE, demo, repeated_message),
    (Reason.STALE, demo, stale_recover),
    (Reason.TOO_MANY, demo, too_many),
    (Reason.HELD, demo, held),
    (Reason.QUIET, demo, one("80C98009")),
    (Reason.QUIET, without_pods, one("80C98009")),
    (Reason.LEVEL_NEEDS_NOTHING, demo, one(NOTHING)),
    (Reason.ISOLATION_ONLY, demo, one(SEPARATE)),
    (Reason.IN_USE, demo, one("8F180220")),
    (Reason.PLANE_NEEDS_NO_RESET, demo, one(LINK)),
    (Reason.TOO_OLD, demo, too_old),
    (Reason.BEFORE_ACT, demo, before_act),
    (Reason.NO_JOB, demo, no_job),
    (Reason.NO_RANK, demo, no_rank),
    (Reason.JOB_FINISHED, demo, finished),
    (Reason.LABEL_OFF, lambda: demo(off), one(REQUEST)),
    (Reason.FRAMEWORK_NOT_SUPPORTED, lambda: demo(pytorch), one(REQUEST)),
    (Reason.ANNOTATION_OFF, lambda: demo(None, {"fault-agent/in-place-recovery": "off"}), one(REQUEST)),
    (Reason.PROCESS_RECOVER_OWNS, lambda: demo({**LABELS, "process-recover-enable": "on"}), one(REQUEST)),
    (Reason.PROCESS_RECOVER_OWNS, lambda: demo({**LABELS, "process-recover-enable": "pause"}), one(REQUEST)),
    (Reason.VOLCANO_RESCHEDULES, lambda: demo(volcano="alive"), one(REQUEST)),
    (Reason.SHARED_RESET_CONFIG, with_another_group, one(REQUEST)),
    (Reason.NO_RESET_EXECUTOR, demo, one(RESET)),
    (Reason.RECOVERY_STARTED, demo, one(REQUEST)),
    (Reason.RECOVERY_STARTED, lambda: demo(pytorch, {"fault-agent/in-place-recovery": "on"}), one(REQUEST)),
    (Reason.RECOVERY_RUNNING, demo, second_node),
    (Reason.RECOVERY_FAILED, demo, second_node),
    (Reason.RECOVERY_JOINED, demo, same_node),
    (Reason.RESCHEDULE_RECORDED, demo, replaced),
    (Reason.NO_RESET_CONFIG, lambda: demo(documents={"reset_config": {"create": False}}), one(REQUEST)),
    (Reason.OBSERVE, lambda: demo(mode="observe"), one(REQUEST)),
    (Reason.OBSERVE, lambda: demo(documents={"reset_config": {"mode": "observe"}}), one(REQUEST)),
    (Reason.DISABLED, lambda: demo(documents={"reset_config": {"mode": "disabled"}}), one(REQUEST)),
    (Reason.DISABLED, lambda: demo(mode="disabled"), one(REQUEST)),
    (Reason.FOREIGN_WRITER_LIVE, demo, volcano_writes),
    (Reason.DOCUMENT_UNREADABLE, demo, bad_document("reset-config-demo", "train", {"reset.json": "{"})),
    (Reason.DOCUMENT_REFUSED, demo, too_large),
    (Reason.LEDGER_UNREADABLE, with_bad_ledger, one(REQUEST)),
    (Reason.WRITTEN, demo, one(REQUEST)),
    (Reason.RAIL_OBSERVING, a3, link_down),
    (Reason.RAIL_ADVISED, a3, link_down),
    (Reason.RAIL_REFUSED, a3, link_down_without_probes),
    (Reason.RAIL_NOOP, a3, flap),
    (Reason.RAIL_DELEGATED, a3, hccs_switch),
    (Reason.RAIL_RETURNED, a3, returned_by_hand),
    (Reason.RAIL_UNVERIFIED, a3, returned_what_is_not_borrowed),
    (Reason.RAIL_SUPERSEDED, a3, ended_while_borrowed),
]


@pytest.mark.parametrize(
    ("reason", "make", "happen"),
    [pytest.param(*row, id=f"{row[0]}-{number}") for number, row in enumerate(TABLE)],
)
async def test_a_situation_is_given_its_reason(
    reason: Reason, make: Callable[[], Rig], happen: Callable[[Rig], None]
) -> None:
    rig = make()
    happen(rig)
    await rig.run()
    assert reason in [decision.reason for decision in rig.decisions]


LATER = [
    (Reason.RECOVERY_SUCCEEDED, 10),
    (Reason.RECOVERY_ENDED, 200),
]


@pytest.mark.parametrize(("reason", "until"), LATER)
async def test_a_recovery_that_gets_well_says_so_and_ends(reason: Reason, until: int) -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.clear(REQUEST, 5)
    rig.tick(until)
    await rig.run()
    assert rig.reasons(DEMO_JOB)[-1] == reason


async def test_a_request_that_outlasts_its_time_is_escalated_when_somebody_resets() -> None:
    rig = demo(reset={"executor": "external"})
    rig.fault(REQUEST)
    rig.tick(31)
    await rig.run()
    assert rig.reasons(DEMO_JOB) == [Reason.RECOVERY_STARTED, Reason.RECOVERY_ESCALATED]


async def test_of_several_bars_the_fault_s_own_nature_comes_before_the_job_s() -> None:
    rig = demo(off)
    rig.fault(SEPARATE)
    rig.tick(1)
    await rig.run()
    assert rig.reasons(DEMO_JOB) == [Reason.ISOLATION_ONLY]


async def test_every_occurrence_of_a_job_is_given_one_reason_and_once() -> None:
    rig = demo()
    for number in range(5):
        rig.fault(REQUEST, number * 3)
        rig.clear(REQUEST, number * 3 + 1)
    rig.tick(600)
    await rig.run()
    counting = (Reason.FAULT_COUNTED, Reason.SEPARATED)
    judged = [one for one in rig.decisions if one.reason not in counting]
    told = [one.occurrence for one in judged if one.job == DEMO_JOB and one.occurrence]
    assert len(told) == 7  # every second one trips the frequency rule of 80C98000
    assert len(set(told)) == 7


def test_every_word_of_the_enum_is_reached_by_a_test() -> None:
    here = Path(__file__).parent.parent
    texts = "\n".join(path.read_text() for path in here.rglob("test_*.py"))
    reached = set(re.findall(r"Reason\.([A-Z_]+)", texts)) | set(re.findall(r'"([A-Z_]+)"', texts))
    assert {reason.name for reason in Reason} - reached == set()
