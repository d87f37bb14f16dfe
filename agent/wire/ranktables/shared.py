"""Ports of chips that several processes share, each process with a rank table of its own.

The one rule: ports are compared on one network card, wherever a table uses it: as main, as backup, on the host.
"""

from collections.abc import Iterator, Sequence

from agent.domain.ranktable import RankTable, addresses, pair_die
from agent.wire.ranktablecheck import DEFAULT_BACKUP_PORT, DEFAULT_PORT, Finding, Severity
from agent.wire.ranktablefile import TableCode

_Card = tuple[str, str]


def shared_ports(tables: Sequence[tuple[str, RankTable | None]]) -> dict[int, list[Finding]]:
    """Findings by the number of the (named) table: a port that an earlier one uses on the same card or host.

    A port that neither table writes down is HCCL's default, which is a warning: the environment may move it.
    """
    taken: dict[tuple[_Card, int], tuple[str, bool]] = {}
    found: dict[int, list[Finding]] = {}
    for number, (name, table) in enumerate(tables):
        if table is None:
            continue
        mine: dict[tuple[_Card, int], tuple[str, bool]] = {}
        for card, port, written, pointer in _uses(table):
            earlier = taken.get((card, port))
            mine.setdefault((card, port), (name, written))
            if earlier is None:
                continue
            severity: Severity = "error" if written or earlier[1] else "warning"
            what = "is" if written else "is the default and"
            message = f"{port} {what} used on {card[0]} {card[1][:64]} by {earlier[0][-200:]} too"
            hint = "processes that share a chip need ports of their own"
            found.setdefault(number, []).append(Finding(TableCode.SHARED_PORT, pointer, message, severity, "doc", hint))
        for key, value in mine.items():
            taken.setdefault(key, value)
    return found


def _uses(table: RankTable) -> Iterator[tuple[_Card, int, bool, str]]:
    """Card, port, whether it is written, and where, for each port that the table makes HCCL use."""
    for number, server in enumerate(table.servers):
        cards = {device.device_id: device.device_ip for device in server.devices}
        for index, device in enumerate(server.devices):
            at = f"/server_list/{number}/device/{index}"
            port = device.device_port
            for address in addresses(device.device_ip):
                yield ("device", address), port or DEFAULT_PORT, port is not None, f"{at}/device_port"
            if device.backup_device_ip:
                backup = device.backup_device_port
                used = addresses(device.backup_device_ip) & addresses(cards.get(pair_die(device.device_id), ""))
                for address in used:
                    written = backup is not None
                    yield ("device", address), backup or DEFAULT_BACKUP_PORT, written, f"{at}/backup_device_port"
            if device.host_port is not None and server.host_ip:
                yield ("host", server.host_ip), device.host_port, True, f"{at}/host_port"
