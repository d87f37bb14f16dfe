"""What a person asks the rail verbs: faults as they are typed, where to look, and what to take for true.

The one rule: what is wrong with a word is said with how it is written right; nothing is guessed from half of one.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from agent.app.bootstrap.outlook import Outlook, look_at_files, look_at_services
from agent.app.bootstrap.ranktables import TableText, read_tables
from agent.app.cli.account import many
from agent.app.cli.ranktable import read_env
from agent.app.cli.solo import CLUSTER_HELP, say
from agent.app.release import jobs_named
from agent.app.settings import Settings, load_settings
from agent.domain.cluster import ClusterBook
from agent.domain.cluster.whatif import Assumed, Supposed, WhatIf, dies_of, jobs_at, what_if
from agent.domain.events import FaultKey
from agent.domain.hccl import env_from
from agent.domain.jobs import config_name
from agent.domain.policy import chip_number
from agent.domain.rail.case import BorrowPolicy, CommMode, Strictness
from agent.domain.rail.tables import NamedTable
from agent.domain.ranktable import RankTable
from agent.domain.vocab import LINK_DOWN, JobId, Millis, NodeName, Plane
from agent.errors import BadDocument, BadUsage
from agent.wire.controls import credible
from agent.wire.ranktablecheck import ambiguity, validate
from agent.wire.ranktablefile import parse_rank_table

_PATH: Final = click.Path(path_type=Path)
_FAULT_HINT: Final = (
    "a fault is node/plane/where/code, with @ms since when; n0/network/2 alone means that the link of device 2 is down"
)
_MAX_DEVICE: Final = 63
_FEW: Final = 8
"""Names that are shown to somebody who gave another."""

Command = Callable[..., Any]


_OPTIONS: Final = (
    click.option("--cluster", type=click.Path(exists=True, path_type=Path), help=CLUSTER_HELP),
    click.option(
        "--out",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="With --cluster: the --out folder of a run, replay or demo; its reports (what links do) and its ledgers"
        " (what is borrowed) count then, as of the newest time it knows.",
    ),
    click.option(
        "--config",
        type=_PATH,
        help="Settings (YAML). With --cluster: rail.* and cluster.id; alone: of the coordinator, and the API server and"
        " the reports topic are asked.",
    ),
    click.option(
        "--fault",
        "faults",
        metavar="REF",
        multiple=True,
        help="node/plane/where/code[@ms], or node/network/device for a link that is down. Repeat it for several faults."
        " Example: --fault n0/network/2",
    ),
    click.option(
        "--leaf",
        "leaves",
        metavar="NODE/PARITY",
        multiple=True,
        help="All even, or all odd, links of a node are down, as a leaf switch takes them. Example: --leaf n0/even",
    ),
    click.option("--job", "jobs", multiple=True, help="Ask of this job alone. Example: --job demo"),
    click.option(
        "--link",
        "links",
        metavar="NODE/DEVICE=STATE",
        multiple=True,
        help="Assume that a link is up or down, whatever was seen of it. Example: --link n0/3=down",
    ),
    click.option("--links-up", is_flag=True, help="Assume that links of which nothing fresh is known are up."),
    click.option(
        "--env",
        "env_file",
        type=_PATH,
        help="Assume this environment for every process of the job, a NAME=value a line. Example: --env job.env",
    ),
    click.option(
        "--table",
        "tables",
        type=_PATH,
        multiple=True,
        help="Assume that the job's processes read this rank table (hccl.json), in the place of the job's own: one from"
        " shared storage, or the proposal of ranktable backup. Several must not contradict each other.",
    ),
    click.option(
        "--comm-mode",
        type=click.Choice([str(one) for one in CommMode if one is not CommMode.UNKNOWN]),
        help="Assume that communicators are made from a rank table, or by root broadcast. Left out: as the PodGroup's"
        " annotation fault-agent/comm-mode says, else ranktable if the table names backups.",
    ),
    click.option(
        "--peers",
        metavar="RANK=RANKS",
        multiple=True,
        help="Assume that a rank talks over RDMA to these alone; a rank that is not named talks to nobody. Left out: to"
        " that device id in every other super-pod. Example: --peers 2=10,14",
    ),
    click.option("--host-plane", type=click.Choice(("up", "down")), help="Assume that hosts reach each other, or not."),
    click.option(
        "--operator",
        type=click.Choice(("retryable", "not-retryable")),
        help="Assume that HCCL can execute the failed operator again, or not.",
    ),
    click.option("--retries-used", type=click.IntRange(0), help="Assume that so many retries are used."),
    click.option("--cross-die-traffic", is_flag=True, help="Assume RDMA traffic between the two dies of an NPU."),
    click.option(
        "--strictness",
        type=click.Choice([str(one) for one in Strictness]),
        help="In the place of rail.strictness: what the document says (strict), or what HCCL's source does.",
    ),
    click.option(
        "--per",
        type=click.Choice(("npu", "communicator")),
        help="In the place of rail.policy: one borrow for each NPU (CANN 8.2 and later), or each communicator.",
    ),
)
"""Where to look, what is asked, what is assumed."""


def asking_options(command: Command) -> Command:
    """The options of a question."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def names_something(words: Mapping[str, Any]) -> bool:
    """Whether any of the options of a question is given."""
    return any(value not in (None, False, ()) for value in words.values())


def asked(
    *,
    cluster: Path | None,
    out: Path | None,
    config: Path | None,
    faults: Sequence[str],
    leaves: Sequence[str],
    jobs: Sequence[str],
    links: Sequence[str],
    links_up: bool,
    env_file: Path | None,
    tables: Sequence[Path],
    comm_mode: str | None,
    peers: Sequence[str],
    host_plane: str | None,
    operator: str | None,
    retries_used: int | None,
    cross_die_traffic: bool,
    strictness: str | None,
    per: str | None,
) -> tuple[WhatIf, ...]:
    """The answers to what was typed; what could not be read is said.

    Raises BadUsage, CannotRun, Unavailable, Refused.
    """
    supposed = [parse_fault(word) for word in faults]
    assumed = Assumed(
        links=dict(parse_link(word) for word in links),
        links_up=links_up,
        env=env_from(read_env(env_file), visible=True) if env_file is not None else None,
        tables=tuple(_table(path, text) for path in tables for text in read_tables(path)),
        errors_of=_errors,
        comm_mode=None if comm_mode is None else CommMode(comm_mode),
        peers=dict(parse_peers(word) for word in peers) if peers else None,
        host_plane_ok=None if host_plane is None else host_plane == "up",
        op_constraints_ok=None if operator is None else operator == "retryable",
        retries_used=retries_used,
        cross_die_traffic=cross_die_traffic,
        strictness=None if strictness is None else Strictness(strictness),
        policy=None if per is None else BorrowPolicy(f"per_{per}"),
    )
    outlook = _outlook(cluster, out, config)
    for finding in outlook.findings:
        say(f"finding: {finding}")
    book = outlook.book
    supposed += [Supposed(_link_key(node, device)) for word in leaves for node, device in _leaf(word, book)]
    if not supposed:
        raise BadUsage("no fault is asked about", hint=f"give --fault or --leaf; {_FAULT_HINT}")
    only = jobs_named(book, jobs) if jobs else frozenset()
    for text in _strangers(book, supposed):
        say(f"finding: {text}")
    _all_known(book, assumed.links)
    _all_there(book, supposed, only)
    _all_ranked(book, assumed, only or {job for one in supposed for job in jobs_at(book, one.key)})
    return what_if(
        book, supposed, replace(assumed, no_ledger=not outlook.ledger, no_clock=not outlook.clock), only, outlook.now
    )


def _outlook(cluster: Path | None, out: Path | None, config: Path | None) -> Outlook:
    if cluster is not None:
        settings = load_settings(config, os.environ) if config is not None else Settings()
        return look_at_files(cluster, out, settings, named=config is not None)
    if out is not None:
        raise BadUsage("--out alone does not tell the jobs", hint="give --cluster with the objects of that run, too")
    if config is None:
        raise BadUsage(
            "nowhere to look",
            hint="give --cluster PATH (kubectl get podgroup,pod,node,cm -A -o yaml), or --config of the coordinator",
        )
    return look_at_services(load_settings(config, os.environ), lambda text: say(f"finding: {text}"))


def _table(path: Path, text: TableText) -> NamedTable:
    try:
        table = parse_rank_table(text.raw)
        twice = ambiguity(table)
        wrong = f"{twice.pointer}: {twice.code}: {twice.message}" if twice is not None else ""
        return NamedTable(text.name, table, wrong)
    except BadDocument as error:
        raise BadUsage(f"--table {text.name}: {error}", hint=f"see fault-agent ranktable check {path}") from error


def _errors(table: RankTable) -> str:
    """Errors of the table by itself, counted, with the first; empty: none."""
    found = (one for one in validate(table) if one.severity == "error")
    first = next(found, None)
    if first is None:
        return ""
    return f"{many(1 + sum(1 for _ in found), 'error')}, first {first.pointer}: {first.code}: {first.message}"


_SINCE: Final = re.compile(r"[0-9]{1,15}")


def parse_fault(word: str) -> Supposed:
    """A fault as it is typed. Raises BadUsage."""
    identity, at, since = word.rpartition("@")
    if not at:
        identity, since = word, ""
    elif not _SINCE.fullmatch(since):
        # a public fault's id may hold an @
        raise BadUsage(f"--fault {word}: {since!r} is no time in ms", hint=_FAULT_HINT)
    elif credible(int(since)) is None:
        raise BadUsage(f"--fault {word}: {since} is no time of 2025 until 2100, in Unix ms", hint=_FAULT_HINT)
    parts = identity.split("/", 3)
    if len(parts) == 3 and parts[1] == Plane.NETWORK:
        parts.append(f"{LINK_DOWN:08X}")
    if len(parts) != 4 or not all(parts):
        raise BadUsage(f"--fault {word}: is no reference of a fault", hint=_FAULT_HINT)
    node, plane, where, code = parts
    if plane not in set(Plane):
        planes = ", ".join(Plane)
        raise BadUsage(f"--fault {word}: {plane!r} is no plane; they are {planes}", hint=_FAULT_HINT)
    if plane in (Plane.NETWORK, Plane.CHIP):
        number = chip_number(code)
        if number is None:
            raise BadUsage(f"--fault {word}: {code!r} is no code of a chip or link", hint=_FAULT_HINT)
        plane = Plane.NETWORK if number == LINK_DOWN else plane
        where, code = str(_device(where, f"--fault {word}")), f"{number:08X}"
    key = FaultKey(NodeName(node), Plane(plane), where, code)
    return Supposed(key, Millis(int(since)) if since else None)


def parse_link(word: str) -> tuple[tuple[NodeName, int], str]:
    """`NODE/DEVICE=up`, or `=down`. Raises BadUsage."""
    place, _, state = word.partition("=")
    node, _, device = place.rpartition("/")
    if not node or state not in ("up", "down"):
        raise BadUsage(f"--link {word}: is not NODE/DEVICE=up or NODE/DEVICE=down", hint="for example --link n0/3=down")
    return (NodeName(node), _device(device, f"--link {word}")), state


def parse_peers(word: str) -> tuple[int, tuple[int, ...]]:
    """`RANK=RANK,RANK`. Raises BadUsage."""
    rank, found, others = word.partition("=")
    listed = [one.strip() for one in others.split(",") if one.strip()]
    if not found or not all(one.isdecimal() and len(one) < 8 for one in (rank, *listed)):
        raise BadUsage(f"--peers {word}: is not RANK=RANK,RANK", hint="for example --peers 2=10,14")
    if int(rank) in map(int, listed):
        raise BadUsage(f"--peers {word}: a rank is no peer of itself", hint="for example --peers 2=10,14")
    return int(rank), tuple(map(int, listed))


def _strangers(book: ClusterBook, supposed: Sequence[Supposed]) -> Iterator[str]:
    """What is asked about and cannot be found because of a slip: of a name, or of where was looked."""
    nodes, jobs, _ = book.jobs.counts()
    if not jobs:
        yield f"{many(nodes, 'node')} and 0 jobs were read: no fault can hit a job here"
    known = _nodes(book)
    for node in dict.fromkeys(one.key.node for one in supposed):
        if node not in known:
            yield f"--fault: node {node} is not known here; known nodes: {_few(known)}"


def _nodes(book: ClusterBook) -> list[NodeName]:
    """Nodes of which an object, a report or a pod tells."""
    of_pods = (node for job in book.jobs.jobs() for node in book.jobs.nodes_of(job.id))
    return sorted({*(one.name for one in book.jobs.nodes()), *book.reports, *of_pods})


def _few(names: Sequence[object]) -> str:
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(map(str, names[:_FEW])) + more if names else "none"


def _all_known(book: ClusterBook, links: Iterable[tuple[NodeName, int]]) -> None:
    """Raises BadUsage for a link that is assumed of no die that is known: it would change nothing."""
    for node, device in links:
        dies = book.jobs.devices_of_node(node)
        if not dies:
            raise BadUsage(f"--link {node}/{device}: no device of node {node} is known", hint=_known_nodes(book))
        if device not in dies:
            raise BadUsage(f"--link {node}/{device}: node {node} has no such device", hint=f"known: {_few(dies)}")


def _known_nodes(book: ClusterBook) -> str:
    return f"known nodes: {_few(_nodes(book))}"


def _all_there(book: ClusterBook, supposed: Sequence[Supposed], only: Iterable[JobId]) -> None:
    """Raises BadUsage for a job that is asked and holds nothing that a fault lies on."""
    held = {job for one in supposed for job in jobs_at(book, one.key)}
    for job in sorted(only):
        if job not in held:
            others = f"those that do: {_few(sorted(held))}" if held else "no job does"
            raise BadUsage(f"--job {job}: holds no device that a fault is asked about on", hint=others)


def _all_ranked(book: ClusterBook, assumed: Assumed, jobs: Iterable[JobId]) -> None:
    """Raises BadUsage for a rank of --peers that no table of the asked jobs lists; not while there is no table."""
    named = {rank for one, others in (assumed.peers or {}).items() for rank in (one, *others)}
    if not named:
        return
    known = [found for name in jobs if (found := book.jobs.job(name)) is not None]
    own = (book.tables.get((job.namespace, config_name(job))) for job in known)
    tables = [one.table for one in assumed.tables] or [table for table in own if table is not None]
    ranks = {device.rank_id for table in tables for server in table.servers for device in server.devices}
    lost = sorted(named - ranks) if ranks else []
    if lost:
        raise BadUsage(f"--peers: rank {lost[0]} is in no rank table of the job", hint=f"ranks: {_few(sorted(ranks))}")


def _device(text: str, place: str) -> int:
    if not text.isdecimal() or len(text) > 3 or int(text) > _MAX_DEVICE:
        raise BadUsage(
            f"{place}: {text!r} is no device", hint=f"a number of 0 to {_MAX_DEVICE}, as npu-smi counts dies"
        )
    return int(text)


def _leaf(word: str, book: ClusterBook) -> Iterable[tuple[NodeName, int]]:
    node, _, parity = word.rpartition("/")
    if not node or parity not in ("even", "odd"):
        raise BadUsage(f"--leaf {word}: is not NODE/even or NODE/odd", hint="for example --leaf n0/even")
    dies = dies_of(book, NodeName(node), int(parity == "odd"))
    if not dies:
        raise BadUsage(f"--leaf {word}: no {parity} device of node {node} is known", hint=_known_nodes(book))
    return [(NodeName(node), die) for die in dies]


def _link_key(node: NodeName, device: int) -> FaultKey:
    return FaultKey(node, Plane.NETWORK, str(device), f"{LINK_DOWN:08X}")
