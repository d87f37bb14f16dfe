"""`job-reschedule-reason` as a whole: what is recorded, what others keep, and what goes when there is no room."""

import json
from collections import UserDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import DEMO_JOB, a_config_map, a_pod, the_demo
from rig import T0, Rig

from agent.app.reschedule_document import RecordsShown, merge_records, render_reschedule
from agent.domain.cluster import ClusterBook, Limits, evolve, records_seen
from agent.domain.ledger import JobLedger
from agent.domain.reschedule import JobRecords, RescheduleRecord, TaskReason, add_record
from agent.domain.vocab import JobId, Reason
from agent.ports import ConfigMap
from agent.wire.documents import encode_reschedule

PLACE = "mindx-dl/job-reschedule-reason"
KEY = "recent-reschedule-records"
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "subHealthyStrategy": "graceExit"}
SEPARATE, SUB_HEALTH = "80E18402", "80DE0207"
SWITCH_DOWN, SWITCH = "[0x00f103b0,155907,na,na]", {"switchChipId": 0, "switchPortId": 1}
SECOND = T0 // 1000
SHANGHAI = ZoneInfo("Asia/Shanghai")
"""Read from disk, which nothing inside the loop may do."""


def holding(text: str, **more: str) -> dict[str, Any]:
    return a_config_map("job-reschedule-reason", {KEY: text, **more}, namespace="mindx-dl")


def pod(number: int, life: int, mark: str = "", **given: Any) -> dict[str, Any]:
    labels = LABELS | ({"fault-type": mark} if mark else {})
    uid = f"uid-{number}-{life}" if life else ""
    return a_pod(f"demo-{number}", uid=uid, node=f"n{number + 1}", rank_index=number, labels=labels, **given)


def replace_both(rig: Rig, at: float, life: int) -> None:
    """Both pods go, and both are placed again two and three seconds later."""
    for number in (0, 1):
        rig.delete("Pod", "train", f"demo-{number}", at)
    for number in (0, 1):
        rig.apply(pod(number, life), at + 2 + number)


def record(clock: str, second: int, *tasks: tuple[str, str, str, str]) -> str:
    listed = ",".join(
        f'{{"RescheduleReason":"{reason}","PodName":"{name}","NodeName":"{node}","NodeRankIndex":"{rank}"}}'
        for reason, name, node, rank in tasks
    )
    return f'{{"LogFileFormatTime":"{clock}","RescheduleTimeStamp":{second},"ReasonOfTask":[{listed}]}}'


FIRST, SECOND_POD = ("demo-0", "n1", "0"), ("demo-1", "n2", "1")


async def test_all_six_reasons_newest_first_in_the_scheduler_s_time() -> None:
    # 2026-01-01T00:00:00Z is eight in the morning in Shanghai; a record has the second in which the job is whole again.
    rig = Rig(the_demo(LABELS), {"scheduler_time_zone": SHANGHAI.key})
    rig.fault(SWITCH_DOWN, 100, device=None, resource="lingqu", location=SWITCH)
    replace_both(rig, 105, 1)
    rig.clear(SWITCH_DOWN, 150, device=None, resource="lingqu", location=SWITCH)
    rig.fault(SEPARATE, 200)
    replace_both(rig, 205, 2)
    rig.clear(SEPARATE, 250)
    rig.apply(pod(1, 2, phase="Failed", exit_code=1), 300)
    replace_both(rig, 305, 3)
    rig.apply(pod(1, 3, "Separate"), 400)
    replace_both(rig, 405, 4)
    rig.fault(SUB_HEALTH, 500, device=1)
    replace_both(rig, 505, 5)
    rig.clear(SUB_HEALTH, 550, device=1)
    rig.apply(pod(0, 5, "software"), 600)
    rig.apply(pod(1, 5, phase="Failed", exit_code=1), 601)
    replace_both(rig, 605, 6)
    rig.tick(700)
    await rig.run()
    records = [
        record("I0101 08:10:08", 1767226208, ("process-exception", *FIRST), ("pod-failed", *SECOND_POD)),
        record("I0101 08:08:28", 1767226108, ("SubHealthFault", *FIRST)),
        record("I0101 08:06:48", 1767226008, ("RelationFaultSeparate", *SECOND_POD)),
        record("I0101 08:05:08", 1767225908, ("pod-failed", *SECOND_POD)),
        record("I0101 08:03:28", 1767225808, ("CardUnhealthy", *FIRST)),
        record("I0101 08:01:48", 1767225708, ("NodeUnhealthy", *FIRST)),
    ]
    head = f'"{DEMO_JOB}":{{"JobID":"{DEMO_JOB}","TotalRescheduleTimes":6'
    assert await rig.data(PLACE) == {KEY: f'{{{head},"RescheduleRecords":[{",".join(records)}]}}}}'}
    left = json.loads((await rig.data("volcano-system/vcjob-fault-npu-cm") or {})["remain-retry-times"])
    assert left[DEMO_JOB]["Times"] == 1  # the two restarts for which no card, node or relation stood


async def test_with_nothing_to_record_the_document_is_not_made() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(SEPARATE, 1)
    rig.tick(10)
    await rig.run()
    assert await rig.data(PLACE) is None


async def test_what_another_writer_records_is_not_recorded_here_as_well() -> None:
    document = holding(json.dumps(THEIRS))
    document["metadata"]["managedFields"] = [{"manager": "vc-scheduler"}]
    rig = Rig(the_demo(LABELS))
    rig.apply(document, 0)
    rig.tick(1)
    await rig.run()
    beside = Rig(rig.objects, disk=rig.disk, source=rig.source, _number=rig._number)
    beside.fault(SEPARATE, 100)
    replace_both(beside, 110, 2)
    beside.tick(120)
    beside.clear(SEPARATE, 130)
    await beside.run(resume=True)
    assert await rig.data(PLACE) == document["data"]
    told = [one for one in beside.decisions if one.job == DEMO_JOB and "replaced" in one.detail]
    assert [(one.reason, one.detail) for one in told] == [
        (
            Reason.FOREIGN_WRITER_LIVE,
            "replaced: demo-0 on n1 (CardUnhealthy); recorded by the other writer of the document",
        )
    ]
    declared = {"documents": {"job_reschedule_reason": {"sole_writer": True}}}
    alone = Rig(rig.objects, declared, disk=rig.disk, source=rig.source, _number=beside._number)
    alone.fault(SEPARATE, 200)
    replace_both(alone, 210, 3)
    alone.tick(220)
    await alone.run(resume=True)
    found = json.loads((await rig.data(PLACE) or {})[KEY])[DEMO_JOB]
    assert found["TotalRescheduleTimes"] == 8
    assert [one["RescheduleTimeStamp"] for one in found["RescheduleRecords"]] == [SECOND + 213, 1767175200]


THEIRS = {
    DEMO_JOB: {
        "JobID": DEMO_JOB,
        "TotalRescheduleTimes": 7,
        "RescheduleRecords": [
            {
                "LogFileFormatTime": "I1231 10:00:00",
                "RescheduleTimeStamp": 1767175200,
                "ReasonOfTask": [
                    {"RescheduleReason": "NodeUnhealthy", "PodName": "demo-1", "NodeName": "n9", "NodeRankIndex": "1"}
                ],
                "By": "hand",
            }
        ],
    }
}


@pytest.mark.parametrize("text", ["{", '{"a":{"RescheduleRecords":[{"RescheduleTimeStamp":"1"}]}}'])
async def test_unreadable_at_the_start_it_is_left_alone_and_merged_once_it_can_be_read(text: str) -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(holding(text), -10)
    rig.fault(SEPARATE, 1)
    replace_both(rig, 10, 1)
    rig.tick(20)
    rig.apply(holding(json.dumps(THEIRS)), 100)
    rig.fault(SEPARATE, 200)
    replace_both(rig, 210, 2)
    rig.tick(300)
    await rig.run()
    seen = [json.loads(one)[DEMO_JOB] for one in rig.texts(PLACE, KEY)]
    assert [one["TotalRescheduleTimes"] for one in seen] == [8, 9]
    found = seen[-1]["RescheduleRecords"]
    assert [one["RescheduleTimeStamp"] for one in found] == [SECOND + 213, SECOND + 13, 1767175200]
    assert found[2] == THEIRS[DEMO_JOB]["RescheduleRecords"][0]  # type: ignore[index]
    told = [one.reason for one in rig.decisions if one.document == PLACE]
    assert told == [Reason.DOCUMENT_UNREADABLE, Reason.WRITTEN, Reason.WRITTEN]


async def test_the_total_goes_on_when_the_document_was_unreadable_and_after_it_was_lost() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(holding("{"), -10)
    rig.fault(SEPARATE, 1)
    replace_both(rig, 10, 1)
    rig.apply(holding(json.dumps(THEIRS)), 100)
    rig.tick(110)
    rig.delete("ConfigMap", "mindx-dl", "job-reschedule-reason", 150)
    rig.fault(SEPARATE, 200)
    replace_both(rig, 210, 2)
    rig.tick(300)
    await rig.run()
    found = json.loads((await rig.data(PLACE) or {})[KEY])[DEMO_JOB]
    assert found["TotalRescheduleTimes"] == 9


def test_the_total_never_grows_beyond_what_go_reads() -> None:
    theirs = JobRecords(DEMO_JOB, 2**63 - 1, (RescheduleRecord("", 1, ()),))
    assert merge_records(theirs, JobRecords(DEMO_JOB, 1, (RescheduleRecord("", 2, ()),))).total == 9223372036854775807


def test_records_of_a_clock_that_was_set_back_stand_newest_first_also_where_nobody_else_has_any() -> None:
    ours = JobRecords(DEMO_JOB, 2, (one_record(100), one_record(140)))
    newest = [record.timestamp for record in merge_records(None, ours).records]
    assert newest == sorted(newest, reverse=True)
    assert RecordsShown().merge(DEMO_JOB, ours, ours).records == merge_records(None, ours).records


def test_a_record_that_is_not_counted_yet_counts_once() -> None:
    theirs = JobRecords("a/b", 7, (one_record(5),))
    ours = JobRecords("a/b", 1, (one_record(9),))
    merged = merge_records(theirs, ours)
    assert (merged.total, [one.timestamp for one in merged.records]) == (8, [9, 5])
    assert merge_records(merged, ours) == merged
    # Ours is the older one and was dropped there: it had been counted.
    assert merge_records(replace(theirs, records=(one_record(12),)), ours).total == 7


# --- when there is no room


def one_record(second: int, pod: str = "p") -> RescheduleRecord:
    return RescheduleRecord("I0101 00:00:00", second, (TaskReason("CardUnhealthy", pod, "n1", "0"),))


def a_book(**jobs: JobRecords) -> ClusterBook:
    book = ClusterBook("solo", Limits())
    for records in jobs.values():
        job = JobId(records.job)
        book.ledgers[job] = JobLedger(job, "solo", records=records)
    return book


def publish(book: ClusterBook, live: ConfigMap) -> tuple[ConfigMap, str]:
    """One write, and what the book learns of it."""
    shown = RecordsShown()
    rendered = render_reschedule(book, live, shown)
    if rendered.data is None:
        assert rendered.reason is Reason.UNCHANGED
        return live, rendered.detail
    evolve(book, records_seen(book, shown.jobs))
    return replace(live, data={**live.data, **rendered.data}), rendered.detail


def test_what_was_dropped_stays_dropped_and_costs_others_nothing_more() -> None:
    theirs = {
        f"ns/{n:04}": JobRecords(f"ns/{n:04}", 3, tuple(one_record(9 - i, "x" * 99) for i in range(3)))
        for n in range(1120)
    }
    ours = JobRecords("us/job", 5, tuple(one_record(50 - i) for i in range(5)))
    book, text = a_book(ours=ours), encode_reschedule(theirs)
    assert len(text) == 976_641
    live, detail = publish(book, ConfigMap("mindx-dl", "job-reschedule-reason", {KEY: text}))
    found = json.loads(live.data[KEY])
    assert {len(found[job]["RescheduleRecords"]) for job in theirs} == {2}
    assert [one["RescheduleTimeStamp"] for one in found["us/job"]["RescheduleRecords"]] == [50, 49, 48, 47]
    assert detail == (
        "records of jobs: 1121; dropped to fit: 1121 oldest records of ns/0000, ns/0001, ns/0002 and 1118 more"
    )
    assert (found["us/job"]["TotalRescheduleTimes"], found["ns/0000"]["TotalRescheduleTimes"]) == (5, 3)
    again, detail = publish(book, live)
    assert again == live
    assert detail == "records of jobs: 1121"


def test_killed_before_the_ledger_knows_what_went_costs_at_most_one_pass_more() -> None:
    theirs = {
        f"ns/{n:04}": JobRecords(f"ns/{n:04}", 3, tuple(one_record(9 - i, "x" * 99) for i in range(3)))
        for n in range(1120)
    }
    ours = JobRecords("us/job", 5, tuple(one_record(50 - i) for i in range(5)))
    live = ConfigMap("mindx-dl", "job-reschedule-reason", {KEY: encode_reschedule(theirs)})
    written = render_reschedule(a_book(ours=ours), live, RecordsShown())
    assert written.data is not None
    after = replace(live, data=dict(written.data))
    book = a_book(ours=ours)  # as the ledger was
    again, _ = publish(book, after)
    counts = {name: len(one["RescheduleRecords"]) for name, one in json.loads(again.data[KEY]).items()}
    assert counts == dict.fromkeys(theirs, 2) | {"us/job": 5}  # there was room for all of ours after all
    assert publish(book, again)[0] == again


def test_a_whole_job_that_was_dropped_does_not_come_back_and_its_total_goes_on() -> None:
    theirs = {f"ns/{n:04}": JobRecords(f"ns/{n:04}", 1, (one_record(100 + n, "x" * 99),)) for n in range(3000)}
    book, text = a_book(ours=JobRecords("us/job", 5, (one_record(1),))), encode_reschedule(theirs)
    live, detail = publish(book, ConfigMap("mindx-dl", "job-reschedule-reason", {KEY: text}))
    found = json.loads(live.data[KEY])
    gone = 3001 - len(found)
    assert "us/job" not in found
    assert found["ns/2999"]["AdditionalInfo"] == f"{gone} older jobs dropped"
    assert detail.endswith(f"; dropped to fit: {gone} whole jobs: us/job, ns/0000, ns/0001 and {gone - 3} more")
    assert len(live.data[KEY]) <= 972_800
    assert publish(book, live)[0] == live
    assert book.ledgers[JobId("us/job")].records == JobRecords("us/job", 5)


@pytest.mark.parametrize("foreign", [999_990, 1_000_000, 1_040_000])
async def test_no_room_beside_the_keys_of_others_is_said_and_nothing_is_touched(foreign: int) -> None:
    rig = Rig(the_demo(LABELS))
    document = holding("", theirs="x" * foreign)
    rig.apply(document, 0)
    rig.fault(SEPARATE, 1)
    replace_both(rig, 10, 1)
    rig.tick(20)
    await rig.run()
    assert await rig.data(PLACE) == document["data"]
    told = [one for one in rig.decisions if one.document == PLACE]
    assert [one.reason for one in told] == [Reason.DOCUMENT_REFUSED]
    assert f"its other keys hold {foreign} bytes" in told[0].detail


async def test_a_record_that_had_no_room_is_written_once_there_is() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(holding("", theirs="x" * 1_000_000), 0)
    rig.fault(SEPARATE, 1)
    replace_both(rig, 10, 1)
    rig.apply(holding("", theirs="x"), 30)
    rig.tick(100)
    await rig.run()
    assert json.loads((await rig.data(PLACE) or {})[KEY])[DEMO_JOB]["TotalRescheduleTimes"] == 1


WORDS = st.text(st.sampled_from('ab/<&>节\u2028"\\'), min_size=1, max_size=6)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
MORE = st.dictionaries(WORDS.map(lambda word: f"x-{word}"), ANY, max_size=2)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """What another writer left: jobs with keys nobody here knows on every floor, `null` for lists here and there."""

    def task() -> dict[str, Any]:
        return {"RescheduleReason": draw(WORDS), "PodName": "p", "NodeName": "n", "NodeRankIndex": ""} | draw(MORE)

    def restart(second: int) -> dict[str, Any]:
        tasks = draw(st.sampled_from([None, [], [task()]]))
        return {"LogFileFormatTime": "", "RescheduleTimeStamp": second, "ReasonOfTask": tasks} | draw(MORE)

    def job(name: str) -> dict[str, Any]:
        seconds = sorted(draw(st.sets(st.integers(0, 40), max_size=4)), reverse=True)
        records = [restart(second) for second in seconds] or draw(st.sampled_from([None, []]))
        total = draw(st.integers(0, 2**62))
        return {"JobID": name, "TotalRescheduleTimes": total, "RescheduleRecords": records} | draw(MORE)

    return {name: job(name) for name in draw(st.sets(st.sampled_from(["a/b", "us/job", "c/<d>", "节/e"])))}


@settings(max_examples=60, deadline=None)
@given(documents(), st.dictionaries(WORDS.map(lambda word: f"k-{word}"), WORDS, max_size=2))
def test_the_merge_keeps_every_key_of_others_and_is_done_once(theirs: dict[str, Any], keys: dict[str, str]) -> None:
    book = a_book(ours=JobRecords("us/job", 2, (one_record(50), one_record(45))))
    live = ConfigMap("mindx-dl", "job-reschedule-reason", {KEY: json.dumps(theirs) if theirs else "", **keys})
    after, _ = publish(book, live)
    found = json.loads(after.data[KEY])
    assert {key: after.data[key] for key in keys} == keys
    assert set(found) == {*theirs, "us/job"}
    for name, one in theirs.items():
        if name != "us/job":
            assert found[name] == one
            continue
        kept = {key: value for key, value in one.items() if key not in ("TotalRescheduleTimes", "RescheduleRecords")}
        assert kept.items() <= found[name].items()
        assert found[name]["TotalRescheduleTimes"] == one["TotalRescheduleTimes"] + 2
        assert found[name]["RescheduleRecords"][2:] == (one["RescheduleRecords"] or [])
    assert publish(book, after)[0] == after


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 1_000_000), st.integers(0, 1200), st.integers(1, 3))
def test_all_keys_together_stay_within_the_budget(foreign: int, jobs: int, each: int) -> None:
    theirs = {
        f"ns/{n}": JobRecords(f"ns/{n}", each, tuple(one_record(9 - i, "x" * 200) for i in range(each)))
        for n in range(jobs)
    }
    data = {"theirs": "x" * foreign, KEY: encode_reschedule(theirs)}
    book = a_book(ours=JobRecords("us/job", 1, (one_record(50),)))
    rendered = render_reschedule(book, ConfigMap("mindx-dl", "job-reschedule-reason", data), RecordsShown())
    if rendered.data is None:
        assert (rendered.reason, foreign > 1_000_000 - 200) == (Reason.DOCUMENT_REFUSED, True)
        return
    text = rendered.data[KEY].encode()
    assert len(text) <= min(972_800, 1_000_000 - foreign)
    assert json.loads(text)["us/job"]["TotalRescheduleTimes"] == 1


# --- what one more record costs


class Counted(UserDict[str, str]):
    """Keys of another writer that know how often they were written out."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return super().__iter__()


def learn(book: ClusterBook, shown: RecordsShown) -> None:
    evolve(book, records_seen(book, shown.jobs, shown.news(book)))


def one_more(book: ClusterBook, job: JobId, second: int) -> None:
    ledger = book.ledgers[job]
    known = ledger.records or JobRecords(job)
    book.ledgers[job] = replace(ledger, records=add_record(known, one_record(second)))


@pytest.mark.parametrize("size", [99, 990], ids=["with room", "at its limit"])
def test_one_more_record_writes_out_its_own_job_and_no_other(size: int) -> None:
    marks = {f"ns/{n:04}": Counted(note="x" * size) for n in range(1200)}
    ours = {
        name.replace("/", "_"): JobRecords(name, 1, (one_record(n),), extra=marks[name]) for n, name in enumerate(marks)
    }
    book, shown = a_book(**ours), RecordsShown()
    first = render_reschedule(book, None, shown)
    assert first.data is not None
    learn(book, shown)
    assert (shown.dropped["jobs"] > 0) is (size == 990)
    before = {name: mark.times for name, mark in marks.items()}
    one_more(book, JobId("ns/1100"), 5000)
    again = render_reschedule(book, ConfigMap("mindx-dl", "job-reschedule-reason", first.data), shown)
    assert again.data is not None
    assert [name for name, mark in marks.items() if mark.times != before[name]] == ["ns/1100"]
    assert again.data[KEY] == encode_reschedule({str(job): one for job, one in shown.jobs.items()})


MOVES = st.lists(
    st.tuples(st.sampled_from(["record", "theirs", "lost", "spoilt", "full", "roomy"]), st.integers(0, 3)), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(MOVES)
def test_what_is_kept_between_writes_changes_nothing_of_what_is_written(moves: list[tuple[str, int]]) -> None:
    names = [f"ns/{n}" for n in range(4)]
    book = a_book(**{name.replace("/", "_"): JobRecords(name) for name in names})
    shown, live = RecordsShown(), ConfigMap("mindx-dl", "job-reschedule-reason", {})
    for second, (move, number) in enumerate(moves, start=100):
        if move == "record":
            one_more(book, JobId(names[number]), second)
        elif move == "theirs":
            records = JobRecords(names[number], number, (one_record(second, "x" * 300),), extra={"New": number})
            live = replace(live, data={**live.data, KEY: encode_reschedule({names[number]: records, "a/b": records})})
        elif move == "spoilt":
            live = replace(live, data={**live.data, KEY: "{" if number else ""})
        elif move in ("full", "roomy"):
            live = replace(live, data={**live.data, "theirs": "x" * (999_000 if move == "full" else 0)})
        fresh = RecordsShown()
        wanted, found = render_reschedule(book, live, fresh), render_reschedule(book, live, shown)
        assert found == wanted
        if found.data is None or move == "lost":
            continue  # nothing reached the document
        live = replace(live, data={**live.data, **found.data})
        assert (shown.jobs, shown.dropped) == (fresh.jobs, fresh.dropped)
        all_of_it = records_seen(book, fresh.jobs)
        assert records_seen(book, shown.jobs, shown.news(book)) == all_of_it
        evolve(book, all_of_it)
