"""Several rank tables of one job: whether they say the same.

The one rule: tables that differ in anything a rank's place or backup hangs on answer nothing, and are said to.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.domain.ranktable import RankDevice, RankTable, Server


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A rank table and what people call it: its file, or the ConfigMap in it."""

    name: str
    table: RankTable
    wrong: str = ""
    """What it contradicts itself in, so that which rank a device has cannot be told; empty: nothing."""


def difference(tables: Sequence[NamedTable]) -> str:
    """The first thing in which the tables differ, in words; empty when all say the same. Order says nothing."""
    for other in tables[1:]:
        told = _between(tables[0].table, other.table, (tables[0].name, other.name))
        if told:
            return f"the job's rank tables in {tables[0].name} and in {other.name} differ: {told}"
    return ""


def _between(one: RankTable, other: RankTable, names: tuple[str, str]) -> str:
    if one.version != other.version:
        return f"version {one.version} and {other.version}"
    mine, theirs = _ranks(one), _ranks(other)
    for rank in sorted(mine.keys() | theirs.keys()):
        if rank not in mine or rank not in theirs:
            return f"rank {rank} is in {names[rank in theirs]} only"
        if mine[rank] != theirs[rank]:
            return f"rank {rank} has {_unlike(mine[rank], theirs[rank])}"
    pods, others = _pods(one), _pods(other)
    for pod in sorted(pods.keys() | others.keys()):
        if pod not in pods or pod not in others:
            return f"super-pod {pod} is in {names[pod in others]} only"
        if pods[pod] != others[pod]:
            return f"super-pod {pod} has servers {', '.join(pods[pod])} and {', '.join(others[pod])}"
    return ""


def _ranks(table: RankTable) -> dict[int, dict[str, object]]:
    return {device.rank_id: _fields(server, device) for server in table.servers for device in server.devices}


def _fields(server: Server, device: RankDevice) -> dict[str, object]:
    return {
        "server_id": server.server_id,
        "host_ip": server.host_ip,
        "container_ip": server.container_ip,
        "device_id": device.device_id,
        "device_ip": device.device_ip,
        "device_port": device.device_port,
        "backup_device_ip": device.backup_device_ip,
        "backup_device_port": device.backup_device_port,
        "host_port": device.host_port,
        "super_device_id": device.super_device_id,
    }


def _unlike(mine: dict[str, object], theirs: dict[str, object]) -> str:
    """The fields of one rank that differ."""
    return ", ".join(
        f"{field} {_value(value)} and {_value(theirs[field])}"
        for field, value in mine.items()
        if value != theirs[field]
    )


def _value(value: object) -> str:
    return "absent" if value in ("", None) else str(value)


def _pods(table: RankTable) -> dict[str, list[str]]:
    return {pod.super_pod_id: sorted(pod.server_ids) for pod in table.super_pods}
