"""What our writes do to training: both readers driven through recoveries in every order."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from readers import EXITED, KILLED, RUNNING, MsrunPod
from resetjob import Job

from agent.domain.reset import Executor, Policy, ResetInfo, Signal
from agent.wire.resetfile import decode_reset, encode_reset

VECTORS = json.loads((Path(__file__).parent.parent / "data" / "reset_reader_vectors.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["case"]))
def test_the_msrun_model_answers_as_the_real_reader_did(vector: dict[str, Any]) -> None:
    pod = MsrunPod((0, 1, 2, 3))
    text = vector["reset.json"]
    if "error" in vector:
        with pytest.raises(TypeError):
            pod.judge(text)
        return
    seen = pod.judge(text)
    assert pod.may_start(text) is vector["may_start"]
    assert seen.is_fault is vector["is_fault"]
    assert seen.is_unrecovered is vector["is_unrecovered"]
    assert seen.is_retried is vector["is_retried"]
    assert seen.local_fault_ranks == vector["local_fault_ranks"]
    assert seen.all_recovered is vector["all_recovered"]


def test_a_recovery_that_succeeds_stops_and_starts_every_pod_once() -> None:
    job = Job()
    job.poll()
    job.begin("n1")
    job.write()
    job.poll()
    assert [pod.state for pod in job.pods.values()] == [KILLED, KILLED]
    job.signal("n1", Signal.CODES_GONE)
    job.write()
    job.poll()
    job.taskd.poll(job.text)
    assert [pod.state for pod in job.pods.values()] == [RUNNING, RUNNING]
    job.finish()
    assert [(pod.starts, pod.kills) for pod in job.pods.values()] == [(2, 1), (2, 1)]
    assert (job.taskd.restarts, decode_reset(job.text).rank_list, job.raises) == (1, (), 1)


def test_a_recovery_that_fails_lets_the_survivor_start_once_its_neighbour_is_replaced() -> None:
    job = Job()
    job.poll()
    job.begin("n1")
    job.write()
    job.poll()
    job.advance(30)
    job.write()
    job.pods["n1"].state = EXITED
    job.poll()
    assert job.pods["n2"].state == KILLED
    job.pods["n1"] = MsrunPod((0, 1, 2, 3))
    job.poll("n1")
    assert (job.pods["n1"].state, job.pods["n1"].kills) == (RUNNING, 0)
    job.signal("n1", Signal.PODS_REPLACED)
    job.write()
    job.finish()
    assert job.pods["n2"].state == job.pods["n1"].state == RUNNING
    assert (job.pods["n2"].starts, job.taskd.restarts, job.raises) == (2, 1, 1)


def test_when_every_pod_was_replaced_the_new_ones_are_left_running() -> None:
    job = Job()
    job.poll()
    job.begin("n1")
    job.write()
    job.signal("n1", Signal.BINDING_ENDED)
    job.write()
    job.pods = {"n1": MsrunPod((0, 1, 2, 3)), "n2": MsrunPod((4, 5, 6, 7))}
    job.poll()
    job.signal("n1", Signal.JOB_RENEWED)
    job.write()
    job.finish()
    assert [(pod.state, pod.starts, pod.kills) for pod in job.pods.values()] == [(RUNNING, 1, 0), (RUNNING, 1, 0)]
    assert job.raises == 0


def test_a_reader_that_sleeps_through_the_recovered_list_still_restarts() -> None:
    job = Job()
    job.poll()
    job.begin("n1")
    job.write()
    job.poll()
    job.signal("n1", Signal.CODES_GONE)
    job.write()
    job.poll("n1")
    job.advance(90)
    job.write()
    assert decode_reset(job.text).rank_list == ()
    job.poll()
    job.poll()
    assert [(pod.state, pod.starts) for pod in job.pods.values()] == [(RUNNING, 2), (RUNNING, 2)]


def test_two_recoveries_alike_each_restart_training_once() -> None:
    job = Job()
    job.poll()
    for _ in range(2):
        job.begin("n1")
        job.write()
        job.poll()
        job.signal("n1", Signal.CODES_GONE)
        job.write()
        job.poll()
        job.poll()
        job.advance(90)
        job.write()
    job.finish()
    assert [(pod.starts, pod.kills) for pod in job.pods.values()] == [(3, 2), (3, 2)]


def test_two_nodes_at_once_restart_training_together_when_the_last_is_well() -> None:
    job = Job()
    job.poll()
    job.begin("n1")
    job.begin("n2", Policy.RESTART)
    job.write()
    job.poll()
    job.signal("n1", Signal.CODES_GONE)
    job.signal("n2", Signal.CODES_GONE)
    job.write()
    job.poll()
    job.taskd.poll(job.text)
    assert [pod.state for pod in job.pods.values()] == [KILLED, KILLED]
    assert job.taskd.restarts == 0
    job.advance(15)
    job.write()
    job.finish()
    assert [(pod.state, pod.starts) for pod in job.pods.values()] == [(RUNNING, 2), (RUNNING, 2)]
    assert (job.taskd.restarts, job.raises) == (1, 1)


@pytest.mark.parametrize("raised", [True, False], ids=["they raised RetryTime", "they did not"])
@pytest.mark.parametrize("failed", [True, False], ids=["while failed", "while unrecovered"])
def test_after_a_foreign_clear_stopped_workers_start_once(raised: bool, failed: bool) -> None:
    job = Job()
    job.poll()
    job.begin("n1")
    job.write()
    job.poll()
    if failed:
        job.signal("n1", Signal.BINDING_ENDED)
        job.write()
    job.clear(raised)
    job.write()
    job.finish()
    assert [(pod.state, pod.starts, pod.kills) for pod in job.pods.values()] == [(RUNNING, 2, 1), (RUNNING, 2, 1)]
    assert (job.raises, job.taskd.restarts) == (0 if raised else 1, 1)


def test_a_reader_that_was_asleep_while_others_took_the_start_back_is_started_and_no_other() -> None:
    job = Job()
    job.poll()
    job.begin("n1")
    job.write()
    job.poll()
    job.signal("n1", Signal.CODES_GONE)
    job.write()
    job.poll("n1")
    job.text = encode_reset(ResetInfo(rank_list=(), retry_time=0))  # Volcano, after a restart of the scheduler
    job.write()
    job.finish()
    assert [(pod.state, pod.starts, pod.kills) for pod in job.pods.values()] == [(RUNNING, 2, 1), (RUNNING, 2, 1)]


def test_a_leftover_pod_reschedule_does_not_keep_the_workers_waiting_for_a_newer_rank_table() -> None:
    job = Job(restart_type="podReschedule")
    for pod in job.pods.values():
        pod.table = 1
    job.poll()
    job.begin("n1")
    job.write()
    job.poll()
    job.signal("n1", Signal.CODES_GONE)
    job.write()
    job.poll()
    assert [pod.state for pod in job.pods.values()] == [RUNNING, RUNNING]


@pytest.mark.parametrize("first", ["n1", "n2"])
def test_two_failed_recoveries_restart_the_job_once_when_the_last_of_them_leaves(first: str) -> None:
    job = Job()
    job.poll()
    job.begin("n1")
    job.begin("n2")
    job.write()
    job.poll()
    job.signal("n1", Signal.BINDING_ENDED)
    job.signal("n2", Signal.BINDING_ENDED)
    job.write()
    job.signal(first, Signal.PODS_REPLACED)
    job.write()
    job.taskd.poll(job.text)
    assert job.taskd.restarts == 0
    job.finish()
    assert [pod.state for pod in job.pods.values()] == [RUNNING, RUNNING]
    assert (job.taskd.restarts, job.raises) == (1, 1)


def test_a_recovery_that_fails_before_it_was_shown_touches_nothing() -> None:
    job = Job()
    job.poll()
    job.begin("n1")
    job.signal("n1", Signal.ISOLATION_FAULT)
    job.finish()
    assert [(pod.state, pod.kills) for pod in job.pods.values()] == [(RUNNING, 0), (RUNNING, 0)]
    assert job.text == '{"status":"initializing"}'


MOVES = st.one_of(
    st.tuples(
        st.just("begin"), st.sampled_from(["n1", "n2"]), st.sampled_from(["restart_request", "restart", "reset"])
    ),
    st.tuples(
        st.just("signal"),
        st.sampled_from(["n1", "n2"]),
        st.sampled_from(
            [
                Signal.CODES_GONE,
                Signal.CODES_BACK,
                Signal.BINDING_ENDED,
                Signal.ISOLATION_FAULT,
                Signal.STRONGER_FAULT,
                Signal.PODS_REPLACED,
                Signal.PROCESS_RECOVER_ON,
                Signal.LEAVE_ACT,
            ]
        ),
    ),
    st.tuples(
        st.just("torn"),
        st.sampled_from(["n1", "n2"]),
        st.sampled_from([Signal.CODES_GONE, Signal.BINDING_ENDED, Signal.LEAVE_ACT]),
    ),
    st.tuples(st.just("write")),
    st.tuples(st.just("poll"), st.sampled_from(["n1", "n2"])),
    st.tuples(st.just("taskd")),
    st.tuples(st.just("clear"), st.booleans()),
    st.tuples(st.just("advance"), st.sampled_from([1, 15, 30, 90, 150])),
    st.tuples(st.just("new pod"), st.sampled_from(["n1", "n2"])),
)


def play(job: Job, move: tuple[Any, ...]) -> None:
    match move:
        case ("begin", node, policy):
            if node not in job.recoveries:
                job.begin(node, Policy(policy), Executor.EXTERNAL)
        case ("signal", node, signal):
            job.signal(node, signal)
        case ("torn", node, signal):
            job.write_and_forget(node)
            job.signal(node, signal)
            job.write()
        case ("write",):
            job.write()
        case ("poll", node):
            job.poll(node)
        case ("taskd",):
            job.taskd.poll(job.text)
        case ("clear", raised):
            job.clear(raised)
            # The watch tells us; nothing else of ours happens before we have looked.
            job.write()
        case ("advance", seconds):
            job.advance(seconds)
        case ("new pod", node):
            job.pods[node] = MsrunPod((0, 1, 2, 3) if node == "n1" else (4, 5, 6, 7))


@settings(max_examples=150, deadline=None)
@given(st.lists(MOVES, max_size=30))
def test_in_every_order_training_runs_in_the_end_and_is_not_restarted_more_often_than_told(
    moves: list[tuple[Any, ...]],
) -> None:
    job = Job()
    job.poll()
    for move in moves:
        play(job, move)
        ranks = [entry.rank_id for entry in decode_reset(job.text).rank_list or ()]
        assert ranks == sorted(set(ranks))
    job.finish()
    assert [pod.state for pod in job.pods.values()] == [RUNNING, RUNNING]
    assert not decode_reset(job.text).rank_list
    assert job.raises <= job.next_id - 1
    assert job.taskd.restarts <= job.raises + job.foreign_raises
    assert decode_reset(job.text).retry_time == job.raises + job.foreign_raises


@settings(max_examples=100, deadline=None)
@given(st.lists(MOVES.filter(lambda move: move[0] not in ("begin", "new pod")), max_size=20))
def test_without_a_recovery_of_ours_no_worker_is_ever_killed_by_us(moves: list[tuple[Any, ...]]) -> None:
    job = Job()
    job.poll()
    for move in moves:
        play(job, move)
    job.finish()
    assert job.raises == 0
    assert all(pod.kills <= job.foreign_raises for pod in job.pods.values())


@settings(max_examples=100, deadline=None)
@given(st.lists(MOVES.filter(lambda move: move[0] not in ("clear", "new pod")), max_size=30))
def test_left_to_ourselves_each_pod_restarts_at_most_once_a_recovery(moves: list[tuple[Any, ...]]) -> None:
    job = Job()
    job.poll()
    for move in moves:
        play(job, move)
    job.finish()
    begun = job.next_id - 1
    assert all(pod.kills <= begun and pod.starts <= begun + 1 for pod in job.pods.values())
