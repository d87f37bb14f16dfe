"""Two policies on one recording: which decisions differ.

The one rule: both judge in folders of their own that are gone afterwards; nothing else is touched.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agent.app.bootstrap import SoloOrder, replay_solo
from agent.app.settings import Settings
from agent.domain.events import Decision
from agent.domain.vocab import utc_text
from agent.wire.audit import AuditLine


@dataclass(frozen=True, slots=True)
class Difference:
    """What two policies decided of one thing at one time, where it is not the same; an empty side decided nothing."""

    at: int
    subject: str
    """The fault's reference, else the job, the document or the node."""
    before: tuple[Decision, ...]
    after: tuple[Decision, ...]


def judged_twice(
    events: Path, cluster: Path, settings: Settings, before: Path | None, after: Path | None
) -> list[Difference]:
    """Judge a recording by two policies, and compare. Raises CannotRun, BadPolicy, BadUsage."""
    return differences(*(judged(events, cluster, settings, policy) for policy in (before, after)))


def judged(events: Path, cluster: Path, settings: Settings, policy: Path | None) -> list[AuditLine]:
    """All decisions that a policy gives on a recording, in order. Raises CannotRun, BadPolicy, BadUsage."""
    lines: list[AuditLine] = []
    with tempfile.TemporaryDirectory(prefix="fault-agent-judged-") as folder:
        order = SoloOrder(events, cluster, Path(folder), settings, policy)
        replay_solo(order, lines.append, lambda _: None, lambda _: None)
    return lines


def differences(before: Iterable[AuditLine], after: Iterable[AuditLine]) -> list[Difference]:
    """Where two runs on the same recording did not decide the same, in the order of time.

    Decisions of one subject at one time are compared together, by reason, level, job, ranks and document; their words
    (details, meanings) and traces are no difference.
    """
    sides: list[dict[tuple[int, str], list[Decision]]] = [{}, {}]
    for side, lines in zip(sides, (before, after), strict=True):
        for line in lines:
            side.setdefault((line.decision.at, _subject(line.decision)), []).append(line.decision)
    found: list[Difference] = []
    for key in sorted(dict.fromkeys([*sides[0], *sides[1]])):
        old, new = sides[0].get(key, []), sides[1].get(key, [])
        if [_what(one) for one in old] != [_what(one) for one in new]:
            found.append(Difference(*key, tuple(old), tuple(new)))
    return found


def _subject(decision: Decision) -> str:
    return decision.fault or decision.job or decision.document or decision.node


def _what(decision: Decision) -> tuple[Any, ...]:
    return decision.reason, decision.level, decision.job, decision.ranks, decision.document, decision.occurrence


def difference_plain(one: Difference) -> dict[str, Any]:
    """A difference for machines."""
    return {
        "at": one.at,
        "subject": one.subject,
        "before": [_decision_plain(decision) for decision in one.before],
        "after": [_decision_plain(decision) for decision in one.after],
    }


def _decision_plain(decision: Decision) -> dict[str, Any]:
    return {
        "reason": decision.reason,
        "level": decision.level,
        "job": decision.job,
        "ranks": list(decision.ranks),
        "document": decision.document,
        "detail": decision.detail,
    }


def show_differences(out: Console, found: list[Difference]) -> None:
    """Differences for people, as a table."""
    differ = "1 decision differs" if len(found) == 1 else f"{len(found)} decisions differ"
    out.print(differ if found else "no decision differs")
    if not found:
        return
    listing = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("time", "about", "A", "B"):
        listing.add_column(column, overflow="fold")
    for one in found:
        listing.add_row(utc_text(one.at), one.subject, _words(one.before), _words(one.after))
    out.print(listing)


def _words(decisions: tuple[Decision, ...]) -> str:
    return "\n".join(" ".join(filter(None, (one.reason, one.level, one.document))) for one in decisions) or "nothing"
