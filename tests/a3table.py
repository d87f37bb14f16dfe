"""The documented A3 rank table of two super-pods with two servers of four dies, without its comments.

Ranks 0-3 node_0, 4-7 node_1 (super-pod 0), 8-11 node_2, 12-15 node_3 (super-pod 1). On nodes n0 to n3.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson

from agent.domain.events import Link
from agent.domain.hccl import env_from
from agent.domain.rail.case import CommMode, RailQuestion
from agent.domain.rail.reservations import RailLedger
from agent.domain.rail.words import FaultKind, RailFault
from agent.domain.ranktable import RankTable
from agent.domain.vocab import JobId, Millis, NodeName
from agent.wire.ranktablefile import parse_rank_table

A3_TABLE = """\
{"status": "completed", "version": "1.2", "server_count": "4", "server_list": [
  {"server_id": "node_0", "host_ip": "172.16.0.100", "device": [
    {"device_id": "0", "super_device_id": "0", "device_ip": "192.168.1.6", "device_port": "16666",
      "backup_device_ip": "192.168.1.7", "backup_device_port": "16667", "host_port": "16665", "rank_id": "0"},
    {"device_id": "1", "super_device_id": "1", "device_ip": "192.168.1.7", "device_port": "16666",
      "backup_device_ip": "192.168.1.6", "backup_device_port": "16667", "host_port": "16666", "rank_id": "1"},
    {"device_id": "2", "super_device_id": "2", "device_ip": "192.168.1.8", "device_port": "16668",
      "backup_device_ip": "192.168.1.9", "backup_device_port": "16670", "host_port": "16667", "rank_id": "2"},
    {"device_id": "3", "super_device_id": "3", "device_ip": "192.168.1.9", "device_port": "16669",
      "backup_device_ip": "192.168.1.8", "backup_device_port": "16667", "host_port": "16668", "rank_id": "3"}]},
  {"server_id": "node_1", "host_ip": "172.16.0.101", "device": [
    {"device_id": "0", "super_device_id": "4", "device_ip": "192.168.2.6", "device_port": "16666",
      "backup_device_ip": "192.168.2.7", "backup_device_port": "16667", "host_port": "16665", "rank_id": "4"},
    {"device_id": "1", "super_device_id": "5", "device_ip": "192.168.2.7", "device_port": "16666",
      "backup_device_ip": "192.168.2.6", "backup_device_port": "16667", "host_port": "16666", "rank_id": "5"},
    {"device_id": "2", "super_device_id": "6", "device_ip": "192.168.2.8", "device_port": "16668",
      "backup_device_ip": "192.168.2.9", "backup_device_port": "16670", "host_port": "16667", "rank_id": "6"},
    {"device_id": "3", "super_device_id": "7", "device_ip": "192.168.2.9", "device_port": "16669",
      "backup_device_ip": "192.168.2.8", "backup_device_port": "16667", "host_port": "16668", "rank_id": "7"}]},
  {"server_id": "node_2", "host_ip": "172.16.0.102", "device": [
    {"device_id": "0", "super_device_id": "0", "device_ip": "192.168.3.6", "device_port": "16666",
      "backup_device_ip": "192.168.3.7", "backup_device_port": "16667", "host_port": "16665", "rank_id": "8"},
    {"device_id": "1", "super_device_id": "1", "device_ip": "192.168.3.7", "device_port": "16666",
      "backup_device_ip": "192.168.3.6", "backup_device_port": "16667", "host_port": "16666", "rank_id": "9"},
    {"device_id": "2", "super_device_id": "2", "device_ip": "192.168.3.8", "device_port": "16668",
      "backup_device_ip": "192.168.3.9", "backup_device_port": "16670", "host_port": "16667", "rank_id": "10"},
    {"device_id": "3", "super_device_id": "3", "device_ip": "192.168.3.9", "device_port": "16669",
      "backup_device_ip": "192.168.3.8", "backup_device_port": "16667", "host_port": "16668", "rank_id": "11"}]},
  {"server_id": "node_3", "host_ip": "172.16.0.103", "device": [
    {"device_id": "0", "super_device_id": "4", "device_ip": "192.168.4.6", "device_port": "16666",
      "backup_device_ip": "192.168.4.7", "backup_device_port": "16667", "host_port": "16665", "rank_id": "12"},
    {"device_id": "1", "super_device_id": "5", "device_ip": "192.168.4.7", "device_port": "16666",
      "backup_device_ip": "192.168.4.6", "backup_device_port": "16667", "host_port": "16666", "rank_id": "13"},
    {"device_id": "2", "super_device_id": "6", "device_ip": "192.168.4.8", "device_port": "16668",
      "backup_device_ip": "192.168.4.9", "backup_device_port": "16670", "host_port": "16667", "rank_id": "14"},
    {"device_id": "3", "super_device_id": "7", "device_ip": "192.168.4.9", "device_port": "16669",
      "backup_device_ip": "192.168.4.8", "backup_device_port": "16667", "host_port": "16668", "rank_id": "15"}]}
], "super_pod_list": [
  {"super_pod_id": "0", "server_list": [{"server_id": "node_0"}, {"server_id": "node_1"}]},
  {"super_pod_id": "1", "server_list": [{"server_id": "node_2"}, {"server_id": "node_3"}]}
]}
"""

NOW = Millis(1_767_225_600_000)
JOB = JobId("train/demo")
NODES = tuple(NodeName(f"n{number}") for number in range(4))
GOOD_ENV = {
    "HCCL_OP_RETRY_ENABLE": "L1:1,L2:1",
    "HCCL_OP_RETRY_PARAMS": "MaxCnt:3,HoldTime:5000,IntervalTime:1000",
    "HCCL_OP_EXPANSION_MODE": "AI_CPU",
}


def a3_document() -> dict[str, Any]:
    """A fresh copy as plain JSON values, to change."""
    document: dict[str, Any] = orjson.loads(A3_TABLE)
    return document


def a3_table(change: Callable[[dict[str, Any]], None] | None = None) -> RankTable:
    """The parsed table, after a change to its JSON."""
    document = a3_document()
    if change is not None:
        change(document)
    return parse_rank_table(orjson.dumps(document))


def without_odd(document: dict[str, Any]) -> None:
    """A table of the even dies alone, ranks counted anew."""
    for number, server in enumerate(document["server_list"]):
        server["device"] = server["device"][::2]
        for index, item in enumerate(server["device"]):
            item["rank_id"] = str(2 * number + index)


def fault(node: int = 0, device: int = 0, kind: str = "rdma_down", **given: Any) -> RailFault:
    """A link fault on node `n<node>`, begun a minute before NOW unless told."""
    started = given.pop("started_at", NOW - 60_000)
    made = RailFault(
        ref=f"n{node}/network/{device}/81078603@{started}",
        node=NodeName(f"n{node}"),
        device=device,
        kind=FaultKind(kind),
        started_at=Millis(started),
        event=f"1:0:{node * 100 + device}:0",
    )
    return replace(made, **given)


def question(*faults: RailFault, **given: Any) -> RailQuestion:
    """A question about the A3 table to which the answer is a borrow, with what the case changes."""
    asked = RailQuestion(
        job=JOB,
        incarnation="first",
        faults=faults,
        now=NOW,
        table=a3_table(),
        comm_mode=CommMode.RANKTABLE,
        servers={f"node_{number}": node for number, node in enumerate(NODES)},
        ledger=RailLedger(),
        product="A3",
        links={(node, device): Link("up", NOW) for node in NODES for device in range(4)},
        visible={node: frozenset(range(4)) for node in NODES},
        owners={(node, device): JOB for node in NODES for device in range(4)},
        env={node: env_from(GOOD_ENV, visible=True) for node in NODES},
        host_plane_ok=True,
        op_constraints_ok=True,
        retries_used=0,
    )
    return replace(asked, **given)
