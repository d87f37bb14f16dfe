"""The documents of rail-borrow: the ledger of held NPUs, and for each job the plan that people and tools read.

The one rule: the same values always give the same bytes, keys in the order they are declared here.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.domain.rail.reservations import HoldState, RailLedger, Reservation, bounded
from agent.domain.rail.words import (
    Answer,
    Borrow,
    Delegate,
    Noop,
    Observe,
    Outcome,
    RailCode,
    advice_for,
)
from agent.domain.ranktable import npu_of, pair_die
from agent.domain.vocab import JobId, Millis, NodeName
from agent.errors import BadDocument
from agent.wire.audit import rfc3339

LEDGER_NAME: Final = "fault-agent-rails"
LEDGER_KEY: Final = "ledger.json"
PLAN_KEY: Final = "plan.json"
SCHEMA: Final = 1
LEDGER_BYTES: Final = 900_000
"""Room for the ledger in a ConfigMap of 1,048,576 bytes; history gives way first."""


def plan_name(job_name: str) -> str:
    """Name of the ConfigMap, in the job's namespace, that holds its plan."""
    return f"fault-agent-rail-{job_name}"


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class _Entry(_Model):
    id: str
    plan: str
    job: str
    job_uid: str
    incarnation: str
    node: str
    npu: int = Field(ge=0)
    die_from: int = Field(ge=0)
    die_to: int = Field(ge=0)
    rank: int = Field(ge=0)
    at: str
    rule: int
    reason: str
    state: str
    faulted: bool
    links: list[list[int]]
    faults: list[str]
    events: list[str]
    closed_at: str | None = None


class _Ledger(_Model):
    schema_: int = Field(alias="schema", ge=1)
    cluster: str
    entries: list[_Entry]


def encode_ledger(ledger: RailLedger, cluster: str) -> str:
    """Text of the ledger for key `ledger.json`; history is shortened until it fits, held NPUs never are.

    Raises BadDocument when the held NPUs alone do not fit; nothing may then be added.
    """
    closed = sum(1 for entry in ledger.entries if not entry.open)
    while True:
        text = _ledger_text(ledger, cluster)
        if len(text) <= LEDGER_BYTES:
            return text.decode()
        if closed == 0:
            raise BadDocument(f"{len(text)} bytes, {LEDGER_BYTES} fit", place=f"{LEDGER_NAME}/{LEDGER_KEY}")
        closed //= 2
        ledger = bounded(ledger, closed)


def _ledger_text(ledger: RailLedger, cluster: str) -> bytes:
    return orjson.dumps({"schema": SCHEMA, "cluster": cluster, "entries": [_entry(entry) for entry in ledger.entries]})


def _entry(entry: Reservation) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": entry.id,
        "plan": entry.plan,
        "job": entry.job,
        "job_uid": entry.job_uid,
        "incarnation": entry.incarnation,
        "node": entry.node,
        "npu": entry.npu,
        "die_from": entry.die_from,
        "die_to": entry.die_to,
        "rank": entry.rank,
        "at": rfc3339(entry.at),
        "rule": entry.rule,
        "reason": entry.reason,
        "state": str(entry.state),
        "faulted": entry.faulted,
        "links": entry.links,
        "faults": entry.faults,
        "events": entry.events,
    }
    if entry.closed_at is not None:
        body["closed_at"] = rfc3339(entry.closed_at)
    return body


def decode_ledger(text: str | bytes, cluster: str) -> RailLedger:
    """The ledger as it was written; who cannot read it must not borrow.

    Raises BadDocument: broken, of another cluster, or of a newer schema.
    """
    place = f"{LEDGER_NAME}/{LEDGER_KEY}"
    raw = _validated(_Ledger, text, place)
    if raw.cluster != cluster:
        raise BadDocument(f"it is of cluster {raw.cluster[:80]!r}, this is {cluster!r}", place=f"{place}/cluster")
    entries = []
    seats: set[tuple[str, int]] = set()
    for index, item in enumerate(raw.entries):
        at = f"{place}/entries/{index}"
        entry = _reservation(item, at)
        if entry.open and (entry.node, entry.npu) in seats:
            raise BadDocument(f"NPU {entry.npu} of {entry.node} is held twice", place=at)
        if entry.open:
            seats.add((entry.node, entry.npu))
        entries.append(entry)
    return RailLedger(tuple(entries))


_M = TypeVar("_M", bound=BaseModel)


def _validated(model: type[_M], text: str | bytes, place: str) -> _M:
    try:
        root = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadDocument(f"not JSON: {error}", place=place) from None
    schema = root.get("schema") if isinstance(root, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:
        raise BadDocument(f"schema {schema} is newer than {SCHEMA}", place=f"{place}/schema", hint="upgrade this agent")
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise BadDocument(first["msg"], place=f"{place}/{where}") from None


def _reservation(item: _Entry, at: str) -> Reservation:
    try:
        state = HoldState(item.state)
    except ValueError:
        raise BadDocument(f"unknown state {item.state[:40]!r}", place=f"{at}/state") from None
    if any(len(link) != 2 for link in item.links):
        raise BadDocument("a link is a pair of ranks", place=f"{at}/links")
    if item.npu != npu_of(item.die_from) or item.die_to != pair_die(item.die_from):
        raise BadDocument(f"dies {item.die_from} and {item.die_to} are not the pair of NPU {item.npu}", place=at)
    return Reservation(
        id=item.id,
        plan=item.plan,
        job=JobId(item.job),
        job_uid=item.job_uid,
        incarnation=item.incarnation,
        node=NodeName(item.node),
        npu=item.npu,
        die_from=item.die_from,
        die_to=item.die_to,
        rank=item.rank,
        at=_millis(item.at, f"{at}/at"),
        rule=item.rule,
        reason=item.reason,
        state=state,
        faulted=item.faulted,
        links=tuple((link[0], link[1]) for link in item.links),
        faults=tuple(item.faults),
        events=tuple(item.events),
        closed_at=None if item.closed_at is None else _millis(item.closed_at, f"{at}/closed_at"),
    )


def _millis(text: str, place: str) -> Millis:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise BadDocument(f"{text[:40]!r} has no time zone", place=place)
        return Millis(round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise BadDocument(f"{text[:40]!r} is no RFC 3339 time", place=place) from None


# --- the plan of one job ------------------------------------------------------------------------------------------


class PlanRule(_Model):
    """The rule that decided."""

    number: int = Field(description="1 to 28; 0 is the ledger's own refusal")
    code: RailCode


class PlanMove(_Model):
    """One rank whose traffic goes to the other die of its NPU."""

    node: str
    npu: int = Field(description="physical NPU: device id / 2")
    device_from: int
    device_to: int
    rank: int
    faulted: bool = Field(description="its own link failed; else it moves because the other end does")


class PlanWarning(_Model):
    """Something to know that does not stand in the plan's way."""

    code: RailCode
    detail: str


class PlanCheck(_Model):
    """One rule that was looked at, in order."""

    rule: int
    code: RailCode
    outcome: Outcome
    detail: str


PlanState = Literal["planned", "advised", "refused", "observing", "noop", "delegated"]


class PlanDocument(_Model):
    """What the agent advises for the link faults of one job, or why it advises nothing."""

    model_config = ConfigDict(extra="ignore", frozen=True, title="Rail plan", serialize_by_alias=True)

    schema_: Literal[1] = Field(default=1, alias="schema")
    cluster: str
    job: str = Field(description="<namespace>/<PodGroup name>")
    incarnation: str
    plan: str = Field(description="twelve hex digits, the same for the same job, incarnation and occurrences")
    state: PlanState
    at: str = Field(description="when it was decided, RFC 3339 UTC")
    until: str | None = Field(default=None, description="observing: when it is asked again, RFC 3339 UTC")
    rule: PlanRule
    detail: str
    faults: list[str] = Field(description="references of the faults, node/plane/where/code@ms")
    moves: list[PlanMove]
    links: list[tuple[int, int]] = Field(description="pairs of ranks whose link changes its rail")
    warnings: list[PlanWarning]
    advice: str
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
            for move in answer.moves
        ]
        links = list(answer.links)
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
        warnings=warnings,
        advice=advice_for(answer),
        checked=[
            PlanCheck(rule=item.rule, code=item.code, outcome=item.outcome, detail=item.detail)
            for item in answer.checked
        ],
    )


def _state(answer: Answer, advised: bool) -> PlanState:
    if isinstance(answer, Borrow):
        return "advised" if advised else "planned"
    if isinstance(answer, Observe):
        return "observing"
    if isinstance(answer, Noop):
        return "noop"
    return "delegated" if isinstance(answer, Delegate) else "refused"


def encode_plan(document: PlanDocument) -> str:
    """Text of a plan for key `plan.json`; a time that does not apply is left out."""
    return document.model_dump_json(exclude_none=True)


def decode_plan(text: str | bytes) -> PlanDocument:
    """A plan as it was written. Raises BadDocument."""
    return _validated(PlanDocument, text, PLAN_KEY)


def rail_plan_schema() -> str:
    """JSON Schema of the plan document, as shipped in schemas/rail-plan.schema.json."""
    schema: Mapping[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PlanDocument.model_json_schema(),
    }
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE).decode()
