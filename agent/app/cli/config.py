"""`fault-agent config`: the settings in force, and their schema.

The one rule: a secret never prints.
"""

import json
import os
from pathlib import Path
from typing import Final

import click
import yaml

from agent.app.settings import load_settings, settings_schema, show_settings
from agent.domain.vocab import Mode

MODE_LEFT_OUT: Final = {"solo": Mode.ACT, "node": Mode.OBSERVE, "coordinator": Mode.OBSERVE}
"""The mode of each role when the settings name none: solo writes into a folder of its own only."""


@click.group(
    short_help="Look at the settings in force.",
    epilog="Example: FAULT_AGENT_CLUSTER__ID=prod fault-agent config show --config agent.yaml",
)
def config() -> None:
    """Look at the settings: which there are, and which are in force."""


@config.command(short_help="Print every setting.", epilog="Example: fault-agent config show --config agent.yaml --json")
@click.option("--config", "path", type=click.Path(path_type=Path), help="Settings file; left out: the defaults.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def show(path: Path | None, as_json: bool) -> None:
    """Print every setting with its value: file, then FAULT_AGENT_… variables over it; secrets masked.

    A mode that is left out is shown as it holds in each role.
    """
    settings = load_settings(path, os.environ)
    values = show_settings(settings)
    modes = {role: str(settings.mode or mode) for role, mode in MODE_LEFT_OUT.items()}
    if as_json:
        click.echo(json.dumps({**values, "effective_mode": modes}, indent=2))
    else:
        if settings.mode is None:
            values["mode"] = _by_role(modes)
        click.echo(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), nl=False)


def _by_role(modes: dict[str, str]) -> str:
    """`act (solo), observe (node, coordinator)`."""
    return ", ".join(
        f"{mode} ({', '.join(role for role, of in modes.items() if of == mode)})"
        for mode in dict.fromkeys(modes.values())
    )


@config.command(
    short_help="Print the JSON Schema of the settings.",
    epilog="Example: fault-agent config schema > settings.schema.json",
)
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors and for checks before a rollout."""
    click.echo(json.dumps(settings_schema(), indent=2))
