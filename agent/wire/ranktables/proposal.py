"""Backups for a rank table that has none: for each die the card of the other die of its NPU, on a port of its own.

The one rule: what is proposed passes every rule as if HCCL were to borrow; else nothing is proposed and it is said why.
What the table says already stays as it is, to the letter.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from agent.domain.ranktable import RankDevice, RankTable, addresses, pair_die
from agent.errors import BadDocument
from agent.wire.ranktablecheck import DEFAULT_BACKUP_PORT, DEFAULT_PORT, Finding
from agent.wire.ranktablefile import TableCode
from agent.wire.ranktables.circumstances import Circumstances
from agent.wire.ranktables.inspect import Opened, inspect_table, open_table
from agent.wire.ranktables.judge import Mode, other_product

BORROWING: Final = Circumstances(retry=True, borrow=True, rdma_inside=False)
"""What a backup is for: retry between super-pods, operators on the AI CPU."""
_BOTH: Final = "give the job both dies of each NPU"
_OTHER_PRODUCT: Final = "names a product other than A3, and only there the two dies of an NPU stand in for each other"


@dataclass(frozen=True, slots=True)
class Proposal:
    """The table with backups, as text, and how many fields were added."""

    text: str
    backups: int
    ports: int


def propose(opened: Opened) -> Proposal:
    """Backups and ports for every die that has none.

    Raises BadDocument naming the first thing that stands against it: a table that cannot be read or breaks a rule, a
    server without host_ip, a die whose other die is not in the table or has no address, a product other than A3.
    """
    table = opened.table
    if table is None or table.version == "2.0":
        _refuse_unread(opened)
        raise BadDocument("version 2.0 has no dies with backups", place="/version", hint="only 1.0 and 1.2 on A3 do")
    _check_product(table)
    root = copy.deepcopy(opened.root)
    backups = ports = 0
    for written, die, pair, at in _dies(root, table):
        if not die.backup_device_ip:
            written["backup_device_ip"] = _first_address(pair, at)
            backups += 1
        if die.device_port is None:
            written["device_port"] = str(DEFAULT_PORT)
            ports += 1
        if die.backup_device_port is None:
            written["backup_device_port"] = str(_free_port(pair))
            ports += 1
    text = orjson.dumps(root, option=orjson.OPT_INDENT_2).decode() + "\n"
    _check_whole(text, table)
    return Proposal(text, backups, ports)


def _refuse_unread(opened: Opened) -> None:
    if opened.table is None:
        first = opened.findings[0]
        raise BadDocument(f"{first.code}: {first.message}", place=first.pointer or "/", hint=first.hint)


def _check_product(table: RankTable) -> None:
    for number, server in enumerate(table.servers):
        if other_product(server.hardware_type):
            message = f"{server.hardware_type[:40]!r} {_OTHER_PRODUCT}"
            raise BadDocument(message, place=f"/server_list/{number}/hardware_type")


def _dies(root: Any, table: RankTable) -> Iterator[tuple[dict[str, Any], RankDevice, RankDevice | None, str]]:
    """Each die as it is written, as it was read, the other die of its NPU if the table holds it, and its place."""
    for number, server in enumerate(table.servers):
        held = {die.device_id: die for die in server.devices}
        for index, die in enumerate(server.devices):
            written = root["server_list"][number]["device"][index]
            yield written, die, held.get(pair_die(die.device_id)), f"/server_list/{number}/device/{index}"


def _first_address(pair: RankDevice | None, at: str) -> str:
    place = f"{at}/backup_device_ip"
    if pair is None:
        message = "the other die of this NPU is not in the table, so nothing can stand in for it"
        raise BadDocument(message, place=place, hint=_BOTH)
    if not addresses(pair.device_ip):
        message = f"device {pair.device_id}, the other die of this NPU, has no device_ip"
        raise BadDocument(message, place=place, hint="on the server: address_<device id> in /etc/hccn.conf")
    return next(part for word in pair.device_ip.split(",") if (part := word.strip()))


def _free_port(pair: RankDevice | None) -> int:
    """A port on the other die's card that is not its own main port."""
    main = DEFAULT_PORT if pair is None or pair.device_port is None else pair.device_port
    return DEFAULT_BACKUP_PORT if main != DEFAULT_BACKUP_PORT else DEFAULT_BACKUP_PORT + 1


def _check_whole(text: str, table: RankTable) -> None:
    against = [one.finding for one in inspect_table(open_table(text.encode()), BORROWING, Mode.DOC, most=1).found]
    for finding in against:
        if finding.severity == "error" or finding.code in _SPOILS:
            raise BadDocument(_words(finding), place=finding.pointer or "/", hint=_what_to_do(finding, table))


_SPOILS: Final = frozenset({TableCode.BACKUP_PORT_CLASH, TableCode.NO_BACKUP_CONFIGURED, TableCode.BACKUP_NOT_PAIR})
"""Warnings with which a backup would not serve."""


def _what_to_do(finding: Finding, table: RankTable) -> str:
    """A backup that is written is never overwritten, for it may be meant; in its place one is proposed if it can be."""
    field = finding.pointer.rpartition("/")[2]
    if field == "backup_device_ip" and not _has_pair(finding.pointer, table):
        return _BOTH
    if field in ("backup_device_ip", "backup_device_port"):
        return f"take {field} away from this die, and it is proposed anew"
    return "mend the table first; see check"


def _has_pair(pointer: str, table: RankTable) -> bool:
    """Whether the table holds the other die of the one whose field this is."""
    _, _, server, _, device, _ = pointer.split("/")
    devices = table.servers[int(server)].devices
    pair = pair_die(devices[int(device)].device_id)
    return any(one.device_id == pair for one in devices)


def _words(finding: Finding) -> str:
    return f"{finding.code}: {finding.message}"
