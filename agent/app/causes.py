"""What is behind a document that waits to be written: the faults and jobs that have changed it since the last time.

The one rule: it only looks on; a cause is let go once its document has been brought up to date.
"""

from typing import Final

from agent.app.slots import Slot
from agent.domain.cluster import ClusterBook, Shared, Verdict
from agent.domain.cluster.effective import faults_at
from agent.domain.events import Behind, fault_ref
from agent.domain.ledger import JobLedger
from agent.domain.vocab import JobId, Millis, NodeName, Reason

MOST: Final = 8
"""Causes that are told of one write; the reasons beside it tell the others."""
_UP_TO_DATE: Final = frozenset({Reason.WRITTEN, Reason.UNCHANGED, Reason.OBSERVE, Reason.RECOVERY_ENDED})
_ALL: Final = JobId("")


class Causes:
    """Gathers while the coordinator decides; asked when a document has been published."""

    def __init__(self) -> None:
        self._behind: dict[Slot, dict[Behind, None]] = {}
        self._active: dict[NodeName, dict[str, str]] = {}
        """References of each node's faults with their levels, as they were when the node was last decided."""

    def clear(self) -> None:
        """Begin anew: another coordinator may have written meanwhile."""
        self._behind.clear()
        self._active.clear()

    def of_node(self, book: ClusterBook, node: NodeName, verdict: Verdict, at: Millis) -> None:
        """A node was decided at that time (ms): when its entry changes, what began, ended or changed its level is
        behind that, and where nothing did (a job came or went) all that counts. What is kept back is behind nothing.
        """
        now = {
            fault_ref(one.fault.key, one.fault.since): one.fault.level
            for one, kept in faults_at(book, node, at)
            if kept is None and not one.fault.held
        }
        before = self._active.get(node, {})
        if now:
            self._active[node] = now
        else:
            self._active.pop(node, None)
        if verdict.entries:
            moved = [ref for ref in {**before, **now} if before.get(ref) != now.get(ref)]
            self._add((Shared.VCJOB, _ALL), [Behind(ref) for ref in moved or now])

    def of_job(self, book: ClusterBook, job: JobId, verdict: Verdict) -> None:
        """A job was decided: what its decisions say is behind the documents that they are about."""
        for decision in verdict.decisions:
            behind = [Behind(decision.fault, job), *decision.causes]
            if decision.reason is Reason.RESCHEDULE_RECORDED:
                self._add((Shared.RECORDS, _ALL), behind)
            elif decision.document and decision.fault:
                self._add(("plan" if decision.reason.startswith("RAIL_") else "reset", job), behind)
        for one, ledger in verdict.ledgers.items():
            if _retries(ledger) != _retries(book.ledgers.get(one)):
                self._add((Shared.VCJOB, _ALL), [Behind("", one)])

    def _add(self, slot: Slot, causes: list[Behind]) -> None:
        known = self._behind.setdefault(slot, {})
        for cause in causes:
            known.pop(cause, None)  # to the young end: of many the newest are told
            known[cause] = None
        while len(known) > MOST:
            del known[next(iter(known))]

    def behind(self, slot: Slot, reason: Reason) -> tuple[Behind, ...]:
        """What is behind a document of which that became, faults before jobs; it is let go when the document is up to
        date now.
        """
        known = tuple(sorted(self._behind.get(slot, ()), key=lambda one: not one.fault))
        if reason in _UP_TO_DATE:
            self._behind.pop(slot, None)
        return known


def _retries(ledger: JobLedger | None) -> int | None:
    return ledger.retry_times if ledger is not None else None
