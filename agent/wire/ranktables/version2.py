"""The rules of a rank table of version 2.0 (A5): ranks with levels of networks and addresses, no servers.

The one rule: it walks whatever JSON it is given, and what has the wrong type is a finding, never an exception.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeGuard

from agent.domain.ranktable import is_address
from agent.wire.ranktablecheck import By, Finding
from agent.wire.ranktablefile import TableCode

_BACKUP_LOCAL_ID: Final = 64
_MOST_RANKS: Final = 65_536
_EID: Final = re.compile(r"[0-9A-Fa-f]{32}")
_PORT: Final = re.compile(r"[^/\s]+/[^/\s]+")
_ADDRESS: Final[Mapping[str, Callable[[str], bool]]] = {
    "EID": lambda text: _EID.fullmatch(text) is not None,
    "IPV4": lambda text: is_address(text, only_v4=True),
    "IPV6": lambda text: is_address(text) and not is_address(text, only_v4=True),
}

_Object = Mapping[str, Any]


def validate_version2(root: _Object) -> tuple[Finding, ...]:
    """Every finding, in the order of the file (the vendor's A5 document, HCCL rank_graph/rank_table_info)."""
    return tuple(_table(root))


def _table(root: _Object) -> Iterator[Finding]:
    ranks = root.get("rank_list")
    count = root.get("rank_count")
    total = len(ranks) if isinstance(ranks, list) else 0
    yield from _whole(root, "rank_count", "", 1, _MOST_RANKS)
    if _is_int(count) and isinstance(ranks, list) and count != total:
        yield Finding(TableCode.RANK_COUNT_MISMATCH, "/rank_count", f"{count} is written, {total} are listed")
    seen: set[int] = set()
    backups = 0
    sizes: dict[tuple[int, str], int] = {}
    for at, rank in _objects(root, "rank_list", "", needed=True):
        yield from _complaints(at, rank)
        if rank is None:
            continue
        yield from _rank(at, rank, total, seen)
        if rank.get("local_id") == _BACKUP_LOCAL_ID:
            backups += 1
            yield from _whole(rank, "replaced_local_id", at, 0, _BACKUP_LOCAL_ID - 1)
            if backups > 1:
                message = f"{_BACKUP_LOCAL_ID} marks a backup, of which there is at most one"
                yield Finding(TableCode.VALUE_RANGE, f"{at}/local_id", message)
        yield from _levels(at, rank, sizes)


def _rank(at: str, rank: _Object, total: int, seen: set[int]) -> Iterator[Finding]:
    yield from _whole(rank, "rank_id", at, 0, _MOST_RANKS - 1)
    rank_id = rank.get("rank_id")
    if _is_int(rank_id):
        if rank_id in seen:
            yield Finding(TableCode.RANK_DUP, f"{at}/rank_id", f"rank {rank_id} is given twice")
        elif 0 <= rank_id < _MOST_RANKS and rank_id >= total:
            message = f"rank {rank_id} is outside 0 to {total - 1}"
            yield Finding(TableCode.RANK_NOT_CONTIGUOUS, f"{at}/rank_id", message)
        seen.add(rank_id)
    yield from _whole(rank, "local_id", at, 0, _BACKUP_LOCAL_ID)
    yield from _whole(rank, "device_id", at, 0, 64)
    for key in ("device_port", "host_port"):
        if key in rank:
            yield from _port(rank[key], f"{at}/{key}")


def _port(value: Any, at: str) -> Iterator[Finding]:
    port = int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value) else value
    if not _is_int(port):
        yield Finding(TableCode.NUMBER_INVALID, at, "is no whole number")
    elif not 1 <= port <= 65535:
        yield Finding(TableCode.PORT_RANGE, at, f"{_shown(port)} is outside 1 to 65535")
    elif port < 1024:
        yield Finding(TableCode.PORT_RESERVED, at, f"{port} is a system port", "warning")


def _levels(at: str, rank: _Object, sizes: dict[tuple[int, str], int]) -> Iterator[Finding]:
    before = -1
    yield from _at_most(rank, "level_list", at, 0, 8)
    for place, level in _objects(rank, "level_list", at, needed=True):
        yield from _complaints(place, level)
        if level is None:
            continue
        yield from _whole(level, "net_layer", place, 0, 7)
        layer = level.get("net_layer")
        if _is_int(layer):
            if layer <= before:
                message = f"layer {_shown(layer)} comes after layer {_shown(before)}: they must rise"
                yield Finding(TableCode.LAYER_ORDER, f"{place}/net_layer", message)
            before = layer
        instance = level.get("net_instance_id")
        yield from _text(level, "net_instance_id", place, 1, 1024)
        kind = level.get("net_type")
        if kind not in ("TOPO_FILE_DESC", "CLOS"):
            # HCCL's own reader knows a few more than the document.
            by: By = "doc" if isinstance(kind, str) else "both"
            yield Finding(TableCode.VALUE_UNKNOWN, f"{place}/net_type", "is neither TOPO_FILE_DESC nor CLOS", by=by)
        elif layer == 0 and kind != "TOPO_FILE_DESC":
            yield Finding(TableCode.VALUE_UNKNOWN, f"{place}/net_type", "layer 0 must be TOPO_FILE_DESC")
        addresses = level.get("rank_addr_list")
        yield from _at_most(level, "rank_addr_list", place, 0, 24)
        if _is_int(layer) and isinstance(instance, str) and isinstance(addresses, list):
            others = sizes.setdefault((layer, instance), len(addresses))
            if others != len(addresses):
                message = f"{len(addresses)} addresses, other ranks of {instance[:64]} in layer {layer} have {others}"
                yield Finding(TableCode.ADDRESS_COUNT, f"{place}/rank_addr_list", message)
        for where, address in _objects(level, "rank_addr_list", place, needed=False):
            yield from _complaints(where, address)
            if address is not None:
                yield from _address(where, address)


def _address(at: str, address: _Object) -> Iterator[Finding]:
    kind, text = address.get("addr_type"), address.get("addr")
    right = _ADDRESS.get(kind) if isinstance(kind, str) else None
    if right is None:
        yield Finding(TableCode.VALUE_UNKNOWN, f"{at}/addr_type", "is none of EID, IPV4, IPV6 (in capitals)")
    bad_length = tuple(_text(address, "addr", at, 1, 256))
    yield from bad_length
    if right is not None and not bad_length and isinstance(text, str) and not right(text):
        what = "32 hexadecimal digits" if kind == "EID" else f"an {kind} address"
        yield Finding(TableCode.ADDRESS_INVALID, f"{at}/addr", f"{text[:64]!r} is not {what}")
    yield from _at_most(address, "ports", at, 1, 16)
    ports = address.get("ports")
    for index, port in enumerate(ports if isinstance(ports, list) else ()):
        if not isinstance(port, str) or len(port) > 32 or not _PORT.fullmatch(port):
            message = "is not of the form die/port in at most 32 characters"
            yield Finding(TableCode.ADDRESS_INVALID, f"{at}/ports/{index}", message)
    if "backup_addr" in address:
        yield from _at_most(address, "backup_addr", at, 0, 16)
    if "detour" in address and address["detour"] not in ("true", "false"):
        yield Finding(TableCode.VALUE_UNKNOWN, f"{at}/detour", 'is neither "true" nor "false"')


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    return str(value)[:40]


def _whole(parent: _Object, key: str, at: str, low: int, high: int) -> Iterator[Finding]:
    value = parent.get(key)
    if value is None:
        yield Finding(TableCode.FIELD_MISSING, f"{at}/{key}", "is needed")
    elif not _is_int(value):
        yield Finding(TableCode.NUMBER_INVALID, f"{at}/{key}", "version 2.0 takes a whole number without quotes here")
    elif not low <= value <= high:
        yield Finding(TableCode.VALUE_RANGE, f"{at}/{key}", f"{_shown(value)} is outside {low} to {high}")


def _text(parent: _Object, key: str, at: str, low: int, high: int) -> Iterator[Finding]:
    value = parent.get(key)
    if value is None:
        yield Finding(TableCode.FIELD_MISSING, f"{at}/{key}", "is needed")
    elif not isinstance(value, str):
        yield Finding(TableCode.TYPE_NOT_STRING, f"{at}/{key}", "a string is needed")
    elif not low <= len(value) <= high:
        yield Finding(TableCode.VALUE_RANGE, f"{at}/{key}", f"has {len(value)} characters, not {low} to {high}")


def _at_most(parent: _Object, key: str, at: str, low: int, high: int) -> Iterator[Finding]:
    value = parent.get(key)
    if not isinstance(value, list):
        if value is not None or low:
            yield Finding(TableCode.FIELD_MISSING, f"{at}/{key}", "a list is needed")
    elif not low <= len(value) <= high:
        yield Finding(TableCode.VALUE_RANGE, f"{at}/{key}", f"has {len(value)} elements, not {low} to {high}")


def _objects(parent: _Object, key: str, at: str, *, needed: bool) -> Iterator[tuple[str, _Object | None]]:
    """The elements of a list with the place of each; None for one that is no object, or for a list that must be."""
    items = parent.get(key)
    if not isinstance(items, list) or not items:
        if needed:
            yield f"{at}/{key}", None
        return
    for index, item in enumerate(items):
        yield f"{at}/{key}/{index}", item if isinstance(item, dict) else None


def _complaints(at: str, item: _Object | None) -> Iterator[Finding]:
    if item is None:
        yield Finding(TableCode.FIELD_MISSING, at, "an object is needed, or a list with one in it")
