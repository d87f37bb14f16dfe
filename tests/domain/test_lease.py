"""When the lease may be taken, kept and must be let go."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.lease import TABLE, Holder, LeaseTimes, Silence, Stage, Step, stamp, step, whose
from agent.domain.vocab import Millis
from agent.errors import BadUsage

TIMES = LeaseTimes(duration=15.0, renew_every=2.0, look_every=1.0, guard=3.0, request=4.0)


@pytest.mark.parametrize(
    ("stage", "holder", "silent", "expected"),
    [
        pytest.param("standby", "nobody", False, "take", id="free"),
        pytest.param("standby", "other", False, "wait", id="held and renewed"),
        pytest.param("standby", "other", True, "take", id="held by one who is silent"),
        pytest.param("standby", "me", False, "take", id="my own write whose answer was lost"),
        pytest.param("leading", "me", False, "renew", id="mine"),
        pytest.param("leading", "other", False, "lost", id="taken from me"),
        pytest.param("leading", "nobody", False, "lost", id="cleared by hand"),
    ],
)
def test_what_follows_from_a_reading(stage: str, holder: str, silent: bool, expected: str) -> None:
    assert step(Stage(stage), Holder(holder), silent=silent).value == expected


def test_every_situation_has_an_answer() -> None:
    assert set(TABLE) == set(itertools.product(Stage, Holder, (False, True)))


def test_only_a_standby_takes_and_only_a_leader_renews_or_loses() -> None:
    for (stage, _, _), follows in TABLE.items():
        assert (follows in (Step.WAIT, Step.TAKE)) == (stage is Stage.STANDBY)


@pytest.mark.parametrize(("holder", "expected"), [("", "nobody"), ("a", "me"), ("b", "other")])
def test_whose_a_lease_is(holder: str, expected: str) -> None:
    assert whose(holder, "a").value == expected


def test_silence_counts_from_the_first_sight_of_the_same_lease() -> None:
    mark = ("b", "2026-01-01T00:00:00.000000Z", "7")
    silence = Silence().seeing(mark, 100.0).seeing(mark, 105.0)
    assert silence.ends(15, TIMES) == 115.0


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(("c", "2026-01-01T00:00:00.000000Z", "7"), id="holder"),
        pytest.param(("b", "2026-01-01T00:00:02.000000Z", "7"), id="renewal"),
        pytest.param(("b", "2026-01-01T00:00:00.000000Z", "8"), id="version"),
    ],
)
def test_any_difference_begins_the_silence_anew(other: tuple[str, str, str]) -> None:
    silence = Silence().seeing(("b", "2026-01-01T00:00:00.000000Z", "7"), 100.0).seeing(other, 112.0)
    assert silence.ends(15, TIMES) == 127.0


def test_the_holder_s_own_duration_counts_and_ours_where_it_gives_none() -> None:
    silence = Silence().seeing(("b", "x", "7"), 100.0)
    assert silence.ends(40, TIMES) == 140.0
    assert silence.ends(0, TIMES) == 115.0


@settings(max_examples=200)
@given(
    renewal=st.floats(0, 1000),
    way=st.floats(0, 20),
    answer=st.floats(0, 20),
    guard=st.floats(0, 5),
)
def test_a_leader_has_stopped_before_anyone_who_saw_its_renewal_may_take_over(
    renewal: float, way: float, answer: float, guard: float
) -> None:
    """The renewal begins at `renewal`, the server carries it out `way` later, a standby's reading ends after that."""
    times = LeaseTimes(duration=15.0, renew_every=2.0, guard=guard)
    stops = renewal + times.reign
    taken = Silence().seeing(("b", "x", "7"), renewal + way + answer).ends(times.stated, times)
    assert stops <= taken


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"duration": 0.0}, id="no duration"),
        pytest.param({"guard": -1.0}, id="negative guard"),
        pytest.param({"duration": 15.0, "guard": 3.0, "renew_every": 7.0}, id="no second try"),
        pytest.param({"duration": 3.0, "guard": 3.0}, id="nothing left to lead"),
    ],
)
def test_times_that_leave_no_margin_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadUsage):
        LeaseTimes(**wrong)


def test_a_lease_states_whole_seconds_and_never_too_few() -> None:
    assert LeaseTimes(duration=1.2, renew_every=0.2, guard=0.2).stated == 2


def test_a_new_silence_has_not_begun() -> None:
    assert Silence().since == -math.inf


def test_the_renewal_time_is_written_as_the_api_writes_it() -> None:
    assert stamp(Millis(1767225600042)) == "2026-01-01T00:00:00.042000Z"
