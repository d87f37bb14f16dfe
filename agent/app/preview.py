"""What an agent that acts would write now, document by document, with why; nothing real is written.

The one rule: it is the coordinator's own start and step on a shadow, so that what is shown is what would happen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agent.app.coordinator_app import Coordinator
from agent.app.documents import RESCHEDULE_NAME, VCJOB_NAME
from agent.app.ledgers import CLUSTER_NAME, JOB_PREFIX, Ledgers
from agent.app.linediff import unified
from agent.app.press import Wishes
from agent.domain.cluster import ClusterBook, document_of
from agent.domain.events import Behind, Decision
from agent.domain.jobs import config_name
from agent.domain.vocab import Millis, Mode, Plane, Reason
from agent.errors import BadDocument
from agent.ports import ConfigMap, DocumentStore, Tracer
from agent.wire.ledgerfile import LEDGER_KEY, decode_cluster_ledger
from agent.wire.railfile import LEDGER_NAME as RAILS_NAME
from agent.wire.railplan import plan_name

_ABOUT: Final = frozenset(
    {
        Reason.WRITTEN,
        Reason.FOREIGN_WRITER_LIVE,
        Reason.DOCUMENT_UNREADABLE,
        Reason.DOCUMENT_REFUSED,
        Reason.LEDGER_UNREADABLE,
        Reason.NO_RESET_CONFIG,
        Reason.DISABLED,
    }
)
"""Reasons that are about a document and not about a fault behind it."""
_NAMED: Final = 3
"""Faults that a detail names; how many more there are it says."""


@dataclass(frozen=True, slots=True)
class Preview:
    """One document: what would become of it, and its data now and then."""

    document: str
    """`namespace/name`."""
    reason: Reason
    detail: str
    causes: tuple[Behind, ...] = ()
    """Faults and jobs behind it."""
    mode: Mode = Mode.ACT
    """In force for it: in another than act it stays as it is, whatever is shown here."""
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """Whether an agent that acts would change it."""
        return self.before != self.after

    def diff(self) -> list[str]:
        """Unified diff of every key that changes, JSON one value a line."""
        lines: list[str] = []
        for key in sorted({*self.before, *self.after}):
            names = (f"{self.document} {key}, {when}" for when in ("as it stands", "as it would be"))
            lines += unified(self.before.get(key), self.after.get(key), *names)
        return lines


@dataclass(frozen=True, slots=True)
class Layers:
    """The documents as they stand, and what would be laid over them."""

    real: DocumentStore
    upper: DocumentStore
    """Empty at first, in memory."""
    both: DocumentStore
    """Upper over real: where the preview writes."""


async def preview(
    book: ClusterBook,
    layers: Layers,
    namespace: str,
    wishes: Wishes,
    modes: Mapping[str, Mode],
    tracer: Tracer,
    now: Millis,
) -> list[Preview]:
    """Every document that would change, or would not for a reason; by place. `book` has reports and jobs, and acts.
    Where nobody acts yet, act mode begins now: what began before starts no recovery and no plan.

    `modes`: what is in force, by `vcjob`, `reschedule`, `reset` and `plan`. Raises Unavailable, Refused; Fenced when
    a ledger was written meanwhile.
    """
    told: list[Decision] = []

    async def flush() -> None:
        """Nothing is journalled."""

    coordinator = Coordinator(book, layers.both, Ledgers(layers.both, namespace), wishes, tracer, told.append, flush)
    await coordinator.start(now, await _term(layers.real, namespace, book.cluster_id))
    await coordinator.step(max(now, coordinator.latest()))
    drawn = {f"{one.namespace}/{one.name}": one for one in await layers.upper.list() if not _is_ledger(one.name)}
    about = {one.document: one for one in told if one.document and one.reason in _ABOUT}
    causes: dict[str, dict[Behind, None]] = {}
    for one in told:
        if one.document:
            causes.setdefault(one.document, {}).update(dict.fromkeys(one.causes))
    found = []
    about = _before_act(book, told) | about
    for place in sorted({*drawn, *about}):
        said = about.get(place)
        wanted = drawn.get(place)
        live = await _live(layers.real, place)
        before = live.data if live is not None else {}
        after = wanted.data if wanted is not None else before
        if wanted is not None and after == before:  # what is in it is right, and it does not say whose it is
            had = live.annotations if live is not None else {}
            marks = {key: value for key, value in wanted.annotations.items() if had.get(key) != value}
            after = {**after, **{f"annotation {key}": value for key, value in marks.items()}}
        found.append(
            Preview(
                place,
                said.reason if said is not None else Reason.WRITTEN,
                said.detail if said is not None else "",
                tuple(causes.get(place, ())),
                modes[_kind(place, wishes)],
                before,
                after,
            )
        )
    return found


def _before_act(book: ClusterBook, told: Sequence[Decision]) -> dict[str, Decision]:
    """For each document in which nothing is begun because act mode came after the faults: what is to be said of it."""
    faults: dict[str, list[Decision]] = {}
    for one in told:
        job = book.jobs.job(one.job)
        if one.reason is Reason.BEFORE_ACT and job is not None:
            on_link = one.fault.split("/")[1:2] == [Plane.NETWORK]
            place = f"{job.namespace}/{plan_name(config_name(job))}" if on_link else document_of(job)
            faults.setdefault(place, []).append(one)
    return {place: replace(ones[0], detail=_named(ones)) for place, ones in faults.items()}


def _named(ones: Sequence[Decision]) -> str:
    """The faults in words."""
    more = f" and {len(ones) - _NAMED} more" if len(ones) > _NAMED else ""
    refs = ", ".join(one.fault for one in ones[:_NAMED])
    return f"nothing is begun for what began before act mode: {refs}{more}"


async def _term(real: DocumentStore, namespace: str, cluster: str) -> int:
    """The term that the cluster's ledger has; another one would be a writer's, and this is none."""
    try:
        ledger = await real.get(namespace, CLUSTER_NAME)
        if ledger is None:
            return 0
        return decode_cluster_ledger(ledger.data.get(LEDGER_KEY, ""), cluster, f"{namespace}/{CLUSTER_NAME}").term
    except BadDocument:
        return 0  # told by who loads it


async def _live(real: DocumentStore, place: str) -> ConfigMap | None:
    namespace, _, name = place.partition("/")
    try:
        return await real.get(namespace, name)
    except BadDocument:
        return None  # its reason says so


def _is_ledger(name: str) -> bool:
    return name in (CLUSTER_NAME, RAILS_NAME) or name.startswith(JOB_PREFIX)


def _kind(place: str, wishes: Wishes) -> str:
    if place == f"{wishes.vcjob_namespace}/{VCJOB_NAME}":
        return "vcjob"
    if place == f"{wishes.reschedule_namespace}/{RESCHEDULE_NAME}":
        return "reschedule"
    return "reset" if place.partition("/")[2].startswith("reset-config-") else "plan"
