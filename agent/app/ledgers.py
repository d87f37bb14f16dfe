"""The agent's own ledgers in the document store: read once at the start, written by compare-and-swap.

The one rule: a ledger somebody else has changed fences this writer; one that cannot be read is never overwritten.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from agent.app.abreast import abreast
from agent.app.documents import owner_reference
from agent.domain.cluster import ClusterBook, Verdict, document_of, take_ledger
from agent.domain.events import Decision
from agent.domain.ledger import ClusterLedger, JobLedger
from agent.domain.rail.reservations import RailLedger
from agent.domain.reset import resumed
from agent.domain.vocab import JobId, Millis, Reason
from agent.errors import BadDocument, Conflict, Fenced, Refused
from agent.ports import ConfigMap, DocumentStore
from agent.wire.ledgerfile import (
    LEDGER_KEY,
    decode_cluster_ledger,
    decode_job_ledger,
    encode_cluster_ledger,
    encode_job_ledger,
)
from agent.wire.railfile import LEDGER_NAME as RAILS_NAME
from agent.wire.railfile import decode_ledger as decode_rails
from agent.wire.railfile import encode_ledger as encode_rails
from agent.wire.railplan import PLAN_KEY, PlanDocument, as_held, decode_plan, encode_plan, plan_document

CLUSTER_NAME = "fault-agent-cluster"
JOB_PREFIX = "fault-agent-job-"
RESET_KEY = "reset-config"
"""Beside a job's ledger: where its reset.json is, for the time when the job's objects are gone."""


class Ledgers:
    """Loads the book's ledgers and stores those that have changed since."""

    def __init__(self, store: DocumentStore, namespace: str, width: int = 1) -> None:
        """`width`: ledgers of jobs written at one time."""
        self._width = width
        self._store = store
        self._namespace = namespace
        self._stored: dict[tuple[str, str], ConfigMap] = {}
        self._cluster: ClusterLedger | None = None
        self._rails: RailLedger | None = None
        self._sent: dict[tuple[str, str], list[dict[str, str]]] = {}
        """What was sent to a ledger since its last answer: if that stands there, the other writer was us."""
        self._cluster_frozen = False
        self._last: dict[JobId, JobLedger] = {}
        """Each job's ledger as it is in the store."""
        self.refused: set[JobId] = set()
        """Jobs whose ledger the store does not take; frozen in the book, as their ledger was before."""
        self.cluster_refused = False
        """The store does not take the cluster's ledger."""
        self.plans: dict[JobId, str] = {}
        """Text of each job's newest rail plan, kept beside its ledger so that a restart can finish publishing it."""
        self.reset_names: dict[JobId, str] = {}
        self._lagging: set[JobId] = set()
        """Jobs whose plan beside their ledger was found to be behind the reservations."""

    async def load(self, book: ClusterBook, now: Millis, tell: Callable[[Decision], None]) -> None:
        """Take every ledger of the store into the book; what cannot be read freezes what it was for."""
        self._stored.clear()
        self._sent.clear()
        self._cluster_frozen = False
        self._last.clear()
        self.refused.clear()
        self.cluster_refused = False
        self.plans.clear()
        for document in await self._store.list():
            place = f"{document.namespace}/{document.name}"
            try:
                self._read(document, book, place)
            except BadDocument as error:
                tell(Decision(now, Reason.LEDGER_UNREADABLE, document=place, detail=str(error)))
        self._miss_rails(book, now, tell)
        # Reservations are written before ledgers of jobs: a stop in between leaves plans that are behind them.
        found, self.plans = self.plans, {job: self._as_held(book, job, text) for job, text in self.plans.items()}
        self._lagging = {job for job, text in found.items() if text != self.plans[job]}
        self._cluster, self._rails = book.cluster, book.rails
        book.before = book.cluster

    def _miss_rails(self, book: ClusterBook, now: Millis, tell: Callable[[Decision], None]) -> None:
        """A ledger of reservations that is gone though a job's plan rests on it is as one that cannot be read."""
        if (self._namespace, RAILS_NAME) in self._stored or book.rails is None:
            return
        for job, text in sorted(self.plans.items()):
            with suppress(BadDocument):
                held = sum(one.npus for one in decode_plan(text).held)
                if held:
                    book.rails = None
                    why = f"it is gone, and {job} holds {held} NPUs by it; restore it, or wait until that job has ended"
                    place = f"{self._namespace}/{RAILS_NAME}"
                    tell(Decision(now, Reason.LEDGER_UNREADABLE, job=job, document=place, detail=why))
                    return

    def _read(self, document: ConfigMap, book: ClusterBook, place: str) -> None:
        key = (document.namespace, document.name)
        text = document.data.get(LEDGER_KEY, "")
        if key == (self._namespace, CLUSTER_NAME):
            self._cluster_frozen = True
            book.cluster = decode_cluster_ledger(text, book.cluster_id, place)
            self._cluster_frozen = False
        elif key == (self._namespace, RAILS_NAME):
            book.rails = None
            book.rails = decode_rails(text, book.cluster_id)
        elif document.name.startswith(JOB_PREFIX):
            job = JobId(f"{document.namespace}/{document.name.removeprefix(JOB_PREFIX)}")
            book.frozen.add(job)
            ledger = decode_job_ledger(text, book.cluster_id, place)
            if ledger.job != job:
                raise BadDocument(f"it is the ledger of {ledger.job}", place=place, hint="restore it, or delete it")
            book.frozen.discard(job)
            courses = tuple(replace(one, recovery=resumed(one.recovery)) for one in ledger.courses)
            take_ledger(book, ledger.job, replace(ledger, courses=courses))
            self._last[job] = ledger
            if ledger.life is not None:
                book.jobs.resume(ledger.job, ledger.life)
            if PLAN_KEY in document.data:
                self.plans[ledger.job] = document.data[PLAN_KEY]
            if RESET_KEY in document.data:
                self.reset_names[ledger.job] = document.data[RESET_KEY]
        else:
            return
        self._stored[key] = document

    def place_of(self, job: JobId) -> str:
        """`namespace/name` of a job's ledger."""
        return "/".join(_key_of(job))

    def note_plan(self, book: ClusterBook, job: JobId) -> None:
        """The job's newest rail plan goes with its ledger from now on."""
        plan = book.plans[job]
        document = plan_document(
            plan.answer,
            cluster=book.cluster_id,
            job=plan.job,
            incarnation=plan.incarnation,
            plan=plan.id,
            faults=plan.faults,
            at=plan.at,
        )
        self.plans[job] = encode_plan(document)

    def note_rails(self, book: ClusterBook, job: JobId, verdict: Verdict) -> PlanDocument | None:
        """The job's plan as it stands after a verdict, kept to go with its ledger; None: nothing of it has changed."""
        if job in verdict.plans:
            self.note_plan(book, job)
        elif verdict.rails is None and job not in self._lagging:
            return None
        text = self.plans.get(job)
        if text is None or job not in book.ledgers:
            return None
        self.plans[job] = self._as_held(book, job, text)
        if self.plans[job] == text and job not in verdict.plans and job not in self._lagging:
            return None
        self._lagging.discard(job)
        book.dirty.add(job)
        return decode_plan(self.plans[job])

    def _as_held(self, book: ClusterBook, job: JobId, text: str) -> str:
        """The text of a plan with what the job holds now; one that cannot be read is told when it is published."""
        if book.rails is None:
            return text
        with suppress(BadDocument):
            return encode_plan(as_held(decode_plan(text), book.rails.of_job(job)))
        return text

    @property
    def holders(self) -> frozenset[JobId]:
        """Jobs that held NPUs when the ledgers were read; one of them may be gone, and its own ledger with it."""
        return frozenset(entry.job for entry in self._rails.entries if entry.open) if self._rails else frozenset()

    def behind(self, book: ClusterBook) -> bool:
        """A ledger that a document may rest on (of a job, of reservations) is not stored as it is in the book."""
        return bool(book.dirty) or (book.rails is not None and book.rails != self._rails)

    async def store(self, book: ClusterBook) -> Sequence[tuple[JobId, str, str]]:
        """Write what has changed: reservations first, for they are shared between jobs, then jobs, then the cluster.

        A job whose ledger is refused (a right is missing in its namespace) costs no other: it is frozen and its ledger
        in the book is again what the store has. Returns those jobs with the ledger's place and the reason.

        The cluster's ledger, refused (it may have grown too large), is left until `try_again`: levels and recoveries
        must not wait for it. It is returned as that of no job.

        Raises Fenced when another writer has changed one of them, Unavailable; Refused for the ledger of reservations,
        and for the cluster's while it does not say yet that this term has begun.
        """
        if book.rails is not None and book.rails != self._rails:
            await self._put(self._namespace, RAILS_NAME, {LEDGER_KEY: encode_rails(book.rails, book.cluster_id)})
            self._rails = book.rails
        refused: list[tuple[JobId, str, str]] = []

        async def store(job: JobId) -> None:
            try:
                await self._store_job(book, job)
            except Refused as error:
                self._put_back(book, job)
                refused.append((job, "/".join(_key_of(job)), str(error)))
            book.dirty.discard(job)

        await abreast(store, sorted(book.dirty), self._width)
        if not self.cluster_refused:
            try:
                await self._store_cluster(book)
            except Refused as error:
                if self._cluster is None or self._cluster.term != book.cluster.term:
                    raise
                self.cluster_refused = True
                self._sent.pop((self._namespace, CLUSTER_NAME), None)
                refused.append((JobId(""), f"{self._namespace}/{CLUSTER_NAME}", str(error)))
        return refused

    async def _store_cluster(self, book: ClusterBook) -> None:
        if book.cluster != self._cluster and not self._cluster_frozen:
            await self._put(self._namespace, CLUSTER_NAME, {LEDGER_KEY: encode_cluster_ledger(book.cluster)})
            self._cluster = book.cluster

    def _put_back(self, book: ClusterBook, job: JobId) -> None:
        """What was decided and cannot be kept was not decided: the job is frozen as it was."""
        take_ledger(book, job, self._last.get(job))
        book.deadlines.pop(job, None)
        stored = self._stored.get(_key_of(job))
        self._sent.pop(_key_of(job), None)
        self.plans.pop(job, None)
        if stored is not None and PLAN_KEY in stored.data:
            self.plans[job] = stored.data[PLAN_KEY]
        book.frozen.add(job)
        self.refused.add(job)

    async def try_again(self, book: ClusterBook) -> Sequence[JobId]:
        """Ask the store whether it takes the ledgers that it refused, by writing them as they are (an empty one where
        there is none yet). Jobs that it does are free again. Raises Fenced, Unavailable.
        """
        free = []
        if self.cluster_refused:
            with suppress(Refused):
                await self._store_cluster(book)
                self.cluster_refused = False
        for job in sorted(self.refused):
            found = book.jobs.job(job)
            try:
                if found is not None:
                    ledger = self._last.get(job) or JobLedger(job, book.cluster_id, term=book.cluster.term)
                    known = self._stored.get(_key_of(job))
                    data = dict(known.data) if known is not None else {LEDGER_KEY: encode_job_ledger(ledger)}
                    await self._put(*_key_of(job), data, owner_reference(found))
            except Refused:
                continue
            self.refused.discard(job)
            book.frozen.discard(job)
            free.append(job)
        return free

    async def _store_job(self, book: ClusterBook, job: JobId) -> None:
        ledger = book.ledgers.get(job)
        key = _key_of(job)
        if ledger is None:
            await self._remove(*key)
            self._last.pop(job, None)
            self.plans.pop(job, None)
            self.reset_names.pop(job, None)
            return
        plan = self.plans.get(job)
        found = book.jobs.job(job)
        if found is not None:
            self.reset_names[job] = document_of(found)
        if ledger.term != book.cluster.term:
            ledger = replace(ledger, term=book.cluster.term)
            book.ledgers[job] = ledger
        data = {LEDGER_KEY: encode_job_ledger(ledger)}
        if plan is not None:
            data[PLAN_KEY] = plan
        if job in self.reset_names:
            data[RESET_KEY] = self.reset_names[job]
        owner = owner_reference(found) if found is not None else None
        try:
            await self._put(*key, data, owner)
        except Fenced:
            if found is not None or await self._store.get(*key) is not None:
                raise
            # Gone with the job that owned it; what its recovery still needs is kept until that has left the document.
            del self._stored[key]
            await self._put(*key, data)
        self._last[job] = ledger

    async def _put(self, namespace: str, name: str, data: dict[str, str], owner: dict[str, str] | None = None) -> None:
        key = (namespace, name)
        known = self._stored.get(key)
        if known is None:
            extra = {"ownerReferences": [owner]} if owner else {}
            known = ConfigMap(namespace, name, labels={"app.kubernetes.io/managed-by": "fault-agent"}, extra=extra)
        try:
            try:
                stored = await self._put_again(known, data)
            except Conflict:
                stored = await self._put_again(await self._ours(known), data)
        except Conflict as error:
            raise _fenced(*key) from error
        self._stored[key] = stored
        del self._sent[key]

    async def _put_again(self, known: ConfigMap, data: dict[str, str]) -> ConfigMap:
        self._sent.setdefault((known.namespace, known.name), []).append(data)
        return await self._store.put(replace(known, data=data))

    async def _ours(self, known: ConfigMap) -> ConfigMap:
        """The live ledger, if what stands there is what we sent and got no answer for. Raises Conflict."""
        key = (known.namespace, known.name)
        live = await self._store.get(*key)
        sent = self._sent.pop(key)
        if live is None or live.data not in sent:
            raise Conflict(f"{known.namespace}/{known.name}: at another version than the one that was read")
        return live

    async def _remove(self, namespace: str, name: str) -> None:
        stored = self._stored.get((namespace, name))
        if stored is not None:
            try:
                await self._store.delete(namespace, name, stored.resource_version)
            except Conflict as error:
                raise _fenced(namespace, name) from error
            del self._stored[namespace, name]


def _key_of(job: JobId) -> tuple[str, str]:
    namespace, _, name = job.partition("/")
    return namespace, f"{JOB_PREFIX}{name}"


def _fenced(namespace: str, name: str) -> Fenced:
    return Fenced(
        f"{namespace}/{name} was changed by another writer",
        hint="let one coordinator of a cluster write; this one stops",
    )
