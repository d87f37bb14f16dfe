"""`fault-agent run`: one long-lived process in one of the three roles.

The one rule: what a role does not use it does not take; a missing or useless option is wrong use, said at once.
"""

import os
import sys
from pathlib import Path

import click

from agent.app.bootstrap import SoloOrder, run_solo
from agent.app.cli.policy import policy_option
from agent.app.cli.solo import CLUSTER_HELP, say, shower, summary
from agent.app.settings import Settings, load_settings

_PATH = click.Path(path_type=Path)


@click.command(
    epilog="Examples: fault-agent run --role solo --events events.jsonl --cluster objects/ --out out/;"
    " fault-agent run --role node --config agent.yaml"
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
@click.option("--json", "as_json", is_flag=True, help="solo: one JSON object per decision, for machines.")
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
    order = SoloOrder(None if events == "-" else Path(events), cluster, out, settings, policy_path)
    tally, world = run_solo(order, shower(as_json), say)
    if not as_json:
        summary(tally, world, out, stream=sys.stderr)
