"""The Kubernetes API: documents, jobs, the lease and events for people, over one client.

The one rule: nothing above this package sees the client library; every failure leaves here as an error of
`agent.errors`, chained to its cause and without a secret in it.
"""

from agent.adapters.kube.access import KubeSettings
from agent.adapters.kube.announcer import KubeAnnouncer
from agent.adapters.kube.client import KubeClient, connect
from agent.adapters.kube.jobview import KubeJobView, trimmed, usual_kinds
from agent.adapters.kube.lease import KubeLease
from agent.adapters.kube.listing import listed
from agent.adapters.kube.resources import CONFIG_MAPS, LEASES, NODES, POD_GROUPS, PODS, Resource, Watched
from agent.adapters.kube.store import KubeDocumentStore
from agent.adapters.kube.watch import KubeWatch, Pace

__all__ = [
    "CONFIG_MAPS",
    "KubeAnnouncer",
    "KubeClient",
    "KubeDocumentStore",
    "KubeJobView",
    "KubeLease",
    "KubeSettings",
    "KubeWatch",
    "LEASES",
    "NODES",
    "PODS",
    "POD_GROUPS",
    "Pace",
    "Resource",
    "Watched",
    "connect",
    "listed",
    "trimmed",
    "usual_kinds",
]
