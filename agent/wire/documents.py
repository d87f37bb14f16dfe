"""Codecs of the shared documents: `fault-node`, `remain-retry-times`, `recent-reschedule-records`.

The one rule: the bytes are those the field's own writers give for the same content, maps sorted by key; what another
writer left in a shape that breaks Go readers is a BadDocument, never a guess. `reset.json` is in `resetfile`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from agent.domain.faultnodes import FaultDevice, FaultNodeEntry, has_keys_of_others
from agent.domain.reschedule import JobRecords, RescheduleRecord, RetryTimes, TaskReason
from agent.domain.vocab import NodeName
from agent.errors import BadDocument
from agent.wire import gojson

FAULT_NODE: Final = "fault-node"

TEXTS_KEPT: Final = 16_384
"""Elements of `fault-node` whose text is kept: 300 bytes for one faulty device, 3 KiB for sixteen."""

_RETRY: Final = ("UUID", "Times")
_NODE: Final = (
    "FaultDeviceList",
    "NodeName",
    "UnhealthyNPU",
    "NetworkUnhealthyNPU",
    "NodeDEnable",
    "NodeHealthState",
    "UpdateTime",
)
_BESIDE_BARE: Final = tuple(name for name in _NODE if name not in ("NodeName", "NodeHealthState"))
_DEVICE: Final = ("fault_type", "npu_name", "fault_level", "fault_code")
_LEVELS: Final = ("fault_handling", "large_model_fault_level")
"""Always equal to fault_level with the field's own writers (proto.go:228)."""
_ALL_OF_DEVICE: Final = (*_DEVICE, *_LEVELS)
_JOB: Final = ("JobID", "TotalRescheduleTimes", "RescheduleRecords", "AdditionalInfo")
_RECORD: Final = ("LogFileFormatTime", "RescheduleTimeStamp", "ReasonOfTask")
_TASK: Final = ("RescheduleReason", "PodName", "NodeName", "NodeRankIndex")


def encode_fault_nodes(entries: Iterable[FaultNodeEntry]) -> str:
    """The `fault-node` text: elements by NodeName; the empty text when no node is faulty (cache.go:141)."""
    ordered = sorted(entries, key=lambda entry: entry.node)
    return f"[{','.join(map(fault_node_text, ordered))}]" if ordered else ""


def fault_node_text(entry: FaultNodeEntry) -> str:
    """One element as it stands in the text; kept for our own entries, for of a thousand nodes a write changes few."""
    if has_keys_of_others(entry):
        # What others wrote may be equal and differ in its bytes, as 1 and 1.0 do.
        return gojson.encode(fault_node_object(entry))
    return _kept_text(entry)


@lru_cache(maxsize=TEXTS_KEPT)
def _kept_text(entry: FaultNodeEntry) -> str:
    return gojson.encode(fault_node_object(entry))


def fault_node_object(entry: FaultNodeEntry) -> dict[str, Any]:
    """One element in key order (volcano rescheduling type.go:189, with NodeDEnable as the documentation has it)."""
    if entry.bare:
        return {"NodeName": entry.node, "NodeHealthState": entry.health, **entry.extra}
    return {
        "FaultDeviceList": None if entry.devices is None else [fault_device_object(one) for one in entry.devices],
        "NodeName": entry.node,
        "UnhealthyNPU": None if entry.unhealthy is None else list(entry.unhealthy),
        "NetworkUnhealthyNPU": None if entry.network_unhealthy is None else list(entry.network_unhealthy),
        "NodeDEnable": entry.node_d_enabled,
        "NodeHealthState": entry.health,
        "UpdateTime": entry.update_time,
        **entry.extra,
    }


def fault_device_object(device: FaultDevice) -> dict[str, Any]:
    """One element of FaultDeviceList (type.go:289); the three levels are equal unless another writer had it so."""
    return {
        "fault_type": device.fault_type,
        "npu_name": device.npu_name,
        "fault_level": device.level,
        "fault_handling": device.level,
        "large_model_fault_level": device.level,
        "fault_code": device.fault_code,
        **device.differing,
        **device.extra,
    }


def decode_fault_nodes(text: str) -> tuple[FaultNodeEntry, ...]:
    """Read a `fault-node` text, empty for none. Raises BadDocument."""
    if not text.strip():
        return ()
    value = gojson.decode(gojson.not_more(text))
    items = gojson.list_of({"fault-node": value}, "fault-node", "") or []
    return tuple(_fault_node(item, f"/{i}") for i, item in enumerate(items))


def _fault_node(value: Any, place: str) -> FaultNodeEntry:
    obj, extra = gojson.named(gojson.as_object(value, place), _NODE)
    devices = gojson.list_of(obj, "FaultDeviceList", place)
    at = gojson.pointer(place, "FaultDeviceList")
    return FaultNodeEntry(
        node=NodeName(gojson.text_of(obj, "NodeName", place)),
        health=gojson.text_of(obj, "NodeHealthState", place),
        devices=None if devices is None else tuple(_fault_device(one, f"{at}/{i}") for i, one in enumerate(devices)),
        unhealthy=_strings(obj, "UnhealthyNPU", place),
        network_unhealthy=_strings(obj, "NetworkUnhealthyNPU", place),
        node_d_enabled=gojson.bool_of(obj, "NodeDEnable", place),
        update_time=gojson.int_of(obj, "UpdateTime", place),
        bare=not any(gojson.has(obj, name) for name in _BESIDE_BARE),
        extra=extra,
    )


def _fault_device(value: Any, place: str) -> FaultDevice:
    obj, extra = gojson.named(gojson.as_object(value, place), _ALL_OF_DEVICE)
    level = gojson.text_of(obj, "fault_level", place)
    return FaultDevice(
        fault_type=gojson.text_of(obj, "fault_type", place),
        npu_name=gojson.text_of(obj, "npu_name", place),
        level=level,
        fault_code=gojson.text_of(obj, "fault_code", place),
        differing={name: obj[name] for name in _LEVELS if name in obj and obj[name] != level},
        extra=extra,
    )


def _strings(obj: Mapping[str, Any], name: str, place: str) -> tuple[str, ...] | None:
    found = gojson.list_of(obj, name, place)
    if found is None or all(type(value) is str for value in found):
        return None if found is None else tuple(found)
    return tuple(gojson.text_of({"": value}, "", f"{place}/{name}/{i}") for i, value in enumerate(found))


def encode_retry_times(left: Mapping[str, RetryTimes]) -> str:
    """The `remain-retry-times` text: job -> UUID and Times, always valid JSON.

    Never the empty text, though other writers leave it: ascend-operator would fail every waiting job
    (unconditaional_retry.go:40).
    """
    return gojson.encode({job: {"UUID": one.uid, "Times": one.times, **one.extra} for job, one in sorted(left.items())})


def decode_retry_times(text: str) -> tuple[dict[str, RetryTimes], tuple[BadDocument, ...]]:
    """Read `remain-retry-times`, empty for none: the entries that are right, and what is wrong with the others.

    One wrong type breaks the whole map for Go readers, so a wrong entry cannot stay; neither can a null one, which they
    dereference. Raises BadDocument when it is no object at all.
    """
    if not text.strip():
        return {}, ()
    found: dict[str, RetryTimes] = {}
    wrong: list[BadDocument] = []
    for job, value in gojson.decode_object(text).items():
        place = gojson.pointer("", job)
        try:
            obj, extra = gojson.named(gojson.as_object(value, place), _RETRY)
            uid, times = gojson.text_of(obj, "UUID", place), gojson.int_of(obj, "Times", place)
        except BadDocument as error:
            wrong.append(error)
        else:
            found[job] = RetryTimes(uid, times, extra)
    return found, tuple(wrong)


def encode_reschedule(jobs: Mapping[str, JobRecords]) -> str:
    """The `recent-reschedule-records` text, or the empty text for no job (cache.go:183). See `budget` for its limit."""
    return gojson.encode({job: job_object(one) for job, one in sorted(jobs.items())}) if jobs else ""


@dataclass(slots=True)
class _JobText:
    """A job as it stands in the text, and how long that is in bytes."""

    job: JobRecords
    text: str
    size: int
    records: tuple[int, ...] = ()
    """Bytes of each record, once they were asked for."""


class RecordTexts:
    """The text of `recent-reschedule-records`, each job of it written out once for as long as its records stay the same
    object: of thousands of jobs one more restart concerns one.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _JobText] = {}

    def text(self, jobs: Mapping[str, JobRecords]) -> str:
        """As `encode_reschedule` gives it. Jobs that are not among these are forgotten."""
        members = [self._of(job, one) for job, one in sorted(jobs.items())]
        if len(self._kept) > len(jobs):
            self._kept = {job: self._kept[job] for job in jobs}
        return f"{{{','.join(one.text for one in members)}}}" if jobs else ""

    def size(self, job: str, one: JobRecords) -> int:
        """Bytes of one job's member of the object, without the comma between jobs."""
        return self._of(job, one).size

    def record_sizes(self, job: str, one: JobRecords) -> tuple[int, ...]:
        """Bytes of each of its records."""
        found = self._of(job, one)
        if len(found.records) != len(one.records):
            found.records = tuple(gojson.size(record_object(record)) for record in one.records)
        return found.records

    def _of(self, job: str, one: JobRecords) -> _JobText:
        found = self._kept.get(job)
        if found is None or found.job is not one:
            text = f"{gojson.encode(job)}:{gojson.encode(job_object(one))}"
            found = self._kept[job] = _JobText(one, text, len(text.encode()))
        return found


def job_object(job: JobRecords) -> dict[str, Any]:
    """One job in key order (type.go:206); AdditionalInfo only when there is something to say."""
    obj: dict[str, Any] = {
        "JobID": job.job,
        "TotalRescheduleTimes": job.total,
        "RescheduleRecords": [record_object(record) for record in job.records],
    }
    if job.additional_info:
        obj["AdditionalInfo"] = job.additional_info
    return obj | _beside(job.extra, obj)


def record_object(record: RescheduleRecord) -> dict[str, Any]:
    """One record in key order (type.go:219, 229)."""
    obj: dict[str, Any] = {
        "LogFileFormatTime": record.log_time,
        "RescheduleTimeStamp": record.timestamp,
        "ReasonOfTask": [
            {
                "RescheduleReason": task.reason,
                "PodName": task.pod,
                "NodeName": task.node,
                "NodeRankIndex": task.rank_index,
                **task.extra,
            }
            for task in record.tasks
        ],
    }
    return obj | _beside(record.extra, obj)


def _beside(extra: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """What goes beside the known keys; a `null` that was read stands for an empty list as long as that is empty."""
    return {name: value for name, value in extra.items() if name not in known or not known[name]}


def _kept(known: gojson.Named, extra: dict[str, Any], listed: str) -> dict[str, Any]:
    """The keys nobody here knows, and the list if it is `null`."""
    return {listed: None} | extra if listed in known and known[listed] is None else extra


def decode_reschedule(text: str) -> dict[str, JobRecords]:
    """Read `recent-reschedule-records`, empty for none; null lists are empty ones and come out as null again.

    Raises BadDocument.
    """
    if not text.strip():
        return {}
    found: dict[str, JobRecords] = {}
    for job, value in gojson.decode_object(gojson.not_more(text)).items():
        if value is not None:
            one = _job(value, gojson.pointer("", job))
            found[job] = one if one.job else replace(one, job=job)
    return found


def _job(value: Any, place: str) -> JobRecords:
    obj, extra = gojson.named(gojson.as_object(value, place), _JOB)
    records = gojson.list_of(obj, "RescheduleRecords", place) or []
    return JobRecords(
        job=gojson.text_of(obj, "JobID", place),
        total=gojson.int_of(obj, "TotalRescheduleTimes", place),
        records=tuple(_record(one, f"{place}/RescheduleRecords/{i}") for i, one in enumerate(records)),
        additional_info=gojson.text_of(obj, "AdditionalInfo", place),
        extra=_kept(obj, extra, "RescheduleRecords"),
    )


def _record(value: Any, place: str) -> RescheduleRecord:
    obj, extra = gojson.named(gojson.as_object(value, place), _RECORD)
    tasks = gojson.list_of(obj, "ReasonOfTask", place) or []
    return RescheduleRecord(
        log_time=gojson.text_of(obj, "LogFileFormatTime", place),
        timestamp=gojson.int_of(obj, "RescheduleTimeStamp", place),
        tasks=tuple(_task(one, f"{place}/ReasonOfTask/{i}") for i, one in enumerate(tasks)),
        extra=_kept(obj, extra, "ReasonOfTask"),
    )


def _task(value: Any, place: str) -> TaskReason:
    obj, extra = gojson.named(gojson.as_object(value, place), _TASK)
    return TaskReason(
        reason=gojson.text_of(obj, "RescheduleReason", place),
        pod=gojson.text_of(obj, "PodName", place),
        node=gojson.text_of(obj, "NodeName", place),
        rank_index=gojson.text_of(obj, "NodeRankIndex", place),
        extra=extra,
    )
