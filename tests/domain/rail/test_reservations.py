"""The book of borrowed NPUs: whole plans, one holder each, freed only by what ends HCCL's mark, bounded."""

from dataclasses import replace
from typing import Any

import pytest
from a3table import JOB, NOW, fault, question
from hypothesis import given, settings
from hypothesis import strategies as st
from railcase import N0, N1, N2, N3, OTHER, RING, book, borrowed, held, reserved, taken

from agent.domain.rail import decide
from agent.domain.rail.case import Strictness
from agent.domain.rail.life import HoldState, LifeSignal
from agent.domain.rail.reservations import (
    MAX_BYTES,
    RailLedger,
    Reservation,
    advance,
    borrow_of,
    close_job,
    close_where,
    give_back,
    note_link,
    plan_id,
    reserve,
    weight,
)
from agent.domain.rail.words import Borrow, Move, Noop, RailCode, Refuse
from agent.domain.vocab import JobId, Millis, NodeName
from agent.wire.railfile import decode_ledger, encode_ledger

PLAN = plan_id(JOB, "first", ["1:0:0:0"])


# --- taking ---------------------------------------------------------------------------------------------------------


def test_a_plan_is_held_whole_with_what_is_needed_to_explain_it() -> None:
    made = taken(question(fault()))
    assert [entry.id for entry in made.entries] == [f"{PLAN}/n0/0", f"{PLAN}/n2/0", f"{PLAN}/n3/0"]
    assert [entry.faulted for entry in made.entries] == [True, False, False]
    assert [entry.links for entry in made.entries] == [((0, 8), (0, 12)), ((0, 8),), ((0, 12),)]
    assert {(entry.rule, entry.reason, entry.state) for entry in made.entries} == {(28, "BORROW", HoldState.RESERVED)}


def test_the_same_plan_again_changes_nothing() -> None:
    made = taken(question(fault()))
    assert taken(question(fault()), made) == made


def test_one_held_npu_refuses_the_whole_plan() -> None:
    answer = reserved(question(fault()), book(held(N3, job=OTHER, rank=3)))
    assert isinstance(answer, Refuse)
    assert answer.code is RailCode.PEER_ALREADY_BORROWED
    assert "train/other" in answer.detail


def test_a_plan_never_takes_one_npu_twice() -> None:
    twice = Borrow((Move(N0, 0, 1, 0, 0, faulted=True), Move(N0, 1, 0, 0, 1)), ((0, 1),), events=("e",))
    answer = reserve(RailLedger(), twice, job=JOB, job_uid="u", incarnation="first", now=NOW)
    assert isinstance(answer, Refuse)
    assert answer.detail.endswith("held by this plan itself, twice")


def test_a_plan_that_was_closed_is_not_taken_up_again() -> None:
    closed = close_job(taken(question(fault())), JOB, now=NOW)
    assert isinstance(reserved(question(fault()), closed), Refuse)
    answer = decide(question(fault(), ledger=closed))
    assert isinstance(answer, Noop)
    assert answer.code is RailCode.ALREADY_DONE


# --- its life -------------------------------------------------------------------------------------------------------


def test_a_reservation_goes_through_its_life_in_order() -> None:
    made = taken(question(fault()))
    assert advance(made, PLAN, LifeSignal.ALLOWED, now=NOW) is made
    advised = advance(made, PLAN, LifeSignal.TOLD, now=NOW)
    assert {(entry.state, entry.closed_at) for entry in advised.entries} == {(HoldState.ADVISED, None)}
    assert advance(advised, PLAN, LifeSignal.TOLD, now=NOW) is advised
    ended = advance(advised, PLAN, LifeSignal.NEW_LIFE, now=Millis(NOW + 5))
    assert {(entry.state, entry.closed_at) for entry in ended.entries} == {(HoldState.SUPERSEDED, NOW + 5)}
    assert advance(ended, PLAN, LifeSignal.HANDED_BACK, now=NOW) is ended


def test_closing_a_job_can_keep_its_present_life() -> None:
    ledger = book(held(N0), held(N1, incarnation="second"), held(N2, job=OTHER))
    left = close_job(ledger, JOB, now=NOW, keep="second")
    assert [entry.open for entry in left.entries] == [False, True, True]


def test_a_job_s_entries_are_found_without_looking_at_those_of_others() -> None:
    ledger = book(held(N0), held(N1, job=OTHER), held(N2, incarnation="second", state=HoldState.RETURNED))
    assert [entry.node for entry in ledger.of_job(JOB)] == [N0, N2]
    assert [entry.node for entry in ledger.of(JOB, "second")] == [N2]
    assert ledger.of_job(JobId("train/none")) == ()
    assert close_job(ledger, JOB, now=NOW, keep="first") is ledger


def test_one_end_may_lose_its_process_alone() -> None:
    left = close_where(taken(question(fault())), lambda entry: entry.node == N2, now=NOW)
    assert [str(entry.state) for entry in left.entries] == ["reserved", "superseded", "reserved"]
    assert left.holder(N2, 0) is None
    assert [entry.links for entry in left.entries] == [((0, 12),), ((0, 8),), ((0, 12),)]


def test_when_the_process_at_one_end_of_all_its_links_is_gone_an_npu_is_held_without_any() -> None:
    left = close_where(taken(question(fault())), lambda entry: entry.node == N0, now=NOW)
    assert [(str(entry.state), entry.links) for entry in left.entries] == [
        ("superseded", ((0, 8), (0, 12))),
        ("reserved", ()),
        ("reserved", ()),
    ]
    other_life = book(held(N0), held(N1, rank=4, links=((0, 4),), incarnation="second"))
    assert close_where(other_life, lambda entry: entry.node == N0, now=NOW).entries[1].links == ((0, 4),)


def test_a_link_that_is_up_again_frees_nothing() -> None:
    made = taken(question(fault()))
    back = note_link(made, {f"{PLAN}/n0/0"}, Millis(NOW + 7))
    assert [entry.link_back for entry in back.entries] == [NOW + 7, None, None]
    assert back.held == 3
    assert note_link(back, {f"{PLAN}/n0/0"}, None) == made


# --- a return by hand -----------------------------------------------------------------------------------------------


def test_a_return_of_the_failed_npu_frees_the_other_ends_with_it() -> None:
    made = taken(question(fault()))
    left = give_back(made, {f"{PLAN}/n0/0"}, now=Millis(NOW + 9))
    assert {(str(entry.state), entry.closed_at) for entry in left.entries} == {("returned", NOW + 9)}
    again = question(fault(started_at=NOW - 50_000, event="later"), ledger=left)
    assert borrowed(again).links == ((0, 8), (0, 12)), "it may borrow again"


def test_a_return_of_one_other_end_takes_its_link_only() -> None:
    made = taken(question(fault()))
    left = give_back(made, {f"{PLAN}/n2/0"}, now=NOW)
    assert [(str(entry.state), entry.links) for entry in left.entries] == [
        ("reserved", ((0, 12),)),
        ("returned", ((0, 8),)),
        ("reserved", ((0, 12),)),
    ]


def test_an_npu_with_links_of_two_plans_stays_until_both_are_back() -> None:
    lax = Strictness.SOURCE
    first = taken(question(fault(), peers=RING))
    second = question(fault(node=2, event="b"), peers=RING, ledger=first, strictness=lax)
    both = taken(second, first, extend=True)
    left = give_back(both, {f"{PLAN}/n0/0"}, now=NOW)
    assert [(entry.node, str(entry.state), entry.links) for entry in left.entries] == [
        (N0, "returned", ((0, 8), (0, 12))),
        (N2, "reserved", ((8, 12),)),
        (N3, "reserved", ((8, 12),)),
    ]


def test_an_npu_that_moved_one_way_moves_no_other_way_also_where_it_may_take_more_links() -> None:
    asked = question(fault())
    plan = borrowed(asked)
    first = plan.moves[0]
    ledger = taken(asked)
    turned = replace(first, device_from=first.device_to, device_to=first.device_from)
    other = replace(plan, moves=(turned, *plan.moves[1:]))
    answer = reserve(ledger, other, job=asked.job, job_uid="u", incarnation=asked.incarnation, now=NOW, extend=True)
    assert isinstance(answer, Refuse)
    assert answer.code is RailCode.ALREADY_BORROWED


def test_a_return_touches_no_other_job_and_no_other_life() -> None:
    ledger = book(held(N0, links=((0, 8),)), held(N1, job=OTHER, links=((0, 8),)), held(N2, plan="q", id="q/n2/0"))
    left = give_back(ledger, {"p/n0/0"}, now=NOW)
    assert [entry.open for entry in left.entries] == [False, True, True]
    assert give_back(ledger, {"x/n0/0"}, now=NOW) is ledger


def test_a_plan_can_be_told_from_what_is_held() -> None:
    plan = borrowed(question(fault()))
    made = borrow_of(taken(question(fault())).entries)
    assert (made.moves, made.links, made.faults, made.events) == (plan.moves, plan.links, plan.faults, plan.events)
    assert [str(note.code) for note in made.warnings] == ["BANDWIDTH_HALVED"]


# --- its size -------------------------------------------------------------------------------------------------------


def test_history_is_bounded_and_held_npus_are_not() -> None:
    old = [held(N0, n, id=str(n), state=HoldState.SUPERSEDED, closed_at=Millis(NOW + n)) for n in range(300)]
    kept = close_job(book(held(N1, id="open"), *old, held(N2, id="last", job=OTHER)), OTHER, now=Millis(NOW + 999))
    closed = [entry.id for entry in kept.entries if not entry.open]
    assert len(closed) == 256
    assert (closed[0], closed[-1]) == ("45", "last")
    assert [entry.id for entry in kept.entries if entry.open] == ["open"]


def many(count: int, first: int = 0) -> Borrow:
    """A die that fails in a job of that many servers, each with a rank at the other end."""
    ranks = range(first, first + count)
    moves = tuple(Move(NodeName(f"a3-node-{n:05d}"), 0, 1, 0, 16 * n, faulted=n == first) for n in ranks)
    links = tuple((16 * first, 16 * n) for n in ranks if n != first)
    return Borrow(moves, links, faults=("a3-node-00000/network/0/81078603@1767225540000",), events=(f"1:0:{first}:0",))


def test_a_plan_of_a_job_of_65536_ranks_fits_and_goes_to_text() -> None:
    made = reserve(RailLedger(), many(4_033), job=JOB, job_uid="u", incarnation="first", now=NOW)
    assert isinstance(made, RailLedger)
    assert len(encode_ledger(made, "c1")) <= weight(made) + 60 <= MAX_BYTES


def test_a_full_ledger_refuses_and_what_it_holds_still_fits_its_document() -> None:
    ledger: RailLedger | Refuse = RailLedger()
    kept = RailLedger()
    for turn in range(20):
        ledger = reserve(kept, many(1_000, 1_000 * turn), job=JOB, job_uid="u", incarnation="first", now=NOW)
        if isinstance(ledger, Refuse):
            break
        kept = ledger
    assert isinstance(ledger, Refuse)
    assert ledger.code is RailCode.LEDGER_FULL
    assert kept.held == 5_000
    more = replace(many(1_000), links=tuple((0, 16 * n + side) for n in range(1, 1_000) for side in range(12)))
    grown = reserve(kept, more, job=JOB, job_uid="u", incarnation="first", now=NOW, extend=True)
    assert isinstance(grown, Refuse), "links of NPUs that are held take room too"
    assert grown.code is RailCode.LEDGER_FULL
    assert len(encode_ledger(kept, "c1")) <= 900_000


names = st.text("abcdefgh-.0123456789", min_size=1, max_size=60)
open_entries = st.lists(
    st.builds(
        lambda node, npu, **rest: held(NodeName(node), npu, **rest),
        node=names,
        npu=st.integers(0, 31),
        plan=st.sampled_from(["a" * 12, "b" * 12]),
        job=names.map(JobId),
        rank=st.integers(0, 99_999),
        links=st.lists(st.integers(0, 99_999), max_size=4).map(lambda ends: tuple((0, end) for end in ends)),
        faults=st.lists(names, max_size=3).map(tuple),
        events=st.lists(names, max_size=3).map(tuple),
        link_back=st.one_of(st.none(), st.just(NOW)),
        early=st.booleans(),
        state=st.sampled_from([HoldState.RESERVED, HoldState.ADVISED]),
    ),
    max_size=8,
)


@settings(max_examples=100)
@given(open_entries)
def test_the_weight_is_never_less_than_what_the_text_takes(entries: list[Reservation]) -> None:
    ledger = book(*entries)
    assert len(encode_ledger(ledger, "c1")) <= weight(ledger) + 60


@pytest.mark.parametrize("strictness", Strictness)
def test_two_jobs_never_hold_one_npu(strictness: Strictness) -> None:
    first = taken(question(fault()))
    plan = borrowed(question(fault()))
    extend = strictness is Strictness.SOURCE
    answer = reserve(first, plan, job=OTHER, job_uid="v", incarnation="first", now=NOW, extend=extend)
    assert isinstance(answer, Refuse)
    assert answer.code is RailCode.ALREADY_BORROWED


# --- whatever happens -----------------------------------------------------------------------------------------------

JOBS = (JOB, OTHER)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.sampled_from(JOBS), st.sampled_from(["1", "2"]), st.sets(st.integers(0, 5))),
        st.tuples(st.just("told"), st.sampled_from(JOBS), st.sampled_from(["1", "2"])),
        st.tuples(st.just("new_life"), st.sampled_from(JOBS), st.sampled_from(["", "1", "2"])),
        st.tuples(st.just("return"), st.integers(0, 99)),
        st.tuples(st.just("gone"), st.integers(0, 5)),
        st.tuples(st.just("link"), st.integers(0, 99), st.sampled_from([None, NOW])),
    ),
    max_size=14,
)


def after(ledger: RailLedger, step: tuple[Any, ...], number: int) -> RailLedger:
    match step:
        case ("reserve", job, life, places):
            ranks = sorted(places)
            moves = tuple(Move(NodeName(f"n{n}"), 0, 1, 0, n, faulted=n == ranks[0]) for n in ranks)
            links = tuple((ranks[0], n) for n in ranks[1:])
            plan = Borrow(moves, links, events=(f"{number}",))
            made = reserve(ledger, plan, job=job, job_uid="u", incarnation=life, now=NOW)
            return made if isinstance(made, RailLedger) else ledger
        case ("told", job, _):
            for entry in [entry for entry in ledger.entries if entry.job == job]:
                ledger = advance(ledger, entry.plan, LifeSignal.TOLD, now=NOW)
            return ledger
        case ("new_life", job, keep):
            return close_job(ledger, job, now=NOW, keep=keep)
        case ("gone", place):
            return close_where(ledger, lambda entry: entry.node == f"n{place}", now=NOW)
        case ("return", index):
            return give_back(ledger, [entry.id for entry in ledger.entries[index : index + 1]], now=NOW)
        case ("link", index, back):
            return note_link(ledger, [entry.id for entry in ledger.entries[index : index + 1]], back)
    raise AssertionError(step)


@settings(max_examples=100)
@given(steps)
def test_whatever_happens_an_npu_has_one_holder_and_what_ended_stays_ended(done: list[tuple[Any, ...]]) -> None:
    ledger = RailLedger()
    for number, one in enumerate(done):
        before, ledger = ledger, after(ledger, one, number)
        held_now = [(entry.node, entry.npu) for entry in ledger.entries if entry.open]
        assert len(held_now) == len(set(held_now)) == ledger.held
        states = {entry.id: entry.state for entry in ledger.entries}
        assert all(states[entry.id] is entry.state for entry in before.entries if not entry.open)
        assert {entry.id for entry in before.entries} <= set(states)
        assert all((entry.closed_at is None) == entry.open for entry in ledger.entries)
        assert decode_ledger(encode_ledger(ledger, "c"), "c") == ledger
