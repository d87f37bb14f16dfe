"""`make demo-real`: an excerpt of the shipped scenario on a real broker and a real API server, both roles as processes.

The one rule: it shows what the servers hold, and ends with 0 only when that is what must follow from the excerpt.

The times of the messages are moved to now; within a story they keep the pace they have in the scenario, and the
stories run side by side. Link probes do not travel over Kafka: here they are told by messages of `hccn` ("link up").
"""

import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from services import harness, roles
from services.processes import Process

from agent.app.cli.timeline import Timeline
from agent.wire.audit import AuditLine, decode_audit

SCENARIO = roles.ROOT / "agent" / "app" / "scenario"
PREFIX = "npu.fault"
PARTITIONS = 12
READY_S = 60.0
END_S = 120.0
"""After the first message; by then everything must stand as expected."""
NODES = ("a2-node-0", "a2-node-1", "a3-node-0", "a3-node-1", "a3-node-2", "a3-node-3")


@dataclass(frozen=True, slots=True)
class Story:
    """Some lines of the scenario at their own pace, the first one `at` seconds after the start."""

    at: float
    lines: tuple[int, ...]
    what: str


STORIES = (
    Story(1, (5, 6, 7), "RestartRequest, the message sent twice, recovered after 15 s: U, then R and RetryTime 1"),
    Story(2, (19, 20), "two links down on a node nobody probed: refused, the links of the backups are not known"),
    Story(4, (8, 9), "a message that names another node as well, and one that was cut off: dead letters"),
    Story(6, (13, 14), "two unknown codes: the mild one does nothing, the other one is held for a person"),
    Story(8, (10,), "RestartRequest for a PyTorch job, whose readers do not act on it"),
    Story(9, (32,), "super-pod switch: the switches change the path by themselves"),
    Story(10, (34, 35, 36), "public fault, a recover that is older than it, and its recover"),
    Story(14, (44,), "BMC: CPU error on a node in use"),
    Story(20, (50,), "RestartRequest that does not recover within 30 s: U, then F"),
    Story(34, (45, 46, 47, 48, 49), "every link seen up, then one down for good: BORROW is advised after 30 s"),
    Story(
        53, (55, 56), "the platform replaces the pod whose ranks failed: RetryTime 2, so that the others start again"
    ),
    Story(66, (39,), "SeparateNPU: shown in fault-node until somebody has repaired it"),
)

REASONS = (
    ("RECOVERY_STARTED", "a2-node-0/chip/2/80C98000"),
    ("DUPLICATE_MESSAGE", "a2-node-0/chip/2/80C98000"),
    ("RECOVERY_SUCCEEDED", "a2-node-0/chip/2/80C98000"),
    ("LEVEL_NEEDS_NOTHING", "a3-node-1/chip/3/80E00209"),
    ("LEVEL_NEEDS_NOTHING", "a3-node-2/chip/0/8F0000A1"),
    ("HELD", "a3-node-2/chip/0/8F0000A2"),
    ("FRAMEWORK_NOT_SUPPORTED", "a3-node-0/chip/1/80CB800A"),
    ("RAIL_DELEGATED", "a3-node-2/switch/3.17/[0x00f10509,132332,npu,na]"),
    ("STALE", "a3-node-2/public/CCAE:ccae-optical-0042/010001001"),
    ("FAULT_CLEARED", "a3-node-2/public/CCAE:ccae-optical-0042/010001001"),
    ("ISOLATION_ONLY", "a2-node-0/chip/2/80E18402"),
    ("PLANE_NEEDS_NO_RESET", "a2-node-1/node/CPU.1/0000001D"),
    ("RAIL_REFUSED", "a3-node-1/network/1/81078603"),
    ("RAIL_REFUSED", "a3-node-1/network/3/81078603"),
    ("RECOVERY_STARTED", "a2-node-1/chip/6/80C9800A"),
    ("RECOVERY_FAILED", "a2-node-1/chip/6/80C9800A"),
    ("RESCHEDULE_RECORDED", "a2-node-1/chip/6/80C9800A"),
    ("RAIL_OBSERVING", "a3-node-0/network/2/81078603"),
    ("RAIL_ADVISED", "a3-node-0/network/2/81078603"),
)
LETTERS = ("NODE_NOT_KEY", "NOT_JSON")
FAULT_NODE = {
    "a2-node-0": ("CardUnhealthy", ["Ascend910-2"], None),
    "a3-node-0": ("CardNetworkUnhealthy", None, ["Ascend910-2"]),
    "a3-node-1": ("CardNetworkUnhealthy", None, ["Ascend910-1", "Ascend910-3"]),
}
"""Node -> NodeHealthState, UnhealthyNPU, NetworkUnhealthyNPU; some nodes may be listed besides."""
DOCUMENTS = (
    ("volcano-system", "vcjob-fault-npu-cm"),
    ("train", "reset-config-finetune-a2"),
    ("train", "fault-agent-rail-pretrain-a3"),
    ("mindx-dl", "job-reschedule-reason"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, `at` ms after the start."""

    at: int
    line: int
    key: str
    value: bytes | None
    """The message; None: `change` is made in the cluster instead."""
    change: Mapping[str, Any]
    words: str


def steps_of(lines: Sequence[str], begin: int) -> list[Step]:
    """The excerpt in order of time, with times from `begin` (ms) on."""
    found = []
    for story in STORIES:
        first = _time_of(json.loads(lines[story.lines[0] - 1]))
        for number in story.lines:
            raw = json.loads(lines[number - 1])
            at = int(story.at * 1000) + _time_of(raw) - first
            found.append(_step(raw, number, at, begin + int(story.at * 1000) - first))
    return sorted(found, key=lambda step: step.at)


def _time_of(raw: Mapping[str, Any]) -> int:
    return int(raw.get("timestamp") or raw["time"])


def _step(raw: Mapping[str, Any], number: int, at: int, shift: int) -> Step:
    if "probe" in raw:
        node, links = raw["probe"]["node"], raw["probe"]["links"]
        value = _moved(_link_up(node, links, number, raw["time"]), shift)
        return Step(at, number, node, json.dumps(value).encode(), {}, f"{node}: every link up")
    if "delete" in raw:
        return Step(at, number, "", None, raw, f"pod {raw['delete']['name']} deleted")
    if "apply" in raw:
        item = raw["apply"]
        words = f"pod {item['metadata']['name']} made on {item['spec']['nodeName']}"
        return Step(at, number, "", None, raw, words)
    value = raw["value"]
    if isinstance(value, str):
        return Step(at, number, raw["key"], value.encode(), {}, f"{raw['key']}: a record cut off in the middle")
    said = ", ".join(f"{one['faultCode']} {one['assertion']}" for one in value["faults"])
    return Step(at, number, raw["key"], json.dumps(_moved(value, shift)).encode(), {}, f"{raw['key']}: {said}")


def _moved(message: Mapping[str, Any], shift: int) -> dict[str, Any]:
    faults = [{**fault, "faultTime": fault["faultTime"] + shift} for fault in message["faults"]]
    return {**message, "timestamp": message["timestamp"] + shift, "faults": faults}


def _link_up(node: str, devices: Sequence[str], number: int, at: int) -> dict[str, Any]:
    faults = [
        {
            "faultId": f"{node}-{device}-81078603-seen",
            "faultType": "NPU",
            "faultCode": "81078603",
            "faultTime": at,
            "assertion": "recover",
            "influence": [{"nodeName": node, "deviceIds": [int(device)]}],
        }
        for device in devices
    ]
    return {"id": f"{node}-probe-{number}", "timestamp": at, "version": "1.0", "resource": "hccn", "faults": faults}


class Demo:
    """The services, the roles and what has been seen of them."""

    def __init__(self, kafka: harness.Kafka, kube: harness.Kube, folder: Path) -> None:
        self._kafka = kafka
        self._kube = kube
        self._folder = folder
        self._timeline = Timeline()
        self._seen: set[tuple[str, str]] = set()

    def furnish(self) -> None:
        """Topics, rights, objects and the settings of both roles."""
        self._kube.kubectl("create", "namespace", "train")
        account = roles.coordinator_account(self._kube)
        common = {
            "cluster": {"id": "demo-real"},
            "mode": "act",
            "kafka": {"bootstrap_servers": self._kafka.endpoint.bootstrap, "prefix": PREFIX},
            "http": {"port": 0},
        }
        self.node_config = roles.settings(self._folder / "node.yaml", **common)
        self.coordinator_config = roles.settings(
            self._folder / "coordinator.yaml", **common, kubernetes={"kubeconfig": str(account.kubeconfig)}
        )
        made = roles.verb("topics", "create", "--config", str(self.node_config))
        say(made.strip())
        count = roles.lay(self._kube.endpoint, roles.objects_of(SCENARIO / "cluster"))
        say(f"{count} objects of the scenario laid into the cluster")

    def start(self, stack: ExitStack) -> None:
        """Every role, until each has said that it works."""
        wanted = [roles.role(f"node-{node}", self.node_config, self._folder, node=node) for node in NODES]
        wanted += [roles.role(f"coordinator-{number}", self.coordinator_config, self._folder) for number in (1, 2)]
        for process in wanted:
            stack.callback(process.stop)
            process.start()
        say(f"{len(NODES)} node roles and 2 coordinators start, each a process")
        harness.wait_until("the first documents", lambda: self._not_begun(wanted), seconds=READY_S)

    def _not_begun(self, wanted: Sequence[Process]) -> str:
        for process in wanted:
            if not process.running:
                raise harness.ServiceFailedError(f"{process.name} ended: " + "\n".join(process.log_tail()))
        data = roles.data_of(self._kube.endpoint, *DOCUMENTS[0])
        return "" if data else "vcjob-fault-npu-cm is not there"

    async def play(self) -> list[str]:
        """Send the excerpt and show what is decided, until all is as expected; what is missing otherwise."""
        async with AsyncExitStack() as stack:
            reports, audit = self._reader("reports"), self._reader("audit")
            producer = AIOKafkaProducer(bootstrap_servers=self._kafka.endpoint.bootstrap)
            for client in (reports, audit, producer):
                stack.push_async_callback(client.stop)
                await client.start()
            await _claimed(reports)
            showing = asyncio.create_task(self._show(audit))
            stack.callback(showing.cancel)
            return await self._play(producer)

    def _reader(self, topic: str) -> AIOKafkaConsumer:
        """Of a whole topic, from its beginning."""
        return AIOKafkaConsumer(
            f"{PREFIX}.{topic}.v1", bootstrap_servers=self._kafka.endpoint.bootstrap, auto_offset_reset="earliest"
        )

    async def _play(self, producer: AIOKafkaProducer) -> list[str]:
        lines = (SCENARIO / "events.jsonl").read_text(encoding="utf-8").splitlines()
        start, begin = time.monotonic(), int(time.time() * 1000)
        titles = {story.lines[0]: story.what for story in STORIES}
        for step in steps_of(lines, begin):
            await asyncio.sleep(max(0.0, start + step.at / 1000 - time.monotonic()))
            if step.line in titles:
                click.echo(f"\n  # {titles[step.line]}")
            click.echo(f"  > {step.at / 1000:5.1f} s  {step.words}")
            if step.value is not None:
                await producer.send_and_wait(f"{PREFIX}.events.v1", step.value, key=step.key.encode())
            else:
                await asyncio.to_thread(self._change, step.change)
        missing = ["nothing looked at"]
        while missing and time.monotonic() - start < END_S:
            await asyncio.sleep(1)
            missing = await asyncio.to_thread(self.missing)
        return missing

    def _change(self, change: Mapping[str, Any]) -> None:
        if "delete" in change:
            roles.remove_pod(self._kube.endpoint, change["delete"]["namespace"], change["delete"]["name"])
        else:
            roles.lay(self._kube.endpoint, [change["apply"]])

    async def _show(self, audit: AIOKafkaConsumer) -> None:
        while True:
            for records in (await audit.getmany(timeout_ms=200)).values():
                for record in records:
                    self._take(decode_audit(record.value, f"audit {record.partition}:{record.offset}"))

    def _take(self, line: AuditLine) -> None:
        self._seen.add((str(line.decision.reason), line.decision.fault.rpartition("@")[0]))
        self._timeline.show(line)

    def missing(self) -> list[str]:
        """What must be there and is not."""
        found = [f"no {reason} for {fault}" for reason, fault in REASONS if (reason, fault) not in self._seen]
        data = {place: roles.data_of(self._kube.endpoint, *place) for place in DOCUMENTS}
        found += [f"no {namespace}/{name}" for (namespace, name), one in data.items() if one is None]
        if not found:
            vcjob, reset, rail, records = (one or {} for one in data.values())
            found = [*_wrong_nodes(vcjob), *_wrong_reset(reset), *_wrong_rail(rail), *_wrong_records(records)]
        return found

    def show(self) -> None:
        """What the servers hold at the end."""
        for namespace, name in DOCUMENTS:
            self._kubectl("get", "configmap", "-n", namespace, name, "-o", "yaml")
        self._kubectl("get", "configmaps", "--all-namespaces")
        self._kubectl("get", "events", "--all-namespaces")
        click.echo("\n$ fault-agent deadletter list")
        click.echo(roles.verb("deadletter", "list", "--config", str(self.node_config)), nl=False)

    def wrong_letters(self) -> list[str]:
        """Dead letters that must be there and are not."""
        listed = json.loads(roles.verb("deadletter", "list", "--json", "--config", str(self.node_config)))
        reasons = {letter["reason"] for letter in listed}
        return [f"no dead letter {reason}" for reason in LETTERS if reason not in reasons]

    def _kubectl(self, *words: str) -> None:
        click.echo(f"\n$ kubectl {' '.join(words)}")
        click.echo(self._kube.kubectl(*words).stdout, nl=False)


async def _claimed(reports: AIOKafkaConsumer) -> None:
    """Wait until each node role has claimed its node in the reports. Raises ServiceFailedError."""
    claimed: set[str] = set()
    deadline = time.monotonic() + READY_S
    while not claimed.issuperset(NODES):
        if time.monotonic() > deadline:
            raise harness.ServiceFailedError(f"no report of {', '.join(sorted(set(NODES) - claimed))}")
        for records in (await reports.getmany(timeout_ms=200)).values():
            claimed |= {(record.key or b"").decode() for record in records}


def _wrong_nodes(vcjob: Mapping[str, str]) -> list[str]:
    listed = {one["NodeName"]: one for one in json.loads(vcjob["fault-node"])}
    found = []
    for node, (health, unhealthy, network) in FAULT_NODE.items():
        one = listed.get(node, {})
        got = one.get("NodeHealthState"), one.get("UnhealthyNPU"), one.get("NetworkUnhealthyNPU")
        if got != (health, unhealthy, network):
            found.append(f"fault-node of {node}: {got}, not {(health, unhealthy, network)}")
    return found


def _wrong_reset(reset: Mapping[str, str]) -> list[str]:
    body = json.loads(reset["reset.json"])
    return [] if body.get("RetryTime") == 2 else [f"reset.json: {body}, and RetryTime 2 is expected"]


def _wrong_rail(rail: Mapping[str, str]) -> list[str]:
    text = "".join(rail.values())
    return [] if "BORROW" in text else [f"rail plan without BORROW: {text[:200]}"]


def _wrong_records(records: Mapping[str, str]) -> list[str]:
    jobs = json.loads(records["recent-reschedule-records"] or "{}")
    pods = [
        task["PodName"] for job in jobs.values() for one in job["RescheduleRecords"] for task in one["ReasonOfTask"]
    ]
    return [] if pods == ["finetune-a2-worker-1"] else [f"rescheduled pods: {pods}"]


def say(text: str) -> None:
    """Progress."""
    click.echo(f"demo: {text}")


def main() -> int:
    """0: all is as expected. 1: something is missing. 3: the services are not on this machine."""
    try:
        kafka, kube = harness.kafka(), harness.kube()
    except harness.ServiceMissingError as error:
        click.echo(f"demo-real needs real services: {error}", err=True)
        return 3
    folder = Path(tempfile.mkdtemp(prefix="fault-agent-demo-real-"))
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            say("a Kafka broker, etcd and a kube-apiserver start")
            stack.enter_context(kafka)
            stack.enter_context(kube)
            demo = Demo(kafka, kube, folder)
            demo.furnish()
            demo.start(stack)
            missing = asyncio.run(demo.play())
            demo.show()
            missing += demo.wrong_letters()
            click.echo()
            for log in sorted(folder.glob("*.log")) if missing else ():
                click.echo(f"== {log.name}\n{log.read_text()}", err=True)
            say("everything that was started is stopped")
    except harness.ServiceFailedError as failed:
        missing = [str(failed)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for problem in missing:
        click.echo(f"demo-real: not as expected: {problem}", err=True)
    say(f"{'not as expected' if missing else 'everything is as expected'}, {time.monotonic() - began:.0f} s")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
