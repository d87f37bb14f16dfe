"""Audit lines: one decision as one line of JSON, and back.

The one rule: a line says all that a person asking "why" needs, without any other file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from agent.domain.events import Behind, Decision
from agent.domain.vocab import JobId, Millis, NodeName, Reason
from agent.errors import BadDocument
from agent.wire import gojson

SCHEMA = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A decision as it was journalled, with the mode and the policy in force."""

    decision: Decision
    mode: str
    policy: str
    """Short hash of the policy that rated."""
    meaning: str = ""


def rfc3339(at: int) -> str:
    """Unix ms as RFC 3339 in UTC, with milliseconds; far-off values as `<ms>ms`."""
    try:
        return (_EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{at}ms"


def encode_audit(line: AuditLine) -> bytes:
    """The line, without its newline."""
    decision = line.decision
    body = {
        "schema": SCHEMA,
        "time": rfc3339(decision.at),
        "at": decision.at,
        "reason": str(decision.reason),
        "node": decision.node,
        "fault": decision.fault,
        "level": decision.level,
        "meaning": line.meaning,
        "job": decision.job,
        "ranks": list(decision.ranks),
        "document": decision.document,
        "detail": decision.detail,
        "occurrence": decision.occurrence,
        "mode": line.mode,
        "policy": line.policy,
        "trace": decision.trace,
        "causes": [_said({"fault": one.fault, "job": one.job}) for one in decision.causes],
    }
    said = _said(body)
    try:
        return orjson.dumps(said)
    except TypeError:  # half a surrogate pair in a text; a decision is never lost for the sake of its words
        return orjson.dumps(_whole(said))


def _said(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if value not in ("", [])}


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return gojson.whole(value)
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return {key: _whole(one) for key, one in value.items()} if isinstance(value, dict) else value


def decode_audit(data: bytes, place: str) -> AuditLine:
    """A line read back. Raises BadDocument with its place."""
    try:
        raw = orjson.loads(data)
        decision = Decision(
            at=Millis(int(raw["at"])),
            reason=Reason(raw["reason"]),
            node=NodeName(str(raw.get("node", ""))),
            fault=str(raw.get("fault", "")),
            job=JobId(str(raw.get("job", ""))),
            level=str(raw.get("level", "")),
            detail=str(raw.get("detail", "")),
            document=str(raw.get("document", "")),
            occurrence=str(raw.get("occurrence", "")),
            ranks=tuple(int(rank) for rank in raw.get("ranks", [])),
            trace=str(raw.get("trace", "")),
            causes=tuple(
                Behind(str(one.get("fault", "")), JobId(str(one.get("job", "")))) for one in raw.get("causes", [])
            ),
        )
        return AuditLine(decision, str(raw.get("mode", "")), str(raw.get("policy", "")), str(raw.get("meaning", "")))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadDocument(f"no audit line: {error}", place=place) from error


def decode_all(lines: Iterable[bytes], name: str) -> tuple[list[AuditLine], list[str]]:
    """Every readable line in order, and a finding for each other one."""
    good: list[AuditLine] = []
    findings: list[str] = []
    for number, data in enumerate(lines, start=1):
        try:
            good.append(decode_audit(data, f"{name}:{number}"))
        except BadDocument as error:
            findings.append(str(error))
    return good, findings


def fact_of(line: bytes) -> bytes | None:
    """What an audit line decides about an occurrence; None: it is about none.

    When is no part of it, nor are the words, ranks and level beside it: pods and ratings may have moved in between. But
    one fault may have pods of a job replaced again and again, and there the words say which time it was.
    """
    try:
        said = orjson.loads(line)
        if not said.get("occurrence"):
            return None
        which = said.get("detail") if said.get("reason") == Reason.RESCHEDULE_RECORDED else None
        return orjson.dumps([which, *(said.get(key) for key in ("occurrence", "reason", "fault", "job"))])
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return None
