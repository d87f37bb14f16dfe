"""The node role's claim on its node's reports: one writer at a time, and nothing of another is written over."""

from dataclasses import replace

import pytest
from rig import T0
from rolerig import N1, NodeRig, a_report, quiet

from agent.app import node_role
from agent.domain.events import ActiveFault, FaultKey, Scanned
from agent.domain.vocab import Millis, OccurrenceId, Plane, Source
from agent.errors import CannotRun
from agent.wire.report import encode

SEPARATE, REQUEST, LINK = "80E18402", "80C98000", "81078603"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between tries real time would pass."""
    monkeypatch.setattr(node_role, "RETRY_S", (0.0,))


def codes(rig: NodeRig) -> list[str]:
    return [fault.key.code for fault in rig.bus.last().active]


def versions(rig: NodeRig) -> list[tuple[int, int, str]]:
    return [(one.epoch, one.seq, one.instance) for one in rig.bus.reports()]


def a_fault(code: str = SEPARATE, device: int = 5) -> ActiveFault:
    key = FaultKey(N1, Plane.CHIP, str(device), code)
    return ActiveFault(
        key, Millis(T0), "SeparateNPU", "chip-table", OccurrenceId("0:0:0:0"), Source.DCMI, devices=(device,)
    )


# --- claim ------------------------------------------------------------------------------------------------------------


async def test_a_first_start_claims_with_epoch_one_before_it_reads_and_then_says_that_it_has_caught_up() -> None:
    rig = NodeRig()
    rig.stream.fault(SEPARATE)
    await rig.up()
    first, second = rig.bus.reports()
    assert (first.epoch, first.seq, first.caught_up, first.active) == (1, 1, False, ())
    assert (second.epoch, second.seq, second.caught_up) == (1, 2, True)
    assert codes(rig) == [SEPARATE]
    assert rig.stream.opened == [None]
    await rig.end()


async def test_a_restart_claims_with_the_next_epoch_and_goes_on_where_the_report_says() -> None:
    rig = NodeRig()
    rig.stream.fault(SEPARATE)
    await rig.up()
    await rig.kill()
    rig.stream.fault(REQUEST, device=1)
    again = NodeRig(rig.bus, rig.stream, instance="b")
    await again.up()
    assert versions(again)[2:] == [(2, 1, "b"), (2, 2, "b")]
    assert sorted(codes(again)) == [REQUEST, SEPARATE]
    assert b'"offset":1' in (again.stream.opened[-1] or b"")
    assert [line.decision.reason for line in rig.bus.lines()] == ["FAULT_SHOWN", "FAULT_SHOWN"]
    await again.end()


async def test_a_partition_that_gave_nothing_is_in_the_report_all_the_same() -> None:
    rig = NodeRig()
    rig.stream.empty = {3: (1, 40)}
    await rig.up()
    assert rig.bus.reports()[-1].scanned[3] == Scanned(1, 40)
    await rig.end()


async def test_a_foreign_report_between_reading_and_claiming_is_adopted_and_claimed_over() -> None:
    rig = NodeRig()
    rig.log.between.append(lambda: rig.bus.foreign(a_report(epoch=7, seq=3, active=(a_fault(),))))
    await rig.up()
    assert versions(rig)[:3] == [(7, 3, "b"), (1, 1, "a"), (8, 1, "a")]
    assert codes(rig) == [SEPARATE]
    assert "another agent reported n1 at epoch 7 meanwhile; claimed again" in rig.said
    await rig.end()


async def test_an_older_foreign_report_in_between_is_no_reason_to_claim_again() -> None:
    rig = NodeRig()
    rig.bus.foreign(a_report(epoch=4, seq=9))
    rig.log.between.append(lambda: rig.bus.foreign(a_report(epoch=3, seq=1, instance="c")))
    await rig.up()
    assert [one for one in versions(rig) if one[2] == "a"] == [(5, 1, "a"), (5, 2, "a")]
    await rig.end()


async def test_a_claim_that_does_not_come_back_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_role, "CLAIM_PATIENCE_S", -1.0)
    rig = NodeRig()
    await rig.start()
    assert "the claim of n1 did not come back" in rig.said[0]
    assert len(versions(rig)) > 1
    await rig.kill()


# --- fences -----------------------------------------------------------------------------------------------------------


async def test_a_higher_epoch_silences_it_until_the_other_has_been_silent_for_180_s() -> None:
    rig = await NodeRig().up()
    rig.bus.foreign(a_report(epoch=2, seq=1))
    await rig.clock.advance(2)
    assert rig.role.pulse.standing_by
    rig.stream.fault(SEPARATE)
    await rig.clock.advance(100)
    rig.bus.foreign(a_report(epoch=2, seq=2, active=(a_fault(REQUEST),), scanned={0: Scanned(0, 0)}))
    count = len(rig.bus.line)
    await rig.clock.advance(179)
    assert len(rig.bus.line) == count
    turns = rig.role.turns
    await rig.clock.advance(4)
    assert rig.role.turns > turns
    assert versions(rig)[count][:2] == (3, 1)
    await rig.clock.advance(1)
    assert sorted(codes(rig)) == [REQUEST, SEPARATE]
    await rig.end()


async def test_a_writer_with_a_lower_epoch_is_written_over() -> None:
    rig = await NodeRig().up()
    rig.bus.foreign(a_report(epoch=0, seq=99))
    await rig.clock.advance(2)
    assert versions(rig)[-1] == (1, 3, "a")
    assert not rig.role.pulse.standing_by
    await rig.end()


async def test_something_that_is_no_report_is_written_over() -> None:
    rig = await NodeRig().up()
    rig.bus.put(N1, b"garbage")
    await rig.clock.advance(2)
    assert rig.bus.line[-1][1] != b"garbage"
    assert any("something that is no report was written for n1" in said for said in rig.said)
    await rig.end()


async def test_a_report_that_was_removed_comes_back_with_the_next_heartbeat() -> None:
    rig = await NodeRig().up()
    rig.bus.put(N1, None)
    await rig.clock.advance(61)
    assert rig.bus.line[-1][1] is not None
    await rig.end()


def newer() -> bytes:
    return encode(a_report(epoch=3)).replace(b'"schema":1', b'"schema":2')


@pytest.mark.parametrize(
    ("last", "said"),
    [
        pytest.param(
            encode(a_report(cluster="prod-b")), "belong to cluster 'prod-b', this agent to 'test'", id="foreign"
        ),
        pytest.param(newer(), "written by a newer agent: schema 2", id="newer"),
        pytest.param(b"{}", "cannot be read", id="unreadable"),
    ],
)
async def test_state_that_is_not_its_own_is_never_written_over(last: bytes, said: str) -> None:
    rig = NodeRig()
    rig.bus.put(N1, last)
    await rig.start()
    assert rig.task is not None
    ended = await quiet(rig.task)
    assert isinstance(ended, CannotRun)
    assert said in str(ended)
    assert rig.bus.line == [(N1, last)]


async def test_a_newer_schema_that_comes_while_it_runs_ends_it_too() -> None:
    rig = await NodeRig().up()
    rig.bus.put(N1, newer())
    await rig.clock.advance(2)
    assert rig.task is not None
    assert isinstance(await quiet(rig.task), CannotRun)
    assert rig.bus.line[-1] == (N1, newer())


async def test_another_machine_under_the_same_name_begins_with_nothing_at_the_place_the_old_one_had_read_to() -> None:
    rig = NodeRig(machine="m1")
    rig.stream.fault(SEPARATE)
    await rig.up()
    await rig.kill()
    other = NodeRig(rig.bus, rig.stream, instance="b", machine="m2")
    await other.up()
    last = other.bus.last()
    assert (last.epoch, last.machine, last.active, last.occurrences) == (2, "m2", (), ())
    assert last.scanned[0].offset == 1
    await other.end()


async def test_an_agent_that_goes_on_from_a_report_without_some_faults_says_so_in_each_of_its_own() -> None:
    rig = NodeRig()
    rig.stream.fault(SEPARATE)
    await rig.up()
    await rig.kill()
    rig.bus.foreign(replace(rig.bus.last(), active=(), seq=99, cut=("totals:1", "active:1")))
    other = NodeRig(rig.bus, rig.stream, instance="b")
    await other.up()
    assert [line for line in other.said if "has no room for 1 active faults" in line]
    assert other.bus.last().caught_up
    assert other.bus.last().lost == 1
    await other.end()


async def test_a_machine_that_cannot_be_told_goes_on_as_before() -> None:
    rig = NodeRig(machine="m1")
    rig.stream.fault(SEPARATE)
    await rig.up()
    await rig.kill()
    other = NodeRig(rig.bus, rig.stream, instance="b", machine="")
    await other.up()
    assert codes(other) == [SEPARATE]
    await other.end()
