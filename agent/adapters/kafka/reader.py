"""A consumer without a group that reads given partitions from given offsets, and can be made anew at any moment.

The one rule: `positions` says what has been handed out, and nothing else does; a new consumer goes on right there.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka import errors as kafka

from agent.adapters.kafka.clients import started, stop
from agent.adapters.kafka.errors import FOREIGN, as_ours
from agent.adapters.kafka.settings import KafkaSettings, client_arguments
from agent.errors import Unavailable

PARTITION_BYTES: Final = 1_048_576
"""Fetched of one partition at a time; a single larger message comes all the same."""
FETCH_BYTES: Final = 8_388_608
STALL_S: Final = 10.0


class OutOfRange(Unavailable):
    """The next record to read is not in the partition: deleted meanwhile, or the topic was made anew."""


class Reader:
    """Reads one topic. `positions`: partition to the offset of the next record that `take` gives.

    `stall_s`: for so long records may be there and not come; then the consumer is made anew.
    """

    def __init__(self, settings: KafkaSettings, topic: str, *, stall_s: float = STALL_S) -> None:
        self._settings = settings
        self._topic = topic
        self._stall_s = stall_s
        self._consumer: AIOKafkaConsumer | None = None
        self._buffer: list[ConsumerRecord] = []
        self._behind_since: float | None = None
        self.positions: dict[int, int] = {}

    @property
    def buffered(self) -> int:
        """Records that are here and have not been taken."""
        return len(self._buffer)

    async def seek(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these offsets and no others; what is buffered is dropped."""
        self._buffer.clear()
        self._behind_since = None
        self.positions = dict(positions)
        if self._consumer is not None:
            self._place(self._consumer)

    async def fill(self, limit: int, seconds: float, only: Collection[int] = ()) -> bool:
        """Buffer at most `limit` more records (of these partitions only, if any are named); wait up to `seconds`
        when none is here. Whether any came.

        Raises OutOfRange, Refused (no right to read), CannotRun, Unavailable. A cancelled call loses nothing.
        """
        consumer = self._consumer or await self._start()
        places = [TopicPartition(self._topic, partition) for partition in only]
        try:
            came = await consumer.getmany(*places, timeout_ms=int(seconds * 1000), max_records=limit)
        except kafka.OffsetOutOfRangeError as error:
            raise OutOfRange(f"topic {self._topic}: {error}") from error
        except FOREIGN as error:
            doing = f"read topic {self._topic}"
            raise as_ours(error, self._settings, doing, topic=self._topic, operation="Read") from error
        for records in came.values():
            self._buffer.extend(records)
        if came:
            self._behind_since = None
        return bool(came)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """At most `limit` of the buffered records, in their partitions' order."""
        taken = self._buffer[:limit]
        del self._buffer[:limit]
        self.positions |= {record.partition: record.offset + 1 for record in taken}
        return taken

    def first(self, partition: int) -> ConsumerRecord | None:
        """The next record of that partition, if it is buffered."""
        return next((record for record in self._buffer if record.partition == partition), None)

    def skip(self, record: ConsumerRecord) -> None:
        """Count this buffered record as taken."""
        self._buffer.remove(record)
        self.positions[record.partition] = record.offset + 1

    async def has_reached(self, ends: Mapping[int, int]) -> bool:
        """Whether everything before these offsets is buffered or taken (markers of transactions are no records)."""
        if self._consumer is None:
            return not any(self.positions.get(partition, end) < end for partition, end in ends.items())
        for partition, end in ends.items():
            place = TopicPartition(self._topic, partition)
            if partition in self.positions and await self._consumer.position(place) < end:
                return False
        self._behind_since = None
        return True

    def highwater(self, partition: int) -> int:
        """One past the last record as the last fetch told it, -1 when none did."""
        if self._consumer is None:
            return -1
        highwater: int | None = self._consumer.highwater(TopicPartition(self._topic, partition))
        return -1 if highwater is None else highwater

    async def tell_stalled(self) -> None:
        """Call when records are there and none came: after `stall_s` of that the consumer is made anew.

        Raises Unavailable then.
        """
        now = asyncio.get_running_loop().time()
        if self._behind_since is None:
            self._behind_since = now
        elif now - self._behind_since > self._stall_s:
            await self.drop()
            raise Unavailable(f"topic {self._topic}: records are there and do not come; connecting anew")

    async def drop(self) -> None:
        """Let go of the consumer and of what is buffered; the next `fill` goes on at `positions` with a new one."""
        consumer, self._consumer = self._consumer, None
        self._buffer.clear()
        self._behind_since = None
        if consumer is not None:
            await stop(consumer, self._settings)

    async def _start(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            **await client_arguments(self._settings),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            max_partition_fetch_bytes=PARTITION_BYTES,
            fetch_max_bytes=FETCH_BYTES,
            metadata_max_age_ms=60_000,
        )
        self._consumer = await started(consumer, self._settings)
        self._place(self._consumer)
        return self._consumer

    def _place(self, consumer: AIOKafkaConsumer) -> None:
        places = {TopicPartition(self._topic, partition): offset for partition, offset in self.positions.items()}
        consumer.assign(list(places))
        for place, offset in places.items():
            consumer.seek(place, offset)
