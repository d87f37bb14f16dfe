"""Benchmarks: what the way of a record costs beside the least it could cost, and that it stays so.

Run by `make bench`. The one rule: every figure is a ratio of two loops that take turns in this run, with its spread,
so that a slow or a busy machine changes both.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson
from bench.ranks import cluster_of, rank_table
from bench.stream import NODE, STEP_MS, Stream

from agent.adapters.otel import make_tracer
from agent.adapters.shipped import read_policy_path
from agent.app.node_app import NodeSide, Taken, encode_reports
from agent.domain.effects import describe
from agent.domain.events import Record
from agent.domain.jobs import Node, Pod
from agent.domain.policy import DurationRule, FrequencyRule, Policy
from agent.domain.ranktable import RankTable
from agent.domain.vocab import MINUTE, Millis, Plane
from agent.wire.inbound import Limits, decode
from agent.wire.kubeobjects import parse_object
from agent.wire.policyfile import load_policy
from agent.wire.ranktables.circumstances import Circumstances, circumstances_in_cluster
from agent.wire.ranktables.inspect import Opened, inspect_table, open_table
from agent.wire.ranktables.judge import Mode as RankTableMode

REPORT_EVERY_MS = 200
"""A busy node reports at most this often, in event time."""
WARM_UP = 20_000
"""Records before anything is measured: id windows full, timers open, occurrences at their most."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the answer: microseconds of both loops per step, and the ratio in each round."""

    name: str
    unit: str
    limit_us: float
    ours_us: float
    ratios: tuple[float, ...]
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """For --json."""
        return {
            "name": self.name,
            "per": self.unit,
            "limit_us": round(self.limit_us, 2),
            "ours_us": round(self.ours_us, 2),
            "ratio": {
                "min": round(min(self.ratios), 4),
                "median": round(statistics.median(self.ratios), 4),
                "max": round(max(self.ratios), 4),
                "rounds": len(self.ratios),
            },
            "note": self.note,
        }


def new_side(policy: Policy) -> NodeSide:
    """A node role as it starts, tracing off."""
    return NodeSide(policy, "bench", "bench", Limits(), Millis(15 * MINUTE), make_tracer({}))


def feed(side: NodeSide, records: Sequence[Record], *, every_ms: int | None) -> int:
    """Take the records; report each `every_ms` of event time (0: after each record, None: never). Bytes reported."""
    size = 0
    said = records[0].timestamp
    for record in records:
        taken = Taken()
        side.take(record, record.timestamp, taken)
        if every_ms is not None and (record.timestamp - said >= every_ms or not every_ms):
            said = record.timestamp
            size = sum(map(len, encode_reports(side.reports()).values()))
    return size


def timed(work: Callable[[int], object], number: int) -> float:
    """CPU seconds of one call, with the garbage of before out of the way; what others do meanwhile does not count."""
    gc.collect()
    begin = time.process_time()
    work(number)
    return time.process_time() - begin


def alternate(
    rounds: int, steps: int, limit: Callable[[int], object], ours: Callable[[int], object]
) -> tuple[float, float, tuple[float, ...]]:
    """Both loops in turns; microseconds per step (medians) and limit ÷ ours of each round."""
    pairs = [(timed(limit, number), timed(ours, number)) for number in range(rounds)]
    scale = 1e6 / steps
    return (
        statistics.median(one for one, _ in pairs) * scale,
        statistics.median(two for _, two in pairs) * scale,
        tuple(one / two for one, two in pairs),
    )


def bare(records: Sequence[Record]) -> None:
    """The least that reading these records costs."""
    loads = orjson.loads
    for record in records:
        with suppress(orjson.JSONDecodeError):
            loads(record.value or b"")


def only_decode(policy: Policy, records: Sequence[Record]) -> None:
    """The border alone."""
    for record in records:
        decode(record, policy, record.timestamp)


def throughput(policy: Policy, rounds: int, count: int, say: Callable[[str], None]) -> list[Figure]:
    """(a) decode → decide → report beside `orjson.loads` over the same bytes."""
    figures = []
    for name, border, every_ms in (
        ("decode", True, None),
        ("decode, decide", False, None),
        (f"decode, decide, report each {REPORT_EVERY_MS} ms", False, REPORT_EVERY_MS),
        ("decode, decide, report each record", False, 0),
    ):
        say(f"(a) {name}")
        figures.append(_beside_loads(name, policy, rounds, count, border=border, every_ms=every_ms))
    return figures


def _beside_loads(name: str, policy: Policy, rounds: int, count: int, *, border: bool, every_ms: int | None) -> Figure:
    stream, side = Stream(policy), new_side(policy)
    feed(side, stream.take(WARM_UP), every_ms=None)
    steps, size = count, 0
    if every_ms is not None:  # so many records that a turn stays near a second
        probe = stream.take(40)
        begin = time.process_time()
        size = feed(side, probe, every_ms=every_ms)
        steps = max(40 if every_ms else 10, min(count, int(40 / (time.process_time() - begin))))
    batches = [stream.take(steps) for _ in range(rounds)]

    def ours(number: int) -> None:
        if border:
            only_decode(policy, batches[number])
        else:
            feed(side, batches[number], every_ms=every_ms)

    limit_us, ours_us, ratios = alternate(rounds, steps, lambda number: bare(batches[number]), ours)
    note = f"{1e6 / ours_us:,.0f} records/s" + (f", report of {size / 1024:.0f} KiB" if size else "")
    return Figure(name, "record", limit_us, ours_us, ratios, note)


def history(policy: Policy, events: int, say: Callable[[str], None]) -> Figure:
    """(b) cost per record after `events` records against the first 10,000 after the id window is full."""
    old_stream, old = Stream(policy), new_side(policy)
    done = 0
    while done < events:
        feed(old, old_stream.take(50_000), every_ms=None)
        done += 50_000
        say(f"(b) {done:,} of {events:,} records of history")
    young_stream, young = Stream(policy), new_side(policy)
    feed(young, young_stream.take(2_000), every_ms=None)
    slices, size = 20, 500
    first, last = ([stream.take(size) for _ in range(slices)] for stream in (young_stream, old_stream))
    young_us, old_us, ratios = alternate(
        slices,
        size,
        lambda number: feed(young, first[number], every_ms=None),
        lambda number: feed(old, last[number], every_ms=None),
    )
    return Figure(
        f"record {events:,} on, against the first 10,000",
        "record",
        young_us,
        old_us,
        tuple(1 / ratio for ratio in ratios),
        "ratio is late ÷ early; the goal is a median of at most 1.1",
    )


def look_up(policy: Policy, rounds: int) -> Figure:
    """(c) rating and explaining a code with ten times the codes in the table."""
    big_chip = dict(policy.chip)
    for number, rule in policy.chip.items():
        for step in range(1, 10):
            other = (number + step * 0x01000003) % 0x1_0000_0000
            big_chip.setdefault(other, replace(rule, code=f"{other:X}"))
    big = replace(policy, chip=big_chip)
    codes = sorted(rule.code for rule in policy.chip.values())[::4]

    def ask(table: Policy) -> None:
        for code in codes:
            rating = table.rate(Plane.CHIP, code, None)
            table.rule(Plane.CHIP, code)
            table.duration(code)
            describe(Plane.CHIP, rating.level)

    small_us, big_us, ratios = alternate(rounds * 3, len(codes), lambda _: ask(policy), lambda _: ask(big))
    return Figure(
        f"explain: {len(big_chip):,} codes against {len(policy.chip):,}",
        "code",
        small_us,
        big_us,
        tuple(1 / ratio for ratio in ratios),
        "ratio is big ÷ small",
    )


def with_rules(policy: Policy, times: int) -> Policy:
    """The policy with `times` as many chip codes, each of the new ones with a frequency and a duration rule."""
    chip, durations, frequencies = dict(policy.chip), dict(policy.durations), dict(policy.frequencies)
    for number, row in policy.chip.items():
        for step in range(1, times):
            other = (number + step * 0x01000003) % 0x1_0000_0000
            if other not in chip:
                code = f"{other:X}"
                chip[other] = replace(row, code=code)
                durations[other] = DurationRule(code, Millis(20_000), Millis(60_000), "SubHealthFault")
                frequencies[other] = FrequencyRule(code, Millis(86_400_000), 2, "ManuallySeparateNPU")
    return replace(policy, chip=chip, durations=durations, frequencies=frequencies)


def ruled(policy: Policy, rounds: int, count: int) -> Figure:
    """(d) an event's cost with ten times the codes and a rule of each kind on every further one."""
    big = with_rules(policy, 10)
    streams = Stream(policy), Stream(policy)
    sides = new_side(policy), new_side(big)
    for stream, side in zip(streams, sides, strict=True):
        feed(side, stream.take(WARM_UP), every_ms=None)
    batches = [[stream.take(count) for _ in range(rounds)] for stream in streams]
    few_us, many_us, ratios = alternate(
        rounds,
        count,
        lambda number: feed(sides[0], batches[0][number], every_ms=None),
        lambda number: feed(sides[1], batches[1][number], every_ms=None),
    )
    rules = len(big.durations) + len(big.frequencies)
    return Figure(
        f"{rules:,} rules over time against {len(policy.durations) + len(policy.frequencies)}",
        "record",
        few_us,
        many_us,
        tuple(1 / ratio for ratio in ratios),
        "ratio is many ÷ few",
    )


def rank_tables(ranks: int, rounds: int, say: Callable[[str], None]) -> list[Figure]:
    """(e) every rule on a rank table beside `orjson.loads` of it: right, with its cluster, and wrong everywhere."""
    items = [parse_object(item) for item in cluster_of(ranks)]
    pods = [one for one in items if isinstance(one, Pod)]
    nodes = [one for one in items if isinstance(one, Node)]

    def alone(_: RankTable | None) -> Circumstances:
        return Circumstances()

    def in_cluster(table: RankTable | None) -> Circumstances:
        assert table is not None
        return circumstances_in_cluster(table, pods, nodes)

    figures = []
    for name, raw, around in (
        ("right", rank_table(ranks), alone),
        ("right, with its pods and nodes", rank_table(ranks), in_cluster),
        ("wrong in nearly every field", rank_table(ranks, wrong=True), alone),
    ):
        say(f"(e) {name}")
        figures.append(_beside_reading(f"rank table, {name}", raw, ranks, rounds, around))
    return figures


def _beside_reading(
    name: str, raw: bytes, ranks: int, rounds: int, around: Callable[[RankTable | None], Circumstances]
) -> Figure:
    inspection = inspect_table(*_opened(raw, around), RankTableMode.DOC)
    limit_us, ours_us, ratios = alternate(
        rounds,
        ranks,
        lambda _: orjson.loads(raw),
        lambda _: inspect_table(*_opened(raw, around), RankTableMode.DOC),
    )
    seconds = ours_us * ranks / 1e6
    note = f"{ranks:,} ranks in {seconds:.1f} s of CPU, {inspection.errors:,} errors, {len(raw) / 2**20:.0f} MiB"
    return Figure(name, "rank", limit_us, ours_us, ratios, note)


def _opened(raw: bytes, around: Callable[[RankTable | None], Circumstances]) -> tuple[Opened, Circumstances]:
    opened = open_table(raw)
    return opened, around(opened.table)


def main() -> None:
    """Print the table, or JSON with --json."""
    parser = argparse.ArgumentParser(description="Ratios of the agent's work beside the least it could be.")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each pair of loops")
    parser.add_argument("--records", type=int, default=4_000, help="records in one turn of (a)")
    parser.add_argument("--ranks", type=int, default=65_536, help="ranks of the table in (e)")
    parser.add_argument("--events", type=int, default=1_000_000, help="records of history in (b)")
    given = parser.parse_args()

    def say(text: str) -> None:
        print(f"bench: {text}", file=sys.stderr, flush=True)

    policy = load_policy(read_policy_path(None))
    figures = throughput(policy, given.rounds, given.records, say)
    say("(c) look-up")
    figures.append(look_up(policy, given.rounds))
    say("(d) rules")
    figures.append(ruled(policy, given.rounds, given.records))
    figures += rank_tables(given.ranks, max(2, given.rounds // 3), say)
    figures.append(history(policy, given.events, say))
    if given.json:
        print(orjson.dumps([figure.plain() for figure in figures], option=orjson.OPT_INDENT_2).decode())
        return
    print(
        f"One node ({NODE}), one record each {STEP_MS} ms of event time; limit of (a): orjson.loads of the same bytes"
    )
    print(f"{'what':<46} {'limit µs':>9} {'ours µs':>9}   {'ratio min / median / max':<26} note")
    for figure in figures:
        spread = f"{min(figure.ratios):.4f} / {statistics.median(figure.ratios):.4f} / {max(figure.ratios):.4f}"
        print(f"{figure.name:<46} {figure.limit_us:>9.2f} {figure.ours_us:>9.2f}   {spread:<26} {figure.note}")


if __name__ == "__main__":
    main()
