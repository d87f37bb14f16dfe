"""Which occurrences of a job are to be decided now, and which a quiet rule keeps back until later.

The one rule: an occurrence that is kept back is told once with its release time, stays in the job's ledger, and is
decided at that time, also when its node's report has long let go of it.
"""

from collections.abc import Iterator
from dataclasses import replace

from agent.domain.cluster.book import Draft, cause_of, occurrences_of
from agent.domain.cluster.quiet import Quiet, felt_once, quiet_for
from agent.domain.events import Occurrence
from agent.domain.jobs import Job
from agent.domain.ledger import Kept
from agent.domain.vocab import MANUAL, Millis, NodeName, OccurrenceId, Reason


def key_of(occurrence: Occurrence, device: int | None) -> str:
    """The key of an occurrence's mark: each of its levels is decided once for each device of the job."""
    return f"{occurrence.id}~{occurrence.level}~{'-' if device is None else device}"


def decidable(draft: Draft, job: Job) -> Iterator[tuple[Occurrence, int | None, Millis]]:
    """Occurrences not decided before, oldest first, each with its device and the moment from which its age counts.

    Whoever takes one decides it: marks it in the draft.
    """
    kept: dict[str, Kept] = dict(draft.ledger.quiet)
    known = known_occurrences(draft)
    for occurrence, device in known:
        key = key_of(occurrence, device)
        if draft.is_done(key):
            kept.pop(key, None)
            continue
        one = _quiet(draft, job, occurrence, device)
        if one is None:
            kept.pop(key, None)
            yield occurrence, device, free_since(draft, occurrence, device)
        elif one.dropped or occurrence.end is not None:
            ended = "" if one.dropped else "it ended while it was "
            draft.say(Reason.DROPPED, f"{ended}{one}", cause_of(draft.book, occurrence))
            draft.mark(key, Reason.DROPPED)
            kept.pop(key, None)
        else:
            now = Kept(one.until, occurrence.key.node, one.rule)
            if kept.get(key) != now:
                kept[key] = now
                draft.say(Reason.QUIET, str(one), cause_of(draft.book, occurrence))
            if one.until is not None:
                draft.wake.append(Millis(one.until + 1))
    kept = _still_there(draft, kept, known)
    if kept != draft.ledger.quiet:
        draft.ledger = replace(draft.ledger, quiet=kept)


def known_occurrences(draft: Draft) -> list[tuple[Occurrence, int | None]]:
    """Recent occurrences of the job, and those that were kept back for longer than a report repeats them."""
    if draft.known is None:
        recent = list(occurrences_of(draft.book, draft.job))
        draft.known = [*recent, *_beyond(draft, recent)]
    return draft.known


def is_kept(draft: Draft, job: Job, occurrence: Occurrence, device: int | None) -> bool:
    """Whether a quiet rule keeps the occurrence back from the job now."""
    return _quiet(draft, job, occurrence, device) is not None


def release_of(draft: Draft, job: Job, occurrence: Occurrence, device: int | None) -> Millis | None:
    """When an occurrence is free to be judged if it is kept back now: at once after its last quiet moment."""
    one = _quiet(draft, job, occurrence, device)
    return None if one is None or one.until is None else Millis(one.until + 1)


def free_since(draft: Draft, occurrence: Occurrence, device: int | None) -> Millis:
    """The moment from which an occurrence's age counts: when it began, or was no longer kept back."""
    was = draft.book.ledger(draft.job).quiet.get(key_of(occurrence, device))
    free = occurrence.begin if was is None else draft.now if was.until is None else was.until
    return Millis(max(occurrence.begin, free))


def _quiet(draft: Draft, job: Job, occurrence: Occurrence, device: int | None) -> Quiet | None:
    """The rule that keeps the occurrence back; of one that is over, the rule that did when it ended."""
    if occurrence.held or occurrence.level == MANUAL:
        return None  # a separation is shown at once, and so its trip is
    at = draft.now if occurrence.end is None else min(draft.now, occurrence.end)
    return quiet_for(draft.book, felt_once(draft.book, occurrence), device, job, Millis(at))


def _beyond(draft: Draft, recent: list[tuple[Occurrence, int | None]]) -> Iterator[tuple[Occurrence, int | None]]:
    """What was kept back and is still active, made anew from the fault."""
    told = {key_of(*pair) for pair in recent}
    for key, one in draft.book.ledger(draft.job).quiet.items():
        report = draft.book.reports.get(one.node)
        if key in told or report is None:
            continue
        id_, level, place = key.split("~")
        for fault in report.active:
            if fault.occurrence == id_:
                occurrence = Occurrence(
                    OccurrenceId(id_), fault.key, fault.since, None, level, fault.held, fault.devices, trace=fault.trace
                )
                yield occurrence, None if place == "-" else int(place)


def _still_there(draft: Draft, kept: dict[str, Kept], known: list[tuple[Occurrence, int | None]]) -> dict[str, Kept]:
    """What was kept back, without what neither its report's occurrences nor its active faults know: it ended unseen."""
    if not kept:
        return kept
    there = {str(occurrence.id) for occurrence, _ in known}
    unheard: set[NodeName] = set()
    for node in {one.node for one in kept.values()}:
        report = draft.book.reports.get(node)
        if report is None or report.lost:
            unheard.add(node)
        else:
            there.update(str(fault.occurrence) for fault in report.active)
    return {key: one for key, one in kept.items() if one.node in unheard or key.partition("~")[0] in there}
