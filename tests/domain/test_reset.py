"""The life of a recovery and what it wants of the live object, in numbers taken from the removed hot-reset writer."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.reset import (
    TRANSITIONS,
    Executor,
    Outcome,
    Phase,
    Policy,
    RankEntry,
    Recovery,
    ResetDevice,
    ResetInfo,
    ResetLimits,
    Signal,
    due,
    join,
    merge,
    orphan,
    orphans,
    policy_of,
    recorded,
    start,
    step,
)
from agent.domain.vocab import Millis, NodeName, Reason

T0 = Millis(1767225600000)
LIMITS = ResetLimits()
N1 = NodeName("n1")
DEVICES = tuple(ResetDevice(i, i, N1, i, ("80C98000",) if i == 2 else ()) for i in range(4))


def at(seconds: int) -> Millis:
    return Millis(1767225600000 + seconds * 1000)


def begun(policy: Policy = Policy.RESTART_REQUEST, executor: Executor = Executor.NONE, number: int = 1) -> Recovery:
    made = start(number, policy, DEVICES, N1, T0, LIMITS, executor)
    assert isinstance(made, Recovery)
    return made


def after(recovery: Recovery, *signals: tuple[Signal, int]) -> Recovery:
    for signal, seconds in signals:
        moved = step(recovery, signal, at(seconds), LIMITS)
        assert moved is not None, signal
        recovery = moved.recovery
    return recovery


@pytest.mark.parametrize(
    ("level", "policy"),
    [
        ("NormalNPU", ""),
        ("NotHandleFault", ""),
        ("SubHealthFault", ""),
        ("RestartRequest", "restart_request"),
        ("RestartBusiness", "restart"),
        ("FreeRestartNPU", "free_reset"),
        ("RestartNPU", "reset"),
        ("PreSeparateNPU", "isolate"),
        ("SeparateNPU", "isolate"),
        ("ManuallySeparateNPU", "isolate"),
        ("what nobody knows", "isolate"),
    ],
)
def test_each_level_has_its_policy(level: str, policy: str) -> None:
    assert policy_of(level) == policy


@pytest.mark.parametrize(
    ("policy", "executor", "reason"),
    [
        (Policy.EMPTY, Executor.EXTERNAL, Reason.LEVEL_NEEDS_NOTHING),
        (Policy.FREE_RESET, Executor.EXTERNAL, Reason.ISOLATION_ONLY),
        (Policy.ISOLATE, Executor.EXTERNAL, Reason.ISOLATION_ONLY),
        (Policy.RESET, Executor.NONE, Reason.NO_RESET_EXECUTOR),
    ],
)
def test_no_recovery_is_started_for_a_policy_that_has_none(policy: Policy, executor: Executor, reason: Reason) -> None:
    assert start(1, policy, DEVICES, N1, T0, LIMITS, executor) is reason


def test_a_recovery_without_a_rank_is_not_started() -> None:
    assert start(1, Policy.RESTART, (), N1, T0, LIMITS) is Reason.NO_RANK


@pytest.mark.parametrize(
    ("policy", "executor", "wait", "settle"),
    [
        (Policy.RESTART_REQUEST, Executor.NONE, 30, 0),
        (Policy.RESTART, Executor.NONE, 60, 15),
        (Policy.RESET, Executor.EXTERNAL, 150, 30),
    ],
    ids=["restart_request", "restart", "reset"],
)
def test_each_policy_waits_and_settles_as_long_as_the_removed_writer_did(
    policy: Policy, executor: Executor, wait: int, settle: int
) -> None:
    recovery = begun(policy, executor)
    assert due(recovery) == at(wait)
    well = after(recovery, (Signal.CODES_GONE, 5))
    if settle:
        assert (well.phase, due(well)) == (Phase.SETTLING, at(5 + settle))
        assert step(well, Signal.DEADLINE, at(5 + settle - 1), LIMITS) is None
        well = after(well, (Signal.DEADLINE, 5 + settle))
    assert (well.phase, due(well)) == (Phase.RECOVERED, at(5 + settle + 90))


def test_a_code_that_comes_back_while_settling_keeps_the_first_deadline() -> None:
    back = after(begun(Policy.RESTART), (Signal.CODES_GONE, 50), (Signal.CODES_BACK, 55))
    assert (back.phase, due(back)) == (Phase.UNRECOVERED, at(60))


@pytest.mark.parametrize(("policy", "wait"), [(Policy.RESTART_REQUEST, 30), (Policy.RESTART, 60)])
def test_over_its_time_it_goes_up_to_reset_only_when_somebody_resets(policy: Policy, wait: int) -> None:
    failed = step(begun(policy), Signal.DEADLINE, at(wait), LIMITS)
    assert failed is not None
    assert (failed.recovery.phase, failed.reason, due(failed.recovery)) == (
        Phase.FAILED,
        Reason.RECOVERY_FAILED,
        at(wait + 120),
    )
    raised = step(begun(policy, Executor.EXTERNAL), Signal.DEADLINE, at(wait), LIMITS)
    assert raised is not None
    assert (raised.recovery.policy, raised.recovery.initial_policy, raised.reason) == (
        "reset",
        policy,
        Reason.RECOVERY_ESCALATED,
    )
    assert (raised.recovery.phase, due(raised.recovery)) == (Phase.UNRECOVERED, at(wait + 150))
    assert after(raised.recovery, (Signal.DEADLINE, wait + 150)).phase is Phase.FAILED


def test_recovered_entries_stay_thirty_seconds_even_when_a_pod_goes() -> None:
    well = after(begun(), (Signal.CODES_GONE, 10))
    early = after(well, (Signal.BINDING_ENDED, 20))
    assert (early.phase, due(early)) == (Phase.RECOVERED, at(40))
    assert step(early, Signal.BINDING_ENDED, at(21), LIMITS) is None
    assert after(early, (Signal.DEADLINE, 40)).phase is Phase.LEAVING
    assert after(well, (Signal.BINDING_ENDED, 45)).phase is Phase.LEAVING


def test_the_table_holds_every_move_and_nothing_else_changes_a_recovery() -> None:
    derived = {Signal.SETTLED, Signal.ESCALATE, Signal.UNAWAITED}
    waiting = replace(begun(Policy.RESTART), shown="unrecovered")
    for phase, signal in product(Phase, Signal):
        recovery = replace(waiting, phase=phase, settle_until=T0)
        moved = step(recovery, signal, at(1000), LIMITS)
        if (phase, signal) not in TRANSITIONS:
            assert moved is None, (phase, signal)
        elif signal not in derived and moved is not None:
            assert moved.recovery.phase in {TRANSITIONS[phase, signal][0], Phase.LEAVING}
    assert not [move for move in TRANSITIONS if move[0] is Phase.ENDED]


@pytest.mark.parametrize("phase", [Phase.UNRECOVERED, Phase.SETTLING])
@pytest.mark.parametrize("signal", [Signal.BINDING_ENDED, Signal.ISOLATION_FAULT, Signal.PODS_REPLACED])
def test_a_pod_that_goes_or_a_card_that_is_isolated_fails_it_at_once(phase: Phase, signal: Signal) -> None:
    recovery = begun(Policy.RESTART)
    if phase is Phase.SETTLING:
        recovery = after(recovery, (Signal.CODES_GONE, 1))
    failed = after(recovery, (signal, 2))
    assert (failed.phase, failed.policy, failed.initial_policy) == (Phase.FAILED, "isolate", "restart")


def test_a_further_mild_fault_joins_with_its_codes() -> None:
    more = (ResetDevice(3, 3, N1, 3, ("80C98001",)),)
    joined = join(begun(Policy.RESTART), Policy.RESTART_REQUEST, more, at(5), LIMITS)
    assert joined is not None
    assert joined.reason is Reason.RECOVERY_JOINED
    assert [device.codes for device in joined.recovery.devices] == [(), (), ("80C98000",), ("80C98001",)]
    assert (joined.recovery.policy, due(joined.recovery)) == ("restart", at(60))


def test_a_further_fault_with_a_stronger_policy_begins_that_policys_wait() -> None:
    joined = join(begun(), Policy.RESTART, DEVICES, at(5), LIMITS)
    assert joined is not None
    assert (joined.recovery.policy, joined.recovery.initial_policy) == ("restart", "restart_request")
    assert (due(joined.recovery), joined.reason) == (at(65), Reason.RECOVERY_ESCALATED)


@pytest.mark.parametrize(
    ("policy", "executor", "phase"),
    [
        (Policy.RESET, Executor.NONE, Phase.FAILED),
        (Policy.RESET, Executor.EXTERNAL, Phase.UNRECOVERED),
        (Policy.ISOLATE, Executor.EXTERNAL, Phase.FAILED),
        (Policy.FREE_RESET, Executor.EXTERNAL, Phase.FAILED),
    ],
)
def test_a_further_fault_that_needs_a_reset_or_more(policy: Policy, executor: Executor, phase: Phase) -> None:
    joined = join(begun(executor=executor), policy, DEVICES, at(5), LIMITS)
    assert joined is not None
    assert joined.recovery.phase is phase


def test_a_fault_after_recovery_joins_nothing() -> None:
    assert join(after(begun(), (Signal.CODES_GONE, 1)), Policy.RESTART, DEVICES, at(5), LIMITS) is None


FAULT = RankEntry(rank_id=2, status="fault", error_code=None)


def shown(recovery: Recovery, live: ResetInfo, seconds: int = 0) -> tuple[ResetInfo, Recovery]:
    made = merge(live, recovery, at(seconds))
    assert made.outcome is Outcome.SHOWN
    return made.info, recorded(recovery, made)


def test_unrecovered_leaves_retry_time_and_all_of_others_as_they_were() -> None:
    live = ResetInfo((FAULT,), 7, 5, fault_flushing=True, graceful_exit=1, restart_fault_process=True, extra={"x": 1})
    made = merge(live, begun(), at(3))
    assert made.restart_type == "hotReset"
    assert replace(made.info, rank_list=(), update_time=7) == replace(live, rank_list=())
    assert made.info.update_time == 1767225603
    assert [(e.rank_id, e.status) for e in made.info.rank_list or ()] == [
        (0, "unrecovered"),
        (1, "unrecovered"),
        (2, "fault"),
        (3, "unrecovered"),
    ]


def test_codes_are_listed_ascending_in_both_spellings() -> None:
    devices = (ResetDevice(0, 0, N1, 0, ("80E18402", "80C98000", "80E18402")),)
    made = start(1, Policy.RESTART, devices, N1, T0, LIMITS)
    assert isinstance(made, Recovery)
    (entry,) = merge(ResetInfo(), made, T0).info.rank_list or ()
    assert (entry.error_code, entry.error_code_hex) == ((2160689152, 2162263042), "80C98000,80E18402")


@pytest.mark.parametrize(("retry", "raised"), [(0, 1), (5, 6), (-3, 1), (2**63 - 1, 2**63 - 1)])
def test_recovered_raises_retry_time_once(retry: int, raised: int) -> None:
    info, recovery = shown(begun(), ResetInfo(retry_time=retry))
    assert info.retry_time == retry
    info, recovery = shown(after(recovery, (Signal.CODES_GONE, 10)), info, 10)
    assert (info.retry_time, {e.status for e in info.rank_list or ()}) == (raised, {"recovered"})
    again = merge(info, recovery, at(20))
    assert (again.outcome, again.changed, again.info) == (Outcome.UNCHANGED, False, info)
    left = merge(info, after(recovery, (Signal.DEADLINE, 100)), at(100))
    assert (left.info.rank_list, left.info.retry_time, left.raised, left.restart_type) == ((), raised, False, None)


def test_a_recovered_list_that_readers_have_acted_on_takes_no_further_device() -> None:
    info, recovery = shown(begun(), ResetInfo())
    info, recovery = shown(after(recovery, (Signal.CODES_GONE, 10)), info, 10)
    grown = replace(recovery, devices=(*recovery.devices, ResetDevice(4, 4, N1, 4, ("80C98000",))))
    again = merge(info, grown, at(20))
    assert (again.outcome, again.changed, again.info) == (Outcome.UNCHANGED, False, info)


def test_what_got_well_before_it_was_shown_is_shown_unrecovered_first() -> None:
    well = after(begun(), (Signal.CODES_GONE, 0))
    info, recorded_once = shown(well, ResetInfo())
    assert ({e.status for e in info.rank_list or ()}, info.retry_time) == ({"unrecovered"}, 0)
    info, _ = shown(recorded_once, info)
    assert ({e.status for e in info.rank_list or ()}, info.retry_time) == ({"recovered"}, 1)


def test_a_recovered_write_the_ledger_never_heard_of_is_not_raised_again_on_leaving() -> None:
    info, recovery = shown(begun(), ResetInfo())
    well = after(recovery, (Signal.CODES_GONE, 10))
    info = merge(info, well, at(10)).info
    left = merge(info, after(well, (Signal.LEAVE_ACT, 11)), at(11))
    assert (left.info.rank_list, left.info.retry_time, left.raised) == ((), 1, False)


def test_failed_isolates_without_raising_and_leaves_with_one_raise() -> None:
    info, recovery = shown(begun(), ResetInfo(retry_time=2))
    info, recovery = shown(after(recovery, (Signal.DEADLINE, 30)), info, 30)
    assert {(e.status, e.policy, e.initial_policy) for e in info.rank_list or ()} == {
        ("failed", "isolate", "restart_request")
    }
    assert info.retry_time == 2
    leaving = after(recovery, (Signal.DEADLINE, 150))
    left = merge(info, leaving, at(150))
    assert (left.info.rank_list, left.info.retry_time, left.restart_type) == ((), 3, "hotReset")
    again = merge(left.info, leaving, at(151))
    assert (again.changed, again.outcome) == (False, Outcome.LEFT)


@pytest.mark.parametrize("signal", [Signal.JOB_ENDED, Signal.JOB_RENEWED])
def test_no_raise_when_no_worker_is_left_that_we_stopped(signal: Signal) -> None:
    info, recovery = shown(begun(), ResetInfo())
    info, recovery = shown(after(recovery, (Signal.BINDING_ENDED, 1)), info)
    left = merge(info, after(recovery, (signal, 2)), at(2))
    assert (left.info.rank_list, left.info.retry_time) == ((), 0)


@pytest.mark.parametrize(
    ("live_retry", "raised"), [(4, 5), (0, 5), (5, None)], ids=["kept", "set back", "raised by them"]
)
def test_a_foreign_clear_while_unrecovered_is_accepted_and_a_missing_raise_made_good(
    live_retry: int, raised: int | None
) -> None:
    _, recovery = shown(begun(), ResetInfo(retry_time=4))
    cleared = ResetInfo(rank_list=(), retry_time=live_retry)
    assert merge(cleared, recovery, at(5)).outcome is Outcome.ABSENT
    left = merge(cleared, after(recovery, (Signal.FOREIGN_CLEAR, 5)), at(5))
    assert left.outcome is Outcome.LEFT
    assert left.changed is (raised is not None)
    assert left.info.retry_time == (live_retry if raised is None else raised)


@pytest.mark.parametrize("retry", [1, 2], ids=["kept", "raised by them"])
def test_a_foreign_clear_of_recovered_entries_is_accepted(retry: int) -> None:
    info, recovery = shown(begun(), ResetInfo())
    info, recovery = shown(after(recovery, (Signal.CODES_GONE, 1)), info)
    gone = merge(ResetInfo(rank_list=(), retry_time=retry), after(recovery, (Signal.FOREIGN_CLEAR, 2)), at(2))
    assert (gone.outcome, gone.changed) == (Outcome.LEFT, False)


@pytest.mark.parametrize("while_left", [False, True], ids=["while recovered", "after it has left"])
def test_a_retry_time_set_back_before_slow_readers_have_seen_it_is_raised_to_the_same_value(while_left: bool) -> None:
    info, recovery = shown(begun(), ResetInfo(retry_time=4))
    if while_left:
        leaving = after(recovery, (Signal.LEAVE_ACT, 10))
        assert merge(info, leaving, at(10)).info.retry_time == 5
        recovery = after(leaving, (Signal.LEFT, 10))
        assert (recovery.phase, due(recovery)) == (Phase.LEFT, at(100))
    else:
        _, recovery = shown(after(recovery, (Signal.CODES_GONE, 1)), info)
        recovery = after(recovery, (Signal.FOREIGN_CLEAR, 30))
    mended = merge(ResetInfo(rank_list=()), recovery, at(30))
    assert (mended.info.rank_list, mended.info.retry_time, mended.raised) == ((), 5, True)
    assert merge(mended.info, recovery, at(31)).changed is False


def test_once_every_reader_has_had_time_to_see_it_nobody_looks_after_retry_time_any_more() -> None:
    info, recovery = shown(begun(), ResetInfo())
    _, recovery = shown(after(recovery, (Signal.CODES_GONE, 1)), info)
    assert after(recovery, (Signal.DEADLINE, 91), (Signal.LEFT, 91)).phase is Phase.ENDED
    left = after(begun(), (Signal.DEADLINE, 30), (Signal.FOREIGN_CLEAR, 30))
    assert after(left, (Signal.LEFT, 30)).phase is Phase.ENDED


@pytest.mark.parametrize("fails", [True, False])
def test_retry_time_goes_above_what_readers_have_seen_before_another_writer_set_it_back(fails: bool) -> None:
    made = start(3, Policy.RESTART_REQUEST, DEVICES, N1, T0, LIMITS, retry_base=7)
    assert isinstance(made, Recovery)
    info, recovery = shown(made, ResetInfo(retry_time=0))
    assert info.retry_time == 0
    if fails:
        info, recovery = shown(after(recovery, (Signal.DEADLINE, 30)), info)
        info = merge(info, after(recovery, (Signal.DEADLINE, 150)), at(150)).info
    else:
        info, _ = shown(after(recovery, (Signal.CODES_GONE, 10)), info)
    assert info.retry_time == 8


def test_a_newer_recovery_takes_the_ranks_of_an_older_one_and_keeps_them() -> None:
    info, old = shown(begun(), ResetInfo())
    info, old = shown(after(old, (Signal.CODES_GONE, 1)), info)
    info, _ = shown(begun(number=2), info)
    assert {(e.recovery_id, e.status) for e in info.rank_list or ()} == {(2, "unrecovered")}
    assert merge(info, old, at(3)).outcome is Outcome.ABSENT
    left = merge(info, after(old, (Signal.FOREIGN_CLEAR, 3)), at(3))
    assert (left.changed, left.outcome) == (False, Outcome.LEFT)


def test_when_others_hold_every_rank_nothing_is_written() -> None:
    live = ResetInfo(tuple(RankEntry(rank_id=i, status="fault") for i in range(4)))
    made = merge(live, begun(), T0)
    assert (made.outcome, made.changed, made.info) == (Outcome.OCCUPIED, False, live)


def test_initializing_goes_at_the_first_write_and_other_unknown_keys_stay() -> None:
    live = ResetInfo(extra={"status": "initializing", "note": "mine"})
    assert merge(live, begun(), T0).info.extra == {"note": "mine"}


def test_entries_no_ledger_knows_are_taken_out_with_a_raise() -> None:
    info, _ = shown(begun(number=9), ResetInfo())
    assert orphans(info, [1, 2]) == (9,)
    assert orphans(info, [9]) == ()
    left = merge(info, orphan(9, info.rank_list or (), T0), at(1))
    assert (left.info.rank_list, left.info.retry_time) == ((), 1)


STATUSES = st.sampled_from(["fault", "failed", "recovered", "unrecovered", "", None])
FOREIGN = st.lists(
    st.builds(RankEntry, rank_id=st.integers(0, 7), status=STATUSES, raw=st.just({"x": "y"})),
    max_size=5,
    unique_by=lambda entry: entry.rank_id,
)


@given(FOREIGN, st.sampled_from(list(Phase)), st.booleans(), st.integers(0, 1), st.booleans())
def test_in_every_phase_the_fields_of_others_stay_theirs(
    foreign: list[RankEntry], phase: Phase, flushing: bool, graceful: int, restart: bool
) -> None:
    live = ResetInfo(tuple(foreign), 1, 3, flushing, graceful, restart, {"x": 1})
    first = merge(live, begun(), T0)
    recovery = replace(recorded(begun(), first), phase=phase)
    for made in (first, merge(first.info, recovery, at(1))):
        theirs = replace(made.info, rank_list=(), update_time=0, retry_time=0)
        assert theirs == replace(live, rank_list=(), update_time=0, retry_time=0)
        assert made.info.retry_time in (3, 4)
        assert made.restart_type in (None, "hotReset")


@given(FOREIGN, st.sampled_from(list(Phase)), st.integers(-2, 5))
def test_a_merge_keeps_every_foreign_entry_repeats_no_rank_and_is_idempotent(
    foreign: list[RankEntry], phase: Phase, retry: int
) -> None:
    live = ResetInfo(tuple(foreign), 1, retry)
    first = merge(live, begun(), T0)
    recovery = replace(recorded(begun(), first), phase=phase)
    second = merge(first.info, recovery, at(1))
    ranks = [entry.rank_id for entry in second.info.rank_list or ()]
    assert len(ranks) == len(set(ranks))
    assert {e.rank_id: e for e in foreign}.items() <= {e.rank_id: e for e in second.info.rank_list or ()}.items()
    third = merge(second.info, recorded(recovery, second), at(2))
    assert not third.changed
