"""Kubernetes objects at the border: every field read, every bad field named."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import CREATED_MS, DEMO_GROUP, DEMO_UID, a_config_map, a_group, a_node, a_pod, an_ascend_job

from agent.domain.jobs import Node, Pod, PodGroup, Product
from agent.domain.jobs.conditions import Condition
from agent.domain.vocab import Millis
from agent.errors import BadDocument
from agent.wire.kubeobjects import (
    ConfigMapObject,
    OwnerJob,
    conditions_of,
    items_of,
    parse_object,
    rank_table_text,
)

REAL = "huawei.com/AscendReal"
CONFIG_910 = "ascend.kubectl.kubernetes.io/ascend-910-configuration"
CONFIG_NPU = "ascend.kubectl.kubernetes.io/ascend-npu-configuration"


def pod_of(obj: dict[str, Any]) -> Pod:
    pod = parse_object(obj)
    assert isinstance(pod, Pod)
    return pod


def node_of(obj: dict[str, Any]) -> Node:
    node = parse_object(obj)
    assert isinstance(node, Node)
    return node


def complaint(obj: object) -> str:
    with pytest.raises(BadDocument) as caught:
        parse_object(obj)
    return str(caught.value)


# --- pods


def test_every_field_of_a_pod_is_read() -> None:
    pod = pod_of(a_pod(labels={"a": "b"}, env={"HCCL_OP_RETRY_ENABLE": "L2:1"}, exit_code=137, rank_index=3))
    assert pod == Pod(
        namespace="train",
        name="demo-0",
        uid="uid-demo-0",
        node=pod.node,
        phase="Running",
        group=DEMO_GROUP,
        devices=(0, 1, 2, 3),
        rank_index=3,
        labels={"a": "b"},
        annotations=pod.annotations,
        host_ip="10.0.0.1",
        pod_ip="192.168.0.1",
        exit_codes=(137,),
        env={"HCCL_OP_RETRY_ENABLE": "L2:1"},
        env_complete=True,
        created=pod.created,
        deleted=False,
        device_prefix="Ascend910",
    )
    assert (pod.node, pod.created) == ("n1", CREATED_MS)


@pytest.mark.parametrize("name", ["", "../x", "N1", "a/b", "-a", "a-", "a..b", "a" * 254, "a\n", "é"])
def test_a_name_that_kubernetes_could_not_have_is_named(name: str) -> None:
    pod = a_pod("demo-0")
    pod["metadata"]["name"] = name
    assert complaint(pod).startswith("Pod: metadata.name: ")
    assert complaint(a_node(name)).startswith("Node: metadata.name: ")


@pytest.mark.parametrize("namespace", ["../..", "A", "a.b", "a" * 64])
def test_a_namespace_that_kubernetes_could_not_have_is_named(namespace: str) -> None:
    document = a_config_map("rings-config-demo", {}, namespace=namespace)
    assert complaint(document) == f"ConfigMap: metadata.namespace: {namespace[:60]!r} is no DNS-1123 label"


def test_half_a_surrogate_pair_in_the_json_of_an_annotation_is_named() -> None:
    text = '{"server_id":"\\ud800","devices":[{"device_id":"7"}]}'
    said = complaint(a_pod(devices=(), annotations={CONFIG_910: text}))
    assert "is no JSON: 'utf-8' codec can't encode" in said
    assert pod_of(a_pod(devices=(), annotations={CONFIG_910: text.replace("ud800", "u00e9")})).server_id == "é"


def test_a_number_beyond_64_bits_is_named() -> None:
    group = a_group()
    group["spec"]["minMember"] = 2**63
    assert complaint(group).endswith("spec.minMember: does not fit in 64 bits")


def test_a_bare_pod_has_its_defaults() -> None:
    pod = pod_of({"kind": "Pod", "metadata": {"name": "p"}})
    assert pod == Pod(namespace="default", name="p", uid="")
    assert pod.env is None


@pytest.mark.parametrize(
    ("text", "devices", "prefix", "virtual"),
    [
        ("Ascend910-1,Ascend910-0", (0, 1), "Ascend910", False),
        ("npu-3", (3,), "npu", False),
        ("Ascend310P-1c-400-1_0", (1,), "Ascend310P", True),
        ("Ascend310P-4c.3cpu-100-12_4", (12,), "Ascend310P", True),
        ("Ascend310P-1c-400-1_0,Ascend310P-1c-401-1_0", (1,), "Ascend310P", True),
        ("Ascend910-2c-100-5", (5,), "Ascend910", True),
        ("Ascend910-0, Ascend910-10", (0, 10), "Ascend910", False),
        ("", (), "", False),
    ],
)
def test_device_names_give_physical_ids(text: str, devices: tuple[int, ...], prefix: str, virtual: bool) -> None:
    pod = pod_of(a_pod(devices=(), annotations={REAL: text}))
    assert (pod.devices, pod.device_prefix, pod.virtual) == (devices, prefix, virtual)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Ascend910-", "'Ascend910-' is no device name"),
        ("Ascend910-0,", "'' is no device name"),
        ("0,1", "'0' is no device name"),
        ("Ascend910-64", "'64' is no physical id of 0 to 63"),
        ("Ascend910-0,Ascend910-0", "device 0 is named twice"),
        ("Ascend910-0,Ascend910-2c-100-0", "device 0 is named twice"),
        ("Ascend910-2c-100-0,Ascend910-0", "device 0 is named twice"),
        ("Ascend910-0,npu-1", "mixes Ascend910 and npu"),
        ("Ascend910-٣", "'Ascend910-٣' is no device name"),
    ],
)
def test_a_bad_device_name_is_named_with_pod_and_annotation(text: str, reason: str) -> None:
    said = complaint(a_pod(devices=(), annotations={REAL: text}))
    assert said.startswith(f'Pod train/demo-0: metadata.annotations["huawei.com/AscendReal"]: {reason}')


@pytest.mark.parametrize(("key", "prefix"), [(CONFIG_910, "Ascend910"), (CONFIG_NPU, "npu")])
def test_device_plugins_json_gives_the_devices_when_there_are_no_names(key: str, prefix: str) -> None:
    text = (
        '{"pod_name":"demo-0","server_id":"uid-x","host_ip":"10.9.9.9",'
        '"devices":[{"device_id":"10","device_ip":"1.1.1.1"},{"device_id":2}]}'
    )
    pod = pod_of(a_pod(devices=(), annotations={key: text}, host_ip=""))
    assert (pod.devices, pod.device_prefix, pod.server_id, pod.host_ip) == ((2, 10), prefix, "uid-x", "10.9.9.9")


def test_names_go_before_the_json_which_still_gives_the_server() -> None:
    text = '{"server_id":"uid-x","devices":[{"device_id":"7"}]}'
    pod = pod_of(a_pod(devices=(0,), annotations={CONFIG_910: text}))
    assert (pod.devices, pod.server_id, pod.host_ip, pod.problems) == ((0,), "uid-x", "10.0.0.1", ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", '"]: is no JSON: '),
        ("[]", '"]: is no JSON object'),
        ("[" * 100_000, '"]: is no JSON: '),
        ('{"devices":{}}', '"]/devices: is no list'),
        ('{"devices":[1]}', '"]/devices[0]: is no mapping'),
        ('{"devices":[{}]}', "\"]/devices/0/device_id: '' is no physical id"),
        ('{"devices":[{"device_id":"1"},{"device_id":"1"}]}', '"]/devices/1/device_id: device 1 is named twice'),
        ('{"devices":[],"server_id":1}', '"]/server_id: is no text but int'),
    ],
    ids=["broken", "array", "deep", "devices-object", "device-number", "no-id", "twice", "server-id"],
)
def test_bad_json_is_refused_when_it_places_the_pod_and_only_noted_when_names_do(text: str, said: str) -> None:
    assert f'Pod train/demo-0: metadata.annotations["{CONFIG_910}{said}' in complaint(
        a_pod(devices=(), annotations={CONFIG_910: text})
    )
    pod = pod_of(a_pod(devices=(0,), annotations={CONFIG_910: text}))
    assert pod.devices == (0,)
    assert len(pod.problems) == 1
    assert pod.problems[0].startswith(f'metadata.annotations["{CONFIG_910}{said}')


@pytest.mark.parametrize("text", ["", "x", "-1", "1.0", "٣", "9" * 5000])
def test_a_bad_rank_index_is_noted_and_the_pod_has_none(text: str) -> None:
    pod = pod_of(a_pod(rank_index=text))
    assert pod.rank_index is None
    assert len(pod.problems) == 1
    assert pod.problems[0].startswith('metadata.annotations["hccl/rankIndex"]: ')


@pytest.mark.parametrize(
    ("container", "env", "complete"),
    [
        (
            {"command": ["python", "t.py"], "env": [{"name": "A", "value": "1"}, {"name": "B"}]},
            {"A": "1", "B": ""},
            True,
        ),
        ({"command": ["python"], "env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]}, {}, False),
        ({"command": ["python"], "envFrom": [{"configMapRef": {"name": "x"}}]}, {}, False),
        ({"command": ["/bin/bash", "-c", "python t.py"]}, {}, False),
        ({"command": ["python"], "args": ["train.sh"]}, {}, False),
        ({"command": ["env", "A=1", "python"]}, {}, False),
        ({}, {}, False),
    ],
    ids=["plain", "value-from", "env-from", "shell", "script", "env-command", "images-own-entry-point"],
)
def test_variables_are_complete_only_when_nothing_can_hide_more(
    container: dict[str, Any], env: dict[str, str], complete: bool
) -> None:
    pod = pod_of(a_pod() | {"spec": {"containers": [container]}})
    assert (pod.env, pod.env_complete) == (env, complete)


def test_variables_are_those_of_the_first_container_that_asks_for_npus() -> None:
    side = {"name": "side", "env": [{"name": "A", "value": "side"}]}
    main = {
        "name": "ascend",
        "env": [{"name": "A", "value": "main"}],
        "resources": {"limits": {"huawei.com/Ascend910": "8"}},
    }
    assert pod_of(a_pod() | {"spec": {"containers": [side, main]}}).env == {"A": "main"}
    assert pod_of(a_pod() | {"spec": {"containers": [side, side]}}).env is None


def test_the_newest_termination_of_each_container_is_read() -> None:
    statuses = [
        {"state": {"terminated": {"exitCode": 1}}, "lastState": {"terminated": {"exitCode": 2}}},
        {"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 3}}},
        {"state": {"running": {}}},
    ]
    assert pod_of(a_pod() | {"status": {"containerStatuses": statuses}}).exit_codes == (1, 3)


def test_a_pod_on_its_way_out_says_so() -> None:
    assert pod_of(a_pod(deleted=True)).deleted


@pytest.mark.parametrize(
    ("value", "created"),
    [
        (datetime(2025, 12, 31, 23, tzinfo=UTC), CREATED_MS),
        (datetime.fromisoformat("2025-12-31T23:00:00"), CREATED_MS),
        ("2026-01-01T00:00:00+01:00", CREATED_MS),
    ],
    ids=["yaml-with-zone", "yaml-without-zone", "offset"],
)
def test_a_time_is_read_as_text_and_as_yaml_gives_it(value: object, created: int) -> None:
    assert pod_of({"kind": "Pod", "metadata": {"name": "p", "creationTimestamp": value}}).created == created


# --- other kinds


def test_every_field_of_a_pod_group_is_read() -> None:
    assert parse_object(a_group(labels={"a": "b"}, annotations={"c": "d"})) == PodGroup(
        namespace="train",
        name=DEMO_GROUP,
        uid=f"uid-{DEMO_GROUP}",
        owner_kind="AscendJob",
        owner_name="demo",
        owner_uid=DEMO_UID,
        labels={"a": "b"},
        annotations={"c": "d"},
        min_member=2,
        phase="Running",
    )


def test_conditions_of_a_pod_group_are_read_where_they_are_true() -> None:
    group = a_group(phase="Pending")
    group["status"]["conditions"] = [
        {"type": "Unschedulable", "status": "False", "reason": "NotEnoughResources"},
        {
            "type": "Unschedulable",
            "status": "True",
            "reason": "NodePredicateFailed",
            "message": "0/2 nodes",
            "lastTransitionTime": "2026-01-01T00:00:05Z",
        },
        {"type": "Scheduled", "status": "True"},
    ]
    assert conditions_of(group) == (
        Condition("Unschedulable", "NodePredicateFailed", "0/2 nodes", Millis(1767225605000)),
        Condition("Scheduled", ""),
    )
    assert conditions_of(a_group(phase="Pending") | {"status": None}) == ()


@pytest.mark.parametrize(
    ("conditions", "field"),
    [
        ("x", "status.conditions is no list"),
        ([1], "status.conditions[0] is no mapping"),
        ([{"status": "True", "message": 1}], "status.conditions[0].message is no text"),
        ([{"status": "True", "lastTransitionTime": "soon"}], "status.conditions[0].lastTransitionTime"),
    ],
)
def test_a_condition_of_the_wrong_shape_names_its_field(conditions: object, field: str) -> None:
    group = a_group()
    group["status"]["conditions"] = conditions
    with pytest.raises(BadDocument) as bad:
        conditions_of(group)
    assert field.partition(" ")[0] in str(bad.value)
    assert parse_object(group) is not None


def test_every_field_of_a_node_is_read() -> None:
    node = node_of(a_node(accelerator_type="module-a3-16", devices=(1, 0), serial="SN1"))
    assert node == Node(
        name=node.name,
        uid="uid-n1",
        machine_id="machine-n1",
        labels={"accelerator-type": "module-a3-16"},
        device_ids=(0, 1),
        internal_ip="10.0.0.1",
        serial="SN1",
        product=Product.A3,
    )
    assert node.name == "n1"


def test_a_node_that_does_not_tell_its_devices_has_none_listed() -> None:
    assert node_of(a_node()).device_ids is None
    assert node_of(a_node(annotations={"baseDeviceInfos": '{"npu-1":{}}'})).device_ids == (1,)
    assert "Node n1: metadata.annotations[\"baseDeviceInfos\"]: 'x' is no device name" in complaint(
        a_node(annotations={"baseDeviceInfos": '{"x":{}}'})
    )
    assert 'Node n1: metadata.annotations["baseDeviceInfos"]: is no JSON object' in complaint(
        a_node(annotations={"baseDeviceInfos": "[]"})
    )


@pytest.mark.parametrize(
    ("document", "table"),
    [
        (a_config_map("rings-config-demo", {"hccl.json": "{}", "version": "0"}), ("demo", "{}")),
        (a_config_map("rings-config-demo", {"version": "0"}), None),
        (a_config_map("other", {"hccl.json": "{}"}), None),
    ],
    ids=["table", "no-key", "other-name"],
)
def test_a_rank_table_is_found_by_name_and_key(document: dict[str, Any], table: tuple[str, str] | None) -> None:
    read = parse_object(document)
    assert isinstance(read, ConfigMapObject)
    assert rank_table_text(read) == table


@pytest.mark.parametrize(
    ("version", "kind"), [("mindxdl.gitee.com/v1", "AscendJob"), ("batch.volcano.sh/v1alpha1", "Job")]
)
def test_a_job_object_is_known_by_its_owner_facts(version: str, kind: str) -> None:
    obj = an_ascend_job() | {"apiVersion": version, "kind": kind, "spec": {"anything": 1}}
    assert parse_object(obj) == OwnerJob(kind, "train", "demo", DEMO_UID)


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("batch/v1", "Job"),
        ("apps/v1", "Deployment"),
        ("scheduling.sigs.k8s.io/v1alpha1", "PodGroup"),
        ("metrics.k8s.io/v1beta1", "Pod"),
    ],
)
def test_a_kind_that_is_no_concern_of_ours_is_ignored(version: str, kind: str) -> None:
    assert parse_object({"apiVersion": version, "kind": kind, "metadata": {}}) is None


@pytest.mark.parametrize("version", ["scheduling.volcano.sh/v1beta1", "scheduling.volcano.sh/v1", None])
def test_any_version_of_volcanos_pod_group_is_read(version: str | None) -> None:
    obj = a_group()
    del obj["apiVersion"]
    assert isinstance(parse_object(obj | ({"apiVersion": version} if version else {})), PodGroup)


def test_the_objects_of_a_list_are_given_one_by_one() -> None:
    assert items_of({"kind": "List", "items": [1, 2]}) == (1, 2)
    assert items_of({"kind": "PodList", "items": None}) == ()
    assert items_of(a_pod()) == (a_pod(),)
    with pytest.raises(BadDocument, match="List: items: is no list"):
        items_of({"kind": "List", "items": {}})


# --- what is wrong is named


@pytest.mark.parametrize(
    ("obj", "said"),
    [
        ([], "object: a Kubernetes object is a mapping"),
        ({}, "kind: names no kind"),
        ({"kind": "Pod", "apiVersion": 1}, "Pod: apiVersion: is no text"),
        ({"kind": "Pod"}, "Pod: metadata.name: is missing"),
        ({"kind": "Pod", "metadata": []}, "Pod: metadata: is no mapping"),
        ({"kind": "Pod", "metadata": {"name": "p", "uid": 1}}, "Pod default/p: metadata.uid: is no text but int"),
        (a_pod() | {"spec": {"nodeName": 1}}, "Pod train/demo-0: spec.nodeName: is no text but int"),
        (a_pod() | {"spec": {"containers": [1]}}, "Pod train/demo-0: spec.containers[0]: is no mapping"),
        (
            a_pod() | {"spec": {"containers": [{"command": "sh"}]}},
            "Pod train/demo-0: spec.containers[0].command: is no list of texts",
        ),
        (
            {"kind": "Pod", "metadata": {"name": "p", "creationTimestamp": "soon"}},
            "Pod default/p: metadata.creationTimestamp: 'soon' is no RFC 3339 time",
        ),
        (
            {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": True}},
            "PodGroup default/g: spec.minMember: is no integer",
        ),
        (
            {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": {}}},
            'ConfigMap default/c: data["k"]: is no text but dict',
        ),
    ],
)
def test_a_bad_field_is_named_with_its_object(obj: object, said: str) -> None:
    assert complaint(obj).startswith(said)


def test_a_label_that_yaml_read_as_a_boolean_is_refused_with_a_hint() -> None:
    obj = {"kind": "Pod", "metadata": {"name": "p", "labels": {"fault-scheduling": False}}}
    assert complaint(obj) == (
        'Pod default/p: metadata.labels["fault-scheduling"]: is no text but bool (quote the value in YAML)'
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
PARTS = {
    "Pod": ("metadata", "spec", "status"),
    "PodGroup": ("metadata", "spec", "status"),
    "Node": ("metadata", "status"),
    "ConfigMap": ("metadata", "data"),
}
META = ("annotations", "labels", "ownerReferences", "creationTimestamp", "uid", "namespace")
SPEC = ("containers", "nodeName", "minMember")
STATUS = ("containerStatuses", "phase", "hostIP", "conditions", "addresses", "nodeInfo")


def place_of_refusal(obj: object) -> str | None:
    """Where the border finds fault, or None when it takes the object; any other error is the test's."""
    try:
        parse_object(obj)
    except BadDocument as bad:
        return bad.place
    return None


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_any_json_is_an_object_or_nothing_or_a_bad_document(obj: object) -> None:
    assert place_of_refusal(obj) != ""


SMALL: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just([{}]) | st.just({"a": [0]})
)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_json_in_the_place_of_a_field_is_read_or_named(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(PARTS)))
    fields = st.dictionaries(st.sampled_from(META + SPEC + STATUS), SMALL, max_size=4)
    obj: dict[str, Any] = {part: data.draw(fields | SMALL) for part in PARTS[kind]} | {"kind": kind}
    if isinstance(obj["metadata"], dict):
        obj["metadata"]["name"] = "x"
    assert kind in (place_of_refusal(obj) or kind)


@settings(max_examples=100)
@given(st.text(max_size=40) | st.from_regex(r"(Ascend910|npu)-[0-9]{1,3}(,Ascend910-[0-9]{1,2}){0,3}", fullmatch=True))
def test_any_device_names_are_ids_of_0_to_63_in_order_or_a_bad_document(text: str) -> None:
    obj = a_pod(devices=(), annotations={REAL: text})
    place = place_of_refusal(obj)
    assert place in (None, 'Pod train/demo-0: metadata.annotations["huawei.com/AscendReal"]')
    devices = pod_of(obj).devices if place is None else ()
    assert list(devices) == sorted(set(devices))
    assert all(0 <= device <= 63 for device in devices)
