"""What a solo run came to: counts, dead letters, findings, documents; in lines for people and as one JSON object.

The one rule: what a person would have to look for is said here without being asked: no job read, records refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import orjson

from agent.app.bootstrap import AUDIT, LETTERS, STATE
from agent.app.solo import Tally
from agent.app.telling import Letter
from agent.app.world import World

LISTED: Final = 20
"""Findings that are shown to people at once."""
KEPT: Final = 1000
"""Dead letters that the summary lists; all of them are in the file."""


@dataclass(slots=True)
class Account:
    """Gathers while the run goes on."""

    letters: list[Letter] = field(default_factory=list)
    most: tuple[int, int, int] = (0, 0, 0)
    """Nodes, jobs and pods: the most that were known at one time."""

    def letter(self, letter: Letter) -> None:
        """Note a dead letter."""
        if len(self.letters) < KEPT:
            self.letters.append(letter)

    def count(self, world: World) -> None:
        """Note how many objects are known."""
        nodes, jobs, pods = (max(pair) for pair in zip(self.most, world.book.jobs.counts(), strict=True))
        self.most = (nodes, jobs, pods)

    def plain(self, tally: Tally, world: World, out: Path) -> dict[str, Any]:
        """For machines."""
        self.count(world)
        nodes, jobs, pods = self.most
        return {
            "records": tally.records,
            "controls": tally.controls,
            "decisions": tally.decisions,
            "dead_letter_count": tally.letters,
            "dead_letters": [plain_letter(letter) for letter in self.letters],
            "findings": list(world.all_findings()),
            "documents": documents_of(out),
            "nodes": nodes,
            "jobs": jobs,
            "pods": pods,
        }

    def show(self, tally: Tally, world: World, out: Path, *, stderr: bool = False) -> None:
        """For people."""
        self.count(world)
        nodes, jobs, pods = self.most
        findings = world.all_findings()
        beside = f" (and {many(tally.controls, 'line')} of objects, probes and ticks)" if tally.controls else ""
        done = f"{many(tally.records, 'record')}{beside}, {many(tally.decisions, 'decision')}"
        done += f", {many(tally.letters, 'dead letter')}, {many(len(findings), 'finding')}"
        click.echo(f"\n{done}; {counted(nodes, jobs, pods)} were read", err=stderr)
        if not jobs:
            click.secho(NO_JOBS, fg="red", err=stderr)
        lines = [f"  finding: {finding}" for finding in findings[:LISTED]]
        if len(findings) > LISTED:
            lines.append(f"  and {len(findings) - LISTED} more")
        documents = documents_of(out)
        lines.append(f"Documents under {out}:" if documents else f"No documents under {out}")
        lines += [f"  {place}" for place in documents]
        if (out / AUDIT).exists():
            lines.append(f"Reasons: {out / AUDIT}")
        if (out / LETTERS).exists():
            lines.append(f"Dead letters: {out / LETTERS}")
        click.echo("\n".join(lines), err=stderr)


NO_JOBS: Final = (
    "! no job was read: --cluster holds no PodGroup, so no fault finds its job (docs/cluster-files.md says more)"
)


def counted(nodes: int, jobs: int, pods: int) -> str:
    """`7 nodes, 2 jobs, 1 pod`."""
    return ", ".join((many(nodes, "node"), many(jobs, "job"), many(pods, "pod")))


def many(number: int, word: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def plain_letter(letter: Letter) -> Mapping[str, str]:
    """A dead letter for machines."""
    return {"reason": letter.reason, "detail": letter.detail, "source": letter.source, "key": letter.key}


def documents_of(out: Path) -> list[str]:
    """Documents of a folder by their paths from it, sorted."""
    return sorted(str(path.relative_to(out)) for path in out.glob("*/*.json") if path.parent.name != STATE)


def echo_summary(summary: Mapping[str, Any]) -> None:
    """The last line of --json: one object with the key `summary`."""
    click.echo(orjson.dumps({"summary": summary}))
