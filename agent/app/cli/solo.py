"""`fault-agent demo` and `replay`: the embedded role on finished files.

The one rule: standard output is the answer (the timeline, or JSON with --json); what is said beside it goes to
standard error.
"""

import json
import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from agent.app.bootstrap import (
    Audience,
    SoloOrder,
    load_policy_at,
    prepare_demo,
    recorded_day,
    replay_solo,
    scenario,
)
from agent.app.cli.account import Account, echo_summary
from agent.app.cli.against import difference_plain, judged_twice, show_differences
from agent.app.cli.places import LinePlaces
from agent.app.cli.policy import SHIPPED, policy_option, policy_path
from agent.app.cli.show import console, program
from agent.app.cli.timeline import LEGEND, Timeline
from agent.app.settings import Settings, load_settings
from agent.app.solo import Tally
from agent.app.telling import Letter
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
_JSON = click.option(
    "--json", "as_json", is_flag=True, help="For machines: one JSON object per decision, then one with the summary."
)


@click.command(
    short_help="Handle a shipped night of real fault codes.",
    epilog="Example: fault-agent demo --out night/; fault-agent why job finetune-a2 --out night/",
)
@click.option("--out", type=_PATH, help="Where the documents go, a new or empty folder; left out: a temporary one.")
@click.option("--replace", is_flag=True, help="Let the demo take the place of an earlier demo in --out.")
@_JSON
def demo(out: Path | None, replace: bool, as_json: bool) -> None:
    """Handle a shipped scenario of real fault codes, in act mode on a folder, and show what became of each.

    Two jobs on seven nodes go through a bad night: every level of fault, a rail that is borrowed and one that is
    refused, pods that are replaced, unknown codes and a broken record. --replace removes what an earlier demo has
    written, and refuses a folder that holds anything else.
    """
    if out is not None:
        prepare_demo(out, replace_it=replace)
    where = out or Path(tempfile.mkdtemp(prefix="fault-agent-demo-"))
    events, cluster, expected = scenario()
    if not as_json:
        say(f"scenario: {events.name} on the objects of {cluster.name}/, act mode, documents under {where}")
        click.echo(LEGEND)
    lines: list[AuditLine] = []
    order = SoloOrder(events, cluster, where, Settings(mode=Mode.ACT), demo=True)
    tally, world, account = _replayed(order, events, as_json, lambda _: None, lines.append)
    missing = expected(where, lines)
    if as_json:
        echo_summary({**account.plain(tally, world, where), "unmet": missing})
    else:
        account.show(tally, world, where)
        _what_next(where)
    for problem in missing:
        click.echo(f"fault-agent: the scenario did not end as expected: {problem}", err=True)
    if missing:
        raise click.exceptions.Exit(EXIT_FINDINGS)
    if not as_json:
        click.echo("The scenario ended as expected.")


def _what_next(out: Path) -> None:
    """Commands that work as they are printed, from the folder they are printed in."""
    command, where = program(), shlex.quote(str(out))
    click.echo("What to try next:")
    click.echo(f"  {command} why job finetune-a2 --out {where}")
    click.echo(f"  {command} why node a3-node-0 --out {where}")
    click.echo(f"  {command} explain 80E18402 81078603")


@click.command(
    short_help="Judge a recording on the clock of its events.",
    epilog="Example: fault-agent replay night.jsonl --cluster objects/ --out judged/",
)
@click.argument("events", type=_PATH)
@_CLUSTER
@click.option("--out", type=_PATH, help="Folder for documents, reasons and state; a new or empty one.")
@click.option(
    "--against",
    metavar="PATH",
    help="Another policy folder or file, or the word shipped: judge by both and tell the decisions that differ, "
    "without --out. Example: replay night.jsonl --cluster objects/ --policy mine/ --against next/",
)
@click.option("--continue", "goes_on", is_flag=True, help="Go on in a folder that already holds a state.")
@_CONFIG
@policy_option
@_JSON
def replay(
    events: Path,
    cluster: Path,
    out: Path | None,
    against: str | None,
    goes_on: bool,
    config: Path | None,
    policy_path: Path | None,
    as_json: bool,
) -> None:
    """Judge a recorded file of events on its own clock, as the running agent would have.

    The same input gives byte-identical documents. It acts on its own folder only. An override holds if it did on the
    day on which the recording begins. Exit code 1 says that some records were dead-lettered, or some objects could not
    be read or contradict each other; with --against, that decisions differ.
    """
    if str(events) == "-":
        raise click.UsageError(
            "a replay reads a finished file; for a pipe: fault-agent run --role solo --events - --cluster … --out …"
        )
    settings = load_settings(config, os.environ)
    if against is not None:
        if out is not None or goes_on:
            raise click.UsageError("--against compares and leaves nothing behind: no --out or --continue with it")
        _compared(events, cluster, settings, policy_path, against, as_json)
        return
    if out is None:
        raise click.UsageError("Missing option '--out'.")
    order = SoloOrder(events, cluster, out, settings, policy_path, goes_on)
    tally, world, account = _replayed(order, events, as_json, _progress(), lambda _: None)
    if as_json:
        echo_summary(account.plain(tally, world, out))
    else:
        account.show(tally, world, out)
    if tally.letters or world.all_findings():
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _compared(
    events: Path, cluster: Path, settings: Settings, policy: Path | None, against: str, as_json: bool
) -> None:
    """Tell which decisions of a recording differ between two policies. Raises Exit when there are any."""
    other = policy_path(against)
    names = (policy, other)
    digests = [load_policy_at(path, recorded_day(events)).digest for path in names]
    found = judged_twice(events, cluster, settings, policy, other)
    if as_json:
        plain = {"policy": digests[0], "against": digests[1], "decisions": [difference_plain(one) for one in found]}
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        out = console()
        for side, digest, path in zip("AB", digests, names, strict=True):
            out.print(f"{side}  {digest[:12]}  {path or SHIPPED}")
        show_differences(out, found)
    if found:
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _replayed(
    order: SoloOrder,
    events: Path,
    as_json: bool,
    progress: Callable[[int], None],
    hear: Callable[[AuditLine], None],
) -> tuple[Tally, World, Account]:
    """Replay, showing decisions and dead letters as they come."""
    account, timeline, places = Account(), Timeline(), LinePlaces(events)
    show = shower(as_json, timeline)

    def told(line: AuditLine) -> None:
        hear(line)
        show(line)

    def letter(one: Letter) -> None:
        account.letter(one)
        if not as_json:
            timeline.letter(one, places.of(one))

    audience = Audience(begin=lambda world, _mode, _digest: account.count(world), letter=letter)
    tally, world = replay_solo(order, told, say, progress, audience)
    return tally, world, account


def say(text: str) -> None:
    """What is told beside the answer."""
    click.echo(f"fault-agent: {text}", err=True)


def shower(as_json: bool, timeline: Timeline) -> Callable[[AuditLine], None]:
    """How decisions are shown as they are made."""
    if as_json:
        return lambda line: click.echo(encode_audit(line))
    return timeline.show


def _progress() -> Callable[[int], None]:
    """Says every PROGRESS_EVERY records how far a long file is."""
    last = 0

    def tell(records: int) -> None:
        nonlocal last
        if records - last >= PROGRESS_EVERY:
            last = records
            say(f"{records:,} records judged")

    return tell


def tell_findings(findings: Sequence[str], known: frozenset[str], most: int) -> frozenset[str]:
    """Say each finding that was not known before, `most` of them at once; gives those there are now."""
    fresh = [finding for finding in findings if finding not in known]
    for finding in fresh[:most]:
        say(f"finding: {finding}")
    if len(fresh) > most:
        say(f"and {len(fresh) - most} findings more; all are counted at the end")
    return frozenset(findings)
