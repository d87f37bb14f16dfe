"""`fault-agent release`: end or hand over what the agent has in documents of others.

The one rule: nothing is done without --yes, and nothing at all while somebody else writes.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from agent.app.bootstrap.folderdocs import release_folder
from agent.app.cli.documents import EXIT_FINDINGS, folder_of, place_options
from agent.app.cli.solo import say
from agent.app.release import OPEN, Released
from agent.app.settings import load_settings
from agent.domain.vocab import Mode


@click.command(
    short_help="End or hand over the agent's entries.",
    epilog="Examples: fault-agent release --all --config agent.yaml;"
    " fault-agent release --job train/demo --cluster cluster.yaml --out out/ --yes",
)
@click.option(
    "--job",
    "jobs",
    multiple=True,
    metavar="NAME",
    help="Of this job: namespace/name, or its name alone; may be given several times.",
)
@click.option("--all", "of_all", is_flag=True, help="Of every job, and the documents that all jobs share.")
@place_options
@click.option("--yes", is_flag=True, help="Do it. Without it is only said what would be done.")
@click.option("--json", "as_json", is_flag=True, help="For machines: an array, one object a document.")
def release(
    jobs: tuple[str, ...],
    of_all: bool,
    cluster: Path | None,
    out: Path | None,
    config: Path | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Let go of documents, before the agent is taken away or another one takes over; again changes nothing.

    reset-config-<job>: our entries leave; workers that they stopped are told to start (RetryTime + 1). The shared
    documents, with --all: what they hold stays, for a waiting job that is not in remain-retry-times fails; only the
    mark goes that keeps agents of another cluster.id off. Ledgers stay: they know which NPUs are held.

    On a cluster it needs the Lease and refuses while a coordinator leads. An agent that acts afterwards begins anew:
    after --all nothing is acted on that began before; a single job is kept out with the annotation
    fault-agent/in-place-recovery: "off".

    Exit code 0: nothing of ours is left there; 1: something could not be let go of.
    """
    if bool(jobs) == of_all:
        raise click.UsageError("give either --job NAMESPACE/NAME or --all")
    names = None if of_all else jobs
    order = folder_of(cluster, out, config, None)
    found: Sequence[Released]
    if order is not None:
        settings = order.settings
        found = release_folder(order, names, really=yes)
    else:
        # Imported where needed: no other command waits for the clients.
        from agent.app.bootstrap.livedocs import release_live

        settings = load_settings(config, os.environ)
        found = release_live(settings, names, say, really=yes)
        if settings.mode is Mode.ACT and yes:
            say("the settings say mode: act; a coordinator that starts with them begins to write again")
    if as_json:
        click.echo(json.dumps([_plain(one, done=yes) for one in found], indent=2))
    else:
        click.echo("\n".join(_told(found, done=yes)))
    if any(one.reason in OPEN for one in found):
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _plain(one: Released, *, done: bool) -> dict[str, object]:
    return {
        "document": one.document,
        "job": one.job,
        "reason": str(one.reason),
        "detail": one.detail,
        "changes": one.changed,
        "done": done and one.changed,
    }


def _told(found: Sequence[Released], *, done: bool) -> Iterator[str]:
    for one in found:
        if one.reason in OPEN:
            yield f"{one.document}: not let go of, {one.reason} · {one.detail}"
        elif one.changed:
            yield f"{one.document}: {'released' if done else 'would be released'} · {one.detail}"
        else:
            yield f"{one.document}: as it is · {one.detail or one.reason}"
    changed = sum(one.changed for one in found)
    yield f"{changed} changed" if done else f"{changed} would change; nothing was done, --yes does it"
