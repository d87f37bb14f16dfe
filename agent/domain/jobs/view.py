"""One job seen whole: its labels, ranks, placement and life, from its PodGroup, its pods and its rank table.

The one rule: pure; the same objects give the same view and the same findings.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2s

from agent.domain.jobs.values import (
    Finding,
    FindingCode,
    Job,
    Pod,
    PodGroup,
    RankTableFacts,
    ServerFacts,
    job_id,
    merge_annotations,
    merge_labels,
    parse_labels,
)
from agent.domain.vocab import NodeName


@dataclass(frozen=True, slots=True)
class Incarnation:
    """One life of a job: from the placing of its pods until none of them is left and others are placed."""

    id: str
    members: frozenset[str]
    """Digests (`pod_digest`) of the pods that carry this life now."""


def pod_digest(uid: str) -> str:
    """Twelve hex digits for a pod UID: short enough to keep thousands in a ledger."""
    return blake2s(uid.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def next_incarnation(last: Incarnation | None, present: Iterable[str], live: Iterable[str]) -> Incarnation:
    """The life of a placed job: `last` goes on while one of its pods does, else a new one begins.

    `present`: digests of the pods that have not ended, those on their way out included; `live`: of the placed
    ones. A replacement joins the life of the pods it stands beside, so replacing one by one begins no new life.
    """
    living = frozenset(live)
    if last is not None and last.members & living:
        return last if last.members == living else Incarnation(last.id, living)
    if last is not None and not last.members.isdisjoint(present):
        return last  # the last of the old pods is on its way out: the new life begins without it
    return Incarnation(blake2s(",".join(sorted(living)).encode(), digest_size=8).hexdigest(), living)


class RankLookup:
    """A completed rank table, indexed the ways a pod is looked up in it: UID, then host, then container address."""

    def __init__(self, facts: RankTableFacts) -> None:
        self.facts = facts
        self._by_id: dict[str, list[ServerFacts]] = {}
        self._by_host: dict[str, list[ServerFacts]] = {}
        self._by_container: dict[str, list[ServerFacts]] = {}
        for server in facts.servers:
            self._by_id.setdefault(server.server_id, []).append(server)
            # a one-pod-one-node table names the server by its host's address (ascend-operator common.go:335)
            self._by_host.setdefault(server.host_ip or server.server_id, []).append(server)
            self._by_container.setdefault(server.container_ip, []).append(server)

    def rank(self, pod: Pod, device: int) -> int | None:
        """Rank of the device in the pod's server, or None when the table has no such server or device."""
        for servers in (
            self._by_id.get(pod.uid),
            self._by_host.get(pod.host_ip) if pod.host_ip else None,
            self._by_container.get(pod.pod_ip) if pod.pod_ip else None,
        ):
            if servers:
                return next((server.ranks[device] for server in servers if device in server.ranks), None)
        return None


def index_rank(pod: Pod, device: int) -> int | None:
    """Rank index × devices of the pod + place of the device among them (ascend-operator common.go:351)."""
    if pod.rank_index is None or device not in pod.devices:
        return None
    return pod.rank_index * len(pod.devices) + pod.devices.index(device)


def rank_of(pod: Pod, device: int, table: RankLookup | None) -> int | None:
    """Global rank of a pod's device: the rank table's word, else what the rank index gives."""
    listed = table.rank(pod, device) if table is not None else None
    return listed if listed is not None else index_rank(pod, device)


def pod_order(pod: Pod) -> tuple[bool, int, str]:
    """Sort key of a job's pods: rank index, then name; pods without an index last."""
    return pod.rank_index is None, pod.rank_index or 0, pod.name


def config_name(job: Job | PodGroup) -> str:
    """What names of ConfigMaps about the job end with, such as `reset-config-`: its owner's name, else its own."""
    return job.owner_name or job.name


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, its life and what is wrong with it."""

    job: Job
    life: Incarnation | None
    findings: tuple[Finding, ...]


def describe(group: PodGroup, pods: Sequence[Pod], table: RankLookup | str | None, last: Incarnation | None) -> JobView:
    """See a job whole. `table` a str: there is one, and that is why it cannot be used; `last`: its life so far."""
    job = job_id(group.namespace, group.name)
    ordered = sorted(pods, key=pod_order)
    placed_pods = [pod for pod in ordered if pod.live and pod.node is not None]
    needed = group.min_member or (len(last.members) if last is not None else 0) or 1
    placed = len(placed_pods) >= needed
    life = last
    if placed:
        present = (pod_digest(pod.uid) for pod in ordered if not pod.ended)
        life = next_incarnation(last, present, (pod_digest(pod.uid) for pod in placed_pods))
    labels = merge_labels(group.labels, (pod.labels for pod in ordered))
    annotations = merge_annotations(group.annotations, ordered[0].annotations if ordered else {})
    settings, bad = parse_labels(job, labels, annotations)
    view = Job(
        id=job,
        namespace=group.namespace,
        name=group.name,
        uid=group.uid,
        owner_kind=group.owner_kind,
        owner_name=group.owner_name,
        owner_uid=group.owner_uid,
        labels=labels,
        annotations=annotations,
        settings=settings,
        min_member=group.min_member,
        phase=group.phase,
        pods=len(ordered),
        devices=sum(len(pod.bound) for pod in ordered),
        placed=placed,
        finished=group.phase == "Completed" or (bool(ordered) and all(pod.phase == "Succeeded" for pod in ordered)),
        incarnation=life.id if life is not None else "",
    )
    return JobView(view, life, (*bad, *_group_findings(group, ordered, table), *_rank_findings(ordered, table)))


def _group_findings(group: PodGroup, pods: Sequence[Pod], table: RankLookup | str | None) -> Iterator[Finding]:
    name = f"PodGroup {group.namespace}/{group.name}"
    if not pods and group.phase == "Running":
        yield Finding(FindingCode.GROUP_WITHOUT_PODS, name, "its phase is Running, but no pod names it")
    if not group.owner_name:
        yield Finding(
            FindingCode.GROUP_WITHOUT_OWNER, name, "no ownerReferences: no reset-config and no UUID belong to it"
        )
    if isinstance(table, str):
        owner = f"ConfigMap {group.namespace}/rings-config-{config_name(group)}"
        yield Finding(FindingCode.RANK_TABLE_NOT_READY, owner, table or "its status is not completed")


def _rank_findings(pods: Sequence[Pod], table: RankLookup | str | None) -> Iterator[Finding]:
    lookup = table if isinstance(table, RankLookup) else None
    for pod in pods:
        if not pod.live:
            continue
        ranks = [
            (device, lookup.rank(pod, device) if lookup else None, index_rank(pod, device)) for device in pod.bound
        ]
        lost = [str(device) for device, listed, counted in ranks if listed is None and counted is None]
        if lost:
            reason = f"device {', '.join(lost)}: in no completed rank table, and the pod has no hccl/rankIndex"
            yield Finding(FindingCode.POD_WITHOUT_RANK, str(pod), reason)
        for device, listed, counted in ranks:
            if listed is not None and counted is not None and listed != counted:
                reason = (
                    f"device {device}: rank {listed} in the rank table, {counted} by hccl/rankIndex; the table counts"
                )
                yield Finding(FindingCode.RANK_DISAGREES, str(pod), reason)
                break  # one wrong index shifts all devices of the pod alike


def pod_findings(pod: Pod, grouped: bool) -> Iterator[Finding]:
    """What is wrong with a pod by itself; `grouped`: the PodGroup it names is there."""
    for problem in pod.problems:
        yield Finding(FindingCode.ANNOTATION_BAD, str(pod), problem)
    if pod.devices and not grouped and not pod.ended:
        why = f"its PodGroup {pod.job} is not there" if pod.job else "no annotation scheduling.k8s.io/group-name"
        yield Finding(FindingCode.POD_WITHOUT_GROUP, str(pod), f"{why}: its devices count as used, but by no job")


def claim_findings(node: NodeName, device: int, pods: Iterable[Pod]) -> Iterator[Finding]:
    """Several live pods on one device; pods that each hold a slice of it share it rightly."""
    live = [pod for pod in pods if pod.live]
    if len(live) > 1 and not all(pod.virtual for pod in live):
        reason = f"device {device} is held by {' and '.join(str(pod) for pod in live)}"
        yield Finding(FindingCode.DEVICE_CLAIMED_TWICE, f"Node {node}", reason)
