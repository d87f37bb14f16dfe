"""Our ledgers as text: the same ledger the same text, and nothing half-read is used."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.events import FaultKey, Occurrence
from agent.domain.isolation import Count, Counts
from agent.domain.jobs.view import Incarnation
from agent.domain.ledger import ClusterLedger, Course, Done, JobLedger, Kept, Member, Related, Separation, Suspect
from agent.domain.reschedule import JobRecords, RescheduleReason, RescheduleRecord, TaskReason
from agent.domain.reset import Executor, Phase, Policy, Recovery, ResetDevice
from agent.domain.vocab import JobId, Millis, NodeName, OccurrenceId, Plane, Reason
from agent.errors import BadDocument
from agent.wire.ledgerfile import (
    decode_cluster_ledger,
    decode_job_ledger,
    encode_cluster_ledger,
    encode_job_ledger,
)

JOB = JobId("train/demo")
FULL = JobLedger(
    JOB,
    "solo",
    owner="uid",
    term=3,
    life=Incarnation("0123", frozenset({"aa", "bb", "cc"})),
    last_recovery=2,
    courses=(
        Course(
            Recovery(
                2,
                Phase.SETTLING,
                Policy.RESET,
                Policy.RESTART_REQUEST,
                (ResetDevice(2, 1, NodeName("n1"), 5, ("80C98000",)),),
                NodeName("n1"),
                Millis(1),
                Millis(2),
                Millis(3),
                Millis(4),
                executor=Executor.EXTERNAL,
                shown="unrecovered",
                retry_base=7,
            ),
            ("uid-0",),
            "n1/chip/5/80C98000@1",
            "RestartRequest",
            "trace",
        ),
    ),
    done={"1:0:5:0~RestartRequest~5": Done(Millis(1), Reason.RECOVERY_STARTED)},
    members=(Member("uid-0", "demo-0", NodeName("n1"), (5,), "0"),),
    suspects=(Suspect("uid-0", RescheduleReason.CARD_UNHEALTHY, Millis(1)),),
    retry_times=2,
    quiet={"1:0:6:0~RestartRequest~5": Kept(Millis(61), NodeName("n1"), "a filter")},
    related={"uid-0": Related(FaultKey(NodeName("n1"), Plane.NETWORK, "5", "81078603"), True, Millis(9), "1:0:7:0")},
    records=JobRecords(
        JOB, 4, (RescheduleRecord("I0101 00:00:00", 1, (TaskReason("pod-failed", "p", "n", "0"),)),), "info"
    ),
)


def test_everything_a_job_must_remember_comes_back() -> None:
    assert decode_job_ledger(encode_job_ledger(FULL), "solo", "here") == FULL


def test_what_others_have_beside_our_records_is_not_kept_twice() -> None:
    assert '"extra"' not in encode_job_ledger(FULL)


def test_a_fresh_ledger_comes_back() -> None:
    fresh = JobLedger(JOB, "solo")
    assert decode_job_ledger(encode_job_ledger(fresh), "solo", "here") == fresh


def test_the_same_ledger_gives_the_same_text_whatever_the_order_of_a_set() -> None:
    other = JobLedger(**{name: getattr(FULL, name) for name in JobLedger.__dataclass_fields__})
    assert encode_job_ledger(other) == encode_job_ledger(FULL)
    assert json.loads(encode_job_ledger(FULL))["life"]["members"] == ["aa", "bb", "cc"]


def test_the_cluster_s_ledger_comes_back() -> None:
    ledger = ClusterLedger("solo", 2, Millis(5), {3: (1, 77)}, Millis(9))
    assert decode_cluster_ledger(encode_cluster_ledger(ledger), "solo", "here") == ledger
    assert json.loads(encode_cluster_ledger(ledger))["schema"] == 1


def changed(**given: Any) -> str:
    return json.dumps({**json.loads(encode_job_ledger(FULL)), **given})


BAD = {
    "no JSON": ("{", "the ledger is no JSON"),
    "empty": ("", "the ledger is no JSON"),
    "a list": ("[]", "a ledger of schema 1 is expected"),
    "a newer schema": (changed(schema=2), "a ledger of schema 1 is expected"),
    "no schema": ('{"job":"train/demo","cluster":"solo"}', "a ledger of schema 1 is expected"),
    "another cluster": (changed(cluster="other"), "it belongs to cluster 'other', this agent to 'solo'"),
    "a reason nobody knows": (changed(done={"1 BECAUSE": ["x"]}), "done: 'BECAUSE' is not a valid Reason"),
    "a phase nobody knows": (
        changed(courses=[{"recovery": {"phase": "dancing"}, "pods": [], "fault": "", "level": ""}]),
        "courses/0/recovery",
    ),
    "members that are text": (changed(members="x"), "members"),
    "a missing job": ('{"schema":1,"cluster":"solo"}', "job"),
}


@pytest.mark.parametrize(("text", "told"), BAD.values(), ids=BAD)
def test_a_ledger_that_cannot_be_read_whole_is_refused_with_its_place(text: str, told: str) -> None:
    with pytest.raises(BadDocument) as refused:
        decode_job_ledger(text, "solo", "train/fault-agent-job-demo")
    assert str(refused.value).startswith("train/fault-agent-job-demo: ")
    assert told in str(refused.value)
    assert refused.value.hint


@given(
    text=st.text(max_size=40)
    | st.dictionaries(st.text(max_size=6), st.integers() | st.text(max_size=3)).map(json.dumps)
)
def test_no_text_breaks_the_reader(text: str) -> None:
    with pytest.raises(BadDocument):
        decode_cluster_ledger(text, "solo", "here")


N1 = NodeName("n1")
COUNTS: Counts = {
    NodeName(f"node-{number}"): {"3/80BB8003": Count((Millis(number), Millis(number + 1)), Millis(-1))}
    for number in range(5000)
}


@pytest.mark.parametrize("counts", [{N1: COUNTS[NodeName("node-7")]}, COUNTS], ids=["few", "many"])
def test_everything_the_cluster_must_remember_comes_back(counts: Counts) -> None:
    ledger = ClusterLedger(
        "solo",
        term=2,
        act_since=Millis(1),
        told={0: (0, 5)},
        told_at=Millis(3),
        dropped={"n1/chip/2/80C98009@5": N1},
        separations={N1: (Separation(2, "80BB8003", Millis(5), "1:0:5:0", "t", "1:0:5:20000000", Millis(9)),)},
        freed={"1:0:4:20000000": FaultKey(N1, Plane.CHIP, "2", "80BB8003")},
        counts=counts,
        counts_since=None,
        listed={N1: {2: Millis(7), 3: Millis(0)}},
        machines={N1: "machine-1"},
    )
    text = encode_cluster_ledger(ledger)
    assert decode_cluster_ledger(text, "solo", "here") == ledger
    assert len(text) < 150_000


def test_counts_that_cannot_be_unpacked_are_refused() -> None:
    text = json.dumps({"schema": 1, "cluster": "solo", "counts": "no base64"})
    with pytest.raises(BadDocument) as refused:
        decode_cluster_ledger(text, "solo", "here")
    assert "counts" in str(refused.value)


TIMES = st.integers(0, 10**14).map(Millis)
NAMES = st.text(alphabet="abn019-.", min_size=1, max_size=12).map(NodeName)
KEPT = st.builds(Kept, st.none() | TIMES, NAMES, st.text(max_size=20))
SEPARATIONS = st.builds(
    Separation, st.integers(0, 63), st.text(max_size=9), TIMES, st.text(max_size=9), st.just(""), st.text(max_size=9)
)
RELATED = st.builds(
    Related,
    st.builds(FaultKey, NAMES, st.sampled_from(Plane), st.text(max_size=5), st.text(max_size=9)),
    st.booleans(),
    TIMES,
)
COUNT = st.builds(Count, st.lists(TIMES, max_size=5).map(tuple), st.integers(-1, 10**14).map(Millis))


OCCURRENCES = st.builds(
    Occurrence,
    st.text(max_size=9).map(OccurrenceId),
    st.builds(FaultKey, NAMES, st.sampled_from(Plane), st.text(max_size=5), st.text(max_size=9)),
    TIMES,
    st.none() | TIMES,
    st.text(max_size=9),
    devices=st.lists(st.integers(0, 63), max_size=3).map(tuple),
)


@given(
    st.dictionaries(st.text(max_size=20), KEPT),
    st.dictionaries(st.text(max_size=9), RELATED),
    st.dictionaries(st.text(max_size=9), OCCURRENCES),
)
def test_whatever_the_rules_keep_of_a_job_comes_back(
    quiet: dict[str, Kept], related: dict[str, Related], waiting: dict[str, Occurrence]
) -> None:
    ledger = JobLedger(JOB, "solo", quiet=quiet, related=related, waiting=waiting)
    assert decode_job_ledger(encode_job_ledger(ledger), "solo", "here") == ledger


@given(
    st.dictionaries(NAMES, st.lists(SEPARATIONS, max_size=3).map(tuple)),
    st.dictionaries(NAMES, st.dictionaries(st.text(max_size=12), COUNT)),
    st.dictionaries(NAMES, st.dictionaries(st.integers(0, 63), TIMES, max_size=4)),
)
def test_whatever_the_rules_keep_of_the_cluster_comes_back(
    separations: dict[NodeName, tuple[Separation, ...]],
    counts: dict[NodeName, dict[str, Count]],
    listed: dict[NodeName, dict[int, Millis]],
) -> None:
    ledger = ClusterLedger("solo", separations=separations, counts=counts, listed=listed)
    assert decode_cluster_ledger(encode_cluster_ledger(ledger), "solo", "here") == ledger
