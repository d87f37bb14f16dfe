"""Byte budgets, held against an obvious reference that serialises everything again for each step."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.faultnodes import FaultDevice, FaultNodeEntry
from agent.domain.reschedule import JobRecords, RescheduleRecord, TaskReason
from agent.domain.vocab import NodeName
from agent.wire.budget import budget_beside, data_bytes, trim_fault_nodes, trim_records
from agent.wire.documents import encode_fault_nodes, encode_reschedule


def record(timestamp: int, pod: str = "p") -> RescheduleRecord:
    return RescheduleRecord("I0101 00:00:00", timestamp, (TaskReason("pod-failed", pod, "n", "0"),))


def job(name: str, *stamps: int, pod: str = "p", info: str = "") -> JobRecords:
    return JobRecords(name, len(stamps), tuple(record(stamp, pod) for stamp in stamps), info)


def written(jobs: Mapping[str, JobRecords]) -> int:
    return len(encode_reschedule(jobs).encode())


def sized(jobs: dict[str, JobRecords], name: str, size: int) -> dict[str, JobRecords]:
    """The jobs with one pod name of `name` grown until the text has `size` bytes."""
    grown = "x" * (size - written(jobs))
    first = jobs[name].records[0]
    pods = (replace(first.tasks[0], pod=first.tasks[0].pod + grown),)
    return jobs | {name: replace(jobs[name], records=(replace(first, tasks=pods), *jobs[name].records[1:]))}


def reference(jobs: dict[str, JobRecords], limit: int) -> dict[str, JobRecords]:
    jobs = dict(jobs)
    while written(jobs) > limit and any(len(one.records) > 1 for one in jobs.values()):
        jobs = {
            name: replace(one, records=one.records[:-1]) if len(one.records) > 1 else one for name, one in jobs.items()
        }
    order = sorted(jobs, key=lambda name: (jobs[name].records[0].timestamp if jobs[name].records else -1, name))
    told = jobs
    for gone in range(1, len(order)):
        if written(told) <= limit:
            break
        told = {name: jobs[name] for name in order[gone:]}
        told[order[-1]] = replace(told[order[-1]], additional_info=f"{gone} older jobs dropped")
    return told


@pytest.mark.parametrize(
    ("size", "kept"), [(972_799, 2), (972_800, 2), (972_801, 1)], ids=["one under", "exact", "one over"]
)
def test_the_limit_is_exact(size: int, kept: int) -> None:
    jobs = sized({"ns/a": job("ns/a", 5, 4), "ns/b": job("ns/b", 3, 2)}, "ns/a", size)
    assert written(jobs) == size
    trimmed = trim_records(jobs)
    assert {name: len(one.records) for name, one in trimmed.jobs.items()} == {"ns/a": kept, "ns/b": kept}
    assert trimmed.dropped_records == ({} if kept == 2 else {"ns/a": 1, "ns/b": 1})
    assert (trimmed.size, trimmed.fits) == (written(trimmed.jobs), True)
    assert {one.total for one in trimmed.jobs.values()} == {2}


def test_bytes_are_counted_not_characters() -> None:
    jobs = {"ns/a": job("ns/a", 5, 4, pod="节点<" * 100)}
    assert trim_records(jobs, written(jobs)).dropped_records == {}
    assert trim_records(jobs, written(jobs) - 1).dropped_records == {"ns/a": 1}


def test_one_job_alone_is_never_dropped_and_says_that_it_does_not_fit() -> None:
    trimmed = trim_records({"ns/a": job("ns/a", 5)}, 10)
    assert (list(trimmed.jobs), trimmed.fits, trimmed.dropped_jobs) == (["ns/a"], False, ())


def test_five_thousand_jobs_with_one_record_lose_the_oldest_and_the_newest_says_how_many() -> None:
    jobs = {f"ns/job-{i:04}": job(f"ns/job-{i:04}", 1_000_000 + i) for i in range(5000)}
    trimmed = trim_records(jobs)
    gone = len(trimmed.dropped_jobs)
    assert trimmed.dropped_jobs == tuple(f"ns/job-{i:04}" for i in range(gone))
    assert trimmed.jobs["ns/job-4999"].additional_info == f"{gone} older jobs dropped"
    assert trimmed.size == written(trimmed.jobs) <= 972_800
    one_more = trimmed.jobs | {trimmed.dropped_jobs[-1]: jobs[trimmed.dropped_jobs[-1]]}
    assert written(one_more) > 972_800


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("4 older jobs dropped", "5 older jobs dropped"),
        ("by hand", "by hand; 1 older jobs dropped"),
        ("by hand; 2 older jobs dropped", "by hand; 3 older jobs dropped"),
    ],
)
def test_what_was_told_before_is_counted_in(before: str, after: str) -> None:
    jobs = {"a": job("a", 1, pod="x" * 200), "b": job("b", 2, info=before)}
    assert trim_records(jobs, written(jobs) - 100).jobs["b"].additional_info == after


@pytest.mark.parametrize("stamps", [(), (5,), (5, 4, 3)])
def test_a_list_that_was_null_and_keys_of_others_are_counted_as_they_are_written(stamps: tuple[int, ...]) -> None:
    one = replace(job("ns/a", *stamps), extra={"RescheduleRecords": None, "New": "<"})
    for limit in (10**6, 0):
        trimmed = trim_records({"ns/a": one}, limit)
        assert trimmed.size == written(trimmed.jobs)


def test_no_jobs_are_no_bytes() -> None:
    trimmed = trim_records({}, 0)
    assert (trimmed.jobs, trimmed.size, trimmed.fits) == ({}, 0, True)


JOBS = st.dictionaries(
    st.sampled_from(["ns/a", "ns/b<", "ns/节", 'ns/"d', "ns/e"]),
    st.tuples(st.lists(st.integers(0, 50), max_size=10), st.sampled_from(["p", "节点", "<&>"])),
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(JOBS, st.floats(0, 1.1))
def test_trimming_gives_what_the_slow_reference_gives(made: dict[str, tuple[list[int], str]], share: float) -> None:
    jobs = {name: job(name, *stamps, pod=pod) for name, (stamps, pod) in made.items()}
    limit = int(written(jobs) * share)
    trimmed = trim_records(jobs, limit)
    assert trimmed.jobs == reference(jobs, limit)
    assert trimmed.size == written(trimmed.jobs)
    assert trimmed.fits is (trimmed.size <= limit)
    assert set(trimmed.jobs) | set(trimmed.dropped_jobs) == set(jobs)


def node(name: str, *levels: str) -> FaultNodeEntry:
    devices = tuple(FaultDevice("CardUnhealthy", f"Ascend910-{i}", level, "80E18402") for i, level in enumerate(levels))
    return FaultNodeEntry(NodeName(name), "CardUnhealthy", devices, ("Ascend910-0",), None, update_time=1)


def nodes_bytes(entries: tuple[FaultNodeEntry, ...]) -> int:
    return len(encode_fault_nodes(entries).encode())


def test_the_mildest_device_detail_goes_first_wherever_it_is() -> None:
    nodes = (node("a", "SeparateNPU", "NotHandleFault"), node("b", "SubHealthFault", "NotHandleFault"))
    one = trim_fault_nodes(nodes, nodes_bytes(nodes) - 1)
    assert [[device.level for device in entry.devices or ()] for entry in one.entries] == [
        ["SeparateNPU", "NotHandleFault"],
        ["SubHealthFault"],
    ]
    assert (one.dropped, one.size, one.fits) == (1, nodes_bytes(one.entries), True)


def test_names_states_and_device_lists_are_never_cut() -> None:
    nodes = (node("a", "SeparateNPU"), node("b", "SeparateNPU", "RestartNPU"))
    bare = trim_fault_nodes(nodes, 0)
    assert bare.entries == tuple(replace(entry, devices=()) for entry in nodes)
    assert (bare.dropped, bare.fits, bare.size) == (3, False, nodes_bytes(bare.entries))


def test_what_fits_is_left_alone() -> None:
    nodes = (node("a", "SeparateNPU"),)
    assert trim_fault_nodes(nodes, nodes_bytes(nodes)).entries == nodes
    assert trim_fault_nodes((), 0).fits


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["SeparateNPU", "RestartNPU", "SubHealthFault"]), max_size=4), max_size=4))
def test_the_size_told_is_the_size_written(levels: list[list[str]]) -> None:
    nodes = tuple(node(f"n{i}", *found) for i, found in enumerate(levels))
    for limit in range(0, nodes_bytes(nodes) + 2, 97):
        trimmed = trim_fault_nodes(nodes, limit)
        assert trimmed.size == nodes_bytes(trimmed.entries)
        assert trimmed.fits is (trimmed.size <= limit)


def test_budgets_count_the_bytes_of_values_beside_ours() -> None:
    assert data_bytes({"a": "节", "b": "xy"}) == 5
    assert budget_beside({"other": "x" * 900_000}) == 100_000
    assert budget_beside({}, 972_800) == 972_800
    assert budget_beside({"other": "x" * 27_201}, 972_800) == 972_799
    assert budget_beside({"other": "x" * 1_000_001}) == 0
