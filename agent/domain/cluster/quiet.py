"""Quiet rules: a known fault that is kept back for a time, because somebody else is expected to deal with it.

The one rule: whether a fault is quiet, and until when, follows from the book and the time alone, so it is the same for
every reader and after every restart. A fault is kept back up to and including its last moment (ClusterD compares
`now - received <= limit`); a node's own plane and DPUs are never quiet.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from agent.domain.cluster.book import ClusterBook
from agent.domain.effects import node_status, switch_status
from agent.domain.events import ActiveFault, FaultKey, Occurrence, fault_ref
from agent.domain.jobs import Job, Pod
from agent.domain.jobs.filters import FILTER_LEVELS, filter_key
from agent.domain.vocab import MINUTE, SECOND, JobId, Millis, NodeName, Plane, utc_text

REQUEST_SPAN: Final = 60 * SECOND
"""A RestartRequest of a subscribed inference job (ClusterD custom filter)."""
RETRY_CODES: Final = frozenset({"80E01801", "8C1F860B"})
RETRY_SPAN: Final = 10 * SECOND
"""Faults that a process may answer by running the step again, and how long it has for that."""
IN_PLACE_LEVELS: Final = frozenset({"RestartRequest", "RestartBusiness"})
IN_PLACE_SPAN: Final = MINUTE
UCE: Final = "80E01801"
ACCOMPANIES: Final = frozenset({"80C98009", "80CB8009"})
ACCOMPANY_SPAN: Final = 5 * SECOND
"""Bus faults of AI and vector cores that come along with an uncorrectable memory error: wait so long for it, and are
dropped when it began within that time, before or after."""
STRESS_CODES: Final = frozenset({"80818C05", "80818C06"})
"""What the online stress test finds is told to who runs it."""
_PLANES: Final = frozenset({Plane.CHIP, Plane.NETWORK, Plane.PUBLIC, Plane.SWITCH})


@dataclass(frozen=True, slots=True)
class Quiet:
    """A fault is kept back."""

    until: Millis | None
    """Its last quiet moment, ms; None: for as long as the rule's cause lasts."""
    rule: str
    """Which rule, for people."""
    dropped: bool = False
    """For good: it is no fault of its own."""

    def __str__(self) -> str:
        if self.dropped:
            return f"dropped by {self.rule}"
        return f"kept back by {self.rule} until {'that is over' if self.until is None else utc_text(self.until)}"


@dataclass(frozen=True, slots=True)
class Felt:
    """What the rules look at of a fault or of one occurrence of it."""

    key: FaultKey
    level: str
    since: Millis
    occurrence: str
    devices: tuple[int, ...]


def felt(fault: ActiveFault) -> Felt:
    """An active fault for the rules."""
    return Felt(fault.key, fault.level, fault.since, fault.occurrence, fault.devices)


def felt_once(book: ClusterBook, occurrence: Occurrence) -> Felt:
    """An occurrence for the rules; what a rule over time raised began when its fault did."""
    report = book.reports.get(occurrence.key.node) if occurrence.raised else None
    active = report.active if report is not None else ()
    since = next((one.since for one in active if one.key == occurrence.key), occurrence.begin)
    return Felt(occurrence.key, occurrence.level, since, occurrence.id, occurrence.devices)


def quiet_for(book: ClusterBook, fault: Felt, device: int | None, job: Job, now: Millis) -> Quiet | None:
    """Whether the fault on that device (None: the whole node) is kept back from this job; None: it is not."""
    if fault.key.plane not in _PLANES:
        return None
    return _longest((*_of_node(book, fault, device, now), *_of_job(book, fault, device, job, now)))


def quiet_at(book: ClusterBook, fault: Felt, device: int | None, now: Millis) -> Quiet | None:
    """Whether the fault is kept back from everybody: by a rule of the node, or by every job that has the device."""
    if fault.key.plane not in _PLANES:
        return None
    node = fault.key.node
    shared = _longest(_of_node(book, fault, device, now))
    if shared is not None and shared.until is None:
        return shared
    names = {bound.job for bound in book.jobs.bindings(node, device)} if device is not None else _placed(book, node)
    kept: list[Quiet] = []
    for name in sorted(names):
        job = book.jobs.job(name)
        one = _longest(_of_job(book, fault, device, job, now)) if job is not None else None
        if one is None:
            return shared
        kept.append(one)
    shortest = min(kept, key=_length, default=None)
    return _longest(one for one in (shared, shortest) if one is not None)


def _placed(book: ClusterBook, node: NodeName) -> set[JobId]:
    return {name for name in book.jobs.jobs_on(node) if book.jobs.devices_of(name, node)}


def _length(one: Quiet) -> float:
    return float("inf") if one.until is None else one.until


def _longest(found: Iterable[Quiet]) -> Quiet | None:
    return max(found, key=_length, default=None)


def _span(fault: Felt, span: int, rule: str, now: Millis) -> Iterator[Quiet]:
    if span and now - fault.since <= span:
        yield Quiet(Millis(fault.since + span), f"{rule}, {span // SECOND} s")


def _of_node(book: ClusterBook, fault: Felt, device: int | None, now: Millis) -> Iterator[Quiet]:
    """Rules that look at no job's wishes."""
    code = fault.key.code
    if fault.key.plane is not Plane.CHIP or device is None:
        return
    if code in ACCOMPANIES:
        if accompanied(book, fault, device):
            yield Quiet(None, f"UCE accompany: {UCE} began within 5 s on the device", dropped=True)
        else:
            yield from _span(fault, ACCOMPANY_SPAN, "UCE accompany", now)
    if code in STRESS_CODES:
        testing = (job for name in book.jobs.jobs_on(fault.key.node) if (job := book.jobs.job(name)) is not None)
        tester = next((job for job in testing if job.settings.stress_test and not job.finished), None)
        if tester is not None:
            yield Quiet(None, f"stress test of {tester.id}")


def accompanied(book: ClusterBook, fault: Felt, device: int) -> bool:
    """Whether an uncorrectable memory error began on the device within ACCOMPANY_SPAN of the fault, or once did."""
    if fault_ref(fault.key, fault.since) in book.cluster.dropped:
        return True
    report = book.reports.get(fault.key.node)
    if report is None:
        return False
    begun = [one.since for one in report.active if one.key.code == UCE and device in one.devices]
    begun += [one.begin for one in report.occurrences if one.key.code == UCE and device in one.devices]
    return any(abs(fault.since - at) <= ACCOMPANY_SPAN for at in begun)


def _of_job(book: ClusterBook, fault: Felt, device: int | None, job: Job, now: Millis) -> Iterator[Quiet]:
    """Rules that a job asks for, by its annotations or by what the settings say of it."""
    yield from _filtered(book, fault, job, now)
    if fault.key.plane is not Plane.CHIP or device is None:
        return
    settings = job.settings
    if settings.process_recover == "on" and "retry" in settings.strategies and fault.key.code in RETRY_CODES:
        yield from _span(fault, RETRY_SPAN, "recover-strategy retry", now)
    if (
        "recover-in-place" in settings.strategies
        and settings.process_recover not in ("off", "pause")
        and fault.level in IN_PLACE_LEVELS
        and _light(book, job, fault.key.node, device)
    ):
        yield from _span(fault, IN_PLACE_SPAN, "recover-strategy recover-in-place", now)


def _filtered(book: ClusterBook, fault: Felt, job: Job, now: Millis) -> Iterator[Quiet]:
    """The job's filters; the one of the code decides where there is one, also against the level's."""
    codes, levels = job.settings.quiet_codes.spans, job.settings.quiet_levels.spans
    code, level = filter_key(fault.key.code), filter_key(fault.level)
    if code in codes:
        yield from _span(fault, codes[code], f"schedule.filter.faultCode {fault.key.code}", now)
    elif level in levels:
        yield from _span(fault, levels[level], f"schedule.filter.faultLevel {fault.level}", now)
    elif fault.level == "RestartRequest" and not job.annotations.get(FILTER_LEVELS, "").strip():
        named = next((one for one in book.limits.inference_jobs if _is_meant(job, one)), None)
        if named is not None:
            yield from _span(fault, REQUEST_SPAN, f"RestartRequest of an inference job ({named})", now)


def _is_meant(job: Job, pattern: str) -> bool:
    """`label=value`, `label`, or `namespace/job`; a job whose pods differ in a label has each of the values."""
    label, equals, value = pattern.partition("=")
    if equals:
        return value in job.labels.get(label, "").split("|") and label in job.labels
    return label in job.labels or label in (job.id, f"{job.namespace}/{job.owner_name}")


def _light(book: ClusterBook, job: Job, node: NodeName, device: int) -> bool:
    """Whether the pod on the device, and the pod of rank 0, have nothing worse than what a restart in place heals."""
    pods = book.jobs.pods_of(job.id)
    concerned = [pod for pod in pods if (pod.node == node and device in pod.bound) or pod.rank_index == 0]
    return all(_has_light_faults(book, pod, job.settings.sub_healthy_strategy == "ignore") for pod in concerned)


def _has_light_faults(book: ClusterBook, pod: Pod, sub_health: bool) -> bool:
    report = book.reports.get(pod.node) if pod.node is not None else None
    light = {*IN_PLACE_LEVELS, "NotHandleFault", "NormalNPU", *(("SubHealthFault",) if sub_health else ())}
    for fault in report.active if report is not None else ():
        match fault.key.plane:
            case Plane.NODE:
                if node_status(fault.level, in_use=True) == "UnHealthy":
                    return False
            case Plane.SWITCH:
                if switch_status(fault.level, in_use=True) == "UnHealthy":
                    return False
            case Plane.DPU:
                continue
            case _:
                if fault.level not in light and not set(pod.bound).isdisjoint(fault.devices):
                    return False
    return True
