"""The job view: nothing before all lists are complete, then single changes; small in memory."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from scriptedkube import PATIENT_S, ScriptedKube, event, page, refusal, scripted, thing
from virtualtime import leap

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.jobview import KubeJobView, trimmed, usual_kinds
from agent.adapters.kube.resources import NODES, POD_GROUPS, PODS, Watched
from agent.errors import Refused, Unavailable

Pair = tuple[ScriptedKube, KubeClient]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with scripted(tmp_path) as made:
        yield made


PODS_ONLY = (Watched(PODS),)


def test_the_usual_kinds_are_pods_nodes_podgroups_and_configmaps() -> None:
    kinds = usual_kinds("a=b", "metadata.namespace!=kube-system")
    assert [one.resource.kind for one in kinds] == ["Pod", "Node", "PodGroup", "ConfigMap"]
    assert [one.optional for one in kinds] == [False, False, True, False]
    assert (kinds[3].labels, kinds[3].fields) == ("a=b", "metadata.namespace!=kube-system")


async def test_a_snapshot_waits_for_every_list(pair: Pair) -> None:
    server, client = pair
    server.answers(page([thing("a", "1")], more="next"))
    # Sooner than the second page is given up.
    async with KubeJobView(client, PODS_ONLY, complete_seconds=PATIENT_S / 2) as view:
        asked = asyncio.create_task(view.snapshot())
        while view.get("Pod", "train", "a") is None:
            await view.wait(PATIENT_S)
        leap(PATIENT_S / 2)
        with pytest.raises(Unavailable, match="not all read: pods: the list is not complete yet"):
            await asked
        assert not view.complete


async def test_a_snapshot_without_the_right_says_so(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(403, "forbidden"))
    async with KubeJobView(client, PODS_ONLY, complete_seconds=PATIENT_S) as view:
        asked = asyncio.create_task(view.snapshot())
        await server.has_slept.wait()
        leap(PATIENT_S)
        with pytest.raises(Refused, match="grant verb list on pods"):
            await asked


async def test_a_kind_that_is_not_served_is_a_finding_and_the_rest_goes_on(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(404))
    async with KubeJobView(client, (Watched(POD_GROUPS, optional=True),)) as view:
        objects, findings = await view.snapshot()
        assert list(objects) == []
        assert list(findings) == [
            "podgroups.scheduling.volcano.sh: the API serves no such kind; looked for again later"
        ]
        assert view.current


async def test_after_the_snapshot_come_single_changes_each_object_once(pair: Pair) -> None:
    server, client = pair
    server.answers(
        page([thing("a", "1"), thing("b", "2")], "9"),
        server.stream(
            event("MODIFIED", thing("a", "10")),
            event("DELETED", thing("b", "11")),
            event("MODIFIED", thing("a", "12")),
            event("ADDED", thing("c", "13")),
            then="open",
        ),
    )
    async with KubeJobView(client, PODS_ONLY) as view:
        while view.get("Pod", "train", "c") is None:
            await view.wait(PATIENT_S)
            await asyncio.sleep(0)
        changes = view.changes()
        assert [(what, kind, item["metadata"]["name"]) for what, kind, item in changes] == [
            ("gone", "Pod", "b"),
            ("set", "Pod", "a"),
            ("set", "Pod", "c"),
        ]
        assert changes[0][2] == {"kind": "Pod", "metadata": {"name": "b", "namespace": "train"}}
        assert changes[1][2]["metadata"]["resourceVersion"] == "12"
        assert view.changes() == []
        assert not await view.changed()


async def test_an_object_nested_without_end_is_a_finding_and_what_was_known_of_it_stands(pair: Pair) -> None:
    server, client = pair
    deep: object = 1
    for _ in range(300):
        deep = [deep]
    server.answers(
        page([thing("a", "1"), thing("b", "2", spec={"x": deep})], "9"),
        server.stream(
            event("MODIFIED", thing("a", "10", spec={"x": deep})),
            event("MODIFIED", thing("b", "11")),
            event("ADDED", thing("c", "12", spec={"x": deep})),
            event("DELETED", thing("c", "13", spec={"x": deep})),
            event("ADDED", thing("d", "14")),
            then="open",
        ),
    )
    async with KubeJobView(client, PODS_ONLY) as view:
        while view.get("Pod", "train", "d") is None:
            await view.wait(PATIENT_S)
            await asyncio.sleep(0)
        objects, findings = await view.snapshot()
        assert [(one["metadata"]["name"], one["metadata"]["resourceVersion"]) for one in objects] == [
            ("a", "1"),
            ("b", "11"),
            ("d", "14"),
        ]
        assert list(findings) == ["Pod train/a: is nested too deep to be read"]


async def test_a_snapshot_takes_the_single_changes_in(pair: Pair) -> None:
    server, client = pair
    server.answers(page([thing("a", "1")], "9"))
    async with KubeJobView(client, PODS_ONLY) as view:
        objects, _ = await view.snapshot()
        assert [one["metadata"]["name"] for one in objects] == ["a"]
        assert view.changes() == []


async def test_what_is_not_kept_is_neither_shown_nor_told(pair: Pair) -> None:
    server, client = pair
    server.answers(
        page([thing("rings-config-x", "1"), thing("other", "2")], "9"),
        server.stream(
            event("DELETED", thing("other", "10")), event("ADDED", thing("rings-config-y", "11")), then="open"
        ),
    )
    view = KubeJobView(client, PODS_ONLY, keep=lambda item: str(item["metadata"]["name"]).startswith("rings-config-"))
    async with view:
        while view.get("Pod", "train", "rings-config-y") is None:
            await view.wait(PATIENT_S)
            await asyncio.sleep(0)
        assert [item["metadata"]["name"] for _, _, item in view.changes()] == ["rings-config-x", "rings-config-y"]


async def test_an_object_that_is_no_longer_kept_is_gone(pair: Pair) -> None:
    server, client = pair
    server.answers(
        page([thing("a", "1", data={"keep": "1"})], "9"),
        server.stream(event("MODIFIED", thing("a", "10", data={})), then="open"),
    )
    view = KubeJobView(client, PODS_ONLY, keep=lambda item: bool(item.get("data")))
    async with view:
        while view.get("Pod", "train", "a") is not None or not view.complete:
            await view.wait(PATIENT_S)
            await asyncio.sleep(0)
        assert [what for what, _, _ in view.changes()] == ["gone"]


async def test_the_uid_of_an_object_is_known(pair: Pair) -> None:
    server, client = pair
    server.answers(page([thing("n1", "1", namespace="", uid="u7")], "9"))
    async with KubeJobView(client, (Watched(NODES),)) as view:
        await view.snapshot()
        assert view.uid("Node", "", "n1") == "u7"
        assert view.uid("Node", "", "n2") == ""


async def test_troubles_name_the_kind_that_is_not_up_to_date(pair: Pair) -> None:
    server, client = pair
    server.answers(page([], "9"), *[refusal(503, "down")] * 3)
    async with KubeJobView(client, PODS_ONLY) as view:
        await view.snapshot()
        while len(server.slept) < 3:
            await asyncio.sleep(0)
            await view.wait(0.01)
        assert view.troubles() == ("pods: watch pods: 503 down",)
        assert (view.complete, view.current) == (True, False)


async def test_a_watch_that_fails_by_a_fault_of_ours_is_not_passed_over(pair: Pair) -> None:
    server, client = pair
    server.answers(page([{"metadata": 5}], "9"))
    async with KubeJobView(client, PODS_ONLY, complete_seconds=PATIENT_S) as view:
        (watching,) = (task for task in asyncio.all_tasks() if task.get_name() == "kube-watch-pods")
        asked = asyncio.create_task(view.snapshot())
        await asyncio.wait([watching])
        leap(PATIENT_S)
        with pytest.raises(Unavailable):
            await asked
        with pytest.raises(AttributeError):
            await view.changed()


async def test_a_view_may_be_closed_twice(pair: Pair) -> None:
    _, client = pair
    view = KubeJobView(client, PODS_ONLY)
    view.start()
    await view.close()
    await view.close()


def test_what_nobody_reads_is_not_kept() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"huawei.com/AscendReal": "Ascend910-0"}, "managedFields": [{}]},
        "spec": {
            "nodeName": "n1",
            "volumes": [{"name": "v"}],
            "containers": [
                {"name": "c", "env": [{"name": "A", "value": "1"}], "volumeMounts": [{}], "livenessProbe": {}}
            ],
        },
        "status": {"phase": "Running", "images": [{}]},
    }
    assert trimmed(pod) == {
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"huawei.com/AscendReal": "Ascend910-0"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]},
        "status": {"phase": "Running"},
    }
    assert trimmed({"kind": "Pod", "metadata": {"name": "p"}, "spec": None}) == {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": None,
    }
