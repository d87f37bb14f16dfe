"""`why` of the roles on services: what Kafka and the API server hold, in the answer that a folder gets."""

import json
from typing import Any

from kubebuilders import DEMO_JOB
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
