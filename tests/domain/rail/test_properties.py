"""What holds for every plan, whatever is asked."""

from dataclasses import replace
from typing import Any

from a3table import JOB, NODES, NOW, fault, question
from hypothesis import given, settings
from hypothesis import strategies as st
from railcase import OTHER, book, held, links

from agent.domain.events import Link
from agent.domain.rail import decide
from agent.domain.rail.case import BorrowPolicy, CommMode, RailQuestion, Strictness
from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import RailLedger, reserve
from agent.domain.rail.words import Borrow, RailCode, RailFault
from agent.domain.vocab import Millis

faults_of_a_window = st.lists(
    st.builds(
        fault,
        node=st.integers(0, 3),
        device=st.integers(0, 4),
        kind=st.sampled_from(["rdma_down", "rdma_down", "leaf_switch", "rdma_flap", "cqe_error", "hccs"]),
        started_at=st.sampled_from([NOW - 60_000, NOW - 10_000]),
        ended_at=st.sampled_from([None, None, None, NOW]),
    ),
    min_size=1,
    max_size=4,
)
link_states = st.dictionaries(
    st.tuples(st.sampled_from(NODES), st.integers(0, 3)),
    st.sampled_from([Link("up", NOW), Link("down", NOW), Link("up", Millis(NOW - 61_000))]),
    max_size=3,
)
seen_devices = st.dictionaries(
    st.sampled_from(NODES), st.sampled_from([None, frozenset(range(4)), frozenset({0, 1, 2})]), max_size=2
)
held_entries = st.lists(
    st.builds(
        lambda number, die, **rest: held(NODES[number], 1, die, id=f"e{number}{die}", rank=4 * number + die, **rest),
        number=st.integers(0, 3),
        die=st.sampled_from([2, 3]),
        job=st.sampled_from([JOB, OTHER]),
        faulted=st.booleans(),
        state=st.sampled_from([HoldState.ADVISED, HoldState.SUPERSEDED]),
    ),
    max_size=2,
    unique_by=lambda entry: entry.node,
)
questions = st.builds(
    lambda found, changed, seen, entries, mode, strictness, policy, down: question(
        *found,
        links={**links(), **changed},
        visible={**{node: frozenset(range(4)) for node in NODES}, **seen},
        ledger=book(*entries),
        comm_mode=mode,
        strictness=strictness,
        policy=policy,
        down=frozenset(down),
    ),
    faults_of_a_window,
    link_states,
    seen_devices,
    held_entries,
    st.sampled_from([CommMode.RANKTABLE, CommMode.ROOTINFO]),
    st.sampled_from(list(Strictness)),
    st.sampled_from(list(BorrowPolicy)),
    st.sets(st.tuples(st.sampled_from(NODES), st.integers(0, 3)), max_size=1),
)


@settings(max_examples=300)
@given(questions)
def test_every_plan_moves_both_ends_once_to_a_die_that_is_up_seen_and_free(asked: RailQuestion) -> None:
    answer = decide(asked)
    assert answer.code in RailCode
    if not isinstance(answer, Borrow):
        return
    npus = [(move.node, move.npu) for move in answer.moves]
    assert len(npus) == len(set(npus))
    assert {rank for link in answer.links for rank in link} == {move.rank for move in answer.moves}
    ended = {(f.ref, f.kind) for f in asked.faults if f.recovered}  # a fault given twice has ended if either says so
    failed = {(f.node, f.device) for f in asked.faults if (f.ref, f.kind) not in ended and f.kind.on_rail}
    ledger = asked.ledger
    assert ledger is not None
    for move in answer.moves:
        assert move.device_to == move.device_from ^ 1
        assert asked.links[(move.node, move.device_to)] == Link("up", NOW)
        assert (move.node, move.device_to) not in failed | asked.down
        seen = asked.visible[move.node]
        assert seen is not None
        assert move.device_to in seen
        holder = ledger.holder(move.node, move.npu)
        if asked.strictness is Strictness.STRICT:
            assert holder is None
        elif holder is not None:  # by HCCL's source a rank that was moved may take more links the same way
            assert (holder.job, holder.incarnation, holder.die_from) == (JOB, "first", move.device_from)


@settings(max_examples=150)
@given(questions, st.randoms(use_true_random=False))
def test_the_order_of_simultaneous_faults_does_not_matter(asked: RailQuestion, chance: Any) -> None:
    mixed: list[RailFault] = list(asked.faults)
    chance.shuffle(mixed)
    assert decide(replace(asked, faults=tuple(mixed))) == decide(asked)


@settings(max_examples=150)
@given(questions)
def test_what_is_decided_can_be_reserved_on_the_same_ledger(asked: RailQuestion) -> None:
    answer = decide(asked)
    if isinstance(answer, Borrow):
        assert asked.ledger is not None
        made = reserve(
            asked.ledger,
            answer,
            job=JOB,
            job_uid="u",
            incarnation="first",
            now=NOW,
            extend=asked.strictness is Strictness.SOURCE,
        )
        assert isinstance(made, RailLedger)
        for move in answer.moves:
            holder = made.holder(move.node, move.npu)
            assert holder is not None
            assert holder.die_from == move.device_from
