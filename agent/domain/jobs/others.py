"""Labels and annotations of a job that other components read: which values they take.

The one rule: the words are those of the component that reads the key; a value that it would not take is told, and
nothing is done because of it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from agent.domain.jobs.stated import CANN, HCCL_ENV
from agent.domain.vocab import RAIL_RETURNED


@dataclass(frozen=True, slots=True)
class OtherKey:
    """A key, the values that its reader takes, and those in words."""

    name: str
    shape: re.Pattern[str]
    words: str


def _one_of(name: str, *values: str) -> OtherKey:
    return OtherKey(name, re.compile("|".join(map(re.escape, values))), f"one of {', '.join(values)}")


_LEVELS: Final = re.compile(r"level([0-9]{1,2})=([0-9]{1,9})")

OTHER_LABELS: Final = (
    _one_of("elastic-scheduling", "on", "off"),
    _one_of("tor-affinity", "normal-schema", "large-model-schema", "null"),
    OtherKey(
        "huawei.com/scheduler.softShareDev.aicoreQuota", re.compile("[1-9][0-9]?|100"), "a whole number of 1 to 100"
    ),
    OtherKey(
        "huawei.com/scheduler.softShareDev.hbmQuota", re.compile("[1-9][0-9]{0,8}"), "a whole number of MB from 1"
    ),
    _one_of("huawei.com/scheduler.softShareDev.policy", "fixed-share", "elastic", "best-effort"),
)
OTHER_ANNOTATIONS: Final = (
    _one_of(
        "huawei.com/schedule_policy",
        "chip4-node8",
        "chip1-node2",
        "chip4-node4",
        "chip8-node8",
        "chip8-node16",
        "chip2-node8",
        "chip2-node16",
        "chip2-node8-sp",
        "chip2-node16-sp",
        "chip4-node16",
        "chip1-node8",
        "chip1-node16",
        "chip8-node8-sp",
        "chip8-node8-ra64-sp",
        "chip1-softShareDev",
        "multilevel",
    ),
    OtherKey("sp-block", re.compile("[1-9][0-9]{0,8}"), "a whole number of devices from 1"),
    OtherKey("huawei.com/schedule_minAvailable", re.compile("[0-9]{1,9}"), "a whole number"),
    OtherKey("huawei.com/recover_policy_path", re.compile("pod|job|pod,job"), "pod (job and pod,job change nothing)"),
    OtherKey("huawei.com/schedule_dequeue_frequency", re.compile("[0-9]{1,9}"), "a whole number"),
    OtherKey("huawei.com/schedule_enqueue_time", re.compile("[0-9]{1,16}"), "a time in ms"),
    _one_of("huawei.com/skip-ascend-plugin", "enabled"),
)
AFFINITY: Final = "huawei.com/affinity-config"
POD_ANNOTATIONS: Final = (
    "huawei.com/recover_policy_path",
    "huawei.com/schedule_policy",
    "huawei.com/affinity-config",
    "sp-block",
)
"""Annotations a job takes from its first pod when its PodGroup has none (Volcano plugin/job.go:212)."""

OWN: Final = (
    "fault-scheduling",
    "fault-retry-times",
    "process-recover-enable",
    "pod-rescheduling",
    "subHealthyStrategy",
    "framework",
    "ring-controller.atlas",
    "npu-310-strategy",
    "recover-strategy",
    "huawei.com/schedule.filter.faultCode",
    "huawei.com/schedule.filter.faultLevel",
    AFFINITY,
    "sp-fit",
    "huawei.com/schedule_enable_dequeue",
    "fault-agent/in-place-recovery",
    "fault-agent/stress-test",
    "fault-agent/comm-mode",
    RAIL_RETURNED,
    HCCL_ENV,
    CANN,
)
"""Keys that are read elsewhere, or of which any value is taken."""
SHOWN: Final = (*OWN, *(key.name for key in (*OTHER_LABELS, *OTHER_ANNOTATIONS)))
"""Every label and annotation of a job that somebody reads."""


def refused_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """Why each value among a job's merged labels is none that its reader takes."""
    return _refused(OTHER_LABELS, labels)


def refused_annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    """The same of its annotations."""
    yield from _refused(OTHER_ANNOTATIONS, annotations)
    text = annotations.get(AFFINITY, "")
    if text and not _are_levels(text):
        yield f"{AFFINITY}: {text!r:.60} is no list level1=n,level2=n,… counted from 1"


def _refused(keys: tuple[OtherKey, ...], given: Mapping[str, str]) -> Iterator[str]:
    for key in keys:
        value = given.get(key.name, "")
        if value and key.shape.fullmatch(value) is None:
            yield f"{key.name}: {value!r:.60} is not {key.words}"


def _are_levels(text: str) -> bool:
    """`level1=x,level2=y,…`, each from 1 on and none left out."""
    found = [_LEVELS.fullmatch(part) for part in text.split(",")]
    return all(level and int(level[1]) == at and int(level[2]) > 0 for at, level in enumerate(found, start=1))
