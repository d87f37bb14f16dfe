"""The report codec: what comes back, what is cut in which order, and how each bad report is named."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.events import (
    ActiveFault,
    DurationTimer,
    FaultEvent,
    FaultKey,
    FrequencyCounter,
    Link,
    NodeReport,
    Occurrence,
    Scanned,
    UnknownCode,
)
from agent.domain.vocab import Assertion, Millis, NodeName, OccurrenceId, Plane, Source
from agent.errors import BadReport
from agent.wire.report import decode, encode, fit

NODE = NodeName("n1")


def key(where: str = "4", plane: Plane = Plane.CHIP) -> FaultKey:
    return FaultKey(NODE, plane, where, "80E18402")


def occurrence(where: str, number: int, begin: int = 1_000) -> Occurrence:
    return Occurrence(OccurrenceId(f"0:0:{number}:0"), key(where), Millis(begin), None, "SeparateNPU")


def active(where: str, level: str = "SeparateNPU", since: int = 1_000) -> ActiveFault:
    one = OccurrenceId("0:0:1:0")
    return ActiveFault(key(where), Millis(since), level, "chip-table", one, Source.DCMI, devices=(4,), severity=2)


def report(**other: Any) -> NodeReport:
    base: dict[str, Any] = {"cluster": "c", "node": NODE, "epoch": 3, "seq": 7, "instance": "i"}
    return NodeReport(**{**base, **other})


EVENT = FaultEvent(key("1"), Assertion.OCCUR, Millis(5), OccurrenceId("0:0:9:0"), Source.HCCN, "hccn", devices=(1,))
TRIPPED = FrequencyCounter(
    key("4"),
    "clean",
    (Millis(7),),
    Millis(172_800_009),
    "ManuallySeparateNPU",
    tripped=Millis(6),
    last=Millis(7),
    recovered=Millis(9),
    trip=OccurrenceId("0:0:6:20000000"),
    occurrence=OccurrenceId("0:0:7:0"),
    source=Source.HCCN,
    severity=2,
    logic_id=4,
    trace="t",
)
FULL = report(
    machine="m",
    clock=Millis(1_767_225_600_000),
    caught_up=True,
    policy="p",
    scanned={3: Scanned(1, 41, Millis(9), "ab"), 0: Scanned(0, 1)},
    active=(active("4"), active("5", "RestartRequest")),
    occurrences=(occurrence("4", 1), occurrence("4", 2)),
    totals={"n1/chip/4/80E18402": 2, "a": 1},
    timers=(DurationTimer(key("1"), "down", Millis(5), Millis(20_005), EVENT),),
    counters=(TRIPPED, FrequencyCounter(key("5"), "counting", (Millis(7), Millis(8)), Millis(86_400_008))),
    recovered={"n1/public/CCAE:x/220001001@9": Millis(8)},
    ids=bytes(range(16)),
    links={1: Link("down", Millis(5)), 0: Link("up", Millis(6))},
    unknown=(UnknownCode(Plane.CHIP, "8FFFFFFF", Source.DCMI, None, 2, Millis(5), Millis(9)),),
)


def test_a_report_comes_back_as_it_was() -> None:
    assert decode(encode(FULL)) == FULL
    assert list(decode(encode(FULL)).totals) == ["n1/chip/4/80E18402", "a"]


def test_the_bytes_are_fixed() -> None:
    assert encode(report(ids=b"\0" * 8, links={1: Link("up", Millis(2)), 0: Link("down", Millis(1))})) == (
        b'{"schema":1,"cluster":"c","node":"n1","epoch":3,"seq":7,"instance":"i","machine":"","clock":0,'
        b'"caught_up":false,"policy":"","scanned":{},"active":[],"occurrences":[],"totals":{},"timers":[],'
        b'"counters":[],"recovered":{},"ids":"AAAAAAAAAAA=","links":{"0":{"state":"down","at":1},"1":{"state":"up","at":2}},'
        b'"unknown":[],"cut":[]}'
    )


def test_unknown_fields_of_a_later_minor_are_ignored() -> None:
    raw = json.loads(encode(FULL))
    raw["later"] = {"x": 1}
    raw["active"][0]["later"] = 1
    assert decode(json.dumps(raw).encode()) == FULL


def test_a_report_from_before_frequency_rules_is_read() -> None:
    raw = json.loads(encode(FULL))
    del raw["counters"], raw["unknown"]
    assert decode(json.dumps(raw).encode()) == replace(FULL, counters=(), unknown=())


def broken(**other: Any) -> bytes:
    raw = {**json.loads(encode(FULL)), **other}
    return json.dumps({name: value for name, value in raw.items() if value is not ...}).encode()


def inside(field: str, **other: Any) -> bytes:
    raw = json.loads(encode(FULL))
    return broken(**{field: [{**raw[field][0], **other}]})


ALIEN = {"node": "n2", "plane": "chip", "where": "4", "code": "80E18402"}


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        (b"", "report", "no JSON"),
        (b"\xff\xfe", "report", "no JSON"),
        (b"[]", "schema", "whole number"),
        (broken(schema=...), "schema", "whole number"),
        (broken(schema=True), "schema", "whole number"),
        (broken(schema=0), "schema", "no schema 0"),
        (broken(schema=2), "schema", "newer agent: schema 2, this one reads up to 1"),
        (broken(node=...), "node", "required"),
        (broken(seq="x"), "seq", "integer"),
        (broken(scanned={"x": {"generation": 0, "offset": 1}}), "scanned.x.[key]", "integer"),
        (inside("active", source="radio"), "active[0].source", "dcmi"),
        (inside("active", key={**ALIEN, "node": "n1", "plane": "moon"}), "active[0].key.plane", "chip"),
        (inside("active", level="Separate"), "active[0].level", "'Separate' is no level of the chip plane"),
        (inside("active", key=ALIEN), "active[0].key.node", "a fault of 'n2'"),
        (inside("occurrences", level="?"), "occurrences[0].level", "no level"),
        (inside("occurrences", begin=None), "occurrences[0].begin", "integer"),
        (inside("timers", phase="sideways"), "timers[0].phase", "no phase 'sideways'"),
        (inside("timers", key=ALIEN), "timers[0].key.node", "a fault of 'n2'"),
        (inside("counters", phase="sideways"), "counters[0].phase", "no phase 'sideways'"),
        (inside("counters", level="Separate"), "counters[0].level", "no level of the chip plane"),
        (inside("counters", key=ALIEN), "counters[0].key.node", "a fault of 'n2'"),
        (inside("unknown", count=2**64), "unknown[0]", "that large"),
        (inside("counters", times=[2**64]), "counters[0]", "that large"),
        (broken(clock=10**22), "clock", "no time and no count is that large"),
        (broken(clock=-(2**53) - 1), "clock", "no time and no count is that large"),
        (broken(scanned={"0": {"generation": 0, "offset": 2**63}}), "scanned.0", "that large"),
        (broken(scanned={str(2**64): {"generation": 0, "offset": 1}}), f"scanned.{2**64}", "that large"),
        (broken(totals={"n1/chip/4/80E18402": 2**64}), "totals", "that large"),
        (broken(recovered={"n1/chip/4/80E18402": 2**64}), "recovered", "that large"),
        (broken(links={"0": {"state": "up", "at": 2**64}}), "links.0", "that large"),
        (inside("active", since=2**64), "active[0]", "that large"),
        (inside("active", devices=[2**64]), "active[0]", "that large"),
        (inside("occurrences", end=2**64), "occurrences[0]", "that large"),
        (inside("timers", due=2**64), "timers[0]", "that large"),
        (broken(ids="AAA"), "ids", "no base64"),
        (broken(ids="AAAA"), "ids", "3 bytes are not whole hashes of 8"),
    ],
)
def test_a_bad_report_is_named_with_its_place(data: bytes, place: str, words: str) -> None:
    with pytest.raises(BadReport) as caught:
        decode(data)
    assert caught.value.place == place
    assert words in caught.value.reason


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | st.integers(0, 400).map(lambda at: encode(FULL)[:at]))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with pytest.raises(BadReport):
        decode(data)


BIG = report(
    active=(active("0", "NotHandleFault"), active("1", since=2_000), active("2", "RestartRequest")),
    occurrences=tuple(occurrence(str(n // 4), n, 1_000 + n) for n in range(12)),
    totals={f"n1/chip/{n}/80E18402": 4 for n in range(20)},
    ids=bytes(64 * 8),
    unknown=tuple(UnknownCode(Plane.CHIP, f"8F{n:06}", Source.DCMI, 2, 1, Millis(1), Millis(n)) for n in range(3)),
    recovered={f"n1/public/CCAE:{n}/220001001@9": Millis(n) for n in range(5)},
    timers=(DurationTimer(key("1"), "raised", Millis(5), Millis(5), EVENT),),
    counters=(
        TRIPPED,
        replace(TRIPPED, key=key("7"), phase="released"),
        FrequencyCounter(key("5"), "counting", (Millis(8),)),
        FrequencyCounter(key("6"), "counting", (Millis(7),)),
    ),
)


_BEFORE_ACTIVE = [
    *("occurrences", "totals", "unknown", "ids", "recovered", "occurrences", "counters", "timers"),
    "totals",
]


@pytest.mark.parametrize(
    ("limit", "stages"),
    [
        (100_000, []),
        (5_500, ["occurrences"]),
        (4_400, ["occurrences", "totals"]),
        (4_000, ["occurrences", "totals", "unknown"]),
        (3_500, ["occurrences", "totals", "unknown", "ids"]),
        (3_100, ["occurrences", "totals", "unknown", "ids", "recovered"]),
        (2_800, ["occurrences", "totals", "unknown", "ids", "recovered", "occurrences"]),
        (2_000, ["occurrences", "totals", "unknown", "ids", "recovered", "occurrences", "counters"]),
        (1_400, ["occurrences", "totals", "unknown", "ids", "recovered", "occurrences", "counters", "timers"]),
        (1_150, [*_BEFORE_ACTIVE]),
        (800, [*_BEFORE_ACTIVE, "active"]),
    ],
)
def test_what_does_not_fit_is_cut_in_the_stated_order(limit: int, stages: list[str]) -> None:
    small = fit(BIG, limit)
    assert [entry.partition(":")[0] for entry in small.cut] == stages
    assert len(encode(small)) <= limit


def test_no_more_is_cut_than_needed_and_the_oldest_first() -> None:
    one_less = fit(BIG, len(encode(BIG)) - 1)
    assert one_less.cut == ("occurrences:1",)
    assert [one.id for one in BIG.occurrences if one not in one_less.occurrences] == ["0:0:0:0"]


def test_of_the_counters_what_has_not_tripped_goes_first_and_the_longest_quiet_before_the_others() -> None:
    left = [[one.key.where for one in fit(BIG, limit).counters] for limit in range(3_600, 1_400, -20)]
    assert list(dict.fromkeys(map(tuple, left))) == [("4", "7", "5", "6"), ("4", "7", "5"), ("4", "7"), ("4",), ()]


def test_the_worst_active_fault_goes_last() -> None:
    assert [fault.key.where for fault in fit(BIG, 700).active] == ["1"]


def named(number: int, level: str = "SeparateNPU", plane: Plane = Plane.PUBLIC) -> ActiveFault:
    """A fault whose place its sender names, with as long a name as the border takes."""
    where = FaultKey(NODE, plane, f"CCAE:{number:0>128}", "220001001")
    return ActiveFault(where, Millis(1_000 + number), level, "public-table", OccurrenceId("0:0:1:0"), Source.PUBLIC)


@pytest.mark.parametrize("count", [400, 800, 2_000])
def test_the_totals_of_what_is_active_never_push_a_report_over_its_limit(count: int) -> None:
    faults = tuple(named(number) for number in range(count))
    data = encode(report(active=faults, totals={str(fault.key): 1 for fault in faults}))
    back = decode(data)
    assert len(data) <= 262_144
    assert back.lost == count - len(back.active)
    assert not (back.lost and back.totals)


def test_a_chips_fault_stays_longer_than_any_whose_place_its_sender_names() -> None:
    mild = active("4", "NotHandleFault", since=9_000)
    several = (*(named(number) for number in range(1_000)), named(0, "SeparateFault", Plane.NODE), mild, active("5"))
    left = [tuple(fault.key.where for fault in fit(report(active=several), limit).active) for limit in (900, 600)]
    assert left == [("4", "5"), ("5",)]


def test_how_many_active_faults_a_report_does_not_tell() -> None:
    assert report(cut=("occurrences:9",)).lost == 0
    assert report(cut=("occurrences:9", "active:3", "active:4")).lost == 7
    assert report(cut=("active:" + "9" * 5_000,)).lost == 1


def test_what_is_published_is_never_over_256_kib() -> None:
    huge = report(active=tuple(active(str(n)) for n in range(2_000)))
    data = encode(huge)
    assert 250_000 < len(data) <= 262_144
    assert decode(data).cut == (f"active:{2_000 - len(decode(data).active)}",)


@settings(max_examples=60, deadline=None)
@given(st.integers(700, 6_500))
def test_at_every_limit_it_fits_and_one_less_cut_would_not(limit: int) -> None:
    small = fit(BIG, limit)
    size = len(encode(small))
    assert size <= limit
    assert fit(BIG, size).cut == small.cut
    assert not small.cut or fit(BIG, size - 1).cut != small.cut


def test_what_never_could_fit_is_counted_among_the_cut() -> None:
    many = report(occurrences=tuple(occurrence(str(n % 8), n, 1_000 + n) for n in range(4_000)))
    small = fit(many, 20_000)
    assert len(encode(small)) <= 20_000 < len(encode(small)) + 150
    assert small.cut == (f"occurrences:{4_000 - len(small.occurrences)}",)
    assert [one.id for one in small.occurrences] == [f"0:0:{n}:0" for n in range(4_000 - len(small.occurrences), 4_000)]
