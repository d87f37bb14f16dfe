"""Counting towards a manual separation: the same code on the same device, too often in too short a time.

The one rule: adding a fault again changes nothing, so that a crash between two ledgers neither loses nor doubles one.
Ranges and defaults are ClusterD's (`clusterd-config-cm`, config.go:24-107); its counters do not outlive a restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.domain.vocab import HOUR, Millis, NodeName

WINDOW_HOURS: Final = (1, 720)
THRESHOLD: Final = (1, 50)
FREE_HOURS: Final = (1, 240)
NEVER: Final = -1
"""fault_free_hours of a separation that time does not end."""
MOST_TIMES: Final = 30_000
"""Counted faults of the whole cluster that are kept, so that the ledger fits its ConfigMap; of more the devices that
failed longest ago are let go."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """The policy of manual separation."""

    enabled: bool = True
    window: Millis = Millis(24 * HOUR)
    threshold: int = 3
    free: Millis | None = Millis(48 * HOUR)
    """After the last separation it is released, recovered or not; None: never by itself."""


@dataclass(frozen=True, slots=True)
class Count:
    """Faults of one code on one device that count, oldest first, and up to when all have been used up by a trip."""

    times: tuple[Millis, ...] = ()
    floor: Millis = Millis(-1)


Counts = Mapping[NodeName, Mapping[str, Count]]
"""By node, then by `count_key`."""


def count_key(device: int, code: str) -> str:
    """Device and code as one key."""
    return f"{device}/{code}"


def add(count: Count, at: Millis, policy: Isolation) -> tuple[Count, bool]:
    """One fault more, and whether it trips: the threshold-th last to the last is shorter (strictly) than the window.

    A trip uses up what was counted. A fault from before the last trip, or one that stands already, changes nothing.
    """
    if at <= count.floor or at in count.times:
        return count, False
    kept = sorted((*count.times, at))
    kept = [one for one in kept if kept[-1] - one < policy.window][-policy.threshold :]
    if len(kept) >= policy.threshold:
        return Count((), kept[-1]), True
    times = tuple(kept)
    return (count, False) if times == count.times else (Count(times, count.floor), False)


def with_count(
    counts: Counts, node: NodeName, key: str, count: Count, policy: Isolation, size: int
) -> tuple[Counts, int]:
    """The counts with one of them new; what is out of the window goes, and the oldest beyond MOST_TIMES.

    `size`: an upper bound of all that is counted in `counts`; the one of the answer comes with it, so that the cost of
    a fault does not grow with the cluster.
    """
    newest = max((*count.times, count.floor))
    before = counts.get(node, {})
    here = {
        name: one
        for name, one in (*before.items(), (key, count))
        if max((*one.times, one.floor)) > newest - policy.window
    }
    after = {**counts, node: here}
    size += max(0, _size_of(here) - _size_of(before))
    if size <= MOST_TIMES:
        return after, size
    size = sum(map(_size_of, after.values()))
    oldest = sorted(
        after, key=lambda name: max((max((*one.times, one.floor)) for one in after[name].values()), default=0)
    )
    for name in oldest:
        if size <= MOST_TIMES * 9 // 10 or name == node:
            break
        size -= _size_of(after.pop(name))
    return after, size


def used_up(counts: Counts, node: NodeName, device: int) -> Counts:
    """The counts with those of a device used up, whatever the code: it begins anew."""
    prefix = count_key(device, "")
    here = {
        name: Count((), max((*one.times, one.floor))) if name.startswith(prefix) else one
        for name, one in counts.get(node, {}).items()
    }
    return {**counts, node: here} if here else counts


def _newest(here: Mapping[str, Count]) -> int:
    return max((max((*one.times, one.floor)) for one in here.values()), default=0)


def _size_of(here: Mapping[str, Count]) -> int:
    return sum(len(one.times) + 1 for one in here.values())
