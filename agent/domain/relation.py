"""Relation rules of a job: a link that failed, and an error of the job's communication that shows it matters.

The one rule: what follows for a relation fault depends on the faults and on time alone, so the order in which they
are read does not show. A relation fault waits from its beginning for as long as its time-out says, whether or not it
recovers meanwhile (ClusterD relationfault processor).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from agent.domain.vocab import Millis

CQE_CODES: Final = frozenset({"8C1F8608", "4C1F8608"})
"""Completion-queue errors, seen by the device and by the host. In a super-pod they act only once the wait is over."""


class Strategy(StrEnum):
    """What a rule does to the pods on the relation fault; the word of MindCluster's pod label fault-type."""

    SUB_HEALTH = "SubHealth"
    SEPARATE = "Separate"


class Rule(Protocol):
    """A trigger and the codes that must all be in their time with it."""

    @property
    def trigger(self) -> str: ...
    @property
    def relations(self) -> tuple[str, ...]: ...
    @property
    def strategy(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """A fault of the job, a trigger or a relation fault; `end` None: it is still there."""

    code: str
    begin: Millis
    end: Millis | None = None
    on_switch: bool = False
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What holds for a relation fault now."""

    strategy: Strategy | None
    """None: nothing follows from it, so far or for good."""
    final: bool
    because: str = ""


Sight = Mapping[str, Sequence[Seen]]
"""All faults of a job that rules name, by code: a rule looks at its own alone, however many there are of others."""


def sight_of(seen: Iterable[Seen]) -> Sight:
    """Faults by code, in their order."""
    found: dict[str, list[Seen]] = {}
    for one in seen:
        found.setdefault(one.code, []).append(one)
    return found


def judge(
    fault: Seen,
    seen: Sight,
    rules: Sequence[Rule],
    timeouts: Mapping[str, Millis],
    super_pod: bool,
    now: Millis,
) -> Outcome:
    """The strongest that has come of a relation fault by `now`.

    The wait is over strictly after its time-out. Then a switch's fault is sub-healthy, and a chip's separates if a
    completion-queue error began within the wait; otherwise nothing follows.
    """
    due = fault.begin + timeouts.get(fault.code, 0)
    over = now > due
    met = [one for rule in rules if (one := _met(fault, seen, rule, timeouts, super_pod, now)) is not None]
    if over and not fault.on_switch:
        errors = (one for code in sorted(CQE_CODES) for one in seen.get(code, ()))
        cqe = next((one for one in errors if fault.begin <= one.begin <= due), None)
        if cqe is not None:
            met.append((Strategy.SEPARATE, f"{cqe.ref or cqe.code} began while it waited"))
    separate = next((one for one in met if one[0] is Strategy.SEPARATE), None)
    best = separate or next(iter(met), None)
    if best is None and over and fault.on_switch:
        return Outcome(Strategy.SUB_HEALTH, True, "no trigger came in its time")
    if best is None:
        return Outcome(None, over, "no trigger came in its time" if over else "")
    return Outcome(best[0], over or best[0] is Strategy.SEPARATE, best[1])


def _met(
    fault: Seen,
    seen: Sight,
    rule: Rule,
    timeouts: Mapping[str, Millis],
    super_pod: bool,
    now: Millis,
) -> tuple[Strategy, str] | None:
    """Whether a trigger of the rule came in the fault's time together with every other code of the rule."""
    if fault.code not in rule.relations or (super_pod and rule.trigger in CQE_CODES):
        return None
    for trigger in seen.get(rule.trigger, ()):
        first = max(trigger.begin, fault.begin)
        last = min(now, fault.begin + timeouts.get(fault.code, 0), now if trigger.end is None else trigger.end)
        if first > last:
            continue
        if all(_waits(code, seen, timeouts, first, last) for code in rule.relations if code != fault.code):
            return Strategy(rule.strategy), f"trigger {trigger.ref or trigger.code}"
    return None


def _waits(code: str, seen: Sight, timeouts: Mapping[str, Millis], first: int, last: int) -> bool:
    """Whether a relation fault of that code waits at some moment between the two."""
    span = timeouts.get(code, 0)
    return any(one.begin <= last and one.begin + span >= first for one in seen.get(code, ()))
