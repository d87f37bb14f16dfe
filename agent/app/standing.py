"""How things stand, for who asks why: the newest reports and the ledgers, and beside them the journal and dead letters.

The one rule: it is the same whether it was read from a folder or from services, and what cannot be read is a finding.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from agent.app.jobpicture import Picture
from agent.app.ledgers import CLUSTER_NAME, JOB_PREFIX
from agent.domain.events import ActiveFault, DurationTimer, FaultKey, FrequencyCounter, NodeReport, Record
from agent.domain.ledger import ClusterLedger, JobLedger, Kept, Separation
from agent.domain.rail.reservations import RailLedger
from agent.domain.vocab import JobId, Millis, NodeName, Plane
from agent.errors import BadDocument, BadReport
from agent.ports import ConfigMap
from agent.wire.audit import AuditLine
from agent.wire.ledgerfile import LEDGER_KEY, decode_cluster_ledger, decode_job_ledger
from agent.wire.railfile import LEDGER_NAME as RAILS_NAME
from agent.wire.railfile import decode_ledger as decode_rails
from agent.wire.railplan import PLAN_KEY, PlanDocument, decode_plan
from agent.wire.report import decode as decode_report


@dataclass(frozen=True, slots=True)
class Standing:
    """What the newest reports and ledgers say."""

    reports: Mapping[NodeName, NodeReport] = field(default_factory=dict)
    ledgers: Mapping[JobId, JobLedger] = field(default_factory=dict)
    """Of each job; none are kept in observe mode."""
    rails: RailLedger | None = None
    cluster: ClusterLedger | None = None
    plans: Mapping[JobId, PlanDocument] = field(default_factory=dict)
    """The newest rail plan of each job, as it is kept beside its ledger."""
    rails_unread: bool = False
    """There is a ledger of borrowed NPUs and it cannot be read: no borrow is planned until it can be."""
    active: Mapping[str, ActiveFault] = field(init=False)
    """By identity `node/plane/where/code`."""
    timers: Mapping[str, DurationTimer] = field(init=False)
    counters: Mapping[str, FrequencyCounter] = field(init=False)
    kept: Mapping[str, Kept] = field(init=False)
    """What a quiet rule keeps back from a job, by occurrence."""
    separated: Mapping[FaultKey, tuple[Separation, ...]] = field(init=False)
    """Manual separations, by the fault that they were made for: by a trip of its node, by counting, or both."""

    def __post_init__(self) -> None:
        reports = self.reports.values()
        active = {str(fault.key): fault for report in reports for fault in report.active}
        timers = {str(timer.key): timer for report in reports for timer in report.timers}
        object.__setattr__(self, "active", active)
        object.__setattr__(self, "timers", timers)
        counters = {str(one.key): one for report in reports for one in report.counters}
        object.__setattr__(self, "counters", counters)
        kept = {key.partition("~")[0]: one for ledger in self.ledgers.values() for key, one in ledger.quiet.items()}
        object.__setattr__(self, "kept", kept)
        by_hand = self.cluster.separations if self.cluster is not None else {}
        separated: dict[FaultKey, tuple[Separation, ...]] = {}
        for node, several in by_hand.items():
            for one in several:
                key = FaultKey(node, Plane.CHIP, str(one.device), one.code)
                separated[key] = (*separated.get(key, ()), one)
        object.__setattr__(self, "separated", separated)

    def is_active(self, ref: str) -> bool | None:
        """Whether the fault of a reference is there now; None: it is no reference, or nothing is known of its node."""
        identity, _, at = ref.rpartition("@")
        if identity.partition("/")[0] not in self.reports:
            return None
        now = self.active.get(identity)
        # While a fault is active an earlier beginning may be told, never a later one.
        return now is not None and at.isdecimal() and now.since <= int(at)

    def has_left(self, job: JobId, fault: ActiveFault) -> bool:
        """Whether no pod of the job is on the fault's device (on its node, where it lies on the whole node) any more;
        False as well when nothing is known of the job's pods.
        """
        ledger = self.ledgers.get(job)
        if ledger is None or not ledger.members:
            return False
        devices = set(fault.devices)
        return not any(
            member.node == fault.key.node and (not devices or devices.intersection(member.devices))
            for member in ledger.members
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that `why` answers from."""

    lines: Sequence[AuditLine]
    """Decisions, oldest first."""
    letters: Sequence[Record]
    standing: Standing
    findings: Sequence[str] = ()
    """What could not be read."""
    at: Millis | None = None
    """When it was read, Unix ms, if those who report are still at work; None: a folder, which may be of long ago."""
    picture: Picture | None = None
    """What the objects of the cluster say of the job that is asked for; None: they were not read."""

    @property
    def clock(self) -> Millis:
        """As of when it tells how things stand: when it was read, or the newest time a folder knows; 0: none."""
        if self.at is not None:
            return self.at
        reported = (report.clock for report in self.standing.reports.values())
        return max((*reported, *(line.decision.at for line in self.lines)), default=Millis(0))


def standing_of(
    reports: Mapping[NodeName, bytes], documents: Iterable[ConfigMap], cluster: str = ""
) -> tuple[Standing, list[str]]:
    """How things stand by these reports and by what of the documents is a ledger; and a finding for each that cannot
    be read or is of another cluster. `cluster` empty: whichever it is.
    """
    found: dict[NodeName, NodeReport] = {}
    ledgers: dict[JobId, JobLedger] = {}
    rails: RailLedger | None = None
    own: ClusterLedger | None = None
    plans: dict[JobId, PlanDocument] = {}
    rails_unread = False
    findings: list[str] = []
    for node, data in reports.items():
        try:
            report = decode_report(data)
        except BadReport as error:
            findings.append(f"report of {node}: {error}")
            continue
        if cluster and report.cluster != cluster:
            findings.append(f"report of {node}: it is of cluster {report.cluster!r}, this is {cluster!r}")
            continue
        found[report.node] = report
    for document in documents:
        text = document.data.get(LEDGER_KEY)
        if text is None:
            continue
        place = f"{document.namespace}/{document.name}"
        try:
            if document.name == RAILS_NAME:
                rails_unread = True
                rails = decode_rails(text, cluster or _cluster_in(text))
                rails_unread = False
            elif document.name == CLUSTER_NAME:
                own = decode_cluster_ledger(text, cluster or _cluster_in(text), place)
            elif document.name.startswith(JOB_PREFIX):
                ledger = decode_job_ledger(text, cluster or _cluster_in(text), place)
                ledgers[ledger.job] = ledger
                if PLAN_KEY in document.data:
                    plans[ledger.job] = decode_plan(document.data[PLAN_KEY])
        except BadDocument as error:
            findings.append(str(error))
    return Standing(found, ledgers, rails, own, plans, rails_unread), findings


def _cluster_in(text: str) -> str:
    try:
        raw: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ""
    return str(raw.get("cluster", "")) if isinstance(raw, dict) else ""
