"""Hands on a real broker for tests: topics made, grown and made anew, records written as another program writes them.

The one rule: aiokafka directly and nothing of the agent but its settings, so that the agent is never its own witness.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from services.kafkaserver import KafkaEndpoint

from agent.adapters.kafka import KafkaSettings

WAIT_S = 20.0


def fresh(prefix: str) -> str:
    """A topic name nobody else has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def settings_of(endpoint: KafkaEndpoint, **more: Any) -> KafkaSettings:
    """The agent's settings for an endpoint of the harness."""
    return KafkaSettings(
        bootstrap_servers=endpoint.bootstrap,
        security_protocol=endpoint.protocol,
        sasl_mechanism=endpoint.mechanism or "SCRAM-SHA-512",
        username=endpoint.username,
        password=endpoint.password,
        ca_file=str(endpoint.ca or ""),
        cert_file=str(endpoint.certificate or ""),
        key_file=str(endpoint.key or ""),
        **more,
    )


@asynccontextmanager
async def admin(bootstrap: str) -> AsyncGenerator[AIOKafkaAdminClient, None]:
    """An administrator at the plain door."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def make(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> str:
    """A topic with one replica, usable when it returns; settings as `cleanup_policy="compact"`."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    async with admin(bootstrap) as client:
        for _ in range(200):  # a topic that was just deleted may still be there
            answer = await client.create_topics([NewTopic(topic, partitions, 1, topic_configs=named)])
            if answer.topic_errors[0][1] == 0:
                break
            await asyncio.sleep(0.05)
        await _until(client, topic, partitions)
    return topic


async def delete(bootstrap: str, topic: str) -> None:
    """Gone when it returns."""
    async with admin(bootstrap) as client:
        await client.delete_topics([topic])
        await _until(client, topic, 0)


async def grow(bootstrap: str, topic: str, partitions: int) -> None:
    """More partitions than before."""
    async with admin(bootstrap) as client:
        await client.create_partitions({topic: NewPartitions(partitions)})
        await _until(client, topic, partitions)


async def send(
    bootstrap: str, topic: str, *records: tuple[bytes | None, bytes | None], partition: int | None = None
) -> Sequence[int]:
    """Write (key, value) records one after the other; the partitions they went to, by default those of their keys."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", max_request_size=2_000_000)
    await producer.start()
    try:
        sent = [
            await producer.send_and_wait(
                topic, value, key, partition=partition, timestamp_ms=1_700_000_000_000 + number
            )
            for number, (key, value) in enumerate(records)
        ]
    finally:
        await producer.stop()
    return [one.partition for one in sent]


async def read_all(bootstrap: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every record that is there: (partition, key, value)."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with admin(bootstrap) as client:
            told = (await client.describe_topics([topic]))[0]
        places = [TopicPartition(topic, one["partition"]) for one in told["partitions"]]
        consumer.assign(places)
        ends = await consumer.end_offsets(places)
        found: list[tuple[int, bytes | None, bytes | None]] = []
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [(record.partition, record.key, record.value) for record in records]
    finally:
        await consumer.stop()
    return found


async def send_in_transaction(bootstrap: str, topic: str, *records: tuple[bytes, bytes]) -> None:
    """Write them in one transaction, which leaves a marker behind them that is no record."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=fresh("transaction"))
    await producer.start()
    try:
        async with producer.transaction():
            for key, value in records:
                await producer.send_and_wait(topic, value, key)
    finally:
        await producer.stop()


async def _until(client: AIOKafkaAdminClient, topic: str, partitions: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            told = (await client.describe_topics([topic]))[0]
            if len(told["partitions"] if told["error_code"] == 0 else ()) == partitions and all(
                one["leader"] >= 0 for one in told["partitions"]
            ):
                return
            await asyncio.sleep(0.05)
