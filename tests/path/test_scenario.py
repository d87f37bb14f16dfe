"""The shipped scenario, one night of two jobs, run as `fault-agent demo` runs it.

What must come out was reasoned by hand, line by line: golden/NOTES.md says why.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from readers import EXITED, KILLED, RUNNING, MsrunPod, TaskdManager

from agent.app.bootstrap import SoloOrder, replay_solo, scenario
from agent.app.settings import Settings
from agent.domain.vocab import Reason
from agent.wire.audit import AuditLine

GOLDEN = Path(__file__).parent / "golden"
START = 1_767_225_600_000
FINETUNE = "train/reset-config-finetune-a2"
VCJOB = "volcano-system/vcjob-fault-npu-cm"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@dataclass
class Night:
    """One run of the scenario: its folder, its decisions, and every version of each document in the order written."""

    out: Path
    lines: list[AuditLine] = field(default_factory=list)
    versions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    findings: tuple[str, ...] = ()

    def told(self, line: AuditLine) -> None:
        # A document is journalled before the next one of its name is written, so the file is that very version.
        self.lines.append(line)
        decision = line.decision
        if decision.reason is Reason.WRITTEN:
            stored = json.loads((self.out / f"{decision.document}.json").read_text())
            self.versions.setdefault(decision.document, []).append({"at": decision.at, "data": stored["data"]})


def run_night(out: Path) -> Night:
    events, cluster, _ = scenario()
    night = Night(out)
    _, world = replay_solo(SoloOrder(events, cluster, out, Settings()), night.told, lambda _: None, lambda _: None)
    night.findings = tuple(world.all_findings())
    return night


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    return run_night(tmp_path_factory.mktemp("night"))


@pytest.fixture(scope="module")
def same_night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    return run_night(tmp_path_factory.mktemp("again"))


def golden_objects() -> list[str]:
    return sorted(str(path.relative_to(GOLDEN).with_suffix("")) for path in GOLDEN.glob("*/*.json"))


@pytest.mark.parametrize("place", golden_objects())
def test_each_document_ends_as_reasoned_to_the_byte(night: Night, place: str) -> None:
    written = json.loads((night.out / f"{place}.json").read_text())
    for key in ("uid", "resourceVersion"):
        assert written["metadata"].pop(key)
    assert written == json.loads((GOLDEN / f"{place}.json").read_text())


def test_nothing_is_written_but_those_documents_and_our_own_ledgers(night: Night) -> None:
    found = {str(path.relative_to(night.out).with_suffix("")) for path in night.out.glob("[a-z]*/*.json")}
    ours = {place for place in found if place.startswith(("fault-agent/", "train/fault-agent-job-"))}
    assert found - ours == {
        "mindx-dl/job-reschedule-reason",
        "train/fault-agent-rail-pretrain-a3",
        "train/reset-config-finetune-a2",
        "volcano-system/vcjob-fault-npu-cm",
    }


@pytest.mark.parametrize("place", [FINETUNE, VCJOB])
def test_every_version_of_a_document_on_the_way_is_as_reasoned(night: Night, place: str) -> None:
    wanted = [json.loads(line) for line in (GOLDEN / f"{place}.versions.jsonl").read_text().splitlines()]
    assert night.versions[place] == wanted


def test_the_objects_of_the_scenario_are_without_findings(night: Night) -> None:
    assert night.findings == ()


def test_the_same_night_again_gives_the_same_bytes_in_every_file(night: Night, same_night: Night) -> None:
    assert night.out != same_night.out
    assert dict(contents(night.out)) == dict(contents(same_night.out))


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()


EXPECTED: list[tuple[float, str, str, str]] = [
    (10, "RECOVERY_STARTED", "a2-node-0/chip/2/80C98000", "recovery 1, policy restart_request, 4 ranks"),
    (12, "DUPLICATE_MESSAGE", "a2-node-0/chip/2/80C98000", "a2-node-0-000001"),
    (25, "RECOVERY_SUCCEEDED", "a2-node-0/chip/2/80C98000", "unrecovered → recovered"),
    (40, "LEVEL_NEEDS_NOTHING", "a3-node-1/chip/3/80E00209", "NotHandleFault"),
    (50, "FRAMEWORK_NOT_SUPPORTED", "a3-node-0/chip/1/80CB800A", "framework=pytorch"),
    (60, "PLANE_NEEDS_NO_RESET", "a3-node-1/network/1/81078603", "network"),
    (60, "RAIL_OBSERVING", "a3-node-1/network/1/81078603", "flap"),
    (72, "RAIL_NOOP", "a3-node-1/network/1/81078603", "rule 3 CLEAR"),
    (80, "LEVEL_NEEDS_NOTHING", "a3-node-2/chip/0/8F0000A1", "NotHandleFault"),
    (81, "HELD", "a3-node-2/chip/0/8F0000A2", "a person must look"),
    (115, "RECOVERY_ENDED", "a2-node-0/chip/2/80C98000", "recovered → leaving"),
    (120, "RECOVERY_STARTED", "a2-node-1/chip/5/80E01801", "recovery 2, policy restart, 4 ranks"),
    (150, "FAULT_CLEARED", "a2-node-1/chip/5/80E01801", "unrecovered → settling"),
    (165, "RECOVERY_SUCCEEDED", "a2-node-1/chip/5/80E01801", "settling → recovered"),
    (170, "RAIL_OBSERVING", "a3-node-1/network/1/81078603", "flap"),
    (171.2, "RAIL_OBSERVING", "a3-node-1/network/3/81078603", "flap"),
    (190.001, "FAULT_SHOWN", "a3-node-1/network/1/81078603", "PreSeparateNPU by duration:81078603"),
    (191.201, "FAULT_SHOWN", "a3-node-1/network/3/81078603", "PreSeparateNPU by duration:81078603"),
    (201.265, "RAIL_REFUSED", "a3-node-1/network/1/81078603", "rule 22 BACKUP_LINK_UNKNOWN"),
    (201.265, "RAIL_REFUSED", "a3-node-1/network/3/81078603", "rule 22 BACKUP_LINK_UNKNOWN"),
    (
        230,
        "FAULT_SHOWN",
        "a3-node-1/network/1/81078603",
        "it has recovered; shown on as PreSeparateNPU until clean for longer than 60 s",
    ),
    (255, "RECOVERY_ENDED", "a2-node-1/chip/5/80E01801", "recovered → leaving"),
    (260, "NO_RESET_EXECUTOR", "a2-node-1/chip/4/80E24E00", "reset.executor: none"),
    (285, "ISOLATION_ONLY", "a2-node-0/chip/3/8C0A4E00", "FreeRestartNPU"),
    (290.001, "FAULT_CLEARED", "a3-node-1/network/1/81078603", "60 s"),
    (290.501, "FAULT_CLEARED", "a3-node-1/network/3/81078603", "60 s"),
    (310, "PLANE_NEEDS_NO_RESET", "a3-node-2/switch/3.17/[0x00f10509,132332,npu,na]", "switch"),
    (310, "RAIL_DELEGATED", "a3-node-2/switch/3.17/[0x00f10509,132332,npu,na]", "Nothing to borrow"),
    (320, "PLANE_NEEDS_NO_RESET", "a3-node-1/dpu/0/22000025", "dpu"),
    (330, "LEVEL_NEEDS_NOTHING", "a3-node-2/public/CCAE:ccae-optical-0042/010001001", "SubHealthFault"),
    (
        335,
        "STALE",
        "a3-node-2/public/CCAE:ccae-optical-0042/010001001",
        "older than the fault active since 2026-01-01 00:05:30.000Z",
    ),
    (350, "FAULT_CLEARED", "a3-node-2/public/CCAE:ccae-optical-0042/010001001", "SubHealthFault"),
    (360, "LEVEL_NEEDS_NOTHING", "a3-node-3/chip/2/80E20207", "SubHealthFault"),
    (370, "IN_USE", "a3-node-3/chip/0/8F184C00", "once the job has left"),
    (380, "ISOLATION_ONLY", "a2-node-0/chip/2/80E18402", "SeparateNPU"),
    (420, "RESCHEDULE_RECORDED", "a2-node-0/chip/2/80E18402", "finetune-a2-worker-0 on a2-node-0 (CardUnhealthy)"),
    (430, "PLANE_NEEDS_NO_RESET", "a2-node-1/node/CPU.1/0000001D", "node"),
    (440, "RAIL_OBSERVING", "a3-node-0/network/2/81078603", "flap"),
    (450, "RECOVERY_STARTED", "a2-node-1/chip/6/80C9800A", "recovery 3, policy restart_request, 4 ranks"),
    (470.065, "RAIL_ADVISED", "a3-node-0/network/2/81078603", "rule 28 BORROW: 3 ranks"),
    (472, "LEVEL_NEEDS_NOTHING", "a3-node-0/chip/2/8C1F8609", "NotHandleFault"),
    (360.001, "RELATION_IGNORED", "a3-node-1/network/1/81078603", "no trigger came in its time"),
    (470.001, "RELATION_IGNORED", "a3-node-1/network/1/81078603", "no trigger came in its time"),
    (471.201, "RELATION_IGNORED", "a3-node-1/network/3/81078603", "no trigger came in its time"),
    (472, "RELATION_SUB_HEALTH", "a3-node-0/network/2/81078603", "trigger a3-node-0/chip/2/8C1F8609"),
    (480, "RECOVERY_FAILED", "a2-node-1/chip/6/80C9800A", "unrecovered → failed"),
    (500, "RECOVERY_ENDED", "a2-node-1/chip/6/80C9800A", "failed → leaving"),
    (500, "RESCHEDULE_RECORDED", "a2-node-1/chip/6/80C9800A", "finetune-a2-worker-1 on a2-node-1 (CardUnhealthy)"),
    (560, "RAIL_NOOP", "a3-node-0/network/2/81078603", "NO_SWITCH_BACK"),
    (620.001, "FAULT_CLEARED", "a3-node-0/network/2/81078603", "60 s"),
]


@pytest.mark.parametrize(("second", "reason", "fault", "detail"), EXPECTED, ids=lambda value: str(value)[:40])
def test_each_fault_of_the_night_gets_its_reason_at_its_time(
    night: Night, second: float, reason: str, fault: str, detail: str
) -> None:
    at = START + round(second * 1000)
    told = [
        line.decision.detail
        for line in night.lines
        if (line.decision.at, line.decision.reason, identity(line)) == (at, reason, fault)
    ]
    assert any(detail in one for one in told), told


def identity(line: AuditLine) -> str:
    return line.decision.fault.rpartition("@")[0]


def test_no_fault_is_judged_but_those_of_the_table(night: Night) -> None:
    told = {(line.decision.at, str(line.decision.reason), identity(line)) for line in night.lines}
    table = {(START + round(second * 1000), reason, fault) for second, reason, fault, _ in EXPECTED}
    shown = {"FAULT_SHOWN", "FAULT_CLEARED", "PLANE_NEEDS_NO_RESET", "WRITTEN", "SOFTWARE_FAULT"}
    assert {one for one in told if one[1] not in shown} - table == set()


def test_a_fault_is_held_for_a_person_once(night: Night) -> None:
    held = [line.decision for line in night.lines if line.decision.reason is Reason.HELD]
    assert [(one.at - START, str(one.job).partition("-a3d0")[0]) for one in held] == [(81_000, "train/pretrain-a3")]


def test_the_demo_finds_the_night_as_expected(night: Night) -> None:
    _, _, unmet = scenario()
    assert unmet(night.out, night.lines) == []


def test_bad_records_are_kept_with_their_reasons(night: Night) -> None:
    letters = [json.loads(line) for line in (night.out / "dead-letters.jsonl").read_text().splitlines()]
    reasons = [(letter["headers"]["fault-agent-reason"], letter["key"]) for letter in letters]
    assert reasons == [("NODE_NOT_KEY", "a3-node-1"), ("NOT_JSON", "a3-node-1")]
    assert letters[0]["value"]["faults"][0]["influence"] == [{"nodeName": "a3-node-2", "deviceIds": [3]}]
    assert letters[1]["value"] == '{"id":"a3-node-1-000004","timestamp":17672256'


def test_the_senders_trace_is_carried_to_the_decision_and_its_document(night: Night) -> None:
    traced = [(str(d.reason), d.document) for line in night.lines if (d := line.decision).trace == TRACE]
    assert traced[:3] == [("FAULT_SHOWN", ""), ("RECOVERY_STARTED", FINETUNE), ("WRITTEN", FINETUNE)]


def test_every_level_of_the_chip_table_occurs(night: Night) -> None:
    levels = {line.decision.level for line in night.lines if "/chip/" in line.decision.fault}
    assert levels >= {
        "NotHandleFault",
        "SubHealthFault",
        "RestartRequest",
        "RestartBusiness",
        "FreeRestartNPU",
        "RestartNPU",
        "PreSeparateNPU",
        "SeparateNPU",
    }


# --- what the readers in the training containers make of it --------------------------------------------------------


@dataclass
class Training:
    """The pods of finetune-a2 with their readers, and the text that is mounted into them."""

    text: str = '{"status":"initializing"}'
    restart_type: str = ""
    pods: dict[str, MsrunPod] = field(default_factory=dict)
    ended: list[tuple[str, str, int, int]] = field(default_factory=list)
    taskd: TaskdManager = field(default_factory=TaskdManager)
    taskd_restarts: list[int] = field(default_factory=list)

    def begin(self, name: str) -> None:
        index = int(name[-1])
        self.pods[name] = MsrunPod(tuple(range(4 * index, 4 * index + 4)), node_rank=index)
        if index == 0:
            self.taskd = TaskdManager()

    def end(self, name: str) -> None:
        pod = self.pods.pop(name)
        self.ended.append((name, pod.state, pod.starts, pod.kills))
        if name.endswith("0"):
            self.taskd_restarts.append(self.taskd.restarts)

    def look(self) -> None:
        for _ in range(3):
            for pod in self.pods.values():
                pod.poll(self.text, self.restart_type)
            self.taskd.poll(self.text)


def happenings(night: Night) -> list[tuple[int, str, Any]]:
    """Pods that came and went, and versions of the document, by time; at one time the pods come first."""
    events, _, _ = scenario()
    found: list[tuple[int, str, Any]] = []
    for line in events.read_text().splitlines():
        item = json.loads(line)
        if "delete" in item:
            found.append((item["time"], "end", item["delete"]["name"]))
        elif "apply" in item:
            found.append((item["time"], "begin", item["apply"]["metadata"]["name"]))
    found += [(version["at"], "version", version["data"]) for version in night.versions[FINETUNE]]
    return sorted(found, key=lambda one: (one[0], one[1] == "version"))


@pytest.mark.parametrize(
    ("early", "newest"),
    [
        pytest.param(False, (1, 0), id="new-pods-see-the-newest-document"),
        pytest.param(True, (2, 1), id="new-pods-see-the-document-before-it-first"),
    ],
)
def test_training_is_stopped_only_for_a_recovery_and_always_started_again(
    night: Night, early: bool, newest: tuple[int, int]
) -> None:
    training = Training()
    training.begin("finetune-a2-worker-0")
    training.begin("finetune-a2-worker-1")
    training.look()
    for _, several in groupby(happenings(night), key=lambda one: one[0]):
        for _, what, value in several:
            if what == "begin":
                training.begin(value)
            elif what == "end":
                training.end(value)
            else:
                training.text, training.restart_type = value["reset.json"], value["restartType"]
            if early:
                training.look()
        training.look()
        statuses = {entry["Status"] for entry in json.loads(training.text).get("RankList", [])}
        if not statuses & {"unrecovered", "failed"}:
            assert {pod.state for pod in training.pods.values()} <= {RUNNING}
        assert EXITED not in {pod.state for pod in training.pods.values()}
    # The first life was stopped and started by two recoveries; its pods ran when they were replaced. The third
    # recovery failed: the pod on the faulty card was replaced while its workers were down, the other one, stopped
    # with it, runs again.
    assert training.ended == [
        ("finetune-a2-worker-0", RUNNING, 3, 2),
        ("finetune-a2-worker-1", RUNNING, 3, 2),
        ("finetune-a2-worker-1", KILLED, 1, 1),
    ]
    survivor, replaced = training.pods["finetune-a2-worker-0"], training.pods["finetune-a2-worker-1"]
    assert (survivor.state, survivor.starts, survivor.kills) == (RUNNING, 2, 1)
    assert (replaced.state, replaced.starts, replaced.kills) == (RUNNING, *newest)


def test_a_taskd_manager_restarts_its_agents_once_for_each_raise(night: Night) -> None:
    training = Training()
    training.begin("finetune-a2-worker-0")
    for _, what, value in happenings(night):
        if what == "version":
            training.text = value["reset.json"]
        elif value.endswith("0"):
            getattr(training, what)(value)
        training.look()
    # A manager counts from 0, so the one of the second life takes the 2 it finds for a restart as it begins.
    assert training.taskd_restarts == [2]
    assert (training.taskd.restarts, training.taskd.retry, training.taskd.errors) == (2, 3, 0)
