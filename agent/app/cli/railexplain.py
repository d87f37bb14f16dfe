"""`fault-agent rail explain`: the 28 rules in order, and for a fault what each looked at and what it said.

The one rule: the rule that decided is marked, and what a rule behind it would say is told as that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import click
import orjson

from agent.app.cli.railasked import asked, asking_options, names_something
from agent.app.cli.railplan import headline, word
from agent.domain.cluster.whatif import WhatIf
from agent.domain.rail.decision import RULES, Rule
from agent.domain.rail.explain import BORROW_RULE, RuleTold, explain
from agent.domain.rail.words import Outcome, RailCode, advice_for, code_advice
from agent.errors import BadUsage

ALL: Final = (*RULES, BORROW_RULE)


@click.command(
    "explain",
    short_help="The 28 rules, and what each says of a fault.",
    epilog="Examples: fault-agent rail explain; fault-agent rail explain BACKUP_LINK_UNKNOWN;"
    " fault-agent rail explain --cluster cluster.yaml --fault n0/network/2;"
    " fault-agent rail explain 10 22 24 --cluster cluster.yaml --out out/ --leaf n0/odd",
)
@click.argument("rules", metavar="[RULE]...", nargs=-1)
@asking_options
@click.option(
    "--json", "as_json", is_flag=True, help="For machines: an array, one element a rule, or a job and window."
)
def explain_command(rules: Sequence[str], as_json: bool, **words: Any) -> None:
    """Tell the rules of rail-borrow in order, or those of RULE: a number of 1 to 28 or a code.

    With a fault (as for `rail plan`): what each rule looked at and what it said. The first that hits answers; the rules
    behind it are told as what they would say, so that all that stands in the way is seen at once.
    """
    chosen = _chosen(rules)
    if not names_something(words):
        _tell_rules(chosen, as_json)
        return
    answers = asked(**words)
    if as_json:
        click.echo(orjson.dumps([_plain(one, chosen) for one in answers], option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n\n".join("\n".join(_told(one, chosen)) for one in answers))


def _chosen(words: Sequence[str]) -> tuple[Rule, ...]:
    """The rules that are meant. Raises BadUsage."""
    found: dict[int, Rule] = {}
    for text in words:
        code = text.upper()
        matches = [
            rule for rule in ALL if text == str(rule.number) or code == rule.code or code in map(str, rule.further)
        ]
        if not matches:
            hint = "a number of 1 to 28, or a code such as BACKUP_LINK_UNKNOWN; fault-agent rail explain lists them"
            raise BadUsage(f"{text!r} is no rule of rail-borrow", hint=hint)
        found.update({rule.number: rule for rule in matches})
    return tuple(found[number] for number in sorted(found)) or ALL


def _tell_rules(chosen: Sequence[Rule], as_json: bool) -> None:
    if as_json:
        click.echo(orjson.dumps([_plain_rule(rule) for rule in chosen], option=orjson.OPT_INDENT_2))
        return
    for rule in chosen:
        click.echo(f"{rule.number:>2}  {rule.answer:<8}  {rule.code}: {rule.hits}")
        for code, when in rule.further.items():
            click.echo(f"{'':<14}{code}: {when}")
        if len(chosen) < len(ALL):
            for code in (rule.code, *rule.further):
                advice = code_advice(code)
                if advice:
                    click.echo(f"{'':<14}{code}, what to do: {advice}")


def _plain_rule(rule: Rule) -> dict[str, Any]:
    codes: dict[RailCode, str] = {rule.code: rule.hits, **rule.further}
    return {
        "rule": rule.number,
        "answer": rule.answer,
        "codes": [{"code": code, "hits": when, "advice": code_advice(code)} for code, when in codes.items()],
    }


def _plain(one: WhatIf, chosen: Sequence[Rule]) -> dict[str, Any]:
    answer, rules = one.answer, _rules(one)
    numbers = {rule.number for rule in chosen}
    return {
        "job": one.question.job,
        "answer": word(answer),
        "rule": answer.rule,
        "code": answer.code,
        "detail": answer.detail,
        "advice": advice_for(answer),
        "faults": [{"fault": fault.ref, "kind": fault.kind} for fault in one.question.faults],
        "assumed": list(one.assumed),
        "rules": [_plain_told(told) for told in rules if told.rule.number in numbers],
    }


def _plain_told(told: RuleTold) -> dict[str, Any]:
    return {
        "rule": told.rule.number,
        "code": told.rule.code,
        "hits": told.rule.hits,
        "inputs": [{"name": name, "value": value} for name, value in told.inputs],
        "verdict": None if told.word is None else told.word.outcome,
        "said": None if told.word is None else told.word.code,
        "detail": "" if told.word is None else told.word.detail,
        "decided": told.decided,
        "after_the_answer": told.after,
    }


_VERDICT: Final = {
    Outcome.PASSED: ("passed", "would pass"),
    Outcome.REFUSED: ("refused", "would refuse"),
    Outcome.SET_ASIDE: ("set aside", "would set aside"),
    Outcome.NOT_JUDGED: ("not judged", "would not be judged"),
}


def _rules(one: WhatIf) -> tuple[RuleTold, ...]:
    """What each rule says; of a fault that no rule is asked about any more, what each would say."""
    _, rules = explain(one.question)
    return tuple(replace(told, decided=False, after=True) for told in rules) if one.answer.rule == 0 else rules


def _told(one: WhatIf, chosen: Sequence[Rule]) -> Iterator[str]:
    answer, rules = one.answer, _rules(one)
    numbers = {rule.number for rule in chosen}
    yield headline(one)
    for said in one.assumed:
        yield f"  assumed  {said}"
    for told in rules:
        if told.rule.number in numbers:
            yield from _rule(told, word(answer))
    advice = advice_for(answer)
    if advice:
        yield f"  advice   {advice}"


def _rule(told: RuleTold, answer: str) -> Iterator[str]:
    mark = ">" if told.decided else " "
    if told.word is None:
        why = "not reached" if told.rule.number == BORROW_RULE.number else "not asked: no fault is left"
        yield f"{mark} {told.rule.number:>2} {told.rule.code}: {why}"
        return
    verdict = answer if told.decided else _VERDICT[told.word.outcome][told.after]
    code = f" {told.word.code}" if told.word.code != told.rule.code else ""
    yield f"{mark} {told.rule.number:>2} {told.rule.code}: {verdict}{code}"
    if told.word.detail:
        yield f"       {told.word.detail}"
    for name, value in told.inputs:
        yield f"       · {name}: {value}"
