"""Pods by name, job, node and device.

The one rule: putting a pod in and taking it out cost what its own devices are many, never what the cluster is big.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

from agent.domain.jobs.values import Pod
from agent.domain.vocab import JobId, NodeName

Key = tuple[str, str]
"""Namespace and name."""
_At = TypeVar("_At", JobId, NodeName)


class PodIndex:
    """Every pod held now; `put` and `take` are the only changes."""

    def __init__(self) -> None:
        self._pods: dict[Key, Pod] = {}
        self._members: dict[JobId, dict[Key, Pod]] = {}
        self._on_node: dict[NodeName, dict[Key, Pod]] = {}
        self._claims: dict[NodeName, dict[int, dict[Key, Pod]]] = {}
        self._crowded: set[tuple[NodeName, int]] = set()

    def get(self, key: Key) -> Pod | None:
        """The pod of that namespace and name."""
        return self._pods.get(key)

    def all(self) -> Mapping[Key, Pod]:
        """Every pod by namespace and name."""
        return self._pods

    def of_job(self, job: JobId) -> Collection[Pod]:
        """Pods whose PodGroup annotation names the job."""
        return self._members.get(job, {}).values()

    def on_node(self, node: NodeName) -> Collection[Pod]:
        """Pods scheduled to the node, ended ones included."""
        return self._on_node.get(node, {}).values()

    def holders(self, node: NodeName, device: int) -> Collection[Pod]:
        """Pods bound to the device."""
        return self._claims.get(node, {}).get(device, {}).values()

    def crowded(self) -> Iterator[tuple[NodeName, int, list[Pod]]]:
        """Devices that more than one pod is bound to, with those pods by name."""
        for node, device in self._crowded:
            claims = self._claims[node][device]
            yield node, device, [claims[key] for key in sorted(claims)]

    def put(self, pod: Pod) -> None:
        """Take in a pod whose name is free."""
        key = (pod.namespace, pod.name)
        self._pods[key] = pod
        if pod.job is not None:
            self._members.setdefault(pod.job, {})[key] = pod
        if pod.node is None:
            return
        self._on_node.setdefault(pod.node, {})[key] = pod
        for device in pod.bound:
            claims = self._claims.setdefault(pod.node, {}).setdefault(device, {})
            claims[key] = pod
            if len(claims) > 1:
                self._crowded.add((pod.node, device))

    def take(self, key: Key) -> Pod | None:
        """Take the pod of that name out; None when there is none."""
        pod = self._pods.pop(key, None)
        if pod is None:
            return None
        if pod.job is not None:
            _drop(self._members, pod.job, key)
        if pod.node is None:
            return pod
        _drop(self._on_node, pod.node, key)
        claims = self._claims.get(pod.node, {})
        for device in pod.bound:
            del claims[device][key]
            if len(claims[device]) < 2:
                self._crowded.discard((pod.node, device))
            if not claims[device]:
                del claims[device]
        if not claims:
            self._claims.pop(pod.node, None)
        return pod


def _drop(index: dict[_At, dict[Key, Pod]], at: _At, key: Key) -> None:
    held = index[at]
    del held[key]
    if not held:
        del index[at]
