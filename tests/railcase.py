"""Questions about the A3 table with one thing changed, the answers to them and ledgers that follow.

The one rule: what a test changes is what its case is about; all else lets a borrow pass.
"""

from dataclasses import replace
from typing import Any

from a3table import GOOD_ENV, JOB, NODES, NOW, a3_table

from agent.domain.events import Link
from agent.domain.hccl import env_from
from agent.domain.rail import decide
from agent.domain.rail.case import RailQuestion
from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import RailLedger, Reservation, reserve
from agent.domain.rail.words import Answer, Borrow, Refuse
from agent.domain.ranktable import RankTable
from agent.domain.vocab import JobId, NodeName

N0, N1, N2, N3 = NODES
OTHER = JobId("train/other")
RING = {0: (8, 12), 8: (0, 12), 12: (0, 8)}


def device(document: dict[str, Any], rank: int) -> dict[str, Any]:
    """A device's place in the plain table, by rank."""
    found: dict[str, Any] = document["server_list"][rank // 4]["device"][rank % 4]
    return found


def without(rank: int, field: str) -> RankTable:
    """The table with a field of a rank's device taken out."""
    return a3_table(lambda document: device(document, rank).pop(field))


def having(rank: int, field: str, value: str) -> RankTable:
    """The table with a field of a rank's device changed."""
    return a3_table(lambda document: device(document, rank).__setitem__(field, value))


def no_host(server: int) -> RankTable:
    """The table without the host address of a server."""
    return a3_table(lambda document: document["server_list"][server].pop("host_ip"))


def envs(*nodes: NodeName, visible: bool = True, **changed: str | None) -> dict[NodeName, Any]:
    """The environment of every node, changed on these nodes (none named: on all); None takes a variable out."""
    values = {**GOOD_ENV, **changed}
    kept = {name: value for name, value in values.items() if value is not None}
    good = env_from(GOOD_ENV, visible=True)
    return {node: env_from(kept, visible) if node in (nodes or NODES) else good for node in NODES}


def links(**changed: Link | None) -> dict[tuple[NodeName, int], Link]:
    """Every link up but for those given, as `n0_1=DOWN`; None: never seen."""
    states = {(node, die): Link("up", NOW) for node in NODES for die in range(4)}
    for place, link in changed.items():
        key = (NodeName(place[:2]), int(place[3:]))
        if link is None:
            del states[key]
        else:
            states[key] = link
    return states


DOWN = Link("down", NOW)


def held(node: NodeName = N0, npu: int = 0, die_from: int | None = None, **given_: Any) -> Reservation:
    """An NPU that is held; by default its even die failed."""
    failed = 2 * npu if die_from is None else die_from
    made = Reservation(
        id=f"p/{node}/{npu}",
        plan="p",
        job=JOB,
        job_uid="u",
        incarnation="first",
        node=node,
        npu=npu,
        die_from=failed,
        die_to=failed ^ 1,
        rank=0,
        at=NOW,
        rule=28,
        reason="BORROW",
        state=HoldState.ADVISED,
        faulted=True,
    )
    return replace(made, **given_)


def book(*entries: Reservation) -> RailLedger:
    """A ledger of these reservations."""
    return RailLedger(entries)


def said(answer: Answer) -> tuple[str, int, str]:
    """An answer in three words."""
    return type(answer).__name__, answer.rule, answer.code


def borrowed(asked: RailQuestion) -> Borrow:
    """The borrow that the question is answered with."""
    answer = decide(asked)
    assert isinstance(answer, Borrow), answer
    return answer


def refused(asked: RailQuestion) -> Refuse:
    """The refusal that it is answered with."""
    answer = decide(asked)
    assert isinstance(answer, Refuse), answer
    return answer


def reserved(asked: RailQuestion, ledger: RailLedger | None = None, **given_: Any) -> RailLedger | Refuse:
    """The ledger with the borrow that the question is answered with, or why it cannot be held."""
    about = {"job": asked.job, "job_uid": "u", "incarnation": asked.incarnation}
    return reserve(ledger or RailLedger(), borrowed(asked), **{**about, **given_}, now=NOW)


def taken(asked: RailQuestion, ledger: RailLedger | None = None, **given_: Any) -> RailLedger:
    """The ledger once that borrow is held."""
    made = reserved(asked, ledger, **given_)
    assert isinstance(made, RailLedger), made
    return made
