"""The manifests of `deploy/`, read for tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from houseplan import ROOT

DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.rglob("*.yaml"))
WORKLOADS = {"DaemonSet", "Deployment", "Job"}
ACCOUNT = "fault-agent-coordinator"


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None]


def objects() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in FILES:
        if path.name != "kustomization.yaml":
            for one in documents(path):
                yield path, one


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [one for _, one in objects() if one["kind"] in kinds]


def pods() -> list[Any]:
    return [pytest.param(one["spec"]["template"], id=one["metadata"]["name"]) for one in of_kind(*WORKLOADS)]


def named(kind: str, name: str) -> dict[str, Any]:
    found = [one for one in of_kind(kind) if one["metadata"]["name"] == name]
    assert len(found) == 1
    return found[0]


def config_text() -> str:
    return str(named("ConfigMap", "fault-agent-settings")["data"]["config.yaml"])


def filled(text: str) -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load(text)
    raw["cluster"]["id"] = "prod-a"
    raw["kafka"]["bootstrap_servers"] = "kafka-0:9092"
    return raw


def role_of(template: dict[str, Any]) -> list[str]:
    (container,) = template["spec"]["containers"]
    arguments: list[str] = container["args"]
    return arguments
