"""A Kafka topic as a FaultSource: partitions chosen by arithmetic, places kept by us, nothing skipped in silence.

The one rule: where the stream is not what it was (records lost, topic made anew, partitions added), a notice says so.

A generation counts how often a partition was made anew under its name. Records lost to retention leave it as it is:
the offsets that follow are still those of the same records, and whoever else reads them names them alike.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from aiokafka import ConsumerRecord

from agent.adapters.kafka.lookout import EARLIEST, LATEST, Lookout, Topic
from agent.adapters.kafka.places import Place, from_token, to_token
from agent.adapters.kafka.reader import STALL_S, OutOfRange, Reader
from agent.adapters.kafka.settings import KafkaSettings
from agent.domain.events import Position, Record
from agent.domain.vocab import Millis
from agent.errors import AgentError, CannotRun, Unavailable
from agent.ports import Batch, Progress

_READ_AHEAD: Final = 500
_FRESH_S: Final = 0.01
"""What came so short a time ago brought the end of its partition with it; asking again would only delay it."""
_PATIENCE_S: Final = 1.0
"""How long one read waits for records that are known to be there."""


class KafkaFaultSource:
    """FaultSource over one topic.

    `choose(count)` names the partitions to read for a count of partitions; those chosen for earlier counts, and those
    of the resume token, are read for good. `digest_of` is the hash of a record that the token carries. `survey_s`
    is how often the topic is looked at for new partitions and for being another one, `stall_s` how long records may be
    there and not come before the consumer is made anew.
    """

    finished = False

    def __init__(
        self,
        settings: KafkaSettings,
        topic: str,
        choose: Callable[[int], frozenset[int]],
        digest_of: Callable[[Record], str],
        *,
        survey_s: float = 5.0,
        stall_s: float = STALL_S,
    ) -> None:
        self._topic = topic
        self._choose = choose
        self._digest_of = digest_of
        self._survey_s = survey_s
        self._lookout = Lookout(settings, topic)
        self._reader = Reader(settings, topic, stall_s=stall_s)
        self._is_open = False
        self._identity = b""
        self._places: dict[int, Place] = {}
        self._ends: dict[int, int] = {}
        self._notices: list[str] = []
        self._failed: AgentError | None = None
        self._is_astray = False
        self._survey_at = 0.0
        self._came_at = 0.0

    async def open(self, resume: bytes | None) -> None:
        await self.close()
        self._notices = []
        topic = await self._lookout.topic()
        self._identity = topic.identity
        left, first = self._left(resume)
        if cut_off := left.keys() - topic.leaders.keys():
            first = max(place.generation for place in left.values()) + 1
            self._notices.append(
                f"topic {self._topic} has no partition {_names(cut_off)} any more: it was made anew; reading it from "
                f"its earliest records as generation {first}"
            )
            left = {}
        chosen = (self._choose(len(topic.leaders)) & topic.leaders.keys()) | left.keys()
        if not chosen:
            raise CannotRun(f"topic {self._topic}: none of its {len(topic.leaders)} partitions is to be read")
        begins = await self._lookout.offsets(chosen, EARLIEST)
        self._ends = await self._lookout.offsets(chosen, LATEST)
        self._places = {partition: left.get(partition, Place(first, begins[partition])) for partition in chosen}
        for partition in left:
            self._bring_in_range(partition, begins[partition])
        await self._recognise(begins)
        self._survey_at = self._now() + self._survey_s
        self._is_open = True

    async def read(self, limit: int) -> Batch:
        if not self._is_open:
            raise CannotRun(f"topic {self._topic}: the source is not open")
        at_end = False
        try:
            await self._prepare()
            at_end = await self._fetch(limit)
        except AgentError as error:
            self._is_astray = self._is_astray or isinstance(error, OutOfRange)
            # What is here must not wait for the error; the next call meets it again.
            if not self._reader.buffered:
                raise await self._while_running(error) from error
        taken = self._reader.take(limit)
        items = self._to_items(taken)
        notices, self._notices = tuple(self._notices), []
        return Batch(items, to_token(self._places), at_end and not self._reader.buffered, notices)

    async def wait(self, seconds: float) -> None:
        if not self._is_open or self._reader.buffered or self._failed is not None or self._is_astray:
            return
        try:
            if await self._reader.fill(_READ_AHEAD, seconds):
                self._came_at = self._now()
        except OutOfRange:
            self._is_astray = True
        except AgentError as error:
            self._failed = error

    async def close(self) -> None:
        self._is_open = False
        self._failed, self._is_astray = None, False
        await self._reader.drop()
        await self._lookout.close()

    def progress(self) -> Mapping[int, Progress]:
        """Next offset to give and last known end, by partition; `look` brings the ends up to date."""
        return {
            partition: Progress(place.offset, max(self._ends.get(partition, 0), self._reader.highwater(partition)))
            for partition, place in self._places.items()
        }

    async def look(self) -> Mapping[int, Progress]:
        """The same with ends asked for now, over a connection of its own: true also when reading has stopped in
        silence. Raises Unavailable, Refused, CannotRun.
        """
        self._ends = await self._lookout.offsets(self._places, LATEST)
        return self.progress()

    def _left(self, resume: bytes | None) -> tuple[dict[int, Place], int]:
        """Places of the token, and the generation of partitions it does not name."""
        if resume is None:
            return {}, 0
        try:
            left = from_token(resume)
        except ValueError as error:
            self._notices.append(
                f"topic {self._topic}: where it was left is unreadable ({error}); reading it from its earliest records "
                "as generation 1"
            )
            return {}, 1
        return left, max((place.generation for place in left.values()), default=0)

    def _bring_in_range(self, partition: int, begin: int) -> None:
        """Go to the earliest record when the place is not within what the partition holds."""
        place = self._places[partition]
        if place.offset > self._ends[partition]:
            self._begin_anew(partition, begin, f"ends at {self._ends[partition]}, before {place.offset}")
        elif place.offset < begin:
            self._notices.append(
                f"topic {self._topic}, partition {partition}: records {place.offset} to {begin - 1} were deleted "
                f"before they were read; going on at the earliest, {begin}"
            )
            self._places[partition] = Place(place.generation, begin)

    def _begin_anew(self, partition: int, begin: int, why: str) -> None:
        generation = self._places[partition].generation + 1
        self._places[partition] = Place(generation, begin)
        self._notices.append(
            f"topic {self._topic}, partition {partition} {why}: it was made anew; reading it from {begin} as "
            f"generation {generation}"
        )

    async def _recognise(self, begins: Mapping[int, int]) -> None:
        """Begin to read; where the record before a place can be seen, it must be the one that was read."""
        doubtful = {p for p, place in self._places.items() if place.digest and place.offset > begins[p]}
        await self._reader.seek({p: place.offset - (p in doubtful) for p, place in self._places.items()})
        foreign = set()
        deadline = self._now() + 10 * _PATIENCE_S
        while doubtful:
            await self._reader.fill(_READ_AHEAD, _PATIENCE_S, doubtful)
            for partition in [p for p in doubtful if self._reader.first(p) is not None]:
                doubtful.discard(partition)
                if not self._is_left_there(partition):
                    foreign.add(partition)
            if self._now() > deadline:
                raise Unavailable(f"topic {self._topic}: no records of partition {_names(doubtful)} came in time")
        for partition in foreign:
            self._begin_anew(partition, begins[partition], "holds other records than those that were read")
        if foreign:
            await self._reader.seek({p: place.offset for p, place in self._places.items()})

    def _is_left_there(self, partition: int) -> bool:
        """Whether the first buffered record is the one before the place; it is then counted as taken."""
        record, place = self._reader.first(partition), self._places[partition]
        if (
            record is None
            or record.offset != place.offset - 1
            or self._digest_of(_to_record(record, 0)) != place.digest
        ):
            return False
        self._reader.skip(record)
        return True

    async def _prepare(self) -> None:
        """Before reading: what an earlier call met, then a look at the topic when it is due."""
        if self._reader.buffered:
            return
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed
        if self._is_astray or self._now() >= self._survey_at:
            await self._survey()

    async def _while_running(self, error: AgentError) -> AgentError:
        """What has worked may work again: a topic that is gone or a password that is refused now ends nothing."""
        if not isinstance(error, CannotRun):
            return error
        # A consumer of a topic that is not there asks for it without a pause.
        await self._reader.drop()
        self._survey_at = 0.0
        return Unavailable(error.message, hint=error.hint)

    async def _survey(self) -> None:
        topic = await self._lookout.topic()
        self._survey_at = self._now() + self._survey_s
        before = dict(self._places)
        is_another = bool(topic.identity and self._identity and topic.identity != self._identity)
        self._identity = topic.identity
        await self._follow(topic, is_another)
        self._is_astray = False
        if self._places != before:
            await self._reader.seek({p: place.offset for p, place in self._places.items()})

    async def _follow(self, topic: Topic, is_another: bool) -> None:
        chosen = self._choose(len(topic.leaders)) & topic.leaders.keys()
        kept = self._places.keys() & topic.leaders.keys()
        if not (is_another or self._is_astray or chosen - kept or self._places.keys() - kept):
            return
        begins = await self._lookout.offsets(chosen | kept, EARLIEST)
        self._ends = await self._lookout.offsets(chosen | kept, LATEST)
        generation = max((place.generation for place in self._places.values()), default=0)
        for partition in self._places.keys() - kept:
            self._notices.append(f"topic {self._topic} has no partition {partition} any more")
            del self._places[partition]
        for partition in kept:
            if is_another:
                self._begin_anew(partition, begins[partition], "has another topic id")
            else:
                self._bring_in_range(partition, begins[partition])
        if fresh := chosen - kept:
            self._notices.append(
                f"topic {self._topic} has {len(topic.leaders)} partitions now; reading {_names(fresh)} as well"
            )
            self._places |= {partition: Place(generation + int(is_another), begins[partition]) for partition in fresh}

    async def _fetch(self, limit: int) -> bool:
        """Buffer up to `limit` of the records that are there now. Whether that is all of them."""
        reader = self._reader
        is_fresh = self._now() - self._came_at < _FRESH_S
        if reader.buffered < limit:
            await reader.fill(limit - reader.buffered, 0)
        if reader.buffered >= limit or is_fresh:
            told = await reader.has_reached({p: reader.highwater(p) for p in self._places})
            if is_fresh and told:
                return True
            if reader.buffered >= limit and not told:
                return False
        self._ends = await self._lookout.offsets(self._places, LATEST)
        deadline = self._now() + _PATIENCE_S
        while not await reader.has_reached(self._ends):
            if reader.buffered >= limit:
                return False
            if not await reader.fill(limit - reader.buffered, _PATIENCE_S / 4) and self._now() > deadline:
                await reader.tell_stalled()
                return False
        return True

    def _to_items(self, taken: list[ConsumerRecord]) -> tuple[Record, ...]:
        generations = {partition: place.generation for partition, place in self._places.items()}
        items = tuple([_to_record(raw, generations[raw.partition]) for raw in taken])
        for partition, last in {record.position.partition: record for record in items}.items():
            offset = last.position.offset + 1
            self._places[partition] = Place(generations[partition], offset, self._digest_of(last), last.timestamp)
        return items

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _to_record(raw: ConsumerRecord, generation: int) -> Record:
    position = Position(generation, raw.partition, raw.offset)
    return Record(position, raw.key, raw.value, raw.headers, Millis(raw.timestamp))


def _names(partitions: set[int] | frozenset[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))
