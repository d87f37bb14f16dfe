"""Watching a real API server through everything that happens to it: large lists, cuts, restarts, forgotten versions."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kubeclients import Proxy, client_of, make_namespace, proxied, until
from services.harness import Kube

from agent.adapters.kube import CONFIG_MAPS, NODES, POD_GROUPS, PODS, KubeClient, KubeJobView, KubeWatch, Pace, Watched
from agent.errors import Refused

MANY = 10_000
QUICK = Pace(watch_seconds=3, silence_seconds=6.0, longest_pause=0.5, refused_seconds=0.5, absent_seconds=0.5)


@pytest.fixture
def namespace(kube_server: Kube) -> str:
    return make_namespace(kube_server.endpoint, f"test-{uuid.uuid4().hex[:8]}")


@pytest.fixture
async def client(kube_server: Kube) -> AsyncIterator[KubeClient]:
    async with client_of(kube_server.endpoint) as made:
        yield made


class Mirror:
    """What a watch has told, put together again."""

    def __init__(self, watch: KubeWatch) -> None:
        self.watch = watch
        self.objects: dict[str, Mapping[str, Any]] = {}
        self.told: list[tuple[str, str, str]] = []
        self.listed = 0

    @property
    def values(self) -> dict[str, str]:
        """Name -> the text under `v`."""
        return {name: item.get("data", {}).get("v", "") for name, item in self.objects.items()}

    async def follow(self) -> None:
        async with aclosing(self.watch.changes()) as changes:
            async for what, item in changes:
                if what == "listed":
                    self.listed += 1
                    continue
                meta = item["metadata"]
                self.told.append((what, meta["name"], meta["resourceVersion"]))
                if what == "set":
                    self.objects[meta["name"]] = item
                else:
                    del self.objects[meta["name"]]


@asynccontextmanager
async def mirrored(client: KubeClient, watched: Watched, pace: Pace = QUICK) -> AsyncIterator[Mirror]:
    mirror = Mirror(KubeWatch(client, watched, pace))
    task = asyncio.create_task(mirror.follow())
    try:
        yield mirror
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Hand:
    """Changes ConfigMaps as another client would."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def make(self, name: str, v: str = "1") -> None:
        body = {"metadata": {"name": name, "namespace": self._namespace}, "data": {"v": v}}
        await self._client.call("create", CONFIG_MAPS, self._namespace, name, body=body)

    async def change(self, name: str, v: str) -> None:
        body = {"metadata": {"name": name, "namespace": self._namespace}, "data": {"v": v}}
        await self._client.call("update", CONFIG_MAPS, self._namespace, name, body=body)

    async def remove(self, name: str) -> None:
        await self._client.call("delete", CONFIG_MAPS, self._namespace, name)

    async def make_many(self, count: int) -> None:
        numbers = iter(range(count))

        async def some() -> None:
            for number in numbers:
                await self.make(f"x-{number:05d}")

        await asyncio.gather(*(some() for _ in range(24)))


@pytest.mark.timeout(400)
async def test_ten_thousand_objects_are_read_in_pages_once_each(client: KubeClient, namespace: str) -> None:
    await Hand(client, namespace).make_many(MANY)
    try:
        async with mirrored(client, Watched(CONFIG_MAPS, namespace)) as mirror:
            await until("the list", lambda: mirror.listed)
            assert len(mirror.told) == len(mirror.objects) == MANY
            await Hand(client, namespace).change("x-04711", "2")
            await until("a change after it", lambda: mirror.values["x-04711"] == "2")
            assert len(mirror.told) == MANY + 1
    finally:
        await client.call("delete", CONFIG_MAPS, namespace, within=120)


async def test_a_list_whose_pages_expire_in_the_middle_is_begun_anew(
    client: KubeClient, kube_server: Kube, namespace: str
) -> None:
    """The continue token names a version that etcd forgets before the second page is asked for."""
    hand = Hand(client, namespace)
    for number in range(5):
        await hand.make(f"x-{number}")
    calls = 0

    def forget() -> None:
        kube_server.compact()
        kube_server.apiserver.kill()
        kube_server.start_apiserver()

    async def forgetful(verb: str, *args: Any, **more: Any) -> dict[str, Any]:
        nonlocal calls
        if verb == "list" and more["params"].get("continue"):
            calls += 1
            if calls == 1:
                await hand.change("x-0", "2")
                await asyncio.to_thread(forget)
        return await client.call(verb, *args, **more)

    async with client_of(kube_server.endpoint) as watching:
        watching.call = forgetful  # type: ignore[method-assign]  # the moment between two pages is not to be had else
        pace = Pace(page=2, watch_seconds=3, silence_seconds=6.0, longest_pause=0.5)
        async with mirrored(watching, Watched(CONFIG_MAPS, namespace), pace) as mirror:
            await until("the list", lambda: mirror.listed)
            assert mirror.values == {"x-0": "2", "x-1": "1", "x-2": "1", "x-3": "1", "x-4": "1"}
            assert calls >= 3


async def test_bookmarks_carry_an_idle_watch_over_its_end(client: KubeClient, namespace: str) -> None:
    hand = Hand(client, namespace)
    async with mirrored(client, Watched(CONFIG_MAPS, namespace)) as mirror:
        await until("the list", lambda: mirror.listed)
        # Longer than one stream lasts: it is opened again at least twice.
        await asyncio.sleep(7)
        await hand.make("late")
        await until("the change", lambda: "late" in mirror.objects)
        assert mirror.watch.lists == 1
        assert mirror.watch.error is None


async def test_a_cut_stream_misses_nothing_and_tells_nothing_twice(
    client: KubeClient, kube_server: Kube, namespace: str, tmp_path: Path
) -> None:
    hand = Hand(client, namespace)
    for name in ("stays", "changes", "goes"):
        await hand.make(name)
    async with proxied(kube_server.endpoint) as proxy:
        path = proxy.kubeconfig(kube_server.endpoint, tmp_path / "config")
        async with (
            client_of(kube_server.endpoint, path) as cut,
            mirrored(cut, Watched(CONFIG_MAPS, namespace)) as mirror,
        ):
            await until("the list", lambda: mirror.listed and proxy.open)
            proxy.closed = True
            proxy.cut()
            await until("the cut noticed", lambda: mirror.watch.error is not None)
            await hand.change("changes", "2")
            await hand.remove("goes")
            await hand.make("comes")
            proxy.closed = False
            await until("caught up", lambda: set(mirror.objects) == {"stays", "changes", "comes"})
            assert mirror.values["changes"] == "2"
            assert mirror.watch.lists == 1
            assert len(mirror.told) == len(set(mirror.told)) == 6


async def test_a_server_paused_for_longer_than_the_silence_allowed_is_followed_again(
    client: KubeClient, kube_server: Kube, namespace: str
) -> None:
    hand = Hand(client, namespace)
    pace = Pace(watch_seconds=30, silence_seconds=1.0, longest_pause=0.5)
    async with (
        client_of(kube_server.endpoint) as other,
        mirrored(other, Watched(CONFIG_MAPS, namespace), pace) as mirror,
    ):
        await until("the list", lambda: mirror.listed)
        kube_server.apiserver.pause()
        try:
            await until("the silence noticed", lambda: mirror.watch.error is not None)
        finally:
            kube_server.apiserver.resume()
        await hand.make("after")
        await until("the change", lambda: "after" in mirror.objects)


async def test_a_version_that_was_forgotten_leads_to_a_new_list_and_what_vanished_is_told(
    client: KubeClient, kube_server: Kube, namespace: str, tmp_path: Path
) -> None:
    hand = Hand(client, namespace)
    for name in ("stays", "goes", "anew"):
        await hand.make(name)
    async with proxied(kube_server.endpoint) as proxy:
        path = proxy.kubeconfig(kube_server.endpoint, tmp_path / "config")
        async with (
            client_of(kube_server.endpoint, path) as cut,
            mirrored(cut, Watched(CONFIG_MAPS, namespace)) as mirror,
        ):
            await until("the list", lambda: mirror.listed)
            uid = mirror.objects["anew"]["metadata"]["uid"]
            await cut_off(proxy)
            await hand.remove("goes")
            await hand.remove("anew")
            await hand.make("anew", "2")
            kube_server.compact()
            kube_server.apiserver.kill()
            await asyncio.to_thread(kube_server.start_apiserver)
            proxy.closed = False
            await until("listed again", lambda: mirror.listed >= 2)
            assert mirror.values == {"stays": "1", "anew": "2"}
            assert mirror.objects["anew"]["metadata"]["uid"] != uid
            assert [(what, name) for what, name, _ in mirror.told[3:]] == [
                ("gone", "anew"),
                ("set", "anew"),
                ("gone", "goes"),
            ]


async def cut_off(proxy: Proxy) -> None:
    proxy.closed = True
    proxy.cut()
    await until("nothing open", lambda: not proxy.open)


async def test_a_restarted_server_is_followed_on_with_nothing_lost(
    client: KubeClient, kube_server: Kube, namespace: str
) -> None:
    hand = Hand(client, namespace)
    await hand.make("before")
    async with mirrored(client, Watched(CONFIG_MAPS, namespace)) as mirror:
        await until("the list", lambda: mirror.listed)
        kube_server.apiserver.kill()
        await asyncio.to_thread(kube_server.start_apiserver)
        await hand.make("after")
        await until("the change", lambda: "after" in mirror.objects)
        assert set(mirror.objects) == {"before", "after"}
        assert len(mirror.told) == len(set(mirror.told))


async def test_a_missing_right_that_is_given_later_is_used(kube_server: Kube, namespace: str) -> None:
    # A name of its own: what is given here is taken back by nobody.
    kube_server.kubectl("create", "serviceaccount", "late", "-n", namespace)
    async with (
        client_of(kube_server.service_account(namespace, "late")) as client,
        mirrored(client, Watched(CONFIG_MAPS, namespace)) as mirror,
    ):
        await until("refused", lambda: isinstance(mirror.watch.error, Refused))
        kube_server.kubectl("create", "role", "look", "--verb=list,watch", "--resource=configmaps", "-n", namespace)
        account = f"--serviceaccount={namespace}:late"
        kube_server.kubectl("create", "rolebinding", "look", "--role=look", account, "-n", namespace)
        await until("listed", lambda: mirror.listed)
        assert mirror.watch.error is None


async def test_pods_nodes_and_podgroups_come_as_single_changes_after_the_snapshot(
    client: KubeClient, kube_server: Kube, namespace: str
) -> None:
    at, label = kube_server.endpoint, f"run={namespace}"
    kinds = [Watched(one, labels=label) for one in (PODS, NODES, POD_GROUPS, CONFIG_MAPS)]
    labels = {"run": namespace}
    async with KubeJobView(client, kinds, pace=QUICK) as view:
        assert (await view.snapshot())[0] == []
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace, "labels": labels}}
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "demo-1", "labels": labels},
            "spec": {"minMember": 2},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "demo-0", "labels": labels, "annotations": {"huawei.com/AscendReal": "Ascend910-0"}},
            "spec": {"nodeName": namespace, "containers": [{"name": "c", "image": "none"}]},
        }
        assert at.request("POST", NODES.path(), node).status == 201
        assert at.request("POST", POD_GROUPS.path(namespace), group).status == 201
        assert at.request("POST", PODS.path(namespace), pod).status == 201
        await until(
            "all seen", lambda: view.uid("Pod", namespace, "demo-0") and view.uid("PodGroup", namespace, "demo-1")
        )
        changes = {kind: (what, item) for what, kind, item in view.changes()}
        assert {kind: what for kind, (what, _) in changes.items()} == {"Node": "set", "PodGroup": "set", "Pod": "set"}
        seen = changes["Pod"][1]
        assert seen["metadata"]["annotations"] == {"huawei.com/AscendReal": "Ascend910-0"}
        assert "managedFields" not in seen["metadata"]
        path = PODS.path(namespace, "demo-0") + "?gracePeriodSeconds=0"
        assert at.request("DELETE", path).status == 200
        await until("gone", lambda: not view.uid("Pod", namespace, "demo-0"))
        assert [(what, kind) for what, kind, _ in view.changes()] == [("gone", "Pod")]
        at.request("DELETE", NODES.path(name=namespace))


async def test_a_watch_is_told_within_a_moment(client: KubeClient, namespace: str) -> None:
    hand = Hand(client, namespace)
    async with mirrored(client, Watched(CONFIG_MAPS, namespace)) as mirror:
        await until("the list", lambda: mirror.listed)
        began = time.monotonic()
        await hand.make("x")
        await until("the change", lambda: "x" in mirror.objects, seconds=5)
        assert time.monotonic() - began < 5
