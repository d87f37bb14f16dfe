"""What each document of others should hold now, rendered onto the live object.

The one rule: a live object that cannot be read is left alone, and of a shared value only our entries change.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from agent.app.publisher import Rendered
from agent.domain.cluster import ClusterBook
from agent.domain.faultnodes import FaultNodeEntry
from agent.domain.jobs import Job
from agent.domain.ledger import JobLedger
from agent.domain.reschedule import MAX_RECORDS, JobRecords, RescheduleRecord, RetryTimes
from agent.domain.reset import Merge, Outcome, Phase, ResetInfo, merge
from agent.domain.vocab import JobId, Millis, Reason
from agent.errors import BadDocument
from agent.ports import ConfigMap
from agent.wire.budget import RECORDS_LIMIT, budget_beside, trim_fault_nodes, trim_records
from agent.wire.documents import (
    decode_fault_nodes,
    decode_reschedule,
    decode_retry_times,
    encode_fault_nodes,
    encode_reschedule,
    encode_retry_times,
)
from agent.wire.resetfile import RESET_JSON, decode_reset, reset_data

FAULT_NODE = "fault-node"
RETRY_TIMES = "remain-retry-times"
RECORDS = "recent-reschedule-records"
VCJOB_NAME = "vcjob-fault-npu-cm"
RESCHEDULE_NAME = "job-reschedule-reason"
RESET_LABELS = {"reset": "true"}
"""Device-plugin's informer sees a reset-config only with this label (ascendtolerance.go:127)."""


def foreign_writers(live: ConfigMap | None, ours: str) -> tuple[str, ...]:
    """Managers of the live object that are not us; in a folder there are none unless an object brought them."""
    return tuple(name for name in live.managers if name != ours) if live is not None else ()


def take_over(book: ClusterBook, vcjob: ConfigMap | None, records: ConfigMap | None) -> None:
    """Take into the book what the shared documents held when they were first read: entries, retries and totals that
    nothing else knows. What cannot be read is told when it is to be written.
    """
    if vcjob is not None:
        with suppress(BadDocument):
            entries = decode_fault_nodes(vcjob.data.get(FAULT_NODE, ""))
            book.entries.update({entry.node: entry for entry in entries})
        with suppress(BadDocument):
            for job, left in decode_retry_times(vcjob.data.get(RETRY_TIMES, "")).items():
                book.known_retries[JobId(job)] = (left.uid, left.times)
    if records is not None:
        with suppress(BadDocument):
            for job, known in decode_reschedule(records.data.get(RECORDS, "")).items():
                book.known_records[JobId(job)] = known.total


def barred(live: ConfigMap | None, manager: str, sole_writer: bool, declared: bool = False) -> Rendered | None:
    """FOREIGN_WRITER_LIVE when somebody else has a hand in the object and nobody declared us its sole writer, or when
    the plugin is declared to be at work, also before its first write.
    """
    if declared:
        detail = "the settings say volcano: alive, and its plugin writes it anew each second from memory; compared only"
        return Rendered(Reason.FOREIGN_WRITER_LIVE, detail=detail)
    others = foreign_writers(live, manager)
    if not others or sole_writer:
        return None
    return Rendered(
        Reason.FOREIGN_WRITER_LIVE,
        detail=f"written by {', '.join(others)}; compared only (documents.<name>.sole_writer declares them gone)",
    )


def render_vcjob(book: ClusterBook, gone: frozenset[JobId], live: ConfigMap | None) -> Rendered:
    """`vcjob-fault-npu-cm`: every faulty node, and the remaining retries of every job we know."""
    data = live.data if live is not None else {}
    try:
        others = decode_retry_times(data.get(RETRY_TIMES, ""))
    except BadDocument as error:
        # Blanking or half-reading it would fail waiting jobs; but a map nobody can read fails them already.
        others = {}
        problem = f"; {RETRY_TIMES} was unreadable ({error.reason}) and is made anew"
    else:
        problem = ""
    ours: dict[str, RetryTimes] = {
        job: RetryTimes(ledger.owner, ledger.retry_times, others[job].extra if job in others else {})
        for job, ledger in book.ledgers.items()
        if ledger.retry_times is not None and job not in book.frozen
    }
    kept = {job: one for job, one in others.items() if JobId(job) not in gone and not _ours_now(book, JobId(job), ours)}
    retries = encode_retry_times({**kept, **ours})
    foreign = {key: value for key, value in data.items() if key not in (FAULT_NODE, RETRY_TIMES)}
    trimmed = trim_fault_nodes(book.entries.values(), budget_beside({**foreign, RETRY_TIMES: retries}))
    detail = _faulty(trimmed.entries)
    if trimmed.dropped:
        detail += f", {trimmed.dropped} device elements left out to fit"
    nodes = encode_fault_nodes(trimmed.entries) or "[]"
    return Rendered(Reason.WRITTEN, {FAULT_NODE: nodes, RETRY_TIMES: retries}, detail + problem)


def _faulty(entries: Sequence[FaultNodeEntry]) -> str:
    """Which nodes are listed, for people: names and states of a few, and how many more."""
    if not entries:
        return "no faulty node"
    named = ", ".join(f"{entry.node} {entry.health}" for entry in entries[:3])
    return f"faulty: {named}" + (f" and {len(entries) - 3} more" if len(entries) > 3 else "")


def _ours_now(book: ClusterBook, job: JobId, ours: Mapping[str, RetryTimes]) -> bool:
    """A job we know and no longer list (its label was switched off)."""
    return job in book.ledgers and job not in book.frozen and job not in ours


def render_reschedule(book: ClusterBook, live: ConfigMap | None) -> Rendered:
    """`job-reschedule-reason`: our records merged by (time, tasks), newest first, ten a job, within its budget."""
    data = live.data if live is not None else {}
    try:
        jobs: dict[str, JobRecords] = dict(decode_reschedule(data.get(RECORDS, "")))
    except BadDocument as error:
        return Rendered(Reason.DOCUMENT_UNREADABLE, detail=f"{error}; nothing is written over it")
    for job, ledger in book.ledgers.items():
        if ledger.records is not None:
            jobs[job] = merge_records(jobs.get(job), ledger.records)
    foreign = {key: value for key, value in data.items() if key != RECORDS}
    trimmed = trim_records(jobs, budget_beside(foreign, RECORDS_LIMIT))
    detail = f"records of jobs: {len(trimmed.jobs)}"
    if trimmed.dropped_records or trimmed.dropped_jobs:
        records = sum(trimmed.dropped_records.values())
        detail += f"; to fit, {records} oldest records and {len(trimmed.dropped_jobs)} whole jobs were dropped"
    return Rendered(Reason.WRITTEN, {RECORDS: encode_reschedule(trimmed.jobs)}, detail)


def merge_records(theirs: JobRecords | None, ours: JobRecords) -> JobRecords:
    """Records of both, each once and then as it stands there, newest first; the larger total, since both count up."""
    if theirs is None:
        return ours
    seen: dict[tuple[int, object], RescheduleRecord] = {}
    for record in (*ours.records, *theirs.records):
        seen[record.timestamp, record.tasks] = record
    newest = sorted(seen.values(), key=lambda record: -record.timestamp)[:MAX_RECORDS]
    return replace(theirs, total=max(theirs.total, ours.total), records=tuple(newest))


def render_reset(
    ledger: JobLedger, job: Job | None, create: bool, now: Millis, found: dict[int, Merge], live: ConfigMap | None
) -> Rendered:
    """`reset-config-<job>`: every recovery of the job laid onto the live list; `found` gets what each merge found."""
    found.clear()
    if live is None and not create:
        for course in ledger.courses:
            if course.recovery.phase is Phase.LEAVING:
                found[course.recovery.id] = Merge(ResetInfo(), changed=False, outcome=Outcome.LEFT)
        return Rendered(
            Reason.NO_RESET_CONFIG,
            detail="the job has none; create it with label reset=true, or set documents.reset_config.create",
        )
    text = live.data.get(RESET_JSON, "") if live is not None else ""
    info = decode_reset(text) if text.strip() else ResetInfo(rank_list=())
    restart_type: str | None = None
    changed = False
    for course in ledger.courses:
        merged = merge(info, course.recovery, now)
        found[course.recovery.id] = merged
        info = merged.info
        changed = changed or merged.changed
        restart_type = merged.restart_type or restart_type
    if not changed:
        return Rendered(_unchanged(found), detail="")
    data = live.data if live is not None else {}
    owner = owner_reference(job) if job is not None else None
    ids = ", ".join(f"recovery {one} {merged.status or merged.outcome}" for one, merged in found.items())
    detail = f"{ids}; RetryTime {info.retry_time}"
    return Rendered(Reason.WRITTEN, reset_data(info, restart_type, data), detail, RESET_LABELS, owner)


def _unchanged(found: Mapping[int, Merge]) -> Reason:
    absent = any(merged.outcome is Outcome.ABSENT for merged in found.values())
    return Reason.RECOVERY_ENDED if absent else Reason.UNCHANGED


def owner_reference(job: Job) -> dict[str, str] | None:
    """The ownerReference to the job's PodGroup, so that what we made goes with it; None when its UID is not known."""
    if not job.uid:
        return None
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "name": job.name, "uid": job.uid}
