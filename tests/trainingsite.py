"""A small site in which training runs: the real coordinator, its ConfigMaps, their other writers, and both readers.

The one rule: the coordinator is the product's own, on the product's own ledgers; what others write is what their code
writes (whole objects without resourceVersion, erased metadata), and a pod sees of it only what its mount has by now.
"""

import asyncio
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from kubebuilders import DEMO_JOB, a_group, a_pod, the_demo
from mortal import Clock, Died, MortalStore
from readers import EXITED, RUNNING, MsrunPod, TaskdManager
from rig import POLICY, T0, message

from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.otel import SilentTracer
from agent.app.bootstrap import limits_of, wishes_of
from agent.app.coordinator_app import Coordinator
from agent.app.leaving import leave_act
from agent.app.ledgers import Ledgers
from agent.app.node_app import NodeSide, Taken
from agent.app.settings import settings_from
from agent.app.world import World
from agent.domain.cluster import ClusterBook
from agent.domain.events import Decision, Position, Record
from agent.domain.isolation import Isolation
from agent.domain.reset import UNSURE
from agent.domain.vocab import JobId, Millis, Mode
from agent.ports import ConfigMap
from agent.wire import gojson
from agent.wire.inbound import Limits as BorderLimits

LABELS = {"fault-scheduling": "external-grace", "fault-retry-times": "3", "framework": "mindspore"}
RANKS = {"demo-0": (0, 1, 2, 3), "demo-1": (4, 5, 6, 7)}
HOMES = {"demo-0": "n1", "demo-1": "n2"}
RESET_NAME = "reset-config-demo"
NAMESPACE = "fault-agent"
BORN = '{"status":"initializing"}'


@dataclass
class Mounted:
    """A pod with its mount, which is brought up to the live object every `lag` seconds; 0: at once. What stood there in
    between its reader never sees.
    """

    name: str
    uid: str
    reader: MsrunPod
    lag: int
    every: int
    """Seconds between two looks of its reader."""
    seen: tuple[str, str]
    """`reset.json` and `restartType` as they are mounted."""
    kills: list[tuple[str, str]] = field(default_factory=list)
    """What was mounted each time its workers were stopped while they ran, and what was before that."""


@dataclass
class Site:
    """Job `demo` of two pods under msrun, driven second by second."""

    external: bool = False
    create: bool = True
    lags: tuple[int, int] = (0, 0)
    store: MemoryDocumentStore = field(default_factory=lambda: MemoryDocumentStore(manager="fault-agent"))

    def __post_init__(self) -> None:
        self.runner = asyncio.Runner()
        self.now = Millis(T0)
        self.told: list[Decision] = []
        self.number = 0
        self.side = NodeSide(
            POLICY, "site", "site", BorderLimits(max_clock_skew=Millis(300_000)), Millis(900_000), SilentTracer()
        )
        self.side.caught_up = True
        self.settings = settings_from(
            {
                "cluster": {"id": "site"},
                "volcano": "absent",
                "reset": {"executor": "external" if self.external else "none"},
                "documents": {"reset_config": {"create": self.create}},
            },
            "test",
        )
        self.labels = dict(LABELS)
        self.objects = {(one["kind"], one["metadata"]["name"]): one for one in the_demo(self.labels)}
        self.live_text = (BORN, "")
        self.lay({"reset.json": BORN, "checkCode": ""})
        self.pods = {name: self._mounted(name, f"uid-{name}", lag) for name, lag in zip(RANKS, self.lags, strict=True)}
        self.taskd = TaskdManager()
        self.coordinator: Coordinator | None = None
        self.mortal = Clock(10**9)
        self.foreign_retries: set[int] = set()
        """Values of RetryTime that others wrote."""
        self.retries = [0]
        """Every RetryTime in a row."""
        self.raised_by: dict[int, int] = {}
        """Value of RetryTime that we wrote -> the newest recovery at that time."""
        self.newest = 0
        self.doubts: set[int] = set()
        """Recoveries of which a coordinator that took over could not know whether they had stopped anybody."""
        self.story: list[str] = []
        """What was written and what became of the workers, for whoever has to understand a failure."""
        self.finished = False
        self.start()

    def close(self) -> None:
        """Let go of the loop."""
        self.runner.close()

    def _run(self, work: Awaitable[None]) -> None:
        async def all_of_it() -> None:
            await work

        self.runner.run(all_of_it())

    # --- the coordinator ------------------------------------------------------------------------------------------

    def start(self, writes: int | None = None) -> None:
        """A new coordinator takes over; with `writes` it dies before its write of that number."""
        self._doubt()
        self.mortal = Clock(10**9 if writes is None else writes)
        seen = MortalStore(self.store, self.mortal)
        book = ClusterBook("site", limits_of(self.settings, Mode.ACT), POLICY)
        book.isolation = Isolation(enabled=False)
        self.world = World(book)
        self.world.replace(self.objects.values(), ())
        self.coordinator = Coordinator(
            book,
            seen,
            Ledgers(seen, NAMESPACE),
            wishes_of(self.settings, Mode.ACT),
            SilentTracer(),
            self.told.append,
            _nothing,
        )
        self.side.all_dirty()
        self.coordinator.reports(self.side.reports())
        self._alive(self.coordinator.start(self.now))
        self.step()

    def _doubt(self) -> None:
        """Recoveries whose first write the one before may have made or not."""
        book = ClusterBook("site", limits_of(self.settings, Mode.ACT), POLICY)
        self._run(Ledgers(self.store, NAMESPACE).load(book, self.now, self.told.append))
        courses = book.ledger(JobId(DEMO_JOB)).courses
        self.doubts |= {one.recovery.id for one in courses if one.recovery.shown == UNSURE}

    def _alive(self, work: Awaitable[None]) -> None:
        try:
            self._run(work)
        except Died:
            self.coordinator = None

    def stop(self) -> None:
        """The coordinator is gone, with all that it has in memory."""
        self.coordinator = None

    def release(self) -> None:
        """Act mode is left and entered again: what was begun is ended by hand."""
        self.stop()
        self._doubt()
        book = ClusterBook("site", limits_of(self.settings, Mode.OBSERVE), POLICY)
        World(book).replace(self.objects.values(), ())
        wishes = wishes_of(self.settings, Mode.OBSERVE)
        self._run(leave_act(book, self.store, NAMESPACE, wishes, self.now, self.told.append, _nothing))
        self._changed()

    def step(self) -> None:
        """All that is due now."""
        if self.coordinator is not None:
            taken = Taken()
            self.side.tick(self.now, taken)
            self.coordinator.reports(self.side.reports())
            self._alive(self.coordinator.step(self.now))
        self._changed()

    # --- what happens ---------------------------------------------------------------------------------------------

    def fault(self, code: str, node: str, device: int, assertion: str = "occur") -> None:
        """An event of a device."""
        self.number += 1
        value = message(code, node=node, assertion=assertion, at=self.now, number=self.number, devices=(device,))
        record = Record(Position(0, 0, self.number), node.encode(), json.dumps(value).encode(), (), self.now)
        self.side.take(record, self.now, Taken())
        self.step()

    def clear(self) -> None:
        """Every fault recovers."""
        for book in [*self.side._books.values()]:
            for active in [*book.active.values()]:
                self.fault(active.key.code, active.key.node, int(active.key.where), assertion="recover")

    def apply(self, item: dict[str, Any]) -> None:
        """An object as it now is."""
        self.objects[item["kind"], item["metadata"]["name"]] = item
        if self.coordinator is not None:
            touched = self.world.apply(item)
            self.coordinator.touched(touched.jobs, touched.nodes)
        self.step()

    def relabel(self, **labels: str) -> None:
        """Labels of the job's PodGroup."""
        self.labels = {**self.labels, **labels}
        self.apply(a_group(labels=self.labels, phase="Completed" if self.finished else "Running"))

    def lose(self, name: str) -> None:
        """The pod is gone."""
        self.objects.pop(("Pod", name), None)
        self.pods.pop(name, None)
        if self.coordinator is not None:
            touched = self.world.delete("Pod", "train", name)
            self.coordinator.touched(touched.jobs, touched.nodes)
        self.step()

    def replace(self, name: str, lag: int = 0) -> None:
        """Another pod in its place, at its beginning."""
        self.number += 1
        uid = f"uid-{name}-{self.number}"
        pod = a_pod(name, uid=uid, node=HOMES[name], rank_index=tuple(RANKS).index(name), labels=self.labels)
        pod["metadata"]["creationTimestamp"] = datetime.fromtimestamp(self.now / 1000, UTC).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )
        self.pods[name] = self._mounted(name, uid, lag)
        self.apply(pod)

    def _mounted(self, name: str, uid: str, lag: int) -> Mounted:
        reader = MsrunPod(RANKS[name], node_rank=tuple(RANKS).index(name))
        return Mounted(name, uid, reader, lag, every=1 if name == "demo-0" else 5, seen=self.live_text)

    # --- other writers --------------------------------------------------------------------------------------------

    @property
    def live(self) -> ConfigMap | None:
        """The job's reset-config."""
        return self.runner.run(self.store.get("train", RESET_NAME))

    def info(self) -> dict[str, Any]:
        """The object in the live `reset.json`."""
        live = self.live
        found = json.loads(live.data.get("reset.json", "") or "{}") if live is not None else {}
        return found if isinstance(found, dict) else {}

    def lay(self, data: Mapping[str, str], *, bare: bool = True, manager: str = "kubectl") -> None:
        """Another writer's PUT; `bare`: labels and annotations are gone with it."""
        other = self.store.as_manager(manager)
        live = self.live
        base = live or ConfigMap("train", RESET_NAME)
        marks = {"labels": {"reset": "true"}, "annotations": {}} if bare else {}
        self._run(_put(other, replace(base, data=dict(data), **marks)))  # type: ignore[arg-type]

    def _written(self, manager: str, *, bare: bool, restart_type: str | None, **fields: Any) -> None:
        info = self.info()
        old = {
            "RankList": None,
            "UpdateTime": 0,
            "RetryTime": 0,
            "FaultFlushing": False,
            "GracefulExit": 0,
            "RestartFaultProcess": False,
            **{key: value for key, value in info.items() if key[0].isupper()},
        }
        text = gojson.encode({**old, **fields})
        data = {"reset.json": text, "checkCode": gojson.check_code(text)}
        if restart_type is not None:
            data["restartType"] = restart_type
        if "RetryTime" in fields and fields["RetryTime"] != info.get("RetryTime", 0):
            self.foreign_retries.add(fields["RetryTime"])
        self.lay(data, bare=bare, manager=manager)
        if self.coordinator is not None:
            self.coordinator.document_changed("train", RESET_NAME)
        self._changed()

    def volcano_rescheduled(self, *, whole: bool) -> None:
        """Everything is placed again: a part of the pods was replaced, or all of them (or it has just begun)."""
        retry = 0 if whole else self.info().get("RetryTime", 0) + 1
        second = self.now // 1000
        self._written(
            "vc-scheduler", bare=True, restart_type="podReschedule", RankList=[], UpdateTime=second, RetryTime=retry
        )

    def volcano_grace(self, value: int) -> None:
        """GracefulExit of a sub-healthy job."""
        self._written("vc-scheduler", bare=True, restart_type=None, GracefulExit=value)

    def clusterd(self, **fields: Any) -> bool:
        """One write of process recovery; refused while an entry has policy reset or restart."""
        entries = self.info().get("RankList") or []
        if any(entry.get("Policy") in ("reset", "restart") for entry in entries):
            return False
        fresh = {"RankList": [], "FaultFlushing": False, "RestartFaultProcess": False}
        fresh |= {"UpdateTime": self.now // 1000, "GracefulExit": 0}
        self._written("clusterd", bare=False, restart_type=None, **{**fresh, **fields})
        return True

    def delete_config(self) -> None:
        """The user deletes the job's reset-config; a mount keeps what it has."""
        live = self.live
        if live is not None:
            self._run(self.store.delete("train", RESET_NAME, live.resource_version))
            if self.coordinator is not None:
                self.coordinator.document_changed("train", RESET_NAME)

    def born(self) -> None:
        """The user makes it anew."""
        if self.live is None:
            self.lay({"reset.json": BORN, "checkCode": ""})
            if self.coordinator is not None:
                self.coordinator.document_changed("train", RESET_NAME)
            self.step()

    # --- time and readers -----------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Note what stands in the document now, for every mount to show later."""
        live = self.live
        if live is None:
            return
        found = (live.data.get("reset.json", ""), live.data.get("restartType", ""))
        if found != self.live_text:
            self.live_text = found
            info = json.loads(found[0])
            retry = info.get("RetryTime", 0)
            ours = [entry.get("RecoveryId", 0) for entry in info.get("RankList") or []]
            words = [
                f"{one.get('Status')}{one['RankId']}/{one.get('RecoveryId', '-')}" for one in info.get("RankList") or []
            ]
            self.story.append(f"{self._second()} list {' '.join(words)} RetryTime {retry} {found[1]}")
            self.newest = max([self.newest, *ours])
            if retry not in self.foreign_retries:
                self.raised_by.setdefault(retry, self.newest)
            if retry != self.retries[-1]:
                self.retries.append(retry)

    def advance(self, seconds: int) -> None:
        """Let time pass: the coordinator at its deadlines, every reader at its looks."""
        for _ in range(seconds):
            self.now = Millis(self.now + 1000)
            if self.coordinator is not None:
                due = self.coordinator.next_deadline()
                if not self.coordinator.idle or (due is not None and due <= self.now):
                    self.step()
            self.look()

    def look(self) -> None:
        """Every reader takes one look if it is its turn."""
        second = self.now // 1000
        for pod in self.pods.values():
            before = pod.seen
            if not pod.lag or second % pod.lag == pod.lag // 2:
                pod.seen = self.live_text
            if second % pod.every == 0:
                kills, state = pod.reader.kills, pod.reader.state
                pod.reader.poll(*pod.seen, now=second)
                if (pod.reader.kills, pod.reader.state) != (kills, state):
                    self.story.append(f"{self._second()} {pod.uid} {state} to {pod.reader.state}")
                if pod.reader.kills > kills:
                    pod.kills.append((pod.seen[0], before[0]))
        self.taskd.poll(self.live_text[0])

    def settle(self) -> None:
        """Everybody does what is theirs to the end: faults are over, lost pods come back, ClusterD and Volcano are
        through, and the coordinator is there.
        """
        self.start()
        self.clear()
        for name in RANKS:
            if name not in self.pods:
                self.replace(name)
        self.advance(200)
        info = self.info()
        if info.get("GracefulExit"):
            self.volcano_grace(0)
        if any(entry.get("Status") == "fault" for entry in info.get("RankList") or []) or info.get("FaultFlushing"):
            self.clusterd()
        self.relabel(**{"process-recover-enable": "off"})
        for _ in range(3):
            self.advance(400)
            for name, pod in [*self.pods.items()]:
                if pod.reader.state == EXITED:
                    self.lose(name)
                    self.replace(name)
        self.advance(400)

    def _second(self) -> int:
        return (self.now - T0) // 1000

    # --- what must be true ----------------------------------------------------------------------------------------

    def states(self) -> dict[str, str]:
        """What each pod's workers do."""
        return {name: pod.reader.state for name, pod in sorted(self.pods.items())}

    def dead(self) -> list[str]:
        """Pods whose workers do not run."""
        return [name for name, state in self.states().items() if state != RUNNING]

    def needless(self, pod: Mounted) -> list[str]:
        """Stops of running workers that neither another writer wanted nor a recovery that had not stopped them yet."""
        known: set[int] = set()
        found = []
        for text, _ in pod.kills:
            info = json.loads(text)
            entries = info.get("RankList") or []
            ours = [entry["RecoveryId"] for entry in entries if "RecoveryId" in entry]
            foreign = info.get("GracefulExit") == 1 or any(entry["Status"] == "fault" for entry in entries)
            if foreign or info.get("RetryTime", 0) in self.foreign_retries:
                continue
            recovery = max(ours, default=self.raised_by.get(info.get("RetryTime", 0), 0))
            if recovery in known or not recovery:
                found.append(text)
            known.add(recovery)
        return found

    def ledger_courses(self) -> int:
        """Recoveries that the coordinator still has."""
        assert self.coordinator is not None
        return len(self.coordinator.book.ledger(JobId(DEMO_JOB)).courses)


async def _nothing() -> None:
    """Reasons are kept in memory."""


async def _put(store: Any, document: ConfigMap) -> None:
    await store.put(document)
