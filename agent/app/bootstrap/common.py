"""What every role is put together from: clock, policy, settings in the domain's units.

The one rule: a builder makes what it is asked for; nothing is opened here.
"""

import asyncio
import gc
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from agent.adapters.shipped import policy_mark, read_policy_path
from agent.app.leaving import leave_act
from agent.app.policykeep import PolicyKeep
from agent.app.press import Wishes
from agent.app.settings import SOLO_CLUSTER, Settings
from agent.domain.cluster import ClusterBook
from agent.domain.cluster.book import Limits
from agent.domain.events import Decision
from agent.domain.policy import Policy
from agent.domain.rail import BorrowPolicy, Strictness
from agent.domain.reset import Executor
from agent.domain.vocab import SECOND, Millis, Mode, Plane
from agent.errors import BadUsage, CannotRun
from agent.ports import DocumentStore
from agent.wire.audit import AuditLine, decode_all
from agent.wire.inbound import Limits as BorderLimits
from agent.wire.policyfile import load_policy

MANAGER = "fault-agent"
STATE = ".state"
AUDIT = "audit.jsonl"
LETTERS = "dead-letters.jsonl"


def wall_clock() -> Millis:
    """Unix time in ms."""
    return Millis(time.time_ns() // 1_000_000)


def stop_on_signals() -> asyncio.Event:
    """What SIGTERM and SIGINT set from now on, in the running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def policy_files(path: Path | None) -> Mapping[str, bytes]:
    """The shipped policy files with those of `path` laid over them. Raises BadPolicy, CannotRun."""
    return read_policy_path(path)


def load_policy_at(path: Path | None, day: date | None = None) -> Policy:
    """The policy in force with the files of `path` laid over the shipped ones, as of a day (UTC; None: today), for
    overrides end. Raises BadPolicy, CannotRun.
    """
    files, collecting = policy_files(path), gc.isenabled()
    # A file of 10 MiB is a million nodes, none of them garbage: looking for some among them doubles the time.
    gc.disable()
    try:
        return load_policy(files, day or datetime.now(UTC).date())
    finally:
        if collecting:
            gc.enable()


def keep_policy(path: Path | None) -> PolicyKeep:
    """The policy of `path` in force now, and again whenever its files change or a day has ended on which an override
    held. Raises BadPolicy, CannotRun.
    """
    return PolicyKeep(
        load_policy_at(path), lambda: load_policy_at(path), lambda: (datetime.now(UTC).date(), policy_mark(path))
    )


def reload_on_hangup(keep: PolicyKeep) -> None:
    """From now on SIGHUP has the policy read again, in the running loop."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, keep.nudge)


def read_audit(out: Path) -> tuple[list[AuditLine], list[str]]:
    """Every decision journalled in a folder, and a finding per unreadable line. Raises CannotRun without a journal."""
    path = out / AUDIT
    if not path.is_file():
        raise CannotRun(
            f"{out} holds no {AUDIT}", hint="give the --out folder of a run, a replay or a demo with --out DIR"
        )
    return decode_all(path.read_bytes().splitlines(), AUDIT)


def cluster_of(settings: Settings) -> str:
    """The name of this cluster, for the roles that share services with others. Raises BadUsage when it is not set."""
    if settings.cluster.id == SOLO_CLUSTER:
        raise BadUsage("cluster.id is not set", hint="name this cluster; it stands in every report and ledger")
    return settings.cluster.id


def limits_of(settings: Settings, mode: Mode) -> Limits:
    """The coordinator's limits as the settings state them; `mode` is the global one in force."""
    return Limits(
        max_event_age=Millis(settings.max_event_age_ms),
        frameworks=frozenset(settings.reset.frameworks),
        executor=Executor(settings.reset.executor),
        reset_mode=_weakest(mode, settings.documents.reset_config.mode),
        volcano={"auto": None, "alive": True, "absent": False}[settings.volcano],
        inference_jobs=settings.quiet.inference_jobs,
        joint_window=Millis(int(settings.rail.joint_window_s * SECOND)),
        link_fresh=Millis(int(settings.rail.link_fresh_s * SECOND)),
        borrow=BorrowPolicy(settings.rail.policy),
        strictness=Strictness(settings.rail.strictness),
    )


def wishes_of(settings: Settings, mode: Mode, *, solo: bool = True) -> Wishes:
    """What is wanted of the documents; in solo a missing reset-config is made, since the folder is our own."""
    documents = settings.documents
    return Wishes(
        manager=MANAGER,
        mode=mode,
        vcjob=_weaker(mode, documents.vcjob_fault_npu_cm.mode),
        vcjob_namespace=documents.vcjob_fault_npu_cm.namespace,
        vcjob_sole=documents.vcjob_fault_npu_cm.sole_writer,
        reschedule=_weaker(mode, documents.job_reschedule_reason.mode),
        reschedule_namespace=documents.job_reschedule_reason.namespace,
        reschedule_sole=documents.job_reschedule_reason.sole_writer,
        create_reset_config=solo if documents.reset_config.create is None else documents.reset_config.create,
        zone=ZoneInfo(settings.scheduler_time_zone),
    )


def modes_of(settings: Settings, mode: Mode) -> Mapping[str, Mode]:
    """What is in force for each document under the global mode: vcjob, reschedule, reset, plan."""
    documents = settings.documents
    return {
        "vcjob": _weakest(mode, documents.vcjob_fault_npu_cm.mode),
        "reschedule": _weakest(mode, documents.job_reschedule_reason.mode),
        "reset": _weakest(mode, documents.reset_config.mode),
        "plan": mode,
    }


def if_acting(settings: Settings, *, solo: bool) -> tuple[Limits, Wishes]:
    """Limits and wishes as if every document that is not disabled were in act mode."""

    def act(mode: Mode) -> Mode:
        return Mode.DISABLED if mode is Mode.DISABLED else Mode.ACT

    limits, wishes = limits_of(settings, Mode.ACT), wishes_of(settings, Mode.ACT, solo=solo)
    wishes = replace(wishes, vcjob=act(wishes.vcjob), reschedule=act(wishes.reschedule))
    return replace(limits, reset_mode=act(limits.reset_mode)), wishes


def _weaker(mode: Mode, own: Mode) -> Mode:
    """A document's own mode under the global one. Global observe is no weaker here: it writes to a shadow, so that
    what the document would hold is worked out and shown.
    """
    return Mode.DISABLED if mode is Mode.DISABLED else own


def _weakest(mode: Mode, own: Mode) -> Mode:
    """What holds for recoveries: one is started in act mode only, or it would be told of though no worker stopped."""
    order = (Mode.DISABLED, Mode.OBSERVE, Mode.ACT)
    return order[min(order.index(mode), order.index(own))]


def leaving(
    book: ClusterBook, real: DocumentStore, settings: Settings, mode: Mode, *, solo: bool
) -> Callable[[Millis, Callable[[Decision], None], Callable[[], Awaitable[None]]], Awaitable[None]] | None:
    """How a process that starts outside act mode ends what act mode had begun; None in act mode."""
    if mode is Mode.ACT:
        return None
    wishes = wishes_of(settings, mode, solo=solo)
    return lambda now, tell, flush: leave_act(book, real, settings.namespace, wishes, now, tell, flush)


def meaning_of(policy: Policy, ref: str) -> str:
    """What the code of a fault reference means, where the policy knows it."""
    identity = ref.rpartition("@")[0].split("/", 3)
    if len(identity) != 4:
        return ""
    rule = policy.rule(Plane(identity[1]), identity[3])
    return rule.meaning if rule is not None else ""


def border_of(settings: Settings) -> BorderLimits:
    """Limits of the border of the event stream."""
    return BorderLimits(max_clock_skew=Millis(int(settings.max_clock_skew_s * SECOND)))


def silence_client() -> None:
    """The Kafka client logs each lost connection as an error of its own, while what came of it is said by us."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def quieten() -> None:
    """Before a role starts: the client's own words go, and long-lived books make the default collector threshold visit
    everything for nothing.
    """
    silence_client()
    gc.set_threshold(50_000, 20, 50)
