"""`fault-agent rail status`: who has borrowed a rail, since when, why, and what is left.

The one rule: it reads the ledgers and changes nothing; what an operator has to do next is told with its command.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from agent.app.bootstrap import read_evidence, wall_clock
from agent.app.cli.account import many
from agent.app.cli.show import folded
from agent.app.railstanding import HeldPlan, JobRails, Watched, rails_of
from agent.app.release import is_job
from agent.app.settings import load_settings
from agent.app.standing import Standing
from agent.domain.cluster.railholds import ANEW
from agent.domain.rail.reservations import MAX_BYTES, RailLedger, Reservation, weight
from agent.domain.rail.words import borrow_advice
from agent.domain.vocab import RAIL_RETURNED, Millis, utc_text
from agent.wire.audit import rfc3339

EXIT_FINDINGS: Final = 1
FEW: Final = 12
"""NPUs, links and ended plans that are told of one plan or job; --json has all."""
_NONE: Final = (
    "No rail of a job is borrowed, waited for or refused, as far as ledgers tell (an agent in observe mode keeps none)."
)


@click.command(
    "status",
    short_help="Show who has borrowed a rail, since when, why, and what is left.",
    epilog="Examples: fault-agent rail status --out OUT; fault-agent rail status --job train/demo --config agent.yaml",
)
@click.option(
    "--out",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    show_default="this folder",
    help="The --out folder of a run, replay or demo.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings (YAML) of the coordinator: read the ledgers on the API server instead of a folder.",
)
@click.option("--job", "job", help="Only this job: namespace/name, or its name alone.")
@click.option("--json", "as_json", is_flag=True, help="For machines: one object with every job and NPU.")
def status_command(out: Path | None, config: Path | None, job: str | None, as_json: bool) -> None:
    """Show every plan by which NPUs are held: its NPUs and links, since when, the rule and the faults behind it, and
    what to do; then the newest answer of each job, link faults that are still waited for, and plans that have ended.

    "left" counts the NPUs of the job that may still borrow: each may once, until the job begins a new life or an
    operator has returned by hand and recorded it.

    Exit code 0: told; 1: a ledger could not be read, or no such job is known.
    """
    standing, findings, clock = _read(out, config)
    for finding in findings:
        click.echo(f"fault-agent: {finding}", err=True)
    every = rails_of(standing, clock)
    jobs = [one for one in every if job is None or is_job(one.job, job)]
    names = sorted({*(one.job for one in every), *standing.ledgers})
    strange = job is not None and not any(is_job(name, job) for name in names)
    if strange:
        known = "".join(f"\n  {name}" for name in names[:FEW]) or " none"
        more = f"\n  and {len(names) - FEW} more" if len(names) > FEW else ""
        click.echo(f"fault-agent: no job {job} is known here; known here:{known}{more}", err=True)
    if as_json:
        click.echo(json.dumps(_plain(standing, jobs), indent=2, ensure_ascii=False))
    elif not strange:
        click.echo("\n".join(_told(standing, jobs, job)))
    if strange or findings or standing.rails_unread:
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _read(out: Path | None, config: Path | None) -> tuple[Standing, Sequence[str], Millis]:
    if config is None:
        evidence = read_evidence(out or Path())
        return evidence.standing, evidence.findings, evidence.clock
    if out is not None:
        raise click.UsageError("give either --out, a folder of the role solo, or --config, the roles on services")
    # Imported where needed: no other command waits for the clients.
    from agent.app.bootstrap.evidence import read_ledgers

    standing, findings = read_ledgers(load_settings(config, os.environ))
    return standing, findings, wall_clock()


def record_command(plan: HeldPlan, *, away: bool = False) -> str:
    """How an operator records that this plan was returned by hand, or takes such a record away."""
    namespace, _, group = plan.npus[0].job.partition("/")
    what = "-" if away else f"={plan.plan} --overwrite"
    return f"kubectl -n {namespace} annotate podgroup {group} {RAIL_RETURNED}{what}"


def _advice(one: JobRails, plan: HeldPlan) -> str:
    told = {held.plan: held.advice for held in one.newest.held} if one.newest is not None else {}
    return told.get(plan.plan) or borrow_advice(())


# --- for people ---------------------------------------------------------------------------------------------------


def _told(standing: Standing, jobs: Sequence[JobRails], asked: str | None) -> Iterator[str]:
    if standing.rails_unread:
        yield "The ledger of borrowed NPUs cannot be read: no borrow is planned until it is restored, or deleted."
    if not jobs:
        yield _NONE if asked is None else f"Nothing is known of rails of {asked}."
    for number, one in enumerate(jobs):
        if number:
            yield ""
        yield from _job(one, unread=standing.rails_unread)


def _job(one: JobRails, *, unread: bool) -> Iterator[str]:
    held = sum(len(plan.npus) for plan in one.held)
    left = "" if one.left is None else f", {one.left} of its {one.npus} left"
    yield f"{one.job}  " + ("what it holds is not known" if unread else f"{many(held, 'NPU')} held{left}")
    for plan in one.held:
        yield from _plan(one, plan)
    for watched in one.watched:
        what = watched.fault or f"occurrence {watched.occurrence}"
        why = "too old to be judged then" if watched.expired else "a flap until proven otherwise"
        yield f"  {'expired ' if watched.expired else 'observed'} since {utc_text(watched.since)}: {what}, {why}"
    newest = one.newest
    if newest is not None and newest.plan not in {plan.plan for plan in one.held}:
        over = next((plan for plan in one.history if plan.plan == newest.plan and plan.ended is not None), None)
        rule = f"rule {newest.rule.number} {newest.rule.code}, at {newest.at}"
        if over is None:
            yield f"  newest answer  {newest.state}, {rule}"
        else:
            yield f"  newest answer  {rule}; {over.state} {utc_text(over.ended or 0)}"
        if newest.detail:
            yield from folded("detail", newest.detail)
        if newest.advice:
            yield from folded("advice", newest.advice)
    for plan in one.history[:FEW]:
        ended = "" if plan.ended is None else f" {utc_text(plan.ended)}"
        since = f"held since {utc_text(plan.since)}"
        yield f"  ended    plan {plan.plan}  {many(len(plan.npus), 'NPU')} {plan.state}{ended}, {since}"


def _plan(one: JobRails, plan: HeldPlan) -> Iterator[str]:
    late = ", its document is overdue" if plan.overdue else ""
    yield f"  plan {plan.plan}  {plan.state} since {utc_text(plan.since)}, rule {plan.rule} {plan.code}{late}"
    for place, ref in enumerate(plan.faults[:FEW]):
        yield f"    {'' if place else 'because':<10}{ref}"
    for npu in plan.npus[:FEW]:
        yield f"    {npu.node} NPU {npu.npu}  die {npu.die_from}→{npu.die_to}  rank {npu.rank}  {_why(npu)}"
    if len(plan.npus) > FEW:
        yield f"    and {many(len(plan.npus) - FEW, 'NPU')} more"
    links = sorted({link for npu in plan.npus for link in npu.links})
    more = f" and {len(links) - FEW} more" if len(links) > FEW else ""
    if links:
        yield f"    {'links':<10}{', '.join(f'{a}-{b}' for a, b in links[:FEW])}{more}"
    if one.newest is not None and one.newest.plan == plan.plan:
        for place, note in enumerate(one.newest.warnings):
            yield from folded("" if place else "warnings", f"{note.code}: {note.detail}")
    yield from folded("advice", _advice(one, plan))
    if any(npu.early for npu in plan.npus):
        yield from folded("recorded", f"A link was down then. {ANEW}")
        yield f"    {'take away':<10}{record_command(plan, away=True)}"
    if plan.returnable:
        yield f"    {'record':<10}{record_command(plan)}"


def _why(npu: Reservation) -> str:
    if not npu.faulted:
        return "moved as the other end"
    return "its own link failed" + ("" if npu.link_back is None else f", up again since {utc_text(npu.link_back)}")


# --- for machines -------------------------------------------------------------------------------------------------


def _plain(standing: Standing, jobs: Sequence[JobRails]) -> dict[str, Any]:
    ledger = standing.rails or RailLedger()
    known = "unreadable" if standing.rails_unread else "absent" if standing.rails is None else "read"
    return {
        "ledger": known,
        "held": None if standing.rails_unread else ledger.held,
        "room": {"used": None if standing.rails_unread else weight(ledger), "of": MAX_BYTES},
        "jobs": [_plain_job(one) for one in jobs],
    }


def _plain_job(one: JobRails) -> dict[str, Any]:
    newest = one.newest
    return {
        "job": one.job,
        "incarnation": one.incarnation,
        "npus": one.npus,
        "left": one.left,
        "plans": [_plain_plan(one, plan) for plan in one.held],
        "waiting": [_plain_watched(watched) for watched in one.watched],
        "newest": None if newest is None else newest.model_dump(mode="json", exclude={"checked", "held"}),
        "history": [
            {
                "plan": plan.plan,
                "state": str(plan.state),
                "since": rfc3339(plan.since),
                "ended": None if plan.ended is None else rfc3339(plan.ended),
                "npus": len(plan.npus),
            }
            for plan in one.history
        ],
    }


def _plain_watched(watched: Watched) -> dict[str, Any]:
    return {
        "occurrence": watched.occurrence,
        "state": "expired" if watched.expired else "observed",
        "since": rfc3339(watched.since),
        "fault": watched.fault,
    }


def _plain_plan(one: JobRails, plan: HeldPlan) -> dict[str, Any]:
    return {
        "plan": plan.plan,
        "state": str(plan.state),
        "since": rfc3339(plan.since),
        "rule": plan.rule,
        "code": plan.code,
        "faults": list(plan.faults),
        "overdue": plan.overdue,
        "returnable": plan.returnable,
        "advice": _advice(one, plan),
        "record": record_command(plan),
        "npus": [
            {
                "node": npu.node,
                "npu": npu.npu,
                "device_from": npu.die_from,
                "device_to": npu.die_to,
                "rank": npu.rank,
                "faulted": npu.faulted,
                "links": [list(link) for link in npu.links],
                "recorded_early": npu.early,
                "link_back": None if npu.link_back is None else rfc3339(npu.link_back),
            }
            for npu in plan.npus
        ],
    }
