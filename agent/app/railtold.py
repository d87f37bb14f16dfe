"""A job's rail plan as a span, for who looks at traces: what the document says, in attributes.

The one rule: it says what the document says, and nothing that is not in it.
"""

from agent.ports import Tracer
from agent.wire.railplan import PlanDocument

FEW = 16
"""Moves and links that a span names; the document has them all."""


def tell_plan(tracer: Tracer, parent: str, document: PlanDocument) -> None:
    """A span `rail` below the decision that made or changed the plan."""
    moves = [f"{one.node}:{one.device_from}>{one.device_to}" for one in document.moves[:FEW]]
    with tracer.span(
        "rail",
        parent,
        job=document.job,
        plan=document.plan,
        state=document.state,
        executor=document.executor,
        rule=document.rule.number,
        code=str(document.rule.code),
        faults=",".join(document.faults[:FEW]),
        moves=",".join(moves),
        ranks_moved=len(document.moves) + document.moves_left_out,
        links=",".join(f"{one}-{two}" for one, two in document.links[:FEW]),
        warnings=",".join(note.code for note in document.warnings),
        advice=document.advice,
        held=sum(one.npus for one in document.held),
    ):
        pass
