"""Which object a decision is announced on, with which words, and what is not worth an Event."""

import pytest
from kubebuilders import DEMO_GROUP, DEMO_JOB, the_demo
from rolerig import CLUSTER

from agent.app.herald import NOTE_LIMIT, Herald
from agent.app.world import World
from agent.domain.cluster import ClusterBook, Limits
from agent.domain.events import Decision
from agent.domain.vocab import JobId, Millis, Mode, NodeName, Reason
from agent.wire.audit import AuditLine

JOB = JobId(DEMO_JOB)


class Board:
    """Announcer that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str, str, str, bool]] = []

    async def announce(self, kind: str, namespace: str, name: str, reason: str, note: str, warning: bool) -> None:
        self.said.append((kind, namespace, name, reason, note, warning))


async def said(
    decision: Decision, mode: Mode = Mode.ACT, meaning: str = ""
) -> list[tuple[str, str, str, str, str, bool]]:
    book = ClusterBook(CLUSTER, Limits())
    world = World(book)
    for item in the_demo():
        world.apply(item)
    board = Board()
    await Herald(book, board, mode).say(AuditLine(decision, str(mode), "p", meaning))
    return board.said


def decision(reason: Reason = Reason.RECOVERY_STARTED, **given: str) -> Decision:
    return Decision(
        Millis(0),
        reason,
        node=NodeName(given.get("node", "")),
        job=JobId(given.get("job", "")),
        fault=given.get("fault", ""),
        level=given.get("level", ""),
        detail=given.get("detail", ""),
    )


@pytest.mark.parametrize(
    ("job", "node", "target"),
    [
        pytest.param(DEMO_JOB, "n2", ("Pod", "train", "demo-1"), id="the job's pod on that node"),
        pytest.param(DEMO_JOB, "n9", ("Node", "", "n9"), id="the node, when no pod of the job is there"),
        pytest.param(DEMO_JOB, "", ("PodGroup", "train", DEMO_GROUP), id="the PodGroup, when no node is concerned"),
        pytest.param("", "n1", ("Node", "", "n1"), id="the node, without a job"),
    ],
)
async def test_a_decision_is_announced_on(job: str, node: str, target: tuple[str, str, str]) -> None:
    (found,) = await said(decision(job=job, node=node))
    assert found[:3] == target


async def test_a_decision_about_nothing_in_particular_is_not_announced() -> None:
    assert await said(decision()) == []


async def test_the_note_names_the_fault_its_level_and_what_it_means_without_the_time() -> None:
    given = decision(node="n1", fault="n1/chip/2/80C98000@1767225600000", level="RestartRequest", detail="recovery 1")
    (found,) = await said(given, meaning="check failed")
    assert found[3:] == ("RecoveryStarted", "n1/chip/2/80C98000: RestartRequest: recovery 1: check failed", True)


async def test_observe_says_so_in_the_note() -> None:
    (found,) = await said(decision(node="n1", detail="x"), Mode.OBSERVE)
    assert found[4] == "(observe) x"


async def test_a_note_is_cut() -> None:
    (found,) = await said(decision(node="n1", detail="x" * 5000))
    assert len(found[4]) == NOTE_LIMIT


@pytest.mark.parametrize("reason", [Reason.WRITTEN, Reason.UNCHANGED, Reason.OBSERVE, Reason.LEVEL_NEEDS_NOTHING])
async def test_what_nobody_waits_for_is_left_to_the_journal(reason: Reason) -> None:
    assert await said(decision(reason, node="n1")) == []


async def test_what_would_have_been_done_is_announced_in_observe_mode() -> None:
    fault = "n1/chip/2/80C98000@1767225600000"
    (found,) = await said(
        decision(Reason.OBSERVE, job=DEMO_JOB, node="n1", fault=fault, detail="would start"), Mode.OBSERVE
    )
    assert found[:5] == ("Pod", "train", "demo-0", "Observe", "(observe) n1/chip/2/80C98000: would start")


@pytest.mark.parametrize(
    ("reason", "warning"),
    [(Reason.HELD, True), (Reason.DOCUMENT_REFUSED, True), (Reason.RECOVERY_ENDED, False), (Reason.NO_JOB, False)],
)
async def test_only_what_needs_a_person_is_a_warning(reason: Reason, warning: bool) -> None:
    (found,) = await said(decision(reason, node="n1"))
    assert found[5] is warning
