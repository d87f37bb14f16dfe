"""State as files: ConfigMaps, node reports, journals and small states in folders that people can read.

The store of the embedded run and of `--out`. The one rule: a file is whole at every moment, whoever is killed when,
and two processes on one folder never lose each other's write. Report logs, cabinets and document stores each want a
root of their own.
"""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from agent.adapters.disk import (
    Folder,
    Signature,
    as_ours,
    hold,
    is_settled,
    read_or_none,
    signature,
    write_all,
)
from agent.adapters.objects import (
    Key,
    check,
    check_key,
    check_swap,
    from_object,
    is_label,
    is_subdomain,
    same_content,
    stamped,
    to_bytes,
    to_object,
)
from agent.adapters.polling import Listing, watch_by_listing
from agent.domain.vocab import NodeName
from agent.errors import BadDocument, Conflict, Refused
from agent.ports import ConfigMap

_NODE: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_STATE: Final = re.compile(r"[a-z0-9][a-zA-Z0-9._-]{0,200}")
_COUNTER_BYTES: Final = 32


class DirectoryDocumentStore:
    """ConfigMaps as `<root>/<namespace>/<name>.json`, as `kubectl get cm -o json` prints them.

    `manager` is recorded in managedFields; `durable=False` leaves out fsync; `interval` is how often `watch` looks,
    in seconds. Versions count up over the whole root and are never given twice.
    """

    def __init__(
        self, root: Path, *, manager: str = "fault-agent", durable: bool = True, interval: float = 0.5
    ) -> None:
        self._folder = Folder(root, durable=durable)
        self._root = root
        self._manager = manager
        self._interval = interval
        self._seen: dict[Key, tuple[Signature, ConfigMap]] = {}
        self._findings: tuple[str, ...] = ()

    def findings(self) -> Sequence[str]:
        """What the last listing left out, and why."""
        return self._findings

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        key = check_key(namespace, name)
        return await asyncio.to_thread(lambda: self._read(key)[0])

    async def put(self, document: ConfigMap) -> ConfigMap:
        check(document)
        return await asyncio.to_thread(self._put, document)

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        key = check_key(namespace, name)
        await asyncio.to_thread(self._delete, key, resource_version)

    async def list(self) -> Sequence[ConfigMap]:
        return (await asyncio.to_thread(self._list))[0]

    async def watch(self) -> AsyncGenerator[tuple[Literal["set", "gone"], ConfigMap], None]:
        async def look() -> Listing:
            return await asyncio.to_thread(self._list)

        changes = watch_by_listing(look, self._interval)
        try:
            async for change in changes:
                yield change
        finally:
            await changes.aclose()

    def _path(self, key: Key) -> Path:
        return self._root / key[0] / f"{key[1]}.json"

    def _read(self, key: Key) -> tuple[ConfigMap | None, tuple[Mapping[str, Any], ...]]:
        path = self._path(key)
        raw = read_or_none(path)
        if raw is None:
            return None, ()
        try:
            item = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise BadDocument(f"no JSON: {error}", place=f"{path}:{error.lineno}") from error
        if not isinstance(item, dict):
            raise BadDocument("no JSON object", place=str(path))
        document = from_object(item, str(path), key[0])
        if (document.namespace, document.name) != key:
            raise BadDocument(f"holds {document.namespace}/{document.name}, not what its path says", place=str(path))
        return document, tuple(item["metadata"].get("managedFields") or ())

    def _read_to_change(self, key: Key) -> tuple[ConfigMap | None, tuple[Mapping[str, Any], ...]]:
        try:
            return self._read(key)
        except BadDocument as error:
            raise Conflict(f"{key[0]}/{key[1]}: exists already and cannot be read: {error}") from error

    def _put(self, document: ConfigMap) -> ConfigMap:
        key = document.namespace, document.name
        with self._folder.locked() as lock:
            live, fields = self._read_to_change(key)
            check_swap(document, live)
            if live is not None and same_content(document, live):
                return live
            with as_ours(f"write {self._path(key)}"):
                stored = stamped(document, live, str(self._next_version(lock, live, document)), self._manager)
                self._folder.replace(self._path(key), to_bytes(to_object(stored, fields)))
        return stored

    def _delete(self, key: Key, resource_version: str) -> None:
        with self._folder.locked():
            live, _ = self._read_to_change(key)
            if live is None:
                return
            if live.resource_version != resource_version:
                raise Conflict(f"{key[0]}/{key[1]}: at version {live.resource_version}, not {resource_version}")
            with as_ours(f"delete {self._path(key)}"):
                self._folder.remove(self._path(key))

    def _next_version(self, lock: int, live: ConfigMap | None, document: ConfigMap) -> int:
        """Count up in the lock file; objects brought in with a version of their own push the count past it."""
        counted = os.pread(lock, _COUNTER_BYTES, 0)
        last = int(counted) if counted.strip().isdigit() else max(map(_number, self._list()[0]), default=0)
        version = max(last, _number(live or document)) + 1
        os.pwrite(lock, f"{version:>{_COUNTER_BYTES - 1}}\n".encode(), 0)
        return version

    def _list(self) -> Listing:
        documents: list[ConfigMap] = []
        unreadable: set[Key] = set()
        findings: list[str] = []
        seen: dict[Key, tuple[Signature, ConfigMap]] = {}
        with as_ours(f"list {self._root}"):
            found = _walk(self._root, findings)
        for key, status in found.items():
            before = self._seen.get(key)
            if before is not None and before[0] == signature(status) and is_settled(status):
                document: ConfigMap | None = before[1]
            else:
                try:
                    document, _ = self._read(key)
                except (BadDocument, Refused) as error:
                    findings.append(str(error))
                    unreadable.add(key)
                    continue
            if document is not None:
                documents.append(document)
                seen[key] = signature(status), document
        self._seen = seen
        self._findings = tuple(findings)
        return documents, frozenset(unreadable)


class DirectoryReportLog:
    """Node reports as `<root>/reports/<node>.json`, the bytes as they were published."""

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        self._folder = Folder(root / "reports", durable=durable)

    async def publish(self, reports: Mapping[NodeName, bytes]) -> None:
        for node in reports:
            if _NODE.fullmatch(node) is None:
                raise Refused(f"{node!r} is no node name")
        if reports:
            await asyncio.to_thread(self._publish, reports)

    async def latest(self) -> Mapping[NodeName, bytes]:
        return await asyncio.to_thread(self._latest)

    def _publish(self, reports: Mapping[NodeName, bytes]) -> None:
        with self._folder.locked(), as_ours(f"publish reports to {self._folder.root}"):
            self._folder.replace_all({self._folder.root / f"{node}.json": data for node, data in reports.items()})

    def _latest(self) -> Mapping[NodeName, bytes]:
        with as_ours(f"read reports of {self._folder.root}"):
            names = sorted(os.listdir(self._folder.root)) if self._folder.root.is_dir() else []
        reports: dict[NodeName, bytes] = {}
        for name in names:
            node = name.removesuffix(".json")
            if node == name or _NODE.fullmatch(node) is None:
                continue
            data = read_or_none(self._folder.root / name)
            if data is not None:
                reports[NodeName(node)] = data
        return reports


class DirectoryCabinet:
    """States as `<root>/<name>`."""

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        self._folder = Folder(root, durable=durable)

    async def load(self, name: str) -> bytes | None:
        path = self._path(name)
        return await asyncio.to_thread(read_or_none, path)

    async def store(self, name: str, data: bytes) -> None:
        await asyncio.to_thread(self._store, self._path(name), data)

    def _path(self, name: str) -> Path:
        if _STATE.fullmatch(name) is None:
            raise Refused(f"{name!r} is no name of a state")
        return self._folder.root / name

    def _store(self, path: Path, data: bytes) -> None:
        with self._folder.locked(), as_ours(f"write {path}"):
            self._folder.replace(path, data)


class DirectoryJournal:
    """A Journal in one file. A line that a crash tore is moved to `<path>.torn` at the next append and reported."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        self._folder = Folder(path.parent, durable=durable)
        self._findings: list[str] = []

    def findings(self) -> Sequence[str]:
        """Torn lines this journal has met, and where they are kept."""
        return tuple(self._findings)

    async def append(self, lines: Sequence[bytes]) -> None:
        if any(b"\n" in line for line in lines):
            raise Refused(f"{self._path}: a journal line holds a newline")
        if lines:
            await asyncio.to_thread(self._append, b"".join(line + b"\n" for line in lines))

    async def read(self) -> Sequence[bytes]:
        raw = await asyncio.to_thread(read_or_none, self._path) or b""
        return raw[: raw.rfind(b"\n") + 1].split(b"\n")[:-1]

    def _append(self, data: bytes) -> None:
        with as_ours(f"append to {self._path}"):
            self._folder.make(self._path.parent)
            is_new = not self._path.exists()
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                hold(descriptor, self._path)
                self._close_torn(descriptor)
                self._write(descriptor, data)
            finally:
                os.close(descriptor)
            if is_new:
                self._folder.sync(self._path.parent)

    def _write(self, descriptor: int, data: bytes) -> None:
        """All of the lines or none: who is told that it failed appends them again, and none may then stand twice."""
        size = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, data)
            if self._folder.durable:
                os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def _close_torn(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
            return
        raw = self._path.read_bytes()
        whole = raw.rfind(b"\n") + 1
        beside = self._path.with_name(f"{self._path.name}.torn")
        # Kept before it is cut off: a crash between the two keeps it twice, never not at all.
        with beside.open("ab") as torn:
            torn.write(raw[whole:] + b"\n")
            torn.flush()
            if self._folder.durable:
                os.fsync(torn.fileno())
        self._folder.sync(beside.parent)
        os.ftruncate(descriptor, whole)
        self._findings.append(f"{self._path}: a torn last line of {size - whole} bytes was moved to {beside}")


def _walk(root: Path, findings: list[str]) -> dict[Key, os.stat_result]:
    """The document files there are, sorted by namespace and name; temporary and other files are not seen."""
    found: dict[Key, os.stat_result] = {}
    if not root.is_dir():
        return found
    for namespace in sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and is_label(entry.name)):
        files = {
            entry.name.removesuffix(".json"): entry
            for entry in os.scandir(root / namespace)
            if entry.name.endswith(".json") and not entry.name.startswith(".") and entry.is_file()
        }
        for name in sorted(files):
            if not is_subdomain(name):
                findings.append(f"{files[name].path}: {name!r} is no DNS-1123 subdomain")
                continue
            # A file may go between the listing and the look at it.
            with suppress(FileNotFoundError):
                found[namespace, name] = files[name].stat()
    return found


def _number(document: ConfigMap) -> int:
    version = document.resource_version
    return int(version) if version.isascii() and version.isdigit() and len(version) < 19 else 0
