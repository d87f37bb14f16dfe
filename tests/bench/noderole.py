"""The node role on a real broker: records a second beside bare reading of the same topic, and what it costs idle.

The one rule: the role is a process as it is shipped; how far it is, its own reports say.
"""

import asyncio
import statistics
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import orjson
from aiokafka import AIOKafkaConsumer
from bench.site import Figure, Site, Stage, cpu_s, memory_mb, started, while_running
from bench.stream import NODE, STEP_MS, Stream

from agent.adapters.kafka import KafkaReportLog
from agent.adapters.shipped import read_policy_path
from agent.domain.vocab import NodeName
from agent.wire.policyfile import load_policy

BATCH = 2000
"""Records of one read of the role; the bare reader takes as many."""
READ_S = 120.0
IDLE_S = 30.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Records a second by the clock, and microseconds of CPU a record."""

    rate: float
    cpu_us: float


def throughput(site: Site, rounds: int, count: int) -> list[Figure]:
    """(a) Every record the node's own, and one of a hundred, as in a partition that nodes share."""
    figures = []
    for name, share in (("every record is the node's own", 1), ("1 of 100 records is the node's own", 100)):
        site.say(f"(a) {name}: {rounds} rounds of {count:,} records")
        stage = site.stage(f"node{share}", event_partitions=1)
        bare, ours = asyncio.run(_rounds(site, stage, rounds, count * (20 if share > 1 else 1), share))
        ratios = tuple(two.rate / one.rate for one, two in zip(bare, ours, strict=True))
        cpu = tuple(one.cpu_us / two.cpu_us for one, two in zip(bare, ours, strict=True))
        figures.append(
            Figure(
                f"(a) node role, {name}",
                f"{statistics.median(one.rate for one in ours):,.0f}/s",
                f"{statistics.median(one.rate for one in bare):,.0f}/s",
                "≥ 0.5",
                statistics.median(ratios) >= 0.5,
                ratios,
                f"CPU {statistics.median(one.cpu_us for one in ours):.0f} µs a record beside "
                f"{statistics.median(one.cpu_us for one in bare):.0f}, ratio {statistics.median(cpu):.2f}",
            )
        )
    return figures


async def _rounds(site: Site, stage: Stage, rounds: int, count: int, share: int) -> tuple[list[Pace], list[Pace]]:
    await _fill(site, stage, count, share)
    bare, ours = [], []
    for number in range(rounds):
        bare.append(await _bare(site, stage, count))
        ours.append(await _role(site, stage, count))
        site.say(f"(a) round {number + 1}: bare {bare[-1].rate:,.0f}/s, the role {ours[-1].rate:,.0f}/s")
    return bare, ours


async def _fill(site: Site, stage: Stage, count: int, share: int) -> None:
    """The stream of one node, up to now; other nodes' records are the same with another key."""
    policy = load_policy(read_policy_path(None))
    records = Stream(policy, start=int(time.time() * 1000) - count * STEP_MS).take(count)
    async with site.producer() as producer:
        for first in range(0, count, BATCH):
            sent = [
                await producer.send(
                    stage.topic("events"),
                    record.value,
                    NODE.encode() if number % share == 0 else f"other-{number % share}".encode(),
                    timestamp_ms=record.timestamp,
                )
                for number, record in enumerate(records[first : first + BATCH], first)
            ]
            await asyncio.gather(*sent)


async def _bare(site: Site, stage: Stage, count: int) -> Pace:
    """Bare reading, `getmany` and `orjson.loads`, from the first batch to the last."""
    async with site.consumer(stage.topic("events"), "earliest") as consumer:
        done, skipped, begin, cpu = 0, 0, 0.0, 0.0
        while done < count:
            batches = await consumer.getmany(timeout_ms=1000, max_records=BATCH)
            if not skipped:
                begin, cpu = time.perf_counter(), time.process_time()
            for records in batches.values():
                for record in records:
                    with suppress(orjson.JSONDecodeError):
                        orjson.loads(record.value)
                done += len(records)
            skipped = skipped or done
        span, used = time.perf_counter() - begin, time.process_time() - cpu
    return Pace(count / span, used * 1e6 / count)


async def _role(site: Site, stage: Stage, count: int) -> Pace:
    """A role that begins with nothing: between the first report that covers records and the one that covers all."""
    log = KafkaReportLog(stage.kafka, stage.topic("reports"), stage.settings.kafka.report_partitions)
    await log.open()
    await log.tombstone(NodeName(NODE))
    await log.close()
    async with site.consumer(stage.topic("reports")) as reports:
        with ExitStack() as stack:
            process = stage.node(NODE)
            started(stack, process)
            return await while_running(process, _covered(reports, process.pid, count), READ_S)


async def _covered(reports: AIOKafkaConsumer, pid: int, count: int) -> Pace:
    first: tuple[int, int, float] | None = None
    async for record in reports:
        scanned = orjson.loads(record.value)["scanned"].get("0", {}).get("offset", 0) if record.value else 0
        if first is None and scanned:
            first = scanned, record.timestamp, cpu_s(pid)
        elif first is not None and scanned >= count:
            more, span = count - first[0], (record.timestamp - first[1]) / 1000
            return Pace(more / span, (cpu_s(pid) - first[2]) * 1e6 / more)
    raise AssertionError("a consumer does not end by itself")


def idle(site: Site) -> Figure:
    """(f) A role that has caught up and hears nothing."""
    site.say(f"(f) a node role idle for {IDLE_S:.0f} s")
    stage = site.stage("idle")
    with ExitStack() as stack:
        process = stage.node("idle-node")
        started(stack, process)
        asyncio.run(while_running(process, _caught_up(site, stage), READ_S))
        time.sleep(3)
        used, begin = cpu_s(process.pid), time.monotonic()
        time.sleep(IDLE_S)
        share = (cpu_s(process.pid) - used) / (time.monotonic() - begin)
        memory = memory_mb(process.pid)
    return Figure(
        "(f) node role idle",
        f"{memory:.0f} MB, {share:.2%} of a core",
        "–",
        "≤ 100 MB, ≤ 1 %",
        memory <= 100 and share <= 0.01,
    )


async def _caught_up(site: Site, stage: Stage) -> None:
    async with site.consumer(stage.topic("reports"), "earliest") as reports:
        async for record in reports:
            if orjson.loads(record.value)["caught_up"]:
                return
