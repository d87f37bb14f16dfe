"""Byte budgets, held against an obvious reference that serialises everything again for each step."""

from collections import UserDict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.faultnodes import FaultDevice, FaultNodeEntry
from agent.domain.reschedule import JobRecords, RescheduleRecord, TaskReason
from agent.domain.vocab import MANUAL, NodeName
from agent.wire.budget import budget_beside, data_bytes, trim_fault_nodes, trim_records
from agent.wire.documents import (
    RecordTexts,
    decode_fault_nodes,
    encode_fault_nodes,
    encode_reschedule,
    fault_node_text,
)


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
    alone = {name: written({name: one}) <= limit for name, one in jobs.items()}
    newest = {name: one.records[0].timestamp if one.records else -1 for name, one in jobs.items()}
    order = sorted(jobs, key=lambda name: (alone[name], newest[name], name))
    told = jobs
    for gone in range(1, len(order)):
        if written(told) <= limit:
            break
        told = {name: jobs[name] for name in order[gone:]}
        told[order[-1]] = replace(told[order[-1]], additional_info=f"{gone} older jobs dropped")
    bare = {name: jobs[name] for name in told}
    return bare if written(bare) <= limit < written(told) else told


EDGES = pytest.mark.parametrize(
    ("size", "whole"), [(972_799, True), (972_800, True), (972_801, False)], ids=["one under", "exact", "one over"]
)


@EDGES
@pytest.mark.parametrize("text", ["p", "节点🙂", "<&>\u2028"], ids=["plain", "multi-byte", "escaped"])
def test_the_limit_is_exact(size: int, whole: bool, text: str) -> None:
    jobs = sized({"ns/a": job("ns/a", 5, 4, pod=text), "ns/b": job("ns/b", 3, 2, pod=text)}, "ns/a", size)
    assert written(jobs) == size
    trimmed = trim_records(jobs)
    kept = 2 if whole else 1
    assert {name: len(one.records) for name, one in trimmed.jobs.items()} == {"ns/a": kept, "ns/b": kept}
    assert trimmed.dropped_records == ({} if whole else {"ns/a": 1, "ns/b": 1})
    assert (trimmed.size, trimmed.fits) == (written(trimmed.jobs), True)
    assert {one.total for one in trimmed.jobs.values()} == {2}


@EDGES
def test_the_limit_is_exact_for_a_job_alone_with_ten_records(size: int, whole: bool) -> None:
    jobs = sized({"ns/a": job("ns/a", *range(20, 10, -1), pod="节点")}, "ns/a", size)
    trimmed = trim_records(jobs)
    assert [one.timestamp for one in trimmed.jobs["ns/a"].records] == list(range(20, 10 if whole else 11, -1))
    assert trimmed.dropped_records == ({} if whole else {"ns/a": 1})
    assert (trimmed.size, trimmed.fits, trimmed.jobs["ns/a"].additional_info) == (written(trimmed.jobs), True, "")


@EDGES
def test_the_limit_is_exact_for_five_thousand_jobs_with_one_record_each(size: int, whole: bool) -> None:
    small = {f"j{i:04}": JobRecords(f"j{i:04}", 1, (RescheduleRecord("", i, ()),)) for i in range(4999)}
    jobs = sized(small | {"j4999": job("j4999", 4999)}, "j4999", size)
    assert written(jobs) == size
    trimmed = trim_records(jobs)
    assert trimmed.dropped_jobs == (() if whole else ("j0000",))
    assert trimmed.jobs["j4999"].additional_info == ("" if whole else "1 older jobs dropped")
    assert (trimmed.size, trimmed.fits, trimmed.dropped_records) == (written(trimmed.jobs), True, {})


@EDGES
def test_the_limit_is_exact_for_one_huge_record(size: int, whole: bool) -> None:
    jobs = sized({"ns/a": job("ns/a", 5)}, "ns/a", size)
    trimmed = trim_records(jobs)
    assert (list(trimmed.jobs), trimmed.fits, trimmed.size) == (["ns/a"], whole, size)


def test_a_record_that_never_fits_goes_before_all_that_do() -> None:
    jobs = {"ns/a": job("ns/a", 5), "ns/huge": job("ns/huge", 9, pod="x" * 972_800), "ns/b": job("ns/b", 7)}
    trimmed = trim_records(jobs)
    assert trimmed.dropped_jobs == ("ns/huge",)
    assert (list(trimmed.jobs), trimmed.fits) == (["ns/a", "ns/b"], True)
    assert trimmed.jobs["ns/b"].additional_info == "1 older jobs dropped"


def test_no_record_goes_for_the_word_about_others() -> None:
    jobs = sized({"ns/a": job("ns/a", 5), "ns/b": job("ns/b", 7)}, "ns/b", 972_801)
    alone = written({"ns/b": jobs["ns/b"]})
    trimmed = trim_records(jobs, alone)
    assert (list(trimmed.jobs), trimmed.size, trimmed.fits) == (["ns/b"], alone, True)
    assert trimmed.jobs["ns/b"].additional_info == ""


def test_what_a_dropped_job_had_told_of_is_counted_in() -> None:
    jobs = {"a": job("a", 1, pod="x" * 200, info="4 older jobs dropped"), "b": job("b", 2)}
    assert trim_records(jobs, written(jobs) - 100).jobs["b"].additional_info == "5 older jobs dropped"


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


class Read(UserDict[str, str]):
    """Keys of another writer that know how often they were written out."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return super().__iter__()


def test_a_long_newest_record_is_measured_once_not_again_for_every_job_that_goes() -> None:
    extra = Read(note="x" * 400_000)
    newest = replace(job("ns/z", 9), records=(replace(record(9, "p"), extra=extra),))
    jobs = {f"ns/job-{i:04}": job(f"ns/job-{i:04}", i) for i in range(5000)}
    trimmed = trim_records({**jobs, "ns/z": newest})
    assert len(trimmed.dropped_jobs) > 1000
    assert trimmed.fits
    assert extra.times == 1, "as part of its job"


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


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(JOBS, st.floats(0, 1.1)), max_size=4))
def test_what_was_measured_before_is_trimmed_to_the_same(
    rounds: list[tuple[dict[str, tuple[list[int], str]], float]],
) -> None:
    texts = RecordTexts()
    kept: dict[str, JobRecords] = {}
    for made, share in rounds:
        jobs = kept | {name: job(name, *stamps, pod=pod) for name, (stamps, pod) in made.items()}
        limit = int(written(jobs) * share)
        trimmed = trim_records(jobs, limit, texts)
        assert trimmed == trim_records(jobs, limit)
        assert texts.text(trimmed.jobs) == encode_reschedule(trimmed.jobs)
        kept = trimmed.jobs


def node(name: str, *levels: str) -> FaultNodeEntry:
    devices = tuple(FaultDevice("CardUnhealthy", f"Ascend910-{i}", level, "80E18402") for i, level in enumerate(levels))
    return FaultNodeEntry(NodeName(name), "CardUnhealthy", devices, ("Ascend910-0",), None, update_time=1)


def nodes_bytes(entries: tuple[FaultNodeEntry, ...]) -> int:
    return len((encode_fault_nodes(entries) or "[]").encode())


def test_the_mildest_device_detail_goes_first_wherever_it_is() -> None:
    nodes = (node("a", "SeparateNPU", "NotHandleFault"), node("b", "SubHealthFault", "NotHandleFault"))
    one = trim_fault_nodes(nodes, nodes_bytes(nodes) - 1)
    assert [[device.level for device in entry.devices or ()] for entry in one.entries] == [
        ["SeparateNPU", "NotHandleFault"],
        ["SubHealthFault"],
    ]
    assert (one.dropped, one.bare, one.left_out, one.size) == (1, 0, 0, nodes_bytes(one.entries))


def test_with_no_room_for_any_device_the_mildest_nodes_keep_name_and_state_alone() -> None:
    link = replace(node("a", "RestartNPU"), health="CardNetworkUnhealthy", extra={"zone": 1})
    nodes = (link, node("b", "SeparateNPU"), node("c", "SeparateNPU"), replace(node("d"), health="NodeUnhealthy"))
    without = tuple(replace(entry, devices=()) for entry in nodes)
    assert trim_fault_nodes(nodes, nodes_bytes(without)).entries == without
    one = trim_fault_nodes(nodes, nodes_bytes(without) - 1)
    assert (one.dropped, one.bare, one.left_out) == (3, 1, 0)
    assert one.entries[1:] == without[1:]
    assert fault_node_text(one.entries[0]) == '{"NodeName":"a","NodeHealthState":"CardNetworkUnhealthy","zone":1}'
    two = trim_fault_nodes(nodes, one.size - 1)
    assert [entry.bare for entry in two.entries] == [True, False, True, False]


def test_names_and_states_stay_as_long_as_they_have_room() -> None:
    nodes = (node("a", "SeparateNPU"), node("b", "SeparateNPU", "RestartNPU"))
    text = '[{"NodeName":"a","NodeHealthState":"CardUnhealthy"},{"NodeName":"b","NodeHealthState":"CardUnhealthy"}]'
    bare = trim_fault_nodes(nodes, len(text))
    assert encode_fault_nodes(bare.entries) == text
    assert (bare.dropped, bare.bare, bare.left_out, bare.size) == (3, 2, 0, 103)
    less = trim_fault_nodes(nodes, 102)
    assert encode_fault_nodes(less.entries) == '[{"NodeName":"a","NodeHealthState":"CardUnhealthy"}]'
    assert (less.bare, less.left_out, less.size) == (1, 1, 52)
    none = trim_fault_nodes(nodes, 0)
    assert (none.entries, none.left_out, none.size) == ((), 2, 2)


def test_what_fits_is_left_alone() -> None:
    nodes = (node("a", "SeparateNPU"),)
    assert trim_fault_nodes(nodes, nodes_bytes(nodes)).entries == nodes
    assert trim_fault_nodes((), 0).size == 2


def test_ten_thousand_nodes_with_sixteen_faulty_devices_each_are_all_told() -> None:
    levels = ["SeparateNPU"] * 16
    nodes = tuple(node(f"worker-{n:05}", *levels) for n in range(10_000))
    trimmed = trim_fault_nodes(nodes)
    text = encode_fault_nodes(trimmed.entries)
    assert [(entry.node, entry.health) for entry in decode_fault_nodes(text)] == [
        (f"worker-{n:05}", "CardUnhealthy") for n in range(10_000)
    ]
    assert (trimmed.dropped, trimmed.left_out) == (160_000, 0)
    assert 999_700 < len(text.encode()) == trimmed.size <= 1_000_000


def slow_nodes(nodes: tuple[FaultNodeEntry, ...], limit: int) -> tuple[FaultNodeEntry, ...]:
    """The same cut, one step at a time and each time measured anew."""
    told = list(nodes)
    order = {level: place for place, level in enumerate(["NotHandleFault", "SubHealthFault", "RestartNPU", MANUAL])}
    states = {"CardNetworkUnhealthy": 0, "CardUnhealthy": 1, "NodeUnhealthy": 2}
    mildest = sorted(range(len(nodes)), key=lambda n: (states[nodes[n].health], -n))
    while nodes_bytes(tuple(told)) > limit and any(entry.devices for entry in told):
        found = [
            (order[one.level], -n, -d) for n, entry in enumerate(told) for d, one in enumerate(entry.devices or ())
        ]
        _, n, d = min(found)
        told[-n] = replace(told[-n], devices=tuple(one for at, one in enumerate(told[-n].devices or ()) if at != -d))
    for n in mildest:
        if nodes_bytes(tuple(told)) > limit:
            told[n] = FaultNodeEntry(told[n].node, told[n].health, bare=True)
    for n in mildest:
        if nodes_bytes(tuple(told)) > limit:
            told = [entry for entry in told if entry.node != nodes[n].node]
    return tuple(told)


NODES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["NotHandleFault", "SubHealthFault", "RestartNPU", MANUAL]), max_size=4),
        st.sampled_from(["CardNetworkUnhealthy", "CardUnhealthy", "NodeUnhealthy"]),
    ),
    max_size=4,
)


@settings(max_examples=80, deadline=None)
@given(NODES, st.floats(0, 1.1))
def test_cutting_nodes_gives_what_the_slow_reference_gives(made: list[tuple[list[str], str]], share: float) -> None:
    nodes = tuple(replace(node(f"n{i}-节", *levels), health=health) for i, (levels, health) in enumerate(made))
    limit = int(nodes_bytes(nodes) * share)
    trimmed = trim_fault_nodes(nodes, limit)
    told = sum(len(entry.devices or ()) for entry in trimmed.entries)
    assert trimmed.entries == slow_nodes(nodes, limit)
    assert trimmed.size == nodes_bytes(trimmed.entries)
    assert trimmed.dropped == sum(len(entry.devices or ()) for entry in nodes) - told
    assert trimmed.left_out == len(nodes) - len(trimmed.entries)
    assert trimmed.bare == sum(entry.bare for entry in trimmed.entries)


def test_budgets_count_the_bytes_of_values_beside_ours() -> None:
    assert data_bytes({"a": "节", "b": "xy"}) == 5
    assert budget_beside({"other": "x" * 900_000}) == 100_000
    assert budget_beside({}, 972_800) == 972_800
    assert budget_beside({"other": "x" * 27_201}, 972_800) == 972_799
    assert budget_beside({"other": "x" * 1_000_001}) == 0
