"""`fault-agent rail plan`: what the answer would be if these faults were there now.

The one rule: it asks the coordinator's own question; what was assumed for it is told beside the answer.
"""

from collections.abc import Iterator
from typing import Any, Final

import click
import orjson

from agent.app.cli.railasked import asked, asking_options
from agent.domain.cluster.whatif import WhatIf
from agent.domain.rail.words import Answer, Borrow, Delegate, Noop, Observe, Outcome, RailCode, Refuse, advice_for
from agent.domain.vocab import utc_text
from agent.wire.railplan import encode_plan, plan_document

EXIT_FINDINGS: Final = 1
_WORD: Final = {Borrow: "borrow", Refuse: "refuse", Observe: "observe", Noop: "noop", Delegate: "delegate"}
SHOWN: Final = 32
"""Moves and links that people are shown; --json has all."""


@click.command(
    "plan",
    short_help="What the answer would be if a link, or a leaf switch, failed now.",
    epilog="Examples: fault-agent rail plan --cluster cluster.yaml --fault n0/network/2 --links-up;"
    " fault-agent rail plan --cluster cluster.yaml --out out/ --leaf n0/even --json;"
    " fault-agent rail plan --config agent.yaml --fault n0/network/2/81078603@1767225600000",
)
@asking_options
@click.option("--json", "as_json", is_flag=True, help="For machines: an array, one plan document a job and window.")
def plan_command(as_json: bool, **words: Any) -> None:
    """Tell whether traffic could go over the other dies if these faults were there, or why not: for each job one plan
    of all moves, or one refusal. Nothing is switched, reserved or written.

    A fault without @ms has been there since the reports say so, else for just longer than is waited. Faults that begin
    within rail.joint_window_s of each other are judged together. Links of which nobody knows anything fresh refuse a
    plan. --link and the options behind it say what to take for true; the answer then holds as far as that does.

    Exit code 0: no answer refuses; 1: one does.
    """
    answers = asked(**words)
    if as_json:
        click.echo(orjson.dumps([_plain(one) for one in answers], option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n\n".join("\n".join(_told(one)) for one in answers))
        click.echo("\nA what-if: nothing was switched, reserved or written.")
    if any(isinstance(one.answer, Refuse) for one in answers):
        raise click.exceptions.Exit(EXIT_FINDINGS)


def headline(one: WhatIf) -> str:
    """Job, answer and rule, in a line."""
    job = one.question.job or "no job"
    rule = f"rule {one.answer.rule} " if one.answer.rule else ""
    return f"{job}: {word(one.answer)}, {rule}{one.answer.code}"


def word(answer: Answer) -> str:
    """The answer in a word."""
    if answer.code == RailCode.TOO_OLD:
        return "expired"
    return _WORD[type(answer)]


def _plain(one: WhatIf) -> dict[str, Any]:
    document = plan_document(
        one.answer,
        cluster=one.cluster,
        job=one.question.job,
        incarnation=one.question.incarnation,
        plan=one.plan,
        faults=[fault.ref for fault in one.question.faults],
        at=one.question.now,
        advised=False,
    )
    plain: dict[str, Any] = orjson.loads(encode_plan(document))
    return {**plain, "assumed": list(one.assumed)}


def _told(one: WhatIf) -> Iterator[str]:
    answer = one.answer
    yield headline(one)
    for fault in one.question.faults[:SHOWN]:
        aside = isinstance(answer, Borrow) and fault.ref not in answer.faults
        yield f"  fault    {fault.ref}  {fault.kind}{'  needs nothing more' if aside else ''}"
    yield from _more(len(one.question.faults), "faults")
    yield f"  detail   {answer.detail}"
    if isinstance(answer, Observe):
        yield f"  until    {utc_text(answer.until)}"
    if isinstance(answer, Borrow):
        for check in answer.checked:
            if check.outcome is Outcome.SET_ASIDE:
                yield f"  aside    rule {check.rule} {check.code}: {check.detail}"
        for move in answer.moves[:SHOWN]:
            why = "its own link failed" if move.faulted else "the other end moves"
            place = f"{move.node} NPU {move.npu}  die {move.device_from}→{move.device_to}"
            yield f"  move     rank {move.rank}  {place}  {why}"
        yield from _more(len(answer.moves), "moves")
        shown = ", ".join(f"{low}-{high}" for low, high in answer.links[:SHOWN])
        more = f" and {len(answer.links) - SHOWN} more" if len(answer.links) > SHOWN else ""
        yield f"  links    {shown}{more}"
        for note in answer.warnings[:SHOWN]:
            yield f"  warning  {note.code}: {note.detail}"
        yield from _more(len(answer.warnings), "warnings")
    for said in one.assumed:
        yield f"  assumed  {said}"
    advice = advice_for(answer)
    if advice:
        yield f"  advice   {advice}"


def _more(count: int, what: str) -> Iterator[str]:
    if count > SHOWN:
        yield f"  …        and {count - SHOWN} more {what}; --json has all"
