"""Settings of the rules that the coordinator evaluates: which jobs count for them.

The one rule: as in `agent.app.settings`: a key nobody reads does not exist, and none changes its meaning.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

JobPattern = Annotated[str, Field(pattern=r"^[^\s=/]+(/[^\s=/]+)?(=[^\s=]*)?$")]


class RuleModel(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class QuietSettings(RuleModel):
    """Rules that keep a known fault back for a time."""

    inference_jobs: tuple[JobPattern, ...] = ()
    """Jobs that handle a RestartRequest by themselves, so that it is kept back for 60 s: `label=value`, a `label` that
    is there, or `namespace/job`. For MindIE servers whose controller subscribes to faults: app=mindie-ms-server."""

    @field_validator("inference_jobs", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value
