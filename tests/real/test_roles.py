"""Both roles end to end: events through Kafka, documents in the API server, under the rights of deploy/ alone."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import kafkabroker
import pytest
from kubebuilders import DEMO_JOB, DEMO_UID, a_pod
from realcluster import CLUSTER, LABELS, RECORDS, VCJOB, RealCluster, event, nodes, one_pod_job, texts
from services import harness

SEPARATE, REQUEST, RESET_NPU, DOWN = "80E18402", "80C98000", "80E24E00", "2C000031"
FOUR = ("unrecovered",) * 4


def entry(**changed: Any) -> dict[str, Any]:
    """The worked case's entry of fault-node."""
    device = {
        "fault_type": "CardUnhealthy",
        "npu_name": "Ascend910-2",
        "fault_level": "SeparateNPU",
        "fault_handling": "SeparateNPU",
        "large_model_fault_level": "SeparateNPU",
        "fault_code": "80E18402",
    }
    return {
        "FaultDeviceList": [device],
        "NodeName": "n1",
        "UnhealthyNPU": ["Ascend910-2"],
        "NetworkUnhealthyNPU": None,
        "NodeDEnable": False,
        "NodeHealthState": "CardUnhealthy",
        **changed,
    }


# --- the worked case --------------------------------------------------------------------------------------------------


def test_a_card_that_must_be_separated_is_in_fault_node_and_its_pods_replacement_is_recorded(
    cluster: RealCluster,
) -> None:
    cluster.up("n1", "n2", "c1")
    retries = {DEMO_JOB: {"UUID": DEMO_UID, "Times": 3}}
    cluster.until("the job", lambda: "" if retries_of(cluster) == retries else f"{retries_of(cluster)}")
    at = time.time_ns() // 1_000_000
    cluster.occur(SEPARATE, at=at)
    cluster.until("the fault", lambda: cluster.shown(SEPARATE))
    shown = cluster.fault_nodes()["n1"]
    assert abs(shown.pop("UpdateTime") - at // 1000) <= 10
    assert shown == entry()
    assert retries_of(cluster) == retries
    assert cluster.reset() == {}
    assert cluster.config_map(*RECORDS) == {}

    cluster.remove("Pod", "demo-0", "train")
    cluster.apply(*nodes("n3")[:1], a_pod("demo-0", node="n3", rank_index=0, labels=LABELS, host_ip="10.0.0.3"))
    cluster.until("the record", lambda: "" if cluster.config_map(*RECORDS) else "none")
    (found,) = json.loads(cluster.config_map(*RECORDS)["recent-reschedule-records"]).values()
    assert (found["JobID"], found["TotalRescheduleTimes"]) == (DEMO_JOB, 1)
    (record,) = found["RescheduleRecords"]
    (task,) = record["ReasonOfTask"]
    assert (task["RescheduleReason"], task["NodeRankIndex"]) == ("CardUnhealthy", "0")


def retries_of(cluster: RealCluster) -> Any:
    return json.loads(cluster.config_map(*VCJOB).get("remain-retry-times") or "{}")


def test_a_request_to_restart_is_driven_through_reset_json_and_raises_the_retry_once(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.occur(REQUEST)
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    written = cluster.reset()
    assert [rank["RankId"] for rank in written["RankList"]] == [0, 1, 2, 3]
    assert written["RankList"][2] == {
        "RankId": 2,
        "LogicId": 2,
        "Status": "unrecovered",
        "Policy": "restart_request",
        "InitialPolicy": "restart_request",
        "ErrorCode": [2160689152],
        "ErrorCodeHex": "80C98000",
        "RecoveryId": 1,
    }
    assert cluster.config_map("train", "reset-config-demo")["restartType"] == "hotReset"
    cluster.recover(REQUEST)
    cluster.until("R", lambda: cluster.statuses(*("recovered",) * 4, retry=1))
    cluster.until("nothing faulty", lambda: cluster.shown())


def test_a_reset_that_nobody_would_carry_out_is_not_asked_for(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.occur(RESET_NPU)
    cluster.until("the reason", lambda: "" if "NO_RESET_EXECUTOR" in texts(cluster.reasons(), DEMO_JOB) else "none")
    assert cluster.reset() == {}
    assert cluster.shown(RESET_NPU) == ""


def test_each_decision_is_one_event_beside_the_pod_or_node_that_it_concerns(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.occur(REQUEST)
    cluster.occur(SEPARATE, 9)
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    cluster.until("the event of a node", lambda: "" if cluster.events("default") else "none")
    cluster.stop("c1")
    cluster.coordinator("c2")
    cluster.led()
    cluster.recover(REQUEST)
    cluster.until("R", lambda: cluster.statuses(*("recovered",) * 4, retry=1))
    cluster.until("both", lambda: "" if len(cluster.events("train")) >= 2 else "one")
    uid = cluster.admin.request("GET", "/api/v1/namespaces/train/pods/demo-0").body["metadata"]["uid"]
    told = {(one["reason"], one["type"]): one for one in cluster.events("train")}
    assert set(told) == {("RecoveryStarted", "Warning"), ("RecoverySucceeded", "Normal")}
    assert len(cluster.events("train")) == 2
    for one in told.values():
        assert (one["regarding"]["kind"], one["regarding"]["name"], one["regarding"]["uid"]) == ("Pod", "demo-0", uid)
        assert one["reportingController"] == "fault-agent"
    (node,) = cluster.events("default")
    assert (node["regarding"]["kind"], node["regarding"]["name"], node["reason"]) == ("Node", "n1", "NoJob")


# --- observe ----------------------------------------------------------------------------------------------------------


def test_observe_is_the_default_and_writes_nothing_but_the_lease_and_words_for_people(cluster: RealCluster) -> None:
    del cluster.settings["mode"]
    cluster.take("shared-documents", "jobs-in-namespace")
    cluster.up("n1", "c1")
    cluster.occur(REQUEST)
    cluster.until("the reason", lambda: "" if "OBSERVE" in texts(cluster.reasons(), DEMO_JOB) else "none")
    for namespace in ("train", "fault-agent", VCJOB[0], RECORDS[0]):
        listing = cluster.admin.request("GET", f"/api/v1/namespaces/{namespace}/configmaps").body
        assert listing["items"] == [], namespace
    cluster.until("an event", lambda: "" if cluster.events("train") else "none")
    assert all("(observe)" in one["note"] for one in cluster.events("train"))
    assert not any("403" in cluster.said(name) or "no right" in cluster.said(name) for name in cluster.processes)


# --- who is not there -------------------------------------------------------------------------------------------------


def test_a_node_that_goes_down_with_its_agent_is_shown_and_the_returning_agent_changes_nothing_twice(
    cluster: RealCluster,
) -> None:
    cluster.up("n1", "n2", "c1")
    cluster.processes["n1"].kill()
    down: dict[str, Any] = {"resource": "ipmi", "location": {"deviceType": "BMC", "deviceId": "1"}}
    cluster.occur(DOWN, None, **down)
    cluster.occur(REQUEST, 1)
    cluster.until("the node", lambda: "" if "n1" in cluster.fault_nodes() else "not in fault-node")
    cluster.until("the card", lambda: cluster.shown(REQUEST))
    assert cluster.fault_nodes()["n1"]["NodeHealthState"] == "NodeUnhealthy"
    cluster.until("reasons", lambda: "" if len(cluster.reasons()) >= 4 else "few")
    told, version = told_once(cluster), cluster.version(*VCJOB)
    cluster.processes.pop("n1")
    cluster.node("n1")
    cluster.ready()
    cluster.until("its report", lambda: cluster.reported(REQUEST, DOWN))
    cluster.occur(SEPARATE, 0, "n2")
    cluster.until("another node", lambda: cluster.shown(SEPARATE, node="n2"))
    assert cluster.fault_nodes()["n1"]["NodeHealthState"] == "NodeUnhealthy"
    assert {one: count for one, count in told_once(cluster).items() if not one.startswith("n2/")} == told
    assert version != cluster.version(*VCJOB)
    cluster.recover(DOWN, None, **down)
    cluster.recover(REQUEST, 1)
    cluster.until("nothing on n1", lambda: "" if "n1" not in cluster.fault_nodes() else "still there")


def told_once(cluster: RealCluster) -> dict[str, int]:
    """How often the coordinator has told each reason of each occurrence."""
    found: dict[str, int] = {}
    for line in cluster.reasons():
        one = line.decision
        if one.job or one.reason == "NO_JOB":
            key = f"{one.fault} {one.reason} {one.job}"
            found[key] = found.get(key, 0) + 1
    return found


def test_the_standby_takes_over_from_a_leader_that_was_killed(cluster: RealCluster) -> None:
    cluster.up("n1", "c1", "c2")
    first = cluster.leader()
    cluster.occur(REQUEST)
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    cluster.processes[first].kill()
    cluster.recover(REQUEST)
    cluster.until("another leader", lambda: "" if cluster.leader() not in ("", first) else "nobody else")
    cluster.until("R", lambda: cluster.statuses(*("recovered",) * 4, retry=1))
    ledger = json.loads(cluster.config_map("fault-agent", "fault-agent-cluster")["ledger.json"])
    assert ledger["term"] == 2


def test_a_leader_that_ends_in_order_is_followed_at_once_and_all_end_with_zero(cluster: RealCluster) -> None:
    cluster.up("n1", "c1", "c2")
    first = cluster.leader()
    process = cluster.processes[first]
    process.stop()
    cluster.until("another leader", lambda: "" if cluster.leader() not in ("", first) else "nobody else")
    assert "lease: released (term 1)" in cluster.said(first)
    assert not any("Traceback" in cluster.said(name) for name in cluster.processes)


def test_two_clusters_on_one_topic_do_not_act_on_each_other(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.node("n2", cluster={"id": "other"})
    cluster.ready("n2")
    cluster.occur(SEPARATE, 2, "n2")
    cluster.until("it is read", lambda: cluster.reported(SEPARATE, node="n2"))
    cluster.occur(SEPARATE, 2, "n1")
    cluster.until("ours", lambda: cluster.shown(SEPARATE))
    assert "n2" not in cluster.fault_nodes()
    assert "belongs to cluster 'other' and is ignored" in cluster.said("c1")
    stranger = cluster.config(cluster={"id": CLUSTER}, node={"name": "n2"}, http={"port": 0})
    code, said = cluster.run("run", "--role", "node", "--config", str(stranger))
    assert code == 3
    assert "reports of n2 belong to cluster 'other', this agent to 'test'" in said


# --- records that nobody can use --------------------------------------------------------------------------------------


def test_dead_letters_are_listed_shown_and_sent_again_under_a_new_id(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    key, fault = event(SEPARATE, "occur")
    cluster.send((key, fault.replace(b'"version": "1.0"', b'"version": "9.9"')), (None, b"{}"), ("nx", fault))
    cluster.until("three letters", lambda: "" if len(cluster.letters()) == 3 else f"{len(cluster.letters())}")
    config = str(cluster.config())
    code, said = cluster.run("deadletter", "list", "--config", config, "--json")
    assert code == 0
    letters = {letter["reason"]: letter for letter in json.loads(said)}
    assert set(letters) == {"VERSION_UNSUPPORTED", "KEY_MISSING", "NODE_UNKNOWN"}
    source = letters["VERSION_UNSUPPORTED"]["source"]
    code, said = cluster.run("deadletter", "show", source, "--config", config)
    assert (code, '"version": "9.9"' in said, "version" in letters["VERSION_UNSUPPORTED"]["detail"]) == (0, True, True)
    code, said = cluster.run("deadletter", "requeue", source, "--config", config)
    assert (code, said) == (0, "1 sent again\n")
    cluster.until("it died again", lambda: "" if len(cluster.letters()) == 4 else f"{len(cluster.letters())}")
    assert len(set(cluster.letters())) == 4
    code, said = cluster.run("deadletter", "show", "9:9:9", "--config", config)
    assert code == 2
    assert "no dead letter has the source '9:9:9'" in said


def test_records_as_large_as_the_topic_takes_cost_themselves_and_nothing_else(cluster: RealCluster) -> None:
    cluster.up("n1")
    key, fault = event(SEPARATE, "occur")
    cluster.send((key, b"x" * 1_320_000))
    cluster.send((key, b"no json"), headers=[("theirs", b"y" * 1_310_000)])
    cluster.send((key, fault))
    cluster.until("the fault", lambda: cluster.reported(SEPARATE))
    long, headed = cluster.letters()
    assert long is not None
    assert 1_300_000 < len(long) < 1_310_720
    assert headed == b"no json"
    code, said = cluster.run("deadletter", "list", "--config", str(cluster.config()), "--json")
    assert (code, [one["reason"] for one in json.loads(said)]) == (0, ["TOO_LARGE", "NOT_JSON"])


# --- the stream is not what it was ------------------------------------------------------------------------------------


def test_partitions_that_are_added_are_read_too(cluster: RealCluster) -> None:
    cluster.topics(partitions=1)
    cluster.the_demo()
    for name in ("n1", "n2"):
        cluster.node(name)
    cluster.coordinator("c1")
    cluster.ready()
    cluster.led()
    cluster.occur(SEPARATE, 0)
    cluster.until("before", lambda: cluster.shown(SEPARATE))
    asyncio.run(kafkabroker.grow(cluster.kafka.bootstrap, cluster.topic("events"), 4))
    for name in ("n1", "n2"):
        cluster.until("noticed", lambda name=name: "" if "has 4 partitions now" in cluster.said(name) else "no")  # type: ignore[misc]  # bound now
    cluster.occur(SEPARATE, 1)
    cluster.occur(SEPARATE, 1, "n2")
    cluster.until("on n1", lambda: cluster.shown(SEPARATE, SEPARATE))
    cluster.until("on n2", lambda: cluster.shown(SEPARATE, node="n2"))
    assert cluster.letters() == []


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.occur(SEPARATE, 0)
    cluster.until("before", lambda: cluster.shown(SEPARATE))
    topic, bootstrap = cluster.topic("events"), cluster.kafka.bootstrap
    asyncio.run(kafkabroker.delete(bootstrap, topic))
    asyncio.run(kafkabroker.make(bootstrap, topic, 2))
    cluster.until("noticed", lambda: "" if "was made anew" in cluster.said("n1") else "no")
    cluster.occur(SEPARATE, 1)
    cluster.until("after", lambda: cluster.shown(SEPARATE, SEPARATE))
    assert {one.id.split(":")[0] for one in cluster.reports()[-1].occurrences} == {"0", "1"}


# --- rights and settings ----------------------------------------------------------------------------------------------


def test_a_job_in_a_namespace_without_rights_waits_alone(cluster: RealCluster) -> None:
    cluster.up("n1", "c1")
    cluster.apply(*one_pod_job(7, namespace="closed"))
    cluster.until("refused", lambda: "" if "DOCUMENT_REFUSED" in texts(cluster.reasons(), "closed/j7") else "not yet")
    cluster.occur(REQUEST, 7)
    cluster.occur(REQUEST, 2)
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    listing = cluster.admin.request("GET", "/api/v1/namespaces/closed/configmaps").body
    assert listing["items"] == []
    (line,) = [one.decision for one in cluster.reasons() if one.decision.reason == "DOCUMENT_REFUSED"]
    assert line.document == "closed/fault-agent-job-j7"
    assert "is forbidden" in line.detail or "no right" in line.detail
    assert cluster.leader() == "c1"
    cluster.until("its Event", lambda: "" if cluster.events("closed") else "none")
    told = [(one["regarding"]["kind"], one["reason"]) for one in cluster.events("closed")]
    assert told == [("PodGroup", "DocumentRefused")]


WRONG = [
    pytest.param({"kafka": {"prefix": "no.such"}}, "there is no topic no.such.reports.v1", 3, id="no such topic"),
    pytest.param(
        {"kafka": {"report_partitions": 64}}, "has 2 partitions and reports are spread over 64", 3, id="count"
    ),
    pytest.param({"kafka": {"bootstrap_servers": "no.such.host.invalid:1"}}, "unknown host", 3, id="no such host"),
    pytest.param({"kafak": {}}, "kafak: no such setting; did you mean kafka?", 2, id="misspelt setting"),
]


@pytest.mark.parametrize("role", ["node", "coordinator"])
@pytest.mark.parametrize(("over", "said", "code"), WRONG)
def test_what_is_wrong_at_the_start_is_said_within_seconds(
    role: str, over: dict[str, Any], said: str, code: int, cluster: RealCluster
) -> None:
    cluster.topics()
    account = cluster.kube.service_account("fault-agent", "fault-agent-coordinator")
    kubernetes = {"kubeconfig": str(account.kubeconfig)}
    config = cluster.config(**{"kubernetes": kubernetes, "node": {"name": "n1"}, **over})
    ended, text = cluster.run("run", "--role", role, "--config", str(config))
    assert said in text
    assert ended == code
    assert "Traceback" not in text


def test_reports_that_would_not_be_kept_are_refused_with_what_mends_it(cluster: RealCluster) -> None:
    cluster.topics()
    topic, bootstrap = cluster.topic("reports"), cluster.kafka.bootstrap
    asyncio.run(kafkabroker.delete(bootstrap, topic))
    asyncio.run(kafkabroker.make(bootstrap, topic, 2, cleanup_policy="delete"))
    config = str(cluster.config(node={"name": "n1"}))
    code, said = cluster.run("run", "--role", "node", "--config", config)
    assert code == 3
    assert f"topic {topic}: cleanup.policy is delete and has to be compact" in said
    assert f"kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config" in said
    code, said = cluster.run("topics", "check", "--config", config, "--event-partitions", "2")
    assert (code, "cleanup.policy is delete" in said) == (1, True)


def test_the_api_servers_wrong_certificate_and_wrong_token_are_said(cluster: RealCluster, tmp_path: Path) -> None:
    cluster.topics()
    account = cluster.kube.service_account("fault-agent", "fault-agent-coordinator")
    text = account.kubeconfig.read_text()
    foreign = tmp_path / "foreign.kubeconfig"
    foreign.write_text(text.replace(str(account.ca), str(cluster.kube.foreign_ca())))
    stranger = tmp_path / "stranger.kubeconfig"
    stranger.write_text(text.replace(account.token, "wrong"))
    for path, what in ((foreign, "TLS with"), (stranger, "401"), (tmp_path / "missing", "missing")):
        config = cluster.config(kubernetes={"kubeconfig": str(path)})
        code, said = cluster.run("run", "--role", "coordinator", "--config", str(config))
        assert code in (2, 3), said
        assert what in said
        assert "Traceback" not in said


def test_wrong_password_wrong_authority_and_missing_right_at_the_broker_are_said(
    cluster: RealCluster, kafka_secured: harness.Kafka
) -> None:
    right = kafka_secured.sasl("stranger")
    given = {
        "bootstrap_servers": right.bootstrap,
        "security_protocol": "SASL_SSL",
        "username": "stranger",
        "password": right.password,
        "ca_file": str(right.ca),
    }
    cases: list[tuple[dict[str, str], str]] = [
        ({"password": "sesame"}, "authentication failed for user stranger"),
        ({"ca_file": str(kafka_secured.foreign_ca())}, "the broker's certificate is not trusted"),
        ({"ca_file": "/no/such/file"}, "/no/such/file"),
        ({}, "user stranger has no right to it"),
    ]
    kafka_secured.create_topic("secured.reports.v1", cleanup_policy="compact")
    for over, what in cases:
        kafka = {**given, "prefix": "secured", "report_partitions": 1, **over}
        config = cluster.config(kafka=kafka, node={"name": "n1"})
        code, said = cluster.run("run", "--role", "node", "--config", str(config))
        assert code in (2, 3), said
        assert what in said
        assert "sesame" not in said
        assert "Traceback" not in said


def test_a_broker_that_is_not_there_yet_is_waited_for_and_readiness_says_so(cluster: RealCluster) -> None:
    nobody = {"bootstrap_servers": "127.0.0.1:1"}
    cluster.node("n1", kafka=nobody)
    cluster.coordinator("c1", kafka=nobody)
    cluster.node("n2", kafka={"security_protocol": "SSL"})
    cluster.until("said", lambda: "" if "does that port speak TLS?" in cluster.said("n2") else "not yet")
    for name, what in (("n1", "not caught up"), ("c1", "not reached yet")):
        cluster.until("said", lambda name=name: "" if "nobody listens there" in cluster.said(name) else "not yet")  # type: ignore[misc]  # bound now
        assert cluster.http(name, "/livez") == (200, "ok\n")
        status, text = cluster.http(name, "/readyz")
        assert (status, what in text) == (503, True)
        assert cluster.http(name, "/metrics")[0] == 200
    cluster.stop()
