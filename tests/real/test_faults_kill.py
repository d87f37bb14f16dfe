"""kill -9 of a role in the very moment that is named, and what the next one makes of it.

The one rule: every fault ends in the right state, no count is doubled, no key of others is lost; after each kill the
same process is started again, and both coordinators take turns.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dyingrole import arm
from realcluster import KILLS, RealCluster, event, nodes, one_pod_job
from services import harness

SEPARATE, REQUEST = "80E18402", "80BB8003"
"""REQUEST may occur again and again: no frequency rule counts it."""
DEVICES = 8
"""Of these the jobs have one each in turn."""
FREE = 15
"""A device that no job has."""

NODE_POINTS = ["record read", "record decided", "report due", "report sent", "report acknowledged", "letter sent"]
COORDINATOR_POINTS = [
    "report consumed",
    "ledger rendered",
    "ledger sent",
    "ledger answered",
    "document rendered",
    "document sent",
    "document answered",
    "ledger answered#2",
]


class Stage:
    """A cluster whose roles are trapped; every job and every fault on it is used once."""

    def __init__(self, cluster: RealCluster, folder: Path) -> None:
        self.cluster = cluster
        self.armed = folder / "armed"
        cluster.trap = self.armed
        self._job = 0

    def up(self) -> None:
        """Start what does not run."""
        for name in ("n1", "c1", "c2"):
            process = self.cluster.processes.get(name)
            if process is None:
                (self.cluster.node if name == "n1" else self.cluster.coordinator)(name)
            elif not process.running:
                process.kill()
                process.start()
        self.cluster.ready()
        self.cluster.led()

    def died(self) -> None:
        """Wait until the trap was sprung and its process is gone, then start that again."""
        self.cluster.until("a kill", lambda: "still armed" if self.armed.exists() else "")
        self.cluster.until(
            "its end", lambda: "all run" if all(one.running for one in self.cluster.processes.values()) else ""
        )
        self.up()

    def job(self) -> tuple[str, int]:
        """A new job with one device, and a reset-config in which others have their keys; the one before it is gone."""
        if self._job:
            self.cluster.remove("Pod", f"j{self._job - 1}-0", "train")
            self.cluster.remove("PodGroup", f"j{self._job - 1}", "train")
        number, self._job = self._job, self._job + 1
        device = number % DEVICES
        self.cluster.apply(*one_pod_job(number, device=device), config_map(f"reset-config-j{number}"))
        self.cluster.until("its ledger", lambda: self.no_ledger(number))
        return f"j{number}", device

    def no_ledger(self, number: int) -> str:
        return "" if self.cluster.config_map("train", f"fault-agent-job-j{number}") else "none yet"


def config_map(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "train", "labels": {"reset": "true"}, "annotations": {"kept": "yes"}}
    data = {"reset.json": '{"status":"initializing"}', "somebody": "else's"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


@pytest.fixture(scope="module")
def stage(
    kafka_server: harness.Kafka, kube_server: harness.Kube, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    cluster = RealCluster(kafka_server.endpoint, kube_server, folder)
    try:
        cluster.topics()
        cluster.apply(*nodes("n1"))
        cluster.count_nothing()  # twenty kills at each point would separate every device
        yield Stage(cluster, folder)
    finally:
        cluster.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("point", NODE_POINTS)
def test_a_node_role_killed_at(point: str, stage: Stage) -> None:
    stage.up()
    cluster = stage.cluster
    for _ in range(KILLS):
        before = totals(cluster)
        letters = len(set(cluster.letters()))
        key, fault = event(SEPARATE, "occur", FREE)
        bad = json.dumps({"bad": fault.decode()[8:30]}).encode()
        arm(stage.armed, point)
        cluster.send((key, bad), (key, fault))
        stage.died()
        cluster.until("the fault", lambda: cluster.shown(SEPARATE))
        cluster.recover(SEPARATE, FREE)
        cluster.until("its end", lambda: cluster.shown())
        cluster.until("it is reported", lambda: cluster.reported())
        after = totals(cluster)
        assert after - before == Counter({f"n1/chip/{FREE}/{SEPARATE}": 1})
        # At least once: a kill after the letter repeats it, and readers keep one per source.
        assert len(set(cluster.letters())) == letters + 1
        epochs = [report.epoch for report in cluster.reports()]
        assert epochs == sorted(epochs)


def totals(cluster: RealCluster) -> Counter[str]:
    reports = cluster.reports()
    return Counter(reports[-1].totals) if reports else Counter()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("point", COORDINATOR_POINTS)
def test_a_coordinator_killed_at(point: str, stage: Stage) -> None:
    cluster = stage.cluster
    for turn in range(KILLS):
        stage.up()
        name, device = stage.job()
        if turn % 2 == 0:
            arm(stage.armed, point)
        cluster.occur(REQUEST, device)
        if turn % 2 == 0:
            stage.died()
        cluster.until("U", lambda: cluster.statuses("unrecovered", retry=0, job=name))  # noqa: B023  # used in this turn
        if turn % 2 == 1:
            arm(stage.armed, point)
        cluster.recover(REQUEST, device)
        if turn % 2 == 1:
            stage.died()
        cluster.until("R", lambda: cluster.statuses("recovered", retry=1, job=name))  # noqa: B023  # used in this turn
        cluster.until("nothing faulty", lambda: cluster.shown())
        cluster.until("reasons", lambda: untold(cluster, name))  # noqa: B023  # used in this turn
        document = cluster.config_map("train", f"reset-config-{name}")
        assert document["somebody"] == "else's"
        assert document["restartType"] == "hotReset"
        retries = json.loads(cluster.config_map("volcano-system", "vcjob-fault-npu-cm")["remain-retry-times"])
        assert retries[f"train/{name}"]["Times"] == 3
        ledger = json.loads(cluster.config_map("train", f"fault-agent-job-{name}")["ledger.json"])
        assert ledger["last_recovery"] == 1


def untold(cluster: RealCluster, job: str) -> str:
    """Probe: each step of the job's recovery is in the audit, at least once and never under two occurrences."""
    lines = [line.decision for line in cluster.reasons() if line.decision.job == f"train/{job}"]
    told = {str(one.reason) for one in lines}
    started = {one.occurrence for one in lines if one.reason == "RECOVERY_STARTED"}
    missing = {"RECOVERY_STARTED", "RECOVERY_SUCCEEDED"} - told
    return f"not told: {missing}" if missing else "" if len(started) == 1 else f"started for {started}"
