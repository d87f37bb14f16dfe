"""Writes only while the lease is surely ours.

The one rule: the question is asked right before each request is sent, of a clock that goes on while the process stands.
"""

from collections.abc import Callable

from agent.errors import Fenced
from agent.ports import ConfigMap, DocumentStore


class FencedStore:
    """A DocumentStore that writes only while the lease is surely ours."""

    def __init__(self, store: DocumentStore, leading: Callable[[], bool]) -> None:
        self._store = store
        self._leading = leading
        self.get = store.get
        self.list = store.list
        self.watch = store.watch

    async def put(self, document: ConfigMap) -> ConfigMap:
        """Raises Fenced instead of sending when the lease may have passed on."""
        self._check(document.namespace, document.name)
        return await self._store.put(document)

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        """As put."""
        self._check(namespace, name)
        await self._store.delete(namespace, name, resource_version)

    def _check(self, namespace: str, name: str) -> None:
        if not self._leading():
            raise Fenced(f"{namespace}/{name} is not written: the lease may have passed on")
