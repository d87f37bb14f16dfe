"""The node decider: each outcome with its reason, and what must hold over any stream."""

from dataclasses import replace

import pytest
from nodestream import CHIP, LINK, NODE, PUBLIC, UNKNOWN, S, Stream, T, entries, levels, outcomes, told
from tinypolicy import TinyPolicy

from agent.domain.events import Decoded, Link, Position, Record, Scanned
from agent.domain.node import (
    Advanced,
    Cleared,
    Ignored,
    NodeBook,
    Outcome,
    Relevelled,
    Shown,
    Skipped,
    decide,
    evolve,
    next_deadline,
    probe,
    record_digest,
)
from agent.domain.vocab import Millis, Reason

POLICY = TinyPolicy()


# -- the duration rule ---------------------------------------------------------------------------------------------
KEY = "n1/network/4/81078603"


def test_an_occur_is_shown_at_its_tables_level_and_a_recover_clears_it() -> None:
    stream = Stream()
    assert told(stream.say(CHIP, "occur", T)) == [(Shown, Reason.FAULT_SHOWN)]
    (fault,) = stream.report().active
    assert (fault.level, fault.rule, fault.since, fault.count) == ("SeparateNPU", "chip-table", T, 1)
    assert told(stream.say(CHIP, "recover", T + 5)) == [(Cleared, Reason.FAULT_CLEARED)]
    assert stream.report().active == ()
    assert entries(stream) == [("0:0:0:0", 0, 5, "SeparateNPU")]


def test_how_long_a_fault_lasted_is_told_by_its_own_clock() -> None:
    """A recording that is run has a wall clock far ahead of its events."""
    stream = Stream()
    stream.say(CHIP, "occur", T)
    (cleared,) = [
        one for one in stream.say(CHIP, "recover", T + 15_000, now=T + 28_842_716_300) if isinstance(one, Cleared)
    ]
    assert cleared.detail == "was SeparateNPU for 15 s"


@pytest.mark.parametrize(("severity", "held"), [(None, True), (3, True), (2, True), (1, False), (0, False)])
def test_an_unknown_code_is_held_unless_its_severity_is_low(severity: int | None, held: bool) -> None:
    stream = Stream()
    changes = stream.say(UNKNOWN, "occur", T, severity=severity)
    assert told(changes) == [(Shown, Reason.FAULT_SHOWN)]
    said = [one.detail for one in changes if isinstance(one, Shown)]
    assert said == [f"NotHandleFault by unknown-code{', held for a person' if held else ''}"]
    (fault,) = stream.report().active
    assert (fault.level, fault.held, fault.known) == ("NotHandleFault", held, False)
    assert stream.report().occurrences[0].held is held


def test_a_second_occur_is_no_occurrence_but_the_earliest_time_is_kept() -> None:
    stream = Stream()
    stream.say(CHIP, "occur", T)
    assert told(stream.say(CHIP, "occur", T - 9)) == [(Ignored, Reason.ALREADY_ACTIVE)]
    assert told(stream.say(CHIP, "occur", T + 9)) == [(Ignored, Reason.ALREADY_ACTIVE)]
    (fault,) = stream.report().active
    assert (fault.since, fault.count, fault.occurrence) == (T - 9, 1, "0:0:0:0")
    assert stream.report().totals == {"n1/chip/4/80E18402": 1}


def test_a_recover_of_nothing_is_not_active() -> None:
    assert told(Stream().say(CHIP, "recover", T)) == [(Ignored, Reason.NOT_ACTIVE)]


def test_a_device_recover_ends_the_fault_whatever_its_time_says() -> None:
    stream = Stream()
    stream.say(CHIP, "occur", T)
    assert told(stream.say(CHIP, "recover", T - 60 * S)) == [(Cleared, Reason.FAULT_CLEARED)]
    assert entries(stream) == [("0:0:0:0", 0, 0, "SeparateNPU")]


def test_a_once_is_an_occurrence_with_its_end_and_leaves_an_active_fault_alone() -> None:
    stream = Stream()
    assert told(stream.say(CHIP, "once", T)) == [(Shown, Reason.FAULT_SHOWN)]
    assert stream.report().active == ()
    stream.say(CHIP, "occur", T + 1)
    stream.say(CHIP, "once", T + 2)
    assert levels(stream) == {"n1/chip/4/80E18402": "SeparateNPU"}
    assert [entry[:3] for entry in entries(stream)] == [("0:0:0:0", 0, 0), ("0:0:1:0", 1, None), ("0:0:2:0", 2, 2)]
    assert stream.report().totals == {"n1/chip/4/80E18402": 3}


def test_occur_and_recover_in_one_message_leave_an_edge_and_no_active_fault() -> None:
    stream = Stream()
    pair = (stream.event(CHIP, "occur", T), stream.event(CHIP, "recover", T + 3))
    changes = stream.take(Decoded(Position(0, 0, 0), NODE, "message-0", pair), T + 3)
    assert told(outcomes(changes)) == [(Shown, Reason.FAULT_SHOWN), (Cleared, Reason.FAULT_CLEARED)]
    assert entries(stream) == [("0:0:0:0", 0, 3, "SeparateNPU")]


def test_a_message_id_among_the_last_1024_is_a_repeat_and_no_older_one() -> None:
    stream = Stream()
    for number in range(1024):
        one = Decoded(Position(0, 0, number), NODE, f"id-{number}", ())
        stream.take(one, T)
    event = stream.event(CHIP, "once", T)
    again = stream.take(Decoded(Position(0, 0, 1024), NODE, "id-0", (event,)), T)
    assert told(outcomes(again)) == [(Ignored, Reason.DUPLICATE_MESSAGE)]
    stream.take(Decoded(Position(0, 0, 1025), NODE, "id-new", ()), T)
    after = stream.take(Decoded(Position(0, 0, 1026), NODE, "id-0", (event,)), T)
    assert told(outcomes(after)) == [(Shown, Reason.FAULT_SHOWN)]
    assert len(stream.report().ids) == 8192


def test_a_place_read_before_changes_nothing_until_the_topic_is_made_anew() -> None:
    stream = Stream()
    event = stream.event(CHIP, "once", T)
    stream.take(Decoded(Position(1, 0, 5), NODE, "id-a", (event,)), T)
    for place in (Position(1, 0, 5), Position(1, 0, 0), Position(0, 0, 9)):
        (change,) = stream.take(Decoded(place, NODE, "id-b", (event,)), T + 1)
        assert isinstance(change, Skipped)
        assert change.reason is Reason.DUPLICATE_MESSAGE
    assert told(outcomes(stream.take(Decoded(Position(2, 0, 0), NODE, "id-c", (event,)), T))) == [
        (Shown, Reason.FAULT_SHOWN)
    ]
    assert stream.report().scanned == {0: Scanned(2, 1, Millis(T))}


def test_a_record_without_any_event_still_moves_the_place() -> None:
    stream = Stream()
    (first, *_) = decide(stream.book, Decoded(Position(0, 3, 7), None, ""), Millis(T), POLICY, digest="d")
    assert first == Advanced(Millis(T), Position(0, 3, 7), "d")
    evolve(stream.book, first)
    assert stream.book.scanned == {3: Scanned(0, 8, Millis(T), "d")}


def test_the_digest_tells_records_apart() -> None:
    one = Record(Position(0, 0, 0), b"n1", b"v")
    assert record_digest(one) == record_digest(replace(one, position=Position(1, 1, 1)))
    assert (
        len(
            {
                record_digest(one),
                record_digest(replace(one, key=b"n1v", value=b"")),
                record_digest(Record(one.position, None, None)),
            }
        )
        == 3
    )


def test_stream_time_never_goes_back() -> None:
    stream = Stream()
    stream.say(CHIP, "occur", T)
    stream.say(CHIP, "recover", T - 50 * S)
    stream.tick(T - 99 * S)
    assert stream.report().clock == T


# -- public faults: time decides -----------------------------------------------------------------------------------
def test_a_public_recover_of_the_same_time_ends_the_fault_and_an_older_one_is_stale() -> None:
    stream = Stream()
    stream.say(PUBLIC, "occur", T)
    assert told(stream.say(PUBLIC, "recover", T - 1)) == [(Ignored, Reason.STALE)]
    assert told(stream.say(PUBLIC, "recover", T)) == [(Cleared, Reason.FAULT_CLEARED)]


def test_a_public_occur_not_newer_than_the_last_recover_is_history() -> None:
    stream = Stream()
    assert told(stream.say(PUBLIC, "recover", T)) == [(Ignored, Reason.NOT_ACTIVE)]
    assert told(stream.say(PUBLIC, "occur", T)) == [(Ignored, Reason.STALE)]
    assert stream.report().active == ()
    assert entries(stream) == [("0:0:1:0", 0, 0, "SeparateNPU")]
    assert told(stream.say(PUBLIC, "occur", T + 1)) == [(Shown, Reason.FAULT_SHOWN)]


def test_a_node_takes_200_public_faults_at_once_and_says_so_of_each_more() -> None:
    stream = Stream()
    for number in range(199):
        stream.say(PUBLIC, "occur", T + number, where=str(number))
    two = tuple(stream.event(PUBLIC, "occur", T + 500, where=f"{number}") for number in (199, 200))
    both = outcomes(stream.take(Decoded(Position(0, 0, stream.offset), NODE, "both", two), T + 500))
    stream.offset += 1
    assert [(one.key.where, one.reason) for one in both] == [
        ("CCAE:fault-199", Reason.FAULT_SHOWN),
        ("CCAE:fault-200", Reason.TOO_MANY),
    ]
    assert told(stream.say(CHIP, "occur", T + 600)) == [(Shown, Reason.FAULT_SHOWN)]
    assert told(stream.say(PUBLIC, "recover", T + 600, where="200")) == [(Ignored, Reason.NOT_ACTIVE)]
    assert told(stream.say(PUBLIC, "occur", T + 700, where="7")) == [(Ignored, Reason.ALREADY_ACTIVE)]
    stream.say(PUBLIC, "recover", T + 700, where="7")
    stream.book = NodeBook.from_report(stream.report())
    assert told(stream.say(PUBLIC, "occur", T + 800, where="200")) == [(Shown, Reason.FAULT_SHOWN)]
    assert told(stream.say(PUBLIC, "occur", T + 900, where="201")) == [(Ignored, Reason.TOO_MANY)]
    assert len(stream.report().active) == 201


def test_a_book_that_went_on_from_a_report_without_some_faults_says_so_ever_after() -> None:
    stream = Stream()
    stream.say(CHIP, "occur", T)
    stream.book = NodeBook.from_report(replace(stream.report(), active=(), cut=("occurrences:3", "active:1")))
    stream.say(LINK, "occur", T + S)
    assert stream.report().lost == 1
    assert NodeBook.from_report(stream.report()).report("c", 2, 1, "i").cut == ("active:1",)


def test_a_stale_recover_is_remembered_too() -> None:
    stream = Stream()
    stream.say(PUBLIC, "occur", T)
    stream.say(PUBLIC, "recover", T - 5)
    stream.say(PUBLIC, "recover", T)
    assert told(stream.say(PUBLIC, "occur", T - 2)) == [(Ignored, Reason.STALE)]


@pytest.mark.parametrize(
    ("later", "outcome"),
    [(900 * S, (Ignored, Reason.STALE)), (900 * S + 1, (Shown, Reason.FAULT_SHOWN))],
    ids=["for 900 s", "no longer"],
)
def test_the_last_recover_is_kept_from_when_it_was_told(later: int, outcome: tuple[type[Outcome], Reason]) -> None:
    stream = Stream()
    stream.say(PUBLIC, "recover", T - 7200 * S, now=T)
    assert stream.report().recovered == {f"n1/public/CCAE:fault-4/220001001@{T}": T - 7200 * S}
    assert told(stream.say(PUBLIC, "occur", T - 7200 * S, now=T + later)) == [outcome]


def test_links_follow_events_and_probes() -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    stream.say(LINK, "once", T + 1, where="5")
    assert stream.report().links == {4: Link("down", Millis(T))}
    stream.say(LINK, "recover", T + 2)
    assert stream.report().links == {4: Link("up", Millis(T + 2))}
    for change in probe(stream.book, {4: "down", 5: "up", 6: "odd"}, Millis(T + 3)):
        evolve(stream.book, change)
    assert stream.report().links == {4: Link("down", Millis(T + 3)), 5: Link("up", Millis(T + 3))}
    for change in probe(stream.book, {4: "unknown"}, Millis(T + 4)):
        evolve(stream.book, change)
    assert stream.report().links == {5: Link("up", Millis(T + 3))}
    assert stream.report().clock == T + 4


def test_16_occurrences_are_kept_and_all_are_counted() -> None:
    stream = Stream()
    for number in range(20):
        stream.say(CHIP, "once", T + number)
    assert [entry[1] for entry in entries(stream)] == list(range(4, 20))
    assert stream.report().totals == {"n1/chip/4/80E18402": 20}


def test_an_occurrence_older_than_900_s_goes_and_its_fault_stays() -> None:
    stream = Stream()
    stream.say(CHIP, "occur", T)
    stream.say(CHIP, "once", T + 5, where="5")
    stream.tick(T + 900 * S)
    assert len(entries(stream)) == 2
    stream.tick(T + 900 * S + 1)
    assert entries(stream) == [("0:0:1:0", 5, 5, "SeparateNPU")]
    stream.tick(T + 2000 * S)
    assert (entries(stream), levels(stream)) == ([], {"n1/chip/4/80E18402": "SeparateNPU"})
    assert stream.report().totals == {"n1/chip/4/80E18402": 1, "n1/chip/5/80E18402": 1}
    assert told(stream.say(CHIP, "recover", T + 2001 * S)) == [(Cleared, Reason.FAULT_CLEARED)]
    assert entries(stream) == []


def test_an_occurrence_too_old_when_it_came_is_seen_for_as_long_as_any() -> None:
    stream = Stream()
    stream.say(CHIP, "once", T - 3600 * S, now=T)
    stream.tick(T + 900 * S)
    assert len(entries(stream)) == 1
    stream.tick(T + 900 * S + 1)
    assert entries(stream) == []


def test_totals_of_long_quiet_identities_are_forgotten_and_active_ones_never() -> None:
    stream = Stream()
    stream.say(PUBLIC, "occur", T, where="first")
    for number in range(2100):
        stream.say(PUBLIC, "once", T + number * 10 * S, where=f"{number}")
    totals = stream.report().totals
    assert len(totals) == 2048
    assert "n1/public/CCAE:fault-first/220001001" in totals
    assert "n1/public/CCAE:fault-0/220001001" not in totals


def test_a_timer_whose_fault_was_cut_from_the_report_raises_it_again() -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    again = Stream(NodeBook.from_report(replace(stream.report(), active=())))
    assert told(again.tick(T + 21 * S)) == [(Relevelled, Reason.FAULT_SHOWN)]
    assert levels(again) == {KEY: "PreSeparateNPU"}


def test_a_timer_with_nothing_left_to_time_goes() -> None:
    stream = Stream()
    stream.say(LINK, "occur", T)
    (timer,) = stream.report().timers
    again = Stream(NodeBook.from_report(replace(stream.report(), active=(), timers=(replace(timer, event=None),))))
    assert told(again.tick(T + 21 * S)) == [(Ignored, Reason.UNCHANGED)]
    assert (again.report().timers, next_deadline(again.book)) == ((), None)
