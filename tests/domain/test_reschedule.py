"""Records of restarts and the retries that are left."""

from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

from agent.domain.reschedule import (
    JobRecords,
    RescheduleReason,
    RescheduleRecord,
    TaskReason,
    add_record,
    log_file_format_time,
    record_of,
)
from agent.domain.vocab import Millis


def test_the_log_time_is_that_of_the_zone() -> None:
    at = Millis(1757302570999)
    assert log_file_format_time(at, timezone(timedelta(hours=8))) == "I0908 11:36:10"
    assert log_file_format_time(at, UTC) == "I0908 03:36:10"
    assert log_file_format_time(Millis(1767225599000), ZoneInfo("Etc/UTC")) == "I1231 23:59:59"


def test_reasons_are_the_words_of_the_field() -> None:
    assert list(RescheduleReason) == [
        "NodeUnhealthy",
        "CardUnhealthy",
        "pod-failed",
        "RelationFaultSeparate",
        "SubHealthFault",
        "process-exception",
    ]


def test_a_new_record_comes_first_counts_and_the_eleventh_goes() -> None:
    job = JobRecords("ns/j")
    for number in range(12):
        job = add_record(job, record_of(Millis(number * 1000), UTC, [TaskReason("pod-failed", "p", "n", "0")]))
    assert job.total == 12
    assert [record.timestamp for record in job.records] == [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]


def test_a_total_that_go_could_not_hold_is_never_reached() -> None:
    record = RescheduleRecord("", 0, ())
    assert add_record(JobRecords("ns/j", 2**63 - 2), record).total == 9223372036854775807
    assert add_record(JobRecords("ns/j", 2**63 - 1), record).total == 9223372036854775807


def test_a_record_names_at_most_ten_pods() -> None:
    tasks = tuple(TaskReason("CardUnhealthy", f"p{i}", "n", str(i)) for i in range(12))
    assert [task.pod for task in record_of(Millis(0), UTC, tasks).tasks] == [f"p{i}" for i in range(10)]
    job = add_record(JobRecords("ns/j"), RescheduleRecord("", 0, tasks))
    assert len(job.records[0].tasks) == 10
