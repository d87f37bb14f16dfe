"""The envelope of a fault message as pydantic sees it: MindCluster's public-fault message, fields and limits.

The one rule: shapes only, in one pass and with nothing of ours in it; what a code, device or node means is decided
in `agent.wire.inbound`. Limits: ClusterD publicfault/checker.go, device ids widened to 0..63.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from agent.domain.vocab import DeadReason

EARLIEST: Final = 1_735_689_600_000
"""2025-01-01T00:00Z in ms; MindCluster takes no earlier time, and no time that has not 13 digits."""

NODE_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""A node's name as Kubernetes and MindCluster take it; to be matched in full."""

_Text = Annotated[str, Field(strict=True)]
_Id = Annotated[str, StringConstraints(strict=True, min_length=8, max_length=128, pattern=r"^[a-zA-Z0-9\-_.]+$")]
_Time = Annotated[int, Field(strict=True, ge=EARLIEST, le=9_999_999_999_999)]
_Device = Annotated[int, Field(strict=True, ge=0, le=63)]
_Description = Annotated[str, StringConstraints(strict=True, max_length=512, pattern=r"^[^\t\n\f\r]*$")]
_Location = Annotated[dict[_Text, _Text], Field(max_length=10)]


class Influence(TypedDict):
    """One node that a fault touches, by name or serial number, and its physical device ids."""

    node_name: NotRequired[Annotated[_Text | None, Field(alias="nodeName")]]
    node_sn: NotRequired[Annotated[_Text | None, Field(alias="nodeSN")]]
    device_ids: NotRequired[Annotated[list[_Device] | None, Field(alias="deviceIds", max_length=64)]]


class Fault(TypedDict):
    """One fault of a message; times in ms."""

    fault_id: Annotated[_Id, Field(alias="faultId")]
    fault_type: Annotated[Literal["NPU", "Node", "Network", "Storage"], Field(alias="faultType")]
    fault_code: Annotated[_Text, Field(alias="faultCode")]
    fault_time: Annotated[_Time, Field(alias="faultTime")]
    assertion: Literal["occur", "recover", "once"]
    fault_location: NotRequired[Annotated[_Location | None, Field(alias="faultLocation")]]
    influence: Annotated[list[Influence], Field(min_length=1, max_length=1000)]
    description: NotRequired[_Description | None]


class Message(TypedDict):
    """A whole message whose faults are all well shaped."""

    id: _Id
    timestamp: _Time
    version: Literal["1.0"]
    resource: _Text
    faults: Annotated[list[Fault], Field(min_length=1, max_length=100)]


class Envelope(TypedDict):
    """A message with its faults unread, for the message that has a bad one."""

    id: _Id
    timestamp: _Time
    version: Literal["1.0"]
    resource: _Text
    faults: Annotated[list[Any], Field(min_length=1, max_length=100)]


MESSAGE: Final[TypeAdapter[Message]] = TypeAdapter(Message)
ENVELOPE: Final[TypeAdapter[Envelope]] = TypeAdapter(Envelope)
FAULT: Final[TypeAdapter[Fault]] = TypeAdapter(Fault)

_Place = tuple[int | str, ...]
_REASONS: Final[Mapping[_Place, DeadReason]] = {
    ("version",): DeadReason.VERSION_UNSUPPORTED,
    ("timestamp",): DeadReason.TIME_INVALID,
    ("faultTime",): DeadReason.TIME_INVALID,
    ("faultCode",): DeadReason.CODE_INVALID,
}
_SAID: Final = 3


def explain(error: ValidationError, within: _Place = ()) -> tuple[DeadReason, str]:
    """The reason of the first problem, and the first three as `faults[2].influence[0].nodeName: why`.

    `within` is the place of the validated part in the message.
    """
    problems = error.errors(include_url=False, include_context=False)
    place, kind = problems[0]["loc"], problems[0]["type"]
    reason = _REASONS.get(place, DeadReason.FIELD_INVALID)
    if kind == "missing":
        reason = DeadReason.FIELD_MISSING
    elif kind == "too_long" and place == ("faults",):
        reason = DeadReason.TOO_MANY_FAULTS
    said = [
        f"{_path((*within, *problem['loc']))}: {problem['msg']}"
        + ("" if problem["type"] == "missing" else f" (got {_short(problem['input'])})")
        for problem in problems[:_SAID]
    ]
    more = len(problems) - _SAID
    return reason, "; ".join(said) + (f"; and {more} more" if more > 0 else "")


def _short(value: object) -> str:
    """A value for people: short whatever it is, and not walked into, for it may be nested without end."""
    if isinstance(value, str):
        return repr(value[:60])
    return repr(value) if value is None or isinstance(value, int | float) else f"a {type(value).__name__}"


def _path(loc: _Place) -> str:
    path = ""
    for step in loc:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != "[key]":
            path += f".{step}" if path else step
    return path or "value"
