"""A recorded return counts only where HCCL can have done it."""

from dataclasses import replace
from typing import Any

import pytest
from a3table import GOOD_ENV, JOB, NODES, NOW, a3_table, fault, question

from agent.domain.events import Link
from agent.domain.hccl import env_from
from agent.domain.rail import decide
from agent.domain.rail.case import CommMode
from agent.domain.rail.handback import doubt, named
from agent.domain.rail.reservations import RailLedger, Reservation, reserve
from agent.domain.rail.words import Borrow
from agent.domain.vocab import Millis, NodeName

N0, _, N2, _ = NODES


def entries() -> tuple[Reservation, ...]:
    """Rank 0 of node n0 and its peers, ranks 8 and 12."""
    answer = decide(question(fault()))
    assert isinstance(answer, Borrow)
    made = reserve(RailLedger(), answer, job=JOB, job_uid="u", incarnation="first", now=NOW)
    assert isinstance(made, RailLedger)
    return made.entries


def test_a_plan_or_one_npu_of_it_can_be_named() -> None:
    found = entries()
    plan = found[0].plan
    assert named(found, plan) == found
    assert named(found, f"{plan}/n2/0") == (found[1],)
    assert named(found, f"{plan}/n2/1") == ()
    assert named(found, "x") == ()


def test_a_return_is_believed_where_a_borrow_could_be_and_every_link_may_be_up() -> None:
    assert doubt(question(), entries()) == ""
    assert doubt(question(links={}), entries()) == "", "nobody has looked at the links: HCCL did"


def test_only_the_ends_of_what_returned_are_asked() -> None:
    """Rank 12 shares the rail but no link of this entry: what its node shows is beside the point."""
    one = replace(entries()[0], links=((0, 8),))
    blind = {**env(), NodeName("n3"): env_from(None, visible=False)}
    assert doubt(question(env=blind), (one,)) == ""
    assert doubt(question(env=blind), entries()).startswith("rule 10 ENV_UNKNOWN: n3: ")


def env(**changed: str) -> dict[Any, Any]:
    return {node: env_from({**GOOD_ENV, **changed}, visible=True) for node in NODES}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param({"env": env(HCCL_OP_RETRY_ENABLE="L1:1")}, "rule 11 RETRY_L2_OFF", id="17 retry L2 off"),
        pytest.param({"env": {}}, "rule 10 ENV_UNKNOWN", id="variables not seen"),
        pytest.param({"env": env(HCCL_OP_EXPANSION_MODE="HOST")}, "rule 12 EXPANSION_MODE", id="not on the AI CPU"),
        pytest.param({"comm_mode": CommMode.UNKNOWN}, "rule 14 COMM_MODE_UNKNOWN", id="communicators unknown"),
        pytest.param({"visible": {}}, "rule 18 BACKUP_NOT_VISIBLE", id="pair not seen"),
        pytest.param(
            {"table": a3_table(lambda d: d["server_list"][2]["device"][0].pop("backup_device_ip"))},
            "rule 15 NO_BACKUP_CONFIGURED: rank 8",
            id="an other end has no backup",
        ),
        pytest.param({"table": None}, "no completed rank table lists rank 0", id="no table"),
    ],
)
def test_where_hccl_would_have_done_nothing_its_success_is_no_proof(given: dict[str, Any], why: str) -> None:
    assert doubt(question(**given), entries()).startswith(why)


@pytest.mark.parametrize(("node", "rank"), [(N0, 0), (N2, 8)])
def test_a_return_needs_the_link_up_at_both_ends(node: Any, rank: int) -> None:
    links = {(one, die): Link("up", NOW) for one in NODES for die in range(4)} | {(node, 0): Link("down", NOW)}
    assert doubt(question(links=links), entries()) == (
        f"the link of rank {rank} ({node} device 0) is down, and a return needs it up at both ends"
    )
    stale = {**links, (node, 0): Link("down", Millis(NOW - 60_000))}
    assert doubt(question(links=stale), entries()) == ""
