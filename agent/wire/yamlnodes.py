"""YAML bytes as nodes: each question about a node is answered, or its mistake noted with file and line.

The one rule: no bytes raise anything here; mistakes are collected, so that a person sees all of them at once. Nodes,
not loaded values, because only nodes know their lines and how a scalar was written: an unquoted 81078603 is a number
to YAML, and an unquoted `off` is a boolean.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from agent.errors import BadPolicy

MAX_BYTES: Final = 10 * 1024 * 1024
"""Largest policy file; the shipped ones are under 100 KiB together."""

_STR: Final = "tag:yaml.org,2002:str"
_NULL: Final = "tag:yaml.org,2002:null"
_INT: Final = "tag:yaml.org,2002:int"
_DAY: Final = "tag:yaml.org,2002:timestamp"
_DAY_SHAPE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_KINDS: Final = {"int": "a number", "float": "a number", "bool": "true or false", "timestamp": "a date"}
_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_Pairs: TypeAlias = Sequence[tuple[str, Node, Node]]
_MOST_LISTED: Final = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in a file: which file, which line (from 1), and why it is one."""

    path: str
    line: int
    reason: str


def bad_policy(problems: Sequence[Problem]) -> BadPolicy:
    """One error that lists all mistakes, each as `file:line: reason`, in the order of the files (at most 1,000)."""
    first, *others = sorted(problems, key=lambda problem: (problem.path, problem.line))
    lines = [first.reason, *(f"{other.path}:{other.line}: {other.reason}" for other in others[: _MOST_LISTED - 1])]
    if len(problems) > _MOST_LISTED:
        lines.append(f"and {len(problems) - _MOST_LISTED} more")
    return BadPolicy("\n".join(lines), place=f"{first.path}:{first.line}")


def nearest(word: str, valid: Iterable[str]) -> str:
    """The end of a message about a wrong name: the one that was probably meant, else all that exist."""
    names = list(valid)
    # Lengths are capped because a comparison costs their product, and the word may be as long as a file.
    close = difflib.get_close_matches(word[:64].lower(), [name.lower() for name in names], n=1, cutoff=0.5)
    meant = [name for name in names if close and name.lower() == close[0]]
    return f"; did you mean {meant[0]!r}?" if meant else f"; there is {', '.join(names)}"


def shown(text: str) -> str:
    """A text in quotes for a message, cut when long."""
    return repr(text if len(text) <= 60 else text[:57] + "…")


def is_empty(node: Node) -> bool:
    """True for a key without a value (`key:`)."""
    return isinstance(node, ScalarNode) and node.tag == _NULL


@dataclass(slots=True)
class YamlFile:
    """One file being read: where its mistakes go, and the questions asked of each node."""

    path: str
    problems: list[Problem]

    def wrong(self, at: Node | int, reason: str) -> None:
        """Note a mistake at a node or a line."""
        line = at if isinstance(at, int) else at.start_mark.line + 1
        self.problems.append(Problem(self.path, line, reason))

    def compose(self, data: bytes) -> Node | None:
        """The one document of the file as nodes; None after a mistake that leaves nothing to walk."""
        if len(data) > MAX_BYTES:
            self.wrong(1, f"the file has {len(data)} bytes; at most {MAX_BYTES} are read")
            return None
        if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
            self.wrong(1, "the file starts with a byte order mark; save it as UTF-8 without one")
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            self.wrong(_line_of(data, error.start), "the bytes are not UTF-8")
            return None
        try:
            root = yaml.compose(text, Loader=yaml.CSafeLoader)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            tab = "; YAML allows no tabs in indentation" if "\t" in _line_text(text, line) else ""
            self.wrong(line, f"not YAML: {error.problem or error.context}{tab}")
            return None
        except yaml.reader.ReaderError as error:
            self.wrong(_line_of(data, error.position), "a control character, which YAML does not allow")
            return None
        except yaml.YAMLError as error:
            self.wrong(1, f"not YAML: {error}")
            return None
        if root is None:
            self.wrong(1, "the file is empty")
            return None
        if _has_alias(root):
            self.wrong(_alias_line(text), "an alias (*name) is not used here; write the value out")
            return None
        return root

    def pairs(self, node: Node, what: str, keys: Sequence[str] | None = None) -> _Pairs:
        """Key, key node and value node of a mapping, in order; each key once and, if `keys` is given, one of them."""
        if not isinstance(node, MappingNode):
            self.wrong(node, f"{what} must be a mapping (key: value)")
            return ()
        lines: dict[str, int] = {}
        pairs: list[tuple[str, Node, Node]] = []
        for key_node, value in node.value:
            key = self.text(key_node, f"a key of {what}")
            if key is None:
                continue
            if key in lines:
                self.wrong(key_node, f"{shown(key)} stands twice in {what}, first in line {lines[key]}")
            elif keys is not None and key not in keys:
                self.wrong(key_node, f"{what} has no key {shown(key)}{nearest(key, keys)}")
            else:
                pairs.append((key, key_node, value))
            lines.setdefault(key, key_node.start_mark.line + 1)
        return pairs

    def items(self, node: Node, what: str) -> Iterator[Node]:
        """The nodes of a list."""
        if isinstance(node, SequenceNode):
            yield from node.value
        else:
            self.wrong(node, f"{what} must be a list")

    def text(self, node: Node, what: str) -> str | None:
        """A scalar that YAML reads as text, one line of printable characters; None after a mistake."""
        if not isinstance(node, ScalarNode):
            brackets = "; a code in brackets is put in quotes" if isinstance(node, SequenceNode) else ""
            self.wrong(node, f"{what} must be text{brackets}")
            return None
        if is_empty(node):
            self.wrong(node, f"{what} is empty")
            return None
        if node.tag != _STR:
            kind = _KINDS.get(node.tag.rsplit(":", 1)[-1], f"type {shown(node.tag)}")
            self.wrong(node, f"YAML reads {shown(node.value)} as {kind}; {what} must be text, put it in quotes")
            return None
        if not node.value or not node.value.isprintable():
            self.wrong(node, f"{what} must be one line of printable text")
            return None
        return str(node.value)

    def number(self, node: Node, what: str, low: int, high: int) -> int | None:
        """A whole number within a range, written plainly and without quotes; None after a mistake."""
        if not isinstance(node, ScalarNode) or node.tag != _INT or not _WHOLE.fullmatch(node.value):
            self.wrong(node, f"{what} must be a whole number from {low} to {high}, without quotes")
            return None
        value = int(node.value)
        if not low <= value <= high:
            self.wrong(node, f"{what} is {value}; it must be from {low} to {high}")
            return None
        return value

    def day(self, node: Node, what: str) -> date | None:
        """A day as `2026-12-31`, with or without quotes; None after a mistake."""
        written = isinstance(node, ScalarNode) and node.tag in (_STR, _DAY) and _DAY_SHAPE.fullmatch(node.value)
        if written:
            try:
                return date.fromisoformat(node.value)
            except ValueError:
                pass
        self.wrong(node, f"{what} must be a day such as 2026-12-31")
        return None

    def level(self, node: Node, what: str, levels: Sequence[str]) -> str | None:
        """One of some level names; None after a mistake."""
        level = self.text(node, what)
        if level is None or level in levels:
            return level
        self.wrong(node, f"{what} cannot be {shown(level)}{nearest(level, levels)}")
        return None

    def place(self, node: Node) -> str:
        """`file:line` of a node."""
        return f"{self.path}:{node.start_mark.line + 1}"


def _line_of(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1


def _line_text(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line - 1] if line <= len(lines) else ""


def _has_alias(root: Node) -> bool:
    """True when a node is reached twice, which also finds a node that contains itself."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            return True
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            todo.extend(node.value)
        elif isinstance(node, MappingNode):
            for pair in node.value:
                todo.extend(pair)
    return False


def _alias_line(text: str) -> int:
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent) and event.start_mark:
            return event.start_mark.line + 1
    return 1
