"""The coordinator's decider: reports and jobs in, ledgers, plans and entries out, each step with its reason.

The one rule: `decide_*` reads the book and returns a Verdict, `evolve` alone changes the book. What the documents
of others hold follows from the book; nothing is remembered in them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, tzinfo

from agent.domain.cluster import courses, placement, railholds, rails, recovery, relation, software
from agent.domain.cluster.book import (
    ClusterBook,
    Draft,
    Limits,
    RailPlan,
    Shared,
    Verdict,
    evolve,
    take_ledger,
)
from agent.domain.cluster.courses import document_of
from agent.domain.cluster.nodes import decide_node, entry_of
from agent.domain.cluster.placement import first_retries
from agent.domain.ledger import JobLedger, prune
from agent.domain.reschedule import JobRecords
from agent.domain.reset import Merge, Outcome, Phase, ResetInfo, Signal, recorded, step
from agent.domain.vocab import JobId, Millis

__all__ = [
    "ClusterBook",
    "Limits",
    "RailPlan",
    "Shared",
    "Verdict",
    "adopt",
    "decide_job",
    "decide_node",
    "document_of",
    "document_seen",
    "entry_of",
    "evolve",
    "first_retries",
    "leave_act",
    "records_seen",
    "take_ledger",
]


def decide_job(book: ClusterBook, job_id: JobId, now: Millis, zone: tzinfo = UTC) -> Verdict:
    """All that follows for one job from what is known now: recoveries, placement, rails."""
    if job_id in book.frozen:
        return Verdict(deadlines={job_id: None})
    job = book.jobs.job(job_id)
    before = book.ledger(job_id)
    draft = Draft(book, job_id, now, before, book.rails, book.cluster)
    if job is not None:
        relation.follow(draft, job)
    courses.follow(draft, job)
    if job is not None:
        placement.follow(draft, job, zone)
        relation.forget(draft, job)
        followed = draft.ledger.courses
        recovery.consider(draft, job)
        if draft.ledger.courses != followed:
            draft.wake.append(now)  # its codes may already be gone: a fault may be over before it is read
        software.count(draft, job)
        rails.delegate_hccs(draft, job)
        rails.consider(draft, job)
    elif draft.rails is not None:
        draft.rails = railholds.close(draft.rails, job_id, now)
    ledger = _settled(draft, now)
    gone = job is None and not ledger.courses
    return Verdict(
        decisions=tuple(draft.decisions),
        ledgers=_changes(book, job_id, None if gone else ledger),
        deadlines={job_id: courses.wake_of(draft)},
        cluster=None if draft.cluster is book.cluster else draft.cluster,
        rails=draft.rails if draft.rails != book.rails else None,
        plans={plan.job: plan for plan in draft.plans},
    )


def _settled(draft: Draft, now: Millis) -> JobLedger:
    """The ledger with its new marks, and without marks too old to matter."""
    done = prune(draft.ledger.done, now, draft.book.limits.max_event_age)
    if draft.marks:
        done = {**done, **draft.marks}
    return draft.ledger if done is draft.ledger.done else replace(draft.ledger, done=done)


def _changes(book: ClusterBook, job_id: JobId, ledger: JobLedger | None) -> dict[JobId, JobLedger | None]:
    known = book.ledgers.get(job_id)
    if ledger == known or (known is None and ledger == JobLedger(job_id, book.cluster_id)):
        return {}
    return {job_id: ledger}


_TAKEN = "entries were taken out by somebody else"


def leave_act(book: ClusterBook, job_id: JobId, now: Millis) -> Verdict:
    """What ends for a job when act mode does: its recoveries leave, nothing else is decided."""
    draft = Draft(book, job_id, now, book.ledger(job_id), None, book.cluster)
    courses.leave(draft, book.jobs.job(job_id))
    return Verdict(decisions=tuple(draft.decisions), ledgers=_changes(book, job_id, draft.ledger))


def adopt(book: ClusterBook, job_id: JobId, info: ResetInfo, now: Millis) -> Verdict:
    """What the job's reset.json holds of ours that no ledger knows is taken into the ledger, to leave."""
    job = book.jobs.job(job_id)
    if job is None or job_id in book.frozen:
        return Verdict()
    draft = Draft(book, job_id, now, book.ledger(job_id), None, book.cluster)
    courses.adopt(draft, job, info)
    return Verdict(decisions=tuple(draft.decisions), ledgers=_changes(book, job_id, draft.ledger))


def document_seen(book: ClusterBook, job_id: JobId, merged: dict[int, Merge], now: Millis) -> Verdict:
    """What the job's reset.json held or now holds for each recovery (by its id), after the write went through."""
    ledger = book.ledgers.get(job_id)
    if ledger is None:
        return Verdict()
    draft = Draft(book, job_id, now, ledger, None, book.cluster)
    kept = []
    for course in ledger.courses:
        merge = merged.get(course.recovery.id)
        current = course
        if merge is not None:
            current = replace(course, recovery=recorded(course.recovery, merge))
            signal = {Outcome.ABSENT: Signal.FOREIGN_CLEAR, Outcome.LEFT: Signal.LEFT}.get(merge.outcome)
            moved = step(current.recovery, signal, now, book.limits.reset) if signal is not None else None
            if moved is not None and signal is Signal.FOREIGN_CLEAR:
                job = book.jobs.job(job_id)
                newer = max(one.recovery.id for one in ledger.courses)
                who = f"ranks went to recovery {newer}" if newer > course.recovery.id else _TAKEN
                detail = f"recovery {course.recovery.id}: its {who}"
                document = courses.document_of(job) if job is not None else ""
                draft.say(moved.reason, detail, courses.cause_of_course(course), document)
            if moved is not None:
                current = replace(current, recovery=moved.recovery)
        if current.recovery.phase is not Phase.ENDED:
            kept.append(current)
    highest = max((ledger.retry_seen, *(merge.info.retry_time for merge in merged.values())))
    after = replace(ledger, courses=tuple(kept), retry_seen=highest)
    return Verdict(decisions=tuple(draft.decisions), ledgers=_changes(book, job_id, after))


def records_seen(book: ClusterBook, shown: Mapping[JobId, JobRecords], news: Iterable[JobId] | None = None) -> Verdict:
    """What job-reschedule-reason holds now, after the write went through: what had no room there is let go here too, or
    it would come back with the next write and push out others' records again; a larger total there is ours from now on.
    `news`: the jobs of which it is not known already; None: all.
    """
    changed: dict[JobId, JobLedger | None] = {}
    for job in book.ledgers if news is None else news:
        ledger = book.ledger(job)
        if ledger.records is None:
            continue
        there = shown.get(job, JobRecords(job))
        known = {(record.timestamp, record.tasks) for record in there.records}
        records = replace(
            ledger.records,
            total=max(ledger.records.total, there.total),
            records=tuple(one for one in ledger.records.records if (one.timestamp, one.tasks) in known),
        )
        if records != ledger.records:
            changed[job] = replace(ledger, records=records)
    return Verdict(ledgers=changed)
