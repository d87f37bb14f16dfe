"""What services have left, brought together: order, whose reports are asked for, and what may be missing."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from agent.app.gather import WITHOUT_LEDGERS, Sources, gather
from agent.app.standing import Evidence, Standing
from agent.domain.events import Decision, NodeReport, Position, Record
from agent.domain.ledger import JobLedger
from agent.domain.vocab import JobId, Millis, NodeName, Reason
from agent.errors import AgentError, CannotRun, Refused, Unavailable
from agent.ports import ConfigMap
from agent.wire.audit import AuditLine, encode_audit
from agent.wire.ledgerfile import LEDGER_KEY, encode_job_ledger
from agent.wire.report import encode

N1, N2, JOB = NodeName("n1"), NodeName("n2"), JobId("train/demo")
LETTER = Record(Position(0, 0, 3), b"n1", b"x", (("fault-agent-reason", b"NOT_JSON"),), Millis(4))
REPORTS = {node: NodeReport("prod", node, 1, 1, "i") for node in (N1, N2)}
LEDGER = JobLedger(JOB, "prod", retry_times=3)


def line(at: int, node: NodeName = N1) -> AuditLine:
    return AuditLine(Decision(Millis(at), Reason.FAULT_SHOWN, node), "act", "p")


class Services:
    """What the topics and the API server answer."""

    def __init__(self, lines: Sequence[bytes], *, broken: AgentError | None = None) -> None:
        self._lines = lines
        self._broken = broken
        self.asked: list[frozenset[NodeName]] = []

    async def lines(self) -> Sequence[bytes]:
        return self._lines

    async def letters(self) -> Sequence[Record]:
        return (LETTER,)

    async def reports(self, nodes: Collection[NodeName]) -> Mapping[NodeName, bytes]:
        self.asked.append(frozenset(nodes))
        return {node: encode(REPORTS[node]) for node in nodes if node in REPORTS}

    async def ledgers(self) -> Sequence[ConfigMap]:
        if self._broken is not None:
            raise self._broken
        return (ConfigMap("train", "fault-agent-job-demo", {LEDGER_KEY: encode_job_ledger(LEDGER)}),)

    def gather(self, *nodes: NodeName) -> Evidence:
        sources = Sources("prod", self.lines, self.letters, self.reports, self.ledgers, lambda: Millis(99))
        return asyncio.run(gather(sources, lambda _: nodes))


def test_decisions_of_several_writers_are_put_in_the_order_of_their_times() -> None:
    written = [line(5), line(3, N2), line(5, N2), line(4)]
    evidence = Services([encode_audit(one) for one in written]).gather()
    assert list(evidence.lines) == [written[1], written[3], written[0], written[2]]
    assert (evidence.letters, evidence.at, evidence.findings) == ((LETTER,), 99, ())


def test_reports_are_asked_for_of_the_nodes_that_matter_and_of_no_others() -> None:
    services = Services([])
    evidence = services.gather(N2)
    assert services.asked == [frozenset({N2})]
    assert evidence.standing == Standing({N2: REPORTS[N2]}, {JOB: LEDGER})
    services.gather()
    assert services.asked == [frozenset({N2})], "none matters"


@pytest.mark.parametrize("error", [Unavailable("gone"), CannotRun("no kubeconfig"), Refused("no right")])
def test_without_the_ledgers_the_rest_is_told_and_that_they_are_missing(error: AgentError) -> None:
    evidence = Services([encode_audit(line(1)), b"torn"], broken=error).gather(N1)
    assert list(evidence.lines) == [line(1)]
    assert evidence.standing == Standing({N1: REPORTS[N1]})
    torn, missing = evidence.findings
    assert torn.startswith("audit:2: no audit line")
    assert missing == f"ledgers cannot be read: {error}; {WITHOUT_LEDGERS}"


def test_a_node_without_a_report_is_not_known() -> None:
    assert Services([]).gather(NodeName("n7")).standing == Standing({}, {JOB: LEDGER})


def test_nothing_of_rails_is_known_without_their_ledger() -> None:
    assert Services([]).gather().standing.rails is None
