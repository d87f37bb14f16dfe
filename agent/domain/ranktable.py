"""A job's rank table as values: which rank sits on which device of which server and super-pod.

The one rule: a table answers from indices that are built once; where an answer would be ambiguous it is None.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, Literal

_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_PLAIN_IPV4: Final = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")
"""What `ip_address` takes for IPv4, at a tenth of the time; a large table has half a million addresses."""


def pair_die(device: int) -> int:
    """The other die of the same NPU: device ids 2k and 2k+1 share one (A3 tables, HCCL's SIO pair test)."""
    return device ^ 1


def npu_of(device: int) -> int:
    """Number of the physical NPU that holds this die."""
    return device // 2


@lru_cache(maxsize=4096)
def addresses(text: str) -> frozenset[str]:
    """The IP addresses in a table field, each in its canonical spelling.

    HCCL takes several values with commas between; a text that is no address stands for itself. Of the two dies of an
    NPU it is asked several times in a row.
    """
    if "," not in text:
        word = text.strip()
        return frozenset((_address(word)[0] or word,)) if word else frozenset()
    words = (part.strip() for part in text.split(","))
    return frozenset(_address(word)[0] or word for word in words if word)


def is_address(text: str, *, only_v4: bool = False) -> bool:
    """Whether it is one IPv4 or IPv6 address."""
    version = _address(text)[1]
    return version == 4 or (version != 0 and not only_v4)


@lru_cache(maxsize=4096)
def _address(word: str) -> tuple[str, int]:
    """Canonical spelling and version of an address; empty and 0 for what is none. Of a die it is asked several times
    in a row.
    """
    if ":" not in word:
        return (word, 4) if _PLAIN_IPV4.fullmatch(word) else ("", 0)
    try:
        found = ip_address(word)
    except ValueError:
        return "", 0
    return str(found), found.version


@dataclass(frozen=True, slots=True)
class RankDevice:
    """One die of a server and the rank it runs. Absent texts are empty, absent ports None."""

    device_id: int
    rank_id: int
    device_ip: str = ""
    device_port: int | None = None
    backup_device_ip: str = ""
    backup_device_port: int | None = None
    host_port: int | None = None
    super_device_id: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """One AI server; ascend-operator's `server_id` is the pod's UID, or the host IP (common.go:335-339)."""

    server_id: str
    host_ip: str = ""
    container_ip: str = ""
    devices: tuple[RankDevice, ...] = ()
    hardware_type: str = ""


@dataclass(frozen=True, slots=True)
class SuperPod:
    """A logical super-pod and its servers, in the order of the file."""

    super_pod_id: str
    server_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RankTable:
    """A completed rank table of version 1.0 or 1.2; version 2.0 (A5) has no server list and stays empty here."""

    status: str
    version: str
    servers: tuple[Server, ...] = ()
    super_pods: tuple[SuperPod, ...] = ()
    server_count: int | None = None
    """As written in the file; None when the field is absent."""
    _seats: Mapping[int, tuple[Server, RankDevice]] = field(init=False, repr=False, compare=False)
    _ranks: Mapping[tuple[str, int], int] = field(init=False, repr=False, compare=False)
    _by_id: Mapping[str, Server] = field(init=False, repr=False, compare=False)
    _by_host: Mapping[str, Server | None] = field(init=False, repr=False, compare=False)
    _by_container: Mapping[str, Server | None] = field(init=False, repr=False, compare=False)
    _pods: Mapping[str, str] = field(init=False, repr=False, compare=False)
    _columns: Mapping[int, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    _mode: Literal["super_pod", "ai_server"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        seats: dict[int, tuple[Server, RankDevice]] = {}
        ranks: dict[tuple[str, int], int] = {}
        by_id: dict[str, Server] = {}
        by_host: dict[str, Server | None] = {}
        by_container: dict[str, Server | None] = {}
        columns: dict[int, list[int]] = {}
        for server in self.servers:
            by_id.setdefault(server.server_id, server)
            for address, index in ((server.host_ip, by_host), (server.container_ip, by_container)):
                if address:
                    index[address] = None if address in index else server
            for device in server.devices:
                seats.setdefault(device.rank_id, (server, device))
                ranks.setdefault((server.server_id, device.device_id), device.rank_id)
                columns.setdefault(device.device_id, []).append(device.rank_id)
        pods: dict[str, str] = {}
        for pod in self.super_pods:
            for server_id in pod.server_ids:
                pods.setdefault(server_id, pod.super_pod_id)
        object.__setattr__(self, "_seats", seats)
        object.__setattr__(self, "_ranks", ranks)
        object.__setattr__(self, "_by_id", by_id)
        object.__setattr__(self, "_by_host", by_host)
        object.__setattr__(self, "_by_container", by_container)
        object.__setattr__(self, "_pods", pods)
        object.__setattr__(self, "_columns", {device: tuple(sorted(found)) for device, found in columns.items()})
        object.__setattr__(self, "_mode", self._mode_of())

    def rank_of(self, server_id: str, device: int) -> int | None:
        """Rank on that die, or None when the table does not hold it."""
        return self._ranks.get((server_id, device))

    def seat(self, rank: int) -> tuple[Server, RankDevice] | None:
        """Server and device of a rank."""
        return self._seats.get(rank)

    def server(self, server_id: str) -> Server | None:
        """The server of that id."""
        return self._by_id.get(server_id)

    def server_for(self, *, pod_uid: str = "", host_ip: str = "", pod_ip: str = "") -> Server | None:
        """The server of a pod: by its UID, else by the host's IP, else by the pod's IP."""
        return self._by_id.get(pod_uid) or self._by_host.get(host_ip) or self._by_container.get(pod_ip)

    def super_pod_of(self, server_id: str) -> str | None:
        """Id of the logical super-pod that lists this server."""
        return self._pods.get(server_id)

    def same_device(self, device: int) -> tuple[int, ...]:
        """Ranks of every server on this device id, ascending."""
        return self._columns.get(device, ())

    def effective_mode(self) -> Literal["super_pod", "ai_server"]:
        """How HCCL reads the table: as super-pods only with version 1.2, a super_pod_list and every super_device_id."""
        return self._mode

    def _mode_of(self) -> Literal["super_pod", "ai_server"]:
        if self.version != "1.2" or not self.super_pods:
            return "ai_server"
        complete = all(device.super_device_id for server in self.servers for device in server.devices)
        return "super_pod" if complete else "ai_server"

    @property
    def has_backup(self) -> bool:
        """Some rank names a backup_device_ip; ascend-operator's own tables never do (common/server.go:44-60)."""
        return any(device.backup_device_ip for server in self.servers for device in server.devices)

    @property
    def hardware_type(self) -> str:
        """The product all servers agree on, e.g. `800I-A3-64G`; empty when none is named or they differ."""
        named = {server.hardware_type for server in self.servers if server.hardware_type}
        return named.pop() if len(named) == 1 else ""
