"""What became of each entry of a file of MindCluster's.

The one rule: a verdict that is not `taken` has a reason that a person can act on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from agent.domain.policy import DurationRule, FrequencyRule, RelationRule
from agent.domain.vocab import Millis


class Verdict(StrEnum):
    """What became of an entry."""

    TAKEN = "taken"
    CHANGED = "changed"
    """Its component takes it as something else than it says, and so do we."""
    REPEATED = "repeated"
    """Another entry of the same code counts."""
    SKIPPED = "skipped"
    """Its component skips it, and so do we."""
    IMPOSSIBLE = "impossible"
    """Its component takes it, but it can never have an effect there, or cannot be said here."""
    UNUSED = "unused"
    """Its component reads it or not, and nothing follows from it."""


HARMLESS: Final = frozenset({Verdict.TAKEN, Verdict.REPEATED})
"""Verdicts that need nobody's look."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: where it stands in the file (`RestartNPUCodes[3]`), its code or rule, and what became of it."""

    place: str
    what: str
    verdict: Verdict
    reason: str = ""
    level: str = ""
    """The level it gives, where it is one of a table."""


def lost(names: Iterable[tuple[str, str]], before: str = "") -> list[Entry]:
    """Entries for the names of an object of which nothing comes."""
    return [Entry(f"{before}{name}", name, Verdict.UNUSED, reason) for name, reason in names]


@dataclass(frozen=True, slots=True)
class Foreign:
    """A file as its component reads it. `refusal`: why the component refuses the whole file; then it holds nothing."""

    name: str
    component: str
    refusal: str = ""
    entries: tuple[Entry, ...] = ()
    table: str = ""
    """The table that it is (`chip`, `switch`, `node`, `public`); empty: it holds rules."""
    levels: Mapping[str, str] = field(default_factory=dict)
    """Code as it is spelled -> level, where it is a table."""
    resources: tuple[str, ...] = ()
    frequencies: tuple[FrequencyRule, ...] = ()
    durations: tuple[DurationRule, ...] = ()
    relations: tuple[RelationRule, ...] = ()
    relation_timeouts: Mapping[str, Millis] = field(default_factory=dict)
    """By relation code."""
