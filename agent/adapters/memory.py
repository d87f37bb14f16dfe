"""Every port in memory: for tests, for the shadow store of observe mode, and to join both roles in one process.

The one rule: these keep the whole promise of their port, limits and conflicts included. Nothing survives the process.
"""

import asyncio
import copy
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import orjson

from agent.adapters.objects import Key, check, check_key, check_swap, same_content, stamped
from agent.domain.events import Position, Record
from agent.domain.vocab import Millis, NodeName
from agent.errors import AgentError, Conflict, Refused, Unavailable
from agent.ports import Batch, ConfigMap, Control

Change = tuple[Literal["set", "gone"], ConfigMap]


class Failures:
    """Errors ordered in advance; each is raised by the next call of its owner that reaches the outside."""

    def __init__(self) -> None:
        self._before: deque[AgentError] = deque()
        self._after: deque[AgentError] = deque()

    def fail_next(self, *errors: AgentError) -> None:
        """The next calls raise these and do nothing."""
        self._before.extend(errors)

    def lose_answer(self, *errors: AgentError) -> None:
        """The next calls do their work and raise these all the same, as when the answer gets lost on the way."""
        self._after.extend(errors)

    def before(self) -> None:
        """Called by the owner before it does anything."""
        if self._before:
            raise self._before.popleft()

    def after(self) -> None:
        """Called by the owner once the work is done."""
        if self._after:
            raise self._after.popleft()


class MemoryFaultSource:
    """A FaultSource over a list that may grow. Items keep the positions they come with."""

    def __init__(self, items: Iterable[Record | Control] = (), *, generation: int = 0, partition: int = 0) -> None:
        self._items = list(items)
        self._generation = generation
        self._partition = partition
        self._next = 0
        self._notices: list[str] = []
        self._more = asyncio.Event()
        self.failures = Failures()
        self.finished = False
        """Set by the owner when nothing more will be added."""

    def append(self, item: Record | Control) -> None:
        """Add an item that brings its own position."""
        self._items.append(item)
        self._more.set()

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes], ...] = (),
        timestamp: Millis = Millis(0),
    ) -> Record:
        """Add a record at the next position and return it. `timestamp` in ms."""
        record = Record(Position(self._generation, self._partition, len(self._items)), key, value, headers, timestamp)
        self.append(record)
        return record

    def recreate(self, items: Iterable[Record | Control] = ()) -> None:
        """The stream is made anew, as a deleted and recreated topic: what was left unread is gone."""
        self._generation += 1
        self._items = list(items)
        self._next = 0
        self._notices.append(f"the stream was made anew; reading generation {self._generation} from its beginning")
        self._more.set()

    async def open(self, resume: bytes | None) -> None:
        self.failures.before()
        self._next = 0
        self._notices = []
        if resume is None:
            return
        token = orjson.loads(resume)
        if token["generation"] == self._generation:
            self._next = token["next"]
        else:
            self._notices = [
                f"generation {token['generation']} is gone; reading generation {self._generation} from its beginning"
            ]

    async def read(self, limit: int) -> Batch:
        self.failures.before()
        items = tuple(self._items[self._next : self._next + limit])
        self._next += len(items)
        notices, self._notices = tuple(self._notices), []
        at_end = self._next >= len(self._items)
        if at_end:
            self._more.clear()
        resume = orjson.dumps({"generation": self._generation, "next": self._next})
        return Batch(items, resume, at_end, notices)

    async def wait(self, seconds: float) -> None:
        if self._next < len(self._items):
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._more.wait(), seconds)

    async def close(self) -> None:
        """Nothing to let go of; may be called again."""


class MemoryReportLog:
    """A ReportLog in a dict."""

    def __init__(self) -> None:
        self._reports: dict[NodeName, bytes] = {}
        self.failures = Failures()

    async def publish(self, reports: Mapping[NodeName, bytes]) -> None:
        self.failures.before()
        self._reports.update(reports)
        self.failures.after()

    async def latest(self) -> Mapping[NodeName, bytes]:
        self.failures.before()
        return dict(self._reports)


class _Objects:
    """What writers of one memory cluster share: the objects, one version counter, the watchers."""

    def __init__(self) -> None:
        self.stored: dict[Key, ConfigMap] = {}
        self.versions = itertools.count(1)
        self.watchers: set[asyncio.Queue[Change]] = set()

    def tell(self, change: Literal["set", "gone"], document: ConfigMap) -> None:
        for watcher in self.watchers:
            watcher.put_nowait((change, document))


class MemoryDocumentStore:
    """A DocumentStore in a dict, with the API server's rules. `manager` is the name this writer goes by."""

    def __init__(self, documents: Iterable[ConfigMap] = (), *, manager: str = "fault-agent") -> None:
        self._objects = _Objects()
        self._manager = manager
        self.failures = Failures()
        for document in documents:
            self._store(document, None)

    def as_manager(self, manager: str) -> "MemoryDocumentStore":
        """Another writer of the same objects, with failures of its own."""
        other = MemoryDocumentStore(manager=manager)
        other._objects = self._objects
        return other

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        self.failures.before()
        return self._objects.stored.get(check_key(namespace, name))

    async def put(self, document: ConfigMap) -> ConfigMap:
        self.failures.before()
        check(document)
        live = self._objects.stored.get((document.namespace, document.name))
        check_swap(document, live)
        stored = live if live is not None and same_content(document, live) else self._store(document, live)
        self.failures.after()
        return stored

    async def delete(self, namespace: str, name: str, resource_version: str) -> None:
        self.failures.before()
        key = check_key(namespace, name)
        live = self._objects.stored.get(key)
        if live is not None:
            if live.resource_version != resource_version:
                raise Conflict(f"{namespace}/{name}: at version {live.resource_version}, not {resource_version}")
            del self._objects.stored[key]
            self._objects.tell("gone", live)
        self.failures.after()

    async def list(self) -> Sequence[ConfigMap]:
        self.failures.before()
        return [self._objects.stored[key] for key in sorted(self._objects.stored)]

    async def watch(self) -> AsyncGenerator[Change, None]:
        changes: asyncio.Queue[Change] = asyncio.Queue()
        for key in sorted(self._objects.stored):
            changes.put_nowait(("set", self._objects.stored[key]))
        self._objects.watchers.add(changes)
        try:
            while True:
                yield await changes.get()
        finally:
            self._objects.watchers.discard(changes)

    def _store(self, document: ConfigMap, live: ConfigMap | None) -> ConfigMap:
        stored = stamped(document, live, str(next(self._objects.versions)), self._manager)
        self._objects.stored[document.namespace, document.name] = stored
        self._objects.tell("set", stored)
        return stored


class MemoryJournal:
    """A Journal in a list."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self.failures = Failures()

    async def append(self, lines: Sequence[bytes]) -> None:
        self.failures.before()
        if any(b"\n" in line for line in lines):
            raise Refused("a journal line holds a newline")
        self._lines.extend(lines)
        self.failures.after()

    async def read(self) -> Sequence[bytes]:
        self.failures.before()
        return list(self._lines)


class MemoryCabinet:
    """A Cabinet in a dict."""

    def __init__(self) -> None:
        self._states: dict[str, bytes] = {}
        self.failures = Failures()

    async def load(self, name: str) -> bytes | None:
        self.failures.before()
        return self._states.get(name)

    async def store(self, name: str, data: bytes) -> None:
        self.failures.before()
        self._states[name] = data
        self.failures.after()


class MemoryJobView:
    """A JobView over objects given by hand or by the control lines of a record file."""

    def __init__(self, objects: Iterable[Mapping[str, Any]] = ()) -> None:
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._findings: list[str] = []
        self._dirty = True
        self.failures = Failures()
        for item in objects:
            self.apply(item)

    def apply(self, item: Mapping[str, Any]) -> None:
        """Set one object, known by kind, namespace and name. Raises Refused when it has no kind or name."""
        meta = item.get("metadata")
        name = meta.get("name") if isinstance(meta, Mapping) else None
        if not isinstance(meta, Mapping) or not isinstance(name, str) or not isinstance(item.get("kind"), str):
            raise Refused("an object without kind or metadata.name cannot be applied")
        self._objects[item["kind"], str(meta.get("namespace") or ""), name] = copy.deepcopy(dict(item))
        self._dirty = True

    def delete(self, kind: str, namespace: str, name: str) -> bool:
        """Take one object away; whether it was there."""
        found = self._objects.pop((kind, namespace, name), None) is not None
        self._dirty = self._dirty or found
        return found

    def find(self, finding: str) -> None:
        """Add a finding, as an unreadable file would give one."""
        self._findings.append(finding)
        self._dirty = True

    async def snapshot(self) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
        self.failures.before()
        self._dirty = False
        return [copy.deepcopy(self._objects[key]) for key in sorted(self._objects)], tuple(self._findings)

    async def changed(self) -> bool:
        dirty, self._dirty = self._dirty, False
        return dirty


class MemoryLinkProbe:
    """A LinkProbe that answers what it was told to; a die nobody told of fails, as one that is not there."""

    def __init__(self, answers: Mapping[int, bytes] | None = None) -> None:
        self.answers = dict(answers or {})
        self.failures = Failures()
        self.asked: list[int] = []

    async def ask(self, device: int) -> bytes:
        self.asked.append(device)
        self.failures.before()
        answer = self.answers.get(device)
        if answer is None:
            raise Unavailable(f"device {device}: exit code 1")
        return answer

    async def close(self) -> None:
        return None
