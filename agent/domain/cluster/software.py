"""Hardware or software: the same code on two devices of one job at nearly the same time is no device's own fault.

The one rule: a fault waits SPAN for its like and then counts against its device exactly once, or says that it does not.
What a quiet rule keeps back waits until it is released; what it has hidden for good is not counted (ClusterD counts
what its filters let through).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from agent.domain.cluster.book import Cause, Draft, cause_of
from agent.domain.cluster.kept import free_since, is_kept, key_of, known_occurrences
from agent.domain.cluster.recovery import ranks_on
from agent.domain.cluster.separation import separate, switched
from agent.domain.events import Occurrence
from agent.domain.isolation import Count, Isolation, add, count_key, with_count
from agent.domain.jobs import Job
from agent.domain.ledger import Separation
from agent.domain.vocab import HOUR, MANUAL, SECOND, Millis, Plane, Reason, utc_text

SPAN: Final = 30 * SECOND
_PLANES: Final = frozenset({Plane.CHIP, Plane.NETWORK, Plane.PUBLIC})
_MILD: Final = frozenset({"NormalNPU", "NotHandleFault", "SubHealthFault", MANUAL})


def count(draft: Draft, job: Job) -> None:
    """Judge the job's device faults whose time has come, and count those that are a device's own."""
    policy = draft.book.isolation
    draft.cluster = switched(draft.book, draft.cluster, draft.now)
    if policy is None or not policy.enabled:
        return
    since = draft.cluster.counts_since or 0
    faults = [one for one in _faults(draft) if one[0].begin >= since]
    of_code: dict[tuple[Plane, str], list[tuple[Occurrence, int]]] = {}
    for one in faults:
        of_code.setdefault((one[0].key.plane, one[0].key.code), []).append(one)
    for occurrence, device in faults:
        key = f"count~{key_of(occurrence, device)}"
        known = draft.ledger.done.get(key)
        if known is not None and known.reason is Reason.FAULT_COUNTED:
            # The cluster's ledger may have been lost with a crash.
            _count(draft, job, occurrence, device, policy, told=True)
        if known is not None or draft.is_done(key) or _is_old(draft, occurrence, device):
            continue
        mark = draft.marks.get(key_of(occurrence, device)) or draft.ledger.done.get(key_of(occurrence, device))
        if mark is not None and mark.reason is Reason.DROPPED:
            draft.mark(key, Reason.DROPPED)
            continue
        if is_kept(draft, job, occurrence, device):
            continue  # whoever decides it has noted when to look again
        same = of_code[occurrence.key.plane, occurrence.key.code]
        like = next((one for one in same if _alike(occurrence, device, *one)), None)
        if like is not None:
            other, place = like
            gap = abs(other.begin - occurrence.begin) / SECOND
            detail = (
                f"software: {other.key.code} on {other.key.node}/{other.key.plane}/{place} of the same job within"
                f" {gap:g} s; not counted against the device"
            )
            draft.mark(key, Reason.SOFTWARE_FAULT)
            draft.say(Reason.SOFTWARE_FAULT, detail, _cause(draft, job, occurrence, device))
        elif draft.now > occurrence.begin + SPAN:
            draft.mark(key, Reason.FAULT_COUNTED)
            _count(draft, job, occurrence, device, policy, told=False)
        else:
            draft.wake.append(Millis(occurrence.begin + SPAN + 1))


def _faults(draft: Draft) -> Iterator[tuple[Occurrence, int]]:
    """Occurrences on devices of the job whose level counts."""
    for occurrence, device in known_occurrences(draft):
        counts = occurrence.key.plane in _PLANES and not occurrence.held and occurrence.level not in _MILD
        if device is not None and counts:
            yield occurrence, device


def _is_old(draft: Draft, occurrence: Occurrence, device: int) -> bool:
    """Old news, or what a silent node's report still holds after our own marks of it have gone."""
    return draft.now - free_since(draft, occurrence, device) > draft.book.limits.max_event_age


def _alike(one: Occurrence, device: int, other: Occurrence, place: int) -> bool:
    """Whether two faults of one code lie on different devices and began at nearly the same time."""
    return (one.key.node, device) != (other.key.node, place) and abs(one.begin - other.begin) <= SPAN


def _count(draft: Draft, job: Job, occurrence: Occurrence, device: int, policy: Isolation, told: bool) -> None:
    ledger, node, code = draft.cluster, occurrence.key.node, occurrence.key.code
    key = count_key(device, code)
    before = ledger.counts.get(node, {}).get(key, Count())
    after, tripped = add(before, occurrence.begin, policy)
    if after == before:
        return
    counts, size = with_count(ledger.counts, node, key, after, policy, ledger.counted)
    draft.cluster = replace(ledger, counts=counts, counted=size, isolation=policy)
    cause = _cause(draft, job, occurrence, device)
    hours = policy.window // HOUR
    if not tripped:
        if not told and len(after.times) > 1:  # of the first the ledger alone needs to know
            detail = f"{len(after.times)} of {policy.threshold} within {hours} h count towards a manual separation"
            draft.say(Reason.FAULT_COUNTED, detail, cause)
        return
    one = Separation(device, code, occurrence.begin, occurrence.id, occurrence.trace)
    draft.cluster = separate(draft.cluster, node, one)
    until = "" if policy.free is None else f"{utc_text(Millis(one.since + policy.free))}, or until "
    counted = f"{policy.threshold} of {policy.threshold} within {hours} h"
    detail = f"{counted}: {MANUAL} until {until}a person releases it"
    draft.say(Reason.SEPARATED, detail, replace(cause, level=MANUAL))


def _cause(draft: Draft, job: Job, occurrence: Occurrence, device: int) -> Cause:
    return cause_of(draft.book, occurrence, ranks_on(draft.book, job.id, occurrence.key.node, device))
