"""The Kafka source where a topic changes under it: grown, emptied, deleted, made anew, broker away.

The one rule: each record arrives in the end, and what cannot is named.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import kafkabroker as broker
import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from services import harness
from services.kafkaserver import KafkaEndpoint

from agent.adapters.kafka import KafkaFaultSource
from agent.domain.events import Record
from agent.domain.node import record_digest
from agent.domain.partition import partition_of
from agent.errors import AgentError, CannotRun, Unavailable

Open = Callable[..., KafkaFaultSource]
NODES = [f"rack-{number}.n{number}" for number in range(40)]


async def read_on(source: KafkaFaultSource, seconds: float) -> None:
    """Read until something is wrong. Raises that."""
    async with asyncio.timeout(seconds):
        while True:
            await source.read(10)
            await source.wait(0.1)


def everything(count: int) -> frozenset[int]:
    return frozenset(range(count))


@pytest.fixture
async def source_of(kafka: KafkaEndpoint) -> AsyncIterator[Open]:
    made: list[KafkaFaultSource] = []

    def of(topic: str, choose: Callable[[int], frozenset[int]] = everything, **more: float) -> KafkaFaultSource:
        made.append(KafkaFaultSource(broker.settings_of(kafka), topic, choose, record_digest, **more))
        return made[-1]

    yield of
    for source in made:
        await source.close()


async def collect(source: KafkaFaultSource, count: int) -> tuple[list[Record], list[str]]:
    """That many records and the notices on the way; an outage is waited out as the agent does."""
    records: list[Record] = []
    notices: list[str] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            try:
                batch = await source.read(100)
            except Unavailable:
                await asyncio.sleep(0.1)
                continue
            records += [item for item in batch.items if isinstance(item, Record)]
            notices += batch.notices
            if batch.at_end:
                await source.wait(0.2)
    return records, notices


async def test_records_of_the_java_client_are_in_the_partition_that_arithmetic_says(
    kafka_server: harness.Kafka, source_of: Open
) -> None:
    few = NODES[::8]
    topic = await broker.make(kafka_server.endpoint.bootstrap, broker.fresh("events"), 7)
    await asyncio.to_thread(kafka_server.produce, topic, *((node, "{}") for node in few))
    source = source_of(topic)
    await source.open(None)
    records, _ = await collect(source, len(few))
    assert {(r.key, r.position.partition) for r in records} == {
        (node.encode(), partition_of(node.encode(), 7)) for node in few
    }


async def test_a_node_finds_what_another_client_wrote_for_it(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"), 12)
    placed = await broker.send(kafka.bootstrap, topic, *((node.encode(), node.encode()) for node in NODES))
    assert placed == [partition_of(node.encode(), 12) for node in NODES]
    node = NODES[17].encode()
    source = source_of(topic, lambda count: frozenset({partition_of(node, count)}))
    await source.open(None)
    records, _ = await collect(source, 1)
    assert node in {record.value for record in records}


async def test_key_value_headers_and_time_come_as_they_were_sent(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    await broker.send(kafka.bootstrap, topic, (None, b"\x00\xff"), (b"n1", None))
    source = source_of(topic)
    await source.open(None)
    records, _ = await collect(source, 2)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in records] == [
        (None, b"\x00\xff", (), 1_700_000_000_000),
        (b"n1", None, (), 1_700_000_000_001),
    ]


async def test_partitions_added_later_are_read_from_their_first_record_and_old_ones_go_on(
    kafka: KafkaEndpoint, source_of: Open
) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"), 2)
    node = next(node for node in NODES if partition_of(node.encode(), 2) != partition_of(node.encode(), 5)).encode()
    old, new = partition_of(node, 2), partition_of(node, 5)
    source = source_of(topic, lambda count: frozenset({partition_of(node, count)}), survey_s=0.0)
    await source.open(None)
    await broker.send(kafka.bootstrap, topic, (node, b"1"))
    assert [r.value for r in (await collect(source, 1))[0]] == [b"1"]
    await broker.grow(kafka.bootstrap, topic, 5)
    await broker.send(kafka.bootstrap, topic, (node, b"2"))
    await broker.send(kafka.bootstrap, topic, (node, b"3"), partition=old)  # a producer that has not noticed yet
    records, notices = await collect(source, 2)
    assert sorted((r.position.partition, r.value) for r in records) == sorted([(new, b"2"), (old, b"3")])
    assert {r.position.generation for r in records} == {0}
    assert any("5 partitions" in notice for notice in notices)


async def test_a_restart_keeps_reading_the_partition_of_an_earlier_count(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"), 2)
    node = next(node for node in NODES if partition_of(node.encode(), 2) != partition_of(node.encode(), 5)).encode()
    choose = lambda count: frozenset({partition_of(node, count)})  # noqa: E731 - one line, used twice
    first = source_of(topic, choose)
    await first.open(None)
    left = (await first.read(10)).resume
    await first.close()
    await broker.send(kafka.bootstrap, topic, (node, b"1"))
    await broker.grow(kafka.bootstrap, topic, 5)
    await broker.send(kafka.bootstrap, topic, (node, b"2"))
    again = source_of(topic, choose)
    await again.open(left)
    records, _ = await collect(again, 2)
    assert sorted(r.value or b"" for r in records) == [b"1", b"2"]


async def test_records_deleted_before_they_were_read_are_named_and_the_generation_stays(
    kafka: KafkaEndpoint, source_of: Open
) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    await broker.send(kafka.bootstrap, topic, *((b"n1", str(n).encode()) for n in range(6)))
    source = source_of(topic)
    await source.open(None)
    left = (await source.read(2)).resume
    await source.close()
    async with broker.admin(kafka.bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=5)})
    again = source_of(topic)
    await again.open(left)
    records, notices = await collect(again, 1)
    assert [str(r.position) for r in records] == ["0:0:5"]
    assert [notice for notice in notices if "records 2 to 4 were deleted" in notice]


async def test_records_deleted_while_reading_are_named(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    await broker.send(kafka.bootstrap, topic, *((b"n1", bytes(900_000)) for _ in range(6)))
    source = source_of(topic)
    await source.open(None)
    first = await source.read(1)
    assert [str(item.position) for item in first.items] == ["0:0:0"]
    async with broker.admin(kafka.bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=6)})
    await broker.send(kafka.bootstrap, topic, (b"n1", b"after"))
    records: list[Record] = []
    notices: list[str] = []
    while not records or records[-1].value != b"after":
        came, told = await collect(source, 1)
        records, notices = records + came, notices + told
    begun = [r.position.offset for r in records]
    assert begun[-1] == 6
    lost = set(range(1, 6)) - set(begun)
    assert lost
    assert [notice for notice in notices if f"records {min(lost)} to {max(lost)} were deleted" in notice]


@pytest.mark.parametrize("count", [1, 3, 8], ids=["shorter", "as long", "longer"])
async def test_a_topic_made_anew_while_it_is_read_is_a_new_generation(
    count: int, kafka: KafkaEndpoint, source_of: Open
) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    await broker.send(kafka.bootstrap, topic, *((b"n1", b"old") for _ in range(3)))
    source = source_of(topic, survey_s=0.0)
    await source.open(None)
    assert len((await collect(source, 3))[0]) == 3
    await broker.delete(kafka.bootstrap, topic)
    with pytest.raises(Unavailable, match="there is no topic"):
        await source.read(10)
    await broker.make(kafka.bootstrap, topic)
    await broker.send(kafka.bootstrap, topic, *((b"n1", str(n).encode()) for n in range(count)))
    records, notices = await collect(source, count)
    assert [str(r.position) for r in records] == [f"1:0:{n}" for n in range(count)]
    assert any("made anew" in notice for notice in notices)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9], ids=str)
async def test_a_topic_made_anew_while_the_agent_was_down_is_noticed_by_what_lies_before_the_place(
    count: int, kafka: KafkaEndpoint, source_of: Open
) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    await broker.send(kafka.bootstrap, topic, (b"n1", b"a"), (b"n1", b"b"))
    source = source_of(topic)
    await source.open(None)
    left = (await source.read(10)).resume
    await source.close()
    await broker.delete(kafka.bootstrap, topic)
    await broker.make(kafka.bootstrap, topic)
    await broker.send(kafka.bootstrap, topic, *((b"n1", str(n).encode()) for n in range(count)))
    again = source_of(topic)
    await again.open(left)
    batch = await again.read(100)
    assert [str(item.position) for item in batch.items] == [f"1:0:{n}" for n in range(count)]
    assert batch.at_end
    assert any("made anew" in notice for notice in batch.notices)


async def test_a_topic_made_anew_with_fewer_partitions_is_noticed(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"), 3)
    source = source_of(topic)
    await source.open(None)
    left = (await source.read(10)).resume
    await source.close()
    await broker.delete(kafka.bootstrap, topic)
    await broker.make(kafka.bootstrap, topic, 1)
    await broker.send(kafka.bootstrap, topic, (b"n1", b"x"))
    again = source_of(topic)
    await again.open(left)
    records, notices = await collect(again, 1)
    assert [str(r.position) for r in records] == ["1:0:0"]
    assert any("has no partition 1, 2 any more" in notice for notice in notices)


async def test_places_without_digest_are_taken_at_their_word(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    await broker.send(kafka.bootstrap, topic, (b"n1", b"a"), (b"n1", b"b"))
    source = source_of(topic)
    await source.open(orjson.dumps({"0": {"generation": 4, "offset": 1}}))
    batch = await source.read(10)
    assert [str(item.position) for item in batch.items] == ["4:0:1"]
    assert batch.notices == ()


@pytest.mark.parametrize("token", [b"", b"[]", b"{", b'{"x":{}}', b'{"0":{"generation":0,"offset":-1}}'], ids=repr)
async def test_an_unreadable_token_begins_at_the_earliest_and_says_so(
    token: bytes, kafka: KafkaEndpoint, source_of: Open
) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    await broker.send(kafka.bootstrap, topic, (b"n1", b"a"))
    source = source_of(topic)
    await source.open(token)
    batch = await source.read(10)
    assert [str(item.position) for item in batch.items] == ["1:0:0"]
    assert any("unreadable" in notice for notice in batch.notices)


async def test_markers_of_transactions_do_not_keep_the_end_away(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    await broker.send_in_transaction(kafka.bootstrap, topic, (b"n1", b"a"), (b"n1", b"b"))
    source = source_of(topic)
    await source.open(None)
    batch = await source.read(10)
    assert [item.value for item in batch.items if isinstance(item, Record)] == [b"a", b"b"]
    assert batch.at_end
    again = source_of(topic)
    await again.open(batch.resume)
    rest = await again.read(10)
    assert (rest.items, rest.at_end, rest.notices) == ((), True, ())


async def test_progress_tells_what_is_there_and_not_yet_read(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    source = source_of(topic)
    await source.open(None)
    await broker.send(kafka.bootstrap, topic, *((b"n1", b"x") for _ in range(3)))
    assert [(p, at.position, at.end) for p, at in (await source.look()).items()] == [(0, 0, 3)]
    await source.read(2)
    assert [(p, at.position, at.end) for p, at in source.progress().items()] == [(0, 2, 3)]


async def test_a_cancelled_wait_loses_nothing(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    source = source_of(topic)
    await source.open(None)
    await source.read(10)
    waiting = [asyncio.create_task(source.wait(30)) for _ in range(1)]
    await asyncio.sleep(0)
    sending = asyncio.create_task(broker.send(kafka.bootstrap, topic, *((b"n1", str(n).encode()) for n in range(50))))
    values: list[bytes | None] = []
    while len(values) < 50:
        for task in waiting:
            task.cancel()
            await asyncio.wait({task})
        values += [item.value for item in (await source.read(7)).items if isinstance(item, Record)]
        waiting = [asyncio.create_task(source.wait(0.003))]
        await asyncio.wait(waiting, timeout=0.002)
    for task in waiting:
        await task
    await sending
    assert values == [str(n).encode() for n in range(50)]


async def test_a_broker_that_restarts_is_read_on_from_without_loss(
    kafka_server: harness.Kafka, source_of: Open
) -> None:
    bootstrap = kafka_server.endpoint.bootstrap
    topic = await broker.make(bootstrap, broker.fresh("events"))
    await broker.send(bootstrap, topic, (b"n1", b"1"), (b"n1", b"2"))
    source = source_of(topic)
    await source.open(None)
    assert [r.value for r in (await collect(source, 2))[0]] == [b"1", b"2"]
    waiting = asyncio.create_task(source.wait(2))
    await asyncio.to_thread(kafka_server.restart)
    await waiting
    await broker.send(bootstrap, topic, (b"n1", b"3"))
    records, notices = await collect(source, 1)
    assert ([str(r.position) for r in records], notices) == (["0:0:2"], [])


async def test_a_broker_that_answers_nothing_is_an_error_in_time_and_then_forgotten(
    kafka_server: harness.Kafka, source_of: Open
) -> None:
    bootstrap = kafka_server.endpoint.bootstrap
    topic = await broker.make(bootstrap, broker.fresh("events"))
    source = source_of(topic)
    await source.open(None)
    await source.read(10)
    kafka_server.process.pause()
    try:
        with pytest.raises(Unavailable):
            await read_on(source, 25)
    finally:
        kafka_server.process.resume()
    await broker.send(bootstrap, topic, (b"n1", b"1"))
    records, _ = await collect(source, 1)
    assert [r.value for r in records] == [b"1"]


async def test_a_consumer_that_has_stopped_in_silence_is_made_anew(kafka: KafkaEndpoint, source_of: Open) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("events"))
    source = source_of(topic, stall_s=1.0)
    await source.open(None)
    await source.read(10)
    consumer = source._reader._consumer
    assert consumer is not None
    consumer.pause(TopicPartition(topic, 0))
    await broker.send(kafka.bootstrap, topic, (b"n1", b"1"))
    assert [(at.position, at.end) for at in (await source.look()).values()] == [(0, 1)]
    with pytest.raises(Unavailable, match="do not come; connecting anew"):
        await read_on(source, 30)
    assert [r.value for r in (await collect(source, 1))[0]] == [b"1"]


async def test_a_missing_topic_is_named_with_what_makes_it(kafka: KafkaEndpoint, source_of: Open) -> None:
    source = source_of(topic := broker.fresh("none"))
    with pytest.raises(CannotRun, match=f"no topic {topic}.*fault-agent topics create"):
        await source.open(None)


async def test_reading_what_was_not_opened_is_refused(source_of: Open) -> None:
    with pytest.raises(AgentError, match="not open"):
        await source_of("nothing").read(1)
