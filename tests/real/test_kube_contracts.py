"""The contract cases of the Kubernetes fillers, on a real API server."""

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from contracts.jobview import JobViewContract
from contracts.lease import LeaseContract
from contracts.store import DOCUMENT, StoreContract
from kubeclients import clear, client_of, make_namespace, until
from services.harness import Kube, KubeEndpoint

from agent.adapters.kube import (
    NODES,
    POD_GROUPS,
    PODS,
    KubeClient,
    KubeDocumentStore,
    KubeJobView,
    KubeLease,
    Resource,
    Watched,
)
from agent.ports import DocumentStore

OURS = ("a", "b", "mindx-dl")
"""The namespaces of the store's cases."""


@pytest.fixture
async def client(kube_server: Kube) -> AsyncIterator[KubeClient]:
    async with client_of(kube_server.endpoint) as made:
        yield made


class TestKubeDocumentStore(StoreContract):
    @pytest.fixture
    def elsewhere(self, kube_server: Kube) -> str:
        """Empties our namespaces; a field selector that leaves out all others."""
        at = kube_server.endpoint
        for namespace in OURS:
            make_namespace(at, namespace)
            clear(at, f"/api/v1/namespaces/{namespace}/configmaps")
        known = [item["metadata"]["name"] for item in at.request("GET", "/api/v1/namespaces").body["items"]]
        return ",".join(f"metadata.namespace!={name}" for name in known if name not in OURS)

    @pytest.fixture
    def store(self, client: KubeClient, elsewhere: str) -> KubeDocumentStore:
        return KubeDocumentStore(client, fields=elsewhere)

    @pytest.fixture
    def other(self, client: KubeClient, elsewhere: str) -> KubeDocumentStore:
        return KubeDocumentStore(client, "volcano", fields=elsewhere)

    async def test_every_writer_is_among_the_managers(self, store: DocumentStore, other: DocumentStore) -> None:
        """As long as it owns a field: the server names who owns one now, and drops who has been overwritten whole."""
        first = await store.put(DOCUMENT)
        second = await other.put(replace(first, data={**first.data, "v": "2"}))
        third = await store.put(replace(second, data={**second.data, "w": "3"}))
        assert set(third.managers) == {"fault-agent", "volcano"}
        fourth = await store.put(replace(third, data={**third.data, "v": "4"}))
        assert fourth.managers == ("fault-agent",)


def projected(live: Any, shape: Any) -> Any:
    """What of `live` is also in `shape`: the server adds uid, times, defaults."""
    if isinstance(live, Mapping) and isinstance(shape, Mapping):
        return {key: projected(live[key], shape[key]) for key in shape if key in live}
    return live


class RealWorld:
    """The view of a real cluster, and the hand that changes it. A label of this test selects its objects."""

    def __init__(self, client: KubeClient, endpoint: KubeEndpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._label = f"test-{uuid.uuid4().hex[:8]}"
        self._shapes: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._inner = self._made()
        self.view = self

    def _made(self, *more: Watched) -> KubeJobView:
        kinds = [
            Watched(PODS, labels=f"run={self._label}"),
            Watched(NODES, labels=f"run={self._label}"),
            Watched(POD_GROUPS, labels=f"run={self._label}", optional=True),
            *more,
        ]
        view = KubeJobView(self._client, kinds)
        view.start()
        return view

    async def snapshot(self) -> tuple[list[Mapping[str, Any]], list[str]]:
        objects, findings = await self._inner.snapshot()
        shown = [projected(one, self._shapes[one["kind"], one["metadata"]["name"]]) for one in objects]
        return shown, list(findings)

    async def changed(self) -> bool:
        return await self._inner.changed()

    async def apply(self, item: Mapping[str, Any]) -> None:
        name, kind = item["metadata"]["name"], item["kind"]
        if (kind, name) in self._shapes:
            # A pod does not move: it is another one of that name.
            await self.remove(item)
        self._shapes[kind, name] = item
        made = {**item, "metadata": {**item["metadata"], "labels": {"run": self._label}}}
        if kind == "Pod":
            made["spec"] = {**item["spec"], "containers": [{"name": "c", "image": "none"}]}
        path = self._resource(kind).path(item["metadata"].get("namespace", ""))
        answer = self._endpoint.request("POST", path, made)
        assert answer.status == 201, answer.body
        uid = answer.body["metadata"]["uid"]
        await until("the object seen", lambda: self._uid(item) == uid)

    async def remove(self, item: Mapping[str, Any]) -> None:
        meta = item["metadata"]
        path = self._resource(item["kind"]).path(meta.get("namespace", ""), meta["name"])
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        assert self._endpoint.request("DELETE", path, body).status == 200
        await until("the object gone", lambda: not self._uid(item))

    async def spoil(self) -> None:
        """A kind that the server does not serve."""
        await self._inner.close()
        self._inner = self._made(Watched(Resource("Thing", "things", "nowhere.example/v1"), optional=True))

    async def end(self) -> None:
        await self._inner.close()
        for kind, path in (("Pod", PODS.path("train")), ("Node", NODES.path())):
            if any(known == kind for known, _ in self._shapes):
                clear(self._endpoint, f"{path}?labelSelector=run={self._label}")

    def _resource(self, kind: str) -> Resource:
        return PODS if kind == "Pod" else NODES

    def _uid(self, item: Mapping[str, Any]) -> str:
        meta = item["metadata"]
        return self._inner.uid(item["kind"], meta.get("namespace", ""), meta["name"])


class TestKubeJobView(JobViewContract):
    @pytest.fixture
    async def world(self, client: KubeClient, kube_server: Kube) -> AsyncIterator[RealWorld]:
        make_namespace(kube_server.endpoint, "train")
        made = RealWorld(client, kube_server.endpoint)
        yield made
        await made.end()


class TestKubeLease(LeaseContract):
    @pytest.fixture
    def name(self) -> str:
        return f"lease-{uuid.uuid4().hex[:8]}"

    @pytest.fixture
    def lease(self, client: KubeClient, name: str) -> KubeLease:
        return KubeLease(client, "mindx-dl", name)

    @pytest.fixture
    def rival(self, client: KubeClient, name: str) -> KubeLease:
        return KubeLease(client, "mindx-dl", name)
