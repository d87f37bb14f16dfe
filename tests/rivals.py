"""Other writers of the three documents, as they behave towards everybody else who writes there.

The one rule: each reads first and writes later, so that a test can let others write in between; and none of them asks
more of the API server than the component does (no resourceVersion, no labels kept, a fresh struct).
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import quote

from services.kubeserver import KubeEndpoint

from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.objects import from_object, to_object
from agent.errors import Conflict

Finish = Callable[[], Awaitable[bool]]
"""The second half of a writer: it writes what it made of what it has read. False: it gave up."""


class Hand(Protocol):
    """Raw access to ConfigMaps under another manager's name."""

    async def get(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The object."""
        ...

    async def create(self, item: Mapping[str, Any]) -> bool:
        """False: there is one."""
        ...

    async def update(self, item: Mapping[str, Any]) -> bool:
        """Replace it whole; without a resourceVersion the last writer wins. False: another version, or gone."""
        ...

    async def delete(self, namespace: str, name: str) -> None:
        """Whatever its version."""
        ...


class MemoryHand:
    """A hand in a MemoryDocumentStore."""

    def __init__(self, store: MemoryDocumentStore, manager: str = "vc-scheduler") -> None:
        self._store = store.as_manager(manager)

    async def get(self, namespace: str, name: str) -> dict[str, Any] | None:
        live = await self._store.get(namespace, name)
        return None if live is None else to_object(live)

    async def create(self, item: Mapping[str, Any]) -> bool:
        try:
            await self._store.put(replace(from_object(item, "rival"), resource_version="", uid=""))
        except Conflict:
            return False
        return True

    async def update(self, item: Mapping[str, Any]) -> bool:
        made = from_object(item, "rival")
        live = await self._store.get(made.namespace, made.name)
        if live is None:
            return False
        version = item["metadata"].get("resourceVersion") or live.resource_version
        try:
            await self._store.put(replace(made, resource_version=version, uid=made.uid or live.uid))
        except Conflict:
            return False
        return True

    async def delete(self, namespace: str, name: str) -> None:
        live = await self._store.get(namespace, name)
        if live is not None:
            await self._store.delete(namespace, name, live.resource_version)


class KubeHand:
    """A hand on an API server."""

    def __init__(self, endpoint: KubeEndpoint, manager: str = "vc-scheduler") -> None:
        self._endpoint = endpoint
        self._manager = manager

    async def _call(self, method: str, namespace: str, name: str = "", body: object = None) -> tuple[int, Any]:
        path = f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")
        if method in ("POST", "PUT"):
            path += f"?fieldManager={quote(self._manager)}"
        answer = await asyncio.to_thread(self._endpoint.request, method, path, body)
        return answer.status, answer.body

    async def get(self, namespace: str, name: str) -> dict[str, Any] | None:
        status, body = await self._call("GET", namespace, name)
        return body if status == 200 else None

    async def create(self, item: Mapping[str, Any]) -> bool:
        status, body = await self._call("POST", item["metadata"]["namespace"], "", item)
        assert status in (201, 409), body
        return status == 201

    async def update(self, item: Mapping[str, Any]) -> bool:
        meta = item["metadata"]
        status, body = await self._call("PUT", meta["namespace"], meta["name"], item)
        assert status in (200, 404, 409), body
        return status == 200

    async def delete(self, namespace: str, name: str) -> None:
        await self._call("DELETE", namespace, name)


def a_map(namespace: str, name: str, data: Mapping[str, str], **meta: Any) -> dict[str, Any]:
    """A ConfigMap as a component sends it."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, **meta},
        "data": dict(data),
    }


async def set_data(hand: Hand, namespace: str, name: str, **data: str | None) -> None:
    """A person changes keys (None: takes one out) and leaves the rest as it is; made if it is not there."""
    live = await hand.get(namespace, name) or a_map(namespace, name, {})
    kept = {**(live.get("data") or {}), **{key.replace("__", "."): value for key, value in data.items()}}
    live["data"] = {key: value for key, value in kept.items() if value is not None}
    live["metadata"].pop("managedFields", None)
    if not live["metadata"].get("resourceVersion"):
        assert await hand.create(live)
    else:
        live["metadata"].pop("resourceVersion")
        assert await hand.update(live)


# --- Volcano's plugin: the two shared documents, at each session's end


async def volcano_saves(hand: Hand, namespace: str, name: str, data: Mapping[str, str]) -> Finish:
    """Its own keys from memory over what other keys it has read; labels, annotations and owners go."""
    live = await hand.get(namespace, name)
    others = {key: text for key, text in ((live or {}).get("data") or {}).items() if key not in data}

    async def finish() -> bool:
        bare = a_map(namespace, name, {**others, **data})
        return await hand.create(bare) or await hand.update(bare)

    return finish


# --- reset-config: Volcano and ClusterD

_KEYS = ("RankList", "UpdateTime", "RetryTime", "FaultFlushing", "GracefulExit", "RestartFaultProcess")
_ZERO = {"RankId": 0, "LogicId": 0, "Status": "", "Policy": "", "InitialPolicy": "", "ErrorCode": None}


def _struct(text: str) -> dict[str, Any] | None:
    """What Go makes of it: known keys, zero where they are missing, null for a list that is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    zero = {"RankList": None, "FaultFlushing": False, "RestartFaultProcess": False}
    return {key: found.get(key, zero.get(key, 0)) for key in _KEYS}


def _text(info: Mapping[str, Any]) -> dict[str, str]:
    return {"reset.json": json.dumps(info, separators=(",", ":")), "checkCode": "0" * 64}


def _entries(info: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(info["RankList"] or [])


async def volcano_reschedules(hand: Hand, namespace: str, name: str, now: int, *, pod_level: bool) -> Finish:
    """Once all pods are placed again: an empty list, RetryTime + 1 (0 when the whole job was moved), one label."""
    live = await hand.get(namespace, name)
    info = _struct((live or {}).get("data", {}).get("reset.json", ""))

    async def finish() -> bool:
        if info is None:
            return False
        retry = info["RetryTime"] + 1 if pod_level else 0
        made = {**info, "RankList": [], "UpdateTime": now // 1000, "RetryTime": retry}
        data = {**_text(made), "restartType": "podReschedule"}
        return await hand.update(a_map(namespace, name, data, labels={"reset": "true"}))

    return finish


async def volcano_exits(hand: Hand, namespace: str, name: str, value: int) -> Finish:
    """Sub-health graceExit: GracefulExit alone changes, and restartType goes."""
    live = await hand.get(namespace, name)
    info = _struct((live or {}).get("data", {}).get("reset.json", ""))

    async def finish() -> bool:
        if info is None:
            return False
        # Its struct knows no RecoveryId.
        known = [
            {key: entry.get(key, zero) for key, zero in {**_ZERO, "ErrorCodeHex": ""}.items()}
            for entry in _entries(info)
        ]
        listed = None if info["RankList"] is None else known
        data = _text({**info, "RankList": listed, "GracefulExit": value})
        return await hand.update(a_map(namespace, name, data, labels={"reset": "true"}))

    return finish


async def clusterd_writes(
    hand: Hand, namespace: str, name: str, operation: str, now: int, ranks: Sequence[int] = ()
) -> Finish:
    """Process recovery: a fresh struct with the version it has read; it refuses while a rank has a reset policy."""
    live = await hand.get(namespace, name)

    async def finish() -> bool:
        info = _struct((live or {}).get("data", {}).get("reset.json", ""))
        if live is None or info is None or any(one.get("Policy") in ("reset", "restart") for one in _entries(info)):
            return False
        fault = [{**_ZERO, "RankId": rank, "Status": "fault", "ErrorCodeHex": ""} for rank in ranks]
        made = {
            "RankList": fault if operation == "fault" else [],
            "UpdateTime": now // 1000,
            "RetryTime": info["RetryTime"] + (operation == "restartAllProcess"),
            "FaultFlushing": operation == "notifyFaultFlushing",
            "GracefulExit": 0,
            "RestartFaultProcess": operation == "fault",
        }
        meta = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
        return await hand.update({**a_map(namespace, name, _text(made)), "metadata": meta})

    return finish
