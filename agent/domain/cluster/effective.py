"""The faults of a node as they count now: what is kept back is left out, a device that is separated is added.

The one rule: everything that acts on levels asks here, so that a quiet fault is quiet everywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agent.domain.cluster.book import ClusterBook
from agent.domain.cluster.quiet import Quiet, felt, quiet_at, quiet_for
from agent.domain.events import ActiveFault, FaultKey, fault_ref
from agent.domain.jobs import Job
from agent.domain.ledger import Separation
from agent.domain.vocab import MANUAL, Millis, NodeName, OccurrenceId, Plane, Source

SEPARATION_RULE = "manual-separation"


@dataclass(frozen=True, slots=True)
class JobFault:
    """An active fault together with one device that it lies on (None: the whole node)."""

    fault: ActiveFault
    device: int | None


def faults_of(book: ClusterBook, node: NodeName, devices: frozenset[int], job: Job, now: Millis) -> Iterator[JobFault]:
    """Active faults of a node that count for the job: on one of these devices of it, or on the whole node."""
    for found in _active(book, node):
        if (found.device is None or found.device in devices) and not (
            not found.fault.held and quiet_for(book, felt(found.fault), found.device, job, now)
        ):
            yield found
    for separation in book.cluster.separations.get(node, ()):
        if separation.device in devices:
            yield JobFault(_separated(node, separation), separation.device)


def faults_at(book: ClusterBook, node: NodeName, now: Millis) -> Iterator[tuple[JobFault, Quiet | None]]:
    """Every fault of a node on each of its devices, with how long it is kept back from everybody, if it is."""
    for found in _active(book, node):
        kept = None if found.fault.held else quiet_at(book, felt(found.fault), found.device, now)
        yield found, kept
    for separation in book.cluster.separations.get(node, ()):
        yield JobFault(_separated(node, separation), separation.device), None


def _active(book: ClusterBook, node: NodeName) -> Iterator[JobFault]:
    report = book.reports.get(node)
    for fault in report.active if report is not None else ():
        if not fault.devices:
            yield JobFault(fault, None)
        for device in fault.devices:
            yield JobFault(fault, device)


def separation_ref(node: NodeName, separation: Separation) -> str:
    """The reference of a separation: that of the fault it was made for, at the moment it was made."""
    return fault_ref(_separated(node, separation).key, separation.since)


def _separated(node: NodeName, separation: Separation) -> ActiveFault:
    """A separation as the fault that it stands for; the code is in the reference alone (`fault-node` names none)."""
    key = FaultKey(node, Plane.CHIP, str(separation.device), separation.code)
    return ActiveFault(
        key,
        separation.since,
        MANUAL,
        SEPARATION_RULE,
        OccurrenceId(separation.occurrence),
        Source.DCMI,
        devices=(separation.device,),
        trace=separation.trace,
    )
