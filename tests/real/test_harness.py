"""The harness itself: what it starts is the real thing, keeps its data, and enforces rights.

The one rule: nothing of the agent is used here, so a failure is one of the services or of the harness.
"""

import json
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from services import harness, murmur2, prepare
from services.kafkaserver import metadata_missing

LIMIT = 1_048_576
"""Bytes of data that the API server takes in one ConfigMap."""


def configmap(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def namespace(kube_server: harness.Kube) -> str:
    name = fresh("test")
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert kube_server.endpoint.request("POST", "/api/v1/namespaces", made).status == 201
    return name


def test_the_java_client_puts_keyed_records_where_the_vectors_say(kafka_server: harness.Kafka) -> None:
    vectors = json.loads(murmur2.TARGET.read_text())["vectors"][::8]
    topic = fresh("keyed")
    kafka_server.create_topic(topic, partitions=6, cleanup_policy="compact")
    kafka_server.produce(topic, *((vector["key"], "x") for vector in vectors))
    found = kafka_server.consume(topic, len(vectors))
    assert sorted(found) == sorted((vector["partition"]["6"], vector["key"], "x") for vector in vectors)


def test_the_vectors_are_what_the_java_client_of_this_version_makes(kafka_server: harness.Kafka) -> None:
    assert murmur2.document(prepare.folder_of("kafka") / "lib") == murmur2.TARGET.read_text()


def test_a_broker_keeps_its_records_when_paused_killed_and_restarted(kafka_server: harness.Kafka) -> None:
    topic = fresh("kept")
    kafka_server.create_topic(topic)
    kafka_server.produce(topic, ("node-1", "before"))
    kafka_server.process.pause()
    assert metadata_missing(kafka_server.port, patience_s=0.2) == "timed out"
    kafka_server.process.resume()
    kafka_server.process.kill()
    assert "refused" in metadata_missing(kafka_server.port)
    kafka_server.start()
    kafka_server.restart()
    kafka_server.produce(topic, ("node-1", "after"))
    assert kafka_server.consume(topic, 2) == [(0, "node-1", "before"), (0, "node-1", "after")]


def test_a_user_of_the_secured_broker_may_do_what_it_was_given_until_that_is_taken_away(
    kafka_secured: harness.Kafka,
) -> None:
    topic = fresh("guarded")
    kafka_secured.create_topic(topic)
    kafka_secured.allow("guarded", "Write", "Describe", topic=topic)
    doors = [
        kafka_secured.sasl("guarded", "SCRAM-SHA-512"),
        kafka_secured.sasl("guarded", "PLAIN"),
        kafka_secured.mutual_tls("guarded"),
    ]
    for number, door in enumerate(doors):
        kafka_secured.produce(topic, ("node-1", f"{number}"), at=door)
    with pytest.raises(harness.ServiceFailedError, match="TopicAuthorizationException"):
        kafka_secured.produce(topic, ("node-1", "refused"), at=kafka_secured.mutual_tls("stranger"))
    kafka_secured.allow("guarded", "Write", topic=topic, remove=True)
    # With no right to write left at all, an idempotent producer is refused before it comes to the topic.
    with pytest.raises(harness.ServiceFailedError, match="ClusterAuthorizationException"):
        kafka_secured.produce(topic, ("node-1", "refused"), at=kafka_secured.sasl("guarded"))
    assert kafka_secured.consume(topic, 3) == [(0, "node-1", "0"), (0, "node-1", "1"), (0, "node-1", "2")]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
def test_a_wrong_password_is_refused(mechanism: Any, kafka_secured: harness.Kafka) -> None:
    door = kafka_secured.sasl("writer", mechanism, password="wrong")
    with pytest.raises(harness.ServiceFailedError, match="SaslAuthenticationException"):
        kafka_secured.produce("any", ("node-1", "x"), at=door)


def test_the_api_server_is_ready_and_of_the_pinned_version(kube: harness.KubeEndpoint) -> None:
    assert kube.request("GET", "/readyz").body == "ok"
    assert kube.request("GET", "/version").status == 200


def test_our_own_api_server_says_its_version(kube_server: harness.Kube) -> None:
    assert kube_server.endpoint.request("GET", "/version").body["gitVersion"] == "v1.34.3"
    assert json.loads(kube_server.kubectl("version", "-o", "json").stdout)["clientVersion"]["gitVersion"] == "v1.34.3"


def test_a_configmap_is_made_once_and_a_stale_version_is_a_conflict(kube_server: harness.Kube, namespace: str) -> None:
    ours, path = kube_server.endpoint, f"/api/v1/namespaces/{namespace}/configmaps"
    made = ours.request("POST", path, configmap("doc", key="1"))
    assert made.status == 201
    again = ours.request("POST", path, configmap("doc", key="1"))
    assert (again.status, again.reason) == (409, "AlreadyExists")
    second = made.body | {"data": {"key": "2"}}
    assert ours.request("PUT", f"{path}/doc", second).status == 200
    stale = ours.request("PUT", f"{path}/doc", second)
    assert (stale.status, stale.reason) == (409, "Conflict")
    assert kube_server.kubectl("get", "configmap", "doc", "-n", namespace, "-o", "jsonpath={.data.key}").stdout == "2"


@pytest.mark.parametrize(("size", "status"), [(LIMIT, 201), (LIMIT + 1, 422)], ids=["the limit", "one byte more"])
def test_a_configmap_holds_at_most_a_mebibyte(
    size: int, status: int, kube_server: harness.Kube, namespace: str
) -> None:
    answer = kube_server.endpoint.request(
        "POST", f"/api/v1/namespaces/{namespace}/configmaps", configmap("big", k="x" * size)
    )
    assert answer.status == status


def test_a_user_without_a_role_is_refused_and_with_one_may_only_what_it_says(
    kube_server: harness.Kube, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    refused = kube_server.user("reader").request("GET", path)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    kube_server.kubectl("create", "role", "read", "--verb=get,list", "--resource=configmaps", "-n", namespace)
    kube_server.kubectl("create", "rolebinding", "read", "--role=read", "--user=reader", "-n", namespace)
    harness.wait_until("the role in force", lambda: _status(kube_server.user("reader"), path, 200), seconds=10)
    assert kube_server.user("reader").request("POST", path, configmap("doc")).status == 403
    assert kube_server.user("stranger").request("GET", path).status == 403


def test_a_service_account_is_known_by_its_token_and_has_no_rights(kube_server: harness.Kube, namespace: str) -> None:
    kube_server.kubectl("create", "serviceaccount", "agent", "-n", namespace)
    answer = kube_server.service_account(namespace, "agent").request("GET", f"/api/v1/namespaces/{namespace}/pods")
    assert answer.status == 403
    assert f"system:serviceaccount:{namespace}:agent" in answer.body["message"]


def test_an_unknown_token_is_refused_and_a_foreign_authority_does_not_vouch_for_the_server(
    kube_server: harness.Kube,
) -> None:
    ours = kube_server.endpoint
    stranger = harness.KubeEndpoint(ours.kubeconfig, ours.server, ours.ca, token="unknown")
    assert stranger.request("GET", "/api/v1/namespaces").status == 401
    fooled = harness.KubeEndpoint(ours.kubeconfig, ours.server, kube_server.foreign_ca(), ours.token)
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        fooled.request("GET", "/readyz")


def test_a_podgroup_keeps_the_fields_that_the_schema_does_not_name(kube_server: harness.Kube, namespace: str) -> None:
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "demo", "labels": {"fault-scheduling": "grace"}},
        "spec": {"minMember": 2, "minResources": {"huawei.com/Ascend910": "16"}},
        "status": {"phase": "Running"},
    }
    assert kube_server.endpoint.request("POST", path, group).status == 201
    stored = kube_server.endpoint.request("GET", f"{path}/demo").body
    assert (stored["spec"], stored["status"]) == (group["spec"], group["status"])
    wrong = group | {"metadata": {"name": "wrong"}, "spec": {"minMember": "two"}}
    assert kube_server.endpoint.request("POST", path, wrong).status == 422


def test_a_pod_can_be_made_by_hand_and_bound_to_a_node(kube_server: harness.Kube, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "worker-0"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]},
    }
    made = kube_server.endpoint.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    assert (made.status, made.body["spec"]["nodeName"]) == (201, "node-1")


@pytest.mark.parametrize("end", ["api server killed", "etcd restarted", "etcd paused"])
def test_objects_are_kept_when(end: str, kube_server: harness.Kube, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    assert kube_server.endpoint.request("POST", path, configmap("kept", key="1")).status == 201
    if end == "api server killed":
        kube_server.apiserver.kill()
        with pytest.raises(OSError, match="refused"):
            kube_server.endpoint.request("GET", "/readyz")
        kube_server.start_apiserver()
    elif end == "etcd restarted":
        kube_server.etcd.stop()
        kube_server.start_etcd()
    else:
        kube_server.etcd.pause()
        kube_server.etcd.resume()
    harness.wait_until("readable", lambda: _status(kube_server.endpoint, f"{path}/kept", 200), seconds=30)
    assert kube_server.endpoint.request("GET", f"{path}/kept").body["data"] == {"key": "1"}


def test_a_version_that_etcd_forgot_is_gone_after_a_restart(kube_server: harness.Kube, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    first = kube_server.endpoint.request("POST", path, configmap("old")).body["metadata"]["resourceVersion"]
    for number in range(3):
        kube_server.endpoint.request("POST", path, configmap(f"new-{number}"))
    kube_server.compact()
    kube_server.apiserver.stop()
    kube_server.start_apiserver()
    watch = kube_server.endpoint.request("GET", f"{path}?watch=1&timeoutSeconds=5&resourceVersion={first}")
    said = watch.body if isinstance(watch.body, dict) else json.loads(str(watch.body).splitlines()[0])
    code = said["object"]["code"] if said.get("type") == "ERROR" else watch.status
    assert code == 410


def test_a_kubeconfig_gives_the_same_endpoint_back(kube_server: harness.Kube, tmp_path: Path) -> None:
    ours = kube_server.endpoint
    assert harness.endpoint_from(ours.kubeconfig, tmp_path) == ours


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing_behind(kafka_server: harness.Kafka) -> None:
    broken = harness.kafka(properties={"log.retention.bytes": "much"})
    with pytest.raises(harness.ServiceFailedError, match=r"log\.retention\.bytes"), broken:
        pass
    assert not broken.process.running
    assert not broken.process.log.parent.exists()


def test_a_span_sent_to_the_collector_is_shown_with_its_attributes(collector: harness.Collector) -> None:
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "decide",
        "kind": 1,
        "startTimeUnixNano": "1767225600000000000",
        "endTimeUnixNano": "1767225600001000000",
        "attributes": [{"key": "fault.code", "value": {"stringValue": "80E18402"}}],
    }
    body = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "agent"}, "spans": [span]}]}]}
    request = urllib.request.Request(f"{collector.http}/v1/traces", data=json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=10) as response:
        assert response.status == 200
    harness.wait_until("shown", lambda: "" if "80E18402" in collector.received() else "not yet", seconds=10)
    assert "fault.code: Str(80E18402)" in collector.received()


def _status(endpoint: harness.KubeEndpoint, path: str, wanted: int) -> str:
    try:
        answer = endpoint.request("GET", path, timeout_s=1)
    except OSError as error:
        return str(error)
    return "" if answer.status == wanted else f"{answer.status}: {answer.body}"
