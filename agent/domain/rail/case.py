"""The question that rail-borrow is asked, and the facts that its rules derive from it.

The one rule: what is missing, stale or unreadable is answered as unknown, never as good.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from typing import Final

from agent.domain.events import Link
from agent.domain.hccl import HcclEnv
from agent.domain.rail.reservations import RailLedger, Reservation
from agent.domain.rail.words import RailCode, RailFault
from agent.domain.ranktable import RankDevice, RankTable, Server, npu_of, pair_die
from agent.domain.vocab import MINUTE, JobId, Millis, NodeName

Die = tuple[NodeName, int]


class CommMode(StrEnum):
    """How the job's communicators are made: the rank table names backups, root broadcast pairs dies by itself."""

    RANKTABLE = "ranktable"
    ROOTINFO = "rootinfo"
    UNKNOWN = "unknown"


class BorrowPolicy(StrEnum):
    """What may be borrowed once: an NPU (CANN 8.2 and later), or a communicator (CANN 8.1). Which communicators a job
    has nobody outside sees, so all of its life counts as one until no process is left at an end of each borrowed link.
    """

    PER_NPU = "per_npu"
    PER_COMMUNICATOR = "per_communicator"


class Strictness(StrEnum):
    """`strict`: a moved peer's NPU counts as borrowed too; `source`: only the failed one's, as HCCL's mark does."""

    STRICT = "strict"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class RailQuestion:
    """The faults of one job within one joint window (3 s, collected by the caller) and all that bears on them.

    `ledger` is the book as it was before the window, None if it could not be read. `servers` names the node of each
    server of the table; several pods of a job on one node are several servers. `peers`, if the caller knows them, are
    the RDMA peers of each rank. `env` is per node, after what communicators override. `visible` are the dies of a node
    that the process of their pair sees, None if not known.
    """

    job: JobId
    incarnation: str
    faults: tuple[RailFault, ...]
    now: Millis
    table: RankTable | None
    comm_mode: CommMode
    servers: Mapping[str, NodeName]
    ledger: RailLedger | None
    product: str = ""
    links: Mapping[Die, Link] = field(default_factory=dict)
    visible: Mapping[NodeName, frozenset[int] | None] = field(default_factory=dict)
    owners: Mapping[Die, JobId] = field(default_factory=dict)
    env: Mapping[NodeName, HcclEnv] = field(default_factory=dict)
    peers: Mapping[int, tuple[int, ...]] | None = None
    down: frozenset[Die] = frozenset()
    """Dies that a link fault holds down though it is none of this window: whatever was seen of them, they are down."""
    table_problem: str = ""
    """Why there is no rank table, if the caller knows."""
    contradiction: str = ""
    """What the job's rank tables contradict each other in, or one itself (`table` is then None); empty: nothing."""
    freshness: Millis = Millis(MINUTE)
    policy: BorrowPolicy = BorrowPolicy.PER_NPU
    strictness: Strictness = Strictness.STRICT
    host_plane_ok: bool | None = None
    op_constraints_ok: bool | None = None
    retries_used: int | None = None
    cross_die_traffic: bool = False
    sub_health_strategy: str = ""


@dataclass(frozen=True, slots=True)
class Seat:
    """A rank that a plan would touch. `node` is empty when no node is known for its server."""

    rank: int
    node: NodeName
    server: Server
    device: RankDevice

    @property
    def pair(self) -> int:
        """The die it would move to."""
        return pair_die(self.device.device_id)

    @property
    def npu(self) -> int:
        """Its physical NPU."""
        return npu_of(self.device.device_id)

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.node or self.server.server_id} device {self.device.device_id})"


MOST_ENDS: Final = 200_000
"""Ends of links (two each) that are looked at in one plan. The book of NPUs has room for half of that, and a leaf
switch under many nodes of a large job has millions, which would keep a coordinator busy past its lease."""
_UNKNOWN_ENV: Final = HcclEnv()


@dataclass(frozen=True, slots=True)
class Case:
    """A question with the faults still in play, in one order whatever order they came in."""

    q: RailQuestion
    faults: tuple[RailFault, ...]
    on_node: Mapping[NodeName, tuple[str, ...]]
    """Node -> ids of the table's servers there."""
    down: frozenset[Die]
    """Dies that a fault holds down, of this window also those that were set aside as a flap."""
    moved: frozenset[tuple[int, int]]
    """Links that this life of the job already has on the backup side."""
    _seats: dict[int, Seat | None] = field(default_factory=dict, repr=False, compare=False)
    _columns: dict[int, list[tuple[int, str | None]]] = field(default_factory=dict, repr=False, compare=False)
    _peers: dict[tuple[int, str | None], tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)
    """All three are worked out once: each rule asks again for ranks, and a large job has thousands at the other end."""
    faulted: tuple[Seat, ...] = field(init=False)
    """Ranks whose own die failed, ascending."""
    changes: tuple[tuple[int, int], ...] = field(init=False)
    """Links of the faulted ranks that are still on the default side, lower rank first, ascending."""
    other_ends: tuple[Seat, ...] = field(init=False)
    """Ranks that must move because a faulted one does, ascending; those faulted themselves left out."""
    involved: tuple[Seat, ...] = field(init=False)
    """Every rank of the plan, ascending."""
    nodes: tuple[NodeName, ...] = field(init=False)
    """Their nodes, each once, by name."""
    too_wide: int = field(init=False)
    """Ends of links that would change, when they are more than MOST_ENDS: the links are then not listed. Else 0."""

    def __post_init__(self) -> None:
        seats = {seat.rank: seat for seat in map(self.seat_of, self.faults) if seat is not None}
        peers = {rank: self.peers(seat) for rank, seat in seats.items()}
        ends = sum(map(len, peers.values()))
        too_wide = ends if ends > MOST_ENDS else 0
        pairs = {link_of(rank, peer) for rank, found in ({} if too_wide else peers).items() for peer in found}
        pairs -= self.moved
        far = sorted({rank for link in pairs for rank in link} - set(seats))
        faulted = tuple(seats[rank] for rank in sorted(seats))
        others = tuple(seat for seat in map(self.seat, far) if seat is not None)
        involved = tuple(sorted((*faulted, *others), key=lambda seat: seat.rank))
        object.__setattr__(self, "faulted", faulted)
        object.__setattr__(self, "changes", tuple(sorted(pairs)))
        object.__setattr__(self, "other_ends", others)
        object.__setattr__(self, "involved", involved)
        object.__setattr__(self, "nodes", tuple(sorted({seat.node for seat in involved})))
        object.__setattr__(self, "too_wide", too_wide)

    def without(self, settled: frozenset[RailFault | None]) -> "Case":
        """The same case when these faults need nothing more."""
        return replace(self, faults=tuple(fault for fault in self.faults if fault not in settled))

    def env(self, node: NodeName) -> HcclEnv:
        """HCCL variables of the job on a node; all unknown where none were given."""
        return self.q.env.get(node, _UNKNOWN_ENV)

    def link(self, node: NodeName, device: int) -> str:
        """`up`, `down` or `unknown`: a fault of the window wins, a probe counts while it is fresh."""
        if (node, device) in self.down:
            return "down"
        link = self.q.links.get((node, device))
        if link is None or abs(self.q.now - link.at) >= self.q.freshness or link.state not in ("up", "down"):
            return "unknown"
        return link.state

    def visible(self, node: NodeName, device: int) -> bool | None:
        """Whether the job's processes on a node see a die; None: not known."""
        seen = self.q.visible.get(node)
        return None if seen is None else device in seen

    def seat_of(self, fault: RailFault) -> Seat | None:
        """The rank on the faulted die."""
        for server_id in self.on_node.get(fault.node, ()) if self.q.table is not None else ():
            rank = self.q.table.rank_of(server_id, fault.device) if self.q.table is not None else None
            if rank is not None:
                return self.seat(rank)
        return None

    def seat(self, rank: int) -> Seat | None:
        """A rank's place, or None when the table does not hold it."""
        if rank not in self._seats:
            found = self.q.table.seat(rank) if self.q.table is not None else None
            node = self.q.servers.get(found[0].server_id, NodeName("")) if found is not None else NodeName("")
            self._seats[rank] = None if found is None else Seat(rank, node, *found)
        return self._seats[rank]

    def peers(self, seat: Seat) -> tuple[int, ...]:
        """Ranks it talks to over RDMA: as given, else the same device id in every other logical super-pod.

        Within a super-pod HCCS is used unless HCCL_INTER_HCCS_DISABLE is true; then its other servers count too.
        A table in AI-server mode has no super-pods, so no link that HCCL would borrow for.
        """
        table = self.q.table
        if self.q.peers is not None:
            return tuple(sorted(set(self.q.peers.get(seat.rank, ())) - {seat.rank}))
        if table is None or table.effective_mode() == "ai_server":
            return ()
        home = table.super_pod_of(seat.server.server_id)
        found = self._elsewhere(table, seat.device.device_id, home)
        if self.env(seat.node).inter_hccs_disable.value is True:
            column = table.same_device(seat.device.device_id)
            near = {rank for rank in column if (at := table.seat(rank)) and at[0].server_id != seat.server.server_id}
            return tuple(sorted(near | set(found)))
        return found

    def _elsewhere(self, table: RankTable, device: int, home: str | None) -> tuple[int, ...]:
        """Ranks on that device id outside a super-pod; the failed dies of one super-pod share them."""
        if device not in self._columns:
            seats = ((rank, table.seat(rank)) for rank in table.same_device(device))
            self._columns[device] = [
                (rank, table.super_pod_of(at[0].server_id)) for rank, at in seats if at is not None
            ]
        if (device, home) not in self._peers:
            self._peers[device, home] = tuple(rank for rank, pod in self._columns[device] if pod != home)
        return self._peers[device, home]

    def own(self) -> tuple[Reservation, ...]:
        """The ledger's entries of this life of the job, closed ones too."""
        return self.q.ledger.of(self.q.job, self.q.incarnation) if self.q.ledger is not None else ()

    def holder(self, node: NodeName, device: int) -> Reservation | None:
        """Who holds the NPU of a die, of any job."""
        return self.q.ledger.holder(node, npu_of(device)) if self.q.ledger is not None else None


def link_of(one: int, other: int) -> tuple[int, int]:
    """A link as its two ranks, the lower one first."""
    return (one, other) if one < other else (other, one)


def open_case(question: RailQuestion) -> Case:
    """The case of a question; a fault given twice counts once, with its end if either knows one."""
    unique: dict[tuple[str, str, int, int, str], RailFault] = {}
    for fault in question.faults:
        key = (fault.ref, fault.node, fault.device, fault.started_at, fault.kind)
        unique[key] = max(unique.get(key, fault), fault, key=lambda f: (f.ended_at or -1, f.event))
    faults = tuple(unique[key] for key in sorted(unique))
    on_node: dict[NodeName, tuple[str, ...]] = {}
    for server_id, node in sorted(question.servers.items()):
        on_node[node] = (*on_node.get(node, ()), server_id)
    down = frozenset((f.node, f.device) for f in faults if f.kind.on_rail and not f.recovered)
    own = question.ledger.of(question.job, question.incarnation) if question.ledger is not None else ()
    moved = frozenset(link for entry in own if entry.open for link in entry.links)
    return Case(question, faults, on_node, down | question.down, moved)


def node_envs(case: Case) -> Iterator[tuple[NodeName, HcclEnv]]:
    """Each involved node once, by name, with its HCCL variables."""
    for node in case.nodes:
        yield node, case.env(node)


class HitKind(Enum):
    """What a hit means: refuse everything, or set this fault aside, or only say that nothing could be judged."""

    REFUSE = auto()
    OBSERVE = auto()
    NOOP = auto()
    DELEGATE = auto()
    NOT_JUDGED = auto()


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing a rule found. `fault` is the one that is set aside; `until` is for OBSERVE."""

    kind: HitKind
    code: RailCode
    detail: str
    fault: RailFault | None = None
    until: Millis = Millis(0)
    advice: str = ""
    """What to do, where that of the code does not fit the cause."""


Hits = tuple[Hit, ...]


def refuse(code: RailCode, detail: str, advice: str = "") -> Hit:
    """No plan at all, for this reason."""
    return Hit(HitKind.REFUSE, code, detail, advice=advice)


def set_aside(code: RailCode, fault: RailFault, detail: str) -> Hit:
    """This fault needs nothing more; the others go on."""
    return Hit(HitKind.NOOP, code, detail, fault)
