"""`fault-agent why`: what was decided about a job, a node or a fault, and what was not done and for which reason.

The one rule: it reads the folder of a `run` or `replay` and changes nothing there.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import click
from rich.table import Table

from agent.app.bootstrap import read_audit
from agent.app.cli.show import both_times, console
from agent.wire.audit import AuditLine, rfc3339

EXIT_FINDINGS = 1


@click.command(epilog="Example: fault-agent why fault n1/chip/2/80E18402 --out OUT")
@click.argument("kind", type=click.Choice(["job", "node", "fault"]))
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
    """Show what was decided about REF and why, oldest first.

    REF is a job (namespace/PodGroup, or the job's own name), a node, or a fault: its reference
    node/plane/where/code@ms as every command prints it, or the front part of one.
    """
    lines, findings = read_audit(out)
    chosen = [line for line in lines if _matches(line, kind, ref)]
    for finding in findings:
        click.echo(f"fault-agent: {finding}", err=True)
    if as_json:
        click.echo(json.dumps([_plain(line) for line in chosen], indent=2, ensure_ascii=False))
    elif chosen:
        _print(chosen)
    if not chosen:
        known = sorted({value for line in lines if (value := _name(line, kind))})
        hint = (
            "known here: " + ", ".join(known[:8]) + (" …" if len(known) > 8 else "") if known else "none are known here"
        )
        click.echo(f"fault-agent: nothing was decided about {kind} {ref}; {hint}", err=True)
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _name(line: AuditLine, kind: str) -> str:
    decision = line.decision
    return {"job": decision.job, "node": decision.node, "fault": decision.fault}[kind]


def _matches(line: AuditLine, kind: str, ref: str) -> bool:
    name = _name(line, kind)
    if not name:
        return False
    if kind == "node" or name == ref:
        return name == ref
    if kind == "job":
        # A person knows `demo` or `train/demo`; the PodGroup of an AscendJob carries the job's UID behind its name.
        short = name.partition("/")[2]
        return short == ref or name.startswith(f"{ref}-") or short.startswith(f"{ref}-")
    identity = name.rpartition("@")[0]
    return identity == ref or identity.startswith(f"{ref.rstrip('/')}/")


def _plain(line: AuditLine) -> dict[str, object]:
    decision = line.decision
    return {
        "time": rfc3339(decision.at),
        "reason": str(decision.reason),
        "detail": decision.detail,
        "fault": decision.fault,
        "level": decision.level,
        "node": decision.node,
        "job": decision.job,
        "ranks": list(decision.ranks),
        "document": decision.document,
        "mode": line.mode,
        "policy": line.policy,
        "trace": decision.trace,
    }


def _print(lines: Iterable[AuditLine]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("time", "reason", "level", "fault", "job and ranks", "document", "detail"):
        table.add_column(column, overflow="fold", no_wrap=column in ("time", "reason", "level"))
    for line in lines:
        decision = line.decision
        ranks = f" rank {','.join(map(str, decision.ranks))}" if decision.ranks else ""
        table.add_row(
            both_times(decision.at),
            str(decision.reason),
            decision.level,
            decision.fault,
            f"{decision.job}{ranks}",
            decision.document,
            decision.detail,
        )
    console().print(table)
