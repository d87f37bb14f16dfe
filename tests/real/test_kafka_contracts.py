"""The contract cases of the stream ports on a real broker: what memory and folder promise, Kafka keeps."""

from collections.abc import AsyncIterator

import kafkabroker as broker
import pytest
from contracts.journal import JournalContract
from contracts.reportlog import ReportLogContract
from contracts.source import ResumeContract, SourceContract
from services.kafkaserver import KafkaEndpoint

from agent.adapters.kafka import KafkaFaultSource, KafkaJournal, KafkaReportLog
from agent.domain.node import record_digest
from agent.ports import FaultSource


def _all(count: int) -> frozenset[int]:
    return frozenset(range(count))


class KafkaStream:
    """A topic with one partition and a source on it."""

    def __init__(self, endpoint: KafkaEndpoint, topic: str) -> None:
        self._endpoint = endpoint
        self._topic = topic
        self._opened: list[KafkaFaultSource] = []
        self.source: FaultSource = self.again()

    async def send(self, *values: bytes) -> None:
        await broker.send(self._endpoint.bootstrap, self._topic, *((b"n1", value) for value in values))

    def again(self) -> FaultSource:
        source = KafkaFaultSource(broker.settings_of(self._endpoint), self._topic, _all, record_digest)
        self._opened.append(source)
        return source

    async def remake(self, *values: bytes) -> None:
        await broker.delete(self._endpoint.bootstrap, self._topic)
        await broker.make(self._endpoint.bootstrap, self._topic)
        await self.send(*values)

    async def close(self) -> None:
        for source in self._opened:
            await source.close()


class TestKafkaFaultSource(SourceContract, ResumeContract):
    @pytest.fixture
    async def stream(self, kafka: KafkaEndpoint) -> AsyncIterator[KafkaStream]:
        made = KafkaStream(kafka, await broker.make(kafka.bootstrap, broker.fresh("events")))
        yield made
        await made.close()


class TestKafkaReportLog(ReportLogContract):
    @pytest.fixture
    async def log(self, kafka: KafkaEndpoint) -> AsyncIterator[KafkaReportLog]:
        topic = await broker.make(kafka.bootstrap, broker.fresh("reports"), 4, cleanup_policy="compact")
        made = KafkaReportLog(broker.settings_of(kafka), topic, 4)
        yield made
        await made.close()


class TestKafkaJournal(JournalContract):
    @pytest.fixture
    async def journal(self, kafka: KafkaEndpoint) -> AsyncIterator[KafkaJournal]:
        made = KafkaJournal(
            broker.settings_of(kafka),
            await broker.make(kafka.bootstrap, broker.fresh("audit"), cleanup_policy="delete"),
        )
        yield made
        await made.close()
