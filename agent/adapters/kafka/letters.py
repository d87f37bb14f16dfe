"""Dead letters and the audit journal as topics.

The one rule: acknowledged before the call returns, so that the report which covers a record can never be ahead of its
dead letter. At least once: a restart in between writes a letter again, and readers keep one per source.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from aiokafka import ConsumerRecord

from agent.adapters.deadletters import SOURCE_HEADER
from agent.adapters.kafka.drain import shelf
from agent.adapters.kafka.settings import KafkaSettings
from agent.adapters.kafka.writer import MESSAGE_BYTES, Message, Writer
from agent.domain.events import Position, Record
from agent.domain.vocab import Millis
from agent.errors import Refused

TIME_HEADER: Final = "fault-agent-timestamp"
"""The record's own time (ms). The letter's is that of its writing, or retention would take an old record's at once."""
CUT_HEADER: Final = "fault-agent-cut"
"""What of the record did not fit into its letter."""
_LETTER_BYTES: Final = MESSAGE_BYTES - 4096
_HEADER_BYTES: Final = 64
_REMEMBERED: Final = 4096


class KafkaDeadLetters:
    """DeadLetters over one topic; value and key unchanged, headers kept, the record's time added as one more."""

    def __init__(self, settings: KafkaSettings, topic: str, *, deadline_s: float = 5.0) -> None:
        self._settings = settings
        self._topic = topic
        self._writer = Writer(settings, topic, deadline_s=deadline_s)
        self._written: OrderedDict[bytes, None] = OrderedDict()

    async def open(self) -> None:
        """Connect and check the topic. Raises CannotRun (no such topic), Refused, Unavailable."""
        await self._writer.open()

    async def append(self, letters: Sequence[Record]) -> None:
        """See DeadLetters; the last few thousand sources of this process are known. Until it has worked once also
        CannotRun and Refused.
        """
        fresh: list[Record] = []
        sources: dict[bytes, None] = {}
        for letter in letters:
            source = _source_of(letter.headers)
            if not source or (source not in sources and source not in self._written):
                fresh.append(letter)
                sources[source] = None
        await self._writer.write([_to_message(letter) for letter in fresh])
        self._written |= sources
        while len(self._written) > _REMEMBERED:
            self._written.popitem(last=False)

    async def read_all(self, limit: int | None = None, *, scan: int | None = None) -> Sequence[Record]:
        """The newest `limit` letters (all without it), oldest first, one per source. `scan`: only so many records at
        the end of each partition are looked at.

        The time is the record's own; the position is that of the letter in its topic, generation 0. Raises CannotRun,
        Refused, Unavailable.
        """
        kept: OrderedDict[bytes, ConsumerRecord] = OrderedDict()
        async with shelf(self._settings, self._topic) as opened:
            async for records in opened.newest(scan):
                for record in records:
                    source = _source_of(record.headers) or f"{record.partition}:{record.offset}".encode()
                    kept.setdefault(source, record)
        ordered = sorted(kept.values(), key=_age)
        return [
            _to_letter(record) for record in (ordered if limit is None else ordered[max(0, len(ordered) - limit) :])
        ]

    async def close(self) -> None:
        """Bounded; may be called again."""
        await self._writer.close()


class KafkaJournal:
    """Journal over one topic. `key_of` gives a line its key; without it lines have none.

    Over several partitions the order is that of the times they were written at.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        *,
        key_of: Callable[[bytes], bytes | None] | None = None,
        deadline_s: float = 5.0,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._key_of = key_of
        self._writer = Writer(settings, topic, deadline_s=deadline_s)

    async def open(self) -> None:
        """Connect and check the topic. Raises CannotRun (no such topic), Refused, Unavailable."""
        await self._writer.open()

    async def append(self, lines: Sequence[bytes]) -> None:
        """See Journal. Raises Refused for a newline, Unavailable; until it has worked once also CannotRun."""
        if any(b"\n" in line for line in lines):
            raise Refused("a journal line holds a newline")
        key_of = self._key_of
        await self._writer.write([Message(key_of(line) if key_of is not None else None, line) for line in lines])

    async def read(self) -> Sequence[bytes]:
        """See Journal. Raises CannotRun, Refused, Unavailable."""
        return await self.tail(None)

    async def tail(self, limit: int | None, since: Millis | None = None) -> Sequence[bytes]:
        """The newest `limit` lines, oldest first, and of these no older ones than `since` (ms of writing); all of them
        for None. Raises CannotRun, Refused, Unavailable.
        """
        found: dict[int, deque[ConsumerRecord]] = {}
        async with shelf(self._settings, self._topic) as opened:
            async for records in opened.newest(limit, since):
                for record in records:
                    found.setdefault(record.partition, deque(maxlen=limit)).append(record)
        ordered = sorted((record for records in found.values() for record in records), key=_age)
        newest = ordered if limit is None else ordered[max(0, len(ordered) - limit) :]
        return [record.value or b"" for record in newest]

    async def close(self) -> None:
        """Bounded; may be called again."""
        await self._writer.close()


def _age(record: ConsumerRecord) -> tuple[int, int, int]:
    return record.timestamp, record.partition, record.offset


def _source_of(headers: Sequence[tuple[str, bytes]]) -> bytes:
    """The last one counts: a letter that was sent again and died again has the header of its first death too."""
    return next((value for name, value in reversed(headers) if name == SOURCE_HEADER), b"")


def _to_message(letter: Record) -> Message:
    headers = (*letter.headers, (TIME_HEADER, str(int(letter.timestamp)).encode()))
    return _cut(Message(letter.key, letter.value, headers=headers))


def _cut(message: Message) -> Message:
    """The message as it is, or what fits of it: a record as large as its topic takes has no room for our headers, and
    a letter that is refused for ever would keep its node from being heard.
    """
    if (over := _size(message) - _LETTER_BYTES) <= 0:
        return message
    value = message.value or b""
    note = (CUT_HEADER, f"value of {len(value)} bytes".encode())
    if over + _HEADER_BYTES + len(note[1]) > len(value):
        # The headers alone are too long; of those only ours are kept, and of the key what an operator can read.
        ours = tuple(header for header in message.headers if header[0].startswith("fault-agent-"))
        message = replace(message, key=None if message.key is None else message.key[:1024], headers=ours)
        note = (CUT_HEADER, note[1] + b", key and headers of the sender")
        over = _size(message) - _LETTER_BYTES
    kept = len(value) - max(0, over + _HEADER_BYTES + len(note[1]))
    return replace(message, value=value[: max(0, kept)], headers=(*message.headers, note))


def _size(message: Message) -> int:
    headers = sum(len(name.encode()) + len(value) + 20 for name, value in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers


def _to_letter(record: ConsumerRecord) -> Record:
    times = [value for name, value in record.headers if name == TIME_HEADER]
    time = int(times[-1]) if times and times[-1].isdigit() else record.timestamp
    headers = tuple(header for header in record.headers if header[0] != TIME_HEADER)
    return Record(Position(0, record.partition, record.offset), record.key, record.value, headers, Millis(time))
