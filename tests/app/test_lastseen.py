"""Documents as last seen: when the store is asked, and when what is remembered must not be believed any more."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from agent.adapters.memory import MemoryDocumentStore
from agent.app.lastseen import LastSeen
from agent.errors import Conflict, Unavailable
from agent.ports import ConfigMap

NAME = ("train", "doc")


class Asked:
    """The store, counting calls; `meanwhile` runs after the store has answered and before the answer is handed on."""

    def __init__(self, store: MemoryDocumentStore) -> None:
        self._store = store
        self.calls: list[str] = []
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self.lost: Exception | None = None

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        self.calls.append("get")
        live = await self._store.get(namespace, name)
        await self._pause()
        return live

    async def put(self, document: ConfigMap) -> ConfigMap:
        self.calls.append("put")
        stored = await self._store.put(document)
        await self._pause()
        if self.lost is not None:
            raise self.lost
        return stored

    async def _pause(self) -> None:
        await asyncio.sleep(0)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()


class Desk:
    """A store with one document, the agent's memory over it, and another writer whose changes a watch tells."""

    def __init__(self) -> None:
        self.store = MemoryDocumentStore([ConfigMap(*NAME, {"n": "0"})])
        self.asked = Asked(self.store)
        self.seen = LastSeen(self.asked)

    async def write(self, value: str) -> ConfigMap:
        live = await self.seen.get(*NAME)
        assert live is not None
        return await self.seen.put(ConfigMap(*NAME, {"n": value}, resource_version=live.resource_version))

    async def other_writes(self, value: str) -> str:
        live = await self.store.get(*NAME)
        assert live is not None
        stored = await self.store.as_manager("other").put(
            ConfigMap(*NAME, {"n": value}, resource_version=live.resource_version)
        )
        return stored.resource_version

    async def value(self) -> str:
        live = await self.seen.get(*NAME)
        assert live is not None
        return live.data["n"]


async def test_what_was_read_or_written_is_not_asked_for_again() -> None:
    desk = Desk()
    await desk.write("1")
    await desk.write("2")
    assert await desk.value() == "2"
    assert desk.asked.calls == ["get", "put", "put"]


async def test_the_echo_of_our_own_write_is_no_news() -> None:
    desk = Desk()
    stored = await desk.write("1")
    assert desk.seen.heard(*NAME, stored.resource_version) is False
    assert await desk.value() == "1"
    assert desk.asked.calls == ["get", "put"]


async def test_another_version_is_news_and_is_asked_for() -> None:
    desk = Desk()
    await desk.write("1")
    assert desk.seen.heard(*NAME, await desk.other_writes("theirs")) is True
    assert await desk.value() == "theirs"


async def test_a_document_that_is_gone_is_news_and_is_asked_for() -> None:
    desk = Desk()
    stored = await desk.write("1")
    await desk.store.delete(*NAME, stored.resource_version)
    assert desk.seen.heard(*NAME, "") is True
    assert await desk.seen.get(*NAME) is None


async def test_an_unknown_document_that_changes_is_news() -> None:
    assert Desk().seen.heard("train", "never-seen", "7") is True


async def test_a_write_onto_what_somebody_changed_unnoticed_is_refused_and_then_read_anew() -> None:
    desk = Desk()
    await desk.write("1")
    await desk.other_writes("theirs")
    with pytest.raises(Conflict):
        await desk.write("2")
    assert await desk.value() == "theirs"


async def test_after_a_write_without_an_answer_the_store_is_asked() -> None:
    desk = Desk()
    desk.asked.lost = Unavailable("no answer")
    with pytest.raises(Unavailable):
        await desk.write("1")
    desk.asked.lost = None
    assert await desk.value() == "1"
    assert desk.asked.calls == ["get", "put", "get"]


@pytest.mark.parametrize("call", ["get", "put"])
async def test_an_answer_older_than_what_a_watch_told_meanwhile_is_not_kept(call: str) -> None:
    desk = Desk()
    if call == "put":
        await desk.seen.get(*NAME)

    async def another() -> None:
        assert desk.seen.heard(*NAME, await desk.other_writes("theirs")) is True

    desk.asked.meanwhile = another
    await (desk.seen.get(*NAME) if call == "get" else desk.write("1"))
    assert await desk.value() == "theirs"


async def test_the_echo_that_comes_before_the_answer_is_known_as_ours() -> None:
    desk = Desk()
    await desk.seen.get(*NAME)

    async def echo() -> None:
        live = await desk.store.get(*NAME)
        assert live is not None
        desk.seen.heard(*NAME, live.resource_version)

    desk.asked.meanwhile = echo
    await desk.write("1")
    assert await desk.value() == "1"
    assert desk.asked.calls == ["get", "put"]


async def test_two_reads_at_once_both_end_and_one_answer_is_kept() -> None:
    desk = Desk()
    first, second = await asyncio.gather(desk.seen.get(*NAME), desk.seen.get(*NAME))
    assert first == second
    assert await desk.value() == "0"
    assert desk.asked.calls == ["get", "get"]


async def test_a_watch_that_is_behind_tells_no_news_of_what_we_wrote_before() -> None:
    desk = Desk()
    versions = [(await desk.write(str(number))).resource_version for number in range(5)]
    assert [desk.seen.heard(*NAME, version) for version in versions] == [False] * 5
    assert desk.asked.calls == ["get", "put", "put", "put", "put", "put"]
    assert await desk.value() == "4"
    assert desk.asked.calls[-1] == "put"
