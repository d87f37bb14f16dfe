"""Letting go: what this agent has in documents of others is ended, or handed over to who writes there next.

The one rule: nothing that a reader waits for is taken away. Entries that stop workers leave as they do when act mode
is left; what others are judged by (remaining retries, records, faulty nodes) stays as it stands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from agent.app import documents as docs
from agent.app.leaving import end_recoveries
from agent.app.ledgers import Ledgers
from agent.app.press import Press, Wishes
from agent.app.publisher import Published, claimed_by_other, let_go
from agent.domain.cluster import ClusterBook, Verdict, adopt, evolve
from agent.domain.events import Decision
from agent.domain.jobs import config_name
from agent.domain.vocab import JobId, Millis, Mode, Reason
from agent.errors import BadDocument, BadUsage, CannotRun, Fenced
from agent.ports import DocumentStore
from agent.wire.resetfile import RESET_JSON, decode_reset

OPEN: Final = frozenset(
    {Reason.DOCUMENT_REFUSED, Reason.DOCUMENT_UNREADABLE, Reason.LEDGER_UNREADABLE, Reason.FOREIGN_WRITER_LIVE}
)
"""Answers after which entries of ours may still stand there."""
_STAYS: Final = {
    docs.VCJOB_NAME: "fault-node and remain-retry-times stay as they stand: a waiting job that is not in the map fails",
    docs.RESCHEDULE_NAME: "its records stay as they stand: the next writer goes on from their totals",
}
_NOTHING: Final = "no entry and no mark of this agent that would have to go"
_KNOWN: Final = 8
"""Names that are shown to somebody who asked for another."""


@dataclass(frozen=True, slots=True)
class Released:
    """What became of one document, or in a dry run would."""

    document: str
    """`namespace/name`."""
    reason: Reason
    detail: str = ""
    changed: bool = False
    job: JobId = JobId("")


def is_job(job: str, asked: str) -> bool:
    """Whether a person means this job by what is typed: `train/demo` or `demo`. The PodGroup of an AscendJob carries
    the job's UID behind its name, which nobody types.
    """
    short = job.partition("/")[2]
    return asked in (job, short) or any(name.startswith(f"{asked}-") for name in (job, short))


def jobs_named(book: ClusterBook, names: Iterable[str]) -> frozenset[JobId]:
    """The jobs of these names: the PodGroup's or the job's own, with its namespace, or without where only one namespace
    has it. Raises BadUsage for a name that no PodGroup and no ledger has, or that several namespaces have.
    """
    found: dict[str, set[JobId]] = {}
    for id_ in (*book.ledgers, *book.frozen):
        found.setdefault(id_, set()).add(id_)
    for job in book.jobs.jobs():
        for name in (job.id, f"{job.namespace}/{config_name(job)}"):
            found.setdefault(name, set()).add(job.id)
    bare: dict[str, set[str]] = {}
    for name in found:
        bare.setdefault(name.partition("/")[2], set()).add(name)
    asked = []
    for name in names:
        whole = [name] if name in found else sorted(bare.get(name, {name}))
        if len(whole) > 1:
            raise BadUsage(f"job {name} is in several namespaces", hint=f"one of {', '.join(whole[:_KNOWN])}")
        asked += whole
    unknown = [name for name in asked if name not in found]
    if unknown:
        gone = {id_ for id_ in (*book.ledgers, *book.frozen) if book.jobs.job(id_) is None}
        each = sorted(gone.union(f"{job.namespace}/{config_name(job)}" for job in book.jobs.jobs()))
        known = ", ".join(each[:_KNOWN]) or "none"
        raise BadUsage(f"no job {', '.join(unknown)} is known here", hint=f"known: {known}")
    return frozenset(id_ for name in asked for id_ in found[name])


@dataclass(frozen=True, slots=True)
class Letting:
    """Where to let go, and who is told."""

    store: DocumentStore
    namespace: str
    """Of the ledgers that belong to no job."""
    wishes: Wishes
    tell: Callable[[Decision], None]
    flush: Callable[[], Awaitable[None]]
    """Makes what was told durable; called before each ledger."""


async def release(
    letting: Letting, warm: ClusterBook, names: Collection[str] | None, now: Millis, term: int | None = None
) -> list[Released]:
    """Let go of the documents of these jobs; `names` None: of every job, and of the shared documents.

    `warm` lends its jobs and is not changed. `term`: of the lease that is held; None where there is none. Doing it
    again changes nothing. Raises BadUsage, Unavailable, Fenced; a document that cannot be written is an answer.
    """
    book = ClusterBook(warm.cluster_id, replace(warm.limits, reset_mode=Mode.ACT))
    book.jobs = warm.jobs
    ledgers = Ledgers(letting.store, letting.namespace)
    unread: dict[str, Decision] = {}
    await ledgers.load(book, now, lambda one: unread.update({one.document: one}))
    jobs = None if names is None else jobs_named(book, names)
    if term is not None and book.cluster.term > term:
        raise Fenced(f"term {book.cluster.term} has written already, this is term {term}")
    cluster = replace(book.cluster, term=book.cluster.term if term is None else term)
    if jobs is None:
        # Acting anew begins anew: what happens in between is then from before it.
        cluster = replace(cluster, act_since=None)
    evolve(book, Verdict(cluster=cluster))
    refused = await ledgers.store(book)
    press = Press(book, letting.store, ledgers, replace(letting.wishes, mode=Mode.ACT))
    known = {*book.ledgers, *(job.id for job in book.jobs.jobs())}
    of_chosen = {ledgers.place_of(job) for job in jobs or ()}
    done = [
        Released(place, one.reason, one.detail) for place, one in unread.items() if jobs is None or place in of_chosen
    ]
    done += [Released(place, Reason.DOCUMENT_REFUSED, why) for _, place, why in refused]
    for job in sorted((known if jobs is None else jobs) - book.frozen):
        done += await _of_job(letting, book, press, ledgers, job, now)
    if jobs is None:
        wishes = letting.wishes
        for namespace, name in (
            (wishes.vcjob_namespace, docs.VCJOB_NAME),
            (wishes.reschedule_namespace, docs.RESCHEDULE_NAME),
        ):
            done.append(_released(await let_go(letting.store, namespace, name, book.cluster_id)))
    await letting.flush()
    return done


async def _of_job(
    letting: Letting, book: ClusterBook, press: Press, ledgers: Ledgers, job: JobId, now: Millis
) -> list[Released]:
    """End the job's recoveries, entries that no ledger knows included; then nobody's claim is on its document."""
    namespace, name = press.reset_name(job)
    if not name:
        return []
    with suppress(BadDocument):  # told when it is to be written
        live = await letting.store.get(namespace, name)
        if live is not None and not claimed_by_other(live, book.cluster_id):
            verdict = adopt(book, job, decode_reset(live.data.get(RESET_JSON, "") or "{}"), now)
            evolve(book, verdict)
            for decision in verdict.decisions:
                letting.tell(decision)
    ended = None
    if (ledger := book.ledgers.get(job)) is not None and ledger.courses:
        ended = await end_recoveries(book, press, ledgers, job, now, letting.tell, letting.flush)
    if ended is not None and ended.reason in OPEN:
        return [_released(ended, job)]
    freed = await let_go(letting.store, namespace, name, book.cluster_id)
    if ended is not None:
        return [_released(ended, job)]
    return [_released(freed, job)] if freed.live is not None or freed.reason in OPEN else []


def _released(done: Published, job: JobId = JobId("")) -> Released:
    detail = done.detail
    if done.reason is Reason.UNCHANGED:
        detail = _NOTHING
    elif done.changed and not job:
        detail = f"handed over; {_STAYS[done.name]}"
    elif done.changed and not detail:
        detail = "no entry of ours stands in it; handed over"
    return Released(done.place, done.reason, detail, done.changed, job)


async def while_leading(
    lead: Callable[[Callable[[int], Awaitable[None]]], Awaitable[None]],
    work: Callable[[int], Awaitable[None]],
    wait: Callable[[asyncio.Event], Awaitable[bool]],
    holder: Callable[[], str],
) -> None:
    """Do `work(term)` under the lease, or not at all: `lead` runs it once the lease is ours.

    `wait` returns whether the event came in time: longer than a dead leader's lease lasts. `holder` names who leads.
    Raises CannotRun while a coordinator leads, and what `work` raises.
    """
    begun = asyncio.Event()

    async def begin(term: int) -> None:
        begun.set()
        await work(term)

    leading = asyncio.ensure_future(lead(begin))
    waiting = asyncio.ensure_future(wait(begun))
    try:
        await asyncio.wait({leading, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not begun.is_set() and not leading.done():
            raise CannotRun(
                f"a coordinator leads: {holder()}",
                hint="set its mode to observe and let it start again, which ends its entries too; or scale it to 0",
            )
        await leading
    finally:
        for task in (waiting, leading):
            task.cancel()
        await asyncio.gather(waiting, leading, return_exceptions=True)
