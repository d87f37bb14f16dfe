"""Who has taken out what, by the traces that each writer of a reset-config leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.reset import Part, RankEntry, ResetInfo, State, Writer, erasure

OURS = (RankEntry(0, status="unrecovered", recovery_id=1), RankEntry(1, status="unrecovered", recovery_id=1))
LEFT = State(ResetInfo(OURS, 5, 3), "hotReset")
FAULT = RankEntry(0, status="fault")


@pytest.mark.parametrize(
    ("live", "writer", "parts"),
    [
        pytest.param(
            State(ResetInfo((), 6, 4), "podReschedule", claimed=False),
            Writer.POD_RESCHEDULING,
            (Part.ENTRIES, Part.RESTART_TYPE, Part.CLAIM),
            id="volcano: a part of the pods replaced",
        ),
        pytest.param(
            State(ResetInfo((), 6, 0), "podReschedule", claimed=False),
            Writer.POD_RESCHEDULING,
            (Part.ENTRIES, Part.RETRY_TIME, Part.RESTART_TYPE, Part.CLAIM),
            id="volcano: all replaced, or itself begun anew",
        ),
        pytest.param(
            State(ResetInfo(OURS, 5, 3, graceful_exit=1), "", claimed=False),
            Writer.GRACE_EXIT,
            (Part.RESTART_TYPE, Part.CLAIM),
            id="volcano: graceful exit",
        ),
        pytest.param(
            State(ResetInfo((), 6, 3), ""),
            Writer.PROCESS_RECOVERY,
            (Part.ENTRIES, Part.RESTART_TYPE),
            id="clusterd: clear",
        ),
        pytest.param(
            State(ResetInfo((FAULT,), 6, 3, restart_fault_process=True), ""),
            Writer.PROCESS_RECOVERY,
            (Part.ENTRIES, Part.RESTART_TYPE),
            id="clusterd: faults",
        ),
        pytest.param(
            State(ResetInfo(OURS[:1], 5, 3), "hotReset"),
            Writer.OTHER,
            (Part.ENTRIES,),
            id="a person takes one entry out",
        ),
        pytest.param(State(ResetInfo(OURS, 5, 2), "hotReset"), Writer.OTHER, (Part.RETRY_TIME,), id="set back by hand"),
        pytest.param(State(ResetInfo(), "", claimed=False), Writer.OTHER, tuple(Part)[:4], id="made anew"),
        pytest.param(None, Writer.OTHER, (Part.DOCUMENT,), id="deleted"),
    ],
)
def test_each_writer_is_known_by_its_traces(live: State | None, writer: Writer, parts: tuple[Part, ...]) -> None:
    found = erasure(LEFT, live)
    assert found is not None
    assert (found.writer, found.parts) == (writer, parts)
    assert str(found) == f"{writer} took out {', '.join(parts)}"


ENTRIES = st.lists(
    st.sampled_from([RankEntry(7, status="fault"), RankEntry(9, status="failed")]), unique_by=lambda e: e.rank_id
)


@given(ENTRIES, st.integers(0, 9), st.booleans())
def test_what_others_add_is_no_erasure(theirs: list[RankEntry], more: int, flushing: bool) -> None:
    live = State(ResetInfo((*OURS, *theirs), 9, 3 + more, fault_flushing=flushing), "hotReset")
    assert erasure(LEFT, live) is None
    assert erasure(LEFT, LEFT) is None
