"""The node book over restarts, repeats and any order: what it holds follows from what came, however it came."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from nodestream import CHIP, LINK, NODE, PUBLIC, UNKNOWN, Kind, S, Stream, T
from tinypolicy import TinyCount, TinyPolicy

from agent.domain.events import Decoded, Position
from agent.domain.node import (
    NodeBook,
    evolve,
    next_deadline,
)

# -- over any stream -----------------------------------------------------------------------------------------------
MOVES = st.lists(
    st.tuples(
        st.sampled_from([CHIP, LINK, LINK, PUBLIC, UNKNOWN]),
        st.sampled_from(["occur", "recover", "occur", "recover", "once"]),
        st.sampled_from(["4", "5"]),
        st.integers(0, 70),
        st.integers(-30, 3),
    ),
    max_size=24,
)
Moves = list[tuple[Kind, str, str, int, int]]
COUNTING = TinyPolicy(
    counts={
        "80E18402": TinyCount("80E18402", 200 * S, 2, "SubHealthFault", 60 * S),
        "81078603": TinyCount("81078603", 300 * S, 2, "ManuallySeparateNPU", 90 * S),
        "8FFFFFFF": TinyCount("8FFFFFFF", 100 * S, 3, "ManuallySeparateNPU"),
    }
)


def ruled() -> Stream:
    stream = Stream()
    stream.policy = COUNTING
    return stream


def messages(moves: Moves) -> list[tuple[Decoded, int]]:
    stream, now, given = Stream(), T, []
    for kind, word, where, gap, off in moves:
        now += gap * S
        one = stream.event(kind, word, now + off * S, where)
        given.append((Decoded(Position(0, 0, stream.offset), NODE, f"message-{stream.offset}", (one,)), now))
        stream.offset += 1
    return given


@settings(max_examples=100, deadline=None)
@given(MOVES, st.data())
def test_a_restart_anywhere_equals_no_restart(moves: Moves, data: st.DataObject) -> None:
    steady, restarted = ruled(), ruled()
    restarts = data.draw(st.sets(st.integers(0, 24)))
    for number, (decoded, now) in enumerate(messages(moves)):
        if number in restarts:
            restarted.book = NodeBook.from_report(restarted.report())
        assert restarted.take(decoded, now) == steady.take(decoded, now)
        assert restarted.report() == steady.report()
        assert next_deadline(restarted.book) == next_deadline(steady.book)


@settings(max_examples=100, deadline=None)
@given(MOVES, st.integers(0, 23), st.booleans())
def test_a_message_delivered_again_changes_nothing(moves: Moves, which: int, elsewhere: bool) -> None:
    stream = ruled()
    given = messages(moves)
    for decoded, now in given:
        stream.take(decoded, now)
    if not given:
        return
    decoded, _ = given[which % len(given)]
    before = stream.report()
    if elsewhere:
        decoded = replace(decoded, position=Position(0, 0, len(given)))
    stream.take(decoded, before.clock)
    after = stream.report()
    assert replace(after, scanned={}) == replace(before, scanned={})
    assert elsewhere or after == before


def test_a_repeated_message_forgets_no_count_while_a_deadline_runs_that_may_bring_one_more() -> None:
    stream = ruled()
    moves: Moves = [(LINK, "occur", "4", 0, 0), (CHIP, "occur", "5", 300, 0), (LINK, "recover", "4", 21, 0)]
    given = messages(moves)
    for decoded, now in given:
        stream.take(decoded, now)
    (counter,) = (one for one in stream.report().counters if one.key.code == LINK[0])
    assert (counter.times, counter.due, stream.report().clock) == ((T + 20 * S,), T + 320 * S, T + 321 * S)
    stream.take(replace(given[0][0], position=Position(0, 0, len(given))), stream.report().clock)
    assert counter in stream.report().counters


@settings(max_examples=100, deadline=None)
@given(MOVES)
def test_which_device_faults_are_there_depends_on_their_order_alone(moves: Moves) -> None:
    def there(given: Moves) -> tuple[set[str], set[str]]:
        stream = Stream()
        for decoded, now in messages(given):
            stream.take(decoded, now)
        held = {str(fault.key) for fault in stream.report().active}
        return held, {str(timer.key) for timer in stream.report().timers if timer.phase == "up"}

    device = [move for move in moves if move[0] is not PUBLIC]
    other_times = [(kind, word, where, (gap * 7 + 3) % 71, -off % 5) for kind, word, where, gap, off in device]
    (one, shown_on), (two, shown_on_too) = there(device), there(other_times)
    assert one - shown_on == two - shown_on_too


@settings(max_examples=60, deadline=None)
@given(MOVES, st.integers(0, 10))
def test_changes_fit_any_book_and_the_heaps_stay_in_step(moves: Moves, skip: int) -> None:
    stream, other = ruled(), NodeBook(NODE)
    for number, (decoded, now) in enumerate(messages(moves)):
        for change in stream.take(decoded, now):
            if number % (skip + 1) == 0:
                evolve(other, change)
        running = [timer.due for timer in stream.report().timers if timer.phase != "raised"]
        running += [one.due for one in stream.report().counters if one.phase == "clean" and one.due]
        assert next_deadline(stream.book) == (min(running) + 1 if running else None)
    stream.tick(T + 10_000 * S)  # may raise a link late, which is then shown for its own 900 s
    stream.tick(T + 20_000 * S)
    assert stream.report().occurrences == ()
    assert stream.report().recovered == {}
    assert all(one.phase != "counting" for one in stream.report().counters)
    other.report("c", 1, 1, "i")
