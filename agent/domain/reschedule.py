"""Reschedule records and remaining retries of jobs: what happened to which pods, and how many tries are left.

The one rule: newest first, at most ten records a job and ten pods a record; the total only counts up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from enum import StrEnum
from typing import Any, Final

from agent.domain.vocab import SECOND, Millis

MAX_RECORDS: Final = 10
"""Records kept per job (volcano rescheduling type.go:76)."""
MAX_TASKS: Final = 10
"""Pods named per record; more are left out (reschedule.go:657)."""
MAX_TOTAL: Final = 2**63 - 1
"""Go's readers refuse the whole document for one number beyond it."""


class RescheduleReason(StrEnum):
    """Why a pod had to be replaced (volcano rescheduling reschedule.go:1006)."""

    NODE_UNHEALTHY = "NodeUnhealthy"
    CARD_UNHEALTHY = "CardUnhealthy"
    POD_FAILED = "pod-failed"
    RELATION_FAULT_SEPARATE = "RelationFaultSeparate"
    SUB_HEALTH_FAULT = "SubHealthFault"
    PROCESS_EXCEPTION = "process-exception"


@dataclass(frozen=True, slots=True)
class TaskReason:
    """One pod of a record. `reason` is a RescheduleReason, or whatever an older writer put there."""

    reason: str
    pod: str
    node: str
    rank_index: str = ""
    """The pod's `hccl/rankIndex`, or empty."""
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Keys nobody here knows, kept as read."""


@dataclass(frozen=True, slots=True)
class RescheduleRecord:
    """One restart of a job. `log_time` as Go logs print it, `timestamp` in Unix seconds."""

    log_time: str
    timestamp: int
    tasks: tuple[TaskReason, ...]
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Keys nobody here knows, and ReasonOfTask where it was `null`, kept as read."""


@dataclass(frozen=True, slots=True)
class JobRecords:
    """What is known of one job's restarts; `total` counts also those whose record is gone."""

    job: str
    total: int = 0
    records: tuple[RescheduleRecord, ...] = ()
    additional_info: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys nobody here knows, and RescheduleRecords where it was `null`, kept as read."""


@dataclass(frozen=True, slots=True)
class RetryTimes:
    """Remaining unconditional retries of a job. `uid` is that of the PodGroup's first owner."""

    uid: str
    times: int
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Keys nobody here knows, kept as read."""


def log_file_format_time(at: Millis, zone: tzinfo) -> str:
    """`I0102 15:04:05` in the given zone: month, day, time, no year (reschedule.go:644). `at` in Unix ms."""
    return datetime.fromtimestamp(at // SECOND, zone).strftime("I%m%d %H:%M:%S")


def record_of(at: Millis, zone: tzinfo, tasks: Iterable[TaskReason]) -> RescheduleRecord:
    """The record of a restart carried out at `at` (Unix ms), cut to ten pods in the order given."""
    return RescheduleRecord(log_file_format_time(at, zone), at // SECOND, tuple(tasks)[:MAX_TASKS])


def add_record(job: JobRecords, record: RescheduleRecord) -> JobRecords:
    """The job with the record in front, one more in total, the list cut to ten (reschedule.go:627)."""
    cut = replace(record, tasks=record.tasks[:MAX_TASKS])
    return replace(job, total=min(job.total + 1, MAX_TOTAL), records=(cut, *job.records)[:MAX_RECORDS])
