"""Topics and dead letters: what `fault-agent topics` and `fault-agent deadletter` do on a broker.

The one rule: nothing is changed that was not asked for; `check` only looks.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.adapters.kafka import (
    Finding,
    KafkaDeadLetters,
    KafkaSettings,
    TopicPlan,
    check,
    create,
    plan_of,
)
from agent.adapters.kafka.writer import Message, Writer
from agent.app.bootstrap.common import silence_client
from agent.app.settings import Settings
from agent.domain.events import Record
from agent.errors import BadUsage, CannotRun
from agent.wire.requeue import requeued


def kafka_of(settings: Settings) -> KafkaSettings:
    """How to reach the broker, the password from its file if there is one. Raises BadUsage."""
    kafka = settings.kafka
    password = kafka.password.get_secret_value()
    if kafka.password_file:
        try:
            password = Path(kafka.password_file).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise BadUsage(f"kafka.password_file: cannot read {kafka.password_file}: {error}") from error
    return KafkaSettings(
        bootstrap_servers=kafka.bootstrap_servers,
        security_protocol=kafka.security_protocol,
        sasl_mechanism=kafka.sasl_mechanism,
        username=kafka.username,
        password=password,
        ca_file=kafka.ca_file,
        cert_file=kafka.cert_file,
        key_file=kafka.key_file,
    )


def create_topics(settings: Settings, event_partitions: int, replicas: int) -> list[str]:
    """Make the topics that are missing; their names. Raises CannotRun, Refused, Unavailable."""
    silence_client()
    return asyncio.run(create(kafka_of(settings), _plan(settings, event_partitions), replicas=replicas))


def check_topics(settings: Settings, event_partitions: int) -> list[Finding]:
    """What is wrong with the topics. Raises CannotRun, Refused, Unavailable."""
    silence_client()
    return asyncio.run(check(kafka_of(settings), _plan(settings, event_partitions)))


async def reports_fit(settings: Settings, kafka: KafkaSettings, say: Callable[[str], None]) -> None:
    """Look at the reports topic before anything is kept in it, as far as the account may see its settings.

    Raises CannotRun when its cleanup policy would let reports, which are each node's only memory, run out of time.
    """
    plan = next(one for one in _plan(settings, 1) if one.name == settings.kafka.topic("reports"))
    for finding in await check(kafka, (plan,)):
        setting = finding.what.partition(" ")[0]
        if setting == "cleanup.policy":
            raise CannotRun(f"topic {finding.topic}: {finding.what}", hint=finding.fix)
        if setting in plan.wants:
            say(str(finding))


def _plan(settings: Settings, event_partitions: int) -> tuple[TopicPlan, ...]:
    names = settings.kafka
    return plan_of(
        events=names.topic("events"),
        reports=names.topic("reports"),
        audit=names.topic("audit"),
        deadletter=names.topic("deadletter"),
        event_partitions=event_partitions,
        report_partitions=names.report_partitions,
    )


def dead_letters(settings: Settings, limit: int | None) -> Sequence[Record]:
    """Dead letters of the topic, oldest first, each source once. Raises CannotRun, Refused, Unavailable."""
    silence_client()

    async def read() -> Sequence[Record]:
        letters = KafkaDeadLetters(kafka_of(settings), settings.kafka.topic("deadletter"))
        try:
            return await letters.read_all(limit)
        finally:
            await letters.close()

    return asyncio.run(read())


def requeue(settings: Settings, letters: Sequence[Record], stamp: str) -> int:
    """Send letters to the event stream again, each message with a new id; how many. Raises Refused, Unavailable."""
    silence_client()
    records = [requeued(letter, stamp) for letter in letters]

    async def send() -> int:
        writer = Writer(kafka_of(settings), settings.kafka.topic("events"))
        try:
            await writer.open()
            for record in records:
                await writer.write([Message(record.key, record.value, headers=record.headers)])
        finally:
            await writer.close()
        return len(records)

    return asyncio.run(send())
