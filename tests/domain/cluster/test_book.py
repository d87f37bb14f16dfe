"""What deciding costs: a job's thousandth fault no more than its tenth, whatever the job is to be told of them."""

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, a_group, a_pod
from rig import POLICY, T0

from agent.app.world import World
from agent.domain.cluster import ClusterBook, Limits, Verdict, decide_job, evolve
from agent.domain.events import ActiveFault, FaultKey, NodeReport, Occurrence
from agent.domain.ledger import Done
from agent.domain.vocab import JobId, Millis, NodeName, OccurrenceId, Plane, Reason, Source

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, LINK = "80C98000", "81078603"
REQUESTS = [row.code for row in POLICY.chip.values() if row.level == "RestartRequest"]
JOB = JobId(DEMO_JOB)


def burst(nodes: int, plane: Plane, level: str, codes: Iterable[str], end: int | None = None) -> ClusterBook:
    """A job on all of the nodes, and each code on each of their eight devices."""
    book = ClusterBook("c", Limits(), POLICY)
    pods = (
        a_pod(f"demo-{one}", node=f"n{one}", rank_index=one, labels=LABELS, devices=range(8)) for one in range(nodes)
    )
    World(book).replace([a_group(min_member=nodes, labels=LABELS), *pods], ())
    number = 0
    for one in range(nodes):
        node, active, occurrences = NodeName(f"n{one}"), [], []
        for device in range(8):
            for code in codes:
                number += 1
                key, at = FaultKey(node, plane, str(device), code), Millis(T0 + 40 * number)
                id_ = OccurrenceId(f"0:0:{number}:0")
                over = None if end is None else Millis(at + end)
                occurrences.append(Occurrence(id_, key, at, over, level, devices=(device,)))
                active.append(ActiveFault(key, at, level, "table", id_, Source.DCMI, devices=(device,)))
        active = [] if end is not None else active
        book.reports[node] = NodeReport(
            "c", node, 1, 1, "i", caught_up=True, active=tuple(active), occurrences=tuple(occurrences)
        )
    return book


def calls_of(work: Callable[[], None]) -> int:
    """How many Python calls it takes: the same every time, unlike a clock."""
    calls = 0

    def note(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def cost(book: ClusterBook) -> tuple[int, int]:
    """Calls of the first decision about the job, and of one more while nothing changes."""

    def decide(at: int) -> None:
        evolve(book, decide_job(book, JOB, Millis(T0 + at)))

    return calls_of(lambda: decide(60_000)), calls_of(lambda: decide(60_200))


def test_a_mark_of_a_clock_that_stood_ahead_keeps_no_other_for_ever() -> None:
    book, day = ClusterBook("c", Limits()), 86_400_000
    for at in (T0 + 7 * day, *range(T0, T0 + day, 60_000)):
        evolve(book, Verdict(told={str(at): Done(Millis(at), Reason.NO_JOB)}))
    assert len(book.told) == 31  # those of the last half hour, and the one of now


@pytest.mark.parametrize(
    ("plane", "level", "end"),
    [
        pytest.param(Plane.CHIP, "RestartRequest", None, id="a recovery that fails for a second node"),
        pytest.param(Plane.CHIP, "RestartRequest", 10, id="faults that are over"),
        pytest.param(Plane.CHIP, "SeparateNPU", None, id="faults that isolate"),
        pytest.param(Plane.NETWORK, "NotHandleFault", None, id="links that wait for a trigger"),
    ],
)
def test_twice_as_many_faults_cost_twice_as_much(plane: Plane, level: str, end: int | None) -> None:
    code = LINK if plane is Plane.NETWORK else REQUEST
    some, many = (cost(burst(nodes, plane, level, [code], end)) for nodes in (15, 30))
    assert many[0] < 2.5 * some[0]
    assert many[1] < 2.5 * some[1]


def test_twice_as_many_codes_on_one_node_cost_twice_as_much() -> None:
    some, many = (cost(burst(1, Plane.CHIP, "RestartRequest", REQUESTS[:count])) for count in (12, 24))
    assert many[0] < 2.5 * some[0]
    assert many[1] < 2.5 * some[1]
