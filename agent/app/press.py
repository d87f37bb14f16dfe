"""The press: what each document of the cluster should hold now, brought to the store.

The one rule: nothing is printed for a job whose ledger could not be read or kept; a document is never ahead of it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from agent.app import documents as docs
from agent.app.ledgers import Ledgers
from agent.app.publisher import Documents, Published, Publisher, Rendered, claimed_by_other, is_claimed
from agent.app.reschedule_document import RecordsShown, render_reschedule
from agent.domain.cluster import ClusterBook, Shared, Verdict, adopt, document_of, document_seen, records_seen
from agent.domain.events import Decision
from agent.domain.jobs import config_name
from agent.domain.rail.life import HoldState, LifeSignal
from agent.domain.rail.reservations import advance
from agent.domain.reset import (
    HOT_RESET,
    UNSURE,
    Erasure,
    Merge,
    Outcome,
    Part,
    Phase,
    Recovery,
    ResetInfo,
    State,
    Status,
    Writer,
    entry_of,
    erasure,
)
from agent.domain.vocab import JobId, Millis, Mode, Reason
from agent.errors import BadDocument
from agent.ports import ConfigMap
from agent.wire.railplan import PLAN_KEY, decode_plan, plan_name
from agent.wire.resetfile import RESET_JSON, RESTART_TYPE, decode_reset

_SEEN = (Reason.WRITTEN, Reason.UNCHANGED, Reason.RECOVERY_ENDED, Reason.NO_RESET_CONFIG)
"""Answers after which it is known what the document holds."""
_ENDING = (Phase.LEAVING, Phase.LEFT)


def _is_lost(made: Merge, recovery: Recovery) -> bool:
    """Whether its entries were there and somebody else than a newer recovery of ours has taken their place."""
    newer = any((entry.recovery_id or 0) > recovery.id for entry in made.info.rank_list or ())
    return made.outcome is Outcome.ABSENT and recovery.shown not in ("", UNSURE) and not newer


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
        self._records = RecordsShown()
        self.dropped: Counter[str] = Counter()
        """`records` and `jobs` that job-reschedule-reason had no room for, since the start."""
        self.erasures: Counter[Writer] = Counter()
        """How often which other writer has taken something of ours out of a document."""
        self._claimed: dict[Shared, str] = {}
        """Shared documents that carried our annotation when we last looked, each with the UID that it had."""
        self._left: dict[JobId, ConfigMap] = {}
        """Each reset-config as it stood when we last had a hand in it, while a recovery needs it."""
        self._unlabelled: set[JobId] = set()
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
                return await self._publish_vcjob(now)
            case Shared.RECORDS:
                return await self._publish_records(now)
            case "plan":
                return await self._publish_plan(job, now), Verdict()
            case _:
                return await self._publish_reset(job, now)

    async def _publish_vcjob(self, now: Millis) -> tuple[Published, Verdict]:
        wishes, gone = self._wishes, frozenset(self.gone)
        stood: list[ConfigMap | None] = []

        def render(live: ConfigMap | None) -> Rendered:
            stood.append(live)
            if live is not None:
                self.look_for_volcano(live)
            barred = self._barred(docs.VCJOB_NAME, live, wishes.vcjob_sole)
            return barred or docs.render_vcjob(self.book, gone, live, self.shown)

        done = await self._publisher.publish(wishes.vcjob_namespace, docs.VCJOB_NAME, render, wishes.vcjob)
        self._note(Shared.VCJOB, done.reason)
        if done.reason in _SEEN:
            self.gone -= gone  # an entry that comes later under such a name is somebody else's
        return done, Verdict(self._unclaimed(Shared.VCJOB, stood, done, now))

    def _unclaimed(
        self, shared: Shared, stood: list[ConfigMap | None], done: Published, now: Millis
    ) -> tuple[Decision, ...]:
        """Our annotation was there and somebody has taken it off. Where we write at all, it is back by now."""
        ours, found = self.book.cluster_id, stood[-1] if stood else None
        lost = found is not None and self._claimed.get(shared) == found.uid and not is_claimed(found, ours)
        if done.live is not None and is_claimed(done.live, ours):
            self._claimed[shared] = done.live.uid
        else:
            self._claimed.pop(shared, None)
        if not lost:
            return ()
        loss = Erasure(Writer.OTHER, (Part.CLAIM,))
        self.erasures[loss.writer] += 1
        return (Decision(now, Reason.ERASED, detail=str(loss), document=done.place),)

    def look(self, vcjob: ConfigMap | None, records: ConfigMap | None) -> None:
        """Who writes the shared documents besides us, as they stand before anything is decided."""
        wishes = self._wishes
        if vcjob is not None:
            self.look_for_volcano(vcjob)
        for shared, name, live, sole in (
            (Shared.VCJOB, docs.VCJOB_NAME, vcjob, wishes.vcjob_sole),
            (Shared.RECORDS, docs.RESCHEDULE_NAME, records, wishes.reschedule_sole),
        ):
            other = self._barred(name, live, sole) or claimed_by_other(live, self.book.cluster_id)
            self._note(shared, Reason.FOREIGN_WRITER_LIVE if other else Reason.UNCHANGED)

    def _barred(self, name: str, live: ConfigMap | None, sole: bool) -> Rendered | None:
        return docs.barred(live, self._wishes.manager, name, sole, self.book.limits.volcano is True)

    def _note(self, shared: Shared, reason: Reason) -> None:
        if reason is Reason.FOREIGN_WRITER_LIVE:
            self.book.foreign.add(shared)
        elif reason in (Reason.WRITTEN, Reason.UNCHANGED, Reason.OBSERVE):
            self.book.foreign.discard(shared)

    async def _publish_records(self, now: Millis) -> tuple[Published, Verdict]:
        wishes, shown = self._wishes, self._records
        stood: list[ConfigMap | None] = []

        def render(live: ConfigMap | None) -> Rendered:
            stood.append(live)
            barred = self._barred(docs.RESCHEDULE_NAME, live, wishes.reschedule_sole)
            return barred or render_reschedule(self.book, live, shown)

        done = await self._publisher.publish(
            wishes.reschedule_namespace, docs.RESCHEDULE_NAME, render, wishes.reschedule
        )
        self._note(Shared.RECORDS, done.reason)
        if done.changed:
            self.dropped.update(shown.dropped)
        seen = done.reason in (Reason.WRITTEN, Reason.UNCHANGED)
        verdict = records_seen(self.book, shown.jobs, shown.news(self.book)) if seen and shown.jobs else Verdict()
        told = self._unclaimed(Shared.RECORDS, stood, done, now)
        return done, replace(verdict, decisions=(*told, *verdict.decisions))

    async def _publish_reset(self, job_id: JobId, now: Millis) -> tuple[Published | None, Verdict]:
        ledger, job = self.book.ledgers.get(job_id), self.book.jobs.job(job_id)
        if ledger is None or not ledger.courses:
            self._left.pop(job_id, None)
            return None, Verdict()
        namespace, name = self.reset_name(job_id)
        found: dict[int, Merge] = {}
        stood: list[ConfigMap | None] = []

        def render(live: ConfigMap | None) -> Rendered:
            stood.append(live)
            return docs.render_reset(ledger, job, self._wishes.create_reset_config, now, found, live)

        # What was begun in act mode is also ended when the document is not to be driven any more.
        ending = all(course.recovery.phase in _ENDING for course in ledger.courses)
        done = await self._publisher.publish(
            namespace,
            name,
            render,
            Mode.ACT if ending else self.book.limits.reset_mode,
        )
        if done.reason not in _SEEN:
            return done, Verdict()
        told = [
            *self._erased(job_id, stood[-1], found, done, now),
            *self._unlabelled_now(job_id, done.live, done.place, now),
        ]
        verdict = document_seen(self.book, job_id, found, now)
        return done, replace(verdict, decisions=(*told, *verdict.decisions))

    def _erased(
        self, job: JobId, stood: ConfigMap | None, found: Mapping[int, Merge], done: Published, now: Millis
    ) -> Iterator[Decision]:
        """What others have taken out since we last had a hand in the document."""
        left = self._left.pop(job, None)
        if done.live is not None:
            self._left[job] = done.live
        if left is not None and stood is not None and left.resource_version == stood.resource_version:
            return  # nobody else has had a hand in it
        before = self._remembered(job, found) if left is None else self._state(left)
        loss = erasure(before, self._state(stood)) if before is not None else None
        if loss is not None:
            self.erasures[loss.writer] += 1
            yield Decision(now, Reason.ERASED, job=job, detail=str(loss), document=done.place)

    def _remembered(self, job: JobId, found: Mapping[int, Merge]) -> State | None:
        """What an earlier process has left, as far as the ledger tells: entries that are not there."""
        courses = self.book.ledger(job).courses
        absent = [
            one.recovery for one in courses if (made := found.get(one.recovery.id)) and _is_lost(made, one.recovery)
        ]
        lost = [entry_of(one, device, Status.UNRECOVERED) for one in absent for device in one.devices]
        return State(ResetInfo(tuple(lost)), HOT_RESET, claimed=False) if lost else None

    def _state(self, live: ConfigMap | None) -> State | None:
        if live is None:
            return None
        info = decode_reset(live.data.get(RESET_JSON, ""))
        return State(info, live.data.get(RESTART_TYPE, ""), is_claimed(live, self.book.cluster_id))

    def _unlabelled_now(self, job: JobId, live: ConfigMap | None, place: str, now: Millis) -> Iterator[Decision]:
        """The label that device-plugin looks for is missing: told once, until it is there again."""
        if live is None or docs.RESET_LABELS.items() <= live.labels.items():
            self._unlabelled.discard(job)
        elif job not in self._unlabelled:
            self._unlabelled.add(job)
            detail = "label reset=true is missing: a container that mounts the host's directory reads nothing of it"
            yield Decision(now, Reason.NO_RESET_LABEL, job=job, detail=detail, document=place)

    def look_into(self, job: JobId, live: ConfigMap | None, now: Millis) -> Verdict:
        """What a job's reset-config says that no ledger knows: entries of ours to be taken out, a missing label."""
        if live is None or claimed_by_other(live, self.book.cluster_id) or self.book.jobs.job(job) is None:
            return Verdict()
        place = f"{live.namespace}/{live.name}"
        told = tuple(self._unlabelled_now(job, live, place, now))
        try:
            verdict = adopt(self.book, job, decode_reset(live.data.get(RESET_JSON, "")), now)
        except BadDocument:  # told when it is to be written
            return Verdict(decisions=told)
        return replace(verdict, decisions=(*told, *verdict.decisions))

    def reset_name(self, job_id: JobId) -> tuple[str, str]:
        """Namespace and name of the job's reset-config; the name is empty when nothing is known of the job."""
        job = self.book.jobs.job(job_id)
        if job is not None:
            self._ledgers.reset_names[job_id] = document_of(job)
        namespace, _, name = self._ledgers.reset_names.get(job_id, f"{job_id.partition('/')[0]}/").partition("/")
        return namespace, name

    async def _publish_plan(self, job_id: JobId, now: Millis) -> Published | None:
        job, text = self.book.jobs.job(job_id), self._ledgers.plans.get(job_id)
        if job is None or text is None:
            return None
        name = plan_name(config_name(job))
        try:
            document = decode_plan(text)
            detail = f"{document.state}, rule {document.rule.number} {document.rule.code}"
        except BadDocument as error:
            return Published(job.namespace, name, Reason.DOCUMENT_UNREADABLE, str(error))
        rendered = Rendered(Reason.WRITTEN, {PLAN_KEY: text}, detail, owner=docs.owner_reference(job))
        mode = Mode.DISABLED if self._wishes.mode is Mode.DISABLED else Mode.ACT
        done = await self._publisher.publish(job.namespace, name, lambda _: rendered, mode)
        if self.book.rails is not None and done.reason in _SEEN:
            reserved = {one.plan for one in self.book.rails.of_job(job_id) if one.state is HoldState.RESERVED}
            for plan in sorted(reserved):
                self.book.rails = advance(self.book.rails, plan, LifeSignal.TOLD, now=now)
            await self._ledgers.store(self.book)
        return done
