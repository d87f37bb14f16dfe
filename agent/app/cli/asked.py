"""What a person asks `why` about: which decisions and dead letters are about it.

The one rule: a reference is taken however a person writes it, and never taken for another.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from agent.app.ledgers import CLUSTER_NAME, JOB_PREFIX
from agent.app.release import is_job
from agent.domain.events import Record
from agent.domain.policy import chip_number
from agent.domain.vocab import NodeName, Plane, Reason
from agent.wire.audit import AuditLine
from agent.wire.letters import nodes_of
from agent.wire.railfile import LEDGER_NAME as RAILS_NAME

Kind = Literal["job", "node", "fault", "document"]
KINDS: Final[tuple[Kind, ...]] = ("job", "node", "fault", "document")


@dataclass(frozen=True, slots=True)
class Asked:
    """A kind and a reference as they were typed."""

    kind: Kind
    ref: str

    def __str__(self) -> str:
        return f"{self.kind} {self.ref}"

    def concerns(self, line: AuditLine) -> bool:
        """Whether a decision is about it, or wrote a document because of it."""
        return any(self._is(name) for name in names(line, self.kind)) or self._is_kept(line)

    def concerns_letter(self, letter: Record) -> bool:
        """Whether a dead letter names the node that is asked for."""
        return self.kind == "node" and self.ref in nodes_of(letter)

    def nodes(self, lines: Iterable[AuditLine]) -> frozenset[NodeName]:
        """Nodes whose reports matter: the one that is asked for, and those of the decisions about it."""
        found = {name for line in lines if self.concerns(line) for name in names(line, "node")}
        if self.kind in ("node", "fault"):
            found.add(self.ref.partition("/")[0])
        return frozenset(map(NodeName, found))

    @property
    def ledger(self) -> str:
        """The name of the agent's own ledger that is asked for, or empty: no decision is about a ledger, it keeps what
        decisions came to.
        """
        name = self.ref.rpartition("/")[2] if self.kind == "document" else ""
        return name if name in (RAILS_NAME, CLUSTER_NAME) or name.startswith(JOB_PREFIX) else ""

    def means(self, job: str) -> bool:
        """Whether that job is asked for."""
        return self.kind == "job" and self._is(job)

    @property
    def namespace(self) -> str:
        """Of the job that is asked for; empty: not told."""
        return self.ref.partition("/")[0] if self.kind == "job" and "/" in self.ref else ""

    def _is_kept(self, line: AuditLine) -> bool:
        """Whether the ledger that is asked for keeps what this decision came to."""
        decision = line.decision
        match self.ledger:
            case "":
                return False
            case name if name == RAILS_NAME:
                return decision.reason in (Reason.RAIL_ADVISED, Reason.RAIL_SUPERSEDED, Reason.RAIL_RETURNED)
            case name if name == CLUSTER_NAME:
                return not decision.job and decision.reason in (Reason.NO_JOB, Reason.HELD)
            case name:
                namespace, _, job = decision.job.partition("/")
                asked = self.ref.rpartition("/")[0]
                return bool(job) and f"{JOB_PREFIX}{job}" == name and asked in ("", namespace)

    def _is(self, name: str) -> bool:
        if self.kind == "fault":
            return is_fault(name, self.ref)
        if self.kind == "node" or name == self.ref:
            return name == self.ref
        if self.kind == "document":
            return name.partition("/")[2] == self.ref
        return is_job(name, self.ref)


def names(line: AuditLine, kind: Kind) -> Iterator[str]:
    """What of a kind a decision is about: itself, and what is behind the document that it wrote."""
    decision = line.decision
    found: list[str]
    match kind:
        case "job":
            found = [decision.job, *(one.job for one in decision.causes)]
        case "node":
            found = [decision.node, *(one.fault.partition("/")[0] for one in decision.causes)]
        case "fault":
            found = [decision.fault, *(one.fault for one in decision.causes)]
        case "document":
            found = [decision.document]
    return (name for name in dict.fromkeys(found) if name)


def known(lines: Iterable[AuditLine], asked: Asked) -> list[str]:
    """What of the kind is known, those first that have most in common with what was asked for."""
    found = {name for line in lines for name in names(line, asked.kind)}
    if asked.kind != "fault":
        return sorted(found)
    wanted = set(asked.ref.casefold().partition("@")[0].split("/"))
    return sorted(found, key=lambda name: (-len(wanted & set(name.casefold().partition("@")[0].split("/", 3))), name))


def is_fault(name: str, ref: str) -> bool:
    """Whether a reference is the one asked for, begins with it, or has the code that is asked for."""
    identity, _, at = name.rpartition("@")
    asked, found, asked_at = ref.rpartition("@")
    if not found or not asked_at.isdecimal():
        asked, asked_at = ref, ""
    parts, wanted = identity.split("/", 3), asked.rstrip("/").split("/", 3)
    if len(parts) != 4 or (asked_at and asked_at != at):
        return False
    if len(wanted) == 1 and "/" not in asked and _same_code(parts[1], parts[3], wanted[0]):
        return True
    front = [word.casefold() for word in wanted[:3]]
    if front != [part.casefold() for part in parts[: len(front)]]:
        return False
    return len(wanted) < 4 or _same_code(parts[1], parts[3], wanted[3])


def _same_code(plane: str, code: str, asked: str) -> bool:
    """Chip codes are numbers; of the others the case alone may differ."""
    if plane in (Plane.CHIP, Plane.NETWORK):
        number = chip_number(asked)
        return number is not None and number == chip_number(code)
    return code.casefold() == asked.casefold()
