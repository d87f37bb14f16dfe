"""`fault-agent documents`: what would change in the documents of others, before anything does.

The one rule: it changes nothing, and it shows what the agent itself would write.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from agent.app.bootstrap.folderdocs import FolderOrder, preview_folder
from agent.app.cli.policy import policy_option
from agent.app.cli.show import visible
from agent.app.cli.solo import CLUSTER_HELP, say
from agent.app.preview import Preview
from agent.app.settings import load_settings
from agent.domain.vocab import Mode

EXIT_FINDINGS: Final = 1
_PATH: Final = click.Path(path_type=Path)
_FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)

Command = Callable[..., Any]


def place_options(command: Command) -> Command:
    """--cluster and --out for a folder, --config for its settings or, alone, for the services."""
    for option in (
        click.option(
            "--config",
            "config",
            type=_PATH,
            help="Settings (YAML). With --out: of the run that made the folder; alone: of the coordinator, and the"
            " cluster is asked.",
        ),
        click.option("--out", type=_FOLDER, help="The --out folder of a run, replay or demo."),
        click.option("--cluster", type=click.Path(exists=True, path_type=Path), help=f"With --out: {CLUSTER_HELP}"),
    ):
        command = option(command)
    return command


def folder_of(cluster: Path | None, out: Path | None, config: Path | None, policy: Path | None) -> FolderOrder | None:
    """The folder that is meant; None: the services of --config. Raises UsageError when neither is."""
    if out is None and cluster is None and config is not None:
        return None
    if out is None or cluster is None:
        raise click.UsageError("give --cluster and --out for a folder, or --config alone for a cluster")
    return FolderOrder(cluster, out, load_settings(config, os.environ), policy)


@click.group(
    short_help="Look at what would change in the documents.",
    epilog="Example: fault-agent documents diff --cluster cluster.yaml --out out/",
)
def documents() -> None:
    """Look at the ConfigMaps that the agent writes for others."""


@documents.command(
    short_help="Show what an agent in act mode would change, and why.",
    epilog="Examples: fault-agent documents diff --cluster cluster.yaml --out out/;"
    " fault-agent documents diff --config agent.yaml",
)
@place_options
@policy_option
@click.option("--json", "as_json", is_flag=True, help="For machines: an array, one object a document.")
def diff(cluster: Path | None, out: Path | None, config: Path | None, policy_path: Path | None, as_json: bool) -> None:
    """Show each document that an agent in act mode would change now: why, the faults and jobs behind it, and the
    difference key by key, JSON one value a line. Documents that stay as they are for a reason (another writer, not
    readable, disabled) are named with it; those that are right already are not shown.

    Whatever the mode in force, it is shown what act would do; the mode is told beside it, and nothing is written. A
    folder is looked at as of the newest time that it knows, a cluster as of now.

    Exit code 0: nothing would change; 1: something would.
    """
    order = folder_of(cluster, out, config, policy_path)
    found: Sequence[Preview]
    if order is not None:
        found, findings = preview_folder(order)
        for finding in findings:
            say(f"finding: {finding}")
    else:
        # Imported where needed: no other command waits for the clients.
        from agent.app.bootstrap.livedocs import preview_live

        found = preview_live(load_settings(config, os.environ), policy_path, lambda text: say(f"finding: {text}"))
    if as_json:
        click.echo(json.dumps([_plain(one) for one in found], indent=2, ensure_ascii=False))
    else:
        click.echo("\n".join(map(visible, _told(found))))
    if any(one.changes for one in found):
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _plain(one: Preview) -> dict[str, Any]:
    keys = sorted({*one.before, *one.after})
    return {
        "document": one.document,
        "changes": one.changes,
        "mode": str(one.mode),
        "reason": str(one.reason),
        "detail": one.detail,
        "causes": [{"fault": cause.fault, "job": cause.job} for cause in one.causes],
        "keys": {
            key: {"before": one.before.get(key), "after": one.after.get(key)}
            for key in keys
            if one.before.get(key) != one.after.get(key)
        },
        "diff": one.diff(),
    }


def _told(found: Sequence[Preview]) -> Iterator[str]:
    for one in found:
        if not one.changes:
            yield f"{one.document}: stays as it is, {one.reason} · {one.detail}"
            continue
        held = "" if one.mode is Mode.ACT else f" (mode {one.mode}: not while it is in force)"
        yield f"{one.document}: would change{held} · {one.detail}"
        for place, cause in enumerate(one.causes):
            yield f"  {'' if place else 'because':<9}{'  '.join(filter(None, (cause.fault, cause.job)))}"
        yield from one.diff()
        yield ""
    changes = sum(one.changes for one in found)
    yield f"{changes} documents would change" if changes != 1 else "1 document would change"
