"""The node role: who may report a node, when it does, and what is durable before what."""

from dataclasses import fields

import pytest
from rig import POLICY, T0
from rolerig import Bus, Clock, NodeRig, Stream, quiet

from agent.app import node_role
from agent.app.bootstrap.node import samples
from agent.domain.events import Rating
from agent.domain.node import record_digest
from agent.domain.policy import Policy
from agent.domain.vocab import DeadReason, Plane
from agent.errors import Refused, Unavailable

SEPARATE, REQUEST, LINK = "80E18402", "80C98000", "81078603"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between tries real time would pass."""
    monkeypatch.setattr(node_role, "RETRY_S", (0.0,))


def codes(rig: NodeRig) -> list[str]:
    return [fault.key.code for fault in rig.bus.last().active]


# --- when it reports --------------------------------------------------------------------------------------------------


async def test_a_report_goes_at_once_when_idle_then_after_200_ms_and_each_60_s_in_any_case() -> None:
    rig = await NodeRig().up()
    await rig.clock.advance(1)
    count = len(rig.bus.line)
    rig.stream.fault(SEPARATE, device=0)
    await rig.clock.settle()
    assert len(rig.bus.line) == count + 1
    for device in (1, 2, 3):
        rig.stream.fault(SEPARATE, device=device)
        await rig.clock.advance(0.05)
    assert len(rig.bus.line) == count + 1
    await rig.clock.advance(0.06)
    assert len(rig.bus.line) == count + 2
    assert len(rig.bus.last().active) == 4
    await rig.clock.advance(59)
    assert len(rig.bus.line) == count + 2
    await rig.clock.advance(1.2)
    assert len(rig.bus.line) == count + 3
    await rig.end()


async def test_a_clock_that_is_set_back_silences_nobody() -> None:
    rig = await NodeRig().up()
    count = len(rig.bus.line)
    rig.clock.set_by = -3_600_000
    await rig.clock.advance(1.1)
    assert len(rig.bus.line) == count + 1
    await rig.end()


async def test_records_of_other_nodes_only_move_the_place() -> None:
    rig = await NodeRig().up()
    count = len(rig.bus.line)
    rig.stream.fault(SEPARATE, node="n2")
    rig.stream.raw(b"no json", key=b"n3")
    rig.stream.raw(b"no key", key=None)
    await rig.clock.advance(10)
    assert len(rig.bus.line) == count
    await rig.clock.advance(52)
    last = rig.bus.last()
    assert (last.scanned[0].offset, last.active) == (3, ())
    assert rig.bus.letters == []
    await rig.end()


async def test_a_run_of_records_of_other_nodes_counts_as_its_last_in_each_partition() -> None:
    rig = NodeRig()
    rig.stream.fault(SEPARATE, -50, node="n2")
    rig.stream.fault(SEPARATE, -10, node="n3")
    rig.stream.fault(SEPARATE, -20, node="n2")
    older = rig.stream.fault(REQUEST, -40)
    last = rig.stream.fault(SEPARATE, -5, node="n3")
    apart = rig.stream.fault(SEPARATE, -7, node="n2", partition=1)
    await rig.up()
    report = rig.bus.last()
    assert codes(rig) == [REQUEST]
    assert {place: (at.offset, at.time) for place, at in report.scanned.items()} == {
        0: (5, T0 - 5000),
        1: (1, T0 - 7000),
    }
    assert report.scanned[0].digest == record_digest(last) != record_digest(older)
    assert report.scanned[1].digest == record_digest(apart)
    await rig.end()


@pytest.mark.parametrize("value", [b"no json", None, b"\xff"], ids=["no JSON", "empty", "no text"])
async def test_a_record_of_its_own_that_is_of_no_use_is_reported_as_read_at_once(value: bytes | None) -> None:
    rig = await NodeRig().up()
    rig.stream.raw(value)
    await rig.clock.advance(0.3)
    assert rig.bus.last().scanned[0].offset == 1
    await rig.end()


async def test_until_it_has_caught_up_the_time_is_that_of_the_records() -> None:
    rig = NodeRig()
    rig.stream.fault(LINK, -100, device=0)
    rig.stream.fault(LINK, -95, device=0, assertion="recover")
    await rig.up()
    reasons = [str(line.decision.reason) for line in rig.bus.lines()]
    levels = {line.decision.level for line in rig.bus.lines()}
    assert "FAULT_CLEARED" in reasons
    assert "PreSeparateNPU" not in levels
    await rig.end()


async def test_a_rule_over_time_takes_effect_when_its_time_has_come() -> None:
    rig = await NodeRig().up()
    rig.stream.fault(LINK, 0.3, device=0)
    await rig.clock.advance(19)
    assert [fault.level for fault in rig.bus.last().active] == ["NotHandleFault"]
    await rig.clock.advance(3)
    assert [fault.level for fault in rig.bus.last().active] == ["PreSeparateNPU"]
    await rig.end()


async def test_what_was_read_before_a_stop_in_order_is_reported() -> None:
    rig = await NodeRig().up()
    rig.stream.fault(SEPARATE, device=0)
    await rig.clock.settle()
    rig.stream.fault(SEPARATE, device=1)
    await rig.clock.settle()
    await rig.end()
    assert len(rig.bus.last().active) == 2


# --- what is durable before what --------------------------------------------------------------------------------------


async def test_letters_come_before_reasons_and_reasons_before_the_report_that_covers_them() -> None:
    rig = await NodeRig().up()
    await rig.clock.advance(1)
    rig.bus.writes.clear()
    rig.stream.raw(b"no json")
    rig.stream.fault(SEPARATE)
    await rig.clock.settle()
    assert rig.bus.writes == ["letters", "reasons", "report"]
    await rig.end()


async def test_a_letter_that_cannot_be_kept_keeps_the_report_back() -> None:
    rig = await NodeRig().up()
    await rig.clock.advance(1)
    rig.bus.writes.clear()
    rig.letters.failures.fail_next(Unavailable("away"), Unavailable("away"))
    rig.stream.raw(b"no json")
    await rig.clock.settle()
    assert rig.bus.writes == ["letters", "report"]
    assert rig.role.pulse.report_failures == 2
    await rig.end()


async def test_nothing_is_read_ahead_of_what_cannot_be_reported() -> None:
    rig = await NodeRig().up()
    await rig.clock.advance(1)
    rig.letters.is_away = True
    rig.stream.raw(b"no json")
    await rig.clock.settle()
    for device in (1, 2, 3):
        rig.stream.fault(SEPARATE, device=device)
    await rig.clock.settle()
    assert rig.stream.given == 1
    rig.letters.is_away = False
    await rig.clock.advance(1)
    assert rig.stream.given == 4
    assert len(rig.bus.last().active) == 3
    await rig.end()


async def test_a_journal_that_takes_no_reasons_keeps_no_fault_back_and_gets_each_reason_once() -> None:
    rig = await NodeRig().up()
    await rig.clock.advance(1)
    rig.audit.failures.fail_next(Unavailable("away"), Unavailable("away"))
    rig.bus.writes.clear()
    rig.stream.fault(SEPARATE)
    await rig.clock.settle()
    assert rig.bus.writes == ["report"]
    await rig.clock.advance(2.1)
    assert rig.bus.writes == ["report", "reasons"]
    assert [str(line.decision.reason) for line in rig.bus.lines()] == ["FAULT_SHOWN"]
    await rig.end()


async def test_after_a_report_that_failed_the_newest_state_is_sent() -> None:
    rig = await NodeRig().up()
    await rig.clock.advance(1)
    rig.log.failures.fail_next(*[Unavailable("away")] * 3)
    rig.stream.fault(SEPARATE, device=0)
    await rig.clock.settle()
    rig.stream.fault(SEPARATE, device=1)
    await rig.clock.advance(1)
    assert len(rig.bus.last().active) == 2
    assert rig.role.pulse.report_failures == 3
    await rig.end()


async def test_an_answer_that_was_lost_on_the_way_costs_a_second_report_and_nothing_else() -> None:
    rig = await NodeRig().up()
    await rig.clock.advance(1)
    count = len(rig.bus.line)
    rig.log.failures.lose_answer(Unavailable("no answer"))
    rig.stream.fault(SEPARATE)
    await rig.clock.advance(1)
    one, two = rig.bus.reports()[count:]
    assert one.active == two.active
    assert one.totals == two.totals
    await rig.end()


@pytest.mark.parametrize("what", ["open", "read"])
async def test_a_stream_that_is_away_is_opened_again_with_a_new_claim(what: str) -> None:
    rig = NodeRig()
    if what == "read":
        await rig.up()
        rig.stream.failures.fail_next(Unavailable("gone"))
    else:
        rig.stream.failures.fail_next(Unavailable("gone"))
        await rig.start()
    rig.stream.fault(SEPARATE)
    await rig.clock.advance(2)
    assert rig.bus.last().epoch == 2
    assert codes(rig) == [SEPARATE]
    assert "gone; begun again" in rig.said
    await rig.end()


async def test_news_that_an_earlier_life_did_not_get_out_never_follows_the_next_claim() -> None:
    rig = await NodeRig().up()
    await rig.clock.advance(1)

    def break_off() -> None:
        rig.feeds[-1].failures.fail_next(Unavailable("gone"))
        raise Unavailable("away")

    rig.log.between.append(break_off)
    rig.stream.fault(SEPARATE)
    await rig.clock.advance(3)
    epochs = [one.epoch for one in rig.bus.reports()]
    assert epochs == sorted(epochs)
    assert epochs[-1] == 2
    assert codes(rig) == [SEPARATE]
    assert "gone; begun again" in rig.said
    await rig.end()


async def test_a_right_that_is_missing_at_the_start_ends_it_and_one_that_is_taken_away_later_does_not() -> None:
    rig = NodeRig()
    rig.stream.failures.fail_next(Refused("no right"))
    rig.log.failures.fail_next(Refused("no right"))
    await rig.start()
    assert rig.task is not None
    assert isinstance(await quiet(rig.task), Refused)

    later = await NodeRig().up()
    later.stream.failures.fail_next(Refused("no right"))
    later.stream.fault(SEPARATE)
    await later.clock.advance(2)
    assert codes(later) == [SEPARATE]
    await later.end()


class Planted(Policy):
    """The shipped policy with a defect: rating one code fails."""

    __slots__ = ()

    def rate(self, plane: Plane, code: str, severity: int | None) -> Rating:
        if code == REQUEST:
            raise ZeroDivisionError("planted")
        return super().rate(plane, code, severity)


async def test_poison_costs_one_record_and_a_letter() -> None:
    rig = NodeRig(policy=Planted(**{one.name: getattr(POLICY, one.name) for one in fields(POLICY) if one.init}))
    rig.stream.fault(REQUEST)
    rig.stream.fault(SEPARATE)
    await rig.up()
    (letter,) = rig.bus.letters
    assert dict(letter.headers)["fault-agent-reason"] == DeadReason.INTERNAL.encode()
    assert codes(rig) == [SEPARATE]
    assert rig.bus.last().scanned[0].offset == 2
    await rig.end()


async def test_two_agents_of_one_node_come_to_one_that_reports() -> None:
    bus = Bus(Clock())
    one = NodeRig(bus, Stream(bus.clock), instance="a")
    two = NodeRig(bus, Stream(bus.clock), instance="b")
    for rig in (one, two):
        rig.stream.fault(SEPARATE)
    await one.start()
    await two.start()
    await bus.clock.advance(30)
    assert [one.role.pulse.standing_by, two.role.pulse.standing_by] == [True, False]
    last = bus.reports()[-1]
    assert (last.epoch, last.instance) == (2, "b")
    await one.end()
    await two.end()


# --- unknown codes ----------------------------------------------------------------------------------------------------


async def test_codes_that_no_table_knows_are_counted_and_outlast_a_restart() -> None:
    rig = NodeRig()
    rig.stream.fault("8FFFFFFF")
    rig.stream.fault("8FFFFFFF", device=1)
    await rig.up()
    await rig.kill()
    again = NodeRig(rig.bus, rig.stream, instance="b")
    await again.up()
    assert [(one.code, one.count) for one in again.role.pulse.unknown] == [("8FFFFFFF", 2)]
    told = {name: value for _, name, _, value, labels in samples(again.role, dict, {}) if not labels}
    assert (told["fault_agent_unknown_codes"], told["fault_agent_unknown_faults"]) == (1, 2)
    await again.end()
