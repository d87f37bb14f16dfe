"""What every LeaseStore must do. A filler's test gives the fixtures `lease` and `rival`, two ways to one."""

from dataclasses import replace

import pytest

from agent.errors import Conflict, Unavailable
from agent.ports import LeaseState, LeaseStore

FIRST = LeaseState(holder="a", term=1, version="", seconds=15, renewed="2026-01-01T00:00:00.000000Z")
PATIENT_S = 40.0
"""For one request; no test here is about how long it takes."""


class LeaseContract:
    async def test_a_lease_that_nobody_wrote_is_nobodys(self, lease: LeaseStore) -> None:
        assert await lease.read(PATIENT_S) == LeaseState(holder="", term=0, version="", seconds=0, renewed="")

    async def test_what_is_written_is_read_by_the_other(self, lease: LeaseStore, rival: LeaseStore) -> None:
        written = await lease.write(FIRST, PATIENT_S)
        assert written.version
        assert written == replace(FIRST, version=written.version)
        assert await rival.read(PATIENT_S) == written

    async def test_of_two_that_create_it_one_gets_a_conflict(self, lease: LeaseStore, rival: LeaseStore) -> None:
        await lease.write(FIRST, PATIENT_S)
        with pytest.raises(Conflict):
            await rival.write(replace(FIRST, holder="b"), PATIENT_S)
        assert (await lease.read(PATIENT_S)).holder == "a"

    async def test_a_stale_version_is_a_conflict_and_changes_nothing(
        self, lease: LeaseStore, rival: LeaseStore
    ) -> None:
        first = await lease.write(FIRST, PATIENT_S)
        second = await rival.write(replace(first, holder="b", term=2, renewed="2026-01-01T00:00:09.000000Z"), PATIENT_S)
        with pytest.raises(Conflict):
            await lease.write(replace(first, renewed="2026-01-01T00:00:10.000000Z"), PATIENT_S)
        assert await lease.read(PATIENT_S) == second
        assert (second.holder, second.term) == ("b", 2)

    async def test_each_renewal_has_a_version_of_its_own(self, lease: LeaseStore) -> None:
        first = await lease.write(FIRST, PATIENT_S)
        second = await lease.write(replace(first, renewed="2026-01-01T00:00:02.000000Z"), PATIENT_S)
        assert second.version != first.version
        assert second.renewed == "2026-01-01T00:00:02.000000Z"

    async def test_a_lease_given_back_has_no_holder_and_keeps_its_term(self, lease: LeaseStore) -> None:
        first = await lease.write(FIRST, PATIENT_S)
        await lease.write(replace(first, holder="", seconds=0), PATIENT_S)
        read = await lease.read(PATIENT_S)
        assert (read.holder, read.term) == ("", 1)

    async def test_a_request_without_time_is_not_sent(self, lease: LeaseStore) -> None:
        with pytest.raises(Unavailable):
            await lease.write(FIRST, 0)
        assert (await lease.read(PATIENT_S)).version == ""
