"""The question about rails as the cluster book answers it: a job's rank table, links, owners, variables, as of now.

The one rule: what the book does not know is left out of the question, never guessed; rails and what-if ask the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from agent.domain.cluster.book import ClusterBook
from agent.domain.cluster.railfacts import hccl_envs, pod_envs, visible_dies
from agent.domain.events import FaultKey, Link
from agent.domain.hccl import HcclEnv
from agent.domain.jobs import Job, config_name
from agent.domain.rail import leaf_faults
from agent.domain.rail.case import CommMode, RailQuestion
from agent.domain.rail.reservations import RailLedger
from agent.domain.rail.words import FaultKind, RailFault
from agent.domain.ranktable import RankTable
from agent.domain.vocab import LINK_DOWN, JobId, Millis, NodeName, Plane


def about(
    book: ClusterBook,
    facts: RailQuestion,
    faults: Sequence[RailFault],
    ledger: RailLedger | None,
    others: Sequence[RailFault] = (),
) -> RailQuestion:
    """The question about these faults; links that are down because of a leaf switch are told so. `others`: faults that
    are there too and that no report tells.
    """
    down = {(one.node, one.device) for one in others if one.kind.on_rail and not one.recovered}
    return replace(
        facts, faults=_with_leaves(book, faults, others), ledger=ledger, down=facts.down | down if down else facts.down
    )


def facts_of(
    book: ClusterBook, job: Job, now: Millis, table: RankTable | None = None, env: HcclEnv | None = None
) -> RailQuestion:
    """All that the book knows of the job's rails now, with no fault in it; the same for every window that is asked.

    `table`, `env` (of every process): assumed in the place of what is known.
    """
    key = (job.namespace, config_name(job))
    table = table or book.tables.get(key)
    nodes = book.jobs.nodes_of(job.id)
    pods = pod_envs(book, job, env)
    return RailQuestion(
        job=job.id,
        incarnation=job.incarnation,
        faults=(),
        now=now,
        table=table,
        comm_mode=_comm_mode(job, table),
        servers=_servers(book, job.id, table),
        ledger=None,
        product=_product(book, nodes),
        links=_link_facts(book, nodes),
        down=_down(book, nodes),
        table_problem=book.jobs.table_problem(job.id),
        contradiction=book.contradictions.get(key, ""),
        visible=visible_dies(pods),
        owners=_owners(book, nodes),
        env=hccl_envs(pods),
        freshness=book.limits.link_fresh,
        policy=book.limits.borrow,
        strictness=book.limits.strictness,
        sub_health_strategy=job.settings.sub_healthy_strategy,
    )


ON_LINK: Final = (FaultKind.RDMA_DOWN, FaultKind.RDMA_FLAP)
"""Kinds of a fault of one die's own link, as it is known before its neighbours are looked at."""


def _with_leaves(book: ClusterBook, faults: Sequence[RailFault], others: Sequence[RailFault]) -> tuple[RailFault, ...]:
    """Links that went down with half of their node's dies of one parity; dies of other jobs count too."""
    links = [one for one in faults if one.kind in ON_LINK]
    if not links:
        return tuple(faults)
    first = min(one.started_at for one in links)
    last = first + book.limits.joint_window
    nodes = sorted({one.node for one in links})
    down = {(one.node, one.device) for one in links}
    down |= {(one.node, one.device) for one in others if one.kind in ON_LINK and first <= one.started_at <= last}
    for node in nodes:
        report = book.reports.get(node)
        for other in report.occurrences if report is not None else ():
            if is_link_down(other.key) and first <= other.begin <= last:
                down.add((node, int(other.key.where)))
    dies = {node: book.jobs.devices_of_node(node) for node in nodes}
    leaf = {(fault.node, device) for fault in leaf_faults(down, dies) for device in fault.devices}
    return tuple(
        replace(one, kind=FaultKind.LEAF_SWITCH) if one.kind in ON_LINK and (one.node, one.device) in leaf else one
        for one in faults
    )


def is_link_down(key: FaultKey) -> bool:
    """Whether it is the fault of a die's own RDMA link."""
    return key.plane is Plane.NETWORK and int(key.code, 16) == LINK_DOWN


def _down(book: ClusterBook, nodes: tuple[NodeName, ...]) -> frozenset[tuple[NodeName, int]]:
    """Dies whose link is down now by a fault of whatever job and since whenever; not one that is shown on though it
    has recovered, and not one whose link somebody has seen up since.
    """
    found = set()
    for node in nodes:
        report = book.reports.get(node)
        active = [fault for fault in report.active if is_link_down(fault.key)] if report is not None else []
        if report is None or not active:
            continue
        back = {timer.key for timer in report.timers if timer.phase == "up"}
        for fault in active:
            device = int(fault.key.where)
            link = report.links.get(device)
            if fault.key not in back and (link is None or link.state != "up" or link.at < fault.since):
                found.add((node, device))
    return frozenset(found)


def _comm_mode(job: Job, table: RankTable | None) -> CommMode:
    if job.settings.comm_mode:
        return CommMode(job.settings.comm_mode)
    return CommMode.RANKTABLE if table is not None and table.has_backup else CommMode.UNKNOWN


def _servers(book: ClusterBook, job: JobId, table: RankTable | None) -> dict[str, NodeName]:
    """Node of each server of the rank table: by pod UID, then host address, then pod address."""
    found: dict[str, NodeName] = {}
    for pod in book.jobs.pods_of(job) if table is not None else ():
        server = table.server_for(pod_uid=pod.uid, host_ip=pod.host_ip, pod_ip=pod.pod_ip) if table else None
        if server is not None and pod.node is not None:
            found.setdefault(server.server_id, pod.node)
    return found


def _product(book: ClusterBook, nodes: tuple[NodeName, ...]) -> str:
    products = {book.jobs.product_of(node) for node in nodes}
    return str(products.pop()) if len(products) == 1 else ""


def _link_facts(book: ClusterBook, nodes: tuple[NodeName, ...]) -> dict[tuple[NodeName, int], Link]:
    return {
        (node, device): link
        for node in nodes
        if (report := book.reports.get(node)) is not None
        for device, link in report.links.items()
    }


def _owners(book: ClusterBook, nodes: tuple[NodeName, ...]) -> dict[tuple[NodeName, int], JobId]:
    return {(node, device): job for node in nodes for device, job in book.jobs.owners_on(node).items()}
