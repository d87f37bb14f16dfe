"""The HCCL variables of a job's processes, read the way HCCL reads them.

The one rule: a variable that the pod's spec does not show is unknown, never off; scripts export them too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Final, Generic, TypeVar

from agent.errors import BadInput

T = TypeVar("T")

RETRY_ENABLE: Final = "HCCL_OP_RETRY_ENABLE"
RETRY_PARAMS: Final = "HCCL_OP_RETRY_PARAMS"
EXPANSION_MODE: Final = "HCCL_OP_EXPANSION_MODE"
RDMA_TIMEOUT: Final = "HCCL_RDMA_TIMEOUT"
RDMA_RETRY_CNT: Final = "HCCL_RDMA_RETRY_CNT"
INTER_HCCS_DISABLE: Final = "HCCL_INTER_HCCS_DISABLE"
CONNECT_TIMEOUT: Final = "HCCL_CONNECT_TIMEOUT"
VISIBLE_DEVICES: Final = "ASCEND_RT_VISIBLE_DEVICES"

VARIABLES: Final = (
    RETRY_ENABLE,
    RETRY_PARAMS,
    EXPANSION_MODE,
    RDMA_TIMEOUT,
    RDMA_RETRY_CNT,
    INTER_HCCS_DISABLE,
    CONNECT_TIMEOUT,
    VISIBLE_DEVICES,
)
"""Every variable that is read here."""
DEFAULT_RDMA_TIMEOUT: Final = 20
DEFAULT_RDMA_RETRY_CNT: Final = 7
DEFAULT_CONNECT_TIMEOUT: Final = 120
"""Seconds; also the least that HCCL takes."""
INVISIBLE_THRESHOLD_MS: Final = 30_000.0
"""The vendor's round figure, for when the timers cannot be seen."""


@dataclass(frozen=True, slots=True)
class OpRetry:
    """Levels on which HCCL executes a failed operator again: L1 between servers, L2 between super-pods."""

    l1: bool = False
    l2: bool = False
    l0_given: bool = False
    """L0 was named; newer HCCL accepts it with a warning and without effect."""


@dataclass(frozen=True, slots=True)
class RetryParams:
    """Times of the operator retry: count, and milliseconds before the first and between later ones."""

    max_cnt: int = 1
    hold_time: int = 5000
    interval_time: int = 1000


def default_op_retry(cann: str) -> OpRetry:
    """Levels that are on when HCCL_OP_RETRY_ENABLE is unset: none, but L1 as the document of CANN 8.3 lists it.

    `cann` is a version such as `8.2.RC1`; empty is the newest.
    """
    return OpRetry(l1=re.match(r"8\.3(?![0-9])", cann) is not None)


class Expansion(StrEnum):
    """Words that HCCL takes for where operators are expanded; unset means AI_CPU on A3."""

    AI_CPU = "AI_CPU"
    AICPU_CACHE_DISABLE = "AICPU_CacheDisable"
    AIV = "AIV"
    HOST = "HOST"
    HOST_TS = "HOST_TS"

    @property
    def on_ai_cpu(self) -> bool:
        """Only these two kinds can switch to a backup NIC."""
        return self in (Expansion.AI_CPU, Expansion.AICPU_CACHE_DISABLE)


def parse_op_retry_enable(text: str) -> OpRetry:
    """Levels of HCCL_OP_RETRY_ENABLE, e.g. `L0:0, L1:1, L2:1` (HCCL externalinput.cc:1758-1885).

    ASCII spaces count nowhere, tabs do; blank is all off; a level left out is off. Raises BadInput.
    """
    packed = text.replace(" ", "")
    if not packed:
        return OpRetry()
    items = packed.split(",")
    if len(items) > 3:
        raise BadInput(f"{len(items)} entries, at most 3 are allowed", place=RETRY_ENABLE)
    levels: dict[str, bool] = {}
    for item in items:
        level, colon, value = item.partition(":")
        if level not in ("L0", "L1", "L2") or not colon or value not in ("0", "1"):
            raise BadInput(f"entry {item!r} is not L0, L1 or L2 with :0 or :1", place=RETRY_ENABLE)
        if level in levels:
            raise BadInput(f"level {level} is given twice", place=RETRY_ENABLE)
        levels[level] = value == "1"
    return OpRetry(levels.get("L1", False), levels.get("L2", False), "L0" in levels)


_BLANK: Final = r"[ \t\n\v\f\r]*"
_NUMBER: Final = _BLANK + r"([+-]?[0-9]+)"
_PARAMS: Final = re.compile(f"MaxCnt:{_NUMBER},{_BLANK}HoldTime:{_NUMBER},{_BLANK}IntervalTime:{_NUMBER}")


def parse_op_retry_params(text: str) -> RetryParams:
    """Times of HCCL_OP_RETRY_PARAMS (HCCL externalinput.cc:1887-1927): all three keys, this order, this case.

    Blanks may follow a colon or a comma; what follows the last number is ignored; out of range is an error and
    not clamped; set but empty is an error. Raises BadInput.
    """
    match = _PARAMS.match(text)
    if match is None:
        raise BadInput(
            f"{text[:80]!r} is not of the form MaxCnt:n, HoldTime:n, IntervalTime:n",
            place=RETRY_PARAMS,
            hint="three keys in this order and case, no blank before a comma or colon",
        )
    max_cnt, hold, interval = match.groups()
    return RetryParams(
        _within(RETRY_PARAMS, "MaxCnt", max_cnt, 1, 10),
        _within(RETRY_PARAMS, "HoldTime", hold, 0, 60_000),
        _within(RETRY_PARAMS, "IntervalTime", interval, 0, 60_000),
    )


def parse_expansion_mode(text: str) -> Expansion:
    """Word of HCCL_OP_EXPANSION_MODE. Raises BadInput for a word HCCL does not know."""
    try:
        return Expansion(text)
    except ValueError:
        raise BadInput(f"unknown word {text[:80]!r}", place=EXPANSION_MODE) from None


def parse_rdma_timeout(text: str) -> int:
    """HCCL_RDMA_TIMEOUT, 5 to 20 on A3: the exponent of the RDMA time-out. Raises BadInput."""
    return _within(RDMA_TIMEOUT, "", text, 5, 20)


def parse_rdma_retry_cnt(text: str) -> int:
    """HCCL_RDMA_RETRY_CNT, 1 to 7: how often a packet is sent again. Raises BadInput."""
    return _within(RDMA_RETRY_CNT, "", text, 1, 7)


def parse_inter_hccs_disable(text: str) -> bool:
    """HCCL_INTER_HCCS_DISABLE: true makes servers of one super-pod talk over RDMA too. Raises BadInput."""
    word = text.lower()
    if word not in ("true", "false"):
        raise BadInput(f"{text[:80]!r} is neither TRUE nor FALSE", place=INTER_HCCS_DISABLE)
    return word == "true"


def parse_connect_timeout(text: str) -> int:
    """HCCL_CONNECT_TIMEOUT, 120 to 7200 s: how long ranks wait for each other as links are set up. Raises BadInput."""
    return _within(CONNECT_TIMEOUT, "", text, DEFAULT_CONNECT_TIMEOUT, 7200)


def parse_visible_devices(text: str) -> tuple[int, ...]:
    """ASCEND_RT_VISIBLE_DEVICES: places among the container's own devices, with commas between; blank is none.

    Raises BadInput, also for a place that stands twice.
    """
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    places = tuple(_within(VISIBLE_DEVICES, "", part, 0, 63) for part in parts)
    if len(set(places)) != len(places):
        raise BadInput(f"{text[:80]!r} names a place twice", place=VISIBLE_DEVICES)
    return places


def visible_among(devices: tuple[int, ...], seen: "Seen[tuple[int, ...]]") -> frozenset[int] | None:
    """Those of a container's devices (physical ids, ascending) that its processes see; None: not known.

    Invalid, or a place that the container has not, is not known either: how much of such a text counts is nowhere
    said.
    """
    if seen.sight is Sight.UNSET:
        return frozenset(devices)
    if seen.value is None or any(place >= len(devices) for place in seen.value):
        return None
    return frozenset(devices[place] for place in seen.value)


def _within(place: str, key: str, text: str, low: int, high: int) -> int:
    name = f"{key} " if key else ""
    if re.fullmatch(r"[+-]?[0-9]+", text) is None:
        raise BadInput(f"{name}{text[:40]!r} is not a whole number", place=place)
    digits = text.lstrip("+-").lstrip("0") or "0"
    value = int(digits[:12]) * (-1 if text.startswith("-") else 1)
    if not low <= value <= high:
        raise BadInput(f"{name}{text[:40]} is outside {low} to {high}", place=place)
    return value


class Sight(StrEnum):
    """How a variable was found."""

    KNOWN = "known"
    UNSET = "unset"
    """The environment can be seen and does not hold it: HCCL's default is in force."""
    UNKNOWN = "unknown"
    """The spec does not show it; the start script may have set it."""
    INVALID = "invalid"
    """It is set to a text that HCCL would not take."""


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """One variable: how it was found, its value if known, and what is wrong with it if invalid."""

    sight: Sight = Sight.UNKNOWN
    value: T | None = None
    problem: str = ""

    def effective(self, default: T) -> T | None:
        """The value in force: as set, the default if visibly unset (its own, if it hangs on the version of CANN), None
        if unknown or invalid.
        """
        return default if self.sight is Sight.UNSET and self.value is None else self.value


@dataclass(frozen=True, slots=True)
class HcclEnv:
    """The variables that decide about borrowing, of the processes of one job on one node."""

    retry: Seen[OpRetry] = Seen()
    params: Seen[RetryParams] = Seen()
    expansion: Seen[Expansion] = Seen()
    rdma_timeout: Seen[int] = Seen()
    rdma_retry_cnt: Seen[int] = Seen()
    inter_hccs_disable: Seen[bool] = Seen()
    connect_timeout: Seen[int] = Seen()
    visible_devices: Seen[tuple[int, ...]] = Seen()
    differs: tuple[str, ...] = ()
    """Variables that the job's pods on the node do not agree on; what stands above is then one pod's."""
    cann: str = ""
    """Version of CANN, on which defaults hang; empty is the newest."""


def env_from(mapping: Mapping[str, str | None] | None, visible: bool, cann: str = "") -> HcclEnv:
    """The environment of a pod's spec, or one that a setting states.

    `visible`: the whole environment is known, so that an absent variable is unset; else it is unknown. A None
    value (a reference whose target was not read) is unknown in either case. `cann`: its version, if known, on which
    the default of HCCL_OP_RETRY_ENABLE hangs.
    """
    given = mapping if mapping is not None else {}
    return _env_of(tuple((name, given[name]) for name in VARIABLES if name in given), visible, cann)


@lru_cache(maxsize=256)
def _env_of(assignments: tuple[tuple[str, str | None], ...], visible: bool, cann: str) -> HcclEnv:
    """All pods of a job have the same environment, and a large job has thousands of them."""
    given = dict(assignments)

    def seen(name: str, parse: Callable[[str], T]) -> Seen[T]:
        if name not in given:
            return Seen(Sight.UNSET if visible else Sight.UNKNOWN)
        text = given[name]
        if text is None:
            return Seen(Sight.UNKNOWN)
        try:
            return Seen(Sight.KNOWN, parse(text))
        except BadInput as error:
            return Seen(Sight.INVALID, problem=str(error))

    retry = seen(RETRY_ENABLE, parse_op_retry_enable)
    if retry.sight is Sight.UNSET:
        retry = Seen(Sight.UNSET, default_op_retry(cann))
    return HcclEnv(
        retry=retry,
        params=seen(RETRY_PARAMS, parse_op_retry_params),
        expansion=seen(EXPANSION_MODE, parse_expansion_mode),
        rdma_timeout=seen(RDMA_TIMEOUT, parse_rdma_timeout),
        rdma_retry_cnt=seen(RDMA_RETRY_CNT, parse_rdma_retry_cnt),
        inter_hccs_disable=seen(INTER_HCCS_DISABLE, parse_inter_hccs_disable),
        connect_timeout=seen(CONNECT_TIMEOUT, parse_connect_timeout),
        visible_devices=seen(VISIBLE_DEVICES, parse_visible_devices),
        cann=cann,
    )


def in_force(env: HcclEnv) -> dict[str, object | None]:
    """What must be the same for all ranks of a job, as it is in force: None where it is not known."""
    retry = env.retry.effective(OpRetry())
    return {
        RETRY_ENABLE: None if retry is None else (retry.l1, retry.l2),
        RETRY_PARAMS: env.params.effective(RetryParams()),
        EXPANSION_MODE: env.expansion.effective(Expansion.AI_CPU),
        RDMA_TIMEOUT: env.rdma_timeout.effective(DEFAULT_RDMA_TIMEOUT),
        RDMA_RETRY_CNT: env.rdma_retry_cnt.effective(DEFAULT_RDMA_RETRY_CNT),
    }


_WORSE: Final = {Sight.KNOWN: 0, Sight.UNSET: 0, Sight.UNKNOWN: 1, Sight.INVALID: 2}


def together(envs: Sequence[HcclEnv]) -> HcclEnv:
    """One environment for several pods of a job on one node: of each variable what is known least, and the names of
    those that are in force with different values.
    """
    if len(envs) == 1:
        return envs[0]
    values = [in_force(env) for env in envs]
    differs = tuple(name for name in values[0] if len({one[name] for one in values} - {None}) > 1)
    names = [one.name for one in fields(HcclEnv) if one.name not in ("differs", "cann")]
    least = {name: max((getattr(env, name) for env in envs), key=lambda seen: _WORSE[seen.sight]) for name in names}
    return HcclEnv(**least, differs=differs, cann=envs[0].cann)


def flap_threshold_ms(env: HcclEnv) -> float:
    """How long RDMA itself sends again, in ms; only a link that is down for longer (strictly) is borrowed.

    4.096 µs x 2^TIMEOUT x RETRY_CNT, 30064.8 ms by default (HCCL platform/common/externalinput.h:45-52);
    30000 when a timer cannot be seen or read.
    """
    timeout = env.rdma_timeout.effective(DEFAULT_RDMA_TIMEOUT)
    count = env.rdma_retry_cnt.effective(DEFAULT_RDMA_RETRY_CNT)
    if timeout is None or count is None:
        return INVISIBLE_THRESHOLD_MS
    return float(4.096 * 2**timeout * count / 1000)


@dataclass(frozen=True, slots=True)
class Eligible:
    """Whether HCCL would do something; None: it cannot be told. And why."""

    answer: bool | None
    why: str


IN_PLACE: Final = (
    "HCCL still refuses operators whose input was overwritten (all_reduce, all_gather and reduce_scatter in place), "
    "communication fused with computation (MC2), and graphs sunk as a whole"
)
"""What no environment variable shows."""


def retry_eligible(env: HcclEnv) -> Eligible:
    """Whether a failed operator may be executed again.

    Operators of single-operator mode may be, wherever they are expanded, AIV apart, of which nothing is said.
    """
    for name, seen in ((RETRY_ENABLE, env.retry), (RETRY_PARAMS, env.params)):
        if seen.sight is Sight.INVALID:
            return Eligible(False, f"{name} makes HCCL fail at its start: {seen.problem}")
    levels = env.retry.effective(OpRetry())
    if levels is None:
        return Eligible(None, f"{RETRY_ENABLE} cannot be seen")
    if not (levels.l1 or levels.l2):
        return Eligible(False, f"no level of {RETRY_ENABLE} is on")
    if env.expansion.value is Expansion.AIV:
        return Eligible(None, f"{EXPANSION_MODE} is AIV, of which the vendor says nothing")
    on = " and ".join(words for words, level in (("L1 (servers)", levels.l1), ("L2 (super-pods)", levels.l2)) if level)
    return Eligible(True, f"{on} on")


def borrow_eligible(env: HcclEnv) -> Eligible:
    """Whether a link between super-pods may be carried by the other die; needs more than the retry itself."""
    retry = retry_eligible(env)
    if retry.answer is False:
        return retry
    levels = env.retry.effective(OpRetry())
    if levels is not None and not levels.l2:
        return Eligible(False, f"L2 of {RETRY_ENABLE} is off")
    where = env.expansion
    if where.value is not None and not where.value.on_ai_cpu:
        return Eligible(False, f"{EXPANSION_MODE} is {where.value}, not the AI CPU")
    if retry.answer is None:
        return retry
    if where.sight is Sight.UNKNOWN:
        return Eligible(None, f"{EXPANSION_MODE} cannot be seen")
    if where.sight is Sight.INVALID:
        return Eligible(None, f"{EXPANSION_MODE}: {where.problem}; the document takes AI_CPU then, HCCL fails")
    return Eligible(True, "L2 on, operators on the AI CPU")
