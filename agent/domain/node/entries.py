"""Occurrences and active faults as they come of events: values made of values.

The one rule: nothing here decides; the same arguments give the same value.
"""

from dataclasses import replace
from zlib import crc32

from agent.domain.events import (
    ActiveFault,
    DurationTimer,
    FaultEvent,
    FaultKey,
    FrequencyCounter,
    Link,
    Occurrence,
    Rating,
)
from agent.domain.frequency import holds
from agent.domain.vocab import LINK_DOWN, MANUAL, RAISED_INDEX, Assertion, Millis, OccurrenceId, Plane

_DERIVED = 1 << 25
"""Beyond all the ids that a new policy may give."""


def said(rating: Rating) -> str:
    """A rating in words."""
    return f"{rating.level} by {rating.rule}{', held for a person' if rating.held else ''}"


def base_of(active: ActiveFault, timer: DurationTimer | None, counter: FrequencyCounter | None = None) -> OccurrenceId:
    """The occurrence of the fault itself, as opposed to the one its duration raised or the one its trip began with."""
    if timer is not None and timer.event is not None:
        return timer.event.occurrence
    return counter.occurrence if counter is not None and holds(counter) else active.occurrence


def raised_id(opening: OccurrenceId) -> OccurrenceId:
    """The id of the occurrence that a duration rule raises out of another."""
    place, _, index = opening.rpartition(":")
    return OccurrenceId(f"{place}:{int(index) + RAISED_INDEX}" if index.isdecimal() else f"{opening}:{RAISED_INDEX}")


def rerated_id(opening: OccurrenceId, digest: str, total: int) -> OccurrenceId:
    """The id of the occurrence with which a policy makes the level of another one worse, of an identity that has had
    `total` so far: one for each policy and each time that it comes, and the same for whoever has read as much.
    """
    place, _, index = opening.rpartition(":")
    number = int(index) % RAISED_INDEX if index.isdecimal() else 0
    steps = 3 + (crc32(f"{digest}#{total}".encode()) & 0xFFFFFF)
    return OccurrenceId(f"{place or opening}:{number + steps * RAISED_INDEX}")


def derived_id(opening: OccurrenceId, step: int) -> OccurrenceId:
    """The id of the occurrence of a fault that follows from another one; `step` tells those of one event apart."""
    place, _, index = opening.rpartition(":")
    number = int(index) % RAISED_INDEX if index.isdecimal() else 0
    return OccurrenceId(f"{place or opening}:{number + (_DERIVED + step) * RAISED_INDEX}")


def entry(event: FaultEvent, rating: Rating, end: Millis | None) -> Occurrence:
    """An event as an occurrence."""
    return Occurrence(
        event.occurrence,
        event.key,
        event.at,
        end,
        rating.level,
        rating.held,
        event.devices,
        event.logic_id,
        event.trace,
    )


def raised_entry(active: ActiveFault, rating: Rating, begin: Millis) -> Occurrence:
    """The occurrence with which the level of an active fault went up."""
    return Occurrence(
        active.occurrence,
        active.key,
        begin,
        None,
        rating.level,
        rating.held,
        active.devices,
        active.logic_id,
        active.trace,
    )


def trip_entry(counter: FrequencyCounter, begin: Millis, devices: tuple[int, ...]) -> Occurrence:
    """The occurrence that a manual trip is: nothing ends it here but its release."""
    return Occurrence(
        counter.trip,
        counter.key,
        begin,
        None,
        MANUAL,
        devices=devices,
        logic_id=counter.logic_id,
        trace=counter.trace,
    )


def fault(event: FaultEvent, rating: Rating, occurrence: OccurrenceId, since: Millis, count: int) -> ActiveFault:
    """An event as an active fault."""
    return ActiveFault(
        event.key,
        since,
        rating.level,
        rating.rule,
        occurrence,
        event.source,
        rating.known,
        rating.held,
        event.severity,
        event.devices,
        event.logic_id,
        count,
        event.trace,
    )


def counted_fault(counter: FrequencyCounter, rating: Rating, count: int) -> ActiveFault:
    """A fault that is over, and is shown because it tripped."""
    return ActiveFault(
        counter.key,
        counter.last,
        rating.level,
        rating.rule,
        counter.occurrence,
        counter.source,
        rating.known,
        rating.held,
        counter.severity,
        devices_of(counter.key),
        counter.logic_id,
        count,
        counter.trace,
    )


def devices_of(key: FaultKey) -> tuple[int, ...]:
    """The one device of a chip or network fault."""
    return (int(key.where),) if key.where.isdecimal() else ()


def occur_of(active: ActiveFault) -> FaultEvent:
    """The occur that an active fault stands for, for a rule that begins after it."""
    return FaultEvent(
        active.key,
        Assertion.OCCUR,
        active.since,
        active.occurrence,
        active.source,
        active.source,
        active.severity,
        active.devices,
        active.logic_id,
        trace=active.trace,
    )


def rated(active: ActiveFault, rating: Rating) -> ActiveFault:
    """The fault as rated now."""
    return replace(active, level=rating.level, rule=rating.rule, known=rating.known, held=rating.held)


def link_of(event: FaultEvent) -> Link | None:
    """What an event tells of its die's link: 81078603 down or up; a `once` tells nothing that lasts."""
    if event.key.plane is not Plane.NETWORK or event.assertion is Assertion.ONCE:
        return None
    try:
        code = int(event.key.code, 16)
    except ValueError:
        return None
    return None if code != LINK_DOWN else Link("down" if event.assertion is Assertion.OCCUR else "up", event.at)
