"""The node role: Kafka in, Kafka out.

The one rule: nothing here, nor anything it imports, knows Kubernetes (an import contract holds it to that).
"""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from agent.adapters.http import HttpServer, Sample
from agent.adapters.kafka import (
    KafkaDeadLetters,
    KafkaFaultSource,
    KafkaJournal,
    KafkaReportFeed,
    KafkaReportLog,
)
from agent.adapters.linkcommand import CommandLinkProbe
from agent.adapters.otel import make_tracer
from agent.app.bootstrap.common import (
    border_of,
    cluster_of,
    keep_policy,
    meaning_of,
    quieten,
    reload_on_hangup,
    stop_on_signals,
    wall_clock,
)
from agent.app.bootstrap.patience import Stopped, patiently
from agent.app.bootstrap.policies import policy_samples
from agent.app.bootstrap.topics import kafka_of, reports_fit
from agent.app.health import Watchdog
from agent.app.linkrounds import LinkRounds
from agent.app.node_app import NodeSide
from agent.app.node_role import NodeRole
from agent.app.nodeparts import NodeParts
from agent.app.policykeep import PolicyKeep
from agent.app.settings import Settings
from agent.domain.node import record_digest
from agent.domain.partition import partition_of
from agent.domain.vocab import Millis, Mode, NodeName
from agent.errors import AgentError, BadUsage
from agent.ports import Progress

LOOK_S = 5.0
"""How often the reader's progress is looked at for liveness."""


def run_node(settings: Settings, policy_path: Path | None, say: Callable[[str], None]) -> None:
    """The node role until SIGTERM or SIGINT. Raises CannotRun, Refused, BadUsage."""
    with contextlib.suppress(Stopped):
        quieten()
    asyncio.run(_run(settings, policy_path, say))


async def _run(settings: Settings, policy_path: Path | None, say: Callable[[str], None]) -> None:
    node = NodeName(settings.node.name)
    if not node:
        raise BadUsage("node.name is not set", hint="in the DaemonSet: FAULT_AGENT_NODE__NAME from spec.nodeName")
    cluster = cluster_of(settings)
    stop = stop_on_signals()
    keep = await asyncio.to_thread(keep_policy, policy_path)
    reload_on_hangup(keep)
    kafka = await asyncio.to_thread(kafka_of, settings)
    machine = await asyncio.to_thread(machine_id, Path(settings.node.machine_id_file))
    key = node.encode()
    names = settings.kafka
    async with AsyncExitStack() as stack:
        tracer = make_tracer(os.environ)
        stack.callback(tracer.close)
        log = KafkaReportLog(kafka, names.topic("reports"), names.report_partitions, deadline_s=names.report_deadline_s)
        letters = KafkaDeadLetters(kafka, names.topic("deadletter"), deadline_s=names.report_deadline_s)
        audit = KafkaJournal(kafka, names.topic("audit"), key_of=lambda _: key, deadline_s=names.report_deadline_s)
        source = KafkaFaultSource(
            kafka, names.topic("events"), lambda count: frozenset({partition_of(key, count)}), record_digest
        )
        instance = f"{node}-{uuid.uuid4().hex[:12]}"
        parts = NodeParts(
            node=node,
            cluster=cluster,
            machine=machine,
            instance=instance,
            source=source,
            reports=log,
            make_feed=lambda: KafkaReportFeed(
                kafka,
                names.topic("reports"),
                frozenset({node}),
                partitions=names.report_partitions,
                since=wall_clock(),
                each=True,
            ),
            letters=letters,
            audit=audit,
            make_side=lambda: NodeSide(
                keep.policy,
                cluster,
                instance,
                border_of(settings),
                Millis(settings.max_event_age_ms),
                tracer,
                machine=machine,
            ),
            tracer=tracer,
            now=wall_clock,
            mode=settings.mode or Mode.OBSERVE,
            policy=keep,
            meaning=lambda ref: meaning_of(keep.policy, ref),
            links=link_rounds(settings, say),
        )
        role, watchdog = NodeRole(parts, say), Watchdog()
        if settings.http.port:
            server = HttpServer(
                settings.http.host,
                settings.http.port,
                lambda: watchdog.dead(wall_clock()),
                lambda: not_ready(role, keep),
                lambda: [
                    *samples(role, source.progress, parts.links.counts if parts.links is not None else {}),
                    *policy_samples(keep),
                ],
            )
            await server.open()
            stack.push_async_callback(server.close)
        say(f"node role of {node} in cluster {cluster}, policy {keep.short}")
        for port in (log, letters, audit):
            stack.push_async_callback(port.close)
            await patiently(port.open, stop, say)
        await patiently(lambda: reports_fit(settings, kafka, say), stop, say)
        watching = asyncio.create_task(_watch(source, watchdog, role), name="watchdog")
        stack.callback(watching.cancel)
        following = asyncio.create_task(keep.follow(say), name="policy")
        stack.callback(following.cancel)
        if parts.links is not None:
            stack.push_async_callback(parts.links.probe.close)
            looking = asyncio.create_task(parts.links.follow(), name="links")
            stack.callback(looking.cancel)
        await role.run(stop)


def link_rounds(settings: Settings, say: Callable[[str], None]) -> LinkRounds | None:
    """Rounds over the links of this node, as the settings ask for them; None when they do not."""
    wanted = settings.node.link_probe
    if not wanted.command:
        return None
    probe = CommandLinkProbe(wanted.command, timeout_s=wanted.timeout_s)
    return LinkRounds(probe, wanted.devices, wanted.every_s, wall_clock, say)


async def _watch(source: KafkaFaultSource, watchdog: Watchdog, role: NodeRole) -> None:
    """Compare what the broker has with what is read, over a second connection; a silent stall shows here."""
    turned = -1
    while True:
        if role.turns != turned:
            turned = role.turns
            watchdog.turned(wall_clock())
        if role.pulse.caught_up and not role.pulse.standing_by:
            # A broker that does not answer is nothing that a restart would mend.
            with contextlib.suppress(AgentError):
                watchdog.observe(await source.look(), wall_clock())
        await asyncio.sleep(LOOK_S)


def machine_id(path: Path) -> str:
    """Id of the machine, or empty when it cannot be read (then a changed machine is not noticed)."""
    try:
        return path.read_text(encoding="ascii").strip()[:64]
    except (OSError, UnicodeDecodeError):
        return ""


def not_ready(role: NodeRole, keep: PolicyKeep) -> str:
    """What keeps the node from being current, or its policy from being the newest; empty: nothing."""
    if role.pulse.standing_by:
        return "standing by: another agent reports this node"
    return keep.degraded if role.pulse.caught_up else "not caught up with the stream yet"


def samples(
    role: NodeRole, progress: Callable[[], Mapping[int, Progress]], looked: Mapping[str, int]
) -> Iterable[Sample]:
    """Metrics of the node role; label values come from closed lists only."""
    pulse = role.pulse
    yield "counter", "fault_agent_records", "Records read for this node", pulse.records, ()
    yield "counter", "fault_agent_dead_letters", "Records or faults that could not be used", pulse.letters, ()
    yield "counter", "fault_agent_reports", "Reports acknowledged", pulse.reports, ()
    yield "counter", "fault_agent_report_failures", "Reports that had to be tried again", pulse.report_failures, ()
    yield "counter", "fault_agent_reasons_lost", "Reasons that the journal did not take in time", pulse.untold, ()
    faults = sum(one.count for one in pulse.unknown)
    yield "gauge", "fault_agent_unknown_codes", "Codes seen that no table of the policy knows", len(pulse.unknown), ()
    yield "gauge", "fault_agent_unknown_faults", "Faults of those codes", faults, ()
    yield "gauge", "fault_agent_caught_up", "1 once the stream's end was reached", float(pulse.caught_up), ()
    yield "gauge", "fault_agent_standing_by", "1 while another agent reports this node", float(pulse.standing_by), ()
    lag = sum(max(0, at.end - at.position) for at in progress().values())
    yield "gauge", "fault_agent_lag_records", "Records not read yet in this node's partitions", lag, ()
    for state, count in sorted(looked.items()):
        yield "counter", "fault_agent_link_answers", "Answers of the link query by state", count, (("state", state),)
    for reason, count in sorted(pulse.reasons.items()):
        yield "counter", "fault_agent_decisions", "Decisions by reason", count, (("reason", reason),)
