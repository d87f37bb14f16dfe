"""One producer that writes a few messages at a time and is thrown away at the first failure.

The one rule: a call ends within its deadline, and after a failed one nothing of it is in the way of the next. (An
idempotent producer whose batch was refused goes on with a gap in its sequence and fails for ever.) What a failed call
sent may still arrive.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from agent.adapters.kafka.clients import started, stop, stop_soon
from agent.adapters.kafka.errors import FOREIGN, as_ours
from agent.adapters.kafka.lookout import Topic, describe
from agent.adapters.kafka.settings import KafkaSettings, client_arguments
from agent.errors import AgentError, CannotRun, Refused, Unavailable

MESSAGE_BYTES: Final = 1_310_720
"""1.25 MiB: the largest message of any topic of ours, key and headers included."""

_BATCH_BYTES: Final = 262_144
"""The broker's size limit is on batches of messages, so several must not add up to what one may have."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is to be written; `partition` None leaves it to the key (murmur2), or to chance without one."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Writer:
    """Writes to one topic. Calls queue up: one of them is under way at any time.

    Until it has worked once an error keeps its own class (CannotRun, Refused), so that a process wrongly set up says
    so at its start; later every error is Unavailable, for what has worked may work again.
    """

    def __init__(self, settings: KafkaSettings, topic: str, *, deadline_s: float = 5.0) -> None:
        self._settings = settings
        self._topic = topic
        self._deadline_s = deadline_s
        self._turn = asyncio.Lock()
        self._producer: AIOKafkaProducer | None = None
        self._has_worked = False

    async def open(self) -> Topic:
        """Connect, and return the topic. Raises CannotRun (also: no such topic), Refused, Unavailable."""
        async with self._turn:
            try:
                producer = await self._connected()
                return await describe(producer.client, self._settings, self._topic)
            except AgentError as error:
                await self._give_up()
                raise self._graded(error) from error

    async def write(self, messages: Sequence[Message]) -> None:
        """All of them acknowledged by every replica in sync when it returns; then none or some, and the error.

        A cancelled call counts as failed. Raises Unavailable, and until it has worked once CannotRun and Refused.
        """
        if not messages:
            return
        async with self._turn:
            try:
                await self._write(messages)
            except AgentError as error:
                await self._give_up()
                raise self._graded(error) from error
            except BaseException:
                producer, self._producer = self._producer, None
                if producer is not None:
                    stop_soon(producer, self._settings)
                raise
        self._has_worked = True

    async def close(self) -> None:
        """Bounded; may be called again."""
        await self._give_up()

    async def _write(self, messages: Sequence[Message]) -> None:
        doing = f"write to topic {self._topic}"
        producer = await self._connected()
        try:
            async with asyncio.timeout(self._deadline_s):
                sent = [await self._send(producer, message) for message in messages]
                await asyncio.gather(*sent)
        except TimeoutError as error:
            raise Unavailable(f"cannot {doing}: not acknowledged within {self._deadline_s:g} s") from error
        except FOREIGN as error:
            raise as_ours(error, self._settings, doing, topic=self._topic, operation="Write") from error

    async def _send(self, producer: AIOKafkaProducer, message: Message) -> Any:
        if message.key is None and message.value is None:
            # The usual call refuses this, the protocol does not: a dead letter is kept as it came.
            batch = producer.create_batch()
            batch.append(key=None, value=None, timestamp=None, headers=list(message.headers))
            batch.close()
            partition = min(producer.client.cluster.partitions_for_topic(self._topic) or {0})
            return await producer.send_batch(batch, self._topic, partition=partition)
        partition, headers = message.partition, list(message.headers)
        return await producer.send(self._topic, message.value, message.key, partition=partition, headers=headers)

    async def _connected(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = AIOKafkaProducer(
                **await client_arguments(self._settings),
                acks="all",
                enable_idempotence=True,
                max_request_size=MESSAGE_BYTES,
                max_batch_size=_BATCH_BYTES,
                metadata_max_age_ms=60_000,
            )
            self._producer = await started(producer, self._settings, topic=self._topic, operation="Write")
            # Asked for by a request that does not make the topic, and at once where aiokafka would wait.
            await describe(self._producer.client, self._settings, self._topic)
        return self._producer

    async def _give_up(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop(producer, self._settings)

    def _graded(self, error: AgentError) -> AgentError:
        if self._has_worked and isinstance(error, CannotRun | Refused):
            return Unavailable(error.message, hint=error.hint)
        return error
