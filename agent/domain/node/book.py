"""The book of one node: what is active, what happened lately, which deadlines run, how far the stream was read.

The one rule: only `evolve` changes it.
Work per event does not grow with history: dicts, and heaps for what runs out. Identities are keyed by their text.
"""

from collections import deque
from dataclasses import replace
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Final, Self

from agent.domain import duration, frequency
from agent.domain.events import (
    ActiveFault,
    DurationTimer,
    FaultKey,
    FrequencyCounter,
    Link,
    NodeReport,
    Occurrence,
    Scanned,
    UnknownCode,
)
from agent.domain.node import unknown
from agent.domain.node.changes import Advanced, Change, Outcome, Placed, Policed, Probed, Recovered, Skipped
from agent.domain.vocab import L2_LINK_DOWN, MINUTE, Millis, NodeName, OccurrenceId, Plane

IDS_KEPT: Final = 1024
"""A message id seen among the last so many is a repeat."""
OCCURRENCES_KEPT: Final = 16
"""Recent occurrences of one identity."""
TOTALS_KEPT: Final = 2048
"""Identities whose total is remembered; beyond it the longest quiet ones are forgotten (public fault ids never end)."""
MAX_EVENT_AGE: Final = Millis(15 * MINUTE)
MARK_BYTES: Final = 8


class NodeBook:
    """State of one node. Read the attributes freely; change them through `evolve` only."""

    __slots__ = (
        "_due",
        "_expiry",
        "_late",
        "_marks",
        "_planned",
        "_ring",
        "active",
        "clock",
        "counters",
        "l2_ports",
        "links",
        "lost",
        "max_event_age",
        "node",
        "occurrences",
        "policy",
        "public",
        "recovered",
        "scanned",
        "timers",
        "totals",
        "unknown",
    )

    def __init__(self, node: NodeName, max_event_age: Millis = MAX_EVENT_AGE) -> None:
        self.node = node
        self.max_event_age = max_event_age
        self.clock = Millis(0)
        self.policy = ""
        self.scanned: dict[int, Scanned] = {}
        self.active: dict[str, ActiveFault] = {}
        self.occurrences: dict[str, tuple[Occurrence, ...]] = {}
        self.totals: dict[str, int] = {}
        """Identity -> occurrences so far; the longest quiet identity first."""
        self.timers: dict[str, DurationTimer] = {}
        self.counters: dict[str, FrequencyCounter] = {}
        self.recovered: dict[str, Recovered] = {}
        self.links: dict[int, Link] = {}
        self.l2_ports: dict[str, dict[str, FaultKey]] = {}
        """Switch chip -> its ports whose link to L2 is down, by identity."""
        self.unknown: dict[str, UnknownCode] = {}
        self.public = 0  # active ones
        self.lost = 0
        """Active faults that the report did not tell from which this book went on."""
        self._ring: deque[bytes] = deque()
        self._marks: set[bytes] = set()
        self._due: list[tuple[Millis, str]] = []
        self._expiry: list[tuple[Millis, str]] = []
        self._planned: dict[str, Millis] = {}
        self._late: dict[OccurrenceId, Millis] = {}

    def knows(self, mark: bytes) -> bool:
        """Whether this message id is among the last 1,024."""
        return mark in self._marks

    def overdue(self, now: Millis) -> list[FaultKey]:
        """Whose deadlines lie before `now` (ms), earliest first. Costs what it returns."""
        if not self._due or self._due[0][0] >= now:
            return []
        found: list[tuple[Millis, str]] = []
        todo = [0]
        while todo:
            at = todo.pop()
            if at < len(self._due) and self._due[at][0] < now:
                found.append(self._due[at])
                todo += (2 * at + 1, 2 * at + 2)
        keys: dict[str, FaultKey] = {}
        for due, who in sorted(found):
            holder = self.timers.get(who) or self.counters.get(who)
            if holder is not None and _live(self, who, due):
                keys.setdefault(who, holder.key)
        return list(keys.values())

    def report(
        self, cluster: str, epoch: int, seq: int, instance: str, *, machine: str = "", caught_up: bool = False
    ) -> NodeReport:
        """The state as it travels; costs what is active and recent, not what ever was."""
        return NodeReport(
            cluster=cluster,
            node=self.node,
            epoch=epoch,
            seq=seq,
            instance=instance,
            machine=machine,
            clock=self.clock,
            caught_up=caught_up,
            policy=self.policy,
            scanned=dict(self.scanned),
            active=tuple(self.active.values()),
            occurrences=tuple(one for several in self.occurrences.values() for one in several),
            totals=dict(self.totals),
            timers=tuple(self.timers.values()),
            counters=tuple(self.counters.values()),
            recovered={f"{who}@{last.told}": last.at for who, last in self.recovered.items()},
            ids=b"".join(self._ring),
            links=dict(self.links),
            unknown=tuple(self.unknown.values()),
            cut=(f"active:{self.lost}",) if self.lost else (),
        )

    @classmethod
    def from_report(cls, report: NodeReport, max_event_age: Millis = MAX_EVENT_AGE) -> Self:
        """The book as it was when the report was made; goes on as if it had never stopped.

        Only what had come too old to begin with may stay among the occurrences a little longer.
        """
        book = cls(report.node, max_event_age)
        book.clock = report.clock
        book.policy = report.policy
        book.lost = report.lost
        book.scanned.update(report.scanned)
        book.links.update(report.links)
        book.totals.update(report.totals)
        book.unknown.update((f"{one.plane}/{one.code}", one) for one in report.unknown)
        for fault in report.active:
            book.active[str(fault.key)] = fault
            book.public += fault.key.plane is Plane.PUBLIC
            _note_port(book, str(fault.key), fault.key, there=True)
        book.timers.update((str(timer.key), timer) for timer in report.timers)
        book.counters.update((str(counter.key), counter) for counter in report.counters)
        for one in report.occurrences:
            who = str(one.key)
            book.occurrences[who] = (*book.occurrences.get(who, ()), one)
            _note_late(book, one)
        for ref, at in report.recovered.items():
            who, _, told = ref.rpartition("@")
            if who and told.isdecimal():
                book.recovered[who] = Recovered(at, Millis(int(told)))
            else:
                book.recovered[ref] = Recovered(at, report.clock)
        usable = len(report.ids) - len(report.ids) % MARK_BYTES
        for start in range(0, usable, MARK_BYTES):
            _remember(book, report.ids[start : start + MARK_BYTES])
        book._due = [(timer.due, who) for who, timer in book.timers.items() if duration.running(timer)]
        book._due += [(counter.due, who) for who, counter in book.counters.items() if frequency.releasing(counter)]
        heapify(book._due)
        for who in {**book.occurrences, **book.recovered, **book.counters}:
            _schedule(book, who)
        return book


def l2_chip(key: FaultKey) -> str:
    """The switch chip whose port to L2 this fault is about; empty for any other fault, or when port or chip is not
    told.
    """
    if key.code != L2_LINK_DOWN or key.plane is not Plane.SWITCH:
        return ""
    chip, _, port = key.where.partition(".")
    return "" if "-" in (chip, port) else chip


def message_mark(message_id: str) -> bytes:
    """64-bit hash of a message id, as the window of repeats keeps it."""
    return blake2b(message_id.encode("utf-8", "surrogatepass"), digest_size=MARK_BYTES).digest()


def next_deadline(book: NodeBook) -> Millis | None:
    """The earliest stream time (ms) at which a tick changes something, or None."""
    return Millis(book._due[0][0] + 1) if book._due else None  # the deadline itself is not yet past


def evolve(book: NodeBook, change: Change) -> None:
    """Apply one change. Total: never raises, whatever the book holds."""
    match change:
        case Outcome():
            _settle(book, change)
        case Advanced():
            _advance(book, change)
        case Placed():
            book.scanned.setdefault(change.partition, change.at)
        case Policed():
            book.policy = change.digest
            for name in change.learned:
                book.unknown.pop(name, None)
        case Probed():
            for device, state in change.links.items():
                if state in ("up", "down"):
                    book.links[device] = Link(state, change.at)
                else:
                    book.links.pop(device, None)
        case Skipped():
            pass


def _settle(book: NodeBook, change: Outcome) -> None:
    who = change.identity
    book.public += change.key.plane is Plane.PUBLIC and (change.active is not None) - (who in book.active)
    if change.active is not None:
        book.active[who] = change.active
    else:
        book.active.pop(who, None)
    if change.key.plane is Plane.SWITCH:
        _note_port(book, who, change.key, there=change.active is not None)
    if change.timer is not None:
        if book.timers.get(who) != change.timer and duration.running(change.timer):
            heappush(book._due, (change.timer.due, who))
        book.timers[who] = change.timer
    else:
        book.timers.pop(who, None)
    _count(book, who, change.counter)
    if change.recovered is not None and book.recovered.get(who) != change.recovered:
        book.recovered[who] = change.recovered
        _plan(book, who, Millis(change.recovered.told + book.max_event_age))
    for done, end in change.ended:
        _close(book, who, done, end)
    if change.begun is not None:
        entries = (*book.occurrences.get(who, ()), change.begun)
        if len(entries) > OCCURRENCES_KEPT:
            book._late.pop(entries[0].id, None)
            entries = entries[-OCCURRENCES_KEPT:]
        book.occurrences[who] = entries
        book.totals.pop(who, None)
        book.totals[who] = change.total
        _note_late(book, change.begun)
        if len(book.totals) > TOTALS_KEPT:
            _forget(book)
        _plan(book, who, _last_day(book, change.begun))
    if change.unknown and change.event is not None:
        unknown.note(book.unknown, change.event)
    if change.link is not None and change.key.where.isdecimal():
        book.links[int(change.key.where)] = change.link
    _tidy(book)


def _note_port(book: NodeBook, who: str, key: FaultKey, *, there: bool) -> None:
    chip = l2_chip(key)
    if not chip:
        return
    ports = book.l2_ports.setdefault(chip, {})
    if there:
        ports[who] = key
    else:
        ports.pop(who, None)
    if not ports:
        del book.l2_ports[chip]


def _count(book: NodeBook, who: str, counter: FrequencyCounter | None) -> None:
    if counter is None:
        book.counters.pop(who, None)
    elif book.counters.get(who) != counter:
        if frequency.releasing(counter):
            heappush(book._due, (counter.due, who))
        book.counters[who] = counter
    _plan_forgetting(book, who)


def _close(book: NodeBook, who: str, done: OccurrenceId, end: Millis) -> None:
    entries = book.occurrences.get(who, ())
    for at in range(len(entries) - 1, -1, -1):  # it is one of the last, if it is still kept
        one = entries[at]
        if one.id == done:
            if one.end is None:
                book.occurrences[who] = (*entries[:at], replace(one, end=end), *entries[at + 1 :])
            return


def _advance(book: NodeBook, change: Advanced) -> None:
    book.clock = max(book.clock, change.clock)
    place = change.position
    if place is not None:
        last = book.scanned.get(place.partition)
        if last is None or (last.generation, last.offset) <= (place.generation, place.offset):
            book.scanned[place.partition] = Scanned(place.generation, place.offset + 1, change.clock, change.digest)
    if change.mark:
        _remember(book, change.mark)
    while book._expiry and book._expiry[0][0] < book.clock:
        when, who = heappop(book._expiry)
        if book._planned.get(who) == when:
            del book._planned[who]
            _expire(book, who)
            _schedule(book, who)
    _tidy(book)


def _expire(book: NodeBook, who: str) -> None:
    kept = []
    for one in book.occurrences.get(who, ()):
        if _last_day(book, one) >= book.clock:
            kept.append(one)
        else:
            book._late.pop(one.id, None)
    if kept:  # in their old place: the order must not tell how often they were looked at
        book.occurrences[who] = tuple(kept)
    else:
        book.occurrences.pop(who, None)
    told = book.recovered.get(who)
    if told is not None and told.told + book.max_event_age < book.clock:
        del book.recovered[who]
    if frequency.forgotten(book.counters.get(who), book.clock, awaited=duration.running(book.timers.get(who))):
        del book.counters[who]


def _last_day(book: NodeBook, one: Occurrence) -> Millis:
    return Millis(book._late.get(one.id, one.begin) + book.max_event_age)


def _note_late(book: NodeBook, one: Occurrence) -> None:
    """What was too old when it came is kept as long from then on: dropped at once it would look like a loss."""
    if one.begin + book.max_event_age < book.clock:
        book._late[one.id] = book.clock


def _schedule(book: NodeBook, who: str) -> None:
    """Look at this identity again when its first entry has run out."""
    for one in book.occurrences.get(who, ()):
        _plan(book, who, _last_day(book, one))
    told = book.recovered.get(who)
    if told is not None:
        _plan(book, who, Millis(told.told + book.max_event_age))
    _plan_forgetting(book, who)


def _plan_forgetting(book: NodeBook, who: str) -> None:
    """A counter is not forgotten while a deadline runs that may bring it one more, however late it is looked at."""
    counter = book.counters.get(who)
    if counter is not None and counter.phase == frequency.Phase.COUNTING and not duration.running(book.timers.get(who)):
        _plan(book, who, counter.due)


def _plan(book: NodeBook, who: str, day: Millis) -> None:
    planned = book._planned.get(who)
    if planned is None or day < planned:
        book._planned[who] = day
        heappush(book._expiry, (day, who))


def _forget(book: NodeBook) -> None:
    """Keep the totals bounded; what is active or recent goes to the young end instead. A few steps at a time."""
    for _ in range(4):
        if len(book.totals) <= TOTALS_KEPT:
            return
        who = next(iter(book.totals))
        total = book.totals.pop(who)
        if who in book.active or who in book.occurrences:
            book.totals[who] = total


def _live(book: NodeBook, who: str, due: Millis) -> bool:
    timer, counter = book.timers.get(who), book.counters.get(who)
    if timer is not None and timer.due == due and duration.running(timer):
        return True
    return counter is not None and counter.due == due and frequency.releasing(counter)


def _tidy(book: NodeBook) -> None:
    while book._due and not _live(book, book._due[0][1], book._due[0][0]):
        heappop(book._due)


def _remember(book: NodeBook, mark: bytes) -> None:
    if mark in book._marks:
        return
    book._marks.add(mark)
    book._ring.append(mark)
    if len(book._ring) > IDS_KEPT:
        book._marks.discard(book._ring.popleft())
