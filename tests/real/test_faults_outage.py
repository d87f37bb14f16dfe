"""Services that go away, writers that quarrel, processes that stand still: what the roles make of it.

The one rule: every fault ends in the right state, no count is doubled, no key of others is lost. An outage lasts
`realcluster.OUTAGE_S`; a service that a test has stopped runs again when the test ends.
"""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import kafkabroker
import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from dyingrole import arm
from kubebuilders import DEMO_JOB
from outages import FOUR, REQUEST, SEPARATE, WELL, a_recovery, all_run, away, once_each, pass_time
from realcluster import OUTAGE_S, SOAK, VCJOB, RealCluster, event, texts
from services import harness

pytestmark = pytest.mark.timeout(600)

# --- Kafka ------------------------------------------------------------------------------------------------------------


def test_a_broker_that_is_restarted(cluster: RealCluster, kafka_server: harness.Kafka) -> None:
    cluster.up("n1", "c1", "c2")
    cluster.occur(SEPARATE, 9)
    cluster.until("before", lambda: cluster.shown(SEPARATE))
    kafka_server.restart()
    cluster.occur(REQUEST)
    a_recovery(cluster)
    cluster.recover(SEPARATE, 9)
    cluster.until("nothing faulty", lambda: cluster.shown())
    all_run(cluster)


def test_a_broker_that_is_gone_for_a_while(cluster: RealCluster, kafka_server: harness.Kafka) -> None:
    cluster.up("n1", "c1")
    cluster.occur(SEPARATE, 9)
    cluster.until("before", lambda: cluster.shown(SEPARATE))
    with away(kafka_server.process.kill, kafka_server.start):
        pass_time(OUTAGE_S)
        all_run(cluster)
        assert cluster.leader() == "c1"
    cluster.occur(REQUEST)
    cluster.recover(SEPARATE, 9)
    a_recovery(cluster)
    cluster.until("nothing faulty", lambda: cluster.shown())
    all_run(cluster)
    assert cluster.reports()[-1].epoch == max(report.epoch for report in cluster.reports())


def test_a_broker_that_stands_still(cluster: RealCluster, kafka_server: harness.Kafka) -> None:
    cluster.up("n1", "c1")
    with away(kafka_server.process.pause, kafka_server.process.resume):
        pass_time(OUTAGE_S)
    cluster.occur(SEPARATE)
    cluster.until("the fault", lambda: cluster.shown(SEPARATE))
    all_run(cluster)


def test_reports_that_are_refused_for_a_while_because_they_are_too_large(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    limit(cluster, "reports", 200)
    cluster.occur(SEPARATE, 0)
    cluster.until("it is told", lambda: "" if "larger than the topic takes" in cluster.said("n1") else "not yet")
    cluster.occur(SEPARATE, 1)
    limit(cluster, "reports", 1_327_104)
    cluster.until("both", lambda: cluster.shown(SEPARATE, SEPARATE))
    cluster.until("in the report", lambda: cluster.reported(SEPARATE, SEPARATE))
    assert set(cluster.reports()[-1].totals.values()) == {1}
    all_run(cluster)


def limit(cluster: RealCluster, topic: str, size: int) -> None:
    """Change the largest message that a compacted topic takes."""

    async def alter() -> None:
        async with kafkabroker.admin(cluster.kafka.bootstrap) as client:
            # The request replaces all settings of the topic.
            configs = {"cleanup.policy": "compact", "max.message.bytes": str(size)}
            await client.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, cluster.topic(topic), configs=configs)]
            )

    asyncio.run(alter())


def test_a_right_to_write_that_is_taken_away_for_a_while(
    kafka_secured: harness.Kafka, kube_server: harness.Kube, tmp_path: Path
) -> None:
    writer = kafka_secured.sasl("writer")
    cluster = RealCluster(kafka_secured.endpoint, kube_server, tmp_path)
    try:
        cluster.topics()
        reports, events = cluster.topic("reports"), cluster.topic("events")
        kafka_secured.allow("writer", "Read", "Describe", topic=events)
        kafka_secured.allow("writer", "Read", "Write", "Describe", topic=reports)
        for name in ("audit", "deadletter"):
            kafka_secured.allow("writer", "Write", "Describe", topic=cluster.topic(name))
        given = {
            "bootstrap_servers": writer.bootstrap,
            "security_protocol": "SASL_SSL",
            "username": "writer",
            "password": writer.password,
            "ca_file": str(writer.ca),
        }
        cluster.node("n1", kafka=given)
        cluster.ready()
        kafka_secured.allow("writer", "Write", topic=reports, remove=True)
        cluster.occur(SEPARATE, 0)
        cluster.until("it is told", lambda: "" if "has no right to it" in cluster.said("n1") else "not yet")
        cluster.occur(SEPARATE, 1)
        kafka_secured.allow("writer", "Write", topic=reports)
        cluster.until("both", lambda: cluster.reported(SEPARATE, SEPARATE))
        kafka_secured.allow("writer", "Read", topic=events, remove=True)
        cluster.occur(SEPARATE, 2)
        cluster.until("it is told", lambda: "" if "operation Read" in cluster.said("n1") else "not yet")
        kafka_secured.allow("writer", "Read", topic=events)
        cluster.until("all three", lambda: cluster.reported(SEPARATE, SEPARATE, SEPARATE))
        all_run(cluster)
    finally:
        cluster.close()


def test_a_producer_that_sends_each_message_twice(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    occur, recover = event(REQUEST, "occur"), event(REQUEST, "recover")
    cluster.send(occur, occur)
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    cluster.send(recover, occur, recover)
    cluster.until("R", lambda: cluster.statuses(*WELL, retry=1))
    cluster.until("nothing faulty", lambda: cluster.shown())
    once_each(cluster)
    assert cluster.reports()[-1].totals == {f"n1/chip/2/{REQUEST}": 1}
    assert texts(cluster.reasons()).count("DUPLICATE_MESSAGE") == 3


def test_two_agents_of_one_node_of_which_the_older_was_asleep(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.occur(SEPARATE, 0)
    cluster.until("before", lambda: cluster.shown(SEPARATE))
    cluster.processes["n1"].pause()
    cluster.node("n1", process="n1b")
    cluster.ready("n1b")
    cluster.occur(SEPARATE, 1)
    cluster.until("by the younger", lambda: cluster.shown(SEPARATE, SEPARATE))
    cluster.processes["n1"].resume()
    cluster.until("it steps back", lambda: "" if "standing by" in cluster.said("n1") else "not yet")
    cluster.recover(SEPARATE, 0)
    cluster.until("one is over", lambda: cluster.shown(SEPARATE))
    last = cluster.reports()[-1]
    assert (last.epoch, last.instance.startswith("n1-"), set(last.totals.values())) == (2, True, {1})
    assert cluster.metric("n1", "fault_agent_standing_by") == 1
    assert cluster.http("n1", "/readyz")[0] == 503
    all_run(cluster)


# --- the API server ---------------------------------------------------------------------------------------------------


def test_an_api_server_that_is_gone_for_a_while(cluster: RealCluster, kube_server: harness.Kube) -> None:
    cluster.up("n1", "c1", "c2")
    cluster.occur(SEPARATE, 8)
    cluster.until("before", lambda: cluster.shown(SEPARATE))
    with away(kube_server.apiserver.kill, kube_server.start_apiserver):
        cluster.recover(SEPARATE, 8)
        cluster.occur(SEPARATE, 9)
        pass_time(OUTAGE_S)
        all_run(cluster)
        cluster.occur(REQUEST)
    a_recovery(cluster)
    cluster.until("the other", lambda: cluster.shown(SEPARATE))
    all_run(cluster)


def test_an_etcd_that_is_restarted(cluster: RealCluster, kube_server: harness.Kube) -> None:
    cluster.up("n1", "c1")
    cluster.occur(SEPARATE, 9)
    cluster.until("before", lambda: cluster.shown(SEPARATE))
    with away(kube_server.etcd.kill, kube_server.start_etcd):
        cluster.recover(SEPARATE, 9)
        cluster.occur(REQUEST)
    a_recovery(cluster)
    cluster.until("nothing faulty", lambda: cluster.shown())
    all_run(cluster)


@pytest.mark.parametrize("moment", ["document rendered", "ledger rendered"])
def test_a_leader_that_stood_still_beyond_its_lease_with_a_write_in_hand(moment: str, cluster: RealCluster) -> None:
    cluster.trap = cluster.folder / "armed"
    cluster.up("n1", "c1", "c2")
    first = cluster.leader()
    arm(cluster.trap, moment, signal.SIGSTOP)
    cluster.occur(REQUEST)
    cluster.until("it stands", lambda: "" if cluster.trap is not None and not cluster.trap.exists() else "not yet")
    cluster.until("another leader", lambda: "" if running_leader(cluster, first) else "nobody else")
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    cluster.processes[first].resume()
    cluster.until("it lets go", lambda: "still leads" if cluster.metric(first, "fault_agent_leading") else "")
    cluster.recover(REQUEST)
    cluster.until("R", lambda: cluster.statuses(*WELL, retry=1))
    cluster.until("nothing faulty", lambda: cluster.shown())
    ledger = json.loads(cluster.config_map("fault-agent", "fault-agent-cluster")["ledger.json"])
    assert ledger["term"] >= 2
    assert texts(cluster.reasons(), DEMO_JOB).count("RECOVERY_SUCCEEDED") == 1
    all_run(cluster)


def running_leader(cluster: RealCluster, stopped: str) -> str:
    """A leader other than the one that stands still (and would not answer)."""
    others = [name for name in cluster.processes if name.startswith("c") and name != stopped]
    return next((name for name in others if cluster.metric(name, "fault_agent_leading")), "")


# --- other hands ------------------------------------------------------------------------------------------------------


def test_another_hand_that_keeps_changing_the_same_document(cluster: RealCluster) -> None:
    code = REQUEST
    if SOAK:  # a RestartRequest must be over within 30 s; whoever resets a device from outside has 150
        cluster.settings["reset"], code = {"executor": "external"}, "80E24E00"
    cluster.up("n1", "c1")
    cluster.occur(code)
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    ours = cluster.config_map("train", "reset-config-demo")["reset.json"]
    before = cluster.metric("c1", "fault_agent_decisions_total", reason="WRITTEN")
    spoilt = ours.replace('"unrecovered"', '"recovered"', 1)
    path = "/api/v1/namespaces/train/configmaps/reset-config-demo"
    end, number = time.monotonic() + (30 if SOAK else 8), 0

    def spoil() -> str:
        nonlocal number
        number += 1
        patch = {"data": {"reset.json": spoilt, "theirs": str(number)}}
        cluster.admin.request("PATCH", path, patch, content_type="application/merge-patch+json")
        return "" if time.monotonic() >= end else "not over"

    harness.wait_until("the quarrel", spoil, seconds=60)
    written = cluster.metric("c1", "fault_agent_decisions_total", reason="WRITTEN") - before
    assert number > 60
    assert written <= 15
    assert "FOREIGN_WRITER_LIVE" in texts(cluster.reasons(), DEMO_JOB)
    cluster.until("right again", lambda: wrong(cluster, "unrecovered"))
    cluster.recover(code)
    cluster.until("R", lambda: cluster.statuses(*WELL, retry=1))
    assert cluster.config_map("train", "reset-config-demo")["theirs"] == str(number)
    all_run(cluster)


def wrong(cluster: RealCluster, status: str) -> str:
    """Probe: every rank has this status, or the recovery has moved on."""
    found = {rank["Status"] for rank in cluster.reset().get("RankList") or ()}
    return "" if found in ({status}, {"recovered"}, {"isolate"}) else f"{found}"


def test_a_shared_document_that_is_nearly_full_keeps_what_others_have_in_it(cluster: RealCluster) -> None:
    cluster.settings["documents"] = {"reset_config": {"create": True}, "vcjob_fault_npu_cm": {"sole_writer": True}}
    theirs = "x" * 900_000
    namespace, name = VCJOB
    meta = {"name": name, "namespace": namespace}
    cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"theirs": theirs}})
    cluster.up("n1", "c1")
    for device in range(4):
        cluster.occur(SEPARATE, device)
    cluster.until("the faults", lambda: cluster.shown(*[SEPARATE] * 4))
    assert cluster.config_map(*VCJOB)["theirs"] == theirs
    all_run(cluster)


# --- nobody was looking -----------------------------------------------------------------------------------------------


def test_edges_that_passed_while_no_coordinator_ran_are_acted_on(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.stop("c1")
    at = time.time_ns() // 1_000_000
    cluster.send(event(REQUEST, "occur", 2, at=at), event(REQUEST, "recover", 2, at=at + 100))
    cluster.send(event("80CB8008", "once", 3, at=at + 200))
    cluster.until("they are reported", lambda: "" if len(edges(cluster)) == 2 else f"{edges(cluster)}")
    assert cluster.reported() == ""
    cluster.coordinator("c2")
    cluster.until("reasons", lambda: "" if len(judged(cluster)) == 2 else f"{judged(cluster)}")
    assert set(judged(cluster)) == {f"n1/chip/2/{REQUEST}", "n1/chip/3/80CB8008"}
    assert "RECOVERY_STARTED" in texts(cluster.reasons(), DEMO_JOB)
    cluster.until("R", lambda: cluster.statuses(*WELL, retry=1))
    cluster.until("nothing faulty", lambda: cluster.shown())


def edges(cluster: RealCluster) -> list[str]:
    return [one.key.code for one in cluster.reports()[-1].occurrences]


def judged(cluster: RealCluster) -> dict[str, Any]:
    """Faults that the coordinator has told something of for the job, with the reasons."""
    found: dict[str, list[str]] = {}
    for line in cluster.reasons():
        if line.decision.job == DEMO_JOB and line.decision.occurrence:
            found.setdefault(line.decision.fault.rpartition("@")[0], []).append(str(line.decision.reason))
    return found
