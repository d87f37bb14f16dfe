"""The press: what each document of the cluster should hold now, brought to the store.

The one rule: nothing is printed for a job whose ledger could not be read or kept; a document is never ahead of it.
"""

from collections import Counter
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from agent.app import documents as docs
from agent.app.ledgers import Ledgers
from agent.app.publisher import Documents, Published, Publisher, Rendered, claimed_by_other
from agent.domain.cluster import ClusterBook, Shared, Verdict, document_seen, records_seen
from agent.domain.rail.life import HoldState, LifeSignal
from agent.domain.rail.reservations import advance
from agent.domain.reset import Merge, Phase
from agent.domain.vocab import JobId, Millis, Mode, Reason
from agent.errors import BadDocument
from agent.ports import ConfigMap
from agent.wire.railplan import PLAN_KEY, decode_plan, plan_name

_SEEN = (Reason.WRITTEN, Reason.UNCHANGED, Reason.RECOVERY_ENDED, Reason.NO_RESET_CONFIG)
"""Answers after which it is known what the document holds."""
_ENDING = (Phase.LEAVING, Phase.LEFT)


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


class Press:
    """Renders and publishes; `publish` is called for one document at a time."""

    def __init__(self, book: ClusterBook, store: Documents, ledgers: Ledgers, wishes: Wishes) -> None:
        self.book = book
        self._ledgers = ledgers
        self._wishes = wishes
        self._publisher = Publisher(store, book.cluster_id)
        self.shown = docs.NodesShown()
        self.dropped: Counter[str] = Counter()
        """`records` and `jobs` that job-reschedule-reason had no room for, since the start."""
        self.gone: set[JobId] = set()
        """Jobs that were there and are no more: they leave remain-retry-times."""

    def look_for_volcano(self, vcjob: ConfigMap) -> None:
        """Another hand in its own document is the plugin's, unless the operator says that it is history."""
        foreign = docs.foreign_writers(vcjob, self._wishes.manager)
        self.book.volcano_seen = bool(foreign) and not self._wishes.vcjob_sole

    async def publish(self, kind: str, job: JobId, now: Millis) -> tuple[Published | None, Verdict]:
        """Bring one document up to the book: what became of it (None: there is none to write), and what the book
        learns from what it holds. Raises Unavailable, Conflict, Fenced.
        """
        if job in self.book.frozen:
            return None, Verdict()
        match kind:
            case Shared.VCJOB:
                return await self._publish_vcjob(), Verdict()
            case Shared.RECORDS:
                return await self._publish_records()
            case "plan":
                return await self._publish_plan(job, now), Verdict()
            case _:
                return await self._publish_reset(job, now)

    async def _publish_vcjob(self) -> Published:
        wishes, gone = self._wishes, frozenset(self.gone)

        def render(live: ConfigMap | None) -> Rendered:
            if live is not None:
                self.look_for_volcano(live)
            barred = docs.barred(live, wishes.manager, wishes.vcjob_sole, self.book.limits.volcano is True)
            return barred or docs.render_vcjob(self.book, gone, live, self.shown)

        done = await self._publisher.publish(wishes.vcjob_namespace, docs.VCJOB_NAME, render, wishes.vcjob)
        self._note(Shared.VCJOB, done.reason)
        if done.reason in _SEEN:
            self.gone -= gone  # an entry that comes later under such a name is somebody else's
        return done

    def look(self, vcjob: ConfigMap | None, records: ConfigMap | None) -> None:
        """Who writes the shared documents besides us, as they stand before anything is decided."""
        wishes, declared = self._wishes, self.book.limits.volcano is True
        if vcjob is not None:
            self.look_for_volcano(vcjob)
        for shared, live, sole in (
            (Shared.VCJOB, vcjob, wishes.vcjob_sole),
            (Shared.RECORDS, records, wishes.reschedule_sole),
        ):
            other = docs.barred(live, wishes.manager, sole, declared) or claimed_by_other(live, self.book.cluster_id)
            self._note(shared, Reason.FOREIGN_WRITER_LIVE if other else Reason.UNCHANGED)

    def _note(self, shared: Shared, reason: Reason) -> None:
        if reason is Reason.FOREIGN_WRITER_LIVE:
            self.book.foreign.add(shared)
        elif reason in (Reason.WRITTEN, Reason.UNCHANGED, Reason.OBSERVE):
            self.book.foreign.discard(shared)

    async def _publish_records(self) -> tuple[Published, Verdict]:
        wishes, shown = self._wishes, docs.RecordsShown()

        def render(live: ConfigMap | None) -> Rendered:
            barred = docs.barred(live, wishes.manager, wishes.reschedule_sole, self.book.limits.volcano is True)
            return barred or docs.render_reschedule(self.book, live, shown)

        done = await self._publisher.publish(
            wishes.reschedule_namespace, docs.RESCHEDULE_NAME, render, wishes.reschedule
        )
        self._note(Shared.RECORDS, done.reason)
        if done.changed:
            self.dropped.update(shown.dropped)
        seen = done.reason in (Reason.WRITTEN, Reason.UNCHANGED)
        return done, records_seen(self.book, shown.jobs) if seen and shown.jobs else Verdict()

    async def _publish_reset(self, job_id: JobId, now: Millis) -> tuple[Published | None, Verdict]:
        ledger, job = self.book.ledgers.get(job_id), self.book.jobs.job(job_id)
        if ledger is None or not ledger.courses:
            return None, Verdict()
        namespace, name = self.reset_name(job_id)
        found: dict[int, Merge] = {}
        # What was begun in act mode is also ended when the document is not to be driven any more.
        ending = all(course.recovery.phase in _ENDING for course in ledger.courses)
        done = await self._publisher.publish(
            namespace,
            name,
            lambda live: docs.render_reset(ledger, job, self._wishes.create_reset_config, now, found, live),
            Mode.ACT if ending else self.book.limits.reset_mode,
        )
        seen = done.reason in _SEEN
        return done, document_seen(self.book, job_id, found, now) if seen else Verdict()

    def reset_name(self, job_id: JobId) -> tuple[str, str]:
        """Namespace and name of the job's reset-config; the name is empty when nothing is known of the job."""
        job = self.book.jobs.job(job_id)
        if job is not None:
            self._ledgers.reset_names[job_id] = f"{job.namespace}/reset-config-{job.owner_name or job.name}"
        namespace, _, name = self._ledgers.reset_names.get(job_id, f"{job_id.partition('/')[0]}/").partition("/")
        return namespace, name

    async def _publish_plan(self, job_id: JobId, now: Millis) -> Published | None:
        job, text = self.book.jobs.job(job_id), self._ledgers.plans.get(job_id)
        if job is None or text is None:
            return None
        try:
            document = decode_plan(text)
            detail = f"{document.state}, rule {document.rule.number} {document.rule.code}"
        except BadDocument as error:
            return Published(
                job.namespace, plan_name(job.owner_name or job.name), Reason.DOCUMENT_UNREADABLE, str(error)
            )
        rendered = Rendered(Reason.WRITTEN, {PLAN_KEY: text}, detail, owner=docs.owner_reference(job))
        name = plan_name(job.owner_name or job.name)
        mode = Mode.DISABLED if self._wishes.mode is Mode.DISABLED else Mode.ACT
        done = await self._publisher.publish(job.namespace, name, lambda _: rendered, mode)
        if self.book.rails is not None and done.reason in _SEEN:
            reserved = {
                one.plan for one in self.book.rails.entries if one.job == job_id and one.state is HoldState.RESERVED
            }
            for plan in sorted(reserved):
                self.book.rails = advance(self.book.rails, plan, LifeSignal.TOLD, now=now)
            await self._ledgers.store(self.book)
        return done
