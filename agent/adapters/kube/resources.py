"""What the Kubernetes API calls the things the agent reads and writes.

The one rule: a path is made of quoted names, so no name can lead to another resource.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API serves it."""

    kind: str
    plural: str
    """The word in paths and in RBAC rules."""
    api_version: str
    """`v1`, or group and version."""
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; empty for the core."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str = "", name: str = "") -> str:
        """Path below the server's address; without a namespace, of all namespaces together."""
        parts = ["apis" if self.group else "api", *self.api_version.split("/")]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        return "/" + "/".join(quote(part, safe="") for part in parts)


CONFIG_MAPS: Final = Resource("ConfigMap", "configmaps", "v1")
PODS: Final = Resource("Pod", "pods", "v1")
NODES: Final = Resource("Node", "nodes", "v1", namespaced=False)
POD_GROUPS: Final = Resource("PodGroup", "podgroups", "scheduling.volcano.sh/v1beta1")
LEASES: Final = Resource("Lease", "leases", "coordination.k8s.io/v1")
EVENTS: Final = Resource("Event", "events", "events.k8s.io/v1")


@dataclass(frozen=True, slots=True)
class Watched:
    """What one list and watch looks at."""

    resource: Resource
    namespace: str = ""
    """Empty: all namespaces."""
    labels: str = ""
    """Label selector."""
    fields: str = ""
    """Field selector; ConfigMaps know metadata.name and metadata.namespace, Pods spec.nodeName and more."""
    optional: bool = False
    """The API may not serve this kind (its CRD is not installed); then there are none of it."""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.resource.plural}{where}"
