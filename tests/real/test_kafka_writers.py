"""What writes to a real broker: reports, dead letters, audit.

The one rule: whatever goes wrong ends in time, says what it was, and is not in the way of what comes next.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import kafkabroker as broker
import pytest
from services import harness
from services.kafkaserver import KafkaEndpoint

from agent.adapters.kafka import KafkaDeadLetters, KafkaJournal, KafkaReportFeed, KafkaReportLog, KafkaSettings
from agent.domain.events import Position, Record
from agent.domain.partition import partition_of
from agent.domain.vocab import Millis, NodeName
from agent.errors import CannotRun, Refused, Unavailable

N1, N2, N3 = NodeName("n1"), NodeName("rack-7.n2"), NodeName("n3")
COUNT = 4
LATER = Millis(4_102_444_800_000)
OPEN = Callable[..., Any]


@pytest.fixture
async def opened() -> AsyncIterator[OPEN]:
    """Makes an adapter and closes it afterwards; nothing of it may be left running then."""
    made: list[Any] = []

    def of(kind: Callable[..., Any], *arguments: object, **more: object) -> Any:
        made.append(kind(*arguments, **more))
        return made[-1]

    yield of
    for one in made:
        await one.close()
    ours = asyncio.current_task()
    if left := [task for task in asyncio.all_tasks() if task is not ours]:
        _, running = await asyncio.wait(left, timeout=15)
        assert not running


async def reports(endpoint: KafkaEndpoint, **configs: str) -> str:
    return await broker.make(
        endpoint.bootstrap, broker.fresh("reports"), COUNT, **({"cleanup_policy": "compact"} | configs)
    )


async def published(log: KafkaReportLog, report: bytes, *, within: float = 60) -> list[str]:
    """Publish until it goes through; what was said before."""
    said: list[str] = []
    async with asyncio.timeout(within):
        while True:
            try:
                await log.publish({N1: report})
            except Unavailable as error:
                said.append(str(error))
                await asyncio.sleep(0.1)
            else:
                return said


async def settled(feed: KafkaReportFeed) -> Mapping[NodeName, bytes | None]:
    """What the feed gives until everything that was there at `open` has been given."""
    found: dict[NodeName, bytes | None] = {}
    async with asyncio.timeout(30):
        while True:
            found |= await feed.read()
            if feed.complete:
                return found
            await feed.wait(0.2)


async def next_of(feed: KafkaReportFeed) -> Mapping[NodeName, bytes | None]:
    async with asyncio.timeout(30):
        while not (found := await feed.read()):
            await feed.wait(0.5)
    return found


async def test_a_report_is_in_the_partition_of_its_nodes_name(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("reports"), 6, cleanup_policy="compact")
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    await log.open()
    await log.publish(dict.fromkeys((N1, N2, N3), b"x"))
    found = await broker.read_all(kafka.bootstrap, topic)
    assert {(partition, key) for partition, key, _ in found} == {
        (partition_of(node.encode(), COUNT), node.encode()) for node in (N1, N2, N3)
    }


async def test_the_last_report_of_a_node_is_found_by_time_and_without(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka)
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    assert await log.last(N1, Millis(0)) is None
    await log.publish({N1: b"1", N2: b"other"})
    await log.publish({N1: b"2"})
    found = [await log.last(N1, since) for since in (Millis(0), LATER)]
    assert found == [b"2", b"2"]
    await log.tombstone(N1)
    assert [await log.last(N1, since) for since in (Millis(0), LATER)] == [None, None]
    assert await log.last(N2, Millis(0)) == b"other"
    assert dict(await log.latest()) == {N2: b"other"}


async def test_a_report_too_large_is_said_and_the_next_one_goes_through(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka, max_message_bytes="5000")
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    await log.publish({N1: b"1"})
    for size in (6_000, 2_000_000):  # refused by the broker, refused by the client
        with pytest.raises(Unavailable, match=r"larger than the topic takes.*max\.message\.bytes"):
            await log.publish({N1: bytes(size)})
    await log.publish({N1: b"2"})
    assert await log.last(N1, Millis(0)) == b"2"


async def test_a_message_of_a_mebibyte_and_a_quarter_goes_through(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka, max_message_bytes="1327104")
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    report = bytes(1_310_000)
    await log.publish({N1: report})
    assert await log.last(N1, Millis(0)) == report


async def test_a_first_write_that_can_never_work_says_so(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka, max_message_bytes="5000")
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    with pytest.raises(Refused, match="larger than the topic takes"):
        await log.publish({N1: bytes(6_000)})


async def test_too_few_partitions_are_said_at_the_start(kafka: KafkaEndpoint, opened: OPEN) -> None:
    log = opened(KafkaReportLog, broker.settings_of(kafka), await reports(kafka), 12)
    with pytest.raises(CannotRun, match="has 4 partitions and reports are spread over 12"):
        await log.open()


async def test_a_cancelled_publish_is_not_in_the_way_of_the_next(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka)
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    await log.publish({N1: b"0"})
    for _ in range(3):
        sending = asyncio.create_task(log.publish({N1: bytes(900_000)}))
        for _ in range(3):
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait({sending})
    await log.publish({N1: b"1"})
    await log.publish({N1: b"2"})
    assert await log.last(N1, Millis(0)) is not None


async def test_reports_go_through_again_after_the_broker_was_gone_for_ten_seconds(
    kafka_server: harness.Kafka, opened: OPEN
) -> None:
    topic = await reports(kafka_server.endpoint)
    log = opened(KafkaReportLog, broker.settings_of(kafka_server.endpoint), topic, COUNT, deadline_s=2.0)
    await log.publish({N1: b"1"})
    await asyncio.to_thread(kafka_server.stop)
    try:
        loop = asyncio.get_running_loop()
        end = loop.time() + 10
        while loop.time() < end:
            with pytest.raises(Unavailable):
                async with asyncio.timeout(15):
                    await log.publish({N1: b"lost"})
    finally:
        await asyncio.to_thread(kafka_server.start)
    await published(log, b"2")
    assert await log.last(N1, Millis(0)) == b"2"


async def test_reports_go_through_again_after_a_restart_of_the_broker(
    kafka_server: harness.Kafka, opened: OPEN
) -> None:
    topic = await reports(kafka_server.endpoint)
    log = opened(KafkaReportLog, broker.settings_of(kafka_server.endpoint), topic, COUNT)
    await log.publish({N1: b"1"})
    await asyncio.to_thread(kafka_server.restart)
    await published(log, b"2")
    assert await log.last(N1, Millis(0)) == b"2"


async def test_a_broker_that_stops_answering_costs_the_deadline_and_no_more(
    kafka_server: harness.Kafka, opened: OPEN
) -> None:
    topic = await reports(kafka_server.endpoint)
    log = opened(KafkaReportLog, broker.settings_of(kafka_server.endpoint), topic, COUNT, deadline_s=1.0)
    await log.publish({N1: b"1"})
    kafka_server.process.pause()
    try:
        for _ in range(2):
            with pytest.raises(Unavailable):
                async with asyncio.timeout(20):
                    await log.publish({N1: b"stuck"})
    finally:
        kafka_server.process.resume()
    await published(log, b"2")
    assert await log.last(N1, Millis(0)) in (b"2", b"stuck")  # what was on its way may still arrive, even later
    await log.publish({N1: b"3"})
    assert await log.last(N1, Millis(0)) == b"3"


async def test_a_right_taken_away_is_named_and_used_again_when_it_is_back(
    kafka_secured: harness.Kafka, opened: OPEN
) -> None:
    topic = await reports(kafka_secured.endpoint)
    await asyncio.to_thread(kafka_secured.allow, "writer", "Write", "Describe", topic=topic)
    log = opened(KafkaReportLog, broker.settings_of(kafka_secured.sasl("writer")), topic, COUNT)
    await published_when_allowed(log)
    await asyncio.to_thread(kafka_secured.allow, "writer", "Write", topic=topic, remove=True)
    said = ""
    async with asyncio.timeout(30):
        while not said:
            try:
                await log.publish({N1: b"2"})
            except Unavailable as error:
                said = str(error)
    assert f"give User:writer the operation Write on topic {topic}" in said
    await asyncio.to_thread(kafka_secured.allow, "writer", "Write", topic=topic)
    await published(log, b"3")


async def published_when_allowed(log: KafkaReportLog) -> None:
    """Rights take a moment to reach the broker."""
    async with asyncio.timeout(30):
        while True:
            try:
                await log.publish({N1: b"1"})
            except Refused:
                await asyncio.sleep(0.1)
            else:
                return


async def test_a_feed_gives_the_newest_of_each_node_then_what_comes(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka)
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    for number in range(5):
        await log.publish({N1: b"1-%d" % number, N2: b"2-%d" % number, N3: b"3"})
    await log.tombstone(N3)
    feed = opened(KafkaReportFeed, broker.settings_of(kafka), topic)
    await feed.open()
    assert not feed.complete
    assert await settled(feed) == {N1: b"1-4", N2: b"2-4", N3: None}
    await log.publish({N2: b"2-5"})
    assert await next_of(feed) == {N2: b"2-5"}
    await log.tombstone(N2)
    assert await next_of(feed) == {N2: None}
    assert {p.position == p.end for p in feed.progress().values()} == {True}


async def test_an_empty_topic_is_complete_at_once(kafka: KafkaEndpoint, opened: OPEN) -> None:
    feed = opened(KafkaReportFeed, broker.settings_of(kafka), await reports(kafka))
    await feed.open()
    assert (await feed.read(), feed.complete) == ({}, True)


async def test_a_feed_of_one_node_reads_its_partition_alone(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka)
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    await log.publish({N1: b"1", N2: b"2", N3: b"3"})
    feed = opened(KafkaReportFeed, broker.settings_of(kafka), topic, frozenset({N1}), partitions=COUNT)
    await feed.open()
    assert await settled(feed) == {N1: b"1"}
    assert set(feed.progress()) == {partition_of(b"n1", COUNT)}


async def test_each_report_in_turn_hides_no_other_writer(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka)
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    await log.publish({N1: b"foreign"})
    await log.publish({N1: b"ours"})
    feed = opened(KafkaReportFeed, broker.settings_of(kafka), topic, frozenset({N1}), partitions=COUNT, each=True)
    await feed.open()
    assert [await next_of(feed), feed.complete] == [{N1: b"foreign"}, False]
    assert [await next_of(feed), feed.complete] == [{N1: b"ours"}, True]


async def test_a_feed_may_begin_by_the_time_index(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka)
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    await log.publish({N1: b"1"})
    feed = opened(KafkaReportFeed, broker.settings_of(kafka), topic, since=LATER)
    await feed.open()
    assert (await feed.read(), feed.complete) == ({}, True)
    await log.publish({N1: b"2"})
    assert await next_of(feed) == {N1: b"2"}


async def test_a_feed_goes_on_after_a_restart_of_the_broker(kafka_server: harness.Kafka, opened: OPEN) -> None:
    topic = await reports(kafka_server.endpoint)
    settings: KafkaSettings = broker.settings_of(kafka_server.endpoint)
    log = opened(KafkaReportLog, settings, topic, COUNT)
    feed = opened(KafkaReportFeed, settings, topic)
    await feed.open()
    await published(log, b"1")
    assert await next_of(feed) == {N1: b"1"}
    await asyncio.to_thread(kafka_server.restart)
    await published(log, b"2")
    found: Mapping[NodeName, bytes | None] = {}
    async with asyncio.timeout(60):
        while not found:
            try:
                found = await next_of(feed)
            except Unavailable:
                await asyncio.sleep(0.1)
    assert found == {N1: b"2"}


async def test_a_reports_topic_made_anew_is_read_from_its_beginning(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await reports(kafka)
    feed = opened(KafkaReportFeed, broker.settings_of(kafka), topic)
    log = opened(KafkaReportLog, broker.settings_of(kafka), topic, COUNT)
    await log.publish({N1: b"1", N2: b"1"})
    await feed.open()
    assert set(await settled(feed)) == {N1, N2}
    await broker.delete(kafka.bootstrap, topic)
    await broker.make(kafka.bootstrap, topic, COUNT, cleanup_policy="compact")
    await published(log, b"2")
    found: Mapping[NodeName, bytes | None] = {}
    async with asyncio.timeout(60):
        while not found:
            try:
                found = await next_of(feed)
            except Unavailable:
                await asyncio.sleep(0.1)
    assert found == {N1: b"2"}


def letter(offset: int, key: bytes | None, value: bytes | None) -> Record:
    source = b"0:3:%d" % offset
    headers = (("traceparent", b"00-1"), ("fault-agent-reason", b"MALFORMED"), ("fault-agent-source", source))
    return Record(Position(0, 3, offset), key, value, headers, Millis(1_600_000_000_000 + offset))


async def test_dead_letters_are_kept_as_they_came(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("deadletter"))
    letters = [letter(1, b"n1", b"\xff{"), letter(2, b"n1", None), letter(3, None, b""), letter(4, None, None)]
    kept = opened(KafkaDeadLetters, broker.settings_of(kafka), topic)
    await kept.append(letters[:2])
    await kept.append(letters[2:])
    found = await kept.read_all()
    assert [(r.key, r.value, r.headers, r.timestamp) for r in found] == [
        (one.key, one.value, one.headers, one.timestamp) for one in letters
    ]
    assert [r.position.offset for r in found] == [0, 1, 2, 3]
    assert [r.position.offset for r in await kept.read_all(2)] == [2, 3]
    assert list(await kept.read_all(0)) == []


async def test_a_letter_of_the_same_source_is_kept_and_shown_once(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("deadletter"))
    kept = opened(KafkaDeadLetters, broker.settings_of(kafka), topic)
    await kept.append([letter(1, b"n1", b"x"), letter(1, b"n1", b"x")])
    await kept.append([letter(1, b"n1", b"x"), letter(2, b"n1", b"y")])
    assert len(await broker.read_all(kafka.bootstrap, topic)) == 2
    restarted = opened(KafkaDeadLetters, broker.settings_of(kafka), topic)
    await restarted.append([letter(1, b"n1", b"x")])
    assert len(await broker.read_all(kafka.bootstrap, topic)) == 3
    assert [r.value for r in await restarted.read_all()] == [b"x", b"y"]


async def test_many_letters_at_once_are_all_kept(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("deadletter"), 3)
    kept = opened(KafkaDeadLetters, broker.settings_of(kafka), topic)
    letters = [letter(number, b"n%d" % (number % 7), bytes(100_000)) for number in range(40)]
    await kept.append(letters)
    found = await kept.read_all()
    assert {r.timestamp for r in found} == {one.timestamp for one in letters}


async def test_audit_lines_may_have_keys_and_the_newest_are_found(kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = await broker.make(kafka.bootstrap, broker.fresh("audit"), 3)
    journal = opened(KafkaJournal, broker.settings_of(kafka), topic, key_of=lambda line: line[:1])
    for number in range(6):
        await journal.append([b"%d-line" % number])
    assert {(key, value) for _, key, value in await broker.read_all(kafka.bootstrap, topic)} == {
        (b"%d" % number, b"%d-line" % number) for number in range(6)
    }
    assert set(await journal.tail(6)) == {b"%d-line" % number for number in range(6)}
    assert len(await journal.tail(2)) == 2


@pytest.mark.parametrize("kind", [KafkaDeadLetters, KafkaJournal], ids=["dead letters", "journal"])
async def test_a_missing_topic_is_named_at_the_start(kind: OPEN, kafka: KafkaEndpoint, opened: OPEN) -> None:
    topic = broker.fresh("none")
    with pytest.raises(CannotRun, match=f"no topic {topic}.*fault-agent topics create"):
        await opened(kind, broker.settings_of(kafka), topic).open()
