"""One slot per document: render onto the live object, compare-and-swap, say what came of it.

The one rule: a document is rendered inside the retry, onto the version that the write then names, so entries of others
survive and a lost race costs a second look, not a lost write.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from agent.domain.vocab import Mode, Reason
from agent.errors import AgentError, BadDocument, Verdict
from agent.ports import ConfigMap

CONFLICT_TRIES = 8
"""Lost races in a row before the document waits for its next cause; a fighting writer is met without a fight."""
CLUSTER_ANNOTATION = "fault-agent/cluster"
"""On every document that we have written: the cluster.id of the agent that writes it. An agent of another id leaves it
alone, whatever the settings say of other writers; `fault-agent release` takes it off."""

NODES_ANNOTATION = "fault-agent/fault-node"
"""On vcjob-fault-npu-cm: the checksum of a `fault-node` in which every element is ours. Without it, or where the text
is another one by now, an element about a node that nobody knows any more may be somebody else's."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a document should hold now. `data` None: leave it alone, for this reason."""

    reason: Reason
    data: Mapping[str, str] | None = None
    """Our keys with their new values; foreign keys of the live object stay."""
    detail: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Given to a document that we create; a live object keeps its own."""
    owner: Mapping[str, str] | None = None
    """ownerReference for a document that we create."""
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    """Written with the data; None: taken off."""


Render = Callable[[ConfigMap | None], Rendered]


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one slot."""

    namespace: str
    name: str
    reason: Reason
    detail: str = ""
    changed: bool = False
    live: ConfigMap | None = None
    """The object as it is stored now."""

    @property
    def place(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def claimed_by_other(live: ConfigMap | None, cluster: str) -> str:
    """The cluster.id of another agent that the document says it is written by; empty: none."""
    owner = live.annotations.get(CLUSTER_ANNOTATION, "") if live is not None else ""
    return owner if owner != cluster else ""


def is_claimed(live: ConfigMap | None, cluster: str) -> bool:
    """Whether the document says that this agent writes it."""
    return live is not None and live.annotations.get(CLUSTER_ANNOTATION) == cluster


class Documents(Protocol):
    """What a publisher asks of a DocumentStore; the object that `get` gives may be the one last seen."""

    async def get(self, namespace: str, name: str) -> ConfigMap | None:
        """The document, or None. Raises BadDocument, Unavailable, Refused."""
        ...

    async def put(self, document: ConfigMap) -> ConfigMap:
        """As it is stored. Raises Conflict when another version stands there, Unavailable, Refused, Fenced."""
        ...


class Publisher:
    """Writes through a store; a document that was refused is parked by itself and the others go on."""

    def __init__(self, store: Documents, cluster: str) -> None:
        """`cluster`: this agent's cluster.id."""
        self._store = store
        self._cluster = cluster

    async def publish(self, namespace: str, name: str, render: Render, mode: Mode = Mode.ACT) -> Published:
        """Bring one document to what `render` wants of the live object.

        Errors that park come back as DOCUMENT_UNREADABLE or DOCUMENT_REFUSED with their text. Raises, after
        CONFLICT_TRIES, Conflict and Unavailable (the caller tries again with the newest state), and Fenced.
        """
        if mode is Mode.DISABLED:
            return Published(namespace, name, Reason.DISABLED)
        return await _settled(namespace, name, lambda: self._once(namespace, name, render, mode))

    async def _once(self, namespace: str, name: str, render: Render, mode: Mode) -> Published:
        live = await self._store.get(namespace, name)
        other = claimed_by_other(live, self._cluster)
        if other:
            detail = (
                f"the agent of cluster {other!r} writes it (annotation {CLUSTER_ANNOTATION}), this one is of"
                f" {self._cluster!r}; it is left alone until that one lets go of it (fault-agent release)"
            )
            return Published(namespace, name, Reason.FOREIGN_WRITER_LIVE, detail, live=live)
        wanted = render(live)
        if wanted.data is None:
            return Published(namespace, name, wanted.reason, wanted.detail, live=live)
        base = live or ConfigMap(
            namespace,
            name,
            labels=wanted.labels,
            extra={"ownerReferences": [dict(wanted.owner)]} if wanted.owner else {},
        )
        marks = {**wanted.annotations, CLUSTER_ANNOTATION: self._cluster}
        marked = {key: value for key, value in {**base.annotations, **marks}.items() if value is not None}
        target = replace(base, data={**base.data, **wanted.data}, annotations=marked)
        right = live is not None and target.data == live.data
        if right and (mode is Mode.OBSERVE or target.annotations == base.annotations):
            return Published(namespace, name, Reason.UNCHANGED, wanted.detail, live=live)
        if mode is Mode.OBSERVE:
            return Published(namespace, name, Reason.OBSERVE, wanted.detail or "would change", live=live)
        stored = await self._store.put(target)
        put = [key for key in marks if target.annotations.get(key) != base.annotations.get(key)]
        detail = f"as it was, with annotation {' and '.join(sorted(put))}" if right else wanted.detail
        return Published(namespace, name, Reason.WRITTEN, detail, changed=True, live=stored)


async def let_go(store: Documents, namespace: str, name: str, cluster: str) -> Published:
    """Take this agent's claim off a document; what it holds stays. Another agent's claim is left alone.

    Errors as `publish` has them.
    """

    async def once() -> Published:
        live = await store.get(namespace, name)
        if live is None or not is_claimed(live, cluster):
            return Published(namespace, name, Reason.UNCHANGED, live=live)
        ours = (CLUSTER_ANNOTATION, NODES_ANNOTATION)
        rest = {key: value for key, value in live.annotations.items() if key not in ours}
        stored = await store.put(replace(live, annotations=rest))
        return Published(namespace, name, Reason.WRITTEN, changed=True, live=stored)

    return await _settled(namespace, name, once)


async def _settled(namespace: str, name: str, once: Callable[[], Awaitable[Published]]) -> Published:
    """What came of one slot after tries enough; see `Publisher.publish` for the errors."""
    try:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(lambda error: getattr(error, "verdict", None) is Verdict.RETRY),
            stop=stop_after_attempt(CONFLICT_TRIES),
            wait=wait_random_exponential(multiplier=0.01, max=0.5),
            reraise=True,
        ):
            with attempt:
                return await once()
    except BadDocument as error:
        return Published(namespace, name, Reason.DOCUMENT_UNREADABLE, str(error))
    except AgentError as error:
        if error.verdict is not Verdict.PARK:
            raise
        return Published(namespace, name, Reason.DOCUMENT_REFUSED, str(error))
    raise AssertionError("the retry either returns or raises")
