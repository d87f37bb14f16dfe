"""A policy of a handful of codes, small enough to see through, for tests of those who only ask a policy."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.domain.events import Rating
from agent.domain.vocab import LEVELS, Plane, Source


@dataclass(frozen=True, slots=True)
class TinyRule:
    code: str
    fault_timeout_ms: int
    recover_timeout_ms: int
    level: str
    place: str = "tiny"


@dataclass(frozen=True, slots=True)
class TinyCount:
    code: str
    window_ms: int
    times: int
    level: str
    release_ms: int = 0

    @property
    def name(self) -> str:
        return f"frequency:{self.code}"


@dataclass(frozen=True, slots=True)
class TinyPolicy:
    digest: str = "tiny"
    levels: Mapping[str, str] = field(
        default_factory=lambda: {
            "80E18402": "SeparateNPU",
            "80C98000": "RestartRequest",
            "81078603": "NotHandleFault",
            "[0x08520003,na,L2,na]": "SubHealthFault",
            "0300000D": "PreSeparateFault",
            "220001001": "SeparateNPU",
            "200001002": "SubHealthFault",
            "21000022": "SubHealthFault",
        }
    )
    rules: Mapping[str, TinyRule] = field(
        default_factory=lambda: {"81078603": TinyRule("81078603", 20_000, 60_000, "PreSeparateNPU")}
    )
    counts: Mapping[str, TinyCount] = field(default_factory=dict)
    public_resources: frozenset[str] = frozenset({"CCAE", "pingmesh"})

    def plane_of(self, source: Source, code: str) -> Plane:
        if source in (Source.DCMI, Source.HCCN):
            return Plane.NETWORK if code == "81078603" else Plane.CHIP
        return {
            Source.LINGQU: Plane.SWITCH,
            Source.IPMI: Plane.NODE,
            Source.DPU: Plane.DPU,
            Source.PUBLIC: Plane.PUBLIC,
        }[source]

    def spell(self, source: Source, code_text: str) -> str:
        return code_text.upper() if source in (Source.DCMI, Source.HCCN, Source.IPMI) else code_text

    def rate(self, plane: Plane, code: str, severity: int | None) -> Rating:
        if code in self.levels:
            return Rating(self.levels[code], f"{plane}-table", "tiny")
        return Rating("NotHandleFault", "unknown-code", known=False, held=severity is None or severity >= 2)

    def public_known(self, code: str) -> bool:
        return code in self.levels

    def duration(self, code: str) -> TinyRule | None:
        return self.rules.get(code)

    def frequency(self, code: str) -> TinyCount | None:
        return self.counts.get(code)

    def worst(self, plane: Plane, levels: Iterable[str]) -> str:
        return max(levels, key=lambda level: LEVELS[plane][level])
