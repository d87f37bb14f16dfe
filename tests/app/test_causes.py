"""What is behind a document that waits to be written."""

from command import LABELS
from kubebuilders import DEMO_JOB, the_demo
from rig import T0, Rig

from agent.app.causes import MOST, Causes
from agent.domain.cluster import ClusterBook, Limits, Shared, Verdict
from agent.domain.events import ActiveFault, Behind, Decision, FaultKey, NodeReport
from agent.domain.faultnodes import FaultNodeEntry
from agent.domain.ledger import JobLedger
from agent.domain.vocab import JobId, Millis, NodeName, OccurrenceId, Plane, Reason, Source

NODE = NodeName("n1")
JOB = JobId("train/demo")
VCJOB = (Shared.VCJOB, JobId(""))
RECORDS = (Shared.RECORDS, JobId(""))
CHANGED = Verdict(entries={NODE: FaultNodeEntry(NODE, "CardUnhealthy")})


def fault(device: int, level: str = "SeparateNPU", *, held: bool = False) -> ActiveFault:
    key = FaultKey(NODE, Plane.CHIP, str(device), "80E18402")
    return ActiveFault(key, Millis(7), level, "chip-table", OccurrenceId("0:0:0:0"), Source.DCMI, held=held)


def ref(device: int) -> Behind:
    return Behind(f"n1/chip/{device}/80E18402@7")


def decided(causes: Causes, *active: ActiveFault, verdict: Verdict = CHANGED) -> tuple[Behind, ...]:
    """What is behind the node's document after the node was decided with these faults, were it written."""
    book = ClusterBook("c", Limits())
    book.reports[NODE] = NodeReport("c", NODE, 1, 1, "i", active=active)
    causes.of_node(book, NODE, verdict, Millis(1000))
    return causes.behind(VCJOB, Reason.WRITTEN)


def test_behind_a_node_is_what_began_ended_or_changed_its_level_since_it_was_last_decided() -> None:
    causes = Causes()
    assert decided(causes, fault(1)) == (ref(1),)
    assert decided(causes, fault(1), fault(2)) == (ref(2),)
    assert decided(causes, fault(1), fault(2, "RestartNPU")) == (ref(2),)
    assert decided(causes, fault(1)) == (ref(2),)


def test_a_fault_that_changed_nothing_is_not_behind_a_later_change() -> None:
    causes = Causes()
    assert decided(causes, fault(1, "NotHandleFault"), verdict=Verdict()) == ()
    assert decided(causes, fault(1, "NotHandleFault"), fault(2)) == (ref(2),)


def test_behind_a_change_that_no_fault_has_made_is_all_that_is_active() -> None:
    """A job left, and what was in use is not any more."""
    causes = Causes()
    decided(causes, fault(1), fault(2))
    assert decided(causes, fault(1), fault(2)) == (ref(1), ref(2))


def test_a_held_fault_is_behind_nothing() -> None:
    assert decided(Causes(), fault(1), fault(2, "NotHandleFault", held=True)) == (ref(1),)


def test_a_fault_that_is_kept_back_is_behind_nothing_until_its_release() -> None:
    # A bus fault waits 5 s for a memory error.
    key = FaultKey(NODE, Plane.CHIP, "2", "80CB8009")
    waiting = ActiveFault(
        key, Millis(7), "RestartRequest", "chip-table", OccurrenceId("0:0:1:0"), Source.DCMI, devices=(2,)
    )
    causes, book = Causes(), ClusterBook("c", Limits())
    book.reports[NODE] = NodeReport("c", NODE, 1, 1, "i", active=(fault(1), waiting))
    causes.of_node(book, NODE, CHANGED, Millis(1000))
    assert causes.behind(VCJOB, Reason.WRITTEN) == (ref(1),)
    causes.of_node(book, NODE, CHANGED, Millis(5008))
    assert causes.behind(VCJOB, Reason.WRITTEN) == (Behind("n1/chip/2/80CB8009@7"),)


def said(reason: Reason, document: str = "", device: int = 1) -> Decision:
    return Decision(Millis(9), reason, NODE, ref(device).fault, JOB, document=document)


def test_behind_the_documents_of_a_job_are_the_faults_of_the_decisions_about_them() -> None:
    causes = Causes()
    verdict = Verdict(
        decisions=(
            said(Reason.RECOVERY_STARTED, "train/reset-config-demo"),
            said(Reason.RAIL_ADVISED, "train/fault-agent-rail-demo", 2),
            said(Reason.RESCHEDULE_RECORDED, device=3),
            said(Reason.NO_RANK, device=4),
        )
    )
    causes.of_job(ClusterBook("c", Limits()), JOB, verdict)
    assert causes.behind(("reset", JOB), Reason.WRITTEN) == (Behind(ref(1).fault, JOB),)
    assert causes.behind(("plan", JOB), Reason.WRITTEN) == (Behind(ref(2).fault, JOB),)
    assert causes.behind(RECORDS, Reason.WRITTEN) == (Behind(ref(3).fault, JOB),)
    assert causes.behind(VCJOB, Reason.WRITTEN) == ()


def test_behind_changed_retries_is_the_job_and_faults_come_before_it() -> None:
    causes, book = Causes(), ClusterBook("c", Limits())
    causes.of_job(book, JOB, Verdict(ledgers={JOB: JobLedger(JOB, "c", retry_times=3)}))
    assert decided(causes, fault(1)) == (ref(1), Behind("", JOB))
    book.ledgers[JOB] = JobLedger(JOB, "c", retry_times=3)
    causes.of_job(book, JOB, Verdict(ledgers={JOB: JobLedger(JOB, "c", retry_times=3, last_recovery=1)}))
    assert causes.behind(VCJOB, Reason.WRITTEN) == ()
    causes.of_job(book, JOB, Verdict(ledgers={JOB: None}))
    assert causes.behind(VCJOB, Reason.WRITTEN) == (Behind("", JOB),)


def test_what_is_behind_a_document_stays_until_it_is_up_to_date() -> None:
    causes = Causes()
    causes.of_job(ClusterBook("c", Limits()), JOB, Verdict(decisions=(said(Reason.RESCHEDULE_RECORDED),)))
    for reason in (Reason.DOCUMENT_REFUSED, Reason.FOREIGN_WRITER_LIVE, Reason.DOCUMENT_UNREADABLE, Reason.UNCHANGED):
        assert causes.behind(RECORDS, reason) == (Behind(ref(1).fault, JOB),)
    assert causes.behind(RECORDS, Reason.WRITTEN) == ()


def test_of_many_causes_the_newest_are_told() -> None:
    assert decided(Causes(), *(fault(device) for device in range(20))) == tuple(
        ref(device) for device in range(20 - MOST, 20)
    )


async def test_what_would_be_written_is_told_with_what_is_behind_it_too() -> None:
    rig = Rig(the_demo(LABELS), {"mode": "observe"})
    rig.fault("80E18402", 1)
    await rig.run()
    shown = [one for one in rig.decisions if one.document == "volcano-system/vcjob-fault-npu-cm"]
    assert [(one.reason, one.causes) for one in shown] == [
        (Reason.OBSERVE, (Behind("", JobId(DEMO_JOB)),)),
        (Reason.OBSERVE, (Behind(f"n1/chip/2/80E18402@{T0 + 1000}"),)),
    ]
