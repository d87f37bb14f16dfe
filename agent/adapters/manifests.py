"""Kubernetes objects out of the text of one file: YAML documents, JSON, Lists.

The one rule: only plain values come out (mappings with text keys, lists, text, numbers, booleans, null), however the
text is made; aliases cannot blow it up.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import orjson
import yaml

from agent.errors import BadDocument

DEPTH_LIMIT: Final = 100
EXPANSION_LIMIT: Final = 10
"""Values per character of text. Without aliases there is at most one; a bomb has thousands."""
_SPARE: Final = 1_000
_MARKER: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Documents:
    """The objects of one file with `file:line` or `file` each, and a finding for each that is none."""

    objects: tuple[tuple[str, Mapping[str, Any]], ...]
    findings: tuple[str, ...]


def read_documents(raw: bytes, place: str) -> Documents:
    """Every object of a file named `place`; by its ending JSON, else YAML. Lists are taken apart. Never raises."""
    objects: list[tuple[str, Mapping[str, Any]]] = []
    findings: list[str] = []
    try:
        for where, read in _parts(raw, place):
            try:
                document = read()
            except BadDocument as error:
                findings.append(str(error))
                continue
            if document is not None:
                _collect(document, where, objects, findings)
    except BadDocument as error:
        findings.append(str(error))
    return Documents(tuple(objects), tuple(findings))


class _Part:
    """One document of a file, not parsed yet."""

    def __init__(self, text: str, place: str, line: int) -> None:
        self._text = text
        self._place = place
        self._line = line

    def __call__(self) -> Any:
        try:
            value = yaml.load(self._text, Loader=_Loader)  # a SafeLoader
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = self._line + (mark.line if mark else 0)
            raise BadDocument(f"no YAML: {error.problem or error.context}", place=f"{self._place}:{line}") from error
        except Exception as error:  # a tag that no value fits (!!timestamp x) fails in any way
            said = f"no YAML that can be read: {type(error).__name__}: {error}"
            raise BadDocument(said, place=f"{self._place}:{self._line}") from error
        _check_plain(value, EXPANSION_LIMIT * len(self._text) + _SPARE, f"{self._place}:{self._line}")
        return value


def _parts(raw: bytes, place: str) -> Iterator[tuple[str, Any]]:
    if place.endswith(".json"):
        yield place, lambda: _json(raw, place)
        return
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadDocument("is not UTF-8", place=f"{place}:{line}") from error
    # Documents are cut apart before they are parsed: a mistake in one must not hide those after it. A marker at
    # the start of a line ends a document wherever it stands, so cutting there is what a parser does too.
    line = 1
    for start, end in pairwise([0, *(match.start() for match in _MARKER.finditer(text)), len(text)]):
        chunk = text[start:end]
        body = chunk[3:] if _MARKER.match(chunk) else chunk
        if any(row.strip() and row.lstrip()[0] not in "#%" for row in body.splitlines()):
            first = line + chunk[: len(chunk) - len(body.lstrip())].count("\n")
            yield f"{place}:{first}", _Part(chunk, place, line)
        line += chunk.count("\n")


def _json(raw: bytes, place: str) -> Any:
    try:
        return orjson.loads(raw.removeprefix(b"\xef\xbb\xbf")) if raw.strip() else None
    except orjson.JSONDecodeError as error:
        raise BadDocument(f"no JSON: {error.msg}", place=f"{place}:{error.lineno}") from error


def _collect(
    document: Any, place: str, objects: list[tuple[str, Mapping[str, Any]]], findings: list[str], path: str = ""
) -> None:
    where = f"{place}{' ' if path else ''}{path}"
    if not isinstance(document, dict):
        findings.append(f"{where}: no Kubernetes object but {_kind_of(document)}")
        return
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        findings.append(f"{where}: /kind is missing or no text")
        return
    items = document.get("items")
    if kind.endswith("List") and isinstance(items, list):
        # Items of a typed list (PodList) name neither kind nor version; the list does.
        of_list = {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion")}
        for index, item in enumerate(items):
            whole = {**of_list, **item} if isinstance(item, dict) and kind != "List" else item
            _collect(whole, place, objects, findings, f"{path}/items/{index}")
        return
    meta = document.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    namespace = meta.get("namespace") if isinstance(meta, dict) else None
    if not isinstance(name, str) or not name:
        findings.append(f"{where}: /metadata/name of a {kind} is missing or no text")
    elif namespace is not None and not isinstance(namespace, str):
        findings.append(f"{where}: /metadata/namespace of {kind} {name} is no text")
    else:
        objects.append((where, document))


def _kind_of(value: Any) -> str:
    return {list: "a list", str: "text", bool: "a boolean", type(None): "null"}.get(type(value), "a number")


def _check_plain(value: Any, budget: int, place: str) -> None:
    """Walk a parsed document as a reader would, each alias as often as it is used, within a budget.

    Raises BadDocument.
    """
    waiting = [(value, 0)]
    while waiting:
        current, depth = waiting.pop()
        budget -= 1
        if budget < 0:
            raise BadDocument("aliases expand to too much", place=place)
        if depth > DEPTH_LIMIT:
            raise BadDocument(f"is nested deeper than {DEPTH_LIMIT}", place=place)
        if isinstance(current, dict):
            for key, inner in current.items():
                if not isinstance(key, str):
                    raise BadDocument(f"key {key!r} is no text", place=place, hint="quote it")
                if key == "<<":
                    # Merges copy, so that nested ones grow without bound before anybody can count.
                    raise BadDocument("merge keys (<<) are not read", place=place, hint="write the keys out")
                waiting.append((inner, depth + 1))
        elif isinstance(current, list):
            waiting.extend((inner, depth + 1) for inner in current)
        elif current is not None and not isinstance(current, str | int | float):
            raise BadDocument(f"holds a {type(current).__name__}, which JSON has not", place=place)


_UNRESOLVED: Final = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge"})
_Loader: Any = type(
    "_Loader",
    (getattr(yaml, "CSafeLoader", yaml.SafeLoader),),
    {
        "__doc__": """SafeLoader that leaves times as text, as Kubernetes does, and expands no merge keys.""",
        "yaml_implicit_resolvers": {
            first: [(tag, pattern) for tag, pattern in resolvers if tag not in _UNRESOLVED]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        },
    },
)
