"""The policy book: which level a code has, and how long or how often a fault must be to change it.

The one rule: it only looks up. Files are read and checked in `agent.wire.policyfile`; a Policy is already right.
Codes and levels are those of MindCluster's tables; chip codes are compared as integers, because events carry
unsigned numbers and leading zeros are a matter of spelling (device-plugin fault_code.go:197, 806).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Final

from agent.domain.events import Rating
from agent.domain.vocab import CHIP_LEVELS, LEVELS, NETWORK_CODES, SECOND, Millis, Plane, Source
from agent.errors import BadInput

UNKNOWN_RULE: Final = "unknown-code"
"""Name of the rule that rates a code found in no table."""

HELD_SEVERITY: Final = 2
"""DCMI severity (0 suggestion, 1 minor, 2 major, 3 critical) from which an unknown code waits for a person."""

UNKNOWN_LEVEL: Final[Mapping[Plane, str]] = {
    Plane.CHIP: "NotHandleFault",
    Plane.NETWORK: "NotHandleFault",
    Plane.SWITCH: "NotHandle",
    Plane.NODE: "NotHandleFault",
    Plane.PUBLIC: "NotHandleFault",
    Plane.DPU: "SubHealthFault",
}
"""The mildest level of each plane, for an unknown code is never strong. DPU levels begin at SubHealthFault."""

TABLE_PLANE: Final[Mapping[Source, Plane]] = {
    Source.DCMI: Plane.CHIP,
    Source.HCCN: Plane.CHIP,
    Source.LINGQU: Plane.SWITCH,
    Source.IPMI: Plane.NODE,
    Source.DPU: Plane.DPU,
    Source.PUBLIC: Plane.PUBLIC,
}
"""The table a source's codes are looked up in; of the chip table NETWORK_CODES lie on the network plane."""


@dataclass(frozen=True, slots=True)
class CodeShape:
    """How the codes of a table are written; `expected` says it for people."""

    pattern: re.Pattern[str]
    expected: str


_CHIP_SHAPE: Final = CodeShape(
    re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,9})"), "1 to 9 hex digits, with or without 0x, such as 80E18402"
)
CODE_SHAPES: Final[Mapping[Source, CodeShape]] = {
    Source.DCMI: _CHIP_SHAPE,
    Source.HCCN: _CHIP_SHAPE,
    Source.LINGQU: CodeShape(
        re.compile(r"(?=.{1,50}\Z)\[[^\[\],\s]+(?:,[^\[\],\s]+){3}\]"),
        "four parts in brackets, 50 characters at most, such as [0x08520003,na,L2,na]",
    ),
    Source.IPMI: CodeShape(re.compile(r"[0-9A-Za-z]{8}"), "8 letters or digits, such as 0000001D"),
    Source.DPU: CodeShape(re.compile(r"[0-9A-Za-z]{8}"), "8 letters or digits, such as 21000024"),
    Source.PUBLIC: CodeShape(re.compile(r"[!-~]{9}"), "exactly 9 characters, such as 220001001"),
}
"""Per source, after the checks of device-plugin (fault_code.go), NodeD and ClusterD (publicfault/checker.go)."""


def well_formed(source: Source, code: str) -> bool:
    """True when `code` can be a code of that source's table at all, known or not."""
    return CODE_SHAPES[source].pattern.fullmatch(code) is not None


@lru_cache(maxsize=4096)
def chip_number(code: str) -> int | None:
    """The integer that a chip or network code stands for; None when it is no hex code of at most 9 digits."""
    match = _CHIP_SHAPE.pattern.fullmatch(code)
    return int(match[1], 16) if match else None


@dataclass(frozen=True, slots=True)
class Override:
    """Why a site rates a code otherwise than its table: the reason and the last day (UTC) on which it holds (None: no
    end), and the level and `file:line` that lie below it (empty when the table does not list the code).
    """

    reason: str
    expires: date | None
    level: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class EndedOverride:
    """An override of a site that holds no longer: the table and key it was for, what it said, and its last day."""

    table: str
    key: int | str
    code: str
    level: str
    place: str
    reason: str
    expires: date

    def __str__(self) -> str:
        return f"the override of {self.table} {self.code} to {self.level} ({self.place}) ended with {self.expires}"


@dataclass(frozen=True, slots=True)
class CodeRule:
    """One code of a table: its spelling there, its level, `file:line`, and what is known of it (may be empty).

    `override`: the level is the site's own, and what it lies over.
    """

    code: str
    level: str
    place: str = ""
    meaning: str = ""
    module: str = ""
    override: Override | None = None


@dataclass(frozen=True, slots=True)
class DurationRule:
    """A code that gets `level` once it has been down for longer than `fault_timeout_ms`, and loses it once it has been
    up again for longer than `recover_timeout_ms` (both strictly; device-plugin fault_code.go:1981-2246).
    """

    code: str
    fault_timeout_ms: Millis
    recover_timeout_ms: Millis
    level: str
    place: str = ""

    @property
    def name(self) -> str:
        """The rule's name in ratings and explanations: `duration:<code>`."""
        return f"duration:{self.code}"


@dataclass(frozen=True, slots=True)
class FrequencyRule:
    """A code that trips once it has occurred `times` times on one device within `window_ms`, and then has `level` until
    it has been clean for longer than `release_ms` (0: never; device-plugin fault_code.go:993-1031, 1229-1274).
    """

    code: str
    window_ms: Millis
    times: int
    level: str
    release_ms: Millis = Millis(0)
    place: str = ""

    @property
    def name(self) -> str:
        """The rule's name in ratings and explanations: `frequency:<code>`."""
        return f"frequency:{self.code}"


@dataclass(frozen=True, slots=True)
class RelationRule:
    """A trigger that, together with all relation codes in one job, gives `strategy` to the pods on the relation faults:
    `Separate` or `SubHealth` (ClusterD relationFaultCustomization.json).
    """

    trigger: str
    relations: tuple[str, ...]
    strategy: str
    place: str = ""

    @property
    def name(self) -> str:
        """The rule's name in explanations: `relation:<trigger>`."""
        return f"relation:{self.trigger}"


@dataclass(frozen=True, slots=True)
class Policy:
    """All tables and rules in force, keyed for one look-up each.

    `digest` (sha256, hex) names the content that decides: codes, levels, rules and settings. Meanings, places and the
    order in the files do not change it.
    """

    chip: Mapping[int, CodeRule] = field(default_factory=dict)
    switch: Mapping[str, CodeRule] = field(default_factory=dict)
    node: Mapping[str, CodeRule] = field(default_factory=dict)
    public: Mapping[str, CodeRule] = field(default_factory=dict)
    dpu: Mapping[str, CodeRule] = field(default_factory=dict)
    durations: Mapping[int, DurationRule] = field(default_factory=dict)
    frequencies: Mapping[int, FrequencyRule] = field(default_factory=dict)
    relations: tuple[RelationRule, ...] = ()
    relation_timeouts: Mapping[str, Millis] = field(default_factory=dict)
    """How long a relation fault waits for a trigger, by code; without one not at all."""
    public_resources: frozenset[str] = frozenset()
    unknown_held_level: str = "NotHandleFault"
    """Level shown for an unknown chip code that is held: NotHandleFault up to MindCluster's own SeparateNPU."""
    ended: tuple[EndedOverride, ...] = ()
    """Overrides that hold no longer; they decide nothing and are no part of the digest."""
    digest: str = field(init=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", _digest(self))

    def plane_of(self, source: Source, code: str) -> Plane:
        """The plane a source's code lies on; dcmi and hccn codes by NETWORK_CODES (fault_code.go:154)."""
        plane = TABLE_PLANE[source]
        if plane is Plane.CHIP and chip_number(code) in NETWORK_CODES:
            return Plane.NETWORK
        return plane

    def spell(self, source: Source, code_text: str) -> str:
        """The one spelling of a code: the table's; of an unknown chip code upper-case hex without 0x, zeros as sent."""
        plane = TABLE_PLANE[source]
        if rule := self.rule(plane, code_text):
            return rule.code
        if plane is Plane.CHIP and (match := _CHIP_SHAPE.pattern.fullmatch(code_text)):
            return match[1].upper()
        return code_text.upper() if plane is Plane.NODE else code_text

    def rule(self, plane: Plane, code: str) -> CodeRule | None:
        """The table's row of a code, or None when no table of that plane lists it."""
        match plane:
            case Plane.CHIP | Plane.NETWORK:
                number = chip_number(code)
                return None if number is None else self.chip.get(number)
            case Plane.NODE:
                return self.node.get(code.upper())
            case Plane.SWITCH:
                return self.switch.get(code)
            case Plane.PUBLIC:
                return self.public.get(code)
            case Plane.DPU:
                return self.dpu.get(code)

    def ended_of(self, plane: Plane, code: str) -> EndedOverride | None:
        """The override of a code that holds no longer, if there is one."""
        on_chip = plane in (Plane.CHIP, Plane.NETWORK)
        table = "chip" if on_chip else plane
        key = chip_number(code) if on_chip else code.upper() if plane is Plane.NODE else code
        return next((one for one in self.ended if (one.table, one.key) == (table, key)), None)

    def rate(self, plane: Plane, code: str, severity: int | None) -> Rating:
        """Level of a code by its table alone; total, so an odd code is an unknown code.

        `severity` is the sender's 0..3 or None, and counts for unknown codes only: 2, 3 or None is held for a person,
        0 and 1 is not. MindCluster gives such a chip code SeparateNPU (fault_code.go:1192, 1322); here that is the
        setting `unknown_held_level`. Unknown public codes are refused before this (`public_known`), hence never held.
        """
        if rule := self.rule(plane, code):
            table = "chip" if plane is Plane.NETWORK else plane
            return Rating(rule.level, f"{table}-override" if rule.override else f"{table}-table", rule.place)
        held = plane is not Plane.PUBLIC and (severity is None or severity >= HELD_SEVERITY)
        level = self.unknown_held_level if held and plane is Plane.CHIP else UNKNOWN_LEVEL[plane]
        return Rating(level, UNKNOWN_RULE, known=False, held=held)

    def public_known(self, code: str) -> bool:
        """True when the public table lists the code; ClusterD rejects all others (publicfault/checker.go)."""
        return code in self.public

    def duration(self, code: str) -> DurationRule | None:
        """The duration rule of a chip or network code, if there is one."""
        number = chip_number(code)
        return None if number is None else self.durations.get(number)

    def frequency(self, code: str) -> FrequencyRule | None:
        """The frequency rule of a chip or network code, if there is one."""
        number = chip_number(code)
        return None if number is None else self.frequencies.get(number)

    def worst(self, plane: Plane, levels: Iterable[str]) -> str:
        """The most severe of some levels of one plane (fault_code.go:1336-1358).

        Of none: the no-fault marker NormalNPU where the plane has one, else the empty text, as device-plugin writes
        for a switch without fault. Raises BadInput for a level that the plane does not have.
        """
        ranks = LEVELS[plane]
        worst = "NormalNPU" if ranks is CHIP_LEVELS else ""
        for level in levels:
            if level not in ranks:
                raise BadInput(f"no level {level!r} on the {plane} plane", hint=f"it has {', '.join(ranks)}")
            if not worst or ranks[level] > ranks[worst]:
                worst = level
        return worst


def _digest(policy: Policy) -> str:
    tables = (policy.chip, policy.switch, policy.node, policy.public, policy.dpu)
    content = {
        "tables": [sorted((rule.code, rule.level) for rule in table.values()) for table in tables],
        "durations": sorted(
            (rule.code, rule.fault_timeout_ms // SECOND, rule.recover_timeout_ms // SECOND, rule.level)
            for rule in policy.durations.values()
        ),
        "frequencies": sorted(
            (rule.code, rule.window_ms // SECOND, rule.times, rule.level, rule.release_ms // SECOND)
            for rule in policy.frequencies.values()
        ),
        "relations": sorted((one.trigger, *sorted(one.relations), one.strategy) for one in policy.relations),
        "relation_timeouts": sorted((code, span // SECOND) for code, span in policy.relation_timeouts.items()),
        "resources": sorted(policy.public_resources),
        "unknown_held_level": policy.unknown_held_level,
    }
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
