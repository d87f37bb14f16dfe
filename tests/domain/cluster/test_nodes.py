"""A node's entry from levels and use: PreSeparate waits for the job, worse beside it does not (faultcodes.md §5)."""

from dataclasses import replace
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, a_pod, the_demo
from rig import T0, Rig

from agent.domain.cluster import decide_job, decide_node, entry_of, evolve
from agent.domain.vocab import JobId, Millis, NodeName, Reason
from agent.wire.report import encode

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3"}
PRE, SEPARATE, MILD, LINK = "8F180220", "80E18402", "80818200", "81078603"
IDLE, USED = 7, 2
N1 = NodeName("n1")


async def entry(*faults: tuple[str, int], at: float = 40) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
    """State, UnhealthyNPU and NetworkUnhealthyNPU of n1, or None while it is not listed."""
    rig = Rig(the_demo(LABELS))
    for number, (code, device) in enumerate(faults):
        rig.fault(code, number, device=device)
    rig.tick(at)
    await rig.run()
    found = rig.book.entries.get(NodeName("n1"))
    return None if found is None else (found.health, found.unhealthy or (), found.network_unhealthy or ())


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        pytest.param([(PRE, USED)], None, id="in use"),
        pytest.param([(PRE, IDLE)], ("CardUnhealthy", ("Ascend910-7",), ()), id="idle"),
        pytest.param([(MILD, USED)], None, id="mild"),
        pytest.param([(LINK, USED)], ("CardNetworkUnhealthy", (), ("Ascend910-2",)), id="network, in use or not"),
    ],
)
async def test_what_is_unhealthy_follows_from_level_plane_and_use(
    faults: list[tuple[str, int]], expected: tuple[str, tuple[str, ...], tuple[str, ...]] | None
) -> None:
    assert await entry(*faults) == expected


@pytest.mark.parametrize("order", [(PRE, SEPARATE), (SEPARATE, PRE)])
async def test_a_device_in_use_with_something_worse_beside_preseparate_is_unhealthy(order: tuple[str, str]) -> None:
    # Quirk: ClusterD takes a PreSeparateNPU chip in use off the unhealthy list whatever else it has.
    assert await entry(*((code, USED) for code in order)) == ("CardUnhealthy", ("Ascend910-2",), ())


async def test_a_device_becomes_unhealthy_once_its_job_has_left() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(PRE, 1)
    rig.apply(a_pod("demo-0", phase="Succeeded", labels=LABELS), 10)
    rig.tick(20)
    await rig.run()
    found = rig.book.entries[NodeName("n1")]
    assert (found.health, found.unhealthy) == ("CardUnhealthy", ("Ascend910-2",))


def cut(rig: Rig, **changes: Any) -> None:
    """The node's report has become too large for all of its faults."""
    report = rig.book.reports[N1]
    rig.book.reports[N1] = replace(report, active=(), cut=("active:1",), **changes)


async def test_a_report_that_cannot_tell_all_faults_takes_nothing_out_of_the_entry() -> None:
    rig = Rig(the_demo(LABELS))
    rig.fault(SEPARATE, 0, device=USED)
    rig.tick(40)
    await rig.run()
    before = rig.book.entries[N1]
    now = Millis(T0 + 60_000)
    cut(rig)
    assert decide_node(rig.book, N1, now).entries == {}
    assert entry_of(rig.book, N1, now) is before
    rig.book.reports[N1] = replace(rig.book.reports[N1], cut=())
    assert decide_node(rig.book, N1, now).entries == {N1: None}


async def test_a_recovery_is_not_told_that_its_codes_are_gone_by_a_report_that_cannot_tell_all() -> None:
    rig = Rig(the_demo({**LABELS, "framework": "mindspore"}))
    rig.fault("80C98000", 0, device=USED)
    rig.tick(5)
    await rig.run()
    now = Millis(T0 + 8_000)
    cut(rig)
    assert decide_job(rig.book, JobId(DEMO_JOB), now).decisions == ()
    rig.book.reports[N1] = replace(rig.book.reports[N1], cut=())
    gone = decide_job(rig.book, JobId(DEMO_JOB), now)
    assert [one.reason for one in gone.decisions] == [Reason.RECOVERY_SUCCEEDED]


async def test_a_run_that_goes_on_from_a_report_without_some_faults_says_so_and_clears_nothing() -> None:
    rig = Rig(the_demo({**LABELS, "framework": "mindspore"}))
    rig.fault("80C98000", 0, device=USED)
    rig.tick(5)
    await rig.run()
    cut(rig)
    await rig.disk.reports.publish({N1: encode(rig.book.reports[N1])})
    again = Rig(rig.objects, disk=rig.disk, source=rig.source, _number=rig._number)
    again.tick(7)
    again.tick(40)
    await again.run(resume=True)
    assert [one.reason for one in again.decisions if one.fault] == [Reason.RECOVERY_FAILED]  # its time is over
    assert again.book.reports[N1].lost == 1
    assert [line for line in again.said if "has no room for 1 active faults" in line]


async def test_what_is_kept_back_is_not_forgotten_over_a_report_that_cannot_tell_all() -> None:
    rig = Rig(the_demo({**LABELS, "framework": "mindspore"}, {"huawei.com/schedule.filter.faultCode": "80C98000:120"}))
    rig.fault("80C98000", 0, device=USED)
    rig.tick(5)
    await rig.run()
    now, job = Millis(T0 + 20_000), JobId(DEMO_JOB)
    cut(rig, occurrences=())
    evolve(rig.book, decide_job(rig.book, job, now))
    assert list(rig.book.ledger(job).quiet) == ["0:0:0:0~RestartRequest~2"]
    rig.book.reports[N1] = replace(rig.book.reports[N1], cut=())
    evolve(rig.book, decide_job(rig.book, job, now))
    assert rig.book.ledger(job).quiet == {}
