"""The `fault-node` entry of one node, from its report and from who uses its devices.

The one rule: an entry follows from levels alone; a silent node keeps the entry it had, and so does all of one whose
report cannot tell all of its faults.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agent.domain.cluster import separation
from agent.domain.cluster.book import ClusterBook, Verdict, cause_of, remembered
from agent.domain.cluster.effective import SEPARATION_RULE, JobFault, faults_at
from agent.domain.cluster.quiet import Quiet, felt_once, quiet_at
from agent.domain.effects import chip_healthy, network_healthy, node_status, public_healthy, switch_status
from agent.domain.events import Decision, Occurrence, fault_ref
from agent.domain.faultnodes import DeviceFault, FaultNodeEntry, NodeFaults, at_least, fault_node, with_update_time
from agent.domain.ledger import ClusterLedger, Done, place_of, told_before
from agent.domain.vocab import LEVELS, Millis, NodeName, Plane, Reason


def decide_node(book: ClusterBook, node: NodeName, now: Millis) -> Verdict:
    """The node's entry as it should stand now, and a word on each occurrence that concerns no job."""
    told, decisions = _jobless(book, node, now)
    found = list(faults_at(book, node, now))
    entry = _entry(book, node, [one for one, kept in found if kept is None], now)
    ledger = _moved_on(book.cluster, told, now)
    if node in book.reports and not book.reports[node].lost:
        ledger = _with_dropped(ledger, node, found)
    separated = separation.follow(book, node, ledger, now)
    ledger = separated.ledger
    releases = [kept.until + 1 for _, kept in found if kept is not None and kept.until is not None]
    releases += [separated.wake] if separated.wake is not None else []
    wake = min(releases, default=None)
    return Verdict(
        decisions=(*decisions, *separated.decisions),
        told=told,
        cluster=None if ledger is book.cluster else ledger,
        entries={} if entry == book.entries.get(node) else {node: entry},
        wakes={node: None if wake is None else Millis(wake)},
    )


def entry_of(book: ClusterBook, node: NodeName, now: Millis) -> FaultNodeEntry | None:
    """The entry, with its UpdateTime kept while nothing else differs; None while the node is healthy."""
    return _entry(book, node, [one for one, kept in faults_at(book, node, now) if kept is None], now)


def _entry(book: ClusterBook, node: NodeName, found: Sequence[JobFault], now: Millis) -> FaultNodeEntry | None:
    vanished = node in book.vanished and bool(book.jobs.jobs_on(node))
    report, before = book.reports.get(node), book.entries.get(node)
    if report is None and not vanished and not found:
        return None
    used = book.jobs.devices_in_use(node)
    faults = NodeFaults(
        node,
        devices=_devices(found, used),
        switch_healthy=switch_status(_worst(found, Plane.SWITCH), bool(used)) != "UnHealthy",
        node_healthy=node_status(_worst(found, Plane.NODE), bool(used)) != "UnHealthy",
        vanished=vanished,
        prefix=book.jobs.prefix_of(node) or "Ascend910",
        node_d_enabled=node in book.node_d,
    )
    entry = fault_node(faults)
    if report is not None and report.lost:
        entry = at_least(before, entry)
    return None if entry is None else with_update_time(before, entry, now)


def _devices(found: Iterable[JobFault], used: frozenset[int]) -> tuple[DeviceFault, ...]:
    """Every device fault but the held ones: those go into no document of others."""
    listed = []
    for one in found:
        fault, device = one.fault, one.device
        if device is None or fault.held or fault.key.plane not in (Plane.CHIP, Plane.NETWORK, Plane.PUBLIC):
            continue
        in_use = device in used
        match fault.key.plane:
            case Plane.NETWORK:
                healthy = network_healthy(fault.level)
            case Plane.PUBLIC:
                healthy = public_healthy(fault.level, in_use)
            case _:
                healthy = chip_healthy(fault.level, in_use)
        code = "" if fault.rule == SEPARATION_RULE else fault.key.code
        listed.append(DeviceFault(device, fault.key.plane, code, fault.level, healthy))
    return tuple(listed)


def _worst(found: Iterable[JobFault], plane: Plane) -> str:
    levels = (one.fault.level for one in found if one.fault.key.plane is plane and not one.fault.held)
    return max(levels, key=LEVELS[plane].__getitem__, default="")


def _with_dropped(
    ledger: ClusterLedger, node: NodeName, found: Iterable[tuple[JobFault, Quiet | None]]
) -> ClusterLedger:
    """What is dropped is remembered for as long as it is active: its memory error may be over and forgotten sooner."""
    now = {fault_ref(one.fault.key, one.fault.since) for one, kept in found if kept is not None and kept.dropped}
    if now == {ref for ref, at in ledger.dropped.items() if at == node}:
        return ledger
    others = {ref: at for ref, at in ledger.dropped.items() if at != node}
    return replace(ledger, dropped={**others, **dict.fromkeys(sorted(now), node)})


def _jobless(book: ClusterBook, node: NodeName, now: Millis) -> tuple[dict[str, Done], list[Decision]]:
    """Occurrences on devices that no job holds: decided once, so that `why` has an answer for them too."""
    report = book.reports.get(node)
    if report is None or not report.occurrences:
        return {}, []
    done: dict[str, Done] = {}
    decisions: list[Decision] = []
    busy = bool(book.jobs.jobs_on(node))
    for occurrence in report.occurrences:
        key = f"{occurrence.id}~{occurrence.level}"
        held = busy if not occurrence.devices else any(book.jobs.bindings(node, one) for one in occurrence.devices)
        if key in book.told or held or told_before(book.before, occurrence):
            continue
        judged = _judged_for_a_job(book, node, occurrence, key)
        if judged is not None:
            done[key] = judged  # kept here too: the job forgets the node once its pods are replaced
            continue
        if remembered(book, occurrence):
            done[key] = Done(now, Reason.NO_JOB)  # the job tells it, in this very step, and may then forget the node
            continue
        kept = None if occurrence.held else _quiet(book, occurrence, now)
        reason = Reason.HELD if occurrence.held else Reason.NO_JOB
        if kept is not None:
            reason = Reason.DROPPED if kept.dropped else Reason.QUIET
        done[key] = Done(now, reason)
        cause = cause_of(book, occurrence)
        decisions.append(
            Decision(
                at=now,
                reason=reason,
                node=node,
                fault=cause.fault,
                level=cause.level,
                detail=_why_no_job(book, node, occurrence) + (f"; {kept}" if kept is not None else ""),
                occurrence=cause.occurrence,
                trace=cause.trace,
            )
        )
    return done, decisions


def _moved_on(ledger: ClusterLedger, told: Mapping[str, Done], now: Millis) -> ClusterLedger:
    """The cluster's ledger with what has been told now."""
    if not told:
        return ledger
    places = dict(ledger.told)
    for key in told:
        place = place_of(key.partition("~")[0])
        if place is not None:
            places[place[1]] = max(places.get(place[1], (0, -1)), (place[0], place[2]))
    return replace(ledger, told=places, told_at=now)


def _quiet(book: ClusterBook, occurrence: Occurrence, now: Millis) -> Quiet | None:
    """The rule that keeps back what concerns no job, from all of its devices."""
    places = occurrence.devices or (None,)
    kept = [quiet_at(book, felt_once(book, occurrence), device, now) for device in places]
    return kept[0] if all(kept) else None


def _why_no_job(book: ClusterBook, node: NodeName, occurrence: Occurrence) -> str:
    used = book.jobs.devices_in_use(node)
    if not used.isdisjoint(occurrence.devices):
        return "a pod uses the device, but no PodGroup is known for it: see the findings"
    return "no job holds the device" if occurrence.devices else "no job is on the node"


def _judged_for_a_job(book: ClusterBook, node: NodeName, occurrence: Occurrence, key: str) -> Done | None:
    """What a job that has just left the node was told about the occurrence while it still held the device."""
    places = [str(device) for device in occurrence.devices] or ["-"]
    marks = (
        ledger.done.get(f"{key}~{place}")
        for job in sorted(book.former.get(node, ()))
        if (ledger := book.ledgers.get(job)) is not None
        for place in places
    )
    return next((mark for mark in marks if mark is not None), None)
