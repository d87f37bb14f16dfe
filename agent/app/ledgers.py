"""The agent's own ledgers in the document store: read once at the start, written by compare-and-swap.

The one rule: a ledger somebody else has changed fences this writer; one that cannot be read is never overwritten.
"""

from collections.abc import Callable
from dataclasses import replace

from agent.app.documents import owner_reference
from agent.domain.cluster import ClusterBook, take_ledger
from agent.domain.events import Decision
from agent.domain.ledger import ClusterLedger
from agent.domain.rail.reservations import RailLedger
from agent.domain.vocab import JobId, Millis, Reason
from agent.errors import BadDocument, Conflict, Fenced
from agent.ports import ConfigMap, DocumentStore
from agent.wire.ledgerfile import (
    LEDGER_KEY,
    decode_cluster_ledger,
    decode_job_ledger,
    encode_cluster_ledger,
    encode_job_ledger,
)
from agent.wire.railfile import LEDGER_NAME as RAILS_NAME
from agent.wire.railfile import PLAN_KEY
from agent.wire.railfile import decode_ledger as decode_rails
from agent.wire.railfile import encode_ledger as encode_rails

CLUSTER_NAME = "fault-agent-cluster"
JOB_PREFIX = "fault-agent-job-"
RESET_KEY = "reset-config"
"""Beside a job's ledger: where its reset.json is, for the time when the job's objects are gone."""


class Ledgers:
    """Loads the book's ledgers and stores those that have changed since."""

    def __init__(self, store: DocumentStore, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._stored: dict[tuple[str, str], ConfigMap] = {}
        self._cluster: ClusterLedger | None = None
        self._rails: RailLedger | None = None
        self.plans: dict[JobId, str] = {}
        """Text of each job's newest rail plan, kept beside its ledger so that a restart can finish publishing it."""
        self.reset_names: dict[JobId, str] = {}

    async def load(self, book: ClusterBook, now: Millis, tell: Callable[[Decision], None]) -> None:
        """Take every ledger of the store into the book; what cannot be read freezes what it was for."""
        for document in await self._store.list():
            place = f"{document.namespace}/{document.name}"
            try:
                self._read(document, book, place)
            except BadDocument as error:
                tell(Decision(now, Reason.LEDGER_UNREADABLE, document=place, detail=str(error)))
        self._cluster, self._rails = book.cluster, book.rails

    def _read(self, document: ConfigMap, book: ClusterBook, place: str) -> None:
        key = (document.namespace, document.name)
        text = document.data.get(LEDGER_KEY, "")
        if key == (self._namespace, CLUSTER_NAME):
            book.cluster = decode_cluster_ledger(text, book.cluster_id, place)
        elif key == (self._namespace, RAILS_NAME):
            book.rails = None
            book.rails = decode_rails(text, book.cluster_id)
        elif document.name.startswith(JOB_PREFIX):
            job = JobId(f"{document.namespace}/{document.name.removeprefix(JOB_PREFIX)}")
            book.frozen.add(job)
            ledger = decode_job_ledger(text, book.cluster_id, place)
            book.frozen.discard(job)
            take_ledger(book, ledger.job, ledger)
            if ledger.life is not None:
                book.jobs.resume(ledger.job, ledger.life)
            if PLAN_KEY in document.data:
                self.plans[ledger.job] = document.data[PLAN_KEY]
            if RESET_KEY in document.data:
                self.reset_names[ledger.job] = document.data[RESET_KEY]
        else:
            return
        self._stored[key] = document

    async def store(self, book: ClusterBook) -> None:
        """Write what has changed: reservations first, for they are shared between jobs, then jobs, then the cluster.

        Raises Fenced when another writer has changed one of them, Unavailable.
        """
        if book.rails is not None and book.rails != self._rails:
            await self._put(self._namespace, RAILS_NAME, {LEDGER_KEY: encode_rails(book.rails, book.cluster_id)})
            self._rails = book.rails
        for job in sorted(book.dirty):
            await self._store_job(book, job)
            book.dirty.discard(job)
        if book.cluster != self._cluster:
            await self._put(self._namespace, CLUSTER_NAME, {LEDGER_KEY: encode_cluster_ledger(book.cluster)})
            self._cluster = book.cluster

    async def _store_job(self, book: ClusterBook, job: JobId) -> None:
        ledger = book.ledgers.get(job)
        namespace, _, name = job.partition("/")
        key = (namespace, f"{JOB_PREFIX}{name}")
        if ledger is None:
            stored = self._stored.pop(key, None)
            if stored is not None:
                await self._store.delete(*key, stored.resource_version)
            self.plans.pop(job, None)
            return
        plan = self.plans.get(job)
        found = book.jobs.job(job)
        if found is not None:
            self.reset_names[job] = f"{found.namespace}/reset-config-{found.owner_name or found.name}"
        data = {LEDGER_KEY: encode_job_ledger(ledger)}
        if plan is not None:
            data[PLAN_KEY] = plan
        if job in self.reset_names:
            data[RESET_KEY] = self.reset_names[job]
        owner = owner_reference(found) if found is not None else None
        await self._put(*key, data, owner)

    async def _put(self, namespace: str, name: str, data: dict[str, str], owner: dict[str, str] | None = None) -> None:
        key = (namespace, name)
        known = self._stored.get(key)
        if known is None:
            extra = {"ownerReferences": [owner]} if owner else {}
            known = ConfigMap(namespace, name, labels={"app.kubernetes.io/managed-by": "fault-agent"}, extra=extra)
        try:
            self._stored[key] = await self._store.put(replace(known, data=data))
        except Conflict as error:
            raise Fenced(
                f"{namespace}/{name} was changed by another writer",
                hint="let one coordinator of a cluster write; this one stops",
            ) from error
