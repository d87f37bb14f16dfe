"""Rail-borrow: one question, 28 rules, one answer, and the book of NPUs that are held.

The one rule: both ends of a link move or none, and one NPU is held by one plan. `words` are the shapes, `case` the
question, `rules` and `moves` the 28 rules, `decision` their order, `reservations` the book; `explain` tells all rules
with what they looked at (`inputs`), `tables` whether several rank tables of a job say the same.
"""

from agent.domain.rail.case import BorrowPolicy, CommMode, RailQuestion, Strictness
from agent.domain.rail.decision import RULES, LeafFault, decide, leaf_faults
from agent.domain.rail.life import LIFE, HoldState, LifeSignal
from agent.domain.rail.reservations import RailLedger, Reservation, advance, close_job, plan_id, reserve
from agent.domain.rail.words import (
    Answer,
    Borrow,
    Delegate,
    FaultKind,
    Move,
    Noop,
    Observe,
    RailCode,
    RailFault,
    Refuse,
    advice_for,
)

__all__ = [
    "LIFE",
    "RULES",
    "Answer",
    "Borrow",
    "BorrowPolicy",
    "CommMode",
    "Delegate",
    "FaultKind",
    "HoldState",
    "LeafFault",
    "LifeSignal",
    "Move",
    "Noop",
    "Observe",
    "RailCode",
    "RailFault",
    "RailLedger",
    "RailQuestion",
    "Refuse",
    "Reservation",
    "Strictness",
    "advance",
    "advice_for",
    "close_job",
    "decide",
    "leaf_faults",
    "plan_id",
    "reserve",
]
