"""What the document store sends and makes of the answers; the contract itself runs on a real API server."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from scriptedkube import ScriptedKube, answer, event, page, refusal, scripted, thing

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.store import KubeDocumentStore
from agent.errors import BadDocument, Conflict, Refused, Unavailable
from agent.ports import ConfigMap

Pair = tuple[ScriptedKube, KubeClient]

STORED = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "doc",
        "namespace": "mindx-dl",
        "uid": "u1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "u2", "apiVersion": "v1"}],
        "managedFields": [{"manager": "volcano", "operation": "Update"}, {"manager": "fault-agent"}],
    },
    "immutable": False,
    "data": {"v": "1"},
}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with scripted(tmp_path) as made:
        yield made


async def test_a_document_is_read_with_its_writers_and_all_it_has(pair: Pair) -> None:
    server, client = pair
    server.answers(answer(STORED))
    document = await KubeDocumentStore(client).get("mindx-dl", "doc")
    assert document is not None
    assert (document.uid, document.resource_version, document.data) == ("u1", "7", {"v": "1"})
    assert document.managers == ("volcano", "fault-agent")
    assert document.extra["ownerReferences"][0]["uid"] == "u2"
    assert document.extra["immutable"] is False


async def test_a_new_document_is_posted_under_our_name(pair: Pair) -> None:
    server, client = pair
    server.answers(answer(STORED, 201))
    await KubeDocumentStore(client, "agent-a").put(ConfigMap("mindx-dl", "doc", {"v": "1"}, uid="copied"))
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/mindx-dl/configmaps")
    assert asked.query == {"fieldManager": "agent-a"}
    assert asked.body == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "doc", "namespace": "mindx-dl"},
        "data": {"v": "1"},
    }


async def test_a_known_document_is_put_at_its_version_without_the_server_s_own_book(pair: Pair) -> None:
    server, client = pair
    server.answers(answer(STORED), answer(STORED))
    store = KubeDocumentStore(client)
    document = await store.get("mindx-dl", "doc")
    assert document is not None
    await store.put(document)
    asked = server.asked[1]
    assert (asked.method, asked.path) == ("PUT", "/api/v1/namespaces/mindx-dl/configmaps/doc")
    meta = {key: value for key, value in STORED["metadata"].items() if key != "managedFields"}  # type: ignore[attr-defined]
    assert asked.body == {**STORED, "metadata": meta}


async def test_replacing_what_is_gone_is_a_conflict(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(404, "not found"))
    with pytest.raises(Conflict, match="gone"):
        await KubeDocumentStore(client).put(ConfigMap("a", "x", resource_version="7"))


async def test_a_missing_namespace_is_named(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(404, 'namespaces "a" not found'))
    with pytest.raises(Refused, match="there is no namespace a"):
        await KubeDocumentStore(client).put(ConfigMap("a", "x"))


async def test_what_would_be_refused_anyway_is_not_sent(pair: Pair) -> None:
    server, client = pair
    store = KubeDocumentStore(client)
    with pytest.raises(Refused):
        await store.put(ConfigMap("a", "x", {"v": "x" * 1_048_577}))
    with pytest.raises(Refused):
        await store.get("a", "../x")
    with pytest.raises(Refused):
        await store.delete("a", "x/y", "7")
    assert server.asked == []


async def test_a_delete_names_the_version(pair: Pair) -> None:
    server, client = pair
    server.answers(answer({}), refusal(404), refusal(409, "precondition"))
    store = KubeDocumentStore(client)
    await store.delete("a", "x", "7")
    assert server.asked[0].body["preconditions"] == {"resourceVersion": "7"}
    await store.delete("a", "x", "7")
    with pytest.raises(Conflict):
        await store.delete("a", "x", "7")


async def test_an_answer_that_is_no_document_is_named(pair: Pair) -> None:
    server, client = pair
    server.answers(answer({"metadata": {"name": 5}}))
    with pytest.raises(BadDocument):
        await KubeDocumentStore(client).get("a", "x")


async def test_a_list_is_read_in_pages_and_sorted(pair: Pair) -> None:
    server, client = pair
    server.answers(
        page([thing("z", "1", namespace="a"), thing("a", "2", namespace="b")], more="m"),
        page([thing("b", "3", namespace="a")], "9"),
    )
    store = KubeDocumentStore(client, fields="metadata.namespace!=kube-system", labels="l")
    assert [(d.namespace, d.name) for d in await store.list()] == [("a", "b"), ("a", "z"), ("b", "a")]
    assert server.asked[1].query == {
        "limit": "500",
        "continue": "m",
        "labelSelector": "l",
        "fieldSelector": "metadata.namespace!=kube-system",
    }


async def test_a_list_that_fails_half_way_is_no_list(pair: Pair) -> None:
    server, client = pair
    server.answers(page([thing("z", "1")], more="m"), refusal(410, "expired"))
    with pytest.raises(Unavailable):
        await KubeDocumentStore(client).list()


async def test_an_unreadable_document_in_the_watch_costs_itself_only(pair: Pair) -> None:
    server, client = pair
    spoilt = event("ADDED", thing("bad", "10", data={"v": 5}), "ConfigMap")
    fine = event("ADDED", thing("x", "11", data={"v": "1"}), "ConfigMap")
    server.answers(page([], "9"), server.stream(spoilt, fine, then="open"))
    async with aclosing(KubeDocumentStore(client).watch()) as changes:
        what, document = await anext(changes)
        assert (what, document.name, document.data) == ("set", "x", {"v": "1"})
