"""One job seen whole: its life, its ranks, its placement."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.jobs import FindingCode, Pod, PodGroup, RankTableFacts, ServerFacts
from agent.domain.jobs.view import (
    Incarnation,
    RankLookup,
    claim_findings,
    describe,
    index_rank,
    next_incarnation,
    pod_digest,
    pod_findings,
    rank_of,
)
from agent.domain.vocab import NodeName

N1 = NodeName("n1")


STANDARD = Pod(
    "train",
    "p0",
    "uid-p0",
    node=N1,
    phase="Running",
    group="g",
    devices=(0, 1),
    rank_index=0,
    host_ip="10.0.0.1",
    pod_ip="192.168.0.1",
)


def pod(name: str = "p0", **values: Any) -> Pod:
    return replace(STANDARD, **({"name": name, "uid": f"uid-{name}"} | values))


def test_a_life_goes_on_while_one_of_its_pods_does() -> None:
    first = next_incarnation(None, ["a", "b"], ["a", "b"])
    second = next_incarnation(first, ["a", "c"], ["a", "c"])
    assert second == Incarnation(first.id, frozenset({"a", "c"}))


def test_pods_replaced_one_by_one_begin_no_new_life() -> None:
    life = first = next_incarnation(None, ["a", "b"], ["a", "b"])
    for live in (["c", "b"], ["c", "d"], ["e", "d"]):
        life = next_incarnation(life, live, live)
    assert life.id == first.id


def test_a_new_life_begins_when_no_pod_of_the_last_is_left() -> None:
    first = next_incarnation(None, ["a", "b"], ["a", "b"])
    second = next_incarnation(first, ["c", "d"], ["c", "d"])
    assert second.id != first.id
    assert second.members == {"c", "d"}


def test_a_new_life_waits_for_the_last_old_pod_to_go() -> None:
    first = next_incarnation(None, ["a", "b"], ["a", "b"])
    meanwhile = next_incarnation(first, ["b", "c", "d"], ["c", "d"])
    after = next_incarnation(meanwhile, ["c", "d"], ["c", "d"])
    assert meanwhile == first
    assert after.id != first.id


@settings(max_examples=50)
@given(st.sets(st.text(min_size=1, max_size=4), min_size=1))
def test_a_lifes_id_does_not_hang_on_the_order_of_pods(names: set[str]) -> None:
    forward, back = sorted(names), sorted(names, reverse=True)
    assert next_incarnation(None, forward, forward) == next_incarnation(None, back, back)


def test_a_digest_is_short_and_the_same_everywhere() -> None:
    # blake2s of the text, 6 bytes (hashlib, fixed by RFC 7693)
    assert len(pod_digest("uid-1")) == 12
    assert pod_digest("uid-1") == pod_digest("uid-1") != pod_digest("uid-2")


@pytest.mark.parametrize(
    ("server", "rank"),
    [
        (ServerFacts("uid-p0", "9.9.9.9", "8.8.8.8", {0: 6, 1: 7}), 7),
        (ServerFacts("old-uid", "10.0.0.1", "8.8.8.8", {0: 6, 1: 7}), 7),
        (ServerFacts("10.0.0.1", "", "", {0: 6, 1: 7}), 7),
        (ServerFacts("old-uid", "9.9.9.9", "192.168.0.1", {0: 6, 1: 7}), 7),
        (ServerFacts("old-uid", "9.9.9.9", "8.8.8.8", {0: 6, 1: 7}), None),
        (ServerFacts("uid-p0", "10.0.0.1", "", {0: 6}), None),
    ],
    ids=["uid", "host", "server-named-by-host", "container", "none", "device-not-listed"],
)
def test_a_server_is_matched_by_uid_then_host_then_container(server: ServerFacts, rank: int | None) -> None:
    assert RankLookup(RankTableFacts((server,))).rank(pod(), 1) == rank


def test_a_uid_goes_before_a_host_that_two_servers_share() -> None:
    servers = (ServerFacts("uid-p1", "10.0.0.1", "", {2: 2, 3: 3}), ServerFacts("uid-p0", "10.0.0.1", "", {0: 0, 1: 1}))
    lookup = RankLookup(RankTableFacts(servers))
    assert lookup.rank(pod("p0"), 1) == 1
    assert lookup.rank(pod("px", uid="new", devices=(2, 3)), 3) == 3


def test_a_pod_without_addresses_matches_no_server_without_addresses() -> None:
    lookup = RankLookup(RankTableFacts((ServerFacts("x", "", "", {0: 0}),)))
    assert lookup.rank(pod(host_ip="", pod_ip=""), 0) is None


@pytest.mark.parametrize(
    ("index", "devices", "device", "rank"),
    [(0, (0, 1, 2, 3), 2, 2), (1, (0, 1, 2, 3), 2, 6), (3, (4, 9), 9, 7), (None, (0,), 0, None), (0, (0,), 5, None)],
)
def test_a_rank_counts_from_the_rank_index(
    index: int | None, devices: tuple[int, ...], device: int, rank: int | None
) -> None:
    assert index_rank(pod(rank_index=index, devices=devices), device) == rank


def test_the_rank_table_wins_and_the_disagreement_is_a_finding() -> None:
    lookup = RankLookup(RankTableFacts((ServerFacts("uid-p0", ranks={0: 8, 1: 9}),)))
    view = describe(PodGroup("train", "g", owner_name="o"), [pod()], lookup, None)
    assert rank_of(pod(), 1, lookup) == 9
    assert [(f.code, f.object) for f in view.findings] == [(FindingCode.RANK_DISAGREES, "Pod train/p0")]
    assert view.findings[0].reason == "device 0: rank 8 in the rank table, 0 by hccl/rankIndex; the table counts"


def test_a_pod_without_any_rank_is_a_finding_with_its_devices() -> None:
    view = describe(PodGroup("train", "g", owner_name="o"), [pod(rank_index=None)], None, None)
    assert [(f.code, f.reason) for f in view.findings] == [
        (
            FindingCode.POD_WITHOUT_RANK,
            "device 0, 1: in no completed rank table, and the pod has no hccl/rankIndex",
        )
    ]


@pytest.mark.parametrize(
    ("group", "pods", "table", "codes"),
    [
        (PodGroup("train", "g", owner_name="o", phase="Running"), 0, None, ["GROUP_WITHOUT_PODS"]),
        (PodGroup("train", "g", owner_name="o", phase="Pending"), 0, None, []),
        (PodGroup("train", "g"), 1, None, ["GROUP_WITHOUT_OWNER"]),
        (PodGroup("train", "g", owner_name="o"), 1, "initializing", ["RANK_TABLE_NOT_READY"]),
    ],
    ids=["no-pods", "no-pods-yet", "no-owner", "table-not-ready"],
)
def test_what_is_wrong_with_a_group_is_named(group: PodGroup, pods: int, table: str | None, codes: list[str]) -> None:
    view = describe(group, [pod(f"p{n}") for n in range(pods)], table, None)
    assert [f.code.value for f in view.findings] == codes


@pytest.mark.parametrize(
    ("min_member", "live", "members", "placed"),
    [(2, 2, 0, True), (2, 1, 0, False), (0, 1, 0, True), (0, 1, 2, False), (0, 2, 2, True), (1, 0, 0, False)],
)
def test_a_job_is_placed_with_min_member_pods_or_as_many_as_it_had(
    min_member: int, live: int, members: int, placed: bool
) -> None:
    last = Incarnation("x", frozenset(str(n) for n in range(members))) if members else None
    waiting = pod("waiting", node=None, devices=())
    failed = pod("failed", phase="Failed")
    pods = [waiting, failed, *(pod(f"p{n}") for n in range(live))]
    assert describe(PodGroup("train", "g", min_member=min_member), pods, None, last).job.placed is placed


@pytest.mark.parametrize(
    ("phase", "pods", "finished"),
    [
        ("Completed", ("Running",), True),
        ("Running", ("Succeeded", "Succeeded"), True),
        ("Running", ("Succeeded", "Running"), False),
        ("Running", ("Failed",), False),
        ("Running", (), False),
    ],
    ids=["phase", "all-succeeded", "one-runs", "failed", "no-pods"],
)
def test_a_job_is_finished_when_its_phase_or_all_its_pods_say_so(
    phase: str, pods: tuple[str, ...], finished: bool
) -> None:
    made = [pod(f"p{n}", phase=state) for n, state in enumerate(pods)]
    assert describe(PodGroup("train", "g", phase=phase), made, None, None).job.finished is finished


def test_pods_that_share_a_device_by_slices_are_no_finding() -> None:
    whole, piece, other = pod("a"), pod("b", virtual=True), pod("c", virtual=True)
    assert list(claim_findings(N1, 0, [piece, other])) == []
    assert [(f.code, f.object, f.reason) for f in claim_findings(N1, 0, [whole, piece])] == [
        (FindingCode.DEVICE_CLAIMED_TWICE, "Node n1", "device 0 is held by Pod train/a and Pod train/b")
    ]


def test_a_pods_own_problems_are_findings_until_it_is_gone() -> None:
    codes = [(f.code, f.reason) for f in pod_findings(pod(problems=("hccl/rankIndex: bad",)), grouped=True)]
    assert codes == [(FindingCode.ANNOTATION_BAD, "hccl/rankIndex: bad")]
    assert [f.code for f in pod_findings(pod(), grouped=False)] == [FindingCode.POD_WITHOUT_GROUP]
    assert list(pod_findings(pod(phase="Failed"), grouped=False)) == []
