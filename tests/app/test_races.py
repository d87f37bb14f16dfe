"""Our three documents among other writers, in memory: every case that the API server is put through, on more seeds."""

from typing import Any

import pytest
from contended import Bench
from contracts.races import Make, RacesContract
from rivals import MemoryHand

from agent.adapters.memory import MemoryDocumentStore


class TestRacesInMemory(RacesContract):
    @pytest.fixture
    def seeds(self) -> int:
        return 8

    @pytest.fixture
    def make(self) -> Make:
        async def made(seed: int = 0, **settings: Any) -> Bench:
            store = MemoryDocumentStore()
            return Bench(store, MemoryHand(store), seed, **settings)

        return made
