"""A JobView on the API server: pods, PodGroups, nodes and ConfigMaps, kept by watches.

The one rule: nothing is shown before every list is complete. An object waits here as its own bytes, without the
parts nobody reads: ten thousand pods as Python mappings would cost a gigabyte.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Final, Literal

import orjson

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.resources import CONFIG_MAPS, NODES, POD_GROUPS, PODS, Watched
from agent.adapters.kube.watch import USUAL_PACE, KubeWatch, Pace
from agent.errors import Refused, Unavailable

_Key = tuple[str, str, str]
ObjectChange = tuple[Literal["set", "gone"], str, Mapping[str, Any]]
"""What happened, the kind, and the object; of one that is gone at least its names."""

_HEAVY_METADATA: Final = ("managedFields",)
_HEAVY_SPEC: Final = ("volumes", "tolerations", "affinity", "securityContext", "topologySpreadConstraints")
_HEAVY_CONTAINER: Final = (
    "volumeMounts",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "securityContext",
    "lifecycle",
)
_HEAVY_STATUS: Final = ("images", "volumesInUse", "volumesAttached")


def usual_kinds(config_map_labels: str = "", config_map_fields: str = "") -> tuple[Watched, ...]:
    """What the coordinator watches; the selectors are for ConfigMaps, of which most are none of its concern."""
    return (
        Watched(PODS),
        Watched(NODES),
        Watched(POD_GROUPS, optional=True),
        Watched(CONFIG_MAPS, labels=config_map_labels, fields=config_map_fields),
    )


class KubeJobView:
    """The objects of `kinds` as they are now. Open it with `async with`, or `start` and `close`.

    `keep` says which objects are kept at all (all, when None); `complete_seconds` is how long `snapshot` waits for
    the lists.
    """

    def __init__(
        self,
        client: KubeClient,
        kinds: Sequence[Watched],
        *,
        keep: Callable[[Mapping[str, Any]], bool] | None = None,
        pace: Pace = USUAL_PACE,
        complete_seconds: float = 60.0,
    ) -> None:
        self._keep = keep
        self._watches = [(watched, KubeWatch(client, watched, pace)) for watched in kinds]
        self._listed: set[int] = set()
        self._objects: dict[_Key, bytes] = {}
        self._pending: dict[_Key, Literal["set", "gone"]] = {}
        """Changes not taken yet; a key is in it once, so it is bounded by the number of objects."""
        self._too_deep: set[_Key] = set()
        self._absent: frozenset[int] = frozenset()
        self._dirty = True
        self._news = asyncio.Event()
        self._complete = asyncio.Event()
        self._complete_seconds = complete_seconds
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "KubeJobView":
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to list and watch, each kind in a task of its own."""
        self._tasks = [
            asyncio.create_task(self._follow(number, watch), name=f"kube-watch-{watched.resource.plural}")
            for number, (watched, watch) in enumerate(self._watches)
        ]

    async def open(self) -> None:
        """Begin, as an ObjectFeed."""
        self.start()

    async def close(self) -> None:
        """End the watches; idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def complete(self) -> bool:
        """Every list has been read to its end once."""
        return self._complete.is_set()

    @property
    def current(self) -> bool:
        """Complete, and no watch is in trouble: what is shown is at most a moment old."""
        return self.complete and not self.troubles()

    def troubles(self) -> tuple[str, ...]:
        """Per kind that is not up to date, why."""
        return tuple(
            f"{watched}: {watch.error or 'the list is not complete yet'}"
            for number, (watched, watch) in enumerate(self._watches)
            if watch.error is not None or number not in self._listed
        )

    async def snapshot(self) -> tuple[Sequence[Mapping[str, Any]], Sequence[str]]:
        """As the port says; waits for the lists.

        Raises Refused (a right is missing) and Unavailable when they are not complete in time.
        """
        self._check_tasks()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), self._complete_seconds)
        if not self.complete:
            why = "; ".join(self.troubles())
            refused = any(isinstance(watch.error, Refused) for _, watch in self._watches)
            raise (Refused if refused else Unavailable)(f"the cluster's objects are not all read: {why}")
        self._dirty = False
        self._pending.clear()
        self._news.clear()
        objects = [orjson.loads(self._objects[key]) for key in sorted(self._objects)]
        return objects, self.findings()

    def findings(self) -> tuple[str, ...]:
        """A line per kind that the API does not serve, and per object that cannot be read."""
        absent = (
            f"{watched.resource.plural}.{watched.resource.group}: the API serves no such kind; looked for again later"
            for watched, watch in self._watches
            if watch.absent
        )
        too_deep = (
            f"{kind} {namespace}/{name}: is nested too deep to be read"
            for kind, namespace, name in sorted(self._too_deep)
        )
        return (*absent, *too_deep)

    async def changed(self) -> bool:
        self._check_tasks()
        dirty, self._dirty = self._dirty, False
        return dirty

    def changes(self) -> list[ObjectChange]:
        """What changed since this was last asked, or since the last snapshot; each object once, as it is now.

        Apply them to what a snapshot gave instead of taking another one. An object that was deleted and made anew
        meanwhile shows as `set`, with its new uid.
        """
        self._check_tasks()
        taken, self._pending = self._pending, {}
        self._news.clear()
        self._dirty = False
        changes: list[ObjectChange] = []
        for (kind, namespace, name), what in taken.items():
            raw = self._objects.get((kind, namespace, name))
            meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
            item = orjson.loads(raw) if raw is not None else {"kind": kind, "metadata": meta}
            changes.append((what, kind, item))
        return changes

    async def wait(self, seconds: float) -> None:
        """Return when something changed, at the latest after `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), seconds)

    def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """One object as it was last seen; `namespace` empty for a node."""
        raw = self._objects.get((kind, namespace, name))
        return None if raw is None else orjson.loads(raw)

    def uid(self, kind: str, namespace: str, name: str) -> str:
        """The uid of an object, or nothing."""
        item = self.get(kind, namespace, name)
        return str(item["metadata"].get("uid") or "") if item is not None else ""

    async def _follow(self, number: int, watch: KubeWatch) -> None:
        async with aclosing(watch.changes()) as changes:
            async for what, item in changes:
                if what == "listed":
                    self._end_of_list(number)
                else:
                    self._take(what, item)

    def _end_of_list(self, number: int) -> None:
        self._listed.add(number)
        if len(self._listed) == len(self._watches):
            self._complete.set()
        absent = frozenset(n for n, (_, watch) in enumerate(self._watches) if watch.absent)
        if absent != self._absent:
            self._absent = absent
            self._tell()

    def _take(self, what: Literal["set", "gone"], item: Mapping[str, Any]) -> None:
        meta = item["metadata"]
        key = str(item["kind"]), str(meta.get("namespace") or ""), str(meta["name"])
        self._too_deep.discard(key)
        if what == "set" and (self._keep is None or self._keep(item)):
            try:
                self._objects[key] = orjson.dumps(trimmed(item))
            except TypeError:  # more levels than can be written; what was known of it stands
                self._too_deep.add(key)
                return
        elif self._objects.pop(key, None) is not None:
            what = "gone"
        else:
            return
        # Taken out first: the order of the last change of each object is kept.
        self._pending.pop(key, None)
        self._pending[key] = what
        self._tell()

    def _tell(self) -> None:
        self._dirty = True
        self._news.set()

    def _check_tasks(self) -> None:
        """A watch that ended by itself is a fault of ours; say so instead of going on half blind."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()


def trimmed(item: Mapping[str, Any]) -> dict[str, Any]:
    """The object without the bulky parts that say nothing about jobs and devices."""
    small = dict(item)
    small["metadata"] = _without(item["metadata"], _HEAVY_METADATA)
    spec = item.get("spec")
    if isinstance(spec, dict):
        small["spec"] = _without(spec, _HEAVY_SPEC)
        containers = spec.get("containers")
        if isinstance(containers, list):
            small["spec"]["containers"] = [
                _without(one, _HEAVY_CONTAINER) if isinstance(one, dict) else one for one in containers
            ]
    status = item.get("status")
    if isinstance(status, dict):
        small["status"] = _without(status, _HEAVY_STATUS)
    return small


def _without(mapping: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key not in names}
