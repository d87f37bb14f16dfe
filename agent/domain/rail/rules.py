"""Rules 1 to 13 of rail-borrow, one function each: is there anything to borrow for, and would HCCL do it?

The one rule: a rule looks at the whole case and gives a hit for everything it found, in rank order; none means passed.
rail.py puts them in order and names them. Rules 1 to 9 speak of single faults, 10 to 13 of the nodes of the plan.
"""

from agent.domain.hccl import (
    EXPANSION_MODE,
    INTER_HCCS_DISABLE,
    RETRY_ENABLE,
    RETRY_PARAMS,
    VISIBLE_DEVICES,
    HcclEnv,
    OpRetry,
    Sight,
    flap_threshold_ms,
    in_force,
)
from agent.domain.rail.case import Case, Hit, HitKind, Hits, Seat, Strictness, link_of, node_envs, refuse, set_aside
from agent.domain.rail.words import (
    NODE_OF_NONE,
    PEER_UNKNOWN,
    TABLE_MISSING,
    TABLE_UNREAD,
    TABLE_WRONG,
    WHOLE_NODE,
    FaultKind,
    RailCode,
    RailFault,
)
from agent.domain.vocab import Millis

# --- 1 to 9: is there anything to borrow for? ---------------------------------------------------------------------


def unknown_target(case: Case) -> Hits:
    """Rule 1: the job, node or device of a fault is not known, or the table does not hold a rank it names.

    Tables of one job that say different things answer nothing: which one its processes have read is not known.
    """
    q = case.q
    if q.contradiction:
        return (refuse(RailCode.TABLES_CONTRADICT, q.contradiction, TABLE_WRONG if q.table is None else ""),)
    if not q.job:
        places = dict.fromkeys(fault.place for fault in case.faults)
        why = "no pod of a known job is on"
        return tuple(refuse(RailCode.UNKNOWN_TARGET, f"{why} {place}", NODE_OF_NONE) for place in places)
    if q.table is None:
        why = f": {q.table_problem}" if q.table_problem else ""
        advice = TABLE_UNREAD if q.table_problem else TABLE_MISSING
        return (refuse(RailCode.UNKNOWN_TARGET, f"no completed rank table of job {q.job!r} is known{why}", advice),)
    known = {node for node, _ in q.owners} if q.table.version == "2.0" else set(case.on_node)
    hits = []
    for fault in case.faults:
        owner, advice = q.owners.get((fault.node, fault.device)), ""
        if owner is not None and owner != q.job:
            detail = f"{fault.place} belongs to {owner}"
        elif fault.node not in known:
            detail = f"node {fault.node} is none of the job's"
        elif q.table.version == "2.0" and owner is None and fault.device != WHOLE_NODE:
            detail = f"{fault.place} is none of the job's"
        elif q.table.version == "2.0" or fault.device == WHOLE_NODE:
            continue  # 2.0 has no server list to look in, and rule 5 refuses it; what is on no die has no rank
        elif (seat := case.seat_of(fault)) is None:
            detail = f"{fault.place} is not in the job's rank table"
        elif lost := [rank for rank in case.peers(seat) if case.seat(rank) is None] if q.peers is not None else []:
            detail, advice = f"peer {lost[0]} of {seat} is not in the job's rank table", PEER_UNKNOWN
        else:
            continue
        hits.append(refuse(RailCode.UNKNOWN_TARGET, detail, advice))
    return tuple(hits)


def already_done(case: Case) -> Hits:
    """Rule 2: this occurrence was answered, or no link of the die is left on the default side; not for a recover."""
    if case.q.ledger is None:
        return (refuse(RailCode.LEDGER_UNREADABLE, "without the ledger nobody knows what is borrowed"),)
    answered = {event: entry.plan for entry in case.own() for event in entry.events}
    moved = case.moved
    hits = []
    for fault in case.faults:
        if fault.recovered:
            continue
        plan = answered.get(fault.event or fault.ref)
        seat = case.seat_of(fault)
        peers = case.peers(seat) if seat is not None and moved else ()
        if plan is not None:
            hits.append(set_aside(RailCode.ALREADY_DONE, fault, f"{fault.ref} was answered by plan {plan}"))
        elif seat is not None and peers and all(link_of(seat.rank, peer) in moved for peer in peers):
            hits.append(set_aside(RailCode.ALREADY_DONE, fault, f"every link of {seat} is on its backup side"))
    return tuple(hits)


def clear(case: Case) -> Hits:
    """Rule 3: it recovered and nothing was borrowed for it."""
    return tuple(
        set_aside(RailCode.CLEAR, fault, f"{fault.ref} has recovered")
        for fault in case.faults
        if fault.recovered and not _borrowed(case, fault)
    )


def no_switch_back(case: Case) -> Hits:
    """Rule 4: it recovered after a borrow; HCCL's mark stays (opretry_base.cc:695-705), so does ours."""
    return tuple(
        set_aside(RailCode.NO_SWITCH_BACK, fault, f"{fault.ref} has recovered; its traffic stays on the backup rail")
        for fault in case.faults
        if fault.recovered and _borrowed(case, fault)
    )


def _borrowed(case: Case, fault: RailFault) -> bool:
    return any(entry.open and (entry.node, entry.die_from) == (fault.node, fault.device) for entry in case.own())


def unsupported_product(case: Case) -> Hits:
    """Rule 5: only A3 has two dies with a NIC each on one NPU; an unknown product is not A3."""
    q = case.q
    if q.product != "A3":
        return (refuse(RailCode.UNSUPPORTED_PRODUCT, f"product is {q.product or 'unknown'}, only A3 can borrow"),)
    if q.table is not None and q.table.version == "2.0":
        return (refuse(RailCode.UNSUPPORTED_PRODUCT, "rank table 2.0 is not one of A3"),)
    return ()


def hccs_path_switch(case: Case) -> Hits:
    """Rule 6: faults of the HCCS plane are answered by the 1520 switches and the retry levels, not by borrowing."""
    return tuple(
        Hit(HitKind.DELEGATE, RailCode.HCCS_PATH_SWITCH, f"{fault.ref} lies on the HCCS plane", fault)
        for fault in case.faults
        if fault.kind is FaultKind.HCCS
    )


def not_rail_fault(case: Case) -> Hits:
    """Rule 7: any other kind."""
    return tuple(
        refuse(RailCode.NOT_RAIL_FAULT, f"{fault.ref} is no fault of an RDMA link")
        for fault in case.faults
        if not fault.kind.on_rail
    )


def no_rdma_peer(case: Case) -> Hits:
    """Rule 8: the rank talks to nobody over RDMA, so there is no link to move."""
    hits = []
    for fault in case.faults:
        seat = case.seat_of(fault)
        if seat is not None and not case.peers(seat):
            hits.append(set_aside(RailCode.NO_RDMA_PEER, fault, f"{seat} has no RDMA peer: {_why_none(case, seat)}"))
    return tuple(hits)


def _why_none(case: Case, seat: Seat) -> str:
    if case.q.peers is not None:
        return "none was given"
    if case.q.table is not None and case.q.table.effective_mode() == "ai_server":
        return "AI-server mode has no links between super-pods"
    if case.env(seat.node).inter_hccs_disable.sight in (Sight.UNKNOWN, Sight.INVALID):
        return "HCCS carries all its traffic, unless HCCL_INTER_HCCS_DISABLE, which cannot be seen, is TRUE"
    return "HCCS carries all its traffic"


def flap(case: Case) -> Hits:
    """Rule 9: a flap that RDMA's own sending again still covers; exactly the threshold still waits."""
    hits = []
    for fault in case.faults:
        threshold = flap_threshold_ms(case.env(fault.node))
        if fault.kind is FaultKind.RDMA_FLAP and case.q.now - fault.started_at <= threshold:
            until = Millis(fault.started_at + int(threshold) + 1)
            detail = f"{fault.ref} is {case.q.now - fault.started_at} ms old, {threshold:.1f} ms are waited for"
            hits.append(Hit(HitKind.OBSERVE, RailCode.FLAP, detail, fault, until))
    return tuple(hits)


# --- 10 to 13: would HCCL borrow at all? --------------------------------------------------------------------------


def env_invalid(case: Case) -> Hits:
    """Rule 10: a variable that decides cannot be read, or cannot be seen, on a node of the plan."""
    hits = []
    for node, env in node_envs(case):
        hits += [
            refuse(RailCode.ENV_INVALID, f"{node}: {seen.problem}")
            for seen in (env.retry, env.params, env.inter_hccs_disable)
            if seen.sight is Sight.INVALID
        ]
    for node, env in node_envs(case):
        # On HCCS hangs who the peers are: without it a plan may lack an end.
        deciding = (
            (RETRY_ENABLE, env.retry),
            (RETRY_PARAMS, env.params),
            (EXPANSION_MODE, env.expansion),
            (INTER_HCCS_DISABLE, env.inter_hccs_disable),
            (VISIBLE_DEVICES, env.visible_devices),
        )
        hidden = [name for name, seen in deciding if seen.sight is Sight.UNKNOWN]
        if hidden:
            detail = f"{node or 'a server without a known node'}: {', '.join(hidden)} cannot be seen"
            hits.append(refuse(RailCode.ENV_UNKNOWN, detail))
    return tuple(hits)


def retry_l2_off(case: Case) -> Hits:
    """Rule 11: the retry between super-pods is off, as it is by default."""
    nodes = sorted({seat.node for seat in case.faulted})
    off = [node for node in nodes if not (case.env(node).retry.effective(OpRetry()) or OpRetry()).l2]
    return tuple(refuse(RailCode.RETRY_L2_OFF, f"{node}: L2 of HCCL_OP_RETRY_ENABLE is not 1") for node in off)


def expansion_mode(case: Case) -> Hits:
    """Rule 12: operators are not expanded on the AI CPU.

    A word that HCCL does not know means the default in the document (a warning), and is an error in its source.
    """
    failed = {seat.node for seat in case.faulted}
    hits = []
    for node, env in node_envs(case):
        seen = env.expansion
        if seen.sight is Sight.INVALID and case.q.strictness == Strictness.SOURCE:
            hits.append(refuse(RailCode.EXPANSION_MODE, f"{node}: {seen.problem}"))
        elif node in failed and seen.value is not None and not seen.value.on_ai_cpu:
            hits.append(refuse(RailCode.EXPANSION_MODE, f"{node}: HCCL_OP_EXPANSION_MODE is {seen.value}"))
    return tuple(hits)


def env_mismatch(case: Case) -> Hits:
    """Rule 13: the variables in force differ between nodes of the plan; links between them are then not set up."""
    first: dict[str, tuple[str, object]] = {}  # of each variable the first node on which it is known
    agreeing: HcclEnv | None = None
    hits = []
    for node, env in node_envs(case):
        hits += [
            refuse(RailCode.ENV_MISMATCH, f"{name} differs between the job's pods on {node}") for name in env.differs
        ]
        if env == agreeing:
            continue
        known = {name: value for name, value in in_force(env).items() if value is not None}
        against = {name: first.setdefault(name, (node, value)) for name, value in known.items()}
        unlike = [name for name, value in known.items() if value != against[name][1]]
        hits += [
            refuse(RailCode.ENV_MISMATCH, f"{name} differs between {against[name][0]} and {node}") for name in unlike
        ]
        agreeing = agreeing if unlike else env
    return tuple(hits)
