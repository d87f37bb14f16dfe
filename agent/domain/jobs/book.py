"""Which job, pod and rank a device belongs to: the index over the cluster's objects.

The one rule: an answer follows from the objects held now, whatever order they came in, and each change costs
what the changed object is big. The one memory beyond them is a job's incarnation, which tells a job whose pods
were all replaced from one that lost some.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from agent.domain.jobs.pods import Key, PodIndex
from agent.domain.jobs.values import (
    Binding,
    Finding,
    Job,
    Node,
    Pod,
    PodGroup,
    Product,
    RankTableFacts,
    job_id,
    product_of_hardware,
    product_of_labels,
    ring_size,
)
from agent.domain.jobs.view import (
    Incarnation,
    JobView,
    RankLookup,
    claim_findings,
    config_name,
    describe,
    pod_findings,
    pod_order,
    rank_of,
)
from agent.domain.vocab import JobId, NodeName


@dataclass(frozen=True, slots=True)
class Touched:
    """Jobs and nodes whose answers a change may have altered; false when there are none."""

    jobs: frozenset[JobId] = frozenset()
    nodes: frozenset[NodeName] = frozenset()

    def __or__(self, other: "Touched") -> "Touched":
        return Touched(self.jobs | other.jobs, self.nodes | other.nodes)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.nodes)


_NOTHING: Final = Touched()


class JobBook:
    """The cluster's objects and what follows from them. Changed only by apply_*, remove_*, sync and resume."""

    def __init__(self) -> None:
        self._pods = PodIndex()
        self._groups: dict[JobId, PodGroup] = {}
        self._nodes: dict[NodeName, Node] = {}
        self._tables: dict[Key, RankLookup | str] = {}
        self._of_owner: dict[Key, set[JobId]] = {}
        self._lives: dict[JobId, Incarnation] = {}
        self._views: dict[JobId, JobView] = {}

    # --- changes

    def apply_pod(self, pod: Pod) -> Touched:
        """Take in a pod; one with the same name, whatever its UID, is replaced by it."""
        key = (pod.namespace, pod.name)
        if self._pods.get(key) == pod:
            return _NOTHING
        old = self._pods.take(key)
        self._pods.put(pod)
        touched = self._touch(pod.job, pod.node)
        return touched if old is None else touched | self._touch(old.job, old.node)

    def remove_pod(self, namespace: str, name: str, uid: str = "") -> Touched:
        """The pod is gone. A UID other than the held one means that the replacement was seen first."""
        key = (namespace, name)
        pod = self._pods.get(key)
        if pod is None or (uid and pod.uid != uid):
            return _NOTHING
        self._pods.take(key)
        return self._touch(pod.job, pod.node)

    def apply_group(self, group: PodGroup) -> Touched:
        """Take in a PodGroup; nodes are touched unless only its phase changed."""
        job = job_id(group.namespace, group.name)
        old = self._groups.get(job)
        if old == group:
            return _NOTHING
        if old is not None:
            self._disown(job, old)
        self._groups[job] = group
        self._of_owner.setdefault(_owner_key(group), set()).add(job)
        if old is not None and _facts(old) == _facts(group):
            return self._touch(job)
        return self._touch(job, *self.nodes_of(job))

    def remove_group(self, namespace: str, name: str) -> Touched:
        """The PodGroup is gone: its pods belong to no job from now on."""
        job = job_id(namespace, name)
        group = self._groups.pop(job, None)
        if group is None:
            return _NOTHING
        self._disown(job, group)
        self._lives.pop(job, None)
        return self._touch(job, *self.nodes_of(job))

    def apply_node(self, node: Node) -> Touched:
        """Take in a node: its product and device list may change rings and logic ids."""
        if self._nodes.get(node.name) == node:
            return _NOTHING
        self._nodes[node.name] = node
        return Touched(frozenset(self.jobs_on(node.name)), frozenset({node.name}))

    def remove_node(self, name: NodeName) -> Touched:
        """The node is gone; pods bound to it stay bound until they go too."""
        if self._nodes.pop(name, None) is None:
            return _NOTHING
        return Touched(frozenset(self.jobs_on(name)), frozenset({name}))

    def apply_rank_table(self, namespace: str, job: str, facts: RankTableFacts | None, reason: str = "") -> Touched:
        """Take in what rings-config-`job` holds; `facts` None: not completed or unreadable, `reason` says why."""
        key = (namespace, job)
        old = self._tables.get(key)
        if (old.facts if isinstance(old, RankLookup) else old) == (reason if facts is None else facts):
            return _NOTHING
        self._tables[key] = reason if facts is None else RankLookup(facts)
        return self._touch_owned(key)

    def remove_rank_table(self, namespace: str, job: str) -> Touched:
        """The rank table is gone; ranks follow from the pods' rank index again."""
        if self._tables.pop((namespace, job), None) is None:
            return _NOTHING
        return self._touch_owned((namespace, job))

    def sync(
        self, objects: Iterable[Pod | PodGroup | Node], tables: Mapping[Key, RankTableFacts | str] | None = None
    ) -> Touched:
        """Make the book hold exactly these objects; `tables` by namespace and job, a str says why one is unusable."""
        tables = tables or {}
        pods: dict[Key, Pod] = {}
        groups: dict[Key, PodGroup] = {}
        nodes: dict[NodeName, Node] = {}
        for item in objects:
            match item:
                case Pod():
                    pods[item.namespace, item.name] = item
                case PodGroup():
                    groups[item.namespace, item.name] = item
                case Node():
                    nodes[item.name] = item
        held = {(group.namespace, group.name) for group in self._groups.values()}
        changes = [
            *(self.remove_pod(*key) for key in self._pods.all().keys() - pods.keys()),
            *(self.remove_group(*key) for key in held - groups.keys()),
            *(self.remove_node(name) for name in self._nodes.keys() - nodes.keys()),
            *(self.remove_rank_table(*key) for key in self._tables.keys() - tables.keys()),
            *(self.apply_node(node) for node in nodes.values()),
            *(self.apply_group(group) for group in groups.values()),
            *(self.apply_pod(pod) for pod in pods.values()),
            *(
                self.apply_rank_table(*key, None, table)
                if isinstance(table, str)
                else self.apply_rank_table(*key, table)
                for key, table in tables.items()
            ),
        ]
        return Touched(
            frozenset().union(*(change.jobs for change in changes)),
            frozenset().union(*(change.nodes for change in changes)),
        )

    def resume(self, job: JobId, incarnation: Incarnation) -> None:
        """Go on with a life that a ledger remembers, so that a restart of ours is none of the job's."""
        self._lives[job] = incarnation
        self._views.pop(job, None)

    # --- answers about devices

    def bindings(self, node: NodeName, device: int) -> tuple[Binding, ...]:
        """Every job's hold on the device, by job and pod. Pods without a known PodGroup have none."""
        found = [binding for pod in self._pods.holders(node, device) for binding in self._bind(pod, device)]
        return tuple(sorted(found, key=lambda binding: (binding.job, binding.pod.name)))

    def owners_on(self, node: NodeName) -> dict[int, JobId]:
        """The job of each device of the node that one holds; of several one whose pod still runs, the last by name."""
        pods = [(not pod.ended, pod.job, pod.bound) for pod in self._pods.on_node(node) if pod.job is not None]
        return {device: job for _, job, bound in sorted(pods) if job in self._groups for device in bound}

    def devices_of(self, job: JobId, node: NodeName) -> tuple[int, ...]:
        """Physical ids that the job's pods hold on the node, ascending."""
        return tuple(sorted({device for pod in self._pods.on_node(node) if pod.job == job for device in pod.bound}))

    def devices_in_use(self, node: NodeName) -> frozenset[int]:
        """Devices held by a pod that has not ended, whether or not it belongs to a job."""
        return frozenset(device for pod in self._pods.on_node(node) if not pod.ended for device in pod.devices)

    def devices_of_node(self, node: NodeName) -> tuple[int, ...]:
        """The node's whole device list as far as its object and its pods tell, ascending."""
        known = self._nodes.get(node)
        listed = set(known.device_ids or ()) if known is not None else set()
        return tuple(sorted(listed.union(*(pod.devices for pod in self._pods.on_node(node)))))

    def logic_id(self, node: NodeName, device: int) -> int:
        """Place of the device in the node's whole list; the physical id itself when nothing names the device."""
        listed = self.devices_of_node(node)
        return listed.index(device) if device in listed else device

    def product_of(self, node: NodeName) -> Product:
        """Product by the node's label, else by its jobs' labels, else by their rank tables, if those agree."""
        known = self._nodes.get(node)
        if known is not None and known.product is not Product.UNKNOWN:
            return known.product
        views = [view for job in self.jobs_on(node) if (view := self._view(job)) is not None]
        tables = [self.rank_table(view.job.id) for view in views]
        for products in (
            {product_of_labels(view.job.labels) for view in views},
            {product_of_hardware(table.hardware_type) for table in tables if table is not None},
        ):
            products.discard(Product.UNKNOWN)
            if products:
                return products.pop() if len(products) == 1 else Product.UNKNOWN
        return Product.UNKNOWN

    def prefix_of(self, node: NodeName) -> str:
        """First part of the node's device names: as its pods spell it, else by product."""
        prefixes = sorted({pod.device_prefix for pod in self._pods.on_node(node) if pod.device_prefix})
        return prefixes[0] if prefixes else "npu" if self.product_of(node) is Product.A5 else "Ascend910"

    def ring_of(self, node: NodeName, device: int, job: JobId) -> tuple[int, ...]:
        """The job's devices on the node that are reset together with `device`, ascending."""
        owned = self.devices_of(job, node)
        listed = self.devices_of_node(node)
        size = ring_size(self.product_of(node), max(len(listed), listed[-1] + 1 if listed else 0))
        return owned if size is None else tuple(other for other in owned if other // size == device // size)

    # --- answers about jobs

    def job(self, job: JobId) -> Job | None:
        """The job, or None when its PodGroup is not there."""
        view = self._view(job)
        return view.job if view is not None else None

    def jobs(self) -> tuple[Job, ...]:
        """All jobs whose PodGroup is there, by id."""
        return tuple(view.job for job in sorted(self._groups) if (view := self._view(job)) is not None)

    def jobs_on(self, node: NodeName) -> tuple[JobId, ...]:
        """Known jobs with a pod on the node, ended ones included, sorted."""
        here = {pod.job for pod in self._pods.on_node(node)}
        return tuple(sorted(job for job in here if job in self._groups))

    def pods_of(self, job: JobId) -> tuple[Pod, ...]:
        """Pods of the job by rank index, then name."""
        return tuple(sorted(self._pods.of_job(job), key=pod_order))

    def nodes_of(self, job: JobId) -> tuple[NodeName, ...]:
        """Nodes the job's pods are bound to, sorted."""
        return tuple(sorted({pod.node for pod in self._pods.of_job(job) if pod.node is not None}))

    def rank_table(self, job: JobId) -> RankTableFacts | None:
        """The job's completed rank table, or None."""
        group = self._groups.get(job)
        table = self._table(group) if group is not None else None
        return table.facts if isinstance(table, RankLookup) else None

    def table_problem(self, job: JobId) -> str:
        """Why the job's rank table cannot be used; empty when it can be, or when there is none."""
        group = self._groups.get(job)
        table = self._table(group) if group is not None else None
        return table if isinstance(table, str) else ""

    def placed(self, job: JobId) -> bool:
        """As many pods run or start on a node as the PodGroup's minMember asks, or as the last life had."""
        view = self._view(job)
        return view is not None and view.job.placed

    def incarnation(self, job: JobId) -> str:
        """Id of the job's life; empty until its pods were first seen placed.

        A life is noticed when the job is asked for, so ask for touched jobs after each batch of changes.
        """
        view = self._view(job)
        return view.job.incarnation if view is not None else ""

    def life(self, job: JobId) -> Incarnation | None:
        """The whole incarnation, for a ledger to keep and `resume` with."""
        self._view(job)
        return self._lives.get(job)

    def node(self, name: NodeName) -> Node | None:
        """The node's object, or None when it is not there."""
        return self._nodes.get(name)

    def nodes(self) -> tuple[Node, ...]:
        """All nodes by name."""
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    def counts(self) -> tuple[int, int, int]:
        """How many nodes, jobs (their PodGroups) and pods are held now."""
        return len(self._nodes), len(self._groups), len(self._pods.all())

    def findings(self) -> tuple[Finding, ...]:
        """Everything wrong with the objects held now, sorted."""
        return tuple(sorted(set(self._findings())))

    def findings_of(self, job: JobId) -> tuple[Finding, ...]:
        """What is wrong with one job and its pods, sorted."""
        view = self._view(job)
        told = [*view.findings] if view is not None else []
        told += [one for pod in self.pods_of(job) for one in pod_findings(pod, view is not None)]
        return tuple(sorted(set(told)))

    def sharers(self, job: JobId) -> tuple[JobId, ...]:
        """Other jobs of the same owner's name that have not ended, sorted: names made of it are theirs too."""
        group = self._groups.get(job)
        others = self._of_owner[_owner_key(group)] - {job} if group is not None else ()
        return tuple(sorted(one for one in others if (view := self._view(one)) is not None and not view.job.finished))

    # --- inside

    def _bind(self, pod: Pod, device: int) -> Iterator[Binding]:
        if pod.node is None or pod.job is None or pod.job not in self._groups:
            return
        table = self._table(self._groups[pod.job])
        rank = rank_of(pod, device, table if isinstance(table, RankLookup) else None)
        yield Binding(pod.job, pod, device, rank, self.logic_id(pod.node, device), pod.devices.index(device))

    def _table(self, group: PodGroup) -> RankLookup | str | None:
        return self._tables.get(_owner_key(group))

    def _view(self, job: JobId) -> JobView | None:
        group = self._groups.get(job)
        if group is None:
            return None
        if job not in self._views:
            view = describe(group, list(self._pods.of_job(job)), self._table(group), self._lives.get(job))
            self._views[job] = view
            if view.life is not None:
                self._lives[job] = view.life
        return self._views[job]

    def _touch(self, job: JobId | None, *nodes: NodeName | None) -> Touched:
        if job is not None:
            self._views.pop(job, None)
        known = frozenset(node for node in nodes if node is not None)
        return Touched(frozenset() if job is None else frozenset({job}), known)

    def _disown(self, job: JobId, group: PodGroup) -> None:
        jobs = self._of_owner[_owner_key(group)]
        jobs.discard(job)
        if not jobs:
            del self._of_owner[_owner_key(group)]

    def _touch_owned(self, owner: Key) -> Touched:
        touched = _NOTHING
        for job in self._of_owner.get(owner, ()):
            touched |= self._touch(job, *self.nodes_of(job))
        return touched

    def _findings(self) -> Iterator[Finding]:
        for job in self._groups:
            view = self._view(job)
            yield from view.findings if view is not None else ()
        for pod in self._pods.all().values():
            yield from pod_findings(pod, pod.job in self._groups)
        for node, device, pods in self._pods.crowded():
            yield from claim_findings(node, device, pods)


def _owner_key(group: PodGroup) -> Key:
    """Whose rings-config belongs to the group: its owner's; a group without one goes by its own name."""
    return group.namespace, config_name(group)


def _facts(group: PodGroup) -> PodGroup:
    """The group without what changes in its everyday life."""
    return replace(group, phase="")
