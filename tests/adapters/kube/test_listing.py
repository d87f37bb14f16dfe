"""A list in pages: every object with its kind, selectors sent, and an error in the middle is an error."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from scriptedkube import ScriptedKube, page, refusal, scripted, thing

from agent.adapters.kube import POD_GROUPS, PODS, KubeClient, Watched, listed
from agent.errors import Refused, Unavailable

Pair = tuple[ScriptedKube, KubeClient]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with scripted(tmp_path) as made:
        yield made


async def test_every_page_is_read_and_every_object_names_its_kind(pair: Pair) -> None:
    server, client = pair
    server.answers(page([thing("a", "1"), thing("b", "2")], more="next"), page([thing("c", "3")]))
    watched = Watched(PODS, "train", labels="x=y", fields="spec.nodeName=n1")
    found = [item async for item in listed(client, watched, 2)]
    assert [(one["apiVersion"], one["kind"], one["metadata"]["name"]) for one in found] == [
        ("v1", "Pod", "a"),
        ("v1", "Pod", "b"),
        ("v1", "Pod", "c"),
    ]
    selectors = {"limit": "2", "labelSelector": "x=y", "fieldSelector": "spec.nodeName=n1"}
    assert [one.query for one in server.asked] == [selectors, {**selectors, "continue": "next"}]
    assert {one.path for one in server.asked} == {"/api/v1/namespaces/train/pods"}


async def test_of_a_kind_that_is_not_served_there_is_none_where_it_may_be_so(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(404), refusal(404))
    assert [item async for item in listed(client, Watched(POD_GROUPS, optional=True), 9)] == []
    with pytest.raises(Refused):
        [item async for item in listed(client, Watched(POD_GROUPS), 9)]


async def test_a_list_that_fails_half_way_is_none(pair: Pair) -> None:
    server, client = pair
    server.answers(page([thing("a", "1")], more="next"), refusal(500))
    with pytest.raises(Unavailable):
        [item async for item in listed(client, Watched(PODS), 9)]
