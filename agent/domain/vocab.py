"""Words of the field: names, levels, planes, reasons. Everything else in the domain speaks in these.

The one rule: each table of levels or reasons exists once, here.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NewType

NodeName = NewType("NodeName", str)
JobId = NewType("JobId", str)
"""`<namespace>/<PodGroup name>`, as Volcano calls a job."""
OccurrenceId = NewType("OccurrenceId", str)
"""`<topic generation>:<partition>:<offset>:<index>`: one event of one record of the stream."""
Millis = NewType("Millis", int)
"""Unix time or a span, in milliseconds."""

SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def utc_text(at: int) -> str:
    """Unix ms as people read it, e.g. `2026-01-01 00:00:05.250Z`; 0: no clock was known yet; far off: `<ms>ms`."""
    if at <= 0:
        return "before any event"
    try:
        return (_EPOCH + timedelta(milliseconds=at)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError):
        return f"{at}ms"


def span_text(span: float) -> str:
    """A span in ms as people read it: `20 s`, `0.5 s`, `3 min 20 s`, `5 h`, `333 days`; two units at most."""
    seconds = span / SECOND
    if seconds < 120:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"
    days, rest = divmod(round(seconds), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    parts = [(days, "day" if days == 1 else "days"), (hours, "h"), (minutes, "min"), (left, "s")]
    first = next(place for place, (count, _) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


class Source(StrEnum):
    """Where a record comes from; it decides the code table. Public senders keep their own `resource` name."""

    DCMI = "dcmi"
    HCCN = "hccn"
    LINGQU = "lingqu"
    IPMI = "ipmi"
    DPU = "dpu"
    PUBLIC = "public"


class Plane(StrEnum):
    """What a fault lies on. Chip and network are rated apart and never merged."""

    CHIP = "chip"
    NETWORK = "network"
    SWITCH = "switch"
    NODE = "node"
    PUBLIC = "public"
    DPU = "dpu"


class Assertion(StrEnum):
    """What an event says of its fault; `once` is an occurrence together with its end."""

    OCCUR = "occur"
    RECOVER = "recover"
    ONCE = "once"


class Mode(StrEnum):
    """How far the agent may go. The weakest of the global mode and a document's own is in force."""

    DISABLED = "disabled"
    OBSERVE = "observe"
    ACT = "act"


NETWORK_CODES: Final = frozenset({0x81078603, 0x81078607, 0x110000002, 0x110001024})
"""Codes of the chip table that lie on the network plane (device-plugin fault_code.go:154)."""

RAISED_INDEX: Final = 10_000_000
"""Added to the index of an occurrence, once or several times, by what makes another one out of it (a rule over time, a
new policy, ports beside it): an occurrence of its own, whose id the deputy finds too. No message has so many events
(100 faults × 1,000 influences × 64 devices)."""

LINK_DOWN: Final = 0x81078603
"""RoCE link of a die is down (A2 and A3)."""
RAIL_RETURNED: Final = "fault-agent/rail-returned"
"""Annotation of a job's PodGroup: plans, or single NPUs of them, that an operator has switched back by hand."""

MANUAL: Final = "ManuallySeparateNPU"
"""Only ever the result of counting: a person, or the rule's own release window, ends it."""
L2_LINK_DOWN: Final = "[0x08520003,na,L2,na]"
"""A switch chip's port to an L2 switch is down (device-plugin device.go:171-225)."""
L2_PORTS: Final = 16
"""So many distinct ports of one switch chip down are of level L2_LEVEL."""
L2_LEVEL: Final = "Separate"

CHIP_LEVELS: Final[Mapping[str, int]] = {
    "NormalNPU": 0,
    "NotHandleFault": 1,
    "SubHealthFault": 2,
    "RestartRequest": 3,
    "RestartBusiness": 4,
    "FreeRestartNPU": 5,
    "RestartNPU": 6,
    "PreSeparateNPU": 7,
    "SeparateNPU": 8,
    MANUAL: 9,
}
"""Severity order of chip, network and public levels (fault_code.go:1336, ClusterD fault_utils.go:502 agree)."""

SWITCH_LEVELS: Final[Mapping[str, int]] = {
    "NotHandle": 0,
    "SubHealthFault": 1,
    "RestartRequest": 2,
    "PreSeparate": 3,
    "Separate": 4,
}
NODE_LEVELS: Final[Mapping[str, int]] = {"NotHandleFault": 0, "PreSeparateFault": 1, "SeparateFault": 2}
DPU_LEVELS: Final[Mapping[str, int]] = {"SubHealthFault": 1, "SeparateDPU": 2}

LEVELS: Final[Mapping[Plane, Mapping[str, int]]] = {
    Plane.CHIP: CHIP_LEVELS,
    Plane.NETWORK: CHIP_LEVELS,
    Plane.PUBLIC: CHIP_LEVELS,
    Plane.SWITCH: SWITCH_LEVELS,
    Plane.NODE: NODE_LEVELS,
    Plane.DPU: DPU_LEVELS,
}


def rank_of(plane: Plane, level: str) -> int:
    """Rank of a level within its plane's own order; 0 is the mildest."""
    return LEVELS[plane][level]


class DeadReason(StrEnum):
    """Why a record went to the dead letters."""

    NOT_UTF8 = "NOT_UTF8"
    NOT_JSON = "NOT_JSON"
    TOO_LARGE = "TOO_LARGE"
    KEY_MISSING = "KEY_MISSING"
    KEY_INVALID = "KEY_INVALID"
    NODE_NOT_KEY = "NODE_NOT_KEY"
    NODE_UNKNOWN = "NODE_UNKNOWN"
    MISROUTED = "MISROUTED"
    VERSION_UNSUPPORTED = "VERSION_UNSUPPORTED"
    RESOURCE_UNKNOWN = "RESOURCE_UNKNOWN"
    FIELD_MISSING = "FIELD_MISSING"
    FIELD_INVALID = "FIELD_INVALID"
    CODE_INVALID = "CODE_INVALID"
    CODE_UNKNOWN = "CODE_UNKNOWN"
    TIME_INVALID = "TIME_INVALID"
    TOO_MANY_FAULTS = "TOO_MANY_FAULTS"
    DUPLICATE_DEVICE = "DUPLICATE_DEVICE"
    INTERNAL = "INTERNAL"


class Reason(StrEnum):
    """Why something was done or not done. Closed: metrics, spans, logs and `why` all use this word.

    A reason carries no free text; the detail beside it does.
    """

    # done
    RECOVERY_STARTED = "RECOVERY_STARTED"
    RECOVERY_ESCALATED = "RECOVERY_ESCALATED"
    RECOVERY_SUCCEEDED = "RECOVERY_SUCCEEDED"
    RECOVERY_FAILED = "RECOVERY_FAILED"
    RECOVERY_ENDED = "RECOVERY_ENDED"
    RECOVERY_JOINED = "RECOVERY_JOINED"
    FAULT_SHOWN = "FAULT_SHOWN"
    FAULT_CLEARED = "FAULT_CLEARED"
    FAULT_COUNTED = "FAULT_COUNTED"
    SOFTWARE_FAULT = "SOFTWARE_FAULT"
    RELATION_SEPARATE = "RELATION_SEPARATE"
    RELATION_SUB_HEALTH = "RELATION_SUB_HEALTH"
    RELATION_IGNORED = "RELATION_IGNORED"
    SEPARATED = "SEPARATED"
    SEPARATION_RELEASED = "SEPARATION_RELEASED"
    RESCHEDULE_RECORDED = "RESCHEDULE_RECORDED"
    RAIL_ADVISED = "RAIL_ADVISED"
    RAIL_REFUSED = "RAIL_REFUSED"
    RAIL_OBSERVING = "RAIL_OBSERVING"
    RAIL_NOOP = "RAIL_NOOP"
    RAIL_DELEGATED = "RAIL_DELEGATED"
    RAIL_SUPERSEDED = "RAIL_SUPERSEDED"
    RAIL_RETURNED = "RAIL_RETURNED"
    RAIL_UNVERIFIED = "RAIL_UNVERIFIED"
    # not done, by the fault's own nature
    LEVEL_NEEDS_NOTHING = "LEVEL_NEEDS_NOTHING"
    ISOLATION_ONLY = "ISOLATION_ONLY"
    IN_USE = "IN_USE"
    HELD = "HELD"
    QUIET = "QUIET"
    DROPPED = "DROPPED"
    PLANE_NEEDS_NO_RESET = "PLANE_NEEDS_NO_RESET"
    STALE = "STALE"
    TOO_OLD = "TOO_OLD"
    BEFORE_ACT = "BEFORE_ACT"
    DUPLICATE_MESSAGE = "DUPLICATE_MESSAGE"
    ALREADY_ACTIVE = "ALREADY_ACTIVE"
    NOT_ACTIVE = "NOT_ACTIVE"
    TOO_MANY = "TOO_MANY"
    # not done, because of the job
    NO_JOB = "NO_JOB"
    NO_RANK = "NO_RANK"
    JOB_FINISHED = "JOB_FINISHED"
    LABEL_OFF = "LABEL_OFF"
    FRAMEWORK_NOT_SUPPORTED = "FRAMEWORK_NOT_SUPPORTED"
    ANNOTATION_OFF = "ANNOTATION_OFF"
    PROCESS_RECOVER_OWNS = "PROCESS_RECOVER_OWNS"
    VOLCANO_RESCHEDULES = "VOLCANO_RESCHEDULES"
    SHARED_RESET_CONFIG = "SHARED_RESET_CONFIG"
    NO_RESET_EXECUTOR = "NO_RESET_EXECUTOR"
    RECOVERY_RUNNING = "RECOVERY_RUNNING"
    NO_RESET_CONFIG = "NO_RESET_CONFIG"
    NO_RESET_LABEL = "NO_RESET_LABEL"
    # not done, because of ourselves or another writer
    OBSERVE = "OBSERVE"
    DISABLED = "DISABLED"
    ERASED = "ERASED"
    FOREIGN_WRITER_LIVE = "FOREIGN_WRITER_LIVE"
    DOCUMENT_UNREADABLE = "DOCUMENT_UNREADABLE"
    DOCUMENT_REFUSED = "DOCUMENT_REFUSED"
    LEDGER_UNREADABLE = "LEDGER_UNREADABLE"
    INTERNAL = "INTERNAL"
    UNCHANGED = "UNCHANGED"
    WRITTEN = "WRITTEN"
