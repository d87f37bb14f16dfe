"""The agent's roles as processes beside real services: topics, settings, rights, objects, start and end.

The one rule: the roles run as they are shipped: by their command, with a settings file, the coordinator under exactly
the rights of `deploy/`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from services import harness
from services.processes import Process, ServiceFailedError

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from agent.app.cli.main import main; main()"
VERB_S = 60.0
TOKEN_S = 3600
RIGHTS = (
    "base/namespace.yaml",
    "base/accounts.yaml",
    "base/coordinator-rights.yaml",
    "rights/job-documents/role.yaml",
    "rights/jobs-everywhere/binding.yaml",
    "rights/shared-documents/rights.yaml",
    "rights/name-guard/policy.yaml",
)
_BESTOWED = ("uid", "resourceVersion", "creationTimestamp")
"""What the API server gives an object itself."""
_STATUS_APART = ("Pod", "Node")
"""Kinds whose status is written by a request of its own."""


def command(*words: str) -> list[str]:
    """The agent's command line in this interpreter."""
    return [sys.executable, "-c", PROGRAM, *words]


def verb(*words: str) -> str:
    """Run a verb to its end; what it printed. Raises ServiceFailedError when its code is not 0."""
    done = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=VERB_S, check=False, env=_environment({})
    )
    if done.returncode != 0:
        raise ServiceFailedError(f"fault-agent {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def settings(path: Path, **parts: Any) -> Path:
    """A settings file of these parts (JSON is YAML); its path."""
    path.write_text(json.dumps(parts, indent=2), encoding="utf-8")
    return path


def role(name: str, config: Path, folder: Path, *, node: str = "", port: int = 0) -> Process:
    """A role, not started yet; its log is in `folder`. With `node` it is that node's, else a coordinator.

    `port`: where it answers probes and gives metrics; 0: as the settings say.
    """
    words = ["run", "--role", "node" if node else "coordinator", "--config", str(config)]
    more = {"FAULT_AGENT_HTTP__PORT": str(port)} if port else {}
    if node:
        more["FAULT_AGENT_NODE__NAME"] = node
    return Process(name, command(*words), folder / f"{name}.log", env=_environment(more))


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """This checkout before any other that may be installed, and no settings but ours."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FAULT_AGENT_")}
    before = os.environ.get("PYTHONPATH", "")
    return {**plain, "PYTHONPATH": f"{ROOT}:{before}" if before else str(ROOT), **more}


def coordinator_account(kube: harness.Kube) -> harness.KubeEndpoint:
    """The coordinator's service account with the rights of act mode, and a token for it."""
    for name in RIGHTS:
        kube.kubectl("apply", "--server-side", "--field-manager=set-up", "-f", str(ROOT / "deploy" / name))
    return kube.service_account("fault-agent", "fault-agent-coordinator", seconds=TOKEN_S)


def objects_of(folder: Path) -> list[dict[str, Any]]:
    """Every object of the folder's YAML lists, in order of file and place."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            found += document["items"] if document.get("kind") == "List" else [document]
    return found


def lay(kube: harness.KubeEndpoint, items: Iterable[Mapping[str, Any]]) -> int:
    """Make these objects, statuses too; those whose kind the API server does not serve are left out. How many.

    Raises ServiceFailedError for one that it refuses.
    """
    made = 0
    for item in items:
        path = _listing(item)
        meta = {key: value for key, value in item["metadata"].items() if key not in _BESTOWED}
        answer = kube.request("POST", path, {**item, "metadata": meta})
        if answer.status == 404:
            continue
        if answer.status not in (201, 409):
            raise ServiceFailedError(f"{item['kind']} {meta['name']}: {answer.status}: {answer.body}")
        if item["kind"] in _STATUS_APART and "status" in item:
            place, patch = f"{path}/{meta['name']}/status", {"status": item["status"]}
            answer = kube.request("PATCH", place, patch, content_type="application/merge-patch+json")
            if answer.status != 200:
                raise ServiceFailedError(f"status of {item['kind']} {meta['name']}: {answer.status}: {answer.body}")
        made += 1
    return made


def remove_pod(kube: harness.KubeEndpoint, namespace: str, name: str) -> None:
    """Delete a pod at once; no kubelet is there to end it. Raises ServiceFailedError."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0"
    answer = kube.request("DELETE", path)
    if answer.status not in (200, 404):
        raise ServiceFailedError(f"pod {name}: {answer.status}: {answer.body}")


def _listing(item: Mapping[str, Any]) -> str:
    version, kind, meta = str(item["apiVersion"]), str(item["kind"]), item["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = f"{kind.lower()}s"
    return f"{root}/namespaces/{meta['namespace']}/{plural}" if meta.get("namespace") else f"{root}/{plural}"


def data_of(kube: harness.KubeEndpoint, namespace: str, name: str) -> dict[str, str] | None:
    """The data of a ConfigMap, None when there is none. Raises OSError when the server does not answer."""
    answer = kube.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    return dict(answer.body.get("data") or {}) if answer.status == 200 else None
