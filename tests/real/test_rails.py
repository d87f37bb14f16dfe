"""Two coordinators on a real API server want one NPU at the same instant: exactly one reservation, each time."""

import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from contracts.railcontest import Arena, RailContest
from kubeclients import client_of, make_namespace
from services.harness import KubeEndpoint

from agent.adapters.kube import KubeClient, KubeDocumentStore
from agent.ports import DocumentStore


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
            yield namespace, one, two

        def opened() -> AbstractAsyncContextManager[tuple[str, DocumentStore, DocumentStore]]:
            return fresh()

        return opened
