"""The whole solo role in memory: objects and a record stream in, documents and reasons out.

The one rule: every part is the product's own; only the store is watched, so that a test sees each write.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo

from agent.adapters.deadletters import JournalDeadLetters
from agent.adapters.memory import (
    MemoryCabinet,
    MemoryDocumentStore,
    MemoryFaultSource,
    MemoryJobView,
    MemoryJournal,
    MemoryReportLog,
)
from agent.adapters.objects import from_object
from agent.adapters.otel import SilentTracer
from agent.adapters.overlay import OverlayStore
from agent.app.bootstrap import limits_of, load_policy_at, meaning_of, wishes_of
from agent.app.bootstrap.common import leaving
from agent.app.coordinator_app import Coordinator
from agent.app.ledgers import Ledgers
from agent.app.node_app import NodeSide
from agent.app.policykeep import PolicyKeep
from agent.app.settings import settings_from
from agent.app.solo import Parts, Solo
from agent.app.world import World
from agent.domain.cluster import ClusterBook
from agent.domain.events import Decision, Position
from agent.domain.policy import Policy
from agent.domain.vocab import Millis, Mode
from agent.errors import Refused
from agent.ports import Cabinet, ConfigMap, Control, DocumentStore, Journal, ReportLog, Tracer
from agent.wire.audit import AuditLine, decode_all
from agent.wire.inbound import Limits as BorderLimits

T0 = 1767225600000
"""2026-01-01T00:00:00Z, ms; the worked cases begin here."""


POLICY: Policy = load_policy_at(None)
UTC: ZoneInfo = ZoneInfo("UTC")
"""Both are read from disk, which nothing inside the loop may do."""


class WatchedStore:
    """A DocumentStore that remembers every text each key was given, in order."""

    def __init__(self, inner: DocumentStore) -> None:
        self.inner = inner
        self.writes: list[ConfigMap] = []

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        return await self.inner.get(namespace, name)

    async def put(self, document: ConfigMap) -> ConfigMap:
        stored = await self.inner.put(document)
        self.writes.append(stored)
        return stored

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        await self.inner.delete(namespace, name, resource_version)

    async def list(self) -> Sequence[ConfigMap]:
        return await self.inner.list()

    def watch(self) -> Any:
        return self.inner.watch()


def message(code: str, *, node: str, assertion: str, at: int, number: int, **given: Any) -> dict[str, Any]:
    """The value of a record with one fault."""
    resource = given.pop("resource", "dcmi")
    where = {key: str(value) for key, value in given.pop("location", {}).items()}
    devices = given.pop("devices", ())
    influence: dict[str, Any] = {"nodeName": node}
    if devices:
        influence["deviceIds"] = list(devices)
    return {
        "id": f"{node}-message-{number:06d}",
        "timestamp": at,
        "version": "1.0",
        "resource": resource,
        "faults": [
            {
                "faultId": given.pop("fault_id", f"{node}-fault-{number:04d}"),
                "faultType": "NPU",
                "faultCode": code,
                "faultTime": at,
                "assertion": assertion,
                "faultLocation": where,
                "influence": [influence],
                "description": "",
            }
        ],
    }


@dataclass
class Disk:
    """What survives a process: hand it to the next rig."""

    reports: ReportLog = field(default_factory=MemoryReportLog)
    cabinet: Cabinet = field(default_factory=MemoryCabinet)
    letters: Journal = field(default_factory=MemoryJournal)
    audit: Journal = field(default_factory=MemoryJournal)
    store: DocumentStore = field(default_factory=MemoryDocumentStore)
    foreign: DocumentStore | None = None
    """The same objects under no manager's name, for what the stream applies."""

    def __post_init__(self) -> None:
        if self.foreign is None and isinstance(self.store, MemoryDocumentStore):
            self.foreign = self.store.as_manager("")


@dataclass
class Rig:
    """A solo role over a list of items; `run` replays them, `start` again goes on with the same disk."""

    objects: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    disk: Disk = field(default_factory=Disk)
    tracer: Tracer = field(default_factory=SilentTracer)
    policy: Policy = POLICY
    source: MemoryFaultSource = field(default_factory=MemoryFaultSource)
    view: MemoryJobView | None = None
    told: list[AuditLine] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever something was told."""
    _number: int = 0

    def __post_init__(self) -> None:
        self.view = self.view or MemoryJobView(self.objects)

    # --- what happens, `at` in seconds after T0

    def fault(
        self,
        code: str,
        at: float = 0,
        *,
        node: str = "n1",
        device: int | None = 2,
        assertion: str = "occur",
        trace: str = "",
        **given: Any,
    ) -> None:
        """One fault event; `device` None: the whole node."""
        self._number += 1
        devices = given.pop("devices", () if device is None else (device,))
        when = T0 + round(at * 1000)
        value = message(code, node=node, assertion=assertion, at=when, number=self._number, devices=devices, **given)
        self.raw(json.dumps(value).encode(), at, node=node, trace=trace)

    def raw(self, value: bytes | None, at: float = 0, *, node: str | None = "n1", trace: str = "") -> None:
        """A record with any value."""
        key = node.encode() if node is not None else None
        headers = (("traceparent", trace.encode()),) if trace else ()
        self.source.add(key, value, headers, Millis(T0 + round(at * 1000)))

    def clear(self, code: str, at: float, **given: Any) -> None:
        """The recover of a fault."""
        self.fault(code, at, assertion="recover", **given)

    def _control(self, kind: Any, at: float, body: Mapping[str, Any]) -> None:
        position = Position(0, 0, len(self.source._items))
        self.source.append(Control(position, kind, Millis(T0 + round(at * 1000)), body))

    def tick(self, at: float) -> None:
        """The clock moves with no event."""
        self._control("tick", at, {})

    def apply(self, item: Mapping[str, Any], at: float) -> None:
        """An object as it now is."""
        self._control("apply", at, item)

    def delete(self, kind: str, namespace: str, name: str, at: float) -> None:
        """An object is gone."""
        self._control("delete", at, {"kind": kind, "namespace": namespace, "name": name})

    def probe(self, node: str, at: float, **links: str) -> None:
        """A link probe: d0="up", d1="down"."""
        self._control("probe", at, {"node": node, "links": {key[1:]: state for key, state in links.items()}})

    # --- running

    def build(self) -> Solo:
        """The parts put together on the rig's disk, as `bootstrap` does it."""
        settings = settings_from(self.settings, "test")
        mode = settings.mode or Mode.ACT
        disk = self.disk
        real = disk.store
        shadow = OverlayStore(MemoryDocumentStore(manager="fault-agent"), real)
        self.store = WatchedStore(real if mode is Mode.ACT else shadow)
        self.book = ClusterBook(settings.cluster.id, limits_of(settings, mode), self.policy)
        self.world = World(self.book)
        solos: list[Solo] = []
        self.ledgers = Ledgers(self.store, settings.namespace)
        self.coordinator = Coordinator(
            self.book,
            self.store,
            self.ledgers,
            wishes_of(settings, mode),
            self.tracer,
            lambda decision: solos[0].tell(decision),
            lambda: solos[0].flush_audit(),
        )
        self.keep = PolicyKeep(self.policy)
        self.node_side = NodeSide(
            self.policy,
            settings.cluster.id,
            "rig",
            BorderLimits(max_clock_skew=Millis(300_000)),
            Millis(settings.max_event_age_ms),
            self.tracer,
        )
        foreign = disk.foreign
        assert foreign is not None

        async def lay(item: Mapping[str, Any]) -> None:
            document = from_object(item, "apply", "default")
            live = await foreign.get(document.namespace, document.name)
            writer = foreign
            for manager in document.managers:
                writer = disk.store.as_manager(manager)  # type: ignore[attr-defined]  # memory only
            base = live or replace(document, data={}, resource_version="")
            await writer.put(replace(base, data=document.data))

        async def remove(namespace: str, name: str) -> None:
            with suppress(Refused):
                live = await foreign.get(namespace, name)
                if live is not None:
                    await foreign.delete(namespace, name, live.resource_version)

        assert self.view is not None
        parts = Parts(
            source=self.source,
            cluster=self.view,
            reports=disk.reports,
            cabinet=disk.cabinet,
            letters=JournalDeadLetters(disk.letters),
            audit=disk.audit,
            node_side=self.node_side,
            world=self.world,
            coordinator=self.coordinator,
            apply_config_map=lay,
            delete_config_map=remove,
            mode=mode,
            policy=self.keep,
            meaning=lambda ref: meaning_of(self.policy, ref),
            leave=leaving(self.book, real, settings, mode, solo=True),
        )
        solo = Solo(parts, self._hear, self.said.append)
        solos.append(solo)
        return solo

    def _hear(self, line: AuditLine) -> None:
        self.told.append(line)
        self.news.set()

    async def run(self, *, resume: bool = False) -> "Rig":
        """Replay all items; with `resume` from where the disk says an earlier rig was."""
        self.source.finished = True
        self.solo = self.build()
        await self.solo.replay(lambda _: None, resume=resume)
        return self

    # --- what came of it

    def texts(self, place: str, key: str) -> list[str]:
        """Every text that a key of a document was given, in order, each once in a row."""
        namespace, _, name = place.partition("/")
        found: list[str] = []
        for document in self.store.writes:
            if (document.namespace, document.name) == (namespace, name):
                text = document.data.get(key, "")
                if not found or found[-1] != text:
                    found.append(text)
        return found

    async def data(self, place: str) -> Mapping[str, str] | None:
        """A document's data as it stands."""
        namespace, _, name = place.partition("/")
        live = await self.disk.store.get(namespace, name)
        return None if live is None else live.data

    @property
    def decisions(self) -> list[Decision]:
        """All that was decided, oldest first."""
        return [line.decision for line in self.told]

    def reasons(self, job: str = "", *, documents: bool = False) -> list[str]:
        """Reasons told for a job (or of any), those about documents alone left out."""
        return [
            str(one.reason)
            for one in self.decisions
            if (not job or one.job == job) and (documents or one.fault or not one.document)
        ]

    async def letters(self) -> list[dict[str, Any]]:
        """The dead letters as they are kept."""
        return [json.loads(line) for line in await self.disk.letters.read()]

    async def journal(self) -> list[AuditLine]:
        """The audit journal read back."""
        lines, findings = decode_all(await self.disk.audit.read(), "audit.jsonl")
        assert findings == []
        return lines
