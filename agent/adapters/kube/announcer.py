"""Events of events.k8s.io/v1 beside pods, nodes and PodGroups: words for people, never data.

The one rule: it is in nobody's way. What is said goes to a bounded queue; one task sends it, and what cannot be sent
is counted.
"""

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.errors import NotFound
from agent.adapters.kube.resources import CONFIG_MAPS, EVENTS, NODES, POD_GROUPS, PODS
from agent.domain.vocab import Millis
from agent.errors import AgentError, Conflict
from agent.ports import Now

REASON_LIMIT: Final = 128
NOTE_LIMIT: Final = 1024
"""What events.k8s.io/v1 takes of a reason and a note, in bytes."""
WAITING_LIMIT: Final = 1000
"""Announcements that wait; more are dropped and counted."""
REMEMBERED: Final = 4096
SEND_SECONDS: Final = 5.0
DEFAULT_NAMESPACE: Final = "default"
"""Where the events of objects without namespace live."""

_VERSIONS: Final = {one.kind: one.api_version for one in (PODS, NODES, POD_GROUPS, CONFIG_MAPS)}


@dataclass(slots=True)
class Tally:
    """What became of the announcements."""

    sent: int = 0
    failed: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class _Said:
    kind: str
    namespace: str
    name: str
    reason: str
    note: str
    warning: bool

    @property
    def key(self) -> str:
        text = "\0".join((self.kind, self.namespace, self.name, self.reason, self.note))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class KubeAnnouncer:
    """An Announcer. Open it with `async with`, or `start` and `close`.

    The same (object, reason, note) again makes no second Event: its count grows, and is written when it has
    doubled. An Event's name is made of what it says, so a restart or another leader does not say it twice either.
    """

    def __init__(
        self,
        client: KubeClient,
        now: Now,
        instance: str,
        *,
        controller: str = "fault-agent",
        uid_of: Callable[[str, str, str], str] | None = None,
        behind_s: float = 0.25,
    ) -> None:
        """`behind_s`: how long after the word an Event is sent, for the documents of the same step go first."""
        self._behind_s = behind_s
        self._client = client
        self._now = now
        self._instance = instance[:128] or controller
        self._controller = controller
        self._uid_of = uid_of
        self._waiting: deque[tuple[_Said, int]] = deque()
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self.tally = Tally()

    async def __aenter__(self) -> "KubeAnnouncer":
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to send."""
        self._task = asyncio.create_task(self._send_all(), name="kube-announcer")

    async def close(self, seconds: float = 2.0) -> None:
        """Send what waits, for at most `seconds`, and end; idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.tally.dropped += len(self._waiting)
        self._waiting.clear()

    async def announce(self, kind: str, namespace: str, name: str, reason: str, note: str, warning: bool) -> None:
        said = _Said(kind, namespace, name, reason, note, warning)
        count = self._counts.pop(said.key, 0) + 1
        self._counts[said.key] = count
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        if count & (count - 1):
            # Counted, and told with the next power of two.
            return
        if len(self._waiting) >= WAITING_LIMIT:
            self.tally.dropped += 1
            return
        self._waiting.append((said, count))
        self._idle.clear()
        self._news.set()

    async def _send_all(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(self._behind_s)
            self._news.clear()
            while self._waiting:
                said, count = self._waiting.popleft()
                try:
                    await self._send(said, count)
                    self.tally.sent += 1
                except AgentError:
                    # Words for people only; the tally is what is watched.
                    self.tally.failed += 1
            self._idle.set()

    async def _send(self, said: _Said, count: int) -> None:
        namespace = said.namespace or DEFAULT_NAMESPACE
        name = f"{said.name[:200]}.{said.key}"
        when = _micro(self._now())
        body = self._body(said, namespace, name, when)
        if count == 1:
            try:
                await self._client.call("create", EVENTS, namespace, body=body, within=SEND_SECONDS)
            except Conflict:
                # Said before this process began.
                count = 2
            else:
                return
        series = {"series": {"count": count, "lastObservedTime": when}}
        try:
            await self._client.call(
                "patch",
                EVENTS,
                namespace,
                name,
                body=series,
                within=SEND_SECONDS,
                content_type="application/merge-patch+json",
            )
        except NotFound:
            # The server forgets Events after an hour.
            await self._client.call("create", EVENTS, namespace, body=body | series, within=SEND_SECONDS)

    def _body(self, said: _Said, namespace: str, name: str, when: str) -> dict[str, Any]:
        regarding = {"kind": said.kind, "name": said.name, "apiVersion": _VERSIONS.get(said.kind, "v1")}
        if said.namespace:
            regarding["namespace"] = said.namespace
        uid = self._uid_of(said.kind, said.namespace, said.name) if self._uid_of is not None else ""
        if uid:
            # Without it `kubectl describe` does not show the Event beside its object.
            regarding["uid"] = uid
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": when,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": _cut(said.reason, REASON_LIMIT) or "Unspecified",
            "reason": _cut(said.reason, REASON_LIMIT) or "Unspecified",
            "note": _cut(said.note, NOTE_LIMIT),
            "type": "Warning" if said.warning else "Normal",
            "regarding": regarding,
        }


def _cut(text: str, limit: int) -> str:
    """At most `limit` bytes in UTF-8, whole characters."""
    raw = text.encode("utf-8", "replace")
    return raw[:limit].decode("utf-8", "ignore")


def _micro(now: Millis) -> str:
    """A MicroTime, as Events have it."""
    moment = datetime.fromtimestamp(now // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now % 1000:03d}000Z"
