"""The cluster as files: Kubernetes objects in YAML or JSON, as `kubectl get -o yaml` prints them.

Reads a file or a folder with all below it. The one rule: a document that cannot be read costs only itself, and its
finding names file, line and reason.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from agent.adapters.disk import Signature, as_ours, is_settled, signature
from agent.adapters.manifests import Documents, read_documents
from agent.adapters.objects import Key, check_key, from_object
from agent.adapters.polling import Listing, watch_by_listing
from agent.errors import BadDocument, CannotRun, Refused
from agent.ports import ConfigMap

FILE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one file; a dump of a cluster of ten thousand pods stays under it."""
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_DEFAULT_NAMESPACE: Final = "default"

_Tree = tuple[tuple[Path, Signature], ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """What was read at one time: objects, findings, the ConfigMaps, and why others of them cannot be read."""

    objects: tuple[Mapping[str, Any], ...]
    findings: tuple[str, ...]
    maps: Mapping[Key, ConfigMap]
    broken: Mapping[Key, str]
    again: tuple[tuple[str, Mapping[str, Any], str], ...] = ()
    """Objects that are given again later, each with its place and that of the one which counts."""


class ClusterFiles:
    """A JobView over a file or folder. Hidden files and other endings are left alone.

    `static` reads once and never looks again (a replay). An object given twice counts once, as the later file (in
    order of paths) has it, and is a finding.
    """

    def __init__(self, path: Path, *, static: bool = False) -> None:
        self._path = path
        self._static = static
        self._files: dict[Path, tuple[Signature, Documents]] = {}
        self._tree: _Tree | None = None
        self._scanned: tuple[_Tree, Scan] | None = None

    async def snapshot(self) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
        scan = await asyncio.to_thread(self._snapshot)
        return scan.objects, scan.findings

    async def changed(self) -> bool:
        return await asyncio.to_thread(self._changed)

    def configmaps(self, interval: float = 0.5) -> "ClusterConfigMaps":
        """The ConfigMaps among the objects; `watch` looks each `interval` seconds."""
        return ClusterConfigMaps(self.scan, interval)

    def scan(self) -> Scan:
        """Everything as it is now; blocks. Unchanged files are not read again. Raises CannotRun, Unavailable."""
        if self._static and self._scanned is not None:
            return self._scanned[1]
        statuses = self._statuses()
        tree = _tree(statuses)
        if self._scanned is None or self._scanned[0] != tree or not all(map(is_settled, statuses.values())):
            self._scanned = tree, _merge(self._read_files(statuses))
        return self._scanned[1]

    def _snapshot(self) -> Scan:
        # The state of the tree is taken before its files are read: what changes meanwhile is a change after.
        self._tree = _tree(self._statuses())
        return self.scan()

    def _changed(self) -> bool:
        if self._static and self._tree is not None:
            return False
        try:
            tree = _tree(self._statuses())
        except CannotRun:
            # Gone for now; the next snapshot says so.
            tree = ()
        changed, self._tree = tree != self._tree, tree
        return changed

    def _statuses(self) -> dict[Path, os.stat_result]:
        with as_ours(f"read {self._path}"):
            if not self._path.exists():
                raise CannotRun(f"{self._path}: no such file or folder", hint="--cluster names objects in YAML or JSON")
            paths = sorted(_walk(self._path)) if self._path.is_dir() else [self._path]
            statuses = {}
            for path in paths:
                try:
                    statuses[path] = path.stat()
                except FileNotFoundError:
                    continue
        return statuses

    def _read_files(self, statuses: Mapping[Path, os.stat_result]) -> Iterator[Documents]:
        kept: dict[Path, tuple[Signature, Documents]] = {}
        for path, status in statuses.items():
            before = self._files.get(path)
            if before is None or before[0] != signature(status) or not is_settled(status):
                before = signature(status), _read_file(path, status.st_size)
            kept[path] = before
            yield before[1]
        self._files = kept


class ClusterConfigMaps:
    """The read-only DocumentStore of a ClusterFiles; writes are Refused."""

    def __init__(self, scan: Callable[[], Scan], interval: float) -> None:
        self._scan = scan
        self._interval = interval

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        key = check_key(namespace, name)
        scan = await asyncio.to_thread(self._scan)
        if key in scan.broken:
            raise BadDocument(scan.broken[key])
        return scan.maps.get(key)

    async def put(self, document: ConfigMap) -> ConfigMap:
        raise Refused(f"{document.namespace}/{document.name}: the cluster files are read-only", hint="give --out")

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        del resource_version
        raise Refused(f"{namespace}/{name}: the cluster files are read-only", hint="give --out")

    async def list(self) -> Sequence[ConfigMap]:
        return (await self._look())[0]

    async def watch(self) -> AsyncGenerator[tuple[Literal["set", "gone"], ConfigMap], None]:
        changes = watch_by_listing(self._look, self._interval)
        try:
            async for change in changes:
                yield change
        finally:
            await changes.aclose()

    async def _look(self) -> Listing:
        scan = await asyncio.to_thread(self._scan)
        return [scan.maps[key] for key in sorted(scan.maps)], frozenset(scan.broken)


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(folder) / n for n in names if n.endswith(_SUFFIXES) and not n.startswith("."))


def _tree(statuses: Mapping[Path, os.stat_result]) -> _Tree:
    return tuple((path, signature(status)) for path, status in statuses.items())


def _read_file(path: Path, size: int) -> Documents:
    if size > FILE_LIMIT:
        return Documents((), (f"{_shown(path)}: {size} bytes, at most {FILE_LIMIT} are read",))
    try:
        return read_documents(path.read_bytes(), _shown(path))
    except OSError as error:
        return Documents((), (f"{_shown(path)}: cannot be read: {error.strerror}",))


def _shown(path: Path) -> str:
    """A path as it can be told: bytes of a name that are no UTF-8 cannot be printed or written as JSON."""
    return str(path).encode(errors="surrogateescape").decode(errors="replace")


def _merge(files: Iterator[Documents]) -> Scan:
    objects: dict[tuple[str, str, str], tuple[str, Mapping[str, Any]]] = {}
    findings: list[str] = []
    again: list[tuple[str, Mapping[str, Any], tuple[str, str, str]]] = []
    for documents in files:
        findings.extend(documents.findings)
        for place, item in documents.objects:
            meta = item["metadata"]
            identity = str(item["kind"]), str(meta.get("namespace") or ""), str(meta["name"])
            before = objects.pop(identity, None)
            if before is not None:
                again.append((*before, identity))
                findings.append(f"{place}: {'/'.join(identity)} is given again, instead of the one at {before[0]}")
            objects[identity] = place, item
    maps: dict[Key, ConfigMap] = {}
    broken: dict[Key, str] = {}
    for (kind, namespace, name), (place, item) in objects.items():
        if kind != "ConfigMap":
            continue
        key = namespace or _DEFAULT_NAMESPACE, name
        try:
            maps[key] = from_object(item, place, _DEFAULT_NAMESPACE)
        except BadDocument as error:
            findings.append(str(error))
            broken[key] = str(error)
    twice = tuple((place, item, objects[identity][0]) for place, item, identity in again)
    return Scan(tuple(o for _, o in objects.values()), tuple(findings), maps, broken, twice)
