"""The book of borrowed NPUs over all jobs: who holds which physical NPU, and what was held before.

The one rule: a plan's reservations are taken all together or not at all, and one NPU is held by one plan.
HCCL keeps its own mark in process memory only and MindCluster keeps none, so this book is the only memory.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from agent.domain.rail.life import HoldState, LifeSignal, step
from agent.domain.rail.words import BANDWIDTH, Borrow, Move, RailCode, Refuse
from agent.domain.vocab import JobId, Millis, NodeName

MAX_CLOSED: Final = 256
"""Closed entries kept as history, newest first to stay."""
MAX_BYTES: Final = 850_000
"""Room for held NPUs, by `weight`: below what the ledger's ConfigMap takes, some 8,000 of them. A fault of one die in a
job of 65,536 ranks moves some 4,000."""
_ROW: Final = 130
_HEAD: Final = 260


@dataclass(frozen=True, slots=True)
class Reservation:
    """One NPU held by one plan of one incarnation of a job, or held once."""

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
    """Pairs of ranks, this one among them, that went to the backup side; of an open entry those that are there yet."""
    faults: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    link_back: Millis | None = None
    """Since when its own failed link is up again; its traffic stays on the other die all the same."""
    closed_at: Millis | None = None
    early: bool = False
    """A return of it is recorded that came while a link of it was down: it does not count until recorded anew."""

    @property
    def open(self) -> bool:
        """It still holds its NPU."""
        return self.state.holds


@dataclass(frozen=True, slots=True)
class RailLedger:
    """All reservations, open ones and history, in the order they were made."""

    entries: tuple[Reservation, ...] = ()
    _held: Mapping[tuple[NodeName, int], Reservation] = field(init=False, repr=False, compare=False)
    _by_job: Mapping[JobId, list[Reservation]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        held: dict[tuple[NodeName, int], Reservation] = {}
        by_job: dict[JobId, list[Reservation]] = {}
        for entry in self.entries:
            by_job.setdefault(entry.job, []).append(entry)
            if entry.open:
                held[entry.node, entry.npu] = entry
        object.__setattr__(self, "_held", held)
        object.__setattr__(self, "_by_job", by_job)

    def holder(self, node: NodeName, npu: int) -> Reservation | None:
        """The open reservation of a physical NPU, of whatever job."""
        return self._held.get((node, npu))

    def of_job(self, job: JobId) -> tuple[Reservation, ...]:
        """Every entry of a job, of whatever incarnation, closed ones too; costs what that job has."""
        return tuple(self._by_job.get(job, ()))

    def of(self, job: JobId, incarnation: str) -> tuple[Reservation, ...]:
        """Every entry of one incarnation of a job, closed ones too."""
        return tuple(entry for entry in self._by_job.get(job, ()) if entry.incarnation == incarnation)

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
    of_rank: dict[int, list[tuple[int, int]]] = {}
    for link in plan.links:
        for rank in link:
            of_rank.setdefault(rank, []).append(link)
    seats: set[tuple[NodeName, int]] = set()
    for move in plan.moves:
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
            state=HoldState.RESERVED,
            faulted=move.faulted,
            links=tuple(of_rank.get(move.rank, ())),
            faults=plan.faults,
            events=plan.events,
        )
        if (move.node, move.npu) in seats:
            return _clash(move, "this plan itself, twice")
        seats.add((move.node, move.npu))
        held = ledger.holder(move.node, move.npu)
        if held is None and made.id not in known:
            fresh[made.id] = made
        elif held is None:
            return _clash(move, f"plan {name}, which is closed")
        elif _same_way(held, made) and (extend or _covers(held, made)):
            grown[held.id] = _grow(held, made)
        else:
            return _clash(move, f"{held.job} (plan {held.plan}, rank {held.rank})")
    kept = tuple(grown.get(entry.id, entry) for entry in ledger.entries)
    made_of = bounded(RailLedger(kept + tuple(fresh.values())))
    if (fresh or grown) and weight(made_of) > MAX_BYTES:
        detail = f"{ledger.held} NPUs are held, and {len(fresh)} more would pass the {MAX_BYTES} bytes of the ledger"
        return Refuse(RailCode.LEDGER_FULL, 0, detail)
    return made_of


def weight(ledger: RailLedger) -> int:
    """Upper bound of what the held NPUs take in the ledger's text, bytes (names and references are ASCII)."""
    total = 0
    head: tuple[str, ...] = ()
    marks: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    for entry in ledger.entries:
        if not entry.open:
            continue
        said = (entry.plan, entry.job, entry.job_uid, entry.incarnation, entry.reason)
        if said != head:
            total += _HEAD + sum(map(len, said))
        if said != head or (entry.faults, entry.events) != marks:
            total += 30 + sum(len(text) + 3 for text in (*entry.faults, *entry.events))
        head, marks = said, (entry.faults, entry.events)
        total += _ROW + (13 if entry.early else 0) + len(entry.node) + 8 * len(entry.links)
    return total


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


def advance(ledger: RailLedger, plan: str, signal: LifeSignal, *, now: Millis) -> RailLedger:
    """Give a signal to every entry of a plan; those that it means nothing to stay as they are."""
    return _signalled(ledger, lambda entry: entry.plan == plan, signal, now)


def close_job(ledger: RailLedger, job: JobId, *, now: Millis, keep: str = "") -> RailLedger:
    """A job's lives are over but for incarnation `keep` (none: the job is gone): what they hold is free again, since
    HCCL's marks went with their processes.
    """
    if not any(entry.open and entry.incarnation != keep for entry in ledger.of_job(job)):
        return ledger
    return _signalled(ledger, lambda e: e.job == job and e.incarnation != keep, LifeSignal.NEW_LIFE, now)


def close_where(ledger: RailLedger, gone: Callable[[Reservation], bool], *, now: Millis) -> RailLedger:
    """The same for single entries, whose own process is gone while the job lives on.

    Who is in its place is in no communicator that was there before, so the links it had are gone at their other ends
    too. The NPUs there stay held: their own processes live.
    """
    ended = {(one.job, one.incarnation, one.rank) for one in ledger.entries if one.open and gone(one)}
    entries = []
    for entry in _signalled(ledger, gone, LifeSignal.NEW_LIFE, now).entries:
        life = (entry.job, entry.incarnation)
        left = tuple(link for link in entry.links if not any((*life, rank) in ended for rank in link))
        entries.append(replace(entry, links=left) if entry.open and left != entry.links else entry)
    return _changed(ledger, tuple(entries))


def give_back(ledger: RailLedger, ids: Collection[str], *, now: Millis) -> RailLedger:
    """A manual return of these reservations: their links go back at both ends (HCCL refreshes the other end of a link
    with it), so an NPU at the other end that has no link left on the backup side is free too.
    """
    named = [entry for entry in ledger.entries if entry.open and entry.id in ids]
    lives = {(entry.job, entry.incarnation) for entry in named}
    gone = {(entry.job, entry.incarnation, link) for entry in named for link in entry.links}
    entries = []
    for entry in ledger.entries:
        life = (entry.job, entry.incarnation)
        if entry.open and life in lives:
            left = tuple(link for link in entry.links if (*life, link) not in gone)
            if entry.id in ids or (entry.links and not left):
                entry = _moved(entry, LifeSignal.HANDED_BACK, now)
            elif left != entry.links:
                entry = replace(entry, links=left)
        entries.append(entry)
    return _changed(ledger, tuple(entries))


def note_link(ledger: RailLedger, ids: Collection[str], back: Millis | None) -> RailLedger:
    """Their own links are up again since `back` (ms), or down again (None). Nothing is freed by that."""
    entries = tuple(
        replace(entry, link_back=back) if entry.open and entry.id in ids else entry for entry in ledger.entries
    )
    return _changed(ledger, entries)


def note_early(ledger: RailLedger, job: JobId, ids: Collection[str], early: bool) -> RailLedger:
    """A record of the return of these came too early (`early`), or is gone."""
    if all(entry.early == early for entry in ledger.of_job(job) if entry.open and entry.id in ids):
        return ledger
    entries = tuple(
        replace(entry, early=early) if entry.job == job and entry.open and entry.id in ids else entry
        for entry in ledger.entries
    )
    return _changed(ledger, entries)


def borrow_of(entries: Collection[Reservation]) -> Borrow:
    """The plan of reservations as they stand, for who has to tell it and did not make it."""
    moves = tuple(Move(e.node, e.die_from, e.die_to, e.npu, e.rank, e.faulted) for e in entries)
    return Borrow(
        moves,
        tuple(sorted({link for entry in entries for link in entry.links})),
        (BANDWIDTH,),
        faults=tuple(sorted({ref for entry in entries for ref in entry.faults})),
        events=tuple(sorted({event for entry in entries for event in entry.events})),
        detail=f"{len(moves)} ranks go to the other die of their NPU; held since before this coordinator led",
    )


def _signalled(
    ledger: RailLedger, wanted: Callable[[Reservation], bool], signal: LifeSignal, now: Millis
) -> RailLedger:
    return _changed(ledger, tuple(_moved(entry, signal, now) if wanted(entry) else entry for entry in ledger.entries))


def _moved(entry: Reservation, signal: LifeSignal, now: Millis) -> Reservation:
    state = step(entry.state, signal)
    if state is None:
        return entry
    return replace(entry, state=state, closed_at=None if state.holds else now)


def _changed(ledger: RailLedger, entries: tuple[Reservation, ...]) -> RailLedger:
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
