"""Our writers on a store that others write to: the coordinator's own code, and a hand that moves between its calls.

The one rule: whatever the others do, each write of ours is looked at: what was not ours in the object that it replaced
must be in the object that it made.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from contracts.store import watching
from kubebuilders import DEMO_JOB, a_pod, the_demo
from readers import MsrunPod, TaskdManager
from rig import POLICY, T0, UTC, message
from rivals import Finish, Hand, a_map

from agent.adapters.otel import SilentTracer
from agent.app.abreast import WIDTH
from agent.app.bootstrap import limits_of, wishes_of
from agent.app.coordinator_app import Coordinator
from agent.app.lastseen import LastSeen
from agent.app.ledgers import Ledgers
from agent.app.node_app import NodeSide, Taken
from agent.app.settings import settings_from
from agent.app.world import World
from agent.domain.cluster import ClusterBook
from agent.domain.events import Decision, Position, Record
from agent.domain.vocab import Millis, Mode, NodeName, Reason
from agent.errors import Conflict, Unavailable
from agent.ports import ConfigMap, DocumentStore
from agent.wire.inbound import Limits as BorderLimits

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
RESET, VCJOB, RECORDS = (
    ("train", "reset-config-demo"),
    ("volcano-system", "vcjob-fault-npu-cm"),
    ("mindx-dl", "job-reschedule-reason"),
)
NAMESPACES = ("train", "volcano-system", "mindx-dl", "fault-agent")
OUR_KEYS = {
    RESET: ("reset.json", "checkCode", "restartType"),
    VCJOB: ("fault-node", "remain-retry-times"),
    RECORDS: ("recent-reschedule-records",),
}
MARKS = ("fault-agent/cluster", "fault-agent/fault-node")
"""Annotations of ours."""
FENCE = ("train", "fence")
TRIES = 50
Move = Callable[[], Awaitable[None]]


class Contended:
    """The store as our writers see it; `move` is called before each call reaches it. Our writes are looked at."""

    def __init__(self, inner: DocumentStore) -> None:
        self._inner = inner
        self._seen: dict[tuple[str, str, str], ConfigMap] = {}
        self.list = inner.list
        self.watch = inner.watch
        self.delete = inner.delete
        self.move: Move | None = None
        self.first: dict[tuple[str, str], Move] = {}
        """What happens once, right before a write of a document is sent."""
        self.writes: list[ConfigMap] = []
        """Ours, of the three documents."""
        self.lost: list[str] = []
        """What of others was in an object before a write of ours and not after it."""

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        await self._moves(namespace, name)
        live = await self._inner.get(namespace, name)
        if live is not None:
            self._note(live)
        return live

    async def put(self, document: ConfigMap) -> ConfigMap:
        await self._moves(document.namespace, document.name)
        if (document.namespace, document.name) in self.first:
            await self.first.pop((document.namespace, document.name))()
        stored = await self._inner.put(document)
        place = (document.namespace, document.name)
        if place in OUR_KEYS:
            before = self._seen.get((*place, document.resource_version))
            self.writes.append(stored)
            self.lost += lost_of_others(before, stored) if before is not None else []
        self._note(stored)
        return stored

    async def _moves(self, namespace: str, name: str) -> None:
        if self.move is not None and (namespace, name) in OUR_KEYS:
            await self.move()

    def _note(self, document: ConfigMap) -> None:
        self._seen[document.namespace, document.name, document.resource_version] = document


def lost_of_others(before: ConfigMap, after: ConfigMap) -> list[str]:
    """What a write of ours has taken from others; empty: nothing."""
    place = (before.namespace, before.name)
    ours = OUR_KEYS[place]
    told = []
    for what, one, other in (
        ("labels", before.labels, after.labels),
        ("annotations", _without(before.annotations, MARKS), _without(after.annotations, MARKS)),
        ("keys", _without(before.data, ours), _without(after.data, ours)),
        ("owners", before.extra.get("ownerReferences"), after.extra.get("ownerReferences")),
        ("binaryData", before.extra.get("binaryData"), after.extra.get("binaryData")),
        ("uid", before.uid, after.uid),
    ):
        if one != other:
            told.append(f"{what}: {one} became {other}")
    judge = {RESET: _lost_entries, VCJOB: _lost_retries, RECORDS: _lost_records}[place]
    with suppress(ValueError):  # what nobody could read has nothing to lose
        told += judge(before.data, after.data)
    return [f"{'/'.join(place)} {one}" for one in told]


def _without(found: Mapping[str, str], keys: Sequence[str]) -> dict[str, str]:
    return {key: value for key, value in found.items() if key not in keys}


def _lost_entries(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    was, is_now = (json.loads(data.get("reset.json", "{}")) for data in (before, after))
    theirs = [one for one in was.get("RankList") or [] if "RecoveryId" not in one]
    kept = is_now.get("RankList") or []
    told = [f"entry {one}" for one in theirs if one not in kept]
    for key, zero in (("FaultFlushing", False), ("GracefulExit", 0), ("RestartFaultProcess", False)):
        if was.get(key, zero) != is_now.get(key, zero):
            told.append(f"{key} {was.get(key)} became {is_now.get(key)}")
    if is_now["RetryTime"] < was.get("RetryTime", 0):
        told.append(f"RetryTime fell from {was['RetryTime']} to {is_now['RetryTime']}")
    return told


def _lost_retries(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    was, is_now = (json.loads(data.get("remain-retry-times") or "{}") for data in (before, after))
    return [f"retries of {job}" for job, one in was.items() if job != DEMO_JOB and one and is_now.get(job) != one]


def _lost_records(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    was, is_now = (json.loads(data.get("recent-reschedule-records") or "{}") for data in (before, after))
    return [f"records of {job}" for job, one in was.items() if job != DEMO_JOB and is_now.get(job) != one]


class Bench:
    """The coordinator's code in act mode over a store that a hand of others moves in; the test moves the clock.

    `async with` it. Its watch is the store's own, so what others do is heard as it is on a cluster.
    """

    def __init__(self, store: DocumentStore, hand: Hand, seed: int = 0, **settings: Any) -> None:
        given = {"cluster": {"id": "test"}, "mode": "act", "documents": {"reset_config": {"create": True}}}
        made = settings_from({**given, **settings}, "test")
        self.hand = hand
        self.chance = random.Random(seed)
        self.store = Contended(store)
        self.book = ClusterBook("test", limits_of(made, Mode.ACT))
        self.told: list[Decision] = []
        self.documents = LastSeen(self.store)
        self.coordinator = Coordinator(
            self.book,
            self.store,
            Ledgers(self.store, "fault-agent", WIDTH),
            replace(wishes_of(made, Mode.ACT, solo=False), zone=UTC),
            SilentTracer(),
            self.told.append,
            self._flush,
            self.documents,
            WIDTH,
        )
        self.world = World(self.book, remembers=False)
        self.side = NodeSide(POLICY, "test", "n1", BorderLimits(), Millis(900_000), SilentTracer())
        self.side.caught_up = True
        self.now = Millis(T0)
        self.pods = {"n1": MsrunPod((0, 1, 2, 3), node_rank=0), "n2": MsrunPod((4, 5, 6, 7))}
        self.taskd = TaskdManager()
        self.open_moves: list[Finish] = []
        self.moved_at = Millis(0)
        """When one of the others last wrote."""
        self._mounted: Mapping[str, str] = {}
        self._number = 0
        self._fences = 0
        self._fence_seen = 0
        self._heard = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def _flush(self) -> None:
        """Reasons are kept in `told`."""

    async def __aenter__(self) -> "Bench":
        self._task = asyncio.create_task(self._listen())
        await self._abreast()
        self.world.replace(the_demo(LABELS), [])
        await self._patiently(lambda: self.coordinator.start(self.now, 1))
        await self.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # --- what comes in

    async def _listen(self) -> None:
        async with watching(self.store) as changes:
            async for what, document in changes:
                self._hear(what, document)

    def _hear(self, what: str, document: ConfigMap) -> None:
        place = (document.namespace, document.name)
        if place == FENCE:
            self._fence_seen = int(document.data.get("n", "0"))
            self._heard.set()
            return
        version = document.resource_version if what == "set" else ""
        if self.documents.heard(*place, version):
            self.coordinator.document_changed(*place)
        if place == RESET:
            self._read(document if what == "set" else None)

    def _read(self, document: ConfigMap | None) -> None:
        """Some of the readers look at the version that has just come."""
        self._mounted = document.data if document is not None else {}
        for pod in self.pods.values():
            if self.chance.random() < 0.7:
                pod.poll(self._mounted.get("reset.json", ""), self._mounted.get("restartType", ""))
        self.taskd.poll(self._mounted.get("reset.json", ""))

    async def _abreast(self) -> None:
        """Until the watch has told all that was done before."""
        self._fences += 1
        fence = a_map(*FENCE, {"n": str(self._fences)})
        assert await self.hand.update(fence) or await self.hand.create(fence)
        assert self._task is not None
        while self._fence_seen < self._fences:
            self._heard.clear()
            heard = asyncio.create_task(self._heard.wait())
            await asyncio.wait([heard, self._task], return_when=asyncio.FIRST_COMPLETED)
            heard.cancel()
            assert not self._task.done(), "the watch has stopped telling"

    def event(self, code: str, assertion: str = "occur", device: int = 2) -> None:
        """A fault event of node n1 and the report that follows it."""
        self._number += 1
        value = message(code, node="n1", assertion=assertion, at=self.now, number=self._number, devices=(device,))
        place = Position(0, 0, self._number)
        self.side.claim(NodeName("n1"))
        self.side.take(Record(place, b"n1", json.dumps(value).encode(), (), self.now), self.now, Taken())
        self.coordinator.reports(self.side.reports())

    def replaced(self, name: str = "demo-0", node: str = "n3") -> None:
        """A pod of the job goes and comes again elsewhere."""
        for touched in (
            self.world.delete("Pod", "train", name),
            self.world.apply(a_pod(name, uid=f"uid-{self.now}", node=node, labels=LABELS)),
        ):
            self.coordinator.touched(touched.jobs, touched.nodes)

    # --- the clock

    async def step(self) -> None:
        """One turn of the leader."""
        await self._patiently(lambda: self.coordinator.step(self.now))

    async def _patiently(self, work: Callable[[], Awaitable[None]]) -> None:
        for _ in range(TRIES):
            try:
                await work()
            except (Conflict, Unavailable):
                continue
            return
        raise AssertionError(f"no turn in {TRIES} tries was answered")

    async def settle(self) -> None:
        """Nothing is left to be done at this moment, and all that was done has been heard."""
        for _ in range(TRIES):
            await self.step()
            await self._abreast()
            if self.coordinator.idle:
                return
        raise AssertionError("it does not settle")

    async def settle_somehow(self) -> None:
        """One turn, while others go on writing."""
        await self.step()
        await asyncio.sleep(0.02)

    async def wait(self, seconds: float) -> None:
        """The clock moves in steps of a second, a turn each, while others go on writing."""
        for _ in range(round(seconds)):
            self.now = Millis(self.now + 1000)
            await self.step()

    async def advance(self, seconds: float) -> None:
        """The clock moves; what falls due on the way is done when it is due. Readers look each second: none of them
        misses what stands while it moves.
        """
        await self.settle()
        end = Millis(self.now + round(seconds * 1000))
        while True:
            due = self.coordinator.next_deadline()
            if due is None or due > end:
                break
            self.readers_look()
            self.now = max(due, Millis(self.now + 1))
            await self.settle()
        self.readers_look()
        self.now = max(self.now, end)
        await self.settle()

    # --- what came of it

    async def live(self, place: tuple[str, str]) -> dict[str, Any] | None:
        """The object as it stands, raw."""
        return await self.hand.get(*place)

    async def data(self, place: tuple[str, str]) -> dict[str, str]:
        """Its data."""
        found = await self.live(place)
        return dict((found or {}).get("data") or {})

    def reasons(self, place: tuple[str, str]) -> list[Reason]:
        """Why the document was written or not, oldest first."""
        return [one.reason for one in self.told if one.document == "/".join(place)]

    def last(self, place: tuple[str, str]) -> Decision:
        """The newest word about the document."""
        return [one for one in self.told if one.document == "/".join(place)][-1]

    def readers_look(self) -> None:
        """Every reader looks often enough at what is mounted now."""
        text, restart_type = self._mounted.get("reset.json", ""), self._mounted.get("restartType", "")
        for _ in range(4):
            for pod in self.pods.values():
                pod.poll(text, restart_type)
            self.taskd.poll(text)
