"""`why` of the roles on services: what Kafka and the API server hold, in the answer that a folder gets."""

import json
from typing import Any

from kubebuilders import DEMO_JOB, UNSCHEDULED, a_config_map, a_group, a_pod
from realcluster import RealCluster

REQUEST, LINK = "80C98000", "81078603"
FOUR = ("unrecovered",) * 4


def asked(cluster: RealCluster, *words: str, kubeconfig: str = "") -> tuple[int, str]:
    """Exit code, and all that was said."""
    config = cluster.config(kubernetes={"kubeconfig": kubeconfig or str(cluster.kube.endpoint.kubeconfig)})
    return cluster.run("why", *words, "--config", str(config))


def decided(said: str) -> list[dict[str, Any]]:
    """Decisions, letters and rules of --json, behind which what is said on standard error stands."""
    found, _ = json.JSONDecoder().raw_decode(said)
    assert isinstance(found, list)
    return [one for one in found if one["kind"] not in ("job", "scheduler")]


def test_why_reads_the_audit_the_reports_the_dead_letters_and_the_ledgers(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.occur(REQUEST)
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    cluster.send(("n1", b"no json"))
    cluster.until("the letter", lambda: "" if cluster.letters() else "none")

    code, said = asked(cluster, "job", "demo", "--json")
    assert code == 0
    (started,) = [one for one in decided(said) if one["reason"] == "RECOVERY_STARTED"]
    assert (started["job"], started["node"], started["active"]) == (DEMO_JOB, "n1", True)
    (written,) = [
        one for one in decided(said) if one["document"] == "train/reset-config-demo" and one["reason"] == "WRITTEN"
    ]
    assert written["causes"] == [{"fault": started["fault"], "job": DEMO_JOB}]
    assert "fault-agent: decisions since 20" in said

    code, said = asked(cluster, "job", "demo")
    assert code == 0
    now = said.partition("\nNow:\n")[2]
    assert f"  active   {started['fault']}  RestartRequest\n" in now
    assert f"  pending  {DEMO_JOB}  recovery 1 by restart_request: unrecovered until " in now

    code, said = asked(cluster, "node", "n1")
    assert code == 0
    assert "  DEAD_LETTER  NOT_JSON  0:" in said
    assert "  report   n1: of 20" in said
    code, said = asked(cluster, "document", "vcjob-fault-npu-cm", "--json")
    assert started["fault"] in {cause["fault"] for one in decided(said) for cause in one["causes"]}

    code, said = asked(cluster, "fault", "n9/chip/1/80E18402")
    assert code == 1
    assert f"known here:\n  {started['fault']}\n" in said


SCHEDULER = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: volcano-npu_v7_linux-aarch64
configurations:
- name: init-params
  arguments: {"grace-over-time": "1", "super-pod-size": "16"}
"""
PARAMS = (
    "grace-over-time 1 (bad: see the finding), presetVirtualDevice false (default), nslb-version 1.0 (default),"
    " shared-tor-num 2 (default), useClusterInfoManager true (default), self-maintain-available-card true (default),"
    " super-pod-size 16, reserve-nodes 2 (default), forceEnqueue true (default), prefer-previous-node false (default)"
)


def test_why_a_job_tells_what_it_waits_for_and_how_the_scheduler_is_configured(cluster: RealCluster) -> None:
    cluster.topics()
    labels = {"fault-scheduling": "maybe"}
    waiting = a_group(phase="Pending", labels=labels, conditions=[UNSCHEDULED])
    other = a_group("other", owner="other", owner_uid="another", phase="Inqueue", conditions=[])
    cluster.apply(waiting, other, a_pod("demo-0", node=""))

    code, said = asked(cluster, "job", "demo")
    assert code == 0, "of a job of which nothing was decided its objects tell"
    told = said.partition("\nBy the objects of the cluster:\n")[2]
    assert f"  {DEMO_JOB}  Pending, 0 of 2 pods placed\n    waits     JobEnqueueFailed since 2026-01-01 " in told
    assert "    meaning   the cluster has too few free NPUs to let the job into the queue\n" in told
    assert f"    finding   LABEL_BAD PodGroup {DEMO_JOB}: fault-scheduling: 'maybe' is none of off, grace, " in told
    place = "volcano-system/volcano-scheduler-configmap"
    assert f"    {place} was not seen: whether the NPU plugin is configured is not known\n" in told
    assert "train/other" not in told.partition("\n  scheduler\n")[0]

    data = {"volcano-scheduler.conf": SCHEDULER}
    cluster.apply(a_config_map("volcano-scheduler-configmap", data, namespace="volcano-system"))
    code, said = asked(cluster, "job", "demo")
    assert f"    NPU plugin volcano-npu_v7_linux-aarch64 is configured\n    init-params: {PARAMS}\n" in said
    assert "    finding: init-params grace-over-time: '1' is not a whole number of seconds of 2 to 3600;" in said

    code, said = asked(cluster, "job", "demo", "--json")
    *_, job, scheduler = json.JSONDecoder().raw_decode(said)[0]
    assert (job["kind"], job["job"], job["phase"], job["placed"], job["needed"]) == ("job", DEMO_JOB, "Pending", 0, 2)
    assert [(one["reason"], one["since"]) for one in job["waits"]] == [("JobEnqueueFailed", "2026-01-01T00:00:00.000Z")]
    assert job["says"] == labels
    assert (scheduler["kind"], scheduler["seen"], scheduler["npu_plugin"]) == (
        "scheduler",
        True,
        "volcano-npu_v7_linux-aarch64",
    )
    assert (scheduler["init_params"]["super-pod-size"], scheduler["init_params"]["grace-over-time"]) == ("16", "1")
    (problem,) = scheduler["findings"]
    assert problem.startswith("init-params grace-over-time: '1' is not a whole number of seconds of 2 to 3600")


def test_why_a_fault_ends_with_what_each_rule_has_counted(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.occur(LINK, 3, resource="hccn")
    cluster.until("the link", lambda: cluster.reported(LINK))
    code, said = asked(cluster, "fault", f"n1/network/3/{LINK}")
    assert code == 0
    rules = said.partition("\nRules, as of ")[2]
    assert f"  n1/network/3/{LINK}\n    chip-table, chip.yaml:" in rules
    assert f"    duration:{LINK}, rules.yaml:" in rules
    assert " of 20 s; PreSeparateNPU if still down after 20" in rules


def test_without_the_api_server_and_beyond_its_bounds_why_says_what_is_missing(cluster: RealCluster) -> None:
    cluster.up("n1")
    cluster.occur(REQUEST)
    cluster.until("the fault", lambda: cluster.reported(REQUEST))
    cluster.until("its reason", lambda: "" if cluster.reasons() else "none")
    nowhere = str(cluster.folder / "nowhere.kubeconfig")

    code, said = asked(cluster, "node", "n1", kubeconfig=nowhere)
    assert code == 0
    assert "  FAULT_SHOWN  RestartRequest  n1/chip/2/80C98000@" in said
    assert f"fault-agent: ledgers cannot be read: {nowhere}: no such kubeconfig" in said

    cluster.occur(LINK, 3, resource="hccn")
    cluster.until("the second", lambda: cluster.reported(REQUEST, LINK))
    cluster.until("its reason", lambda: "" if len(cluster.reasons()) > 1 else "one")
    code, said = asked(cluster, "node", "n1", "--last", "1", "--json", kubeconfig=nowhere)
    assert [one["fault"].partition("@")[0] for one in decided(said)] == [f"n1/network/3/{LINK}"]
    code, said = asked(cluster, "node", "n1", "--since", "1h", "--json", kubeconfig=nowhere)
    assert len(decided(said)) == 2
    code, said = asked(cluster, "node", "n1", "--since", "0s", kubeconfig=nowhere)
    assert code == 0
    assert "Nothing was decided about it in what was read." in said
    assert "no decision was there to read" in said
