"""Leaving act mode: what was begun in documents of others is ended there before anything else is done.

The one rule: training that our entries stopped is told to start again, whatever the new mode; nothing new begins.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from agent.app.ledgers import Ledgers
from agent.app.press import Press, Wishes
from agent.app.publisher import Published
from agent.domain.cluster import ClusterBook, Verdict, evolve
from agent.domain.cluster import leave_act as decide_leaving
from agent.domain.events import Decision
from agent.domain.vocab import JobId, Millis, Mode, Reason
from agent.ports import DocumentStore

ROUNDS = 4
"""Writes that one job's recoveries may need to be out of the document."""


async def leave_act(
    warm: ClusterBook,
    store: DocumentStore,
    namespace: str,
    wishes: Wishes,
    now: Millis,
    tell: Callable[[Decision], None],
    flush: Callable[[], Awaitable[None]],
) -> None:
    """End every recovery that the ledgers of the real store still have. `warm` lends its jobs; it is not changed.

    Raises Unavailable, Fenced; a document that cannot be written is told and stays for the next start.
    """
    book = ClusterBook(warm.cluster_id, replace(warm.limits, reset_mode=Mode.ACT))
    book.jobs = warm.jobs
    ledgers = Ledgers(store, namespace)
    await ledgers.load(book, now, lambda _: None)
    if book.cluster.act_since is not None:
        # Acting anew begins anew: what happens in between is then from before it.
        evolve(book, Verdict(cluster=replace(book.cluster, act_since=None)))
        await ledgers.store(book)
    press = Press(book, store, ledgers, replace(wishes, mode=Mode.ACT))
    for job in sorted(job for job, ledger in book.ledgers.items() if ledger.courses):
        await end_recoveries(book, press, ledgers, job, now, tell, flush)


async def end_recoveries(
    book: ClusterBook,
    press: Press,
    ledgers: Ledgers,
    job: JobId,
    now: Millis,
    tell: Callable[[Decision], None],
    flush: Callable[[], Awaitable[None]],
) -> Published | None:
    """Take every entry that one job's ledger has out of its reset.json; what became of the document, None: there was
    nothing to end. Raises Unavailable, Fenced.
    """
    verdict = decide_leaving(book, job, now)
    evolve(book, verdict)
    for decision in verdict.decisions:
        tell(decision)
    await flush()
    for one, place, why in await ledgers.store(book):
        if one == job:  # what cannot be kept is not begun: the document stays as it is
            tell(Decision(now, Reason.DOCUMENT_REFUSED, job=job, detail=why, document=place))
            namespace, _, name = place.partition("/")
            return Published(namespace, name, Reason.DOCUMENT_REFUSED, why)
    last: Published | None = None
    for _ in range(ROUNDS):
        done, seen = await press.publish("reset", job, now)
        evolve(book, seen)
        await ledgers.store(book)
        if done is not None and done.reason is not Reason.UNCHANGED:
            tell(Decision(now, done.reason, job=job, detail=done.detail, document=done.place))
        evolve(book, decide_leaving(book, job, now))
        await ledgers.store(book)
        last = done or last
        ledger = book.ledgers.get(job)
        if ledger is None or not ledger.courses or done is None or done.reason is Reason.DOCUMENT_REFUSED:
            break
    await flush()
    return last
