"""`fault-agent policy diff`: what another policy would change, and how a difference is shown.

The one rule: what differs in what decides is shown; a meaning, a place or the order of a file is no difference.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from agent.app.cli.against import difference_plain, judged_twice, show_differences
from agent.app.cli.policy import policy_at, policy_path
from agent.app.cli.show import console, counted
from agent.app.policydiff import Changes, diff
from agent.app.settings import load_settings
from agent.domain.policy import CodeRule

EXIT_FINDINGS: Final = 1
_UNKNOWN: Final = "unknown"
_PATH: Final = click.Path(path_type=Path)


def changes_plain(changes: Changes, before: str, after: str) -> dict[str, Any]:
    """Differences for machines; `before` and `after` are the names of the two sides."""
    return {
        "codes": [
            {"table": one.table, "code": one.code, before: _side(one.before), after: _side(one.after)}
            for one in changes.codes
        ],
        "rules": [
            {
                "kind": one.kind,
                "code": one.what,
                before: one.before or None,
                after: one.after or None,
                "place": one.place or None,
            }
            for one in changes.rules
        ],
    }


def _side(row: CodeRule | None) -> dict[str, str] | None:
    return None if row is None else {"code": row.code, "level": row.level, "place": row.place}


def show_changes(out: Console, changes: Changes, before: str, after: str) -> None:
    """Differences for people, as a table; nothing when there are none."""
    if not changes:
        return
    listing = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("what", "code", before, after, "where"):
        listing.add_column(column, overflow="fold")
    for one in changes.codes:
        row = one.after or one.before
        listing.add_row(one.table, one.code, _level(one.before), _level(one.after), row.place if row else "")
    for rule in changes.rules:
        listing.add_row(rule.kind, rule.what, rule.before or "none", rule.after or "none", rule.place)
    out.print(listing)


def _level(row: CodeRule | None) -> str:
    return row.level if row is not None else _UNKNOWN


@click.command(
    "diff",
    short_help="Tell what another policy would change.",
    epilog="Examples: fault-agent policy diff shipped mine/; "
    "fault-agent policy diff mine/ next/ --events night.jsonl --cluster objects/",
)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--events", type=_PATH, help="A recording: tell also which of its decisions would differ.")
@click.option("--cluster", type=_PATH, help="Objects of the cluster for --events, as for `fault-agent replay`.")
@click.option("--config", type=_PATH, help="Settings (YAML) for --events; left out: the defaults.")
@click.option("--json", "as_json", is_flag=True, help="For machines: one object.")
def diff_command(
    before: str, after: str, events: Path | None, cluster: Path | None, config: Path | None, as_json: bool
) -> None:
    """Tell which codes, rules and settings policy B rates otherwise than policy A.

    A and B are policy folders or files, each laid over the shipped policy, or the word `shipped`. With --events both
    judge the recording, and the decisions that differ are told. Exit code 1: something differs.
    """
    paths = policy_path(before), policy_path(after)
    old, new = (policy_at(path) for path in paths)
    changes = diff(old, new)
    decisions = None
    if events is not None:
        if cluster is None:
            raise click.UsageError("--events needs --cluster, the objects that the faults are judged on")
        decisions = judged_twice(events, cluster, load_settings(config, os.environ), *paths)
    elif cluster is not None or config is not None:
        raise click.UsageError("--cluster and --config are for --events, the recording to judge")
    if as_json:
        plain: dict[str, Any] = {"before": old.digest, "after": new.digest, "same": changes.same}
        plain |= changes_plain(changes, "before", "after")
        if decisions is not None:
            plain["decisions"] = [difference_plain(one) for one in decisions]
        click.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        out = console()
        out.print(f"A  {old.digest[:12]}  {before}")
        out.print(f"B  {new.digest[:12]}  {after}")
        codes, same = counted(len(changes.codes), "code"), counted(changes.same, "code")
        rules = "1 rule or setting" if len(changes.rules) == 1 else f"{len(changes.rules)} rules or settings"
        out.print(f"{codes} and {rules} different, {same} alike")
        show_changes(out, changes, "A", "B")
        if decisions is not None:
            show_differences(out, decisions)
    if changes or decisions:
        raise click.exceptions.Exit(EXIT_FINDINGS)
