"""`ranktable env`: variables as HCCL reads them, and two verdicts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from agent.app.cli.ranktableenv import env_command
from agent.errors import BadUsage

POD = """apiVersion: v1
kind: Pod
metadata:
  name: p{n}
  namespace: train
  uid: u{n}
  annotations:
    scheduling.k8s.io/group-name: {group}
    huawei.com/AscendReal: Ascend910-0,Ascend910-1
spec:
  nodeName: n{n}
  containers:
  - name: main
    command: {command}
    env:
    - {{name: HCCL_OP_RETRY_ENABLE, value: "{levels}"}}
status: {{phase: Running}}
"""


def pods(folder: Path, *levels: str, groups: str = "aaaa", command: str = "[python, train.py]") -> Path:
    path = folder / "pods.yaml"
    texts = [
        POD.format(n=n, levels=some, group=group, command=command)
        for n, (some, group) in enumerate(zip(levels, groups, strict=False))
    ]
    path.write_text("---\n".join(texts), encoding="utf-8")
    return path


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(env_command, [str(word) for word in words])


def test_a_file_is_told_variable_by_variable(tmp_path: Path) -> None:
    path = tmp_path / "job.env"
    path.write_text("HCCL_OP_RETRY_ENABLE=L0:0, L1:1, L2:1\nHCCL_OP_EXPANSION_MODE=HOST\nHCCL_RDMA_TIMEOUT=30\n")
    result = run("--env", path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:12] == [
        str(path),
        "  HCCL_OP_RETRY_ENABLE       L1:1, L2:1 (L0 has no effect)",
        "  HCCL_OP_RETRY_PARAMS       unset: MaxCnt:1, HoldTime:5000, IntervalTime:1000",
        "  HCCL_OP_EXPANSION_MODE     HOST",
        "  HCCL_RDMA_TIMEOUT          invalid: 30 is outside 5 to 20",
        "  HCCL_RDMA_RETRY_CNT        unset: 7",
        "  HCCL_CONNECT_TIMEOUT       unset: 120 s",
        "  HCCL_INTER_HCCS_DISABLE    unset: FALSE",
        "  ASCEND_RT_VISIBLE_DEVICES  unset: all of the container's",
        "  retry                      yes: L1 (servers) and L2 (super-pods) on",
        "  borrow                     no: HCCL_OP_EXPANSION_MODE is HOST, not the AI CPU",
        "  flap threshold             30000.0 ms (assumed: HCCL_RDMA_TIMEOUT not known)",
    ]


def test_what_differs_between_pods_of_a_job_is_told_and_between_jobs_not(tmp_path: Path) -> None:
    differs = run("--cluster", pods(tmp_path, "L2:1", "L2:0")).stdout
    assert (
        "train/a differs: HCCL_OP_RETRY_ENABLE: L1:0, L2:1 (1: Pod train/p0); L1:0, L2:0 (1: Pod train/p1)" in differs
    )
    assert "differs" not in run("--cluster", pods(tmp_path, "L2:1", "L2:0", groups="ab")).stdout


def test_what_a_script_may_set_is_unknown(tmp_path: Path) -> None:
    result = run("--cluster", pods(tmp_path, "L2:1", command="[bash, train.sh]"), "--json")
    (answer,) = json.loads(result.stdout)
    assert answer["of"] == "Pod train/p0"
    assert answer["variables"]["HCCL_OP_RETRY_ENABLE"] == {
        "sight": "known",
        "value": "L1:0, L2:1",
        "default": "L1:0, L2:0",
        "problem": None,
    }
    assert answer["variables"]["HCCL_OP_EXPANSION_MODE"]["sight"] == "unknown"
    assert {what: one["answer"] for what, one in answer["verdicts"].items()} == {"retry": "yes", "borrow": "unknown"}


@pytest.mark.parametrize(("cann", "answer"), [("8.2.RC1", "no"), ("8.3.RC1", "yes")])
def test_the_default_of_retry_hangs_on_cann(tmp_path: Path, cann: str, answer: str) -> None:
    path = tmp_path / "job.env"
    path.write_text("PATH=/bin\n")
    (told,) = json.loads(run("--env", path, "--cann", cann, "--json").stdout)
    assert told["verdicts"]["retry"]["answer"] == answer


def test_a_version_that_is_none_is_wrong_use(tmp_path: Path) -> None:
    result = run("--cluster", pods(tmp_path, "L1:1"), "--cann", "newest")
    assert result.exit_code == 1
    assert str(result.exception) == "--cann 'newest' is no version (such as 8.3.RC1)"


def test_exactly_one_environment_is_asked_for(tmp_path: Path) -> None:
    assert isinstance(run().exception, BadUsage)
    assert isinstance(run("--env", tmp_path, "--cluster", tmp_path).exception, BadUsage)
    path = tmp_path / "none.yaml"
    path.write_text("kind: Node\napiVersion: v1\nmetadata: {name: a}\n")
    assert isinstance(run("--cluster", path).exception, BadUsage)


GROUP = """apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  name: a
  namespace: train
  annotations:
    fault-agent/hccl-env: {stated}
    fault-agent/cann-version: 8.3.RC1
"""


def stated(folder: Path, text: str) -> Path:
    path = pods(folder, "L2:1", command='["bash", "train.sh"]')
    path.write_text(f"{path.read_text(encoding='utf-8')}---\n{GROUP.format(stated=text)}", encoding="utf-8")
    return path


def test_what_a_job_states_of_its_processes_is_told_after_what_its_pods_show(tmp_path: Path) -> None:
    path = stated(tmp_path, "HCCL_OP_RETRY_ENABLE=L1:1;HCCL_RDMA_TIMEOUT=18")
    (told,) = json.loads(run("--cluster", path, "--json").stdout)
    variables = told["variables"]
    assert variables["HCCL_OP_RETRY_ENABLE"]["value"] == "L1:0, L2:1"
    assert variables["HCCL_OP_RETRY_ENABLE"]["default"] == "L1:1, L2:0"
    assert variables["HCCL_RDMA_TIMEOUT"]["value"] == "18"
    assert variables["HCCL_OP_EXPANSION_MODE"]["sight"] == "unset"
    assert told["verdicts"]["borrow"]["answer"] == "yes"


def test_a_statement_that_cannot_be_read_is_told_and_states_nothing(tmp_path: Path) -> None:
    result = run("--cluster", stated(tmp_path, "HCCL_RDMA_TIMOUT=18"), "--json")
    assert "PodGroup train/a: fault-agent/hccl-env: 'HCCL_RDMA_TIMOUT' is no variable of it" in result.stderr
    (told,) = json.loads(result.stdout)
    assert told["variables"]["HCCL_OP_EXPANSION_MODE"]["sight"] == "unknown"
