"""What if: the coordinator's own question about rails, asked of faults that need not be there.

The one rule: it is the question that would be asked, with what was assumed for it named; nothing is held or written.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agent.domain.cluster.book import ClusterBook
from agent.domain.cluster.railholds import hold
from agent.domain.cluster.railquestion import ON_LINK, about, facts_of
from agent.domain.events import FaultKey, Link, fault_ref
from agent.domain.hccl import HcclEnv, flap_threshold_ms
from agent.domain.jobs import Job, config_name
from agent.domain.ledger import JobLedger
from agent.domain.rail import decide, plan_id
from agent.domain.rail.case import BorrowPolicy, CommMode, RailQuestion, Strictness
from agent.domain.rail.life import HoldState, deadline
from agent.domain.rail.reservations import RailLedger
from agent.domain.rail.tables import NamedTable, difference
from agent.domain.rail.words import WHOLE_NODE, Answer, Borrow, FaultKind, RailCode, RailFault, Refuse
from agent.domain.ranktable import RankTable
from agent.domain.vocab import LINK_DOWN, SECOND, JobId, Millis, NodeName, Plane, Reason, utc_text

CQE_ERRORS: Final = frozenset({0x8C1F8608, 0x4C1F8608})
"""RDMA completion errors, as the device and as the host sees them."""


@dataclass(frozen=True, slots=True)
class Supposed:
    """One fault that is asked about. `at` None: since when the report says, else for just longer than is waited."""

    key: FaultKey
    at: Millis | None = None


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is taken for true beside what is known."""

    links: Mapping[tuple[NodeName, int], str] = field(default_factory=dict)
    """`up` or `down`, whatever was seen of them."""
    links_up: bool = False
    """Links of which nobody knows anything fresh are up."""
    env: HcclEnv | None = None
    """Of every process of the jobs."""
    tables: tuple[NamedTable, ...] = ()
    """Rank tables that the job's processes are said to read, in the place of the job's own."""
    errors_of: Callable[[RankTable], str] = lambda _: ""
    """In words the errors for which HCCL, or its document, refuses a table; empty: it has none."""
    comm_mode: CommMode | None = None
    peers: Mapping[int, tuple[int, ...]] | None = None
    host_plane_ok: bool | None = None
    op_constraints_ok: bool | None = None
    retries_used: int | None = None
    cross_die_traffic: bool = False
    strictness: Strictness | None = None
    policy: BorrowPolicy | None = None
    no_ledger: bool = False
    """Nobody has told what is borrowed, so nothing is taken to be."""
    no_clock: bool = False
    """Nobody has told what time it is: a window with a given time is asked when it can just be judged."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One window of one job: the question, its answer, and in words what was assumed."""

    question: RailQuestion
    answer: Answer
    plan: str
    """Name that the plan would have."""
    assumed: tuple[str, ...] = ()
    cluster: str = ""


def what_if(
    book: ClusterBook, supposed: Sequence[Supposed], assumed: Assumed, only: frozenset[JobId], now: Millis
) -> tuple[WhatIf, ...]:
    """The answers, a job after the other and in each a window after the other, as the coordinator would ask.

    Faults on dies of several jobs are asked of each job; `only`, if not empty, names the jobs that are asked.
    Faults on what no job holds are one question of no job.
    """
    by_job: dict[JobId, list[Supposed]] = {}
    for one in dict.fromkeys(supposed):
        for job in only or jobs_at(book, one.key) or (JobId(""),):
            by_job.setdefault(job, []).append(one)
    known = {name: found for name in sorted(by_job) if (found := book.jobs.job(name)) is not None}
    table = assumed.tables[0].table if assumed.tables else None
    facts = {name: facts_of(book, found, now, table, assumed.env) for name, found in known.items()}
    waits = {name: _threshold(facts[name]) if name in facts else 0.0 for name in sorted(by_job)}
    clock = _clock(supposed, waits.values(), book.limits.joint_window) if assumed.no_clock else None
    assumed, now = replace(assumed, no_clock=clock is not None), now if clock is None else clock
    faults: dict[JobId, list[RailFault]] = {}
    for name, threshold in waits.items():
        faults[name] = sorted((_fault(book, one, now, threshold) for one in by_job[name]), key=lambda one: one.ref)
    timed = {fault_ref(one.key, one.at) for one in supposed if one.at is not None}
    ledger = book.rails
    answers: list[WhatIf] = []
    for name, own in faults.items():
        if name not in known:
            answers.append(_of_no_job(book, tuple(own), now))
            continue
        for window in windows(own, book.limits.joint_window):
            began = window[-1].started_at
            at = now if clock is None else _ready(began, waits[name], book.limits.joint_window)
            old = {one.ref: _old(book, name, one, at, timed=one.ref in timed) for one in window}
            for code in (RailCode.TOO_OLD, RailCode.BEFORE_ACT, None):
                asked = tuple(one for one in window if old[one.ref] is code)
                if not asked:
                    continue
                others = [one for several in faults.values() for one in several if one not in asked]
                question = about(book, replace(facts[name], now=at), asked, ledger, others)
                answer = _answer(book, known[name], question, assumed)
                answers.append(answer if code is None else _not_asked(book, answer, code))
                ledger = _after(answers[-1], ledger, known[name])
    return tuple(answers)


def _ready(began: Millis, threshold: float, joint: Millis) -> Millis:
    """The first moment at which a window can be judged whose newest fault began then."""
    return Millis(began + max(int(threshold), joint) + 1)


def _clock(supposed: Iterable[Supposed], waits: Iterable[float], joint: Millis) -> Millis | None:
    """When the newest fault that is given with a time can be judged; None: none is."""
    newest = max((one.at for one in supposed if one.at is not None), default=None)
    return None if newest is None else _ready(newest, max(waits, default=0.0), joint)


_OLD: Final = {Reason.TOO_OLD: RailCode.TOO_OLD, Reason.BEFORE_ACT: RailCode.BEFORE_ACT}


def _old(book: ClusterBook, job: JobId, fault: RailFault, now: Millis, *, timed: bool) -> RailCode | None:
    """Why the coordinator would plan nothing for it: nobody has judged it, and its time has passed, or it began before
    the coordinator acted. `timed`: its begin was given, not chosen here.
    """
    if fault.kind not in ON_LINK:
        return None
    own = book.ledger(job)
    mark = own.done.get(f"rail~{fault.event}")
    if fault.event and mark is not None:
        return _OLD.get(mark.reason)
    held = book.rails.of_job(job) if book.rails is not None else ()
    if fault.event and any(fault.event in entry.events for entry in held):
        return None
    if _too_old(book, own, fault, now):
        return RailCode.TOO_OLD
    acts = book.cluster.act_since
    before = acts is not None and fault.started_at < acts
    return RailCode.BEFORE_ACT if before and (fault.event or timed) else None


def _too_old(book: ClusterBook, own: JobLedger, fault: RailFault, now: Millis) -> bool:
    due = deadline(HoldState.PLANNED, fault.started_at, book.limits.max_event_age)
    if due is None or due >= now:
        return False
    kept = [one for key, one in own.quiet.items() if fault.event and key.partition("~")[0] == fault.event]
    return not any(one.until is None or one.until + book.limits.max_event_age >= now for one in kept)


def _not_asked(book: ClusterBook, one: WhatIf, code: RailCode) -> WhatIf:
    """What is answered to faults that come too late to be planned for; their rules are not asked."""
    now, began = one.question.now, min(fault.started_at for fault in one.question.faults)
    limit = book.limits.max_event_age / SECOND
    told = f"{(now - began) / SECOND:.0f} s old at {utc_text(now)}, older than max_event_age_s ({limit:g} s)"
    if code is RailCode.BEFORE_ACT:
        told = f"began {utc_text(began)}, before the agent began to act ({utc_text(book.cluster.act_since or 0)})"
    return replace(one, answer=Refuse(code, 0, f"{told}: no borrow is planned for old news"))


def windows(faults: Iterable[RailFault], joint: Millis) -> list[tuple[RailFault, ...]]:
    """Faults by the windows in which they are judged together: all that begin within `joint` of the first."""
    found: list[list[RailFault]] = []
    for fault in sorted(faults, key=lambda one: (one.started_at, one.ref)):
        if found and fault.started_at <= found[-1][0].started_at + joint:
            found[-1].append(fault)
        else:
            found.append([fault])
    return [tuple(window) for window in found]


def dies_of(book: ClusterBook, node: NodeName, parity: int) -> tuple[int, ...]:
    """Devices of a node whose links go to one leaf switch: those of one parity."""
    return tuple(device for device in book.jobs.devices_of_node(node) if device % 2 == parity)


def jobs_at(book: ClusterBook, key: FaultKey) -> tuple[JobId, ...]:
    """The jobs that hold the die of a fault; of one that lies on no die, those on its node."""
    device = _device(key)
    jobs = book.jobs
    on = jobs.jobs_on(key.node) if device == WHOLE_NODE else [one.job for one in jobs.bindings(key.node, device)]
    return tuple(dict.fromkeys(on))


def _device(key: FaultKey) -> int:
    on_die = key.plane in (Plane.NETWORK, Plane.CHIP) and key.where.isdecimal()
    return int(key.where) if on_die else WHOLE_NODE


def _kind(key: FaultKey, young: bool) -> FaultKind:
    if key.plane is Plane.SWITCH:
        return FaultKind.HCCS
    if key.plane not in (Plane.NETWORK, Plane.CHIP):
        return FaultKind.OTHER
    number = int(key.code, 16)
    if number in CQE_ERRORS:
        return FaultKind.CQE_ERROR
    if number != LINK_DOWN or key.plane is not Plane.NETWORK:
        return FaultKind.OTHER
    return FaultKind.RDMA_FLAP if young else FaultKind.RDMA_DOWN


def _fault(book: ClusterBook, one: Supposed, now: Millis, threshold: float) -> RailFault:
    """The fault as it is known, or as it is supposed to be."""
    report = book.reports.get(one.key.node)
    began, ended, event = one.at, None, ""
    if report is not None:
        same = [each for each in report.occurrences if each.key == one.key and not each.raised]
        known = [each for each in same if one.at in (None, each.begin) and (one.at is not None or each.end is None)]
        # An active fault outlives what a report repeats of its occurrences.
        active = [each for each in report.active if each.key == one.key and one.at in (None, each.since)]
        if known:
            began, ended, event = known[-1].begin, known[-1].end, known[-1].id
        elif active and not (one.at is None and same):
            began, event = active[0].since, active[0].occurrence
    if began is None:
        began = Millis(now - int(threshold) - 1)
    kind = _kind(one.key, young=ended is not None or now - began <= threshold)
    return RailFault(fault_ref(one.key, began), one.key.node, _device(one.key), kind, began, ended, event)


def _threshold(question: RailQuestion) -> float:
    """The longest over the job's nodes, as the coordinator waits."""
    return max(flap_threshold_ms(env) for env in question.env.values() or [HcclEnv()])


def _of_no_job(book: ClusterBook, faults: tuple[RailFault, ...], now: Millis) -> WhatIf:
    question = RailQuestion(JobId(""), "", faults, now, None, CommMode.UNKNOWN, {}, book.rails)
    return WhatIf(question, decide(question), "", cluster=book.cluster_id)


def _answer(book: ClusterBook, job: Job, asked: RailQuestion, assumed: Assumed) -> WhatIf:
    own = book.tables.get((job.namespace, config_name(job)))
    question, said = _assume(asked, assumed, own, book.cluster.act_since)
    name = plan_id(job.id, job.incarnation, [one.event or one.ref for one in question.faults])
    return WhatIf(question, decide(question), name, said, book.cluster_id)


def _assume(
    question: RailQuestion, assumed: Assumed, own: RankTable | None, acts_since: Millis | None
) -> tuple[RailQuestion, tuple[str, ...]]:
    """The question with what is assumed in the place of what is known, and that in words. `own`: the job's table."""
    now = question.now
    said = ["nothing is borrowed yet: fault-agent-rails is not among the objects"] if assumed.no_ledger else []
    if assumed.no_clock:
        said.append(f"it is {utc_text(now)}: objects have no clock; then these faults can be judged")
    elif acts_since is None and any(fault.event for fault in question.faults):
        said.append("an agent has been acting since before these faults: no ledger tells since when one does")
    links = dict(question.links)
    named = {die: state for die, state in assumed.links.items() if die in question.owners}
    for (node, device), state in sorted(named.items()):
        links[node, device] = Link(state, now)
        said.append(f"the link of device {device} of {node} is {state}")
    down = question.down - {die for die, state in named.items() if state == "up"}
    if assumed.links_up:
        failed = {*question.down, *((fault.node, fault.device) for fault in question.faults)}
        dark = [die for die in question.owners if die not in failed and _unknown(question, links.get(die))]
        links.update((die, Link("up", now)) for die in dark)
        if dark:
            said.append(f"the links of {len(dark)} devices of which nothing fresh is known are up")
    if assumed.env is not None:
        said.append("the environment is as --env states it")
    if assumed.tables:
        replaced = ", in the place of the job's own" if own is not None or question.contradiction else ""
        said.append(f"the rank table is as --table gives it{replaced}")
        question = _as_given(question, assumed.tables)
    errors = assumed.errors_of(question.table) if question.table is not None else ""
    if errors:
        said.append(f"the rank table is taken although it has {errors}; see fault-agent ranktable check")
    if assumed.peers is not None:
        said.append("ranks talk over RDMA to the peers that are given")
    if assumed.cross_die_traffic:
        said.append("the dies of an NPU talk to each other over RDMA")
    for what, value in (
        ("host plane is up", assumed.host_plane_ok),
        ("operator can be executed again", assumed.op_constraints_ok),
        ("retries used", assumed.retries_used),
        ("strictness", assumed.strictness),
        ("policy", assumed.policy),
        ("communication mode", assumed.comm_mode),
    ):
        if value is not None:
            said.append(f"{what}: { ({True: 'yes', False: 'no'}[value] if isinstance(value, bool) else value) }")
    given = replace(
        question,
        links=links,
        down=down,
        peers=assumed.peers,
        host_plane_ok=assumed.host_plane_ok,
        op_constraints_ok=assumed.op_constraints_ok,
        retries_used=assumed.retries_used,
        cross_die_traffic=assumed.cross_die_traffic,
        strictness=assumed.strictness or question.strictness,
        policy=assumed.policy or question.policy,
        comm_mode=assumed.comm_mode or question.comm_mode,
    )
    return given, tuple(said)


def _as_given(question: RailQuestion, tables: Sequence[NamedTable]) -> RailQuestion:
    """The question with these tables alone, judged as the job's own would be: one that contradicts itself is none."""
    wrong = next((one for one in tables if one.wrong), None)
    if wrong is None:
        return replace(question, contradiction=difference(tables))
    told = f"the rank table of {wrong.name} contradicts itself: {wrong.wrong}"
    return replace(question, contradiction=told, table=None, servers={})


def _unknown(question: RailQuestion, link: Link | None) -> bool:
    return link is None or abs(question.now - link.at) >= question.freshness or link.state not in ("up", "down")


def _after(done: WhatIf, ledger: RailLedger | None, job: Job) -> RailLedger | None:
    """The book of held NPUs as the next window would find it."""
    if not isinstance(done.answer, Borrow) or ledger is None:
        return ledger
    held = hold(ledger, done.answer, job, done.question.now, done.question.strictness)
    return ledger if isinstance(held, Refuse) else held
