"""`fault-agent policy diff`: what another policy would change, and how a difference is shown.

The one rule: what differs in what decides is shown; a meaning, a place or the order of a file is no difference.
"""

from typing import Any, Final

from rich.console import Console
from rich.table import Table

from agent.app.policydiff import Changes
from agent.domain.policy import CodeRule

_UNKNOWN: Final = "unknown"


def changes_plain(changes: Changes, before: str, after: str) -> dict[str, Any]:
    """Differences for machines; `before` and `after` are the names of the two sides."""
    return {
        "codes": [
            {"table": one.table, "code": one.code, before: _side(one.before), after: _side(one.after)}
            for one in changes.codes
        ],
        "rules": [
            {"kind": one.kind, "code": one.what, before: one.before or None, after: one.after or None}
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
        listing.add_row(rule.kind, rule.what, rule.before or "none", rule.after or "none", "")
    out.print(listing)


def _level(row: CodeRule | None) -> str:
    return row.level if row is not None else _UNKNOWN
