"""Both roles as processes on a real broker and a real API server, under exactly the rights of deploy/.

The one rule: the agent is seen from outside only: events go in as records, documents and reports are read as anybody
reads them, a process is addressed by the id we got when we started it.

One broker and one API server serve all tests of a run, one test at a time; each test has topics of its own, and what an
earlier one left in the namespaces that the rights name is removed before it.
"""

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import kafkabroker
import yaml
from aiokafka import AIOKafkaProducer
from kubebuilders import a_group, a_node, a_pod, the_demo
from rig import message
from services import harness
from services.kafkaserver import KafkaEndpoint
from services.processes import Process, ServiceFailedError, free_ports, wait_until

from agent.adapters.kafka import create, plan_of
from agent.domain.events import NodeReport
from agent.wire.audit import AuditLine, decode_all
from agent.wire.report import decode

TESTS: Final = Path(__file__).parent
DEPLOY: Final = Path(__file__).parents[1] / "deploy"
PROGRAM: Final = (sys.executable, "-c", "from agent.app.cli.main import main; main()")
CLUSTER: Final = "test"
SOAK: Final = os.environ.get("TEST_SOAK", "") not in ("", "0")
"""`make soak`: long outages and many kills."""
OUTAGE_S: Final = 60.0 if SOAK else 10.0
KILLS: Final = 20 if SOAK else 2
LEASE_S: Final = 3.0
"""A leader that is killed is followed after this long."""
PATIENCE_S: Final = 40.0
"""Far above what anything here takes; nothing is timed by it."""
LABELS: Final = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
VCJOB: Final = ("volcano-system", "vcjob-fault-npu-cm")
RECORDS: Final = ("mindx-dl", "job-reschedule-reason")
RIGHTS: Final = ("shared-documents", "job-documents", "jobs-in-namespace")
OURS: Final = ("cluster-system", "fault-agent", "train", "closed", *(place[0] for place in (VCJOB, RECORDS)))
_PATHS: Final = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "Event": "/apis/events.k8s.io/v1/namespaces/{}/events",
}
_numbers = itertools.count(1)
_furnished: set[str] = set()


class RealCluster:
    """One test's view of broker and API server, and the roles it has started; close it at the end."""

    def __init__(
        self, kafka: KafkaEndpoint, kube: harness.Kube, folder: Path, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.kafka = kafka
        self.kube = kube
        self.admin = kube.endpoint
        self.folder = folder
        self.prefix = f"t{uuid.uuid4().hex[:8]}"
        self.settings: dict[str, Any] = {
            "cluster": {"id": CLUSTER},
            "mode": "act",
            "kafka": {"bootstrap_servers": kafka.bootstrap, "prefix": self.prefix, "report_partitions": 2},
            "lease": {"duration_s": LEASE_S, "renew_s": 0.5},
            "http": {"host": "127.0.0.1", "port": 0},
            "documents": {"reset_config": {"create": True}},
            **(settings or {}),
        }
        self.trap: Path | None = None
        """With it the roles run as dyingrole, armed by this file."""
        self._taken: list[str] = []
        self.processes: dict[str, Process] = {}
        self.ports: dict[str, int] = {}
        self._furnish()

    # --- what the cluster is given

    def _furnish(self) -> None:
        """The namespaces, account and rights of deploy/, once a server."""
        if self.admin.server not in _furnished:
            for namespace in ("train", "closed", "cluster-system"):
                made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                self.admin.request("POST", "/api/v1/namespaces", made)
            for name in ("namespace", "accounts", "coordinator-rights"):
                self.kube.kubectl("apply", "-f", str(DEPLOY / "base" / f"{name}.yaml"))
            self.give(*RIGHTS)
            _furnished.add(self.admin.server)
        self._clear()

    def _clear(self) -> None:
        """Leave nothing for the next test: others use the same names on the same server."""
        for kind in ("Pod", "PodGroup", "ConfigMap", "Lease", "Event"):
            for namespace in (*OURS, "default"):
                force = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
                self.admin.request("DELETE", _PATHS[kind].format(namespace), force)
        self.admin.request("DELETE", _PATHS["Node"])

    def give(self, *rights: str) -> None:
        """Apply folders of deploy/rights."""
        for name in rights:
            self.kube.kubectl("apply", "-k", str(DEPLOY / "rights" / name))

    def take(self, *rights: str) -> None:
        """Delete them; `close` gives them back."""
        self._taken += rights
        for name in rights:
            self.kube.kubectl("delete", "--ignore-not-found", "-k", str(DEPLOY / "rights" / name))

    def apply(self, *items: Mapping[str, Any]) -> None:
        """Create objects with their status; kinds that the server does not serve are left out."""
        for item in items:
            if item["kind"] not in _PATHS:
                continue
            given = valid(item)
            path = _PATHS[given["kind"]].format(given["metadata"].get("namespace", ""))
            answer = self.admin.request("POST", path, given)
            assert answer.status == 201, answer.body
            if given["kind"] in ("Pod", "Node") and given.get("status"):
                body = {"status": given["status"]}
                place = f"{path}/{given['metadata']['name']}/status"
                done = self.admin.request("PATCH", place, body, content_type="application/merge-patch+json")
                assert done.status == 200, done.body

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object at once."""
        path = f"{_PATHS[kind].format(namespace)}/{name}"
        answer = self.admin.request("DELETE", path, {"gracePeriodSeconds": 0})
        assert answer.status in (200, 202, 404), answer.body

    def count_nothing(self) -> None:
        """ClusterD's own switch: a device that fails again and again is not taken away from its jobs."""
        data = {"manually_separate_policy.conf": "enabled: false"}
        meta = {"name": "clusterd-config-cm", "namespace": "cluster-system"}
        self.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

    def the_demo(self) -> None:
        """Job `demo`: two pods with four devices each, on n1 and n2."""
        self.apply(*the_demo(LABELS))

    def topics(self, partitions: int = 2) -> None:
        """The four topics of this test's prefix."""
        reports = self.settings["kafka"]["report_partitions"]
        plan = plan_of(
            events=self.topic("events"),
            reports=self.topic("reports"),
            audit=self.topic("audit"),
            deadletter=self.topic("deadletter"),
            event_partitions=partitions,
            report_partitions=reports,
        )
        asyncio.run(create(kafkabroker.settings_of(self.kafka), plan))

    def topic(self, name: str) -> str:
        """Full name of one of the four."""
        return f"{self.prefix}.{name}.v1"

    # --- roles

    def config(self, **over: Any) -> Path:
        """The settings as a file, with some of them replaced."""
        path = self.folder / f"config-{next(_numbers)}.yaml"
        merged = dict(self.settings)
        for key, value in over.items():
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
        path.write_text(yaml.safe_dump(merged))
        return path

    def node(self, name: str = "n1", *, process: str = "", **over: Any) -> Process:
        """Start the node role of a node, under another name of process if need be."""
        over.setdefault("node", {"name": name})
        return self._start(process or name, "node", over, {"KUBECONFIG": "/nowhere"})

    def coordinator(self, name: str = "c1", *, server: str = "", **over: Any) -> Process:
        """Start a coordinator as the service account of deploy/; `server`: another way to the API server."""
        account = self.kube.service_account("fault-agent", "fault-agent-coordinator", seconds=3600)
        config = yaml.safe_load(account.kubeconfig.read_text())
        if server:
            config["clusters"][0]["cluster"] = {"server": server}
        kubeconfig = self.folder / f"{name}-{next(_numbers)}.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        over["kubernetes"] = {"kubeconfig": str(kubeconfig), **over.get("kubernetes", {})}
        return self._start(name, "coordinator", over, {})

    def _start(self, name: str, role: str, over: dict[str, Any], env: Mapping[str, str]) -> Process:
        (port,) = free_ports(1)
        over["http"] = {"port": port}
        program = [sys.executable, "-m", "dyingrole", str(self.trap)] if self.trap is not None else PROGRAM
        command = [*program, "run", "--role", role, "--config", str(self.config(**over))]
        env = {"PYTHONPATH": os.pathsep.join((str(TESTS), os.environ.get("PYTHONPATH", ""))), **env}
        process = Process(name, command, self.folder / f"{name}.log", env=env)
        self.processes[name], self.ports[name] = process, port
        process.start()
        return process

    def up(self, *names: str) -> None:
        """Topics, the demo job, and these roles (n… a node role, c… a coordinator), ready, one of them leading."""
        self.topics()
        self.the_demo()
        for name in names:
            (self.node if name.startswith("n") else self.coordinator)(name)
        self.ready()
        if any(name.startswith("c") for name in names):
            self.led()

    def ready(self, *names: str) -> None:
        """Wait until these (all, when none is named) say on /readyz that they are."""
        for name in names or self.processes:
            self.until(f"{name} ready", lambda name=name: self._not_ready(name))  # type: ignore[misc]  # bound now

    def _not_ready(self, name: str) -> str:
        if not self.processes[name].running:
            raise ServiceFailedError(f"{name} has ended: {self.said(name)}")
        status, text = self.http(name, "/readyz")
        return "" if status == 200 else text

    def http(self, name: str, path: str) -> tuple[int, str]:
        """What a role answers; status 0 when it does not."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}{path}", timeout=5) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name: str, metric: str, **labels: str) -> float:
        """One sample of a role's /metrics; 0 when it is not there."""
        wanted = metric + ("{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else "")
        for line in self.http(name, "/metrics")[1].splitlines():
            if line.startswith(f"{wanted} "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def memory_mb(self, name: str) -> float:
        """What a process holds of memory."""
        (line,) = [
            line
            for line in Path(f"/proc/{self.processes[name].pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        ]
        return int(line.split()[1]) / 1024

    def said(self, name: str) -> str:
        """All that a process has written to its log."""
        return "\n".join(self.processes[name].log_tail(400))

    def leader(self) -> str:
        """Name of the coordinator that leads; empty when none does."""
        for name in [name for name, process in self.processes.items() if name.startswith("c") and process.running]:
            if self.metric(name, "fault_agent_leading"):
                return name
        return ""

    def led(self) -> str:
        """Wait until somebody leads and has written its term; who."""
        self.until("a leader", lambda: "" if self.leader() else "nobody leads")
        leader = self.leader()
        self.until("its first step", lambda: "" if self.metric(leader, "fault_agent_steps_total") else "none")
        return leader

    def stop(self, *names: str) -> None:
        """End them in order; each must end with 0."""
        for name in names or list(self.processes):
            process = self.processes.pop(name)
            process.stop()

    def close(self) -> None:
        """End all that runs and remove what was made."""
        for process in self.processes.values():
            process.kill()
        self.give(*self._taken)
        self._clear()

    def run(self, *words: str, seconds: float = 30, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """A command of the agent to its end: exit code, and all that it said."""
        done = subprocess.run(
            [*PROGRAM, *words],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, **(env or {})},
        )
        return done.returncode, done.stdout + done.stderr

    # --- events in

    def send(self, *records: tuple[str | None, bytes | None], headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Records as any producer writes them, acknowledged when it returns."""
        asyncio.run(self._send(records, headers))

    async def _send(
        self, records: Sequence[tuple[str | None, bytes | None]], headers: Sequence[tuple[str, bytes]]
    ) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.kafka.bootstrap, acks="all", max_request_size=2_000_000)
        await producer.start()
        try:
            for key, value in records:
                raw = None if key is None else key.encode()
                await producer.send_and_wait(self.topic("events"), value, raw, headers=headers)
        finally:
            await producer.stop()

    def occur(self, code: str, device: int | None = 2, node: str = "n1", **given: Any) -> None:
        """A fault begins."""
        self.send(event(code, "occur", device, node, **given))

    def recover(self, code: str, device: int | None = 2, node: str = "n1", **given: Any) -> None:
        """It ends."""
        self.send(event(code, "recover", device, node, **given))

    # --- what came of it

    def until(self, what: str, probe: Callable[[], str], seconds: float = PATIENCE_S) -> None:
        """Poll until the probe has nothing to complain of; the logs of all roles are in the failure."""
        try:
            wait_until(what, probe, seconds=seconds)
        except ServiceFailedError as error:
            logs = "\n".join(f"--- {name}\n" + self.said(name)[-3000:] for name in self.processes)
            raise ServiceFailedError(f"{error}\n{logs}") from None

    def config_map(self, namespace: str, name: str) -> dict[str, str]:
        """A ConfigMap's data as it stands; empty when there is none."""
        answer = self.admin.request("GET", f"{_PATHS['ConfigMap'].format(namespace)}/{name}")
        return dict(answer.body.get("data") or {}) if answer.status == 200 else {}

    def version(self, namespace: str, name: str) -> str:
        """Its resourceVersion."""
        answer = self.admin.request("GET", f"{_PATHS['ConfigMap'].format(namespace)}/{name}")
        return str(answer.body["metadata"]["resourceVersion"]) if answer.status == 200 else ""

    def fault_nodes(self) -> dict[str, Any]:
        """fault-node by node name."""
        text = self.config_map(*VCJOB).get("fault-node") or "[]"
        return {entry["NodeName"]: entry for entry in json.loads(text)}

    def shown(self, *codes: str, node: str = "n1") -> str:
        """Probe: fault-node names exactly these codes on the node."""
        entry = self.fault_nodes().get(node)
        found = sorted(
            code
            for device in (entry or {}).get("FaultDeviceList") or ()
            for code in device["fault_code"].split(",")
            if code
        )
        return "" if found == sorted(codes) else f"fault-node has {found} on {node}, not {sorted(codes)}"

    def reset(self, job: str = "demo") -> dict[str, Any]:
        """reset.json of a job; empty when there is none."""
        text = self.config_map("train", f"reset-config-{job}").get("reset.json", "")
        return dict(json.loads(text)) if text else {}

    def statuses(self, *statuses: str, retry: int, job: str = "demo") -> str:
        """Probe: the list's statuses, and RetryTime."""
        info = self.reset(job)
        found = ([rank["Status"] for rank in info.get("RankList") or ()], info.get("RetryTime"))
        return "" if found == (list(statuses), retry) else f"reset.json of {job} has {found}"

    def reports(self, node: str = "n1") -> list[NodeReport]:
        """Every report of a node that is in the topic, oldest first."""
        found = asyncio.run(kafkabroker.read_all(self.kafka.bootstrap, self.topic("reports")))
        return [decode(value) for _, key, value in found if key == node.encode() and value is not None]

    def reported(self, *codes: str, node: str = "n1") -> str:
        """Probe: the node's newest report has exactly these codes active."""
        reports = self.reports(node)
        found = sorted(fault.key.code for fault in reports[-1].active) if reports else ["no report"]
        return "" if found == sorted(codes) else f"{node} reports {found}, not {sorted(codes)}"

    def reasons(self) -> list[AuditLine]:
        """The audit topic."""
        found = asyncio.run(kafkabroker.read_all(self.kafka.bootstrap, self.topic("audit")))
        lines, findings = decode_all([value for _, _, value in found if value is not None], "audit")
        assert findings == []
        return lines

    def letters(self) -> list[bytes | None]:
        """Values of the dead letters, in the order of the topic."""
        found = asyncio.run(kafkabroker.read_all(self.kafka.bootstrap, self.topic("deadletter")))
        return [value for _, _, value in found]

    def events(self, namespace: str) -> list[dict[str, Any]]:
        """Kubernetes Events of a namespace."""
        answer = self.admin.request("GET", _PATHS["Event"].format(namespace))
        return list(answer.body["items"])


def event(code: str, assertion: str, device: int | None = 2, node: str = "n1", **given: Any) -> tuple[str, bytes]:
    """Key and value of a record with one fault, now or `at` (ms)."""
    at = given.pop("at", time.time_ns() // 1_000_000)
    devices = () if device is None else (device,)
    made = message(code, node=node, assertion=assertion, at=at, number=next(_numbers), devices=devices, **given)
    return node, json.dumps(made).encode()


def one_pod_job(
    number: int, node: str = "n1", namespace: str = "train", *, device: int | None = None
) -> list[dict[str, Any]]:
    """Job `j<number>`: one pod with one device, by default that of the job's number."""
    name, device = f"j{number}", number if device is None else device
    owner = str(uuid.uuid4())
    return [
        a_group(name, namespace=namespace, owner=name, owner_uid=owner, labels=LABELS, min_member=1),
        a_pod(f"{name}-0", namespace=namespace, node=node, group=name, devices=(device,), rank_index=0, labels=LABELS),
    ]


def nodes(*names: str) -> list[dict[str, Any]]:
    """Node objects."""
    return [a_node(name, internal_ip=f"10.0.0.{number}") for number, name in enumerate(names, 1)]


def valid(item: Mapping[str, Any]) -> dict[str, Any]:
    """The object with what the API server demands of it and a cluster's own components would have set."""
    made: dict[str, Any] = json.loads(json.dumps(item))
    for key in ("uid", "creationTimestamp", "resourceVersion"):
        made["metadata"].pop(key, None)
    if made["kind"] == "Pod":
        for container in made["spec"]["containers"]:
            container.setdefault("image", "train:1")
            resources = container.get("resources") or {}
            if "requests" in resources:
                # Of an extended resource the request is the limit.
                resources["limits"] = dict(resources["requests"])
        for status in made.get("status", {}).get("containerStatuses") or ():
            for key, value in (("image", "train:1"), ("imageID", ""), ("ready", False), ("restartCount", 0)):
                status.setdefault(key, value)
    return made


def texts(lines: Iterable[AuditLine], job: str = "") -> Sequence[str]:
    """Reasons of a job (or of any), oldest first."""
    return [str(line.decision.reason) for line in lines if not job or line.decision.job == job]
