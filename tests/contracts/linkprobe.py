"""What every LinkProbe must do. A filler's test gives the fixture `probe`: a machine of four dies, of which 0 answers
up, 1 down, 2 something else, and a query of 3 fails.
"""

import asyncio

import pytest

from agent.errors import Unavailable
from agent.ports import LinkProbe


class LinkProbeContract:
    async def test_an_answer_comes_as_it_is(self, probe: LinkProbe) -> None:
        assert await probe.ask(0) == b"link status: UP\n"
        assert await probe.ask(1) == b"link status: DOWN\n"
        assert await probe.ask(2) == b"\xff not an answer\n"

    async def test_a_query_that_fails_is_unavailable_and_names_its_die(self, probe: LinkProbe) -> None:
        with pytest.raises(Unavailable, match="device 3: exit code 1"):
            await probe.ask(3)

    async def test_a_failure_does_not_hinder_the_next_query(self, probe: LinkProbe) -> None:
        for _ in range(2):
            with pytest.raises(Unavailable):
                await probe.ask(3)
        assert await probe.ask(0) == b"link status: UP\n"

    async def test_answers_of_dies_asked_at_once_are_their_own(self, probe: LinkProbe) -> None:
        answers = await asyncio.gather(*(probe.ask(device) for device in (1, 0, 2)))
        assert answers == [b"link status: DOWN\n", b"link status: UP\n", b"\xff not an answer\n"]

    async def test_it_may_be_closed_twice(self, probe: LinkProbe) -> None:
        await probe.ask(0)
        await probe.close()
        await probe.close()
