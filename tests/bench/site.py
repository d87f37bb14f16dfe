"""Where the figures on real services are taken: a broker, an API server, topics, roles as processes, and who watches.

The one rule: what is measured runs in processes of its own; here are only the senders and the watches.
"""

import asyncio
import os
import ssl
import statistics
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from services import harness, roles
from services.processes import Process, free_ports

from agent.adapters.kafka import KafkaSettings
from agent.adapters.kube import CONFIG_MAPS, KubeClient, KubeSettings, KubeWatch, Watched, connect
from agent.app.bootstrap.topics import create_topics, kafka_of
from agent.app.settings import Settings, load_settings

READY_S = 90.0
CLEAN_S = 60.0
TICKS_S = os.sysconf("SC_CLK_TCK")
CLUSTER = "bench"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the answer. `ratios`: ours beside the limit, one of each round; empty where nothing stands beside."""

    name: str
    ours: str
    limit: str
    goal: str
    met: bool
    ratios: tuple[float, ...] = ()
    note: str = ""
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    """Processes that wanted one of the machine's cores when it was taken, ours included."""

    def plain(self) -> dict[str, Any]:
        """For --json."""
        ratios = self.ratios
        spread = {"min": min(ratios), "median": statistics.median(ratios), "max": max(ratios)} if ratios else {}
        return {
            "name": self.name,
            "ours": self.ours,
            "limit": self.limit,
            "goal": self.goal,
            "met": self.met,
            "ratio": {key: round(value, 4) for key, value in spread.items()} or None,
            "rounds": len(self.ratios),
            "note": self.note,
            "load": round(self.load, 1),
        }


@dataclass(frozen=True, slots=True)
class Stage:
    """Topics of their own on the broker, and settings of roles that use them."""

    config: Path
    settings: Settings
    kafka: KafkaSettings
    folder: Path

    def topic(self, name: str) -> str:
        """events, reports, audit or deadletter."""
        return self.settings.kafka.topic(name)

    def node(self, name: str) -> Process:
        """A node role, not started."""
        return roles.role(f"node-{name}", self.config, self.folder, node=name)

    def coordinator(self, number: int) -> tuple[Process, int]:
        """A coordinator, not started, and the port of its metrics."""
        (port,) = free_ports(1)
        return roles.role(f"coordinator-{number}", self.config, self.folder, port=port), port


class Site:
    """Both services, for as long as the bench lasts."""

    def __init__(self, kafka: harness.Kafka, kube: harness.Kube, folder: Path, say: Callable[[str], None]) -> None:
        self.kafka = kafka
        self.kube = kube
        self.folder = folder
        self.say = say

    @property
    def bootstrap(self) -> str:
        """host:port of the broker."""
        return self.kafka.endpoint.bootstrap

    def stage(self, name: str, *, event_partitions: int = 4, report_partitions: int = 4, **more: Any) -> Stage:
        """New topics under a prefix of their own; `more` are settings."""
        folder = self.folder / name
        folder.mkdir()
        parts: dict[str, Any] = {
            "cluster": {"id": CLUSTER},
            "mode": "act",
            "kafka": {
                "bootstrap_servers": self.bootstrap,
                "prefix": f"bench.{name}",
                "report_partitions": report_partitions,
            },
            "kubernetes": {"kubeconfig": str(self.kube.endpoint.kubeconfig)},
            "documents": {"reset_config": {"create": True}},
            "http": {"port": 0},
        }
        config = roles.settings(folder / "config.yaml", **{**parts, **more})
        settings = load_settings(config)
        create_topics(settings, event_partitions, 1)
        return Stage(config, settings, kafka_of(settings), folder)

    def clean(self) -> None:
        """Remove every ConfigMap of the roles, so that one figure leaves nothing to the next."""
        for namespace in ("fault-agent", "volcano-system", "mindx-dl", "train"):
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            self.kube.endpoint.request("DELETE", path, timeout_s=CLEAN_S)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[KubeClient]:
        """Requests as the administrator."""
        client = await connect(KubeSettings(kubeconfig=self.kube.endpoint.kubeconfig))
        async with client:
            yield client

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """The same for many requests of any kind; paths begin at the server's root."""
        endpoint = self.kube.endpoint
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=endpoint.ca))
        headers = {"Authorization": f"Bearer {endpoint.token}"}
        async with aiohttp.ClientSession(endpoint.server, connector=connector, headers=headers) as session:
            yield session

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[AIOKafkaProducer]:
        """Waits for every replica, as the agent's own."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        await producer.start()
        try:
            yield producer
        finally:
            await producer.stop()

    @asynccontextmanager
    async def consumer(self, topic: str, begin: str = "latest") -> AsyncIterator[AIOKafkaConsumer]:
        """Of all partitions of a topic; at its end, or with `earliest` at its beginning."""
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=self.bootstrap, auto_offset_reset=begin)
        await consumer.start()
        for place in consumer.assignment():
            await consumer.position(place)
        try:
            yield consumer
        finally:
            await consumer.stop()


class Sight:
    """Every ConfigMap as the API server shows it, over one watch; counts how often each was written."""

    def __init__(self, client: KubeClient) -> None:
        self._watch = KubeWatch(client, Watched(CONFIG_MAPS))
        self._news = asyncio.Condition()
        self._listed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.data: dict[tuple[str, str], dict[str, str]] = {}
        self.writes: Counter[tuple[str, str]] = Counter()

    async def __aenter__(self) -> "Sight":
        self._task = asyncio.create_task(self._follow())
        await self._listed.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        async for what, item in self._watch.changes():
            if what == "listed":
                self._listed.set()
                continue
            key = str(item["metadata"]["namespace"]), str(item["metadata"]["name"])
            async with self._news:
                if what == "set":
                    self.data[key] = dict(item.get("data") or {})
                    self.writes[key] += 1
                else:
                    self.data.pop(key, None)
                self._news.notify_all()

    async def until(self, true: Callable[["Sight"], bool], seconds: float) -> None:
        """Return as soon as it is so. Raises TimeoutError."""
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(lambda: true(self))

    def text(self, namespace: str, name: str, key: str) -> str:
        """A value of a ConfigMap; empty when there is none."""
        return self.data.get((namespace, name), {}).get(key, "")


def message(node: str, number: object, code: str, assertion: str, device: int, *, now: int | None = None) -> bytes:
    """One chip fault of `dcmi` as a message of now."""
    at = int(time.time() * 1000) if now is None else now
    fault = {
        "faultId": f"{node}-{device}-{code}",
        "faultType": "NPU",
        "faultCode": code,
        "faultTime": at,
        "assertion": assertion,
        "faultLocation": {"severity": "2"},
        "influence": [{"nodeName": node, "deviceIds": [device]}],
    }
    body = {"id": f"{node}-{number}-{assertion}", "timestamp": at, "version": "1.0", "resource": "dcmi"}
    return orjson.dumps({**body, "faults": [fault]})


def metrics(port: int) -> dict[str, float]:
    """Samples without labels. Empty while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            lines = response.read().decode().splitlines()
    except OSError:
        return {}
    plain = (line.split(" ") for line in lines if line and line[0] != "#" and "{" not in line)
    return {name: float(value) for name, value, *_ in plain}


async def leading(*coordinators: tuple[Process, int]) -> tuple[Process, int]:
    """The one that leads and has written once; waits for it. Raises ServiceFailedError."""

    def probe() -> str:
        found.clear()
        for process, port in coordinators:
            if not process.running:
                raise harness.ServiceFailedError(f"{process.name} ended: " + "\n".join(process.log_tail()))
            seen = metrics(port)
            if seen.get("fault_agent_leading") and seen.get("fault_agent_steps_total"):
                found.append((process, port))
        return "" if found else "nobody leads"

    found: list[tuple[Process, int]] = []
    await asyncio.to_thread(harness.wait_until, "a leader", probe, seconds=READY_S)
    return found[0]


async def while_running(process: Process, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """What the work gives. Raises ServiceFailedError when the process ends first, or the time is over."""
    task = asyncio.create_task(work)
    deadline = time.monotonic() + seconds
    try:
        while not task.done():
            if not process.running or time.monotonic() > deadline:
                what = f"not within {seconds:g} s" if process.running else "ended"
                raise harness.ServiceFailedError(f"{process.name}: {what}: " + "\n".join(process.log_tail()))
            await asyncio.wait({task}, timeout=0.5)
        return task.result()
    finally:
        task.cancel()


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        parts = file.read().rsplit(")", 1)[1].split()
    return (int(parts[11]) + int(parts[12])) / TICKS_S


def memory_mb(pid: int, what: str = "VmRSS") -> float:
    """Memory of a process in MB (10^6 bytes): VmRSS now, VmHWM at its most."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(what))
    return int(line.split()[1]) * 1024 / 1e6


def percentile(values: Sequence[float], part: float) -> float:
    """The nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def started(stack: ExitStack, *processes: Process) -> None:
    """Start them; they end with the stack."""
    for process in processes:
        stack.callback(process.stop)
        process.start()
