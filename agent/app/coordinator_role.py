"""The coordinator role: both replicas keep their books warm, the one that holds the lease acts.

The one rule: nothing is written before every report of the start has been read, every list is complete, the ledgers
are loaded and this term is in the cluster's ledger; and nothing once the lease may have passed on.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import orjson

from agent.app.coordinator_app import Coordinator
from agent.app.deputy import Deputy, told_by_deputy
from agent.app.world import World
from agent.domain.events import Decision, NodeReport, Record
from agent.domain.vocab import HOUR, SECOND, Millis, NodeName, Reason
from agent.errors import AgentError, BadReport, Fenced, Verdict
from agent.ports import ConfigMap, DeadLetters, DocumentStore, FaultSource, Journal, Now, ObjectFeed, ReportFeed
from agent.wire.audit import AuditLine, encode_audit
from agent.wire.report import decode

READ_LIMIT = 2000
TOMBSTONE_AFTER = 24 * HOUR
"""A node whose object went so long ago (ms) has its report removed."""
UNKNOWN_AFTER = 180 * SECOND
"""A node that has not reported for so long (ms) is unknown: what was written of it stays as it is."""
BACK_OFF_S = 1.0


@dataclass(slots=True)
class Pulse:
    """What liveness, readiness and metrics are told by."""

    leading: bool = False
    term: int = 0
    complete: bool = False
    reports: int = 0
    unreadable: set[NodeName] = field(default_factory=set)
    foreign: set[NodeName] = field(default_factory=set)
    steps: int = 0
    letters: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """Everything the role is made of."""

    cluster: str
    feed: ReportFeed
    objects: ObjectFeed
    events: FaultSource
    letters: DeadLetters
    audit: Journal
    world: World
    coordinator: Coordinator
    deputy: Deputy
    tombstone: Callable[[NodeName], Awaitable[None]]
    announce: Callable[[AuditLine], Awaitable[None]]
    now: Now
    mode: str
    policy: str
    meaning: Callable[[str], str]


class FencedStore:
    """A DocumentStore that writes only while the lease is surely ours."""

    def __init__(self, store: DocumentStore, leading: Callable[[], bool]) -> None:
        self._store = store
        self._leading = leading
        self.get = store.get
        self.list = store.list
        self.watch = store.watch

    async def put(self, document: ConfigMap) -> ConfigMap:
        """Raises Fenced instead of sending when the lease may have passed on."""
        self._check(document.namespace, document.name)
        return await self._store.put(document)

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        """As put."""
        self._check(namespace, name)
        await self._store.delete(namespace, name, resource_version)

    def _check(self, namespace: str, name: str) -> None:
        if not self._leading():
            raise Fenced(f"{namespace}/{name} is not written: the lease may have passed on")


class CoordinatorRole:
    """Reads always, acts while it leads."""

    def __init__(self, parts: CoordinatorParts, say: Callable[[str], None]) -> None:
        self._p = parts
        self._say = say
        self._lines: list[AuditLine] = []
        self._waiting_since: dict[NodeName, Millis] = {}
        self._heard_at: dict[NodeName, Millis] = {}
        self.listening = False
        """The event stream is open: this replica stands in for silent nodes."""
        self.turns = 0
        """How often either loop has come round."""
        self._completed = asyncio.Event()
        self.pulse = Pulse()

    def tell(self, decision: Decision) -> None:
        """Note a decision; it is journalled before the ledgers that make it final."""
        meaning = self._p.meaning(decision.fault) if decision.fault else ""
        self._lines.append(AuditLine(decision, self._p.mode, self._p.policy, meaning))

    async def flush_audit(self) -> None:
        """Journal and announce the reasons noted so far."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            await self._p.audit.append([encode_audit(line) for line in lines])
        except AgentError:
            self._lines = lines + self._lines
            raise
        for line in lines:
            reason = str(line.decision.reason)
            self.pulse.reasons[reason] = self.pulse.reasons.get(reason, 0) + 1
            await self._p.announce(line)

    # --- always: keep the books warm -----------------------------------------------------------------------------

    async def follow(self, stop: asyncio.Event) -> None:
        """Read reports and objects for as long as the process lives."""
        p = self._p
        await p.feed.open()
        await p.objects.open()
        try:
            while not stop.is_set():
                try:
                    await self._read()
                except AgentError as error:
                    if error.verdict is not Verdict.RETRY:
                        raise
                    self._say(f"{error}; read again")
                    await _pause(stop, BACK_OFF_S)
                await _first_of(stop, p.feed.wait(SECOND / 1000), p.objects.wait(SECOND / 1000))
        finally:
            await p.feed.close()
            await p.objects.close()

    async def _read(self) -> None:
        p = self._p
        self.turns += 1
        for what, kind, item in p.objects.changes():
            meta = item.get("metadata")
            of = meta if isinstance(meta, Mapping) else {}
            namespace, name = str(of.get("namespace", "")), str(of.get("name", ""))
            touched = p.world.apply(item) if what == "set" else p.world.delete(kind, namespace, name)
            p.coordinator.touched(touched.jobs, touched.nodes)
            if kind == "ConfigMap":
                p.coordinator.document_changed(namespace, name)
        fresh: dict[NodeName, NodeReport] = {}
        for node, data in (await p.feed.read()).items():
            report = self._report(node, data)
            if report is not None:
                fresh[node] = report
                self._heard_at[node] = p.now()
                p.deputy.forget(node)
        p.coordinator.reports(fresh)
        self.pulse.reports += len(fresh)
        self.pulse.complete = p.feed.complete and p.objects.complete
        if self.pulse.complete:
            self._completed.set()

    def _report(self, node: NodeName, data: bytes | None) -> NodeReport | None:
        """A usable report. One that cannot be read, or of another cluster, leaves what was known as it is."""
        if data is None:
            self._p.coordinator.book.reports.pop(node, None)
            return None
        try:
            report = decode(data)
        except BadReport as error:
            if node not in self.pulse.unreadable:
                self.pulse.unreadable.add(node)
                self.tell(Decision(self._p.now(), Reason.DOCUMENT_UNREADABLE, node=node, detail=f"report: {error}"))
            return None
        self.pulse.unreadable.discard(node)
        if report.cluster != self._p.cluster:
            if node not in self.pulse.foreign:
                self.pulse.foreign.add(node)
                self._say(f"a report of {node} belongs to cluster {report.cluster!r} and is ignored; see kafka.prefix")
            return None
        # Until it has caught up a node does not know its own present: what was known of it stays.
        return report if report.caught_up else None

    def unknown_nodes(self) -> tuple[NodeName, ...]:
        """Nodes that have not reported for UNKNOWN_AFTER."""
        now = self._p.now()
        return tuple(node for node, at in self._heard_at.items() if now - at > UNKNOWN_AFTER)

    # --- while leading -------------------------------------------------------------------------------------------

    async def act(self, term: int) -> None:
        """Be the one that writes, until cancelled or fenced."""
        p = self._p
        self.pulse.leading, self.pulse.term = True, term
        try:
            await self._completed.wait()
            await self._retry(lambda: p.coordinator.start(p.now(), term))
            await self._retry(lambda: p.events.open(self._resume()))
            self.listening = True
            while True:
                await self._retry(self._turn)
                await self._rest()
        finally:
            self.pulse.leading = self.listening = False
            await p.events.close()

    async def _retry(self, work: Callable[[], Awaitable[None]]) -> None:
        """Once more after a pause for as long as the world does not answer; everything else ends the term."""
        while True:
            try:
                await work()
            except AgentError as error:
                if error.verdict is not Verdict.RETRY:
                    raise
                self._say(f"{error}; tried again")
                await asyncio.sleep(BACK_OFF_S)
            else:
                return

    async def _turn(self) -> None:
        p, now = self._p, self._p.now()
        await self._listen(now)
        await p.coordinator.step(now)
        await self.flush_audit()
        await self._bury(now)
        self.pulse.steps += 1

    async def _listen(self, now: Millis) -> None:
        """Hear the event stream, and decide what no node's agent has reported in time."""
        p = self._p
        batch = await p.events.read(READ_LIMIT)
        for notice in batch.notices:
            self._say(notice)
        p.deputy.hear((item for item in batch.items if isinstance(item, Record)), now)
        heard = p.deputy.due(now)
        if heard.taken.letters:
            await p.letters.append(heard.taken.letters)
            self.pulse.letters += len(heard.taken.letters)
        for decision in heard.taken.decisions:
            self.tell(told_by_deputy(decision))
        for node, report in heard.reports.items():
            p.coordinator.stand_in(node, report)

    def _resume(self) -> bytes | None:
        """Where the deputy begins: per partition, the earliest place that some node's report has not passed."""
        places: dict[int, tuple[int, int, str, int]] = {}
        for report in self._p.coordinator.book.reports.values():
            for partition, at in report.scanned.items():
                place = (at.generation, at.offset, at.digest, at.time)
                known = places.get(partition)
                if known is None or (place[0] > known[0]) or (place[0] == known[0] and place[1] < known[1]):
                    places[partition] = place
        if not places:
            return None
        return orjson.dumps(
            {
                str(partition): {"generation": place[0], "offset": place[1], "digest": place[2], "time": place[3]}
                for partition, place in sorted(places.items())
            }
        )

    async def _bury(self, now: Millis) -> None:
        """Remove reports of nodes that went a day ago."""
        book = self._p.coordinator.book
        known = {node.name for node in book.jobs.nodes()}
        for node in [one for one in self._waiting_since if one in known or one not in book.reports]:
            del self._waiting_since[node]
        if not known:
            return  # no Node objects are seen at all: nothing can be said to be gone
        for node in book.reports:
            if node not in known:
                since = self._waiting_since.setdefault(node, now)
                if now - since > TOMBSTONE_AFTER:
                    await self._p.tombstone(node)

    async def _rest(self) -> None:
        """Until something is due or may have come."""
        p, now = self._p, self._p.now()
        due = [at for at in (p.coordinator.next_deadline(), p.deputy.next_deadline()) if at is not None]
        seconds = max(0.0, min([0.2, *((at - now) / SECOND for at in due)]))
        if p.coordinator.idle:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(p.coordinator.woken.wait(), max(seconds, 0.005))
            p.coordinator.woken.clear()
        else:
            await asyncio.sleep(0)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def _first_of(stop: asyncio.Event, *waits: Awaitable[None]) -> None:
    """Return when one of the waits does, or when told to stop."""
    tasks: list[asyncio.Future[object]] = [asyncio.ensure_future(stop.wait())]
    tasks += [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
