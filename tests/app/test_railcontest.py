"""The contest for an NPU on the store in memory; tests/real/test_rails.py plays it on a real API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from contracts.railcontest import Arena, RailContest

from agent.adapters.memory import MemoryDocumentStore
from agent.ports import DocumentStore


@asynccontextmanager
async def fresh() -> AsyncIterator[tuple[str, DocumentStore, DocumentStore]]:
    store = MemoryDocumentStore()
    yield "fault-agent", store, store.as_manager("fault-agent")


class TestInMemory(RailContest):
    rounds = 100

    @pytest.fixture
    def arena(self) -> Arena:
        return fresh
