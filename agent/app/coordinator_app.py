"""The coordinator side: reports and objects in, ledgers and documents out.

The one rule: decide, then write the ledgers, then the documents; a document is never ahead of its ledger.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from agent.app import documents as docs
from agent.app.ledgers import Ledgers
from agent.app.publisher import Published, Publisher, Rendered
from agent.domain.cluster import ClusterBook, Shared, Verdict, decide_job, decide_node, document_seen, evolve
from agent.domain.events import Decision, NodeReport
from agent.domain.ledger import last_decided
from agent.domain.rail.reservations import HoldState, advance
from agent.domain.reset import Merge, Phase
from agent.domain.vocab import JobId, Millis, Mode, NodeName, Reason
from agent.errors import AgentError, BadDocument, Conflict, Fenced, Unavailable
from agent.ports import ConfigMap, DocumentStore, Tracer
from agent.wire.documents import decode_fault_nodes, decode_reschedule, decode_retry_times
from agent.wire.railfile import PLAN_KEY, encode_plan, plan_document, plan_name

NO_JOB = JobId("")
_SEEN = (Reason.WRITTEN, Reason.UNCHANGED, Reason.RECOVERY_ENDED, Reason.NO_RESET_CONFIG)
"""Answers after which it is known what the document holds."""
RESET_PREFIX = "reset-config-"
ROUNDS = 12
"""Decide-and-write rounds of one step. A recovery needs three at most; more would be a circle, and is told."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the settings say about the documents."""

    manager: str
    mode: Mode
    """Global mode; in observe the store is a shadow and nothing real is written."""
    vcjob: Mode
    vcjob_namespace: str
    vcjob_sole: bool
    reschedule: Mode
    reschedule_namespace: str
    reschedule_sole: bool
    create_reset_config: bool
    zone: ZoneInfo


class Coordinator:
    """Keeps the cluster book and brings the documents to what follows from it."""

    def __init__(
        self,
        book: ClusterBook,
        store: DocumentStore,
        ledgers: Ledgers,
        wishes: Wishes,
        tracer: Tracer,
        tell: Callable[[Decision], None],
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self.book = book
        self._store = store
        self._ledgers = ledgers
        self._publisher = Publisher(store, wishes.manager)
        self._wishes = wishes
        self._tracer = tracer
        self._tell = tell
        self._flush = flush
        self.woken = asyncio.Event()
        """Set when something came in that may want a step."""
        self._jobs: set[JobId] = set()
        self._nodes: set[NodeName] = set()
        self._gone: set[JobId] = set()
        self._unpublished: set[tuple[str, JobId]] = set()
        self._last: dict[tuple[str, JobId], Reason] = {}

    # --- what comes in -------------------------------------------------------------------------------------------

    async def start(self, now: Millis, term: int = 0) -> None:
        """Read ledgers and documents as they stand, then write the new term; nothing else is written before that.

        Raises Fenced when a later term has already written, Unavailable.
        """
        self.book.forget_ledgers()
        self._last.clear()
        self._unpublished.clear()
        await self._ledgers.load(self.book, now, self._tell)
        vcjob = await self._read(self._wishes.vcjob_namespace, docs.VCJOB_NAME)
        if vcjob is not None:
            self._look_for_volcano(vcjob)
            with suppress(BadDocument):
                entries = decode_fault_nodes(vcjob.data.get(docs.FAULT_NODE, ""))
                self.book.entries.update({entry.node: entry for entry in entries})
            with suppress(BadDocument):
                for job, left in decode_retry_times(vcjob.data.get(docs.RETRY_TIMES, "")).items():
                    self.book.known_retries[JobId(job)] = (left.uid, left.times)
        records = await self._read(self._wishes.reschedule_namespace, docs.RESCHEDULE_NAME)
        if records is not None:
            with suppress(BadDocument):
                for job, known in decode_reschedule(records.data.get(docs.RECORDS, "")).items():
                    self.book.known_records[JobId(job)] = known.total
        if self._wishes.mode is not Mode.DISABLED and self.book.cluster.act_since is None:
            evolve(self.book, Verdict(cluster=replace(self.book.cluster, act_since=now)))
        self._unpublished.update(("plan", job) for job in self._ledgers.plans)
        if self.book.cluster.term > term:
            raise Fenced(f"term {self.book.cluster.term} has written already, this is term {term}")
        if self.book.cluster.term < term:
            evolve(self.book, Verdict(cluster=replace(self.book.cluster, term=term)))
            await self._ledgers.store(self.book)
        self._jobs.update(self.book.ledgers)
        self._nodes.update(self.book.reports)
        self._jobs.update(job.id for job in self.book.jobs.jobs())

    def _look_for_volcano(self, vcjob: ConfigMap) -> None:
        """Another hand in its own document is the plugin's, unless the operator says that it is history."""
        foreign = docs.foreign_writers(vcjob, self._wishes.manager)
        self.book.volcano_seen = bool(foreign) and not self._wishes.vcjob_sole

    async def _read(self, namespace: str, name: str) -> ConfigMap | None:
        try:
            return await self._store.get(namespace, name)
        except BadDocument:
            return None  # told when it is to be written

    def reports(self, reports: Mapping[NodeName, NodeReport]) -> None:
        """Newer reports; an older (epoch, seq) than the one at hand is nothing new."""
        for node, report in reports.items():
            known = self.book.reports.get(node)
            if known is not None and (known.epoch, known.seq) >= (report.epoch, report.seq):
                continue
            self.stand_in(node, report)

    def stand_in(self, node: NodeName, report: NodeReport) -> None:
        """Take this report for the node's, whatever its number (the deputy's word for a silent node)."""
        self.book.reports[node] = report
        self.woken.set()
        self._nodes.add(node)
        self._jobs.update(self.book.jobs.jobs_on(node))
        # A pod may have left the node a moment before its fault is read; its job still remembers it.
        self._jobs.update(self.book.former.get(node, ()))

    def touched(self, jobs: Iterable[JobId], nodes: Iterable[NodeName]) -> None:
        """Jobs and nodes whose objects have changed."""
        self._jobs.update(jobs)
        self._nodes.update(nodes)

    @property
    def idle(self) -> bool:
        """Nothing waits to be decided or written."""
        return not (self._jobs or self._nodes or self._unpublished)

    def document_changed(self, namespace: str, name: str) -> None:
        """Somebody has changed one of the documents we write: it is rendered again."""
        wishes = self._wishes
        if (namespace, name) == (wishes.vcjob_namespace, docs.VCJOB_NAME):
            self._unpublished.add((Shared.VCJOB, JobId("")))
        elif (namespace, name) == (wishes.reschedule_namespace, docs.RESCHEDULE_NAME):
            self._unpublished.add((Shared.RECORDS, JobId("")))
        elif name.startswith(RESET_PREFIX):
            self.woken.set()
            place = f"{namespace}/{name}"
            self._jobs.update(job for job, known in self._ledgers.reset_names.items() if known == place)

    def latest(self) -> Millis:
        """The newest time at which the ledgers say that something was decided, ms; 0: nothing was."""
        return max((last_decided(ledger) for ledger in self.book.ledgers.values()), default=Millis(0))

    def next_deadline(self) -> Millis | None:
        """When the next recovery or rail question is due, or None."""
        return min(self.book.deadlines.values(), default=None)

    # --- decide, persist, publish --------------------------------------------------------------------------------

    async def step(self, now: Millis) -> None:
        """Decide all that is due and bring ledgers and documents up to it, until nothing changes any more.

        Raises Unavailable or Fenced with everything kept to be done again.
        """
        for _ in range(ROUNDS):
            self._jobs.update(job for job, at in self.book.deadlines.items() if at <= now)
            if not (self._jobs or self._nodes or self._unpublished):
                return
            jobs, nodes = sorted(self._jobs), sorted(self._nodes)
            traces = self._decide(jobs, nodes, now)
            await self._flush()  # once the ledger says done, the reasons are not made again
            await self._ledgers.store(self.book)
            self._jobs.difference_update(jobs)
            self._nodes.difference_update(nodes)
            await self._publish(jobs, now, traces)
        self._tell(Decision(now, Reason.RECOVERY_RUNNING, detail=f"still changing after {ROUNDS} rounds"))

    def _decide(self, jobs: list[JobId], nodes: list[NodeName], now: Millis) -> dict[JobId, str]:
        """Every verdict, taken into the book and told; gives each job's trace, and under no name the first of all."""
        traces: dict[JobId, str] = {}
        for node in nodes:
            self._take(decide_node(self.book, node, now), NO_JOB, traces)
        for job in jobs:
            self._note_gone(job)
            verdict = decide_job(self.book, job, now, self._wishes.zone)
            self._take(verdict, job, traces)
            if job in verdict.plans:
                self._unpublished.add(("plan", job))
                self._note_plan(job)
        self._unpublished.update((shared, NO_JOB) for shared in self.book.changed)
        self.book.changed.clear()
        return traces

    def _note_gone(self, job: JobId) -> None:
        """A job that is no more leaves remain-retry-times, also when it went while nobody was looking."""
        if self.book.jobs.job(job) is not None:
            self._gone.discard(job)
        elif job not in self._gone:
            self._gone.add(job)
            self.book.changed.add(Shared.VCJOB)

    def _take(self, verdict: Verdict, job: JobId, traces: dict[JobId, str]) -> None:
        """Evolve and tell; a span for each fault that was decided about, below the span of its own record."""
        evolve(self.book, verdict)
        reasons: dict[str, set[str]] = {}
        for decision in verdict.decisions:
            self._tell(decision)
            if decision.trace:
                reasons.setdefault(decision.trace, set()).add(decision.reason)
        for trace, words in reasons.items():
            with self._tracer.span("coordinate", trace, job=job, reason=",".join(sorted(words))) as span:
                for name in (job, NO_JOB):
                    traces.setdefault(name, span.traceparent or trace)

    def _note_plan(self, job: JobId) -> None:
        plan = self.book.plans[job]
        document = plan_document(
            plan.answer,
            cluster=self.book.cluster_id,
            job=plan.job,
            incarnation=plan.incarnation,
            plan=plan.id,
            faults=plan.faults,
            at=plan.at,
        )
        self._ledgers.plans[job] = encode_plan(document)

    async def _publish(self, jobs: list[JobId], now: Millis, traces: Mapping[JobId, str]) -> None:
        """Every document that may have changed; one that does not answer holds up no other and is tried again."""
        for job in jobs:
            ledger = self.book.ledgers.get(job)
            if ledger is not None and ledger.courses:
                self._unpublished.add(("reset", job))
        failed: AgentError | None = None
        for kind, job in sorted(self._unpublished):
            trace = traces.get(job, "")
            with self._tracer.span("document", trace, kind=kind, job=job) as span:
                try:
                    done = await self._publish_one(kind, job, now)
                except (Conflict, Unavailable) as error:
                    failed = failed or error
                    continue
                if done is not None:
                    span.set(document=f"{done.namespace}/{done.name}", reason=str(done.reason))
                    self._told(kind, job, done, now, trace)
            self._unpublished.discard((kind, job))
        if failed is not None:
            raise failed

    async def _publish_one(self, kind: str, job: JobId, now: Millis) -> Published | None:
        match kind:
            case Shared.VCJOB:
                wishes = self._wishes
                return await self._publisher.publish(wishes.vcjob_namespace, docs.VCJOB_NAME, self._vcjob, wishes.vcjob)
            case Shared.RECORDS:
                return await self._publish_records()
            case "plan":
                return await self._publish_plan(job, now)
            case _:
                return await self._publish_reset(job, now)

    def _vcjob(self, live: ConfigMap | None) -> Rendered:
        if live is not None:
            self._look_for_volcano(live)
        barred = docs.barred(live, self._wishes.manager, self._wishes.vcjob_sole)
        return barred or docs.render_vcjob(self.book, frozenset(self._gone), live)

    async def _publish_records(self) -> Published | None:
        wishes = self._wishes
        if not any(ledger.records for ledger in self.book.ledgers.values()):
            return None

        def render(live: ConfigMap | None) -> Rendered:
            barred = docs.barred(live, wishes.manager, wishes.reschedule_sole)
            return barred or docs.render_reschedule(self.book, live)

        return await self._publisher.publish(
            wishes.reschedule_namespace, docs.RESCHEDULE_NAME, render, wishes.reschedule
        )

    async def _publish_reset(self, job_id: JobId, now: Millis) -> Published | None:
        ledger, job = self.book.ledgers.get(job_id), self.book.jobs.job(job_id)
        if ledger is None or not ledger.courses:
            return None
        namespace, name = self._reset_name(job_id)
        found: dict[int, Merge] = {}
        # What was begun in act mode is also ended when the document is not to be driven any more.
        ending = all(course.recovery.phase is Phase.LEAVING for course in ledger.courses)
        done = await self._publisher.publish(
            namespace,
            name,
            lambda live: docs.render_reset(ledger, job, self._wishes.create_reset_config, now, found, live),
            Mode.ACT if ending else self.book.limits.reset_mode,
        )
        if done.reason in _SEEN:
            verdict = document_seen(self.book, job_id, found, now)
            if verdict.ledgers:
                self._take(verdict, job_id, {})
                self._jobs.add(job_id)
        return done

    def _reset_name(self, job_id: JobId) -> tuple[str, str]:
        job = self.book.jobs.job(job_id)
        if job is not None:
            self._ledgers.reset_names[job_id] = f"{job.namespace}/reset-config-{job.owner_name or job.name}"
        namespace, _, name = self._ledgers.reset_names.get(job_id, f"{job_id.partition('/')[0]}/").partition("/")
        return namespace, name

    async def _publish_plan(self, job_id: JobId, now: Millis) -> Published | None:
        job, text = self.book.jobs.job(job_id), self._ledgers.plans.get(job_id)
        if job is None or text is None:
            return None
        rendered = Rendered(Reason.WRITTEN, {PLAN_KEY: text}, owner=docs.owner_reference(job))
        name = plan_name(job.owner_name or job.name)
        mode = Mode.DISABLED if self._wishes.mode is Mode.DISABLED else Mode.ACT
        done = await self._publisher.publish(job.namespace, name, lambda _: rendered, mode)
        if self.book.rails is not None and done.reason in _SEEN:
            reserved = {
                one.plan for one in self.book.rails.entries if one.job == job_id and one.state is HoldState.RESERVED
            }
            for plan in sorted(reserved):
                self.book.rails = advance(self.book.rails, plan, HoldState.ADVISED, now=now)
            await self._ledgers.store(self.book)
        return done

    def _told(self, kind: str, job: JobId, done: Published, now: Millis, trace: str) -> None:
        """A document that changed, or that did not for a new reason."""
        key = (kind, job)
        quiet = done.reason in (Reason.UNCHANGED, Reason.RECOVERY_ENDED) or self._last.get(key) is done.reason
        if not done.changed and quiet:
            self._last.setdefault(key, done.reason)
            return
        self._last[key] = done.reason
        shadow = self._wishes.mode is Mode.OBSERVE and done.reason is Reason.WRITTEN
        reason = Reason.OBSERVE if shadow else done.reason
        detail = f"would be: {done.detail}" if shadow else done.detail
        self._tell(Decision(now, reason, job=job, detail=detail, document=f"{done.namespace}/{done.name}", trace=trace))
