"""Kubernetes objects as `kubectl get -o json` prints them, with small defaults.

The one rule: raw mappings only, so that every test goes through the border as the real objects do.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

DEMO_UID = "141274b7-ce93-4d31-adde-6c24456a8a3b"
"""UID of the AscendJob `demo`; its PodGroup is `demo-<uid>`."""
DEMO_GROUP = f"demo-{DEMO_UID}"
DEMO_JOB = f"train/{DEMO_GROUP}"
CREATED = "2025-12-31T23:00:00Z"
CREATED_MS = 1767222000000


def a_pod(
    name: str = "demo-0",
    *,
    namespace: str = "train",
    uid: str = "",
    node: str = "n1",
    group: str = DEMO_GROUP,
    devices: Sequence[int] = (0, 1, 2, 3),
    prefix: str = "Ascend910",
    rank_index: int | str | None = 0,
    phase: str = "Running",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    host_ip: str = "10.0.0.1",
    pod_ip: str = "192.168.0.1",
    env: Mapping[str, str] | None = None,
    command: Sequence[str] = ("python", "train.py"),
    exit_code: int | None = None,
    deleted: bool = False,
) -> dict[str, Any]:
    """A pod; its UID is `uid-<name>` unless given, and `node=""` leaves it unscheduled."""
    notes: dict[str, str] = {}
    if group:
        notes["scheduling.k8s.io/group-name"] = group
    if devices:
        notes["huawei.com/AscendReal"] = ",".join(f"{prefix}-{device}" for device in devices)
    if rank_index is not None:
        notes["hccl/rankIndex"] = str(rank_index)
    notes.update(annotations or {})
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "creationTimestamp": CREATED,
        "labels": dict(labels or {}),
        "annotations": notes,
    }
    if deleted:
        meta["deletionTimestamp"] = CREATED
    container: dict[str, Any] = {
        "name": "ascend",
        "command": list(command),
        "resources": {"requests": {"huawei.com/Ascend910": str(len(devices))}},
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
    }
    status: dict[str, Any] = {"phase": phase, "hostIP": host_ip, "podIP": pod_ip}
    if exit_code is not None:
        status["containerStatuses"] = [{"name": "ascend", "state": {"terminated": {"exitCode": exit_code}}}]
    spec: dict[str, Any] = {"containers": [container]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def a_group(
    name: str = DEMO_GROUP,
    *,
    namespace: str = "train",
    uid: str = "",
    owner: str = "demo",
    owner_uid: str = DEMO_UID,
    owner_kind: str = "AscendJob",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    min_member: int = 2,
    phase: str = "Running",
    conditions: Sequence[Mapping[str, Any]] = ({"type": "Scheduled", "status": "True"},),
) -> dict[str, Any]:
    """A PodGroup; `owner=""` leaves it without an owner."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    if owner:
        meta["ownerReferences"] = [
            {"apiVersion": "mindxdl.gitee.com/v1", "kind": owner_kind, "name": owner, "uid": owner_uid}
        ]
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"minMember": min_member},
        "status": {"phase": phase, "conditions": list(conditions)},
    }


UNSCHEDULED: Mapping[str, Any] = {
    "type": "Unschedulable",
    "status": "True",
    "reason": "JobEnqueueFailed",
    "message": "too few",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
"""A condition of a PodGroup that waits."""


def a_node(
    name: str = "n1",
    *,
    uid: str = "",
    machine_id: str = "",
    accelerator_type: str = "",
    devices: Sequence[int] = (),
    prefix: str = "Ascend910",
    internal_ip: str = "10.0.0.1",
    serial: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A node; without `devices` its object does not tell its device list."""
    notes = dict(annotations or {})
    if devices:
        infos = {f"{prefix}-{device}": {"IP": f"1.1.1.{device}", "SuperDeviceID": device} for device in devices}
        notes["huawei.com/npu.base-device-infos"] = json.dumps(infos)
    if serial:
        notes["product-serial-number"] = serial
    marks = dict(labels or {})
    if accelerator_type:
        marks["accelerator-type"] = accelerator_type
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "labels": marks, "annotations": notes},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": internal_ip}],
            "nodeInfo": {"machineID": machine_id or f"machine-{name}"},
        },
    }


def a_config_map(
    name: str, data: Mapping[str, str], *, namespace: str = "train", labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A ConfigMap."""
    meta = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}


def an_ascend_job(name: str = "demo", *, namespace: str = "train", uid: str = DEMO_UID) -> dict[str, Any]:
    """An AscendJob, as far as others point to it."""
    meta = {"name": name, "namespace": namespace, "uid": uid}
    return {"apiVersion": "mindxdl.gitee.com/v1", "kind": "AscendJob", "metadata": meta}


def the_demo(
    labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Job `demo`: two pods, rank index 0 on n1 and 1 on n2, devices 0 to 3 each; labels go on PodGroup and pods."""
    marks = {"fault-scheduling": "grace", "fault-retry-times": "3"} if labels is None else labels
    return [
        a_node("n1", internal_ip="10.0.0.1"),
        a_node("n2", internal_ip="10.0.0.2"),
        an_ascend_job(),
        a_group(labels=marks, annotations=annotations),
        a_pod("demo-0", node="n1", rank_index=0, labels=marks, host_ip="10.0.0.1", pod_ip="192.168.0.1"),
        a_pod("demo-1", node="n2", rank_index=1, labels=marks, host_ip="10.0.0.2", pod_ip="192.168.0.2"),
    ]
