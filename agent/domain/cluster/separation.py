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
from agent.domain.ledger import ClusterLedger, Separation
from agent.domain.vocab import MANUAL, Millis, NodeName, Reason


def separate(ledger: ClusterLedger, node: NodeName, one: Separation) -> ClusterLedger:
    """The ledger with the device separated for that code, anew if it was already."""
    others = [held for held in ledger.separations.get(node, ()) if (held.device, held.code) != (one.device, one.code)]
    held = tuple(sorted((*others, one), key=lambda each: (each.device, each.code)))
    return replace(ledger, separations={**ledger.separations, node: held})


@dataclass(frozen=True, slots=True)
class Followed:
    """What becomes of a node's separations now."""

    ledger: ClusterLedger
    decisions: tuple[Decision, ...] = ()
    wake: Millis | None = None


def follow(book: ClusterBook, node: NodeName, ledger: ClusterLedger, now: Millis) -> Followed:
    """Release what a person or time has released, and note what ClusterD's list holds."""
    listed, before = book.listed.get(node, frozenset()), ledger.listed.get(node, ())
    if node in book.unlisted:
        listed = frozenset(before)  # it cannot be read: nothing is known to have gone from it
    gone = frozenset(before) - listed
    if tuple(sorted(listed)) != tuple(before):
        others = {name: devices for name, devices in ledger.listed.items() if name != node}
        ledger = replace(ledger, listed={**others, node: tuple(sorted(listed))} if listed else others)
    kept: list[Separation] = []
    decisions: list[Decision] = []
    wakes: list[Millis] = []
    for one in ledger.separations.get(node, ()):
        why = next(_releases(book, one, gone, now), None)
        if why is None:
            kept.append(one)
            wakes += [at for at in (_due(book, one),) if at is not None]
        else:
            ref = separation_ref(node, one)
            decisions.append(
                Decision(now, Reason.SEPARATION_RELEASED, node, ref, level=MANUAL, detail=why, trace=one.trace)
            )
    if book.isolation is not None and not book.isolation.enabled and node in ledger.counts:
        ledger = replace(ledger, counts={name: one for name, one in ledger.counts.items() if name != node})
    if decisions:
        left = {name: held for name, held in ledger.separations.items() if name != node}
        ledger = replace(ledger, separations={**left, node: tuple(kept)} if kept else left)
    return Followed(ledger, tuple(decisions), min(wakes, default=None))


def _releases(book: ClusterBook, one: Separation, gone: frozenset[int], now: Millis) -> Iterator[str]:
    if one.device in gone:
        yield "a person took it out of Total in clusterd-manual-info-cm"
    policy, due = book.isolation, _due(book, one)
    if policy is not None and not policy.enabled:
        yield "manual separation was switched off (clusterd-config-cm, enabled: false)"
    if due is not None and now >= due:
        yield f"its window was over at {clock(due)}"


def _due(book: ClusterBook, one: Separation) -> Millis | None:
    policy = book.isolation
    return (
        Millis(one.since + policy.free) if policy is not None and policy.enabled and policy.free is not None else None
    )
