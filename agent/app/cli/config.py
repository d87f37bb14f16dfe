"""`fault-agent config`: the settings in force, and their schema.

The one rule: a secret never prints, and what is printed can be given back as --config and means the same.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
import yaml

from agent.app.settings import MASK, SOLO_CLUSTER, Settings, load_settings, settings_schema, show_settings
from agent.domain.vocab import Mode

ROLES: Final = ("solo", "node", "coordinator")


@click.group(
    short_help="Look at the settings in force.",
    epilog="Example: FAULT_AGENT_CLUSTER__ID=prod fault-agent config show --config agent.yaml",
)
def config() -> None:
    """Look at the settings: which there are, and which are in force."""


@config.command(short_help="Print every setting.", epilog="Example: fault-agent config show --config agent.yaml --json")
@click.option("--config", "path", type=click.Path(path_type=Path), help="Settings file; left out: the defaults.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="For machines: `settings` as a settings file has them, and `by_role` what holds in each role.",
)
def show(path: Path | None, as_json: bool) -> None:
    """Print every setting with its value: file, then FAULT_AGENT_… variables over it; secrets masked.

    The output is a settings file that means the same. What is left out and differs by role stands in comments above it.
    A masked password is refused when it is read: give password_file or the variable with it.
    """
    settings = load_settings(path, os.environ)
    values, by_role = show_settings(settings), _by_role(settings)
    if as_json:
        click.echo(json.dumps({"settings": values, "by_role": by_role}, indent=2))
        return
    for line in _comments(settings, by_role):
        click.echo(f"# {line}")
    click.echo(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), nl=False)


def _by_role(settings: Settings) -> dict[str, dict[str, Any]]:
    """What holds in each role, of the settings that a role settles for itself when they are left out; None: not set,
    and the role does not start.
    """
    cluster = settings.cluster.id
    create = settings.documents.reset_config.create
    return {
        role: {
            "mode": str(settings.mode or (Mode.ACT if role == "solo" else Mode.OBSERVE)),
            "cluster.id": cluster if role == "solo" or cluster != SOLO_CLUSTER else None,
            "documents.reset_config.create": role == "solo" if create is None else create,
        }
        for role in ROLES
    }


def _comments(settings: Settings, by_role: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    left_out = {
        "mode": settings.mode is None,
        "cluster.id": settings.cluster.id == SOLO_CLUSTER,
        "documents.reset_config.create": settings.documents.reset_config.create is None,
    }
    for key in (key for key, out in left_out.items() if out):
        yield f"left out: {key}; {_told({role: values[key] for role, values in by_role.items()})}"
    if settings.kafka.password.get_secret_value():
        yield f"kafka.password is set and masked; read again as {MASK} it is refused"


def _told(of_role: Mapping[str, Any]) -> str:
    """`act (solo), observe (node, coordinator)`."""
    words = {role: "not set and refused" if value is None else _word(value) for role, value in of_role.items()}
    return ", ".join(
        f"{word} ({', '.join(role for role, of in words.items() if of == word)})"
        for word in dict.fromkeys(words.values())
    )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@config.command(
    short_help="Print the JSON Schema of the settings.",
    epilog="Example: fault-agent config schema > settings.schema.json",
)
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors and for checks before a rollout."""
    click.echo(json.dumps(settings_schema(), indent=2))
