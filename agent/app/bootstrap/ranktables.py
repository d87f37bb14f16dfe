"""Rank tables as files, on a disk or in the ConfigMaps of a dump, and the objects of a cluster to judge them by.

The one rule: the bytes of a table come out as they are, whatever they hold.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from agent.adapters.clusterfiles import ClusterFiles
from agent.adapters.manifests import read_documents
from agent.domain.hccl import HcclEnv
from agent.domain.jobs import Node, Pod, PodGroup, Stated, job_id, stated_by
from agent.domain.vocab import JobId
from agent.errors import BadDocument, BadUsage, CannotRun
from agent.wire.kubeobjects import RANK_TABLE_KEY, RINGS_PREFIX, parse_object

_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of one file; a table of 65,536 ranks with everything in it has some 20 MB."""


@dataclass(frozen=True, slots=True)
class TableText:
    """The bytes of one table and what it is called: its file; in a dump the ConfigMap and key too, and behind the file
    the line of that key where the table is quoted, so that its own lines count within the key.
    """

    name: str
    raw: bytes
    shift: tuple[int, int] = (0, 0)
    """Lines of the file before it, and columns before each of its lines; both 0 where it is quoted."""


def read_tables(path: Path) -> list[TableText]:
    """The table that a file is, or those in the ConfigMaps of a file of Kubernetes objects (YAML or JSON); of a folder
    those of its files.

    Raises CannotRun when it cannot be read, BadUsage when it holds objects and none of them carries a table.
    """
    if path.is_dir():
        return _in_folder(path)
    try:
        with path.open("rb") as file:
            raw = file.read(_LIMIT + 1)
    except OSError as error:
        raise CannotRun(f"{path} cannot be read: {error.strerror or error}") from error
    if len(raw) > _LIMIT:
        raise CannotRun(f"{path} has more than {_LIMIT} bytes", hint="is it a rank table?")
    if path.suffix not in (".yaml", ".yml") and b'"kind"' not in raw:
        return [TableText(str(path), raw)]
    objects = read_documents(raw, str(path)).objects
    found = _tables(path, objects, raw)
    if objects and not found:
        hint = f"ascend-operator's is {RINGS_PREFIX}<job> with key {RANK_TABLE_KEY}"
        raise BadUsage(f"{path} holds no ConfigMap with a rank table", hint=hint)
    return found or [TableText(str(path), raw)]


def _in_folder(path: Path) -> list[TableText]:
    found: list[TableText] = []
    for one in sorted(path.iterdir()):
        if one.suffix in (".json", ".yaml", ".yml") and one.is_file():
            # A file of other objects is no fault of the folder.
            with suppress(BadUsage):
                found += read_tables(one)
    if not found:
        raise BadUsage(f"no file of {path} holds a rank table", hint="they end in .json, .yaml or .yml")
    return found


def _tables(path: Path, objects: tuple[tuple[str, Mapping[str, Any]], ...], raw: bytes) -> list[TableText]:
    held = [(str(one["metadata"]["name"]), text) for _, one in objects if (text := _text_in(one)) is not None]
    blocks, lines = list(_blocks(raw)), _key_lines(raw)
    found = []
    for number, (name, text) in enumerate(held):
        at = next((n for n, (block, _) in enumerate(blocks) if block == text.rstrip("\n")), None)
        shift = (0, 0) if at is None else blocks.pop(at)[1]  # of equal tables each has its own place
        line = f":{lines[number]}" if at is None and len(lines) == len(held) else ""
        called = f"{path}{line} {name} {RANK_TABLE_KEY}"
        found.append(TableText(called, text.encode("utf-8", "surrogatepass"), shift))
    return found


def _text_in(item: Mapping[str, Any]) -> str | None:
    data = item.get("data")
    text = data.get(RANK_TABLE_KEY) if item.get("kind") == "ConfigMap" and isinstance(data, Mapping) else None
    return text if isinstance(text, str) else None


_IN_YAML: Final = re.compile(rf"^ *[\"']?{re.escape(RANK_TABLE_KEY)}[\"']?[ \t]*:".encode(), re.MULTILINE)
_IN_JSON: Final = re.compile(rf"[{{,]\s*\"{re.escape(RANK_TABLE_KEY)}\"\s*:".encode())


def _key_lines(raw: bytes) -> list[int]:
    """Lines of the file at which the key of a rank table stands; not those of a key that is itself in a quoted text."""
    named = _IN_JSON if raw.lstrip()[:1] in (b"{", b"[") else _IN_YAML
    return [raw.count(b"\n", 0, match.end()) + 1 for match in named.finditer(raw)]


_KEY: Final = re.compile(rf"^ *{re.escape(RANK_TABLE_KEY)}: *\|[-+]?[ \t]*\r?$")


def _blocks(raw: bytes) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each literal block of YAML under the key of a rank table, as a reader would take it, and where it stands."""
    lines = raw.decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines, 1):
        if _KEY.match(line) is None or number == len(lines):
            continue
        indent = len(lines[number]) - len(lines[number].lstrip(" "))
        end = number
        while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" " * indent)):
            end += 1
        if indent:
            yield "\n".join(one[indent:].rstrip("\r") for one in lines[number:end]).rstrip("\n"), (number, indent)


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of a cluster that bear on a rank table, and what could not be read."""

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    stated: Mapping[JobId, Stated]
    """What PodGroups state of their processes."""
    findings: Sequence[str]

    def env(self, pod: Pod, cann: str = "") -> HcclEnv:
        """The environment of a pod: its spec's, then what its job states; `cann` where the job does not state it."""
        stated = (self.stated.get(pod.job) if pod.job is not None else None) or Stated()
        return replace(stated, cann=stated.cann or cann).seen(pod.env, pod.env_complete)


def read_objects(path: Path) -> ClusterObjects:
    """Pods, nodes and PodGroups of a cluster as files. Raises CannotRun, Unavailable."""
    scan = ClusterFiles(path, static=True).scan()
    pods: list[Pod] = []
    nodes: list[Node] = []
    stated: dict[JobId, Stated] = {}
    findings = list(scan.findings)
    for item in scan.objects:
        try:
            found = parse_object(item)
        except BadDocument as error:
            findings.append(str(error))
            continue
        if isinstance(found, Pod):
            pods.append(found)
        elif isinstance(found, Node):
            nodes.append(found)
        elif isinstance(found, PodGroup):
            job = job_id(found.namespace, found.name)
            stated[job] = stated_by(found.annotations)
            findings += [f"PodGroup {job}: {why}" for why in stated[job].problems]
    return ClusterObjects(pods, nodes, stated, findings)
