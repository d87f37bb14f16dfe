"""What a node's ports make of a code, in sentences: port arithmetic of A5, L2 ports of a switch chip.

The one rule: it tells what `agent.domain.node.derived` works out, from the same codes and limits.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from agent.domain.node.derived import HYPER_ALL, HYPER_DOWN, HYPER_SOME, ONE_PORT, PORT_DOWN, TWO_PORTS
from agent.domain.vocab import L2_LEVEL, L2_LINK_DOWN, L2_PORTS, Plane

_WORDS: Final[Mapping[str, str]] = {
    PORT_DOWN: f"of the ports that it tells (A5), one down is also {ONE_PORT}, and two are {TWO_PORTS}",
    ONE_PORT: f"follows from a {PORT_DOWN} that tells one port down (A5)",
    TWO_PORTS: f"follows from a {PORT_DOWN} that tells two ports down (A5)",
    HYPER_DOWN: f"on an NPU of A5 it is also {HYPER_SOME}, and {HYPER_ALL} while all NPUs of the node have it",
    HYPER_SOME: f"follows from {HYPER_DOWN} (A5), while not all NPUs of the node have it",
    HYPER_ALL: f"follows from {HYPER_DOWN} (A5), while all NPUs of the node have it",
}


def port_words(plane: Plane, code: str) -> Iterator[str]:
    """A sentence for the port rule that looks at a code as it is spelled, if there is one."""
    if plane is Plane.SWITCH and code == L2_LINK_DOWN:
        yield f"{L2_LEVEL} while {L2_PORTS} or more distinct L2 ports of one switch chip are down"
    if plane in (Plane.CHIP, Plane.NETWORK) and code in _WORDS:
        yield _WORDS[code]
