"""The ledger of borrowed NPUs on a real API server: of two who want one NPU one gets it; what `rail status` reads."""

import asyncio
import json
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from contracts.railcontest import BYSTANDER, Arena, RailContest
from kubeclients import clear, client_of, make_namespace
from services.harness import KubeEndpoint

from agent.adapters.kube import KubeClient, KubeDocumentStore
from agent.domain.rail.reservations import RailLedger
from agent.ports import ConfigMap, DocumentStore
from agent.wire.railfile import LEDGER_KEY, LEDGER_NAME, encode_ledger


@pytest.fixture
async def clients(kube: KubeEndpoint) -> AsyncIterator[tuple[KubeClient, KubeClient]]:
    """Two, each with connections of its own."""
    async with client_of(kube) as one, client_of(kube) as two:
        yield one, two


class TestOnTheServer(RailContest):
    @pytest.fixture
    def arena(self, kube: KubeEndpoint, clients: tuple[KubeClient, KubeClient]) -> Arena:
        @asynccontextmanager
        async def fresh() -> AsyncIterator[tuple[str, DocumentStore, DocumentStore]]:
            namespace = make_namespace(kube, f"rails-{uuid.uuid4().hex[:8]}")
            one, two = (KubeDocumentStore(client, namespace=namespace) for client in clients)
            try:
                yield namespace, one, two
            finally:  # rail status reads the ledgers of every namespace
                clear(kube, f"/api/v1/namespaces/{namespace}/configmaps")

        def opened() -> AbstractAsyncContextManager[tuple[str, DocumentStore, DocumentStore]]:
            return fresh()

        return opened


def status(kube: KubeEndpoint, folder: Path, cluster: str) -> tuple[int, str, str]:
    """`rail status --json` as an operator calls it."""
    config = folder / "agent.yaml"
    text = {"cluster": {"id": cluster}, "kubernetes": {"kubeconfig": str(kube.kubeconfig)}}
    config.write_text(json.dumps(text))
    command = [str(Path(sys.executable).with_name("fault-agent")), "rail", "status", "--json", "--config", str(config)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=os.environ)
    return ran.returncode, ran.stdout, ran.stderr


async def test_rail_status_reads_the_ledger_on_the_server_and_kafka_is_not_asked(
    kube: KubeEndpoint, clients: tuple[KubeClient, KubeClient], tmp_path: Path
) -> None:
    namespace = make_namespace(kube, f"rails-{uuid.uuid4().hex[:8]}")
    store = KubeDocumentStore(clients[0], namespace=namespace)
    labels = {"app.kubernetes.io/managed-by": "fault-agent"}
    text = encode_ledger(RailLedger((BYSTANDER,)), "of-status")
    made = await store.put(ConfigMap(namespace, LEDGER_NAME, {LEDGER_KEY: text}, labels=labels))
    try:
        code, out, err = await asyncio.to_thread(status, kube, tmp_path, "of-status")
        assert (code, err) == (0, ""), err
        (job,) = json.loads(out)["jobs"]
        (plan,) = job["plans"]
        assert (job["job"], plan["plan"], plan["state"]) == ("train/third", "0123456789ab", "advised")
        assert [(npu["node"], npu["npu"], npu["device_to"]) for npu in plan["npus"]] == [("n9", 3, 7)]
        code, out, err = await asyncio.to_thread(status, kube, tmp_path, "another")
        assert (code, json.loads(out)["ledger"]) == (1, "unreadable")
        assert "of-status" in err
    finally:
        await store.delete(namespace, LEDGER_NAME, made.resource_version)
