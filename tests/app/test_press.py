"""The job's own document beside its other writers: what they erase is seen and counted, and nothing is fought over."""

import json
from dataclasses import replace
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, a_config_map, a_pod, the_demo
from rig import T0, Disk, Rig
from trainingsite import Site

from agent.adapters.memory import MemoryDocumentStore
from agent.app.documents import render_reset
from agent.domain.events import Decision
from agent.domain.ledger import Course, JobLedger
from agent.domain.reset import Policy, RankEntry, Recovery, ResetDevice, ResetInfo, ResetLimits, Writer, start
from agent.domain.vocab import JobId, Millis, NodeName, Reason
from agent.ports import ConfigMap
from agent.wire.resetfile import decode_reset, encode_reset

RESET = "train/reset-config-demo"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, BUSINESS = "80BB8003", "81B38002"
TAIL = '"FaultFlushing":false,"GracefulExit":0,"RestartFaultProcess":false}'
FAULT = '{"RankId":0,"LogicId":0,"Status":"fault","Policy":"","InitialPolicy":"","ErrorCode":null,"ErrorCodeHex":""}'


def text(entries: str = "", retry: int = 0, tail: str = TAIL) -> str:
    return f'{{"RankList":[{entries}],"UpdateTime":1767225600,"RetryTime":{retry},{tail}'


async def written_by(rig: Rig, manager: str, data: dict[str, str], *, bare: bool) -> None:
    """A PUT of another writer; `bare`: labels are {reset: true} and annotations are gone with it."""
    store = rig.disk.store
    assert isinstance(store, MemoryDocumentStore)
    live = await store.get("train", "reset-config-demo")
    assert live is not None
    marks = replace(live, labels={"reset": "true"}, annotations={}) if bare else live
    await store.as_manager(manager).put(replace(marks, data=data))


def about(rig: Rig, reason: Reason) -> list[Decision]:
    return [one for one in rig.decisions if one.reason is reason]


async def with_a_recovery_shown(**settings: Any) -> Rig:
    """A rig whose first process has shown a recovery and gone; the next one goes on from its disk."""
    rig = Rig(the_demo(LABELS), settings)
    rig.fault(REQUEST, 1)
    rig.tick(2)
    await rig.run()
    return rig


async def after(rig: Rig, at: int) -> Rig:
    """Another process on the same disk, which looks at that second."""
    again = Rig(the_demo(LABELS), disk=rig.disk)
    again.tick(at)
    await again.run()
    return again


@pytest.mark.parametrize(
    ("manager", "bare", "data", "writer", "retry"),
    [
        pytest.param(
            "vc-scheduler",
            True,
            {"reset.json": text(retry=1), "restartType": "podReschedule"},
            Writer.POD_RESCHEDULING,
            1,
            id="volcano, a part of the pods replaced",
        ),
        pytest.param(
            "vc-scheduler",
            True,
            {"reset.json": text(retry=0), "restartType": "podReschedule"},
            Writer.POD_RESCHEDULING,
            1,
            id="volcano, after its own restart",
        ),
        pytest.param(
            "clusterd", False, {"reset.json": text(retry=0)}, Writer.PROCESS_RECOVERY, 1, id="clusterd, clear"
        ),
        pytest.param(
            "clusterd", False, {"reset.json": text(FAULT, 0)}, Writer.PROCESS_RECOVERY, 1, id="clusterd, its faults"
        ),
        pytest.param(
            "clusterd", False, {"reset.json": text(retry=1)}, Writer.PROCESS_RECOVERY, 1, id="clusterd, restart all"
        ),
        pytest.param(
            "kubectl", False, {"reset.json": text(retry=0), "restartType": "hotReset"}, Writer.OTHER, 1, id="a person"
        ),
    ],
)
async def test_a_list_that_another_writer_has_emptied_is_seen_counted_and_not_put_back(
    manager: str, bare: bool, data: dict[str, str], writer: Writer, retry: int
) -> None:
    rig = await with_a_recovery_shown()
    await written_by(rig, manager, data, bare=bare)
    again = await after(rig, 10)
    assert dict(again.coordinator.press.erasures) == {writer: 1}
    (told,) = about(again, Reason.ERASED)
    assert told.detail.startswith(f"{writer} took out entries")
    assert told.document == RESET
    live = await again.data(RESET)
    assert live is not None
    info = decode_reset(live["reset.json"])
    assert not any(entry.recovery_id for entry in info.rank_list or ())
    assert info.retry_time == retry


def test_while_the_process_lives_a_graceful_exit_is_known_by_what_it_changes_and_not_undone() -> None:
    site = Site()
    try:
        site.fault(REQUEST, "n1", 2)
        site.volcano_grace(1)
        before = site.live_text
        site.advance(5)
        assert site.coordinator is not None
        assert dict(site.coordinator.press.erasures) == {Writer.GRACE_EXIT: 1}
        told = [one.detail for one in site.told if one.reason is Reason.ERASED]
        assert told == ["volcano-grace-exit took out restartType, the annotation of this agent"]
        assert site.live_text == before
        site.clear()
        site.advance(100)
        assert (site.info()["GracefulExit"], site.info()["RetryTime"], site.info()["RankList"]) == (1, 1, [])
    finally:
        site.close()


async def test_volcano_s_clear_after_ours_is_left_alone() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(REQUEST, 1)
    rig.clear(REQUEST, 5)
    rig.tick(150)
    await rig.run()
    await written_by(rig, "vc-scheduler", {"reset.json": text(retry=2), "restartType": "podReschedule"}, bare=True)
    again = await after(rig, 200)
    live = await again.data(RESET)
    assert live == {"reset.json": text(retry=2), "restartType": "podReschedule"}
    assert about(again, Reason.ERASED) == []


@pytest.mark.parametrize(("labels", "told"), [({"reset": "true"}, 0), ({"reset": "True"}, 1), ({}, 1)])
async def test_a_config_without_the_label_is_said_once_at_the_start_and_written_all_the_same(
    labels: dict[str, str], told: int
) -> None:
    born = {"reset.json": '{"status":"initializing"}'}
    store = MemoryDocumentStore([ConfigMap("train", "reset-config-demo", born, labels=labels)])
    rig = Rig(the_demo(LABELS), disk=Disk(store=store))
    rig.tick(0)
    rig.fault(REQUEST, 10)
    rig.clear(REQUEST, 15)
    rig.tick(300)
    await rig.run()
    missing = about(rig, Reason.NO_RESET_LABEL)
    assert [one.at for one in missing] == [T0] * told
    live = await store.get("train", "reset-config-demo")
    assert live is not None
    assert (live.labels, decode_reset(live.data["reset.json"]).retry_time) == (labels, 1)


async def test_a_config_deleted_while_workers_wait_is_written_when_it_is_there_again() -> None:
    rig = await with_a_recovery_shown()
    born = a_config_map("reset-config-demo", {"reset.json": '{"status":"initializing"}'})
    again = Rig(the_demo(LABELS), {"documents": {"reset_config": {"create": False}}}, disk=rig.disk)
    again.delete("ConfigMap", "train", "reset-config-demo", 5)
    again.tick(400)
    again.apply(born, 500)
    again.tick(501)
    await again.run()
    live = await again.data(RESET)
    assert live is not None
    info = decode_reset(live["reset.json"])
    assert (info.rank_list, info.retry_time) == ((), 1)
    assert Reason.NO_RESET_CONFIG in [one.reason for one in again.decisions]


async def test_a_config_deleted_while_workers_wait_holds_nothing_once_the_job_is_gone() -> None:
    rig = await with_a_recovery_shown()
    again = Rig(the_demo(LABELS), {"documents": {"reset_config": {"create": False}}}, disk=rig.disk)
    again.delete("ConfigMap", "train", "reset-config-demo", 5)
    again.tick(400)
    for name in ("demo-0", "demo-1"):
        again.delete("Pod", "train", name, 500)
    again.delete("PodGroup", "train", DEMO_JOB.partition("/")[2], 501)
    again.tick(600)
    await again.run()
    assert again.book.ledgers == {}


async def test_a_retry_time_that_volcano_set_back_is_remembered_and_the_next_recovery_goes_above_it() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(a_config_map("reset-config-demo", {"reset.json": text(retry=5)}), 0)
    rig.tick(1)
    rig.apply(a_config_map("reset-config-demo", {"reset.json": text(retry=0)}), 10)
    rig.fault(REQUEST, 20)
    rig.delete("Pod", "train", "demo-0", 25)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n1", labels=LABELS), 40)
    rig.tick(300)
    await rig.run()
    retries = [json.loads(one)["RetryTime"] for one in rig.texts(RESET, "reset.json")]
    assert retries == [0, 0, 6]


# --- ten thousand ranks ----------------------------------------------------------------------------------------------

N1 = NodeName("n1")


def ten_thousand(faulty: range = range(40, 42)) -> Recovery:
    devices = [
        ResetDevice(rank, rank % 16, N1, rank, ("80C98000",) if rank in faulty else ()) for rank in range(10_000)
    ]
    made = start(1, Policy.RESTART_REQUEST, devices, N1, Millis(T0), ResetLimits())
    assert isinstance(made, Recovery)
    return made


def rendered(recovery: Recovery, live: ConfigMap | None) -> tuple[ConfigMap, str]:
    ledger = JobLedger(JobId(DEMO_JOB), "solo", courses=(Course(recovery, (), "f", "RestartRequest"),))
    made = render_reset(ledger, None, True, Millis(T0), {}, live)
    assert made.data is not None
    base = live or ConfigMap("train", "reset-config-demo")
    return replace(base, data={**base.data, **made.data}), made.detail


@pytest.mark.parametrize("foreign", [0, 300_000, 990_000])
def test_ten_thousand_ranks_stay_within_budget_and_what_was_cut_is_said(foreign: int) -> None:
    live = ConfigMap("train", "reset-config-demo", {"reset.json": '{"status":"initializing"}', "note": "x" * foreign})
    document, detail = rendered(ten_thousand(), live if foreign else None)
    assert sum(len(one.encode()) for one in document.data.values()) <= 1_000_000
    ranks = [entry.rank_id for entry in decode_reset(document.data["reset.json"]).rank_list or ()]
    assert ranks == sorted(set(ranks))
    assert {40, 41} <= set(ranks)
    assert f"to fit, {10_000 - len(ranks)} healthy ranks are left out" in detail
    ledger = JobLedger(JobId(DEMO_JOB), "solo", courses=(Course(ten_thousand(), (), "f", "RestartRequest"),))
    again = render_reset(ledger, None, True, Millis(T0 + 5000), {}, document)
    assert again.reason is Reason.UNCHANGED


def test_one_entry_always_stays_and_faulty_ranks_that_went_are_counted_apart() -> None:
    live = ConfigMap("train", "reset-config-demo", {"reset.json": "", "note": "x" * 999_900})
    document, detail = rendered(ten_thousand(), live)
    assert [entry.rank_id for entry in decode_reset(document.data["reset.json"]).rank_list or ()] == [40]
    assert "9998 healthy ranks and 1 faulty ones are left out" in detail


def test_binary_keys_of_others_take_their_room_too() -> None:
    live = ConfigMap("train", "reset-config-demo", {"reset.json": ""}, extra={"binaryData": {"raw": "AAAA" * 249_975}})
    document, detail = rendered(ten_thousand(), live)
    assert [entry.rank_id for entry in decode_reset(document.data["reset.json"]).rank_list or ()] == [40]
    assert "9998 healthy ranks and 1 faulty ones are left out" in detail


def test_a_list_that_readers_have_acted_on_is_not_cut_another_way_later() -> None:
    document, _ = rendered(ten_thousand(), None)
    info = decode_reset(document.data["reset.json"])
    well = tuple(replace(entry, status="recovered") for entry in info.rank_list or ())
    shown = {"reset.json": encode_reset(replace(info, rank_list=well, retry_time=1)), "note": "x" * 300_000}
    recovery = replace(ten_thousand(), phase=type(ten_thousand().phase).RECOVERED, shown="recovered")
    ledger = JobLedger(JobId(DEMO_JOB), "solo", courses=(Course(recovery, (), "f", "RestartRequest"),))
    made = render_reset(ledger, None, True, Millis(T0), {}, ConfigMap("train", "reset-config-demo", shown))
    assert (made.reason, made.data) == (Reason.UNCHANGED, None)


def test_entries_of_others_are_never_cut() -> None:
    theirs = tuple(RankEntry(rank_id=rank, status="fault") for rank in range(7000))
    live = ConfigMap("train", "reset-config-demo", {"reset.json": encode_reset(ResetInfo(theirs))})
    document, _ = rendered(ten_thousand(range(9000, 9002)), live)
    found = decode_reset(document.data["reset.json"]).rank_list or ()
    assert tuple(entry for entry in found if entry.recovery_id is None) == theirs
    assert {9000, 9001} <= {entry.rank_id for entry in found}


SHARED = [("volcano-system", "vcjob-fault-npu-cm"), ("mindx-dl", "job-reschedule-reason")]
CLAIM = {"fault-agent/cluster": "solo"}


def with_both_shared_documents() -> Rig:
    """A rig with a faulty node and a record; more may be put on its stream before it is run."""
    rig = Rig(the_demo(LABELS))
    rig.fault("80E18402", 1)
    rig.delete("Pod", "train", "demo-0", 20)
    rig.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS), 30)
    return rig


def said_by(live: ConfigMap | None) -> dict[str, str]:
    """Its annotations, without the checksum of what is in it."""
    assert live is not None
    return {key: value for key, value in live.annotations.items() if key != "fault-agent/fault-node"}


async def bared(rig: Rig, namespace: str, name: str) -> None:
    """The annotations are taken off by a hand that leaves no name, as a removal may."""
    foreign = rig.disk.foreign
    assert foreign is not None
    live = await foreign.get(namespace, name)
    assert live is not None
    await foreign.put(replace(live, annotations={"note": "x"}))


async def looked_at_again(rig: Rig) -> None:
    """The same process sees that both documents have changed."""
    for place in SHARED:
        rig.coordinator.document_changed(*place)
    await rig.coordinator.step(Millis(T0 + 60_000))


@pytest.mark.parametrize("place", SHARED, ids=str)
async def test_an_annotation_of_ours_that_was_taken_off_a_shared_document_is_told_counted_and_put_back(
    place: tuple[str, str],
) -> None:
    rig = await with_both_shared_documents().run()
    before = await rig.data("/".join(place))
    await bared(rig, *place)
    await looked_at_again(rig)
    live = await rig.disk.store.get(*place)
    assert live is not None
    assert (live.data, said_by(live)) == (before, {"note": "x", **CLAIM})
    assert dict(rig.coordinator.press.erasures) == {Writer.OTHER: 1}
    await rig.solo.flush_audit()
    assert [(one.detail, one.document) for one in about(rig, Reason.ERASED)] == [
        ("other took out the annotation of this agent", "/".join(place))
    ]
    assert about(rig, Reason.WRITTEN)[-1].detail.startswith("as it was, with annotation fault-agent/cluster")


async def test_an_annotation_that_went_while_nobody_looked_is_put_back_at_the_start() -> None:
    rig = await with_both_shared_documents().run()
    await bared(rig, *SHARED[0])
    again = await after(rig, 60)
    assert said_by(await again.disk.store.get(*SHARED[0])) == {"note": "x", **CLAIM}
    assert about(again, Reason.ERASED) == [], "whether it was there nobody remembers"


async def test_another_object_of_the_name_has_had_nothing_taken_off() -> None:
    rig = await with_both_shared_documents().run()
    store = rig.disk.store
    live = await store.get(*SHARED[0])
    assert live is not None
    await store.delete(*SHARED[0], live.resource_version)
    assert rig.disk.foreign is not None
    await rig.disk.foreign.put(ConfigMap(*SHARED[0], dict(live.data)))
    await looked_at_again(rig)
    assert (said_by(await store.get(*SHARED[0])), dict(rig.coordinator.press.erasures)) == (CLAIM, {})


async def test_a_hand_that_keeps_taking_the_annotation_off_gets_few_writes_and_an_alarm() -> None:
    rig = await with_both_shared_documents().run()
    writes = len(rig.store.writes)
    for _ in range(20):
        await bared(rig, *SHARED[0])
        rig.coordinator.document_changed(*SHARED[0])
        await rig.coordinator.step(Millis(T0 + 60_000))
    assert len(rig.store.writes) - writes == 5
    await rig.solo.flush_audit()
    (alarm,) = about(rig, Reason.FOREIGN_WRITER_LIVE)
    assert alarm.detail == "somebody changed it back 5 times; left as it is for 2 s"
    await rig.coordinator.step(Millis(T0 + 62_000))
    assert said_by(await rig.disk.store.get(*SHARED[0])) == {"note": "x", **CLAIM}


async def test_a_document_that_another_writer_owns_is_not_claimed_again() -> None:
    rig = await with_both_shared_documents().run()
    live = await rig.disk.store.get(*SHARED[0])
    assert live is not None
    assert isinstance(rig.disk.store, MemoryDocumentStore)
    await rig.disk.store.as_manager("vc-scheduler").put(replace(live, annotations={}))
    await looked_at_again(rig)
    after_it = await rig.disk.store.get(*SHARED[0])
    assert after_it is not None
    assert after_it.annotations == {}
    await rig.solo.flush_audit()
    assert [one.document for one in about(rig, Reason.FOREIGN_WRITER_LIVE)] == ["/".join(SHARED[0])]
    assert [one.document for one in about(rig, Reason.ERASED)] == ["/".join(SHARED[0])]
