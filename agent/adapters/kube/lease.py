"""A LeaseStore on the API server: one Lease of coordination.k8s.io/v1.

The one rule: every write names the version it was made from, so of two that want the lease one gets a Conflict.
"""

from typing import Any

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.errors import NotFound
from agent.adapters.kube.resources import LEASES
from agent.adapters.objects import check_key
from agent.errors import Conflict, Refused
from agent.ports import LeaseState


class KubeLease:
    """The Lease `namespace`/`name`. What others have added to the object (labels, annotations) is kept."""

    def __init__(self, client: KubeClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace, self._name = check_key(namespace, name)
        self._last: dict[str, Any] = {}

    async def read(self, within: float) -> LeaseState:
        try:
            self._last = await self._client.call("get", LEASES, self._namespace, self._name, within=within)
        except NotFound:
            self._last = {}
            return LeaseState(holder="", term=0, version="", seconds=0, renewed="")
        return _state(self._last)

    async def write(self, state: LeaseState, within: float) -> LeaseState:
        body = self._body(state)
        where = self._namespace, self._name
        try:
            answer = await self._client.call(
                "update" if state.version else "create", LEASES, *where, body=body, within=within
            )
        except NotFound as error:
            if state.version:
                raise Conflict(f"lease {'/'.join(where)}: gone, version {state.version} was expected") from error
            raise Refused(f"lease {'/'.join(where)}: there is no namespace {where[0]}", hint="create it") from error
        self._last = answer
        return _state(answer)

    def _body(self, state: LeaseState) -> dict[str, Any]:
        base = self._last if state.version and _state(self._last).version == state.version else {}
        spec = dict(base.get("spec") or {})
        if spec.get("holderIdentity", "") != state.holder or int(spec.get("leaseTransitions") or 0) != state.term:
            spec["acquireTime"] = state.renewed or None
        spec |= {
            "holderIdentity": state.holder,
            # The server takes no lease of 0 seconds.
            "leaseDurationSeconds": max(state.seconds, 1),
            "leaseTransitions": state.term,
            "renewTime": state.renewed or None,
        }
        meta = {**(base.get("metadata") or {}), "namespace": self._namespace, "name": self._name}
        meta.pop("managedFields", None)
        meta["resourceVersion"] = state.version
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": meta,
            "spec": {key: value for key, value in spec.items() if value is not None},
        }


def _state(item: dict[str, Any]) -> LeaseState:
    spec, meta = item.get("spec") or {}, item.get("metadata") or {}
    return LeaseState(
        holder=str(spec.get("holderIdentity") or ""),
        term=int(spec.get("leaseTransitions") or 0),
        version=str(meta.get("resourceVersion") or ""),
        seconds=int(spec.get("leaseDurationSeconds") or 0),
        renewed=str(spec.get("renewTime") or ""),
    )
