"""Two coordinators want one NPU at the same instant, one of them perhaps a leader that was paused: exactly one gets it.

A store's test gives the fixture `arena`, which opens a fresh place for a round with two stores of the same objects,
each with a connection of its own. Each round is drawn from its seed.

Two jobs share the NPUs of four servers: `demo` has the even dies, `other` the odd ones. The even die of node n0 and
the odd die of node n1 fail; both borrows need NPU 0 of nodes n2 and n3.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from a3table import JOB, NODES, NOW, a3_table, fault, question

from agent.app.ledgers import Ledgers
from agent.domain.cluster import ClusterBook, Limits
from agent.domain.events import Decision
from agent.domain.rail import decide
from agent.domain.rail.case import CommMode, RailQuestion
from agent.domain.rail.life import HoldState, LifeSignal
from agent.domain.rail.reservations import RailLedger, Reservation, advance, plan_id, reserve
from agent.domain.rail.words import Borrow, Refuse
from agent.domain.ranktable import RankTable
from agent.domain.vocab import JobId, NodeName
from agent.errors import Fenced
from agent.ports import ConfigMap, DocumentStore
from agent.wire.railfile import LEDGER_KEY, LEDGER_NAME, decode_ledger, encode_ledger

Arena = Callable[[], AbstractAsyncContextManager[tuple[str, DocumentStore, DocumentStore]]]
"""Opens a place of its own for a round: its namespace, and two stores there."""

OTHER = JobId("train/other")
CLUSTER: Final = "contest"
BYSTANDER = Reservation(
    id="0123456789ab/n9/3",
    plan="0123456789ab",
    job=JobId("train/third"),
    job_uid="u-3",
    incarnation="i",
    node=NodeName("n9"),
    npu=3,
    die_from=6,
    die_to=7,
    rank=0,
    at=NOW,
    rule=28,
    reason="BORROW",
    state=HoldState.ADVISED,
    faulted=True,
)


def half(parity: int) -> RankTable:
    """The table of a job that has every server's dies of one parity."""

    def keep(document: dict[str, Any]) -> None:
        for number, server in enumerate(document["server_list"]):
            server["device"] = server["device"][parity::2]
            for index, item in enumerate(server["device"]):
                item["rank_id"] = str(2 * number + index)

    return a3_table(keep)


def asked(job: JobId, ledger: RailLedger | None) -> RailQuestion:
    """What that job's failed die is asked about."""
    parity = 0 if job == JOB else 1
    return question(
        fault(node=parity, device=parity),
        job=job,
        table=half(parity),
        comm_mode=CommMode.ROOTINFO,
        owners={(node, die): JOB if die % 2 == 0 else OTHER for node in NODES for die in range(4)},
        ledger=ledger,
    )


class Gated:
    """A DocumentStore whose writes wait at a gate: the process is paused in the middle of sending."""

    def __init__(self, inner: DocumentStore) -> None:
        self._inner = inner
        self.gate: asyncio.Event | asyncio.Barrier | None = None
        self.at_gate = asyncio.Event()
        self.get = inner.get
        self.list = inner.list
        self.watch = inner.watch
        self.delete = inner.delete

    async def put(self, document: ConfigMap) -> ConfigMap:
        if self.gate is not None:
            self.at_gate.set()
            await self.gate.wait()
        return await self._inner.put(document)


@dataclass
class Candidate:
    """A coordinator that leads, or believes so: its book, its ledgers, the job whose fault it answers."""

    job: JobId
    store: Gated
    namespace: str
    told: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.book = ClusterBook(CLUSTER, Limits())
        self.ledgers = Ledgers(self.store, self.namespace)

    async def load(self) -> None:
        await self.ledgers.load(self.book, NOW, self.told.append)

    def plan(self) -> Borrow | Refuse:
        """Decide on the ledger as it was read, and hold the plan's NPUs in the book."""
        answer = decide(asked(self.job, self.book.rails))
        if not isinstance(answer, Borrow):
            assert isinstance(answer, Refuse)
            return answer
        assert self.book.rails is not None
        held = reserve(self.book.rails, answer, job=self.job, job_uid="u", incarnation="first", now=NOW)
        assert isinstance(held, RailLedger)
        self.book.rails = held
        return answer

    async def keep(self) -> bool:
        """Write what is held; False: another writer was there first, and this one has to stop."""
        try:
            await self.ledgers.store(self.book)
        except Fenced:
            return False
        return True


async def write_at_once(both: Sequence[Candidate], chance: random.Random) -> list[bool]:
    """Each has its write in hand; they are sent together, or one is paused until the other is through."""
    how = chance.choice(("together", "together", "paused before", "paused while sending"))
    first, second = chance.sample(both, 2)
    if how == "together":
        barrier = asyncio.Barrier(2)
        for one in both:
            one.store.gate = barrier
        went = await asyncio.gather(*(one.keep() for one in (first, second)))
    elif how == "paused before":
        went = [await first.keep(), await second.keep()]
    else:
        paused = asyncio.Event()
        second.store.gate = paused
        sending = asyncio.ensure_future(second.keep())
        await second.store.at_gate.wait()
        through = await first.keep()
        paused.set()
        went = [through, await sending]
    by_job = {first.job: went[0], second.job: went[1]}
    for one in both:
        one.store.gate = None
    return [by_job[one.job] for one in both]


async def live(store: DocumentStore, namespace: str) -> RailLedger:
    document = await store.get(namespace, LEDGER_NAME)
    assert document is not None
    return decode_ledger(document.data[LEDGER_KEY], CLUSTER)  # refuses an NPU that is held twice


async def round_of(arena: Arena, seed: int) -> JobId:
    """One contest; gives the job that won it."""
    chance = random.Random(seed)
    async with arena() as (namespace, one, two):
        known = chance.random() < 0.5
        if known:
            text = encode_ledger(RailLedger((BYSTANDER,)), CLUSTER)
            await one.put(ConfigMap(namespace, LEDGER_NAME, {LEDGER_KEY: text}))
        both = [Candidate(JOB, Gated(one), namespace), Candidate(OTHER, Gated(two), namespace)]
        for candidate in chance.sample(both, 2):
            await candidate.load()
        plans = {candidate.job: candidate.plan() for candidate in both}
        assert all(isinstance(plan, Borrow) for plan in plans.values()), "each alone may borrow"

        went = await write_at_once(both, chance)

        assert sorted(went) == [False, True], "exactly one write went through"
        winner, loser = both if went[0] else reversed(both)
        wanted = {
            JOB: {("n0", 0), ("n2", 0), ("n3", 0)},
            OTHER: {("n1", 0), ("n2", 0), ("n3", 0)},
        }[winner.job]
        held = [entry for entry in (await live(one, namespace)).entries if entry.job != BYSTANDER.job]
        assert {(entry.node, entry.npu) for entry in held} == wanted, "all of its NPUs, and nothing of the other plan"
        assert len(held) == 3
        assert {(entry.job, entry.plan) for entry in held} == {
            (winner.job, plan_id(winner.job, "first", [held[0].events[0]]))
        }

        # The winner goes on; the other stops, reads anew as the next leader, and is refused by what it reads.
        assert winner.book.rails is not None
        winner.book.rails = advance(winner.book.rails, held[0].plan, LifeSignal.TOLD, now=NOW)
        assert await winner.keep()
        successor = Candidate(loser.job, loser.store, namespace)
        await successor.load()
        answer = successor.plan()
        assert isinstance(answer, Refuse)
        assert answer.code == "PEER_ALREADY_BORROWED"
        before = await live(two, namespace)
        assert await successor.keep()
        assert not await loser.keep(), "who was paused never gets through later"
        after = await live(one, namespace)
        assert after == before
        assert {str(entry.state) for entry in after.entries} == {"advised"}
        assert (BYSTANDER in after.entries) == known
        return winner.job


class RailContest:
    """Cases of the contest; `rounds` is how many are played, from seed 0."""

    rounds = 40

    async def test_exactly_one_of_two_coordinators_reserves_the_npu(self, arena: Arena) -> None:
        won = set()
        for seed in range(self.rounds):
            try:
                won.add(await round_of(arena, seed))
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
        assert won == {JOB, OTHER}, "either may win"
