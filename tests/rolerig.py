"""The cluster roles in memory, on a clock that only the test moves.

The one rule: the roles are the product's own; what stands for Kafka and the API server keeps the promises of the
ports, notes every durable write in order, and fails when a test says so.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson
from rig import POLICY, T0, UTC, message
from virtualtime import VirtualTime

from agent.adapters.memory import Failures, MemoryDocumentStore
from agent.adapters.otel import SilentTracer
from agent.adapters.overlay import OverlayStore
from agent.app.abreast import WIDTH
from agent.app.bootstrap import limits_of, wishes_of
from agent.app.coordinator_app import Coordinator
from agent.app.coordinator_role import CoordinatorParts, CoordinatorRole
from agent.app.deputy import Deputy
from agent.app.fencedstore import FencedStore
from agent.app.lastseen import LastSeen
from agent.app.ledgers import Ledgers
from agent.app.linkrounds import LinkRounds
from agent.app.node_app import NodeSide
from agent.app.node_role import NodeRole
from agent.app.nodeparts import NodeParts
from agent.app.policykeep import PolicyKeep
from agent.app.settings import settings_from
from agent.app.world import World
from agent.domain.cluster import ClusterBook
from agent.domain.events import NodeReport, Position, Record
from agent.domain.policy import Policy
from agent.domain.vocab import Millis, Mode, NodeName
from agent.errors import Unavailable
from agent.ports import Batch, ConfigMap, DocumentStore, LinkProbe
from agent.wire.audit import AuditLine, decode_all
from agent.wire.inbound import Limits as BorderLimits
from agent.wire.report import decode, encode

N1 = NodeName("n1")
CLUSTER = "test"


class Clock(VirtualTime):
    """Virtual time whose start is T0."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.set_by = 0
        """By how much the wall clock was set, ms; waiting goes on as before."""

    def wall(self) -> Millis:
        """Unix ms."""
        return Millis(T0 + round(self.now * 1000) + self.set_by)

    async def settle(self) -> None:
        """Let everything run that needs no time; a role takes more turns than a lease."""
        for _ in range(8):
            await super().settle()

    async def until(self, event: asyncio.Event, seconds: float) -> None:
        """Return when the event is set, or when that much virtual time has passed."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


@dataclass
class Bus:
    """What stands for the broker: the reports topic, letters, reasons, and in which order they were written."""

    clock: Clock
    line: list[tuple[NodeName, bytes | None]] = field(default_factory=list)
    letters: list[Record] = field(default_factory=list)
    reasons: list[bytes] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    news: list[asyncio.Event] = field(default_factory=list)

    def put(self, node: NodeName, data: bytes | None) -> None:
        """Append to the reports topic, as anybody might."""
        self.line.append((node, data))
        for event in self.news:
            event.set()

    def foreign(self, report: NodeReport) -> None:
        """A report that another agent writes."""
        self.put(report.node, encode(report))

    def reports(self, node: NodeName = N1) -> list[NodeReport]:
        """Every readable report of a node, oldest first."""
        return [decode(data) for name, data in self.line if name == node and data is not None and data[:1] == b"{"]

    def last(self, node: NodeName = N1) -> NodeReport:
        """The newest of them."""
        return self.reports(node)[-1]

    def lines(self) -> list[AuditLine]:
        """The reasons read back."""
        found, findings = decode_all(self.reasons, "audit")
        assert findings == []
        return found


class BusLog:
    """OwnReports on the bus. `between`: what happens after the log was read and before the next write."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.failures = Failures()
        self.between: list[Callable[[], None]] = []

    async def publish(self, reports: Mapping[NodeName, bytes]) -> None:
        self.failures.before()
        for node, data in reports.items():
            while self.between:
                self.between.pop(0)()
            self._bus.writes.append("report")
            self._bus.put(node, data)
        self.failures.after()

    async def last(self, node: NodeName, since: Millis) -> bytes | None:
        self.failures.before()
        del since
        return next((data for name, data in reversed(self._bus.line) if name == node), None)

    async def tombstone(self, node: NodeName) -> None:
        self.failures.before()
        self._bus.writes.append("tombstone")
        self._bus.put(node, None)


class BusFeed:
    """ReportFeed on the bus: each report of one node in turn from now on, or the newest of all from the beginning."""

    def __init__(self, bus: Bus, node: NodeName | None = None) -> None:
        self._bus = bus
        self._node = node
        self._next = 0
        self._opened_at = 0
        self._news = asyncio.Event()
        self.failures = Failures()
        self.is_open = False
        bus.news.append(self._news)

    async def open(self) -> None:
        self.failures.before()
        self.is_open = True
        self._opened_at = len(self._bus.line)
        self._next = self._opened_at if self._node is not None else 0

    @property
    def complete(self) -> bool:
        return self.is_open and self._next >= self._opened_at

    async def read(self) -> Mapping[NodeName, bytes | None]:
        self.failures.before()
        found: dict[NodeName, bytes | None] = {}
        while self._next < len(self._bus.line):
            node, data = self._bus.line[self._next]
            self._next += 1
            if self._node is None:
                found[node] = data
            elif node == self._node:
                return {node: data}
        self._news.clear()
        return found

    async def wait(self, seconds: float) -> None:
        if self._next >= len(self._bus.line):
            await self._bus.clock.until(self._news, seconds)

    async def close(self) -> None:
        self.is_open = False


class BusLetters:
    """DeadLetters on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.failures = Failures()
        self.is_away = False

    async def append(self, letters: Sequence[Record]) -> None:
        self.failures.before()
        if self.is_away:
            raise Unavailable("the letters' topic is away")
        self._bus.writes.append("letters")
        self._bus.letters.extend(letters)


class BusJournal:
    """Journal on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.failures = Failures()

    async def append(self, lines: Sequence[bytes]) -> None:
        self.failures.before()
        self._bus.writes.append("reasons")
        self._bus.reasons.extend(lines)

    async def read(self) -> Sequence[bytes]:
        return list(self._bus.reasons)


class Stream:
    """FaultSource over partitions, with the places of a role as its token."""

    finished = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: list[Record] = []
        self._places: dict[int, tuple[int, int]] = {}
        self.empty: dict[int, tuple[int, int]] = {}
        """Partitions that are read and hold nothing: generation and next offset."""
        self._news = asyncio.Event()
        self._number = 0
        self.failures = Failures()
        self.opened: list[bytes | None] = []
        self.given = 0
        """Records read so far."""

    def raw(self, value: bytes | None, *, key: bytes | None = b"n1", partition: int = 0, at: float = 0) -> Record:
        """A record with any value, `at` seconds after T0."""
        offset = sum(1 for one in self._records if one.position.partition == partition)
        record = Record(Position(0, partition, offset), key, value, (), Millis(T0 + round(at * 1000)))
        self._records.append(record)
        self._news.set()
        return record

    def fault(
        self,
        code: str,
        at: float = 0,
        *,
        node: str = "n1",
        device: int | None = 2,
        assertion: str = "occur",
        partition: int = 0,
        **given: Any,
    ) -> Record:
        """One fault event; `device` None: the whole node."""
        self._number += 1
        devices = () if device is None else (device,)
        when = T0 + round(at * 1000)
        value = message(code, node=node, assertion=assertion, at=when, number=self._number, devices=devices, **given)
        return self.raw(json.dumps(value).encode(), key=node.encode(), partition=partition, at=at)

    async def open(self, resume: bytes | None) -> None:
        self.failures.before()
        self.opened.append(resume)
        places = orjson.loads(resume) if resume is not None else {}
        self._places = {int(p): (place["generation"], place["offset"]) for p, place in places.items()}

    async def read(self, limit: int) -> Batch:
        self.failures.before()
        unread = [one for one in self._records if one.position.offset >= self._place(one.position.partition)]
        taken = unread[:limit]
        self.given += len(taken)
        for one in taken:
            self._places[one.position.partition] = (one.position.generation, one.position.offset + 1)
        at_end = len(taken) == len(unread)
        if at_end:
            self._news.clear()
        places = {
            str(p): {"generation": g, "offset": o, "digest": ""} for p, (g, o) in {**self.empty, **self._places}.items()
        }
        return Batch(tuple(taken), orjson.dumps(places), at_end)

    def _place(self, partition: int) -> int:
        return self._places.get(partition, (0, 0))[1]

    async def wait(self, seconds: float) -> None:
        if not self._news.is_set():
            await self._clock.until(self._news, seconds)

    async def close(self) -> None:
        """Nothing to let go of."""


class NodeRig:
    """One node role. `start` runs it; a second rig on the same bus and stream is the next or another agent."""

    def __init__(
        self,
        bus: Bus | None = None,
        stream: Stream | None = None,
        *,
        instance: str = "a",
        machine: str = "m1",
        policy: Policy = POLICY,
        links: LinkProbe | None = None,
    ) -> None:
        self.bus = bus or Bus(Clock())
        self.clock = self.bus.clock
        self.stream = stream or Stream(self.clock)
        self.log = BusLog(self.bus)
        self.letters = BusLetters(self.bus)
        self.audit = BusJournal(self.bus)
        self.feeds: list[BusFeed] = []
        self.said: list[str] = []
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.keep = PolicyKeep(policy)
        self.looking: asyncio.Task[None] | None = None
        self.rounds = (
            LinkRounds(links, (0, 1, 2), 20, self.clock.wall, self.said.append, self.clock.sleep) if links else None
        )

        def make_feed() -> BusFeed:
            self.feeds.append(BusFeed(self.bus, N1))
            return self.feeds[-1]

        def make_side() -> NodeSide:
            limits = BorderLimits(max_clock_skew=Millis(300_000))
            return NodeSide(
                self.keep.policy, CLUSTER, instance, limits, Millis(900_000), SilentTracer(), machine=machine
            )

        self.role = NodeRole(
            NodeParts(
                node=N1,
                cluster=CLUSTER,
                machine=machine,
                instance=instance,
                source=self.stream,
                reports=self.log,
                make_feed=make_feed,
                letters=self.letters,
                audit=self.audit,
                make_side=make_side,
                tracer=SilentTracer(),
                now=self.clock.wall,
                mode="act",
                policy=self.keep,
                meaning=lambda _: "",
                links=self.rounds,
            ),
            self.said.append,
        )

    async def start(self) -> "NodeRig":
        """Run it until it has nothing left to do at this moment."""
        if self.rounds is not None:
            self.looking = asyncio.create_task(self.rounds.follow())
        self.task = asyncio.create_task(self.role.run(self.stop))
        await self.clock.settle()
        return self

    async def up(self) -> "NodeRig":
        """Run it until it has caught up and said so."""
        await self.start()
        await self.clock.advance(0.3)
        assert self.bus.last().caught_up
        return self

    async def end(self) -> None:
        """Stop in order."""
        assert self.task is not None
        self.stop.set()
        await self.clock.advance(1.1)
        await self.task
        await self._look_no_more()

    async def kill(self) -> None:
        """Stop at once, with no last words."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self._look_no_more()

    async def _look_no_more(self) -> None:
        if self.looking is not None:
            self.looking.cancel()
            await asyncio.gather(self.looking, return_exceptions=True)


def a_report(node: str = "n1", epoch: int = 1, seq: int = 1, instance: str = "b", **given: Any) -> NodeReport:
    """A report of another agent, by default an empty one."""
    return NodeReport(given.pop("cluster", CLUSTER), NodeName(node), epoch, seq, instance, **given)


Change = tuple[Literal["set", "gone"], str, Mapping[str, Any]]


class Objects:
    """ObjectFeed that a test fills."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: list[Change] = []
        self._news = asyncio.Event()
        self.complete = True
        self.told: list[str] = []

    def set(self, item: Mapping[str, Any]) -> None:
        """An object as it is now."""
        self._pending.append(("set", str(item["kind"]), item))
        self._news.set()

    def gone(self, kind: str, namespace: str, name: str) -> None:
        """An object is no more."""
        self._pending.append(("gone", kind, {"kind": kind, "metadata": {"namespace": namespace, "name": name}}))
        self._news.set()

    async def open(self) -> None:
        """Nothing to begin."""

    def changes(self) -> Sequence[Change]:
        taken, self._pending = self._pending, []
        self._news.clear()
        return taken

    def findings(self) -> Sequence[str]:
        return self.told

    async def wait(self, seconds: float) -> None:
        await self._clock.until(self._news, seconds)

    async def close(self) -> None:
        """Nothing to let go of."""


class NotingStore:
    """A DocumentStore that notes each write on the bus, and tells the watcher as the API server would.

    `before`: called with each document before it is stored; may raise, or let others go first.
    """

    def __init__(self, inner: MemoryDocumentStore, bus: Bus, objects: Objects) -> None:
        self.inner = inner
        self._bus = bus
        self._objects = objects
        self.writes: list[ConfigMap] = []
        self.before: Callable[[ConfigMap], Awaitable[None]] | None = None

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        return await self.inner.get(namespace, name)

    async def put(self, document: ConfigMap) -> ConfigMap:
        if self.before is not None:
            await self.before(document)
        stored = await self.inner.put(document)
        self.writes.append(stored)
        self._bus.writes.append(stored.name)
        self._objects.set(
            {
                "kind": "ConfigMap",
                "metadata": {
                    "namespace": stored.namespace,
                    "name": stored.name,
                    "resourceVersion": stored.resource_version,
                },
                "data": {},
            }
        )
        return stored

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        self._bus.writes.append(f"-{name}")
        await self.inner.delete(namespace, name, resource_version)

    async def list(self) -> Sequence[ConfigMap]:
        return await self.inner.list()

    def watch(self) -> Any:
        return self.inner.watch()


class CoordinatorRig:
    """One coordinator role, following and (with `lead`) acting."""

    def __init__(
        self,
        bus: Bus | None = None,
        stream: Stream | None = None,
        *,
        store: MemoryDocumentStore | None = None,
        settings: Mapping[str, Any] | None = None,
        objects: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.bus = bus or Bus(Clock())
        self.clock = self.bus.clock
        self.stream = stream or Stream(self.clock)
        self.objects = Objects(self.clock)
        for item in objects:
            self.objects.set(item)
        given = {"cluster": {"id": CLUSTER}, "mode": "act", "documents": {"reset_config": {"create": True}}}
        made = settings_from({**given, **(settings or {})}, "test")
        mode = made.mode or Mode.OBSERVE
        self.feed = BusFeed(self.bus)
        self.log = BusLog(self.bus)
        self.letters = BusLetters(self.bus)
        self.audit = BusJournal(self.bus)
        self.memory = store or MemoryDocumentStore()
        self.real = NotingStore(self.memory, self.bus, self.objects)
        self.holds = True
        fenced = FencedStore(self.real, lambda: self.holds)
        self.store: DocumentStore = fenced if mode is Mode.ACT else OverlayStore(MemoryDocumentStore(), fenced)
        self.book = ClusterBook(CLUSTER, limits_of(made, mode))
        self.announced: list[AuditLine] = []
        self.said: list[str] = []
        self.stop = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        roles: list[CoordinatorRole] = []
        self.coordinator = Coordinator(
            self.book,
            self.store,
            Ledgers(self.store, made.namespace, WIDTH),
            replace(wishes_of(made, mode, solo=False), zone=UTC),
            SilentTracer(),
            lambda decision: roles[0].tell(decision),
            lambda: roles[0].flush_audit(),
            documents := LastSeen(self.store),
            WIDTH,
        )
        self.keep = PolicyKeep(POLICY)
        self.deputy = make_deputy(self.book, in_force=lambda: self.keep.policy)

        async def announce(line: AuditLine) -> None:
            self.announced.append(line)

        self.role = CoordinatorRole(
            CoordinatorParts(
                cluster=CLUSTER,
                feed=self.feed,
                objects=self.objects,
                events=self.stream,
                letters=self.letters,
                audit=self.audit,
                world=World(self.book, remembers=False),
                coordinator=self.coordinator,
                documents=documents,
                deputy=self.deputy,
                tombstone=self.log.tombstone,
                announce=announce,
                now=self.clock.wall,
                mode=mode,
                policy=self.keep,
                meaning=lambda _: "",
            ),
            self.said.append,
        )
        roles.append(self.role)

    def follow(self) -> None:
        """Begin to follow, as both replicas do."""
        self.tasks.append(asyncio.create_task(self.role.follow(self.stop)))

    async def lead(self, term: int = 1) -> "CoordinatorRig":
        """Follow and act, until there is nothing left to do at this moment."""
        if not self.tasks:
            self.follow()
        self.acting = asyncio.create_task(self.role.act(term))
        self.tasks.append(self.acting)
        await self.clock.settle()
        return self

    async def end(self) -> None:
        """Stop everything; errors of the acting task were looked at by the test."""
        self.stop.set()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def data(self, place: str) -> Mapping[str, str]:
        """A document's data as it stands, nothing when there is none."""
        namespace, _, name = place.partition("/")
        live = await self.memory.get(namespace, name)
        return {} if live is None else live.data

    async def fault_nodes(self) -> list[str]:
        """Names of the nodes in fault-node, as it stands."""
        text = (await self.data("volcano-system/vcjob-fault-npu-cm")).get("fault-node") or "[]"
        return [entry["NodeName"] for entry in json.loads(text)]

    def reasons(self) -> list[str]:
        """Reasons journalled, oldest first."""
        return [str(line.decision.reason) for line in self.bus.lines()]


def make_deputy(book: ClusterBook, count: int = 1, in_force: Callable[[], Policy] | None = None) -> Deputy:
    """A deputy over a book's reports; keys go to partition 0 of `count`, unless the node is named `n<k>` with k > 9."""

    def partitions(key: bytes) -> frozenset[int]:
        return frozenset({0 if len(key) < 3 else int(key[1:]) % count})

    def make_side() -> NodeSide:
        limits = BorderLimits(max_clock_skew=Millis(300_000))
        return NodeSide(POLICY, CLUSTER, "deputy", limits, Millis(900_000), SilentTracer())

    return Deputy(make_side, book.reports, lambda node: book.jobs.node(node) is not None, partitions, in_force)


async def quiet(task: asyncio.Task[None]) -> BaseException | None:
    """What ended a task, waited for."""
    await asyncio.wait([task])
    return None if task.cancelled() else task.exception()
