"""Reads rank tables (`hccl.json`) of version 1.0 and 1.2; ranktablecheck says what is wrong with one that was read.

The one rule: a table that is not `completed` is never returned; its server_list may be an old one (ascend-operator
keeps it while the status is `initializing`, controllers/v1/pod.go:244-319).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NoReturn

import orjson

from agent.domain.ranktable import RankDevice, RankTable, Server, SuperPod
from agent.errors import BadDocument

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
    HOST_IP_REQUIRED = "HOST_IP_REQUIRED"
    DEVICE_ID_RANGE = "DEVICE_ID_RANGE"
    NO_BACKUP_CONFIGURED = "NO_BACKUP_CONFIGURED"
    SUPERPOD_UNEQUAL = "SUPERPOD_UNEQUAL"
    SHARED_PORT = "SHARED_PORT"
    RANK_COUNT_MISMATCH = "RANK_COUNT_MISMATCH"
    VALUE_RANGE = "VALUE_RANGE"
    VALUE_UNKNOWN = "VALUE_UNKNOWN"
    LAYER_ORDER = "LAYER_ORDER"
    ADDRESS_INVALID = "ADDRESS_INVALID"
    ADDRESS_COUNT = "ADDRESS_COUNT"


Complain = Callable[[TableCode, str, str, str], None]
"""Takes a code, words, a JSON pointer and a hint, and either raises or keeps them."""


def parse_rank_table(text: bytes | str) -> RankTable:
    """The table of a file's text. Version 2.0 comes back without servers: it has none, and rails do not use it.

    Raises BadDocument whose reason begins with a TableCode and whose place is a JSON pointer: JSON_INVALID (comments
    are not JSON), STATUS_NOT_READY, VERSION_UNSUPPORTED, TYPE_NOT_STRING (HCCL takes no numbers), FIELD_MISSING,
    NUMBER_INVALID.
    """
    try:
        root = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeError) as error:
        _refuse(TableCode.JSON_INVALID, str(error), "", json_hint(text))
    table = read_rank_table(root, _refuse)
    if table is None:
        raise AssertionError("a reader that refuses gives a table or raises")
    return table


def _refuse(code: TableCode, message: str, pointer: str, hint: str) -> NoReturn:
    raise BadDocument(f"{code}: {message}", place=pointer or "/", hint=hint) from None


def read_rank_table(root: object, complain: Complain) -> RankTable | None:
    """The table of a parsed text; every field that cannot be read is told to `complain`, in the order of the file.

    A number where HCCL wants a string is complained about and read. None when a rank, a device or a server cannot be
    told, or nothing of the table may be trusted.
    """
    if not isinstance(root, dict):
        complain(TableCode.JSON_INVALID, "the file is not an object", "", "")
        return None
    read = _Reader(complain)
    version = read.text(root, "version", "")
    status = read.text(root, "status", "")
    if not status and version == "2.0":
        status = "completed"
    if status != "completed":
        complain(
            TableCode.STATUS_NOT_READY,
            f"status is {status[:40]!r}, the servers may be those of an earlier run",
            "/status",
            "wait until ascend-operator writes completed",
        )
        return None
    if version == "2.0":
        return RankTable(status, version)
    if version not in ("1.0", "1.2"):
        complain(TableCode.VERSION_UNSUPPORTED, f"{version[:40]!r} is none of 1.0, 1.2, 2.0", "/version", "")
        return None
    servers = tuple(read.server(item, at) for at, item in read.items(root, "server_list", "", required=True))
    pods = tuple(read.pod(item, at) for at, item in read.items(root, "super_pod_list", "", required=False))
    count = read.number(root, "server_count", "")
    return None if read.lost else RankTable(status, version, servers, pods, count)


def json_hint(text: bytes | str) -> str:
    """What may be wrong with a text that is no JSON; empty when nothing comes to mind."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    if raw.startswith(b"\xef\xbb\xbf"):
        return "the file starts with a byte order mark; save it as UTF-8 without one"
    if re.search(rb"(^|[\s,\[{}\]\"])(//|/\*|#)", raw):
        return "comments are not JSON: remove them"
    if re.search(rb",\s*[\]}]", raw):
        return "no comma before a closing bracket"
    return ""


class _Reader:
    """Reads fields; `lost` once a part is missing without which nothing can be said of the whole."""

    __slots__ = ("_complain", "lost")

    def __init__(self, complain: Complain) -> None:
        self._complain = complain
        self.lost = False

    def items(
        self, parent: Mapping[str, Any], key: str, at: str, *, required: bool
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        items = parent.get(key)
        pointer = f"{at}/{key}"
        if items is None and not required:
            return
        if not isinstance(items, list) or (required and not items):
            self._lose("a list with something in it is needed", pointer)
            return
        for index, item in enumerate(items):
            if isinstance(item, dict):
                yield f"{pointer}/{index}", item
            else:
                self._lose("an object is needed", f"{pointer}/{index}")

    def _lose(self, message: str, pointer: str) -> None:
        self.lost = True
        self._complain(TableCode.FIELD_MISSING, message, pointer, "")

    def text(self, parent: Mapping[str, Any], key: str, at: str, *, required: bool = False) -> str:
        value = parent.get(key)
        if isinstance(value, str) and value:
            return value
        if value is None or value == "":
            if required:
                self._lose("is needed", f"{at}/{key}")
            return ""
        hint = "put it in quotes"
        self._complain(TableCode.TYPE_NOT_STRING, "HCCL takes only JSON strings here", f"{at}/{key}", hint)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        self.lost = True
        return ""

    def number(self, parent: Mapping[str, Any], key: str, at: str) -> int | None:
        value = parent.get(key)
        if isinstance(value, str) and _DECIMAL.fullmatch(value) is not None:
            return int(value)
        text = self.text(parent, key, at)
        if not text:
            return None
        if _DECIMAL.fullmatch(text) is None:
            self._complain(TableCode.NUMBER_INVALID, f"{text[:40]!r} is not a decimal number", f"{at}/{key}", "")
            self.lost = True
            return None
        return int(text)

    def needed(self, parent: Mapping[str, Any], key: str, at: str) -> int:
        value = self.number(parent, key, at)
        if value is None and parent.get(key) in (None, ""):
            self._lose("is needed", f"{at}/{key}")
        return -1 if value is None else value

    def server(self, item: Mapping[str, Any], at: str) -> Server:
        return Server(
            server_id=self.text(item, "server_id", at, required=True),
            host_ip=self.text(item, "host_ip", at),
            container_ip=self.text(item, "container_ip", at),
            devices=tuple(self.device(one, place) for place, one in self.items(item, "device", at, required=True)),
            hardware_type=self.text(item, "hardware_type", at),
        )

    def device(self, item: Mapping[str, Any], at: str) -> RankDevice:
        return RankDevice(
            device_id=self.needed(item, "device_id", at),
            rank_id=self.needed(item, "rank_id", at),
            device_ip=self.text(item, "device_ip", at),
            device_port=self.number(item, "device_port", at),
            backup_device_ip=self.text(item, "backup_device_ip", at),
            backup_device_port=self.number(item, "backup_device_port", at),
            host_port=self.number(item, "host_port", at),
            super_device_id=self.text(item, "super_device_id", at),
        )

    def pod(self, item: Mapping[str, Any], at: str) -> SuperPod:
        members = self.items(item, "server_list", at, required=True)
        ids = tuple(self.text(member, "server_id", place, required=True) for place, member in members)
        return SuperPod(self.text(item, "super_pod_id", at, required=True), ids)
