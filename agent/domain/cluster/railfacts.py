"""What is known of a job's processes around a rail question: dies that they see, HCCL variables of each node.

The one rule: a fact that nobody told, that is old or that cannot be read is unknown, never good.
"""

from collections.abc import Iterable

from agent.domain.cluster.book import ClusterBook
from agent.domain.hccl import HcclEnv, together, visible_among
from agent.domain.jobs import Job, Pod, stated_by
from agent.domain.ranktable import pair_die
from agent.domain.vocab import NodeName


def visible_dies(book: ClusterBook, job: Job) -> dict[NodeName, frozenset[int] | None]:
    """Dies on each node that the process of the rank on the other die of their NPU sees; None: not known.

    A die that only another pod of the job sees is none of them: a process moves its traffic within its own container.
    """
    stated = stated_by(job.annotations)
    found: dict[NodeName, frozenset[int] | None] = {}
    for pod in _with_devices(book, job):
        assert pod.node is not None
        seen = visible_among(pod.devices, stated.seen(pod.env, pod.env_complete).visible_devices)
        before = found.get(pod.node, frozenset())
        if seen is None or before is None:
            found[pod.node] = None
        else:
            found[pod.node] = before | frozenset(die for die in seen if pair_die(die) in pod.devices)
    return found


def hccl_envs(book: ClusterBook, job: Job) -> dict[NodeName, HcclEnv]:
    """HCCL variables on each node, as pod specs show them and the job states them; else unknown."""
    stated = stated_by(job.annotations)
    found: dict[NodeName, list[HcclEnv]] = {}
    for pod in _with_devices(book, job):
        assert pod.node is not None
        found.setdefault(pod.node, []).append(stated.seen(pod.env, pod.env_complete))
    return {node: together(envs) for node, envs in found.items()}


def _with_devices(book: ClusterBook, job: Job) -> Iterable[Pod]:
    return (pod for pod in book.jobs.pods_of(job.id) if pod.node is not None and pod.devices)
