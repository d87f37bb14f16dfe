"""Settings: one YAML file, every key known, every number with its unit in its name.

The one rule: a key nobody reads does not exist, and an unknown key is refused with the nearest known one.
Later keys are added here; none changes its meaning.
"""

from collections.abc import Mapping
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from agent.app.nodesettings import NodeSettings
from agent.app.rulesettings import QuietSettings
from agent.domain.vocab import SECOND, Mode
from agent.errors import BadUsage

MASK: Final = "**********"
"""What stands for a secret where settings are shown."""
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


class VcjobSettings(DocumentSettings):
    """`vcjob-fault-npu-cm`."""

    namespace: Namespace = "volcano-system"


class RescheduleSettings(DocumentSettings):
    """`job-reschedule-reason`."""

    namespace: Namespace = "mindx-dl"


class ResetConfigSettings(_Model):
    """`reset-config-<job>` lives in the job's namespace."""

    mode: Annotated[Mode, Field(strict=False)] = Mode.ACT
    create: bool | None = None
    """Create it (label reset=true) when the job has none. Left out: yes in the solo role, no elsewhere,
    because MindCluster expects the user to create it with the job."""


class DocumentsSettings(_Model):
    """Every document of others that the agent writes."""

    reset_config: ResetConfigSettings = ResetConfigSettings()
    vcjob_fault_npu_cm: VcjobSettings = VcjobSettings()
    job_reschedule_reason: RescheduleSettings = RescheduleSettings()


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


class KafkaSettings(_Model):
    """The broker, its topics and how to be let in. Roles node and coordinator; solo reads files."""

    bootstrap_servers: Annotated[str, Field(min_length=1)] = "localhost:9092"
    """host:port, several joined by commas."""
    prefix: Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,200}$")] = "npu.fault"
    """Topics are <prefix>.events.v1, .reports.v1, .audit.v1 and .deadletter.v1."""
    report_partitions: Annotated[int, Field(ge=1, le=1000)] = 12
    """Fixed for the life of the reports topic: each node's reports go to one of them by its name."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str = ""
    password: SecretStr = SecretStr("")
    """Better given as FAULT_AGENT_KAFKA__PASSWORD or password_file than in the file."""
    password_file: str = ""
    """A file that holds the password alone, for instance a mounted Secret."""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    report_deadline_s: Annotated[float, Field(gt=0, le=120)] = 5
    """How long one report may take to be acknowledged before the producer is made anew."""

    @field_validator("password")
    @classmethod
    def _not_the_mask(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() == MASK:
            raise ValueError(
                f"{MASK} is how a set password is shown, not a password; give kafka.password_file,"
                " or FAULT_AGENT_KAFKA__PASSWORD over it"
            )
        return value

    def topic(self, name: str) -> str:
        """Full name of a topic: events, reports, audit or deadletter."""
        return f"{self.prefix}.{name}.v1"


class KubernetesSettings(_Model):
    """The API server. Role coordinator only; the node role never speaks to it."""

    kubeconfig: str = ""
    """Path; left out: the pod's own service account, else KUBECONFIG."""
    context: str = ""
    request_timeout_s: Annotated[float, Field(gt=0, le=120)] = 10


class LeaseSettings(_Model):
    """Which coordinator writes."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")] = "fault-agent-coordinator"
    duration_s: Annotated[float, Field(ge=2, le=600)] = 15
    """A leader that could not renew for this long stops; a standby that saw no renewal for this long takes over."""
    renew_s: Annotated[float, Field(ge=0.5, le=200)] = 3


class HttpSettings(_Model):
    """/livez, /readyz and /metrics of the long-lived roles."""

    host: str = "0.0.0.0"  # inside a pod the kubelet asks from outside
    port: Annotated[int, Field(ge=0, le=65535)] = 9464
    """0: do not listen."""


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
    quiet: QuietSettings = QuietSettings()
    kafka: KafkaSettings = KafkaSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    lease: LeaseSettings = LeaseSettings()
    node: NodeSettings = NodeSettings()
    http: HttpSettings = HttpSettings()

    @field_validator("scheduler_time_zone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"no time zone {value!r}; an IANA name such as Asia/Shanghai is expected") from error
        return value

    @model_validator(mode="after")
    def _fresh_enough(self) -> "Settings":
        probe = self.node.link_probe
        if probe.command and probe.every_s + probe.timeout_s >= self.rail.link_fresh_s:
            raise ValueError(
                f"node.link_probe.every_s {probe.every_s:g} and timeout_s {probe.timeout_s:g} together must be less"
                f" than rail.link_fresh_s {self.rail.link_fresh_s:g}, or what was seen is stale before it is seen again"
            )
        return self

    @property
    def max_event_age_ms(self) -> int:
        """Age limit of occurrences, ms."""
        return int(self.max_event_age_s * SECOND)


def load_settings(path: Path | None, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings of a YAML file (none: the defaults) with the FAULT_AGENT_… variables laid over them.

    FAULT_AGENT_CLUSTER__ID sets cluster.id: two underscores go one level down, and a value is read as YAML.
    Raises BadUsage naming each wrong key, its place and what is meant.
    """
    raw: object = {}
    origin = "the defaults"
    if path is not None:
        origin = str(path)
        raw = _yaml(_text(path), origin)
    names = sorted(name for name in environ or {} if name.startswith(ENV_PREFIX))
    if not isinstance(raw, dict):
        return settings_from({} if raw is None else raw, origin)
    for name in names:
        _lay(raw, name, (environ or {})[name])
    return settings_from(raw, f"{origin} and {', '.join(names)}" if names else origin)


ENV_PREFIX = "FAULT_AGENT_"
MOST_BYTES = 1_048_576
"""Of a settings file; a device given by mistake does not end."""


def _cause(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise BadUsage(f"{path}: settings of more than {MOST_BYTES} bytes are not read")
        return raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadUsage(
            f"cannot read settings {path}: {_cause(error)}", hint="give --config an existing YAML file"
        ) from error


def _yaml(text: str, origin: str) -> object:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            return {}
        _check_nodes(root, origin)
        found: object = yaml.SafeLoader("").construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{origin}:{mark.line + 1}:{mark.column + 1}" if mark else origin
        raise BadUsage(f"{place}: no YAML: {error.problem or error.context}") from error
    except BadUsage:
        raise
    except Exception as error:  # a tag that no value fits (!!timestamp x) fails in any way
        raise BadUsage(f"{origin}: no YAML: {' '.join(str(error).split())}") from error
    return {} if found is None else found


def _check_nodes(root: yaml.Node, origin: str) -> None:
    """Refuse what YAML would take and no person means: a key that stands twice, of which the last would win in
    silence, and aliases, which make a small file endless. Raises BadUsage with the line.
    """
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        place = f"{origin}:{node.start_mark.line + 1}"
        if id(node) in seen:
            raise BadUsage(f"{place}: aliases (*name) are not read in settings", hint="write the value out")
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + 1
                if isinstance(key, yaml.ScalarNode):
                    if key.value in lines:
                        raise BadUsage(f"{origin}:{line}: {key.value} stands twice, first in line {lines[key.value]}")
                    lines[key.value] = line
                waiting += [key, value]


def _lay(raw: dict[str, Any], name: str, value: str) -> None:
    """Put one variable in its place. A text field keeps its text, whatever YAML would make of it."""
    path = [part.lower() for part in name.removeprefix(ENV_PREFIX).split("__")]
    at: Any = raw
    model: Any = Settings
    for part in path[:-1]:
        at = at.setdefault(part, {}) if isinstance(at, dict) else {}
        model = getattr(model.model_fields.get(part), "annotation", None) if model is not None else None
        model = model if isinstance(model, type) and issubclass(model, BaseModel) else None
    field = model.model_fields.get(path[-1]) if model is not None else None
    plain = field is not None and field.annotation in (str, SecretStr)
    if isinstance(at, dict):
        at[path[-1]] = value if plain else _yaml(value, name)


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
        return f"{place}: {problem['msg']}{_quoting(problem)}"
    model: Any = Settings
    for part in problem["loc"][:-1]:
        model = model.model_fields[part].annotation if part in model.model_fields else Settings
    near = get_close_matches(str(problem["loc"][-1]), model.model_fields, n=1)
    known = f"did you mean {near[0]}?" if near else "known here: " + ", ".join(model.model_fields)
    return f"{place}: no such setting; {known}"


def _quoting(problem: Any) -> str:
    """What YAML made of a text that was written without quotes."""
    given = problem["input"]
    if problem["type"] not in ("enum", "literal_error", "string_type"):
        return ""
    if isinstance(given, bool):
        return (
            f"; YAML reads {'on, yes and true' if given else 'off, no and false'} without quotes as a boolean: quote it"
        )
    return "; YAML reads it as a number or a date: quote it" if isinstance(given, int | float | date) else ""


SOLO_CLUSTER: Final = ClusterSettings().id
"""cluster.id when it is left out; the roles on services do not start with it."""


def show_settings(settings: Settings) -> dict[str, Any]:
    """Every setting that has a value of its own, secrets masked: fit to be read again as a settings file, in which the
    mask is refused. What each role settles for itself when it is left out stays left out.
    """
    values = settings.model_dump(mode="json", exclude_none=True)
    if settings.cluster.id == SOLO_CLUSTER:
        del values["cluster"]
    return values


def settings_schema() -> dict[str, Any]:
    """JSON Schema of the settings file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Settings.model_json_schema()}
