"""`fault-agent policy`: the tables and rules in force, counted and listed.

The one rule: it shows what a running agent would load from the same path, and nothing else.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table

from agent.app.bootstrap import export_policy, load_policy_at
from agent.app.cli.show import console
from agent.domain.policy import CodeRule, EndedOverride, Policy
from agent.domain.vocab import LEVELS, MANUAL, SECOND, Plane, Source, span_text
from agent.wire.policyfile import FILES

TABLE_SOURCES: Final[Mapping[str, Source]] = {
    "chip": Source.DCMI,
    "switch": Source.LINGQU,
    "node": Source.IPMI,
    "dpu": Source.DPU,
    "public": Source.PUBLIC,
}
SHIPPED: Final = "shipped"
"""The word for the policy that comes with the agent."""
_ALL_LEVELS: Final = tuple(dict.fromkeys(level for levels in LEVELS.values() for level in levels))


def policy_at(path: Path | None) -> Policy:
    """The policy of a folder or file laid over the shipped one; None: the shipped one. Raises BadPolicy, CannotRun."""
    return load_policy_at(path)


def policy_path(word: str | None) -> Path | None:
    """Where a policy that a person names lies; None: the shipped one (./shipped is a folder)."""
    return None if word is None or word == SHIPPED else Path(word)


def policy_option(command: Any) -> Any:
    """The option --policy, the same on every verb that asks the policy."""
    return click.option(
        "--policy",
        "policy_path",
        metavar="PATH",
        callback=lambda _ctx, _param, word: policy_path(word),
        help="Your policy folder or file; a file replaces the shipped one of the same name, and overrides.yaml lies "
        "over them all. The word shipped, or nothing: the shipped policy alone. "
        "Example: --policy ./my-policy with an overrides.yaml in it.",
    )(command)


@click.group(
    short_help="Look at tables and rules; copy them to edit.",
    epilog="Example: fault-agent policy show --table chip --level SeparateNPU",
)
def policy() -> None:
    """Look at the tables and rules that give fault codes their levels."""


@policy.command(short_help="Count and list the codes.", epilog="Example: fault-agent policy show --table switch")
@click.option(
    "--table",
    "table_name",
    type=click.Choice(list(TABLE_SOURCES)),
    help="List the codes of this table. Example: --table node",
)
@click.option(
    "--level",
    callback=lambda _ctx, _param, value: _level(value),
    metavar="LEVEL",
    help="List the codes of this level. Example: --level SubHealthFault",
)
@policy_option
@click.option("--json", "as_json", is_flag=True, help="For machines. Example: policy show --table dpu --json")
def show(table_name: str | None, level: str | None, policy_path: Path | None, as_json: bool) -> None:
    """Show how many codes each table has at each level; with --table or --level also the codes.

    The digest names the content that decides: two agents with the same digest give the same levels.
    """
    if table_name and level is not None and level not in LEVELS[Plane(table_name)]:
        raise click.UsageError(f"the {table_name} table has no {level}; it has {', '.join(LEVELS[Plane(table_name)])}")
    in_force = policy_at(policy_path)
    names = [table_name] if table_name else list(TABLE_SOURCES)
    tables = {name: _rows(in_force, name, level) for name in names}
    listed = table_name is not None or level is not None
    if as_json:
        click.echo(json.dumps(_plain(in_force, tables, listed=listed), indent=2, ensure_ascii=False))
    else:
        _print(in_force, tables, listed=listed)


def _level(asked: str | None) -> str | None:
    """A level as it is spelled, whatever the case. Raises click.BadParameter naming the nearest ones."""
    spelled = {level.casefold(): level for level in _ALL_LEVELS}
    if asked is None or asked.casefold() in spelled:
        return None if asked is None else spelled[asked.casefold()]
    near = [spelled[one] for one in get_close_matches(asked.casefold(), spelled, n=3)]
    meant = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_ALL_LEVELS)}"
    raise click.BadParameter(f"no level {asked!r}; {meant}")


@policy.command(
    short_help="Write the shipped files into a folder, to edit a copy.",
    epilog="Example: fault-agent policy export my-policy/ --only overrides.yaml; "
    "fault-agent explain 80E18402 --policy my-policy/",
)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--only",
    type=click.Choice(FILES),
    multiple=True,
    metavar="NAME",
    help="This file alone; may be given several times. Example: --only overrides.yaml",
)
@click.option("--json", "as_json", is_flag=True, help="For machines: an array of the files that were written.")
def export(folder: Path, only: Sequence[str], as_json: bool) -> None:
    """Write the shipped policy files into FOLDER, to edit a copy and give it as --policy FOLDER.

    A file that is left out of that folder is the shipped one, and a copy stays as it is when a new version brings new
    codes, so keep only those you change; to rate single codes otherwise, --only overrides.yaml is enough. Nothing is
    overwritten.
    """
    written = [str(path) for path in export_policy(folder, only)]
    click.echo(json.dumps(written, indent=2, ensure_ascii=False) if as_json else "\n".join(written))


def _rows(in_force: Policy, name: str, level: str | None) -> list[CodeRule]:
    """Rows of one table, most severe first, then as the file has them."""
    ranks = LEVELS[Plane(name)]
    table: Mapping[Any, CodeRule] = getattr(in_force, name)
    rows = [rule for rule in table.values() if level is None or rule.level == level]
    return sorted(rows, key=lambda rule: -ranks[rule.level])


def _counts(rows: Sequence[CodeRule]) -> dict[str, int]:
    return dict(Counter(rule.level for rule in rows))


def _plain(in_force: Policy, tables: Mapping[str, Sequence[CodeRule]], *, listed: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, rows in tables.items():
        shown[name] = {"codes": len(rows), "levels": _counts(rows)}
        if listed:
            shown[name]["list"] = [
                {
                    "code": rule.code,
                    "level": rule.level,
                    "plane": in_force.plane_of(TABLE_SOURCES[name], rule.code),
                    "meaning": rule.meaning,
                    "module": rule.module,
                    "place": rule.place,
                    "override": override_plain(rule),
                }
                for rule in rows
            ]
    return {
        "digest": in_force.digest,
        "tables": shown,
        "overrides": [
            {"table": table, "code": rule.code, "level": rule.level, "place": rule.place, "over": override_plain(rule)}
            for table in TABLE_SOURCES
            for rule in getattr(in_force, table).values()
            if rule.override is not None
        ],
        "durations": [
            {
                "code": rule.code,
                "fault_timeout_s": rule.fault_timeout_ms // SECOND,
                "recover_timeout_s": rule.recover_timeout_ms // SECOND,
                "level": rule.level,
                "place": rule.place,
            }
            for rule in in_force.durations.values()
        ],
        "frequencies": [
            {
                "code": rule.code,
                "time_window_s": rule.window_ms // SECOND,
                "times": rule.times,
                "release_time_window_s": rule.release_ms // SECOND,
                "level": rule.level,
                "place": rule.place,
            }
            for rule in in_force.frequencies.values()
        ],
        "relations": [
            {
                "trigger": rule.trigger,
                "relations": list(rule.relations),
                "strategy": rule.strategy,
                "place": rule.place,
            }
            for rule in in_force.relations
        ],
        "relation_timeouts": [
            {"code": code, "time_out_s": span // SECOND} for code, span in in_force.relation_timeouts.items()
        ],
        "ended_overrides": [ended_plain(one) for one in in_force.ended],
        "public_resources": sorted(in_force.public_resources),
        "unknown_held_level": in_force.unknown_held_level,
    }


def _print(in_force: Policy, tables: Mapping[str, Sequence[CodeRule]], *, listed: bool) -> None:
    out = console()
    counts = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("table", "level", "rank", "codes"):
        counts.add_column(column, justify="right" if column in ("rank", "codes") else "left", no_wrap=True)
    for name, rows in tables.items():
        for level, number in _counts(rows).items():
            counts.add_row(name, level, str(LEVELS[Plane(name)][level]), str(number))
    out.print(counts)
    if listed and not any(tables.values()):
        out.print("\nno code is listed there")
    elif listed:
        listing = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("code", "level", "plane", "meaning", "where"):
            listing.add_column(column, overflow="fold")
        for name, rows in tables.items():
            for rule in rows:
                plane = in_force.plane_of(TABLE_SOURCES[name], rule.code)
                listing.add_row(rule.code, rule.level, plane, told(rule), rule.place)
        out.print()
        out.print(listing)
    out.print()
    for table in TABLE_SOURCES:
        for rule in getattr(in_force, table).values():
            if rule.override is not None:
                out.print(f"override  {table} {rule.code}: {rule.level}, {override_words(rule)}", soft_wrap=True)
    for ended in in_force.ended:
        out.print(f"ended     {ended}: {ended.reason}", soft_wrap=True)
    for duration in in_force.durations.values():
        out.print(f"duration  {duration.code}: {duration_words(in_force, duration.code)}", soft_wrap=True)
    several = len(in_force.frequencies)
    out.print(
        f"frequency {several} codes have a rule; fault-agent explain CODE tells it" if several else "frequency none"
    )
    for relation in in_force.relations:
        waits = " and ".join(
            f"{code} ({span_text(in_force.relation_timeouts.get(code, 0))})" for code in relation.relations
        )
        out.print(f"relation  {relation.trigger} with {waits}: {relation.strategy} ({relation.place})", soft_wrap=True)
    out.print(f"public    {', '.join(sorted(in_force.public_resources)) or 'no resource is listened to'}")
    out.print(f"unknown   a held chip code is shown as {in_force.unknown_held_level}")
    out.print(f"digest    {in_force.digest}")


def ended_plain(one: EndedOverride) -> dict[str, str]:
    """An override that holds no longer, for machines."""
    return {
        "table": one.table,
        "code": one.code,
        "level": one.level,
        "place": one.place,
        "reason": one.reason,
        "expires": one.expires.isoformat(),
    }


def override_plain(rule: CodeRule) -> dict[str, str | None] | None:
    """A site's override of a row for machines; None: the row is its table's."""
    over = rule.override
    if over is None:
        return None
    return {
        "reason": over.reason,
        "expires": None if over.expires is None else over.expires.isoformat(),
        "level": over.level or None,
        "place": over.place or None,
    }


def override_words(rule: CodeRule) -> str:
    """What a site's override lies over, until when and why, in one line; empty for a row of the table."""
    over = rule.override
    if over is None:
        return ""
    until = "for good" if over.expires is None else f"until {over.expires.isoformat()}"
    below = f"instead of {over.level} ({over.place})" if over.level else "in no table below"
    return f"{below}, {until}: {over.reason}"


def told(rule: CodeRule) -> str:
    """Module and meaning of a code in one line; empty when neither is known."""
    return ": ".join(filter(None, (rule.module, rule.meaning)))


def duration_words(in_force: Policy, code: str) -> str:
    """What the duration rule of a code does, in one sentence; empty without one."""
    rule = in_force.duration(code)
    if rule is None:
        return ""
    down, up = rule.fault_timeout_ms // SECOND, rule.recover_timeout_ms // SECOND
    return f"{rule.level} after more than {down} s down, until more than {up} s up again ({rule.place})"


def frequency_words(in_force: Policy, code: str) -> str:
    """What the frequency rule of a code does, in one sentence; empty without one."""
    rule = in_force.frequency(code)
    if rule is None:
        return ""
    times = f"{rule.times} times" if rule.times > 1 else "once"
    until = f"until the last recover is more than {rule.release_ms // SECOND} s ago" if rule.release_ms else ""
    if rule.level == MANUAL:
        until = f"until a person ends it{f', or {until}' if until else ''}"
    what = "was raised by its duration" if in_force.duration(code) is not None else "occurred on one device"
    return f"{rule.level} once it {what} {times} within {rule.window_ms // SECOND} s, {until} ({rule.place})"
