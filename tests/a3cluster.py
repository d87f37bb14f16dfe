"""The objects of a cluster with job `demo` on the documented A3 table: nodes n0 to n3, four dies each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
from a3table import GOOD_ENV, a3_document
from kubebuilders import DEMO_GROUP, a_config_map, a_group, a_node, a_pod, an_ascend_job
from rig import Rig

OTHER_GROUP = "other-9f8e7d6c"
OTHER_JOB = f"train/{OTHER_GROUP}"
QUICK_ENV = {**GOOD_ENV, "HCCL_RDMA_TIMEOUT": "18", "HCCL_RDMA_RETRY_CNT": "7"}
"""RDMA gives a link up after 4.096 µs × 2^18 × 7 = 7.516 s."""


def a3_pod(
    number: int,
    *,
    node: int | None = None,
    env: Mapping[str, str] | None = GOOD_ENV,
    created: str = "",
    **given: Any,
) -> dict[str, Any]:
    """The job's pod of that number. `env` None: it runs a script, so that no variable can be seen."""
    shown: dict[str, Any] = {
        "node": f"n{number if node is None else node}",
        "rank_index": number,
        "host_ip": f"172.16.0.10{number}",
        "pod_ip": f"10.1.0.{number}",
        "command": ("python", "train.py") if env is not None else ("bash", "train.sh"),
    }
    made = a_pod(f"demo-{number}", env=env, **{**shown, **given})
    if created:
        made["metadata"]["creationTimestamp"] = created
    return made


def the_a3(
    change: Callable[[dict[str, Any]], object] | None = None,
    *,
    env: Mapping[str, str] | None = GOOD_ENV,
    product: str = "module-a3-16",
    devices: Sequence[int] = range(4),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """The objects, after a change to the rank table. `devices`: what the job holds of each node; `env` as for a pod;
    labels go on PodGroup and pods.
    """
    table = a3_document()
    if change is not None:
        change(table)
    found: list[dict[str, Any]] = [
        an_ascend_job(),
        a_group(min_member=4, labels=labels, annotations=annotations),
        a_config_map("rings-config-demo", {"hccl.json": orjson.dumps(table).decode()}),
    ]
    for number in range(4):
        host = f"172.16.0.10{number}"
        found.append(a_node(f"n{number}", accelerator_type=product, devices=range(4), internal_ip=host))
        found.append(a3_pod(number, env=env, devices=devices, labels=labels))
    return found


def see_links(rig: Rig, at: float, nodes: Iterable[int] = range(4), **links: Mapping[str, str]) -> None:
    """At second `at` every die of these nodes is looked at and its link is up, or as `n0={"d1": "down"}` tells."""
    for number in nodes:
        rig.probe(f"n{number}", at, **{f"d{die}": "up" for die in range(4)} | {**links.get(f"n{number}", {})})


def the_other() -> list[dict[str, Any]]:
    """Job `other` on the odd dies of the same nodes, with a table of its own."""
    table = a3_document()
    for number, server in enumerate(table["server_list"]):
        server["device"] = server["device"][1::2]
        for index, item in enumerate(server["device"]):
            item["rank_id"] = str(2 * number + index)
    found: list[dict[str, Any]] = [
        a_group(OTHER_GROUP, owner="other", owner_uid="9f8e7d6c", min_member=4),
        a_config_map("rings-config-other", {"hccl.json": orjson.dumps(table).decode()}),
    ]
    found += [
        a_pod(
            f"other-{number}",
            node=f"n{number}",
            group=OTHER_GROUP,
            rank_index=number,
            devices=(1, 3),
            host_ip=f"172.16.0.10{number}",
            pod_ip=f"10.2.0.{number}",
            env=GOOD_ENV,
        )
        for number in range(4)
    ]
    return found


DEMO = f"train/{DEMO_GROUP}"
