"""Figures on a real broker and a real API server: `make bench-real`.

The one rule: where there is a least that the services themselves cost, it is measured in the same run, in turns.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import orjson
from bench import crowd, latency, noderole
from bench.site import Figure, Site
from services import harness

from agent.errors import AgentError


def parts(site: Site, quick: bool) -> dict[str, Callable[[], Sequence[Figure]]]:
    """What can be measured, in the order in which it is: the heavy ones last, for they leave objects behind."""
    return {
        "f": lambda: [noderole.idle(site)],
        "a": lambda: noderole.throughput(site, 2 if quick else 4, 8_000 if quick else 10_000),
        "b": lambda: latency.both(site, 20 if quick else 80, 10 if quick else 32),
        "c": lambda: latency.failing(site, 1 if quick else 2),
        "d": lambda: [crowd.storm(site)],
        "e": lambda: [crowd.rebuild(site, 1_000 if quick else 10_000, 300 if quick else 3_000)],
    }


def table(figures: Sequence[Figure]) -> str:
    """For people."""
    rows = [("figure", "ours", "limit", "ratio min / median / max", "goal", "", "load", "note")]
    for one in figures:
        ratios = one.ratios
        spread = f"{min(ratios):.2f} / {statistics.median(ratios):.2f} / {max(ratios):.2f}" if ratios else "–"
        rows.append(
            (
                one.name,
                one.ours,
                one.limit,
                spread,
                one.goal,
                "met" if one.met else "MISSED",
                f"{one.load:.1f}",
                one.note,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    return "\n".join("  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[7]]) for row in rows)


def main() -> int:
    """Print the table, or JSON with --json. 3: the services are not on this machine."""
    parser = argparse.ArgumentParser(description="The roles on real services, beside what these cost themselves.")
    parser.add_argument("--json", action="store_true", help="for machines")
    parser.add_argument("--only", default="", help="some of the parts a to f, such as: ab")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a smaller cluster: does it run at all")
    given = parser.parse_args()

    def say(text: str) -> None:
        print(f"bench: {text}", file=sys.stderr, flush=True)

    try:
        kafka, kube = harness.kafka(), harness.kube()
    except harness.ServiceMissingError as missing:
        print(f"bench-real needs real services: {missing}", file=sys.stderr)
        return 3
    folder, figures, failed = Path(tempfile.mkdtemp(prefix="fault-agent-bench-")), list[Figure](), False
    try:
        with ExitStack() as stack:
            say("a Kafka broker, etcd and a kube-apiserver start")
            stack.enter_context(kafka)
            stack.enter_context(kube)
            site = Site(kafka, kube, folder, say)
            for namespace in ("fault-agent", "train"):
                kube.kubectl("create", "namespace", namespace)
            for name, measure in parts(site, given.quick).items():
                if given.only and name not in given.only:
                    continue
                began = time.monotonic()
                try:
                    found = measure()
                    figures += found
                    for figure in found:
                        say(f"{figure.name}: {figure.ours} beside {figure.limit}, {figure.note}")
                except (harness.ServiceFailedError, TimeoutError, AgentError) as error:
                    say(f"({name}) could not be measured: {type(error).__name__}: {error}; logs in {folder}")
                    failed = True
                say(f"({name}) took {time.monotonic() - began:.0f} s")
                site.clean()
    finally:
        if not failed:
            shutil.rmtree(folder, ignore_errors=True)
    if given.json:
        print(orjson.dumps([figure.plain() for figure in figures], option=orjson.OPT_INDENT_2).decode())
    else:
        print(table(figures))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
