"""Our own ledgers as ConfigMap data: one JSON object under `ledger.json`, and back.

The one rule: a ledger that cannot be read whole is not used and not overwritten.
"""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from agent.domain.ledger import ClusterLedger, Done, JobLedger
from agent.domain.vocab import Millis, Reason
from agent.errors import BadDocument

SCHEMA: Final = 1
"""Major of the ledgers' shape; a newer one is left alone."""
LEDGER_KEY: Final = "ledger.json"
PLAIN_MARKS: Final = 100_000
"""Bytes up to which a job's marks stay readable text; beyond, they are packed so that the ledger fits its ConfigMap."""
_BULKY: Final = ("counts", "separations", "freed", "dropped", "listed")
PLAIN_PART: Final = 40_000
"""Bytes up to which each of these parts of the cluster's ledger stays readable text."""
UNPACKED_LIMIT: Final = 64 * 1024 * 1024

_T = TypeVar("_T", JobLedger, ClusterLedger)

_JOB: Final = TypeAdapter(JobLedger)
_CLUSTER: Final = TypeAdapter(ClusterLedger)
_OF_OTHERS: Final[Any] = {
    "records": {
        "extra": True,
        "records": {"__all__": {"extra": True, "tasks": {"__all__": {"extra": True}}}},
    }
}
"""What other writers have beside our records is theirs to keep, in the document."""


def encode_job_ledger(ledger: JobLedger) -> str:
    """Text of a job's ledger; the same ledger gives the same text."""
    plain = _JOB.dump_python(replace(ledger, done={}), mode="json", exclude=_OF_OTHERS)
    body: dict[str, Any] = {"schema": SCHEMA, **plain}
    body["done"] = _pack(ledger.done)
    if body.get("life"):
        body["life"]["members"].sort()  # a set has no order, the text must have one
    return orjson.dumps(body).decode()


def _pack(done: Mapping[str, Done]) -> dict[str, list[str]] | str:
    """Marks by time and reason; a burst of them (a job of ten thousand ranks in one bad night) as one opaque blob."""
    groups: dict[str, list[str]] = {}
    for key, mark in done.items():
        groups.setdefault(f"{mark.at} {mark.reason}", []).append(key)
    text = orjson.dumps(groups)
    return groups if len(text) <= PLAIN_MARKS else _squeeze(text)


def _unpack(packed: Any, place: str) -> dict[str, Done]:
    try:
        groups = _unsqueeze(packed) if isinstance(packed, str) else packed
        done: dict[str, Done] = {}
        for group, keys in groups.items():
            at, _, reason = group.partition(" ")
            done.update(dict.fromkeys(map(str, keys), Done(Millis(int(at)), Reason(reason))))
    except (ValueError, AttributeError, TypeError, zlib.error) as error:
        raise BadDocument(f"done: {error}", place=place, hint=_HINT) from error
    return done


def encode_cluster_ledger(ledger: ClusterLedger) -> str:
    """Text of the cluster's ledger."""
    body: dict[str, Any] = {"schema": SCHEMA, **_CLUSTER.dump_python(ledger, mode="json")}
    for name in _BULKY:
        text = orjson.dumps(body[name])
        if len(text) > PLAIN_PART:
            body[name] = _squeeze(text)
    return orjson.dumps(body).decode()


def decode_job_ledger(text: str, cluster: str, place: str) -> JobLedger:
    """A job's ledger. Raises BadDocument: unreadable, of another cluster, or of a newer schema."""
    return _decode(_JOB, text, cluster, place)


def decode_cluster_ledger(text: str, cluster: str, place: str) -> ClusterLedger:
    """The cluster's ledger. Raises BadDocument as above."""
    return _decode(_CLUSTER, text, cluster, place)


def _squeeze(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text, 6)).decode()


def _unsqueeze(packed: str) -> Any:
    """Raises ValueError, zlib.error."""
    return orjson.loads(zlib.decompressobj().decompress(base64.b64decode(packed), UNPACKED_LIMIT))


def _decode(adapter: TypeAdapter[_T], text: str, cluster: str, place: str) -> _T:
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadDocument(f"the ledger is no JSON: {error}", place=place, hint=_HINT) from error
    if not isinstance(raw, dict) or raw.pop("schema", None) != SCHEMA:
        raise BadDocument(f"a ledger of schema {SCHEMA} is expected", place=place, hint=_HINT)
    done = _unpack(raw.pop("done", {}), place)
    for name in _BULKY:
        if isinstance(raw.get(name), str):
            try:
                raw[name] = _unsqueeze(raw[name])
            except (ValueError, zlib.error) as error:
                raise BadDocument(f"{name}: {error}", place=place, hint=_HINT) from error
    try:
        ledger = adapter.validate_python(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = "/".join(str(part) for part in first["loc"])
        raise BadDocument(f"{where}: {first['msg']}", place=place, hint=_HINT) from error
    if ledger.cluster != cluster:
        raise BadDocument(
            f"it belongs to cluster {ledger.cluster!r}, this agent to {cluster!r}",
            place=place,
            hint="give each cluster its own cluster.id and its own documents",
        )
    return replace(ledger, done=done) if isinstance(ledger, JobLedger) else ledger


_HINT: Final = "restore it, or delete it to begin anew; nothing is written for it meanwhile"
