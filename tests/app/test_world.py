"""The cluster's objects: a bad one costs itself and a finding, and what it said before stands."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from a3table import A3_TABLE
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import DEMO_JOB, a_config_map, a_group, a_node, a_pod, the_demo

from agent.app.world import World
from agent.domain.cluster import ClusterBook, Limits
from agent.domain.isolation import Isolation
from agent.domain.vocab import JobId, Millis, NodeName

JOB = JobId(DEMO_JOB)
N1, N2 = NodeName("n1"), NodeName("n2")


def world(objects: list[dict[str, Any]] | None = None) -> World:
    made = World(ClusterBook("solo", Limits()))
    made.replace(the_demo() if objects is None else objects, [])
    return made


def nodes_of(made: World) -> list[str]:
    return [pod.node or "" for pod in made.book.jobs.pods_of(JOB)]


def broken_pod() -> dict[str, Any]:
    pod = a_pod("demo-0")
    pod["metadata"]["annotations"] = 7
    return pod


def test_the_whole_picture_replaces_the_one_before() -> None:
    made = world()
    touched = made.replace([], [])
    assert made.book.jobs.jobs() == ()
    assert touched.jobs == {JOB}
    assert made.book.vanished == {N1, N2}


def test_a_node_that_comes_back_has_not_vanished() -> None:
    made = world()
    made.replace([], [])
    made.replace(the_demo(), [])
    assert made.book.vanished == set()


BAD_OBJECTS: dict[str, Any] = {
    "a pod with a number for annotations": broken_pod(),
    "a pod without a name": {"kind": "Pod", "metadata": {}},
    "metadata that is a list": {"kind": "Pod", "metadata": []},
    "a node with a number for labels": {"kind": "Node", "metadata": {"name": "n7", "labels": 3}},
    "a ConfigMap whose data is a list": {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": []},
}


@pytest.mark.parametrize("bad", BAD_OBJECTS.values(), ids=BAD_OBJECTS)
def test_a_bad_object_is_a_finding_and_the_rest_is_read(bad: dict[str, Any]) -> None:
    other = a_pod("other-0", group="", node="n5")
    made = world([bad, *(one for one in the_demo() if one["metadata"]["name"] != "demo-0"), other])
    assert len(made.findings) == 1
    assert nodes_of(made)[-1] == "n2"


def test_findings_of_the_files_are_kept_beside_those_of_the_objects() -> None:
    made = World(ClusterBook("solo", Limits()))
    made.replace([*the_demo(), a_pod("lost", group="nowhere", node="n2")], ["objects.yaml:3: no YAML"])
    assert made.all_findings()[0] == "objects.yaml:3: no YAML"
    assert any("POD_WITHOUT_GROUP" in one for one in made.all_findings())
    assert any("DEVICE_CLAIMED_TWICE" in one for one in made.all_findings())


def test_an_unreadable_change_leaves_what_was_known_also_after_a_restart() -> None:
    made = world()
    made.apply(broken_pod())
    assert nodes_of(made) == ["n1", "n2"]
    again = World(ClusterBook("solo", Limits()))
    again.lay(json.loads(json.dumps(made.laid())))
    again.replace(the_demo(), [])
    assert nodes_of(again) == ["n1", "n2"]


def test_what_the_stream_applied_and_deleted_stands_over_a_restart() -> None:
    made = world()
    made.apply(a_pod("demo-0", uid="uid-2", node="n9"))
    made.delete("Pod", "train", "demo-1")
    made.apply(a_node("n9", serial="SN9"))
    again = World(ClusterBook("solo", Limits()))
    again.lay(json.loads(json.dumps(made.laid())))
    again.replace(the_demo(), [])
    assert nodes_of(again) == ["n9"]
    assert again.serials == {"n9": "SN9"}


def test_a_changed_file_does_not_undo_what_the_stream_applied() -> None:
    made = world()
    made.apply(a_pod("demo-0", uid="uid-2", node="n9"))
    made.replace(the_demo(), [])
    assert nodes_of(made) == ["n9", "n2"]


def test_objects_of_one_name_and_other_kinds_or_namespaces_do_not_mix() -> None:
    made = world(
        [
            a_group("same", owner="a"),
            a_pod("same", group="same"),
            a_node("same"),
            a_group("same", namespace="other", owner="b"),
            a_pod("same", namespace="other", group="same", node="n2"),
            a_config_map("same", {}),
        ]
    )
    assert [str(job.id) for job in made.book.jobs.jobs()] == ["other/same", "train/same"]
    made.delete("Pod", "other", "same")
    assert len(made.book.jobs.pods_of(JobId("train/same"))) == 1


def test_a_node_s_serial_follows_its_object() -> None:
    made = world([a_node("n1", serial="SN1")])
    assert made.serials == {"n1": "SN1"}
    made.apply(a_node("n1", serial="SN2"))
    assert made.serials == {"n1": "SN2"}
    made.apply(a_node("n1"))
    assert made.serials == {}
    made.delete("Node", "", "n1")
    assert made.book.vanished == {N1}


def test_deleting_what_was_never_there_is_nothing() -> None:
    made = world([])
    for kind in ("Pod", "PodGroup", "Node", "ConfigMap", "Secret", ""):
        assert not made.delete(kind, "train", "nothing").jobs
    assert made.book.vanished == set()


def test_noded_s_object_is_known_and_forgotten_by_its_name() -> None:
    made = world()
    touched = made.apply(a_config_map("mindx-dl-nodeinfo-n1", {}, namespace="mindx-dl"))
    assert made.book.node_d == {N1}
    assert touched.nodes == {N1}
    made.apply(a_config_map("mindx-dl-nodeinfo-n2", {}, namespace="elsewhere"))
    assert made.book.node_d == {N1}
    made.delete("ConfigMap", "mindx-dl", "mindx-dl-nodeinfo-n1")
    assert made.book.node_d == set()


def test_a_rank_table_in_the_making_is_a_finding_and_a_completed_one_is_kept() -> None:
    made = world()
    key = ("train", "demo")
    made.apply(a_config_map("rings-config-demo", {"hccl.json": '{"status":"initializing"}'}))
    assert key not in made.book.tables
    assert any("RANK_TABLE_NOT_READY" in one for one in made.all_findings())
    touched = made.apply(a_config_map("rings-config-demo", {"hccl.json": A3_TABLE}))
    assert key in made.book.tables
    assert touched.jobs == {JOB}
    made.delete("ConfigMap", "train", "rings-config-demo")
    assert key not in made.book.tables


def test_a_list_is_taken_apart() -> None:
    made = world([])
    made.apply({"kind": "List", "items": [*the_demo(), "no object", None]})
    assert nodes_of(made) == ["n1", "n2"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(["Pod", "PodGroup", "Node", "ConfigMap", "List", "AscendJob", ""])
PARTS = st.fixed_dictionaries(
    {"kind": KINDS},
    optional={
        "metadata": JSON
        | st.fixed_dictionaries(
            {"name": st.sampled_from(["a", "rings-config-a"]) | JSON},
            optional={"namespace": JSON, "annotations": JSON, "labels": JSON, "ownerReferences": JSON, "uid": JSON},
        ),
        "spec": JSON,
        "status": JSON,
        "data": JSON | st.dictionaries(st.just("hccl.json"), st.text(max_size=12)),
        "items": JSON,
    },
)


@settings(max_examples=150)
@given(item=PARTS)
def test_no_object_whatever_it_holds_breaks_the_picture(item: dict[str, Any]) -> None:
    made = world()
    made.apply(item)
    made.replace([item, *the_demo()], [])
    made.all_findings()
    assert JOB in {job.id for job in made.book.jobs.jobs()}


def test_what_can_not_be_read_any_more_is_not_gone_until_it_can() -> None:
    made = World(ClusterBook("solo", Limits()))
    made.replace(the_demo(), ["old.yaml:1: no YAML"])
    made.replace([a_node("n1")], ["old.yaml:1: no YAML", "pods.yaml:7: no YAML"])
    assert nodes_of(made) == ["n1", "n2"]
    assert made.book.vanished == set()
    made.replace([a_node("n1"), a_pod("demo-0", uid="uid-2", node="n9")], ["pods.yaml:7: no YAML"])
    assert nodes_of(made) == ["n9", "n2"]
    made.replace([*the_demo()[:4], a_pod("demo-0", uid="uid-2", node="n9")], ["old.yaml:1: no YAML"])
    assert nodes_of(made) == ["n9"]


def test_an_ambiguous_rank_table_gives_no_ranks_and_says_why() -> None:
    made = world()
    text = json.dumps(
        {
            "status": "completed",
            "version": "1.0",
            "server_count": "1",
            "server_list": [
                {
                    "server_id": "uid-demo-0",
                    "host_ip": "10.0.0.1",
                    "device": [
                        {"device_id": str(device), "device_ip": f"1.1.1.{device}", "rank_id": str(rank)}
                        for device, rank in ((0, 10), (1, 11), (2, 12), (3, 12))
                    ],
                }
            ],
        }
    )
    touched = made.apply(a_config_map("rings-config-demo", {"hccl.json": text}))
    assert touched.jobs == {JOB}
    assert [binding.rank for binding in made.book.jobs.bindings(N1, 3)] == [3]
    assert made.book.tables == {}
    assert (
        "RANK_TABLE_NOT_READY ConfigMap train/rings-config-demo: "
        "/server_list/0/device/3/rank_id: RANK_DUP: rank 12 is given twice"
    ) in made.all_findings()
    made.apply(a_config_map("rings-config-demo", {"hccl.json": text.replace('"rank_id": "12"}]', '"rank_id": "13"}]')}))
    assert [binding.rank for binding in made.book.jobs.bindings(N1, 3)] == [13]


def test_what_the_stream_brought_is_told_once_and_after_a_change_of_the_cluster_too() -> None:
    made = world()
    for _ in range(3):
        made.apply(broken_pod())
    assert len(made.findings) == 1
    made.replace(the_demo(), ["a.yaml:1: no YAML"])
    assert [finding.partition(":")[0] for finding in made.findings] == ["a.yaml", "Pod train/demo-0"]


def isolation_of(made: World) -> tuple[Isolation | None, dict[NodeName, Mapping[int, Millis]]]:
    return made.book.isolation, dict(made.book.listed)


POLICY_KEY, LISTED = "manually_separate_policy.conf", {NodeName("n1"): {2: Millis(0)}}


def clusterd(name: str, data: dict[str, str]) -> dict[str, Any]:
    return a_config_map(name, data, namespace="cluster-system")


def test_clusterd_s_words_on_manual_separation_go_with_their_objects() -> None:
    made = World(ClusterBook("solo", Limits()))
    off = clusterd("clusterd-config-cm", {POLICY_KEY: "enabled: false"})
    listed = clusterd("clusterd-manual-info-cm", {"n1": '{"Total":["Ascend910-2"]}'})
    made.replace([off, listed], [])
    assert isolation_of(made) == (Isolation(enabled=False), LISTED)
    made.delete("ConfigMap", "cluster-system", "clusterd-config-cm")
    assert isolation_of(made) == (Isolation(), LISTED)
    assert made.delete("ConfigMap", "cluster-system", "clusterd-manual-info-cm").nodes == {"n1"}
    assert isolation_of(made) == (Isolation(), {})


def test_a_policy_that_never_could_be_read_counts_nothing_until_it_goes() -> None:
    made = World(ClusterBook("solo", Limits()))
    made.apply(clusterd("clusterd-config-cm", {POLICY_KEY: "enabled: maybe"}))
    assert made.book.isolation is None
    assert len(made.findings) == 1
    made.delete("ConfigMap", "cluster-system", "clusterd-config-cm")
    assert made.book.isolation == Isolation()


def test_a_list_that_is_no_object_any_more_stays_as_it_was() -> None:
    made = World(ClusterBook("solo", Limits()))
    listed = clusterd("clusterd-manual-info-cm", {"n1": '{"Total":["Ascend910-2"]}'})
    made.replace([listed], [])
    broken = {**listed, "data": ["no", "texts"]}
    made.replace([broken], [])
    assert isolation_of(made)[1] == LISTED
    made.apply(broken)
    assert isolation_of(made)[1] == LISTED


def params_of(made: World) -> Mapping[str, str] | None:
    return None if made.scheduler is None else made.scheduler.params


def test_an_init_param_that_the_scheduler_would_not_take_is_a_finding_and_goes_with_its_object() -> None:
    conf = "configurations: [{name: init-params, arguments: {nslb-version: '3'}}]"
    config = a_config_map("volcano-scheduler-configmap", {"volcano-scheduler.conf": conf}, namespace="volcano-system")
    made = world([config])
    told = "ConfigMap volcano-system/volcano-scheduler-configmap: init-params nslb-version: '3' is not 1.0 or 2.0"
    assert made.findings == [f"{told}; what the plugin makes of it is not known; without it, it takes 1.0"]
    assert made.keeps(config)
    assert params_of(made) == {"nslb-version": "3"}
    made.delete("ConfigMap", "volcano-system", "volcano-scheduler-configmap")
    assert params_of(made) is None
    made.replace([], [])
    assert made.findings == []
    made.apply({**config, "data": {}})
    assert [one.partition(": ")[2] for one in made.findings] == [
        "has no key volcano-scheduler.conf (the scheduler reads its tiers and init-params there)"
    ]
    assert made.raw("ConfigMap", "volcano-system", "volcano-scheduler-configmap") == {**config, "data": {}}


def test_another_config_map_of_clusterd_is_none_of_ours() -> None:
    made = World(ClusterBook("solo", Limits()))
    made.apply(clusterd("statistic-fault-info", {"n1": "x"}))
    assert isolation_of(made) == (Isolation(), {})
    assert made.findings == []
