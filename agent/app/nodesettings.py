"""Settings of the node role alone: who it is, and whether it looks at the links of its dies.

The one rule: as for all settings (`settings.py`); nothing is run that was not asked for.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LinkProbeSettings(_Model):
    """Whether the node role looks at the links of its dies, and how. What the rails ask of a backup link is only
    known where somebody looks.
    """

    command: tuple[str, ...] = ()
    """The driver's link query: a program by its absolute path and its arguments, {device} for a die's physical id.
    Empty: nobody looks."""
    devices: tuple[Annotated[int, Field(ge=0, le=63)], ...] = tuple(range(16))
    """Physical ids to ask about; one that the node has not stays unknown."""
    every_s: Annotated[float, Field(ge=5, le=600)] = 20
    """Seconds between two rounds; a round over all devices must be well within rail.link_fresh_s."""
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 5
    """Seconds for one query."""

    @field_validator("command", "devices", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("command")
    @classmethod
    def _runnable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not value[0].startswith("/"):
            raise ValueError("the program by its absolute path is expected first; no PATH is searched")
        if value and not any("{device}" in part for part in value[1:]):
            raise ValueError("{device} is in none of its arguments; each die must be asked about by its own id")
        return value

    @field_validator("devices")
    @classmethod
    def _once_each(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError("physical ids are expected, at least one and each once")
        return value


class NodeSettings(_Model):
    """The node role's own identity."""

    name: str = ""
    """Kubernetes name of the node; in the DaemonSet from spec.nodeName."""
    machine_id_file: str = "/etc/machine-id"
    """A new machine under an old name starts empty; not readable: no check."""
    link_probe: LinkProbeSettings = LinkProbeSettings()
