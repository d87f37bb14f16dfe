"""A DocumentStore on the API server: ConfigMaps by POST, PUT with resourceVersion, DELETE with a precondition.

The one rule: the server decides. Nothing is remembered between calls, so what a call returns is what is stored.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.errors import NotFound
from agent.adapters.kube.listing import listed
from agent.adapters.kube.resources import CONFIG_MAPS, Watched
from agent.adapters.kube.watch import USUAL_PACE, KubeWatch, Pace
from agent.adapters.objects import check, check_key, from_object, to_object
from agent.errors import BadDocument, Conflict, Refused
from agent.ports import ConfigMap


class KubeDocumentStore:
    """ConfigMaps of one cluster. `manager` is the field manager this writer goes by.

    `list` and `watch` see what `namespace` and the selectors let through; `get` and `put` go anywhere.
    Equal content is still sent by `put`: the server alone knows what is stored, finds no difference and keeps the
    version. Who holds the live object compares first.
    """

    def __init__(
        self,
        client: KubeClient,
        manager: str = "fault-agent",
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        pace: Pace = USUAL_PACE,
    ) -> None:
        self._client = client
        self._manager = manager
        self._watched = Watched(CONFIG_MAPS, namespace, labels, fields)
        self._pace = pace

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        check_key(namespace, name)
        try:
            return _read(await self._client.call("get", CONFIG_MAPS, namespace, name))
        except NotFound:
            return None

    async def put(self, document: ConfigMap) -> ConfigMap:
        check(document)
        # Who manages which field is the server's own book; sent back it would only be in the way.
        body = to_object(replace(document, managers=()))
        params = {"fieldManager": self._manager}
        where = document.namespace, document.name
        if document.resource_version:
            try:
                return _read(await self._client.call("update", CONFIG_MAPS, *where, body=body, params=params))
            except NotFound as error:
                raise Conflict(f"{'/'.join(where)}: gone, version {document.resource_version} was expected") from error
        body["metadata"].pop("uid", None)
        try:
            return _read(await self._client.call("create", CONFIG_MAPS, *where, body=body, params=params))
        except NotFound as error:
            raise Refused(
                f"{'/'.join(where)}: there is no namespace {where[0]}", hint="create the namespace"
            ) from error

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        check_key(namespace, name)
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": resource_version}}
        try:
            await self._client.call("delete", CONFIG_MAPS, namespace, name, body=body)
        except NotFound:
            return

    async def list(self) -> Sequence[ConfigMap]:
        documents: dict[tuple[str, str], ConfigMap] = {}
        async with aclosing(listed(self._client, self._watched, self._pace.page)) as items:
            async for item in items:
                document = _read(item)
                documents[document.namespace, document.name] = document
        return [documents[key] for key in sorted(documents)]

    async def watch(self) -> AsyncGenerator[tuple[Literal["set", "gone"], ConfigMap], None]:
        """As the port says. After a gap in the stream a `gone` document has only its names, uid and last version."""
        async with aclosing(KubeWatch(self._client, self._watched, self._pace).changes()) as changes:
            async for what, item in changes:
                if what == "listed":
                    continue
                try:
                    document = _read(item)
                except BadDocument:
                    # `get` says what is wrong with it to whoever asks for it.
                    continue
                yield what, document


def _read(item: Any) -> ConfigMap:
    meta = item.get("metadata") if isinstance(item, dict) else None
    place = f"{meta.get('namespace')}/{meta.get('name')}" if isinstance(meta, dict) else "ConfigMap"
    # Items of a list do not name their kind.
    return from_object({**item, "kind": "ConfigMap"}, place)
