"""`fault-agent why`: what was decided about a job, node, fault or document, what was not done, and for which reason.

The one rule: it reads what a run has left and changes nothing there.
"""

import json
from pathlib import Path
from typing import cast

import click

from agent.app.bootstrap import read_evidence
from agent.app.cli.answer import blocks, in_order, now, plain
from agent.app.cli.asked import KINDS, Asked, Kind, known
from agent.app.standing import Evidence
from agent.app.telling import letter_of
from agent.domain.vocab import Millis
from agent.wire.letters import nodes_of

EXIT_FINDINGS = 1
KNOWN = 8
"""Names that are shown to somebody who asked for another."""


@click.command(
    short_help="Show what was decided, what was not, and why.",
    epilog="Example: fault-agent why fault n1/chip/2/80E18402 --out OUT; fault-agent why fault 0x80e18402 --out OUT",
)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("ref")
@click.option(
    "--out",
    "out",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    show_default="this folder",
    help="The --out folder of a run, replay or demo.",
)
@click.option("--json", "as_json", is_flag=True, help="For machines: an array of decisions, oldest first.")
def why(kind: str, ref: str, out: Path, as_json: bool) -> None:
    """Show what was decided about REF and why, oldest first, and at the end how it stands now.

    REF is a job (namespace/PodGroup, or the job's own name), a node, a document (namespace/name), or a fault: its
    reference node/plane/where/code@ms, the front part of one such as n1/chip/2, or a code alone. Codes are taken in
    any case, chip codes also with 0x and without leading zeros. A node is told with the dead letters that name it, a
    document with the faults and jobs behind each write.
    """
    asked = Asked(cast(Kind, kind), ref)
    evidence = read_evidence(out)
    for finding in evidence.findings:
        click.echo(f"fault-agent: {finding}", err=True)
    letters = [letter_of(one, Millis(one.timestamp)) for one in evidence.letters if asked.concerns_letter(one)]
    items = in_order([line for line in evidence.lines if asked.concerns(line)], letters)
    if as_json:
        click.echo(json.dumps([plain(item, evidence.standing) for item in items], indent=2, ensure_ascii=False))
    elif items:
        if asked.ledger:
            click.echo(f"{ref} is a ledger of the agent: no decision is about it, it keeps what these came to.")
        click.echo("\n".join((*blocks(items), *now(asked, items, evidence.standing))))
    if not items:
        click.echo(f"fault-agent: {_nothing(asked, evidence)}", err=True)
        raise click.exceptions.Exit(EXIT_FINDINGS)


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
