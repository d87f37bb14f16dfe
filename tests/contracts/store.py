"""What every DocumentStore must do. A filler's test gives two fixtures: `store`, and `other`, a second writer of the
same objects that goes by the name `volcano`.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from agent.errors import Conflict, Refused
from agent.ports import ConfigMap, DocumentStore

DOCUMENT = ConfigMap(
    namespace="mindx-dl",
    name="job-reschedule-reason",
    data={"recent-reschedule-records": '{"a<b>&c": "é\\n"}', "other": ""},
    labels={"app": "x"},
    annotations={"note": "kept"},
    extra={
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1", "controller": True}],
        "binaryData": {"raw": "AAE="},
    },
)


@asynccontextmanager
async def watching(store: DocumentStore) -> AsyncIterator[AsyncIterator[tuple[str, ConfigMap]]]:
    """A watch that is ended at the end of the block."""
    changes = store.watch()
    try:
        yield changes
    finally:
        if isinstance(changes, AsyncGenerator):
            await changes.aclose()


async def next_change(changes: AsyncIterator[tuple[str, ConfigMap]]) -> tuple[str, str, str]:
    """Kind, name and the text under `v` of the next change."""
    kind, document = await anext(changes)
    return kind, document.name, document.data.get("v", "")


class StoreContract:
    async def test_what_was_never_put_is_none(self, store: DocumentStore) -> None:
        assert await store.get("mindx-dl", "job-reschedule-reason") is None
        assert list(await store.list()) == []

    async def test_a_put_document_reads_back_with_everything_it_had(self, store: DocumentStore) -> None:
        stored = await store.put(DOCUMENT)
        read = await store.get("mindx-dl", "job-reschedule-reason")
        assert read == stored
        assert read is not None
        assert (read.data, read.labels, read.annotations) == (DOCUMENT.data, DOCUMENT.labels, DOCUMENT.annotations)
        assert read.extra["ownerReferences"] == DOCUMENT.extra["ownerReferences"]
        assert read.extra["binaryData"] == {"raw": "AAE="}
        assert read.resource_version
        assert read.uid
        assert read.managers == ("fault-agent",)

    async def test_creating_what_exists_is_a_conflict(self, store: DocumentStore) -> None:
        await store.put(DOCUMENT)
        with pytest.raises(Conflict):
            await store.put(DOCUMENT)

    async def test_a_replacement_gets_a_new_version_and_keeps_the_uid(self, store: DocumentStore) -> None:
        first = await store.put(DOCUMENT)
        second = await store.put(replace(first, data={"v": "2"}))
        assert second.resource_version != first.resource_version
        assert second.uid == first.uid
        assert second.data == {"v": "2"}

    async def test_a_stale_version_is_a_conflict_and_changes_nothing(self, store: DocumentStore) -> None:
        first = await store.put(DOCUMENT)
        second = await store.put(replace(first, data={"v": "2"}))
        with pytest.raises(Conflict):
            await store.put(replace(first, data={"v": "3"}))
        assert await store.get("mindx-dl", "job-reschedule-reason") == second

    async def test_replacing_what_is_gone_is_a_conflict(self, store: DocumentStore) -> None:
        first = await store.put(DOCUMENT)
        await store.delete("mindx-dl", "job-reschedule-reason", first.resource_version)
        with pytest.raises(Conflict):
            await store.put(replace(first, data={"v": "2"}))
        assert await store.get("mindx-dl", "job-reschedule-reason") is None

    async def test_the_same_content_again_keeps_the_version(self, store: DocumentStore, other: DocumentStore) -> None:
        first = await store.put(DOCUMENT)
        assert await store.put(first) == first
        assert await other.put(first) == first
        assert await store.get("mindx-dl", "job-reschedule-reason") == first

    async def test_a_version_is_not_given_again_to_a_new_object_of_the_name(self, store: DocumentStore) -> None:
        first = await store.put(DOCUMENT)
        await store.delete("mindx-dl", "job-reschedule-reason", first.resource_version)
        second = await store.put(DOCUMENT)
        assert second.uid != first.uid
        with pytest.raises(Conflict):
            await store.put(replace(first, data={"v": "3"}))

    async def test_every_writer_is_among_the_managers(self, store: DocumentStore, other: DocumentStore) -> None:
        first = await store.put(DOCUMENT)
        second = await other.put(replace(first, data={"v": "2"}))
        third = await store.put(replace(second, data={"v": "3"}))
        assert set(third.managers) == {"fault-agent", "volcano"}
        assert len(third.managers) == 2

    async def test_delete_takes_only_the_named_version(self, store: DocumentStore) -> None:
        first = await store.put(DOCUMENT)
        second = await store.put(replace(first, data={"v": "2"}))
        with pytest.raises(Conflict):
            await store.delete("mindx-dl", "job-reschedule-reason", first.resource_version)
        assert await store.get("mindx-dl", "job-reschedule-reason") == second
        await store.delete("mindx-dl", "job-reschedule-reason", second.resource_version)
        assert await store.get("mindx-dl", "job-reschedule-reason") is None

    async def test_deleting_what_is_absent_is_nothing(self, store: DocumentStore) -> None:
        await store.delete("mindx-dl", "job-reschedule-reason", "7")

    async def test_the_limit_of_data_counts_all_values_in_bytes(self, store: DocumentStore) -> None:
        # 524,288 times é is 1,048,576 bytes in UTF-8: just what is allowed, and half of it in characters.
        stored = await store.put(ConfigMap("mindx-dl", "full", data={"a": "é" * 524_287, "b": "xx"}))
        with pytest.raises(Refused):
            await store.put(replace(stored, data={"a": "é" * 524_287, "b": "xxx"}))
        with pytest.raises(Refused):
            await store.put(ConfigMap("mindx-dl", "over", data={"a": "x" * 1_048_577}))
        assert [document.name for document in await store.list()] == ["full"]

    @pytest.mark.parametrize(
        ("namespace", "name"),
        [
            pytest.param("mindx-dl", "../etc", id="name leads out"),
            pytest.param("..", "etc", id="namespace leads out"),
            pytest.param("mindx-dl", "a/b", id="slash"),
            pytest.param("mindx-dl", "Upper", id="upper case"),
            pytest.param("a.b", "x", id="dot in namespace"),
            pytest.param("mindx-dl", "", id="empty"),
            pytest.param("mindx-dl", "x\n", id="newline"),
        ],
    )
    async def test_a_name_kubernetes_would_not_take_is_refused(
        self, store: DocumentStore, namespace: str, name: str
    ) -> None:
        with pytest.raises(Refused):
            await store.put(ConfigMap(namespace, name, data={"v": "1"}))
        assert list(await store.list()) == []

    @pytest.mark.parametrize("key", ["", "a/b", "..", "a b"])
    async def test_a_data_key_kubernetes_would_not_take_is_refused(self, store: DocumentStore, key: str) -> None:
        with pytest.raises(Refused):
            await store.put(ConfigMap("mindx-dl", "x", data={key: "1"}))

    async def test_an_immutable_document_is_not_changed(self, store: DocumentStore) -> None:
        first = await store.put(ConfigMap("mindx-dl", "x", data={"v": "1"}, extra={"immutable": True}))
        with pytest.raises(Refused):
            await store.put(replace(first, data={"v": "2"}))
        assert await store.get("mindx-dl", "x") == first

    async def test_the_list_is_sorted_by_namespace_and_name(self, store: DocumentStore, other: DocumentStore) -> None:
        for namespace, name in [("b", "a"), ("a", "z"), ("a", "b.c"), ("b", "0")]:
            await other.put(ConfigMap(namespace, name))
        documents = await store.list()
        assert [(d.namespace, d.name) for d in documents] == [("a", "b.c"), ("a", "z"), ("b", "0"), ("b", "a")]

    async def test_a_watch_shows_what_is_there_and_then_each_change(
        self, store: DocumentStore, other: DocumentStore
    ) -> None:
        first = await store.put(ConfigMap("a", "x", data={"v": "1"}))
        await store.put(ConfigMap("a", "y", data={"v": "1"}))
        async with watching(store) as changes:
            existing = [await next_change(changes), await next_change(changes)]
            assert sorted(existing) == [("set", "x", "1"), ("set", "y", "1")]
            second = await other.put(replace(first, data={"v": "2"}))
            assert await next_change(changes) == ("set", "x", "2")
            await other.put(second)
            await other.put(ConfigMap("b", "z", data={"v": "1"}))
            assert await next_change(changes) == ("set", "z", "1")
            await other.delete("a", "x", second.resource_version)
            assert (await next_change(changes))[:2] == ("gone", "x")
            await other.put(ConfigMap("a", "x", data={"v": "9"}))
            assert await next_change(changes) == ("set", "x", "9")
