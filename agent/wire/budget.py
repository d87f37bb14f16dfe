"""Byte budgets of the shared documents, far enough under the API server's 1,048,576 bytes of data.

The one rule: the oldest and the mildest goes first, what went is told, and each element is measured once.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from agent.domain.faultnodes import LOSS, FaultDevice, FaultNodeEntry, has_keys_of_others
from agent.domain.reschedule import JobRecords
from agent.domain.vocab import CHIP_LEVELS
from agent.wire import gojson
from agent.wire.documents import (
    TEXTS_KEPT,
    RecordTexts,
    fault_device_object,
    fault_node_object,
    job_object,
)

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
    """False when there is no room even for the job with the newest record alone."""


def trim_records(
    jobs: Mapping[str, JobRecords], limit: int = RECORDS_LIMIT, texts: RecordTexts | None = None
) -> TrimmedRecords:
    """Cut the records to `limit` bytes of text (volcano rescheduling cache.go:182).

    In passes every job that has several records loses its oldest one, until it fits; totals stay. Where that
    component would give up, with one record each, whole jobs go: first those that are longer than the limit by
    themselves, then the one whose newest record is oldest, and so on; AdditionalInfo of the job with the newest record
    says how many. A job of which nothing went is the same object. `texts` measures what it has not measured before.
    """
    kept, texts = dict(jobs), texts or RecordTexts()
    sizes = {job: texts.size(job, one) for job, one in kept.items()}
    total = sum(sizes.values()) + max(len(sizes) - 1, 0) + 2 if kept else 0
    if total <= limit:
        return TrimmedRecords(kept, {}, (), total, True)
    left = {job: len(one.records) for job, one in kept.items() if len(one.records) > 1}
    records = {job: texts.record_sizes(job, kept[job]) for job in left}
    several = list(left)
    while total > limit and several:
        for job in several:
            left[job] -= 1
            gone = records[job][left[job]] + 1
            sizes[job] -= gone
            total -= gone
        several = [job for job in several if left[job] > 1]
    cut = {job: len(kept[job].records) - count for job, count in left.items() if count < len(kept[job].records)}
    for job in cut:
        kept[job] = replace(kept[job], records=kept[job].records[: left[job]])
    gone_jobs: tuple[str, ...] = ()
    if total > limit:
        total, gone_jobs = _drop_jobs(kept, sizes, total, limit)
    dropped = {job: count for job, count in cut.items() if job in kept}
    return TrimmedRecords(kept, dropped, gone_jobs, total, total <= limit)


def _drop_jobs(
    kept: dict[str, JobRecords], sizes: dict[str, int], total: int, limit: int
) -> tuple[int, tuple[str, ...]]:
    """Take whole jobs out of `kept` and say so; gives the new size and the jobs that went, in that order."""

    def place(job: str) -> tuple[bool, int, str]:
        records = kept[job].records
        return sizes[job] + 2 <= limit, records[0].timestamp if records else -1, job

    order = sorted(kept, key=place)
    teller = order[-1]
    before = _info_size(kept[teller])
    gone = counted = grown = 0
    told = kept[teller]
    while total + grown > limit and gone < len(order) - 1:
        total -= sizes[order[gone]] + 1
        counted += 1 + _told(kept[order[gone]])
        gone += 1
        told = _telling(kept[teller], counted)
        grown = _info_size(told) - before
    if total <= limit < total + grown:
        grown = 0  # rather the record than the word about others
    else:
        kept[teller] = told
    for job in order[:gone]:
        del kept[job]
    return total + grown, tuple(order[:gone])


def _info_size(job: JobRecords) -> int:
    """Bytes of a job's AdditionalInfo with its key, measured apart from records that may be long."""
    return gojson.size(job_object(replace(job, records=(), extra={})))


def _told(job: JobRecords) -> int:
    """How many older ones the job says were dropped."""
    before = _TOLD.search(job.additional_info)
    return int(before[1]) if before is not None else 0


def _telling(job: JobRecords, gone: int) -> JobRecords:
    """The job saying that so many older ones are gone, counting those it told of before."""
    told = f"{_told(job) + gone} older jobs dropped"
    if _TOLD.search(job.additional_info):
        return replace(job, additional_info=_TOLD.sub(told, job.additional_info, count=1))
    return replace(job, additional_info=f"{job.additional_info}; {told}" if job.additional_info else told)


@dataclass(frozen=True, slots=True)
class TrimmedNodes:
    """What fits of `fault-node`."""

    entries: tuple[FaultNodeEntry, ...]
    dropped: int
    """Device elements left out, over all nodes."""
    bare: int
    """Nodes of which name and state alone are told."""
    left_out: int
    """Nodes that are not told at all, since there is no room for all names and states."""
    size: int
    """Bytes of the text."""


def trim_fault_nodes(entries: Iterable[FaultNodeEntry], limit: int = DATA_LIMIT) -> TrimmedNodes:
    """Cut `fault-node` to `limit` bytes: device elements of the mildest level first, whatever their node; then nodes
    of the mildest state keep their name and state alone; only where not even those have room a node is left out.

    Among equals those late in the alphabet go first.
    """
    nodes = sorted(entries, key=lambda entry: entry.node)
    measured = [_measured(node) for node in nodes]
    smallest = sum(body for body, _ in measured) + max(len(nodes) - 1, 0) + 2
    total = smallest + sum(sum(sizes) + max(len(sizes) - 1, 0) for _, sizes in measured)
    if total <= limit:
        return TrimmedNodes(tuple(nodes), 0, 0, 0, total)
    if smallest > limit:
        return _cut_nodes(nodes, [body for body, _ in measured], smallest, limit)
    total, cut = _cut_devices(nodes, [sizes for _, sizes in measured], total, limit)
    return TrimmedNodes(tuple(_without(node, n, cut) for n, node in enumerate(nodes)), len(cut), 0, 0, total)


def _measured(node: FaultNodeEntry) -> tuple[int, tuple[int, ...]]:
    """Bytes of the element without its devices, and of each of these."""
    return _measure(node) if has_keys_of_others(node) else _kept_measure(node)


def _measure(node: FaultNodeEntry) -> tuple[int, tuple[int, ...]]:
    return gojson.size(fault_node_object(_without_devices(node))), tuple(map(_device_size, node.devices or ()))


_kept_measure = lru_cache(maxsize=TEXTS_KEPT)(_measure)


def _cut_devices(
    nodes: Sequence[FaultNodeEntry], sizes: Sequence[Sequence[int]], total: int, limit: int
) -> tuple[int, set[tuple[int, int]]]:
    """The size, and which device elements (node, device) went."""
    left = [len(found) for found in sizes]
    elements = sorted(
        (CHIP_LEVELS.get(device.level, 0), -n, -d)
        for n, node in enumerate(nodes)
        for d, device in enumerate(node.devices or ())
    )
    cut: set[tuple[int, int]] = set()
    for _, n, d in elements:
        if total <= limit:
            break
        total -= sizes[-n][-d] + (1 if left[-n] > 1 else 0)
        left[-n] -= 1
        cut.add((-n, -d))
    return total, cut


def _cut_nodes(nodes: Sequence[FaultNodeEntry], bodies: Sequence[int], total: int, limit: int) -> TrimmedNodes:
    """No device element has room: some nodes, or all, keep name and state alone."""
    mildest = sorted(range(len(nodes)), key=lambda n: (LOSS.get(nodes[n].health, 0), -n))
    bare: dict[int, tuple[FaultNodeEntry, int]] = {}
    for n in mildest:
        if total <= limit:
            break
        short = _bare(nodes[n])
        bare[n] = short, gojson.size(fault_node_object(short)) if short.extra else _kept_bare_size(short)
        total -= bodies[n] - bare[n][1]
    left_out: set[int] = set()
    for n in mildest:
        if total <= limit:
            break
        left_out.add(n)
        total -= bare[n][1] + (1 if len(left_out) < len(nodes) else 0)
    told = (bare[n][0] if n in bare else _without_devices(node) for n, node in enumerate(nodes) if n not in left_out)
    dropped = sum(len(node.devices or ()) for node in nodes)
    return TrimmedNodes(tuple(told), dropped, len(bare) - len(left_out), len(left_out), total)


@lru_cache(maxsize=TEXTS_KEPT)
def _kept_bare_size(short: FaultNodeEntry) -> int:
    return gojson.size(fault_node_object(short))


def _device_size(device: FaultDevice) -> int:
    plain = not device.extra and not device.differing
    return _kept_device_size(device) if plain else gojson.size(fault_device_object(device))


@lru_cache(maxsize=4096)
def _kept_device_size(device: FaultDevice) -> int:
    """The same names, levels and codes stand on many nodes."""
    return gojson.size(fault_device_object(device))


def _without(node: FaultNodeEntry, n: int, cut: set[tuple[int, int]]) -> FaultNodeEntry:
    if node.devices is None or not cut:
        return node
    return replace(node, devices=tuple(device for d, device in enumerate(node.devices) if (n, d) not in cut))


def _without_devices(node: FaultNodeEntry) -> FaultNodeEntry:
    return replace(node, devices=()) if node.devices else node


def _bare(node: FaultNodeEntry) -> FaultNodeEntry:
    return FaultNodeEntry(node.node, node.health, bare=True, extra=node.extra)
