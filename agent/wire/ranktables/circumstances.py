"""What a rank table does not say and some of its rules need: the environment of its processes, the dies of its nodes.

The one rule: what is not seen is None, never a default; a rule that needs it is then not judged.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.domain.hccl import Expansion, HcclEnv, OpRetry, Sight, env_from
from agent.domain.jobs import Node, Pod
from agent.domain.ranktable import RankTable, Server


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The facts around one table; None where nobody told."""

    retry: bool | None = None
    """Operators are executed again on some level: HCCL then needs host_ip."""
    borrow: bool | None = None
    """Retry between super-pods is on and operators are expanded on the AI CPU: HCCL then reads backups."""
    rdma_inside: bool | None = None
    """HCCL_INTER_HCCS_DISABLE is true: servers of one super-pod talk over RDMA too."""
    dies: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """server_id -> physical ids on its node, for servers whose node is known."""
    unmatched: int | None = None
    """Servers to which no pod of the cluster could be matched; None: nobody looked into a cluster."""
    trouble: tuple[str, ...] = ()
    """Variables that are set to what HCCL would not take."""


def circumstances_of(envs: Iterable[HcclEnv], dies: Mapping[str, frozenset[int]] | None = None) -> Circumstances:
    """Facts from the environments of all servers: on where it is on for one of them, off only where it is for all."""
    seen = tuple(envs)
    trouble = {
        one.problem
        for env in seen
        for one in (env.retry, env.expansion, env.inter_hccs_disable)
        if one.sight is Sight.INVALID
    }
    return Circumstances(
        retry=_any(_retry(env) for env in seen),
        borrow=_any(_borrow(env) for env in seen),
        rdma_inside=_any(env.inter_hccs_disable.effective(False) for env in seen),
        dies=dies or {},
        trouble=tuple(sorted(trouble)),
    )


def _as_shown(pod: Pod) -> HcclEnv:
    return env_from(pod.env, pod.env_complete)


def circumstances_in_cluster(
    table: RankTable, pods: Iterable[Pod], nodes: Iterable[Node], env_of: Callable[[Pod], HcclEnv] = _as_shown
) -> Circumstances:
    """Facts from the pods and nodes of a cluster, each matched to its server: by UID, host IP, pod IP.

    `env_of` is the environment of a pod, by default what its spec shows.
    """
    dies_of = {node.name: frozenset(node.device_ids) for node in nodes if node.device_ids is not None}
    envs: dict[str, HcclEnv] = {}
    dies: dict[str, frozenset[int]] = {}
    for pod in pods:
        server = _server_of(table, pod)
        if server is None or not pod.live:
            continue
        envs[server.server_id] = env_of(pod)
        if pod.node is not None and pod.node in dies_of:
            dies[server.server_id] = dies_of[pod.node]
    found = circumstances_of((envs.get(server.server_id, HcclEnv()) for server in table.servers), dies)
    return replace(found, unmatched=sum(server.server_id not in envs for server in table.servers))


def _server_of(table: RankTable, pod: Pod) -> Server | None:
    named = table.server(pod.server_id) if pod.server_id else None
    return named or table.server_for(pod_uid=pod.uid, host_ip=pod.host_ip, pod_ip=pod.pod_ip)


def _any(answers: Iterable[bool | None]) -> bool | None:
    told = set(answers)
    return True if True in told else False if told == {False} else None


def _retry(env: HcclEnv) -> bool | None:
    levels = env.retry.effective(OpRetry())
    return None if levels is None else levels.l1 or levels.l2


def _borrow(env: HcclEnv) -> bool | None:
    levels, where = env.retry.effective(OpRetry()), env.expansion.effective(Expansion.AI_CPU)
    if (levels is not None and not levels.l2) or (where is not None and not where.on_ai_cpu):
        return False
    return None if levels is None or where is None else True
