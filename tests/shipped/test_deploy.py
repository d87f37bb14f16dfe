"""The deploy files by themselves: they parse, fit the settings and the command line, and keep the pods small.

The one rule: what a reader of docs/deploy.md is told about rights and pods is looked up here, not believed.
"""

import copy
import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from manifests import DEPLOY, FILES, WORKLOADS, config_text, documents, filled, named, objects, of_kind, pods, role_of
from pydantic import BaseModel

from agent import __version__
from agent.app.cli.verbs import cli
from agent.app.settings import Settings, load_settings, settings_from
from agent.domain.vocab import Mode
from agent.errors import BadUsage

# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [pytest.param(path, id=str(path.relative_to(DEPLOY))) for path in FILES])
def test_every_manifest_parses_and_names_what_it_is(path: Path) -> None:
    found = documents(path)
    assert found
    for one in found:
        assert one["apiVersion"]
        assert one["kind"]
        if one["kind"] != "Kustomization":
            assert one["metadata"]["name"]
            assert "last-applied" not in json.dumps(one)


def test_every_object_but_the_secrets_is_reached_by_one_kustomization() -> None:
    named_files = [
        (path.parent / resource).resolve()
        for path in FILES
        if path.name == "kustomization.yaml"
        for resource in documents(path)[0]["resources"]
    ]
    reached = [path for path in named_files if path.is_file()]
    assert all(path.exists() for path in named_files)
    expected = {path for path, one in objects() if one["kind"] != "Secret"}
    assert sorted(reached) == sorted(expected)


def test_every_namespaced_object_says_its_namespace() -> None:
    cluster_wide = {
        "Namespace",
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    lacking = [
        one["metadata"]["name"]
        for _, one in objects()
        if one["kind"] not in cluster_wide and not one["metadata"].get("namespace")
    ]
    assert lacking == []


# --- settings --------------------------------------------------------------------------------------------------------


def test_the_settings_are_refused_until_both_blanks_are_filled_in() -> None:
    with pytest.raises(BadUsage) as caught:
        settings_from(yaml.safe_load(config_text()), "config.yaml")
    assert re.findall(r"(\w+\.\w+): ", str(caught.value).removeprefix("config.yaml: ")) == [
        "cluster.id",
        "kafka.bootstrap_servers",
    ]


def test_the_settings_with_their_blanks_filled_in_load_and_only_observe() -> None:
    settings = settings_from(filled(config_text()), "config.yaml")
    assert settings.cluster.id == "prod-a"
    assert settings.mode is Mode.OBSERVE
    assert settings.documents.reset_config.create is False
    assert not settings.documents.vcjob_fault_npu_cm.sole_writer
    assert not settings.documents.job_reschedule_reason.sole_writer


def test_the_settings_for_a_broker_with_accounts_load_when_their_comments_are_taken_away() -> None:
    text = re.sub(r"^ +security_protocol: PLAINTEXT\n", "", config_text(), flags=re.MULTILINE)
    text = re.sub(
        r"^( +)# (security_protocol|sasl_mechanism|password_file|ca_file): ", r"\1\2: ", text, flags=re.MULTILINE
    )
    kafka = settings_from(filled(text), "config.yaml").kafka
    assert (kafka.security_protocol, kafka.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    mounts = {
        mount["mountPath"]
        for one in of_kind(*WORKLOADS)
        for mount in one["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
        if mount["name"] == "kafka"
    }
    assert mounts == {str(Path(kafka.password_file).parent)} == {str(Path(kafka.ca_file).parent)}
    keys = [set(one["data"]) for one in of_kind("Secret")]
    assert keys == [{"username", Path(kafka.password_file).name, Path(kafka.ca_file).name}] * 3


def test_what_the_settings_spell_out_are_the_defaults_except_the_blanks_and_the_mode() -> None:
    spelt = filled(config_text())
    del spelt["cluster"], spelt["mode"], spelt["kafka"]["bootstrap_servers"]
    # Left out means "no" in every role but solo, which never reads this file.
    assert spelt["documents"]["reset_config"].pop("create") is False
    defaults = Settings().model_dump(mode="json")

    def differing(ours: dict[str, Any], theirs: dict[str, Any], at: str = "") -> list[str]:
        found: list[str] = []
        for key, value in ours.items():
            if isinstance(value, dict):
                found += differing(value, theirs[key], f"{at}{key}.")
            elif value != theirs[key]:
                found.append(f"{at}{key}")
        return found

    assert differing(spelt, defaults) == []


@pytest.mark.parametrize("template", pods())
def test_every_variable_of_a_pod_is_a_setting(template: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(filled(config_text())))
    names = [one["name"] for one in template["spec"]["containers"][0]["env"]]
    settings = load_settings(path, {name: f"value-of-{name}" for name in names})
    for name in names:
        value: Any = settings
        for part in name.removeprefix("FAULT_AGENT_").lower().split("__"):
            assert isinstance(value, BaseModel)
            value = getattr(value, part)
        assert value == f"value-of-{name}"


@pytest.mark.parametrize("template", pods())
def test_no_service_of_the_namespace_can_bring_a_variable_that_is_taken_for_a_setting(
    template: dict[str, Any], tmp_path: Path
) -> None:
    assert template["spec"]["enableServiceLinks"] is False
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(filled(config_text())))
    with pytest.raises(BadUsage, match="coordinator_service_host: no such setting"):
        load_settings(path, {"FAULT_AGENT_COORDINATOR_SERVICE_HOST": "10.0.0.7"})


# --- command line ----------------------------------------------------------------------------------------------------


def roles() -> list[str]:
    (role,) = [one for one in cli.commands["run"].params if one.name == "role"]
    assert isinstance(role.type, click.Choice)
    return [str(choice) for choice in role.type.choices]


# Retires itself: with the first role of a cluster on the command line, every word of every pod has to be right.
@pytest.mark.skipif(roles() == ["solo"], reason="the command line knows no role of a cluster in this version")
@pytest.mark.parametrize("template", pods())
def test_every_argument_of_a_pod_is_known_to_the_command_line(template: dict[str, Any]) -> None:
    words = role_of(template)
    command: click.Command = cli
    while isinstance(command, click.Group):
        assert words[0] in command.commands
        command = command.commands[words[0]]
        words = words[1:]
    options = {name: one for one in command.params if isinstance(one, click.Option) for name in one.opts}
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert given.keys() <= options.keys()
    for name, value in given.items():
        kind = options[name].type
        if isinstance(kind, click.Choice):
            assert value in kind.choices
    required = {name for name, one in options.items() if one.required}
    assert required <= given.keys()


@pytest.mark.parametrize("template", pods())
def test_a_pod_reads_the_settings_that_are_mounted(template: dict[str, Any]) -> None:
    words = role_of(template)
    (container,) = template["spec"]["containers"]
    volumes = {one["name"]: one for one in template["spec"]["volumes"]}
    config = Path(words[words.index("--config") + 1])
    mounts = {one["mountPath"]: volumes[one["name"]] for one in container["volumeMounts"]}
    name = mounts[str(config.parent)]["configMap"]["name"]
    assert config.name in named("ConfigMap", name)["data"]


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment"])
def test_probes_and_scrapers_ask_at_the_port_of_the_settings(kind: str) -> None:
    (workload,) = of_kind(kind)
    template = workload["spec"]["template"]
    (container,) = template["spec"]["containers"]
    port = settings_from(filled(config_text()), "config.yaml").http.port
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    paths = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {
        "startupProbe": {"path": "/livez", "port": "http"},
        "livenessProbe": {"path": "/livez", "port": "http"},
        "readinessProbe": {"path": "/readyz", "port": "http"},
    }
    assert template["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }


# --- looking at links ------------------------------------------------------------------------------------------------


def patched() -> dict[str, Any]:
    """The DaemonSet as deploy/link-probe leaves it: its patches, applied as kustomize applies them."""
    (overlay,) = documents(DEPLOY / "link-probe" / "kustomization.yaml")
    assert overlay["resources"] == ["../base"]
    (one,) = overlay["patches"]
    assert one["target"] == {"kind": "DaemonSet", "name": "fault-agent-node"}
    workload: dict[str, Any] = copy.deepcopy(named("DaemonSet", "fault-agent-node"))
    for step in yaml.safe_load(one["patch"]):
        *way, last = step["path"].split("/")[1:]
        at: Any = workload
        for word in way:
            at = at[int(word)] if isinstance(at, list) else at[word]
        if step["op"] == "add":
            assert last == "-"
            at.append(step["value"])
        else:
            assert step["op"] == "replace"
            assert last in at
            at[last] = step["value"]
    return workload


def test_the_overlay_that_looks_at_links_sets_a_query_that_is_taken_and_mounts_its_program(tmp_path: Path) -> None:
    spec = patched()["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(filled(config_text())))
    given = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    probe = load_settings(
        path, {name: text for name, text in given.items() if name.startswith("FAULT_")}
    ).node.link_probe
    assert probe.command == ("/usr/local/Ascend/driver/tools/hccn_tool", "-i", "{device}", "-link", "-g")
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "driver"]
    (volume,) = [one for one in spec["volumes"] if one["name"] == "driver"]
    assert mount["readOnly"]
    assert volume["hostPath"] == {"path": mount["mountPath"], "type": "Directory"}
    assert all(part.startswith(mount["mountPath"]) for part in given["LD_LIBRARY_PATH"].split(":"))
    assert probe.command[0].startswith(mount["mountPath"] + "/")


def test_only_the_overlay_that_looks_at_links_is_privileged() -> None:
    (container,) = patched()["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    told = [path for path in FILES if "privileged: true" in path.read_text(encoding="utf-8")]
    assert told == [DEPLOY / "link-probe" / "kustomization.yaml"]


# --- pods ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", pods())
def test_a_pod_runs_without_any_privilege(template: dict[str, Any]) -> None:
    spec = template["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert container["resources"]["requests"].keys() == container["resources"]["limits"].keys() == {"cpu", "memory"}
    assert "command" not in container


@pytest.mark.parametrize("template", pods())
def test_a_pod_runs_the_image_of_this_version(template: dict[str, Any]) -> None:
    assert template["spec"]["containers"][0]["image"] == f"ascend-fault-agent:{__version__}"


def test_each_role_has_the_kafka_account_of_its_own_secret_only() -> None:
    secrets: dict[str, set[str]] = {}
    for one in of_kind(*WORKLOADS):
        spec = one["spec"]["template"]["spec"]
        mounted = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
        sources = [variable.get("valueFrom", {}) for variable in spec["containers"][0]["env"]]
        named_in = {source["secretKeyRef"]["name"] for source in sources if "secretKeyRef" in source}
        secrets[one["metadata"]["name"]] = mounted | named_in
    assert secrets == {
        "fault-agent-node": {"fault-agent-kafka-node"},
        "fault-agent-coordinator": {"fault-agent-kafka-coordinator"},
        "fault-agent-topics": {"fault-agent-kafka-topics"},
    }


def test_the_only_thing_of_a_host_that_is_seen_is_its_machine_id() -> None:
    paths = {
        one["metadata"]["name"]: [
            volume["hostPath"] for volume in one["spec"]["template"]["spec"]["volumes"] if "hostPath" in volume
        ]
        for one in of_kind(*WORKLOADS)
    }
    assert paths == {
        "fault-agent-node": [{"path": "/etc/machine-id", "type": "File"}],
        "fault-agent-coordinator": [],
        "fault-agent-topics": [],
    }
    (container,) = of_kind("DaemonSet")[0]["spec"]["template"]["spec"]["containers"]
    mount = {"name": "machine-id", "mountPath": Settings().node.machine_id_file, "readOnly": True}
    assert mount in container["volumeMounts"]


def test_the_node_role_stands_on_every_node_and_is_rolled_out_by_tenths() -> None:
    (workload,) = of_kind("DaemonSet")
    spec = workload["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["priorityClassName"] == "system-node-critical"
    assert workload["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%"}
    (name,) = [one for one in spec["containers"][0]["env"] if one["name"] == "FAULT_AGENT_NODE__NAME"]
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_two_coordinators_stand_apart_and_one_of_them_survives_a_drain() -> None:
    (workload,) = of_kind("Deployment")
    labels = workload["spec"]["template"]["metadata"]["labels"]
    (rule,) = workload["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    (budget,) = of_kind("PodDisruptionBudget")
    assert workload["spec"]["replicas"] == 2
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert budget["spec"]["minAvailable"] == 1
    for selector in (rule["labelSelector"], budget["spec"]["selector"], workload["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()
