"""How rails stand by the ledgers: held, waited for, expired, ended, and what is left."""

from dataclasses import replace

from agent.app.railstanding import Watched, rails_of
from agent.app.standing import Standing
from agent.domain.events import FaultKey, NodeReport, Occurrence
from agent.domain.ledger import Done, JobLedger, Member
from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import RailLedger, Reservation
from agent.domain.vocab import JobId, Millis, NodeName, OccurrenceId, Plane, Reason

JOB, N1, N2 = JobId("train/demo"), NodeName("n1"), NodeName("n2")
AT = Millis(1_000_000)
FAILED = Reservation(
    id="p/n1/0",
    plan="p",
    job=JOB,
    job_uid="u",
    incarnation="i",
    node=N1,
    npu=0,
    die_from=0,
    die_to=1,
    rank=0,
    at=AT,
    rule=28,
    reason="BORROW",
    state=HoldState.ADVISED,
    faulted=True,
    links=((0, 4),),
    faults=("n1/network/0/81078603@1",),
    events=("0:0:0:0",),
)
OTHER_END = replace(FAILED, id="p/n2/0", node=N2, rank=4, faulted=False)
LEDGER = JobLedger(JOB, "c", members=(Member("a", "demo-0", N1, (0, 1, 2, 3)), Member("b", "demo-1", N2, (0, 1, 2, 3))))


def test_what_is_held_and_what_is_left() -> None:
    (one,) = rails_of(Standing(ledgers={JOB: LEDGER}, rails=RailLedger((FAILED, OTHER_END))), AT)
    assert (one.npus, one.left) == (4, 2)
    (plan,) = one.held
    assert (plan.plan, plan.since, plan.faults) == ("p", AT, ("n1/network/0/81078603@1",))
    assert plan.failed == (FAILED,)
    assert not plan.returnable
    assert not plan.overdue


def test_another_job_s_hold_is_not_left_either() -> None:
    theirs = replace(FAILED, job=JobId("train/other"), node=N2, npu=1, die_from=3, die_to=2)
    found = {one.job: one for one in rails_of(Standing(ledgers={JOB: LEDGER}, rails=RailLedger((FAILED, theirs))), AT)}
    assert found[JOB].left == 2
    assert (found[JobId("train/other")].npus, found[JobId("train/other")].left) == (None, None)


def test_a_plan_whose_links_are_all_back_can_be_returned() -> None:
    back = replace(FAILED, link_back=Millis(AT + 5))
    (one,) = rails_of(Standing(rails=RailLedger((back, OTHER_END))), AT)
    assert one.held[0].returnable
    (one,) = rails_of(Standing(rails=RailLedger((back, replace(OTHER_END, faulted=True)))), AT)
    assert not one.held[0].returnable


def test_a_reservation_that_nobody_was_told_of_in_a_minute_is_overdue() -> None:
    ledger = RailLedger((replace(FAILED, state=HoldState.RESERVED),))
    for after, wanted in ((60_000, False), (60_001, True)):
        (one,) = rails_of(Standing(rails=ledger), Millis(AT + after))
        assert one.held[0].overdue is wanted


def test_a_plan_that_ended_in_part_is_told_in_both_places() -> None:
    gone = replace(OTHER_END, state=HoldState.SUPERSEDED, closed_at=Millis(AT + 9))
    (one,) = rails_of(Standing(rails=RailLedger((FAILED, gone))), AT)
    assert [len(plan.npus) for plan in one.held] == [1]
    assert [(str(plan.state), plan.ended) for plan in one.history] == [("superseded", AT + 9)]


def test_what_is_waited_for_and_what_came_too_late() -> None:
    done = {
        "rail~0:0:1:0~seen": Done(Millis(5), Reason.RAIL_OBSERVING),
        "rail~0:0:2:0~seen": Done(Millis(6), Reason.RAIL_OBSERVING),
        "rail~0:0:2:0": Done(Millis(7), Reason.RAIL_REFUSED),
        "rail~0:0:3:0": Done(Millis(8), Reason.TOO_OLD),
        "0:0:4:0~x~1": Done(Millis(9), Reason.TOO_OLD),
    }
    key = FaultKey(N1, Plane.NETWORK, "0", "81078603")
    report = NodeReport(
        "c", N1, 1, 1, "i", occurrences=(Occurrence(OccurrenceId("0:0:1:0"), key, Millis(4), None, "x"),)
    )
    (one,) = rails_of(Standing({N1: report}, {JOB: replace(LEDGER, done=done)}), AT)
    assert one.watched == (
        Watched("0:0:1:0", Millis(5), "n1/network/0/81078603@4"),
        Watched("0:0:3:0", Millis(8), "", expired=True),
    )


def test_where_the_ledger_cannot_be_read_nobody_knows_what_is_left() -> None:
    done = {"rail~0:0:1:0~seen": Done(Millis(5), Reason.RAIL_OBSERVING)}
    standing = Standing(ledgers={JOB: replace(LEDGER, done=done)}, rails_unread=True)
    (one,) = rails_of(standing, AT)
    assert (one.npus, one.left) == (4, None)


def test_a_job_of_which_nothing_about_rails_is_known_is_not_listed() -> None:
    assert rails_of(Standing(ledgers={JOB: LEDGER}), AT) == ()
