"""Policy files to a Policy: YAML in, every mistake out with its file and line.

The one rule: whatever the bytes are, the answer is a Policy or a BadPolicy that lists all mistakes at once; nothing is
guessed and no key is ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from yaml.nodes import MappingNode, Node, SequenceNode

from agent.domain.policy import CODE_SHAPES, CodeRule, DurationRule, Policy, chip_number, well_formed
from agent.domain.vocab import (
    CHIP_LEVELS,
    DPU_LEVELS,
    NETWORK_CODES,
    NODE_LEVELS,
    SECOND,
    SWITCH_LEVELS,
    Millis,
    Source,
)
from agent.wire.yamlnodes import Problem, YamlFile, bad_policy, is_empty, nearest, shown

VERSION: Final = 1
RULES: Final = "rules.yaml"
FAULT_TIMEOUT_S: Final = (0, 600)
RECOVER_TIMEOUT_S: Final = (0, 86_400)
"""Ranges of device-plugin's faultCustomization.json (constants.go:636-676)."""

NETWORK_LEVELS: Final = ("NotHandleFault", "SubHealthFault", "PreSeparateNPU", "SeparateNPU")
"""A network code cannot ask for a restart; device-plugin turns such a level into NotHandleFault (fault_code.go:702)."""

RULE_LEVELS: Final = tuple(level for level in CHIP_LEVELS if level not in ("NormalNPU", "ManuallySeparateNPU"))
"""What a table or a duration rule may ask for. ManuallySeparateNPU is only ever the result of counting."""

META_KEYS: Final = ("meaning", "module")
TABLE_KEYS: Final = ("version", "levels")
PUBLIC_KEYS: Final = ("version", "resources", "levels")
RULES_KEYS: Final = ("version", "unknown_held_level", "FaultDuration")
DURATION_KEYS: Final = ("EventId", "FaultTimeout", "RecoverTimeout", "FaultHandling")


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A table file: whose codes it holds, and the levels they may have, mildest first."""

    source: Source
    levels: tuple[str, ...]


TABLES: Final[Mapping[str, TableFormat]] = {
    "chip.yaml": TableFormat(Source.DCMI, RULE_LEVELS),
    "switch.yaml": TableFormat(Source.LINGQU, tuple(SWITCH_LEVELS)),
    "node.yaml": TableFormat(Source.IPMI, tuple(NODE_LEVELS)),
    "dpu.yaml": TableFormat(Source.DPU, tuple(DPU_LEVELS)),
    "public.yaml": TableFormat(Source.PUBLIC, NETWORK_LEVELS),
}
FILES: Final = (*TABLES, RULES)


def load_policy(files: Mapping[str, bytes]) -> Policy:
    """The policy that the files hold, keyed by name or path (the last part names the file: chip.yaml, rules.yaml, …).

    A table whose file is absent is empty. Raises BadPolicy with all mistakes of all files, a `file:line: reason` each.
    """
    tables: dict[str, dict[int | str, CodeRule]] = {name: {} for name in TABLES}
    resources: frozenset[str] = frozenset()
    rules = _Rules()
    problems: list[Problem] = []
    taken: set[str] = set()
    for path, data in files.items():
        file = YamlFile(path, problems)
        name = path.rsplit("/", 1)[-1]
        if name not in FILES:
            file.wrong(1, f"no policy file is called {name!r}{nearest(name, FILES)}")
        elif name in taken:
            file.wrong(1, f"{name} is given twice")
        elif (root := file.compose(data)) is not None:
            if name == RULES:
                rules = _rules(file, root)
            else:
                tables[name], more = _table(file, root, TABLES[name])
                resources |= more
        taken.add(name)
    if problems:
        raise bad_policy(problems)
    return Policy(
        chip={key: rule for key, rule in tables["chip.yaml"].items() if isinstance(key, int)},
        switch=_by_text(tables["switch.yaml"]),
        node=_by_text(tables["node.yaml"]),
        public=_by_text(tables["public.yaml"]),
        dpu=_by_text(tables["dpu.yaml"]),
        durations=rules.durations,
        public_resources=resources,
        unknown_held_level=rules.unknown_held_level,
    )


def _by_text(table: Mapping[int | str, CodeRule]) -> dict[str, CodeRule]:
    return {key: rule for key, rule in table.items() if isinstance(key, str)}


def _table(file: YamlFile, root: Node, form: TableFormat) -> tuple[dict[int | str, CodeRule], frozenset[str]]:
    public = form.source is Source.PUBLIC
    top = _document(file, root, PUBLIC_KEYS if public else TABLE_KEYS, required="levels")
    resources = _resources(file, top["resources"]) if "resources" in top else frozenset()
    table: dict[int | str, CodeRule] = {}
    for level, level_node, codes in file.pairs(top["levels"], "levels") if "levels" in top else ():
        if level not in form.levels:
            file.wrong(level_node, f"this table has no level {shown(level)}{nearest(level, form.levels)}")
        elif not is_empty(codes):
            for text, key_node, about in file.pairs(codes, level):
                _code(file, form, table, level, text, key_node, about)
    return table, resources


def _code(
    file: YamlFile,
    form: TableFormat,
    table: dict[int | str, CodeRule],
    level: str,
    text: str,
    key_node: Node,
    about: Node,
) -> None:
    key = _key(file, form.source, text, key_node)
    if key is None:
        return
    if key in table:
        first = table[key]
        file.wrong(key_node, f"{shown(text)} is already under {first.level}, line {first.place.rsplit(':', 1)[-1]}")
        return
    if isinstance(key, int) and key in NETWORK_CODES and level not in NETWORK_LEVELS:
        allowed = ", ".join(NETWORK_LEVELS)
        file.wrong(key_node, f"{shown(text)} is a network code and cannot be {level}; it may be {allowed}")
        return
    code = text if form.source in (Source.LINGQU, Source.PUBLIC, Source.DPU) else text.upper()
    words: dict[str, str] = {}
    if not is_empty(about):
        for word, _, value in file.pairs(about, f"the note of {text}", META_KEYS):
            words[word] = file.text(value, word) or ""
    table[key] = CodeRule(code, level, file.place(key_node), words.get("meaning", ""), words.get("module", ""))


def _key(file: YamlFile, source: Source, text: str, node: Node) -> int | str | None:
    """What the table is keyed by; None after a mistake."""
    if source is Source.DCMI:
        return _number(file, text, node)
    if not well_formed(source, text):
        file.wrong(node, f"{shown(text)} is no code of this table: {CODE_SHAPES[source].expected}")
        return None
    return text.upper() if source is Source.IPMI else text


def _number(file: YamlFile, text: str, node: Node) -> int | None:
    """A chip code as integer; None after a mistake. Bare, because the table's spelling is the one that is shown."""
    number = chip_number(text)
    if number is None:
        file.wrong(node, f"{shown(text)} is no chip code: 1 to 9 hex digits")
    elif text[:2] in ("0x", "0X"):
        file.wrong(node, f"write {shown(text)} without 0x, as the tables do")
        return None
    return number


def _resources(file: YamlFile, node: Node) -> frozenset[str]:
    found: set[str] = set()
    for item in file.items(node, "resources"):
        name = file.text(item, "a resource")
        if name is None:
            continue
        if name in found:
            file.wrong(item, f"resource {shown(name)} stands twice")
        elif name in tuple(Source):
            file.wrong(item, f"{shown(name)} is a device source and cannot be a public resource")
        found.add(name)
    return frozenset(found)


@dataclass(slots=True)
class _Rules:
    unknown_held_level: str = "NotHandleFault"
    durations: dict[int, DurationRule] = field(default_factory=dict)


def _rules(file: YamlFile, root: Node) -> _Rules:
    rules = _Rules()
    top = _document(file, root, RULES_KEYS)
    if "unknown_held_level" in top:
        level = file.level(top["unknown_held_level"], "unknown_held_level", RULE_LEVELS)
        rules.unknown_held_level = level or rules.unknown_held_level
    for item in file.items(top["FaultDuration"], "FaultDuration") if "FaultDuration" in top else ():
        _duration(file, item, rules.durations)
    return rules


def _duration(file: YamlFile, item: Node, durations: dict[int, DurationRule]) -> None:
    given = {key: value for key, _, value in file.pairs(item, "a duration rule", DURATION_KEYS)}
    for key in DURATION_KEYS:
        if isinstance(item, MappingNode) and key not in given:
            file.wrong(item, f"the duration rule has no {key}")
    if len(given) < len(DURATION_KEYS):
        return
    fault = file.number(given["FaultTimeout"], "FaultTimeout (seconds)", *FAULT_TIMEOUT_S)
    recover = file.number(given["RecoverTimeout"], "RecoverTimeout (seconds)", *RECOVER_TIMEOUT_S)
    level = file.level(given["FaultHandling"], "FaultHandling", RULE_LEVELS)
    codes = list(file.items(given["EventId"], "EventId"))
    if isinstance(given["EventId"], SequenceNode) and not codes:
        file.wrong(given["EventId"], "EventId lists no code")
    for node in codes:
        text = file.text(node, "a code")
        number = _number(file, text, node) if text is not None else None
        if text is None or number is None:
            continue
        if number in durations:
            file.wrong(node, f"{shown(text)} already has a duration rule, {durations[number].place}")
        elif level in RULE_LEVELS and number in NETWORK_CODES and level not in NETWORK_LEVELS:
            file.wrong(node, f"{shown(text)} is a network code and cannot become {level}")
        elif fault is not None and recover is not None and level is not None:
            timeouts = Millis(fault * SECOND), Millis(recover * SECOND)
            durations[number] = DurationRule(text.upper(), *timeouts, level, file.place(node))


def _document(file: YamlFile, root: Node, keys: Sequence[str], required: str = "") -> dict[str, Node]:
    """The top-level values by key, with `version` checked."""
    top = {key: value for key, _, value in file.pairs(root, "the file", keys)}
    if isinstance(root, MappingNode):
        for key in filter(None, ("version", required)):
            if key not in top:
                file.wrong(1, f"the file has no {key!r}")
    if "version" in top:
        file.number(top["version"], "version", VERSION, VERSION)
    return top
