"""The ledger of borrowed NPUs as text: per plan what all its NPUs share, and a row for each NPU.

The one rule: the same values always give the same bytes; what cannot be read whole is not read at all.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any, Final, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import RailLedger, Reservation, bounded
from agent.domain.ranktable import npu_of, pair_die
from agent.domain.vocab import JobId, Millis, NodeName
from agent.errors import BadDocument
from agent.wire.audit import rfc3339

LEDGER_NAME: Final = "fault-agent-rails"
LEDGER_KEY: Final = "ledger.json"
SCHEMA: Final = 1
LEDGER_BYTES: Final = 900_000
"""Room for the ledger in a ConfigMap of 1,048,576 bytes; history gives way first."""
_KEPT: Final = (HoldState.RESERVED, HoldState.ADVISED, HoldState.SUPERSEDED, HoldState.RETURNED)
"""States of NPUs in the ledger; the others hold none and are kept elsewhere."""


class WireModel(BaseModel):
    """Base of what rail-borrow reads: unknown keys of a newer agent are passed over, types are not bent."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


_Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""A number as it was written; a larger one is somebody else's, and could not be written again."""


class _Npu(WireModel):
    node: str
    die: _Count
    rank: _Count
    state: str
    faulted: bool = False
    links: list[_Count] = Field(default_factory=list)
    faults: list[str] | None = None
    events: list[str] | None = None
    link_back: str | None = None
    closed_at: str | None = None
    early: bool = False


class _Plan(WireModel):
    plan: str
    job: str
    job_uid: str
    incarnation: str
    at: str
    rule: _Count
    reason: str
    faults: list[str]
    events: list[str]
    npus: list[_Npu]


class _Ledger(WireModel):
    schema_: int = Field(alias="schema", ge=1)
    cluster: str
    plans: list[_Plan]


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
    plans = [_plan(list(entries)) for _, entries in groupby(ledger.entries, _same_plan)]
    return orjson.dumps({"schema": SCHEMA, "cluster": cluster, "plans": plans})


def _same_plan(entry: Reservation) -> tuple[object, ...]:
    return entry.plan, entry.job, entry.job_uid, entry.incarnation, entry.at, entry.rule, entry.reason


def _plan(entries: Sequence[Reservation]) -> dict[str, Any]:
    first = entries[0]
    return {
        "plan": first.plan,
        "job": first.job,
        "job_uid": first.job_uid,
        "incarnation": first.incarnation,
        "at": rfc3339(first.at),
        "rule": first.rule,
        "reason": first.reason,
        "faults": first.faults,
        "events": first.events,
        "npus": [_npu(entry, first) for entry in entries],
    }


def _npu(entry: Reservation, first: Reservation) -> dict[str, Any]:
    """A row; what is as in most rows, or as in the plan's head, is left out."""
    body: dict[str, Any] = {
        "node": entry.node,
        "die": entry.die_from,
        "rank": entry.rank,
        "state": str(entry.state),
    }
    if entry.faulted:
        body["faulted"] = True
    if entry.links:
        body["links"] = [two if one == entry.rank else one for one, two in entry.links]
    if entry.faults != first.faults:
        body["faults"] = entry.faults
    if entry.events != first.events:
        body["events"] = entry.events
    if entry.link_back is not None:
        body["link_back"] = rfc3339(entry.link_back)
    if entry.early:
        body["early"] = True
    if entry.closed_at is not None:
        body["closed_at"] = rfc3339(entry.closed_at)
    return body


def decode_ledger(text: str | bytes, cluster: str) -> RailLedger:
    """The ledger as it was written; who cannot read it must not borrow.

    Raises BadDocument: broken, of another cluster, or of a newer schema.
    """
    place = f"{LEDGER_NAME}/{LEDGER_KEY}"
    raw = validated(_Ledger, text, place)
    if raw.cluster != cluster:
        raise BadDocument(f"it is of cluster {raw.cluster[:80]!r}, this is {cluster!r}", place=f"{place}/cluster")
    entries = []
    seats: set[tuple[str, int]] = set()
    for number, plan in enumerate(raw.plans):
        for index, item in enumerate(plan.npus):
            at = f"{place}/plans/{number}/npus/{index}"
            entry = _reservation(plan, item, f"{place}/plans/{number}", at)
            if entry.open and (entry.node, entry.npu) in seats:
                raise BadDocument(f"NPU {entry.npu} of {entry.node} is held twice", place=at)
            if entry.open:
                seats.add((entry.node, entry.npu))
            entries.append(entry)
    return RailLedger(tuple(entries))


_M = TypeVar("_M", bound=BaseModel)


def validated(model: type[_M], text: str | bytes, place: str) -> _M:
    """The text as that model. Raises BadDocument with `place`: broken, or of a newer schema."""
    try:
        root = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadDocument(f"not JSON: {error}", place=place) from None
    schema = root.get("schema") if isinstance(root, dict) else None
    if isinstance(schema, int | float) and schema > SCHEMA:  # beyond 64 bits it is read as a float
        raise BadDocument(
            f"schema {schema:g} is newer than {SCHEMA}", place=f"{place}/schema", hint="upgrade this agent"
        )
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(part) for part in first["loc"])
        raise BadDocument(first["msg"], place=f"{place}/{where}") from None


def _reservation(plan: _Plan, item: _Npu, head: str, at: str) -> Reservation:
    state = next((one for one in _KEPT if one == item.state), None)
    if state is None:
        raise BadDocument(f"unknown state {item.state[:40]!r}", place=f"{at}/state")
    npu = npu_of(item.die)
    return Reservation(
        id=f"{plan.plan}/{item.node}/{npu}",
        plan=plan.plan,
        job=JobId(plan.job),
        job_uid=plan.job_uid,
        incarnation=plan.incarnation,
        node=NodeName(item.node),
        npu=npu,
        die_from=item.die,
        die_to=pair_die(item.die),
        rank=item.rank,
        at=_millis(plan.at, f"{head}/at"),
        rule=plan.rule,
        reason=plan.reason,
        state=state,
        faulted=item.faulted,
        links=tuple((min(item.rank, other), max(item.rank, other)) for other in item.links),
        faults=tuple(plan.faults if item.faults is None else item.faults),
        events=tuple(plan.events if item.events is None else item.events),
        link_back=None if item.link_back is None else _millis(item.link_back, f"{at}/link_back"),
        closed_at=None if item.closed_at is None else _millis(item.closed_at, f"{at}/closed_at"),
        early=item.early,
    )


def _millis(text: str, place: str) -> Millis:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise BadDocument(f"{text[:40]!r} has no time zone", place=place)
        return Millis(round(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        raise BadDocument(f"{text[:40]!r} is no RFC 3339 time", place=place) from None
