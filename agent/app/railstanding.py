"""Who has borrowed which rail, since when, why and what is left: the ledgers' word, put together per job.

The one rule: it says what the ledgers say; what they do not know is None, not zero.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.app.standing import Standing
from agent.domain.ledger import JobLedger
from agent.domain.rail.life import HoldState, deadline
from agent.domain.rail.reservations import RailLedger, Reservation
from agent.domain.ranktable import npu_of
from agent.domain.vocab import JobId, Millis, NodeName, Reason
from agent.wire.railplan import PlanDocument

_SEEN = "~seen"


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """One plan and its NPUs, or what is left of it in history."""

    plan: str
    state: HoldState
    since: Millis
    rule: int
    code: str
    faults: tuple[str, ...]
    npus: tuple[Reservation, ...]
    ended: Millis | None = None
    overdue: bool = False
    """Its NPUs are held, and its document is still not out."""

    @property
    def failed(self) -> tuple[Reservation, ...]:
        """NPUs whose own link failed; the others moved as other ends."""
        return tuple(one for one in self.npus if one.faulted)

    @property
    def returnable(self) -> bool:
        """Every link that failed is up again: an operator may return by hand."""
        return bool(self.failed) and all(one.link_back is not None for one in self.failed)


@dataclass(frozen=True, slots=True)
class Watched:
    """A link fault that may still be a flap."""

    occurrence: str
    since: Millis
    """When it was first waited for."""
    fault: str = ""
    """Its reference, where the node's report is at hand."""
    expired: bool = False
    """It was too old to be judged when that could be done; `since` is then."""


@dataclass(frozen=True, slots=True)
class JobRails:
    """One job."""

    job: JobId
    incarnation: str
    held: tuple[HeldPlan, ...]
    history: tuple[HeldPlan, ...]
    """Newest first."""
    watched: tuple[Watched, ...]
    newest: PlanDocument | None
    """The newest answer."""
    npus: int | None
    """Physical NPUs of the job; None: nothing is known of its pods."""
    left: int | None
    """Of them, those that may still borrow once."""


def rails_of(standing: Standing, clock: Millis) -> tuple[JobRails, ...]:
    """Every job of which anything about rails is known, by name."""
    ledger = standing.rails or RailLedger()
    jobs = {entry.job for entry in ledger.entries} | set(standing.plans)
    jobs |= {job for job, one in standing.ledgers.items() if any(_waits(one))}
    refs = {str(one.id): f"{one.key}@{one.begin}" for report in standing.reports.values() for one in report.occurrences}
    return tuple(_job(standing, ledger, job, refs, clock) for job in sorted(jobs))


def _job(standing: Standing, ledger: RailLedger, job: JobId, refs: Mapping[str, str], clock: Millis) -> JobRails:
    own = standing.ledgers.get(job)
    plans: dict[str, list[Reservation]] = {}
    for entry in ledger.entries:
        if entry.job == job:
            plans.setdefault(entry.plan, []).append(entry)
    found = [one for entries in plans.values() for one in _plans(entries, clock)]
    history = sorted((one for one in found if not one.state.holds), key=lambda one: -(one.ended or 0))
    places = {(member.node, npu_of(die)) for member in (own.members if own else ()) for die in member.devices}
    life = own.life.id if own is not None and own.life is not None else ""
    return JobRails(
        job,
        life,
        tuple(one for one in found if one.state.holds),
        tuple(history),
        tuple(Watched(id_, at, refs.get(id_, ""), old) for id_, at, old in _waits(own)),
        standing.plans.get(job),
        len(places) if places else None,
        _left(places, ledger) if places and not standing.rails_unread else None,
    )


def _left(places: Iterable[tuple[NodeName, int]], ledger: RailLedger) -> int:
    return sum(ledger.holder(node, npu) is None for node, npu in places)


def _plans(entries: list[Reservation], clock: Millis) -> Iterator[HeldPlan]:
    """The plan as it is held, and what of it has ended."""
    for state in dict.fromkeys(entry.state for entry in entries):
        npus = tuple(entry for entry in entries if entry.state is state)
        first = npus[0]
        due = deadline(state, first.at, Millis(0))
        ended = max((one.closed_at or 0 for one in npus), default=0)
        yield HeldPlan(
            plan=first.plan,
            state=state,
            since=first.at,
            rule=first.rule,
            code=first.reason,
            faults=tuple(sorted({ref for one in npus for ref in one.faults})),
            npus=npus,
            ended=None if state.holds else Millis(ended),
            overdue=state.holds and due is not None and due < clock,
        )


def _waits(ledger: JobLedger | None) -> Iterator[tuple[str, Millis, bool]]:
    """Occurrences that were waited for and are not yet judged, and those whose time has passed."""
    done = ledger.done if ledger is not None else {}
    for key, mark in done.items():
        kind, _, id_ = key.partition("~")
        if kind != "rail":
            continue
        if mark.reason is Reason.RAIL_OBSERVING and key.removesuffix(_SEEN) not in done:
            yield id_.removesuffix(_SEEN), mark.at, False
        elif mark.reason is Reason.TOO_OLD:
            yield id_, mark.at, True
