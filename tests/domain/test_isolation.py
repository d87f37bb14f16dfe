"""Counting towards a manual separation (faultcodes.md §5, manual separation): a window, a threshold, a trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.isolation import MOST_TIMES, Count, Counts, Isolation, add, used_up, with_count
from agent.domain.vocab import HOUR, Millis, NodeName

DAY = 24 * HOUR
POLICY = Isolation()


def trips(times: list[int], policy: Isolation = POLICY) -> list[int]:
    count, found = Count(), []
    for at in times:
        count, tripped = add(count, Millis(at), policy)
        if tripped:
            found.append(at)
    return found


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        pytest.param([0, 1], [], id="two are not enough"),
        pytest.param([0, 1, 2], [2], id="the third trips"),
        pytest.param([0, 1, DAY - 1], [DAY - 1], id="just inside of the window"),
        pytest.param([0, 1, DAY], [], id="a window apart is too far: strictly shorter"),
        pytest.param([0, 1, DAY, DAY + 0, DAY + 1], [], id="the same moment counts once"),
        pytest.param([0, 1, 2, 3, 4], [2], id="a trip uses up what was counted"),
        pytest.param([0, 1, 2, 3, 4, 5], [2, 5], id="three more trip again"),
        pytest.param([5, 6, 7, 3], [7], id="from before the trip"),
        pytest.param([9, 3, 6], [6], id="out of order"),
    ],
)
def test_what_trips(times: list[int], expected: list[int]) -> None:
    assert trips(times) == expected


@pytest.mark.parametrize("threshold", [1, 2, 50])
def test_the_threshold_is_the_number_of_faults(threshold: int) -> None:
    assert trips(list(range(threshold * 2)), Isolation(threshold=threshold)) == [threshold - 1, threshold * 2 - 1]


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(1, 4), st.integers(1, 30))
def test_faults_in_order_trip_as_in_a_slow_reference(times: list[int], threshold: int, window: int) -> None:
    policy = Isolation(window=Millis(window), threshold=threshold)
    expected, since = [], []
    for at in sorted(set(times)):
        since.append(at)
        if len(since) >= threshold and since[-1] - since[-threshold] < window:
            expected.append(at)
            since = []
    assert trips(sorted(times), policy) == expected


@given(st.lists(st.integers(0, 60), max_size=30), st.integers(1, 4), st.integers(1, 30), st.data())
def test_a_fault_that_was_counted_changes_nothing(
    times: list[int], threshold: int, window: int, data: st.DataObject
) -> None:
    policy = Isolation(window=Millis(window), threshold=threshold)
    count = Count()
    for number, at in enumerate(sorted(times)):
        count, _ = add(count, Millis(at), policy)
        again = data.draw(st.sampled_from(sorted(times)[: number + 1]))
        if again <= at:
            repeated, tripped = add(count, Millis(again), policy)
            assert (repeated, tripped) == (count, False) or again not in count.times


def test_what_is_out_of_the_window_goes_with_the_next_count() -> None:
    node = NodeName("n1")
    counts, size = with_count({}, node, "1/A", Count((Millis(5),)), POLICY, 0)
    counts, size = with_count(counts, node, "2/B", Count((Millis(DAY + 4),)), POLICY, size)
    assert set(counts[node]) == {"1/A", "2/B"}
    counts, size = with_count(counts, node, "3/C", Count((Millis(DAY + 5),)), POLICY, size)
    assert set(counts[node]) == {"2/B", "3/C"}


def counted(counts: Counts) -> int:
    return sum(len(one.times) for here in counts.values() for one in here.values())


@pytest.mark.parametrize(("nodes", "devices"), [(600, 1), (40, 16), (10, 64)])
def test_beyond_the_limit_the_nodes_that_failed_longest_ago_are_let_go(nodes: int, devices: int) -> None:
    # Ten nodes of 64 devices hold as much as six hundred that failed on one each.
    counts: Counts = {}
    size = 0
    for number in range(nodes):
        full = Count(tuple(Millis(1000 * number + at) for at in range(49)))
        for device in range(devices):
            for code in ("A", "B") if devices > 1 else ("A",):
                counts, size = with_count(counts, NodeName(f"n{number}"), f"{device}/{code}", full, POLICY, size)
                assert counted(counts) <= size <= MOST_TIMES + 50
    late = Count((Millis(1000 * nodes),))
    counts, size = with_count(counts, NodeName("late"), "1/A", late, POLICY, size)
    assert counts[NodeName("late")] == {"1/A": late}
    if nodes * devices * 100 > MOST_TIMES and devices > 1:
        assert NodeName("n0") not in counts
        assert NodeName(f"n{nodes - 1}") in counts


def test_a_device_that_begins_anew_has_its_counts_used_up_whatever_the_code() -> None:
    node, other = NodeName("n1"), NodeName("n2")
    count = Count((Millis(5), Millis(9)), Millis(3))
    counts: Counts = {node: {"1/A": count, "1/B": Count((Millis(7),)), "11/A": count}, other: {"1/A": count}}
    assert used_up(counts, node, 1) == {
        node: {"1/A": Count((), Millis(9)), "1/B": Count((), Millis(7)), "11/A": count},
        other: {"1/A": count},
    }
    assert used_up(counts, NodeName("n3"), 1) == counts
