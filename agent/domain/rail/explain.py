"""Why a question has its answer: every rule in order, what it looked at, and what it said.

The one rule: what is told is what was decided; a rule behind the deciding one is told as what it would say.
"""

from dataclasses import dataclass
from typing import Final

from agent.domain.rail.case import RailQuestion, open_case
from agent.domain.rail.decision import RULES, Rule, decide, settled_by, word_of
from agent.domain.rail.inputs import INPUTS, Input
from agent.domain.rail.words import Answer, Borrow, Checked, Outcome, RailCode

BORROW_RULE: Final = Rule(28, RailCode.BORROW, lambda _: (), "borrow", "nothing above has hit")
"""What is left when the others have passed."""


@dataclass(frozen=True, slots=True)
class RuleTold:
    """One rule: what it looked at and what it said."""

    rule: Rule
    inputs: tuple[Input, ...]
    word: Checked | None
    """None: it was not asked, since no fault was left."""
    decided: bool = False
    """It gave the answer."""
    after: bool = False
    """The answer was given before; this is what it would say."""


def explain(question: RailQuestion) -> tuple[Answer, tuple[RuleTold, ...]]:
    """The answer, and all 28 rules with what each looked at. Total, as `decide` is."""
    answer = decide(question)
    case = open_case(question)
    told: list[RuleTold] = []
    open_ = bool(case.faults)
    for rule in RULES:
        if not case.faults:
            told.append(RuleTold(rule, (), None, after=True))
            continue
        hits = rule.test(case)
        word = word_of(rule, hits)
        inputs = tuple(INPUTS[rule.number](case))
        if word.outcome is Outcome.SET_ASIDE:
            case = case.without(settled_by(hits))
        ends = word.outcome is Outcome.REFUSED or not case.faults
        told.append(RuleTold(rule, inputs, word, decided=open_ and rule.number == answer.rule, after=not open_))
        open_ = open_ and not ends
    borrowed = isinstance(answer, Borrow)
    inputs = tuple(INPUTS[28](case)) if borrowed else ()
    last = Checked(28, Outcome.PASSED, RailCode.BORROW) if borrowed else None
    told.append(RuleTold(BORROW_RULE, inputs, last, decided=borrowed, after=not borrowed))
    return answer, tuple(told)
