"""`fault-agent policy lint`: whether policy files would be taken, and what in them is surely not meant.

The one rule: it judges the same bytes that a running agent would load from the same path.
"""

import json
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import click

from agent.app.bootstrap import policy_files
from agent.app.cli.policy import policy_path
from agent.app.cli.show import counted
from agent.wire.policylint import Finding, Severity, lint

EXIT_FINDINGS: Final = 1
_COLOUR: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: None}


_HELP = """Judge a policy folder or file laid over the shipped policy; without PATH the shipped one.

\b
error    what an agent would refuse: a code in two levels or listed twice, a level that its plane does
         not have, a rule out of its range, a frequency rule to anything but ManuallySeparateNPU
         without a ReleaseTimeWindow, an override without reason or last day …
warning  what it would take, and hardly anybody meant: expired, changes-nothing, shadowed, unreachable,
         unlisted-code, codes-lost, rules-lost, senders-lost
note     adds-code, expires-soon, and unreachable of a rule that still decides what is counted

Exit code 1: an error or a warning was found.
"""


@click.command(
    "lint",
    help=_HELP,
    short_help="Find mistakes, and what changes nothing or has expired.",
    epilog="Examples: fault-agent policy lint mine/; fault-agent policy lint mine/ --on 2027-01-01",
)
@click.argument("path", required=False, callback=lambda _ctx, _param, word: policy_path(word))
@click.option(
    "--on",
    "day",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The day (UTC) on which overrides are judged; left out: today. Example: --on 2027-01-01",
)
@click.option("--json", "as_json", is_flag=True, help="For machines: an array of findings, each with its place.")
def lint_command(path: Path | None, day: datetime | None, as_json: bool) -> None:
    """Tell what is wrong with policy files, or not meant."""
    on = day.date() if day is not None else datetime.now(UTC).date()
    found = lint(policy_files(path), policy_files(None), on)
    if as_json:
        click.echo(json.dumps([_plain(finding) for finding in found], indent=2, ensure_ascii=False))
    else:
        _tell(found, on)
    if any(finding.severity is not Severity.NOTE for finding in found):
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _plain(finding: Finding) -> dict[str, str]:
    return {"severity": finding.severity, "kind": finding.kind, "place": finding.place, "text": finding.text}


def _tell(found: list[Finding], on: date) -> None:
    for finding in found:
        kind = "" if finding.severity is Severity.ERROR else f" {finding.kind}"
        click.secho(f"{finding.place}: {finding.severity}{kind}: {finding.text}", fg=_COLOUR[finding.severity])
    counts = Counter(finding.severity for finding in found)
    words = ", ".join(counted(counts[severity], severity) for severity in Severity)
    click.echo(f"{words} on {on.isoformat()}")
