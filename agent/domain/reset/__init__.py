"""In-place recoveries: what `reset.json` holds, how one recovery lives, and how it is laid onto the live object.

The one rule: training that our entries stopped is always told to start again, once; training they did not stop is
never touched. `values` are the shapes, `life` is the table of phases, `merge` says what to write, `erasure` what
others took out.
"""

from agent.domain.reset.erasure import Erasure, Part, State, Writer, erasure
from agent.domain.reset.life import TRANSITIONS, Signal, Step, due, join, orphan, resumed, start, step
from agent.domain.reset.merge import HOT_RESET, Merge, Outcome, entry_of, merge, orphans, recorded, written
from agent.domain.reset.values import (
    POLICIES,
    UNSURE,
    Executor,
    Phase,
    Policy,
    RankEntry,
    Recovery,
    ResetDevice,
    ResetInfo,
    ResetLimits,
    Status,
    policy_of,
)

__all__ = [
    "HOT_RESET",
    "POLICIES",
    "TRANSITIONS",
    "UNSURE",
    "Erasure",
    "Executor",
    "Merge",
    "Outcome",
    "Part",
    "Phase",
    "Policy",
    "RankEntry",
    "Recovery",
    "ResetDevice",
    "ResetInfo",
    "ResetLimits",
    "Signal",
    "State",
    "Status",
    "Step",
    "Writer",
    "due",
    "entry_of",
    "erasure",
    "join",
    "merge",
    "orphan",
    "orphans",
    "policy_of",
    "recorded",
    "resumed",
    "start",
    "step",
    "written",
]
