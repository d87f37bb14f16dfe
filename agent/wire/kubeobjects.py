"""Kubernetes objects as plain mappings -> pods, PodGroups, nodes, ConfigMaps and job owners.

The one rule: any mapping gives a value, None (a kind that is no concern of ours) or BadDocument naming object
and field; nothing else is raised.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from agent.domain.jobs import Node, Pod, PodGroup, product_of_type
from agent.domain.jobs.conditions import Condition
from agent.domain.vocab import NodeName
from agent.errors import BadDocument
from agent.wire.kubereader import ObjectReader

REAL: Final = "huawei.com/AscendReal"
DEVICE_CONFIGURATIONS: Final = {
    "ascend.kubectl.kubernetes.io/ascend-910-configuration": "Ascend910",
    "ascend.kubectl.kubernetes.io/ascend-npu-configuration": "npu",
}
"""Device-plugin's JSON annotations in the order ascend-operator reads them (common.go:304), and the prefix of each."""
NODE_DEVICES: Final = ("huawei.com/npu.base-device-infos", "baseDeviceInfos")
"""Node annotations with a JSON map `<type>-<physical id>` -> addresses; the second is the older name."""
GROUP_NAME: Final = "scheduling.k8s.io/group-name"
RANK_INDEX: Final = "hccl/rankIndex"
SERIAL: Final = "product-serial-number"
RINGS_PREFIX: Final = "rings-config-"
RANK_TABLE_KEY: Final = "hccl.json"
MAX_DEVICE: Final = 63

_WHOLE: Final = re.compile(r"([A-Za-z][A-Za-z0-9]*)-([0-9]{1,3})")
_SLICE: Final = re.compile(r"([A-Za-z][A-Za-z0-9]*)-[0-9]+c[A-Za-z0-9.]*-[0-9]+-([0-9]{1,3})(?:_[0-9]+)?")
"""A vNPU: prefix, template, id of the slice, physical card, and after `_` the logic id of some writers."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_SHELLS: Final = re.compile(r"(^|/)(ba|da|z|k|a)?sh$|\.sh\b|\bexport\b|\bsource\b|^[A-Z][A-Z0-9_]*=")
"""Words of a command that may set variables: a shell, a script, `env NAME=value`."""


@dataclass(frozen=True, slots=True)
class ConfigMapObject:
    """A ConfigMap's texts."""

    namespace: str
    name: str
    data: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnerJob:
    """An AscendJob or vcjob: what others' ownerReferences point to."""

    kind: str
    namespace: str
    name: str
    uid: str


KubeObject = Pod | PodGroup | Node | ConfigMapObject | OwnerJob


def parse_object(obj: object) -> KubeObject | None:
    """Read one object; None for a kind that says nothing about jobs and devices.

    Raises BadDocument with the object and the field in its place.
    """
    if not isinstance(obj, Mapping):
        raise BadDocument("a Kubernetes object is a mapping", place="object")
    kind = obj.get("kind")
    if not isinstance(kind, str) or not kind:
        raise BadDocument("names no kind", place="kind")
    version = obj.get("apiVersion", "")
    if not isinstance(version, str):
        raise BadDocument("is no text", place=f"{kind}: apiVersion")
    group = version.rpartition("/")[0]
    match kind:
        case "Pod" if not group:
            return _pod(ObjectReader(kind, obj))
        case "Node" if not group:
            return _node(ObjectReader(kind, obj))
        case "ConfigMap" if not group:
            return _config_map(ObjectReader(kind, obj))
        case "PodGroup" if group in ("", "scheduling.volcano.sh"):
            return _pod_group(ObjectReader(kind, obj))
        case "AscendJob":
            return _owner(ObjectReader(kind, obj))
        case "Job" if group == "batch.volcano.sh":
            return _owner(ObjectReader(kind, obj))
    return None


def items_of(obj: object) -> tuple[object, ...]:
    """The objects of a List (kind `List`, `PodList`, …), or the object alone.

    Raises BadDocument when a List's items are no list.
    """
    kind = obj.get("kind") if isinstance(obj, Mapping) else None
    if not isinstance(obj, Mapping) or not isinstance(kind, str) or not kind.endswith("List"):
        return (obj,)
    items = obj.get("items")
    if items is None:
        return ()
    if not isinstance(items, list):
        raise BadDocument("is no list", place=f"{kind}: items")
    return tuple(items)


def rank_table_text(document: ConfigMapObject) -> tuple[str, str] | None:
    """Job name and rank table of a rings-config-<job>, or None when the ConfigMap is no such.

    ascend-operator ascendjob_controller.go:639: name prefix and key `hccl.json`.
    """
    job = document.name.removeprefix(RINGS_PREFIX)
    if job == document.name or not job or RANK_TABLE_KEY not in document.data:
        return None
    return job, document.data[RANK_TABLE_KEY]


def _pod(read: ObjectReader) -> Pod:
    spec = read.mapping(read.obj, "spec", "spec")
    status = read.mapping(read.obj, "status", "status")
    problems: list[str] = []
    held = _devices(read, problems)
    env, complete = _env(read, spec) if spec else (None, False)
    index = read.annotations.get(RANK_INDEX)
    if index is not None and not _NUMBER.fullmatch(index):
        problems.append(f"{read.annotation_place(RANK_INDEX)}: {index!r:.60} is no whole number")
        index = None
    node = read.text(spec, "nodeName", "spec.nodeName")
    return Pod(
        namespace=read.namespace,
        name=read.name,
        uid=read.uid,
        node=NodeName(node) if node else None,
        phase=read.text(status, "phase", "status.phase"),
        group=read.annotations.get(GROUP_NAME, ""),
        devices=held.devices,
        rank_index=int(index) if index is not None else None,
        labels=read.labels,
        annotations=read.annotations,
        host_ip=read.text(status, "hostIP", "status.hostIP") or held.host_ip,
        pod_ip=read.text(status, "podIP", "status.podIP"),
        exit_codes=_exit_codes(read, status),
        env=env,
        env_complete=complete,
        created=read.time(read.meta, "creationTimestamp", "metadata.creationTimestamp"),
        deleted=read.meta.get("deletionTimestamp") is not None,
        device_prefix=held.prefix,
        server_id=held.server_id,
        virtual=held.virtual,
        problems=tuple(problems),
    )


@dataclass(frozen=True, slots=True)
class _Held:
    devices: tuple[int, ...] = ()
    prefix: str = ""
    server_id: str = ""
    host_ip: str = ""
    virtual: bool = False


def _devices(read: ObjectReader, problems: list[str]) -> _Held:
    """Devices by the names in AscendReal, else by device-plugin's JSON; server and host only stand in the JSON."""
    key = next((key for key in DEVICE_CONFIGURATIONS if read.annotations.get(key)), None)
    names = read.annotations.get(REAL, "")
    configured = _Held()
    if key is not None:
        try:
            configured = _configuration(read, key)
        except BadDocument as bad:
            if not names:
                raise
            # the names alone place the pod; the JSON would only have added the server's id
            problems.append(f"{bad.place.removeprefix(f'{read.who}: ')}: {bad.reason}")
    if not names:
        return configured
    place = read.annotation_place(REAL)
    found: dict[int, bool] = {}
    prefixes: set[str] = set()
    for name in names.split(","):
        whole, piece = _WHOLE.fullmatch(name.strip()), _SLICE.fullmatch(name.strip())
        shape = whole or piece
        if shape is None:
            read.fail(place, f"{name!r:.60} is no device name", hint="such as Ascend910-0 or npu-3, joined by commas")
        device = _device_id(read, place, shape[2])
        if device in found and (whole or not found[device]):
            read.fail(place, f"device {device} is named twice")
        found[device] = piece is not None
        prefixes.add(shape[1])
    if len(prefixes) > 1:
        read.fail(place, f"mixes {' and '.join(sorted(prefixes))}")
    return _Held(
        tuple(sorted(found)), prefixes.pop(), configured.server_id, configured.host_ip, virtual=all(found.values())
    )


def _configuration(read: ObjectReader, key: str) -> _Held:
    place = read.annotation_place(key)
    value = read.json(place, read.annotations[key])
    if not isinstance(value, Mapping):
        read.fail(place, "is no JSON object")
    found: set[int] = set()
    for number, item in enumerate(read.items(value, "devices", f"{place}/devices")):
        here = f"{place}/devices/{number}/device_id"
        text = item.get("device_id")
        device = _device_id(read, here, str(text) if isinstance(text, str | int) else "")
        if device in found:
            read.fail(here, f"device {device} is named twice")
        found.add(device)
    return _Held(
        devices=tuple(sorted(found)),
        prefix=DEVICE_CONFIGURATIONS[key] if found else "",
        server_id=read.text(value, "server_id", f"{place}/server_id"),
        host_ip=read.text(value, "host_ip", f"{place}/host_ip"),
    )


def _device_id(read: ObjectReader, place: str, text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > MAX_DEVICE:
        read.fail(place, f"{text!r:.60} is no physical id of 0 to {MAX_DEVICE}")
    return int(text)


def _exit_codes(read: ObjectReader, status: Mapping[str, Any]) -> tuple[int, ...]:
    codes = []
    for number, container in enumerate(read.items(status, "containerStatuses", "status.containerStatuses")):
        for key in ("state", "lastState"):
            place = f"status.containerStatuses[{number}].{key}"
            ended = read.mapping(read.mapping(container, key, place), "terminated", f"{place}.terminated")
            if ended:
                codes.append(read.integer(ended, "exitCode", f"{place}.terminated.exitCode"))
                break
    return tuple(codes)


def _env(read: ObjectReader, spec: Mapping[str, Any]) -> tuple[Mapping[str, str] | None, bool]:
    """Plain variables of the NPU container, and whether no more can be set than these.

    A command that is a script may export any; so may the image's own entry point when there is no command.
    """
    containers = read.items(spec, "containers", "spec.containers")
    places = [f"spec.containers[{number}]" for number in range(len(containers))]
    chosen = next((n for n, c in enumerate(containers) if _asks_for_npus(read, c, places[n])), None)
    if chosen is None and len(containers) == 1:
        chosen = 0
    if chosen is None:
        return None, False
    container, place = containers[chosen], places[chosen]
    command = [*_words(read, container, "command", place), *_words(read, container, "args", place)]
    complete = bool(container.get("command")) and not any(_SHELLS.search(word) for word in command)
    complete = complete and not container.get("envFrom")
    env: dict[str, str] = {}
    for number, item in enumerate(read.items(container, "env", f"{place}.env")):
        name = read.text(item, "name", f"{place}.env[{number}].name")
        if item.get("valueFrom") is not None:
            complete = False
            env.pop(name, None)
        else:
            env[name] = read.text(item, "value", f"{place}.env[{number}].value")
    return env, complete


def _asks_for_npus(read: ObjectReader, container: Mapping[str, Any], place: str) -> bool:
    resources = read.mapping(container, "resources", f"{place}.resources")
    asked = [read.mapping(resources, key, f"{place}.resources.{key}") for key in ("requests", "limits")]
    return any(str(name).startswith(("huawei.com/Ascend", "huawei.com/npu")) for names in asked for name in names)


def _words(read: ObjectReader, container: Mapping[str, Any], key: str, place: str) -> list[str]:
    value = container.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        read.fail(f"{place}.{key}", "is no list of texts")
    return value


def _pod_group(read: ObjectReader) -> PodGroup:
    spec = read.mapping(read.obj, "spec", "spec")
    status = read.mapping(read.obj, "status", "status")
    place = "metadata.ownerReferences"
    owners = read.items(read.meta, "ownerReferences", place)
    owner = owners[0] if owners else {}
    return PodGroup(
        namespace=read.namespace,
        name=read.name,
        uid=read.uid,
        owner_kind=read.text(owner, "kind", f"{place}[0].kind"),
        owner_name=read.text(owner, "name", f"{place}[0].name"),
        owner_uid=read.text(owner, "uid", f"{place}[0].uid"),
        labels=read.labels,
        annotations=read.annotations,
        min_member=max(read.integer(spec, "minMember", "spec.minMember"), 0),
        phase=read.text(status, "phase", "status.phase"),
    )


def conditions_of(obj: Mapping[str, Any]) -> tuple[Condition, ...]:
    """The conditions of a PodGroup that are True. Raises BadDocument.

    Apart from `parse_object`: the scheduler words them anew each second, and only who asks reads them.
    """
    read = ObjectReader("PodGroup", obj)
    status = read.mapping(obj, "status", "status")
    found = []
    for number, item in enumerate(read.items(status, "conditions", "status.conditions")):
        place = f"status.conditions[{number}]"
        if item.get("status") == "True":
            told = [read.text(item, key, f"{place}.{key}") for key in ("type", "reason", "message")]
            since = read.time(item, "lastTransitionTime", f"{place}.lastTransitionTime")
            found.append(Condition(told[0], told[1], told[2], since))
    return tuple(found)


def _node(read: ObjectReader) -> Node:
    status = read.mapping(read.obj, "status", "status")
    addresses = read.items(status, "addresses", "status.addresses")
    internal = [
        read.text(item, "address", f"status.addresses[{number}].address")
        for number, item in enumerate(addresses)
        if item.get("type") == "InternalIP"
    ]
    info = read.mapping(status, "nodeInfo", "status.nodeInfo")
    return Node(
        name=NodeName(read.name),
        uid=read.uid,
        machine_id=read.text(info, "machineID", "status.nodeInfo.machineID"),
        labels=read.labels,
        device_ids=_node_devices(read),
        internal_ip=internal[0] if internal else "",
        serial=read.annotations.get(SERIAL, ""),
        product=product_of_type(read.labels.get("accelerator-type", "")),
    )


def _node_devices(read: ObjectReader) -> tuple[int, ...] | None:
    key = next((key for key in NODE_DEVICES if read.annotations.get(key)), None)
    if key is None:
        return None
    place = read.annotation_place(key)
    value = read.json(place, read.annotations[key])
    if not isinstance(value, Mapping):
        read.fail(place, "is no JSON object")
    found = set()
    for name in value:
        shape = _WHOLE.fullmatch(name)
        if shape is None:
            read.fail(place, f"{name!r:.60} is no device name")
        found.add(_device_id(read, place, shape[2]))
    return tuple(sorted(found)) or None


def _config_map(read: ObjectReader) -> ConfigMapObject:
    return ConfigMapObject(
        read.namespace, read.name, read.texts(read.obj, "data", "data"), read.labels, read.annotations
    )


def _owner(read: ObjectReader) -> OwnerJob:
    return OwnerJob(read.kind, read.namespace, read.name, read.uid)
