"""Events on a real API server, as `kubectl describe` shows them."""

import time
import uuid
from collections.abc import AsyncIterator

import pytest
from kubeclients import client_of, make_namespace
from services.harness import Kube

from agent.adapters.kube import PODS, KubeAnnouncer, KubeClient
from agent.domain.vocab import Millis


@pytest.fixture
def namespace(kube_server: Kube) -> str:
    return make_namespace(kube_server.endpoint, f"test-{uuid.uuid4().hex[:8]}")


@pytest.fixture
async def client(kube_server: Kube) -> AsyncIterator[KubeClient]:
    async with client_of(kube_server.endpoint) as made:
        yield made


def wall() -> Millis:
    return Millis(time.time_ns() // 1_000_000)


async def test_what_is_said_of_a_pod_is_shown_beside_it_once_with_its_count(
    client: KubeClient, kube_server: Kube, namespace: str
) -> None:
    pod = {"metadata": {"name": "demo-0"}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
    uid = kube_server.endpoint.request("POST", PODS.path(namespace), pod).body["metadata"]["uid"]
    for instance in ("coordinator-0", "coordinator-1"):
        announcer = KubeAnnouncer(client, wall, instance, uid_of=lambda *_: str(uid))
        async with announcer as words:
            for _ in range(4):
                await words.announce("Pod", namespace, "demo-0", "NoRank", "no rank for device 2", True)
        assert (announcer.tally.failed, announcer.tally.dropped) == (0, 0)
    (event,) = kube_server.endpoint.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body[
        "items"
    ]
    assert (event["reason"], event["note"], event["type"]) == ("NoRank", "no rank for device 2", "Warning")
    assert event["series"]["count"] == 4
    shown = kube_server.kubectl("describe", "pod", "demo-0", "-n", namespace).stdout
    assert "no rank for device 2" in shown


async def test_nodes_and_podgroups_have_their_events_too(client: KubeClient, kube_server: Kube, namespace: str) -> None:
    async with KubeAnnouncer(client, wall, "coordinator-0") as words:
        await words.announce("Node", "", namespace, "Held", "code 80E18402 is unknown", True)
        await words.announce("PodGroup", namespace, "demo-1", "Observe", "would reset", False)
    assert (words.tally.sent, words.tally.failed) == (2, 0)
    at = kube_server.endpoint
    of_node = at.request("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={namespace}")
    (event,) = of_node.body["items"]
    assert event["involvedObject"] == {"kind": "Node", "name": namespace, "apiVersion": "v1"}
    of_group = at.request("GET", f"/api/v1/namespaces/{namespace}/events")
    assert [one["involvedObject"]["kind"] for one in of_group.body["items"]] == ["PodGroup"]


async def test_without_the_right_nothing_is_raised_and_all_is_counted(kube_server: Kube, namespace: str) -> None:
    async with (
        client_of(kube_server.user("stranger")) as client,
        KubeAnnouncer(client, wall, "coordinator-0") as words,
    ):
        await words.announce("Pod", namespace, "demo-0", "NoRank", "x", True)
    assert (words.tally.sent, words.tally.failed) == (0, 1)
