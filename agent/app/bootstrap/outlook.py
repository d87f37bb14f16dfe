"""The cluster as a what-if looks at it: objects, reports and ledgers, from files, a run's folder or the services.

The one rule: rights to read are enough, nothing is written, and what could not be read is said.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from agent.adapters.clusterfiles import ClusterFiles
from agent.app.bootstrap.common import cluster_of, limits_of, read_audit, wall_clock
from agent.app.bootstrap.folderdocs import picture
from agent.app.ledgers import Ledgers
from agent.app.settings import Settings
from agent.app.world import World
from agent.domain.cluster import ClusterBook
from agent.domain.events import Decision
from agent.domain.rail.tables import NamedTable, difference
from agent.domain.vocab import Millis, Mode
from agent.errors import BadDocument
from agent.ports import DocumentStore
from agent.wire.kubeobjects import ConfigMapObject, parse_object, rank_table_text
from agent.wire.ledgerfile import LEDGER_KEY
from agent.wire.railfile import LEDGER_NAME
from agent.wire.ranktablefile import parse_rank_table


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known, as of when (ms), and what could not be read."""

    book: ClusterBook
    now: Millis
    findings: Sequence[str] = ()
    ledger: bool = True
    """Whether what is borrowed is known; False: objects alone were looked at, and the ledger is not among them."""
    clock: bool = True
    """Whether what was looked at tells the time; False: objects alone were, and `now` is that of who looks."""


def look_at_files(cluster: Path, out: Path | None, settings: Settings, *, named: bool) -> Outlook:
    """The objects of files, and with the --out folder of a run its reports and ledgers, as of the newest time it knows.

    `named`: the settings were given, so that their cluster.id counts; else that of the ledger among the objects.
    Raises CannotRun, Unavailable.
    """
    files = ClusterFiles(cluster, static=True)
    if out is None:
        outlook = asyncio.run(_files(files, settings, named=named))
    else:
        lines, unread = read_audit(out)
        decided = max((line.decision.at for line in lines), default=Millis(0))
        outlook = asyncio.run(_folder(cluster, out, settings, decided))
        outlook = replace(outlook, findings=(*unread, *outlook.findings))
    for key, told in _contradictions(files).items():
        outlook.book.contradictions.setdefault(key, told)
    return outlook


async def _files(files: ClusterFiles, settings: Settings, *, named: bool) -> Outlook:
    store, now = files.configmaps(), wall_clock()
    id_ = settings.cluster.id if named else await _cluster_in(store, settings)
    world = World(ClusterBook(id_, limits_of(settings, Mode.ACT)))
    world.replace(*await files.snapshot())
    unread, there = await _ledgers(world.book, store, settings, now)
    return Outlook(world.book, now, (*world.findings, *unread), there, clock=False)


async def _folder(cluster: Path, out: Path, settings: Settings, decided: Millis) -> Outlook:
    book = ClusterBook(settings.cluster.id, limits_of(settings, Mode.ACT))
    store, clock, findings = await picture(cluster, out, book)
    now = max(clock, decided)
    unread, _ = await _ledgers(book, store, settings, now)
    return Outlook(book, now, (*findings, *unread))


async def _ledgers(
    book: ClusterBook, store: DocumentStore, settings: Settings, now: Millis
) -> tuple[Sequence[str], bool]:
    """Take the ledgers into the book; what of them could not be read, and whether there is one of held NPUs."""
    unreadable: list[Decision] = []
    await Ledgers(store, settings.namespace).load(book, now, unreadable.append)
    findings = [f"{one.document}: {one.detail}" for one in unreadable]
    try:
        return findings, await store.get(settings.namespace, LEDGER_NAME) is not None
    except BadDocument as error:  # a list leaves out what is no ConfigMap at all
        book.rails = None
        return [*findings, str(error)], True


async def _cluster_in(store: DocumentStore, settings: Settings) -> str:
    """The cluster that the ledger of held NPUs names, if it is among the objects."""
    try:
        ledger = await store.get(settings.namespace, LEDGER_NAME)
        root: Any = orjson.loads(ledger.data.get(LEDGER_KEY, "")) if ledger is not None else None
    except (BadDocument, orjson.JSONDecodeError):
        return settings.cluster.id
    return str(root.get("cluster", settings.cluster.id)) if isinstance(root, dict) else settings.cluster.id


def _contradictions(files: ClusterFiles) -> dict[tuple[str, str], str]:
    """Rank tables that are given twice under one name and differ, by namespace and job."""
    scan = files.scan()
    latest = {_key(item): item for item in scan.objects if item.get("kind") == "ConfigMap"}
    found: dict[tuple[str, str], str] = {}
    for place, item, later in scan.again:
        tables, job = [], ""
        for at, one in ((place, item), (later, latest.get(_key(item), item))):
            try:
                parsed = parse_object(one)
                named = rank_table_text(parsed) if isinstance(parsed, ConfigMapObject) else None
                if named is not None:
                    job = named[0]
                    tables.append(NamedTable(at, parse_rank_table(named[1])))
            except BadDocument:
                continue  # the later one counts, and why it cannot be read is told with it
        told = difference(tables)
        if told:
            namespace = str(item["metadata"].get("namespace") or "default")
            found[namespace, job] = told
    return found


def _key(item: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = item["metadata"]
    return str(item.get("kind", "")), str(meta.get("namespace") or ""), str(meta["name"])


def look_at_services(settings: Settings, say: Callable[[str], None]) -> Outlook:
    """The cluster as its API server and the reports topic tell it now. Raises CannotRun, Refused, Unavailable."""
    # Imported here: a look at files needs no clients.
    from agent.app.bootstrap.common import silence_client

    cluster_of(settings)
    silence_client()
    return asyncio.run(_services(settings, say))


async def _services(settings: Settings, say: Callable[[str], None]) -> Outlook:
    from agent.adapters.kube import KubeDocumentStore
    from agent.app.bootstrap.common import MANAGER
    from agent.app.bootstrap.coordinator import OURS
    from agent.app.bootstrap.livedocs import cluster_objects, newest_reports
    from agent.app.bootstrap.topics import kafka_of

    book = ClusterBook(settings.cluster.id, limits_of(settings, Mode.ACT))
    kafka = await asyncio.to_thread(kafka_of, settings)
    book.reports.update(await newest_reports(settings, kafka, say))
    async with cluster_objects(settings, book, say) as client:
        now = wall_clock()
        store = KubeDocumentStore(client, MANAGER, labels=OURS)
        unread, _ = await _ledgers(book, store, settings, now)
        return Outlook(book, now, unread)
