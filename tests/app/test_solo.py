"""Both roles in one process: the two ways to run, restarts, modes, and stores that do not answer."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import DEMO_JOB, a_group, a_pod, the_demo
from mortal import SmallReads
from rig import T0, Rig

from agent.adapters.memory import (
    MemoryCabinet,
    MemoryDocumentStore,
    MemoryFaultSource,
    MemoryJournal,
    MemoryReportLog,
)
from agent.domain.events import Position
from agent.domain.vocab import Millis, NodeName, Reason
from agent.errors import CannotRun, Fenced, Unavailable
from agent.ports import ConfigMap, Control

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, SEPARATE = "80C98000", "80E18402"
VCJOB = "volcano-system/vcjob-fault-npu-cm"
RESET = "train/reset-config-demo"


def demo(**settings: Any) -> Rig:
    return Rig(the_demo(LABELS), settings)


# --- the clock of the items -------------------------------------------------------------------------------------------


async def test_a_time_beyond_all_calendars_moves_no_clock() -> None:
    rig = demo()
    rig.fault(REQUEST, 1)
    rig.source.add(b"n1", b"{}", timestamp=Millis(10**17))
    rig.clear(REQUEST, 5)
    rig.tick(300)
    await rig.run()
    assert rig.reasons(DEMO_JOB) == [Reason.RECOVERY_STARTED, Reason.RECOVERY_SUCCEEDED, Reason.RECOVERY_ENDED]


@pytest.mark.parametrize("wrong", [1767225601, -5, 253402300799999, 9999999999999, 1])
async def test_a_time_that_cannot_be_meant_moves_no_clock_and_is_told_once(wrong: int) -> None:
    rig = demo()
    rig.fault(REQUEST, 1)
    for number in range(3):
        rig.source.add(b"n1", b"{}", timestamp=Millis(wrong))
        for kind in ("tick", "apply", "delete", "probe"):
            rig.source.append(Control(Position(0, 0, 1000 + number), kind, Millis(wrong), {}))
    rig.clear(REQUEST, 5)
    rig.tick(300)
    await rig.run()
    assert rig.reasons(DEMO_JOB) == [Reason.RECOVERY_STARTED, Reason.RECOVERY_SUCCEEDED, Reason.RECOVERY_ENDED]
    told = [finding for finding in rig.world.all_findings() if finding.startswith("stream: ")]
    side = "before 2025" if wrong < T0 else "in 2100 or later"
    assert [finding.partition(" (")[0] for finding in told] == [
        f"stream: the time of a {what} is {side}, which moves no clock; Unix milliseconds are expected"
        for what in ("record", "tick", "apply", "delete", "probe")
    ]
    assert told[0].endswith(" (first in the line at byte 1)")


async def test_where_the_line_s_time_is_in_seconds_the_message_s_own_counts() -> None:
    rig = demo()
    rig.fault(REQUEST, 0)
    late = json.loads(rig.source._items[0].value)  # type: ignore[union-attr, arg-type]
    late["timestamp"] = T0 + 200_000
    rig.source.add(b"n1", json.dumps(late).encode(), timestamp=Millis(T0 // 1000 + 200))
    await rig.run()
    assert [(one.at - T0) // 1000 for one in rig.decisions if one.job == DEMO_JOB and one.fault] == [0, 30, 150]


# --- replay -----------------------------------------------------------------------------------------------------------


async def test_the_same_input_gives_the_same_bytes_whatever_the_size_of_the_reads() -> None:
    ends = []
    for source in (MemoryFaultSource(), SmallReads()):
        rig = Rig(the_demo(LABELS), source=source)
        rig.fault(REQUEST)
        rig.fault("80CB8008", 0, device=1)
        rig.raw(b"bad", 1)
        rig.clear(REQUEST, 20)
        rig.clear("80CB8008", 20, device=1)
        rig.fault(SEPARATE, 40, node="n2")
        rig.tick(300)
        await rig.run()
        documents = {one.name: (dict(one.data), one.resource_version) for one in await rig.disk.store.list()}
        ends.append((documents, await rig.disk.audit.read(), await rig.disk.letters.read()))
    assert ends[0] == ends[1]


async def test_an_empty_stream_writes_what_is_known_without_faults() -> None:
    rig = demo()
    await rig.run()
    data = await rig.data(VCJOB)
    assert data is not None
    assert data["fault-node"] == "[]"


async def test_lines_that_make_no_sense_are_findings_or_nothing() -> None:
    rig = demo()
    rig.probe("../../x", 0, d0="up")
    for body in (
        {},
        {"kind": "Pod"},
        {"kind": "ConfigMap", "metadata": {"name": "x", "namespace": "../y"}},
        {"kind": "ConfigMap", "metadata": 7},
        {"kind": "List", "items": 7},
    ):
        rig._control("apply", 1, body)
    for kind, namespace, name in (("ConfigMap", "../x", "y"), ("ConfigMap", "", ""), ("Pod", "", ""), ("", "", "")):
        rig.delete(kind, namespace, name, 2)
    strange: tuple[Any, ...] = ({"x": "up"}, {"-1": "up"}, {"9" * 9999: "up"}, {"٣": "up"}, [], None, "up")
    for links in strange:
        rig._control("probe", 3, {"node": "n1", "links": links})
    rig._control("probe", 3, {"node": None, "links": {"0": "up"}})
    rig._control("probe", 3, {})
    rig.fault(SEPARATE, 4)
    rig.tick(5)
    await rig.run()
    assert Reason.FAULT_SHOWN in [one.reason for one in rig.decisions]
    assert list(await rig.disk.reports.latest()) == ["n1"]
    told = rig.world.all_findings()
    for finding in (
        "probe: node: '../../x' is no node name (first in the line at byte 0)",
        "ConfigMap: metadata.namespace: '../y' is no DNS-1123 label",
        "delete: ConfigMap: metadata.namespace: '../x' is no DNS-1123 label (first in the line at byte 6)",
        "probe: links: 'x' is no device of 0 to 63 (first in the line at byte 10)",
        "probe: node: None is no node name (first in the line at byte 17)",
    ):
        assert told.count(finding) == 1
    again = Rig(the_demo(LABELS), disk=rig.disk)
    await again.run(resume=True)
    assert again.world.laid() == []


async def test_a_stream_of_nothing_but_nonsense_fills_no_memory() -> None:
    rig = demo()
    for number in range(1100):
        rig._control("probe", 1, {"node": f"N{number}", "links": {}})
    rig.fault(SEPARATE, 4)
    await rig.run()
    assert len(rig.world.all_findings()) == 1001
    assert rig.world.all_findings()[-1] == "the stream brought more that could not be used; the first 1000 are told"
    assert Reason.FAULT_SHOWN in [one.reason for one in rig.decisions]


async def test_an_object_nested_without_end_is_a_finding_and_the_state_is_kept() -> None:
    rig = demo()
    deep: Any = 1
    for _ in range(260):
        deep = [deep]
    rig.apply({**a_pod("demo-0"), "x": deep}, 1)
    rig.apply(a_pod("demo-0", uid="another"), 2)
    rig.fault(SEPARATE, 4)
    await rig.run()
    assert (
        "apply: the object cannot be kept: Recursion limit reached (first in the line at byte 0)"
        in rig.world.all_findings()
    )
    again = Rig(the_demo(LABELS), disk=rig.disk)
    await again.run(resume=True)
    assert [item["metadata"]["uid"] for _, _, _, item in again.world.laid()] == ["another"]


async def test_deadlines_between_events_take_effect_at_their_own_times() -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.tick(10_000)
    await rig.run()
    assert [(one.at - T0) // 1000 for one in rig.decisions if one.job == DEMO_JOB and one.fault] == [0, 30, 150]


async def test_another_cluster_s_state_is_refused() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    await rig.run()
    other = Rig(the_demo(LABELS), {"cluster": {"id": "other"}}, rig.disk)
    with pytest.raises(CannotRun, match="belongs to cluster 'solo', this agent to 'other'"):
        await other.run(resume=True)


async def test_an_unreadable_report_is_named_and_nothing_is_begun() -> None:
    rig = demo()
    await rig.disk.reports.publish({"n1": b"{"})  # type: ignore[dict-item]  # a NodeName
    with pytest.raises(CannotRun, match=r"\.state/reports/n1\.json in the --out folder cannot be read"):
        await rig.run()
    assert list(await rig.disk.store.list()) == []


async def test_a_report_under_another_node_s_name_is_named_and_nothing_is_begun() -> None:
    rig = demo()
    rig.fault(SEPARATE)
    await rig.run()
    (report,) = (await rig.disk.reports.latest()).values()
    other = demo()
    await other.disk.reports.publish({NodeName("n2"): report})
    with pytest.raises(CannotRun, match=r"n2\.json in the --out folder cannot be read: it is the report of 'n1'"):
        await other.run()


@pytest.mark.parametrize("damaged", [b"", b"{}", b"[]", b"\0\0", b'{"to":null,"clock":1,"laid":5}'])
async def test_damaged_objects_of_the_stream_are_named_and_not_overwritten(damaged: bytes) -> None:
    rig = demo()
    rig.fault(SEPARATE)
    await rig.disk.cabinet.store("objects", damaged)
    with pytest.raises(CannotRun, match=r"\.state/cabinet/objects in the --out folder cannot be read"):
        await rig.run(resume=True)
    assert await rig.disk.cabinet.load("objects") == damaged
    assert list(await rig.disk.store.list()) == []


# --- observe, disabled ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["observe", "disabled"])
async def test_short_of_act_no_document_and_no_ledger_is_stored(mode: str) -> None:
    rig = demo(mode=mode)
    rig.fault(REQUEST)
    rig.fault(SEPARATE, 5, node="n2")
    rig.delete("Pod", "train", "demo-1", 6)
    rig.apply(a_pod("demo-1", uid="uid-2", node="n3", rank_index=1, labels=LABELS), 7)
    rig.tick(400)
    await rig.run()
    assert list(await rig.disk.store.list()) == []
    told = [one.reason for one in rig.decisions if one.document and not one.fault]
    assert set(told) == {Reason.OBSERVE if mode == "observe" else Reason.DISABLED}


async def test_observing_starts_no_recovery_and_says_which_would_start() -> None:
    rig = demo(mode="observe")
    rig.fault(REQUEST)
    rig.clear(REQUEST, 5)
    rig.tick(300)
    await rig.run()
    assert rig.reasons(DEMO_JOB) == [Reason.OBSERVE]
    told = next(line.decision.detail for line in rig.told if line.decision.job == DEMO_JOB)
    assert told == "in act mode a recovery would start: policy restart_request, 4 ranks"
    assert {line.mode for line in rig.told} == {"observe"}


async def test_the_first_act_after_observing_does_not_act_on_what_was() -> None:
    rig = demo(mode="observe")
    rig.fault(REQUEST)
    rig.fault(SEPARATE, 10, node="n9")
    await rig.run()
    later = Rig(the_demo(LABELS), disk=rig.disk)
    later.tick(60)
    await later.run()
    assert await later.data(RESET) is None


# --- run --------------------------------------------------------------------------------------------------------------


class Wall:
    """A clock that a test moves."""

    def __init__(self, at: float = 0) -> None:
        self.now = at

    def __call__(self) -> Millis:
        return Millis(T0 + round(self.now * 1000))


class Live:
    """A run over a source that grows, on a wall clock that the test moves."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.stop = asyncio.Event()
        self.wall = Wall()
        self.solo = rig.build()
        self.task = asyncio.create_task(self.solo.run(self.stop, self.wall))

    async def until(self, what: str, times: int = 1) -> None:
        """Until a reason was told so many times."""
        while [one.reason for one in self.rig.decisions].count(Reason(what)) < times:
            assert not self.task.done(), self.task.exception()
            news = asyncio.ensure_future(self.rig.news.wait())
            await asyncio.wait([self.task, news], return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            self.rig.news.clear()

    async def end(self) -> None:
        self.stop.set()
        await self.task


async def test_a_run_follows_what_comes_and_ends_when_told() -> None:
    live = Live(demo())
    await live.until(Reason.WRITTEN)
    live.rig.fault(REQUEST)
    await live.until(Reason.RECOVERY_STARTED)
    live.rig.clear(REQUEST, 0)
    await live.until(Reason.RECOVERY_SUCCEEDED)
    await live.end()
    assert live.solo.tally.records == 2


async def test_while_it_catches_up_nothing_is_written_and_its_clock_is_the_records() -> None:
    rig = demo()
    rig.fault(REQUEST, -500)
    rig.clear(REQUEST, -400)
    rig.fault(SEPARATE, -1, node="n2")
    live = Live(rig)
    await live.until(Reason.ISOLATION_ONLY)
    await live.end()
    told = [(str(one.reason), one.fault.partition("@")[0]) for one in rig.decisions if one.job == DEMO_JOB]
    assert told == [("BEFORE_ACT", "n1/chip/2/80C98000"), ("ISOLATION_ONLY", "n2/chip/2/80E18402")]
    assert [one.at - T0 for one in rig.decisions if one.reason is Reason.FAULT_SHOWN] == [-500_000, -1000]
    assert await rig.data(RESET) is None


async def test_a_change_of_the_cluster_is_taken_in() -> None:
    rig = demo()
    live = Live(rig)
    await live.until(Reason.WRITTEN)
    rig.fault(SEPARATE)
    await live.until(Reason.ISOLATION_ONLY)
    assert rig.view is not None
    rig.view.delete("Pod", "train", "demo-0")
    rig.view.apply(a_pod("demo-0", uid="uid-2", node="n3", labels=LABELS))
    await live.until(Reason.RESCHEDULE_RECORDED)
    await live.end()


async def test_a_store_that_does_not_answer_is_said_and_nothing_is_lost() -> None:
    rig = demo()
    live = Live(rig)
    await live.until(Reason.WRITTEN)
    assert isinstance(rig.disk.store, MemoryDocumentStore)
    assert isinstance(rig.disk.audit, MemoryJournal)
    assert isinstance(rig.disk.reports, MemoryReportLog)
    assert isinstance(rig.disk.cabinet, MemoryCabinet)
    for part in (rig.disk.audit, rig.disk.reports, rig.disk.cabinet, rig.disk.store):
        part.failures.fail_next(Unavailable(f"{type(part).__name__} is away"))
    rig.raw(b"bad")
    rig.fault(REQUEST)
    await live.until(Reason.RECOVERY_STARTED)
    await live.end()
    assert [text for text in rig.said if "tried again" in text]
    assert [line.decision.reason for line in await rig.journal()].count(Reason.RECOVERY_STARTED) == 1
    assert [line.decision.reason for line in await rig.journal()].count(Reason.FAULT_SHOWN) == 1
    assert len(await rig.letters()) == 1


async def test_another_writer_of_the_ledger_stops_the_run() -> None:
    rig = demo()
    live = Live(rig)
    await live.until(Reason.WRITTEN)
    assert rig.disk.foreign is not None
    ledgers = [one for one in await rig.disk.store.list() if one.name.startswith("fault-agent-job-")]
    await rig.disk.foreign.put(ConfigMap(**{**_fields(ledgers[0]), "data": {"ledger.json": "{}"}}))
    rig.fault(REQUEST)
    with pytest.raises(Fenced):
        await live.task


def _fields(document: ConfigMap) -> dict[str, Any]:
    return {name: getattr(document, name) for name in ConfigMap.__dataclass_fields__}


async def test_a_finished_pipe_ends_the_run_once_all_is_done() -> None:
    rig = demo()
    rig.fault(REQUEST)
    rig.source.finished = True
    live = Live(rig)
    await live.task
    assert rig.reasons(DEMO_JOB) == [Reason.RECOVERY_STARTED]


async def test_a_restart_goes_on_with_running_recoveries_and_says_nothing_twice() -> None:
    rig = demo()
    live = Live(rig)
    await live.until(Reason.WRITTEN)
    rig.fault(REQUEST)
    await live.until(Reason.RECOVERY_STARTED)
    await live.end()
    again = Rig(the_demo(LABELS), disk=rig.disk, source=rig.source)
    later = Live(again)
    later.wall.now = 40
    await later.until(Reason.RECOVERY_FAILED)
    await later.end()
    told = [line.decision.reason for line in await again.journal()]
    assert told.count(Reason.RECOVERY_STARTED) == 1
    assert told.count(Reason.FAULT_SHOWN) == 1


def replace_pod(rig: Rig, uid: str, node: str) -> None:
    """The first pod of the job is replaced by another one of its name."""
    assert rig.view is not None
    rig.view.delete("Pod", "train", "demo-0")
    rig.view.apply(a_pod("demo-0", uid=uid, node=node, labels=LABELS))


async def test_a_second_replacement_for_the_same_fault_is_told_after_a_restart_too() -> None:
    rig = demo()
    live = Live(rig)
    await live.until(Reason.WRITTEN)
    rig.fault(SEPARATE)
    await live.until(Reason.ISOLATION_ONLY)
    replace_pod(rig, "uid-2", "n1")
    await live.until(Reason.RESCHEDULE_RECORDED)
    await live.end()
    replace_pod(rig, "uid-3", "n3")
    again = Rig(the_demo(LABELS), disk=rig.disk, source=rig.source, view=rig.view)
    later = Live(again)
    await later.until(Reason.RESCHEDULE_RECORDED)
    await later.end()
    told = [one.decision for one in await again.journal() if one.decision.reason is Reason.RESCHEDULE_RECORDED]
    assert [one.detail for one in told] == [
        "replaced: demo-0 on n1 (CardUnhealthy); restart 1 of the job",
        "replaced: demo-0 on n1 (CardUnhealthy); restart 2 of the job",
    ]
    assert told[0].occurrence == told[1].occurrence != ""
    data = await again.data("mindx-dl/job-reschedule-reason")
    assert data is not None
    assert json.loads(data["recent-reschedule-records"])[DEMO_JOB]["TotalRescheduleTimes"] == 2


async def test_a_recreated_stream_is_read_from_its_beginning_and_said() -> None:
    rig = demo()
    live = Live(rig)
    await live.until(Reason.WRITTEN)
    rig.fault(SEPARATE)
    await live.until(Reason.ISOLATION_ONLY)
    rig.source.recreate()
    rig.source.add(b"n1", _message("80E24E00", 9), timestamp=Millis(T0))
    await live.until(Reason.FAULT_SHOWN, times=2)
    await live.end()
    assert any("made anew" in text for text in rig.said)


def _message(code: str, number: int) -> bytes:
    rig = Rig(_number=number)
    rig.fault(code)
    return rig.source._items[0].value or b""  # type: ignore[union-attr]  # a record


# --- whatever comes in ------------------------------------------------------------------------------------------------

ITEM = st.sampled_from(["fault", "clear", "once", "bytes", "apply", "delete", "probe", "tick", "group"])


@settings(max_examples=40)
@given(
    items=st.lists(st.tuples(ITEM, st.integers(0, 3), st.binary(max_size=8)), max_size=25),
    cut=st.integers(0, 25),
)
def test_cut_anywhere_and_gone_on_with_the_end_is_the_same(items: list[tuple[str, int, bytes]], cut: int) -> None:
    def fill(rig: Rig, part: list[tuple[str, int, bytes]], start: int) -> None:
        for at, (what, number, raw) in enumerate(part, start=start):
            _happen(rig, what, number, raw, at)

    whole = Rig(the_demo(LABELS))
    fill(whole, items, 0)
    whole.tick(600)
    asyncio.run(_run(whole, resume=False))

    first = Rig(the_demo(LABELS))
    fill(first, items[:cut], 0)
    asyncio.run(_run(first, resume=False))
    second = Rig(the_demo(LABELS), disk=first.disk, source=first.source, _number=first._number)
    fill(second, items[cut:], min(cut, len(items)))
    second.tick(600)
    asyncio.run(_run(second, resume=True))
    assert asyncio.run(_documents(second)) == asyncio.run(_documents(whole))


def _happen(rig: Rig, what: str, number: int, raw: bytes, at: int) -> None:
    match what:
        case "fault":
            rig.fault((REQUEST, SEPARATE, "80E01801", "81078603")[number], at)
        case "clear":
            rig.clear((REQUEST, SEPARATE, "80E01801", "81078603")[number], at)
        case "once":
            rig.fault((REQUEST, SEPARATE, "80E01801", "FFFF")[number], at, assertion="once")
        case "bytes":
            rig.raw(raw, at)
        case "apply":
            rig.apply(a_pod("demo-0", uid=f"uid-{at}", node=f"n{number}", labels=LABELS), at)
        case "delete":
            rig.delete("Pod", "train", f"demo-{number % 2}", at)
        case "probe":
            rig.probe("n1", at, d0=("up", "down", "x", "up")[number])
        case "group":
            labels = {**LABELS, "process-recover-enable": ("on", "off", "pause", "")[number]}
            rig.apply(a_group(labels=labels), at)
        case _:
            rig.tick(at)


async def _run(rig: Rig, *, resume: bool) -> None:
    await rig.run(resume=resume)


async def _documents(rig: Rig) -> Mapping[str, Any]:
    found = {f"{one.namespace}/{one.name}": dict(one.data) for one in await rig.disk.store.list()}
    for place, data in found.items():
        if place.endswith("fault-agent-cluster"):
            ledger = json.loads(data["ledger.json"])
            data["ledger.json"] = json.dumps({**ledger, "act_since": 0})
    return found
