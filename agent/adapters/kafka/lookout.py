"""What there is in a topic, asked over a connection of its own: its id, its partitions, where they begin and end.

The one rule: it answers whether or not a consumer does, so that a consumer that has stopped in silence is found out.
(On a consumer's own connection a question waits behind its long poll, half a second and more.)
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaClient
from aiokafka import errors as kafka
from aiokafka.protocol.api import Request
from aiokafka.protocol.offset import OffsetRequest

from agent.adapters.kafka.clients import started, stop
from agent.adapters.kafka.errors import FOREIGN, as_ours
from agent.adapters.kafka.settings import KafkaSettings, client_arguments
from agent.adapters.kafka.topicrequest import NO_ID, TopicRequest, TopicRequestStruct
from agent.errors import AgentError, Unavailable

EARLIEST: Final = -2
LATEST: Final = -1
_PAUSES_S: Final = (0.0, 0.1, 0.3, 0.6)
"""Before looking again for a leader that was not where it was said to be."""
_READ_UNCOMMITTED: Final = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster has it now."""

    identity: bytes
    """Its id, another one after it was deleted and made anew; empty when the broker is too old to tell."""
    leaders: Mapping[int, int]
    """Partition to the node id of its leader, -1 for none."""


async def describe(client: AIOKafkaClient, settings: KafkaSettings, topic: str, *, doing: str = "") -> Topic:
    """Ask any broker for a topic. Raises CannotRun (there is none), Refused (no right to see it), Unavailable."""
    doing = doing or f"look at topic {topic}"
    told = (response := await _ask(client, settings, TopicRequest(topic), doing)).topics[0]
    if (code := told[0]) not in (0, kafka.LeaderNotAvailableError.errno):
        raise as_ours(kafka.for_code(code)(topic), settings, doing, topic=topic, operation="Describe")
    if response.API_VERSION == TopicRequestStruct.API_VERSION:
        identity, partitions = told[2], told[4]
    else:
        identity, partitions = NO_ID, told[3]
    leaders = {number: leader for _, number, leader, *_ in partitions}
    if not leaders:
        raise Unavailable(f"cannot {doing}: no partition has a leader yet")
    return Topic(b"" if identity == NO_ID else identity, leaders)


async def _ask(client: AIOKafkaClient, settings: KafkaSettings, request: Request[Any], doing: str) -> Any:
    """The answer of any broker: one that is down must not stand for the cluster."""
    nodes = [broker.nodeId for broker in client.cluster.brokers()] or ["bootstrap"]
    failed: AgentError = Unavailable(f"cannot {doing}: no answer in time")
    try:
        async with asyncio.timeout(settings.request_timeout_s):
            for node in random.sample(nodes, len(nodes)):
                try:
                    return await client.send(node, request)
                except FOREIGN as error:
                    failed = as_ours(error, settings, doing)
    except TimeoutError:
        pass
    raise failed


class Lookout:
    """Questions about one topic. Connects at the first question and anew after a failure."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._client: AIOKafkaClient | None = None
        self._last: Topic | None = None

    async def topic(self) -> Topic:
        """As it is now. Raises CannotRun (there is no such topic), Refused, Unavailable."""
        self._last = await describe(await self._connected(), self._settings, self._topic)
        return self._last

    async def offsets(self, partitions: Iterable[int], at: int) -> dict[int, int]:
        """Offset per partition: EARLIEST, LATEST (one past the last record), or the first record of time `at` (ms) or
        later; a partition that has none such is left out. Raises CannotRun, Refused, Unavailable.
        """
        wanted = set(partitions)
        topic = self._last or await self.topic()
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                for pause in _PAUSES_S:
                    try:
                        return await self._offsets(wanted, at, topic.leaders)
                    except (kafka.NodeNotReadyError, kafka.KafkaConnectionError, kafka.BrokerResponseError) as error:
                        if isinstance(error, kafka.TopicAuthorizationFailedError):
                            raise
                        # A leader has moved or is only just being made, or a broker was restarted: look again.
                    await asyncio.sleep(pause)
                    await (await self._connected()).force_metadata_update()
                    topic = await self.topic()
                return await self._offsets(wanted, at, topic.leaders)
        except FOREIGN as error:
            raise as_ours(error, self._settings, self._doing, topic=self._topic, operation="Describe") from error

    async def close(self) -> None:
        """Bounded; may be called again."""
        client, self._client, self._last = self._client, None, None
        if client is not None:
            await stop(client, self._settings)

    @property
    def _doing(self) -> str:
        return f"ask for offsets of topic {self._topic}"

    async def _connected(self) -> AIOKafkaClient:
        if self._client is None:
            arguments = await client_arguments(self._settings)
            client = AIOKafkaClient(**arguments)
            client.set_topics([self._topic])
            self._client = await started(client, self._settings)
        return self._client

    async def _offsets(self, wanted: set[int], at: int, leaders: Mapping[int, int]) -> dict[int, int]:
        by_node: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for partition in sorted(wanted):
            leader = leaders.get(partition, -1)
            if leader < 0:
                raise kafka.LeaderNotAvailableError(partition)
            by_node[leader].append((partition, at))
        found: dict[int, int] = {}
        for node, asked in by_node.items():
            response = await self._send(node, OffsetRequest(-1, _READ_UNCOMMITTED, [(self._topic, asked)]))
            for _, answers in response.topics:
                for partition, code, _, offset in answers:
                    if code:
                        raise kafka.for_code(code)(partition)
                    if offset >= 0:
                        found[partition] = offset
        return found

    async def _send(self, node: int, request: Request[Any]) -> Any:
        return await (await self._connected()).send(node, request)
