"""Which nodes have reported: when last, and by which policy their faults were rated.

The one rule: an answer costs as much as it has to tell, not as much as there are nodes; it is asked each second.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import takewhile
from typing import Final

from agent.domain.vocab import SECOND, Millis, NodeName

UNKNOWN_AFTER: Final = 180 * SECOND
"""A node that has not reported for so long is unknown: its agent may be gone."""


class RollCall:
    """The last word of each node."""

    def __init__(self) -> None:
        self._last: dict[NodeName, tuple[Millis, str]] = {}  # the one longest silent first
        self._policies: Counter[str] = Counter()

    def heard(self, node: NodeName, at: Millis, policy: str) -> None:
        """It has reported; `policy` is a digest, empty if it does not tell one."""
        self.forget(node)
        if self._last and next(reversed(self._last.values()))[0] > at:
            # The clock was set back. Who was heard by the old one was heard by now at the latest.
            self._last = {one: (min(when, at), rated) for one, (when, rated) in self._last.items()}
        self._last[node] = (at, policy)
        if policy:
            self._policies[policy] += 1

    def forget(self, node: NodeName) -> None:
        """It is gone for good."""
        _, policy = self._last.pop(node, (0, ""))
        if policy:
            self._policies[policy] -= 1
            self._policies += Counter()  # a policy of no node is none

    def unknown(self, now: Millis) -> tuple[NodeName, ...]:
        """Nodes that have not reported for UNKNOWN_AFTER, the one longest silent first."""
        silent = takewhile(lambda entry: now - entry[1][0] > UNKNOWN_AFTER, self._last.items())
        return tuple(node for node, _ in silent)

    def policies(self) -> Mapping[str, int]:
        """How many nodes' last reports were rated by which policy; more than one is a split fleet."""
        return dict(self._policies)
