"""All objects of one kind, and then each change of them: list in pages, watch, resume, list again.

The one rule: what is told is what happened. A cut stream goes on where it was, a version that is too old leads to a
new list whose differences are told, deletions too; memory holds names and versions only.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.errors import Call, Gone, NotFound, Throttled, error_of
from agent.adapters.kube.resources import Watched
from agent.errors import AgentError, Refused, Unavailable

Change = tuple[Literal["set", "gone", "listed"], Mapping[str, Any]]
"""An object as it is now, one that is no more, or (with an empty mapping) the end of a complete list."""

_Key = tuple[str, str]
_LIST_ANEW_AFTER: Final = 5
"""Failures in a row after which the version itself is doubted: a restored etcd may never reach it."""
_BREATH: Final = 50
"""Objects of a list after which other tasks get a turn."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How a watch spends its time; all in seconds but `page`."""

    page: int = 500
    """Objects per page of a list, as client-go has it."""
    watch_seconds: int = 60
    """After this long the server ends the stream, with a bookmark, and it is opened again."""
    silence_seconds: float = 75.0
    """A stream without a byte for this long is taken for dead; more than watch_seconds."""
    longest_pause: float = 5.0
    """The most between two tries."""
    refused_seconds: float = 10.0
    """Between tries while a right is missing."""
    absent_seconds: float = 60.0
    """Between looks for a kind that the API does not serve."""


USUAL_PACE: Final = Pace()


class KubeWatch:
    """One kind under watch. `chance` gives numbers from 0 to 1, for pauses that do not meet."""

    def __init__(
        self,
        client: KubeClient,
        watched: Watched,
        pace: Pace = USUAL_PACE,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._watched = watched
        self._pace = pace
        self._chance = chance
        self._version = ""
        self._known: dict[_Key, tuple[str, str]] = {}
        """Name -> uid and resourceVersion, of everything that was told as `set`."""
        self._moved = False
        """Something came since the last failure."""
        self.error: AgentError | None = None
        """Why it is not up to date; None when it is."""
        self.absent = False
        """The API does not serve this kind."""
        self.lists = 0
        """Complete lists so far; more than one means that a version was too old or doubted."""

    async def changes(self) -> AsyncGenerator[Change, None]:
        """Every object there is as `set`, `listed`, then each change once, in order; does not end by itself.

        After a gap an object that is gone comes with its names, uid and last version only; one that was deleted and
        made anew comes as `gone` and `set`. Failures are kept in `error` and tried again for ever.
        """
        failures = 0
        while True:
            self._moved = False
            try:
                if self._version:
                    async for change in self._follow():
                        yield change
                else:
                    async for change in self._list():
                        yield change
                failures = 0
                continue
            except Gone as error:
                self._version = ""
                self.error = error
            except NotFound as error:
                self._version = ""
                self.error = None if self._watched.optional else error
                if self._watched.optional:
                    self.absent = True
                    for key in list(self._known):
                        yield "gone", self._bare(key)
                    yield "listed", {}
                    await self._client.sleep(self._pace.absent_seconds)
                    continue
            except (Unavailable, Refused) as error:
                self.error = error
            failures = 1 if self._moved else failures + 1
            if failures % _LIST_ANEW_AFTER == 0:
                self._version = ""
            await self._client.sleep(self._pause(failures, self.error))

    def _pause(self, failures: int, error: AgentError | None) -> float:
        if isinstance(error, Throttled):
            return min(error.retry_after, 10 * self._pace.longest_pause)
        if isinstance(error, Refused):
            return self._pace.refused_seconds
        return self._chance() * min(self._pace.longest_pause, 0.1 * 2.0 ** min(failures, 10))

    def _params(self) -> dict[str, str]:
        selectors = {"labelSelector": self._watched.labels, "fieldSelector": self._watched.fields}
        return {name: text for name, text in selectors.items() if text}

    async def _list(self) -> AsyncGenerator[Change, None]:
        resource, listed = self._watched.resource, set[_Key]()
        token = ""
        while True:
            params = {**self._params(), "limit": str(self._pace.page), **({"continue": token} if token else {})}
            page = await self._client.call("list", resource, self._watched.namespace, params=params)
            for number, item in enumerate(page.get("items") or ()):
                if number % _BREATH == _BREATH - 1:
                    await asyncio.sleep(0)
                # Items of a list do not name their kind.
                item |= {"kind": resource.kind, "apiVersion": resource.api_version}
                key = _key(item)
                listed.add(key)
                for change in self._set(key, item):
                    yield change
            meta = page.get("metadata") or {}
            token = str(meta.get("continue") or "")
            if not token:
                break
        for key in [key for key in self._known if key not in listed]:
            yield "gone", self._bare(key)
        self._version = str(meta.get("resourceVersion") or "")
        self._moved = True
        self.error, self.absent = None, False
        self.lists += 1
        yield "listed", {}

    async def _follow(self) -> AsyncGenerator[Change, None]:
        params = {
            **self._params(),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(self._pace.watch_seconds),
        }
        call = Call("watch", self._watched.resource, self._watched.namespace)
        began = self._client.clock()
        async with self._client.stream(
            self._watched.resource, self._watched.namespace, params, self._pace.silence_seconds
        ) as lines:
            self.error = None
            async for line in lines:
                kind, item = _event(call, line)
                if kind == "ERROR":
                    raise error_of(call, int(item.get("code") or 500), orjson.dumps(item), {})
                self._moved = True
                if kind in ("ADDED", "MODIFIED"):
                    for change in self._set(_key(item), item):
                        yield change
                elif kind == "DELETED" and self._known.pop(_key(item), None) is not None:
                    yield "gone", item
                # Only now: a change that was not taken is told again.
                self._version = str((item.get("metadata") or {}).get("resourceVersion") or self._version)
        if not self._moved and self._client.clock() - began < 1:
            raise Unavailable(f"{call}: the stream ends as soon as it begins")

    def _set(self, key: _Key, item: Mapping[str, Any]) -> list[Change]:
        meta = item.get("metadata") or {}
        now = str(meta.get("uid") or ""), str(meta.get("resourceVersion") or "")
        before = self._known.get(key)
        if before == now:
            return []
        changes: list[Change] = []
        if before is not None and before[0] != now[0]:
            changes.append(("gone", self._bare(key)))
        self._known[key] = now
        changes.append(("set", item))
        return changes

    def _bare(self, key: _Key) -> dict[str, Any]:
        """An object that is no longer known, by what is still known of it."""
        uid, version = self._known.pop(key)
        namespace, name = key
        meta = {"name": name, "uid": uid, "resourceVersion": version}
        return {
            "apiVersion": self._watched.resource.api_version,
            "kind": self._watched.resource.kind,
            "metadata": {**meta, "namespace": namespace} if namespace else meta,
        }


def _event(call: Call, line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Unavailable(f"{call}: an event is no JSON") from error
    item = event.get("object") if isinstance(event, dict) else None
    if not isinstance(item, dict):
        raise Unavailable(f"{call}: an event holds no object")
    return str(event.get("type")), item


def _key(item: Mapping[str, Any]) -> _Key:
    meta = item.get("metadata") or {}
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")
