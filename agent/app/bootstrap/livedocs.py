"""The documents of a cluster, as `documents diff` and `release` look at them.

The one rule: to look, rights to read are enough; nothing is written but under the Lease.
"""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from agent.adapters.kafka import KafkaJournal, KafkaReportFeed, KafkaSettings
from agent.adapters.kube import KubeDocumentStore, KubeJobView, KubeLease, connect, usual_kinds
from agent.adapters.kube.client import KubeClient
from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.otel import SilentTracer
from agent.adapters.overlay import OverlayStore
from agent.app.bootstrap.common import (
    MANAGER,
    cluster_of,
    if_acting,
    load_policy_at,
    modes_of,
    silence_client,
    wall_clock,
)
from agent.app.bootstrap.coordinator import OURS, elector_of, kube_of, wanted
from agent.app.bootstrap.topics import kafka_of
from agent.app.fencedstore import FencedStore
from agent.app.lease import Election
from agent.app.preview import Layers, Preview, preview
from agent.app.release import Letting, Released, release, while_leading
from agent.app.settings import Settings
from agent.app.world import World
from agent.domain.cluster import ClusterBook
from agent.domain.events import Decision, NodeReport
from agent.domain.policy import Policy
from agent.domain.vocab import Mode, NodeName
from agent.errors import AgentError, BadReport, Unavailable
from agent.ports import DocumentStore
from agent.wire.audit import AuditLine, encode_audit
from agent.wire.report import decode

READ_S: Final = 60.0
"""How long the reports topic may take to be read to its end."""
LOOK_S: Final = 0.5
BEYOND_S: Final = 3.0
"""Waited for the lease beyond the time after which a dead leader's may be taken."""

Say = Callable[[str], None]


def preview_live(settings: Settings, policy_path: Path | None, say: Say) -> Sequence[Preview]:
    """What a coordinator in act mode would write now; findings are said. Raises CannotRun, Refused, Unavailable."""
    cluster_of(settings)
    silence_client()
    return asyncio.run(_preview(settings, load_policy_at(policy_path), say))


async def _preview(settings: Settings, policy: Policy, say: Say) -> Sequence[Preview]:
    limits, wishes = if_acting(settings, solo=False)
    book = ClusterBook(settings.cluster.id, limits, policy)
    kafka = await asyncio.to_thread(kafka_of, settings)
    book.reports.update(await newest_reports(settings, kafka, say))
    async with cluster_objects(settings, book, say) as client:
        for one in book.jobs.findings():
            say(f"{one.code} {one.object}: {one.reason}")
        real = KubeDocumentStore(client, MANAGER, labels=OURS)
        upper = MemoryDocumentStore(manager=MANAGER)
        layers = Layers(real, upper, OverlayStore(upper, real))
        modes = modes_of(settings, settings.mode or Mode.OBSERVE)
        return await preview(book, layers, settings.namespace, wishes, modes, SilentTracer(), wall_clock())


def release_live(settings: Settings, names: Collection[str] | None, say: Say, *, really: bool) -> Sequence[Released]:
    """Let go of the cluster's documents, or (`really` False) say what would be done. Raises CannotRun while a
    coordinator leads, BadUsage, Refused, Unavailable.
    """
    cluster_of(settings)
    silence_client()
    return asyncio.run(_release(settings, names, say, really=really))


async def _release(settings: Settings, names: Collection[str] | None, say: Say, *, really: bool) -> Sequence[Released]:
    limits, wishes = if_acting(settings, solo=False)
    book = ClusterBook(settings.cluster.id, limits)
    done: list[Released] = []
    async with cluster_objects(settings, book, say) as client:
        plain = KubeDocumentStore(client, MANAGER, labels=OURS)
        told: list[Decision] = []

        async def nothing() -> None:
            told.clear()

        if not really:
            shadow = OverlayStore(MemoryDocumentStore(manager=MANAGER), plain)
            letting = Letting(shadow, settings.namespace, wishes, told.append, nothing)
            return await release(letting, book, names, wall_clock())
        kafka = await asyncio.to_thread(kafka_of, settings)
        journal = KafkaJournal(kafka, settings.kafka.topic("audit"), deadline_s=settings.kafka.report_deadline_s)

        async def flush() -> None:
            # Training that waits is let go of also when nobody can write down why.
            lines = [encode_audit(AuditLine(one, Mode.ACT, "")) for one in told]
            told.clear()
            try:
                if lines:
                    await journal.append(lines)
            except AgentError as error:
                say(f"{error}; {len(lines)} reasons are not in the audit topic")

        heard: list[Election] = []
        me = f"release-{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
        elector = elector_of(settings, KubeLease(client, settings.namespace, settings.lease.name), me, heard.append)
        store: DocumentStore = FencedStore(plain, elector.is_leader)
        letting = Letting(store, settings.namespace, wishes, told.append, flush)

        async def work(term: int) -> None:
            done.extend(await release(letting, book, names, wall_clock(), term))

        async def wait(begun: asyncio.Event) -> bool:
            with suppress(TimeoutError):
                await asyncio.wait_for(begun.wait(), settings.lease.duration_s + BEYOND_S)
            return begun.is_set()

        try:
            with suppress(AgentError):
                await journal.open()
            await while_leading(
                elector.lead, work, wait, lambda: next((one.detail for one in reversed(heard) if one.detail), "unknown")
            )
        finally:
            await journal.close()
    return done


@asynccontextmanager
async def cluster_objects(settings: Settings, book: ClusterBook, say: Say) -> AsyncIterator[KubeClient]:
    """The client, with the cluster's objects in the book."""
    client = await connect(kube_of(settings))
    try:
        async with KubeJobView(client, usual_kinds(), keep=wanted(settings)) as view:
            objects, findings = await view.snapshot()
        world = World(book, remembers=False)
        world.replace(objects, findings)
        world.miss_nodes()
        for finding in world.findings:
            say(finding)
        yield client
    finally:
        await client.close()


async def newest_reports(settings: Settings, kafka: KafkaSettings, say: Say) -> dict[NodeName, NodeReport]:
    """The newest report of each node of this cluster that has caught up. Raises Unavailable when they are not read in
    READ_S: nothing is said from half a picture.
    """
    feed = KafkaReportFeed(kafka, settings.kafka.topic("reports"))
    found: dict[NodeName, bytes | None] = {}
    await feed.open()
    try:
        async with asyncio.timeout(READ_S):
            while True:
                found.update(await feed.read())
                if feed.complete:
                    break
                await feed.wait(LOOK_S)
    except TimeoutError as error:
        raise Unavailable(f"the reports topic was not read to its end within {READ_S:g} s") from error
    finally:
        await feed.close()
    reports: dict[NodeName, NodeReport] = {}
    for node, data in found.items():
        if data is None:
            continue
        try:
            report = decode(data)
        except BadReport as error:
            say(f"report of {node}: {error}")
            continue
        if report.cluster != settings.cluster.id:
            say(f"report of {node}: it is of cluster {report.cluster!r}, this is {settings.cluster.id!r}")
        elif not report.caught_up:
            say(f"report of {node}: its agent is still reading what came before; what it will say is not counted")
        else:
            reports[node] = report
    return reports
