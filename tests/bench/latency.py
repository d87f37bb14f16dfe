"""From an event to the document that tells of it, beside the hops and writes it cannot do without; and when one dies.

The one rule: the clock of ours and of the limit both stop when a GET shows the change, after a watch has told of it.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from bench.site import Figure, Sight, Site, Stage, leading, message, metrics, percentile, started
from kubebuilders import a_group, a_node, a_pod
from services import harness, roles

from agent.adapters.kube import CONFIG_MAPS, KubeClient

CODE = "80C98000"
"""RestartRequest: a free card becomes unhealthy with it, a MindSpore job is restarted in place."""
QUIET_S = 0.35
"""A node reports at most each 200 ms: an event after a longer pause is one of a quiet spell."""
SEEN_S = 30.0
VCJOB = ("volcano-system", "vcjob-fault-npu-cm")
NODE, ALIVE = "path-node", "alive-node"
JOB_NODES = tuple(f"jobs-node-{number}" for number in range(8))
"""Jobs are spread over so many nodes, each with its own role."""
LABELS = {"framework": "mindspore", "fault-scheduling": "grace", "fault-retry-times": "3"}
CONTAINERS = [{"name": "ascend", "image": "registry.example.com/train:26.0", "command": ["python3"]}]
"""What the API server wants of a pod."""


class Limit:
    """What no way can do without: two produce→consume hops, and conditional PUTs."""

    def __init__(
        self,
        producer: AIOKafkaProducer,
        consumers: Sequence[AIOKafkaConsumer],
        topics: Sequence[str],
        client: KubeClient,
        puts: int,
    ) -> None:
        self._producer = producer
        self._consumers = consumers
        self._topics = topics
        self._client = client
        self._puts = puts
        self._made: list[dict[str, Any]] = []

    async def once(self, payload: bytes) -> float:
        """Seconds."""
        while len(self._made) < self._puts:
            body = {"metadata": {"name": f"limit-{self._puts}-{len(self._made)}"}, "data": {"value": ""}}
            self._made.append(await self._client.call("create", CONFIG_MAPS, "train", body=body))
        begin = time.perf_counter()
        for topic, consumer in zip(self._topics, self._consumers, strict=True):
            sent = await self._producer.send(topic, payload, partition=0)
            await consumer.getone()
            await sent
        for number, item in enumerate(self._made):
            name = item["metadata"]["name"]
            item["data"] = {"value": f"{begin}"}
            self._made[number] = await self._client.call("update", CONFIG_MAPS, "train", name, body=item)
        await self._client.call("get", CONFIG_MAPS, "train", str(self._made[-1]["metadata"]["name"]))
        return time.perf_counter() - begin


class Path:
    """Ours: one event sent, until the document tells of it."""

    def __init__(self, producer: AIOKafkaProducer, client: KubeClient, sight: Sight, topic: str) -> None:
        self._producer = producer
        self._client = client
        self._sight = sight
        self._topic = topic

    async def once(self, node: str, payload: bytes, where: tuple[str, str], true: Callable[[Sight], bool]) -> float:
        """Seconds."""
        begin = time.perf_counter()
        sent = await self._producer.send(self._topic, payload, node.encode())
        await self._sight.until(true, SEEN_S)
        await self._client.call("get", CONFIG_MAPS, *where)
        took = time.perf_counter() - begin
        await sent
        return took


def both(site: Site, samples: int, jobs: int) -> list[Figure]:
    """(b) fault-node, and reset.json."""
    # So many that hardly two roles share one: what a role does for another node's record is measured in (a), and on a
    # cluster it does it on another machine.
    stage = site.stage("path", event_partitions=32, report_partitions=32)
    kube = site.kube.endpoint
    roles.lay(kube, [a_node(name, devices=range(64)) for name in (NODE, *JOB_NODES)])
    for number in range(jobs):
        roles.lay(kube, _job(number))
    with ExitStack() as stack:
        coordinators = [stage.coordinator(number) for number in (1, 2)]
        started(stack, *(stage.node(name) for name in (NODE, *JOB_NODES)), *(process for process, _ in coordinators))
        return asyncio.run(_both(site, stage, coordinators, samples, jobs))


async def _both(site: Site, stage: Stage, coordinators: list[Any], samples: int, jobs: int) -> list[Figure]:
    await leading(*coordinators)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(site.client())
        producer = await stack.enter_async_context(site.producer())
        sight = await stack.enter_async_context(Sight(client))
        topics = ("bench.limit.a", "bench.limit.b")
        for topic in topics:
            await asyncio.to_thread(site.kafka.create_topic, topic)
        consumers = [await stack.enter_async_context(site.consumer(topic)) for topic in topics]
        path = Path(producer, client, sight, stage.topic("events"))
        one, two = (Limit(producer, consumers, topics, client, puts) for puts in (1, 2))
        await _warm(path)

        async def shown(number: int) -> tuple[float, float]:
            device, assertion = number // 2, ("occur", "recover")[number % 2]
            payload = message(NODE, number, CODE, assertion, device)
            wanted = assertion == "occur"
            await asyncio.sleep(QUIET_S)
            ours = await path.once(NODE, payload, VCJOB, _shows(CODE, wanted))
            return ours, await one.once(payload)

        async def recovered(number: int) -> tuple[float, float]:
            job, assertion = number // 2, ("occur", "recover")[number % 2]
            node, device = _place(job)
            payload = message(node, number, CODE, assertion, device)
            where, word = ("train", f"reset-config-job{job}"), ("unrecovered", "recovered")[number % 2]
            await asyncio.sleep(QUIET_S)
            ours = await path.once(node, payload, where, lambda s: f'"Status":"{word}"' in s.text(*where, "reset.json"))
            return ours, await two.once(payload)

        site.say(f"(b) {samples} events to fault-node, each beside the limit")
        first = await _figures("fault-node", "two hops + one PUT", samples, shown)
        site.say(f"(b) {2 * jobs} events to reset.json, each beside the limit")
        return [*first, *await _figures("reset.json", "two hops + two PUTs", 2 * jobs, recovered)]


async def _warm(path: Path) -> None:
    """Until the node roles have claimed, and the first events of each have made their way."""
    for node in (NODE, *JOB_NODES):
        for assertion, wanted in (("occur", True), ("recover", False)):
            payload = message(node, "warm", CODE, assertion, 63)
            await path.once(node, payload, VCJOB, _shows(CODE, wanted))
            await asyncio.sleep(1)


async def _figures(
    name: str, limit: str, count: int, once: Callable[[int], Awaitable[tuple[float, float]]]
) -> list[Figure]:
    pairs = [await once(number) for number in range(count)]
    ours, bare = [one for one, _ in pairs], [two for _, two in pairs]
    quarter = max(1, count // 4)
    found = []
    for word, part, goal in (("p50", 0.5, 1.5), ("p99", 0.99, 3.0)):
        # The spread is that of the ratio over four stretches of the run.
        ratios = tuple(
            percentile(ours[at : at + quarter], part) / percentile(bare[at : at + quarter], part)
            for at in range(0, count - quarter + 1, quarter)
        )
        ratio = percentile(ours, part) / percentile(bare, part)
        found.append(
            Figure(
                f"(b) event → {name}, {word}",
                f"{percentile(ours, part) * 1000:.1f} ms",
                f"{percentile(bare, part) * 1000:.1f} ms",
                f"≤ {goal:g} ×",
                ratio <= goal,
                ratios,
                f"limit: {limit}; ratio of all {count} samples {ratio:.2f}",
            )
        )
    return found


def _place(job: int) -> tuple[str, int]:
    """The node and the card of a job."""
    return JOB_NODES[job % len(JOB_NODES)], job // len(JOB_NODES)


def _job(number: int) -> list[dict[str, Any]]:
    """A MindSpore job of one rank on one card."""
    uid = f"00000000-0000-4000-8000-{number:012d}"
    group = f"job{number}-{uid}"
    node, device = _place(number)
    pod = a_pod(f"job{number}-0", node=node, group=group, devices=(device,), rank_index=0, labels=LABELS)
    pod["spec"]["containers"] = CONTAINERS
    return [a_group(group, owner=f"job{number}", owner_uid=uid, labels=LABELS, min_member=1), pod]


def failing(site: Site, kills: int) -> list[Figure]:
    """(c) A node whose agent is silent, and a leader that is killed."""
    stage = site.stage("fail")
    silent = [f"silent-{number}" for number in range(5)]
    roles.lay(site.kube.endpoint, [a_node(name, devices=range(8)) for name in (*silent, ALIVE)])
    with ExitStack() as stack:
        coordinators = [stage.coordinator(number) for number in range(kills + 2)]
        started(stack, stage.node(ALIVE), *(process for process, _ in coordinators[:2]))
        return asyncio.run(_failing(site, stage, coordinators, silent, kills))


async def _failing(site: Site, stage: Stage, coordinators: list[Any], silent: list[str], kills: int) -> list[Figure]:
    await leading(*coordinators[:2])
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(site.client())
        producer = await stack.enter_async_context(site.producer())
        sight = await stack.enter_async_context(Sight(client))
        path = Path(producer, client, sight, stage.topic("events"))
        site.say("(c) an event of each of five silent nodes")
        deputy = []
        for node in silent:
            payload = message(node, 1, CODE, "occur", 0)
            deputy.append(await path.once(node, payload, VCJOB, _shows(node, True)))
        taken, written, running = list[float](), list[float](), list(coordinators[:2])
        duration = stage.settings.lease.duration_s
        for number in range(kills):
            leader, _ = await leading(*running)
            site.say("(c) the leader is killed")
            running = [one for one in running if one[0] is not leader]
            await asyncio.sleep(1)
            leader.kill()
            begin = time.perf_counter()
            waiting = asyncio.create_task(_taken(running[0][1], begin))
            payload = message(ALIVE, number, CODE, "occur", number + 1)
            name = f"Ascend910-{number + 1}"
            await path.once(ALIVE, payload, VCJOB, _shows(f'"{name}"', True))
            written.append(time.perf_counter() - begin)
            taken.append(await waiting)
            running.append(coordinators[number + 2])
            await asyncio.to_thread(coordinators[number + 2][0].start)
            await asyncio.sleep(3)
        for process, _ in coordinators[2:]:
            await asyncio.to_thread(process.stop)
    worst = max(deputy)
    return [
        Figure(
            "(c) silent node: event → fault-node by the deputy",
            f"{worst:.2f} s",
            "–",
            "≤ 5 s",
            worst <= 5,
            note=f"the longest of {len(deputy)}, median {statistics.median(deputy):.2f} s; 3 s of it is its patience",
        ),
        Figure(
            "(c) leader killed → the other one leads",
            f"{max(taken):.2f} s",
            "–",
            f"≤ lease + 2 s = {duration + 2:g} s",
            max(taken) <= duration + 2,
            note=f"the longest of {len(taken)}; lease {duration:g} s; the next event in fault-node {max(written):.2f} s"
            " after the kill",
        ),
    ]


async def _taken(port: int, begin: float) -> float:
    """Seconds until this coordinator leads. Raises ServiceFailedError."""

    def probe() -> str:
        return "" if metrics(port).get("fault_agent_leading") else "it does not lead"

    await asyncio.to_thread(harness.wait_until, "another leader", probe, seconds=SEEN_S)
    return time.perf_counter() - begin


def _shows(text: str, wanted: bool) -> Callable[[Sight], bool]:
    """Whether fault-node has it, or has it not."""
    return lambda sight: (text in sight.text(*VCJOB, "fault-node")) is wanted
