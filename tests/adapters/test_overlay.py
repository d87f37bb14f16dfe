"""Two layers as one store: the contract holds, the lower layer shows through and is never written."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Literal

import pytest
from contracts.store import StoreContract, next_change, watching

from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.overlay import OverlayStore, ReadOnly
from agent.errors import Conflict, Refused, Unavailable
from agent.ports import ConfigMap, DocumentStore


class TestOverlayStore(StoreContract):
    @pytest.fixture
    def upper(self) -> MemoryDocumentStore:
        return MemoryDocumentStore()

    @pytest.fixture
    def lower(self) -> MemoryDocumentStore:
        return MemoryDocumentStore(manager="volcano")

    @pytest.fixture
    def store(self, upper: MemoryDocumentStore, lower: MemoryDocumentStore) -> DocumentStore:
        return OverlayStore(upper, lower)

    @pytest.fixture
    def other(self, upper: MemoryDocumentStore, lower: MemoryDocumentStore) -> DocumentStore:
        return OverlayStore(upper.as_manager("volcano"), lower)

    async def test_a_write_to_a_lower_object_goes_up_with_its_uid_and_writers(
        self, store: DocumentStore, upper: MemoryDocumentStore, lower: MemoryDocumentStore
    ) -> None:
        below = await lower.put(ConfigMap("a", "x", data={"v": "1"}, labels={"l": "1"}))
        read = await store.get("a", "x")
        assert read is not None
        assert (read.data, read.uid, read.managers) == ({"v": "1"}, below.uid, ("volcano",))
        written = await store.put(replace(read, data={"v": "2"}))
        assert (written.uid, written.managers, written.labels) == (below.uid, ("volcano", "fault-agent"), {"l": "1"})
        assert await store.get("a", "x") == written == await upper.get("a", "x")
        assert await lower.get("a", "x") == below
        assert list(await store.list()) == [written]

    async def test_a_lower_object_that_moved_on_is_a_conflict(
        self, store: DocumentStore, upper: MemoryDocumentStore, lower: MemoryDocumentStore
    ) -> None:
        below = await lower.put(ConfigMap("a", "x", data={"v": "1"}))
        read = await store.get("a", "x")
        assert read is not None
        await lower.put(replace(below, data={"v": "2"}))
        with pytest.raises(Conflict):
            await store.put(replace(read, data={"v": "3"}))
        assert await upper.get("a", "x") is None

    async def test_an_object_that_went_up_meanwhile_is_a_conflict(
        self, store: DocumentStore, other: DocumentStore, lower: MemoryDocumentStore
    ) -> None:
        await lower.put(ConfigMap("a", "x", data={"v": "1"}))
        read = await store.get("a", "x")
        assert read is not None
        second = await other.put(replace(read, data={"v": "2"}))
        with pytest.raises(Conflict):
            await store.put(replace(read, data={"v": "3"}))
        with pytest.raises(Conflict):
            await store.put(read)
        assert await store.get("a", "x") == second

    async def test_versions_of_the_layers_are_not_mistaken_for_each_other(
        self, store: DocumentStore, upper: MemoryDocumentStore, lower: MemoryDocumentStore
    ) -> None:
        below = await lower.put(ConfigMap("a", "x", data={"v": "1"}))
        read = await store.get("a", "x")
        assert read is not None
        above = await upper.put(ConfigMap("a", "x", data={"v": "2"}))
        assert above.resource_version == below.resource_version == "1"
        with pytest.raises(Conflict):
            await store.put(replace(read, data={"v": "3"}))

    async def test_the_same_content_as_below_writes_nothing(
        self, store: DocumentStore, upper: MemoryDocumentStore, lower: MemoryDocumentStore
    ) -> None:
        await lower.put(ConfigMap("a", "x", data={"v": "1"}))
        read = await store.get("a", "x")
        assert read is not None
        assert await store.put(read) == read
        assert await upper.get("a", "x") is None

    async def test_creating_what_exists_below_is_a_conflict(
        self, store: DocumentStore, lower: MemoryDocumentStore
    ) -> None:
        await lower.put(ConfigMap("a", "x"))
        with pytest.raises(Conflict):
            await store.put(ConfigMap("a", "x"))

    async def test_a_deleted_lower_object_stays_hidden_until_there_is_a_new_one(
        self, store: DocumentStore, lower: MemoryDocumentStore
    ) -> None:
        below = await lower.put(ConfigMap("a", "x", data={"v": "1"}))
        read = await store.get("a", "x")
        assert read is not None
        with pytest.raises(Conflict):
            await store.delete("a", "x", below.resource_version)
        await store.delete("a", "x", read.resource_version)
        assert await store.get("a", "x") is None
        assert list(await store.list()) == []
        assert await lower.get("a", "x") == below
        with pytest.raises(Conflict):
            await store.put(replace(read, data={"v": "2"}))
        moved = await lower.put(replace(below, data={"v": "2"}))
        assert await store.get("a", "x") is None
        await lower.delete("a", "x", moved.resource_version)
        await lower.put(ConfigMap("a", "x", data={"v": "3"}))
        again = await store.get("a", "x")
        assert again is not None
        assert again.data == {"v": "3"}

    async def test_deleting_a_covered_object_does_not_uncover_the_lower_one(
        self, store: DocumentStore, lower: MemoryDocumentStore
    ) -> None:
        await lower.put(ConfigMap("a", "x", data={"v": "1"}))
        read = await store.get("a", "x")
        assert read is not None
        written = await store.put(replace(read, data={"v": "2"}))
        await store.delete("a", "x", written.resource_version)
        assert await store.get("a", "x") is None
        created = await store.put(ConfigMap("a", "x", data={"v": "3"}))
        assert await store.get("a", "x") == created

    async def test_a_watch_shows_the_upper_layer_where_there_is_one(
        self, store: DocumentStore, upper: MemoryDocumentStore, lower: MemoryDocumentStore
    ) -> None:
        below = await lower.put(ConfigMap("a", "x", data={"v": "below"}))
        await lower.put(ConfigMap("a", "y", data={"v": "below"}))
        above = await upper.put(ConfigMap("a", "x", data={"v": "above"}))
        async with watching(store) as changes:
            assert sorted([await next_change(changes), await next_change(changes)]) == [
                ("set", "x", "above"),
                ("set", "y", "below"),
            ]
            await lower.put(replace(below, data={"v": "unseen"}))
            await lower.put(ConfigMap("a", "z", data={"v": "below"}))
            assert await next_change(changes) == ("set", "z", "below")
            await upper.delete("a", "x", above.resource_version)
            assert await next_change(changes) == ("set", "x", "unseen")
            read = await store.get("a", "y")
            assert read is not None
            await store.delete("a", "y", read.resource_version)
            assert (await next_change(changes))[:2] == ("gone", "y")

    async def test_a_watch_that_breaks_says_so(self, upper: MemoryDocumentStore) -> None:
        async with watching(OverlayStore(upper, Broken())) as changes:
            assert await next_change(changes) == ("set", "x", "1")
            with pytest.raises(Unavailable):
                await anext(changes)

    async def test_writers_in_one_process_take_turns(self, store: DocumentStore, lower: MemoryDocumentStore) -> None:
        await lower.put(ConfigMap("a", "x", data={"v": "0"}))
        read = await store.get("a", "x")
        assert read is not None
        done = await asyncio.gather(
            *(store.put(replace(read, data={"v": str(n)})) for n in range(1, 5)), return_exceptions=True
        )
        assert sum(isinstance(result, ConfigMap) for result in done) == 1
        assert sum(isinstance(result, Conflict) for result in done) == 3


class Broken(MemoryDocumentStore):
    """A store whose watch loses its connection after the first object."""

    async def watch(self) -> AsyncGenerator[tuple[Literal["set", "gone"], ConfigMap], None]:
        yield "set", ConfigMap("a", "x", data={"v": "1"})
        raise Unavailable("no connection")


async def test_read_only_lets_every_read_through_and_no_write() -> None:
    inner = MemoryDocumentStore([ConfigMap("a", "x", data={"v": "1"})])
    store = ReadOnly(inner, "the cluster")
    stored = await inner.get("a", "x")
    assert stored is not None
    assert await store.get("a", "x") == stored
    assert list(await store.list()) == [stored]
    async with watching(store) as changes:
        assert await next_change(changes) == ("set", "x", "1")
    with pytest.raises(Refused, match="the cluster"):
        await store.put(stored)
    with pytest.raises(Refused, match="the cluster"):
        await store.delete("a", "x", stored.resource_version)
    assert await inner.get("a", "x") == stored
