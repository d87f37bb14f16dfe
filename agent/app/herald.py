"""Decisions as Kubernetes Events on the Pod or Node concerned, for people who look there first.

The one rule: never in the way; what cannot be announced is journalled all the same.
"""

from agent.domain.cluster import ClusterBook
from agent.domain.events import Decision
from agent.domain.vocab import Mode, Reason
from agent.ports import Announcer
from agent.wire.audit import AuditLine

QUIET = frozenset(
    {
        Reason.WRITTEN,
        Reason.UNCHANGED,
        Reason.ALREADY_ACTIVE,
        Reason.NOT_ACTIVE,
        Reason.DUPLICATE_MESSAGE,
        Reason.LEVEL_NEEDS_NOTHING,
        Reason.RAIL_OBSERVING,
        Reason.FAULT_COUNTED,
        Reason.RELATION_IGNORED,
        Reason.DROPPED,
        Reason.DISABLED,
    }
)
"""Reasons that no one waits for; the audit has them."""
WARNINGS = frozenset(
    {
        Reason.HELD,
        Reason.FAULT_SHOWN,
        Reason.RECOVERY_STARTED,
        Reason.RECOVERY_ESCALATED,
        Reason.RECOVERY_FAILED,
        Reason.SEPARATED,
        Reason.RELATION_SEPARATE,
        Reason.RAIL_REFUSED,
        Reason.RAIL_ADVISED,
        Reason.RAIL_UNVERIFIED,
        Reason.ISOLATION_ONLY,
        Reason.NO_RESET_EXECUTOR,
        Reason.DOCUMENT_REFUSED,
        Reason.DOCUMENT_UNREADABLE,
        Reason.LEDGER_UNREADABLE,
    }
)
NOTE_LIMIT = 1000


class Herald:
    """Turns audit lines into announcements."""

    def __init__(self, book: ClusterBook, announcer: Announcer, mode: Mode) -> None:
        self._book = book
        self._announcer = announcer
        self._mode = mode

    async def say(self, line: AuditLine) -> None:
        """Announce one decision on the pod it concerns, else on its node, else on its job's PodGroup."""
        decision = line.decision
        # What observing keeps from a fault is what one observes for; that a document would change goes to the journal.
        if decision.reason in QUIET or (decision.reason is Reason.OBSERVE and not decision.fault):
            return
        target = self._target(decision)
        if target is None:
            return
        kind, namespace, name = target
        identity = decision.fault.rpartition("@")[0]
        parts = (identity, decision.level, decision.detail, line.meaning)
        note = ": ".join(part for part in parts if part)[:NOTE_LIMIT]
        if self._mode is not Mode.ACT:
            note = f"({self._mode}) {note}"
        await self._announcer.announce(kind, namespace, name, camel(decision.reason), note, decision.reason in WARNINGS)

    def _target(self, decision: Decision) -> tuple[str, str, str] | None:
        if decision.job:
            for pod in self._book.jobs.pods_of(decision.job):
                if pod.node == decision.node and decision.node:
                    return "Pod", pod.namespace, pod.name
            namespace, _, name = decision.job.partition("/")
            return ("PodGroup", namespace, name) if not decision.node else ("Node", "", decision.node)
        return ("Node", "", decision.node) if decision.node else None


def camel(reason: Reason) -> str:
    """RECOVERY_STARTED as RecoveryStarted, the way reasons of Events are written."""
    return "".join(part.capitalize() for part in reason.split("_"))
