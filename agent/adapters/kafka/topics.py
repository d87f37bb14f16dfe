"""The topics the agent needs: making them, and finding what is wrong with those that are there.

The one rule: what exists is never changed here; a finding says what to run instead.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from aiokafka import AIOKafkaClient
from aiokafka import errors as kafka
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest

from agent.adapters.kafka.clients import started, stop
from agent.adapters.kafka.errors import CREATE_HINT, FOREIGN, as_ours
from agent.adapters.kafka.lookout import describe
from agent.adapters.kafka.settings import KafkaSettings, client_arguments
from agent.adapters.kafka.writer import MESSAGE_BYTES
from agent.errors import CannotRun, Refused, Unavailable

_TOPIC_RESOURCE: Final = 2
_ROOM: Final = 16_384
"""Beside a message, a batch holds its own header."""
_LOOK_S: Final = 0.05
_DAY_MS: Final = 86_400_000

Rule = Literal["is", "at most", "at least"]


@dataclass(frozen=True, slots=True)
class Want:
    """What one setting of a topic has to be."""

    rule: Rule
    value: str

    def is_met(self, value: str) -> bool:
        """Whether a topic's value will do; -1 is Kafka's word for without limit."""
        if self.rule == "is":
            return {part.strip() for part in value.split(",")} == set(self.value.split(","))
        try:
            number, wanted = float(value), float(self.value)
        except ValueError:
            return False
        if self.rule == "at most":
            return 0 <= number <= wanted
        return number < 0 or number >= wanted


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as it has to be: `partitions` exactly, or at least with `may_grow`."""

    name: str
    partitions: int
    may_grow: bool
    wants: Mapping[str, Want]
    extra: Mapping[str, str] = field(default_factory=dict)
    """Settings it is made with and that are anybody's choice afterwards."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a topic, and what mends it."""

    topic: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.what}; {self.fix}"


def plan_of(
    *, events: str, reports: str, audit: str, deadletter: str, event_partitions: int, report_partitions: int
) -> tuple[TopicPlan, ...]:
    """The agent's four topics. Sizes and compaction follow from what a report is: the checkpoint of its node.

    A compacted topic keeps its active segment as it is, so small segments, a short lag and a low dirty ratio are what
    keeps reading it from the beginning short.
    """
    size = Want("at least", str(MESSAGE_BYTES + _ROOM))
    log = {"cleanup.policy": Want("is", "delete"), "max.message.bytes": size}
    compacted = {
        "cleanup.policy": Want("is", "compact"),
        "segment.bytes": Want("at most", str(32 * 1_048_576)),
        "max.compaction.lag.ms": Want("at most", "600000"),
        "min.cleanable.dirty.ratio": Want("at most", "0.1"),
        "max.message.bytes": size,
    }
    return (
        TopicPlan(events, event_partitions, True, log, {"retention.ms": str(7 * _DAY_MS)}),
        TopicPlan(reports, report_partitions, False, compacted),
        TopicPlan(audit, 1, True, log, {"retention.ms": str(90 * _DAY_MS)}),
        TopicPlan(deadletter, 1, True, log, {"retention.ms": str(30 * _DAY_MS)}),
    )


async def check(settings: KafkaSettings, plan: Sequence[TopicPlan]) -> list[Finding]:
    """What is wrong, topic by topic; empty when all is well. Raises CannotRun, Refused, Unavailable."""
    findings: list[Finding] = []
    async with _client(settings) as client:
        for topic in plan:
            findings += await _check_one(client, settings, topic)
    return findings


async def create(settings: KafkaSettings, plan: Iterable[TopicPlan], *, replicas: int = -1) -> list[str]:
    """Make the topics that are missing and return their names; what is there stays as it is.

    `replicas`: -1 for the broker's own default. Raises Refused (rights, or a value the broker does not take),
    CannotRun, Unavailable.
    """
    made: list[str] = []
    async with _client(settings) as client:
        for topic in plan:
            wanted = {name: want.value for name, want in topic.wants.items()} | dict(topic.extra)
            asked: tuple[Any, ...] = (topic.name, topic.partitions, replicas, [], list(wanted.items()))
            request = CreateTopicsRequest([asked], int(settings.request_timeout_s * 1000), False)
            controller = client.cluster.controller
            response = await _send(client, settings, request, f"create topic {topic.name}", controller)
            if _created(response.topic_errors[0], settings, topic.name):
                made.append(topic.name)
        for name in made:
            await _shown(client, settings, name)
    return made


async def _shown(client: AIOKafkaClient, settings: KafkaSettings, name: str) -> None:
    """Return once brokers know the topic, which is a moment after the controller made it; at the latest in time."""
    try:
        async with asyncio.timeout(settings.request_timeout_s):
            while True:
                try:
                    await describe(client, settings, name)
                except (CannotRun, Unavailable):
                    await asyncio.sleep(_LOOK_S)
                else:
                    return
    except TimeoutError as error:
        raise Unavailable(f"topic {name} was made and does not show", hint="run `fault-agent topics check`") from error


def _created(answer: Sequence[Any], settings: KafkaSettings, name: str) -> bool:
    code, said = answer[1], answer[2] if len(answer) > 2 else ""
    if code == kafka.TopicAlreadyExistsError.errno:
        return False
    if code == 0:
        return True
    error = as_ours(kafka.for_code(code)(said), settings, f"create topic {name}", topic=name, operation="Create")
    if isinstance(error, Unavailable) and not kafka.for_code(code).retriable:
        raise Refused(f"cannot create topic {name}: {said or kafka.for_code(code).__name__}")
    raise error


async def _check_one(client: AIOKafkaClient, settings: KafkaSettings, plan: TopicPlan) -> list[Finding]:
    try:
        topic = await describe(client, settings, plan.name)
        found = await _settings_of(client, settings, plan)
    except CannotRun as error:
        return [Finding(plan.name, "there is no such topic", CREATE_HINT if error.hint == CREATE_HINT else error.hint)]
    except Refused as error:
        return [Finding(plan.name, error.message, error.hint)]
    findings = []
    count = len(topic.leaders)
    if count < plan.partitions or (count > plan.partitions and not plan.may_grow):
        findings.append(Finding(plan.name, f"has {count} partitions instead of {plan.partitions}", _fix_count(plan)))
    for name, want in plan.wants.items():
        value = found.get(name)
        if value is not None and not want.is_met(value):
            fix = f"run kafka-configs.sh --alter --entity-type topics --entity-name {plan.name} "
            fix += f"--add-config {name}={want.value}"
            findings.append(Finding(plan.name, f"{name} is {value} and has to be {_words(want)}", fix))
    return findings


def _words(want: Want) -> str:
    return want.value if want.rule == "is" else f"{want.rule} {want.value}"


def _fix_count(plan: TopicPlan) -> str:
    if plan.may_grow:
        return f"run kafka-topics.sh --alter --topic {plan.name} --partitions {plan.partitions}"
    return "make kafka.report_partitions and the topic agree (delete and create it while no agent runs)"


async def _settings_of(client: AIOKafkaClient, settings: KafkaSettings, plan: TopicPlan) -> dict[str, str]:
    doing = f"read the settings of topic {plan.name}"
    request = DescribeConfigsRequest([(_TOPIC_RESOURCE, plan.name, list(plan.wants))], False)
    response = await _send(client, settings, request, doing)
    code, said, _, _, entries = response.resources[0][:5]
    if code:
        error = kafka.for_code(code)(said)
        raise as_ours(error, settings, doing, topic=plan.name, operation="DescribeConfigs")
    return {entry[0]: entry[1] for entry in entries if entry[1] is not None}


async def _send(
    client: AIOKafkaClient, settings: KafkaSettings, request: Any, doing: str, controller: Any = None
) -> Any:
    node = client.get_random_node() if controller is None else controller.nodeId
    try:
        return await client.send(node, request)
    except FOREIGN as error:
        raise as_ours(error, settings, doing) from error
    except NotImplementedError as error:
        raise CannotRun(f"cannot {doing}: the broker's version is not known to this agent") from error


@asynccontextmanager
async def _client(settings: KafkaSettings) -> AsyncGenerator[AIOKafkaClient, None]:
    client = await started(AIOKafkaClient(**await client_arguments(settings)), settings)
    try:
        await awake(client, settings.request_timeout_s)
        yield client
    finally:
        await stop(client, settings)


async def awake(client: AIOKafkaClient, within_s: float) -> None:
    """Return once the cluster names a broker that can be asked: one that has just begun answers before it is counted
    among those that are there. Raises Unavailable.
    """
    try:
        async with asyncio.timeout(within_s):
            while not (await client.force_metadata_update() and client.cluster.brokers()):  # noqa: ASYNC110  # nobody tells when it is
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        hint = "wait until a broker is up, then do the same again"
        raise Unavailable("Kafka answers, and names no broker that is there", hint=hint) from error
