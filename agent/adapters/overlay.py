"""One store laid over another: what the upper holds hides the lower's object of the same name.

It serves `--out` over `--cluster` and the shadow store of observe mode (memory over the real cluster). The one rule:
the lower store is never written.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, Literal

from agent.adapters.objects import Key, same_content
from agent.errors import Conflict, Refused
from agent.ports import ConfigMap, DocumentStore

Change = tuple[Literal["set", "gone"], ConfigMap]

LOWER: Final = "lower:"
"""Marks a version that was read from the lower store; so the two stores' counters cannot be mistaken for each other."""


class ReadOnly:
    """A DocumentStore that may only be read; every write is Refused."""

    def __init__(self, store: DocumentStore, place: str = "this store") -> None:
        self._store = store
        self._place = place

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        return await self._store.get(namespace, name)

    async def put(self, document: ConfigMap) -> ConfigMap:
        raise Refused(f"{document.namespace}/{document.name}: {self._place} is read-only")

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        del resource_version
        raise Refused(f"{namespace}/{name}: {self._place} is read-only")

    async def list(self) -> Sequence[ConfigMap]:
        return await self._store.list()

    def watch(self) -> AsyncIterator[Change]:
        return self._store.watch()


class OverlayStore:
    """A DocumentStore of two layers.

    A write of an object read from the lower layer is a create in the upper one, with the lower's uid and writers, and
    only if the lower still has that version. A deleted lower object stays hidden for the life of this overlay, until
    the lower has a new object (another uid) of that name; the hiding is kept in memory only.
    """

    def __init__(self, upper: DocumentStore, lower: DocumentStore) -> None:
        self._upper = upper
        self._lower = ReadOnly(lower, "the lower store")
        self._hidden: dict[Key, str] = {}
        self._writing = asyncio.Lock()
        self._watchers: set[asyncio.Queue[_Event]] = set()

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        above = await self._upper.get(namespace, name)
        return above if above is not None else await self._get_lower(namespace, name)

    async def put(self, document: ConfigMap) -> ConfigMap:
        key = document.namespace, document.name
        async with self._writing:
            if document.resource_version and not document.resource_version.startswith(LOWER):
                return await self._upper.put(document)
            below = await self._get_lower(*key)
            if document.resource_version:
                if below is None or below.resource_version != document.resource_version:
                    raise Conflict(f"{key[0]}/{key[1]}: the lower object is not the one that was read")
                if await self._upper.get(*key) is None and same_content(document, below):
                    return below
                document = replace(document, resource_version="", uid=below.uid, managers=below.managers)
            elif below is not None:
                raise Conflict(f"{key[0]}/{key[1]}: exists already, at version {below.resource_version}")
            return await self._upper.put(document)

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        key = namespace, name
        async with self._writing:
            below = await self._get_lower(*key)
            above = await self._upper.get(*key)
            live = above if above is not None else below
            if live is None:
                return
            if live.resource_version != resource_version:
                raise Conflict(f"{namespace}/{name}: at version {live.resource_version}, not {resource_version}")
            if above is not None:
                await self._upper.delete(namespace, name, resource_version)
            if below is not None:
                self._hidden[key] = below.uid
                for watcher in self._watchers:
                    watcher.put_nowait(("look", key, None))

    async def list(self) -> Sequence[ConfigMap]:
        merged = {(d.namespace, d.name): _marked(d) for d in await self._lower.list() if self._shows(d)}
        merged |= {(d.namespace, d.name): d for d in await self._upper.list()}
        return [merged[key] for key in sorted(merged)]

    async def watch(self) -> AsyncGenerator[Change, None]:
        """As the port says; changes of one object that come faster than they are taken show once, as they end."""
        events: asyncio.Queue[_Event] = asyncio.Queue()
        self._watchers.add(events)
        below: dict[Key, ConfigMap] = {}
        shown: dict[Key, ConfigMap] = {}
        pumps = [
            asyncio.create_task(_pump(self._upper.watch(), "upper", events), name="overlay-upper"),
            asyncio.create_task(_pump(self._lower.watch(), "lower", events), name="overlay-lower"),
        ]
        try:
            while True:
                layer, key, came = await events.get()
                if isinstance(came, BaseException):
                    raise came
                if layer == "lower" and came is not None:
                    if came[0] == "set":
                        below[key] = came[1]
                    else:
                        below.pop(key, None)
                # The upper layer is asked for its present state and the lower's comes only from its own watch:
                # so neither can go back in time, whichever of the two streams is ahead.
                document = await self._upper.get(*key)
                if document is None and key in below and self._shows(below[key]):
                    document = _marked(below[key])
                before = shown.get(key)
                if document is None and before is not None:
                    yield "gone", shown.pop(key)
                elif document is not None and _version(before) != _version(document):
                    shown[key] = document
                    yield "set", document
        finally:
            self._watchers.discard(events)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _get_lower(self, namespace: str, name: str) -> ConfigMap | None:
        document = await self._lower.get(namespace, name)
        return _marked(document) if document is not None and self._shows(document) else None

    def _shows(self, below: ConfigMap) -> bool:
        return self._hidden.get((below.namespace, below.name)) != below.uid


_Event = tuple[Literal["upper", "lower", "look"], Key, Change | BaseException | None]


async def _pump(
    changes: AsyncIterator[Change], layer: Literal["upper", "lower"], into: "asyncio.Queue[_Event]"
) -> None:
    try:
        if isinstance(changes, AsyncGenerator):
            async with aclosing(changes):
                async for change in changes:
                    into.put_nowait((layer, (change[1].namespace, change[1].name), change))
        else:
            async for change in changes:
                into.put_nowait((layer, (change[1].namespace, change[1].name), change))
    except Exception as error:
        # Raised again by the watch that reads the queue.
        into.put_nowait((layer, ("", ""), error))


def _marked(document: ConfigMap) -> ConfigMap:
    return replace(document, resource_version=LOWER + document.resource_version)


def _version(document: ConfigMap | None) -> tuple[str, str] | None:
    return None if document is None else (document.uid, document.resource_version)
