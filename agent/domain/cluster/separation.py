"""Manual separations: kept here, released once, by a person or by their window.

The one rule: only what is known releases a device: a person's list that cannot be read, or a report that is missing,
leaves every separation as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from agent.domain.cluster.book import ClusterBook
from agent.domain.cluster.effective import separation_ref
from agent.domain.events import Decision, FaultKey, NodeReport
from agent.domain.frequency import Phase
from agent.domain.isolation import FREE_HOURS, used_up
from agent.domain.ledger import ClusterLedger, Separation
from agent.domain.vocab import HOUR, MANUAL, Millis, NodeName, Plane, Reason, utc_text

_Kept = TypeVar("_Kept")


def separate(ledger: ClusterLedger, node: NodeName, one: Separation) -> ClusterLedger:
    """The ledger with the device separated for that code, anew if it was already."""
    mine = (one.device, one.code, bool(one.trip))
    others = [held for held in ledger.separations.get(node, ()) if (held.device, held.code, bool(held.trip)) != mine]
    held = tuple(sorted((*others, one), key=lambda each: (each.device, each.code, each.trip)))
    return replace(ledger, separations={**ledger.separations, node: held})


@dataclass(frozen=True, slots=True)
class Followed:
    """What becomes of a node's separations now."""

    ledger: ClusterLedger
    decisions: tuple[Decision, ...] = ()
    wake: Millis | None = None


def follow(book: ClusterBook, node: NodeName, ledger: ClusterLedger, now: Millis) -> Followed:
    """Keep what the node's frequency rules have tripped, release what a person or time has released."""
    decisions: list[Decision] = []
    ledger = switched(book, _of_this_machine(book, node, ledger, now, decisions), now)
    ledger, gone = _listed(book, node, ledger, now)
    before = {(one.device, one.code, one.trip) for one in ledger.separations.get(node, ())}
    ledger = _take_trips(book, node, ledger, now, decisions)
    kept: list[Separation] = []
    for one in ledger.separations.get(node, ()):
        # A trip that comes with the news of the removal has come after it.
        by_hand = one.device in gone and (one.device, one.code, one.trip) in before
        why = next(_releases(book, node, one, by_hand, now), None)
        if why is None:
            kept.append(one)
            continue
        decisions.append(_decision(node, one, Reason.SEPARATION_RELEASED, why, now))
        ledger = replace(ledger, counts=used_up(ledger.counts, node, one.device))
        if one.trip and by_hand:
            key = FaultKey(node, Plane.CHIP, str(one.device), one.code)
            ledger = replace(ledger, freed={**ledger.freed, one.trip: key})
    if len(kept) < len(ledger.separations.get(node, ())):
        ledger = replace(ledger, separations=_without(ledger.separations, node, tuple(kept)))
    if book.isolation is not None and not book.isolation.enabled and node in ledger.counts:
        ledger = replace(ledger, counts=_without(ledger.counts, node))
    ledger = _with_machine(book, node, ledger)
    wake = min((at for one in kept if (at := _due(book, one)) is not None), default=None)
    return Followed(ledger, tuple(decisions), wake)


def switched(book: ClusterBook, ledger: ClusterLedger, now: Millis) -> ClusterLedger:
    """The ledger with since when faults count: a switch off and on again begins anew, whatever marks jobs have."""
    if book.isolation is None or book.isolation.enabled is (ledger.counts_since is not None):
        return ledger
    return replace(ledger, counts_since=now if book.isolation.enabled else None)


def _without(kept: Mapping[NodeName, _Kept], node: NodeName, left: _Kept | None = None) -> dict[NodeName, _Kept]:
    """What is kept by node with another value for one of them, or without it."""
    others = {name: one for name, one in kept.items() if name != node}
    return {**others, node: left} if left else others


def _of_this_machine(
    book: ClusterBook, node: NodeName, ledger: ClusterLedger, now: Millis, decisions: list[Decision]
) -> ClusterLedger:
    """What is kept of a node, unless that node is gone for good or another machine has its name now."""
    report = book.reports.get(node)
    known = ledger.machines.get(node)
    if report is not None and report.machine and known not in (None, report.machine):
        why = f"{node} is another machine now"
    elif _is_gone(book, node):
        why = f"{node} is gone for good"
    else:
        return ledger
    released = ledger.separations.get(node, ())
    decisions.extend(_decision(node, one, Reason.SEPARATION_RELEASED, why, now) for one in released)
    return replace(
        ledger,
        separations=_without(ledger.separations, node),
        freed={trip: key for trip, key in ledger.freed.items() if key.node != node},
        dropped={ref: at for ref, at in ledger.dropped.items() if at != node},
        counts=_without(ledger.counts, node),
        listed=_without(ledger.listed, node),
        machines=_without(ledger.machines, node),
    )


def _is_gone(book: ClusterBook, node: NodeName) -> bool:
    """Its report was removed, and there are Nodes but not this one: a report may also be removed by hand."""
    jobs, silent = book.jobs, node in book.buried and node not in book.reports
    return silent and jobs.node(node) is None and next(iter(jobs.nodes()), None) is not None


def _with_machine(book: ClusterBook, node: NodeName, ledger: ClusterLedger) -> ClusterLedger:
    """The ledger with the machine of which something is kept."""
    report = book.reports.get(node)
    freed = any(key.node == node for key in ledger.freed.values())
    keeps = freed or node in ledger.separations or node in ledger.counts
    machine = (report.machine if report is not None else "") or ledger.machines.get(node, "") if keeps else ""
    if machine == ledger.machines.get(node, ""):
        return ledger
    return replace(ledger, machines=_without(ledger.machines, node, machine))


def _listed(
    book: ClusterBook, node: NodeName, ledger: ClusterLedger, now: Millis
) -> tuple[ClusterLedger, frozenset[int]]:
    """The ledger with what ClusterD lists now, and what a person has taken from there since it was last read."""
    nothing: Mapping[int, Millis] = {}
    listed, before = book.listed.get(node, nothing), ledger.listed.get(node, nothing)
    if node in book.unlisted or _is_gone(book, node) or listed == before:
        return ledger, frozenset()  # what cannot be read tells of nothing that has gone
    gone = frozenset(one for one, at in before.items() if one not in listed and _is_by_hand(book, at, now))
    return replace(ledger, listed=_without(ledger.listed, node, listed)), gone


def _is_by_hand(book: ClusterBook, at: Millis, now: Millis) -> bool:
    """Whether a name that ClusterD last separated `at` has gone before ClusterD itself takes it out: when its hours are
    over, and when manual separation is switched off. Of a policy that cannot be read the shortest hours are taken.
    """
    policy = book.isolation
    if not at:
        return True  # a person wrote it there, to have it go
    if policy is not None and not policy.enabled:
        return False
    free = Millis(FREE_HOURS[0] * HOUR) if policy is None else policy.free
    return free is None or now < at + free


def _take_trips(
    book: ClusterBook, node: NodeName, ledger: ClusterLedger, now: Millis, decisions: list[Decision]
) -> ClusterLedger:
    """A trip is kept from when it is told, whatever becomes of the fault, and once."""
    report = book.reports.get(node)
    if report is None:
        return ledger
    freed = {trip: key for trip, key in ledger.freed.items() if key.node != node or _may_tell(report, trip, key)}
    if len(freed) < len(ledger.freed):
        ledger = replace(ledger, freed=freed)
    told = [one for one in report.counters if one.level == MANUAL and one.trip and one.phase in _TRIPPED]
    for counter in told:
        due = counter.due if counter.phase == Phase.CLEAN and counter.due else None
        if counter.trip in ledger.freed or not counter.key.where.isdecimal() or (due is not None and now > due):
            continue
        device, code = int(counter.key.where), counter.key.code
        held = ledger.separations.get(node, ())
        known = next((one for one in held if (one.device, one.code) == (device, code) and one.trip), None)
        one = Separation(device, code, counter.tripped, counter.trip, counter.trace, counter.trip, due)
        if known is None or known.trip != one.trip:
            rule = book.policy.frequency(code) if book.policy is not None else None
            window = "" if rule is not None and not rule.release_ms else " or its release window"
            detail = f"frequency:{code} tripped: {MANUAL} until a person{window} ends it"
            decisions.append(_decision(node, one, Reason.SEPARATED, detail, now))
        elif known.due == due:
            continue
        ledger = separate(ledger, node, one)
    return ledger


_TRIPPED = (Phase.HELD, Phase.CLEAN)


def _may_tell(report: NodeReport, trip: str, key: FaultKey) -> bool:
    """Whether the report may tell of a trip again: its counter is there, at whatever level another policy gives it, and
    has tripped to nothing else since; or the report is not whole.
    """
    counter = next((one for one in report.counters if (one.key.where, one.key.code) == (key.where, key.code)), None)
    if counter is None:
        return bool(report.cut) or not report.caught_up
    return counter.trip in ("", trip)


def _decision(node: NodeName, one: Separation, reason: Reason, detail: str, now: Millis) -> Decision:
    ref = separation_ref(node, one)
    return Decision(now, reason, node, ref, level=MANUAL, detail=detail, occurrence=one.occurrence, trace=one.trace)


def _releases(book: ClusterBook, node: NodeName, one: Separation, by_hand: bool, now: Millis) -> Iterator[str]:
    if by_hand:
        yield "a person took it out of Total in clusterd-manual-info-cm"
    due = _due(book, one)
    if due is not None and now >= due:
        yield f"its window was over at {utc_text(due)}"
    if one.trip:
        report = book.reports.get(node)
        over = (c for c in report.counters if c.trip == one.trip and c.phase == Phase.RELEASED) if report else ()
        yield from (f"its window was over at {utc_text(c.due)}" for c in over)
    elif book.isolation is not None and not book.isolation.enabled:
        yield "manual separation was switched off (clusterd-config-cm, enabled: false)"


def _due(book: ClusterBook, one: Separation) -> Millis | None:
    """When it is released by time: a trip strictly after its node's deadline, one of ours at the end of its hours."""
    if one.trip:
        return None if one.due is None else Millis(one.due + 1)
    policy = book.isolation
    return (
        Millis(one.since + policy.free) if policy is not None and policy.enabled and policy.free is not None else None
    )
