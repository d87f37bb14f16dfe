"""`fault-agent why`: what was decided about a job, node, fault or document, what was not done, and for which reason.

The one rule: it reads the folder of a `run` or `replay` and changes nothing there; a reference is never broken or cut.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from agent.app.bootstrap import Standing, read_audit, read_standing
from agent.app.cli.show import folded, local_offset, utc_time
from agent.domain.events import FrequencyCounter
from agent.domain.policy import chip_number
from agent.domain.reset import due
from agent.domain.vocab import Plane, Reason
from agent.wire.audit import AuditLine, rfc3339

EXIT_FINDINGS = 1
FEW = 10
"""Faults that are over are listed one by one up to this many."""


@click.command(
    short_help="Show what was decided, what was not, and why.",
    epilog="Example: fault-agent why fault n1/chip/2/80E18402 --out OUT; fault-agent why fault 0x80e18402 --out OUT",
)
@click.argument("kind", type=click.Choice(["job", "node", "fault", "document"]))
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
    any case, chip codes also with 0x and without leading zeros.
    """
    lines, findings = read_audit(out)
    chosen = [line for line in lines if _matches(line, kind, ref)]
    standing = read_standing(out)
    for finding in findings:
        click.echo(f"fault-agent: {finding}", err=True)
    if as_json:
        click.echo(json.dumps([_plain(line, standing) for line in chosen], indent=2, ensure_ascii=False))
    elif chosen:
        click.echo("\n".join((*_blocks(chosen), *_now(chosen, standing))))
    if not chosen:
        known = sorted({value for line in lines if (value := _name(line, kind))})
        hint = (
            "known here: " + ", ".join(known[:8]) + (" …" if len(known) > 8 else "") if known else "none are known here"
        )
        click.echo(f"fault-agent: nothing was decided about {kind} {ref}; {hint}", err=True)
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _name(line: AuditLine, kind: str) -> str:
    decision = line.decision
    return {"job": decision.job, "node": decision.node, "fault": decision.fault, "document": decision.document}[kind]


def _matches(line: AuditLine, kind: str, ref: str) -> bool:
    name = _name(line, kind)
    if not name:
        return False
    if kind == "fault":
        return _is_fault(name, ref)
    if kind == "node" or name == ref:
        return name == ref
    short = name.partition("/")[2]
    if kind == "document":
        return short == ref
    # A person knows `demo` or `train/demo`; the PodGroup of an AscendJob carries the job's UID behind its name.
    return short == ref or name.startswith(f"{ref}-") or short.startswith(f"{ref}-")


def _is_fault(name: str, ref: str) -> bool:
    """Whether a reference is the one asked for, begins with it, or has the code that is asked for."""
    identity, _, at = name.rpartition("@")
    asked, found, asked_at = ref.rpartition("@")
    if not found or not asked_at.isdecimal():
        asked, asked_at = ref, ""
    parts, wanted = identity.split("/", 3), asked.rstrip("/").split("/", 3)
    if len(parts) != 4 or (asked_at and asked_at != at):
        return False
    if len(wanted) == 1 and "/" not in asked and _same_code(parts[1], parts[3], wanted[0]):
        return True
    front = [word.casefold() for word in wanted[:3]]
    if front != [part.casefold() for part in parts[: len(front)]]:
        return False
    return len(wanted) < 4 or _same_code(parts[1], parts[3], wanted[3])


def _same_code(plane: str, code: str, asked: str) -> bool:
    """Chip codes are numbers; of the others the case alone may differ."""
    if plane in (Plane.CHIP, Plane.NETWORK):
        number = chip_number(asked)
        return number is not None and number == chip_number(code)
    return code.casefold() == asked.casefold()


def _plain(line: AuditLine, standing: Standing) -> dict[str, object]:
    decision = line.decision
    return {
        "time": rfc3339(decision.at),
        "reason": str(decision.reason),
        "detail": decision.detail,
        "fault": decision.fault,
        "meaning": line.meaning,
        "active": _is_active(decision.fault, standing),
        "level": decision.level,
        "node": decision.node,
        "job": decision.job,
        "ranks": list(decision.ranks),
        "document": decision.document,
        "mode": line.mode,
        "policy": line.policy,
        "trace": decision.trace,
    }


def _is_active(ref: str, standing: Standing) -> bool | None:
    """Whether the fault of a reference is there now; None: it is about no fault, or nothing is known of its node."""
    identity, _, at = ref.rpartition("@")
    if identity.partition("/")[0] not in standing.nodes:
        return None
    now = standing.active.get(identity)
    # While a fault is active an earlier beginning may be told, never a later one.
    return now is not None and at.isdecimal() and now.since <= int(at)


def _blocks(lines: Sequence[AuditLine]) -> Iterator[str]:
    """One block a decision: a line that says what, and below it, indented, the rest."""
    yield f"Times are UTC; local time is UTC{local_offset(lines[-1].decision.at)}."
    yield ""
    meant: set[str] = set()
    for line in lines:
        decision = line.decision
        what = decision.fault or decision.document or decision.job or str(decision.node)
        yield "  ".join(filter(None, (utc_time(decision.at), str(decision.reason), decision.level, what)))
        code = decision.fault.rpartition("@")[0].rpartition("/")[2]
        if line.meaning and code not in meant:
            meant.add(code)
            yield from folded("meaning", line.meaning)
        if decision.job and decision.job != what:
            ranks = f"  rank {','.join(map(str, decision.ranks))}" if decision.ranks else ""
            yield f"    {'job':<10}{decision.job}{ranks}"
        if decision.document and decision.document != what:
            yield f"    {'document':<10}{decision.document}"
        if decision.detail:
            yield from folded("detail", decision.detail)


def counted(counter: FrequencyCounter) -> str:
    """What the frequency rule of a fault has counted or done."""
    match counter.phase:
        case "counting":
            return f"counted: {len(counter.times)} since {utc_time(min(counter.times, default=counter.due))}"
        case "released":
            return f"tripped: {counter.level} at {utc_time(counter.tripped)}, released at {utc_time(counter.due)}"
    ends = f"; released after {utc_time(counter.due)} if clean" if counter.due else ""
    return f"tripped: {counter.level} at {utc_time(counter.tripped)}{ends}"


def _now(lines: Sequence[AuditLine], standing: Standing) -> Iterator[str]:
    """How the faults that were told of stand now, and what is still to come."""
    refs = list(dict.fromkeys(line.decision.fault for line in lines if line.decision.fault))
    states = {ref: _is_active(ref, standing) for ref in refs}
    jobs = dict.fromkeys(line.decision.job for line in lines if line.decision.job)
    over = [ref for ref, active in states.items() if active is False]
    unknown = [ref for ref, active in states.items() if active is None]
    last_rail = {d.fault: d.reason for line in lines if (d := line.decision).reason.startswith("RAIL_")}
    yield ""
    yield "Now:"
    for ref in (ref for ref, active in states.items() if active):
        identity = ref.rpartition("@")[0]
        fault = standing.active[identity]
        yield f"  active   {ref}  {fault.level}{', held for a person' if fault.held else ''}"
        timer = standing.timers.get(identity)
        if timer is not None and timer.phase in ("down", "up"):
            what = "raised if still down" if timer.phase == "down" else "cleared if still up"
            yield f"           pending: {what} after {utc_time(timer.due)}"
        counter = standing.counters.get(identity)
        if counter is not None:
            yield f"           {counted(counter)}"
        if last_rail.get(ref) is Reason.RAIL_OBSERVING:
            yield "           pending: whether a rail is borrowed"
    for word, which in (("cleared", over), ("unknown", unknown)):
        if len(which) <= FEW:
            yield from (f"  {word}  {ref}" for ref in which)
        else:
            yield f"  {word}  {len(which)} faults"
    for job in jobs:
        for course in standing.courses.get(job, ()):
            one = course.recovery
            until = due(one)
            yield (
                f"  pending  {job}  recovery {one.id} by {one.policy}: {one.phase}"
                f"{f' until {utc_time(until)}' if until is not None else ''}"
            )
    if not refs:
        nodes = sorted({identity.partition("/")[0] for identity in standing.active})
        yield "  none of these decisions names a fault"
        if nodes:
            named = ", ".join(nodes[:FEW]) + (" …" if len(nodes) > FEW else "")
            yield f"  active   {len(standing.active)} in all, on {named}; ask why node NODE"
