"""The fillers in memory keep every port's promise, and fail when they are told to."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from contracts.cabinet import CabinetContract
from contracts.jobview import JobViewContract
from contracts.journal import JournalContract
from contracts.linkprobe import LinkProbeContract
from contracts.reportlog import ReportLogContract
from contracts.source import ResumeContract, SourceContract
from contracts.store import StoreContract, next_change, watching

from agent.adapters.memory import (
    MemoryCabinet,
    MemoryDocumentStore,
    MemoryFaultSource,
    MemoryJobView,
    MemoryJournal,
    MemoryLinkProbe,
    MemoryReportLog,
)
from agent.domain.vocab import NodeName
from agent.errors import Conflict, Refused, Unavailable
from agent.ports import (
    Cabinet,
    ConfigMap,
    Control,
    DocumentStore,
    FaultSource,
    JobView,
    Journal,
    LinkProbe,
    ReportLog,
)


class TestMemoryDocumentStore(StoreContract):
    @pytest.fixture
    def memory(self) -> MemoryDocumentStore:
        return MemoryDocumentStore()

    @pytest.fixture
    def store(self, memory: MemoryDocumentStore) -> DocumentStore:
        return memory

    @pytest.fixture
    def other(self, memory: MemoryDocumentStore) -> DocumentStore:
        return memory.as_manager("volcano")

    async def test_a_failure_ordered_happens_once_and_changes_nothing(self, memory: MemoryDocumentStore) -> None:
        memory.failures.fail_next(Unavailable("no answer"), Conflict("moved"))
        with pytest.raises(Unavailable):
            await memory.put(ConfigMap("a", "x"))
        with pytest.raises(Conflict):
            await memory.get("a", "x")
        assert await memory.get("a", "x") is None

    async def test_a_lost_answer_leaves_the_write_done(self, memory: MemoryDocumentStore) -> None:
        memory.failures.lose_answer(Unavailable("no answer"))
        with pytest.raises(Unavailable):
            await memory.put(ConfigMap("a", "x", data={"v": "1"}))
        stored = await memory.get("a", "x")
        assert stored is not None
        assert stored.data == {"v": "1"}

    async def test_failures_of_one_writer_are_not_those_of_another(self, memory: MemoryDocumentStore) -> None:
        other = memory.as_manager("volcano")
        memory.failures.fail_next(Unavailable("no answer"))
        await other.put(ConfigMap("a", "x"))
        with pytest.raises(Unavailable):
            await memory.get("a", "x")

    async def test_every_change_is_watched_even_when_they_come_faster_than_they_are_taken(
        self, memory: MemoryDocumentStore
    ) -> None:
        async with watching(memory) as changes:
            document = await memory.put(ConfigMap("a", "x", data={"v": "1"}))
            assert await next_change(changes) == ("set", "x", "1")
            document = await memory.put(replace(document, data={"v": "2"}))
            document = await memory.put(replace(document, data={"v": "3"}))
            await memory.delete("a", "x", document.resource_version)
            assert [await next_change(changes) for _ in range(3)] == [
                ("set", "x", "2"),
                ("set", "x", "3"),
                ("gone", "x", "3"),
            ]

    async def test_it_may_begin_with_documents(self) -> None:
        store = MemoryDocumentStore([ConfigMap("a", "x", uid="u-1", managers=("volcano",))])
        stored = await store.get("a", "x")
        assert stored is not None
        assert (stored.uid, stored.managers) == ("u-1", ("volcano", "fault-agent"))

    async def test_changing_the_mapping_that_was_put_does_not_change_what_is_stored(
        self, memory: MemoryDocumentStore
    ) -> None:
        data = {"v": "1"}
        await memory.put(ConfigMap("a", "x", data=data))
        data["v"] = "2"
        stored = await memory.get("a", "x")
        assert stored is not None
        assert stored.data == {"v": "1"}


class TestMemoryReportLog(ReportLogContract):
    @pytest.fixture
    def log(self) -> ReportLog:
        return MemoryReportLog()

    async def test_a_failed_publish_publishes_nothing(self) -> None:
        log = MemoryReportLog()
        log.failures.fail_next(Unavailable("no broker"))
        with pytest.raises(Unavailable):
            await log.publish({NodeName("n1"): b"1"})
        assert dict(await log.latest()) == {}


class TestMemoryJournal(JournalContract):
    @pytest.fixture
    def journal(self) -> Journal:
        return MemoryJournal()


class TestMemoryLinkProbe(LinkProbeContract):
    @pytest.fixture
    def probe(self) -> LinkProbe:
        return MemoryLinkProbe({0: b"link status: UP\n", 1: b"link status: DOWN\n", 2: b"\xff not an answer\n"})


class TestMemoryCabinet(CabinetContract):
    @pytest.fixture
    def cabinet(self) -> Cabinet:
        return MemoryCabinet()

    @pytest.fixture
    def again(self, cabinet: Cabinet) -> Cabinet:
        return cabinet


class MemoryWorld:
    def __init__(self) -> None:
        self.memory = MemoryJobView()
        self.view: JobView = self.memory

    async def apply(self, item: Mapping[str, Any]) -> None:
        self.memory.apply(item)

    async def remove(self, item: Mapping[str, Any]) -> None:
        meta = item["metadata"]
        assert self.memory.delete(item["kind"], meta.get("namespace", ""), meta["name"])

    async def spoil(self) -> None:
        self.memory.find("x.yaml:1: no YAML")


class TestMemoryJobView(JobViewContract):
    @pytest.fixture
    def world(self) -> MemoryWorld:
        return MemoryWorld()

    async def test_deleting_what_is_absent_is_no_change(self) -> None:
        view = MemoryJobView()
        await view.snapshot()
        assert not view.delete("Pod", "train", "demo-0")
        assert not await view.changed()

    @pytest.mark.parametrize(
        "item",
        [
            pytest.param({"metadata": {"name": "x"}}, id="no kind"),
            pytest.param({"kind": "Pod", "metadata": {}}, id="no name"),
            pytest.param({"kind": "Pod", "metadata": "x"}, id="metadata is text"),
        ],
    )
    def test_an_object_without_identity_is_refused(self, item: Mapping[str, Any]) -> None:
        with pytest.raises(Refused):
            MemoryJobView().apply(item)


class MemoryStream:
    def __init__(self) -> None:
        self.memory = MemoryFaultSource()
        self.source: FaultSource = self.memory

    async def send(self, *values: bytes) -> None:
        for value in values:
            self.memory.add(b"n1", value)

    def again(self) -> FaultSource:
        return self.memory

    async def remake(self, *values: bytes) -> None:
        self.memory.recreate()
        await self.send(*values)


class TestMemoryFaultSource(SourceContract, ResumeContract):
    @pytest.fixture
    def stream(self) -> MemoryStream:
        return MemoryStream()

    async def test_items_keep_the_positions_they_bring(self) -> None:
        first = MemoryFaultSource(generation=3, partition=2)
        record = first.add(b"n1", b"1")
        control = Control(record.position, "tick", None, {})
        source = MemoryFaultSource([record])
        source.append(control)
        await source.open(None)
        assert (await source.read(5)).items == (record, control)
        assert str(record.position) == "3:2:0"

    async def test_made_anew_under_an_open_reader_it_says_so(self) -> None:
        source = MemoryFaultSource()
        source.add(b"n1", b"1")
        await source.open(None)
        await source.read(5)
        waiting = asyncio.create_task(source.wait(30))
        source.recreate()
        await waiting
        source.add(b"n1", b"2")
        batch = await source.read(5)
        assert [str(item.position) for item in batch.items] == ["1:0:0"]
        assert len(batch.notices) == 1
