"""What is written of a lease; the contract itself runs on a real API server."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from scriptedkube import PATIENT_S, ScriptedKube, answer, refusal, scripted

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.lease import KubeLease
from agent.errors import Conflict, Refused
from agent.ports import LeaseState

Pair = tuple[ScriptedKube, KubeClient]
WHEN = "2026-01-01T00:00:00.000000Z"
STATE = LeaseState("a", 3, "7", 15, WHEN)
STORED = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {
        "name": "l",
        "namespace": "ns",
        "resourceVersion": "7",
        "labels": {"kept": "1"},
        "managedFields": [{}],
    },
    "spec": {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 3,
        "renewTime": WHEN,
        "acquireTime": "2025-12-31T00:00:00.000000Z",
    },
}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with scripted(tmp_path) as made:
        yield made


async def test_a_renewal_keeps_what_others_added_and_when_it_was_acquired(pair: Pair) -> None:
    server, client = pair
    server.answers(answer(STORED), answer(STORED))
    lease = KubeLease(client, "ns", "l")
    state = await lease.read(PATIENT_S)
    assert state == STATE
    await lease.write(replace(state, renewed="2026-01-01T00:00:02.000000Z"), PATIENT_S)
    body = server.asked[1].body
    assert body["metadata"]["labels"] == {"kept": "1"}
    assert "managedFields" not in body["metadata"]
    assert body["spec"]["acquireTime"] == "2025-12-31T00:00:00.000000Z"
    assert body["spec"]["renewTime"] == "2026-01-01T00:00:02.000000Z"


async def test_a_new_holder_acquires_it_now(pair: Pair) -> None:
    server, client = pair
    server.answers(answer(STORED), answer(STORED))
    lease = KubeLease(client, "ns", "l")
    state = await lease.read(PATIENT_S)
    await lease.write(replace(state, holder="b", term=4, renewed="2026-01-01T00:00:20.000000Z"), PATIENT_S)
    spec = server.asked[1].body["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 4)
    assert spec["acquireTime"] == "2026-01-01T00:00:20.000000Z"


async def test_a_lease_that_is_gone_is_a_conflict_and_a_missing_namespace_is_named(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(404), refusal(404))
    lease = KubeLease(client, "ns", "l")
    with pytest.raises(Conflict, match="gone"):
        await lease.write(STATE, PATIENT_S)
    with pytest.raises(Refused, match="no namespace ns"):
        await lease.write(replace(STATE, version=""), PATIENT_S)


async def test_a_lease_with_empty_fields_is_nobodys(pair: Pair) -> None:
    server, client = pair
    server.answers(answer({"metadata": {"resourceVersion": "5"}, "spec": {}}))
    assert await KubeLease(client, "ns", "l").read(PATIENT_S) == LeaseState("", 0, "5", 0, "")


async def test_a_name_that_leads_elsewhere_is_refused(pair: Pair) -> None:
    with pytest.raises(Refused):
        KubeLease(pair[1], "ns", "../pods")
