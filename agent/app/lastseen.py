"""Documents as they were last seen, so that a write need not ask first what stands there.

The one rule: what is remembered is the newest version we know of; as soon as a watch tells of another one, or a write
is not answered with success, it is forgotten and the store is asked. A write still names the version it changes, so
what went unnoticed is refused by the store and read again, never written over.
"""

from collections import deque
from typing import Final

from agent.app.publisher import Documents
from agent.ports import ConfigMap

_Key = tuple[str, str]
WRITTEN: Final = 64
"""Versions of a document that we remember to have written."""


class LastSeen:
    """The documents of a publisher over a memory that `heard` keeps honest."""

    def __init__(self, store: Documents) -> None:
        self._store = store
        self._known: dict[_Key, ConfigMap] = {}
        self._heard: dict[_Key, str] = {}
        """Version that was heard of while a call for its document was under way."""
        self._calls: dict[_Key, int] = {}
        self._written: dict[_Key, deque[str]] = {}
        """Versions that we have written: a watch that is behind tells of them after we have gone on."""

    def heard(self, namespace: str, name: str, version: str) -> bool:
        """A watch has told of this version ("" when the document is gone). False: it is the one we know, or one that we
        have written before it.
        """
        key = (namespace, name)
        if version and version in self._written.get(key, ()):
            return False
        if not version:
            self._written.pop(key, None)
        if key in self._calls:
            self._heard[key] = version
        known = self._known.get(key)
        if known is not None and known.resource_version == version:
            return False
        self._known.pop(key, None)
        return True

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        """As last seen; asked for when nothing is remembered. Raises what the store does."""
        key = (namespace, name)
        known = self._known.get(key)
        if known is not None:
            return known
        self._begin(key)
        live: ConfigMap | None = None
        try:
            live = await self._store.get(namespace, name)
        finally:
            self._end(key, live)
        return live

    async def put(self, document: ConfigMap) -> ConfigMap:
        """As the store; what it answers is remembered. Raises what the store does, with nothing remembered."""
        key = (document.namespace, document.name)
        self._known.pop(key, None)
        self._begin(key)
        stored: ConfigMap | None = None
        try:
            stored = await self._store.put(document)
        finally:
            self._end(key, stored)
        self._written.setdefault(key, deque(maxlen=WRITTEN)).append(stored.resource_version)
        return stored

    def _begin(self, key: _Key) -> None:
        self._calls[key] = self._calls.get(key, 0) + 1

    def _end(self, key: _Key, answer: ConfigMap | None) -> None:
        """The answer may be older than what a watch told meanwhile: then it is not worth keeping."""
        heard = self._heard.get(key)
        self._calls[key] -= 1
        if not self._calls[key]:
            del self._calls[key]
            self._heard.pop(key, None)
        if answer is not None and heard in (None, answer.resource_version):
            self._known[key] = answer
