"""Large rank tables: as many ranks as a table can have, right and wrong, and the pods and nodes they stand on."""

from collections.abc import Iterator
from typing import Any, Final

import orjson

DIES: Final = 16
"""Of an A3 server."""
SERVERS: Final = 32
"""Of a super-pod here."""


def rank_table(ranks: int, *, wrong: bool = False) -> bytes:
    """A 1.2 table of super-pods with backups and all that the vendor's document has; `wrong`: in nearly every field, so
    that there are 19 findings a rank: numbers without quotes, ports that are none, what must be unique the same
    everywhere, an address that is none, and it for its own backup.
    """
    servers = [_server(number) for number in range(ranks // DIES)]
    if wrong:
        for server in servers:
            server["host_ip"] = "nowhere"
            for die, device in enumerate(server["device"]):
                device.update(device_ip="nowhere", backup_device_ip="nowhere", device_id=die % 2, rank_id=5)
                device.update(super_device_id=7, device_port=0, backup_device_port=0, host_port=0)
    pods = [
        {
            "super_pod_id": str(first // SERVERS),
            "server_list": [{"server_id": f"node_{one}"} for one in range(first, min(first + SERVERS, len(servers)))],
        }
        for first in range(0, len(servers), SERVERS)
    ]
    table = {
        "status": "completed",
        "version": "1.2",
        "server_count": str(len(servers) + wrong),
        "server_list": servers,
        "super_pod_list": pods,
    }
    return orjson.dumps(table, option=orjson.OPT_INDENT_2)


def _server(number: int) -> dict[str, Any]:
    dies: list[dict[str, Any]] = [
        {
            "device_id": str(die),
            "super_device_id": str(number % SERVERS * DIES + die),
            "device_ip": _address(number * DIES + die),
            "device_port": "16666",
            "backup_device_ip": _address(number * DIES + (die ^ 1)),
            "backup_device_port": "16667",
            "host_port": str(20000 + die),
            "rank_id": str(number * DIES + die),
        }
        for die in range(DIES)
    ]
    return {"server_id": f"node_{number}", "host_ip": _host(number), "device": dies}


def _address(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _host(number: int) -> str:
    return f"172.16.{number >> 8}.{number & 255}"


def cluster_of(ranks: int) -> Iterator[dict[str, Any]]:
    """A pod and a node for each server of `rank_table`."""
    env = {
        "HCCL_OP_RETRY_ENABLE": "L1:1,L2:1",
        "HCCL_OP_RETRY_PARAMS": "MaxCnt:3,HoldTime:5000,IntervalTime:1000",
        "HCCL_OP_EXPANSION_MODE": "AI_CPU",
    }
    devices = ",".join(f"Ascend910-{die}" for die in range(DIES))
    infos = orjson.dumps({f"Ascend910-{die}": {"IP": ""} for die in range(DIES)}).decode()
    for number in range(ranks // DIES):
        name = f"node-{number}"
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"demo-{number}",
                "namespace": "train",
                "uid": f"uid-{number}",
                "annotations": {
                    "scheduling.k8s.io/group-name": "demo",
                    "hccl/rankIndex": str(number),
                    "huawei.com/AscendReal": devices,
                },
            },
            "spec": {
                "nodeName": name,
                "containers": [
                    {
                        "name": "ascend",
                        "command": ["python", "train.py"],
                        "resources": {"requests": {"huawei.com/Ascend910": str(DIES)}},
                        "env": [{"name": key, "value": value} for key, value in env.items()],
                    }
                ],
            },
            "status": {"phase": "Running", "hostIP": _host(number), "podIP": f"192.168.{number >> 8}.{number & 255}"},
        }
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"accelerator-type": "module-a3-16"},
                "annotations": {"huawei.com/npu.base-device-infos": infos},
            },
            "status": {"addresses": [{"type": "InternalIP", "address": _host(number)}]},
        }
