"""Policy files to a Policy: YAML in, every mistake out with its file and line.

The one rule: whatever the bytes are, the answer is a Policy or a BadPolicy that lists all mistakes at once; nothing is
guessed and no key is ignored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from yaml.nodes import MappingNode, Node

from agent.domain.policy import CODE_SHAPES, CodeRule, Policy, well_formed
from agent.domain.vocab import DPU_LEVELS, NETWORK_CODES, NODE_LEVELS, SWITCH_LEVELS, Source
from agent.wire.overridefile import OverrideEntry, lay, read_overrides
from agent.wire.rulesfile import NETWORK_LEVELS, RULE_LEVELS, RULES_KEYS, Rules, chip_code, read_rules
from agent.wire.yamlnodes import Problem, YamlFile, bad_policy, is_empty, nearest, shown

VERSION: Final = 1
RULES: Final = "rules.yaml"
OVERRIDES: Final = "overrides.yaml"
META_KEYS: Final = ("meaning", "module")
TABLE_KEYS: Final = ("version", "levels")
PUBLIC_KEYS: Final = ("version", "resources", "levels")


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
FILES: Final = (*TABLES, RULES, OVERRIDES)
TABLE_FILES: Final[Mapping[str, str]] = {name.removesuffix(".yaml"): name for name in TABLES}
"""Table -> its file."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What is in some policy files: every mistake, and the policy that all that is right gives."""

    policy: Policy
    problems: tuple[Problem, ...]
    overrides: tuple[OverrideEntry, ...]
    """In the order of the file, those that have expired too."""


def load_policy(files: Mapping[str, bytes], today: date | None = None) -> Policy:
    """The policy that the files hold, keyed by name or path (the last part names the file: chip.yaml, rules.yaml, …).

    A table whose file is absent is empty. An override whose last day lies before `today` (UTC) holds no longer; None:
    all hold. Raises BadPolicy with all mistakes of all files, a `file:line: reason` each.
    """
    examined = examine(files, today)
    if examined.problems:
        raise bad_policy(examined.problems)
    return examined.policy


def examine(files: Mapping[str, bytes], today: date | None = None) -> Examined:
    """As `load_policy`, with the mistakes as values: nothing is raised, whatever the bytes are."""
    tables: dict[str, dict[int | str, CodeRule]] = {name: {} for name in TABLES}
    resources: frozenset[str] = frozenset()
    rules = Rules()
    overrides: list[OverrideEntry] = []
    problems: list[Problem] = []
    taken: set[str] = set()
    for path, data in files.items():
        file = YamlFile(path, problems)
        name = path.rsplit("/", 1)[-1]
        if name.endswith(".json"):
            file.wrong(1, "a policy file is YAML; `fault-agent policy import` makes one of a file of MindCluster's")
        elif name not in FILES:
            file.wrong(1, f"no policy file is called {name!r}{nearest(name, FILES)}")
        elif name in taken:
            file.wrong(1, f"{name} is given twice")
        elif (root := file.compose(data)) is not None:
            if name == RULES:
                rules = read_rules(file, _document(file, root, RULES_KEYS))
            elif name == OVERRIDES:
                overrides = _overrides(file, root)
            else:
                tables[name], more = _table(file, root, TABLES[name])
                resources |= more
        taken.add(name)
    for entry in overrides:
        if not entry.expired(today):
            lay(entry, tables[TABLE_FILES[entry.table]])
    policy = Policy(
        chip={key: rule for key, rule in tables["chip.yaml"].items() if isinstance(key, int)},
        switch=_by_text(tables["switch.yaml"]),
        node=_by_text(tables["node.yaml"]),
        public=_by_text(tables["public.yaml"]),
        dpu=_by_text(tables["dpu.yaml"]),
        durations=rules.durations,
        frequencies=rules.frequencies,
        relations=rules.relations,
        relation_timeouts=rules.relation_timeouts,
        public_resources=resources,
        unknown_held_level=rules.unknown_held_level,
        ended=tuple(ended for entry in overrides if (ended := entry.ended(today)) is not None),
    )
    return Examined(policy, tuple(problems), tuple(overrides))


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
    row = _row(file, form, text, level, key_node, table)
    if row is None:
        return
    key, code = row
    words: dict[str, str] = {}
    if not is_empty(about):
        for word, _, value in file.pairs(about, f"the note of {text}", META_KEYS):
            words[word] = file.text(value, word) or ""
    table[key] = CodeRule(code, level, file.place(key_node), words.get("meaning", ""), words.get("module", ""))


def _row(
    file: YamlFile, form: TableFormat, text: str, level: str, node: Node, table: Mapping[int | str, CodeRule]
) -> tuple[int | str, str] | None:
    """Key and spelling of a code that may have this level and is not in `table` yet; None after a mistake."""
    key = _key(file, form.source, text, node)
    if key is None:
        return None
    if key in table:
        first = table[key]
        file.wrong(node, f"{shown(text)} is already under {first.level}, line {first.place.rsplit(':', 1)[-1]}")
        return None
    if isinstance(key, int) and key in NETWORK_CODES and level not in NETWORK_LEVELS:
        allowed = ", ".join(NETWORK_LEVELS)
        file.wrong(node, f"{shown(text)} is a network code and cannot be {level}; it may be {allowed}")
        return None
    return key, text if form.source in (Source.LINGQU, Source.PUBLIC, Source.DPU) else text.upper()


def _overrides(file: YamlFile, root: Node) -> list[OverrideEntry]:
    forms = {table: TABLES[name] for table, name in TABLE_FILES.items()}
    top = _document(file, root, ("version", *TABLE_FILES))
    levels = {table: form.levels for table, form in forms.items()}
    return read_overrides(
        file, top, levels, lambda table, text, level, node: _row(file, forms[table], text, level, node, {})
    )


def _key(file: YamlFile, source: Source, text: str, node: Node) -> int | str | None:
    """What the table is keyed by; None after a mistake."""
    if source is Source.DCMI:
        return chip_code(file, text, node)
    if not well_formed(source, text):
        file.wrong(node, f"{shown(text)} is no code of this table: {CODE_SHAPES[source].expected}")
        return None
    return text.upper() if source is Source.IPMI else text


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
