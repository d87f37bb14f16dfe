"""What every Cabinet must do. A filler's test gives the fixtures `cabinet` and `again` (the same, opened later)."""

from agent.ports import Cabinet


class CabinetContract:
    async def test_what_was_never_stored_is_none(self, cabinet: Cabinet) -> None:
        assert await cabinet.load("resume") is None

    async def test_the_state_stored_last_is_loaded(self, cabinet: Cabinet) -> None:
        await cabinet.store("resume", b"first and longer")
        await cabinet.store("resume", b"\x00\xff\n")
        assert await cabinet.load("resume") == b"\x00\xff\n"

    async def test_states_do_not_mix(self, cabinet: Cabinet) -> None:
        await cabinet.store("epoch", b"1")
        await cabinet.store("epoch.json", b"2")
        assert await cabinet.load("epoch") == b"1"
        assert await cabinet.load("epoch.json") == b"2"

    async def test_an_empty_state_is_not_an_absent_one(self, cabinet: Cabinet) -> None:
        await cabinet.store("epoch", b"")
        assert await cabinet.load("epoch") == b""

    async def test_a_later_opening_finds_the_state(self, cabinet: Cabinet, again: Cabinet) -> None:
        await cabinet.store("epoch", b"7")
        assert await again.load("epoch") == b"7"
