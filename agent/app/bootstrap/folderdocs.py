"""The documents of a folder, as `documents diff` and `release` look at them.

The one rule: while a run works on the folder it may be read, not written.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from agent.adapters.clusterfiles import ClusterFiles
from agent.adapters.directory import DirectoryCabinet, DirectoryDocumentStore, DirectoryJournal, DirectoryReportLog
from agent.adapters.folderlock import FolderLock
from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.otel import SilentTracer
from agent.adapters.overlay import OverlayStore
from agent.app.bootstrap.common import (
    AUDIT,
    MANAGER,
    STATE,
    if_acting,
    load_policy_at,
    modes_of,
    read_audit,
    wall_clock,
)
from agent.app.bootstrap.folder import CABINET, LOCK
from agent.app.keep import CABINET as CABINET_PLACE
from agent.app.keep import kept_of, report_of
from agent.app.preview import Layers, Preview, preview
from agent.app.release import Letting, Released, release
from agent.app.settings import Settings
from agent.app.solo import OBJECTS
from agent.app.world import World
from agent.domain.cluster import ClusterBook
from agent.domain.events import Decision
from agent.domain.policy import Policy
from agent.domain.vocab import Millis, Mode
from agent.errors import CannotRun
from agent.ports import DocumentStore
from agent.wire.audit import AuditLine, encode_audit


@dataclass(frozen=True, slots=True)
class FolderOrder:
    """A folder of the role solo, and the objects that its run was given."""

    cluster: Path
    out: Path
    settings: Settings
    policy: Path | None = None

    @property
    def mode(self) -> Mode:
        """In force in the role solo."""
        return self.settings.mode or Mode.ACT


def preview_folder(order: FolderOrder) -> tuple[Sequence[Preview], Sequence[str]]:
    """What would be written now, on the newest time that the folder knows, and findings about what was read. Raises
    CannotRun when it is no folder of a run.
    """
    lines, findings = read_audit(order.out)
    decided = max((line.decision.at for line in lines), default=Millis(0))
    policy = load_policy_at(order.policy)
    previews, unread = asyncio.run(_preview(order, policy, decided))
    return previews, (*findings, *unread)


async def _preview(order: FolderOrder, policy: Policy, decided: Millis) -> tuple[Sequence[Preview], Sequence[str]]:
    limits, wishes = if_acting(order.settings, solo=True)
    book = ClusterBook(order.settings.cluster.id, limits, policy)
    real, clock, findings = await picture(order.cluster, order.out, book)
    upper = MemoryDocumentStore(manager=MANAGER)
    layers = Layers(real, upper, OverlayStore(upper, real))
    modes = modes_of(order.settings, order.mode)
    now = max(clock, decided)
    jobs = (f"{one.code} {one.object}: {one.reason}" for one in book.jobs.findings())
    previews = await preview(book, layers, order.settings.namespace, wishes, modes, SilentTracer(), now)
    return previews, (*findings, *jobs)


def release_folder(order: FolderOrder, names: Collection[str] | None, *, really: bool) -> Sequence[Released]:
    """Let go of the folder's documents, or (`really` False) say what would be done; as of the newest time it knows.
    Raises CannotRun, BadUsage.
    """
    lines, _ = read_audit(order.out)
    decided = max((line.decision.at for line in lines), default=Millis(0))
    with ExitStack() as stack:
        if really:
            stack.enter_context(FolderLock(order.out / STATE / LOCK))
        return asyncio.run(_release(order, names, decided, really=really))


async def _release(
    order: FolderOrder, names: Collection[str] | None, decided: Millis, *, really: bool
) -> Sequence[Released]:
    limits, wishes = if_acting(order.settings, solo=True)
    book = ClusterBook(order.settings.cluster.id, limits)
    real, clock, _ = await picture(order.cluster, order.out, book)
    journal = DirectoryJournal(order.out / AUDIT)
    told: list[Decision] = []

    async def flush() -> None:
        lines = [encode_audit(AuditLine(one, order.mode, "")) for one in told]
        told.clear()
        if really and lines:
            await journal.append(lines)

    store = real if really else OverlayStore(MemoryDocumentStore(manager=MANAGER), real)
    letting = Letting(store, order.settings.namespace, wishes, told.append, flush)
    return await release(letting, book, names, max(clock, decided) or wall_clock())


async def picture(cluster: Path, out: Path, book: ClusterBook) -> tuple[DocumentStore, Millis, Sequence[str]]:
    """The folder's documents over those of the cluster's files, the clock, findings; the book is filled. Raises
    CannotRun when the folder belongs to another cluster.
    """
    clock, state = Millis(0), out / STATE
    for node, data in (await DirectoryReportLog(state).latest()).items():
        report = report_of(node, data)
        if report.cluster != book.cluster_id:
            raise CannotRun(
                f"the state of node {node} belongs to cluster {report.cluster!r}, the settings say {book.cluster_id!r}",
                hint="give --config the settings of the run that made the folder",
            )
        book.reports[node] = report
        clock = max(clock, report.clock)
    world = World(book)
    laid = await DirectoryCabinet(state / CABINET).load(OBJECTS)
    if laid is not None:
        kept = kept_of(laid, f"{CABINET_PLACE}{OBJECTS}")
        world.lay(kept.laid)
        clock = max(clock, kept.clock)
    files = ClusterFiles(cluster, static=True)
    world.replace(*await files.snapshot())
    return OverlayStore(DirectoryDocumentStore(out, manager=MANAGER), files.configmaps()), clock, world.findings
