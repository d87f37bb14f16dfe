"""Values of the cluster's objects: pods, PodGroups, nodes, rank-table facts, and what a job's labels ask for.

The one rule: a value says what its object says; which fault concerns which job is decided in `bindings`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from agent.domain.jobs.filters import FILTER_CODES, FILTER_LEVELS, Filter, job_filters
from agent.domain.jobs.others import POD_ANNOTATIONS, refused_annotations, refused_labels
from agent.domain.jobs.returned import rail_returned
from agent.domain.jobs.stated import stated_by
from agent.domain.vocab import JobId, Millis, NodeName


class Product(StrEnum):
    """Generation of a server; it decides how many devices are reset together."""

    A1 = "910A"
    A2 = "910B"
    A2_INFERENCE = "910B-inference"
    A3 = "A3"
    A5 = "A5"
    UNKNOWN = "unknown"


_PRODUCT_OF_TYPE: Final = (
    (re.compile(r"module|half"), Product.A1),
    (re.compile(r"module-a3-[0-9].*"), Product.A3),
    (re.compile(r"card-.*b-infer"), Product.A2_INFERENCE),
    (re.compile(r"(module|card)-.*b-[0-9]+"), Product.A2),
    (re.compile(r"(350|850|950)-.*"), Product.A5),
)


def product_of_type(value: str) -> Product:
    """Product named by an `accelerator-type` value (MindCluster node labels, e.g. `module-910b-8`).

    `card` alone stands on boards of several generations, so it names none.
    """
    lowered = value.lower()
    return next((product for shape, product in _PRODUCT_OF_TYPE if shape.fullmatch(lowered)), Product.UNKNOWN)


def product_of_labels(labels: Mapping[str, str]) -> Product:
    """Product named by a job's labels.

    Of ring-controller.atlas only `ascend-npu` tells: the others are set alike for several generations.
    """
    if labels.get("ring-controller.atlas") == "ascend-npu":
        return Product.A5
    return product_of_type(labels.get("accelerator-type", ""))


def product_of_hardware(value: str) -> Product:
    """Product named by `hardware_type` of a rank table, e.g. `800I-A2-32G` (an I model serves inference)."""
    parts = value.upper().split("-")
    if "A3" in parts:
        return Product.A3
    if "A2" in parts:
        return Product.A2_INFERENCE if parts[0].endswith("I") else Product.A2
    return product_of_type(value)


def ring_size(product: Product, device_count: int) -> int | None:
    """Devices of one reset ring; None: not known, all devices of the job on that node stand together.

    Sizes are those of device-plugin's last in-place reset (ascend910.go at 40bc27dd^): 910A 4, 910B and A3 8,
    or 16 on a node with more than 8 devices, A5 and 910B inference boards 1.
    """
    if product is Product.UNKNOWN:
        return None
    if product is Product.A1:
        return 4
    if product in (Product.A5, Product.A2_INFERENCE):
        return 1
    return 16 if device_count > 8 else 8


_TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as the fault path sees it."""

    namespace: str
    name: str
    uid: str
    node: NodeName | None = None
    """None until it is scheduled."""
    phase: str = ""
    group: str = ""
    """Name of its PodGroup (annotation scheduling.k8s.io/group-name); empty when it has none."""
    devices: tuple[int, ...] = ()
    """Physical ids, ascending."""
    rank_index: int | None = None
    """Place of the pod in its job (annotation hccl/rankIndex)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    host_ip: str = ""
    pod_ip: str = ""
    exit_codes: tuple[int, ...] = ()
    """Newest termination of each container that has terminated."""
    env: Mapping[str, str] | None = None
    """Plain variables of the container that asks for NPUs; None when the object holds no spec."""
    env_complete: bool = False
    """False: more may be set where the object does not show it (envFrom, valueFrom, a script)."""
    created: Millis = Millis(0)
    deleted: bool = False
    """It has a deletionTimestamp: on its way out, but still there."""
    device_prefix: str = ""
    """`Ascend910`, `Ascend310P`, `npu`; empty without devices."""
    server_id: str = ""
    """server_id that device-plugin wrote into the device annotation: the pod's UID or its host's address."""
    virtual: bool = False
    """It holds slices (vNPU) of its devices, which others may share."""
    problems: tuple[str, ...] = ()
    """Annotations that could not be read, each with its reason; the pod is placed without them."""

    @property
    def ended(self) -> bool:
        """Succeeded or Failed: it uses its devices no more."""
        return self.phase in _TERMINAL_PHASES

    @property
    def live(self) -> bool:
        """Neither ended nor on its way out."""
        return not self.ended and not self.deleted

    @property
    def job(self) -> JobId | None:
        """Id of the job its PodGroup stands for, whether or not that PodGroup is there."""
        return job_id(self.namespace, self.group) if self.group else None

    @property
    def bound(self) -> tuple[int, ...]:
        """Devices it is bound to: from its scheduling until it is replaced or gone, and none once it Succeeded.

        A Failed pod stays bound, since a fault often ends the pod before it is read.
        """
        return () if self.node is None or self.phase == "Succeeded" else self.devices

    def __str__(self) -> str:
        return f"Pod {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Volcano's unit of gang scheduling; one per job."""

    namespace: str
    name: str
    uid: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    owner_uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    min_member: int = 0
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node; `device_ids` are its NPUs' physical ids, None when the object does not tell them."""

    name: NodeName
    uid: str = ""
    machine_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    device_ids: tuple[int, ...] | None = None
    internal_ip: str = ""
    serial: str = ""
    product: Product = Product.UNKNOWN


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server of a rank table: physical device id -> global rank."""

    server_id: str
    host_ip: str = ""
    container_ip: str = ""
    ranks: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RankTableFacts:
    """What the fault path needs of a *completed* rank table."""

    servers: tuple[ServerFacts, ...] = ()
    hardware_type: str = ""
    has_backup: bool = False
    """Any rank names a backup_device_ip."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Device, pod and rank, as they stand together now."""

    job: JobId
    pod: Pod
    device: int
    rank: int | None
    """Global rank; None: not known, then nothing is written that needs one."""
    logic_id: int
    """Place of the device in its node's whole device list; an event's own logicId goes before it."""
    position: int
    """Place of the device among the pod's devices."""


class FindingCode(StrEnum):
    """What can be wrong with the objects; work goes on without the part that is wrong."""

    POD_WITHOUT_GROUP = "POD_WITHOUT_GROUP"
    GROUP_WITHOUT_PODS = "GROUP_WITHOUT_PODS"
    GROUP_WITHOUT_OWNER = "GROUP_WITHOUT_OWNER"
    POD_WITHOUT_RANK = "POD_WITHOUT_RANK"
    DEVICE_CLAIMED_TWICE = "DEVICE_CLAIMED_TWICE"
    RANK_DISAGREES = "RANK_DISAGREES"
    RANK_TABLE_NOT_READY = "RANK_TABLE_NOT_READY"
    LABEL_BAD = "LABEL_BAD"
    ANNOTATION_BAD = "ANNOTATION_BAD"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A named defect: its code, the object it lies on, and why."""

    code: FindingCode
    object: str
    reason: str


class FaultScheduling(StrEnum):
    """Label fault-scheduling (Volcano plugin, rescheduling/job.go:44): whether and how Volcano moves the job."""

    ABSENT = ""
    OFF = "off"
    GRACE = "grace"
    FORCE = "force"
    EXTERNAL_GRACE = "external-grace"
    EXTERNAL_FORCE = "external-force"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class JobLabels:
    """What the merged labels and annotations of a job ask for, defaults filled in as Volcano's plugin does."""

    fault_scheduling: FaultScheduling = FaultScheduling.ABSENT
    fault_retry_times: int = 0
    framework: str = ""
    process_recover: str = ""
    """`on`, `pause`, `off`, or empty."""
    sub_healthy_strategy: str = "ignore"
    """`ignore`, `graceExit`, `forceExit` or `hotSwitch`; anything else counts as `ignore`."""
    pod_rescheduling: bool = False
    pod_only: bool = False
    """A restart never widens beyond the fault's own pods (recover policy `pod`, or an inference service)."""
    in_place: str = ""
    """Annotation fault-agent/in-place-recovery: `on`, `off`, or empty."""
    comm_mode: str = ""
    """Annotation fault-agent/comm-mode: `ranktable`, `rootinfo`, or empty."""
    quiet_codes: Filter = field(default_factory=Filter)
    quiet_levels: Filter = field(default_factory=Filter)
    """What the two filter annotations keep quiet, and for how long."""
    strategies: frozenset[str] = frozenset()
    """Words of annotation recover-strategy, such as `retry` and `recover-in-place`."""
    stress_test: bool = False
    """Annotation fault-agent/stress-test `on`: the job runs the online stress test now."""
    rail_returned: tuple[str, ...] = ()
    """Annotation fault-agent/rail-returned: plans, or single NPUs of them, that were switched back by hand."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its PodGroup and pods describe it."""

    id: JobId
    namespace: str
    name: str
    """Of the PodGroup."""
    uid: str
    """Of the PodGroup."""
    owner_kind: str
    owner_name: str
    """Names reset-config-<owner_name> and rings-config-<owner_name>; empty without an owner."""
    owner_uid: str
    """The UUID that remain-retry-times carries."""
    labels: Mapping[str, str]
    """PodGroup's and pods' merged; values that differ are joined with `|`."""
    annotations: Mapping[str, str]
    settings: JobLabels
    min_member: int
    phase: str
    pods: int
    """Pods that exist now, ended ones included."""
    devices: int
    """Devices bound to the job; 0: no NPU job."""
    placed: bool
    finished: bool
    incarnation: str


def job_id(namespace: str, group: str) -> JobId:
    """Volcano's id of a job: `<namespace>/<PodGroup name>` (volcano rescheduling, unconditaional_retry.go:53)."""
    return JobId(f"{namespace}/{group}")


def merge_labels(group: Mapping[str, str], pods: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Labels of a job: the PodGroup's and its pods' together (Volcano plugin/job.go:179).

    Values that differ are joined with `|`, sorted so that the order of pods does not show.
    """
    seen: dict[str, set[str]] = {key: {value} for key, value in group.items()}
    for labels in pods:
        for key, value in labels.items():
            seen.setdefault(key, set()).add(value)
    return {key: "|".join(sorted(values)) for key, values in sorted(seen.items())}


def merge_annotations(group: Mapping[str, str], first_pod: Mapping[str, str]) -> dict[str, str]:
    """Annotations of a job: the PodGroup's, and of the first pod those of POD_ANNOTATIONS that are absent."""
    return {key: first_pod[key] for key in POD_ANNOTATIONS if key in first_pod} | dict(group)


_SERVICE_APPS: Final = frozenset({"mindie-ms-controller", "mindie-ms-coordinator"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,9}")
MAX_RETRY_TIMES: Final = 100
"""Documented upper end of fault-retry-times; no component enforces it, so a larger value counts and is a finding."""


def parse_labels(
    job: JobId, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[JobLabels, tuple[Finding, ...]]:
    """Read a job's merged labels and annotations; a value outside its words gets the default and a finding."""
    findings: list[Finding] = []

    def word(source: Mapping[str, str], key: str, allowed: Iterable[str], code: FindingCode, default: str) -> str:
        value = source.get(key, "")
        if not value or value in allowed:
            return value or default
        findings.append(Finding(code, f"PodGroup {job}", f"{key}: {value!r} is none of {', '.join(allowed)}"))
        return default

    def label(key: str, *allowed: str, default: str = "") -> str:
        return word(labels, key, allowed, FindingCode.LABEL_BAD, default)

    def annotation(key: str, *allowed: str) -> str:
        return word(annotations, key, allowed, FindingCode.ANNOTATION_BAD, "")

    scheduling = label("fault-scheduling", *(s for s in FaultScheduling if s and s is not FaultScheduling.BAD))
    if not scheduling and labels.get("fault-scheduling"):
        scheduling = FaultScheduling.BAD
    filters = job_filters(annotations)
    for key, found in filters.items():
        findings += [Finding(FindingCode.ANNOTATION_BAD, f"PodGroup {job}", f"{key}: {why}") for why in found.problems]
    findings += [Finding(FindingCode.LABEL_BAD, f"PodGroup {job}", why) for why in refused_labels(labels)]
    returned, unknown = rail_returned(annotations)
    refused = (*refused_annotations(annotations), *unknown, *stated_by(annotations).problems)
    findings += [Finding(FindingCode.ANNOTATION_BAD, f"PodGroup {job}", why) for why in refused]
    service = "ome.io/inferenceservice" in labels or labels.get("app", "") in _SERVICE_APPS
    settings = JobLabels(
        fault_scheduling=FaultScheduling(scheduling),
        fault_retry_times=_retry_times(job, labels, findings),
        framework=labels.get("framework", ""),
        process_recover=label("process-recover-enable", "on", "pause", "off"),
        sub_healthy_strategy=label(
            "subHealthyStrategy", "ignore", "graceExit", "forceExit", "hotSwitch", default="ignore"
        ),
        pod_rescheduling=label("pod-rescheduling", "on", "off") == "on",
        pod_only=service or annotations.get("huawei.com/recover_policy_path") == "pod",
        in_place=annotation("fault-agent/in-place-recovery", "on", "off"),
        comm_mode=annotation("fault-agent/comm-mode", "ranktable", "rootinfo"),
        quiet_codes=filters[FILTER_CODES],
        quiet_levels=filters[FILTER_LEVELS],
        strategies=frozenset(word.strip() for word in annotations.get("recover-strategy", "").split(",")) - {""},
        stress_test=annotation("fault-agent/stress-test", "on", "off") == "on",
        rail_returned=returned,
    )
    return settings, tuple(findings)


def _retry_times(job: JobId, labels: Mapping[str, str], findings: list[Finding]) -> int:
    text = labels.get("fault-retry-times")
    if text is None:
        return 0
    times = int(text) if _INTEGER.fullmatch(text) else None
    if times is None or not 0 <= times <= MAX_RETRY_TIMES:
        reason = f"fault-retry-times: {text!r} is no whole number of 0 to {MAX_RETRY_TIMES}; it counts as {times or 0}"
        findings.append(Finding(FindingCode.LABEL_BAD, f"PodGroup {job}", reason))
    return times or 0
