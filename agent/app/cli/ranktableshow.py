"""`fault-agent ranktable show`: a rank table as a person reads it, and as a drawing of what lies in what.

The one rule: it shows what the file says, right or wrong; whether it is right is for `ranktable check`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import orjson

from agent.app.bootstrap import read_tables
from agent.app.cli.ranktable import EXIT_FINDINGS, SHOWN_PER_CODE, finding_lines, head
from agent.domain.ranktable import RankDevice, RankTable, Server, addresses, npu_of, pair_die
from agent.wire.ranktables.circumstances import Circumstances
from agent.wire.ranktables.inspect import Opened, inspect_table, open_table
from agent.wire.ranktables.judge import Mode

_COLUMNS: Final = (
    "rank",
    "super-pod",
    "server",
    "host_ip",
    "device",
    "super_device_id",
    "device_ip",
    "backup_device_ip",
    "host_port",
)
_COLUMNS_2: Final = ("rank", "local_id", "device", "layer", "net_type", "net_instance_id", "addresses")
_LINKS: Final = {(True, True): "<->", (True, False): "-->", (False, True): "<--", (False, False): "   "}

_Group = tuple[str | None, Sequence[Server]]


@click.command(
    "show",
    short_help="A rank table as a table and as a drawing of super-pods, servers, NPUs, dies and backups.",
    epilog="Examples: fault-agent ranktable show hccl.json; fault-agent ranktable show rings.yaml --json",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="For machines: an array, one element per table of the file.")
@click.option("--lenient", is_flag=True, help="Leave comments out.")
def show_command(file: Path, as_json: bool, lenient: bool) -> None:
    """Show a rank table: rank by rank, then which die lies in which NPU, server and super-pod.

    In the drawing an arrow leads from a die to its backup, the other die of its NPU: <-> each is the other's. A backup
    elsewhere is written out. A table from which no rank can be told is not shown; its findings are (exit code 1).
    """
    opened = [(text.name, open_table(text.raw, lenient=lenient, shift=text.shift)) for text in read_tables(file)]
    if as_json:
        click.echo(orjson.dumps([_plain(name, one) for name, one in opened], option=orjson.OPT_INDENT_2))
    else:
        click.echo("\n\n".join("\n".join(_text(name, one)) for name, one in opened))
    if any(one.table is None for _, one in opened):
        raise click.exceptions.Exit(EXIT_FINDINGS)


def _text(name: str, opened: Opened) -> Iterator[str]:
    yield f"{name}: {head(opened)}"
    table = opened.table
    if table is None:
        yield from finding_lines(name, inspect_table(opened, Circumstances(), Mode.DOC, most=SHOWN_PER_CODE))
        return
    yield ""
    if table.version == "2.0":
        yield from _aligned([_COLUMNS_2, *_rows_2(opened.root)])
        return
    yield from _aligned([_COLUMNS, *_rows(table)])
    yield ""
    yield from _drawing(table)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _groups(table: RankTable) -> list[_Group]:
    """Servers by super-pod, in the order of the file; those that lie in none come last, without a name."""
    held: dict[str | None, list[Server]] = {pod.super_pod_id: [] for pod in table.super_pods}
    outside: list[Server] = []
    for server in table.servers:
        pod = table.super_pod_of(server.server_id)
        (outside if pod is None else held[pod]).append(server)
    return [*held.items(), *([(None, outside)] if outside else [])]


def _rows(table: RankTable) -> Iterator[tuple[str, ...]]:
    for pod, servers in _groups(table):
        for server in servers:
            for die in server.devices:
                yield (
                    str(die.rank_id),
                    pod or "-",
                    server.server_id,
                    server.host_ip or "-",
                    str(die.device_id),
                    die.super_device_id or "-",
                    _address(die.device_ip, die.device_port),
                    _address(die.backup_device_ip, die.backup_device_port),
                    "-" if die.host_port is None else str(die.host_port),
                )


def _address(text: str, port: int | None) -> str:
    if not text:
        return "-" if port is None else f"-:{port}"
    shown = f"[{text}]" if ":" in text and port is not None else text
    return shown if port is None else f"{shown}:{port}"


def _drawing(table: RankTable) -> Iterator[str]:
    groups = _groups(table)
    for pod, servers in groups:
        named = bool(table.super_pods)
        if named:
            yield f"super-pod {pod}" if pod is not None else "in no super-pod"
        for number, server in enumerate(servers):
            last = number == len(servers) - 1
            lead, below = (("└─ ", "   ") if last else ("├─ ", "│  ")) if named else ("", "")
            product = f", {server.hardware_type}" if server.hardware_type else ""
            yield f"{lead}server {server.server_id} ({server.host_ip or 'no host_ip'}{product})"
            npus = _npus(server)
            for place, (npu, dies) in enumerate(npus.items()):
                branch = "└─ " if place == len(npus) - 1 else "├─ "
                yield f"{below}{branch}NPU {npu}: {_npu(dies)}"


def _npus(server: Server) -> dict[int, dict[int, RankDevice]]:
    found: dict[int, dict[int, RankDevice]] = {}
    for die in server.devices:
        found.setdefault(npu_of(die.device_id), {})[die.device_id] = die
    return dict(sorted(found.items()))


def _npu(dies: Mapping[int, RankDevice]) -> str:
    shown = {device: f"die {device} rank {die.rank_id}{_elsewhere(dies, die)}" for device, die in sorted(dies.items())}
    if len(dies) == 1:
        (only,) = shown.values()
        return only
    one, two = sorted(dies)
    arrow = _LINKS[(_leads(dies, dies[one]), _leads(dies, dies[two]))]
    return f"{shown[one]} {arrow} {shown[two]}"


def _leads(dies: Mapping[int, RankDevice], die: RankDevice) -> bool:
    """The die's backup is the other die of its NPU."""
    other = dies.get(pair_die(die.device_id))
    return other is not None and bool(addresses(die.backup_device_ip) & addresses(other.device_ip))


def _elsewhere(dies: Mapping[int, RankDevice], die: RankDevice) -> str:
    return f" (backup {die.backup_device_ip} elsewhere)" if die.backup_device_ip and not _leads(dies, die) else ""


def _rows_2(root: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rank and level by level; what is not there or of another type is a dash."""
    for rank in _dicts(root.get("rank_list")):
        first = tuple(_cell(rank.get(key)) for key in ("rank_id", "local_id", "device_id"))
        levels = _dicts(rank.get("level_list")) or [{}]
        for level in levels:
            found = _dicts(level.get("rank_addr_list"))
            where = ", ".join(f"{_cell(one.get('addr_type'))} {_cell(one.get('addr'))}" for one in found)
            cells = (_cell(level.get(key)) for key in ("net_layer", "net_type", "net_instance_id"))
            yield (*first, *cells, where or "-")
            first = ("", "", "")


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _cell(value: Any) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else "-"


def _plain(name: str, opened: Opened) -> dict[str, Any]:
    table = opened.table
    if table is None:
        return {"file": name, "version": None, "stopped": opened.stopped}
    if table.version == "2.0":
        return {"file": name, "version": "2.0", "rank_list": opened.root.get("rank_list")}
    return {
        "file": name,
        "version": table.version,
        "effective_mode": table.effective_mode(),
        "super_pods": [
            {"super_pod_id": pod, "servers": [_plain_server(server) for server in servers]}
            for pod, servers in _groups(table)
        ],
    }


def _plain_server(server: Server) -> dict[str, Any]:
    return {
        "server_id": server.server_id,
        "host_ip": server.host_ip or None,
        "container_ip": server.container_ip or None,
        "hardware_type": server.hardware_type or None,
        "npus": [
            {"npu": npu, "dies": [_plain_die(dies, die) for _, die in sorted(dies.items())]}
            for npu, dies in _npus(server).items()
        ],
    }


def _plain_die(dies: Mapping[int, RankDevice], die: RankDevice) -> dict[str, Any]:
    return {
        "device_id": die.device_id,
        "rank_id": die.rank_id,
        "super_device_id": die.super_device_id or None,
        "device_ip": die.device_ip or None,
        "device_port": die.device_port,
        "backup_device_ip": die.backup_device_ip or None,
        "backup_device_port": die.backup_device_port,
        "host_port": die.host_port,
        "backup_is_pair": _leads(dies, die) if die.backup_device_ip else None,
    }
