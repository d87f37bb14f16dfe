"""The rights that the manifests give: to the coordinator alone, and no more than is used."""

from manifests import ACCOUNT, DEPLOY, WORKLOADS, config_text, filled, objects, of_kind

from agent.app.settings import settings_from


def test_only_the_coordinator_has_a_token() -> None:
    tokens = {
        one["metadata"]["name"]: (
            one["spec"]["template"]["spec"]["serviceAccountName"],
            one["spec"]["template"]["spec"]["automountServiceAccountToken"],
        )
        for one in of_kind(*WORKLOADS)
    }
    assert tokens == {
        "fault-agent-node": ("fault-agent-node", False),
        "fault-agent-coordinator": ("fault-agent-coordinator", True),
        "fault-agent-topics": ("fault-agent-node", False),
    }
    assert {one["metadata"]["name"]: one["automountServiceAccountToken"] for one in of_kind("ServiceAccount")} == {
        "fault-agent-node": False,
        "fault-agent-coordinator": False,
    }


def test_every_binding_is_for_the_coordinator_alone() -> None:
    bindings = of_kind("RoleBinding", "ClusterRoleBinding")
    assert len(bindings) == 6
    assert all(
        one["subjects"] == [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "fault-agent"}] for one in bindings
    )


def test_no_rule_reaches_beyond_the_kinds_and_verbs_that_are_used() -> None:
    allowed = {
        ("", "pods"): {"get", "list", "watch"},
        ("", "nodes"): {"get", "list", "watch"},
        ("scheduling.volcano.sh", "podgroups"): {"get", "list", "watch"},
        ("", "configmaps"): {"get", "list", "watch", "create", "update", "delete"},
        ("events.k8s.io", "events"): {"create", "patch"},
        ("coordination.k8s.io", "leases"): {"get", "create", "update"},
    }
    for role in of_kind("Role", "ClusterRole"):
        for rule in role["rules"]:
            assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    assert set(rule["verbs"]) <= allowed[group, resource]


def test_a_document_of_others_is_changed_by_none_of_the_rights_that_observe_mode_has() -> None:
    base = [one for path, one in objects() if path.parent == DEPLOY / "base" and one["kind"] in ("Role", "ClusterRole")]
    changing = [
        (role["kind"], role["metadata"].get("namespace"), rule.get("resourceNames"), rule["verbs"])
        for role in base
        for rule in role["rules"]
        if "configmaps" in rule["resources"] and not set(rule["verbs"]) <= {"get", "list", "watch"}
    ]
    assert changing == [
        ("Role", "fault-agent", ["fault-agent-cluster", "fault-agent-rails"], ["update"]),
        ("Role", "fault-agent", None, ["create"]),
    ]


def test_the_named_rights_are_for_the_names_in_the_settings() -> None:
    settings = settings_from(filled(config_text()), "config.yaml")
    names = {
        (role["metadata"].get("namespace"), resource, name)
        for role in of_kind("Role", "ClusterRole")
        for rule in role["rules"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ())
    }
    assert names == {
        (settings.namespace, "leases", settings.lease.name),
        (settings.namespace, "configmaps", "fault-agent-cluster"),
        (settings.namespace, "configmaps", "fault-agent-rails"),
        (settings.documents.vcjob_fault_npu_cm.namespace, "configmaps", "vcjob-fault-npu-cm"),
        (settings.documents.job_reschedule_reason.namespace, "configmaps", "job-reschedule-reason"),
    }
