"""Paths of the API."""

import pytest

from agent.adapters.kube.resources import CONFIG_MAPS, LEASES, NODES, POD_GROUPS, PODS, Resource, Watched


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "path"),
    [
        pytest.param(PODS, "", "", "/api/v1/pods", id="all namespaces"),
        pytest.param(CONFIG_MAPS, "a", "b", "/api/v1/namespaces/a/configmaps/b", id="one object"),
        pytest.param(NODES, "", "n1", "/api/v1/nodes/n1", id="without namespace"),
        pytest.param(NODES, "a", "n1", "/api/v1/nodes/n1", id="a namespace that does not apply"),
        pytest.param(
            POD_GROUPS, "a", "", "/apis/scheduling.volcano.sh/v1beta1/namespaces/a/podgroups", id="a group of its own"
        ),
        pytest.param(LEASES, "a", "b", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", id="lease"),
        pytest.param(CONFIG_MAPS, "a", "../x", "/api/v1/namespaces/a/configmaps/..%2Fx", id="a name that leads out"),
    ],
)
def test_where_an_object_is(resource: Resource, namespace: str, name: str, path: str) -> None:
    assert resource.path(namespace, name) == path


def test_what_is_watched_names_itself() -> None:
    assert str(Watched(PODS)) == "pods"
    assert str(Watched(CONFIG_MAPS, "mindx-dl")) == "configmaps in mindx-dl"
