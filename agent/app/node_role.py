"""The node role: one agent per node, its reports are its only memory, its only output.

The one rule: what a report covers is final only when the log has acknowledged it; whoever sees a higher epoch for
its node steps back. It knows no Kubernetes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from agent.app.abreast import together
from agent.app.node_app import Taken, encode_reports, unheard
from agent.app.nodeparts import NodeParts, Pulse
from agent.app.policykeep import SHORT
from agent.app.trouble import Trouble
from agent.domain.events import Decision, NodeReport, Record
from agent.domain.vocab import MINUTE, SECOND, Millis, NodeName
from agent.errors import AgentError, BadReport, CannotRun, Unavailable, Verdict
from agent.ports import Control
from agent.wire.audit import AuditLine, encode_audit
from agent.wire.places import decode_places, encode_places
from agent.wire.report import decode

READ_LIMIT = 2000
REPORT_EVERY = 200
"""ms between two reports while events keep coming; the first of a quiet spell goes at once."""
UNTOLD_LIMIT = 10_000
"""Reasons kept while the journal does not take them; of more the oldest are let go of."""
HEARTBEAT = MINUTE
SILENCE = 3 * MINUTE
"""A foreign writer that has been silent for so long (ms) is gone."""
CLAIM_PATIENCE_S = 30.0
"""How long a claim may take to come back from the log."""
RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class NodeRole:
    """Claims its node, follows its partition and reports."""

    def __init__(self, parts: NodeParts, say: Callable[[str], None]) -> None:
        self._p = parts
        self._say = say
        self._lives, self._writing = Trouble(say), Trouble(say)
        self._feed = parts.make_feed()
        self._side = parts.make_side()
        self._taken = Taken()
        self._pending: dict[NodeName, NodeReport] = {}
        self._version = (0, 0)
        self._sent_at = Millis(0)
        self._tries = 0
        self.turns = 0
        """How often any of its loops has come round."""
        self.pulse = Pulse()

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop. Raises CannotRun when this node's state belongs to somebody else or is too new, Refused
        when a right is missing from the start.
        """
        while not stop.is_set():
            self.turns += 1
            try:
                await self._life(stop)
            except AgentError as error:
                # What has worked may work again: a right that is taken away for a while ends nothing.
                if error.verdict is Verdict.STOP or (error.verdict is Verdict.PARK and not self.pulse.reports):
                    raise
                self._lives.tell(f"{error}; begun again")
                await self._pause(stop, RETRY_S[-1])
            finally:
                await self._p.source.close()
                await self._feed.close()

    async def _life(self, stop: asyncio.Event) -> None:
        """One claim and what follows from it, until fenced or stopped."""
        self.pulse.caught_up = False
        if not await self._claim(stop):
            return
        await self._p.source.open(encode_places(self._side.scanned(self._p.node)))
        while not stop.is_set():
            self.turns += 1
            self._side.use(self._p.policy.policy)
            # Nothing is read ahead of what cannot be reported: it would only pile up here.
            at_end = await self._read() if not self._tries else False
            self._lives.over()
            if self._side.caught_up:
                self._look()
                self._side.tick(self._p.now(), self._taken)
            if await self._fenced():
                await self._stand_by(stop)
                return
            await self._settle(stop)
            if at_end:
                await self._wait(stop)
        await self._last_words()

    def _look(self) -> None:
        """Take what a round over the links has found, and report it: others count it by its age."""
        found = self._p.links.take() if self._p.links is not None else None
        if found is not None:
            self._side.probe(self._p.node, found.links, found.at, self._taken)
            self._side.eventful = True

    async def _read(self) -> bool:
        """Take what is there; whether that was all."""
        batch = await self._p.source.read(READ_LIMIT)
        for notice in batch.notices:
            self._say(notice)
        self._take(batch.items)
        if batch.at_end:
            self._note_places(batch.resume)
        if batch.at_end and not self._side.caught_up:
            self._side.caught_up = self.pulse.caught_up = True
            self._side.all_dirty()
        return batch.at_end

    # --- claim and fence -----------------------------------------------------------------------------------------

    async def _claim(self, stop: asyncio.Event) -> bool:
        """Adopt the newest report, publish it whole with the next epoch, and read on until it is seen."""
        p = self._p
        # What an earlier life had not got out is read again; sent now, it would overwrite the claim with older news.
        self._pending.clear()
        self._taken = Taken()
        self._feed = p.make_feed()
        await self._feed.open()
        last = self._decoded(await p.reports.last(p.node, Millis(p.now() - 2 * HEARTBEAT)))
        while not stop.is_set():
            self.turns += 1
            self._side = p.make_side()
            if last is not None:
                last = self._of_this_machine(last)
                self._side.restore(last)
                if last.lost:
                    self._say(unheard(last))
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

    def _of_this_machine(self, last: NodeReport) -> NodeReport:
        """The report, or of another machine under this node's name only how far it had read: its faults are not ours,
        and read once more its records would bring them back.
        """
        if not (last.machine and self._p.machine) or last.machine == self._p.machine:
            return last
        self._say(f"{self._p.node} is another machine now; begun with nothing of machine {last.machine}")
        return NodeReport(last.cluster, last.node, last.epoch, last.seq, last.instance, scanned=last.scanned)

    async def _seen(self, mine: NodeReport) -> NodeReport | None:
        """Wait for our own claim in the log; a foreign report that is newer than it comes back instead."""
        p = self._p
        deadline = asyncio.get_running_loop().time() + CLAIM_PATIENCE_S
        while asyncio.get_running_loop().time() < deadline:
            data = (await self._feed.read()).get(p.node)
            if data is not None:
                seen = self._readable(data)
                if seen is not None and seen.instance == mine.instance and seen.epoch == mine.epoch:
                    return None
                if seen is not None and (seen.epoch, seen.seq) >= (mine.epoch, mine.seq):
                    return seen
            await self._feed.wait(0.2)
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

    def _readable(self, data: bytes) -> NodeReport | None:
        """A report that came while we report ourselves; None for one that nobody could use. Raises CannotRun for one
        of another cluster or of a newer schema.
        """
        try:
            return self._decoded(data)
        except CannotRun as error:
            cause = error.__cause__
            if not isinstance(cause, BadReport) or cause.place == "schema":
                raise
            self._say(f"something that is no report was written for {self._p.node}: {cause}")
            return None

    async def _fenced(self) -> bool:
        """Whether another agent has claimed this node; an older one that still writes is written over."""
        data = (await self._feed.read()).get(self._p.node)
        if data is None:
            return False
        seen = self._readable(data)
        if seen is not None and seen.instance == self._p.instance:
            return False
        if seen is not None and seen.epoch > self._version[0]:
            return True
        if seen is not None:
            self._say(f"an agent of epoch {seen.epoch} still reports {self._p.node}; reported again")
        # Ours must be the one that is kept: a log keeps the last.
        self._side.all_dirty()
        self._sent_at = Millis(0)
        return False

    async def _stand_by(self, stop: asyncio.Event) -> None:
        """Until the other agent has been silent for long enough; the next life then claims."""
        self._say(f"another agent reports {self._p.node} at a higher epoch; standing by")
        self.pulse.standing_by = True
        heard = self._p.now()
        try:
            while not stop.is_set() and self._p.now() - heard <= SILENCE:
                self.turns += 1
                if (await self._feed.read()).get(self._p.node) is not None:
                    heard = self._p.now()
                await self._feed.wait(1.0)
        finally:
            self.pulse.standing_by = False

    # --- records and reports -------------------------------------------------------------------------------------

    def _note_places(self, resume: bytes) -> None:
        """A partition in which nothing was ever read is noted too: when the topic has grown by the next start, the
        arithmetic no longer leads to it, and what it got in between would never be read.
        """
        for partition, at in decode_places(resume).items():
            self._side.note_place(self._p.node, partition, at)

    async def _settle(self, stop: asyncio.Event) -> None:
        """Letters, then reasons, then the report that covers them; what fails is tried again with the newest state."""
        try:
            await self._everything()
        except AgentError as error:
            if error.verdict is not Verdict.RETRY:
                raise
            self.pulse.report_failures += 1
            pause = RETRY_S[min(self._tries, len(RETRY_S) - 1)]
            self._tries += 1
            self._writing.tell(f"{error}; tried again until it works")
            await self._pause(stop, pause)
        else:
            self._tries = 0
            self._writing.over()

    async def _everything(self) -> None:
        """A journal that takes no reasons keeps no fault back; they are told once it does."""
        await self._letters()
        await together(self._reasons, self._report)

    async def _letters(self) -> None:
        taken = self._taken
        if taken.letters:
            await self._p.letters.append(taken.letters)
            self.pulse.letters += len(taken.letters)
            taken.letters.clear()
        self.pulse.records += taken.records
        taken.records = 0

    async def _reasons(self) -> None:
        decisions = self._taken.decisions
        if not decisions:
            return
        try:
            await self._p.audit.append([encode_audit(self._line(one)) for one in decisions])
        except AgentError:
            spare = max(0, len(decisions) - UNTOLD_LIMIT)
            del decisions[:spare]
            self.pulse.untold += spare
            raise
        for one in decisions:
            self.pulse.reasons[str(one.reason)] = self.pulse.reasons.get(str(one.reason), 0) + 1
        decisions.clear()

    def _line(self, decision: Decision) -> AuditLine:
        return AuditLine(
            decision, self._p.mode, decision.policy or self._p.policy.short, self._p.meaning(decision.fault)
        )

    async def _report(self) -> None:
        """At once when the last one is long ago, then at most each REPORT_EVERY; a heartbeat in any case."""
        p, now = self._p, self._p.now()
        since = now - self._sent_at
        overdue = not 0 <= since < HEARTBEAT  # a clock that was set back must not silence us until it is there again
        if overdue:
            self._side.all_dirty()
        if not (self._side.eventful or self._pending or overdue) or 0 <= since < REPORT_EVERY:
            return
        self._pending.update(self._side.reports())
        report = self._pending.get(p.node)
        if report is None:
            return
        with p.tracer.span("report", node=p.node, seq=report.seq, policy=report.policy[:SHORT]):
            await p.reports.publish(encode_reports({p.node: report}))
        self._version, self.pulse.unknown = (report.epoch, report.seq), report.unknown
        self._pending.clear()
        self._sent_at = self.pulse.last_report = now
        self.pulse.reports += 1

    async def _last_words(self) -> None:
        """On a clean stop everything read is reported, if the log answers."""
        self._side.all_dirty()
        self._sent_at = Millis(0)
        with contextlib.suppress(AgentError):
            await self._everything()

    def _take(self, items: Sequence[Record | Control]) -> None:
        """Ours are decided; others' in the same partition only move our place, a run of them in one step."""
        now, node = self._p.now(), self._p.node
        name = node.encode()
        passed: dict[int, Record] = {}
        for record in items:
            if not isinstance(record, Record):
                continue
            if record.key != name:
                passed[record.position.partition] = record
                continue
            self._pass(passed, now)
            self._side.take(record, self._stream_time(record, now), self._taken)
            # Also one that changes nothing, or could not be used: who waits for it must see that it was read.
            self._side.claim(node)
            self._side.eventful = True
        self._pass(passed, now)

    def _pass(self, passed: dict[int, Record], now: Millis) -> None:
        for record in passed.values():
            self._side.skip(self._p.node, record, self._stream_time(record, now))
        passed.clear()

    def _stream_time(self, record: Record, now: Millis) -> Millis:
        return now if self._side.caught_up else Millis(min(record.timestamp or now, now))

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
