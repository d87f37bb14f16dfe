"""Manual separations: kept here, released once, by a person or by their window.

The one rule: only what is known releases a device: a person's list that cannot be read, or a report that is missing,
leaves every separation as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from agent.domain.cluster.book import ClusterBook
from agent.domain.cluster.effective import separation_ref
from agent.domain.cluster.quiet import clock
from agent.domain.events import Decision
from agent.domain.frequency import Phase
from agent.domain.isolation import used_up
from agent.domain.ledger import ClusterLedger, Separation
from agent.domain.vocab import MANUAL, Millis, NodeName, Reason


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
    ledger, gone = _listed(book, node, ledger)
    ledger = _take_trips(book, node, ledger, now, decisions)
    kept: list[Separation] = []
    for one in ledger.separations.get(node, ()):
        why = next(_releases(book, node, one, gone, now), None)
        if why is None:
            kept.append(one)
            continue
        decisions.append(_decision(node, one, Reason.SEPARATION_RELEASED, why, now))
        ledger = replace(ledger, counts=used_up(ledger.counts, node, one.device))
        if one.trip and one.device in gone:
            ledger = replace(ledger, freed={**ledger.freed, one.trip: node})
    if len(kept) < len(ledger.separations.get(node, ())):
        left = {name: held for name, held in ledger.separations.items() if name != node}
        ledger = replace(ledger, separations={**left, node: tuple(kept)} if kept else left)
    if book.isolation is not None and not book.isolation.enabled and node in ledger.counts:
        ledger = replace(ledger, counts={name: one for name, one in ledger.counts.items() if name != node})
    wake = min((at for one in kept if (at := _due(book, one)) is not None), default=None)
    return Followed(ledger, tuple(decisions), wake)


def _listed(book: ClusterBook, node: NodeName, ledger: ClusterLedger) -> tuple[ClusterLedger, frozenset[int]]:
    """The ledger with what ClusterD lists now, and what has gone from there since it was last read."""
    listed, before = book.listed.get(node, frozenset()), ledger.listed.get(node, ())
    if node in book.unlisted or tuple(sorted(listed)) == before:
        return ledger, frozenset()  # what cannot be read tells of nothing that has gone
    others = {name: devices for name, devices in ledger.listed.items() if name != node}
    if listed:
        others[node] = tuple(sorted(listed))
    return replace(ledger, listed=others), frozenset(before) - listed


def _take_trips(
    book: ClusterBook, node: NodeName, ledger: ClusterLedger, now: Millis, decisions: list[Decision]
) -> ClusterLedger:
    """A trip is kept from when it is told, whatever becomes of the fault, and once."""
    report = book.reports.get(node)
    if report is None:
        return ledger
    told = [one for one in report.counters if one.level == MANUAL and one.trip and one.phase in _TRIPPED]
    trips = {one.trip for one in told}
    if any(at == node and trip not in trips for trip, at in ledger.freed.items()):
        ledger = replace(ledger, freed={trip: at for trip, at in ledger.freed.items() if at != node or trip in trips})
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


def _decision(node: NodeName, one: Separation, reason: Reason, detail: str, now: Millis) -> Decision:
    ref = separation_ref(node, one)
    return Decision(now, reason, node, ref, level=MANUAL, detail=detail, occurrence=one.occurrence, trace=one.trace)


def _releases(book: ClusterBook, node: NodeName, one: Separation, gone: frozenset[int], now: Millis) -> Iterator[str]:
    if one.device in gone:
        yield "a person took it out of Total in clusterd-manual-info-cm"
    due = _due(book, one)
    if due is not None and now >= due:
        yield f"its window was over at {clock(due)}"
    if one.trip:
        report = book.reports.get(node)
        over = (c for c in report.counters if c.trip == one.trip and c.phase == Phase.RELEASED) if report else ()
        yield from (f"its window was over at {clock(c.due)}" for c in over)
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
