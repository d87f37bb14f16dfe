"""A node's stream under frequency rules of a test's own."""

from typing import Any

from nodestream import S, Stream
from tinypolicy import TinyCount, TinyPolicy

from agent.domain.events import FrequencyCounter
from agent.domain.vocab import Plane, Source

MANUAL = "ManuallySeparateNPU"
REQUEST = ("80C98000", Plane.CHIP, Source.DCMI)
KEY = "n1/chip/4/80C98000"
LINK_KEY = "n1/network/4/81078603"
DAY = 86_400
TWICE = TinyCount("80C98000", DAY * S, 2, MANUAL)
MILD = TinyCount("80C98000", DAY * S, 2, "PreSeparateNPU", 600 * S)
FIVE_LINKS = TinyCount("81078603", DAY * S, 5, MANUAL, 2 * DAY * S)


def stream(*counts: TinyCount, **other: Any) -> Stream:
    made = Stream()
    made.policy = policy(*counts, **other)
    return made


def policy(*counts: TinyCount, **other: Any) -> TinyPolicy:
    return TinyPolicy(counts={one.code: one for one in counts}, **other)


def counter(of: Stream, key: str = KEY) -> FrequencyCounter | None:
    return next((one for one in of.report().counters if str(one.key) == key), None)


def blink(of: Stream, at: int, seconds: int = 1, where: str = "4") -> None:
    of.say(REQUEST, "occur", at, where=where)
    of.say(REQUEST, "recover", at + seconds * S, where=where)
