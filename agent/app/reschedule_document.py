"""`job-reschedule-reason`: our records merged onto those of others, within the document's budget.

The one rule: one more record costs what that record costs; nothing is read, merged or written out twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from agent.app.documents import MEND, RECORDS, foreign_data
from agent.app.publisher import Rendered
from agent.domain.cluster import ClusterBook
from agent.domain.reschedule import MAX_RECORDS, MAX_TOTAL, JobRecords
from agent.domain.vocab import JobId, Reason
from agent.errors import BadDocument
from agent.ports import ConfigMap
from agent.wire.budget import RECORDS_LIMIT, TrimmedRecords, budget_beside, data_bytes, trim_records
from agent.wire.documents import RecordTexts, decode_reschedule


class RecordsShown:
    """What the document holds once it is written, and what had no room in it; kept from one write to the next."""

    def __init__(self) -> None:
        self.jobs: Mapping[JobId, JobRecords] = {}
        self.dropped: dict[str, int] = {}
        """`records` and `jobs`: how many went."""
        self.texts = RecordTexts()
        self._read: tuple[str, Mapping[str, JobRecords]] = ("", {})
        self._rendered: tuple[str, Mapping[str, JobRecords]] = ("", {})
        self._merged: dict[str, tuple[JobRecords | None, JobRecords, JobRecords]] = {}
        """Theirs and ours with what came of them, as long as both are the same objects."""
        self._agreed: dict[JobId, tuple[JobRecords, JobRecords | None]] = {}
        """What a job's ledger and the document held when the ledger last learned from it."""

    def read(self, text: str) -> Mapping[str, JobRecords]:
        """The records of a text that was not the last one to be read or rendered, read. Raises BadDocument."""
        for known, jobs in (self._rendered, self._read):
            if text == known:
                return jobs
        self._read = text, decode_reschedule(text)
        return self._read[1]

    def merge(self, job: str, theirs: JobRecords | None, ours: JobRecords) -> JobRecords:
        """As `merge_records`."""
        known = self._merged.get(job)
        if known is None or known[0] is not theirs or known[1] is not ours:
            known = self._merged[job] = theirs, ours, merge_records(theirs, ours)
        return known[2]

    def rendered(self, trimmed: TrimmedRecords) -> str:
        """The text of what fits, which stands there once it is written."""
        text = self.texts.text(trimmed.jobs)
        self._rendered = text, trimmed.jobs
        self.jobs = {JobId(job): one for job, one in trimmed.jobs.items()}
        self.dropped = {"records": sum(trimmed.dropped_records.values()), "jobs": len(trimmed.dropped_jobs)}
        if len(self._merged) > len(trimmed.jobs):
            self._merged = {job: one for job, one in self._merged.items() if job in trimmed.jobs}
        return text

    def news(self, book: ClusterBook) -> Iterator[JobId]:
        """Jobs whose ledger has not learned yet what the document holds of them; it is now about to."""
        there = {job: (one.records, self.jobs.get(job)) for job, one in book.ledgers.items() if one.records is not None}
        before, self._agreed = self._agreed, there
        for job, (ours, shown) in there.items():
            known = before.get(job)
            if known is None or known[0] is not ours or known[1] is not shown:
                yield job


def render_reschedule(book: ClusterBook, live: ConfigMap | None, shown: RecordsShown) -> Rendered:
    """`job-reschedule-reason`: our records merged by (time, tasks), newest first, ten a job, within its budget. `shown`
    gets what the document then holds. With nothing of ours to tell it is not made.
    """
    ours = {job: one.records for job, one in book.ledgers.items() if one.records is not None}
    shown.jobs = {}
    if not any(one.records for one in ours.values()):
        return Rendered(Reason.UNCHANGED)
    data = live.data if live is not None else {}
    try:
        jobs = dict(shown.read(data.get(RECORDS, "")))
    except BadDocument as error:
        return Rendered(Reason.DOCUMENT_UNREADABLE, detail=f"{RECORDS}: {error}; {MEND}")
    for job, records in ours.items():
        if records.records or job in jobs:
            jobs[job] = shown.merge(job, jobs.get(job), records)
    foreign = foreign_data(live, RECORDS)
    trimmed = trim_records(jobs, budget_beside(foreign, RECORDS_LIMIT), shown.texts)
    if not trimmed.fits:
        detail = f"its other keys hold {data_bytes(foreign)} bytes and leave no room for a record; it stays as it is"
        return Rendered(Reason.DOCUMENT_REFUSED, detail=detail)
    text = shown.rendered(trimmed)
    detail = f"records of jobs: {len(trimmed.jobs)}{_dropped(trimmed)}"
    return Rendered(Reason.WRITTEN, {RECORDS: text}, detail)


def _dropped(trimmed: TrimmedRecords) -> str:
    """What went to make room: how much, and of whom."""
    said = []
    if trimmed.dropped_records:
        records = sum(trimmed.dropped_records.values())
        said.append(f"{records} oldest records of {_some(sorted(trimmed.dropped_records))}")
    if trimmed.dropped_jobs:
        said.append(f"{len(trimmed.dropped_jobs)} whole jobs: {_some(trimmed.dropped_jobs)}")
    return f"; dropped to fit: {' and '.join(said)}" if said else ""


def _some(jobs: Sequence[str]) -> str:
    return ", ".join(jobs[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else "")


def merge_records(theirs: JobRecords | None, ours: JobRecords) -> JobRecords:
    """Records of both, each once and then as it stands there, newest first.

    The total only counts up: ours, or theirs with what it cannot have counted yet, the records of ours that are newer
    than all of theirs (the document could not be read when they were made).
    """
    if theirs is None:
        inorder = tuple(sorted(ours.records, key=lambda record: -record.timestamp))
        return ours if inorder == ours.records else replace(ours, records=inorder)
    seen = {(record.timestamp, record.tasks): record for record in (*ours.records, *theirs.records)}
    newest = sorted(seen.values(), key=lambda record: -record.timestamp)[:MAX_RECORDS]
    last = max((record.timestamp for record in theirs.records), default=-1)
    uncounted = sum(record.timestamp > last for record in ours.records)
    total = min(max(theirs.total + uncounted, ours.total), MAX_TOTAL)
    if total == theirs.total and list(map(id, newest)) == list(map(id, theirs.records)):
        return theirs
    return replace(theirs, total=total, records=tuple(newest))
