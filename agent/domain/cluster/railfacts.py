"""What is known of a job's processes around a rail question: dies that they see, HCCL variables of each node.

The one rule: a fact that nobody told, that is old or that cannot be read is unknown, never good.
"""

from collections.abc import Iterable, Sequence

from agent.domain.cluster.book import ClusterBook
from agent.domain.hccl import HcclEnv, together, visible_among
from agent.domain.jobs import Job, Pod, stated_by
from agent.domain.ranktable import pair_die
from agent.domain.vocab import NodeName


def pod_envs(book: ClusterBook, job: Job, assumed: HcclEnv | None = None) -> Sequence[tuple[Pod, HcclEnv]]:
    """The job's pods with devices on a node, each with its HCCL variables: as its spec shows them and the job states
    them, else unknown; or those that are `assumed` of every process.
    """
    stated = stated_by(job.annotations)
    pods = (pod for pod in book.jobs.pods_of(job.id) if pod.node is not None and pod.devices)
    return [(pod, assumed or stated.seen(pod.env, pod.env_complete)) for pod in pods]


def visible_dies(pods: Iterable[tuple[Pod, HcclEnv]]) -> dict[NodeName, frozenset[int] | None]:
    """Dies on each node that the process of the rank on the other die of their NPU sees; None: not known.

    A die that only another pod of the job sees is none of them: a process moves its traffic within its own container.
    """
    found: dict[NodeName, frozenset[int] | None] = {}
    for pod, env in pods:
        assert pod.node is not None
        seen = visible_among(pod.devices, env.visible_devices)
        before = found.get(pod.node, frozenset())
        if seen is None or before is None:
            found[pod.node] = None
        else:
            found[pod.node] = before | frozenset(die for die in seen if pair_die(die) in pod.devices)
    return found


def hccl_envs(pods: Iterable[tuple[Pod, HcclEnv]]) -> dict[NodeName, HcclEnv]:
    """HCCL variables on each node: of several pods there what is known least."""
    found: dict[NodeName, list[HcclEnv]] = {}
    for pod, env in pods:
        assert pod.node is not None
        found.setdefault(pod.node, []).append(env)
    return {node: together(envs) for node, envs in found.items()}
