"""Being let in by a real API server: TLS, credentials, rights, limits, and what is said when it fails."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from kubeclients import client_of, make_namespace, proxied, token_kubeconfig, until
from services.harness import Kube

from agent.adapters.kube import CONFIG_MAPS, KubeClient, KubeDocumentStore, KubeSettings, connect
from agent.adapters.kube.errors import Unauthorised
from agent.errors import CannotRun, Conflict, Refused, Unavailable
from agent.ports import ConfigMap

SOON_S = 10.0


@pytest.fixture
def namespace(kube_server: Kube) -> str:
    return make_namespace(kube_server.endpoint, f"test-{uuid.uuid4().hex[:8]}")


@pytest.fixture
async def client(kube_server: Kube) -> AsyncIterator[KubeClient]:
    async with client_of(kube_server.endpoint) as made:
        yield made


async def test_the_server_says_its_version(client: KubeClient) -> None:
    assert await client.version() == "v1.34.3"


async def test_a_wrong_ca_is_no_start_and_says_which_ca(kube_server: Kube, tmp_path: Path) -> None:
    config = json.loads(kube_server.endpoint.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["certificate-authority"] = str(kube_server.foreign_ca())
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    began = time.monotonic()
    with pytest.raises(CannotRun, match=r"TLS with .* failed") as caught:
        await connect(KubeSettings(path))
    assert str(path) in caught.value.hint
    assert time.monotonic() - began < SOON_S


async def test_a_wrong_token_is_no_start_and_is_not_shown(kube_server: Kube, tmp_path: Path) -> None:
    path = token_kubeconfig(kube_server.endpoint, tmp_path / "config", "not-a-token-of-anyone")
    with pytest.raises(CannotRun, match="401 Unauthorized") as caught:
        await connect(KubeSettings(path))
    assert "not-a-token" not in str(caught.value)


async def test_a_missing_right_is_named_with_verb_resource_and_namespace(kube_server: Kube, namespace: str) -> None:
    async with client_of(kube_server.user("stranger")) as client:
        store = KubeDocumentStore(client)
        with pytest.raises(Refused) as caught:
            await store.put(ConfigMap(namespace, "doc"))
        assert caught.value.hint == f'grant verb create on configmaps (apiGroups [""]) in namespace {namespace}'
        with pytest.raises(Refused, match=r"verb list on configmaps .* in all namespaces"):
            await store.list()


async def test_a_stale_put_is_a_conflict_and_an_oversized_one_is_refused(client: KubeClient, namespace: str) -> None:
    store = KubeDocumentStore(client)
    first = await store.put(ConfigMap(namespace, "doc", {"v": "1"}))
    await store.put(replace(first, data={"v": "2"}))
    with pytest.raises(Conflict, match="409"):
        await store.put(replace(first, data={"v": "3"}))
    # Past our own check, as another client would: the server says it too.
    body = {"metadata": {"name": "big", "namespace": namespace}, "data": {"v": "x" * 1_048_577}}
    with pytest.raises(Refused, match="422"):
        await client.call("create", CONFIG_MAPS, namespace, "big", body=body)
    body["data"] = {"v": "x" * 4_000_000}
    with pytest.raises(Refused, match="413"):
        await client.call("create", CONFIG_MAPS, namespace, "big", body=body)


async def test_a_missing_namespace_is_named(client: KubeClient) -> None:
    with pytest.raises(Refused, match="there is no namespace nowhere"):
        await KubeDocumentStore(client).put(ConfigMap("nowhere", "doc"))


async def test_a_namespace_being_deleted_takes_nothing_more(
    client: KubeClient, kube_server: Kube, namespace: str
) -> None:
    kube_server.endpoint.request("DELETE", f"/api/v1/namespaces/{namespace}")
    with pytest.raises(Refused, match="is being deleted"):
        await KubeDocumentStore(client).put(ConfigMap(namespace, "doc"))


async def test_a_paused_server_is_unavailable_in_time_and_answers_again_afterwards(
    client: KubeClient, kube_server: Kube
) -> None:
    kube_server.apiserver.pause()
    try:
        began = time.monotonic()
        with pytest.raises(Unavailable, match=r"no answer within 0\.5 s"):
            await client.call("get", CONFIG_MAPS, "mindx-dl", "x", within=0.5)
        assert time.monotonic() - began < SOON_S
    finally:
        kube_server.apiserver.resume()
    assert await client.version() == "v1.34.3"


async def test_a_killed_server_is_unavailable_and_the_same_client_goes_on_after_its_start(
    client: KubeClient, kube_server: Kube, namespace: str
) -> None:
    store = KubeDocumentStore(client)
    first = await store.put(ConfigMap(namespace, "doc", {"v": "1"}))
    kube_server.apiserver.kill()
    try:
        with pytest.raises(Unavailable):
            await store.put(replace(first, data={"v": "2"}))
    finally:
        await asyncio.to_thread(kube_server.start_apiserver)
    assert (await store.put(replace(first, data={"v": "2"}))).data == {"v": "2"}


async def test_a_connection_cut_by_others_costs_one_request_at_most(
    kube_server: Kube, namespace: str, tmp_path: Path
) -> None:
    async with proxied(kube_server.endpoint) as proxy:
        path = proxy.kubeconfig(kube_server.endpoint, tmp_path / "config")
        async with client_of(kube_server.endpoint, path) as client:
            store = KubeDocumentStore(client)
            await store.put(ConfigMap(namespace, "doc", {"v": "1"}))
            proxy.cut()
            await until("the cut", lambda: not proxy.open)
            live = await store.get(namespace, "doc")
            assert live is not None
            assert live.data == {"v": "1"}


class TestServiceAccount:
    """In a pod: the token of a service account in a folder, replaced by the kubelet."""

    async def test_a_token_that_expires_mid_run_is_read_again(
        self, kube_server: Kube, namespace: str, tmp_path: Path
    ) -> None:
        kube_server.kubectl("create", "serviceaccount", "agent", "-n", namespace)
        kube_server.kubectl("create", "role", "all", "--verb=*", "--resource=configmaps", "-n", namespace)
        account = f"--serviceaccount={namespace}:agent"
        kube_server.kubectl("create", "rolebinding", "all", "--role=all", account, "-n", namespace)
        old = kube_server.service_account(namespace, "agent")
        assert old.ca is not None
        (tmp_path / "ca.crt").write_bytes(old.ca.read_bytes())
        (tmp_path / "token").write_text(old.token)
        host, _, port = old.server.removeprefix("https://").partition(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        async with await connect(KubeSettings(service_account=tmp_path, environ=environ)) as client:
            store = KubeDocumentStore(client)
            await self.put_until_allowed(store, namespace)
            # The account is made anew: tokens of the old one are worth nothing, whatever their time.
            kube_server.kubectl("delete", "serviceaccount", "agent", "-n", namespace)
            kube_server.kubectl("create", "serviceaccount", "agent", "-n", namespace)
            await self.refused(store, namespace)
            (tmp_path / "token").write_text(kube_server.service_account(namespace, "agent").token)
            live = await store.get(namespace, "doc")
            assert live is not None
            assert (await store.put(replace(live, data={"v": "after"}))).data == {"v": "after"}

    async def put_until_allowed(self, store: KubeDocumentStore, namespace: str) -> None:
        # A new role is in force a moment after it is stored.
        end = time.monotonic() + SOON_S
        while True:
            try:
                await store.put(ConfigMap(namespace, "doc", {"v": "before"}))
            except Refused:
                assert time.monotonic() < end
                await asyncio.sleep(0.05)
            else:
                return

    async def refused(self, store: KubeDocumentStore, namespace: str) -> None:
        # The server remembers for ten seconds that a token was good.
        end = time.monotonic() + 30
        while True:
            try:
                await store.get(namespace, "doc")
            except Unauthorised:
                return
            assert time.monotonic() < end
            await asyncio.sleep(0.2)
