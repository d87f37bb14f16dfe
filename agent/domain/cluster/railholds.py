"""What a job holds of NPUs, followed over its life: freed with its processes, returned by hand, finished after a kill.

The one rule: an NPU is freed only by what ends HCCL's own mark: the end of its process, or a return by hand.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from agent.domain.cluster.book import Cause, Draft, RailPlan
from agent.domain.events import Occurrence
from agent.domain.jobs import Job
from agent.domain.rail.case import RailQuestion, Strictness
from agent.domain.rail.handback import doubt, down_end, named
from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import (
    RailLedger,
    Reservation,
    borrow_of,
    close_job,
    close_where,
    give_back,
    note_early,
    note_link,
    reserve,
)
from agent.domain.rail.words import Borrow, Refuse
from agent.domain.vocab import LINK_DOWN, RAIL_RETURNED, JobId, Millis, NodeName, Plane, Reason

FEW: Final = 8
"""Moves and NPUs that a decision names."""
ANEW: Final = (
    "This record came too early and does not count later: take the annotation away, return by hand once the link is up,"
    " then record it anew."
)
Ask: TypeAlias = Callable[[], RailQuestion]
"""All that bears on the job's rails now, with no fault in it."""


def hold(rails: RailLedger, plan: Borrow, job: Job, now: Millis, strictness: Strictness) -> RailLedger | Refuse:
    """The book with every NPU of the plan held for this life of the job, or why not one of them is."""
    return reserve(
        rails,
        plan,
        job=job.id,
        job_uid=job.uid,
        incarnation=job.incarnation,
        now=now,
        extend=strictness is Strictness.SOURCE,
    )


def renew(draft: Draft, job: Job) -> None:
    """Free what was held by processes that are gone: of an earlier life, of a pod that was replaced or has ended."""
    if draft.rails is None:
        return
    before = draft.rails
    if job.incarnation:
        draft.rails = close_job(draft.rails, job.id, now=draft.now, keep=job.incarnation)
    gone = {one.id for one in draft.rails.of_job(job.id) if one.open and _process_gone(draft, one)}
    if gone:
        draft.rails = close_where(draft.rails, lambda entry: entry.id in gone, now=draft.now)
    _tell(draft, before, Reason.RAIL_SUPERSEDED, "the processes that borrowed are gone")


def _process_gone(draft: Draft, entry: Reservation) -> bool:
    """No pod of the job that was there when it was reserved still runs on its die.

    A pod younger than the clock is one of a recording that is judged later on, with the objects of today.
    """
    return not any(
        entry.die_from in pod.bound and not pod.ended and not entry.at < pod.created <= draft.now
        for pod in draft.pods_on(entry.node)
    )


def close(rails: RailLedger, job: JobId, now: Millis) -> RailLedger:
    """The book when the job is gone: nothing is held by it any more."""
    return close_job(rails, job, now=now)


def hand_back(draft: Draft, job: Job, ask: Ask) -> None:
    """Take what an operator has recorded as switched back by hand, where that can have worked."""
    if draft.rails is None:
        return
    words = job.settings.rail_returned
    own = draft.rails.of_job(job.id)
    if any(entry.early for entry in own):
        there = {entry.id for word in words for entry in named(own, word)}
        draft.rails = note_early(draft.rails, job.id, {entry.id for entry in own} - there, early=False)
    for word in words:
        entries = named(draft.rails.of_job(job.id), word)
        held = [entry for entry in entries if entry.open]
        if not held:
            if not entries:
                _doubt_once(draft, word, "no plan or NPU of that name is known of this job", Cause())
            continue
        if any(entry.early for entry in held):
            continue
        question = ask()
        down = down_end(question, held) or _down(draft, held)
        if down:
            # Nobody can have switched back then, and when the link comes up nobody has switched again.
            draft.rails = note_early(draft.rails, job.id, {entry.id for entry in held}, early=True)
            draft.say(Reason.RAIL_UNVERIFIED, f"{RAIL_RETURNED}: {word}: {down}; it stays held. {ANEW}", _cause(held))
            continue
        why = doubt(question, held)
        if why:
            _doubt_once(draft, word, f"{why}; it stays held", _cause(held))
            continue
        before = draft.rails
        draft.rails = give_back(draft.rails, {entry.id for entry in held}, now=draft.now)
        _tell(draft, before, Reason.RAIL_RETURNED, "returned by hand, as recorded; may borrow again")


def _down(draft: Draft, entries: Iterable[Reservation]) -> str:
    for entry in entries:
        report = draft.book.reports.get(entry.node)
        on_die = [
            one
            for one in (report.occurrences if report is not None else ())
            if _link_down(one) and one.key.where == str(entry.die_from)
        ]
        newest = max(on_die, key=lambda one: one.begin, default=None)
        if newest is not None and newest.end is None:
            return f"the link of {entry.node} device {entry.die_from} is down, and a return needs it up at both ends"
    return ""


def _link_down(one: Occurrence) -> bool:
    return one.key.plane is Plane.NETWORK and not one.raised and int(one.key.code, 16) == LINK_DOWN


def _doubt_once(draft: Draft, word: str, why: str, cause: Cause) -> None:
    key = f"return~{word}"
    if not draft.is_done(key):
        draft.mark(key, Reason.RAIL_UNVERIFIED)
        draft.say(Reason.RAIL_UNVERIFIED, f"{RAIL_RETURNED}: {word}: {why}", cause)


def reserved_for(draft: Draft, job: Job, window: Iterable[Occurrence]) -> tuple[Reservation, ...]:
    """What an earlier turn reserved for occurrences of this window before it was stopped: that stands."""
    if draft.rails is None:
        return ()
    ids = {one.id for one in window}
    own = draft.rails.of(job.id, job.incarnation)
    return tuple(one for one in own if one.open and ids.issuperset(one.events))


def finish(draft: Draft, job: Job, waiting: Iterable[Occurrence], document: str) -> None:
    """Advise what is reserved though nothing of it was told and its occurrences are known no more."""
    if draft.rails is None:
        return
    still = {one.id for one in waiting}
    plans: dict[str, list[Reservation]] = {}
    for entry in draft.rails.of(job.id, job.incarnation):
        if entry.state is HoldState.RESERVED and still.isdisjoint(entry.events):
            plans.setdefault(entry.plan, []).append(entry)
    for plan, entries in plans.items():
        if any(draft.is_done(f"rail~{event}") for event in entries[0].events):
            continue
        answer = borrow_of(entries)
        draft.plans.append(RailPlan(plan, job.id, job.incarnation, draft.now, answer, answer.faults))
        for event in answer.events:
            draft.mark(f"rail~{event}", Reason.RAIL_ADVISED)
        cause = replace(_cause(entries), occurrence=answer.events[0] if answer.events else "")
        draft.say(Reason.RAIL_ADVISED, words_of(answer), cause, document)


def note_links(draft: Draft, job: Job, links: Iterable[Occurrence]) -> None:
    """Keep beside each borrow whether its own link is up again, by the newest word on that die."""
    if draft.rails is None:
        return
    newest: dict[tuple[NodeName, str], Occurrence] = {}
    for one in links:
        newest[one.key.node, one.key.where] = one
    for entry in draft.rails.of(job.id, job.incarnation):
        last = newest.get((entry.node, str(entry.die_from)))
        if entry.open and entry.faulted and last is not None and last.end != entry.link_back:
            draft.rails = note_link(draft.rails, {entry.id}, last.end)


def words_of(answer: Borrow) -> str:
    """Who goes where, for people: `3 ranks go to the other die (rank 2 on a3-node-0: 2→3, …)`."""
    told = [f"rank {one.rank} on {one.node}: {one.device_from}→{one.device_to}" for one in answer.moves[:FEW]]
    more = f" and {len(answer.moves) - FEW} more" if len(answer.moves) > FEW else ""
    return f"rule {answer.rule} {answer.code}: {len(answer.moves)} ranks go to the other die ({', '.join(told)}{more})"


def _tell(draft: Draft, before: RailLedger, reason: Reason, why: str) -> None:
    """One word for each plan of which something was freed."""
    if draft.rails is None or draft.rails is before:
        return
    was: Mapping[str, Reservation] = {entry.id: entry for entry in before.entries if entry.open}
    plans: dict[str, list[Reservation]] = {}
    for entry in draft.rails.entries:
        if entry.id in was and not entry.open:
            plans.setdefault(entry.plan, []).append(entry)
    for plan, entries in plans.items():
        named = ", ".join(f"NPU {one.npu} of {one.node}" for one in entries[:FEW])
        more = f" and {len(entries) - FEW} more" if len(entries) > FEW else ""
        draft.say(reason, f"plan {plan}: {named}{more} free again, {why}", _cause(entries))


def _cause(entries: Sequence[Reservation]) -> Cause:
    """The fault behind them. No occurrence: a plan may end NPU by NPU, and each word counts, also after a kill."""
    one = next((entry for entry in entries if entry.faulted), entries[0])
    return Cause(
        node=one.node,
        fault=one.faults[0] if one.faults else "",
        ranks=tuple(sorted(entry.rank for entry in entries))[:FEW],
    )
