"""The coordinator side: reports and objects in, ledgers and documents out.

The one rule: decide, then write the ledgers, then the documents; a document is never ahead of its ledger.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from agent.app import documents as docs
from agent.app.abreast import abreast, together
from agent.app.causes import Causes
from agent.app.ledgers import Ledgers
from agent.app.press import Press, Wishes
from agent.app.publisher import Documents, Published
from agent.app.railtold import tell_plan
from agent.app.slots import Slot, Slots
from agent.app.trouble import defect
from agent.domain.cluster import ClusterBook, Shared, Verdict, decide_job, decide_node, evolve
from agent.domain.events import Decision, NodeReport, Scanned
from agent.domain.ledger import last_decided, moved
from agent.domain.vocab import MINUTE, JobId, Millis, Mode, NodeName, Reason
from agent.errors import AgentError, BadDocument, Conflict, Fenced, Refused, Unavailable
from agent.ports import ConfigMap, DocumentStore, Tracer

NO_JOB = JobId("")
RESET_PREFIX = "reset-config-"
REFUSED_AGAIN = MINUTE
"""Before a document or ledger that was refused is tried again, ms."""
PLAN = "plan"
_LEVELS = frozenset({Shared.VCJOB.value})
"""Documents that show levels, and counters only as ledgers already have them."""
ROUNDS = 12
"""Decide-and-write rounds of one step. A recovery needs three at most; more would be a circle, and is told."""


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
        documents: Documents | None = None,
        width: int = 1,
    ) -> None:
        """`documents`: where the documents are, when that is not plainly the store of the ledgers. `width`: calls
        under way at one time; with 1 each waits for the one before, reasons first, and the same input gives the same
        order of everything.
        """
        self._width = width
        self.book = book
        self._store = store
        self._ledgers = ledgers
        self.press = Press(book, documents or store, ledgers, wishes)
        self._wishes = wishes
        self._tracer = tracer
        self._tell = tell
        self._flush = flush
        self.woken = asyncio.Event()
        """Set when something came in that may want a step."""
        self._jobs: set[JobId] = set()
        self._nodes: set[NodeName] = set()
        self._slots = Slots()
        self._causes = Causes()
        self._refused_again: Millis | None = None
        """When ledgers that were refused are tried again."""
        self._inherited: set[NodeName] = set()
        """Nodes known by the entry that stood in the document at the start, and by nothing else yet."""
        self._last: dict[tuple[str, JobId], Reason] = {}
        self._looks: set[JobId] = set()
        """Jobs whose reset.json is to be looked into for entries of ours that no ledger knows."""

    # --- what comes in -------------------------------------------------------------------------------------------

    async def start(self, now: Millis, term: int = 0) -> None:
        """Read ledgers and documents as they stand, then write the new term; nothing else is written before that.

        Raises Fenced when a later term has already written, Unavailable.
        """
        self.book.forget_ledgers()
        self._last.clear()
        self._slots.clear()
        self._causes.clear()
        self._refused_again = None
        await self._ledgers.load(self.book, now, self._tell)
        vcjob = await self._read(self._wishes.vcjob_namespace, docs.VCJOB_NAME)
        records = await self._read(self._wishes.reschedule_namespace, docs.RESCHEDULE_NAME)
        self.press.look(vcjob, records)
        docs.take_over(self.book, vcjob, records)
        if self._wishes.mode is not Mode.DISABLED and self.book.cluster.act_since is None:
            evolve(self.book, Verdict(cluster=replace(self.book.cluster, act_since=now)))
        for job in self._ledgers.plans:
            self._slots.add((PLAN, job))
        if self.book.cluster.term > term:
            raise Fenced(f"term {self.book.cluster.term} has written already, this is term {term}")
        if self.book.cluster.term < term:
            evolve(self.book, Verdict(cluster=replace(self.book.cluster, term=term)))
            await self._ledgers.store(self.book)
        self._jobs.update(self.book.ledgers, self._ledgers.holders)
        self._inherited = self.book.entries.keys() - self.book.reports.keys()
        self._nodes.update(self.book.reports, self.book.vanished, self._inherited, self.book.cluster.separations)
        self._nodes.update(self.book.cluster.listed, self.book.buried)
        jobs, ours = self.book.jobs.jobs(), self.book.limits.frameworks
        self._jobs.update(job.id for job in jobs)
        self._looks.update(job.id for job in jobs if job.settings.framework in ours or job.settings.in_place == "on")

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

    async def heard(self, places: Mapping[int, Scanned], now: Millis) -> None:
        """Keep in the cluster's ledger how far the event stream was heard. Raises Unavailable, Fenced, Refused."""
        evolve(self.book, Verdict(cluster=replace(self.book.cluster, heard=dict(places))))
        await self._keep(now)

    def buried(self, node: NodeName) -> None:
        """The node's report was removed: it is gone for good, and what was written of it goes too."""
        self.book.reports.pop(node, None)
        self.book.buried.add(node)
        self._inherited.discard(node)
        self.touched((), (node,))

    def touched(self, jobs: Iterable[JobId], nodes: Iterable[NodeName]) -> None:
        """Jobs and nodes whose objects have changed."""
        self._jobs.update(jobs)
        self._nodes.update(nodes)
        if self._jobs or self._nodes:
            self.woken.set()

    @property
    def idle(self) -> bool:
        """Nothing waits to be decided or written."""
        return not (self._jobs or self._nodes or self._slots or self._looks)

    def document_changed(self, namespace: str, name: str) -> None:
        """Somebody has changed one of the documents we write: it is rendered again."""
        wishes = self._wishes
        if (namespace, name) == (wishes.vcjob_namespace, docs.VCJOB_NAME):
            self._slots.changed_by_other((Shared.VCJOB, NO_JOB))
        elif (namespace, name) == (wishes.reschedule_namespace, docs.RESCHEDULE_NAME):
            self._slots.changed_by_other((Shared.RECORDS, NO_JOB))
        elif name.startswith(RESET_PREFIX):
            place = f"{namespace}/{name}"
            for job in [job for job, known in self._ledgers.reset_names.items() if known == place]:
                ledger = self.book.ledgers.get(job)
                if ledger is not None and ledger.courses:
                    self._slots.changed_by_other(("reset", job))
                else:
                    self._jobs.add(job)
                self._looks.add(job)
        if not self.idle:
            self.woken.set()

    def latest(self) -> Millis:
        """The newest time at which the ledgers say that something was decided, ms; 0: nothing was."""
        return max((last_decided(ledger) for ledger in self.book.ledgers.values()), default=Millis(0))

    def next_deadline(self) -> Millis | None:
        """When the next recovery, rail question or release is due, or what was refused is tried again, or None."""
        others = (at for at in (self._slots.next_at(), self._refused_again) if at is not None)
        return min((*self.book.deadlines.values(), *self.book.wakes.values(), *others), default=None)

    # --- decide, persist, publish --------------------------------------------------------------------------------

    async def step(self, now: Millis) -> None:
        """Decide all that is due and bring ledgers and documents up to it, until nothing changes any more. Raises
        Unavailable or Fenced with everything kept to be done again.
        """
        self._jobs.update(job for job, at in self.book.deadlines.items() if at <= now)
        self._nodes.update(node for node, at in self.book.wakes.items() if at <= now)
        self._slots.wake(now)
        await self._look(now)
        if self._refused_again is not None and self._refused_again <= now:
            self._refused_again = None
            self._jobs.update(await self._ledgers.try_again(self.book))
            self._note_refused(now)
        for _ in range(ROUNDS):
            if self.idle:
                return
            jobs, nodes = sorted(self._jobs), sorted(self._nodes)
            # Cleared now: what comes in while we wait for a service is news.
            self._jobs.clear()
            self._nodes.clear()
            traces = self._decide(jobs, nodes, now)
            self._note_slots(jobs)
            try:
                if self._width > 1 and self._slots.only(_LEVELS) and not self._ledgers.behind(self.book):
                    # What follows from levels alone needs no intent: it waits neither for reasons nor for a ledger.
                    await self._publish(now, traces)
                    await self._keep(now)
                    continue
                await self._keep(now)
            except BaseException:
                self._jobs.update(jobs)
                self._nodes.update(nodes)
                raise
            await self._publish(now, traces)
        self._tell(Decision(now, Reason.RECOVERY_RUNNING, detail=f"still changing after {ROUNDS} rounds"))

    async def _look(self, now: Millis) -> None:
        """Look into reset.json of jobs where entries of ours may stand that no ledger knows."""
        for job in sorted(self._looks):
            namespace, name = self.press.reset_name(job)
            live: ConfigMap | None = None
            with suppress(Refused):  # told when it is to be written
                live = await self._read(namespace, name) if name else None
            self._looks.discard(job)
            self._learn(self.press.look_into(job, live, now), job)

    def _learn(self, verdict: Verdict, job: JobId) -> None:
        """What a document has taught."""
        if verdict.ledgers or verdict.decisions:
            self._take(verdict, job, {})
        self._jobs.update(verdict.ledgers)

    async def _keep(self, now: Millis) -> None:
        """Reasons, and the ledgers that make them final. A job whose ledger is refused waits alone."""
        if self._width == 1:
            await self._flush()
            await self._store_ledgers(now)
        else:
            await together(self._flush, partial(self._store_ledgers, now))

    async def _store_ledgers(self, now: Millis) -> None:
        for job, place, why in await self._ledgers.store(self.book):
            left = (
                "nothing is begun or written for this job" if job else "what it keeps would be lost with this process"
            )
            detail = f"{why}; {left} until it is allowed"
            self._tell(Decision(now, Reason.DOCUMENT_REFUSED, job=job, detail=detail, document=place))
        self._note_refused(now)

    def _note_refused(self, now: Millis) -> None:
        if (self._ledgers.refused or self._ledgers.cluster_refused) and self._refused_again is None:
            self._refused_again = Millis(now + REFUSED_AGAIN)

    def _decide(self, jobs: list[JobId], nodes: list[NodeName], now: Millis) -> dict[JobId, str]:
        """Every verdict, taken into the book and told; gives each job's trace, and under no name the first of all."""
        traces: dict[JobId, str] = {}
        for node in nodes:
            self.book.wakes.pop(node, None)
            if not self._is_unknown(node):
                try:
                    verdict = decide_node(self.book, node, now)
                except Exception as error:  # a defect of ours costs one node its freshness, not the others theirs
                    self._tell(Decision(now, Reason.INTERNAL, node=node, detail=defect(error)))
                    continue
                self._causes.of_node(self.book, node, verdict, now)
                self._take(verdict, NO_JOB, traces)
        for job in jobs:
            self._note_gone(job)
            try:
                verdict = decide_job(self.book, job, now, self._wishes.zone)
            except Exception as error:  # and one job its answers
                self.book.frozen.add(job)
                self.book.deadlines.pop(job, None)
                self._tell(Decision(now, Reason.INTERNAL, job=job, detail=defect(error)))
                continue
            self._take(verdict, job, traces)
            if (document := self._ledgers.note_rails(self.book, job, verdict)) is not None:
                self._slots.add((PLAN, job))
                tell_plan(self._tracer, traces.get(job, ""), document)
        return traces

    def _is_unknown(self, node: NodeName) -> bool:
        """Nothing but an earlier entry speaks of the node. It may be another's, and no report is no sign of health; a
        Node object that is missing makes it ours to take back only if a ledger or a removed report knows the node, or
        the document proves that all in it is ours.
        """
        book = self.book
        if node not in self._inherited or node in book.reports or node in book.vanished:
            return False
        known = bool(book.former.get(node)) or node in book.cluster.machines or node in book.shown
        return not known or book.jobs.node(node) is not None or next(iter(book.jobs.nodes()), None) is None

    def _note_gone(self, job: JobId) -> None:
        """A job that is no more leaves remain-retry-times, also when it went unseen; with pods it is not gone yet."""
        jobs = self.book.jobs
        if jobs.job(job) is not None or jobs.pods_of(job):
            self.press.gone.discard(job)
        elif job not in self.press.gone:
            self.press.gone.add(job)
            self.book.changed.add(Shared.VCJOB)

    def _take(self, verdict: Verdict, job: JobId, traces: dict[JobId, str]) -> None:
        """Evolve and tell; a span for each fault that was decided about, below the span of its own record."""
        self._causes.of_job(self.book, job, verdict)
        before = self.book.cluster.separations
        evolve(self.book, verdict)
        for node in moved(before, self.book.cluster.separations):
            self.touched(self.book.jobs.jobs_on(node), (node,))
        reasons: dict[str, set[str]] = {}
        for decision in verdict.decisions:
            self._tell(decision)
            if decision.trace:
                reasons.setdefault(decision.trace, set()).add(decision.reason)
        for trace, words in reasons.items():
            with self._tracer.span("coordinate", trace, job=job, reason=",".join(sorted(words))) as span:
                for name in (job, NO_JOB):
                    traces.setdefault(name, span.traceparent or trace)

    def _note_slots(self, jobs: Iterable[JobId]) -> None:
        """Every document that may have changed."""
        for job in jobs:
            ledger = self.book.ledgers.get(job)
            if ledger is not None and ledger.courses:
                self._slots.add(("reset", job))
        for shared in self.book.changed:
            self._slots.add((shared, NO_JOB))
        self.book.changed.clear()

    async def _publish(self, now: Millis, traces: Mapping[JobId, str]) -> None:
        """Every slot that is due; one that does not answer holds up no other and is tried again."""
        failed: list[AgentError] = []
        slots = self._slots.take(now)
        left = set(slots)

        async def publish(slot: Slot) -> None:
            try:
                await self._publish_one(slot, now, traces.get(slot[1], ""))
            except (Conflict, Unavailable) as error:
                failed.append(error)
            else:
                left.discard(slot)

        try:
            # A plan's reservations are moved on in a ledger that all plans share: one after the other. Then what a
            # job waits for, then what is for all to see.
            await abreast(publish, [slot for slot in slots if slot[0] == PLAN], width=1)
            await abreast(publish, [slot for slot in slots if slot[0] != PLAN and slot[1]], self._width)
            await abreast(publish, [slot for slot in slots if not slot[1]], self._width)
        finally:
            for slot in left:
                self._slots.add(slot)
        if failed:
            raise failed[0]

    async def _publish_one(self, slot: Slot, now: Millis, trace: str) -> None:
        kind, job = slot
        with self._tracer.span("document", trace, kind=kind, job=job) as span:
            done, verdict = await self.press.publish(kind, job, now)
            self._learn(verdict, job)
            if done is not None:
                span.set(document=done.place, reason=str(done.reason))
                self._told(kind, job, done, now, trace)
                self._follow_up(slot, done, now)

    def _follow_up(self, slot: tuple[str, JobId], done: Published, now: Millis) -> None:
        """What was refused is tried again; what another hand keeps changing is left to it for a while."""
        if done.reason is Reason.DOCUMENT_REFUSED:
            self._slots.later(slot, Millis(now + REFUSED_AGAIN))
        fight = self._slots.seen(slot, done.changed, now)
        if fight is not None:
            times, until = fight
            others = ", ".join(docs.foreign_writers(done.live, self._wishes.manager)) or "somebody"
            detail = f"{others} changed it back {times} times; left as it is for {(until - now) / 1000:g} s"
            self._tell(Decision(now, Reason.FOREIGN_WRITER_LIVE, job=slot[1], detail=detail, document=done.place))

    def _told(self, kind: str, job: JobId, done: Published, now: Millis, trace: str) -> None:
        """A document that changed, or that did not for a new reason."""
        key = (kind, job)
        causes = self._causes.behind(key, done.reason)
        quiet = done.reason in (Reason.UNCHANGED, Reason.RECOVERY_ENDED) or self._last.get(key) is done.reason
        if not done.changed and quiet:
            self._last.setdefault(key, done.reason)
            return
        self._last[key] = done.reason
        shadow = self._wishes.mode is Mode.OBSERVE and done.reason is Reason.WRITTEN
        reason = Reason.OBSERVE if shadow else done.reason
        detail = f"would be: {done.detail}" if shadow else done.detail
        self._tell(Decision(now, reason, job=job, detail=detail, document=done.place, trace=trace, causes=causes))
