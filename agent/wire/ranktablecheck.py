"""What is wrong with a rank table that could be read: findings, each with a code and a JSON pointer.

The one rule: only what the table itself shows is judged; what needs the job's environment is left to who knows it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain, groupby
from math import gcd
from typing import Final, Literal, NamedTuple

from agent.domain.ranktable import RankDevice, RankTable, Server, addresses, is_address, pair_die
from agent.wire.ranktablefile import TableCode

DEFAULT_PORT: Final = 16666
DEFAULT_BACKUP_PORT: Final = 16667
_AMBIGUOUS: Final = frozenset({TableCode.RANK_DUP, TableCode.DEVICE_ID_DUP, TableCode.SERVER_ID_DUP})

Severity = Literal["error", "warning"]
By = Literal["both", "doc", "hccl"]


class Finding(NamedTuple):
    """One thing that is wrong: its code, a JSON pointer to it, words, and how much it matters.

    A tuple: of a table that is wrong everywhere there are more than a million, and most are counted and let go of.
    """

    code: TableCode
    pointer: str
    message: str
    severity: Severity = "error"
    by: By = "both"
    """Whose rule it is: the vendor's document's, that of HCCL's own reader (which asks for less), or both."""
    hint: str = ""


def validate(table: RankTable) -> Iterator[Finding]:
    """Every finding that the table alone can show, in the order of its fields (HCCL topoinfo_ranktable*.cc), one at a
    time: a table that is wrong in every field has more than a million.

    What needs the job's environment is not judged here: whether host_ip and backups are required, and device_ip
    within one super-pod. A backup that does not fit is a warning here; a borrow refuses it.
    """
    parts = (_whole, _servers, _devices, _backups, _ranks, _super_pods) if table.version != "2.0" else ()
    return chain.from_iterable(part(table) for part in parts)


def ambiguity(table: RankTable) -> Finding | None:
    """The first thing that makes the table give one device several ranks or one rank several devices, or None.

    Which rank a device has cannot be told from such a table; HCCL refuses it too.
    """
    judged = chain(_servers(table), _devices(table), _ranks(table)) if table.version != "2.0" else ()
    return next((finding for finding in judged if finding.code in _AMBIGUOUS), None)


def _whole(table: RankTable) -> Iterator[Finding]:
    if table.server_count is not None and table.server_count != len(table.servers):
        message = f"{table.server_count} is written, {len(table.servers)} are listed"
        yield Finding(TableCode.SERVER_COUNT_MISMATCH, "/server_count", message)
    if table.version == "1.0" and table.server_count is None:
        yield Finding(TableCode.FIELD_MISSING, "/server_count", "is needed in version 1.0", by="doc")
    if table.version == "1.2" and table.effective_mode() == "ai_server":
        why = "super_device_id of every device" if table.super_pods else "super_pod_list"
        message = f"without {why} HCCL uses AI-server mode: no super-pods"
        yield Finding(TableCode.MODE_AI_SERVER, "/super_pod_list", message, "warning")


def _each_device(table: RankTable) -> Iterator[tuple[str, Server, RankDevice]]:
    for number, server in enumerate(table.servers):
        for index, device in enumerate(server.devices):
            yield f"/server_list/{number}/device/{index}", server, device


def _servers(table: RankTable) -> Iterator[Finding]:
    seen: set[str] = set()
    for number, server in enumerate(table.servers):
        at = f"/server_list/{number}"
        if len(server.server_id) > 64:
            yield Finding(TableCode.SERVER_ID_LEN, f"{at}/server_id", "longer than 64 characters")
        if server.server_id in seen:
            yield Finding(TableCode.SERVER_ID_DUP, f"{at}/server_id", f"{server.server_id[:64]} is listed twice")
        seen.add(server.server_id)
        if server.host_ip and not is_address(server.host_ip, only_v4=True):
            by: By = "doc" if is_address(server.host_ip) else "both"
            yield Finding(TableCode.HOST_IP_INVALID, f"{at}/host_ip", f"{server.host_ip[:64]!r} is not IPv4", by=by)


def _devices(table: RankTable) -> Iterator[Finding]:
    flat = table.effective_mode() == "ai_server"
    several = len(table.servers) > 1 if flat else len(table.super_pods) > 1
    ids: set[tuple[str, int]] = set()
    host_ports: set[tuple[str, int]] = set()
    ips: set[str] = set()
    for at, server, device in _each_device(table):
        if (server.server_id, device.device_id) in ids:
            yield Finding(TableCode.DEVICE_ID_DUP, f"{at}/device_id", f"{device.device_id} is listed twice")
        ids.add((server.server_id, device.device_id))
        if not device.device_ip and several:
            yield Finding(
                TableCode.DEVICE_IP_REQUIRED,
                f"{at}/device_ip",
                "is needed across servers or super-pods",
                by="doc" if is_address(server.host_ip) else "both",
            )
        mine = addresses(device.device_ip)
        yield from _bad_addresses(device.device_ip, f"{at}/device_ip")
        if not ips.isdisjoint(mine):
            for address in sorted(mine & ips):
                yield Finding(TableCode.DEVICE_IP_DUP, f"{at}/device_ip", f"{address} is another device's too")
        ips |= mine
        for key, port in (
            ("device_port", device.device_port),
            ("backup_device_port", device.backup_device_port),
            ("host_port", device.host_port),
        ):
            if port is not None and not 1 <= port <= 65535:
                yield Finding(TableCode.PORT_RANGE, f"{at}/{key}", f"{port} is outside 1 to 65535")
            elif port is not None and port < 1024:
                yield Finding(TableCode.PORT_RESERVED, f"{at}/{key}", f"{port} is a system port", "warning")
        if device.host_port is not None:
            if (server.server_id, device.host_port) in host_ports:
                message = f"{device.host_port} is another device's of this server too"
                yield Finding(TableCode.HOST_PORT_DUP, f"{at}/host_port", message, by="doc")
            host_ports.add((server.server_id, device.host_port))


def _backups(table: RankTable) -> Iterator[Finding]:
    dies = {(server.server_id, device.device_id): device for _, server, device in _each_device(table)}
    backups: set[str] = set()
    for at, server, device in _each_device(table):
        if not device.backup_device_ip:
            continue
        place = f"{at}/backup_device_ip"
        mine = addresses(device.backup_device_ip)
        yield from _bad_addresses(device.backup_device_ip, place)
        for address in sorted(mine & backups):
            yield Finding(TableCode.BACKUP_DUP, place, f"{address} is another rank's backup too")
        backups |= mine
        pair = dies.get((server.server_id, pair_die(device.device_id)))
        if mine & addresses(device.device_ip):
            yield Finding(TableCode.BACKUP_SELF, place, "is the device's own address")
        elif pair is None:
            message = f"device {pair_die(device.device_id)}, the other die of its NPU, is not in the table"
            yield Finding(TableCode.BACKUP_NOT_PAIR, place, message, "warning", "doc")
        elif not mine & addresses(pair.device_ip):
            message = f"is not the address of device {pair_die(device.device_id)}, the other die of its NPU"
            yield Finding(TableCode.BACKUP_NOT_PAIR, place, message, "warning")
        if pair is not None:
            yield from _port_clash(at, device, pair)


def _port_clash(at: str, device: RankDevice, pair: RankDevice) -> Iterator[Finding]:
    """One NIC must not use one port in both roles; HCCL itself compares only ports that are both written."""
    backup = DEFAULT_BACKUP_PORT if device.backup_device_port is None else device.backup_device_port
    main = DEFAULT_PORT if pair.device_port is None else pair.device_port
    if backup != main:
        return
    written = device.backup_device_port is not None and pair.device_port is not None
    message = f"{backup} is the main port of device {pair.device_id} too"
    severity: Severity = "error" if written else "warning"
    yield Finding(TableCode.BACKUP_PORT_CLASH, f"{at}/backup_device_port", message, severity)


def _ranks(table: RankTable) -> Iterator[Finding]:
    total = sum(len(server.devices) for server in table.servers)
    seen: set[int] = set()
    for at, _, device in _each_device(table):
        if device.rank_id in seen:
            yield Finding(TableCode.RANK_DUP, f"{at}/rank_id", f"rank {device.rank_id} is given twice")
        elif device.rank_id >= total:
            message = f"rank {device.rank_id} is outside 0 to {total - 1}"
            yield Finding(TableCode.RANK_NOT_CONTIGUOUS, f"{at}/rank_id", message)
        seen.add(device.rank_id)
    for number, server in enumerate(table.servers):
        ranks = {device.rank_id for device in server.devices}
        if ranks and max(ranks) - min(ranks) + 1 != len(ranks):
            message = f"ranks {min(ranks)} to {max(ranks)} are not all on this server"
            yield Finding(TableCode.RANK_INTERLEAVED, f"/server_list/{number}/device", message, by="doc")


def _super_pods(table: RankTable) -> Iterator[Finding]:
    if table.version != "1.2" or not table.super_pods:
        return
    home: dict[str, str] = {}
    names: set[str] = set()
    for number, pod in enumerate(table.super_pods):
        at = f"/super_pod_list/{number}"
        if pod.super_pod_id in names:
            yield Finding(TableCode.SUPERPOD_DUP, f"{at}/super_pod_id", f"{pod.super_pod_id[:128]} is listed twice")
        names.add(pod.super_pod_id)
        for index, server_id in enumerate(pod.server_ids):
            place = f"{at}/server_list/{index}/server_id"
            if table.server(server_id) is None:
                message = f"{server_id[:64]} is not in server_list"
                yield Finding(TableCode.SUPERPOD_UNKNOWN_SERVER, place, message)
            elif server_id in home:
                yield Finding(TableCode.SUPERPOD_DUP, place, f"{server_id[:64]} is in two places of super_pod_list")
            home.setdefault(server_id, pod.super_pod_id)
    yield from _unequal(table)
    sdids: set[tuple[str, str]] = set()
    left: set[str] = set()
    parted: set[str] = set()
    before = ""
    for number, server in enumerate(table.servers):
        at = f"/server_list/{number}"
        pod_id = home.get(server.server_id)
        if pod_id is None:
            message = f"{server.server_id[:64]} is in no super-pod"
            yield Finding(TableCode.SUPERPOD_MISSING_SERVER, f"{at}/server_id", message)
            continue
        if pod_id in left:
            parted.add(pod_id)
            message = f"servers of super-pod {pod_id[:128]} are not next to each other"
            yield Finding(TableCode.SUPERPOD_INTERLEAVED, f"{at}/server_id", message, by="doc")
        if before and before != pod_id:
            left.add(before)
        before = pod_id
        for index, device in enumerate(server.devices):
            place = f"{at}/device/{index}/super_device_id"
            if not device.super_device_id:
                yield Finding(TableCode.SDID_MISSING, place, "super-pod mode needs it of every rank", "warning")
            elif (pod_id, device.super_device_id) in sdids:
                message = f"{device.super_device_id[:64]} is twice in super-pod {pod_id[:128]}"
                yield Finding(TableCode.SDID_DUP, place, message)
            sdids.add((pod_id, device.super_device_id))
    yield from _rank_runs(table, home, parted)


def _rank_runs(table: RankTable, home: Mapping[str, str], told: AbstractSet[str]) -> Iterator[Finding]:
    """Super-pods whose servers stand together in the file, while their ranks do not follow each other."""
    first = {min(device.rank_id for device in server.devices): server for server in table.servers if server.devices}
    order = [home[first[rank].server_id] for rank in sorted(first) if first[rank].server_id in home]
    runs = Counter(pod_id for pod_id, _ in groupby(order))
    for number, pod in enumerate(table.super_pods):
        if runs.pop(pod.super_pod_id, 0) > 1 and pod.super_pod_id not in told:
            message = f"ranks of super-pod {pod.super_pod_id[:128]} do not follow each other: another's lie between"
            yield Finding(TableCode.SUPERPOD_INTERLEAVED, f"/super_pod_list/{number}", message, by="doc")


def _unequal(table: RankTable) -> Iterator[Finding]:
    """HCCL cuts super-pods of unequal size into equal logical ones, between which only the spine network is used."""
    sizes = [len(pod.server_ids) for pod in table.super_pods]
    listed = sorted(server_id for pod in table.super_pods for server_id in pod.server_ids)
    if len(set(sizes)) < 2 or listed != sorted(server.server_id for server in table.servers):
        return
    size = gcd(*sizes)
    shown = ", ".join(f"{pod.super_pod_id[:32]}: {len(pod.server_ids)}" for pod in table.super_pods[:8])
    more = ", …" if len(sizes) > 8 else ""
    message = (
        f"servers per super-pod differ ({shown}{more}): HCCL splits them into {sum(sizes) // size} logical super-pods "
        f"of {size} server{'' if size == 1 else 's'}, and what lies between two of those takes the spine network"
    )
    yield Finding(TableCode.SUPERPOD_UNEQUAL, "/super_pod_list", message, "warning", "doc")


def _bad_addresses(text: str, at: str) -> Iterator[Finding]:
    if not text or is_address(text):
        return
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not is_address(part)]
    if wrong:
        yield Finding(TableCode.DEVICE_IP_INVALID, at, f"{wrong[0][:64]!r} is neither IPv4 nor IPv6")
    else:
        message = f"{len(parts)} addresses: HCCL takes several, the document one"
        yield Finding(TableCode.DEVICE_IP_INVALID, at, message, by="doc")
