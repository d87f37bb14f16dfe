"""Codes that were seen and that no table knows: few, with what a person needs to add them to a table.

The one rule: at most KEPT; beyond it the one that was not seen for longest is let go of.
"""

from dataclasses import replace
from typing import Final

from agent.domain.events import FaultEvent, UnknownCode

KEPT: Final = 64


def name_of(event: FaultEvent) -> str:
    """What the codes are keyed by: the same text may be a code of several planes."""
    return f"{event.key.plane}/{event.key.code}"


def note(codes: dict[str, UnknownCode], event: FaultEvent) -> None:
    """Take in one more fault of a code that no table knows; the last one seen is at the end."""
    before, severity = codes.pop(name_of(event), None), event.severity
    if before is None:
        if len(codes) >= KEPT:
            del codes[next(iter(codes))]
        codes[name_of(event)] = UnknownCode(
            event.key.plane, event.key.code, event.source, severity, 1, event.at, event.at
        )
        return
    told = before.severity is not None and severity is not None
    codes[name_of(event)] = replace(
        before,
        severity=max(before.severity or 0, severity or 0) if told else None,
        count=before.count + 1,
        first=min(before.first, event.at),
        last=max(before.last, event.at),
    )
