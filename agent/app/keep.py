"""What a solo run keeps between two runs: reports, and the objects that the stream laid over the cluster.

The one rule: what cannot be read whole is not used and not overwritten; the run does not begin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from agent.domain.events import NodeReport, Position
from agent.domain.vocab import Millis, NodeName
from agent.errors import BadReport, CannotRun
from agent.wire.report import decode

CABINET: Final = ".state/cabinet/"
REPORTS: Final = ".state/reports/"
"""Where the state lies in the --out folder, as people are told."""
SAID: Final = "said"
"""In the cabinet: how many lines the journal of reasons had when a run ended in order."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The objects that the stream has laid or taken away, up to which item, and the clock then (ms)."""

    laid: Sequence[Sequence[Any]]
    """Kind, namespace, name, and the object, or None for one that is gone."""
    to: Position | None
    clock: Millis


def kept_bytes(kept: Kept) -> bytes:
    """As it is stored; `kept_of` reads it."""
    to = kept.to
    place = None if to is None else [to.generation, to.partition, to.offset]
    return orjson.dumps({"to": place, "clock": kept.clock, "laid": kept.laid})


def kept_of(data: bytes, place: str) -> Kept:
    """Read back; `place` is its path in the --out folder. Raises CannotRun for anything `kept_bytes` did not make."""
    try:
        item = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise cannot_go_on(place, f"no JSON: {error}") from error
    if not isinstance(item, dict):
        raise cannot_go_on(place, "no JSON object")
    to, clock, laid = item.get("to"), item.get("clock"), item.get("laid")
    if not isinstance(clock, int) or not _is_count(clock):
        raise cannot_go_on(place, "clock is no time")
    if to is not None and not (isinstance(to, list) and len(to) == 3 and all(map(_is_count, to))):
        raise cannot_go_on(place, "to is no place in the stream")
    if not isinstance(laid, list) or not all(map(_is_laid, laid)):
        raise cannot_go_on(place, "laid is no list of objects with their names")
    return Kept(laid, Position(*to) if to is not None else None, Millis(clock))


def report_of(node: NodeName, data: bytes) -> NodeReport:
    """The report that an earlier run left of a node. Raises CannotRun when it is none, or another node's."""
    place = f"{REPORTS}{node}.json"
    try:
        report = decode(data)
    except BadReport as error:
        raise cannot_go_on(place, f"{error.place}: {error.reason}") from error
    if report.node != node:
        raise cannot_go_on(place, f"it is the report of {report.node[:60]!r}")
    return report


def cannot_go_on(place: str, why: str) -> CannotRun:
    """The error for a file of the state that cannot be read; `place` is its path in the --out folder."""
    return CannotRun(
        f"{place} in the --out folder cannot be read: {why}",
        hint="restore it, or move the --out folder away to begin anew; its documents show what was done",
    )


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_laid(item: object) -> bool:
    return (
        isinstance(item, list)
        and len(item) == 4
        and all(isinstance(name, str) for name in item[:3])
        and (item[3] is None or isinstance(item[3], Mapping))
    )
