"""When a recovery is started: every condition has its reason; of several that fail the first of the page is told."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, a_group, a_node, a_pod, the_demo
from rig import Rig

from agent.domain.vocab import Reason
from agent.wire.resetfile import decode_reset

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, NPU, SEPARATE = "80BB8003", "80E24E00", "80E18402"
_PAGE = (Path(__file__).parents[3] / "docs" / "recovery.md").read_text(encoding="utf-8")
_SECTION = _PAGE.partition("## When one is started")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| [^|]+ \| ([A-Z_]+)(?:, [A-Z]+)? \|$", _SECTION, re.MULTILINE)


@dataclass
class Case:
    """A job and a fault that would start a recovery, until something is made to stand in its way."""

    labels: dict[str, str] = field(default_factory=lambda: dict(LABELS))
    annotations: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    phase: str = "Running"
    isolated: bool = False
    shared: str = ""
    ranked: bool = True
    code: str = REQUEST
    also: dict[str, Any] = field(default_factory=dict)

    async def reason(self) -> Reason:
        """What is said of the fault."""
        objects = the_demo(self.labels, self.annotations)
        objects[3]["status"]["phase"] = self.phase
        if self.shared:
            second = a_group("second", uid="g2", labels=self.labels)
            second["status"]["phase"] = self.shared
            objects.append(second)
        if not self.ranked:
            objects[4] = a_pod("demo-0", node="n1", rank_index=None, labels=self.labels)
        rig = Rig(objects, self.settings)
        rig.tick(0)
        if self.isolated:
            rig.fault(SEPARATE, 1, node="n2")
        rig.fault(self.code, 10, **self.also)
        rig.tick(20)
        await rig.run()
        told = [
            one for one in rig.decisions if one.job == DEMO_JOB and f"/{self.code}@" in one.fault and one.node == "n1"
        ]
        return next(one.reason for one in told if one.reason not in (Reason.FAULT_COUNTED, Reason.RECOVERY_FAILED))


def finished(case: Case) -> None:
    case.phase = "Completed"


def process_recover(word: str) -> Callable[[Case], None]:
    def bar(case: Case) -> None:
        case.labels["process-recover-enable"] = word

    return bar


def annotated_off(case: Case) -> None:
    case.annotations["fault-agent/in-place-recovery"] = "off"


def framework(word: str | None) -> Callable[[Case], None]:
    def bar(case: Case) -> None:
        case.labels.pop("framework", None)
        if word is not None:
            case.labels["framework"] = word

    return bar


def scheduling(word: str | None) -> Callable[[Case], None]:
    def bar(case: Case) -> None:
        case.labels.pop("fault-scheduling", None)
        if word is not None:
            case.labels["fault-scheduling"] = word

    return bar


def volcano(case: Case) -> None:
    case.settings["volcano"] = "alive"


def shared(phase: str) -> Callable[[Case], None]:
    def bar(case: Case) -> None:
        case.shared = phase

    return bar


def isolated(case: Case) -> None:
    case.isolated = True


def without_rank(case: Case) -> None:
    case.ranked = False


def needs_reset(case: Case) -> None:
    case.code = NPU


def observed(case: Case) -> None:
    case.settings["documents"] = {"reset_config": {"mode": "observe"}}


BARS: list[tuple[Reason, Callable[[Case], None]]] = [
    (Reason.JOB_FINISHED, finished),
    (Reason.PROCESS_RECOVER_OWNS, process_recover("on")),
    (Reason.ANNOTATION_OFF, annotated_off),
    (Reason.FRAMEWORK_NOT_SUPPORTED, framework(None)),
    (Reason.LABEL_OFF, scheduling("off")),
    (Reason.VOLCANO_RESCHEDULES, volcano),
    (Reason.SHARED_RESET_CONFIG, shared("Running")),
    (Reason.ISOLATION_ONLY, isolated),
    (Reason.NO_RANK, without_rank),
    (Reason.NO_RESET_EXECUTOR, needs_reset),
    (Reason.OBSERVE, observed),
]
"""In the order of the page, from the job's own on."""
OTHERWISE: list[tuple[Reason, Callable[[Case], None]]] = [
    (Reason.PROCESS_RECOVER_OWNS, process_recover("pause")),
    (Reason.RECOVERY_STARTED, process_recover("off")),
    (Reason.FRAMEWORK_NOT_SUPPORTED, framework("pytorch")),
    (Reason.LABEL_OFF, scheduling(None)),
    (Reason.LABEL_OFF, scheduling("sometimes")),
    (Reason.RECOVERY_STARTED, scheduling("force")),
    (Reason.RECOVERY_STARTED, scheduling("external-grace")),
    (Reason.RECOVERY_STARTED, scheduling("external-force")),
    (Reason.SHARED_RESET_CONFIG, shared("Pending")),
    (Reason.RECOVERY_STARTED, shared("Completed")),
]


async def test_a_value_that_nobody_knows_is_told_as_it_stands() -> None:
    rig = Rig(the_demo({**LABELS, "fault-scheduling": "Grace"}))
    rig.fault("80C98000", 1)
    await rig.run()
    (told,) = [one for one in rig.decisions if one.reason is Reason.LABEL_OFF]
    assert told.detail == "fault-scheduling='Grace' is no value that Volcano knows"


def test_the_page_names_the_conditions_in_the_order_in_which_they_are_asked() -> None:
    assert ROWS == [
        "HELD",
        "PLANE_NEEDS_NO_RESET",
        "LEVEL_NEEDS_NOTHING",
        "IN_USE",
        "ISOLATION_ONLY",
        "BEFORE_ACT",
        "TOO_OLD",
        "NOT_ACTIVE",
        "JOB_FINISHED",
        "PROCESS_RECOVER_OWNS",
        "ANNOTATION_OFF",
        "FRAMEWORK_NOT_SUPPORTED",
        "LABEL_OFF",
        "VOLCANO_RESCHEDULES",
        "SHARED_RESET_CONFIG",
        "ISOLATION_ONLY",
        "NO_RANK",
        "RECOVERY_RUNNING",
        "NO_RESET_EXECUTOR",
        "OBSERVE",
    ]
    after_nature = ROWS[ROWS.index("JOB_FINISHED") :]
    assert [str(reason) for reason, _ in BARS] == [row for row in after_nature if row != "RECOVERY_RUNNING"]


async def test_entries_of_a_job_that_shares_its_list_are_no_orphans_of_another() -> None:
    """A recovery of `demo` runs; then a second group comes, and with it a coordinator that looks into every list."""
    rig = Rig(the_demo(LABELS))
    rig.fault(REQUEST, 6)
    rig.tick(8)
    await rig.run()
    second = [a_group("second", uid="g2", labels=LABELS), a_node("n3", internal_ip="10.0.0.3")]
    pod = a_pod("second-0", uid="s0", node="n3", rank_index=0, labels=LABELS, group="second")
    after = Rig([*the_demo(LABELS), *second, pod], disk=rig.disk)
    after.fault(REQUEST, 12, node="n3")
    after.tick(20)
    await after.run()
    assert Reason.RECOVERY_ENDED not in [one.reason for one in after.decisions]
    (data,) = [await after.data("train/reset-config-demo")]
    assert data is not None
    assert [one.status for one in decode_reset(data["reset.json"]).rank_list or ()] == ["unrecovered"] * 4


async def test_with_nothing_in_its_way_a_recovery_is_started() -> None:
    assert await Case().reason() is Reason.RECOVERY_STARTED


@pytest.mark.parametrize(("reason", "bar"), [*BARS, *OTHERWISE])
async def test_each_condition_alone_is_told(reason: Reason, bar: Callable[[Case], None]) -> None:
    case = Case()
    bar(case)
    assert await case.reason() is reason


@pytest.mark.parametrize(
    ("first", "second"),
    [pytest.param(one, two, id=f"{one[0]}-{two[0]}") for one, two in combinations(BARS, 2)],
)
async def test_of_two_that_fail_the_first_of_the_page_is_told(
    first: tuple[Reason, Callable[[Case], None]], second: tuple[Reason, Callable[[Case], None]]
) -> None:
    case = Case()
    second[1](case)
    first[1](case)
    assert await case.reason() is first[0]


@pytest.mark.parametrize(
    ("code", "also", "reason"),
    [
        ("DEADBEEF", {"location": {"severity": 3}}, Reason.HELD),
        ("81078603", {}, Reason.PLANE_NEEDS_NO_RESET),
        ("80818200", {}, Reason.LEVEL_NEEDS_NOTHING),
        ("8F180220", {}, Reason.IN_USE),
        (SEPARATE, {}, Reason.ISOLATION_ONLY),
    ],
)
async def test_the_fault_s_own_nature_is_told_before_anything_of_the_job(
    code: str, also: dict[str, Any], reason: Reason
) -> None:
    case = Case(code=code, also=also)
    for _, bar in BARS:
        if bar is not needs_reset:
            bar(case)
    case.isolated = False
    assert await case.reason() is reason
