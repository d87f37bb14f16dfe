"""What the roles on services have left, brought together for who asks why.

The one rule: it only reads, and of a long journal only its end; without the ledgers the rest is still told.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.app.standing import Evidence, standing_of
from agent.domain.events import Record
from agent.domain.vocab import Millis, NodeName
from agent.errors import AgentError
from agent.ports import ConfigMap, Now
from agent.wire.audit import AuditLine, decode_all

WITHOUT_LEDGERS: Final = "recoveries under way, held NPUs and what a job has left are not told"


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to read."""

    cluster: str
    """Reports and ledgers of another cluster are findings."""
    lines: Callable[[], Awaitable[Sequence[bytes]]]
    letters: Callable[[], Awaitable[Sequence[Record]]]
    reports: Callable[[Collection[NodeName]], Awaitable[Mapping[NodeName, bytes]]]
    ledgers: Callable[[], Awaitable[Sequence[ConfigMap]]]
    now: Now


async def gather(sources: Sources, nodes_of: Callable[[Sequence[AuditLine]], Collection[NodeName]]) -> Evidence:
    """The evidence; of the journal's lines `nodes_of` says whose reports matter. Raises what the sources raise, but for
    the ledgers: where those cannot be had that is a finding.
    """
    lines, findings = decode_all(await sources.lines(), "audit")
    lines.sort(key=lambda line: line.decision.at)  # several writers, each with a clock of its own
    letters = await sources.letters()
    nodes = nodes_of(lines)
    reports = await sources.reports(nodes) if nodes else {}
    try:
        documents = await sources.ledgers()
    except AgentError as error:
        findings.append(f"ledgers cannot be read: {error}; {WITHOUT_LEDGERS}")
        documents = ()
    standing, unread = standing_of(reports, documents, sources.cluster)
    return Evidence(lines, letters, standing, (*findings, *unread), Millis(sources.now()))
