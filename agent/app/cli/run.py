"""`fault-agent run`: one long-lived process in one of the three roles.

The one rule: what a role does not use it does not take; a missing or useless option is wrong use, said at once.
"""

import os
from pathlib import Path

import click

from agent.app.bootstrap import Audience, SoloOrder, run_solo
from agent.app.cli.account import LISTED, NO_JOBS, Account, counted, echo_summary
from agent.app.cli.places import byte_place
from agent.app.cli.policy import policy_option
from agent.app.cli.solo import CLUSTER_HELP, say, shower, tell_findings
from agent.app.cli.timeline import Timeline
from agent.app.settings import Settings, load_settings
from agent.app.telling import Letter
from agent.app.world import World
from agent.domain.vocab import Mode

_PATH = click.Path(path_type=Path)


@click.command(
    short_help="Run until SIGTERM and keep the documents right.",
    epilog="Examples: fault-agent run --role solo --events events.jsonl --cluster objects/ --out out/;"
    " fault-agent run --role node --config agent.yaml",
)
@click.option(
    "--role",
    type=click.Choice(["solo", "node", "coordinator"]),
    required=True,
    help="solo: both sides in this process, on files. node: one per node, Kafka to Kafka. coordinator: reports to"
    " ConfigMaps, two of them, one writes.",
)
@click.option("--events", help="solo: record file (JSON Lines) to follow, or - for standard input.")
@click.option("--cluster", type=_PATH, help=f"solo: {CLUSTER_HELP}")
@click.option("--out", type=_PATH, help="solo: folder for documents, reasons and state.")
@click.option("--config", type=_PATH, help="Settings (YAML); FAULT_AGENT_… variables lie over it.")
@policy_option
@click.option("--json", "as_json", is_flag=True, help="solo: one JSON object per decision, then the summary.")
def run(
    role: str,
    events: str | None,
    cluster: Path | None,
    out: Path | None,
    config: Path | None,
    policy_path: Path | None,
    as_json: bool,
) -> None:
    """Run until SIGTERM and keep the documents right.

    solo: started again on the same --out it goes on where it was, also after kill -9; no event is lost and none is
    counted twice. With --events - the records come from a pipe, which cannot be read again: nothing is resumed then.
    Decisions go to standard output; the start, findings, dead letters and the closing lines to standard error.
    It ends with exit code 0 whatever was found on the way.

    node and coordinator: need the settings kafka, cluster.id, and node.name or kubernetes; `fault-agent config show`
    prints what is in force, `fault-agent topics check` whether the broker is fit.
    """
    settings = load_settings(config, os.environ)
    if role == "solo":
        _solo(settings, events, cluster, out, policy_path, as_json)
        return
    for option, value in (("--events", events), ("--cluster", cluster), ("--out", out)):
        if value is not None:
            raise click.UsageError(f"{option} is for --role solo; {role} reads Kafka (settings kafka.…)")
    # Imported where needed: the node role must never load a Kubernetes client.
    if role == "node":
        from agent.app.bootstrap.node import run_node

        run_node(settings, policy_path, say)
    else:
        from agent.app.bootstrap.coordinator import run_coordinator

        run_coordinator(settings, policy_path, say)


def _solo(
    settings: Settings,
    events: str | None,
    cluster: Path | None,
    out: Path | None,
    policy_path: Path | None,
    as_json: bool,
) -> None:
    if events is None or cluster is None or out is None:
        missing = [
            name for name, value in (("--events", events), ("--cluster", cluster), ("--out", out)) if value is None
        ]
        raise click.UsageError(f"--role solo needs {' and '.join(missing)}")
    watch = _Watch(events, cluster, out, as_json)
    order = SoloOrder(None if events == "-" else Path(events), cluster, out, settings, policy_path)
    tally, world = run_solo(order, shower(as_json, watch.timeline), say, watch.audience())
    if as_json:
        echo_summary(watch.account.plain(tally, world, out))
    else:
        watch.account.show(tally, world, out, stderr=True)


class _Watch:
    """What is told on standard error while a solo run goes on."""

    def __init__(self, events: str, cluster: Path, out: Path, as_json: bool) -> None:
        self.timeline = Timeline()
        self._beside = Timeline()
        """Of standard error, with dates of its own."""
        self.account = Account()
        self._as_json = as_json
        self._stream = "standard input" if events == "-" else Path(events).name
        self._files = f"{'standard input' if events == '-' else events} on the objects of {cluster}", out
        self._known: frozenset[str] = frozenset()
        self._seen: list[str] | None = None
        self._count = 0

    def audience(self) -> Audience:
        """To hand to the run."""
        return Audience(begin=self._begin, letter=self._letter, look=self._look)

    def _begin(self, world: World, mode: Mode, digest: str) -> None:
        self.account.count(world)
        what, out = self._files
        say(f"following {what}: {counted(*self.account.most)}; mode {mode}, policy {digest}, writing to {out}")
        if not world.book.jobs.counts()[1]:
            say(NO_JOBS.removeprefix("! "))

    def _letter(self, letter: Letter) -> None:
        self.account.letter(letter)
        self._beside.letter(letter, byte_place(self._stream, letter), stderr=True)

    def _look(self, world: World, moved: bool) -> None:
        """Findings are looked for only when objects have changed: the list is made anew with them, or has grown."""
        if not moved and world.findings is self._seen and len(world.findings) == self._count:
            return
        self._seen, self._count = world.findings, len(world.findings)
        self.account.count(world)
        self._known = tell_findings(world.all_findings(), self._known, LISTED)
