"""Which documents wait to be rendered again, and which of them not before a time.

The one rule: what we ourselves have decided is rendered at once; only who keeps answering another writer waits, longer
each time, so that two hands in one document end in an alarm and not in a storm of writes.
"""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from agent.domain.vocab import MINUTE, SECOND, JobId, Millis

Slot = tuple[str, JobId]
"""Kind of document, and the job it belongs to (empty: to all)."""

FIGHT: Final = 5
"""So many times another hand's change is written over before we wait."""
YIELDS: Final = (2 * SECOND, 4 * SECOND, 8 * SECOND, 10 * SECOND)
"""How long (ms) we then let the other have it; the last again and again."""
CALM: Final = MINUTE
"""After so long (ms) without being overwritten the count begins anew."""


@dataclass(slots=True)
class Slots:
    """Slots to be rendered: now, or later."""

    _due: set[Slot] = field(default_factory=set)
    _later: dict[Slot, Millis] = field(default_factory=dict)
    _others: set[Slot] = field(default_factory=set)
    """To be rendered because another hand has changed the document."""
    _fights: dict[Slot, deque[Millis]] = field(default_factory=dict)
    _yielding: dict[Slot, Millis] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Something is to be rendered now."""
        return bool(self._due)

    def only(self, kinds: Collection[str]) -> bool:
        """What is to be rendered now is of these kinds, all of it."""
        return all(kind in kinds for kind, _ in self._due)

    def clear(self) -> None:
        """Forget all that waits; how often others have overwritten us is remembered."""
        self._due.clear()
        self._later.clear()
        self._others.clear()

    def add(self, slot: Slot) -> None:
        """Because of what we know or have decided."""
        self._due.add(slot)

    def changed_by_other(self, slot: Slot) -> None:
        """Because the document has changed; whether by another hand than ours the live object will show."""
        self._others.add(slot)
        until = self._yielding.get(slot)
        if until is None:
            self._due.add(slot)
        else:
            self._later[slot] = until

    def later(self, slot: Slot, at: Millis) -> None:
        """Once more at that time, if nothing else renders it before."""
        self._later[slot] = at

    def take(self, now: Millis) -> list[Slot]:
        """What is to be rendered now, in order; whoever cannot puts it back."""
        self.wake(now)
        taken = sorted(self._due)
        self._due.clear()
        for slot in taken:
            self._later.pop(slot, None)
        return taken

    def wake(self, now: Millis) -> None:
        """What waited until now is due."""
        ripe = {slot for slot, at in self._later.items() if at <= now}
        self._due |= ripe
        for slot in ripe:
            del self._later[slot]
        for slot in [one for one, until in self._yielding.items() if until <= now]:
            del self._yielding[slot]

    def next_at(self) -> Millis | None:
        """When the first of those that wait is due."""
        return min(self._later.values(), default=None)

    def seen(self, slot: Slot, wrote: bool, now: Millis) -> tuple[int, Millis] | None:
        """The slot was rendered; `wrote`: the document was not as we want it. When that has gone back and forth too
        often: how often, and until when the other hand has it.
        """
        caused = slot in self._others
        self._others.discard(slot)
        if not (caused and wrote):
            return None
        times = self._fights.setdefault(slot, deque(maxlen=1000))
        if times and now - times[-1] > CALM:
            times.clear()
        times.append(now)
        rounds = len(times) - FIGHT
        if rounds < 0:
            return None
        until = Millis(now + YIELDS[min(rounds, len(YIELDS) - 1)])
        self._yielding[slot] = until
        return len(times), until
