"""One rank table, from its bytes to every finding with its line.

The one rule: any bytes give an Inspection; nothing is raised for what stands in a file.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import orjson

from agent.domain.ranktable import RankTable
from agent.wire.ranktablecheck import Finding, Severity, validate
from agent.wire.ranktablefile import TableCode, json_hint, read_rank_table
from agent.wire.ranktables.circumstances import Circumstances
from agent.wire.ranktables.comments import without_comments
from agent.wire.ranktables.judge import Judged, Judgement, Mode, judge, pairs, severity_under
from agent.wire.ranktables.textplaces import line_and_column
from agent.wire.ranktables.version2 import validate_version2

MOST: Final = 1000
"""Findings of one kind that are told by themselves; a mistake in a generated table is in every rank of it."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A text that was parsed, or why it was not."""

    text: str
    root: Any
    """The plain JSON value; None when the text is no JSON."""
    table: RankTable | None
    """None when no rank can be told from it; without servers for version 2.0."""
    findings: tuple[Finding, ...]
    """What could not be read, of each code the first MOST."""
    unlisted: Mapping[TableCode, int] = field(default_factory=dict)
    """How many more there are of a code."""
    stopped: str = ""
    """Why the rules over the whole table cannot be judged."""
    commented: bool = False
    """There were comments, and they were taken out."""
    error_at: tuple[int, int] = (1, 1)
    shift: tuple[int, int] = (0, 0)
    """Lines before the text in the file it stands in, and columns before each of its lines."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A finding with its line and column, both from 1."""

    finding: Finding
    line: int
    column: int


Kind = tuple[TableCode, Severity]


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that is to say of one table."""

    opened: Opened
    found: tuple[Placed, ...]
    """The first findings of each kind, in the order of the file's rules."""
    totals: Mapping[Kind, int]
    """How many there are of each kind."""
    judgements: tuple[Judgement, ...] = ()

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return self._count("error")

    @property
    def warnings(self) -> int:
        """How many are not."""
        return self._count("warning")

    def left_out(self) -> dict[TableCode, int]:
        """How many findings of each code are only counted, where any are."""
        told = Counter(one.finding.code for one in self.found)
        all_of: Counter[TableCode] = Counter()
        for (code, _), count in self.totals.items():
            all_of[code] += count
        return dict(all_of - told)

    def _count(self, severity: Severity) -> int:
        return sum(count for (_, of), count in self.totals.items() if of == severity)


def open_table(raw: bytes, *, lenient: bool = False, shift: tuple[int, int] = (0, 0)) -> Opened:
    """Parse a text; `lenient` takes comments out first. `shift`: where it stands in its file."""
    return replace(_parsed(raw, lenient=lenient), shift=shift)


def _parsed(raw: bytes, *, lenient: bool) -> Opened:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _place(raw, error.start)
        finding = Finding(TableCode.JSON_INVALID, "", f"byte {error.start} is not UTF-8")
        return Opened("", None, None, (finding,), stopped="the text is no JSON", error_at=(line, column))
    stripped = without_comments(text) if lenient else text
    try:
        root = orjson.loads(stripped)
    except orjson.JSONDecodeError as error:
        hint = json_hint(raw)
        if hint.startswith("comments") and not lenient:
            hint += ", or give --lenient to have them left out here"
        finding = Finding(TableCode.JSON_INVALID, "", error.msg, hint=hint)
        at = (error.lineno, error.colno)
        commented = stripped != text
        return Opened(stripped, None, None, (finding,), stopped="the text is no JSON", commented=commented, error_at=at)
    found: list[Finding] = []
    counts: dict[TableCode, int] = {}
    last = "the table cannot be read"

    def complain(code: TableCode, message: str, pointer: str, hint: str) -> None:
        nonlocal last
        counts[code] = counts.get(code, 0) + 1
        last = code
        if counts[code] <= MOST:
            found.append(Finding(code, pointer, message, hint=hint))

    table = read_rank_table(root, complain)
    unlisted = {code: count - MOST for code, count in counts.items() if count > MOST}
    return Opened(stripped, root, table, tuple(found), unlisted, last if table is None else "", stripped != text)


def _place(raw: bytes, offset: int) -> tuple[int, int]:
    return raw.count(b"\n", 0, offset) + 1, offset - raw.rfind(b"\n", 0, offset)


def inspect_table(opened: Opened, around: Circumstances, mode: Mode, *, most: int = MOST) -> Inspection:
    """Every rule on an opened table, weighed by the mode: what cannot be read, then rule by rule through the file.

    `most` findings of each kind are told with their place, the others counted.
    """
    judged: tuple[Judged, ...] = ()
    streams: list[Iterable[Finding]] = [opened.findings]
    if opened.commented:
        message = "comments were left out here; HCCL itself refuses the file with them"
        streams.append([Finding(TableCode.JSON_INVALID, "", message, "warning", hint=json_hint("//"))])
    if opened.table is not None and opened.table.version == "2.0":
        streams.append(validate_version2(opened.root))
    elif opened.table is not None:
        judged = judge(opened.table, around)
        streams += [validate(opened.table), *(broken for _, broken in judged)]
    kept, totals = _first(chain.from_iterable(streams), mode, most, borrow=bool(around.borrow))
    for code, count in opened.unlisted.items():
        totals[code, "error"] = totals.get((code, "error"), 0) + count
    judgements = [judgement for judgement, _ in judged]
    if judged:
        wrong = sum(count for (code, _), count in totals.items() if code is TableCode.BACKUP_NOT_PAIR)
        judgements.append(pairs(around, wrong))
    return Inspection(opened, _placed(opened, kept), totals, tuple(judgements))


def _first(
    findings: Iterable[Finding], mode: Mode, most: int, *, borrow: bool = False
) -> tuple[list[Finding], dict[Kind, int]]:
    totals: dict[Kind, int] = {}
    kept: list[Finding] = []
    for one in findings:
        severity = severity_under(mode, one, borrow=borrow)
        kind = one.code, severity
        count = totals[kind] = totals.get(kind, 0) + 1
        if count <= most:
            kept.append(one._replace(severity=severity))
    return kept, totals


def _placed(opened: Opened, findings: Sequence[Finding]) -> tuple[Placed, ...]:
    down, right = opened.shift
    places: Mapping[str, tuple[int, int]] = {}
    if opened.root is not None and findings:
        places = line_and_column(opened.text, {one.pointer for one in findings})
    at = (places.get(one.pointer, opened.error_at) for one in findings)
    return tuple(Placed(one, line + down, column + right) for one, (line, column) in zip(findings, at, strict=True))


def with_more(inspection: Inspection, more: Iterable[Finding], mode: Mode, *, most: int = MOST) -> Inspection:
    """The inspection with findings that only several tables together show; the rest as for `inspect_table`."""
    kept, totals = _first(more, mode, most)
    summed = Counter(inspection.totals) + Counter(totals)
    return replace(inspection, found=(*inspection.found, *_placed(inspection.opened, kept)), totals=summed)
