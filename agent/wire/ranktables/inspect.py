"""One rank table, from its bytes to every finding with its line.

The one rule: any bytes give an Inspection; nothing is raised for what stands in a file.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from agent.domain.ranktable import RankTable
from agent.wire.ranktablecheck import Finding, validate
from agent.wire.ranktablefile import TableCode, json_hint, read_rank_table
from agent.wire.ranktables.circumstances import Circumstances
from agent.wire.ranktables.comments import without_comments
from agent.wire.ranktables.judge import Judgement, Mode, judge, pairs, under
from agent.wire.ranktables.textplaces import line_and_column
from agent.wire.ranktables.version2 import validate_version2


@dataclass(frozen=True, slots=True)
class Opened:
    """A text that was parsed, or why it was not."""

    text: str
    root: Any
    """The plain JSON value; None when the text is no JSON."""
    table: RankTable | None
    """None when no rank can be told from it; without servers for version 2.0."""
    findings: tuple[Finding, ...]
    """What could not be read."""
    stopped: str = ""
    """Why the rules over the whole table cannot be judged."""
    commented: bool = False
    """There were comments, and they were taken out."""
    error_at: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class Placed:
    """A finding with its line and column, both from 1; 0 where they were not looked for."""

    finding: Finding
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that is to say of one table."""

    opened: Opened
    found: tuple[Placed, ...]
    judgements: tuple[Judgement, ...] = ()

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(one.finding.severity == "error" for one in self.found)


def open_table(raw: bytes, *, lenient: bool = False) -> Opened:
    """Parse a text; `lenient` takes comments out first."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _place(raw, error.start)
        finding = Finding(TableCode.JSON_INVALID, "", f"byte {error.start} is not UTF-8")
        return Opened("", None, None, (finding,), "the text is no JSON", error_at=(line, column))
    stripped = without_comments(text) if lenient else text
    try:
        root = orjson.loads(stripped)
    except orjson.JSONDecodeError as error:
        hint = json_hint(raw)
        if hint.startswith("comments") and not lenient:
            hint += ", or give --lenient to have them left out here"
        finding = Finding(TableCode.JSON_INVALID, "", error.msg, hint=hint)
        at = (error.lineno, error.colno)
        return Opened(stripped, None, None, (finding,), "the text is no JSON", stripped != text, at)
    found: list[Finding] = []

    def complain(code: TableCode, message: str, pointer: str, hint: str) -> None:
        found.append(Finding(code, pointer, message, hint=hint))

    table = read_rank_table(root, complain)
    stopped = ""
    if table is None:
        stopped = f"{found[-1].code}" if found else "the table cannot be read"
    return Opened(stripped, root, table, tuple(found), stopped, stripped != text)


def _place(raw: bytes, offset: int) -> tuple[int, int]:
    return raw.count(b"\n", 0, offset) + 1, offset - raw.rfind(b"\n", 0, offset)


def inspect_table(opened: Opened, around: Circumstances, mode: Mode, *, places: int | None = None) -> Inspection:
    """Every rule on an opened table, weighed by the mode: what cannot be read, then rule by rule through the file.

    `places`: only the first so many findings of a code get their line; the others have line 0. None: all get it.
    """
    found: list[Finding] = list(opened.findings)
    judgements: list[Judgement] = []
    if opened.commented:
        message = "comments were left out here; HCCL itself refuses the file with them"
        found.append(Finding(TableCode.JSON_INVALID, "", message, "warning", hint=json_hint("//")))
    if opened.table is not None and opened.table.version == "2.0":
        found += validate_version2(opened.root)
    elif opened.table is not None:
        paired, weighed = pairs(around, validate(opened.table))
        found += weighed
        for judgement, broken in judge(opened.table, around):
            judgements.append(judgement)
            found += broken
        judgements.append(paired)
    return Inspection(opened, placed(opened, under(mode, found), places), tuple(judgements))


def placed(opened: Opened, findings: Iterable[Finding], most: int | None = None) -> tuple[Placed, ...]:
    """Each finding with its line and column in the text, or the first `most` of each code and 0 for the others."""
    listed = list(findings)
    if opened.root is None:
        return tuple(Placed(one, *opened.error_at) for one in listed)
    told: Counter[TableCode] = Counter()
    wanted: set[str] = set()
    for one in listed:
        told[one.code] += 1
        if most is None or told[one.code] <= most:
            wanted.add(one.pointer)
    places = line_and_column(opened.text, wanted) if wanted else {}
    return tuple(Placed(one, *places.get(one.pointer, (0, 0))) for one in listed)


def with_more(inspection: Inspection, more: Iterable[Finding], *, places: int | None = None) -> Inspection:
    """The inspection with findings that only several tables together show; `places` as for `inspect_table`."""
    return replace(inspection, found=(*inspection.found, *placed(inspection.opened, more, places)))
