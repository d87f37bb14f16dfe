"""Settings: one YAML file, every key known, every number with its unit in its name.

The one rule: a key nobody reads does not exist, and an unknown key is refused with the nearest known one.
Later keys are added here; none changes its meaning.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agent.domain.vocab import SECOND, Mode
from agent.errors import BadUsage

Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ClusterSettings(_Model):
    """Which cluster this is; it stands in every report and ledger, and a mismatch is refused."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] = "solo"


class DocumentSettings(_Model):
    """How far one document may be driven, and whether we are its only writer."""

    mode: Annotated[Mode, Field(strict=False)] = Mode.ACT
    """disabled | observe | act; the weaker of this and the global mode is in force."""
    sole_writer: bool = False
    """true: managers of others in managedFields are history; false: any of them counts as a live writer."""
    namespace: Namespace = "default"


class ResetConfigSettings(_Model):
    """`reset-config-<job>` lives in the job's namespace."""

    mode: Annotated[Mode, Field(strict=False)] = Mode.ACT
    create: bool | None = None
    """Create it (label reset=true) when the job has none. Left out: yes in the solo role, no elsewhere,
    because MindCluster expects the user to create it with the job."""


class DocumentsSettings(_Model):
    """Every document of others that the agent writes."""

    reset_config: ResetConfigSettings = ResetConfigSettings()
    vcjob_fault_npu_cm: DocumentSettings = DocumentSettings(namespace="volcano-system")
    job_reschedule_reason: DocumentSettings = DocumentSettings(namespace="mindx-dl")


class ResetSettings(_Model):
    """In-place recovery through reset.json."""

    frameworks: tuple[str, ...] = ("mindspore",)
    """Values of the job's `framework` label whose readers restart by entries (MSRunPlugin: mindspore)."""
    executor: Literal["none", "external"] = "none"
    """Who resets a device: nobody (a reset recovery is not started) or somebody else within 150 s."""

    @field_validator("frameworks", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class RailSettings(_Model):
    """Rail-borrow: judged and recorded, never switched by us."""

    policy: Literal["per_npu", "per_communicator"] = "per_npu"
    strictness: Literal["strict", "source"] = "strict"
    joint_window_s: Annotated[float, Field(ge=0, le=60)] = 3
    """Link faults that begin within this time of the first are judged together."""
    link_fresh_s: Annotated[float, Field(gt=0, le=3600)] = 60
    """A link or visibility fact older than this is unknown."""


class Settings(_Model):
    """All settings of a process."""

    cluster: ClusterSettings = ClusterSettings()
    namespace: Namespace = "fault-agent"
    """Where the agent keeps the ledgers that belong to no job."""
    mode: Annotated[Mode | None, Field(strict=False)] = None
    """disabled | observe | act. Left out: act in the solo role, which writes its own --out folder only;
    observe elsewhere."""
    documents: DocumentsSettings = DocumentsSettings()
    volcano: Literal["auto", "alive", "absent"] = "auto"
    """Is Volcano's NPU plugin at work here? auto: yes when its hand is seen in vcjob-fault-npu-cm."""
    scheduler_time_zone: str = "UTC"
    """IANA name; LogFileFormatTime is written in the scheduler's local time."""
    max_event_age_s: Annotated[float, Field(gt=0, le=86400)] = 900
    """An occurrence older than this starts nothing."""
    max_clock_skew_s: Annotated[float, Field(gt=0, le=86400)] = 300
    """A time further ahead than this is taken as the receive time."""
    reset: ResetSettings = ResetSettings()
    rail: RailSettings = RailSettings()

    @field_validator("scheduler_time_zone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"no time zone {value!r}; an IANA name such as Asia/Shanghai is expected") from error
        return value

    @property
    def max_event_age_ms(self) -> int:
        """Age limit of occurrences, ms."""
        return int(self.max_event_age_s * SECOND)


def load_settings(path: Path | None) -> Settings:
    """Settings of a YAML file, or the defaults. Raises BadUsage naming each wrong key, its place and what is meant."""
    if path is None:
        return Settings()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadUsage(
            f"cannot read the settings file {path}: {error}", hint="give --config an existing YAML file"
        ) from error
    try:
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BadUsage(f"{path} is no YAML: {error}") from error
    return settings_from({} if raw is None else raw, str(path))


def settings_from(raw: object, origin: str) -> Settings:
    """Settings of a plain mapping. Raises BadUsage."""
    if not isinstance(raw, Mapping):
        raise BadUsage(f"{origin}: a mapping of settings is expected, not {type(raw).__name__}")
    try:
        return Settings.model_validate(dict(raw))
    except ValidationError as error:
        raise BadUsage(f"{origin}: " + "; ".join(_explain(problem) for problem in error.errors())) from error


def _explain(problem: Any) -> str:
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] != "extra_forbidden":
        return f"{place}: {problem['msg']}"
    model: Any = Settings
    for part in problem["loc"][:-1]:
        model = model.model_fields[part].annotation
    near = get_close_matches(str(problem["loc"][-1]), model.model_fields, n=1)
    known = f"did you mean {near[0]}?" if near else "known here: " + ", ".join(model.model_fields)
    return f"{place}: no such setting; {known}"
