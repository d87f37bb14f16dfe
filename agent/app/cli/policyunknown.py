"""`fault-agent policy unknown`: codes that were seen and that no table lists, and how to add each.

The one rule: it reads what a run has left in its folder and changes nothing.
"""

import json
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table

from agent.app.bootstrap import read_seen
from agent.app.cli.policy import policy_at, policy_option
from agent.app.cli.show import console
from agent.app.unknowns import SeenCode, unknown_codes
from agent.domain.vocab import Plane, utc_text

_TABLES: Final = {Plane.NETWORK: "chip"}


@click.command(
    "unknown",
    short_help="List codes that were seen and are in no table.",
    epilog="Example: fault-agent policy unknown --out out/",
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="The --out folder of a run, a replay or a demo."
)
@policy_option
@click.option("--json", "as_json", is_flag=True, help="For machines: an array of codes, those met last first.")
def unknown_command(out: Path, policy_path: Path | None, as_json: bool) -> None:
    """List the fault codes that a run has met and that no table of the policy lists, those met last first.

    A chip code of severity major, critical or not told is held for a person; a public record with an unknown code is
    refused and kept in the dead letters. A code that --policy lists by now is not shown. Each comes with the lines for
    overrides.yaml that add it; which level is right, the vendor's manual says.
    """
    policy = policy_at(policy_path)
    found = unknown_codes(policy, *read_seen(out))
    if as_json:
        click.echo(json.dumps([_plain(one) for one in found], indent=2, ensure_ascii=False))
    elif not found:
        click.echo("every code that was seen is in a table")
    else:
        _tell(found)


def _table_of(one: SeenCode) -> str:
    return _TABLES.get(one.plane, str(one.plane))


def _plain(one: SeenCode) -> dict[str, Any]:
    return {
        "code": one.code,
        "plane": one.plane,
        "table": _table_of(one),
        "shown_as": sorted(one.levels),
        "held": one.held,
        "times": one.times,
        "refused": one.refused,
        "active": one.active,
        "severities": sorted(one.severities),
        "nodes": sorted(one.nodes),
        "first": one.first,
        "last": one.last,
    }


def _tell(found: list[SeenCode]) -> None:
    out = console()
    listing = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("code", "plane", "became", "times", "active", "nodes", "last seen"):
        listing.add_column(column, overflow="fold")
    for one in found:
        became = "held" if one.held else ", ".join(sorted(one.levels)) or "refused"
        nodes = sorted(one.nodes)
        named = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        listing.add_row(one.code, one.plane, became, str(one.times), str(one.active), named, utc_text(one.last))
    out.print(listing)
    out.print(
        "\nTo add them, each with its level, in an overrides.yaml alone in a folder of its own, which --policy takes\n"
        "(fault-agent policy export FOLDER --only overrides.yaml makes one):"
    )
    for table in dict.fromkeys(map(_table_of, found)):
        out.print(f"{table}:")
        for one in found:
            if _table_of(one) == table:
                code = json.dumps(one.code, ensure_ascii=False)
                out.print(f'  {code}: {{level: …, reason: "…", expires: never}}')
