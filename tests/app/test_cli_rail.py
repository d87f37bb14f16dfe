"""`fault-agent rail`: its verbs, each with a help that teaches."""

import pytest
from command import Command

from agent.app.cli.rail import rail


def test_the_group_lists_its_verbs_with_an_example(call: Command) -> None:
    code, out, _ = call("rail", "--help")
    assert code == 0
    assert "plan" in out
    assert "explain" in out
    assert "Example: fault-agent rail plan" in out


@pytest.mark.parametrize("verb", ["plan", "explain"])
def test_the_help_of_a_verb_tells_where_to_look_what_to_ask_and_what_may_be_assumed(call: Command, verb: str) -> None:
    code, out, _ = call("rail", verb, "--help")
    assert code == 0
    said = [line.split()[0] for line in out.splitlines() if line.startswith("  --")]
    assert said[:6] == ["--cluster", "--out", "--config", "--fault", "--leaf", "--job"]
    assert "Examples: fault-agent rail" in out


def test_the_group_holds_its_verbs() -> None:
    assert set(rail.commands) == {"plan", "explain", "status"}
    assert all(command.short_help for command in rail.commands.values())
