"""Rounds over the links of a node, and what the node role makes of them."""

import asyncio

import pytest
from rig import T0
from rolerig import Clock, NodeRig

from agent.adapters.memory import MemoryLinkProbe
from agent.app import node_role
from agent.app.bootstrap.node import link_rounds, samples
from agent.app.linkrounds import ABREAST, LinkRounds, Round
from agent.app.settings import settings_from
from agent.domain.events import Link
from agent.domain.vocab import Millis
from agent.errors import BadUsage, Unavailable

UP, DOWN = b"link status: UP\n", b"link status: DOWN\n"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between tries real time would pass."""
    monkeypatch.setattr(node_role, "RETRY_S", (0.0,))


def a_probe() -> MemoryLinkProbe:
    return MemoryLinkProbe({0: UP, 1: DOWN, 2: b"hccn_tool is busy\n"})


async def rounds(
    probe: MemoryLinkProbe, seconds: float, devices: tuple[int, ...] = (0, 1, 2)
) -> tuple[LinkRounds, list[str]]:
    clock, said = Clock(), list[str]()
    looking = LinkRounds(probe, devices, 20, clock.wall, said.append, clock.sleep)
    task = asyncio.create_task(looking.follow())
    await clock.advance(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return looking, said


async def test_a_round_tells_up_down_and_all_else_as_unknown_with_the_time_it_began() -> None:
    looking, said = await rounds(a_probe(), 1)
    assert looking.take() == Round(Millis(T0), {0: "up", 1: "down", 2: "unknown"})
    assert looking.take() is None
    assert looking.counts == {"up": 1, "down": 1, "unknown": 1}
    (told,) = said
    assert told.startswith("1 of 3 links could not be looked at, first device 2: answered 'hccn_tool is busy', not ")
    assert told.endswith("; they count as unknown")


async def test_rounds_follow_each_other_and_the_newest_waits() -> None:
    looking, said = await rounds(a_probe(), 45)
    newest = looking.take()
    assert newest is not None
    assert newest.at == T0 + 40_000
    assert len(said) == 1  # the same trouble is said once


async def test_a_query_that_fails_costs_its_own_die_alone_and_is_said_again_after_it_was_over() -> None:
    probe, clock, said = a_probe(), Clock(), list[str]()
    probe.answers[2] = UP
    looking = LinkRounds(probe, (0, 1, 2), 20, clock.wall, said.append, clock.sleep)
    probe.failures.fail_next(Unavailable("device 0: no answer within 5 s"))
    task = asyncio.create_task(looking.follow())
    await clock.advance(1)
    assert looking.take() == Round(Millis(T0), {0: "unknown", 1: "down", 2: "up"})
    await clock.advance(20)
    assert looking.take() == Round(Millis(T0 + 20_000), {0: "up", 1: "down", 2: "up"})
    probe.failures.fail_next(Unavailable("device 0: no answer within 5 s"))
    await clock.advance(20)
    assert (
        said == ["1 of 3 links could not be looked at, first device 0: no answer within 5 s; they count as unknown"] * 2
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class _Crowd:
    """A LinkProbe that counts who is asked at once."""

    def __init__(self) -> None:
        self.inside = self.most = 0

    async def ask(self, device: int) -> bytes:
        del device
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        return UP

    async def close(self) -> None:
        """Nothing to end."""


async def test_few_are_asked_at_once() -> None:
    crowd, clock = _Crowd(), Clock()
    looking = LinkRounds(crowd, range(16), 20, clock.wall, print, clock.sleep)
    task = asyncio.create_task(looking.follow())
    await clock.advance(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert crowd.most == ABREAST
    assert looking.counts == {"up": 16}


# --- in the node role -------------------------------------------------------------------------------------------------


async def test_what_a_round_found_is_in_the_report_within_a_second_or_two() -> None:
    rig = await NodeRig(links=a_probe()).up()
    await rig.clock.advance(2)
    assert rig.bus.last().links == {0: Link("up", Millis(T0)), 1: Link("down", Millis(T0))}
    await rig.clock.advance(20)
    assert rig.bus.last().links[0] == Link("up", Millis(T0 + 20_000))
    assert rig.bus.lines() == []  # looking is no decision
    await rig.end()


async def test_a_link_that_answers_no_more_is_not_in_the_report_any_more() -> None:
    probe = a_probe()
    rig = await NodeRig(links=probe).up()
    await rig.clock.advance(2)
    probe.answers = {1: DOWN}
    await rig.clock.advance(20)
    assert rig.bus.last().links == {1: Link("down", Millis(T0 + 20_000))}
    await rig.end()


async def test_an_event_that_came_while_a_round_ran_is_newer_than_the_round() -> None:
    rig = NodeRig(links=a_probe())
    rig.stream.fault("81078603", at=0.2, device=0)
    await rig.up()
    await rig.clock.advance(2)
    assert rig.bus.last().links[0] == Link("down", Millis(T0 + 200))
    await rig.end()


async def test_a_node_that_is_not_looked_at_reports_no_link() -> None:
    rig = await NodeRig().up()
    await rig.clock.advance(30)
    assert rig.bus.last().links == {}
    await rig.end()


# --- settings ---------------------------------------------------------------------------------------------------------


def test_nobody_looks_unless_a_command_is_set() -> None:
    assert link_rounds(settings_from({}, "test"), print) is None
    command = ["/usr/local/Ascend/driver/tools/hccn_tool", "-i", "{device}", "-link", "-g"]
    looking = link_rounds(
        settings_from({"node": {"link_probe": {"command": command, "devices": [0, 1]}}}, "test"), print
    )
    assert looking is not None
    assert (looking.devices, looking.every_s) == ((0, 1), 20)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"command": ["hccn_tool", "{device}"]}, "node.link_probe.command: .*absolute path"),
        ({"command": ["/bin/x", "-i", "0"]}, "node.link_probe.command: .*{device} is in none"),
        ({"command": ["/bin/{device}"]}, "node.link_probe.command: .*{device} is in none"),
        ({"command": "/bin/x {device}"}, "node.link_probe.command: "),
        ({"devices": []}, "node.link_probe.devices: .*at least one"),
        ({"devices": [1, 1]}, "node.link_probe.devices: .*each once"),
        ({"devices": [64]}, r"node.link_probe.devices.0: "),
        ({"every_s": 1}, "node.link_probe.every_s: "),
        (
            {"command": ["/bin/x", "{device}"], "every_s": 56, "timeout_s": 4},
            "56 and timeout_s 4 together must be less than",
        ),
    ],
)
def test_a_probe_that_could_not_serve_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(BadUsage, match=told):
        settings_from({"node": {"link_probe": given}}, "test")


async def test_answers_are_counted_by_state() -> None:
    rig = await NodeRig(links=a_probe()).up()
    assert rig.rounds is not None
    found = {
        dict(labels)["state"]: value
        for _, name, _, value, labels in samples(rig.role, dict, rig.rounds.counts)
        if name == "fault_agent_link_answers"
    }
    assert found == {"up": 1, "down": 1, "unknown": 1}
    await rig.end()
