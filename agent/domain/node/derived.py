"""Faults that follow from others on the same node: port arithmetic of A5, and L2 ports of a switch chip.

The one rule: what follows is there exactly while what it follows from is; each looks at one chip's or one node's ports,
never at history.

A5 parameter plane (device-plugin fault_code.go:1660): of the ports that 81078607 tells, one down is 110000002 and two
are 110001024. A5 hyper plane (fault_code.go:1752): 81B18603 is 020001002, and 020000002 once all chips of the node have
it. Switch (device.go:171-225): 16 distinct L2 ports down on one switch chip are Separate.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from agent.domain.events import FaultEvent, FaultKey
from agent.domain.node.changes import Relevelled
from agent.domain.node.draft import Draft
from agent.domain.node.entries import derived_id, rated, said
from agent.domain.node.moves import device
from agent.domain.vocab import L2_PORTS, Assertion, Plane, Reason

PORT_DOWN: Final = "81078607"
ONE_PORT: Final = "110000002"
TWO_PORTS: Final = "110001024"
HYPER_DOWN: Final = "81B18603"
HYPER_SOME: Final = "020001002"
HYPER_ALL: Final = "020000002"
_DEVICES: Final = 64


def device_and_derived(draft: Draft, event: FaultEvent) -> None:
    """An event of a device source, and what follows from it."""
    key = event.key
    before = len(draft.l2_ports(key)) if key.plane is Plane.SWITCH else 0
    device(draft, event)
    if key.plane is Plane.SWITCH:
        after = draft.l2_ports(key)
        if (before >= L2_PORTS) != (len(after) >= L2_PORTS):
            _rerate_ports(draft, after)
        return
    follow = _FOLLOW.get(key.code)
    if follow is not None and key.plane in (Plane.CHIP, Plane.NETWORK) and event.assertion is not Assertion.ONCE:
        follow(draft, event)


def _ports(draft: Draft, event: FaultEvent) -> None:
    """Recover removes the family; what is still down after it, or down now, is there by its own code."""
    down = event.ports_down
    if down is None:
        if event.assertion is Assertion.OCCUR:
            return
        down = 0
    wanted = (TWO_PORTS if down > 1 else ONE_PORT) if down else ""
    where, because = event.key.where, f"{PORT_DOWN} with {down} {'port' if down == 1 else 'ports'} down"
    for step, code in enumerate((ONE_PORT, TWO_PORTS)):
        _set(draft, event, FaultKey(event.key.node, Plane.NETWORK, where, code), step, because, there=code == wanted)


def _hyper(draft: Draft, event: FaultEvent) -> None:
    """All chips down can converge by another way, some cannot. Only a sender on A5 tells how many chips there are."""
    if event.chips is None and event.assertion is Assertion.OCCUR:
        return
    node, own = event.key.node, event.key.where
    wheres = [str(device) for device in range(_DEVICES)]
    down = [one for one in wheres if draft.state(FaultKey(node, Plane.CHIP, one, HYPER_DOWN)).active is not None]
    everywhere = event.chips is not None and len(down) >= event.chips
    because = f"{HYPER_DOWN} on {len(down)} of {event.chips or 'all'} NPUs"
    for at, where in enumerate(wheres):
        some, all_ = (FaultKey(node, Plane.CHIP, where, code) for code in (HYPER_SOME, HYPER_ALL))
        told = draft.state(some).active is not None or draft.state(all_).active is not None
        there = where in down and (told or (where == own and event.chips is not None))
        for step, (key, wanted) in enumerate(((some, there and not everywhere), (all_, there and everywhere))):
            _set(draft, event, key, 2 + 2 * at + step, because, there=wanted)


def _set(draft: Draft, cause: FaultEvent, key: FaultKey, step: int, because: str, *, there: bool) -> None:
    """Let a fault that follows from `cause` begin or end, if it does not stand so already."""
    s = draft.state(key)
    if (s.active is not None and s.there) == there:
        return
    own = key.where == cause.key.where
    event = replace(
        cause,
        key=key,
        assertion=Assertion.OCCUR if there else Assertion.RECOVER,
        occurrence=derived_id(cause.occurrence, step),
        devices=(int(key.where),),
        logic_id=cause.logic_id if own else None,
        ports_down=None,
        chips=None,
        because=because,
    )
    device(draft, event)


def _rerate_ports(draft: Draft, ports: list[FaultKey]) -> None:
    """Their number has crossed the limit: every port fault of that chip has another level now."""
    for key in ports:
        s = draft.state(key)
        if s.active is None:
            continue
        rating = draft.level(key, s.active.severity)
        after = rated(s.active, rating)
        if after != s.active:
            draft.put(Relevelled, key, Reason.FAULT_SHOWN, said(rating), None, after, s.timer, s.counter)


_FOLLOW: Final[Mapping[str, Callable[[Draft, FaultEvent], None]]] = {PORT_DOWN: _ports, HYPER_DOWN: _hyper}
