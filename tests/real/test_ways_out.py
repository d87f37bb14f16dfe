"""`documents diff` and `release` on services: nothing written to look, and nothing done while a coordinator leads."""

import json
from pathlib import Path

from realcluster import RealCluster

REQUEST = "80C98000"
RESET = "train/reset-config-demo"
FOUR = ("unrecovered",) * 4


def settings(cluster: RealCluster, **over: object) -> Path:
    return cluster.config(kubernetes={"kubeconfig": str(cluster.kube.endpoint.kubeconfig)}, **over)


def test_diff_shows_what_act_would_write_and_release_ends_what_act_has_begun(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.occur(REQUEST)
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    config = settings(cluster)
    code, said = cluster.run("release", "--all", "--config", str(config), "--yes", seconds=60)
    assert code == 3, said
    assert "a coordinator leads: " in said
    assert cluster.statuses(*FOUR, retry=0) == "", "refused is nothing done"

    cluster.stop("c1")
    code, said = cluster.run("release", "--job", "train/demo", "--config", str(config), seconds=60)
    assert code == 0, said
    assert f"{RESET}: would be released" in said
    assert cluster.statuses(*FOUR, retry=0) == ""
    code, said = cluster.run("release", "--all", "--config", str(config), "--yes", seconds=60)
    assert code == 0, said
    assert cluster.statuses(retry=1) == ""

    code, said = cluster.run("documents", "diff", "--config", str(settings(cluster, mode="observe")), seconds=60)
    assert code in (0, 1), said
    assert RESET not in said, "after a release nothing that began before is acted on"


def test_diff_after_observing_names_the_fault_and_writes_nothing(cluster: RealCluster) -> None:
    cluster.topics()
    cluster.the_demo()
    cluster.node("n1")
    cluster.ready()
    cluster.occur("80E18402")
    cluster.until("the fault", lambda: cluster.reported("80E18402"))
    code, said = cluster.run(
        "documents", "diff", "--config", str(settings(cluster, mode="observe")), "--json", seconds=60
    )
    assert code == 1, said
    found, _ = json.JSONDecoder().raw_decode(said)
    (vcjob,) = [one for one in found if one["document"] == "volcano-system/vcjob-fault-npu-cm"]
    assert (vcjob["mode"], vcjob["reason"]) == ("observe", "WRITTEN")
    assert [cause["fault"].partition("@")[0] for cause in vcjob["causes"] if cause["fault"]] == ["n1/chip/2/80E18402"]
    answer = cluster.admin.request("GET", "/api/v1/namespaces/volcano-system/configmaps/vcjob-fault-npu-cm")
    assert answer.status == 404
