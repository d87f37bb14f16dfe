"""The timeline: decisions as they are made, one line each, for a person at night.

The one rule: first what happened and where, then what it means, then what was decided and why.
"""

import click

from agent.app.cli.show import local_offset, utc_clock
from agent.domain.vocab import Reason
from agent.wire.audit import AuditLine

_DOCUMENT_REASONS = frozenset(
    {
        Reason.WRITTEN,
        Reason.OBSERVE,
        Reason.FOREIGN_WRITER_LIVE,
        Reason.DOCUMENT_UNREADABLE,
        Reason.DOCUMENT_REFUSED,
        Reason.NO_RESET_CONFIG,
        Reason.DISABLED,
    }
)
_ALARMING = frozenset(
    {
        Reason.HELD,
        Reason.RECOVERY_FAILED,
        Reason.RAIL_REFUSED,
        Reason.DOCUMENT_REFUSED,
        Reason.DOCUMENT_UNREADABLE,
        Reason.LEDGER_UNREADABLE,
    }
)
_GOOD = frozenset({Reason.FAULT_CLEARED, Reason.RECOVERY_SUCCEEDED})


class Timeline:
    """Prints audit lines; says the date when it changes, and a fault's meaning once."""

    def __init__(self) -> None:
        self._day = ""
        self._meant: set[str] = set()

    def show(self, line: AuditLine) -> None:
        """Print one decision."""
        decision = line.decision
        day, clock = utc_clock(decision.at)
        if day != self._day:
            self._day = day
            click.secho(f"{day} UTC (local {local_offset(decision.at)})", bold=True)
        node, plane, where, code = _identity(decision.fault)
        place = f"{node or decision.node} {plane} {where}".strip() if plane else str(decision.node)
        words = [f"{clock}"]
        if decision.reason in _DOCUMENT_REASONS and not decision.fault:
            words.append(f"    → {decision.document}  {decision.reason}  {decision.detail}")
            click.secho("  ".join(words), dim=True)
            return
        words.append(f"{place:<26}")
        words.append(f"{code:<10}")
        if decision.level:
            words.append(decision.level)
        words.append(str(decision.reason))
        if decision.job:
            ranks = f" rank {_ranks(decision.ranks)}" if decision.ranks else ""
            words.append(f"{_short(decision.job)}{ranks}")
        if decision.detail:
            words.append(f"({decision.detail})")
        if line.meaning and code not in self._meant:
            self._meant.add(code)
            words.append(f"· {line.meaning}")
        click.secho("  ".join(words), fg=_colour(decision.reason))


def _identity(fault: str) -> tuple[str, str, str, str]:
    parts = fault.rpartition("@")[0].split("/", 3)
    return (parts[0], parts[1], parts[2], parts[3]) if len(parts) == 4 else ("", "", "", "")


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}–{ranks[-1]}"
    return ",".join(map(str, ranks))


def _short(job: str) -> str:
    """`namespace/name` without the UID that an AscendJob's PodGroup carries."""
    head, sep, tail = job.rpartition("-")
    for _ in range(4):
        if sep and all(sign in "0123456789abcdef" for sign in tail) and len(tail) in (4, 8, 12):
            job = head
        head, sep, tail = job.rpartition("-")
    return job


def _colour(reason: Reason) -> str | None:
    if reason in _ALARMING:
        return "red"
    return "green" if reason in _GOOD else None
