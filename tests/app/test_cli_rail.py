"""`fault-agent rail`: what stands below it."""

from agent.app.cli.rail import rail


def test_the_group_holds_its_verbs() -> None:
    assert "status" in rail.commands
    assert all(command.short_help for command in rail.commands.values())
