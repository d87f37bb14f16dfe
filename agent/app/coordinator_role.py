"""The coordinator role: both replicas keep their books warm, the one that holds the lease acts.

The one rule: nothing is written before every report of the start has been read, every list is complete, the ledgers
are loaded and this term is in the cluster's ledger; and nothing once the lease may have passed on.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from agent.app.coordinator_app import Coordinator
from agent.app.deputy import Deputy
from agent.app.ear import Ear
from agent.app.lastseen import LastSeen
from agent.app.node_app import unheard
from agent.app.policykeep import SHORT, PolicyKeep
from agent.app.remarks import Remarks
from agent.app.rollcall import RollCall
from agent.app.trouble import Trouble
from agent.app.world import World
from agent.domain.events import Decision, NodeReport
from agent.domain.reset import Writer
from agent.domain.vocab import HOUR, SECOND, Millis, NodeName, Reason
from agent.errors import AgentError, BadReport, Verdict
from agent.ports import DeadLetters, FaultSource, Journal, Now, ObjectFeed, ReportFeed
from agent.wire.audit import AuditLine, encode_audit
from agent.wire.report import decode

TOMBSTONE_AFTER = 24 * HOUR
"""A node whose object went so long ago (ms) has its report removed."""
BACK_OFF_S = 1.0
REFUSED_S = 10.0
"""Before asking again for what a service has refused."""
LISTEN_S = 1.0
"""How long the acting loop rests at most."""
AUDIT_PATIENCE = 10 * SECOND
"""A journal that takes nothing for so long (ms) holds up no recovery any more; reasons wait here."""
UNTOLD_LIMIT = 20_000
"""Reasons kept meanwhile; of more the oldest are let go of."""


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
    untold: int = 0
    """Reasons that were let go of because the journal took none for too long."""
    reasons: dict[str, int] = field(default_factory=dict)


Leave = Callable[[Millis, Callable[[Decision], None], Callable[[], Awaitable[None]]], Awaitable[None]]


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
    documents: LastSeen
    """Where the coordinator writes documents: told here of each change that is seen."""
    deputy: Deputy
    tombstone: Callable[[NodeName], Awaitable[None]]
    announce: Callable[[AuditLine], Awaitable[None]]
    now: Now
    mode: str
    policy: PolicyKeep
    meaning: Callable[[str], str]
    leave: Leave | None = None
    """Outside act mode: ends on the real documents what act mode had begun."""


class CoordinatorRole:
    """Reads always, acts while it leads."""

    def __init__(self, parts: CoordinatorParts, say: Callable[[str], None]) -> None:
        self._p = parts
        self._say = say
        self._reading, self._acting = Trouble(say), Trouble(say)
        self._lines: list[AuditLine] = []
        self._untold_since: Millis | None = None
        self._journal_again = Millis(0)
        self.ear = Ear(parts.events, parts.deputy, parts.coordinator, parts.letters, self.tell, say)
        self._waiting_since: dict[NodeName, Millis] = {}
        self.roll = RollCall()
        self.turns = 0
        """How often reports and objects have been read."""
        self.acted = 0
        """How often the leader's loop has come round, failures included."""
        self._remarks = Remarks(say)
        self._cut: set[NodeName] = set()
        """Nodes whose report has no room for all of their active faults."""
        self._completed = asyncio.Event()
        self.pulse = Pulse()

    def tell(self, decision: Decision) -> None:
        """Note a decision; it is journalled before the ledgers that make it final."""
        meaning = self._p.meaning(decision.fault) if decision.fault else ""
        self._lines.append(AuditLine(decision, self._p.mode, decision.policy or self._p.policy.short, meaning))

    async def flush_audit(self) -> None:
        """Journal and announce the reasons noted so far.

        Raises Unavailable; when that has gone on for AUDIT_PATIENCE it returns with the reasons kept, for recoveries
        wait for no journal.
        """
        if not self._lines or self._p.now() < self._journal_again:
            return
        lines, self._lines = self._lines, []
        try:
            await self._p.audit.append([encode_audit(line) for line in lines])
        except AgentError as error:
            self._keep(lines)
            now = self._p.now()
            since = self._untold_since = now if self._untold_since is None else self._untold_since
            if error.verdict is Verdict.STOP or now - since < AUDIT_PATIENCE:
                raise
            self._journal_again = Millis(now + AUDIT_PATIENCE)  # each try may take seconds
            return
        except BaseException:
            self._keep(lines)
            raise
        self._untold_since, self._journal_again = None, Millis(0)
        for line in lines:
            reason = str(line.decision.reason)
            self.pulse.reasons[reason] = self.pulse.reasons.get(reason, 0) + 1
            await self._p.announce(line)

    def _keep(self, lines: list[AuditLine]) -> None:
        kept = lines + self._lines
        self._lines = kept[-UNTOLD_LIMIT:]
        self.pulse.untold += len(kept) - len(self._lines)

    # --- always: keep the books warm -----------------------------------------------------------------------------

    async def follow(self, stop: asyncio.Event) -> None:
        """Read reports and objects for as long as the process lives."""
        p = self._p
        await p.objects.open()
        is_open = False
        try:
            while not stop.is_set():
                try:
                    if not is_open:
                        await p.feed.open()
                        is_open = True
                    await self._read()
                except AgentError as error:
                    # A right that is taken away for a while ends nothing; one that was never there does.
                    if error.verdict is Verdict.STOP or (error.verdict is Verdict.PARK and not self.pulse.complete):
                        raise
                    self._reading.tell(f"{error}; read again")
                    await _pause(stop, BACK_OFF_S)
                else:
                    self._reading.over()
                    await first_of(stop.wait(), p.feed.wait(LISTEN_S), p.objects.wait(LISTEN_S))
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
            self._remarks.touched(touched.jobs)
            version = str(of.get("resourceVersion", "")) if what == "set" else ""
            if kind == "ConfigMap" and p.documents.heard(namespace, name, version):
                p.coordinator.document_changed(namespace, name)
        self._tell_findings()
        fresh: dict[NodeName, NodeReport] = {}
        for node, data in (await p.feed.read()).items():
            report = self._report(node, data)
            if report is not None:
                self.roll.heard(node, p.now(), report.policy[:SHORT])
                known = p.coordinator.book.reports.get(node)
                if known is None or (known.epoch, known.seq) < (report.epoch, report.seq):
                    fresh[node] = p.deputy.spoke(node, report, p.now())
        p.coordinator.reports(fresh)
        self.pulse.reports += len(fresh)
        self.pulse.complete = p.feed.complete and p.objects.complete
        if self.pulse.complete:
            self._completed.set()

    def _report(self, node: NodeName, data: bytes | None) -> NodeReport | None:
        """A usable report. One that cannot be read, or of another cluster, leaves what was known as it is."""
        p, pulse = self._p, self.pulse
        if data is None:
            p.coordinator.buried(node)
            p.deputy.forget(node)
            pulse.unreadable.discard(node)
            pulse.foreign.discard(node)
            self.roll.forget(node)
            self._cut.discard(node)
            return None
        try:
            report = decode(data)
        except BadReport as error:
            if node not in pulse.unreadable:
                pulse.unreadable.add(node)
                p.deputy.frozen.add(node)
                self.tell(Decision(p.now(), Reason.DOCUMENT_UNREADABLE, node=node, detail=f"report: {error}"))
                p.coordinator.woken.set()
            return None
        pulse.unreadable.discard(node)
        if report.cluster != p.cluster:
            if node not in pulse.foreign:
                pulse.foreign.add(node)
                p.deputy.frozen.add(node)
                self._say(f"a report of {node} belongs to cluster {report.cluster!r} and is ignored; see kafka.prefix")
            return None
        pulse.foreign.discard(node)
        p.deputy.frozen.discard(node)
        if report.lost and node not in self._cut:
            self._say(unheard(report))
        (self._cut.add if report.lost else self._cut.discard)(node)
        # Until it has caught up a node does not know its own present: what was known of it stays.
        return report if report.caught_up else None

    def _tell_findings(self) -> None:
        """Objects that cannot be read or watched, each once; the list itself must not grow with each change of one."""
        world = self._p.world
        for finding in (*world.findings, *self._p.objects.findings()):
            self._remarks.tell(finding)
        world.findings.clear()

    def unknown_nodes(self) -> tuple[NodeName, ...]:
        """Nodes that have been silent for too long: what was written of them stays as it is."""
        return self.roll.unknown(self._p.now())

    @property
    def erasures(self) -> Mapping[Writer, int]:
        """How often each other writer has taken something of ours out of a document."""
        return self._p.coordinator.press.erasures

    @property
    def policy(self) -> str:
        """The short digest of this replica's own policy."""
        return self._p.policy.short

    @property
    def dropped(self) -> Mapping[str, int]:
        """`records` and `jobs` that job-reschedule-reason had no room for, since the start."""
        return self._p.coordinator.press.dropped

    @property
    def left_out(self) -> Mapping[str, int]:
        """What fault-node has no room for now: `devices`, `details` of nodes, `nodes`."""
        return self._p.coordinator.press.shown.left_out

    # --- while leading -------------------------------------------------------------------------------------------

    async def act(self, term: int) -> None:
        """Be the one that writes, until cancelled or fenced."""
        p = self._p
        self.pulse.leading, self.pulse.term = True, term
        try:
            await self._completed.wait()
            p.world.miss_nodes()
            await self._retry(self._leave)
            await self._retry(lambda: p.coordinator.start(p.now(), term))
            p.deputy.begin()
            while True:
                await self._retry(self._turn)
                await self._rest()
        finally:
            self.pulse.leading = False
            await self.ear.close()

    async def _retry(self, work: Callable[[], Awaitable[None]]) -> None:
        """Once more after a pause for as long as the world does not answer, or says no: a right may be given again,
        and another term would be refused the same. Everything else ends the term.
        """
        while True:
            self.acted += 1
            try:
                await work()
            except AgentError as error:
                if error.verdict is Verdict.STOP:
                    raise
                self._acting.tell(f"{error}; tried again")
                await asyncio.sleep(BACK_OFF_S if error.verdict is Verdict.RETRY else REFUSED_S)
            else:
                self._acting.over()
                return

    async def _leave(self) -> None:
        if self._p.leave is not None:
            await self._p.leave(self._p.now(), self.tell, self.flush_audit)

    async def _turn(self) -> None:
        """What nodes have reported comes first; then what no node's agent has told in time."""
        p, now = self._p, self._p.now()
        p.coordinator.book.policy = p.policy.policy
        unanswered: AgentError | None = None
        try:
            await p.coordinator.step(now)
        except AgentError as error:
            if error.verdict is Verdict.STOP:
                raise
            unanswered = error
        await self.ear.listen(now)
        if unanswered is not None:
            raise unanswered
        if not p.coordinator.idle:
            await p.coordinator.step(now)
        await self.flush_audit()
        await self._bury(now)
        self._remarks.judge(p.world.book.jobs)
        self.pulse.steps += 1

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
                    self._waiting_since[node] = now  # until the feed brings it back to us, nothing more to be done

    async def _rest(self) -> None:
        """Until something is due or may have come."""
        p, now = self._p, self._p.now()
        if not p.coordinator.idle:
            await asyncio.sleep(0)
            return
        deputy = p.deputy.next_deadline() if self.ear.hears(now) else None  # deaf, it decides nothing
        due = [at for at in (p.coordinator.next_deadline(), deputy) if at is not None]
        seconds = max(0.005, min([LISTEN_S, *((at - now) / SECOND for at in due)]))
        waits: list[Awaitable[object]] = [p.coordinator.woken.wait()]
        if self.ear.hears(now):
            waits.append(p.events.wait(seconds))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(first_of(*waits), seconds)
        p.coordinator.woken.clear()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def first_of(*waits: Awaitable[object]) -> None:
    """Return when one of the waits does; raises what it raises. The others are cancelled and waited for."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
