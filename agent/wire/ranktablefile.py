"""Reads rank tables (`hccl.json`) of version 1.0 and 1.2; ranktablecheck says what is wrong with one that was read.

The one rule: a table that is not `completed` is never returned; its server_list may be an old one (ascend-operator
keeps it while the status is `initializing`, controllers/v1/pod.go:244-319).
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import orjson

from agent.domain.ranktable import RankDevice, RankTable, Server, SuperPod
from agent.errors import BadDocument

DATA_KEY: Final = "hccl.json"
"""Key of the table in ConfigMap `rings-config-<job>`."""

_DECIMAL: Final = re.compile(r"[0-9]{1,9}")


class TableCode(StrEnum):
    """What can be wrong with a rank table. The first six stop the reading, the others are findings."""

    JSON_INVALID = "JSON_INVALID"
    STATUS_NOT_READY = "STATUS_NOT_READY"
    VERSION_UNSUPPORTED = "VERSION_UNSUPPORTED"
    TYPE_NOT_STRING = "TYPE_NOT_STRING"
    FIELD_MISSING = "FIELD_MISSING"
    NUMBER_INVALID = "NUMBER_INVALID"
    SERVER_COUNT_MISMATCH = "SERVER_COUNT_MISMATCH"
    SERVER_ID_DUP = "SERVER_ID_DUP"
    SERVER_ID_LEN = "SERVER_ID_LEN"
    HOST_IP_INVALID = "HOST_IP_INVALID"
    DEVICE_ID_DUP = "DEVICE_ID_DUP"
    DEVICE_IP_INVALID = "DEVICE_IP_INVALID"
    DEVICE_IP_DUP = "DEVICE_IP_DUP"
    DEVICE_IP_REQUIRED = "DEVICE_IP_REQUIRED"
    PORT_RANGE = "PORT_RANGE"
    PORT_RESERVED = "PORT_RESERVED"
    HOST_PORT_DUP = "HOST_PORT_DUP"
    BACKUP_NOT_PAIR = "BACKUP_NOT_PAIR"
    BACKUP_SELF = "BACKUP_SELF"
    BACKUP_DUP = "BACKUP_DUP"
    BACKUP_PORT_CLASH = "BACKUP_PORT_CLASH"
    RANK_NOT_CONTIGUOUS = "RANK_NOT_CONTIGUOUS"
    RANK_DUP = "RANK_DUP"
    RANK_INTERLEAVED = "RANK_INTERLEAVED"
    SDID_DUP = "SDID_DUP"
    SDID_MISSING = "SDID_MISSING"
    SUPERPOD_DUP = "SUPERPOD_DUP"
    SUPERPOD_UNKNOWN_SERVER = "SUPERPOD_UNKNOWN_SERVER"
    SUPERPOD_MISSING_SERVER = "SUPERPOD_MISSING_SERVER"
    SUPERPOD_INTERLEAVED = "SUPERPOD_INTERLEAVED"
    MODE_AI_SERVER = "MODE_AI_SERVER"


def _bad(code: TableCode, message: str, pointer: str = "", hint: str = "") -> BadDocument:
    return BadDocument(f"{code}: {message}", place=pointer or "/", hint=hint)


def parse_rank_table(text: bytes | str) -> RankTable:
    """The table of a file's text. Version 2.0 comes back without servers: it has none, and rails do not use it.

    Raises BadDocument whose reason begins with a TableCode and whose place is a JSON pointer: JSON_INVALID (comments
    are not JSON), STATUS_NOT_READY, VERSION_UNSUPPORTED, TYPE_NOT_STRING (HCCL takes no numbers), FIELD_MISSING,
    NUMBER_INVALID.
    """
    try:
        root = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeError) as error:
        raise _bad(TableCode.JSON_INVALID, str(error), hint=_json_hint(text)) from None
    if not isinstance(root, dict):
        raise _bad(TableCode.JSON_INVALID, "the file is not an object")
    version = _text(root, "version", "")
    status = _text(root, "status", "")
    if not status and version == "2.0":
        status = "completed"
    if status != "completed":
        raise _bad(
            TableCode.STATUS_NOT_READY,
            f"status is {status[:40]!r}, the servers may be those of an earlier run",
            "/status",
            "wait until ascend-operator writes completed",
        )
    if version == "2.0":
        return RankTable(status, version)
    if version not in ("1.0", "1.2"):
        raise _bad(TableCode.VERSION_UNSUPPORTED, f"{version[:40]!r} is none of 1.0, 1.2, 2.0", "/version")
    servers = tuple(_server(item, at) for at, item in _items(root, "server_list", "", required=True))
    pods = tuple(_pod(item, at) for at, item in _items(root, "super_pod_list", "", required=False))
    return RankTable(status, version, servers, pods, _number(root, "server_count", ""))


def _json_hint(text: bytes | str) -> str:
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    if re.search(rb"(^|[\s,\[{}\]\"])(//|/\*|#)", raw):
        return "comments are not JSON: remove them"
    if re.search(rb",\s*[\]}]", raw):
        return "no comma before a closing bracket"
    return ""


def _items(parent: Mapping[str, Any], key: str, at: str, *, required: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    items = parent.get(key)
    pointer = f"{at}/{key}"
    if items is None and not required:
        return
    if not isinstance(items, list) or (required and not items):
        raise _bad(TableCode.FIELD_MISSING, "a list with something in it is needed", pointer)
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise _bad(TableCode.FIELD_MISSING, "an object is needed", f"{pointer}/{index}")
        yield f"{pointer}/{index}", item


def _text(parent: Mapping[str, Any], key: str, at: str, *, required: bool = False) -> str:
    value = parent.get(key)
    if value is None and not required:
        return ""
    if value is None or value == "":
        if required:
            raise _bad(TableCode.FIELD_MISSING, "is needed", f"{at}/{key}")
        return ""
    if not isinstance(value, str):
        raise _bad(TableCode.TYPE_NOT_STRING, "HCCL takes only JSON strings here", f"{at}/{key}", "put it in quotes")
    return value


def _number(parent: Mapping[str, Any], key: str, at: str) -> int | None:
    text = _text(parent, key, at)
    if not text:
        return None
    if _DECIMAL.fullmatch(text) is None:
        raise _bad(TableCode.NUMBER_INVALID, f"{text[:40]!r} is not a decimal number", f"{at}/{key}")
    return int(text)


def _needed(parent: Mapping[str, Any], key: str, at: str) -> int:
    value = _number(parent, key, at)
    if value is None:
        raise _bad(TableCode.FIELD_MISSING, "is needed", f"{at}/{key}")
    return value


def _server(item: Mapping[str, Any], at: str) -> Server:
    return Server(
        server_id=_text(item, "server_id", at, required=True),
        host_ip=_text(item, "host_ip", at),
        container_ip=_text(item, "container_ip", at),
        devices=tuple(_device(device, place) for place, device in _items(item, "device", at, required=True)),
        hardware_type=_text(item, "hardware_type", at),
    )


def _device(item: Mapping[str, Any], at: str) -> RankDevice:
    return RankDevice(
        device_id=_needed(item, "device_id", at),
        rank_id=_needed(item, "rank_id", at),
        device_ip=_text(item, "device_ip", at),
        device_port=_number(item, "device_port", at),
        backup_device_ip=_text(item, "backup_device_ip", at),
        backup_device_port=_number(item, "backup_device_port", at),
        host_port=_number(item, "host_port", at),
        super_device_id=_text(item, "super_device_id", at),
    )


def _pod(item: Mapping[str, Any], at: str) -> SuperPod:
    members = _items(item, "server_list", at, required=True)
    ids = tuple(_text(member, "server_id", place, required=True) for place, member in members)
    return SuperPod(_text(item, "super_pod_id", at, required=True), ids)
