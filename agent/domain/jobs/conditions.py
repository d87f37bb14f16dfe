"""What Volcano's plugin has said of a PodGroup that it could not schedule, and what that means to a person.

The one rule: it is told, and nothing is decided by it: a job that waits is not hurt by a fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.domain.vocab import Millis


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a PodGroup's status that is True."""

    type: str
    reason: str
    message: str = ""
    since: Millis = Millis(0)
    """lastTransitionTime, Unix ms; 0: not told."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a job waits, and what a person can do."""

    meaning: str
    do: str


UNSCHEDULABLE: Final = "Unschedulable"
"""Type of the conditions below."""
WAITING: Final[Mapping[str, Waiting]] = {
    "JobEnqueueFailed": Waiting(
        "the cluster has too few free NPUs to let the job into the queue",
        "wait, end another job, or bring devices back: why node NODE tells which are taken away from jobs",
    ),
    "JobValidateFailed": Waiting(
        "the plugin refuses the job: too few pods, a request for NPUs that it does not allow, or a kind of job that it"
        " does not know",
        "correct the job as the message says and submit it again; waiting does not help",
    ),
    "NodePredicateFailed": Waiting(
        "no node passed the filters of the plugin; the message names them",
        "look at what the nodes lack: a faulty or sub-healthy node is kept out too, why node NODE tells why",
    ),
    "BatchOrderFailed": Waiting(
        "nodes passed, but the plugin could not choose among them, so the job as a whole has no place",
        "look at the message; often no ring, super-pod or switch has enough free NPUs together",
    ),
}
"""By reason of the condition, as Volcano's plugin for NPUs words it."""


def waiting(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Those that say why the job was not scheduled, newest first; of a reason that is not known here too."""
    found = (one for one in conditions if one.type == UNSCHEDULABLE or one.reason in WAITING)
    return tuple(sorted(found, key=lambda one: (-one.since, one.reason)))
