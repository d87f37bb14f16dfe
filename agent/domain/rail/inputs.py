"""What each rule of rail-borrow looks at, in words: the facts of a case, by name.

The one rule: an input is shown as the rule takes it; what is not known is shown as unknown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from agent.domain import hccl
from agent.domain.hccl import HcclEnv, flap_threshold_ms
from agent.domain.hcclwords import variable_words
from agent.domain.rail.case import Case, Seat, node_envs
from agent.domain.rail.reservations import Reservation
from agent.domain.rail.words import RailFault
from agent.domain.vocab import utc_text

Input = tuple[str, str]
"""Name and value."""
SHOWN: Final = 16
"""Values of one rule that are shown one by one; a leaf switch of a large job has thousands."""


def _few(inputs: Iterable[Input]) -> Iterator[Input]:
    more = 0
    for number, one in enumerate(inputs):
        if number < SHOWN:
            yield one
        else:
            more += 1
    if more:
        yield "more", f"{more} not shown"


def _of_faults(case: Case, value: Callable[[RailFault], str]) -> Iterator[Input]:
    yield from _few((fault.ref, value(fault)) for fault in case.faults)


def _of(seats: Iterable[Seat], value: Callable[[Seat], str]) -> Iterator[Input]:
    yield from _few((str(seat), value(seat)) for seat in seats)


def _table(case: Case) -> str:
    table = case.q.table
    if table is None:
        return case.q.contradiction or case.q.table_problem or "none"
    mode = "" if table.version == "2.0" else f", {table.effective_mode().replace('_', '-')} mode"
    return f"version {table.version}, {table.status}{mode}"


def _target(case: Case) -> Iterator[Input]:
    yield "job", case.q.job or "none"
    yield "rank table", _table(case)

    def where(fault: RailFault) -> str:
        seat = case.seat_of(fault)
        owner = case.q.owners.get((fault.node, fault.device))
        place = f"rank {seat.rank} of server {seat.server.server_id}" if seat is not None else "no rank"
        return f"{fault.place}: held by {owner or 'nobody known'}, {place}"

    yield from _of_faults(case, where)


def _held(entry: Reservation | None) -> str:
    if entry is None:
        return "free"
    how = "its own link failed" if entry.faulted else "moved as the other end"
    return f"held by {entry.job}, plan {entry.plan}, die {entry.die_from}→{entry.die_to}, {how}"


def _links(links: Iterable[tuple[int, int]]) -> str:
    listed = [f"{one}-{other}" for one, other in sorted(links)]
    return ", ".join(listed[:SHOWN]) + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "") or "none"


def _done(case: Case) -> Iterator[Input]:
    yield "ledger", "unreadable" if case.q.ledger is None else f"NPUs held: {case.q.ledger.held}"
    yield "links of this life on their backup side", _links(case.moved)
    yield from _of_faults(case, lambda fault: f"occurrence {fault.event or fault.ref}")


def _ends(case: Case) -> Iterator[Input]:
    def ended(fault: RailFault) -> str:
        end = "has not ended" if fault.ended_at is None else f"ended {utc_text(fault.ended_at)}"
        return f"began {utc_text(fault.started_at)}, {end}"

    yield from _of_faults(case, ended)


def _borrows(case: Case) -> Iterator[Input]:
    yield from _of_faults(
        case, lambda fault: _held(case.holder(fault.node, fault.device) if fault.device >= 0 else None)
    )


def _product(case: Case) -> Iterator[Input]:
    yield "product", case.q.product or "unknown"
    yield "rank table", _table(case)


def _kinds(case: Case) -> Iterator[Input]:
    yield from _of_faults(case, lambda fault: str(fault.kind))


def _peers(case: Case) -> Iterator[Input]:
    yield "rank table", _table(case)
    yield "peers", "taken from the table" if case.q.peers is None else "given"
    for node in sorted({seat.node for seat in case.faulted}):
        yield f"{node} {hccl.INTER_HCCS_DISABLE}", variable_words(case.env(node), hccl.INTER_HCCS_DISABLE)
    yield from _of(case.faulted, lambda seat: _ranks(case.peers(seat)))


def _ranks(ranks: tuple[int, ...]) -> str:
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return f"ranks {', '.join(map(str, ranks[:SHOWN]))}{more}" if ranks else "nobody"


def _age(case: Case) -> Iterator[Input]:
    def age(fault: RailFault) -> str:
        threshold = flap_threshold_ms(case.env(fault.node))
        return f"{fault.kind}, {case.q.now - fault.started_at} ms old, threshold {threshold:.1f} ms"

    yield from _of_faults(case, age)


def _env(*names: str) -> Callable[[Case], Iterator[Input]]:
    def told(case: Case) -> Iterator[Input]:
        yield from _few(
            (f"{node or 'a server of no known node'} {name}", variable_words(env, name))
            for node, env in node_envs(case)
            for name in names
        )

    return told


def _mode(case: Case) -> Iterator[Input]:
    yield "communication mode", str(case.q.comm_mode)
    yield from _of(case.faulted, lambda seat: f"host_ip {seat.server.host_ip or 'absent'}")


def _backup(case: Case) -> Iterator[Input]:
    yield "communication mode", str(case.q.comm_mode)
    yield from _of(case.faulted, lambda seat: f"backup_device_ip {seat.device.backup_device_ip or 'absent'}")


def _pair(case: Case, seat: Seat) -> str:
    rank = case.q.table.rank_of(seat.server.server_id, seat.pair) if case.q.table is not None else None
    other = case.seat(rank) if rank is not None else None
    backup = seat.device.backup_device_ip or "none"
    address = "not in the table" if other is None else other.device.device_ip or "without an address"
    return f"backup {backup}, device {seat.pair} {address}"


def _pairs(case: Case) -> Iterator[Input]:
    yield from _of(case.faulted, lambda seat: _pair(case, seat))


def _ports(case: Case) -> Iterator[Input]:
    def ports(seat: Seat) -> str:
        rank = case.q.table.rank_of(seat.server.server_id, seat.pair) if case.q.table is not None else None
        other = case.seat(rank) if rank is not None else None
        main = other.device.device_port if other is not None else None
        backup = seat.device.backup_device_port
        return f"backup port {backup or 'absent'}, main port of device {seat.pair} {main or 'absent'}"

    yield from _of(case.faulted, ports)


_SEEN: Final[Mapping[bool | None, str]] = {True: "visible", False: "not visible", None: "unknown"}


def _visible(case: Case) -> Iterator[Input]:
    yield from _of(case.faulted, lambda seat: f"device {seat.pair} {_SEEN[case.visible(seat.node, seat.pair)]}")


def _holders(case: Case) -> Iterator[Input]:
    yield "policy", f"{case.q.policy}, {case.q.strictness}"
    yield from _of(case.faulted, lambda seat: f"NPU {seat.npu} {_held(case.holder(seat.node, seat.device.device_id))}")


def _state(case: Case, seat: Seat) -> str:
    state = case.link(seat.node, seat.pair)
    probed = case.q.links.get((seat.node, seat.pair))
    if (seat.node, seat.pair) in case.down:
        return f"device {seat.pair} down: its link fault is active"
    if probed is None:
        return f"device {seat.pair} {state}: never seen"
    age = f"seen {probed.state} {case.q.now - probed.at} ms ago, fresh for {case.q.freshness} ms"
    return f"device {seat.pair} {state}: {age}"


def _states(case: Case) -> Iterator[Input]:
    yield from _of(case.faulted, lambda seat: _state(case, seat))


def _rails(case: Case) -> Iterator[Input]:
    yield "traffic between the dies of an NPU", "flagged" if case.q.cross_die_traffic else "not flagged"
    yield "links that would change", _links(case.changes)


def _others(case: Case) -> Iterator[Input]:
    def other(seat: Seat) -> str:
        seen = _SEEN[case.visible(seat.node, seat.pair)]
        host = seat.server.host_ip or "absent"
        return f"host_ip {host}; {_pair(case, seat)}, {seen}; {_state(case, seat)}"

    yield from _of(case.other_ends, other)


def _other_holders(case: Case) -> Iterator[Input]:
    yield "strictness", str(case.q.strictness)
    yield from _of(
        case.other_ends, lambda seat: f"NPU {seat.npu} {_held(case.holder(seat.node, seat.device.device_id))}"
    )


def _other_states(case: Case) -> Iterator[Input]:
    yield from _of(case.other_ends, lambda seat: _state(case, seat))


_YES: Final[Mapping[bool | None, str]] = {True: "yes", False: "no", None: "not given"}


def _retry(case: Case) -> Iterator[Input]:
    yield "hosts reach each other", _YES[case.q.host_plane_ok]
    yield "operator can run again", _YES[case.q.op_constraints_ok]
    yield "retries used", "not given" if case.q.retries_used is None else str(case.q.retries_used)
    yield from _env(hccl.RETRY_PARAMS)(case)


def _moves(case: Case) -> Iterator[Input]:
    yield from _of(case.involved, lambda seat: f"device {seat.device.device_id} → {seat.pair}")
    yield "links that change", _links(case.changes)


_COMPARED: Final = tuple(hccl.in_force(HcclEnv()))
"""What must be the same on all nodes."""

INPUTS: Final[Mapping[int, Callable[[Case], Iterator[Input]]]] = {
    1: _target,
    2: _done,
    3: _ends,
    4: _borrows,
    5: _product,
    6: _kinds,
    7: _kinds,
    8: _peers,
    9: _age,
    10: _env(hccl.RETRY_ENABLE, hccl.RETRY_PARAMS, hccl.EXPANSION_MODE, hccl.INTER_HCCS_DISABLE, hccl.VISIBLE_DEVICES),
    11: _env(hccl.RETRY_ENABLE),
    12: _env(hccl.EXPANSION_MODE),
    13: _env(*_COMPARED),
    14: _mode,
    15: _backup,
    16: _pairs,
    17: _ports,
    18: _visible,
    19: _holders,
    20: _holders,
    21: _states,
    22: _states,
    23: _rails,
    24: _others,
    25: _other_holders,
    26: _other_states,
    27: _retry,
    28: _moves,
}
"""By the number of the rule; 28 is the plan itself."""
