"""What each document of others should hold now, rendered onto the live object.

The one rule: a live object that cannot be read is left alone, and of a shared value only our entries change.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from agent.app.publisher import NODES_ANNOTATION, Rendered, is_claimed
from agent.domain.cluster import ClusterBook, Verdict, evolve, first_retries
from agent.domain.faultnodes import FaultNodeEntry, has_keys_of_others, same_but_time, with_keys_of_others
from agent.domain.jobs import Job
from agent.domain.ledger import JobLedger
from agent.domain.reschedule import RetryTimes
from agent.domain.reset import Merge, Outcome, Phase, ResetInfo, merge
from agent.domain.vocab import JobId, Millis, NodeName, Reason
from agent.errors import BadDocument
from agent.ports import ConfigMap
from agent.wire.budget import (
    TrimmedNodes,
    budget_beside,
    trim_fault_nodes,
)
from agent.wire.documents import (
    decode_fault_nodes,
    decode_reschedule,
    decode_retry_times,
    encode_fault_nodes,
    encode_retry_times,
)
from agent.wire.gojson import check_code
from agent.wire.resetfile import CHECK_CODE, RESET_JSON, RESTART_TYPE, decode_reset, fitting, reset_data

FAULT_NODE = "fault-node"
RETRY_TIMES = "remain-retry-times"
RECORDS = "recent-reschedule-records"
VCJOB_NAME = "vcjob-fault-npu-cm"
RESCHEDULE_NAME = "job-reschedule-reason"
MEND = "nothing is written over it: mend it, or set it to an empty text and it is made anew"
"""What a person does about a key of a live object that cannot be read."""
RESET_LABELS = {"reset": "true"}
"""Device-plugin's informer sees a reset-config only with this label (ascendtolerance.go:127)."""


def foreign_writers(live: ConfigMap | None, ours: str) -> tuple[str, ...]:
    """Managers of the live object that are not us; in a folder there are none unless an object brought them."""
    return tuple(name for name in live.managers if name != ours) if live is not None else ()


class NodesShown:
    """What the live `fault-node` holds. Read only when it is not the text that we rendered last: of a thousand failing
    nodes each write would read all of them again.
    """

    def __init__(self) -> None:
        self._text = ""
        self._entries: dict[NodeName, FaultNodeEntry] = {}
        self.left_out: dict[str, int] = {}
        """What the last text had no room for: `devices`, `details` (nodes with name and state alone), `nodes`."""

    def read(self, text: str) -> Mapping[NodeName, FaultNodeEntry]:
        """Its elements by node. Raises BadDocument."""
        if text != self._text:
            self._entries = {entry.node: entry for entry in decode_fault_nodes(text)}
            self._text = text
        return self._entries

    def rendered(self, text: str, entries: Iterable[FaultNodeEntry]) -> None:
        """The text that stands there once it is written."""
        self._text, self._entries = text, {entry.node: entry for entry in entries}


def take_over(book: ClusterBook, vcjob: ConfigMap | None, records: ConfigMap | None) -> None:
    """Take into the book what the shared documents held when they were first read: entries, retries and totals that
    nothing else knows. What cannot be read is told when it is to be written.
    """
    if vcjob is not None:
        with suppress(BadDocument):
            text = vcjob.data.get(FAULT_NODE, "")
            entries = decode_fault_nodes(text)
            for entry in entries:
                book.entries[entry.node] = with_keys_of_others(entry, None)
            if is_claimed(vcjob, book.cluster_id) and vcjob.annotations.get(NODES_ANNOTATION) == check_code(text):
                book.shown.update(entry.node for entry in entries)
        with suppress(BadDocument):
            for job, left in decode_retry_times(vcjob.data.get(RETRY_TIMES, ""))[0].items():
                book.known_retries[JobId(job)] = (left.uid, left.times)
                ledger = book.ledgers.get(JobId(job))
                if ledger is not None and ledger.owner == left.uid and (ledger.retry_times or 0) > left.times:
                    # Another writer has counted on from where we left it.
                    evolve(book, Verdict(ledgers={ledger.job: replace(ledger, retry_times=left.times)}))
    if records is not None:
        with suppress(BadDocument):
            for job, known in decode_reschedule(records.data.get(RECORDS, "")).items():
                book.known_records[JobId(job)] = known.total


def barred(
    live: ConfigMap | None, manager: str, name: str, sole_writer: bool, declared: bool = False
) -> Rendered | None:
    """FOREIGN_WRITER_LIVE when somebody else has a hand in the shared document of that name and nobody declared us its
    sole writer, or when the plugin is declared to be at work, also before its first write.
    """
    if declared:
        detail = "the settings say volcano: alive, and its plugin writes it anew each second from memory; compared only"
        return Rendered(Reason.FOREIGN_WRITER_LIVE, detail=detail)
    others = foreign_writers(live, manager)
    if not others or sole_writer:
        return None
    setting = f"documents.{name.replace('-', '_')}.sole_writer"
    return Rendered(
        Reason.FOREIGN_WRITER_LIVE,
        detail=f"written by {', '.join(others)}; compared only ({setting} declares them gone)",
    )


def foreign_data(live: ConfigMap | None, *ours: str) -> dict[str, str]:
    """What others hold of the room: their keys, and binary ones too, as long as they are written."""
    if live is None:
        return {}
    theirs = {key: value for key, value in live.data.items() if key not in ours}
    return theirs | dict(live.extra.get("binaryData") or {})


def render_vcjob(book: ClusterBook, gone: frozenset[JobId], live: ConfigMap | None, shown: NodesShown) -> Rendered:
    """`vcjob-fault-npu-cm`: every faulty node, and the remaining retries of every job we know.

    The retries have room before the nodes: a job that is missing there is set to Failed, a node's details are news.
    """
    data = live.data if live is not None else {}
    foreign = foreign_data(live, FAULT_NODE, RETRY_TIMES)
    retries, moved, said = _retries(book, gone, data.get(RETRY_TIMES, ""), budget_beside(foreign))
    entries, problem, ours = _entries(book, data.get(FAULT_NODE, ""), shown)
    trimmed = trim_fault_nodes(entries.values(), budget_beside({**foreign, RETRY_TIMES: retries}))
    kept = trimmed.entries
    if trimmed.dropped and not problem:
        there = shown.read(data.get(FAULT_NODE, ""))
        kept = tuple(_at_its_time(entry, there.get(entry.node)) for entry in kept)
    nodes = encode_fault_nodes(kept) or "[]"
    shown.rendered(nodes, kept)
    shown.left_out = {"devices": trimmed.dropped, "details": trimmed.bare, "nodes": trimmed.left_out}
    detail = _faulty(entries) + "".join(f"; {one}" for one in (*_cut(trimmed), *problem, *said, *moved))
    mark = {NODES_ANNOTATION: check_code(nodes) if ours else None}
    return Rendered(Reason.WRITTEN, {FAULT_NODE: nodes, RETRY_TIMES: retries}, detail, annotations=mark)


def _entries(
    book: ClusterBook, text: str, shown: NodesShown
) -> tuple[dict[NodeName, FaultNodeEntry], tuple[str, ...], bool]:
    """Our elements with the keys that others gave them, beside those of nodes that we have never judged; what is wrong
    with the live text; and whether all are ours. Levels are known anew, so a text that nobody can read is made anew.
    """
    known = book.judged | book.shown
    try:
        live = shown.read(text)
    except BadDocument as error:
        return book.entries, (f"{FAULT_NODE} was unreadable ({error}) and is made anew",), book.entries.keys() <= known
    others = {node: entry for node, entry in live.items() if node not in book.judged}
    theirs = {node: entry for node, entry in live.items() if node in book.entries and has_keys_of_others(entry)}
    ours = {node: with_keys_of_others(book.entries[node], entry) for node, entry in theirs.items()}
    # What stood there at the start and is not ours is others' to take away again.
    found = {**{node: entry for node, entry in book.entries.items() if node in known}, **ours, **others}
    return found, (), found.keys() <= known


def _at_its_time(entry: FaultNodeEntry, live: FaultNodeEntry | None) -> FaultNodeEntry:
    """The element as it stands there, if all that differs is what has no room, and the time at which that changed."""
    return live if live is not None and same_but_time(entry, live) else entry


def _retries(
    book: ClusterBook, gone: frozenset[JobId], text: str, limit: int
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """The text of `remain-retry-times`, what it changes for whom, and what else is to be said of it.

    A map nobody can read fails waiting jobs as it is, so what is wrong in it goes and the rest stays.
    """
    said: tuple[str, ...] = ()
    try:
        live, wrong = decode_retry_times(text)
    except BadDocument as error:
        live, wrong = {}, (error,)
    if wrong:
        said = (f"{RETRY_TIMES} was unreadable ({wrong[0]}) and is made anew from {len(live)} right entries and ours",)
    kept = {job: one for job, one in live.items() if JobId(job) not in gone}
    for job, ledger in book.ledgers.items():
        if ledger.retry_times is not None and book.jobs.job(job) is not None:
            extra = live[job].extra if job in live else {}
            kept[job] = RetryTimes(ledger.owner, ledger.retry_times, extra)
    for job in book.frozen - kept.keys():
        known = book.jobs.job(job)
        times = first_retries(book, known) if known is not None else None
        if known is not None and times is not None:
            kept[job] = RetryTimes(known.owner_uid, times)
    encoded = encode_retry_times(kept)
    if len(encoded.encode()) > limit:
        # ascend-operator decides alike for a job with none left and for one that is not there.
        left = {job: one for job, one in kept.items() if one.times > 0}
        said = (*said, f"{len(kept) - len(left)} jobs without retries left out of {RETRY_TIMES} to fit")
        kept, encoded = left, encode_retry_times(left)
    return encoded, tuple(_moved(live, kept)), said


def _moved(live: Mapping[str, RetryTimes], kept: Mapping[str, RetryTimes]) -> Iterator[str]:
    """Whose retries change, for people: a few with what is left to them, and how many more."""
    changed = [job for job in live.keys() | kept.keys() if live.get(job) != kept.get(job)]
    if changed:
        told = [f"{job} {kept[job].times} left" if job in kept else f"{job} taken out" for job in sorted(changed)[:3]]
        yield f"retries: {', '.join(told)}" + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")


def _cut(trimmed: TrimmedNodes) -> Iterator[str]:
    if trimmed.dropped:
        yield f"{trimmed.dropped} device elements left out to fit"
    if trimmed.bare:
        yield f"of {trimmed.bare} nodes name and state alone"
    if trimmed.left_out:
        yield f"no room at all for {trimmed.left_out} nodes"


def _faulty(entries: Mapping[NodeName, FaultNodeEntry]) -> str:
    """Which nodes are listed, for people: names and states of a few, and how many more."""
    if not entries:
        return "no faulty node"
    named = ", ".join(f"{node} {entries[node].health}" for node in sorted(entries)[:3])
    return f"faulty: {named}" + (f" and {len(entries) - 3} more" if len(entries) > 3 else "")


def render_reset(
    ledger: JobLedger, job: Job | None, create: bool, now: Millis, found: dict[int, Merge], live: ConfigMap | None
) -> Rendered:
    """`reset-config-<job>`: every recovery of the job laid onto the live list; `found` gets what each merge found."""
    found.clear()
    if live is None and not create:
        for course in ledger.courses:
            waited_for = course.recovery.workers_stopped and course.recovery.shown
            if course.recovery.phase is Phase.LEAVING and not waited_for:
                found[course.recovery.id] = Merge(ResetInfo(), changed=False, outcome=Outcome.LEFT)
        return Rendered(
            Reason.NO_RESET_CONFIG,
            detail="the job has none; create it with label reset=true, or set documents.reset_config.create",
        )
    text = live.data.get(RESET_JSON, "") if live is not None else ""
    info = _reset_info(text)
    data = live.data if live is not None else {}
    foreign = foreign_data(live, RESET_JSON, CHECK_CODE, RESTART_TYPE)
    restart_type: str | None = None
    changed, cuts = False, ""
    for course in ledger.courses:
        fitted, cut = fitting(info, course.recovery, foreign)
        merged = merge(info, fitted, now)
        found[course.recovery.id] = merged
        info = merged.info
        changed, cuts = changed or merged.changed, cuts + cut
        restart_type = merged.restart_type or restart_type
    if not changed:
        return Rendered(_unchanged(found), detail="")
    owner = owner_reference(job) if job is not None else None
    ids = ", ".join(f"recovery {one} {merged.status or merged.outcome}" for one, merged in found.items())
    detail = f"{ids}; RetryTime {info.retry_time}{cuts}"
    return Rendered(Reason.WRITTEN, reset_data(info, restart_type, data), detail, RESET_LABELS, owner)


def _reset_info(text: str) -> ResetInfo:
    """What stands in `reset.json`. Raises BadDocument with the key and what to do."""
    if not text.strip():
        return ResetInfo(rank_list=())
    try:
        return decode_reset(text)
    except BadDocument as error:
        raise BadDocument(error.reason, place=f"{RESET_JSON} {error.place}", hint=MEND) from error


def _unchanged(found: Mapping[int, Merge]) -> Reason:
    absent = any(merged.outcome is Outcome.ABSENT for merged in found.values())
    return Reason.RECOVERY_ENDED if absent else Reason.UNCHANGED


def owner_reference(job: Job) -> dict[str, str] | None:
    """The ownerReference to the job's PodGroup, so that what we made goes with it; None when its UID is not known."""
    if not job.uid:
        return None
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "name": job.name, "uid": job.uid}
