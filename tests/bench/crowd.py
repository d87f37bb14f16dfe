"""Many nodes: a thousand that report a fault in the same second, and a coordinator that begins with ten thousand.

The one rule: the coordinator is a process as it is shipped; the nodes are cores of the node role in this one, whose
reports go through the real log.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
from bench.latency import CODE, CONTAINERS, LABELS, VCJOB
from bench.site import CLUSTER, Figure, Sight, Site, Stage, leading, memory_mb, message, metrics, started
from kubebuilders import a_group, a_node, a_pod
from services import harness

from agent.adapters.kafka import KafkaReportLog
from agent.adapters.otel import make_tracer
from agent.adapters.shipped import read_policy_path
from agent.app.node_app import NodeSide, Taken, encode_reports
from agent.domain.events import Position, Record
from agent.domain.vocab import MINUTE, Millis, NodeName
from agent.wire.inbound import Limits
from agent.wire.policyfile import load_policy

STORM = 1000
BATCHES = 20
"""The second of the storm in so many parts."""
SEEN_S = 60.0
BEGIN_S = 180.0
AT_ONCE = 16
"""Requests under way while objects are made."""
DEVICES = 16
MESSAGES = 4
"""Messages that each node of the big cluster has had."""
GENERATIONS = 3
"""Reports of each node in the log: compaction has not removed the older ones yet."""
FAULTY = 33
"""Of so many nodes one has a fault."""
JOB_PODS = 8
MERGE = {"Content-Type": "application/merge-patch+json"}


def _side() -> NodeSide:
    side = NodeSide(
        load_policy(read_policy_path(None)), CLUSTER, "bench", Limits(), Millis(15 * MINUTE), make_tracer({})
    )
    side.caught_up = True
    return side


def _take(side: NodeSide, node: str, offset: int, code: str, assertion: str, device: int) -> None:
    now = Millis(int(time.time() * 1000))
    value = message(node, offset, code, assertion, device, now=now)
    side.take(Record(Position(0, 0, offset), node.encode(), value, (), now), now, Taken())


def storm(site: Site) -> Figure:
    """(d) Every node in fault-node, counted from the first report of the second."""
    stage = site.stage("storm")
    with ExitStack() as stack:
        coordinator = stage.coordinator(1)
        started(stack, coordinator[0])
        return asyncio.run(_storm(site, stage, coordinator))


async def _storm(site: Site, stage: Stage, coordinator: Any) -> Figure:
    await leading(coordinator)
    nodes = [f"storm-{number:04d}" for number in range(STORM)]
    side = _side()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(site.client())
        sight = await stack.enter_async_context(Sight(client))
        log = KafkaReportLog(stage.kafka, stage.topic("reports"), stage.settings.kafka.report_partitions)
        stack.push_async_callback(log.close)
        await log.open()
        for node in nodes:
            side.claim(NodeName(node))
        await _publish(log, side)
        await _read(coordinator[1], STORM)
        await asyncio.sleep(1)
        site.say(f"(d) {STORM} nodes report a fault each within a second")
        before, every = sight.writes[VCJOB], sight.writes.total()
        begin = time.perf_counter()
        size = STORM // BATCHES
        for number in range(BATCHES):
            await asyncio.sleep(max(0.0, begin + number / BATCHES - time.perf_counter()))
            for at, node in enumerate(nodes[number * size : (number + 1) * size]):
                _take(side, node, number * size + at, CODE, "occur", at % 8)
            await _publish(log, side)
        sent = time.perf_counter() - begin
        await sight.until(lambda s: s.text(*VCJOB, "fault-node").count('"NodeName":"storm-') == STORM, SEEN_S)
        took = time.perf_counter() - begin
        writes, every = sight.writes[VCJOB] - before, sight.writes.total() - every
    return Figure(
        f"(d) {STORM} nodes report within a second → all in fault-node",
        f"{took:.2f} s, {writes} writes",
        "–",
        "≤ 2 s, ≤ 20",
        took <= 2 and writes <= 20,
        note=f"the last report went at {sent:.2f} s; {every} writes of ConfigMaps in all, ledger included",
    )


async def _publish(log: KafkaReportLog, side: NodeSide) -> None:
    reports = encode_reports(side.reports())
    nodes = sorted(reports)
    for first in range(0, len(nodes), 500):
        await log.publish({node: reports[node] for node in nodes[first : first + 500]})


async def _read(port: int, count: int) -> None:
    def probe() -> str:
        seen = metrics(port).get("fault_agent_reports_read_total", 0)
        return "" if seen >= count else f"{seen:.0f} of {count} reports read"

    await asyncio.to_thread(harness.wait_until, "reports read", probe, seconds=SEEN_S)


def rebuild(site: Site, nodes: int, pods: int) -> Figure:
    """(e) From the start of a coordinator until it has the whole picture and has acted on it.

    An earlier one has been there: ledgers and documents stand, as they do when a coordinator is replaced.
    """
    stage = site.stage("big")
    asyncio.run(_furnish(site, stage, nodes, pods))
    site.say("(e) a first coordinator finds all of it new")
    first = _start(stage, 1)
    site.say(f"(e) it had acted after {first.acted:.1f} s; another one starts in its place")
    again = _start(stage, 2)
    return Figure(
        f"(e) coordinator, {nodes:,} nodes × {DEVICES} devices, {pods:,} pods: cold rebuild",
        f"{again.acted:.1f} s, {again.most:.0f} MB",
        "–",
        "≤ 15 s, ≤ 400 MB",
        again.acted <= 15 and again.most <= 400,
        note=f"process up at {again.up:.1f} s, picture complete at {again.complete:.1f} s; memory at its most,"
        f" {again.now:.0f} MB 5 s later; the very first one, all of it new: {first.acted:.1f} s, {first.most:.0f} MB",
    )


@dataclass(slots=True)
class Beginning:
    """Seconds after the start of the process, and MB."""

    up: float = 0.0
    complete: float = 0.0
    acted: float = 0.0
    most: float = 0.0
    now: float = 0.0


def _start(stage: Stage, number: int) -> Beginning:
    found = Beginning()
    with ExitStack() as stack:
        process, port = stage.coordinator(number)
        begin = time.monotonic()
        started(stack, process)

        def probe() -> str:
            seen, since = metrics(port), time.monotonic() - begin
            found.up = found.up or (since if seen else 0.0)
            found.complete = found.complete or (since if seen.get("fault_agent_picture_complete") else 0.0)
            return "" if seen.get("fault_agent_leading") and seen.get("fault_agent_steps_total") else "no step yet"

        harness.wait_until("a coordinator that has acted", probe, seconds=BEGIN_S)
        found.acted = time.monotonic() - begin
        time.sleep(5)
        found.most, found.now = memory_mb(process.pid, "VmHWM"), memory_mb(process.pid)
    return found


async def _furnish(site: Site, stage: Stage, nodes: int, pods: int) -> None:
    """Reports in the log, and objects on the API server."""
    names = [f"big-{number:05d}" for number in range(nodes)]
    site.say(f"(e) {GENERATIONS} reports of each of {nodes:,} nodes")
    side = _side()
    log = KafkaReportLog(stage.kafka, stage.topic("reports"), stage.settings.kafka.report_partitions)
    await log.open()
    for number, node in enumerate(names):
        for at in range(MESSAGES):
            _take(side, node, number * MESSAGES + at, CODE, ("occur", "recover")[at % 2], (at // 2) % DEVICES)
        if number % FAULTY == 0:
            _take(side, node, nodes * MESSAGES + number, "80E18402", "occur", 3)
    for _ in range(GENERATIONS):
        side.all_dirty()
        await _publish(log, side)
    await log.close()
    site.say(f"(e) {nodes:,} nodes and {pods:,} pods are made on the API server")
    began = time.monotonic()
    async with site.session() as session:
        await _make(session, names, pods)
    site.say(f"(e) they are made, {time.monotonic() - began:.0f} s")


async def _make(session: aiohttp.ClientSession, names: Sequence[str], pods: int) -> None:
    """Jobs of eight pods with two devices each, on the first nodes."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def make(path: str, item: dict[str, Any]) -> None:
        meta = {key: value for key, value in item["metadata"].items() if key not in ("uid", "creationTimestamp")}
        async with turn:
            async with session.post(path, json={**item, "metadata": meta}) as answer:
                answer.raise_for_status()
            if item["kind"] == "Pod":
                body = orjson.dumps({"status": item["status"]})
                place = f"{path}/{meta['name']}/status"
                async with session.patch(place, data=body, headers=MERGE) as answer:
                    answer.raise_for_status()

    wanted = [("/api/v1/nodes", a_node(node, devices=range(DEVICES), serial=node)) for node in names]
    for number in range(pods // JOB_PODS):
        uid = f"00000000-0000-4000-9000-{number:012d}"
        group = f"big{number}-{uid}"
        path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/train/podgroups"
        wanted.append((path, a_group(group, owner=f"big{number}", owner_uid=uid, labels=LABELS, min_member=JOB_PODS)))
        for rank in range(JOB_PODS):
            at = number * JOB_PODS + rank
            pod = a_pod(
                f"big{number}-{rank}",
                node=names[at * 2 // DEVICES % len(names)],
                group=group,
                devices=(at * 2 % DEVICES, at * 2 % DEVICES + 1),
                rank_index=rank,
                labels=LABELS,
            )
            pod["spec"]["containers"] = CONTAINERS
            wanted.append(("/api/v1/namespaces/train/pods", pod))
    await asyncio.gather(*(make(path, item) for path, item in wanted))
