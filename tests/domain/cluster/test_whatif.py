"""What if: faults that need not be there, asked as the coordinator asks, with what was assumed named beside it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from a3cluster import DEMO, OTHER_JOB, the_a3, the_other
from a3table import GOOD_ENV, NOW, a3_table, without_odd
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.app.world import World
from agent.domain.cluster import ClusterBook, Limits
from agent.domain.cluster.whatif import Assumed, Supposed, WhatIf, dies_of, what_if, windows
from agent.domain.events import ActiveFault, FaultKey, Link, NodeReport, Occurrence
from agent.domain.hccl import env_from
from agent.domain.ledger import Done, Kept
from agent.domain.rail import HoldState, Reservation
from agent.domain.rail.case import BorrowPolicy, CommMode, Strictness
from agent.domain.rail.reservations import RailLedger
from agent.domain.rail.tables import NamedTable
from agent.domain.rail.words import Borrow, FaultKind, Observe, RailFault, advice_for
from agent.domain.vocab import JobId, Millis, NodeName, OccurrenceId, Plane, Reason, Source

LINK = "81078603"
REAL = "huawei.com/AscendReal"
UP = Assumed(links_up=True)
NOBODY: frozenset[JobId] = frozenset()


def a_book(objects: Iterable[Mapping[str, Any]], limits: Limits | None = None) -> ClusterBook:
    book = ClusterBook("c", limits or Limits())
    World(book).replace(objects, [])
    return book


def key(node: str = "n0", where: int | str = 0, code: str = LINK, plane: Plane = Plane.NETWORK) -> FaultKey:
    return FaultKey(NodeName(node), plane, str(where), code)


def link(node: str = "n0", device: int = 0, at: int | None = None) -> Supposed:
    return Supposed(key(node, device), None if at is None else Millis(at))


def report(node: str, *occurrences: Occurrence, links: Mapping[int, Link] | None = None) -> NodeReport:
    active = tuple(
        ActiveFault(one.key, one.begin, one.level, "table", one.id, Source.HCCN, devices=one.devices)
        for one in occurrences
        if one.end is None
    )
    return NodeReport(
        "c", NodeName(node), 1, 1, "i", caught_up=True, active=active, occurrences=occurrences, links=links or {}
    )


def occurred(node: str, device: int, begin: int, end: int | None = None, id_: str = "1:0:5:0") -> Occurrence:
    over = None if end is None else Millis(end)
    return Occurrence(OccurrenceId(id_), key(node, device), Millis(begin), over, "NotHandleFault", devices=(device,))


def asked(book: ClusterBook, *supposed: Supposed, assumed: Assumed = UP) -> list[WhatIf]:
    return list(what_if(book, supposed, assumed, NOBODY, NOW))


def said(answers: Iterable[WhatIf]) -> list[tuple[str, str, int, str]]:
    return [(a.question.job, type(a.answer).__name__, a.answer.rule, str(a.answer.code)) for a in answers]


def test_a_link_of_which_nothing_is_reported_is_taken_to_be_down_for_just_longer_than_is_waited() -> None:
    (answer,) = asked(a_book(the_a3()), link())
    (fault,) = answer.question.faults
    assert (fault.started_at, fault.kind, fault.event) == (NOW - 30_065, FaultKind.RDMA_DOWN, "")
    assert fault.ref == f"n0/network/0/81078603@{NOW - 30_065}"
    assert said([answer]) == [(DEMO, "Borrow", 28, "BORROW")]
    assert answer.assumed == ("the links of 15 devices of which nothing fresh is known are up",)
    assert len(answer.plan) == 12


def test_without_an_assumption_what_nobody_has_seen_refuses() -> None:
    (answer,) = asked(a_book(the_a3()), link(), assumed=Assumed())
    assert said([answer]) == [(DEMO, "Refuse", 22, "BACKUP_LINK_UNKNOWN")]
    assert answer.assumed == ()


def test_a_young_fault_is_observed_until_it_has_outlasted_the_retransmission() -> None:
    (answer,) = asked(a_book(the_a3()), link(at=NOW - 10_000))
    assert isinstance(answer.answer, Observe)
    assert answer.answer.until == NOW - 10_000 + 30_065


def test_a_fault_that_is_reported_is_asked_with_its_own_time_and_occurrence() -> None:
    book = a_book(the_a3())
    book.reports[NodeName("n0")] = report("n0", occurred("n0", 0, NOW - 50_000))
    (answer,) = asked(book, link())
    (fault,) = answer.question.faults
    assert (fault.started_at, fault.event) == (NOW - 50_000, "1:0:5:0")


def test_a_fault_that_is_active_for_longer_than_its_occurrence_is_repeated_is_known_too() -> None:
    book = a_book(the_a3())
    told = report("n0", occurred("n0", 0, NOW - 5_000_000))
    book.reports[NodeName("n0")] = replace(told, occurrences=())
    for supposed in (link(), link(at=NOW - 5_000_000)):
        (fault,) = asked(book, supposed)[0].question.faults
        assert (fault.started_at, fault.ended_at, fault.event) == (NOW - 5_000_000, None, "1:0:5:0")
    (other,) = asked(book, link(at=NOW - 60_000))[0].question.faults
    assert (other.started_at, other.event) == (NOW - 60_000, "")


def test_a_fault_that_has_ended_is_nothing_to_borrow_for_and_one_named_without_a_time_is_a_new_one() -> None:
    book = a_book(the_a3())
    book.reports[NodeName("n0")] = report("n0", occurred("n0", 0, NOW - 50_000, NOW - 10_000))
    assert said(asked(book, link(at=NOW - 50_000))) == [(DEMO, "Noop", 3, "CLEAR")]
    assert said(asked(book, link())) == [(DEMO, "Borrow", 28, "BORROW")]


def test_a_die_with_an_active_link_fault_is_down_until_somebody_has_seen_it_up_since() -> None:
    book = a_book(the_a3())
    since = occurred("n0", 1, NOW - 600_000)
    book.reports[NodeName("n0")] = report("n0", since, links={1: Link("up", NOW)})
    assert said(asked(book, link())) == [(DEMO, "Borrow", 28, "BORROW")]
    book.reports[NodeName("n0")] = report("n0", since, links={1: Link("up", Millis(NOW - 600_001))})
    assert said(asked(book, link())) == [(DEMO, "Refuse", 21, "BACKUP_LINK_DOWN")]
    book.reports[NodeName("n0")] = report("n0", since)
    assert said(asked(book, link())) == [(DEMO, "Refuse", 21, "BACKUP_LINK_DOWN")]
    named = Assumed(links_up=True, links={(NodeName("n0"), 1): "up"})
    (assumed,) = asked(book, link(), assumed=named)
    assert said([assumed]) == [(DEMO, "Borrow", 28, "BORROW")]
    assert assumed.assumed[0] == "the link of device 1 of n0 is up"


def test_a_link_that_is_assumed_down_is() -> None:
    answers = asked(a_book(the_a3()), link(), assumed=Assumed({(NodeName("n3"), 1): "down"}, links_up=True))
    assert said(answers) == [(DEMO, "Refuse", 26, "NO_COMMON_RAIL")]


def test_a_leaf_switch_gives_each_job_one_plan() -> None:
    book = a_book([*the_a3(without_odd, devices=(0, 2)), *the_other()])
    even, odd = (dies_of(book, NodeName("n0"), parity) for parity in (0, 1))
    assert (even, odd) == ((0, 2), (1, 3))
    answers = asked(book, *(link("n0", die) for die in even))
    assert [(a.question.job, {f.kind for f in a.question.faults}) for a in answers] == [(DEMO, {FaultKind.LEAF_SWITCH})]
    both = asked(book, *(link("n0", die) for die in (*even, *odd)))
    assert [a.question.job for a in both] == sorted([DEMO, OTHER_JOB])
    whole = asked(a_book(the_a3()), *(link("n0", die) for die in even))
    (plan,) = whole
    assert isinstance(plan.answer, Borrow)
    assert [(move.rank, move.faulted) for move in plan.answer.moves] == [
        (0, True),
        (2, True),
        (8, False),
        (10, False),
        (12, False),
        (14, False),
    ]


def test_faults_of_two_jobs_are_known_to_both() -> None:
    """The even dies are one job's, the odd ones another's: each has lost the way out of the other."""
    rootinfo = {"fault-agent/comm-mode": "rootinfo"}
    book = a_book([*the_a3(without_odd, devices=(0, 2), annotations=rootinfo), *the_other()])
    seen = replace(UP, tables=())
    alone = asked(book, link("n0", 0), assumed=seen)
    assert said(alone) == [(DEMO, "Refuse", 18, "BACKUP_NOT_VISIBLE")]
    both = asked(book, link("n0", 0), link("n0", 1), assumed=seen)
    assert [(NodeName("n0"), 1) in one.question.down for one in both] == [True, False]
    assert [(NodeName("n0"), 0) in one.question.down for one in both] == [False, True]


def test_a_leaf_switch_that_takes_one_die_of_each_of_two_jobs_is_told_to_both() -> None:
    """Job demo holds NPU 0 of each node, job other NPU 1."""
    other = [
        {
            **one,
            "metadata": {
                **one["metadata"],
                "annotations": {**one["metadata"]["annotations"], REAL: "Ascend910-2,Ascend910-3"},
            },
        }
        if one["kind"] == "Pod"
        else one
        for one in the_other()
    ]
    halves = a_book([*the_a3(devices=(0, 1)), *other])
    halves_said = [
        (one.question.job, [fault.kind for fault in one.question.faults])
        for one in asked(halves, link("n0", 0), link("n0", 2))
    ]
    assert halves_said == [(DEMO, [FaultKind.LEAF_SWITCH]), (OTHER_JOB, [FaultKind.LEAF_SWITCH])]


def test_a_leaf_fault_is_one_also_when_the_other_dies_are_another_jobs() -> None:
    """n0 has two even dies; die 2 of another job went down a second after die 0."""
    book = a_book(the_a3())
    book.reports[NodeName("n0")] = report(
        "n0", occurred("n0", 0, NOW - 50_000), occurred("n0", 2, NOW - 49_000, id_="1:0:6:0")
    )
    (answer,) = asked(book, link())
    assert [fault.kind for fault in answer.question.faults] == [FaultKind.LEAF_SWITCH]
    book.reports[NodeName("n0")] = report(
        "n0", occurred("n0", 0, NOW - 50_000), occurred("n0", 2, NOW - 46_999, id_="1:0:6:0")
    )
    (apart,) = asked(book, link())
    assert [fault.kind for fault in apart.question.faults] == [FaultKind.RDMA_DOWN]


def test_windows_are_asked_one_after_the_other_on_what_the_last_left() -> None:
    """n1's die 0 fails 3.001 s after n0's: its own window, whose peers n2 and n3 are held by then."""
    first, second = link("n0", 0, NOW - 60_000), link("n1", 0, NOW - 56_999)
    answers = asked(a_book(the_a3()), second, first)
    assert said(answers) == [(DEMO, "Borrow", 28, "BORROW"), (DEMO, "Refuse", 25, "PEER_ALREADY_BORROWED")]
    joint = asked(a_book(the_a3()), link("n1", 0, NOW - 57_000), first)
    assert said(joint) == [(DEMO, "Borrow", 28, "BORROW")]
    lax = a_book(the_a3(), Limits(strictness=Strictness.SOURCE))
    assert said(asked(lax, second, first)) == [(DEMO, "Borrow", 28, "BORROW")] * 2


def test_a_fault_of_a_later_window_is_there_too_when_the_first_is_asked() -> None:
    answers = asked(a_book(the_a3()), link("n0", 0, NOW - 60_000), link("n0", 1, NOW - 50_000))
    assert said(answers) == [(DEMO, "Refuse", 21, "BACKUP_LINK_DOWN")] * 2


def test_the_book_is_left_as_it_was() -> None:
    book = a_book(the_a3())
    before = book.rails
    assert said(asked(book, link())) == [(DEMO, "Borrow", 28, "BORROW")]
    assert book.rails is before
    assert before == RailLedger()


def test_what_another_job_holds_counts() -> None:
    book = a_book(the_a3())
    held = Reservation(
        "p/n3/0", "p", JobId(OTHER_JOB), "u", "i", NodeName("n3"), 0, 0, 1, 9, NOW, 28, "BORROW", HoldState.ADVISED
    )
    book.rails = RailLedger((held,))
    assert said(asked(book, link())) == [(DEMO, "Refuse", 25, "PEER_ALREADY_BORROWED")]
    book.rails = None
    assert said(asked(book, link())) == [(DEMO, "Refuse", 2, "LEDGER_UNREADABLE")]


BAD: list[tuple[str, list[dict[str, Any]], list[Supposed], Assumed, tuple[str, str, int, str]]] = [
    ("unknown node", the_a3(), [link("n9")], UP, ("", "Refuse", 1, "UNKNOWN_TARGET")),
    ("device no job holds", the_a3(), [link("n0", 4)], UP, ("", "Refuse", 1, "UNKNOWN_TARGET")),
    (
        "device not in the table",
        the_a3(lambda d: d["server_list"][0]["device"].pop()),
        [link("n0", 3)],
        UP,
        (DEMO, "Refuse", 1, "UNKNOWN_TARGET"),
    ),
    (
        "odd last die",
        the_a3(
            lambda d: [server["device"].pop() for server in d["server_list"]],
            devices=(0, 1, 2),
            annotations={"fault-agent/comm-mode": "ranktable"},
        ),
        [link("n0", 2)],
        UP,
        (DEMO, "Refuse", 16, "BACKUP_NOT_PAIR"),
    ),
    (
        "table 2.0",
        the_a3(lambda d: d.update({"version": "2.0", "rank_count": 1, "rank_list": []})),
        [link()],
        UP,
        (DEMO, "Refuse", 5, "UNSUPPORTED_PRODUCT"),
    ),
    ("A2 server", the_a3(product="module-910b-8"), [link()], UP, (DEMO, "Refuse", 5, "UNSUPPORTED_PRODUCT")),
    ("unknown product", the_a3(product=""), [link()], UP, (DEMO, "Refuse", 5, "UNSUPPORTED_PRODUCT")),
    (
        "HCCS fault",
        the_a3(),
        [Supposed(key("n1", "3.17", "[0x00f10509,132332,npu,na]", Plane.SWITCH))],
        UP,
        (DEMO, "Delegate", 6, "HCCS_PATH_SWITCH"),
    ),
    (
        "chip fault",
        the_a3(),
        [Supposed(key("n1", 2, "80E18402", Plane.CHIP))],
        UP,
        (DEMO, "Refuse", 7, "NOT_RAIL_FAULT"),
    ),
    (
        "fault of a node's part",
        the_a3(),
        [Supposed(key("n1", "CPU.0", "0000001D", Plane.NODE))],
        UP,
        (DEMO, "Refuse", 7, "NOT_RAIL_FAULT"),
    ),
    (
        "another fault of the network plane",
        the_a3(),
        [Supposed(key("n1", 0, "81078605"))],
        UP,
        (DEMO, "Refuse", 7, "NOT_RAIL_FAULT"),
    ),
    (
        "completion error",
        the_a3(),
        [Supposed(key("n1", 2, "8C1F8608", Plane.CHIP))],
        UP,
        (DEMO, "Borrow", 28, "BORROW"),
    ),
    (
        "leaf fault with one broken pair",
        the_a3(),
        [link("n0", 0), link("n0", 2)],
        Assumed({(NodeName("n0"), 3): "down"}, links_up=True),
        (DEMO, "Refuse", 21, "BACKUP_LINK_DOWN"),
    ),
    (
        "leaf fault with one broken pair at the other end",
        the_a3(),
        [link("n0", 0), link("n0", 2)],
        Assumed({(NodeName("n2"), 3): "down"}, links_up=True),
        (DEMO, "Refuse", 26, "NO_COMMON_RAIL"),
    ),
    ("missing env", the_a3(env=None), [link()], UP, (DEMO, "Refuse", 10, "ENV_UNKNOWN")),
    ("no variable set", the_a3(env={}), [link()], UP, (DEMO, "Refuse", 11, "RETRY_L2_OFF")),
    (
        "a table that contradicts itself",
        the_a3(lambda d: d["server_list"][1]["device"][0].__setitem__("rank_id", "0")),
        [link()],
        UP,
        (DEMO, "Refuse", 1, "TABLES_CONTRADICT"),
    ),
    (
        "tables that contradict each other",
        the_a3(),
        [link()],
        replace(
            UP,
            tables=(
                NamedTable("one", a3_table(lambda d: d["server_list"].reverse())),
                NamedTable("two", a3_table(without_odd)),
            ),
        ),
        (DEMO, "Refuse", 1, "TABLES_CONTRADICT"),
    ),
    (
        "a table that is not completed",
        the_a3(lambda d: d.__setitem__("status", "initializing")),
        [link()],
        UP,
        (DEMO, "Refuse", 1, "UNKNOWN_TARGET"),
    ),
    (
        "a table of the operator, which names no backup and so no mode",
        the_a3(lambda d: [item.pop("backup_device_ip") for s in d["server_list"] for item in s["device"]]),
        [link()],
        UP,
        (DEMO, "Refuse", 14, "COMM_MODE_UNKNOWN"),
    ),
]


@pytest.mark.parametrize(("objects", "faults", "assumed", "expected"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_what_is_wrong_gets_its_code(
    objects: list[dict[str, Any]], faults: list[Supposed], assumed: Assumed, expected: tuple[str, str, int, str]
) -> None:
    assert said(asked(a_book(objects), *faults, assumed=assumed)) == [expected]


def test_what_is_wrong_with_a_table_is_told() -> None:
    (twice,) = asked(a_book(the_a3(lambda d: d["server_list"][1]["device"][0].__setitem__("rank_id", "0"))), link())
    told = "the rank table of ConfigMap train/rings-config-demo contradicts itself: "
    assert twice.answer.detail.startswith(f"{told}/server_list/1/device/0/rank_id: RANK_DUP")
    (early,) = asked(a_book(the_a3(lambda d: d.__setitem__("status", "initializing"))), link())
    assert "STATUS_NOT_READY: status is 'initializing'" in early.answer.detail


def test_a_process_that_holds_one_die_of_its_npu_does_not_see_the_other() -> None:
    """Two pods of one job on a node, each with one die of the NPU: what one sees the other does not."""
    objects = the_a3(annotations={"fault-agent/comm-mode": "rootinfo"})
    split = [one for one in objects if one["kind"] != "Pod"]
    for pod in (one for one in objects if one["kind"] == "Pod"):
        for name, devices in (("a", "Ascend910-0,Ascend910-2"), ("b", "Ascend910-1,Ascend910-3")):
            meta = pod["metadata"]
            notes = {**meta["annotations"], "huawei.com/AscendReal": devices}
            split.append(
                {**pod, "metadata": {**meta, "name": f"{meta['name']}{name}", "uid": name, "annotations": notes}}
            )
    assert said(asked(a_book(split), link())) == [(DEMO, "Refuse", 18, "BACKUP_NOT_VISIBLE")]


def test_what_a_process_sees_is_as_the_assumed_environment_says() -> None:
    scripts = a_book(the_a3(env=None))
    assert said(asked(scripts, link())) == [(DEMO, "Refuse", 10, "ENV_UNKNOWN")]
    good = replace(UP, env=env_from(GOOD_ENV, visible=True))
    assert said(asked(scripts, link(), assumed=good)) == [(DEMO, "Borrow", 28, "BORROW")]
    narrow = replace(UP, env=env_from({**GOOD_ENV, "ASCEND_RT_VISIBLE_DEVICES": "0,2,3"}, visible=True))
    for book in (scripts, a_book(the_a3())):
        assert said(asked(book, link(), assumed=narrow)) == [(DEMO, "Refuse", 18, "BACKUP_NOT_VISIBLE")]


def test_everything_that_is_assumed_is_named() -> None:
    env = env_from({"HCCL_OP_RETRY_ENABLE": "L2:1"}, visible=True)
    assumed = Assumed(
        links_up=True,
        env=env,
        tables=(NamedTable("hccl.json", a3_table()),),
        errors_of=lambda _: "2 errors, first this",
        comm_mode=CommMode.RANKTABLE,
        peers={0: (8,), 8: (0,)},
        host_plane_ok=True,
        op_constraints_ok=True,
        retries_used=0,
        strictness=Strictness.SOURCE,
        policy=BorrowPolicy.PER_COMMUNICATOR,
    )
    (answer,) = asked(a_book(the_a3(env=None)), link(), assumed=assumed)
    assert isinstance(answer.answer, Borrow)
    assert answer.answer.links == ((0, 8),)
    assert [str(note.code) for note in answer.answer.warnings] == ["BANDWIDTH_HALVED", *["EXPANSION_DEFAULT"] * 2]
    assert answer.assumed == (
        "the links of 15 devices of which nothing fresh is known are up",
        "the environment is as --env states it",
        "the rank table is as --table gives it, in the place of the job's own",
        "the rank table is taken although it has 2 errors, first this; see fault-agent ranktable check",
        "ranks talk over RDMA to the peers that are given",
        "host plane is up: yes",
        "operator can be executed again: yes",
        "retries used: 0",
        "strictness: source",
        "policy: per_communicator",
        "communication mode: ranktable",
    )
    crossed = asked(a_book(the_a3()), link(), assumed=replace(UP, cross_die_traffic=True))
    assert said(crossed) == [(DEMO, "Refuse", 23, "CROSS_DIE_TRAFFIC")]


def test_a_given_table_takes_the_place_of_the_jobs_own_whatever_that_is() -> None:
    for change in (
        None,
        without_odd,
        lambda d: d["server_list"][1]["device"][0].__setitem__("rank_id", "0"),
        lambda d: d.__setitem__("status", "initializing"),
    ):
        given = replace(UP, tables=(NamedTable("hccl.json", a3_table()),))
        assert said(asked(a_book(the_a3(change)), link(), assumed=given)) == [(DEMO, "Borrow", 28, "BORROW")]


def test_a_given_table_that_contradicts_itself_is_refused_as_the_jobs_own_is() -> None:
    given = replace(UP, tables=(NamedTable("x.json", a3_table(), "/a: RANK_DUP: rank 0 is given twice"),))
    (answer,) = asked(a_book(the_a3()), link(), assumed=given)
    assert said((answer,)) == [(DEMO, "Refuse", 1, "TABLES_CONTRADICT")]
    told = "the rank table of x.json contradicts itself: /a: RANK_DUP: rank 0 is given twice"
    assert answer.answer.detail == told
    own = the_a3(lambda d: d["server_list"][1]["device"][0].__setitem__("rank_id", "0"))
    (other,) = asked(a_book(own), link(), assumed=UP)
    assert advice_for(answer.answer) == advice_for(other.answer)
    assert advice_for(other.answer).startswith("Put the rank table right: fault-agent ranktable check")


def test_the_communication_mode_may_be_said() -> None:
    bare = the_a3(lambda d: [item.pop("backup_device_ip") for s in d["server_list"] for item in s["device"]])
    rootinfo = asked(a_book(bare), link(), assumed=replace(UP, comm_mode=CommMode.ROOTINFO))
    assert said(rootinfo) == [(DEMO, "Borrow", 28, "BORROW")]
    table = asked(a_book(bare), link(), assumed=replace(UP, comm_mode=CommMode.RANKTABLE))
    assert said(table) == [(DEMO, "Refuse", 15, "NO_BACKUP_CONFIGURED")]


def test_only_the_job_that_is_named_is_asked() -> None:
    book = a_book([*the_a3(without_odd, devices=(0, 2)), *the_other()])
    other = frozenset({JobId(OTHER_JOB)})
    (answer,) = what_if(book, [link("n0", 0)], UP, other, NOW)
    assert said([answer]) == [(OTHER_JOB, "Refuse", 1, "UNKNOWN_TARGET")]
    assert answer.answer.detail == f"device 0 of n0 belongs to {DEMO}"


def test_faults_fall_into_windows_by_the_first_of_each() -> None:
    faults = [RailFault(str(at), NodeName("n0"), 0, FaultKind.RDMA_DOWN, Millis(at)) for at in (9000, 0, 3000, 6001)]
    assert [[int(one.ref) for one in window] for window in windows(faults, Millis(3000))] == [[0, 3000], [6001, 9000]]
    assert windows([], Millis(3000)) == []


BOOKS = {strictness: a_book(the_a3(), Limits(strictness=strictness)) for strictness in Strictness}
suppositions = st.lists(
    st.builds(
        link,
        st.sampled_from(["n0", "n1", "n2", "n3", "n9"]),
        st.integers(0, 4),
        st.sampled_from([None, NOW - 60_000, NOW - 58_000, NOW - 50_000, NOW - 1000]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=60)
@given(suppositions, st.sampled_from(list(Strictness)), st.randoms(use_true_random=False))
def test_the_answers_do_not_depend_on_the_order_of_the_words_and_are_the_same_again(
    faults: list[Supposed], strictness: Strictness, chance: Any
) -> None:
    book = BOOKS[strictness]
    once = asked(book, *faults)
    mixed = list(faults)
    chance.shuffle(mixed)
    assert asked(book, *mixed) == asked(book, *faults) == once
    npus = [
        (move.node, move.npu, move.device_from)
        for one in once
        if isinstance(one.answer, Borrow)
        for move in one.answer.moves
    ]
    assert len({(node, npu) for node, npu, _ in npus}) == len(set(npus))
    if strictness is Strictness.STRICT:
        assert len(npus) == len(set(npus))


@pytest.mark.parametrize(
    ("mark", "code"),
    [
        pytest.param(None, "TOO_OLD", id="nobody-has-judged-it"),
        pytest.param(Reason.TOO_OLD, "TOO_OLD", id="it-expired"),
        pytest.param(Reason.RAIL_REFUSED, "BORROW", id="it-was-judged-in-time"),
    ],
)
def test_a_fault_expires_that_nobody_has_judged_within_the_age_of_an_event(mark: Reason | None, code: str) -> None:
    book = a_book(the_a3())
    book.reports[NodeName("n0")] = report("n0", occurred("n0", 0, NOW - 900_001))
    if mark is not None:
        done = {"rail~1:0:5:0": Done(Millis(NOW - 800_000), mark)}
        book.ledgers[JobId(DEMO)] = replace(book.ledger(JobId(DEMO)), done=done)
    (answer,) = asked(book, link())
    assert answer.answer.code == code


@pytest.mark.parametrize(
    ("mark", "acts_since", "code"),
    [
        pytest.param(None, NOW - 59_999, "BEFORE_ACT", id="the-agent-acts-since-after-it"),
        pytest.param(None, NOW - 60_000, "BORROW", id="it-began-at-that-moment"),
        pytest.param(Reason.BEFORE_ACT, NOW - 59_999, "BEFORE_ACT", id="the-agent-has-said-so"),
        pytest.param(Reason.RAIL_REFUSED, NOW - 59_999, "BORROW", id="it-was-judged-in-an-earlier-time-of-acting"),
        pytest.param(None, NOW + 1, "BEFORE_ACT", id="nothing-is-too-young-for-it"),
    ],
)
def test_a_fault_that_began_before_the_agent_acted_is_answered_as_that(
    mark: Reason | None, acts_since: int, code: str
) -> None:
    book = a_book(the_a3())
    book.cluster = replace(book.cluster, act_since=Millis(acts_since))
    book.reports[NodeName("n0")] = report("n0", occurred("n0", 0, NOW - 60_000))
    if mark is not None:
        done = {"rail~1:0:5:0": Done(Millis(NOW - 1_000), mark)}
        book.ledgers[JobId(DEMO)] = replace(book.ledger(JobId(DEMO)), done=done)
    (answer,) = asked(book, link())
    assert (answer.answer.code, answer.question.faults[0].event) == (code, "1:0:5:0")


def test_a_fault_that_is_only_supposed_is_as_young_as_it_may_be_and_one_with_a_time_as_old_as_that() -> None:
    book = a_book(the_a3())
    book.cluster = replace(book.cluster, act_since=Millis(NOW - 1_000))
    assert said(asked(book, link())) == [(DEMO, "Borrow", 28, "BORROW")]
    (answer,) = asked(book, link(at=NOW - 40_000))
    assert said([answer]) == [(DEMO, "Refuse", 0, "BEFORE_ACT")]
    assert answer.answer.detail == (
        "began 2025-12-31 23:59:20.000Z, before the agent began to act (2025-12-31 23:59:59.000Z):"
        " no borrow is planned for old news"
    )


def test_where_no_ledger_tells_since_when_an_agent_acts_a_known_fault_is_answered_as_if_one_did() -> None:
    assumed = "an agent has been acting since before these faults: no ledger tells since when one does"
    book = a_book(the_a3())
    (supposed,) = asked(book, link())
    assert assumed not in supposed.assumed
    book.reports[NodeName("n0")] = report("n0", occurred("n0", 0, NOW - 60_000))
    (known,) = asked(book, link())
    assert (known.answer.code, assumed in known.assumed) == ("BORROW", True)
    book.cluster = replace(book.cluster, act_since=Millis(NOW - 90_000))
    (acting,) = asked(book, link())
    assert (acting.answer.code, assumed in acting.assumed) == ("BORROW", False)


def test_of_one_window_what_is_too_old_and_what_was_before_act_are_parted_from_what_is_asked() -> None:
    book = a_book(the_a3(), Limits(joint_window=Millis(4_000)))
    book.cluster = replace(book.cluster, act_since=Millis(NOW - 898_000))
    answers = asked(book, link("n0", 0, NOW - 901_000), link("n0", 2, NOW - 899_000), link("n1", 2, NOW - 897_500))
    assert said(answers) == [
        (DEMO, "Refuse", 0, "TOO_OLD"),
        (DEMO, "Refuse", 0, "BEFORE_ACT"),
        (DEMO, "Borrow", 28, "BORROW"),
    ]


def test_exactly_the_age_of_an_event_is_not_too_old() -> None:
    assert said(asked(a_book(the_a3()), link(at=NOW - 900_000))) == [(DEMO, "Borrow", 28, "BORROW")]
    assert said(asked(a_book(the_a3()), link(at=NOW - 900_001))) == [(DEMO, "Refuse", 0, "TOO_OLD")]


def test_what_a_quiet_rule_has_kept_back_is_as_old_as_its_release() -> None:
    book = a_book(the_a3())
    book.reports[NodeName("n0")] = report("n0", occurred("n0", 0, NOW - 1_800_000))
    kept = Kept(Millis(NOW - 900_000), NodeName("n0"), "ACCOMPANY")
    book.ledgers[JobId(DEMO)] = replace(book.ledger(JobId(DEMO)), quiet={"1:0:5:0~NotHandleFault~0": kept})
    assert said(asked(book, link())) == [(DEMO, "Borrow", 28, "BORROW")]


def test_of_one_window_those_that_are_too_old_go_and_the_others_are_asked() -> None:
    answers = asked(a_book(the_a3()), link("n0", 0, NOW - 901_000), link("n1", 2, NOW - 899_000))
    assert said(answers) == [(DEMO, "Refuse", 0, "TOO_OLD"), (DEMO, "Borrow", 28, "BORROW")]
    assert [fault.ref for one in answers for fault in one.question.faults] == [
        f"n0/network/0/81078603@{NOW - 901_000}",
        f"n1/network/2/81078603@{NOW - 899_000}",
    ]
