"""`fault-agent why`: what was decided about a job, node, fault or document, what was not done, and for which reason.

The one rule: it reads what a run has left, in a folder or on services, and changes nothing there.
"""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import click

from agent.app.bootstrap import read_evidence, read_picture, wall_clock
from agent.app.cli.answer import blocks, in_order, now, plain, plain_word, rules
from agent.app.cli.asked import KINDS, Asked, Kind, known
from agent.app.cli.jobanswer import job_lines, job_plain
from agent.app.cli.policy import policy_at, policy_option
from agent.app.cli.rules import Word, asked_for, strangers, words
from agent.app.cli.show import visible
from agent.app.cli.solo import CLUSTER_HELP
from agent.app.settings import load_settings
from agent.app.standing import Evidence
from agent.app.telling import letter_of
from agent.domain.events import FaultKey
from agent.domain.vocab import HOUR, MINUTE, SECOND, Millis, utc_text
from agent.errors import AgentError
from agent.wire.letters import nodes_of

EXIT_FINDINGS = 1
LAST = 20_000
"""Newest decisions that are looked at on services; a busy hour of a large cluster has fewer."""
KNOWN = 8
"""Names that are shown to somebody who asked for another."""


_SPAN = re.compile(r"(\d{1,6})(s|min|h|d)")
_UNITS = {"s": SECOND, "min": MINUTE, "h": HOUR, "d": 24 * HOUR}


def _span(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """`90s`, `15min`, `8h`, `2d`, as ms."""
    if value is None:
        return None
    found = _SPAN.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no span; a number with s, min, h or d is expected, such as 8h")
    return int(found[1]) * _UNITS[found[2]]


@click.command(
    short_help="Show what was decided, what was not, and why.",
    epilog="Example: fault-agent why fault n1/chip/2/80E18402 --out OUT; fault-agent why job demo --config agent.yaml",
)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("ref")
@click.option(
    "--out",
    "out",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    show_default="this folder",
    help="The --out folder of a run, replay or demo.",
)
@click.option(
    "--cluster",
    type=click.Path(exists=True, path_type=Path),
    help=f"With --out, for a job: {CLUSTER_HELP} Shows what the job waits for and asks for.",
)
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="Settings (YAML) of the roles node and coordinator: read Kafka and the API server instead of a folder.",
)
@click.option(
    "--last",
    type=click.IntRange(1),
    default=LAST,
    show_default=True,
    help="With --config: so many of the newest decisions are looked at.",
)
@click.option("--since", callback=_span, metavar="SPAN", help="With --config: no older ones than this, such as 8h.")
@policy_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="For machines: an array of decisions, oldest first, and for a fault then of what each rule says.",
)
def why(
    kind: str,
    ref: str,
    out: Path | None,
    cluster: Path | None,
    config: Path | None,
    last: int,
    since: int | None,
    policy_path: Path | None,
    as_json: bool,
) -> None:
    """Show what was decided about REF and why, oldest first, and at the end how it stands now.

    REF is a job (namespace/PodGroup, or the job's own name), a node, a document (namespace/name), or a fault: its
    reference node/plane/where/code@ms, the front part of one such as n1/chip/2, or a code alone. Codes are taken in
    any case, chip codes also with 0x and without leading zeros. A node is told with the dead letters that name it, a
    document with the faults and jobs behind each write, a fault with every rule that looks at it: what it says, what
    it has counted, how far that is, until when. A job is told with what it waits for, what its labels ask for and
    whether the scheduler has the plugin for NPUs, where the objects of the cluster can be read.

    With --config it asks the services of the roles node and coordinator: the audit, reports and dead letter topics,
    the ledgers, and for a job its objects.
    """
    asked = Asked(cast(Kind, kind), ref)
    if cluster is not None and (asked.kind != "job" or config is not None):
        raise click.UsageError("--cluster is for why job with --out")
    evidence = _pictured(asked, _evidence(asked, out, config, last, since), out or Path(), cluster, config)
    standing = evidence.standing
    for finding in evidence.findings:
        click.echo(f"fault-agent: {finding}", err=True)
    letters = [letter_of(one, Millis(one.timestamp)) for one in evidence.letters if asked.concerns_letter(one)]
    items = in_order([line for line in evidence.lines if asked.concerns(line)], letters)
    said = _rules(asked, evidence, policy_path)
    seen = bool(evidence.picture and evidence.picture.jobs)
    there = bool(items or said) or seen or (asked.kind == "node" and ref in standing.reports)
    if as_json:
        rows = [plain(item, standing) for item in items]
        rows += [plain_word(key, word) for key, words_on in said.items() for word in words_on]
        rows += job_plain(evidence.picture)
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    elif there:
        if asked.ledger:
            click.echo(f"{ref} is a ledger of the agent: no decision is about it, it keeps what these came to.")
        told = (*blocks(items), *now(asked, items, evidence), *rules(said, evidence.clock))
        click.echo("\n".join(map(visible, (*told, *job_lines(evidence.picture)))))
    if not there:
        click.echo(f"fault-agent: {_nothing(asked, evidence)}", err=True)
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _rules(asked: Asked, evidence: Evidence, policy_path: Path | None) -> dict[FaultKey, tuple[Word, ...]]:
    """What every rule says of the faults that are asked for; a policy that was not in force is said to be none."""
    standing = evidence.standing
    keys = asked_for(asked, standing)
    if not keys:
        return {}
    policy = policy_at(policy_path)
    others = [node for node in strangers(standing, policy) if any(key.node == node for key in keys)]
    if others:
        click.echo(
            f"fault-agent: {', '.join(others[:KNOWN])}: rated by another policy than {policy.digest[:12]}, so what its"
            " rules count to is not told; give it with --policy",
            err=True,
        )
    return {key: said for key in keys if (said := tuple(words(key, standing, policy, evidence.clock)))}


def _evidence(asked: Asked, out: Path | None, config: Path | None, last: int, since: int | None) -> Evidence:
    if config is None:
        if since is not None:
            raise click.UsageError("--since is for --config; a folder is read whole")
        return read_evidence(out or Path())
    if out is not None:
        raise click.UsageError("give either --out, a folder of the role solo, or --config, the roles on services")
    # Imported where needed: no other command waits for the clients.
    from agent.app.bootstrap.evidence import read_services

    begin = None if since is None else Millis(wall_clock() - since)
    evidence = read_services(load_settings(config, os.environ), asked.nodes, last, begin)
    first = evidence.lines[0].decision.at if evidence.lines else None
    told = "no decision was there to read" if first is None else f"decisions since {utc_text(first)} were read"
    click.echo(f"fault-agent: {told}; --last and --since choose others", err=True)
    return evidence


def _pictured(asked: Asked, evidence: Evidence, out: Path, cluster: Path | None, config: Path | None) -> Evidence:
    """With the objects of the job that is asked for; that they cannot be had is a finding."""
    if asked.kind != "job" or (cluster is None and config is None):
        return evidence
    try:
        if cluster is not None:
            picture = read_picture(out, cluster, asked.means)
        else:
            from agent.app.bootstrap.evidence import read_picture as read_live

            picture = read_live(load_settings(config, os.environ), asked.namespace, asked.means)
    except AgentError as error:
        what = f"objects cannot be read: {error}; what the job waits for and asks for is not told"
        return replace(evidence, findings=(*evidence.findings, what))
    return replace(evidence, picture=picture, findings=(*evidence.findings, *picture.unread))


def _nothing(asked: Asked, evidence: Evidence) -> str:
    """What is said when nothing is known of what was asked for, with what is."""
    if asked.ledger:
        return f"{asked.ref} is a ledger of the agent; nothing that it keeps has been decided"
    text = f"nothing was decided about {asked}; "
    names = known(evidence.lines, asked)
    if names:
        text += "known here:" + "".join(f"\n  {name}" for name in names[:KNOWN])
        text += f"\n  and {len(names) - KNOWN} more" if len(names) > KNOWN else ""
    else:
        text += "none are known here"
    node = asked.ref.partition("/")[0]
    refused = sum(node in nodes_of(letter) for letter in evidence.letters) if asked.kind == "fault" else 0
    return text + (f"\n  dead letters that name {node}: {refused}; ask why node {node}" if refused else "")
