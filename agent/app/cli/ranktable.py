"""`fault-agent ranktable check`: whether HCCL would take a rank table, and whether its backups would serve.

The one rule: a rule that was not judged is told beside those that were, with what would let it be judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import orjson

from agent.app.bootstrap import ClusterObjects, read_objects, read_tables
from agent.domain.hccl import env_from
from agent.domain.ranktable import RankTable
from agent.errors import BadDocument, BadUsage, CannotRun
from agent.wire.ranktables.circumstances import Circumstances, circumstances_in_cluster, circumstances_of
from agent.wire.ranktables.envfile import parse_env_file
from agent.wire.ranktables.inspect import (
    MOST,
    Inspection,
    Opened,
    Placed,
    inspect_table,
    open_table,
    with_more,
)
from agent.wire.ranktables.judge import Judgement, Mode, Standing
from agent.wire.ranktables.shared import shared_ports

EXIT_FINDINGS: Final = 1
SHOWN_PER_CODE: Final = 20
_PATH: Final = click.Path(path_type=Path)
_COLOUR: Final = {"error": "red", "warning": "yellow"}
_BY: Final = {"both": "document and HCCL", "doc": "document", "hccl": "HCCL"}


@click.group(
    short_help="Judge and draw rank tables, and propose backups for one.",
    epilog="Example: fault-agent ranktable check hccl.json --env job.env",
)
def ranktable() -> None:
    """Rank tables (hccl.json) of version 1.0, 1.2, 2.0: judge one before a job starts, look at it, give it backups."""


_CHECK_HELP = """Judge rank tables: files (hccl.json), or dumps of ConfigMaps rings-config-<job>, YAML or JSON.

\b
--mode doc      what the vendor's document or HCCL's own reader asks is an error (the stricter)
--mode source   only what HCCL's reader refuses is; what the document alone asks is a warning

Some rules hang on the job's environment (host_ip with operator retry on, device_ip within a super-pod, backups,
device ids). Without --cluster or --env they are told as "not judged". Several tables are taken for those of
processes that run at one time: where they share a chip their ports must differ.

Exit code 1: an error was found.
"""


@dataclass(frozen=True, slots=True)
class _Checked:
    name: str
    inspection: Inspection


@ranktable.command(
    "check",
    help=_CHECK_HELP,
    short_help="Find what HCCL would refuse, and backups that would not serve.",
    epilog="Examples: fault-agent ranktable check hccl.json --env job.env; "
    "fault-agent ranktable check rings.yaml --cluster cluster.yaml --json",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_PATH)
@click.option("--json", "as_json", is_flag=True, help="For machines: an array, one element per table.")
@click.option(
    "--mode",
    type=click.Choice([str(mode) for mode in Mode]),
    default=str(Mode.DOC),
    show_default=True,
    help="Whose rules are errors. Example: --mode source",
)
@click.option(
    "--cluster", type=_PATH, help="Objects of the cluster: the job's pods and nodes. Example: --cluster objects/"
)
@click.option(
    "--env",
    "env_file",
    type=_PATH,
    help="The whole environment of the job's processes, a NAME=value a line; what is absent is unset. "
    "Example: --env job.env",
)
@click.option("--lenient", is_flag=True, help="Leave comments out, as the vendor's samples have them; HCCL does not.")
def check_command(
    files: Sequence[Path], as_json: bool, mode: str, cluster: Path | None, env_file: Path | None, lenient: bool
) -> None:
    """Judge rank tables."""
    if cluster is not None and env_file is not None:
        raise BadUsage("--cluster and --env both state the environment", hint="give one of them")
    known = _circumstances(cluster, env_file)
    most = MOST if as_json else SHOWN_PER_CODE
    texts = [text for path in files for text in read_tables(path)]
    opened = [open_table(text.raw, lenient=lenient, shift=text.shift) for text in texts]
    checked = [
        _Checked(text.name, inspect_table(one, known.around(one.table), Mode(mode), most=most))
        for text, one in zip(texts, opened, strict=True)
    ]
    if len(opened) > 1:
        named = [(text.name, one.table) for text, one in zip(texts, opened, strict=True)]
        for number, more in shared_ports(named).items():
            inspection = with_more(checked[number].inspection, more, Mode(mode), most=most)
            checked[number] = _Checked(checked[number].name, inspection)
    if as_json:
        click.echo(orjson.dumps([plain(one.name, one.inspection, mode) for one in checked], option=orjson.OPT_INDENT_2))
    else:
        for one in checked:
            _tell(one.name, one.inspection, mode, known)
        for trouble in known.objects.findings if known.objects is not None else ():
            click.echo(f"{trouble} (--cluster; not read)", err=True)
    if any(one.inspection.errors for one in checked):
        raise click.exceptions.Exit(EXIT_FINDINGS)


@dataclass(frozen=True, slots=True)
class _Known:
    """What was told of the environment."""

    stated: Circumstances = field(default_factory=Circumstances)
    objects: ClusterObjects | None = None
    given: bool = False

    def around(self, table: RankTable | None) -> Circumstances:
        known = self.objects
        if known is None or table is None:
            return self.stated
        return circumstances_in_cluster(table, known.pods, known.nodes, known.env)


def _circumstances(cluster: Path | None, env_file: Path | None) -> _Known:
    if cluster is not None:
        return _Known(objects=read_objects(cluster), given=True)
    if env_file is None:
        return _Known()
    return _Known(stated=circumstances_of([env_from(read_env(env_file), visible=True)]), given=True)


def read_env(env_file: Path) -> dict[str, str]:
    """The variables of an --env file. Raises BadUsage, CannotRun."""
    try:
        raw = env_file.read_bytes()
    except OSError as error:
        raise CannotRun(f"{env_file} cannot be read: {error.strerror or error}") from error
    try:
        return parse_env_file(raw, str(env_file))
    except BadDocument as error:
        raise BadUsage(str(error), hint="one NAME=value a line, as `env` prints it") from error


def head(opened: Opened) -> str:
    """What a table is, in a line: version, mode, sizes."""
    table = opened.table
    if table is None:
        return f"not judged as a whole: {opened.stopped}"
    if table.version == "2.0":
        ranks = opened.root.get("rank_list")
        return f"version 2.0, {len(ranks) if isinstance(ranks, list) else 0} ranks"
    ranks = sum(len(server.devices) for server in table.servers)
    pods = f" in {len(table.super_pods)} super-pods" if table.super_pods else ""
    return f"version {table.version}, {mode_words(table)}, {ranks} ranks on {len(table.servers)} servers{pods}"


def mode_words(table: RankTable) -> str:
    """How HCCL reads the table, and why when that is not what its version says."""
    if table.effective_mode() == "super_pod":
        return "super-pod mode"
    if table.version != "1.2":
        return "AI-server mode"
    return f"AI-server mode (no {'super_device_id of every device' if table.super_pods else 'super_pod_list'})"


def _tell(name: str, inspection: Inspection, mode: str, known: _Known) -> None:
    click.echo(f"{name}: {head(inspection.opened)}")
    for line in finding_lines(name, inspection):
        click.echo(line)
    for trouble in known.around(inspection.opened.table).trouble:
        click.secho(f"{name}: HCCL would not take a variable: {trouble}", fg="yellow")
    for judgement in inspection.judgements:
        if judgement.standing is Standing.NOT_JUDGED:
            click.secho(f"{name}: not judged: {judgement.code}: {judgement.why}", fg="cyan")
    click.echo(f"{name}: {_sum(inspection, known)} (mode {mode})")


def finding_lines(name: str, inspection: Inspection) -> Iterator[str]:
    """A line per finding, of each kind the first ones; how many more there are."""
    for one in inspection.found:
        yield click.style(f"{name}:{_line(one)}", fg=_COLOUR[one.finding.severity])
    for code, count in inspection.left_out().items():
        yield f"{name}: … and {count} more of {code} (--json of check lists up to {MOST})"


def _line(one: Placed) -> str:
    finding = one.finding
    hint = f"; {finding.hint}" if finding.hint else ""
    by = _BY[finding.by]
    place = finding.pointer or "the file"
    return f"{one.line}:{one.column}: {finding.severity} {finding.code}: {place}: {finding.message}{hint} [{by}]"


def _sum(inspection: Inspection, known: _Known) -> str:
    words = [_many(inspection.errors, "error"), _many(inspection.warnings, "warning")]
    left = sum(one.standing is Standing.NOT_JUDGED for one in inspection.judgements)
    if left:
        words.append(f"{_many(left, 'rule')} not judged{'' if known.given else ' without --cluster or --env'}")
    if inspection.opened.stopped:
        words.append("the rules over the whole table were not judged")
    return ", ".join(words)


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def plain(name: str, inspection: Inspection, mode: str) -> dict[str, Any]:
    """An inspection for machines."""
    table = inspection.opened.table
    return {
        "file": name,
        "version": table.version if table is not None else None,
        "mode": mode,
        "effective_mode": table.effective_mode() if table is not None and table.version != "2.0" else None,
        "errors": inspection.errors,
        "warnings": inspection.warnings,
        "stopped": inspection.opened.stopped or None,
        "findings": [_plain_finding(one) for one in inspection.found],
        "left_out": {str(code): count for code, count in inspection.left_out().items()},
        "rules": [_plain_rule(one) for one in inspection.judgements],
    }


def _plain_finding(one: Placed) -> dict[str, Any]:
    finding = one.finding
    return {
        "code": finding.code,
        "severity": finding.severity,
        "by": finding.by,
        "pointer": finding.pointer,
        "line": one.line,
        "column": one.column,
        "message": finding.message,
        "hint": finding.hint,
    }


def _plain_rule(one: Judgement) -> dict[str, str]:
    return {"code": one.code, "standing": one.standing, "why": one.why}
