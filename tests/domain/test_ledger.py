"""Marks of what was decided: kept as long as a report may repeat it, and no longer."""

from agent.domain.ledger import Course, Done, JobLedger, last_decided, prune
from agent.domain.reset import Phase, Policy, Recovery
from agent.domain.vocab import JobId, Millis, NodeName, Reason

AGE = 900_000


def done(*times: int) -> dict[str, Done]:
    return {f"1:0:{at}:0": Done(Millis(at), Reason.HELD) for at in times}


def test_marks_younger_than_twice_the_age_stay_as_they_are() -> None:
    marks = done(0, 5)
    assert prune(marks, Millis(2 * AGE), AGE) is marks


def test_older_ones_go_and_the_order_of_the_rest_stays() -> None:
    assert list(prune(done(0, 10, 20), Millis(2 * AGE + 11), AGE)) == ["1:0:20:0"]


def test_a_mark_of_a_clock_that_stood_ahead_holds_up_no_other_and_goes_with_its_time() -> None:
    ahead, now = 10**10, 3 * AGE
    marks = prune({**done(ahead), **done(now - 1, now)}, Millis(now), AGE)
    assert {key: mark.at for key, mark in marks.items()} == {
        f"1:0:{now - 1}:0": now - 1,
        f"1:0:{ahead}:0": now,
        f"1:0:{now}:0": now,
    }
    later = {**marks, **done(now + 2 * AGE)}
    assert list(prune(later, Millis(now + 2 * AGE + 1), AGE)) == [f"1:0:{now + 2 * AGE}:0"]


def test_no_marks_are_no_work() -> None:
    assert prune({}, Millis(10**12), AGE) == {}


def test_the_newest_decision_is_that_of_a_mark_or_of_a_recovery_s_phase() -> None:
    ledger = JobLedger(JobId("a/b"), "solo", done=done(3, 7, 5))
    assert last_decided(ledger) == 7
    recovery = Recovery(
        1, Phase.FAILED, Policy.ISOLATE, Policy.RESTART, (), NodeName("n1"), Millis(1), phase_since=Millis(9)
    )
    course = Course(recovery, (), "", "")
    assert last_decided(JobLedger(JobId("a/b"), "solo", done=done(3), courses=(course,))) == 9
    assert last_decided(JobLedger(JobId("a/b"), "solo")) == 0
