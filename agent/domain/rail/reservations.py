"""The book of borrowed NPUs over all jobs: who holds which physical NPU, and what was held before.

The one rule: a plan's reservations are taken all together or not at all, and one NPU is held by one plan.
HCCL keeps its own mark in process memory only and MindCluster keeps none, so this book is the only memory.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from agent.domain.rail.words import Borrow, Move, RailCode, Refuse
from agent.domain.vocab import JobId, Millis, NodeName

MAX_CLOSED: Final = 256
"""Closed entries kept as history, newest first to stay."""
MAX_OPEN: Final = 2000
"""Held NPUs; at some 400 bytes each the ledger's ConfigMap stays under its limit of 1 MiB."""


class HoldState(StrEnum):
    """Life of a reservation. A plan-only borrow ends in `advised`: HCCL's own switch cannot be seen."""

    OBSERVED = "observed"
    PLANNED = "planned"
    RESERVED = "reserved"
    ADVISED = "advised"
    CLOSED = "closed"


_NEXT: Final[Mapping[HoldState, frozenset[HoldState]]] = {
    HoldState.OBSERVED: frozenset({HoldState.PLANNED, HoldState.RESERVED, HoldState.CLOSED}),
    HoldState.PLANNED: frozenset({HoldState.RESERVED, HoldState.CLOSED}),
    HoldState.RESERVED: frozenset({HoldState.ADVISED, HoldState.CLOSED}),
    HoldState.ADVISED: frozenset({HoldState.CLOSED}),
    HoldState.CLOSED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Reservation:
    """One NPU held by one plan of one incarnation of a job."""

    id: str
    """`<plan>/<node>/<npu>`."""
    plan: str
    job: JobId
    job_uid: str
    incarnation: str
    node: NodeName
    npu: int
    die_from: int
    die_to: int
    rank: int
    at: Millis
    rule: int
    reason: str
    state: HoldState
    faulted: bool = False
    """Its own link failed; else it was moved because the other end was."""
    links: tuple[tuple[int, int], ...] = ()
    """Pairs of ranks, this one among them, that went to the backup side."""
    faults: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    closed_at: Millis | None = None

    @property
    def open(self) -> bool:
        """It still holds its NPU."""
        return self.state is not HoldState.CLOSED


@dataclass(frozen=True, slots=True)
class RailLedger:
    """All reservations, open ones and history, in the order they were made."""

    entries: tuple[Reservation, ...] = ()
    _held: Mapping[tuple[NodeName, int], Reservation] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        held = {(entry.node, entry.npu): entry for entry in self.entries if entry.open}
        object.__setattr__(self, "_held", held)

    def holder(self, node: NodeName, npu: int) -> Reservation | None:
        """The open reservation of a physical NPU, of whatever job."""
        return self._held.get((node, npu))

    def of(self, job: JobId, incarnation: str) -> tuple[Reservation, ...]:
        """Every entry of one incarnation of a job, closed ones too."""
        return tuple(entry for entry in self.entries if entry.job == job and entry.incarnation == incarnation)

    @property
    def held(self) -> int:
        """How many NPUs are held now."""
        return len(self._held)


def plan_id(job: JobId, incarnation: str, events: Iterable[str]) -> str:
    """Name of a plan: the same job, incarnation and occurrences always give the same twelve hex digits."""
    text = "\x00".join((job, incarnation, *sorted(set(events))))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def reserve(
    ledger: RailLedger,
    plan: Borrow,
    *,
    job: JobId,
    job_uid: str,
    incarnation: str,
    now: Millis,
    state: HoldState = HoldState.PLANNED,
    extend: bool = False,
) -> RailLedger | Refuse:
    """Hold every NPU of a plan, or none. A plan that is already held as it stands changes nothing.

    `extend` (strictness `source`): an NPU that the same incarnation already moved the same way may take more
    links, as HCCL allows; its entry then grows. Any other open entry of an NPU refuses the whole plan.
    """
    name = plan_id(job, incarnation, plan.events)
    known = {entry.id for entry in ledger.entries}
    fresh: dict[str, Reservation] = {}
    grown: dict[str, Reservation] = {}
    for move in plan.moves:
        links = tuple(link for link in plan.links if move.rank in link)
        made = Reservation(
            id=f"{name}/{move.node}/{move.npu}",
            plan=name,
            job=job,
            job_uid=job_uid,
            incarnation=incarnation,
            node=move.node,
            npu=move.npu,
            die_from=move.device_from,
            die_to=move.device_to,
            rank=move.rank,
            at=now,
            rule=plan.rule,
            reason=plan.code,
            state=state,
            faulted=move.faulted,
            links=links,
            faults=plan.faults,
            events=plan.events,
        )
        if made.id in fresh or any(entry.node == move.node and entry.npu == move.npu for entry in grown.values()):
            return _clash(move, "this plan itself, twice")
        held = ledger.holder(move.node, move.npu)
        if held is None and made.id not in known:
            fresh[made.id] = made
        elif held is None:
            return _clash(move, f"plan {name}, which is closed")
        elif _same_way(held, made) and (extend or _covers(held, made)):
            grown[held.id] = _grow(held, made)
        else:
            return _clash(move, f"{held.job} (plan {held.plan}, rank {held.rank})")
    if ledger.held + len(fresh) > MAX_OPEN:
        return Refuse(RailCode.LEDGER_FULL, 0, f"{ledger.held} NPUs are held, {len(fresh)} more pass {MAX_OPEN}")
    kept = tuple(grown.get(entry.id, entry) for entry in ledger.entries)
    return bounded(RailLedger(kept + tuple(fresh.values())))


def _clash(move: Move, by: str) -> Refuse:
    code = RailCode.ALREADY_BORROWED if move.faulted else RailCode.PEER_ALREADY_BORROWED
    return Refuse(code, 0, f"NPU {move.npu} of {move.node} is held by {by}")


def _same_way(held: Reservation, made: Reservation) -> bool:
    mine = (made.job, made.incarnation, made.die_from, made.rank)
    return (held.job, held.incarnation, held.die_from, held.rank) == mine


def _covers(held: Reservation, made: Reservation) -> bool:
    return set(made.events) <= set(held.events) and set(made.links) <= set(held.links)


def _grow(held: Reservation, made: Reservation) -> Reservation:
    return replace(
        held,
        faulted=held.faulted or made.faulted,
        links=tuple(sorted({*held.links, *made.links})),
        faults=tuple(sorted({*held.faults, *made.faults})),
        events=tuple(sorted({*held.events, *made.events})),
    )


def advance(ledger: RailLedger, plan: str, state: HoldState, *, now: Millis) -> RailLedger:
    """Carry every open entry of a plan to `state` where that is a step of its life; other entries stay."""
    return _changed(ledger, lambda entry: entry.plan == plan and state in _NEXT[entry.state], state, now)


def close_incarnation(ledger: RailLedger, job: JobId, incarnation: str, *, now: Millis) -> RailLedger:
    """That life of the job is over: HCCL's marks went with its processes, so its NPUs are free again."""
    return _changed(ledger, lambda e: e.open and e.job == job and e.incarnation == incarnation, HoldState.CLOSED, now)


def close_job(ledger: RailLedger, job: JobId, *, now: Millis, keep: str = "") -> RailLedger:
    """Close every open entry of a job but those of incarnation `keep` (none: the job is gone)."""
    return _changed(ledger, lambda e: e.open and e.job == job and e.incarnation != keep, HoldState.CLOSED, now)


def _changed(ledger: RailLedger, wanted: Callable[[Reservation], bool], state: HoldState, now: Millis) -> RailLedger:
    closed_at = now if state is HoldState.CLOSED else None
    entries = tuple(
        replace(entry, state=state, closed_at=closed_at) if wanted(entry) else entry for entry in ledger.entries
    )
    return ledger if entries == ledger.entries else bounded(RailLedger(entries))


def bounded(ledger: RailLedger, closed: int = MAX_CLOSED) -> RailLedger:
    """The ledger with at most `closed` entries of history; the longest closed go first, open ones never."""
    history = sorted(
        (entry for entry in ledger.entries if not entry.open), key=lambda e: (e.closed_at or 0, e.at, e.id)
    )
    surplus = {entry.id for entry in history[: max(0, len(history) - closed)]}
    if not surplus:
        return ledger
    return RailLedger(tuple(entry for entry in ledger.entries if entry.id not in surplus))
