"""`fault-agent topics` and `fault-agent deadletter`: what an operator does on the broker.

The one rule: looking changes nothing; a requeue says how many went and keeps the letters where they are.
The Kafka client is imported by the verbs that use it, so that no other command waits for it.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from agent.app.cli.show import console
from agent.app.settings import Settings, load_settings
from agent.domain.events import Record
from agent.errors import BadRecord
from agent.wire.requeue import header

EXIT_FINDINGS = 1
EVENT_PARTITIONS = 12


def _config(command: Any) -> Any:
    return click.option("--config", "path", type=click.Path(path_type=Path), help="Settings (YAML).")(command)


def _settings(path: Path | None) -> Settings:
    return load_settings(path, os.environ)


@click.group(
    short_help="Make and check the four Kafka topics.",
    epilog="Example: fault-agent topics create --config agent.yaml; fault-agent topics check --config agent.yaml",
)
def topics() -> None:
    """Make and check the four topics: events, reports, audit, dead letters."""


_PARTITIONS = click.option(
    "--event-partitions", type=click.IntRange(1, 10_000), default=EVENT_PARTITIONS, show_default=True,
    help="Partitions of the events topic; may grow later, never shrink.",
)  # fmt: skip


@topics.command(
    short_help="Make the topics that are missing.", epilog="Example: fault-agent topics create --config agent.yaml"
)
@_config
@_PARTITIONS
@click.option("--replicas", type=int, default=-1, show_default="the broker's own default", help="Copies of each.")
def create(path: Path | None, event_partitions: int, replicas: int) -> None:
    """Make the topics that are missing; those that are there stay as they are (`topics check` judges them)."""
    from agent.app.bootstrap.topics import create_topics

    made = create_topics(_settings(path), event_partitions, replicas)
    click.echo(f"made: {', '.join(made)}" if made else "all topics were there already; see: fault-agent topics check")


@topics.command(
    short_help="Say what is wrong with the topics.", epilog="Example: fault-agent topics check --config agent.yaml"
)
@_config
@_PARTITIONS
@click.option("--json", "as_json", is_flag=True, help="For machines: an array of findings.")
def check(path: Path | None, event_partitions: int, as_json: bool) -> None:
    """Say what is wrong with the topics and how to mend it; exit code 1 if anything is."""
    from agent.app.bootstrap.topics import check_topics

    findings = check_topics(_settings(path), event_partitions)
    if as_json:
        click.echo(json.dumps([{"topic": one.topic, "what": one.what, "fix": one.fix} for one in findings], indent=2))
    else:
        for one in findings:
            click.echo(str(one))
        if not findings:
            click.echo("all four topics are fit")
    if findings:
        raise click.exceptions.Exit(EXIT_FINDINGS)


@click.group(
    short_help="Look at refused records, send them again.",
    epilog="Example: fault-agent deadletter list --config agent.yaml",
)
def deadletter() -> None:
    """Look at records nobody could use, and send them again once what was wrong is mended."""


@deadletter.command(
    "list",
    short_help="List them: source, reason, field.",
    epilog="Example: fault-agent deadletter list --config agent.yaml --limit 20",
)
@_config
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many, the newest.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def list_letters(path: Path | None, limit: int, as_json: bool) -> None:
    """List dead letters: where each came from, the reason and the field."""
    letters = _letters(_settings(path), limit)
    if as_json:
        click.echo(json.dumps([_plain(letter) for letter in letters], indent=2, ensure_ascii=False))
        return
    table = Table(box=None, header_style="bold")
    for column in ("source", "node", "reason", "detail"):
        table.add_column(column, overflow="fold")
    for letter in letters:
        table.add_row(*(_plain(letter)[key] for key in ("source", "key", "reason", "detail")))
    console().print(table)


@deadletter.command(
    short_help="Show one whole.", epilog="Example: fault-agent deadletter show 0:3:1042 --config agent.yaml"
)
@click.argument("source")
@_config
def show(source: str, path: Path | None) -> None:
    """Show one dead letter whole; SOURCE as `deadletter list` prints it."""
    letter = _find(_letters(_settings(path), None), source)
    click.echo(json.dumps(_plain(letter), indent=2, ensure_ascii=False))
    click.echo((letter.value or b"").decode("utf-8", "replace"))


@deadletter.command(
    "requeue",
    short_help="Send them again, with new message ids.",
    epilog="Example: fault-agent deadletter requeue 0:3:1042 --config agent.yaml",
)
@click.argument("sources", nargs=-1, required=True)
@_config
def requeue_letters(sources: Sequence[str], path: Path | None) -> None:
    """Send dead letters to the event stream again, each with a new message id.

    A letter that was refused in part holds only the faults that were refused, so nothing is counted twice. A letter
    that is sent again and still wrong comes back under a new source.
    """
    settings = _settings(path)
    from agent.app.bootstrap.topics import requeue

    letters = _letters(settings, None)
    chosen = [_find(letters, source) for source in sources]
    try:
        count = requeue(settings, chosen, os.urandom(4).hex())
    except BadRecord as error:
        raise click.UsageError(str(error)) from error
    click.echo(f"{count} sent again")


def _letters(settings: Settings, limit: int | None) -> Sequence[Record]:
    from agent.app.bootstrap.topics import dead_letters

    return dead_letters(settings, limit)


def _find(letters: Sequence[Record], source: str) -> Record:
    for letter in letters:
        if header(letter, "source") == source:
            return letter
    raise click.UsageError(f"no dead letter has the source {source!r}; see: fault-agent deadletter list")


def _plain(letter: Record) -> dict[str, str]:
    return {
        "source": header(letter, "source"),
        "key": (letter.key or b"").decode("utf-8", "replace"),
        "reason": header(letter, "reason"),
        "detail": header(letter, "detail"),
    }
