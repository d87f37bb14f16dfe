"""What another writer has taken out of `reset.json` since we wrote it, and which one it was by the traces it leaves.

The one rule: it only compares; what is needed again follows from the recovery, never from the loss.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.domain.reset.values import ResetInfo

POD_RESCHEDULE: Final = "podReschedule"
"""restartType of Volcano's pod rescheduling, and of nobody else (volcano plugin type.go:82)."""


class Writer(StrEnum):
    """Who writes a reset-config beside us. A closed list: it is the label of a metric."""

    POD_RESCHEDULING = "volcano-pod-rescheduling"
    """Empties the list, sets restartType, replaces labels and annotations (volcano plugin job.go:455)."""
    GRACE_EXIT = "volcano-grace-exit"
    """Changes GracefulExit alone and drops restartType (volcano rescheduling reschedule.go:686)."""
    PROCESS_RECOVERY = "clusterd"
    """Makes list and fields anew and drops restartType; the metadata stays (clusterd utils.go:176)."""
    OTHER = "other"
    """A person, a tool, or a version that leaves other traces."""


class Part(StrEnum):
    """What can be lost."""

    ENTRIES = "entries"
    RETRY_TIME = "RetryTime"
    """Set back: readers do not act on a value they have seen before."""
    RESTART_TYPE = "restartType"
    CLAIM = "the annotation of this agent"
    DOCUMENT = "the whole document"


@dataclass(frozen=True, slots=True)
class State:
    """The document at one moment, as far as others take something out of it."""

    info: ResetInfo
    restart_type: str = ""
    """Empty: there is none."""
    claimed: bool = True
    """It carries our annotation."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """One writer's doing."""

    writer: Writer
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return f"{self.writer} took out {', '.join(self.parts)}"


def erasure(left: State, live: State | None) -> Erasure | None:
    """What is gone of what we last left there, or None. `live` None: the document itself is."""
    if live is None:
        return Erasure(Writer.OTHER, (Part.DOCUMENT,))
    had = {(one.recovery_id, one.rank_id) for one in left.info.rank_list or () if one.recovery_id is not None}
    has = {(one.recovery_id, one.rank_id) for one in live.info.rank_list or ()}
    lost = {
        Part.ENTRIES: not had <= has,
        Part.RETRY_TIME: live.info.retry_time < left.info.retry_time,
        Part.RESTART_TYPE: bool(left.restart_type) and live.restart_type != left.restart_type,
        Part.CLAIM: left.claimed and not live.claimed,
    }
    parts = tuple(part for part, gone in lost.items() if gone)
    return Erasure(_writer(left, live, parts), parts) if parts else None


def _writer(left: State, live: State, parts: tuple[Part, ...]) -> Writer:
    if live.restart_type == POD_RESCHEDULE and left.restart_type != POD_RESCHEDULE:
        return Writer.POD_RESCHEDULING
    if live.restart_type or Part.RESTART_TYPE not in parts:
        return Writer.OTHER
    if Part.ENTRIES not in parts and live.info.graceful_exit != left.info.graceful_exit:
        return Writer.GRACE_EXIT
    return Writer.PROCESS_RECOVERY if Part.CLAIM not in parts else Writer.OTHER
