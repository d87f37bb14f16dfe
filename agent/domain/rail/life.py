"""The life of a borrow: its states, what leads from one to the next, and by when each must be left.

The one rule: a state changes only as `LIFE` says; a signal that is not in the row of a state changes nothing.

Where each state is kept, so that who takes over finds it: `observed` is the link fault in its node's report,
`planned` is nowhere (deciding again gives it again), `reserved` and what follows is the book of NPUs, `refused` and
`expired` are the marks of the job's ledger.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from agent.domain.vocab import MINUTE, Millis


class HoldState(StrEnum):
    """Where a borrow stands. `reserved` and `advised` hold NPUs."""

    OBSERVED = "observed"
    """A link is down; it may be a flap, and others may follow within the window."""
    PLANNED = "planned"
    """The rules let it; nothing is held yet."""
    RESERVED = "reserved"
    """Every NPU of the plan is held, by one write; nobody has been told yet."""
    ADVISED = "advised"
    """The plan document is out. The last state of a borrow that stands: HCCL's own switch cannot be seen."""
    REFUSED = "refused"
    """A rule or the book said no."""
    EXPIRED = "expired"
    """Its link fault was too old before it could be judged or held."""
    SUPERSEDED = "superseded"
    """The processes that borrowed are gone, and HCCL's mark with them."""
    RETURNED = "returned"
    """An operator switched back by hand and recorded it."""

    @property
    def holds(self) -> bool:
        """NPUs are held in it."""
        return self in (HoldState.RESERVED, HoldState.ADVISED)


class LifeSignal(StrEnum):
    """What can happen to a borrow."""

    ALLOWED = "allowed"
    """Rule 28."""
    DENIED = "denied"
    """Another rule answered, or another plan holds one of its NPUs."""
    HELD = "held"
    """The write of the book that holds all its NPUs."""
    TOLD = "told"
    """The plan document was written."""
    TOO_OLD = "too_old"
    NEW_LIFE = "new_life"
    """The pods were replaced, have ended, or the job is gone."""
    HANDED_BACK = "handed_back"


LIFE: Final[Mapping[HoldState, Mapping[LifeSignal, HoldState]]] = {
    HoldState.OBSERVED: {
        LifeSignal.ALLOWED: HoldState.PLANNED,
        LifeSignal.DENIED: HoldState.REFUSED,
        LifeSignal.TOO_OLD: HoldState.EXPIRED,
        LifeSignal.NEW_LIFE: HoldState.SUPERSEDED,
    },
    HoldState.PLANNED: {
        LifeSignal.HELD: HoldState.RESERVED,
        LifeSignal.DENIED: HoldState.REFUSED,
        LifeSignal.TOO_OLD: HoldState.EXPIRED,
        LifeSignal.NEW_LIFE: HoldState.SUPERSEDED,
    },
    HoldState.RESERVED: {
        LifeSignal.TOLD: HoldState.ADVISED,
        LifeSignal.NEW_LIFE: HoldState.SUPERSEDED,
        LifeSignal.HANDED_BACK: HoldState.RETURNED,
    },
    HoldState.ADVISED: {
        LifeSignal.NEW_LIFE: HoldState.SUPERSEDED,
        LifeSignal.HANDED_BACK: HoldState.RETURNED,
    },
    HoldState.REFUSED: {},
    HoldState.EXPIRED: {},
    HoldState.SUPERSEDED: {},
    HoldState.RETURNED: {},
}
"""What is reserved never expires: HCCL switches whether or not the advice got out, so letting go of its NPUs would
promise a second borrow that HCCL refuses."""

ADVISE_WITHIN: Final = MINUTE
"""A reservation whose plan document is not out by then is overdue; a refused write is tried that often."""


def step(state: HoldState, signal: LifeSignal) -> HoldState | None:
    """The next state, or None when the signal means nothing there."""
    return LIFE[state].get(signal)


def deadline(state: HoldState, since: Millis, max_event_age: Millis) -> Millis | None:
    """When (ms) a state should have been left that was entered at `since`; None: it waits for nothing of ours.

    Past it `observed` and `planned` expire (they count from the link fault's begin), `reserved` is overdue and stays.
    """
    if state in (HoldState.OBSERVED, HoldState.PLANNED):
        return Millis(since + max_event_age)
    return Millis(since + ADVISE_WITHIN) if state is HoldState.RESERVED else None
