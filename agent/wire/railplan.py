"""The plan of one job, for people and tools: what is advised for its link faults, or why nothing is, and what it holds.

The one rule: the same values always give the same bytes, keys in the order they are declared here; what the plan says
of the NPUs that are held is always what the ledger says.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import orjson
from pydantic import ConfigDict, Field

from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import Reservation
from agent.domain.rail.words import (
    Answer,
    Borrow,
    Delegate,
    Noop,
    Observe,
    Outcome,
    RailCode,
    advice_for,
    borrow_advice,
    return_advice,
)
from agent.domain.vocab import JobId, Millis
from agent.wire.audit import rfc3339
from agent.wire.railfile import WireModel, validated

PLAN_KEY: Final = "plan.json"
MOST: Final = 1000
"""Moves and links that a plan lists: it is kept beside the job's ledger, which has to fit its ConfigMap too."""
FEW: Final = 8
"""Dies that an advice names; `failed` has them all."""


def plan_name(job_name: str) -> str:
    """Name of the ConfigMap, in the job's namespace, that holds its plan."""
    return f"fault-agent-rail-{job_name}"


class PlanRule(WireModel):
    """The rule that decided."""

    number: int = Field(
        description="1 to 28; 0: no rule, but the ledger (LEDGER_FULL) or the age of the fault (TOO_OLD, BEFORE_ACT)"
    )
    code: RailCode


class PlanMove(WireModel):
    """One rank whose traffic goes to the other die of its NPU."""

    node: str
    npu: int = Field(description="physical NPU: device id / 2")
    device_from: int
    device_to: int
    rank: int
    faulted: bool = Field(description="its own link failed; else it moves because the other end does")


class PlanWarning(WireModel):
    """Something to know that does not stand in the plan's way."""

    code: RailCode
    detail: str


class PlanCheck(WireModel):
    """One rule that was looked at, in order."""

    rule: int
    code: RailCode
    outcome: Outcome
    detail: str


class PlanFailed(WireModel):
    """A die whose own link failed and whose traffic goes over the other die."""

    node: str
    npu: int
    device: int
    rank: int
    link_back: str | None = Field(
        default=None, description="since when its link is up again, RFC 3339 UTC; nothing returns by itself"
    )


class PlanHeld(WireModel):
    """What the job holds now because of one plan."""

    plan: str
    since: str = Field(description="RFC 3339 UTC")
    npus: int = Field(description="NPUs it holds, those at the other ends too")
    failed: list[PlanFailed]
    advice: str = Field(description="what to do about it now")


PlanState = Literal[
    "observed", "planned", "advised", "refused", "expired", "superseded", "returned", "noop", "delegated"
]


class PlanDocument(WireModel):
    """What the agent advises for the link faults of one job, or why it advises nothing."""

    model_config = ConfigDict(extra="ignore", frozen=True, title="Rail plan", serialize_by_alias=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    cluster: str
    job: str = Field(description="<namespace>/<PodGroup name>")
    incarnation: str
    plan: str = Field(description="twelve hex digits, the same for the same job, incarnation and occurrences")
    executor: Literal["plan-only"] = Field(
        default="plan-only", description="who would switch: nobody here; HCCL does so by itself if it can"
    )
    state: PlanState
    at: str = Field(description="when it was decided, RFC 3339 UTC")
    until: str | None = Field(default=None, description="observed: when it is asked again, RFC 3339 UTC")
    rule: PlanRule
    detail: str
    faults: list[str] = Field(description="references of the faults, node/plane/where/code@ms")
    moves: list[PlanMove]
    links: list[tuple[int, int]] = Field(description="pairs of ranks whose link changes its rail")
    moves_left_out: int = Field(default=0, description="moves beyond those listed; the ledger has them all")
    links_left_out: int = Field(default=0, description="links beyond those listed; the ledger has them all")
    warnings: list[PlanWarning]
    advice: str
    held: list[PlanHeld] = Field(
        default_factory=list, description="every plan by which the job holds NPUs now, oldest first"
    )
    checked: list[PlanCheck]


def plan_document(
    answer: Answer,
    *,
    cluster: str,
    job: JobId,
    incarnation: str,
    plan: str,
    faults: Sequence[str],
    at: Millis,
    advised: bool = True,
) -> PlanDocument:
    """The plan document of an answer. A borrow is `advised` once its NPUs are held, before that `planned`."""
    moves: list[PlanMove] = []
    links: list[tuple[int, int]] = []
    warnings: list[PlanWarning] = []
    left_out = 0, 0
    if isinstance(answer, Borrow):
        moves = [
            PlanMove(
                node=move.node,
                npu=move.npu,
                device_from=move.device_from,
                device_to=move.device_to,
                rank=move.rank,
                faulted=move.faulted,
            )
            for move in sorted(answer.moves, key=lambda one: (not one.faulted, one.rank))[:MOST]
        ]
        moves.sort(key=lambda one: one.rank)
        links = list(answer.links[:MOST])
        left_out = len(answer.moves) - len(moves), len(answer.links) - len(links)
        warnings = [PlanWarning(code=note.code, detail=note.detail) for note in answer.warnings]
    return PlanDocument(
        schema=1,
        cluster=cluster,
        job=job,
        incarnation=incarnation,
        plan=plan,
        state=_state(answer, advised),
        at=rfc3339(at),
        until=rfc3339(answer.until) if isinstance(answer, Observe) else None,
        rule=PlanRule(number=answer.rule, code=answer.code),
        detail=answer.detail,
        faults=sorted(set(faults)),
        moves=moves,
        links=links,
        moves_left_out=left_out[0],
        links_left_out=left_out[1],
        warnings=warnings,
        advice=advice_for(answer),
        held=[],
        checked=[
            PlanCheck(rule=item.rule, code=item.code, outcome=item.outcome, detail=item.detail)
            for item in answer.checked
        ],
    )


def _state(answer: Answer, advised: bool) -> PlanState:
    if isinstance(answer, Borrow):
        return "advised" if advised else "planned"
    if isinstance(answer, Observe):
        return "observed"
    if isinstance(answer, Noop):
        return "noop"
    if isinstance(answer, Delegate):
        return "delegated"
    return "expired" if answer.code == RailCode.TOO_OLD else "refused"


def as_held(document: PlanDocument, entries: Iterable[Reservation]) -> PlanDocument:
    """The document as the job's entries in the ledger stand: its state, what is held, and what to do about it."""
    own: list[Reservation] = []
    plans: dict[str, list[Reservation]] = {}
    for entry in entries:
        if entry.plan == document.plan:
            own.append(entry)
        if entry.open:
            plans.setdefault(entry.plan, []).append(entry)
    base = borrow_advice(note.code for note in document.warnings)
    held = [_held(plan, found, base if plan == document.plan else borrow_advice(())) for plan, found in plans.items()]
    state: PlanState = document.state
    advice = document.advice
    if own and document.moves and document.plan in plans:
        state, advice = "advised", next(one.advice for one in held if one.plan == document.plan)
    elif own and document.moves:
        state = "returned" if any(one.state is HoldState.RETURNED for one in own) else "superseded"
        advice = _ENDED[state]
    return document.model_copy(update={"state": state, "advice": advice, "held": held})


_ENDED: Final[Mapping[str, str]] = {
    "superseded": "Nothing is borrowed by this plan any more: the processes that did are gone. Have the link repaired.",
    "returned": "Returned by hand, as recorded: its NPUs may borrow again.",
}


def _held(plan: str, entries: Sequence[Reservation], advice: str) -> PlanHeld:
    failed = [one for one in entries if one.faulted]
    back = [f"{one.node}/{one.die_from}" for one in failed if one.link_back is not None]
    if back and len(back) == len(failed):
        advice = return_advice(plan)
    elif back:
        advice += f" Up again is the link of {', '.join(back[:FEW])}: return by hand when the others are too."
    return PlanHeld(
        plan=plan,
        since=rfc3339(entries[0].at),
        npus=len(entries),
        failed=[
            PlanFailed(
                node=one.node,
                npu=one.npu,
                device=one.die_from,
                rank=one.rank,
                link_back=None if one.link_back is None else rfc3339(one.link_back),
            )
            for one in failed
        ],
        advice=advice,
    )


def encode_plan(document: PlanDocument) -> str:
    """Text of a plan for key `plan.json`; a time that does not apply is left out."""
    return document.model_dump_json(exclude_none=True)


def decode_plan(text: str | bytes) -> PlanDocument:
    """A plan as it was written. Raises BadDocument."""
    return validated(PlanDocument, text, PLAN_KEY)


def rail_plan_schema() -> str:
    """JSON Schema of the plan document, as shipped in schemas/rail-plan.schema.json."""
    schema: Mapping[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PlanDocument.model_json_schema(),
    }
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
