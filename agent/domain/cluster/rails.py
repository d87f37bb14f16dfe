"""Link faults of a job: gathered over one window, waited out, asked about once, held in the book of NPUs.

The one rule: every link fault of a window is judged together against the book as it was before the window.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from agent.domain.cluster import railholds as holds
from agent.domain.cluster.book import Cause, Draft, RailPlan, cause_of, was_over
from agent.domain.cluster.kept import free_since, known_occurrences, release_of
from agent.domain.cluster.railfacts import hccl_envs, pod_envs
from agent.domain.cluster.railquestion import about, facts_of, is_link_down
from agent.domain.cluster.recovery import ranks_on
from agent.domain.events import Occurrence, fault_ref
from agent.domain.hccl import HcclEnv, flap_threshold_ms
from agent.domain.jobs import Job, Product, config_name
from agent.domain.rail import decide
from agent.domain.rail.case import RailQuestion
from agent.domain.rail.life import HoldState, deadline
from agent.domain.rail.reservations import RailLedger, Reservation, borrow_of, plan_id
from agent.domain.rail.words import (
    Answer,
    Borrow,
    Delegate,
    FaultKind,
    Noop,
    Observe,
    Outcome,
    RailCode,
    RailFault,
    Refuse,
    advice_for,
    return_advice,
)
from agent.domain.vocab import SECOND, Millis, Plane, Reason

_REASON = {
    Borrow: Reason.RAIL_ADVISED,
    Refuse: Reason.RAIL_REFUSED,
    Observe: Reason.RAIL_OBSERVING,
    Noop: Reason.RAIL_NOOP,
    Delegate: Reason.RAIL_DELEGATED,
}


def consider(draft: Draft, job: Job) -> None:
    """Judge the link faults of the job whose time has come, and note when the next ones are due."""
    holds.renew(draft, job)
    holds.hand_back(draft, job, lambda: _question(draft, job, [], draft.rails))
    pending = [one for one in _links(draft) if not draft.is_done(_key(one))]
    threshold = _threshold(draft, job) if pending else 0.0
    while pending:
        last = pending[0].begin + draft.book.limits.joint_window
        window = [one for one in pending if one.begin <= last]
        ready = _ready_at(draft, job, window, threshold)
        if draft.now < ready:
            _tell_waiting(draft, window, ready)
            draft.wake.append(ready)
            break
        _ask(draft, job, window, threshold)
        pending = [one for one in pending if one.begin > last]
    holds.finish(draft, job, pending, _document(job))
    holds.note_links(draft, job, _links(draft))
    for one in _links(draft):
        if one.end is not None and draft.is_done(_key(one)) and not draft.is_done(f"{_key(one)}~back"):
            _tell_back(draft, job, one)


def _key(occurrence: Occurrence) -> str:
    return f"rail~{occurrence.id}"


def _links(draft: Draft) -> Iterator[Occurrence]:
    """Link-down occurrences on devices of the job, oldest first; not what a duration rule made of them."""
    book, job = draft.book, draft.job
    nodes = book.jobs.nodes_of(job)
    for occurrence, device in known_occurrences(draft):
        if device is None or occurrence.raised or occurrence.key.node not in nodes:
            continue
        if is_link_down(occurrence.key) and not was_over(draft, occurrence, device):
            yield occurrence


def _ready_at(draft: Draft, job: Job, window: list[Occurrence], threshold: float) -> Millis:
    """When the window can be judged: it is complete, no fault of it is kept back any more, and each has ended or
    outlasted the retransmission.
    """
    complete = window[0].begin + draft.book.limits.joint_window + 1
    outlasted = (one.begin + math.floor(threshold) + 1 for one in window if one.end is None)
    keys = {one.key for one in window if one.end is None}
    kept = (
        release_of(draft, job, one, device) or 0  # also of what a rule over time has raised it to since
        for one, device in known_occurrences(draft)
        if device is not None and one.end is None and one.key in keys
    )
    return Millis(max(complete, *outlasted, *kept, 0))


def _tell_waiting(draft: Draft, window: list[Occurrence], ready: Millis) -> None:
    for one in window:
        key = f"{_key(one)}~seen"
        if not draft.is_done(key):
            draft.mark(key, Reason.RAIL_OBSERVING)
            wait = (ready - one.begin) / SECOND
            detail = f"a flap until proven otherwise: judged {wait:.1f} s after it began"
            draft.say(Reason.RAIL_OBSERVING, detail, _cause(draft, one))


def _cause(draft: Draft, one: Occurrence) -> Cause:
    """The link fault as it stands now: a rule over time may have raised it since it began."""
    cause = cause_of(draft.book, one, _ranks(draft, one))
    report = draft.book.reports.get(one.key.node)
    level = next((fault.level for fault in report.active if fault.key == one.key), "") if report is not None else ""
    return replace(cause, level=level or cause.level)


def _ranks(draft: Draft, one: Occurrence) -> tuple[int, ...]:
    return ranks_on(draft.book, draft.job, one.key.node, int(one.key.where))


def _ask(draft: Draft, job: Job, window: list[Occurrence], threshold: float) -> None:
    """One question, one answer, one reservation of all its NPUs."""
    stands = holds.reserved_for(draft, job, window)
    kept = {event for entry in stands for event in entry.events}
    free = [one for one in window if one.id not in kept]
    too_old = [one for one in free if _too_old(draft, one)]
    before_act = [one for one in free if one not in too_old and _before_act(draft, one)]
    for reason, ones in ((Reason.TOO_OLD, too_old), (Reason.BEFORE_ACT, before_act)):
        for one in ones:
            draft.mark(_key(one), reason)
            draft.say(reason, "no borrow is planned for old news", _cause(draft, one))
    asked = [one for one in window if one not in too_old and one not in before_act]
    if not stands and all(_outlived(one, threshold) for one in asked):
        for one in asked:
            draft.mark(_key(one), Reason.RAIL_NOOP)
            seconds = ((one.end or one.begin) - one.begin) / SECOND
            text = f"rule 3 {RailCode.CLEAR}: back after {seconds:g} s, within what RDMA itself sends again"
            draft.say(Reason.RAIL_NOOP, text, _cause(draft, one))
        return
    events = tuple(one.id for one in asked)
    name = plan_id(job.id, job.incarnation, events)
    answer = decide(_question(draft, job, asked, _without(draft.rails, job, events)))
    if stands and not (isinstance(answer, Borrow) and set(answer.events) == kept):
        answer = replace(borrow_of(stands), checked=answer.checked)
        name = stands[0].plan
    elif isinstance(answer, Borrow) and draft.rails is not None:
        name = plan_id(job.id, job.incarnation, answer.events)
        held = holds.hold(draft.rails, answer, job, draft.now, draft.book.limits.strictness)
        if isinstance(held, Refuse):
            answer = replace(held, checked=answer.checked)
        else:
            draft.rails = held
    refs = tuple(fault_ref(one.key, one.begin) for one in asked)
    document = ""
    reason = _REASON[type(answer)]
    # What needs nothing leaves the plan that stands in its place.
    if answer.code not in (RailCode.CLEAR, RailCode.ALREADY_DONE):
        draft.plans.append(RailPlan(name, job.id, job.incarnation, draft.now, answer, refs))
        document = _document(job)
    aside = next((check for check in answer.checked if check.outcome is Outcome.SET_ASIDE), None)
    for one in asked:
        if isinstance(answer, Borrow) and aside is not None and one.id not in answer.events:
            draft.mark(_key(one), Reason.RAIL_NOOP)
            text = f"rule {aside.rule} {aside.code}: {aside.detail}; the plan of its window goes without it"
            draft.say(Reason.RAIL_NOOP, text, _cause(draft, one))
            continue
        draft.mark(_key(one), reason)
        draft.say(reason, _words(answer), _cause(draft, one), document)


def _document(job: Job) -> str:
    return f"{job.namespace}/fault-agent-rail-{config_name(job)}"


def _words(answer: Answer) -> str:
    """The answer for people who see nothing else: rule, moves or reason, warnings, what to do."""
    if not isinstance(answer, Borrow):
        advice = advice_for(answer)
        return f"rule {answer.rule} {answer.code}: {answer.detail}" + (f". {advice}" if advice else "")
    warned = ", ".join(note.code for note in answer.warnings)
    return f"{holds.words_of(answer)}; warnings {warned}. {advice_for(answer)}"


def _outlived(one: Occurrence, threshold: float) -> bool:
    """Whether the link came back before RDMA gave up: a flap, which no rule of a rank table can refuse."""
    return one.end is not None and one.end - one.begin <= threshold


def _threshold(draft: Draft, job: Job) -> float:
    return max(flap_threshold_ms(env) for env in hccl_envs(pod_envs(draft.book, job)).values() or [HcclEnv()])


def _too_old(draft: Draft, one: Occurrence) -> bool:
    """Whether its time to be planned for has passed."""
    since = free_since(draft, one, int(one.key.where))
    due = deadline(HoldState.PLANNED, since, draft.book.limits.max_event_age)
    return due is not None and due < draft.now


def _before_act(draft: Draft, one: Occurrence) -> bool:
    since = draft.book.cluster.act_since
    return since is not None and one.begin < since


def _without(rails: RailLedger | None, job: Job, events: tuple[str, ...]) -> RailLedger | None:
    """The book as it was before the answer to these very occurrences, which an earlier run may have reserved for
    (and for some of them only, when others were flaps) before it was stopped.
    """
    if rails is None:
        return None
    asked = set(events)
    return RailLedger(
        tuple(
            entry
            for entry in rails.entries
            if not (entry.open and (entry.job, entry.incarnation) == (job.id, job.incarnation))
            or not asked.issuperset(entry.events)
        )
    )


def _tell_back(draft: Draft, job: Job, one: Occurrence) -> None:
    """The link is up again after it was judged: if it was borrowed, nothing switches back by itself."""
    key = f"{_key(one)}~back"
    answer = decide(_question(draft, job, [one], draft.rails))
    draft.mark(key, _REASON[type(answer)])
    if answer.code is RailCode.NO_SWITCH_BACK:
        said = [return_advice(entry.plan) for entry in _on_die(draft, job, one)] or [advice_for(answer)]
        draft.say(Reason.RAIL_NOOP, f"{answer.code}: {said[0]}", _cause(draft, one), _document(job))


def _on_die(draft: Draft, job: Job, one: Occurrence) -> list[Reservation]:
    own = draft.rails.of(job.id, job.incarnation) if draft.rails is not None else ()
    return [e for e in own if e.open and (e.node, str(e.die_from)) == (one.key.node, one.key.where)]


def delegate_hccs(draft: Draft, job: Job) -> None:
    """Faults of the super-pod switches lie on the HCCS plane: told once that the switches answer them, not a borrow."""
    for occurrence, device in known_occurrences(draft):
        key = f"hccs~{occurrence.id}"
        if device is not None or occurrence.key.plane is not Plane.SWITCH or draft.is_done(key):
            continue
        draft.mark(key, Reason.RAIL_DELEGATED)
        if was_over(draft, occurrence, device):
            continue
        if draft.book.jobs.product_of(occurrence.key.node) is Product.A3 and occurrence.level != "NotHandle":
            answer = Delegate("")
            cause = cause_of(draft.book, occurrence, ranks_on(draft.book, job.id, occurrence.key.node, None))
            draft.say(Reason.RAIL_DELEGATED, advice_for(answer), cause)


def _question(draft: Draft, job: Job, asked: list[Occurrence], ledger: RailLedger | None) -> RailQuestion:
    found = [
        RailFault(
            fault_ref(one.key, one.begin),
            one.key.node,
            int(one.key.where),
            FaultKind.RDMA_FLAP if one.end else FaultKind.RDMA_DOWN,
            one.begin,
            one.end,
            one.id,
        )
        for one in asked
    ]
    if draft.rail_facts is None:
        draft.rail_facts = facts_of(draft.book, job, draft.now)
    return about(draft.book, draft.rail_facts, found, ledger)
