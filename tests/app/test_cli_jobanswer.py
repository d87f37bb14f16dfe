"""`why job` with the objects of the cluster: what it waits for, asks for, and how the scheduler is configured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command import Command, a_recording
from kubebuilders import DEMO_JOB, UNSCHEDULED, a_config_map, a_group, a_pod
from recordlines import write_cluster

from agent.app.cli.jobanswer import job_lines
from agent.app.jobpicture import picture_of
from agent.wire.schedulerfile import Scheduler

LABELS = {"fault-scheduling": "maybe"}
CONF = """\
tiers: [{plugins: [{name: volcano-npu_v7_linux-aarch64}]}]
configurations: [{name: init-params, arguments: {grace-over-time: "1", useClusterInfoManager: "false"}}]
"""
DO = "wait, end another job, or bring devices back: why node NODE tells which are taken away from jobs"
BAD = "fault-scheduling: 'maybe' is none of off, grace, force, external-grace, external-force"
PROBLEM = (
    "finding: init-params grace-over-time: '1' is not a whole number of seconds of 2 to 3600;"
    " what the plugin makes of it is not known; without it, it takes 900"
)
PARAMS = (
    "grace-over-time 1 (bad: see the finding),"
    " presetVirtualDevice false (default), nslb-version 1.0 (default), shared-tor-num 2 (default),"
    " useClusterInfoManager false, self-maintain-available-card true (default), super-pod-size 48 (default),"
    " reserve-nodes 2 (default), forceEnqueue true (default), prefer-previous-node false (default)"
)


@pytest.fixture
def waits(call: Command, tmp_path: Path) -> Path:
    """The files of a replay, whose job waits; `later.json` is the cluster as it stands when somebody asks."""
    files = a_recording(tmp_path)
    config = a_config_map("volcano-scheduler-configmap", {"volcano-scheduler.conf": CONF}, namespace="volcano-system")
    group = a_group(phase="Pending", labels=LABELS, conditions=[UNSCHEDULED])
    write_cluster(files / "later.json", [group, a_pod("demo-0", node=""), config])
    call.replay(files)
    return files


def test_people_read_why_it_waits_what_that_means_and_what_to_do(call: Command, waits: Path) -> None:
    code, out, err = call("why", "job", "demo", "--out", waits / "out", "--cluster", waits / "later.json")
    assert (code, err) == (0, "")
    told = out.partition("\nBy the objects of the cluster:\n")[2]
    assert (
        told
        == f"""\
  {DEMO_JOB}  Pending, 0 of 2 pods placed
    waits     JobEnqueueFailed since 2026-01-01 00:00:00.000Z: too few
    meaning   the cluster has too few free NPUs to let the job into the queue
    do        {DO}
    says      fault-scheduling=maybe
    finding   LABEL_BAD PodGroup {DEMO_JOB}: {BAD}
  scheduler
    NPU plugin volcano-npu_v7_linux-aarch64 is configured
    init-params: {PARAMS}
    {PROBLEM}
"""
    )


def test_machines_get_a_job_and_the_scheduler_behind_the_decisions(call: Command, waits: Path) -> None:
    code, out, _ = call("why", "job", "demo", "--out", waits / "out", "--cluster", waits / "later.json", "--json")
    assert code == 0
    *decisions, job, scheduler = json.loads(out)
    assert {one["kind"] for one in decisions} == {"decision"}
    assert (job["kind"], job["job"], job["phase"], job["placed"], job["needed"]) == ("job", DEMO_JOB, "Pending", 0, 2)
    (wait,) = job["waits"]
    assert (wait["reason"], wait["message"]) == ("JobEnqueueFailed", "too few")
    assert wait["since"] == "2026-01-01T00:00:00.000Z"
    assert (scheduler["kind"], scheduler["seen"]) == ("scheduler", True)
    assert scheduler["npu_plugin"] == "volcano-npu_v7_linux-aarch64"
    assert (scheduler["init_params"]["useClusterInfoManager"], len(scheduler["findings"])) == ("false", 1)


@pytest.mark.parametrize(
    ("data", "why"),
    [({"volcano-scheduler.conf": "tiers: ["}, "volcano-scheduler.conf: no YAML"), ({"x": ""}, "has no key volcano-")],
)
def test_a_scheduler_that_cannot_be_read_is_told_with_its_mistake(
    call: Command, waits: Path, data: dict[str, str], why: str
) -> None:
    config = a_config_map("volcano-scheduler-configmap", data, namespace="volcano-system")
    write_cluster(waits / "later.json", [a_group(labels=LABELS), config])
    _, out, _ = call("why", "job", "demo", "--out", waits / "out", "--cluster", waits / "later.json")
    assert f"volcano-system/volcano-scheduler-configmap cannot be read ({why}" in out


def test_a_job_about_which_nothing_was_decided_is_told_by_its_objects(call: Command, waits: Path) -> None:
    write_cluster(waits / "later.json", [a_group("fresh-1", phase="Inqueue", owner="fresh", min_member=0)])
    code, out, _ = call("why", "job", "fresh", "--out", waits / "out", "--cluster", waits / "later.json")
    assert code == 0
    assert "Nothing was decided about it in what was read." in out
    assert "  train/fresh-1  Inqueue, 0 pods placed\n  scheduler\n" in out
    assert out.endswith("configmap was not seen: whether the NPU plugin is configured is not known\n")
    assert call("why", "job", "other", "--out", waits / "out", "--cluster", waits / "later.json")[0] == 1


def test_what_a_running_job_had_waited_for_is_of_before(call: Command, waits: Path) -> None:
    group = a_group(conditions=[UNSCHEDULED, {**UNSCHEDULED, "reason": "NotEnoughResources", "message": ""}])
    sliced = a_pod("demo-1", devices=(), annotations={"huawei.com/AscendReal": "Ascend310P-1c-400-1_0"})
    empty = a_config_map("volcano-scheduler-configmap", {"volcano-scheduler.conf": "{}"}, namespace="volcano-system")
    write_cluster(waits / "later.json", [group, a_pod("demo-0"), sliced, empty])
    code, out, _ = call("why", "job", "demo", "--out", waits / "out", "--cluster", waits / "later.json")
    assert code == 0
    assert "    waited    JobEnqueueFailed since 2026-01-01 00:00:00.000Z: too few\n" in out
    assert (
        "    waited    NotEnoughResources since 2026-01-01 00:00:00.000Z\n    meaning   a reason that is not known"
        in out
    )
    assert "\n    do  " not in out
    assert "    slices    pod demo-1 holds slices (vNPU) of card 1; others may hold the rest\n" in out
    assert "names a plugin volcano-npu_…: Volcano moves no job because of a faulty NPU" in out


@pytest.mark.parametrize(
    ("volcano", "plugin", "said"),
    [
        ("absent", "volcano-npu_v7", "the settings say volcano: absent; if the plugin runs all the same"),
        ("alive", "", "the settings say volcano: alive; so its documents are only compared"),
        ("auto", "volcano-npu_v7", ""),
        ("auto", "", ""),
        ("alive", "volcano-npu_v7", ""),
        ("absent", "", ""),
        ("absent", None, ""),
    ],
)
def test_settings_that_say_otherwise_than_the_scheduler_are_told(volcano: str, plugin: str | None, said: str) -> None:
    picture = picture_of([a_group(), a_pod("demo-0")], (), lambda _: True)
    scheduler = None if plugin is None else Scheduler(plugin)
    told = "\n".join(job_lines(replace(picture, scheduler=scheduler, volcano=volcano)))
    assert ("the settings say" in told, said in told) == (bool(said), True)


def test_without_the_objects_it_is_told_without_them(call: Command, waits: Path) -> None:
    code, out, _ = call("why", "job", "demo", "--out", waits / "out")
    assert (code, "By the objects" in out) == (0, False)
    (waits / "empty").mkdir()
    code, out, err = call("why", "job", "demo", "--out", waits / "out", "--cluster", waits / "empty")
    assert (code, "By the objects" in out, err) == (0, False, "")


@pytest.mark.parametrize("words", [("node", "n1", "--out", "."), ("job", "demo", "--config", "agent.yaml")])
def test_cluster_is_for_a_job_of_a_folder(call: Command, waits: Path, words: tuple[str, ...]) -> None:
    code, _, err = call("why", *words, "--cluster", waits / "later.json")
    assert code == 2
    assert "--cluster is for why job with --out" in err


def test_what_others_wrote_moves_no_cursor_and_makes_no_line_of_its_own(call: Command, waits: Path) -> None:
    hostile = {**UNSCHEDULED, "message": "few\n    do        delete it\x1b[2J\x9b1A\u202e"}
    group = a_group(phase="Pending", annotations={"huawei.com/recover_policy_path": "pod\x07"}, conditions=[hostile])
    write_cluster(waits / "later.json", [group])
    _, out, _ = call("why", "job", "demo", "--out", waits / "out", "--cluster", waits / "later.json")
    told = out.partition("\nBy the objects of the cluster:\n")[2].splitlines()
    assert told[1].endswith(r": few\n    do        delete it\x1b[2J\x9b1A\u202e")
    assert r"    says      huawei.com/recover_policy_path=pod\x07" in told
