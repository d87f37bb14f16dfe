"""The coordinator role: Kafka and Kubernetes in, ConfigMaps out.

The one rule: every write goes through the store that asks the lease first.
"""

import asyncio
import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.adapters.http import HttpServer, Sample
from agent.adapters.kafka import (
    KafkaDeadLetters,
    KafkaFaultSource,
    KafkaJournal,
    KafkaReportFeed,
    KafkaReportLog,
    KafkaSettings,
)
from agent.adapters.kube import (
    KubeAnnouncer,
    KubeDocumentStore,
    KubeJobView,
    KubeLease,
    KubeSettings,
    connect,
    usual_kinds,
)
from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.otel import make_tracer
from agent.adapters.overlay import OverlayStore
from agent.app.abreast import WIDTH
from agent.app.bootstrap.common import (
    MANAGER,
    border_of,
    cluster_of,
    keep_policy,
    leaving,
    limits_of,
    meaning_of,
    quieten,
    reload_on_hangup,
    stop_on_signals,
    wall_clock,
    wishes_of,
)
from agent.app.bootstrap.patience import Stopped, patiently
from agent.app.bootstrap.policies import policy_samples
from agent.app.bootstrap.topics import kafka_of, reports_fit
from agent.app.coordinator_app import Coordinator
from agent.app.coordinator_role import CoordinatorParts, CoordinatorRole, first_of
from agent.app.deputy import Deputy
from agent.app.fencedstore import FencedStore
from agent.app.health import Watchdog
from agent.app.herald import Herald
from agent.app.lastseen import LastSeen
from agent.app.lease import Election, Elector
from agent.app.ledgers import Ledgers
from agent.app.node_app import NodeSide
from agent.app.policykeep import PolicyKeep
from agent.app.settings import Settings
from agent.app.world import World, keeps
from agent.domain.cluster import ClusterBook
from agent.domain.lease import LeaseTimes
from agent.domain.node import record_digest
from agent.domain.partition import partition_of
from agent.domain.policy import Policy
from agent.domain.reset import Writer
from agent.domain.vocab import Millis, Mode
from agent.errors import AgentError, Fenced
from agent.ports import DocumentStore, LeaseStore, Tracer

GUARD_S = 3.0
LOOK_S = 5.0
FENCED_S = 3.0
"""Before standing for election again after another writer was met: the other replica goes first."""
OURS = "app.kubernetes.io/managed-by=fault-agent"
"""Label of every ledger, so that a start need not read every ConfigMap of the cluster."""


def run_coordinator(settings: Settings, policy_path: Path | None, say: Callable[[str], None]) -> None:
    """The coordinator role until SIGTERM or SIGINT. Raises CannotRun, Refused, BadUsage."""
    with contextlib.suppress(Stopped):
        quieten()
    asyncio.run(_run(settings, policy_path, say))


@dataclass(slots=True)
class Partitions:
    """Which partitions a key may have gone to: that of the present count, and of each count seen before."""

    counts: set[int]

    def __call__(self, key: bytes) -> frozenset[int]:
        """The partitions where the key's agent looks."""
        return frozenset(partition_of(key, count) for count in self.counts)

    def all_of(self, count: int) -> frozenset[int]:
        """Every partition; notes the count."""
        self.counts.add(count)
        return frozenset(range(count))


async def _run(settings: Settings, policy_path: Path | None, say: Callable[[str], None]) -> None:
    cluster = cluster_of(settings)
    stop = stop_on_signals()
    keep = await asyncio.to_thread(keep_policy, policy_path)
    reload_on_hangup(keep)
    me = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    say(f"coordinator {me} of cluster {cluster}, policy {keep.short}")
    async with AsyncExitStack() as stack:
        status = Status(keep)
        if settings.http.port:
            server = HttpServer(settings.http.host, settings.http.port, status.dead, status.missing, status.samples)
            await server.open()
            stack.push_async_callback(server.close)
        role, elector, events = await _assemble(settings, keep, me, stack, say, stop, status)
        following = asyncio.create_task(role.follow(stop), name="follow")
        leading = asyncio.create_task(_lead(elector, role, stop, say), name="elect")
        watching = asyncio.create_task(_watch(events, status, role, say), name="watchdog")
        reloading = asyncio.create_task(keep.follow(say), name="policy")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait({following, leading, watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            stop.set()
            for task in (leading, watching, reloading, stopping):
                task.cancel()
            await asyncio.gather(leading, watching, reloading, stopping, return_exceptions=True)
            await asyncio.wait({following}, timeout=5)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


@dataclass(slots=True)
class Status:
    """What /livez, /readyz and /metrics say, from the first moment on."""

    keep: PolicyKeep
    role: CoordinatorRole | None = None
    objects: KubeJobView | None = None
    reading: Watchdog = field(default_factory=Watchdog)
    acting: Watchdog = field(default_factory=Watchdog)

    def dead(self) -> str:
        """Why the process should be restarted; empty: it lives."""
        now = wall_clock()
        reading = self.reading.dead(now)
        leads = self.role is not None and self.role.pulse.leading
        return reading or (self.acting.dead(now) if leads else "")

    def missing(self) -> str:
        """What keeps the books from being warm; empty: nothing."""
        if self.role is None:
            return "Kafka and the API server are not reached yet"
        if self.role.pulse.complete:
            return self.keep.degraded
        troubles = self.objects.troubles() if self.objects is not None else ()
        return "; ".join(troubles) or "reports are not read yet"

    def samples(self) -> Iterable[Sample]:
        """Metrics."""
        return [*(samples(self.role) if self.role is not None else ()), *policy_samples(self.keep)]


async def _assemble(
    settings: Settings,
    keep: PolicyKeep,
    me: str,
    stack: AsyncExitStack,
    say: Callable[[str], None],
    stop: asyncio.Event,
    status: Status,
) -> tuple[CoordinatorRole, Elector, KafkaFaultSource]:
    kafka = await asyncio.to_thread(kafka_of, settings)
    names, mode = settings.kafka, settings.mode or Mode.OBSERVE
    tracer = make_tracer(os.environ)
    stack.callback(tracer.close)
    partitions = Partitions(set())
    events = KafkaFaultSource(kafka, names.topic("events"), partitions.all_of, record_digest)
    log, letters, audit = await _ports(settings, kafka, events, stack, say, stop)
    client = await patiently(lambda: connect(kube_of(settings)), stop, say)
    stack.push_async_callback(client.close)
    lease = KubeLease(client, settings.namespace, settings.lease.name)
    elector = elector_of(settings, lease, me, lambda election: say(_election_words(election)))
    real = FencedStore(KubeDocumentStore(client, MANAGER, labels=OURS), elector.is_leader)
    store: DocumentStore = real if mode is Mode.ACT else OverlayStore(MemoryDocumentStore(manager=MANAGER), real)
    book = ClusterBook(settings.cluster.id, limits_of(settings, mode), keep.policy)
    objects = status.objects = KubeJobView(client, usual_kinds(), keep=wanted(settings))
    announcer = KubeAnnouncer(client, wall_clock, me, uid_of=objects.uid)
    announcer.start()
    stack.push_async_callback(announcer.close)
    roles: list[CoordinatorRole] = []
    documents = LastSeen(store)
    coordinator = Coordinator(
        book,
        store,
        Ledgers(store, settings.namespace, WIDTH),
        wishes_of(settings, mode, solo=False),
        tracer,
        lambda decision: roles[0].tell(decision),
        lambda: roles[0].flush_audit(),
        documents,
        WIDTH,
    )
    parts = CoordinatorParts(
        cluster=settings.cluster.id,
        feed=KafkaReportFeed(kafka, names.topic("reports")),
        objects=objects,
        events=events,
        letters=letters,
        audit=audit,
        world=World(book, remembers=False),
        coordinator=coordinator,
        documents=documents,
        deputy=Deputy(
            lambda: _side(keep.policy, settings, tracer),
            book.reports,
            lambda node: book.jobs.node(node) is not None,
            partitions,
            lambda: keep.policy,
        ),
        tombstone=log.tombstone,
        announce=Herald(book, announcer, mode).say,
        now=wall_clock,
        mode=mode,
        policy=keep,
        meaning=lambda ref: meaning_of(keep.policy, ref),
        leave=leaving(book, real, settings, mode, solo=False),
    )
    role = status.role = CoordinatorRole(parts, say)
    roles.append(role)
    return role, elector, events


async def _ports(
    settings: Settings,
    kafka: KafkaSettings,
    events: KafkaFaultSource,
    stack: AsyncExitStack,
    say: Callable[[str], None],
    stop: asyncio.Event,
) -> tuple[KafkaReportLog, KafkaDeadLetters, KafkaJournal]:
    """The writers, open; every topic has been looked at, so that what is wrong with one is said by both replicas."""
    names, deadline = settings.kafka, settings.kafka.report_deadline_s
    log = KafkaReportLog(kafka, names.topic("reports"), names.report_partitions, deadline_s=deadline)
    letters = KafkaDeadLetters(kafka, names.topic("deadletter"), deadline_s=deadline)
    audit = KafkaJournal(kafka, names.topic("audit"), deadline_s=deadline)
    for port in (log, letters, audit):
        stack.push_async_callback(port.close)
        await patiently(port.open, stop, say)
    await patiently(lambda: reports_fit(settings, kafka, say), stop, say)
    await patiently(lambda: events.open(None), stop, say)
    await events.close()
    return log, letters, audit


def elector_of(settings: Settings, lease: LeaseStore, me: str, tell: Callable[[Election], None]) -> Elector:
    """A candidate for the coordinators' lease; `me` is unique to this process's life."""
    duration = settings.lease.duration_s
    return Elector(
        lease,
        me,
        LeaseTimes(
            duration=duration,
            renew_every=settings.lease.renew_s,
            guard=min(GUARD_S, duration / 5),
            request=min(settings.kubernetes.request_timeout_s, duration / 4),
        ),
        clock=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        sleep=asyncio.sleep,
        now=wall_clock,
        tell=tell,
    )


def _side(policy: Policy, settings: Settings, tracer: Tracer) -> NodeSide:
    return NodeSide(
        policy,
        settings.cluster.id,
        "deputy",
        border_of(settings),
        Millis(settings.max_event_age_ms),
        tracer,
    )


def kube_of(settings: Settings) -> KubeSettings:
    """How to reach the API server."""
    kube = settings.kubernetes
    path = kube.kubeconfig or ("" if "KUBERNETES_SERVICE_HOST" in os.environ else os.environ.get("KUBECONFIG", ""))
    return KubeSettings(
        kubeconfig=Path(path) if path else None, context=kube.context, request_seconds=kube.request_timeout_s
    )


def wanted(settings: Settings) -> Callable[[Mapping[str, Any]], bool]:
    """Which of the watched objects are kept: of ConfigMaps only those the agent reads or writes."""
    shared = {
        (settings.documents.vcjob_fault_npu_cm.namespace, "vcjob-fault-npu-cm"),
        (settings.documents.job_reschedule_reason.namespace, "job-reschedule-reason"),
    }

    def keep(item: Mapping[str, Any]) -> bool:
        if item.get("kind") != "ConfigMap":
            return True
        meta = item.get("metadata") or {}
        namespace, name = str(meta.get("namespace", "")), str(meta.get("name", ""))
        return (namespace, name) in shared or name.startswith("reset-config-") or keeps(item)

    return keep


async def _lead(elector: Elector, role: CoordinatorRole, stop: asyncio.Event, say: Callable[[str], None]) -> None:
    """Stand for election again and again; a term that ends by being fenced is followed by another."""
    while not stop.is_set():
        try:
            await elector.lead(role.act)
        except Fenced as error:
            say(f"{error}; standing for election again in {FENCED_S:g} s")
            await first_of(stop.wait(), asyncio.sleep(FENCED_S))


async def _watch(events: KafkaFaultSource, status: Status, role: CoordinatorRole, say: Callable[[str], None]) -> None:
    """The loops turn, while leading the event stream is read, and the fleet rates by one policy."""
    turned = acted = -1
    told = ""
    while True:
        now = wall_clock()
        if role.turns != turned:
            turned = role.turns
            status.reading.turned(now)
        if role.acted != acted or not role.pulse.leading:
            acted = role.acted
            status.acting.turned(now)
        if role.ear.is_open:
            # A broker that does not answer is nothing that a restart would mend.
            with contextlib.suppress(AgentError):
                status.acting.observe(await events.look(), wall_clock())
        told, before = split_words(role.roll.policies(), status.keep.short), told
        if told != before:
            say(told or "policy: all nodes report the same as this coordinator's again")
        await asyncio.sleep(LOOK_S)


def split_words(policies: Mapping[str, int], mine: str) -> str:
    """Which policies the nodes' reports were rated by, when they are not all this coordinator's; empty: they are."""
    if not set(policies) - {mine}:
        return ""
    counts = ", ".join(f"{count} nodes by {digest}" for digest, count in sorted(policies.items()))
    return f"policy split: {counts}; this coordinator has {mine}"


def _election_words(election: Election) -> str:
    detail = f": {election.detail}" if election.detail else ""
    return f"lease: {election.turn} (term {election.term}){detail}"


def samples(role: CoordinatorRole) -> Iterable[Sample]:
    """Metrics of the coordinator; label values come from closed lists only."""
    pulse = role.pulse
    yield "gauge", "fault_agent_leading", "1 while this replica writes", float(pulse.leading), ()
    yield "gauge", "fault_agent_term", "Term of the present or last leadership", pulse.term, ()
    yield "gauge", "fault_agent_picture_complete", "1 once reports and objects are read", float(pulse.complete), ()
    yield "counter", "fault_agent_reports_read", "Node reports taken", pulse.reports, ()
    yield "counter", "fault_agent_steps", "Rounds of deciding and writing", pulse.steps, ()
    yield "counter", "fault_agent_dead_letters", "Records nobody else would have looked at", role.ear.lettered, ()
    yield "counter", "fault_agent_reasons_lost", "Reasons that the journal did not take in time", pulse.untold, ()
    yield "gauge", "fault_agent_unreadable_reports", "Nodes whose report cannot be read", len(pulse.unreadable), ()
    yield "gauge", "fault_agent_unknown_nodes", "Nodes silent for 180 s", len(role.unknown_nodes()), ()
    policies = role.roll.policies()
    yield "gauge", "fault_agent_policies", "Different policies that the nodes' reports were rated by", len(policies), ()
    others = sum(count for digest, count in policies.items() if digest != role.policy)
    yield "gauge", "fault_agent_other_policy_nodes", "Nodes whose policy is not this coordinator's", others, ()
    for what, count in sorted(role.dropped.items()):
        yield "counter", "fault_agent_records_dropped", "Left out of job-reschedule-reason", count, (("what", what),)
    for what, count in sorted(role.left_out.items()):
        yield "gauge", "fault_agent_fault_node_left_out", "Has no room in fault-node now", count, (("what", what),)
    for writer in Writer:
        count = role.erasures.get(writer, 0)
        yield "counter", "fault_agent_erasures", "What others took out of a document", count, (("writer", writer),)
    for reason, count in sorted(pulse.reasons.items()):
        yield "counter", "fault_agent_decisions", "Decisions by reason", count, (("reason", reason),)
