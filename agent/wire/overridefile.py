"""A site's overrides of single codes: `overrides.yaml`, laid over the tables that are in force.

The one rule: an override names its reason and its last day, and what lies below it is kept, so that both can be shown.

    version: 1
    chip:
      "80E18402": {level: RestartNPU, reason: "ticket 4711: wrong in this firmware", expires: 2026-12-31}
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Final, TypeAlias

from yaml.nodes import MappingNode, Node, ScalarNode

from agent.domain.policy import CodeRule, EndedOverride, Override
from agent.wire.yamlnodes import YamlFile, shown

OVERRIDE_KEYS: Final = ("level", "reason", "expires")
NOTE_KEYS: Final = ("meaning", "module")
NEVER: Final = "never"

RowOf: TypeAlias = Callable[[str, str, str, Node], tuple[int | str, str] | None]
"""Table, code, level and node -> what the table is keyed by and the code as it is spelled; None after a mistake."""


@dataclass(frozen=True, slots=True)
class OverrideEntry:
    """One entry: the table and key it is for, and the row that it puts there."""

    table: str
    key: int | str
    rule: CodeRule
    reason: str
    expires: date | None

    def expired(self, today: date | None) -> bool:
        """True after its last day."""
        return self.ended(today) is not None

    def ended(self, today: date | None) -> EndedOverride | None:
        """What is left of it after its last day; None while it holds."""
        if today is None or self.expires is None or self.expires >= today:
            return None
        rule = self.rule
        return EndedOverride(self.table, self.key, rule.code, rule.level, rule.place, self.reason, self.expires)


def read_overrides(
    file: YamlFile, top: Mapping[str, Node], levels: Mapping[str, Sequence[str]], row_of: RowOf
) -> list[OverrideEntry]:
    """The entries of a file by table (`chip`, `switch`, …), in its order; each mistake is noted at its line."""
    entries: list[OverrideEntry] = []
    for table, node in top.items():
        if table not in levels or (isinstance(node, ScalarNode) and node.tag.endswith(":null")):
            continue
        lines: dict[int | str, int] = {}
        for text, key_node, about in file.pairs(node, table):
            entry = _entry(file, table, levels[table], row_of, text, key_node, about)
            if entry is None:
                continue
            if entry.key in lines:
                file.wrong(
                    key_node, f"{shown(text)} is shadowed by the entry of the same code in line {lines[entry.key]}"
                )
            else:
                lines[entry.key] = key_node.start_mark.line + 1
                entries.append(entry)
    return entries


def lay(entry: OverrideEntry, table: dict[int | str, CodeRule]) -> None:
    """Put an entry over a table's row; the table's spelling stays, and its meaning where the entry gives none."""
    below = table.get(entry.key)
    rule = entry.rule
    override = Override(entry.reason, entry.expires)
    if below is not None:
        override = replace(override, level=below.level, place=below.place)
        rule = replace(rule, code=below.code, meaning=rule.meaning or below.meaning, module=rule.module or below.module)
    table[entry.key] = replace(rule, override=override)


def _entry(
    file: YamlFile, table: str, levels: Sequence[str], row_of: RowOf, text: str, key_node: Node, about: Node
) -> OverrideEntry | None:
    given = {word: value for word, _, value in file.pairs(about, f"the override of {text}", OVERRIDE_KEYS + NOTE_KEYS)}
    if not isinstance(about, MappingNode):
        return None
    for word in OVERRIDE_KEYS:
        if word not in given:
            file.wrong(key_node, f"the override of {shown(text)} has no {word}")
    if any(word not in given for word in OVERRIDE_KEYS):
        return None
    level = file.level(given["level"], "level", levels)
    reason = file.text(given["reason"], "reason")
    ends = given["expires"]
    never = isinstance(ends, ScalarNode) and ends.value == NEVER
    expires = None if never else file.day(ends, f"expires (or {NEVER})")
    words = {word: file.text(given[word], word) or "" for word in NOTE_KEYS if word in given}
    row = None if level is None or level not in levels else row_of(table, text, level, key_node)
    if row is None or level is None or reason is None or (expires is None and not never):
        return None
    key, code = row
    rule = CodeRule(code, level, file.place(key_node), words.get("meaning", ""), words.get("module", ""))
    return OverrideEntry(table, key, rule, reason, expires)
