"""Being let in, and not: each wrong setting is a clear error within seconds that says what to mend; and the topics."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kafkabroker as broker
import pytest
from services import harness
from services.kafkaserver import KafkaEndpoint

from agent.adapters.kafka import (
    Finding,
    KafkaFaultSource,
    KafkaReportFeed,
    KafkaReportLog,
    KafkaSettings,
    TopicPlan,
    check,
    create,
    plan_of,
)
from agent.domain.node import record_digest
from agent.domain.vocab import NodeName
from agent.errors import AgentError, CannotRun, Refused, Unavailable

SECONDS = 20
"""Far above what it takes, and far below the minutes that aiokafka's own time-outs add up to."""
N1 = NodeName("n1")


def source_of(settings: KafkaSettings, topic: str) -> KafkaFaultSource:
    return KafkaFaultSource(settings, topic, lambda count: frozenset(range(count)), record_digest)


OPENINGS: dict[str, Callable[[KafkaSettings, str], Any]] = {
    "source": source_of,
    "log": lambda settings, topic: KafkaReportLog(settings, topic, 1),
    "feed": KafkaReportFeed,
}


async def refusal(settings: KafkaSettings, kind: str, topic: str = "any") -> AgentError:
    """What opening says, in time."""
    one = OPENINGS[kind](settings, topic)
    with pytest.raises(AgentError) as caught:
        async with asyncio.timeout(SECONDS):
            await (one.open(None) if kind == "source" else one.open())
    await one.close()
    return caught.value


@pytest.mark.parametrize("kind", OPENINGS)
async def test_a_wrong_password_is_said_with_the_user_and_without_the_password(
    kind: str, kafka_secured: harness.Kafka
) -> None:
    error = await refusal(broker.settings_of(kafka_secured.sasl("writer", password="sesame")), kind)
    assert isinstance(error, CannotRun)
    assert "authentication failed for user writer (SCRAM-SHA-512)" in str(error)
    assert "check kafka.username, kafka.password" in str(error)
    assert "sesame" not in str(error)


WRONG: dict[str, tuple[Callable[[harness.Kafka], KafkaSettings], type[AgentError], str]] = {
    "wrong password, PLAIN": (
        lambda server: broker.settings_of(server.sasl("writer", "PLAIN", password="no")),
        CannotRun,
        "authentication failed for user writer (PLAIN)",
    ),
    "unknown user": (
        lambda server: replace(broker.settings_of(server.sasl("writer")), username="nobody"),
        CannotRun,
        "authentication failed for user nobody",
    ),
    "mechanism the broker does not offer": (
        lambda server: replace(broker.settings_of(server.sasl("writer")), sasl_mechanism="SCRAM-SHA-256"),
        CannotRun,
        "the broker does not offer SCRAM-SHA-256 (check kafka.sasl_mechanism)",
    ),
    "another authority": (
        lambda server: replace(broker.settings_of(server.sasl("writer")), ca_file=str(server.foreign_ca())),
        CannotRun,
        "certificate is not trusted",
    ),
    "the system's authorities": (
        lambda server: replace(broker.settings_of(server.sasl("writer")), ca_file=""),
        CannotRun,
        "check kafka.ca_file",
    ),
    "no client certificate": (
        lambda server: replace(broker.settings_of(server.mutual_tls("writer")), cert_file="", key_file=""),
        CannotRun,
        "check kafka.cert_file",
    ),
    "TLS at a plain door": (
        lambda server: replace(broker.settings_of(server.sasl("writer")), bootstrap_servers=server.endpoint.bootstrap),
        Unavailable,
        "does that port speak TLS? check kafka.security_protocol",
    ),
    "plain at a TLS door": (
        lambda server: KafkaSettings(server.sasl("writer").bootstrap),
        Unavailable,
        "does that port expect TLS? check kafka.security_protocol",
    ),
}


@pytest.mark.parametrize(("made", "kind", "said"), WRONG.values(), ids=WRONG)
async def test_a_wrong_setting_is_named(
    made: Callable[[harness.Kafka], KafkaSettings], kind: type[AgentError], said: str, kafka_secured: harness.Kafka
) -> None:
    error = await refusal(made(kafka_secured), "source")
    assert type(error) is kind
    assert said in str(error)


async def read_on(source: KafkaFaultSource) -> None:
    """Read until something is wrong. Raises that."""
    async with asyncio.timeout(SECONDS):
        while True:
            await source.read(10)
            await source.wait(0.1)


async def eventually(attempt: Callable[[], Awaitable[object]]) -> None:
    """Rights take a moment to reach the broker."""
    async with asyncio.timeout(30):
        while True:
            try:
                await attempt()
            except Refused:
                await asyncio.sleep(0.2)
            else:
                return


@pytest.mark.parametrize("door", ["SCRAM-SHA-512", "PLAIN", "mutual TLS"])
async def test_with_the_rights_for_it_each_door_leads_in(door: str, kafka_secured: harness.Kafka) -> None:
    topic = await broker.make(kafka_secured.endpoint.bootstrap, broker.fresh("reports"), cleanup_policy="compact")
    await asyncio.to_thread(kafka_secured.allow, "writer", "Read", "Write", topic=topic)
    endpoint: KafkaEndpoint
    if door == "mutual TLS":
        endpoint = kafka_secured.mutual_tls("writer")
    else:
        endpoint = kafka_secured.sasl("writer", "PLAIN" if door == "PLAIN" else "SCRAM-SHA-512")
    log = KafkaReportLog(broker.settings_of(endpoint), topic, 1)
    await eventually(lambda: log.publish({N1: b"1"}))
    assert dict(await log.latest()) == {N1: b"1"}
    await log.close()


async def test_a_right_that_is_missing_is_named_with_user_topic_and_operation(kafka_secured: harness.Kafka) -> None:
    topic = await broker.make(kafka_secured.endpoint.bootstrap, broker.fresh("events"))
    await broker.send(kafka_secured.endpoint.bootstrap, topic, (b"n1", b"x"))
    settings = broker.settings_of(kafka_secured.sasl("stranger"))
    for kind in OPENINGS:
        error = await refusal(settings, kind, topic)
        assert type(error) is Refused
        operation = "Write" if kind == "log" else "Describe"
        assert f"give User:stranger the operation {operation} on topic {topic}" in str(error)
    await asyncio.to_thread(kafka_secured.allow, "stranger", "Describe", topic=topic)
    source, log = source_of(settings, topic), KafkaReportLog(settings, topic, 1)
    await eventually(lambda: source.open(None))
    with pytest.raises(Refused, match=f"give User:stranger the operation Read on topic {topic}"):
        await read_on(source)
    with pytest.raises(Refused, match=f"give User:stranger the operation Write on topic {topic}"):
        await asyncio.wait_for(log.publish({N1: b"1"}), SECONDS)
    await source.close()
    await log.close()


async def test_a_broker_that_is_not_there_is_said_in_time(kafka_server: harness.Kafka) -> None:
    settings = broker.settings_of(kafka_server.endpoint, connect_timeout_s=1.0)
    kafka_server.process.pause()
    try:
        errors = [await refusal(settings, kind) for kind in OPENINGS]
    finally:
        kafka_server.process.resume()
    assert {type(error) for error in errors} == {Unavailable}


def plans(prefix: str) -> tuple[TopicPlan, ...]:
    return plan_of(
        events=f"{prefix}.events.v1",
        reports=f"{prefix}.reports.v1",
        audit=f"{prefix}.audit.v1",
        deadletter=f"{prefix}.deadletter.v1",
        event_partitions=3,
        report_partitions=4,
    )


async def test_topics_are_made_once_and_found_good(kafka: KafkaEndpoint) -> None:
    settings, plan = broker.settings_of(kafka), plans(broker.fresh("npu"))
    assert {(finding.topic, finding.what) for finding in await check(settings, plan)} == {
        (one.name, "there is no such topic") for one in plan
    }
    assert await create(settings, plan) == [one.name for one in plan]
    assert await check(settings, plan) == []
    assert await create(settings, plan) == []
    await broker.grow(kafka.bootstrap, plan[0].name, 5)
    assert await check(settings, plan) == []


WRONG_TOPICS: dict[str, tuple[int, dict[str, str], set[tuple[str, str]]]] = {
    "not compacted": (
        4,
        {"cleanup_policy": "delete"},
        {("cleanup.policy is delete and has to be compact", "--add-config cleanup.policy=compact")},
    ),
    "compacted and deleted": (
        4,
        {"cleanup_policy": "compact,delete"},
        {("cleanup.policy is compact,delete and has to be compact", "--add-config cleanup.policy=compact")},
    ),
    "large segments": (
        4,
        {"segment_bytes": "1073741824"},
        {("segment.bytes is 1073741824 and has to be at most 33554432", "--add-config segment.bytes=33554432")},
    ),
    "too few partitions": (3, {}, {("has 3 partitions instead of 4", "make kafka.report_partitions and the topic")}),
    "too many partitions": (6, {}, {("has 6 partitions instead of 4", "make kafka.report_partitions and the topic")}),
    "small messages, slow cleaning": (
        4,
        {"max_message_bytes": "1048588", "max_compaction_lag_ms": "86400000", "min_cleanable_dirty_ratio": "0.5"},
        {
            (
                "max.message.bytes is 1048588 and has to be at least 1327104",
                "--add-config max.message.bytes=1327104",
            ),
            (
                "max.compaction.lag.ms is 86400000 and has to be at most 600000",
                "--add-config max.compaction.lag.ms=600000",
            ),
            (
                "min.cleanable.dirty.ratio is 0.5 and has to be at most 0.1",
                "--add-config min.cleanable.dirty.ratio=0.1",
            ),
        },
    ),
}


@pytest.mark.parametrize(("partitions", "configs", "expected"), WRONG_TOPICS.values(), ids=WRONG_TOPICS)
async def test_what_is_wrong_with_the_reports_topic_is_found_with_what_mends_it(
    partitions: int, configs: dict[str, str], expected: set[tuple[str, str]], kafka: KafkaEndpoint
) -> None:
    settings, plan = broker.settings_of(kafka), plans(broker.fresh("npu"))
    good = {
        "cleanup_policy": "compact",
        "segment_bytes": "33554432",
        "max_compaction_lag_ms": "600000",
        "min_cleanable_dirty_ratio": "0.1",
        "max_message_bytes": "1327104",
    }
    await broker.make(kafka.bootstrap, plan[1].name, partitions, **(good | configs))
    await create(settings, plan)
    found: list[Finding] = await check(settings, plan)
    assert {finding.topic for finding in found} == {plan[1].name}
    for what, fix in expected:
        assert [one for one in found if one.what == what and fix in one.fix], what
    assert len(found) == len(expected)


async def test_making_topics_without_the_right_says_which(kafka_secured: harness.Kafka) -> None:
    settings, plan = broker.settings_of(kafka_secured.sasl("stranger")), plans(broker.fresh("npu"))
    with pytest.raises(Refused, match=f"give User:stranger the operation Create on topic {plan[0].name}"):
        await create(settings, plan)
    findings = await check(settings, plan)
    assert {one.fix for one in findings} == {
        f"give User:stranger the operation Describe on topic {one.name}" for one in plan
    }


async def test_a_value_the_broker_does_not_take_is_refused_with_its_words(kafka: KafkaEndpoint) -> None:
    with pytest.raises(Refused, match=r"cannot create topic npu.*[Rr]eplication"):
        await create(broker.settings_of(kafka), plans(broker.fresh("npu")), replicas=7)


async def test_a_certificate_file_that_is_none_is_named(tmp_path: Path, kafka_secured: harness.Kafka) -> None:
    good = broker.settings_of(kafka_secured.mutual_tls("writer"))
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("nothing")
    missing = tmp_path / "none.pem"
    for settings, field, path in [
        (replace(good, ca_file=str(missing)), "ca_file", missing),
        (replace(good, ca_file=str(rubbish)), "ca_file", rubbish),
        (replace(good, cert_file=str(rubbish)), "cert_file", rubbish),
        (replace(good, key_file=str(missing)), "key_file", missing),
    ]:
        error = await refusal(settings, "log")
        assert isinstance(error, CannotRun)
        assert f"kafka.{field}" in str(error)
        assert str(path) in str(error)
