"""A node's book fed record by record, for tests of what it makes of them."""

from tinypolicy import TinyPolicy

from agent.domain.events import Decoded, FaultEvent, FaultKey, NodeReport, Position
from agent.domain.node import Change, NodeBook, Outcome, Rater, decide, evolve, tick
from agent.domain.vocab import Assertion, Millis, NodeName, OccurrenceId, Plane, Reason, Source

NODE = NodeName("n1")
T = 1_767_225_600_000
S = 1_000
POLICY = TinyPolicy()
CHIP = ("80E18402", Plane.CHIP, Source.DCMI)
LINK = ("81078603", Plane.NETWORK, Source.HCCN)
PUBLIC = ("220001001", Plane.PUBLIC, Source.PUBLIC)
UNKNOWN = ("8FFFFFFF", Plane.CHIP, Source.DCMI)
Kind = tuple[str, Plane, Source]


class Stream:
    """Feeds a book record by record, and remembers how far it is."""

    def __init__(self, book: NodeBook | None = None) -> None:
        self.book = book or NodeBook(NODE)
        self.offset = 0
        self.policy: Rater = POLICY

    def event(self, kind: Kind, word: str, at: int, where: str = "4", severity: int | None = 2) -> FaultEvent:
        code, plane, source = kind
        where = f"CCAE:fault-{where}" if plane is Plane.PUBLIC else where
        key = FaultKey(NODE, plane, where, code)
        name = OccurrenceId(f"0:0:{self.offset}:0")
        devices = (int(where),) if where.isdecimal() else ()
        return FaultEvent(key, Assertion(word), Millis(at), name, source, source.value, severity, devices)

    def take(self, decoded: Decoded, now: int) -> tuple[Change, ...]:
        changes = decide(self.book, decoded, Millis(now), self.policy)
        for change in changes:
            evolve(self.book, change)
        return changes

    def say(
        self, kind: Kind, word: str, at: int, *, now: int | None = None, where: str = "4", severity: int | None = 2
    ) -> tuple[Outcome, ...]:
        one = self.event(kind, word, at, where, severity)
        decoded = Decoded(Position(0, 0, self.offset), NODE, f"message-{self.offset}", (one,))
        self.offset += 1
        return outcomes(self.take(decoded, at if now is None else now))

    def tick(self, now: int) -> tuple[Outcome, ...]:
        changes = tick(self.book, Millis(now), self.policy)
        for change in changes:
            evolve(self.book, change)
        return outcomes(changes)

    def report(self) -> NodeReport:
        return self.book.report("c", 1, 1, "i")


def outcomes(changes: tuple[Change, ...]) -> tuple[Outcome, ...]:
    return tuple(change for change in changes if isinstance(change, Outcome))


def told(given: tuple[Outcome, ...]) -> list[tuple[type[Outcome], Reason]]:
    return [(type(one), one.reason) for one in given]


def levels(stream: Stream) -> dict[str, str]:
    return {str(fault.key): fault.level for fault in stream.report().active}


def entries(stream: Stream) -> list[tuple[str, int, int | None, str]]:
    return [(one.id, one.begin - T, one.end and one.end - T, one.level) for one in stream.report().occurrences]
