"""Byte budgets of the shared documents, far enough under the API server's 1,048,576 bytes of data.

The one rule: the oldest and the mildest goes first, what went is told, and each element is measured once.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from agent.domain.faultnodes import FaultDevice, FaultNodeEntry
from agent.domain.reschedule import JobRecords
from agent.domain.vocab import CHIP_LEVELS
from agent.wire import gojson
from agent.wire.documents import fault_device_object, fault_node_text, job_object, record_object

RECORDS_LIMIT: Final = 950 * 1024
"""Bytes of `recent-reschedule-records` (volcano rescheduling type.go:78)."""
DATA_LIMIT: Final = 1_000_000
"""Bytes over all data keys of a ConfigMap that we let it have."""

_TOLD: Final = re.compile(r"(\d{1,9}) older jobs dropped")


def data_bytes(data: Mapping[str, str]) -> int:
    """Bytes of all values, which is what the API server counts against its limit."""
    return sum(len(gojson.whole(value).encode()) for value in data.values())


def budget_beside(foreign: Mapping[str, str], limit: int = DATA_LIMIT) -> int:
    """Bytes left for our keys beside the data keys of others; never negative. Cap with RECORDS_LIMIT for records."""
    return max(0, min(limit, DATA_LIMIT - data_bytes(foreign)))


@dataclass(frozen=True, slots=True)
class TrimmedRecords:
    """What fits of the records, and what went."""

    jobs: dict[str, JobRecords]
    dropped_records: Mapping[str, int]
    """Job -> how many of its oldest records went; jobs that went whole are not here."""
    dropped_jobs: tuple[str, ...]
    """Oldest first."""
    size: int
    """Bytes of the text."""
    fits: bool
    """False only when one last job alone is longer than the limit."""


def trim_records(jobs: Mapping[str, JobRecords], limit: int = RECORDS_LIMIT) -> TrimmedRecords:
    """Cut the records to `limit` bytes of text (volcano rescheduling cache.go:182).

    In passes every job that has several records loses its oldest one, until it fits; totals stay. Where that
    component would give up, with one record each, whole jobs go, the one whose newest record is oldest first, and
    AdditionalInfo of the job with the newest record says how many.
    """
    kept = dict(jobs)
    records = {job: [gojson.size(record_object(one)) for one in entry.records] for job, entry in kept.items()}
    sizes = {job: _member(job, entry, records[job]) for job, entry in kept.items()}
    total = sum(sizes.values()) + len(sizes) + 1 if sizes else 0
    left = {job: len(found) for job, found in records.items()}
    several = [job for job, count in left.items() if count > 1]
    while total > limit and several:
        for job in several:
            left[job] -= 1
            gone = records[job][left[job]] + 1
            sizes[job] -= gone
            total -= gone
        several = [job for job in several if left[job] > 1]
    for job, count in left.items():
        kept[job] = replace(kept[job], records=kept[job].records[:count])
    gone_jobs: tuple[str, ...] = ()
    if total > limit:
        total, gone_jobs = _drop_jobs(kept, sizes, total, limit)
    dropped = {job: len(found) - left[job] for job, found in records.items() if job in kept and len(found) > left[job]}
    return TrimmedRecords(kept, dropped, gone_jobs, total, total <= limit)


def _member(job: str, entry: JobRecords, records: list[int]) -> int:
    """Bytes of `"job":{…}` from the sizes of its records, without the comma between jobs."""
    first = gojson.size(job_object(replace(entry, records=entry.records[:1])))
    return gojson.size(job) + 1 + first + sum(records[1:]) + max(0, len(records) - 1)


def _drop_jobs(
    kept: dict[str, JobRecords], sizes: dict[str, int], total: int, limit: int
) -> tuple[int, tuple[str, ...]]:
    """Take whole jobs out of `kept`, oldest first, and say so; gives the new size and the jobs that went."""
    order = sorted(kept, key=lambda job: (kept[job].records[0].timestamp if kept[job].records else -1, job))
    teller = order[-1]
    before = gojson.size(job_object(kept[teller]))
    gone = 0
    told = kept[teller]
    grown = 0
    while total + grown > limit and gone < len(order) - 1:
        total -= sizes[order[gone]] + 1
        gone += 1
        told = _telling(kept[teller], gone)
        grown = gojson.size(job_object(told)) - before
    kept[teller] = told
    for job in order[:gone]:
        del kept[job]
    return total + grown, tuple(order[:gone])


def _telling(job: JobRecords, gone: int) -> JobRecords:
    """The job saying that so many older ones are gone, counting those it told of before."""
    before = _TOLD.search(job.additional_info)
    if before is not None:
        told = f"{int(before[1]) + gone} older jobs dropped"
        return replace(job, additional_info=_TOLD.sub(told, job.additional_info, count=1))
    told = f"{gone} older jobs dropped"
    return replace(job, additional_info=f"{job.additional_info}; {told}" if job.additional_info else told)


@dataclass(frozen=True, slots=True)
class TrimmedNodes:
    """What fits of `fault-node`. Names and states of nodes are never cut."""

    entries: tuple[FaultNodeEntry, ...]
    dropped: int
    """Device elements left out, over all nodes."""
    size: int
    fits: bool
    """False when the nodes' names and states alone are longer than the limit."""


def trim_fault_nodes(entries: Iterable[FaultNodeEntry], limit: int = DATA_LIMIT) -> TrimmedNodes:
    """Cut `fault-node` to `limit` bytes: device elements of the mildest level first, whatever their node.

    Within a level nodes late in the alphabet lose theirs first. NodeName, the two device lists, state and times stay.
    """
    nodes = sorted(entries, key=lambda entry: entry.node)
    total = sum(len(fault_node_text(node).encode()) for node in nodes) + len(nodes) + 1 if nodes else 0
    if total <= limit:
        return TrimmedNodes(tuple(nodes), 0, total, True)
    left = [len(node.devices or ()) for node in nodes]
    elements = [
        (CHIP_LEVELS.get(device.level, 0), -n, -d)
        for n, node in enumerate(nodes)
        for d, device in enumerate(node.devices or ())
    ]
    cut: set[tuple[int, int]] = set()
    for _, n, d in sorted(elements):
        if total <= limit:
            break
        devices: tuple[FaultDevice, ...] = nodes[-n].devices or ()
        total -= gojson.size(fault_device_object(devices[-d])) + (1 if left[-n] > 1 else 0)
        left[-n] -= 1
        cut.add((-n, -d))
    kept = tuple(_without(node, n, cut) for n, node in enumerate(nodes))
    return TrimmedNodes(kept, len(cut), total, total <= limit)


def _without(node: FaultNodeEntry, n: int, cut: set[tuple[int, int]]) -> FaultNodeEntry:
    if node.devices is None or not cut:
        return node
    return replace(node, devices=tuple(device for d, device in enumerate(node.devices) if (n, d) not in cut))
