"""The coordinator's book: reports, jobs and ledgers, and what a decision about them is made of.

The one rule: deciding reads the book and gives a Verdict; only `evolve` changes the book.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from agent.domain.events import ActiveFault, Behind, Decision, NodeReport, Occurrence, fault_ref
from agent.domain.faultnodes import FaultNodeEntry
from agent.domain.isolation import Isolation
from agent.domain.jobs import Pod
from agent.domain.jobs.book import JobBook
from agent.domain.ledger import KEEP_DONE_FACTOR, ClusterLedger, Done, JobLedger
from agent.domain.policy import Policy
from agent.domain.rail.case import BorrowPolicy, RailQuestion, Strictness
from agent.domain.rail.reservations import RailLedger
from agent.domain.rail.words import Answer
from agent.domain.ranktable import RankTable
from agent.domain.reset import Executor, ResetDevice, ResetLimits
from agent.domain.reset import Policy as Reset
from agent.domain.vocab import MINUTE, SECOND, JobId, Millis, Mode, NodeName, Plane, Reason

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Limits:
    """What the settings say, in the domain's units (ms)."""

    max_event_age: Millis = Millis(900 * SECOND)
    frameworks: frozenset[str] = frozenset({"mindspore"})
    executor: Executor = Executor.NONE
    reset: ResetLimits = field(default_factory=ResetLimits)
    reset_mode: Mode = Mode.ACT
    """How far reset-config may be driven; without act no recovery is started."""
    volcano: bool | None = None
    """Is Volcano's plugin at work: True, False, or None = as seen in its own document."""
    inference_jobs: tuple[str, ...] = ()
    """Jobs whose RestartRequest is kept back for 60 s: `label=value`, `label` or `namespace/job`."""
    joint_window: Millis = Millis(3 * SECOND)
    link_fresh: Millis = Millis(MINUTE)
    borrow: BorrowPolicy = BorrowPolicy.PER_NPU
    strictness: Strictness = Strictness.STRICT


class Shared(StrEnum):
    """Documents that all jobs and nodes share."""

    VCJOB = "vcjob"
    RECORDS = "records"


@dataclass(frozen=True, slots=True)
class RailPlan:
    """The newest answer about a job's rails, for the plan document."""

    id: str
    job: JobId
    incarnation: str
    at: Millis
    answer: Answer
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a decision changes: whole new values, and the reasons for people."""

    decisions: tuple[Decision, ...] = ()
    ledgers: Mapping[JobId, JobLedger | None] = field(default_factory=dict)
    """None: the job is gone and nothing of it is left to do."""
    deadlines: Mapping[JobId, Millis | None] = field(default_factory=dict)
    wakes: Mapping[NodeName, Millis | None] = field(default_factory=dict)
    """When a node's entry has to be looked at again; None: only when something changes."""
    cluster: ClusterLedger | None = None
    told: Mapping[str, Done] = field(default_factory=dict)
    """Occurrences of no job that have now been told."""
    rails: RailLedger | None = None
    plans: Mapping[JobId, RailPlan] = field(default_factory=dict)
    entries: Mapping[NodeName, FaultNodeEntry | None] = field(default_factory=dict)


class ClusterBook:
    """All that the coordinator knows."""

    def __init__(self, cluster: str, limits: Limits, policy: Policy | None = None) -> None:
        self.cluster_id = cluster
        self.limits = limits
        self.policy = policy or Policy()
        """Rules over several faults of a job; the levels of faults come with the reports."""
        self.jobs = JobBook()
        self.reports: dict[NodeName, NodeReport] = {}
        self.ledgers: dict[JobId, JobLedger] = {}
        self.cluster = ClusterLedger(cluster)
        self.rails: RailLedger | None = RailLedger()
        """None: the ledger could not be read, and no borrow is planned."""
        self.entries: dict[NodeName, FaultNodeEntry] = {}
        self.judged: set[NodeName] = set()
        """Nodes that were decided since the ledgers were read; an element of any other in `fault-node` is not ours."""
        self.shown: set[NodeName] = set()
        """Nodes whose elements in `fault-node` an earlier coordinator of ours has written, as the document proves."""
        self.tables: dict[tuple[str, str], RankTable] = {}
        """(namespace, job name) -> its rank table, completed ones only."""
        self.contradictions: dict[tuple[str, str], str] = {}
        """(namespace, job name) -> what its rank table contradicts itself in; it is then not among `tables`."""
        self.plans: dict[JobId, RailPlan] = {}
        self.deadlines: dict[JobId, Millis] = {}
        self.wakes: dict[NodeName, Millis] = {}
        """When a node's entry changes by the mere passing of time."""
        self.volcano_seen = False
        self.foreign: set[Shared] = set()
        """Shared documents that somebody else writes now: what they count is not counted here as well."""
        self.frozen: set[JobId] = set()
        """Jobs whose ledger could not be read: nothing is started or written for them."""
        self.vanished: set[NodeName] = set()
        """Nodes whose object was there and is gone."""
        self.buried: set[NodeName] = set()
        """Nodes whose report was removed, at least once."""
        self.node_d: set[NodeName] = set()
        """Nodes for which NodeD's own object is known."""
        self.former: dict[NodeName, set[JobId]] = {}
        """Jobs whose ledger remembers a pod on the node, also when that pod has just gone."""
        self.dirty: set[JobId] = set()
        """Jobs whose ledger has changed; cleared by who stores them."""
        self.changed: set[Shared] = set(Shared)
        """Shared documents whose content may have changed; at the start all of them are looked at."""
        self.isolation: Isolation | None = Isolation()
        """Policy of manual separation; None: there is one and it could not be read yet, so nothing is counted."""
        self.listed: dict[NodeName, Mapping[int, Millis]] = {}
        """Devices that clusterd-manual-info-cm lists now, each with its newest LastSeparateTime (0: none)."""
        self.unlisted: set[NodeName] = set()
        """Nodes whose value there cannot be read."""
        self.told: dict[str, Done] = {}
        """Occurrences that concern no job and have been told."""
        self.before = self.cluster
        """The cluster's ledger as this coordinator found it: what an earlier one has told."""
        self.known_records: dict[JobId, int] = {}
        """TotalRescheduleTimes that job-reschedule-reason held for a job when it was first read."""
        self.known_retries: dict[JobId, tuple[str, int]] = {}
        """Owner UID and Times that remain-retry-times held for a job when it was first read."""

    @property
    def volcano_alive(self) -> bool:
        """Whether Volcano's plugin is at work, as stated or as seen."""
        return self.volcano_seen if self.limits.volcano is None else self.limits.volcano

    def forget_ledgers(self) -> None:
        """Before ledgers are read anew: another coordinator may have led meanwhile. Reports and jobs stay warm."""
        self.ledgers.clear()
        self.cluster = self.before = ClusterLedger(self.cluster_id)
        self.rails = RailLedger()
        self.told.clear()
        for table in (self.entries, self.plans, self.deadlines, self.wakes, self.former):
            table.clear()
        self.judged.clear()
        self.shown.clear()
        self.known_records.clear()
        self.known_retries.clear()
        self.frozen.clear()
        self.dirty.clear()
        self.changed.update(Shared)

    def ledger(self, job: JobId) -> JobLedger:
        """The job's ledger, a fresh one if it has none yet."""
        return self.ledgers.get(job) or JobLedger(job, self.cluster_id)


def evolve(book: ClusterBook, verdict: Verdict) -> None:
    """Take a verdict into the book."""
    for job, ledger in verdict.ledgers.items():
        take_ledger(book, job, ledger)
        book.dirty.add(job)
    for job, deadline in verdict.deadlines.items():
        _put(book.deadlines, job, deadline)
    for node, wake in verdict.wakes.items():
        _put(book.wakes, node, wake)
        book.judged.add(node)
    for node, entry in verdict.entries.items():
        _put(book.entries, node, entry)
        book.changed.add(Shared.VCJOB)
    book.plans.update(verdict.plans)
    if verdict.cluster is not None:
        book.cluster = verdict.cluster
    if verdict.told:
        _forget_old(book.told, next(iter(verdict.told.values())).at, book.limits.max_event_age)
        book.told.update(verdict.told)
    if verdict.rails is not None:
        book.rails = verdict.rails


def _forget_old(told: dict[str, Done], now: Millis, max_event_age: Millis) -> None:
    """Let go of marks that cannot matter any more; they were made in the order of time, so this costs what goes. One
    of a clock that stood ahead is taken as one of now.
    """
    while told:
        key, mark = next(iter(told.items()))
        if now - KEEP_DONE_FACTOR * max_event_age <= mark.at <= now:
            return
        del told[key]
        if mark.at > now:
            told[key] = Done(now, mark.reason)


def take_ledger(book: ClusterBook, job: JobId, ledger: JobLedger | None) -> None:
    """Put a job's ledger in place and note what else it touches."""
    known = book.ledgers.get(job)
    was = (known.owner, known.retry_times) if known is not None else ("", None)
    now = (ledger.owner, ledger.retry_times) if ledger is not None else ("", None)
    if was[1] != now[1] or (was != now and now[1] is not None):
        book.changed.add(Shared.VCJOB)
    if ledger is not None and ledger.records != (known.records if known is not None else None):
        book.changed.add(Shared.RECORDS)
    if ledger is None and known is not None and known.records is not None:
        # Another job may come under the same name; the document's total for it only counts up.
        book.known_records[job] = known.records.total
    places = {member.node for member in ledger.members} if ledger is not None else set()
    for node in {member.node for member in known.members} - places if known is not None else ():
        book.former[node].discard(job)
    for node in places:
        book.former.setdefault(node, set()).add(job)
    _put(book.ledgers, job, ledger)


def _put(table: dict[_K, _V], key: _K, value: _V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


@dataclass(slots=True)
class Draft:
    """A verdict about one job while it is being made."""

    book: ClusterBook
    job: JobId
    now: Millis
    ledger: JobLedger
    rails: RailLedger | None
    cluster: ClusterLedger
    decisions: list[Decision] = field(default_factory=list)
    marks: dict[str, Done] = field(default_factory=dict)
    plans: list[RailPlan] = field(default_factory=list)
    wake: list[Millis] = field(default_factory=list)
    known: "list[tuple[Occurrence, int | None]] | None" = None
    """The job's occurrences once they were gathered; deciding does not change them."""
    isolating: "tuple[ActiveFault | None] | None" = None
    """The first fault that takes something of the job away from it, once it was looked for: a bad night has a thousand
    faults, and each asks."""
    pods: "dict[NodeName, list[Pod]] | None" = None
    """The job's pods by node once they were gathered."""
    rail_facts: RailQuestion | None = None
    """What is known of the job's rails once it was gathered: every window of a bad night asks for it."""
    hurt: "dict[NodeName, Hurt]" = field(default_factory=dict)
    affected: dict[Hashable, tuple[Reset, tuple[ResetDevice | None, ...]]] = field(default_factory=dict)
    """What a fault comes to with all others of its node, by what of it matters for that."""

    def pods_on(self, node: NodeName) -> list[Pod]:
        """The job's pods on the node."""
        if self.pods is None:
            self.pods = {}
            for pod in self.book.jobs.pods_of(self.job):
                if pod.node is not None:
                    self.pods.setdefault(pod.node, []).append(pod)
        return self.pods.get(node, [])

    def is_done(self, key: str) -> bool:
        """Whether an occurrence was decided before, or in this draft."""
        return key in self.marks or key in self.ledger.done

    def mark(self, key: str, reason: Reason) -> None:
        """Note an occurrence as decided."""
        self.marks[key] = Done(self.now, reason)

    def say(self, reason: Reason, detail: str = "", cause: "Cause | None" = None, document: str = "") -> None:
        """Note a decision about this job."""
        of = cause or Cause()
        self.decisions.append(
            Decision(
                at=self.now,
                reason=reason,
                node=of.node,
                fault=of.fault,
                job=self.job,
                level=of.level,
                detail=detail,
                document=document,
                occurrence=of.occurrence,
                ranks=of.ranks,
                trace=of.trace,
                causes=of.behind,
            )
        )


@dataclass(frozen=True, slots=True)
class Hurt:
    """What the active faults of a job's devices on a node ask for together."""

    policy: Reset
    """The strongest."""
    codes: Mapping[int, frozenset[str]]
    """By device."""
    logic: Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class Cause:
    """The fault that a decision is about."""

    node: NodeName = NodeName("")
    fault: str = ""
    level: str = ""
    occurrence: str = ""
    ranks: tuple[int, ...] = ()
    trace: str = ""
    behind: tuple[Behind, ...] = ()
    """What else is behind it, beside that fault."""


def cause_of(book: ClusterBook, occurrence: Occurrence, ranks: tuple[int, ...] = ()) -> Cause:
    """An occurrence as the cause of a decision."""
    return Cause(
        occurrence.key.node,
        reference(book, occurrence),
        occurrence.level,
        occurrence.id,
        ranks,
        occurrence.trace,
    )


def reference(book: ClusterBook, occurrence: Occurrence) -> str:
    """The fault's reference; what a rule over time raised is named by the fault it was raised from."""
    report = book.reports.get(occurrence.key.node) if occurrence.raised else None
    for fault in report.active if report is not None else ():
        if fault.key == occurrence.key:
            return fault_ref(fault.key, fault.since)
    return fault_ref(occurrence.key, occurrence.begin)


def occurrences_of(book: ClusterBook, job: JobId) -> Iterator[tuple[Occurrence, int | None]]:
    """Recent occurrences that concern the job, each with the device concerned (None: the whole node), in time order.

    Nodes that a pod has left a moment ago are looked at too: a fault often ends the pod before it is read.
    """
    found: list[tuple[Occurrence, int | None]] = []
    for node in sorted({*book.jobs.nodes_of(job), *(member.node for member in book.ledger(job).members)}):
        report = book.reports.get(node)
        if report is None or not report.occurrences:
            continue
        devices = frozenset(book.jobs.devices_of(job, node)) | _former(book, job, node)
        for occurrence in report.occurrences:
            if not occurrence.devices:
                found.append((occurrence, None))
            found += [(occurrence, device) for device in occurrence.devices if device in devices]
    found.sort(key=lambda pair: (pair[0].begin, pair[0].id, -1 if pair[1] is None else pair[1]))
    yield from found


def was_over(draft: Draft, occurrence: Occurrence, device: int | None) -> bool:
    """Whether the fault ended before any pod of the job that is there now was created: nothing of it is to be healed.

    What it did to pods that are gone is told by their replacement.
    """
    if occurrence.end is None:
        return False
    pods = [pod for pod in draft.pods_on(occurrence.key.node) if device is None or device in pod.bound]
    return bool(pods) and all(pod.created > occurrence.end for pod in pods)


def _former(book: ClusterBook, job: JobId, node: NodeName) -> frozenset[int]:
    return frozenset(device for member in book.ledger(job).members if member.node == node for device in member.devices)


def remembered(book: ClusterBook, occurrence: Occurrence) -> bool:
    """Whether a job that left the node remembers a pod there that the fault may have hit: then the job judges it."""
    node = occurrence.key.node
    return any(
        book.jobs.job(job) is not None
        and job not in book.frozen
        and (not occurrence.devices or not _former(book, job, node).isdisjoint(occurrence.devices))
        for job in book.former.get(node, ())
    )


def on_chip(plane: Plane) -> bool:
    """Planes whose faults make a card itself unhealthy."""
    return plane in (Plane.CHIP, Plane.PUBLIC)
