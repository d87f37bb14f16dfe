"""A NodeReport as bytes: what the node role publishes, restarts from, and the coordinator reads.

The one rule: bytes that were written are never more than MAX_BYTES, and what was left out for that is named in `cut`;
bytes that cannot be read give BadReport with their place, never half a report. Fields: docs/node-report.md.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, Final

import orjson
from pydantic import TypeAdapter, ValidationError

from agent.domain.events import ActiveFault, FaultKey, FrequencyCounter, NodeReport
from agent.domain.vocab import LEVELS, Plane
from agent.errors import BadReport

SCHEMA: Final = 1
"""Major of the schema. A reader ignores fields it does not know; a changed meaning is a new major."""
MAX_BYTES: Final = 256 * 1024
LEAST_BYTES: Final = 150
"""Of an occurrence."""
MARK_BYTES: Final = 8
_ADAPTER: Final = TypeAdapter(NodeReport)
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS
LARGEST: Final = 2**53
"""No time in ms and no count comes near it, and sums of two still fit in 64 bits."""
_PHASES: Final = frozenset({"down", "raised", "up"})
_COUNTS: Final = frozenset({"counting", "held", "clean", "released"})


def encode(report: NodeReport) -> bytes:
    """The report as one JSON object of at most MAX_BYTES; what does not fit is cut as `fit` says.

    The same report gives the same bytes: fields in fixed order, partitions and devices ascending, identities in the
    report's own order (the longest quiet first).
    """
    if len(report.occurrences) * LEAST_BYTES <= MAX_BYTES:  # else the whole is not worth the time it takes
        data = _dump(report)
        if len(data) <= MAX_BYTES:
            return data
    return _dump(fit(report))


def decode(data: bytes) -> NodeReport:
    """Read a report. Raises BadReport: no JSON, a field missing or wrong, a level its plane has not, a newer schema."""
    try:
        raw = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadReport(f"no JSON: {error}", place="report") from None
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise BadReport("a report has a whole number here", place="schema")
    if schema > SCHEMA:
        raise BadReport(
            f"written by a newer agent: schema {schema}, this one reads up to {SCHEMA}",
            place="schema",
            hint="update this agent; the report is left as it is",
        )
    if schema < 1:
        raise BadReport(f"no schema {schema} exists", place="schema")
    try:
        report = _ADAPTER.validate_json(data)
        ids = b64decode(report.ids, validate=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise BadReport(first["msg"], place=_path(first["loc"])) from None
    except binascii.Error as error:
        raise BadReport(f"no base64: {error}", place="ids") from None
    if len(ids) % MARK_BYTES:
        raise BadReport(f"{len(ids)} bytes are not whole hashes of {MARK_BYTES}", place="ids")
    _check(report)
    return replace(report, ids=ids)


def fit(report: NodeReport, limit: int = MAX_BYTES) -> NodeReport:
    """The report cut to at most `limit` bytes, in this order, no more of each than needed, each named in `cut`:

    1. `occurrences`: the oldest beyond the newest of each identity
    2. `totals` of identities neither active nor among the occurrences, the longest quiet first
    3. `unknown`, the longest unseen first
    4. `ids`: the older half of the message ids, again and again
    5. `recovered`, oldest first
    6. `occurrences` that are left, oldest first
    7. `counters`: the ones that have not tripped first, then the released ones, each the longest quiet first
    8. `timers`, in their order
    9. `totals` that are left, the longest quiet first
    10. `active`: other planes before chip and network, in each the mildest first, of equal ones the youngest
    """
    bare, size = _newest_occurrences(report, limit)
    for name, stage in _STAGES:
        over = size - limit
        if over <= 0:
            break
        gains, without = stage(bare)
        count = _count(name, gains, over, bare.cut)
        if count:
            size -= sum(gains[:count]) - _told(name, count, bare.cut)
            bare = replace(without(count), cut=(*bare.cut, f"{name}:{count}"))
    return bare


_Stage = tuple[Sequence[int], Callable[[int], NodeReport]]
"""Bytes that each thing frees, in the order in which they are cut, and the report with the first n of them gone."""


def _dump(report: NodeReport) -> bytes:
    fields: dict[str, Any] = {"schema": SCHEMA}
    for name in NodeReport.__slots__:
        fields[name] = getattr(report, name)
    fields["scanned"] = dict(sorted(report.scanned.items()))
    fields["links"] = dict(sorted(report.links.items()))
    fields["totals"] = dict(report.totals)
    fields["recovered"] = dict(report.recovered)
    fields["ids"] = b64encode(report.ids).decode()
    return orjson.dumps(fields, option=_OPTIONS)


def _told(name: str, count: int, cut: Sequence[str]) -> int:
    """Bytes that telling of a cut takes."""
    return len(f'"{name}:{count}"') + bool(cut) if count else 0


def _count(name: str, gains: Sequence[int], over: int, cut: Sequence[str]) -> int:
    """The fewest to cut that free `over` bytes and those that tell of the cut."""
    freed = 0
    for count, more in enumerate((*gains, 0)):
        if freed >= over + _told(name, count, cut):
            return count
        freed += more
    return len(gains)


def _newest_occurrences(report: NodeReport, limit: int) -> tuple[NodeReport, int]:
    """The report with as many of its spare occurrences as fit, and its bytes. Spare are all but the newest of each
    identity; a book can hold many times as many as a report, so only those that fit are measured.
    """
    newest = {_identity(one): one.id for one in report.occurrences}
    kept = set(newest.values())
    spare = sorted((one for one in report.occurrences if one.id not in kept), key=_BEGIN, reverse=True)
    bare = replace(report, occurrences=tuple(one for one in report.occurrences if one.id in kept))
    size, name = len(_dump(bare)), "occurrences"
    for more, one in enumerate(spare):
        longer = size + len(orjson.dumps(one)) + 1
        if longer + _told(name, len(spare) - more - 1, report.cut) > limit:
            break
        size = longer
        kept.add(one.id)
    cut = len(report.occurrences) - len(kept)
    if not cut:
        return report, size
    told = (*report.cut, f"{name}:{cut}")
    few = tuple(one for one in report.occurrences if one.id in kept)
    return replace(report, occurrences=few, cut=told), size + _told(name, cut, report.cut)


_identity: Final = attrgetter("key.code", "key.where", "key.plane")
_BEGIN: Final = attrgetter("begin")


def _in_list(items: Sequence[object], whole: int) -> list[int]:
    """Bytes each of some items of a list frees: its own and its comma, which the list's last one has not."""
    gains = [len(orjson.dumps(one)) + 1 for one in items]
    if gains and len(gains) == whole:
        gains[-1] -= 1
    return gains


def _in_object(items: Mapping[str, int], some: Sequence[str]) -> list[int]:
    """The same for members of an object."""
    gains = [len(orjson.dumps(name)) + len(str(items[name])) + 2 for name in some]
    if gains and len(gains) == len(items):
        gains[-1] -= 1
    return gains


def _all_occurrences(report: NodeReport) -> _Stage:
    oldest = sorted(report.occurrences, key=_BEGIN)

    def without(count: int) -> NodeReport:
        gone = frozenset(one.id for one in oldest[:count])
        return replace(report, occurrences=tuple(one for one in report.occurrences if one.id not in gone))

    return _in_list(oldest, len(report.occurrences)), without


def _quiet_totals(report: NodeReport) -> _Stage:
    kept = {str(fault.key) for fault in report.active} | {str(one.key) for one in report.occurrences}
    return _some_totals(report, [who for who in report.totals if who not in kept])


def _all_totals(report: NodeReport) -> _Stage:
    return _some_totals(report, list(report.totals))


def _some_totals(report: NodeReport, quiet: Sequence[str]) -> _Stage:
    def without(count: int) -> NodeReport:
        gone = frozenset(quiet[:count])
        return replace(report, totals={who: total for who, total in report.totals.items() if who not in gone})

    return _in_object(report.totals, quiet), without


def _unknown_codes(report: NodeReport) -> _Stage:
    gains = _in_list(report.unknown, len(report.unknown))
    return gains, lambda count: replace(report, unknown=report.unknown[count:])


def _old_ids(report: NodeReport) -> _Stage:
    marks = len(report.ids) // MARK_BYTES
    lengths = [len(b64encode(bytes((marks >> halvings) * MARK_BYTES))) for halvings in range(marks.bit_length() + 1)]

    def without(halvings: int) -> NodeReport:
        left = marks >> halvings
        return replace(report, ids=report.ids[len(report.ids) - left * MARK_BYTES :])

    return [more - less for more, less in pairwise(lengths)], without


def _old_recovers(report: NodeReport) -> _Stage:
    oldest = sorted(report.recovered, key=lambda who: report.recovered[who])

    def without(count: int) -> NodeReport:
        gone = frozenset(oldest[:count])
        return replace(report, recovered={who: at for who, at in report.recovered.items() if who not in gone})

    return _in_object(report.recovered, oldest), without


_LEAST: Final = {"counting": 0, "released": 1}


def _counters(report: NodeReport) -> _Stage:
    def weight(counter: FrequencyCounter) -> tuple[int, int]:
        return _LEAST.get(counter.phase, 2), max(counter.last, *counter.times, 0)

    least = sorted(report.counters, key=weight)

    def without(count: int) -> NodeReport:
        gone = frozenset(counter.key for counter in least[:count])
        return replace(report, counters=tuple(one for one in report.counters if one.key not in gone))

    return _in_list(least, len(report.counters)), without


def _timers(report: NodeReport) -> _Stage:
    gains = _in_list(report.timers, len(report.timers))
    return gains, lambda count: replace(report, timers=report.timers[count:])


_OF_CHIPS: Final = frozenset({Plane.CHIP, Plane.NETWORK})
"""A recovery is judged by these; and what a sender can name at will must not push them out."""


def _mild_faults(report: NodeReport) -> _Stage:
    def weight(fault: ActiveFault) -> tuple[bool, float, int]:
        ranks = LEVELS[fault.key.plane]
        return fault.key.plane in _OF_CHIPS, ranks.get(fault.level, 0) / max(ranks.values()), -fault.since

    mildest = sorted(report.active, key=weight)

    def without(count: int) -> NodeReport:
        gone = frozenset(fault.key for fault in mildest[:count])
        return replace(report, active=tuple(fault for fault in report.active if fault.key not in gone))

    return _in_list(mildest, len(report.active)), without


_STAGES: Final[Sequence[tuple[str, Callable[[NodeReport], _Stage]]]] = (
    ("totals", _quiet_totals),
    ("unknown", _unknown_codes),
    ("ids", _old_ids),
    ("recovered", _old_recovers),
    ("occurrences", _all_occurrences),
    ("counters", _counters),
    ("timers", _timers),
    ("totals", _all_totals),
    ("active", _mild_faults),
)


def _check(report: NodeReport) -> None:
    """What types alone do not say, and readers would stumble over."""
    for place, number in _numbers(report):
        if not -LARGEST <= number <= LARGEST:
            raise BadReport("no time and no count is that large", place=place)
    for number, fault in enumerate(report.active):
        _check_fault(fault.key, fault.level, report, f"active[{number}]")
    for number, one in enumerate(report.occurrences):
        _check_fault(one.key, one.level, report, f"occurrences[{number}]")
    for number, timer in enumerate(report.timers):
        if timer.phase not in _PHASES:
            raise BadReport(f"no phase {timer.phase[:40]!r}", place=f"timers[{number}].phase")
        _check_fault(timer.key, None, report, f"timers[{number}]")
    for number, counter in enumerate(report.counters):
        _check_counter(counter, report, f"counters[{number}]")


def _check_counter(counter: FrequencyCounter, report: NodeReport, place: str) -> None:
    if counter.phase not in _COUNTS:
        raise BadReport(f"no phase {counter.phase[:40]!r}", place=f"{place}.phase")
    _check_fault(counter.key, counter.level or None, report, place)


def _numbers(report: NodeReport) -> Iterator[tuple[str, int]]:
    """Each number with its place; a ledger or an audit line could not hold one that goes beyond 64 bits."""
    yield from (("clock", report.clock), ("epoch", report.epoch), ("seq", report.seq))
    for partition, one in report.scanned.items():
        place = f"scanned.{partition}"
        yield from ((place, partition), (place, one.generation), (place, one.offset), (place, one.time))
    for number, fault in enumerate(report.active):
        numbers = (fault.since, fault.count, fault.severity or 0, fault.logic_id or 0, *fault.devices)
        yield from ((f"active[{number}]", value) for value in numbers)
    for number, begun in enumerate(report.occurrences):
        numbers = (begun.begin, begun.end or 0, begun.logic_id or 0, *begun.devices)
        yield from ((f"occurrences[{number}]", value) for value in numbers)
    for number, timer in enumerate(report.timers):
        yield from ((f"timers[{number}]", timer.since), (f"timers[{number}]", timer.due))
    for number, counter in enumerate(report.counters):
        numbers = (counter.due, counter.tripped, counter.last, counter.recovered, counter.logic_id or 0, *counter.times)
        yield from ((f"counters[{number}]", value) for value in (*numbers, counter.severity or 0))
    for number, code in enumerate(report.unknown):
        numbers = (code.severity or 0, code.count, code.first, code.last)
        yield from ((f"unknown[{number}]", value) for value in numbers)
    yield from (("totals", total) for total in report.totals.values())
    yield from (("recovered", at) for at in report.recovered.values())
    yield from ((f"links.{device}", link.at) for device, link in report.links.items())


def _check_fault(key: FaultKey, level: str | None, report: NodeReport, place: str) -> None:
    if level is not None and level not in LEVELS[key.plane]:
        raise BadReport(f"{level[:40]!r} is no level of the {key.plane} plane", place=f"{place}.level")
    if key.node != report.node:
        raise BadReport(f"a fault of {key.node[:60]!r}", place=f"{place}.key.node")


def _path(loc: Sequence[int | str]) -> str:
    path = ""
    for step in loc:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "report"
