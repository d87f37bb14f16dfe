"""The node role: one agent per node, its reports are its only memory, its only output.

The one rule: what a report covers is final only when the log has acknowledged it; whoever sees a higher epoch for
its node steps back. It knows no Kubernetes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from agent.app.node_app import NodeSide, Taken, encode_reports
from agent.domain.events import Decision, NodeReport, Record
from agent.domain.vocab import MINUTE, SECOND, Millis, NodeName
from agent.errors import AgentError, BadReport, CannotRun, Unavailable, Verdict
from agent.ports import DeadLetters, FaultSource, Journal, Now, ReportFeed, Tracer
from agent.wire.audit import AuditLine, encode_audit
from agent.wire.report import decode

READ_LIMIT = 2000
REPORT_EVERY = 200
"""ms between two reports while events keep coming; the first of a quiet spell goes at once."""
HEARTBEAT = MINUTE
SILENCE = 3 * MINUTE
"""A foreign writer that has been silent for so long (ms) is gone."""
CLAIM_PATIENCE_S = 30.0
"""How long a claim may take to come back from the log."""
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class OwnReports(Protocol):
    """Where a node's reports are kept (a ReportLog that can find the newest one of a node)."""

    async def publish(self, reports: Mapping[NodeName, bytes]) -> None:
        """Durable when it returns. Raises Unavailable."""
        ...

    async def last(self, node: NodeName, since: Millis) -> bytes | None:
        """The node's newest report; looked for from `since` (ms) on first. Raises Unavailable."""
        ...


@dataclass(slots=True)
class Pulse:
    """What liveness, readiness and metrics are told by."""

    records: int = 0
    letters: int = 0
    reports: int = 0
    report_failures: int = 0
    caught_up: bool = False
    standing_by: bool = False
    last_report: Millis = Millis(0)
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Everything the role is made of."""

    node: NodeName
    cluster: str
    machine: str
    instance: str
    source: FaultSource
    reports: OwnReports
    feed: ReportFeed
    letters: DeadLetters
    audit: Journal
    make_side: Callable[[], NodeSide]
    tracer: Tracer
    now: Now
    mode: str
    policy: str
    meaning: Callable[[str], str]


class NodeRole:
    """Claims its node, follows its partition and reports."""

    def __init__(self, parts: NodeParts, say: Callable[[str], None]) -> None:
        self._p = parts
        self._say = say
        self._side = parts.make_side()
        self._taken = Taken()
        self._pending: dict[NodeName, NodeReport] = {}
        self._version = (0, 0)
        self._sent_at = Millis(0)
        self._tries = 0
        self.turns = 0
        """How often the main loop has come round."""
        self.pulse = Pulse()

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop. Raises CannotRun when this node's state belongs to somebody else or is too new."""
        while not stop.is_set():
            try:
                await self._life(stop)
            except AgentError as error:
                if error.verdict is not Verdict.RETRY:
                    raise
                self._say(f"{error}; begun again")
                await self._pause(stop, RETRY_S[-1])
            finally:
                await self._p.source.close()
                await self._p.feed.close()

    async def _life(self, stop: asyncio.Event) -> None:
        """One claim and what follows from it, until fenced or stopped."""
        if not await self._claim(stop):
            return
        await self._p.source.open(self._resume())
        self._side.caught_up = False
        while not stop.is_set():
            self.turns += 1
            batch = await self._p.source.read(READ_LIMIT)
            for notice in batch.notices:
                self._say(notice)
            for item in batch.items:
                if isinstance(item, Record):
                    self._take(item)
            if batch.at_end and not self._side.caught_up:
                self._side.caught_up = self.pulse.caught_up = True
                self._side.all_dirty()
            if self._side.caught_up:
                self._side.tick(self._p.now(), self._taken)
            if await self._fenced():
                await self._stand_by(stop)
                return
            await self._settle(stop)
            if batch.at_end:
                await self._wait(stop)
        await self._last_words()

    # --- claim and fence -----------------------------------------------------------------------------------------

    async def _claim(self, stop: asyncio.Event) -> bool:
        """Adopt the newest report, publish it whole with the next epoch, and read on until it is seen."""
        p = self._p
        await p.feed.open()
        last = self._decoded(await p.reports.last(p.node, Millis(p.now() - 2 * HEARTBEAT)))
        while not stop.is_set():
            self._side = p.make_side()
            if last is not None:
                self._side.restore(last, fresh=bool(last.machine and p.machine and last.machine != p.machine))
            self._side.claim(p.node)
            mine = self._side.reports()[p.node]
            self._version = (mine.epoch, mine.seq)
            await p.reports.publish(encode_reports({p.node: mine}))
            foreign = await self._seen(mine)
            if foreign is None:
                self._sent_at = p.now()
                self.pulse.reports += 1
                return True
            self._say(f"another agent reported {p.node} at epoch {foreign.epoch} meanwhile; claimed again")
            last = foreign
        return False

    async def _seen(self, mine: NodeReport) -> NodeReport | None:
        """Wait for our own claim in the log; a foreign report that is newer than it comes back instead."""
        p = self._p
        deadline = asyncio.get_running_loop().time() + CLAIM_PATIENCE_S
        while asyncio.get_running_loop().time() < deadline:
            data = (await p.feed.read()).get(p.node)
            if data is not None:
                seen = self._decoded(data)
                if seen is not None and seen.instance == mine.instance and seen.epoch == mine.epoch:
                    return None
                if seen is not None and (seen.epoch, seen.seq) >= (mine.epoch, mine.seq):
                    return seen
            await p.feed.wait(0.2)
        raise Unavailable(f"the claim of {p.node} did not come back within {CLAIM_PATIENCE_S:.0f} s")

    def _decoded(self, data: bytes | None) -> NodeReport | None:
        """A report of this node. Raises CannotRun: of another cluster, or of a newer schema (never overwritten)."""
        if data is None:
            return None
        try:
            report = decode(data)
        except BadReport as error:
            raise CannotRun(
                f"the last report of {self._p.node} cannot be read: {error}",
                hint="run the version that wrote it, or remove it with a tombstone",
            ) from error
        if report.cluster != self._p.cluster:
            raise CannotRun(
                f"reports of {self._p.node} belong to cluster {report.cluster!r}, this agent to {self._p.cluster!r}",
                hint="two clusters must not share a topic prefix: set kafka.prefix or cluster.id",
            )
        return report

    async def _fenced(self) -> bool:
        """Whether another agent has claimed this node; an older one that still writes is written over."""
        data = (await self._p.feed.read()).get(self._p.node)
        seen = self._decoded(data)
        if seen is None or seen.instance == self._p.instance:
            return False
        if seen.epoch > self._version[0]:
            return True
        self._say(f"an agent of epoch {seen.epoch} still reports {self._p.node}; reported again")
        self._side.all_dirty()
        self._sent_at = Millis(0)
        return False

    async def _stand_by(self, stop: asyncio.Event) -> None:
        """Until the other agent has been silent for long enough; the next life then claims."""
        self._say(f"another agent reports {self._p.node} at a higher epoch; standing by")
        self.pulse.standing_by = True
        heard = self._p.now()
        while not stop.is_set() and self._p.now() - heard <= SILENCE:
            if (await self._p.feed.read()).get(self._p.node) is not None:
                heard = self._p.now()
            await self._p.feed.wait(1.0)
        self.pulse.standing_by = False

    # --- records and reports -------------------------------------------------------------------------------------

    def _resume(self) -> bytes | None:
        """Where the report stands in each partition, for the source."""
        scanned = self._side.scanned(self._p.node)
        if not scanned:
            return None
        return orjson.dumps(
            {
                str(partition): {"generation": at.generation, "offset": at.offset, "digest": at.digest, "time": at.time}
                for partition, at in sorted(scanned.items())
            }
        )

    async def _settle(self, stop: asyncio.Event) -> None:
        """Letters, then reasons, then the report that covers them; what fails is tried again with the newest state."""
        try:
            await self._letters_and_reasons()
            await self._report()
        except AgentError as error:
            if error.verdict is not Verdict.RETRY:
                raise
            self.pulse.report_failures += 1
            pause = RETRY_S[min(self._tries, len(RETRY_S) - 1)]
            self._tries += 1
            self._say(f"{error}; tried again in {pause:g} s")
            await self._pause(stop, pause)
        else:
            self._tries = 0

    async def _letters_and_reasons(self) -> None:
        p, taken = self._p, self._taken
        if taken.letters:
            await p.letters.append(taken.letters)
            self.pulse.letters += len(taken.letters)
            taken.letters.clear()
        if taken.decisions:
            await p.audit.append([encode_audit(self._line(one)) for one in taken.decisions])
            for one in taken.decisions:
                self.pulse.reasons[str(one.reason)] = self.pulse.reasons.get(str(one.reason), 0) + 1
            taken.decisions.clear()
        self.pulse.records += taken.records
        taken.records = 0

    def _line(self, decision: Decision) -> AuditLine:
        return AuditLine(decision, self._p.mode, self._p.policy, self._p.meaning(decision.fault))

    async def _report(self) -> None:
        """At once when the last one is long ago, then at most each REPORT_EVERY; a heartbeat in any case."""
        p, now = self._p, self._p.now()
        since = now - self._sent_at
        if since >= HEARTBEAT:
            self._side.all_dirty()
        if not (self._side.eventful or self._pending or since >= HEARTBEAT) or 0 <= since < REPORT_EVERY:
            return
        self._pending.update(self._side.reports())
        report = self._pending.get(p.node)
        if report is None:
            return
        with p.tracer.span("report", node=p.node, seq=report.seq):
            await p.reports.publish(encode_reports({p.node: report}))
        self._version = (report.epoch, report.seq)
        self._pending.clear()
        self._sent_at = self.pulse.last_report = now
        self.pulse.reports += 1

    async def _last_words(self) -> None:
        """On a clean stop everything read is reported, if the log answers."""
        with contextlib.suppress(AgentError):
            await self._letters_and_reasons()
            self._side.all_dirty()
            self._sent_at = Millis(0)
            await self._report()

    def _take(self, record: Record) -> None:
        """Ours is decided; another node's in the same partition only moves our place."""
        now = self._p.now()
        at = now if self._side.caught_up else Millis(min(record.timestamp or now, now))
        if record.key == self._p.node.encode():
            self._side.take(record, at, self._taken)
        else:
            self._side.skip(self._p.node, record, at)

    async def _wait(self, stop: asyncio.Event) -> None:
        """Until more may be there, or a report or a deadline is due."""
        now = self._p.now()
        due = [self._sent_at + HEARTBEAT - now, SECOND]
        if self._side.eventful or self._pending:
            due.append(self._sent_at + REPORT_EVERY - now)
        deadline = self._side.next_deadline()
        if deadline is not None:
            due.append(deadline - now)
        if not stop.is_set():
            await self._p.source.wait(max(0.0, min(due) / SECOND))

    async def _pause(self, stop: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
