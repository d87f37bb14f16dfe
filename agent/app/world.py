"""The cluster's objects as they stand now, kept in step with the job book.

The one rule: an object that cannot be read costs itself and a finding; the rest goes on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from agent.domain.cluster import ClusterBook
from agent.domain.isolation import Isolation
from agent.domain.jobs import Node, Pod, PodGroup, RankTableFacts, ServerFacts
from agent.domain.jobs.book import Touched
from agent.domain.ranktable import RankTable
from agent.domain.vocab import NodeName
from agent.errors import BadDocument
from agent.wire import isolationfile, schedulerfile
from agent.wire.kubeobjects import RINGS_PREFIX, ConfigMapObject, OwnerJob, items_of, parse_object, rank_table_text
from agent.wire.ranktablecheck import ambiguity
from agent.wire.ranktablefile import parse_rank_table

NODE_INFO = "mindx-dl-nodeinfo-"
NODE_INFO_NAMESPACE = "mindx-dl"
MOST_COMPLAINTS = 1000


_Key = tuple[str, str, str]


@dataclass(slots=True)
class World:
    """What is known of pods, PodGroups, nodes and rank tables."""

    book: ClusterBook
    remembers: bool = True
    """Keep what `apply` and `delete` brought, to lay it over the next `replace`; needless where every change comes in
    by itself, and then it would hold every object twice."""
    findings: list[str] = field(default_factory=list)
    scheduler: schedulerfile.Scheduler | None = None
    """How Volcano's scheduler is configured; None: its ConfigMap was not seen or cannot be read."""
    _base: dict[_Key, Mapping[str, Any]] = field(default_factory=dict)
    _laid: dict[_Key, Mapping[str, Any] | None] = field(default_factory=dict)
    """What the stream has applied or (None) deleted on top of the cluster's own objects."""
    _serials: dict[str, str] = field(default_factory=dict)
    _known_findings: frozenset[str] | None = None
    """What could not be read at the first look."""
    _judged: bool = False
    """ClusterD's policy of manual separation has been read."""
    _complaints: dict[str, str] = field(default_factory=dict)
    """What the stream brought and could not be used, by what makes two of them the same, in order."""

    @property
    def serials(self) -> Mapping[str, str]:
        """Node name -> product serial number, for events that name only the latter."""
        return self._serials

    def replace(self, objects: Iterable[Mapping[str, Any]], findings: Iterable[str]) -> Touched:
        """The whole cluster as it is now: what is not among the objects is gone.

        But what cannot be read is neither changed nor gone: while there is a finding that there was not at the first
        look (a file half written, a typing error), objects that are missing stay as they were.
        """
        findings = tuple(findings)
        missing = self._missing(findings)
        self.findings = [*findings, *self._complaints.values()]
        self._base = {_key(item) if _key(item)[2] else ("", "", f"#{at}"): item for at, item in enumerate(objects)}
        self._base = {**missing, **self._base} if missing else self._base
        merged = {**self._base, **self._laid}
        kept: list[Pod | PodGroup | Node] = []
        tables: dict[tuple[str, str], RankTableFacts | str] = {}
        self.book.tables.clear()
        self.book.contradictions.clear()
        self.book.node_d.clear()
        self.scheduler = None
        moved = self._without({_key(item) for item in merged.values() if item is not None})
        for item in merged.values():
            found = self._parse(item, self.findings.append) if item is not None else None
            if isinstance(found, ConfigMapObject):
                moved |= self._config_map(found, tables, self.findings.append)
            elif isinstance(found, Pod | PodGroup | Node):
                kept.append(found)
        before = {node.name for node in self.book.jobs.nodes()}
        touched = self.book.jobs.sync(kept, tables)
        after = {node.name for node in self.book.jobs.nodes()}
        self.book.vanished = (self.book.vanished | (before - after)) - after
        self._serials = {node.name: node.serial for node in self.book.jobs.nodes() if node.serial}
        return touched | Touched(frozenset(), moved)

    def _missing(self, findings: tuple[str, ...]) -> dict[_Key, Mapping[str, Any]]:
        """What was there at the last look and may only be unreadable now."""
        if self._known_findings is None:
            self._known_findings = frozenset(findings)
        return {} if self._known_findings.issuperset(findings) else self._base

    def apply(self, item: Mapping[str, Any]) -> Touched:
        """One object as it is now, of a kind that is kept here; ConfigMaps besides rank tables are the store's."""
        touched = Touched()
        try:
            items = list(items_of(item))
        except BadDocument as error:
            self.complain(str(error))
            items = []
        for one in items:
            if not isinstance(one, Mapping):
                continue
            found = self._parse(one, self.complain)
            if found is None:
                continue  # what was known of it stands, here and after a restart
            if self.remembers and (not isinstance(found, ConfigMapObject) or self.keeps(one)):
                self._laid[_key(one)] = one
            match found:
                case Pod():
                    touched |= self.book.jobs.apply_pod(found)
                case PodGroup():
                    touched |= self.book.jobs.apply_group(found)
                case Node():
                    self.book.vanished.discard(found.name)
                    self._serials.pop(found.name, None)
                    if found.serial:
                        self._serials[found.name] = found.serial
                    touched |= self.book.jobs.apply_node(found)
                case ConfigMapObject():
                    tables: dict[tuple[str, str], RankTableFacts | str] = {}
                    nodes = self._config_map(found, tables, self.complain)
                    touched |= Touched(frozenset(), nodes)
                    for (namespace, job), facts in tables.items():
                        known = facts if isinstance(facts, RankTableFacts) else None
                        reason = facts if isinstance(facts, str) else ""
                        touched |= self.book.jobs.apply_rank_table(namespace, job, known, reason)
        return touched

    def delete(self, kind: str, namespace: str, name: str) -> Touched:
        """The object is gone."""
        if self.remembers:
            self._laid[(kind, namespace, name)] = None
        match kind:
            case "Pod":
                return self.book.jobs.remove_pod(namespace, name)
            case "PodGroup":
                return self.book.jobs.remove_group(namespace, name)
            case "Node":
                node = NodeName(name)
                if self.book.jobs.node(node) is not None:
                    self.book.vanished.add(node)
                self._serials.pop(name, None)
                return self.book.jobs.remove_node(node) | Touched(
                    frozenset(self.book.jobs.jobs_on(node)), frozenset({node})
                )
            case "ConfigMap":
                return self._delete_config_map(namespace, name)
        return Touched()

    def miss_nodes(self) -> None:
        """Nodes that pods are bound to and that a complete list does not have went while nobody was looking. For a
        watched cluster only: in files a Node may be left out.
        """
        if next(iter(self.book.jobs.nodes()), None) is None:
            return  # no Node objects are seen at all: nothing can be said to be gone
        jobs = self.book.jobs
        bound = {node for job in jobs.jobs() for node in jobs.nodes_of(job.id)}
        self.book.vanished |= {node for node in bound if jobs.node(node) is None}

    def raw(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """An object as it was given to the last `replace`."""
        key = (kind, namespace, name)
        return self._laid[key] if key in self._laid else self._base.get(key)

    def keeps(self, item: Mapping[str, Any]) -> bool:
        """Whether a ConfigMap is read here; all others live in the document store."""
        return keeps(item)

    def laid(self) -> list[list[Any]]:
        """What the stream laid over the cluster, to be kept over a restart: kind, namespace, name, object or None."""
        return [[*key, item] for key, item in self._laid.items()]

    def lay(self, items: Iterable[Sequence[Any]]) -> None:
        """Take back what `laid` gave; it counts from the next `replace` on."""
        self._laid = {(str(kind), str(namespace), str(name)): item for kind, namespace, name, item in items}

    def complain(self, finding: str, once: str = "") -> None:
        """Note what the stream brought and could not be used, one finding for all with the same `once` (left out: the
        finding itself); it stands until the end, and after each `replace`.

        MOST_COMPLAINTS are kept, so that a stream of nothing else does not fill the memory.
        """
        if (once or finding) in self._complaints or len(self._complaints) > MOST_COMPLAINTS:
            return
        if len(self._complaints) == MOST_COMPLAINTS:
            finding = f"the stream brought more that could not be used; the first {MOST_COMPLAINTS} are told"
        self._complaints[once or finding] = finding
        self.findings.append(finding)

    def _parse(
        self, item: Mapping[str, Any], tell: Callable[[str], None]
    ) -> Pod | PodGroup | Node | ConfigMapObject | OwnerJob | None:
        try:
            return parse_object(item)
        except BadDocument as error:
            tell(str(error))
            return None

    def _config_map(
        self,
        found: ConfigMapObject,
        tables: dict[tuple[str, str], RankTableFacts | str],
        tell: Callable[[str], None],
    ) -> frozenset[NodeName]:
        if found.namespace == isolationfile.NAMESPACE:
            return self._separations(found, tell)
        if (found.namespace, found.name) == (schedulerfile.NAMESPACE, schedulerfile.NAME):
            self._scheduler(found, tell)
            return frozenset()
        if found.namespace == NODE_INFO_NAMESPACE and found.name.startswith(NODE_INFO):
            node = NodeName(found.name.removeprefix(NODE_INFO))
            self.book.node_d.add(node)
            return frozenset({node})
        named = rank_table_text(found)
        if named is None:
            return frozenset()
        job, text = named
        key = (found.namespace, job)
        self.book.tables.pop(key, None)
        self.book.contradictions.pop(key, None)
        try:
            table = parse_rank_table(text)
        except BadDocument as error:
            tables[key] = str(error)
            return frozenset()
        twice = ambiguity(table)
        if twice is not None:  # ranks follow from hccl/rankIndex then, and no rail is planned with it
            tables[key] = f"{twice.pointer}: {twice.code}: {twice.message}"
            place = f"ConfigMap {found.namespace}/{found.name}"
            self.book.contradictions[key] = f"the rank table of {place} contradicts itself: {tables[key]}"
            return frozenset()
        self.book.tables[key] = table
        tables[key] = facts_of(table)
        return frozenset()

    def _scheduler(self, found: ConfigMapObject, tell: Callable[[str], None]) -> None:
        """How Volcano's scheduler is configured: only what the plugin would not take is told."""
        try:
            self.scheduler = schedulerfile.parse_scheduler(found.data)
        except BadDocument as error:
            self.scheduler = None
            tell(str(error))
            return
        for problem in self.scheduler.problems:
            tell(f"{schedulerfile.PLACE}: {problem}")

    def _separations(self, found: ConfigMapObject, tell: Callable[[str], None]) -> frozenset[NodeName]:
        """ClusterD's policy of manual separation, or its list; a value that cannot be read changes nothing."""
        book = self.book
        if found.name == isolationfile.CONFIG:
            try:
                book.isolation = isolationfile.parse_isolation(found.data)
                self._judged = True
            except BadDocument as error:
                tell(f"{error}; {'what was read before counts' if self._judged else 'nothing is counted until then'}")
                book.isolation = book.isolation if self._judged else None
            return self._concerned()
        if found.name != isolationfile.MANUAL_INFO:
            return frozenset()
        nodes = {NodeName(name) for name in found.data}
        touched = frozenset({*nodes, *book.listed, *book.unlisted})
        for node in {*book.listed, *book.unlisted} - nodes:
            book.listed.pop(node, None)
            book.unlisted.discard(node)
        for node in nodes:
            book.unlisted.discard(node)
            try:
                place = f"ConfigMap {found.namespace}/{found.name}: {node}"
                book.listed[node] = isolationfile.parse_manual_info(found.data[node], place)
            except BadDocument as error:
                book.unlisted.add(node)
                tell(str(error))
        return touched

    def _concerned(self) -> frozenset[NodeName]:
        """Nodes for which another policy of manual separation may matter, or one: from when on it holds is noted."""
        book = self.book
        return frozenset((*book.cluster.separations, *book.cluster.counts)) or frozenset(islice(book.reports, 1))

    def _without(self, present: set[_Key]) -> frozenset[NodeName]:
        """What it means that ClusterD's objects are not among those that are there."""
        book, touched = self.book, frozenset[NodeName]()
        if ("ConfigMap", isolationfile.NAMESPACE, isolationfile.CONFIG) not in present:
            if book.isolation != Isolation():
                touched |= self._concerned()
            book.isolation, self._judged = Isolation(), False
        if ("ConfigMap", isolationfile.NAMESPACE, isolationfile.MANUAL_INFO) not in present:
            touched |= frozenset((*book.listed, *book.unlisted))
            book.listed.clear()
            book.unlisted.clear()
        return touched

    def _delete_config_map(self, namespace: str, name: str) -> Touched:
        if namespace == isolationfile.NAMESPACE:
            here = {("ConfigMap", namespace, one) for one in (isolationfile.CONFIG, isolationfile.MANUAL_INFO)}
            return Touched(frozenset(), self._without(here - {("ConfigMap", namespace, name)}))
        if (namespace, name) == (schedulerfile.NAMESPACE, schedulerfile.NAME):
            self.scheduler = None
        if namespace == NODE_INFO_NAMESPACE and name.startswith(NODE_INFO):
            node = NodeName(name.removeprefix(NODE_INFO))
            self.book.node_d.discard(node)
            return Touched(frozenset(), frozenset({node}))
        if name.startswith(RINGS_PREFIX):
            job = name.removeprefix(RINGS_PREFIX)
            self.book.tables.pop((namespace, job), None)
            self.book.contradictions.pop((namespace, job), None)
            return self.book.jobs.remove_rank_table(namespace, job)
        return Touched()

    def all_findings(self) -> tuple[str, ...]:
        """Unreadable objects, and what the readable ones contradict each other in."""
        told = (f"{one.code} {one.object}: {one.reason}" for one in self.book.jobs.findings())
        return (*self.findings, *told)


def _key(item: Mapping[str, Any]) -> _Key:
    meta = item.get("metadata")
    of = meta if isinstance(meta, Mapping) else {}
    return str(item.get("kind", "")), str(of.get("namespace", "")), str(of.get("name", ""))


def keeps(item: Mapping[str, Any]) -> bool:
    """Whether a ConfigMap is read as an object: rank tables, NodeD's own, ClusterD's on manual separation, and how
    Volcano's scheduler is configured.
    """
    _, namespace, name = _key(item)
    if (namespace, name) == (schedulerfile.NAMESPACE, schedulerfile.NAME):
        return True
    if namespace == isolationfile.NAMESPACE and name in (isolationfile.CONFIG, isolationfile.MANUAL_INFO):
        return True
    return name.startswith(RINGS_PREFIX) or (namespace == NODE_INFO_NAMESPACE and name.startswith(NODE_INFO))


def facts_of(table: RankTable) -> RankTableFacts:
    """What the job book needs of a completed rank table."""
    return RankTableFacts(
        servers=tuple(
            ServerFacts(
                server.server_id,
                server.host_ip,
                server.container_ip,
                {device.device_id: device.rank_id for device in server.devices},
            )
            for server in table.servers
        ),
        hardware_type=table.hardware_type,
        has_backup=table.has_backup,
    )
