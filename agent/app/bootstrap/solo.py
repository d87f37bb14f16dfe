"""The embedded role: both sides in one process, on files.

The one rule: in observe everything is computed on a shadow, and the folder's documents stay as they are.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from agent.adapters.clusterfiles import ClusterFiles
from agent.adapters.deadletters import JournalDeadLetters
from agent.adapters.directory import DirectoryCabinet, DirectoryDocumentStore, DirectoryJournal, DirectoryReportLog
from agent.adapters.folderlock import FolderLock
from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.objects import from_object
from agent.adapters.otel import make_tracer
from agent.adapters.overlay import OverlayStore
from agent.adapters.recordfile import FileSource, StdinSource
from agent.app.bootstrap.common import (
    AUDIT,
    LETTERS,
    MANAGER,
    STATE,
    border_of,
    keep_policy,
    leaving,
    limits_of,
    load_policy_at,
    meaning_of,
    reload_on_hangup,
    stop_on_signals,
    wall_clock,
    wishes_of,
)
from agent.app.bootstrap.folder import CABINET, LOCK, check_demo, clear_demo, holds_state, make_out, mark_demo
from agent.app.bootstrap.policies import recorded_day
from agent.app.coordinator_app import Coordinator
from agent.app.ledgers import Ledgers
from agent.app.node_app import NodeSide
from agent.app.policykeep import PolicyKeep
from agent.app.settings import Settings
from agent.app.solo import Parts, Solo, Tally
from agent.app.telling import Letter, ToldLetters, WatchedSource
from agent.app.world import World
from agent.domain.cluster import ClusterBook
from agent.domain.vocab import Millis, Mode
from agent.errors import BadInput, BadUsage, Conflict, Refused
from agent.ports import DocumentStore, FaultSource, Tracer
from agent.wire.audit import AuditLine


@dataclass(frozen=True, slots=True)
class SoloOrder:
    """What a solo run is asked to do."""

    events: Path | None
    """None: standard input."""
    cluster: Path
    out: Path
    settings: Settings
    policy: Path | None = None
    goes_on: bool = False
    """Replay: go on in a folder that already holds a ledger."""
    demo: bool = False
    """The folder is a demo's, which a later demo may replace."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Who hears what while a run goes on, beside its decisions."""

    begin: Callable[[World, Mode, str], None] = lambda _world, _mode, _digest: None
    """Once, when the objects have been read: what they are, the mode in force, the digest of the policy in force."""
    letter: Callable[[Letter], None] = lambda _: None
    """Each dead letter, once it is kept."""
    look: Callable[[World, bool], None] = lambda _world, _moved: None
    """Before each read, when all that was read has had its effect; whether objects came with it."""


NOBODY = Audience()


def check_out(order: SoloOrder) -> None:
    """A replay begins in a folder without a checkpoint; one that could not begin has left none. Raises BadUsage."""
    if holds_state(order.out) and not order.goes_on:
        raise BadUsage(
            f"{order.out} already holds the state of an earlier run",
            hint="give an empty folder, or --continue to go on from it",
        )


def prepare_demo(out: Path, *, replace_it: bool) -> None:
    """Make the folder ready for a demo: new, empty, or emptied of an earlier demo. Raises BadUsage, CannotRun."""
    if not check_demo(out):
        make_out(out)
        return
    if not replace_it:
        raise BadUsage(f"{out} holds an earlier demo", hint="--replace lets this one take its place")
    clear_demo(out)


def run_solo(
    order: SoloOrder, told: Callable[[AuditLine], None], say: Callable[[str], None], audience: Audience = NOBODY
) -> tuple[Tally, World]:
    """A long-lived run that ends on SIGTERM or SIGINT, or with its pipe. Raises CannotRun, Fenced."""
    source: FaultSource = StdinSource(sys.stdin.buffer) if order.events is None else FileSource(order.events)
    if order.events is None:
        say("reading standard input: a pipe cannot be read again, so what it held is not resumed after a restart")

    def work(solo: Solo, keep: PolicyKeep) -> Coroutine[Any, Any, None]:
        return _run(solo, keep, say)

    return _with_parts(order, source, told, say, work, audience, live=True)


def replay_solo(
    order: SoloOrder,
    told: Callable[[AuditLine], None],
    say: Callable[[str], None],
    progress: Callable[[int], None],
    audience: Audience = NOBODY,
) -> tuple[Tally, World]:
    """Judge a finished recording on its own clock. Raises CannotRun, BadUsage."""
    if order.events is None:
        raise BadUsage("a replay reads a file", hint="for a pipe use: fault-agent run --role solo --events -")
    check_out(order)
    source = FileSource(order.events, complete=True)

    def work(solo: Solo, _keep: PolicyKeep) -> Coroutine[Any, Any, None]:
        return solo.replay(progress, resume=order.goes_on)

    return _with_parts(order, source, told, say, work, audience, live=False)


def _with_parts(
    order: SoloOrder,
    source: FaultSource,
    told: Callable[[AuditLine], None],
    say: Callable[[str], None],
    work: Callable[[Solo, PolicyKeep], Coroutine[Any, Any, None]],
    audience: Audience,
    *,
    live: bool,
) -> tuple[Tally, World]:
    """Lock the folder, put the parts together, and only then start the loop: nothing in it waits for a disk."""
    with ExitStack() as stack:
        make_out(order.out)
        stack.enter_context(FolderLock(order.out / STATE / LOCK))
        tracer = make_tracer(os.environ)
        stack.callback(tracer.close)
        if order.demo:
            mark_demo(order.out)
        solo, world, keep = _assemble(order, source, tracer, told, say, audience, live=live)
        asyncio.run(work(solo, keep))
        return solo.tally, world


def scenario() -> tuple[Path, Path, Callable[[Path, Sequence[AuditLine]], list[str]]]:
    """The shipped scenario: its events, its cluster objects, and what must be true at its end."""
    root = Path(str(files("agent"))) / "app" / "scenario"
    return root / "events.jsonl", root / "cluster", lambda out, lines: unmet(root / "expected.json", out, lines)


def unmet(expectations: Path, out: Path, lines: Sequence[AuditLine]) -> list[str]:
    """Which expectations of a scenario (reasons that must have been given, texts of documents) do not hold."""
    wanted = orjson.loads(expectations.read_bytes())
    given = {(str(line.decision.reason), line.decision.fault.rpartition("@")[0]) for line in lines}
    problems = [f"no {reason} for {fault}" for reason, fault in wanted["reasons"] if (reason, fault) not in given]
    for place, keys in wanted["documents"].items():
        path = out / f"{place}.json"
        data = orjson.loads(path.read_bytes())["data"] if path.is_file() else {}
        problems += [f"{place}: {key} is {data.get(key)!r}" for key, text in keys.items() if data.get(key) != text]
    return problems


async def _run(solo: Solo, keep: PolicyKeep, say: Callable[[str], None]) -> None:
    stop = stop_on_signals()
    reload_on_hangup(keep)
    following = asyncio.create_task(keep.follow(say), name="policy")
    try:
        await solo.run(stop, wall_clock)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def _assemble(
    order: SoloOrder,
    source: FaultSource,
    tracer: Tracer,
    told: Callable[[AuditLine], None],
    say: Callable[[str], None],
    audience: Audience,
    *,
    live: bool,
) -> tuple[Solo, World, PolicyKeep]:
    settings, out = order.settings, order.out
    mode = settings.mode or Mode.ACT
    # A recording is judged as on its own day: overrides that have ended since were in force then.
    if live or order.events is None:
        keep = keep_policy(order.policy)
    else:
        keep = PolicyKeep(load_policy_at(order.policy, recorded_day(order.events)))
    objects = ClusterFiles(order.cluster, static=not live)
    base = objects.configmaps()
    real = OverlayStore(DirectoryDocumentStore(out, manager=MANAGER, durable=live), base)
    foreign = OverlayStore(DirectoryDocumentStore(out, manager="", durable=live), base)
    # In observe mode everything is computed on a shadow: our own writes stay in memory above the real documents.
    store: DocumentStore = real if mode is Mode.ACT else OverlayStore(MemoryDocumentStore(manager=MANAGER), real)
    book = ClusterBook(settings.cluster.id, limits_of(settings, mode), keep.policy)
    world = World(book)
    state = out / STATE
    parts_tell: list[Solo] = []
    begun = False

    def look(moved: bool) -> None:
        nonlocal begun
        if not begun:
            begun = True
            audience.begin(world, mode, keep.short)
        audience.look(world, moved)

    coordinator = Coordinator(
        book,
        store,
        Ledgers(store, settings.namespace),
        wishes_of(settings, mode),
        tracer,
        lambda decision: parts_tell[0].tell(decision),
        lambda: parts_tell[0].flush_audit(),
    )
    audit = DirectoryJournal(out / AUDIT, durable=live)
    parts = Parts(
        source=WatchedSource(source, look),
        cluster=objects,
        reports=DirectoryReportLog(state, durable=live),
        cabinet=DirectoryCabinet(state / CABINET, durable=live),
        letters=ToldLetters(
            JournalDeadLetters(DirectoryJournal(out / LETTERS, durable=live)),
            lambda: parts_tell[0].clock,
            audience.letter,
        ),
        audit=audit,
        node_side=NodeSide(
            keep.policy,
            settings.cluster.id,
            f"solo-{os.getpid()}" if live else "replay",
            border_of(settings),
            Millis(settings.max_event_age_ms),
            tracer,
        ),
        world=world,
        coordinator=coordinator,
        apply_config_map=lambda item: _lay(foreign, item),
        delete_config_map=lambda namespace, name: _remove(foreign, namespace, name),
        mode=mode,
        policy=keep,
        meaning=lambda ref: meaning_of(keep.policy, ref),
        leave=leaving(book, real, settings, mode, solo=True),
    )
    solo = Solo(parts, told, say)
    parts_tell.append(solo)
    return solo, world, keep


async def _lay(store: DocumentStore, item: Mapping[str, Any]) -> None:
    """Another writer's ConfigMap as it now is, whatever it was before. Raises BadDocument, Refused."""
    document = from_object(item, "apply", "default")
    for _ in range(8):
        live = await store.get(document.namespace, document.name)
        version = live.resource_version if live is not None else ""
        try:
            await store.put(replace(document, resource_version=version, uid=live.uid if live else document.uid))
        except Conflict:
            continue
        return


async def _remove(store: DocumentStore, namespace: str, name: str) -> None:
    try:
        live = await store.get(namespace, name)
        if live is not None:
            await store.delete(namespace, name, live.resource_version)
    except (Conflict, BadInput, Refused):
        return
