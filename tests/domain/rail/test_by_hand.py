"""The edge cases of a switch by hand: what a recorded return frees, what it cannot have done, what is said twice."""

import pytest
from a3table import GOOD_ENV, JOB, NODES, NOW, fault, question

from agent.domain.hccl import env_from
from agent.domain.jobs.returned import rail_returned
from agent.domain.rail import decide
from agent.domain.rail.case import RailQuestion, Strictness
from agent.domain.rail.handback import doubt, named
from agent.domain.rail.reservations import RailLedger, give_back, reserve
from agent.domain.rail.words import Borrow
from agent.domain.vocab import Millis

LATER = Millis(NOW + 1000)


def borrowed(asked: RailQuestion) -> RailLedger:
    """The ledger that holds NPU 0 of n0 for its own link, and of n2 and n3 as the other ends."""
    answer = decide(asked)
    assert isinstance(answer, Borrow)
    made = reserve(RailLedger(), answer, job=JOB, job_uid="u", incarnation="first", now=NOW)
    assert isinstance(made, RailLedger)
    return made


HELD = borrowed(question(fault()))
PLAN = HELD.entries[0].plan


def answer(ledger: RailLedger) -> str:
    found = decide(question(fault(event="again"), ledger=ledger))
    return f"{type(found).__name__} {found.rule} {found.code}"


def test_edge_16_a_return_that_can_have_worked_takes_the_entries_away_and_arms_the_npus_again() -> None:
    assert answer(HELD) == "Noop 2 ALREADY_DONE"
    entries = named(HELD.entries, PLAN)
    assert doubt(question(ledger=HELD), entries) == ""
    after = give_back(HELD, {entry.id for entry in entries}, now=LATER)
    assert [(entry.open, entry.closed_at) for entry in after.entries] == [(False, LATER)] * 3
    assert answer(after) == "Borrow 28 BORROW"


def test_edge_16_the_failed_end_alone_is_enough_for_hccl_refreshes_the_other_ends() -> None:
    after = give_back(HELD, {f"{PLAN}/n0/0"}, now=LATER)
    assert after.held == 0
    one_link = give_back(HELD, {f"{PLAN}/n2/0"}, now=LATER)
    assert sorted((entry.node, entry.links) for entry in one_link.entries if entry.open) == [
        ("n0", ((0, 12),)),
        ("n3", ((0, 12),)),
    ]


@pytest.mark.parametrize("strictness", list(Strictness))
def test_edge_17_success_that_is_told_while_retry_between_super_pods_is_off_counts_for_nothing(
    strictness: Strictness,
) -> None:
    off = dict.fromkeys(NODES, env_from({**GOOD_ENV, "HCCL_OP_RETRY_ENABLE": "L1:1,L2:0"}, visible=True))
    why = doubt(question(ledger=HELD, env=off, strictness=strictness), named(HELD.entries, PLAN))
    assert why == ("rule 11 RETRY_L2_OFF: n0: L2 of HCCL_OP_RETRY_ENABLE is not 1")


def test_edge_18_a_return_of_what_was_never_borrowed_changes_nothing_however_often() -> None:
    assert named(HELD.entries, f"{PLAN}/n1/0") == ()
    assert give_back(HELD, set(), now=LATER) is HELD
    assert give_back(HELD, {f"{PLAN}/n1/0"}, now=LATER) is HELD
    after = give_back(HELD, {f"{PLAN}/n0/0"}, now=LATER)
    assert give_back(after, {f"{PLAN}/n0/0"}, now=Millis(LATER + 1)) is after


def test_edge_22_a_place_that_a_record_names_twice_counts_once() -> None:
    words, wrong = rail_returned({"fault-agent/rail-returned": f"{PLAN}, {PLAN}/n0/0,{PLAN}"})
    assert (words, wrong) == ((PLAN, f"{PLAN}/n0/0"), ())
    ids = [entry.id for word in words for entry in named(HELD.entries, word)]
    assert len(ids) == 4
    after = give_back(HELD, ids, now=LATER)
    assert [entry.open for entry in after.entries] == [False, False, False]
