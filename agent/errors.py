"""The error tree: every failure the agent names itself, and what to do about each.

The one rule: nothing else is raised on purpose, and every class knows its verdict.

    AgentError
    ├── BadInput           park   one record, object or file is wrong; name it, keep it, go on
    │   ├── BadRecord             a record of the event stream (goes to the dead letters)
    │   ├── BadReport             a NodeReport that cannot be read (freezes its node as unknown)
    │   ├── BadDocument           a ConfigMap, rank table or ledger that cannot be read
    │   └── BadPolicy             a policy file (the last good policy stays in force)
    ├── Conflict           retry  the resourceVersion moved; read again, merge again
    ├── Unavailable        retry  a service or disk did not answer in time
    ├── Refused            park   a service said no (rights, size, validation): that document alone waits
    ├── Fenced             stop   another writer has taken over; this one must not write any more
    └── CannotRun          stop   the process cannot do its work as started
        └── BadUsage              the command line or the settings are wrong
"""

from enum import StrEnum


class Verdict(StrEnum):
    """What the caller does with an error: try again, set this one thing aside, or end."""

    RETRY = "retry"
    PARK = "park"
    STOP = "stop"


class AgentError(Exception):
    """Root of the tree; `hint` says what a person can do next."""

    verdict: Verdict = Verdict.STOP

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class BadInput(AgentError):
    """Something that came in is wrong; it names the place (field, file and line) and the reason."""

    verdict = Verdict.PARK

    def __init__(self, message: str, *, place: str = "", hint: str = "") -> None:
        super().__init__(f"{place}: {message}" if place else message, hint=hint)
        self.place = place
        self.reason = message


class BadRecord(BadInput):
    """A record of the event stream; `code` is a DeadReason."""

    def __init__(self, code: str, message: str, *, place: str = "") -> None:
        super().__init__(message, place=place)
        self.code = code


class BadReport(BadInput):
    """A NodeReport that cannot be read."""


class BadDocument(BadInput):
    """A ConfigMap, rank table or ledger that cannot be read."""


class BadPolicy(BadInput):
    """A policy file that cannot be used."""


class Conflict(AgentError):
    """Compare-and-swap lost: the object's resourceVersion is not the one that was read."""

    verdict = Verdict.RETRY


class Unavailable(AgentError):
    """A service or disk did not answer; the same call may go through later."""

    verdict = Verdict.RETRY


class Refused(AgentError):
    """A service answered no and will again (rights, size, validation)."""

    verdict = Verdict.PARK


class Fenced(AgentError):
    """Another writer owns this now."""

    verdict = Verdict.STOP


class CannotRun(AgentError):
    """The process cannot do its work as it was started (exit code 3)."""


class BadUsage(CannotRun):
    """The command line or a setting is wrong (exit code 2)."""
