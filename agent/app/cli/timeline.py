"""The timeline: decisions and dead letters as they come, one line each, for a person at night.

The one rule: when, what was decided, about which fault as `why` takes it, then what it means and why.
"""

import re
from typing import Final

import click

from agent.app.cli.show import local_offset, utc_clock, visible
from agent.app.telling import Letter
from agent.domain.vocab import Reason
from agent.wire.audit import AuditLine

LEGEND: Final = (
    "time, reason, fault, level, job · detail.  ! a person must look  → a document"
    "  once: begun and over in one  … cut short: ask why"
)

_DOCUMENT_REASONS: Final = frozenset(
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
_LOOK: Final = frozenset(
    {
        Reason.HELD,
        Reason.ISOLATION_ONLY,
        Reason.NO_RESET_EXECUTOR,
        Reason.RECOVERY_ESCALATED,
        Reason.RECOVERY_FAILED,
        Reason.SEPARATED,
        Reason.RELATION_SEPARATE,
        Reason.RAIL_ADVISED,
        Reason.RAIL_REFUSED,
        Reason.RAIL_UNVERIFIED,
        Reason.NO_RANK,
        Reason.NO_RESET_CONFIG,
        Reason.DOCUMENT_REFUSED,
        Reason.DOCUMENT_UNREADABLE,
        Reason.LEDGER_UNREADABLE,
    }
)
"""Reasons after which a person has something to do: docs/reasons.md says what."""
_BEGINS: Final = frozenset({Reason.FAULT_SHOWN, Reason.HELD})
_RATED: Final = frozenset({Reason.FAULT_SHOWN})
"""Reasons that tell a level, also one that was told before: of a fault that stays shown, somebody looks for it here."""
_GOOD: Final = frozenset({Reason.FAULT_CLEARED, Reason.RECOVERY_SUCCEEDED})
_REASON_WIDTH: Final = 20
_DETAIL: Final = 90
"""Characters of a detail that are shown."""
_UID: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class Timeline:
    """Prints lines; says the date when it changes, a fault's meaning once, its level where it is shown or new."""

    def __init__(self) -> None:
        self._day = ""
        self._meant: set[str] = set()
        self._levels: dict[str, str] = {}
        self._over: set[str] = set()
        """Faults that are gone; the level is told again when they come back."""

    def show(self, line: AuditLine) -> None:
        """Print one decision."""
        decision = line.decision
        self._date(decision.at)
        identity = decision.fault.rpartition("@")[0]
        if decision.reason in _DOCUMENT_REASONS and not decision.fault:
            self._print(decision.at, decision.reason, f"→ {decision.document}", decision.detail, dim=True)
            return
        words = [identity or str(decision.node)]
        if decision.reason in _BEGINS and identity in self._over:
            self._over.discard(identity)
            self._levels.pop(identity, None)
        if decision.level and (decision.reason in _RATED or self._levels.get(identity) != decision.level):
            self._levels[identity] = decision.level
            words.append(decision.level)
        if decision.job:
            ranks = f" rank {_ranks(decision.ranks)}" if decision.ranks else ""
            words.append(f"{_short(decision.job)}{ranks}")
        if decision.reason is Reason.FAULT_CLEARED and not decision.job:
            self._over.add(identity)
        self._print(decision.at, decision.reason, "  ".join(filter(None, words)), self._told(line, identity))

    def letter(self, letter: Letter, place: str, *, stderr: bool = False) -> None:
        """Print one dead letter; `place` says where the record stands."""
        self._date(letter.at, stderr=stderr)
        words = f"{letter.reason}  {letter.key or 'no key'}, {place}"
        text = _line(letter.at, "DEAD_LETTER", words, letter.detail, look=True)
        click.secho(text, fg="red", err=stderr)

    def _date(self, at: int, *, stderr: bool = False) -> None:
        day, _ = utc_clock(at)
        if day and day != self._day:
            self._day = day
            click.secho(f"{day} UTC (local time is UTC{local_offset(at)})", bold=True, err=stderr)

    def _told(self, line: AuditLine, identity: str) -> str:
        """The detail without what the line says anyway, and the meaning of a code the first time it is met."""
        decision = line.decision
        detail = _beside_level(decision.level, decision.detail)
        code = identity.rpartition("/")[2]
        if line.meaning and code not in self._meant:
            self._meant.add(code)
            return f"{line.meaning}; {detail}" if detail else line.meaning
        return detail

    def _print(self, at: int, reason: Reason, words: str, detail: str, *, dim: bool = False) -> None:
        colour = "red" if reason in _LOOK else "green" if reason in _GOOD else None
        text = _line(at, str(reason), words, detail, look=reason in _LOOK)
        click.secho(text, fg=colour, dim=dim and colour is None)


def _line(at: int, reason: str, words: str, detail: str, *, look: bool) -> str:
    shown = f"{detail[: _DETAIL - 1]}…" if len(detail) > _DETAIL else detail
    text = f"{utc_clock(at)[1]} {'!' if look else ' '} {reason:<{_REASON_WIDTH}}  {words}"
    return visible(f"{text} · {shown}" if shown else text)


def _beside_level(level: str, detail: str) -> str:
    """The detail of a rating (`once, <level> by <rule>, held for a person; more`) without the level, which stands
    before it, and without a table's name, which says nothing new.
    """
    if detail == level:
        return ""
    detail = detail.replace(f"; shown on as {level} until ", "; shown on until ")
    rated = re.fullmatch(rf"(once, )?{re.escape(level)} by ([^\s,;]+)(, held for a person)?(?:; (.*))?", detail)
    if rated is None:
        return detail
    once, rule, held, more = rated.groups()
    by = "" if rule.endswith("-table") else "no table knows the code" if rule == "unknown-code" else f"by {rule}"
    told = ", ".join(filter(None, ("once" if once else "", by, "held for a person" if held else "")))
    return "; ".join(filter(None, (told, more)))


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))


def _short(job: str) -> str:
    """`namespace/name` without the UID that an AscendJob's PodGroup carries."""
    return _UID.sub("", job)
