"""Both roles in one process: records from a file, objects from files, documents into a folder.

The one rule: dead letters, then reasons, then reports, then the place in the stream, then documents; so a kill
between any two of them loses nothing and counts nothing twice.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.app.coordinator_app import Coordinator
from agent.app.itemtime import time_of
from agent.app.keep import CABINET, Kept, cannot_go_on, kept_bytes, kept_of, report_of
from agent.app.node_app import NodeSide, Taken, encode_reports, unheard
from agent.app.policykeep import PolicyKeep
from agent.app.saidbefore import SaidBefore
from agent.app.world import World
from agent.domain.events import Decision, NodeReport, Position, Record
from agent.domain.vocab import SECOND, Millis, NodeName, span_text
from agent.errors import AgentError, BadDocument, CannotRun, Verdict
from agent.ports import Cabinet, Control, DeadLetters, FaultSource, JobView, Journal, Now, ReportLog
from agent.wire.audit import AuditLine
from agent.wire.controls import check_object, gone_of, probe_of

READ_LIMIT = 2000
"""Items read at once; they are checkpointed together."""
LOOK_AGAIN_S = 0.5
"""How often a long-lived run looks at the cluster's files when nothing else wakes it."""
TRY_AGAIN_S = 0.25
"""How long a run waits after something did not answer."""
STREAM = "stream"
OBJECTS = "objects"


Leave = Callable[[Millis, Callable[[Decision], None], Callable[[], Awaitable[None]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything a solo run is made of."""

    source: FaultSource
    cluster: JobView
    reports: ReportLog
    cabinet: Cabinet
    letters: DeadLetters
    audit: Journal
    node_side: NodeSide
    world: World
    coordinator: Coordinator
    apply_config_map: Callable[[Mapping[str, Any]], Awaitable[None]]
    delete_config_map: Callable[[str, str], Awaitable[None]]
    mode: str
    policy: PolicyKeep
    meaning: Callable[[str], str]
    """Fault reference -> what its code means, where known."""
    leave: Leave | None = None
    """Outside act mode: ends on the real documents what act mode had begun."""


@dataclass(slots=True)
class Tally:
    """What went by, for the closing line."""

    records: int = 0
    controls: int = 0
    """Lines that are no record: objects that came or went, probes, ticks."""
    letters: int = 0
    decisions: int = 0


class Solo:
    """Drives the parts; `told` is called with each audit line as it is made durable."""

    def __init__(self, parts: Parts, told: Callable[[AuditLine], None], say: Callable[[str], None]) -> None:
        self._p = parts
        self._told = told
        self._say = say
        self._lines: list[AuditLine] = []
        self._taken = Taken()
        self._reports: dict[NodeName, NodeReport] = {}
        self._resume: bytes = b""
        self._saved: bytes = b""
        self._objects_changed = False
        self._laid_to: Position | None = None
        """The last apply or delete that was taken; one that is read again after a kill has had its effect."""
        self._before = SaidBefore(parts.audit, parts.cabinet)
        self._started = False
        self.clock = Millis(0)
        self.tally = Tally()

    def tell(self, decision: Decision) -> None:
        """Note a decision; it is journalled with the next checkpoint."""
        meaning = self._p.meaning(decision.fault) if decision.fault else ""
        self._lines.append(AuditLine(decision, self._p.mode, decision.policy or self._p.policy.short, meaning))

    # --- start and checkpoint ------------------------------------------------------------------------------------

    async def _restore(self, *, stream: bool) -> None:
        """Go on from what an earlier run left in the folder."""
        for node, data in (await self._p.reports.latest()).items():
            report = report_of(node, data)
            self._check(report)
            if report.lost:
                self._say(unheard(report))
            self._p.node_side.restore(report)
            self.clock = max(self.clock, report.clock)
            self._p.coordinator.book.reports[node] = report
        laid = await self._p.cabinet.load(OBJECTS)
        if laid is not None:
            kept = kept_of(laid, f"{CABINET}{OBJECTS}")
            self._p.world.lay(kept.laid)
            self._laid_to = kept.to
            self.clock = max(self.clock, kept.clock)
        await self._before.read()
        token = await self._p.cabinet.load(STREAM) if stream else None
        try:
            await self._p.source.open(token)
        except BadDocument as error:
            raise cannot_go_on(f"{CABINET}{STREAM}", error.reason) from error
        await self._read_cluster()

    def _check(self, report: NodeReport) -> None:
        if report.cluster != (mine := self._p.coordinator.book.cluster_id):
            raise CannotRun(
                f"the state of node {report.node} belongs to cluster {report.cluster!r}, this agent to {mine!r}",
                hint="give each cluster.id an --out folder of its own",
            )

    async def _read_cluster(self) -> None:
        objects, findings = await self._p.cluster.snapshot()
        for finding in findings:
            if finding not in self._p.world.findings:
                self._say(f"finding: {finding}")
        touched = self._p.world.replace(objects, findings)
        self._p.coordinator.touched(touched.jobs, touched.nodes)
        self._p.node_side.serials = self._p.world.serials

    async def _start(self, now: Millis) -> None:
        """The coordinator begins once the clock is known and the picture is whole."""
        self.clock = max(self.clock, now)
        if self._p.leave is not None:
            await self._p.leave(self.clock, self.tell, self.flush_audit)
        await self._p.coordinator.start(now)
        # On the events' clock a run that was killed may have been further on than its reports say.
        self.clock = max(self.clock, self._p.coordinator.latest())
        self._started = True

    async def _checkpoint(self, now: Millis, *, decide: bool) -> None:
        """Make durable what was taken, then bring the documents up to it. Raises Unavailable; call again then."""
        p, taken = self._p, self._taken
        if taken.letters:
            await p.letters.append(taken.letters)
            self.tally.letters += len(taken.letters)
            taken.letters.clear()
        for decision in taken.decisions:
            self.tell(decision)
        taken.decisions.clear()
        await self.flush_audit()
        self._reports.update(p.node_side.reports())
        if self._objects_changed:
            await p.cabinet.store(OBJECTS, kept_bytes(Kept(p.world.laid(), self._laid_to, now)))
            self._objects_changed = False
        if self._reports:
            await p.reports.publish(encode_reports(self._reports))
            p.coordinator.reports(self._reports)
            self._reports.clear()
        if self._resume != self._saved:
            await p.cabinet.store(STREAM, self._resume)
            self._saved = self._resume
        if decide:
            if not self._started:
                await self._start(now)
            await p.coordinator.step(max(now, self.clock))
            await self.flush_audit()
            if self._saved:
                self._before.forget()  # all that may be read again after the kill has been

    async def flush_audit(self) -> None:
        """Journal the reasons noted so far; the coordinator calls it before it writes a ledger.

        What a run that was killed between this and its checkpoint has said of an occurrence is not said again.
        """
        self._lines = self._before.new(self._lines)
        await self._before.append(self._lines)
        lines, self._lines = self._lines, []
        self.tally.decisions += len(lines)
        for line in lines:
            self._told(line)

    # --- items ---------------------------------------------------------------------------------------------------

    async def _take(self, item: Record | Control, now: Millis) -> None:
        if isinstance(item, Record):
            self.tally.records += 1
            self._p.node_side.take(item, now, self._taken)
            return
        self.tally.controls += 1
        try:
            match item.kind:
                case "probe":
                    # Its own time, not the clock's: an old probe read again after a kill is no fresh fact.
                    seen = Millis(min(time_of(item).at or now, now))
                    self._p.node_side.probe(*probe_of(item.body), seen, self._taken)
                case "apply" if not self._had_effect(item):
                    check_object(item.body)
                    await self._apply(item.body)
                case "delete" if not self._had_effect(item):
                    await self._delete(*gone_of(item.body))
        except BadDocument as error:
            self._complain(item, str(error))

    def _complain(self, item: Record | Control, what: str) -> None:
        """A finding about an item of the stream, told once however often the same comes."""
        self._p.world.complain(f"{what} (first in the line at byte {item.position.offset})", once=what)

    def _time_of(self, item: Record | Control) -> Millis | None:
        found = time_of(item)
        if found.wrong:
            self._complain(item, found.wrong)
        return found.at

    def _had_effect(self, item: Control) -> bool:
        """Whether an earlier run took this apply or delete. What follows on it may have happened since; laid again it
        would undo that.
        """
        last = self._laid_to
        if last is not None and item.position.partition == last.partition:
            place = (item.position.generation, item.position.offset)
            if place <= (last.generation, last.offset):
                return True
        self._laid_to = item.position
        self._objects_changed = True
        return False

    async def _apply(self, body: Mapping[str, Any]) -> None:
        touched = self._p.world.apply(body)
        if body.get("kind") == "ConfigMap" and not self._p.world.keeps(body):
            try:
                await self._p.apply_config_map(body)
            except AgentError as error:
                if error.verdict is not Verdict.PARK:
                    raise
                self._p.world.complain(str(error))
            self._foreign_change(body)
        self._p.coordinator.touched(touched.jobs, touched.nodes)
        self._p.node_side.serials = self._p.world.serials

    def _foreign_change(self, body: Mapping[str, Any]) -> None:
        """Somebody else has written a document; if it is one of those we write too, it is rendered again."""
        meta = body.get("metadata")
        if isinstance(meta, Mapping):
            self._p.coordinator.document_changed(str(meta.get("namespace", "")), str(meta.get("name", "")))

    async def _delete(self, kind: str, namespace: str, name: str) -> None:
        touched = self._p.world.delete(kind, namespace, name)
        if kind == "ConfigMap":
            await self._p.delete_config_map(namespace, name)
            self._p.coordinator.document_changed(namespace, name)
        self._p.coordinator.touched(touched.jobs, touched.nodes)

    def _deadline(self) -> Millis | None:
        own = self._p.node_side.next_deadline()
        theirs = self._p.coordinator.next_deadline() if self._started else None
        return min((at for at in (own, theirs) if at is not None), default=None)

    # --- the two ways to run -------------------------------------------------------------------------------------

    async def replay(self, progress: Callable[[int], None], *, resume: bool = False) -> None:
        """A finished stream on its own clock: the same input gives the same documents, byte for byte."""
        p = self._p
        p.node_side.caught_up = True
        pending = False
        try:
            await self._restore(stream=resume)
            while True:
                batch = await p.source.read(READ_LIMIT)
                for notice in batch.notices:
                    self._say(notice)
                for item in batch.items:
                    at = self._time_of(item)
                    if at is not None and (at > self.clock or not self._started):
                        if pending:
                            await self._checkpoint(self.clock, decide=True)
                            pending = False
                        await self._advance(at)
                    elif pending and isinstance(item, Control) and item.kind in ("apply", "delete"):
                        await self._checkpoint(self.clock, decide=True)
                    await self._take(item, self.clock)
                    pending = True
                self._resume = batch.resume
                progress(self.tally.records)
                if batch.at_end and p.source.finished:
                    break
            await self._checkpoint(self.clock, decide=True)
            await self._before.settle()
        finally:
            await p.source.close()

    async def _advance(self, to: Millis) -> None:
        """Move the events' clock, letting each deadline on the way take effect at its own time."""
        if not self._started:
            # An earlier run's clock, if there is one: deadlines since then take effect at their own times.
            await self._checkpoint(self.clock or to, decide=True)
        while (at := self._deadline()) is not None and at <= to:
            self.clock = max(self.clock, at)
            self._p.node_side.tick(self.clock, self._taken)
            await self._checkpoint(self.clock, decide=True)
        self.clock = max(self.clock, to)

    async def run(self, stop: asyncio.Event, wall: Now) -> None:
        """Long-lived: follow the stream until told to stop, or until a pipe ends.

        While an older part of the stream is read, its own times are the clock and no deadline of the wall clock
        fires; documents are written from the moment it is caught up.
        """
        p, done = self._p, False
        try:
            await self._restore(stream=True)
            p.node_side.all_dirty()
            while not stop.is_set():
                p.node_side.use(p.policy.policy)
                p.coordinator.book.policy = p.policy.policy
                batch = await p.source.read(READ_LIMIT)
                for notice in batch.notices:
                    self._say(notice)
                for item in batch.items:
                    await self._take_live(item, wall)
                self._resume = batch.resume
                if batch.at_end and not p.node_side.caught_up:
                    self._say_age(wall())
                    p.node_side.caught_up = True
                if await p.cluster.changed():
                    await self._read_cluster()
                done = await self._settle(wall)
                if batch.at_end and p.source.finished and done:
                    break
                if batch.at_end or not done:
                    await self._wait(stop, wall, least=0.0 if done else TRY_AGAIN_S)
            if done:
                await self._before.settle()
        finally:
            await p.source.close()

    def _say_age(self, wall: Millis) -> None:
        """Somebody may have meant a replay: on the wall clock nothing is begun for old news."""
        limit, age = self._p.coordinator.book.limits.max_event_age, wall - self.clock
        if self.tally.records and age > limit:
            self._say(
                f"the newest record is {span_text(age)} old; run judges on the wall clock and begins nothing for what"
                f" is older than {span_text(limit)}. For a recording, on its own clock: fault-agent replay"
            )

    async def _take_live(self, item: Record | Control, wall: Now) -> None:
        at = self._time_of(item)
        now = wall() if self._p.node_side.caught_up else Millis(min(at or self.clock, wall()))
        self.clock = max(self.clock, now)
        if self._p.node_side.caught_up and isinstance(item, Control) and item.kind in ("apply", "delete"):
            await self._settle(wall)
        await self._take(item, self.clock)

    async def _settle(self, wall: Now) -> bool:
        """Checkpoint, and when something did not answer keep everything and say so; true when all is done."""
        if self._p.node_side.caught_up:
            self.clock = max(self.clock, wall())
            self._p.node_side.tick(self.clock, self._taken)
        try:
            await self._checkpoint(self.clock, decide=self._p.node_side.caught_up)
        except AgentError as error:
            if error.verdict is not Verdict.RETRY:
                raise
            self._say(f"{error}; tried again")
            return False
        return True

    async def _wait(self, stop: asyncio.Event, wall: Now, *, least: float) -> None:
        """Until more may be there, a deadline is due, or it is time to look at the cluster again."""
        at = self._deadline()
        seconds = LOOK_AGAIN_S if at is None else max(least, min(LOOK_AGAIN_S, (at - wall()) / SECOND))
        stopped = asyncio.ensure_future(stop.wait())
        waits = [stopped] if least else [stopped, asyncio.ensure_future(self._p.source.wait(seconds))]
        ready, late = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=seconds)
        for task in late:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for task in ready:
            task.result()
