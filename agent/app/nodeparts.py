"""What the node role is made of, and what is told of it.

The one rule: values and promises only; nothing here does anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.app.linkrounds import LinkRounds
from agent.app.node_app import NodeSide
from agent.app.policykeep import PolicyKeep
from agent.domain.events import UnknownCode
from agent.domain.vocab import Millis, NodeName
from agent.ports import DeadLetters, FaultSource, Journal, Now, ReportFeed, Tracer


class OwnReports(Protocol):
    """Where a node's reports are kept (a ReportLog that can find the newest one of a node)."""

    async def publish(self, reports: Mapping[NodeName, bytes]) -> None:
        """Durable when it returns. Raises Unavailable."""
        ...

    async def last(self, node: NodeName, since: Millis) -> bytes | None:
        """The node's newest report; looked for from `since` (ms) on first. Raises Unavailable."""
        ...


@dataclass(slots=True)
class Pulse:
    """What liveness, readiness and metrics are told by."""

    records: int = 0
    letters: int = 0
    untold: int = 0
    """Reasons that were let go of because the journal took none for too long."""
    reports: int = 0
    report_failures: int = 0
    caught_up: bool = False
    standing_by: bool = False
    last_report: Millis = Millis(0)
    reasons: dict[str, int] = field(default_factory=dict)
    unknown: Sequence[UnknownCode] = ()


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Everything the role is made of."""

    node: NodeName
    cluster: str
    machine: str
    instance: str
    source: FaultSource
    reports: OwnReports
    make_feed: Callable[[], ReportFeed]
    """The reports of this node from now on; a new one for each claim, for nobody needs what was before it."""
    letters: DeadLetters
    audit: Journal
    make_side: Callable[[], NodeSide]
    tracer: Tracer
    now: Now
    mode: str
    policy: PolicyKeep
    meaning: Callable[[str], str]
    links: LinkRounds | None = None
    """Rounds over the links of this node; None: nobody looks."""
