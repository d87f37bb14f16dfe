"""Several rank tables of one job: whether they say the same.

The one rule: tables that differ in anything a rank's place or backup hangs on answer nothing, and are said to.
"""

from collections.abc import Sequence

from agent.domain.ranktable import RankDevice, RankTable, Server


def difference(tables: Sequence[RankTable]) -> str:
    """The first thing in which the tables differ, in words; empty when all say the same. Order says nothing."""
    for number, other in enumerate(tables[1:], start=2):
        told = _between(tables[0], other)
        if told:
            return f"rank tables 1 and {number} of the job differ: {told}"
    return ""


def _between(one: RankTable, other: RankTable) -> str:
    if one.version != other.version:
        return f"version {one.version} and {other.version}"
    mine, theirs = _ranks(one), _ranks(other)
    for rank in sorted(mine.keys() | theirs.keys()):
        if rank not in mine or rank not in theirs:
            return f"rank {rank} is in one of them only"
        if mine[rank] != theirs[rank]:
            return f"rank {rank} is {_words(*mine[rank])} and {_words(*theirs[rank])}"
    pods = {pod.super_pod_id: frozenset(pod.server_ids) for pod in one.super_pods}
    if pods != {pod.super_pod_id: frozenset(pod.server_ids) for pod in other.super_pods}:
        return "their super-pods"
    return ""


def _ranks(table: RankTable) -> dict[int, tuple[tuple[str, str, str], RankDevice]]:
    return {device.rank_id: (_place(server), device) for server in table.servers for device in server.devices}


def _place(server: Server) -> tuple[str, str, str]:
    return server.server_id, server.host_ip, server.container_ip


def _words(place: tuple[str, str, str], device: RankDevice) -> str:
    server, host, _ = place
    address = f" {device.device_ip}" if device.device_ip else ""
    backup = f", backup {device.backup_device_ip}" if device.backup_device_ip else ""
    return f"device {device.device_id}{address} of {server}{f' at {host}' if host else ''}{backup}"
