"""Our own ledgers as ConfigMap data: one JSON object under `ledger.json`, and back.

The one rule: a ledger that cannot be read whole is not used and not overwritten.
"""

from typing import Any, Final, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from agent.domain.ledger import ClusterLedger, JobLedger
from agent.errors import BadDocument

SCHEMA: Final = 1
"""Major of the ledgers' shape; a newer one is left alone."""
LEDGER_KEY: Final = "ledger.json"

_T = TypeVar("_T", JobLedger, ClusterLedger)

_JOB: Final = TypeAdapter(JobLedger)
_CLUSTER: Final = TypeAdapter(ClusterLedger)


def encode_job_ledger(ledger: JobLedger) -> str:
    """Text of a job's ledger; the same ledger gives the same text."""
    return _encode(_JOB, ledger)


def encode_cluster_ledger(ledger: ClusterLedger) -> str:
    """Text of the cluster's ledger."""
    return _encode(_CLUSTER, ledger)


def decode_job_ledger(text: str, cluster: str, place: str) -> JobLedger:
    """A job's ledger. Raises BadDocument: unreadable, of another cluster, or of a newer schema."""
    return _decode(_JOB, text, cluster, place)


def decode_cluster_ledger(text: str, cluster: str, place: str) -> ClusterLedger:
    """The cluster's ledger. Raises BadDocument as above."""
    return _decode(_CLUSTER, text, cluster, place)


def _encode(adapter: TypeAdapter[_T], ledger: _T) -> str:
    body: dict[str, Any] = {"schema": SCHEMA, **adapter.dump_python(ledger, mode="json")}
    if body.get("life"):
        body["life"]["members"].sort()  # a set has no order, the text must have one
    return orjson.dumps(body).decode()


def _decode(adapter: TypeAdapter[_T], text: str, cluster: str, place: str) -> _T:
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadDocument(f"the ledger is no JSON: {error}", place=place, hint=_HINT) from error
    if not isinstance(raw, dict) or raw.pop("schema", None) != SCHEMA:
        raise BadDocument(f"a ledger of schema {SCHEMA} is expected", place=place, hint=_HINT)
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
    return ledger


_HINT: Final = "restore it, or delete it to begin anew; nothing is written for it meanwhile"
