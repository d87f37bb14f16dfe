"""The lease in memory keeps the port's promise."""

import pytest
from contracts.lease import LeaseContract

from agent.adapters.memorylease import MemoryLease


class TestMemoryLease(LeaseContract):
    @pytest.fixture
    def lease(self) -> MemoryLease:
        return MemoryLease()

    @pytest.fixture
    def rival(self, lease: MemoryLease) -> MemoryLease:
        return lease.another()
