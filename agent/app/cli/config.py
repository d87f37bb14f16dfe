"""`fault-agent config`: the settings in force, and their schema.

The one rule: a secret never prints.
"""

import json
import os
from pathlib import Path

import click
import yaml

from agent.app.settings import load_settings, settings_schema, show_settings


@click.group(epilog="Example: FAULT_AGENT_CLUSTER__ID=prod fault-agent config show --config agent.yaml")
def config() -> None:
    """Look at the settings: which there are, and which are in force."""


@config.command(epilog="Example: fault-agent config show --config agent.yaml --json")
@click.option("--config", "path", type=click.Path(path_type=Path), help="Settings file; left out: the defaults.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def show(path: Path | None, as_json: bool) -> None:
    """Print every setting with its value: file, then FAULT_AGENT_… variables over it; secrets masked."""
    values = show_settings(load_settings(path, os.environ))
    if as_json:
        click.echo(json.dumps(values, indent=2))
    else:
        click.echo(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), nl=False)


@config.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors and for checks before a rollout."""
    click.echo(json.dumps(settings_schema(), indent=2))
