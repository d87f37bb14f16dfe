"""Lays one recovery onto the live `reset.json`: which entries, and whether RetryTime goes up.

The one rule: RetryTime is raised by the write after which nothing of ours holds the job back, and by no other; a
repeated merge changes nothing. Everything that is not ours is carried over.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from agent.domain.reset.values import Phase, Policy, RankEntry, Recovery, ResetDevice, ResetInfo, Status
from agent.domain.vocab import SECOND, Millis

HOT_RESET: Final = "hotReset"
"""restartType of our writes. A leftover `podReschedule` would let readers wait for a rank table that never comes."""

_INT_MAX: Final = 2**63 - 1
_HOLDING: Final = frozenset({Status.UNRECOVERED, Status.FAILED})
_SHOWS: Final = {
    Phase.UNRECOVERED: Status.UNRECOVERED,
    Phase.SETTLING: Status.UNRECOVERED,
    Phase.RECOVERED: Status.RECOVERED,
    Phase.FAILED: Status.FAILED,
}


class Outcome(StrEnum):
    """What a merge found or made."""

    SHOWN = "shown"
    """`info` shows the recovery with `status` and must be written. Call `recorded` after the write."""
    UNCHANGED = "unchanged"
    """The live object already shows it; nothing to write. Call `recorded` all the same."""
    ABSENT = "absent"
    """None of our entries is there though they were shown, or none was shown and it failed: step FOREIGN_CLEAR."""
    OCCUPIED = "occupied"
    """Every rank is held by an entry of somebody else or of a newer recovery; nothing to write now."""
    LEFT = "left"
    """It leaves: write `info` if `changed`, then step LEFT."""


@dataclass(frozen=True, slots=True)
class Merge:
    """What to write. Without `changed` `info` is the live object itself."""

    info: ResetInfo
    changed: bool
    outcome: Outcome
    restart_type: str | None = None
    """Value for the ConfigMap's restartType; None: leave it as it is."""
    status: str = ""
    """Status our entries have in `info`."""
    raised: bool = False
    """RetryTime went up in this write: readers restart."""


def merge(live: ResetInfo, recovery: Recovery, now: Millis) -> Merge:
    """What the recovery in its phase wants of the live object. `now` becomes UpdateTime when something changes.

    Recovered is only ever written over our unrecovered entries; a recovery that got well before it was shown is
    shown unrecovered first, so call again after the write until UNCHANGED. With several recoveries in one job the
    last one to get well (or to leave) raises RetryTime. An entry of somebody else keeps its rank, for ClusterD's
    `fault` makes a pod exit and must not be hidden; of two recoveries of ours the newer keeps it.
    """
    if recovery.phase is Phase.ENDED:
        return Merge(live, changed=False, outcome=Outcome.LEFT)
    entries = live.rank_list or ()
    ours = [entry for entry in entries if entry.recovery_id == recovery.id]
    if recovery.phase is Phase.LEAVING:
        return _leave(live, recovery, ours, now)
    if not ours and (recovery.shown or recovery.phase is Phase.FAILED):
        return Merge(live, changed=False, outcome=Outcome.ABSENT)
    status = _SHOWS[recovery.phase] if ours else Status.UNRECOVERED
    taken = {entry.rank_id for entry in entries if entry.recovery_id is None or entry.recovery_id > recovery.id}
    wanted = [_entry(recovery, device, status) for device in recovery.devices if device.rank not in taken]
    if not wanted:
        return Merge(live, changed=False, outcome=Outcome.OCCUPIED)
    ranks = {entry.rank_id for entry in wanted}
    kept = [entry for entry in entries if not _gives_way(entry, recovery.id, ranks)]
    listed = _by_rank([*kept, *wanted])
    if listed == _by_rank(entries):
        return Merge(live, changed=False, outcome=Outcome.UNCHANGED, status=status)
    were_down = any(entry.status == Status.UNRECOVERED for entry in ours)
    raised = status is Status.RECOVERED and were_down and not _held_back(listed)
    retry = _next(max(live.retry_time, recovery.retry_base)) if raised else live.retry_time
    info = _written(live, listed, retry, now)
    return Merge(info, changed=True, outcome=Outcome.SHOWN, restart_type=HOT_RESET, status=status, raised=raised)


def recorded(recovery: Recovery, merged: Merge, high: int = 0) -> Recovery:
    """The recovery as the ledger keeps it after the write went through, or after it was found UNCHANGED. `high`: the
    highest RetryTime that there has been, which somebody may have set back.
    """
    if merged.outcome not in (Outcome.SHOWN, Outcome.UNCHANGED):
        return recovery
    match merged.status:
        case Status.RECOVERED:
            return replace(recovery, shown=merged.status, workers_stopped=False)
        case Status.UNRECOVERED:
            return replace(recovery, shown=merged.status, retry_base=max(merged.info.retry_time, high))
        case _ if recovery.shown:
            return replace(recovery, shown=merged.status)
        case _:
            return replace(recovery, shown=merged.status, retry_base=max(merged.info.retry_time, high))


def orphans(live: ResetInfo, known: Iterable[int]) -> tuple[int, ...]:
    """RecoveryIds in the live object that no ledger knows, ascending; each needs `orphan` and a merge to leave."""
    ids = {entry.recovery_id for entry in live.rank_list or () if entry.recovery_id is not None}
    return tuple(sorted(ids - set(known)))


def _leave(live: ResetInfo, recovery: Recovery, ours: list[RankEntry], now: Millis) -> Merge:
    kept = _by_rank(entry for entry in live.rank_list or () if entry.recovery_id != recovery.id)
    if ours:
        starts = any(entry.status != Status.RECOVERED for entry in ours)
        retry = _next(max(live.retry_time, recovery.retry_base))
    else:
        # Somebody emptied the list. Raised by them: readers restart and ours is done. Not raised: pods that our
        # entries stopped would wait for ever, so the raise they missed is made good.
        starts = bool(recovery.shown) and live.retry_time <= recovery.retry_base
        retry = _next(recovery.retry_base)
    raised = starts and recovery.workers_stopped and not _held_back(kept)
    if not ours and not raised:
        return Merge(live, changed=False, outcome=Outcome.LEFT)
    info = _written(live, kept, retry if raised else live.retry_time, now)
    restart_type = HOT_RESET if raised else None
    return Merge(info, changed=True, outcome=Outcome.LEFT, restart_type=restart_type, raised=raised)


def _written(live: ResetInfo, entries: tuple[RankEntry, ...], retry: int, now: Millis) -> ResetInfo:
    """The live object with another list; the `initializing` a job is born with goes at the first write."""
    extra = {key: value for key, value in live.extra.items() if (key, value) != ("status", "initializing")}
    return replace(live, rank_list=entries, update_time=now // SECOND, retry_time=retry, extra=extra)


def _entry(recovery: Recovery, device: ResetDevice, status: Status) -> RankEntry:
    """Our entry of one device: codes ascending by value, the numbers and the hex spelling alike."""
    codes = dict(sorted({int(code, 16): code for code in device.codes}.items()))
    return RankEntry(
        rank_id=device.rank,
        logic_id=device.logic_id,
        status=status,
        policy=Policy.ISOLATE if status is Status.FAILED else recovery.policy,
        initial_policy=recovery.initial_policy,
        error_code=tuple(codes),
        error_code_hex=",".join(codes.values()),
        recovery_id=recovery.id,
    )


def _gives_way(entry: RankEntry, recovery_id: int, ranks: set[int]) -> bool:
    """Whether the entry is this recovery's own, or an older one's on a rank it takes over."""
    if entry.recovery_id is None or entry.recovery_id > recovery_id:
        return False
    return entry.recovery_id == recovery_id or entry.rank_id in ranks


def _held_back(entries: Iterable[RankEntry]) -> bool:
    """Whether a recovery of ours in the list still waits; it will raise RetryTime itself when it is through."""
    return any(entry.recovery_id is not None and entry.status in _HOLDING for entry in entries)


def _by_rank(entries: Iterable[RankEntry]) -> tuple[RankEntry, ...]:
    return tuple(sorted(entries, key=lambda entry: entry.rank_id))


def _next(retry: int) -> int:
    """One more; a negative value, which TaskD calls an error, counts as none."""
    return min(max(retry, 0) + 1, _INT_MAX)
