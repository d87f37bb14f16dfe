"""The deploy files on a real API server: it takes every object, and gives exactly the rights that are meant.

The one rule: a right is asked of the server (its authoriser, or the request itself), never read out of the files.

The server is one of our own for this room alone: rights that another test gives must not be seen here.
"""

import base64
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from services import harness

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COORDINATOR = "system:serviceaccount:fault-agent:fault-agent-coordinator"
NODE = "system:serviceaccount:fault-agent:fault-agent-node"
GROUPS = ["system:serviceaccounts", "system:serviceaccounts:fault-agent", "system:authenticated"]
WORKLOADS = ("DaemonSet", "Deployment")
APPLY = ("apply", "--server-side", "--field-manager=deploy-test")
FOLDERS = sorted(path.parent.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("kustomization.yaml"))

BOTH = {
    # verb, group, resource, subresource, namespace, name -> why
    ("list", "", "pods", "", "", ""): "bindings",
    ("watch", "", "pods", "", "", ""): "bindings",
    ("list", "", "nodes", "", "", ""): "products, vanished nodes",
    ("watch", "", "nodes", "", "", ""): "products, vanished nodes",
    ("list", "scheduling.volcano.sh", "podgroups", "", "", ""): "jobs",
    ("watch", "scheduling.volcano.sh", "podgroups", "", "", ""): "jobs",
    ("list", "", "configmaps", "", "", ""): "rank tables, documents, ledgers",
    ("watch", "", "configmaps", "", "", ""): "rank tables, documents, ledgers",
    ("get", "", "configmaps", "", "anywhere", "reset-config-j"): "the live object after a conflict",
    ("create", "events.k8s.io", "events", "", "anywhere", ""): "why, beside a pod",
    ("patch", "events.k8s.io", "events", "", "default", "n.1"): "why, beside a node",
    ("create", "coordination.k8s.io", "leases", "", "fault-agent", ""): "the first election",
    ("get", "coordination.k8s.io", "leases", "", "fault-agent", "fault-agent-coordinator"): "who leads",
    ("update", "coordination.k8s.io", "leases", "", "fault-agent", "fault-agent-coordinator"): "to lead",
    ("create", "", "configmaps", "", "fault-agent", ""): "ledgers of no job",
    ("update", "", "configmaps", "", "fault-agent", "fault-agent-cluster"): "term",
    ("update", "", "configmaps", "", "fault-agent", "fault-agent-rails"): "reservations",
}
SHARED = {
    ("create", "", "configmaps", "", "volcano-system", ""),
    ("update", "", "configmaps", "", "volcano-system", "vcjob-fault-npu-cm"),
    ("create", "", "configmaps", "", "mindx-dl", ""),
    ("update", "", "configmaps", "", "mindx-dl", "job-reschedule-reason"),
}
JOBS = {
    ("create", "", "configmaps", "", "train", ""),
    ("update", "", "configmaps", "", "train", "reset-config-j"),
    ("update", "", "configmaps", "", "train", "fault-agent-rail-j"),
    ("update", "", "configmaps", "", "train", "fault-agent-job-j"),
    ("delete", "", "configmaps", "", "train", "fault-agent-job-j"),
}
ELSEWHERE = {
    ("create", "", "configmaps", "", "other", ""),
    ("update", "", "configmaps", "", "other", "reset-config-j"),
    ("delete", "", "configmaps", "", "other", "fault-agent-job-j"),
}
WIDE = {
    # What comes with a binding in every namespace and is not wanted; name-guard takes it back.
    ("update", "", "configmaps", "", "fault-agent", "fault-agent-settings"),
    ("update", "", "configmaps", "", "volcano-system", "volcano-scheduler-configmap"),
    ("delete", "", "configmaps", "", "volcano-system", "vcjob-fault-npu-cm"),
    ("delete", "", "configmaps", "", "mindx-dl", "job-reschedule-reason"),
    ("delete", "", "configmaps", "", "fault-agent", "fault-agent-cluster"),
}
NEVER = {
    ("get", "", "secrets", "", "fault-agent", "fault-agent-kafka-node"),
    ("list", "", "secrets", "", "", ""),
    ("create", "", "pods", "", "train", ""),
    ("delete", "", "pods", "", "train", "p"),
    ("create", "", "pods", "eviction", "train", "p"),
    ("create", "", "pods", "exec", "train", "p"),
    ("patch", "", "pods", "", "train", "p"),
    ("patch", "", "nodes", "", "", "n"),
    ("update", "", "nodes", "status", "", "n"),
    ("delete", "", "nodes", "", "", "n"),
    ("update", "scheduling.volcano.sh", "podgroups", "", "train", "j"),
    ("delete", "scheduling.volcano.sh", "podgroups", "", "train", "j"),
    ("patch", "", "configmaps", "", "train", "reset-config-j"),
    ("deletecollection", "", "configmaps", "", "train", ""),
    ("update", "coordination.k8s.io", "leases", "", "fault-agent", "another"),
    ("update", "coordination.k8s.io", "leases", "", "kube-system", "kube-scheduler"),
    ("delete", "coordination.k8s.io", "leases", "", "fault-agent", "fault-agent-coordinator"),
    ("list", "coordination.k8s.io", "leases", "", "fault-agent", ""),
    ("list", "events.k8s.io", "events", "", "", ""),
    ("delete", "events.k8s.io", "events", "", "default", "n.1"),
    ("create", "", "serviceaccounts", "token", "fault-agent", "fault-agent-node"),
    ("impersonate", "", "serviceaccounts", "", "fault-agent", "fault-agent-node"),
    ("update", "apps", "deployments", "", "fault-agent", "fault-agent-coordinator"),
    ("create", "rbac.authorization.k8s.io", "rolebindings", "", "fault-agent", ""),
    ("list", "", "namespaces", "", "", ""),
    ("*", "*", "*", "", "", ""),
}
ALL = BOTH.keys() | SHARED | JOBS | ELSEWHERE | WIDE | NEVER
Question = tuple[str, str, str, str, str, str]


@pytest.fixture(scope="module")
def server(kube_server: harness.Kube) -> Iterator[harness.Kube]:
    """A server of this room's own, with the base's namespace, accounts and rights really applied."""
    del kube_server  # it says, in one place, what is missing when there are no services
    with harness.kube() as own:
        for name in ("train", "other"):
            own.kubectl("create", "namespace", name)
        apply(own, "base/namespace.yaml", "base/accounts.yaml", "base/coordinator-rights.yaml")
        yield own


def apply(server: harness.Kube, *files: str) -> None:
    server.kubectl(*APPLY, *(word for file in files for word in ("-f", str(DEPLOY / file))))


def may(server: harness.Kube, who: str, question: Question) -> bool:
    verb, group, resource, subresource, namespace, name = question
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": who,
            "groups": GROUPS,
            "resourceAttributes": {**attributes, "namespace": namespace, "name": name},
        },
    }
    answer = server.endpoint.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer.status == 201
    return bool(answer.body["status"]["allowed"])


def allowed(server: harness.Kube, who: str) -> set[Question]:
    return {question for question in ALL if may(server, who, question)}


def in_force(server: harness.Kube, wanted: set[Question], question: Question) -> None:
    """The authoriser learns of a Role by a watch of its own, a moment after it was stored."""
    said = question in wanted
    harness.wait_until(
        "the rights in force", lambda: "" if may(server, COORDINATOR, question) is said else "not yet", seconds=10
    )


@pytest.fixture
def rights(server: harness.Kube, request: pytest.FixtureRequest) -> Iterator[set[Question]]:
    """Gives the folders of deploy/rights that the test names, and takes them away again."""
    folders, more = request.param
    mark = next(iter(sorted(more)), None)
    for folder in folders:
        server.kubectl(*APPLY, "-k", str(DEPLOY / "rights" / folder))
    if mark is not None:
        in_force(server, more, mark)
    yield set(BOTH) | more
    for folder in reversed(folders):
        server.kubectl("delete", "--ignore-not-found", "-k", str(DEPLOY / "rights" / folder))
    if mark is not None:
        in_force(server, set(), mark)


# --- the server takes every object -------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_server_takes_every_object_of(folder: str, server: harness.Kube) -> None:
    rendered = server.kubectl("kustomize", str(DEPLOY / folder)).stdout
    count = sum(1 for one in yaml.safe_load_all(rendered) if one)
    done = server.kubectl(*APPLY, "--dry-run=server", "-k", str(DEPLOY / folder), "-o", "name")
    assert len(done.stdout.split()) == count > 0
    # A field that the server does not know would be told here, and dropped.
    warnings = [line for line in done.stderr.splitlines() if line]
    expected = {"base": ("",), "link-probe": ('privileged (container "agent"',)}.get(folder, ())
    assert len(warnings) == len(expected)
    for line, what in zip(warnings, expected, strict=True):
        assert what in line
        assert "restricted volume types (volume" in line
        assert '"machine-id"' in line


def test_a_misspelt_field_would_not_be_taken(server: harness.Kube) -> None:
    text = (DEPLOY / "base" / "node-daemonset.yaml").read_text().replace("maxUnavailable", "maxUnavailible")
    done = server.kubectl(*APPLY, "--dry-run=server", "-f", "-", stdin=text, check=False)
    assert done.returncode != 0
    assert "maxUnavailible" in done.stderr


def test_the_example_secrets_are_refused_until_they_are_filled_in(server: harness.Kube) -> None:
    text = (DEPLOY / "examples" / "kafka-secrets.yaml").read_text()
    refused = server.kubectl(*APPLY, "--dry-run=server", "-f", "-", stdin=text, check=False)
    assert refused.returncode != 0
    assert refused.stdout == ""
    filled = re.sub(r": <.*>", f": {base64.b64encode(b'x').decode()}", text)
    done = server.kubectl(*APPLY, "--dry-run=server", "-f", "-", "-o", "name", stdin=filled)
    assert done.stdout.split() == [
        "secret/fault-agent-kafka-node",
        "secret/fault-agent-kafka-coordinator",
        "secret/fault-agent-kafka-topics",
    ]


def test_the_overlay_of_the_page_builds_and_is_taken(server: harness.Kube, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n( *# sites/prod-a/kustomization\.yaml\n.*?) *```", page, flags=re.DOTALL)
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    site = tmp_path / "sites" / "prod-a"
    site.mkdir(parents=True)
    (site / "kustomization.yaml").write_text(textwrap.dedent(text))
    built = list(yaml.safe_load_all(server.kubectl("kustomize", str(site)).stdout))
    for one in built:
        if one["kind"] in ("DaemonSet", "Deployment", "Job"):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            given = {variable["name"]: variable.get("value") for variable in container["env"]}
            assert container["image"] == "registry.example/ascend-fault-agent:0.1.0"
            assert given["FAULT_AGENT_CLUSTER__ID"] == "prod-a"
            assert given["FAULT_AGENT_KAFKA__BOOTSTRAP_SERVERS"] == "kafka-0.example:9092,kafka-1.example:9092"
            assert "FAULT_AGENT_KAFKA__USERNAME" in given
    server.kubectl(*APPLY, "--dry-run=server", "-k", str(site))


# --- rights --------------------------------------------------------------------------------------------------------

VARIANTS = [
    pytest.param(((), set()), id="observe"),
    pytest.param((("shared-documents",), SHARED), id="shared documents"),
    pytest.param((("job-documents",), set()), id="the job role, bound nowhere"),
    pytest.param((("job-documents", "jobs-in-namespace"), JOBS), id="jobs in namespace train"),
    pytest.param((("shared-documents", "job-documents", "jobs-in-namespace"), SHARED | JOBS), id="act, tight"),
    pytest.param((("shared-documents", "jobs-everywhere"), SHARED | JOBS | ELSEWHERE | WIDE), id="act, everywhere"),
]


@pytest.mark.parametrize("rights", VARIANTS, indirect=True)
def test_the_coordinator_may_do_these_things_and_none_of_the_others(
    rights: set[Question], server: harness.Kube
) -> None:
    assert allowed(server, COORDINATOR) == rights


@pytest.mark.parametrize("rights", [VARIANTS[0], VARIANTS[-1]], indirect=True)
def test_the_node_account_may_do_nothing(rights: set[Question], server: harness.Kube) -> None:
    del rights
    assert allowed(server, NODE) == set()


def test_the_node_account_has_no_rule_but_those_of_every_account(server: harness.Kube) -> None:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "fault-agent"},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    server.kubectl("create", "serviceaccount", "nobody", "-n", "fault-agent")
    answers = [
        server.service_account("fault-agent", name).request("POST", path, review).body["status"]
        for name in ("fault-agent-node", "nobody")
    ]
    assert answers[0]["incomplete"] is False
    rules: list[list[Any]] = [
        sorted(map(repr, answer["resourceRules"] + answer["nonResourceRules"])) for answer in answers
    ]
    assert rules[0] == rules[1]
    server.kubectl("delete", "serviceaccount", "nobody", "-n", "fault-agent")


# --- the account at work -------------------------------------------------------------------------------------------


def configmap(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "1"}}


def place(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def test_a_lease_can_be_made_and_kept_by_the_account_in_observe_mode(server: harness.Kube) -> None:
    account = server.service_account("fault-agent", "fault-agent-coordinator")
    path = "/apis/coordination.k8s.io/v1/namespaces/fault-agent/leases"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "fault-agent-coordinator"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    }
    made = account.request("POST", path, lease)
    assert made.status == 201
    renewed = made.body | {"spec": {"holderIdentity": "b", "leaseDurationSeconds": 15}}
    assert account.request("PUT", f"{path}/fault-agent-coordinator", renewed).status == 200
    assert account.request("GET", f"{path}/fault-agent-coordinator").body["spec"]["holderIdentity"] == "b"


def test_in_observe_mode_no_document_of_others_can_be_written(server: harness.Kube) -> None:
    account = server.service_account("fault-agent", "fault-agent-coordinator")
    apply(server, "base/settings.yaml")
    settings = account.request("GET", place("fault-agent", "fault-agent-settings"))
    assert settings.status == 200
    tries = [
        account.request("POST", place("train"), configmap("reset-config-j")),
        account.request("POST", place("volcano-system"), configmap("vcjob-fault-npu-cm")),
        account.request("POST", place("mindx-dl"), configmap("job-reschedule-reason")),
        account.request("PUT", place("fault-agent", "fault-agent-settings"), settings.body),
    ]
    assert [answer.status for answer in tries] == [403, 403, 403, 403]
    assert account.request("POST", place("fault-agent"), configmap("fault-agent-cluster")).status == 201
    server.kubectl("delete", "configmap", "fault-agent-cluster", "fault-agent-settings", "-n", "fault-agent")


GUARDED = {
    # verb, namespace, name -> whether the guard lets the coordinator, which RBAC lets everywhere
    ("create", "train", "reset-config-j"): True,
    ("create", "train", "fault-agent-rail-j"): True,
    ("create", "train", "fault-agent-job-j"): True,
    ("create", "fault-agent", "fault-agent-cluster"): True,
    ("create", "fault-agent", "fault-agent-rails"): True,
    ("create", "volcano-system", "vcjob-fault-npu-cm"): True,
    ("create", "mindx-dl", "job-reschedule-reason"): True,
    ("create", "train", "anything"): False,
    ("create", "train", "vcjob-fault-npu-cm"): False,
    ("create", "train", "fault-agent-cluster"): False,
    ("create", "volcano-system", "job-reschedule-reason"): False,
    ("update", "train", "reset-config-there"): True,
    ("update", "volcano-system", "volcano-scheduler-configmap"): False,
    ("update", "fault-agent", "fault-agent-settings"): False,
    ("update", "train", "rings-config-there"): False,
    ("delete", "train", "fault-agent-job-there"): True,
    ("delete", "train", "reset-config-there"): False,
    ("delete", "train", "rings-config-there"): False,
}
THERE = sorted((namespace, name) for verb, namespace, name in GUARDED if verb != "create")


@pytest.mark.parametrize(
    "rights", [pytest.param((("jobs-everywhere", "name-guard"), WIDE | JOBS | ELSEWHERE), id="guarded")], indirect=True
)
def test_the_guard_holds_a_coordinator_that_is_bound_everywhere_to_its_names(
    rights: set[Question], server: harness.Kube
) -> None:
    del rights
    account, admin = server.service_account("fault-agent", "fault-agent-coordinator"), server.endpoint
    for namespace, name in dict.fromkeys(THERE):
        assert admin.request("POST", place(namespace), configmap(name)).status == 201

    def verdict(verb: str, namespace: str, name: str) -> bool:
        dry = "?dryRun=All"
        match verb:
            case "create":
                answer = account.request("POST", place(namespace) + dry, configmap(name))
            case "update":
                live = account.request("GET", place(namespace, name)).body
                answer = account.request("PUT", place(namespace, name) + dry, live | {"data": {"key": "2"}})
            case _:
                answer = account.request("DELETE", place(namespace, name) + dry)
        if answer.status not in (200, 201):
            assert answer.status == 422
            assert "the fault agent " in answer.body["message"]
        return answer.status in (200, 201)

    # The policy is compiled a moment after it is stored.
    first = ("create", "train", "anything")
    harness.wait_until("the guard in force", lambda: "not yet" if verdict(*first) else "", seconds=30)
    assert {question: verdict(*question) for question in GUARDED} == GUARDED
    # It is nobody else's guard.
    assert admin.request("POST", place("train") + "?dryRun=All", configmap("anything")).status == 201
    for namespace, name in dict.fromkeys(THERE):
        server.kubectl("delete", "configmap", name, "-n", namespace)


def test_kubectl_says_the_same_of_the_account_as_the_page_tells_people_to_ask(server: harness.Kube) -> None:
    def can(*words: str) -> str:
        done: subprocess.CompletedProcess[str] = server.kubectl(
            "auth", "can-i", *words, f"--as={COORDINATOR}", check=False
        )
        return done.stdout.strip()

    assert can("watch", "configmaps", "-A") == "yes"
    assert can("update", "configmaps/vcjob-fault-npu-cm", "-n", "volcano-system") == "no"
    assert can("get", "secrets", "-n", "fault-agent") == "no"


def test_the_policy_overlay_of_the_page_builds_and_is_taken(server: harness.Kube, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(configMapGenerator:\n.*?)```", page, flags=re.DOTALL)
    shutil.copytree(DEPLOY / "base", tmp_path / "base")
    shutil.copy(ROOT / "policies" / "overrides.yaml", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [base]\n{text}")
    built = server.kubectl("kustomize", str(tmp_path)).stdout
    given = [one["spec"]["template"]["spec"] for one in yaml.safe_load_all(built) if one["kind"] in WORKLOADS]
    assert [spec["containers"][0]["args"][-2:] for spec in given] == [["--policy", "/etc/fault-agent-policy"]] * 2
    done = server.kubectl(*APPLY, "--dry-run=server", "-f", "-", "-o", "name", stdin=built)
    assert "configmap/fault-agent-policy" in done.stdout.split()
