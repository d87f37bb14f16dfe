"""`fault-agent demo` and `replay`: the embedded role on finished files.

The one rule: standard output is the answer (the timeline, or JSON with --json); what is said beside it goes to
standard error.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from agent.app.bootstrap import AUDIT, LETTERS, STATE, SoloOrder, replay_solo, scenario
from agent.app.cli.policy import policy_option
from agent.app.cli.timeline import Timeline
from agent.app.settings import Settings, load_settings
from agent.app.solo import Tally
from agent.app.world import World
from agent.domain.vocab import Mode
from agent.wire.audit import AuditLine, encode_audit

EXIT_FINDINGS = 1
PROGRESS_EVERY = 100_000

_PATH = click.Path(path_type=Path)
_CONFIG = click.option("--config", type=_PATH, help="Settings (YAML); left out: the defaults.")
CLUSTER_HELP = "File or folder of Kubernetes objects, as `kubectl get podgroup,pod,node,cm -A -o yaml` prints them."
_CLUSTER = click.option(
    "--cluster",
    required=True,
    type=_PATH,
    help=CLUSTER_HELP,
)
_JSON = click.option("--json", "as_json", is_flag=True, help="For machines: one JSON object per decision.")


@click.command(epilog="Example: fault-agent demo --out /tmp/night; fault-agent why job finetune-a2 --out /tmp/night")
@click.option("--out", type=_PATH, help="Where the documents go; left out: a new temporary folder.")
@click.option("--replace", is_flag=True, help="Let the demo take the place of an earlier demo in --out.")
@_JSON
def demo(out: Path | None, replace: bool, as_json: bool) -> None:
    """Handle a shipped scenario of real fault codes, in act mode on a folder, and show what became of each.

    Two jobs on seven nodes go through a bad night: every level of fault, a rail that is borrowed and one that is
    refused, pods that are replaced, unknown codes and a broken record.
    """
    where = out or Path(tempfile.mkdtemp(prefix="fault-agent-demo-"))
    events, cluster, expected = scenario()
    if replace and (where / STATE).exists() and (where / AUDIT).exists():
        shutil.rmtree(where)
    if not as_json:
        say(f"scenario: {events.name} on the objects of {cluster.name}/, act mode, documents under {where}")
    settings = Settings(mode=Mode.ACT)
    lines: list[AuditLine] = []
    show = shower(as_json)

    def told(line: AuditLine) -> None:
        lines.append(line)
        show(line)

    tally, world = replay_solo(SoloOrder(events, cluster, where, settings), told, say, lambda _: None)
    missing = expected(where, lines)
    if not as_json:
        summary(tally, world, where)
        click.echo("What to try next:")
        click.echo(f"  fault-agent why job finetune-a2 --out {where}")
        click.echo(f"  fault-agent why node a3-node-0 --out {where}")
        click.echo("  fault-agent explain 80E18402 81078603")
    for problem in missing:
        click.echo(f"fault-agent: the scenario did not end as expected: {problem}", err=True)
    if missing:
        raise click.exceptions.Exit(EXIT_FINDINGS)
    if not as_json:
        click.echo("The scenario ended as expected.")


@click.command(epilog="Example: fault-agent replay night.jsonl --cluster objects/ --out judged/")
@click.argument("events", type=_PATH)
@_CLUSTER
@click.option("--out", required=True, type=_PATH, help="Folder for documents, reasons and state; a new or empty one.")
@click.option("--continue", "goes_on", is_flag=True, help="Go on in a folder that already holds a ledger.")
@_CONFIG
@policy_option
@_JSON
def replay(
    events: Path,
    cluster: Path,
    out: Path,
    goes_on: bool,
    config: Path | None,
    policy_path: Path | None,
    as_json: bool,
) -> None:
    """Judge a recorded file of events on its own clock, as the running agent would have.

    The same input gives byte-identical documents. It acts on its own folder only. Exit code 1 says that some records
    were dead-lettered, or some objects could not be read or contradict each other.
    """
    settings = load_settings(config, os.environ)
    order = SoloOrder(events, cluster, out, settings, policy_path, goes_on)
    tally, world = replay_solo(order, shower(as_json), say, _progress())
    if not as_json:
        summary(tally, world, out)
    if tally.letters or world.all_findings():
        raise click.exceptions.Exit(EXIT_FINDINGS)


def say(text: str) -> None:
    """What is told beside the answer."""
    click.echo(f"fault-agent: {text}", err=True)


def shower(as_json: bool) -> Callable[[AuditLine], None]:
    """How decisions are shown as they are made."""
    if as_json:
        return lambda line: click.echo(encode_audit(line))
    return Timeline().show


def _progress() -> Callable[[int], None]:
    """Says every PROGRESS_EVERY records how far a long file is."""
    last = 0

    def tell(records: int) -> None:
        nonlocal last
        if records - last >= PROGRESS_EVERY:
            last = records
            say(f"{records:,} records judged")

    return tell


def summary(tally: Tally, world: World, out: Path, stream: Any = None) -> None:
    """The closing lines: counts, findings, where everything lies."""
    findings = world.all_findings()
    click.echo("", file=stream)
    click.echo(
        f"{tally.records} records, {tally.decisions} decisions, {tally.letters} dead letters, {len(findings)} findings",
        file=stream,
    )
    for finding in findings[:20]:
        click.echo(f"  finding: {finding}", file=stream)
    if len(findings) > 20:
        click.echo(f"  and {len(findings) - 20} more", file=stream)
    documents = sorted(path for path in out.glob("*/*.json") if path.parent.name != STATE)
    click.echo(f"Documents under {out}:", file=stream)
    for path in documents:
        click.echo(f"  {path.relative_to(out)}", file=stream)
    click.echo(f"Reasons: {out / AUDIT}", file=stream)
    if tally.letters or (out / LETTERS).exists():
        click.echo(f"Dead letters: {out / LETTERS}", file=stream)
