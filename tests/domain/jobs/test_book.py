"""From a device to its job and rank, as the cluster's objects come and go."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import DEMO_GROUP, DEMO_JOB, DEMO_UID, a_group, a_node, a_pod, the_demo

from agent.domain.jobs import (
    Binding,
    FaultScheduling,
    FindingCode,
    Node,
    Pod,
    PodGroup,
    Product,
    RankTableFacts,
    ServerFacts,
)
from agent.domain.jobs.book import JobBook, Touched
from agent.domain.jobs.view import Incarnation, pod_digest
from agent.domain.vocab import JobId, NodeName
from agent.wire.kubeobjects import parse_object

N1, N2 = NodeName("n1"), NodeName("n2")
JOB = JobId(DEMO_JOB)
OTHER = JobId("train/other")


def read(*objects: object) -> list[Pod | PodGroup | Node]:
    return [item for item in map(parse_object, objects) if isinstance(item, Pod | PodGroup | Node)]


def a_book(*objects: object) -> JobBook:
    book = JobBook()
    book.sync(read(*objects))
    return book


def apply(book: JobBook, *objects: object) -> Touched:
    touched = Touched()
    for item in read(*objects):
        match item:
            case Pod():
                touched |= book.apply_pod(item)
            case PodGroup():
                touched |= book.apply_group(item)
            case Node():
                touched |= book.apply_node(item)
    return touched


def holds(book: JobBook, node: NodeName, device: int) -> list[tuple[str, str, int | None, int, int]]:
    return [(b.job, b.pod.name, b.rank, b.logic_id, b.position) for b in book.bindings(node, device)]


def bindings_of(book: JobBook) -> list[Binding]:
    """Of JOB, pod by pod and die by die, as the index from devices has them."""
    held = [(pod, device) for pod in book.pods_of(JOB) if pod.node is not None for device in pod.bound]
    return [b for pod, device in held for b in book.bindings(pod.node or N1, device) if b.pod == pod]


def codes(book: JobBook) -> list[str]:
    return [finding.code.value for finding in book.findings()]


# --- the worked case


@pytest.mark.parametrize(
    ("node", "device", "pod", "rank"),
    [
        (N1, 0, "demo-0", 0),
        (N1, 1, "demo-0", 1),
        (N1, 2, "demo-0", 2),
        (N1, 3, "demo-0", 3),
        (N2, 0, "demo-1", 4),
        (N2, 1, "demo-1", 5),
        (N2, 2, "demo-1", 6),
        (N2, 3, "demo-1", 7),
    ],
)
def test_each_device_of_the_demo_job_has_its_rank_and_logic_id(
    node: NodeName, device: int, pod: str, rank: int
) -> None:
    assert holds(a_book(*the_demo()), node, device) == [(DEMO_JOB, pod, rank, device, device)]


def test_the_demo_job_is_described_by_its_group_owner_and_labels() -> None:
    book = a_book(*the_demo())
    job = book.job(JOB)
    assert job is not None
    assert (job.namespace, job.name, job.owner_kind, job.owner_name, job.owner_uid) == (
        "train",
        DEMO_GROUP,
        "AscendJob",
        "demo",
        DEMO_UID,
    )
    assert (job.settings.fault_scheduling, job.settings.fault_retry_times) == (FaultScheduling.GRACE, 3)
    assert (job.pods, job.devices, job.placed, job.finished, job.min_member) == (2, 8, True, False, 2)
    assert [pod.name for pod in book.pods_of(JOB)] == ["demo-0", "demo-1"]
    assert [b.rank for b in bindings_of(book)] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert book.nodes_of(JOB) == (N1, N2)
    assert [found.id for found in book.jobs()] == [DEMO_JOB]
    assert (book.product_of(N1), book.prefix_of(N1)) == (Product.UNKNOWN, "Ascend910")
    assert book.ring_of(N1, 2, JOB) == (0, 1, 2, 3)
    assert book.findings() == ()


# --- when a binding begins and ends


@pytest.mark.parametrize(
    ("pod", "bound"),
    [
        (a_pod(phase="Failed", exit_code=1), True),
        (a_pod(deleted=True), True),
        (a_pod(phase="Pending"), True),
        (a_pod(phase="Succeeded"), False),
        (a_pod(uid="new", node="", devices=(), phase="Pending"), False),
    ],
    ids=["failed", "terminating", "starting", "succeeded", "replaced-and-waiting"],
)
def test_a_binding_lasts_until_the_pod_is_replaced_gone_or_succeeded(pod: dict[str, object], bound: bool) -> None:
    book = a_book(*the_demo())
    apply(book, pod)
    assert bool(book.bindings(N1, 0)) is bound


def test_of_two_jobs_on_one_device_the_one_whose_pod_has_not_ended_owns_it() -> None:
    """A pod that a fault ended stays bound until it is replaced, and its devices may be given away before."""
    ended = a_pod("z-0", uid="uid-z", group="z", phase="Failed", exit_code=1)
    book = a_book(*the_demo(), a_group("z"), ended)
    assert book.owners_on(N1) == {0: JOB, 1: JOB, 2: JOB, 3: JOB}
    apply(book, a_pod("z-0", uid="uid-z", group="z"))
    assert set(book.owners_on(N1).values()) == {"train/z"}, "both run: the last by name"
    book.remove_pod("train", "z-0")
    assert book.owners_on(N1)[0] == JOB
    assert book.owners_on(NodeName("n9")) == {}


def test_a_pod_that_is_gone_holds_nothing() -> None:
    book = a_book(*the_demo())
    assert book.remove_pod("train", "demo-0") == Touched(frozenset({JOB}), frozenset({N1}))
    assert book.bindings(N1, 0) == ()
    assert book.remove_pod("train", "demo-0") == Touched()


def test_a_late_delete_of_the_replaced_pod_does_not_remove_its_replacement() -> None:
    book = a_book(*the_demo())
    apply(book, a_pod(uid="new"))
    assert book.remove_pod("train", "demo-0", uid="uid-demo-0") == Touched()
    assert len(book.bindings(N1, 0)) == 1


def test_a_replacement_on_another_node_touches_both_nodes() -> None:
    book = a_book(*the_demo())
    touched = apply(book, a_pod(uid="new", node="n3"))
    assert touched == Touched(frozenset({JOB}), frozenset({N1, NodeName("n3")}))
    assert holds(book, NodeName("n3"), 0) == [(DEMO_JOB, "demo-0", 0, 0, 0)]


def test_the_same_object_again_touches_nothing() -> None:
    book = a_book(*the_demo())
    assert not apply(book, *the_demo())
    assert not book.sync(read(*the_demo()))


def test_a_phase_of_the_group_touches_the_job_alone() -> None:
    book = a_book(*the_demo(labels={}))
    assert apply(book, a_group(phase="Completed")) == Touched(frozenset({JOB}))
    assert apply(book, a_group(labels={"framework": "mindspore"})) == Touched(frozenset({JOB}), frozenset({N1, N2}))


# --- whom a device concerns


def test_a_device_used_by_two_jobs_concerns_both_and_is_a_finding_while_both_live() -> None:
    second = a_pod("other-0", group="other", devices=(3, 4), rank_index=1)
    book = a_book(*the_demo(), a_group("other", owner="other", min_member=1), second)
    assert holds(book, N1, 3) == [(DEMO_JOB, "demo-0", 3, 3, 3), ("train/other", "other-0", 2, 3, 0)]
    assert codes(book) == ["DEVICE_CLAIMED_TWICE"]
    apply(book, a_pod(phase="Failed"))
    assert len(book.bindings(N1, 3)) == 2
    assert codes(book) == []


def test_slices_of_one_device_belong_to_their_own_jobs() -> None:
    real = {"huawei.com/AscendReal": "Ascend310P-1c-400-1_0"}
    other = {"huawei.com/AscendReal": "Ascend310P-1c-401-1_0"}
    book = a_book(
        a_group(min_member=1),
        a_group("other", owner="other", min_member=1),
        a_pod(annotations=real),
        a_pod("other-0", group="other", annotations=other),
    )
    assert [b.job for b in book.bindings(N1, 1)] == sorted([DEMO_JOB, "train/other"])
    assert codes(book) == []
    assert book.prefix_of(N1) == "Ascend310P"


def test_a_pod_whose_group_is_not_there_uses_its_devices_for_no_job_until_the_group_comes() -> None:
    book = a_book(a_pod())
    assert (book.bindings(N1, 0), book.job(JOB), book.incarnation(JOB), book.placed(JOB)) == ((), None, "", False)
    assert book.devices_in_use(N1) == {0, 1, 2, 3}
    assert codes(book) == ["POD_WITHOUT_GROUP"]
    assert apply(book, a_group(min_member=1)) == Touched(frozenset({JOB}), frozenset({N1}))
    assert len(book.bindings(N1, 0)) == 1
    assert codes(book) == []
    assert book.remove_group("train", DEMO_GROUP) == Touched(frozenset({JOB}), frozenset({N1}))
    assert codes(book) == ["POD_WITHOUT_GROUP"]


def test_a_pod_without_a_group_annotation_belongs_to_no_job() -> None:
    book = a_book(a_pod(group=""))
    assert book.bindings(N1, 0) == ()
    assert book.devices_in_use(N1) == {0, 1, 2, 3}
    assert book.findings()[0].reason.startswith("no annotation scheduling.k8s.io/group-name")


@pytest.mark.parametrize(("phase", "used"), [("Running", {0, 1, 2, 3}), ("Failed", set()), ("Succeeded", set())])
def test_devices_are_in_use_until_their_pod_has_ended(phase: str, used: set[int]) -> None:
    assert a_book(a_group(), a_pod(phase=phase)).devices_in_use(N1) == used


# --- logic ids


def test_a_logic_id_is_the_place_in_the_nodes_list_not_in_the_pods() -> None:
    book = a_book(a_group(), a_pod(devices=(6, 7)), a_node(devices=(0, 1, 2, 3, 6, 7)))
    assert holds(book, N1, 7) == [(DEMO_JOB, "demo-0", 1, 5, 1)]


def test_without_the_nodes_own_list_the_pods_of_the_node_give_it() -> None:
    book = a_book(a_group(), a_pod(devices=(6, 7)), a_pod("x", group="", devices=(2,)))
    assert holds(book, N1, 7) == [(DEMO_JOB, "demo-0", 1, 2, 1)]
    assert book.devices_of_node(N1) == (2, 6, 7)
    assert book.logic_id(N1, 5) == 5


# --- ranks


def test_the_rank_table_of_the_owner_goes_before_the_rank_index() -> None:
    book = a_book(*the_demo())
    table = RankTableFacts((ServerFacts("uid-demo-0", "10.0.0.1", "", {0: 4, 1: 5, 2: 6, 3: 7}),))
    assert book.apply_rank_table("train", "demo", table) == Touched(frozenset({JOB}), frozenset({N1, N2}))
    assert [b.rank for b in bindings_of(book)] == [4, 5, 6, 7, 4, 5, 6, 7]
    assert book.rank_table(JOB) == table
    assert codes(book) == ["RANK_DISAGREES"]
    assert not book.apply_rank_table("train", "demo", table)
    book.remove_rank_table("train", "demo")
    assert [b.rank for b in bindings_of(book)] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert codes(book) == []


def test_a_table_that_is_not_ready_is_a_finding_until_it_is() -> None:
    book = a_book(*the_demo())
    book.apply_rank_table("train", "demo", None, "status is initializing")
    assert [(f.code, f.object, f.reason) for f in book.findings()] == [
        (FindingCode.RANK_TABLE_NOT_READY, "ConfigMap train/rings-config-demo", "status is initializing")
    ]
    assert book.rank_table(JOB) is None
    book.apply_rank_table("train", "demo", RankTableFacts())
    assert codes(book) == []


def test_a_table_that_comes_before_its_job_is_used_and_one_of_another_namespace_is_not() -> None:
    book = JobBook()
    book.apply_rank_table("train", "demo", RankTableFacts((ServerFacts("uid-demo-0", ranks={0: 40}),)))
    book.apply_rank_table("other", "demo", RankTableFacts((ServerFacts("uid-demo-0", ranks={0: 50}),)))
    apply(book, a_group(), a_pod(rank_index=None))
    assert [(b.device, b.rank) for b in bindings_of(book)] == [(0, 40), (1, None), (2, None), (3, None)]
    assert book.findings()[0].reason.startswith("device 1, 2, 3: ")


# --- products and rings


@pytest.mark.parametrize(
    ("node_type", "labels", "hardware", "product"),
    [
        ("module-a3-16", {"accelerator-type": "module-910b-8"}, "800T-A2-64G", Product.A3),
        ("", {"accelerator-type": "module-910b-8"}, "800I-A3-64G", Product.A2),
        ("", {}, "800I-A3-64G", Product.A3),
        ("strange", {}, "", Product.UNKNOWN),
    ],
    ids=["node-label", "job-label", "rank-table", "unknown"],
)
def test_a_nodes_product_comes_from_its_label_then_its_jobs_then_their_rank_tables(
    node_type: str, labels: dict[str, str], hardware: str, product: Product
) -> None:
    book = a_book(a_group(labels=labels), a_pod(), a_node(accelerator_type=node_type))
    book.apply_rank_table("train", "demo", RankTableFacts(hardware_type=hardware))
    assert book.product_of(N1) is product


def test_jobs_that_name_different_products_leave_it_unknown() -> None:
    book = a_book(
        a_group(labels={"accelerator-type": "module-910b-8"}),
        a_group("other", owner="other", labels={"accelerator-type": "module-a3-16"}),
        a_pod(),
        a_pod("other-0", group="other", devices=(4,)),
    )
    assert book.product_of(N1) is Product.UNKNOWN


@pytest.mark.parametrize(
    ("node_type", "node_devices", "device", "ring"),
    [
        ("", range(16), 9, (2, 3, 4, 9)),
        ("module", range(8), 3, (2, 3)),
        ("module", range(8), 4, (4,)),
        ("module-910b-8", range(8), 3, (2, 3, 4)),
        ("module-910b-16", range(16), 3, (2, 3, 4, 9)),
        ("module-a3-16", range(16), 9, (2, 3, 4, 9)),
        ("module-a3-8-super-pod", range(8), 3, (2, 3, 4)),
        ("card-910b-infer", range(8), 3, (3,)),
        ("850-Atlas-8p-8", range(8), 3, (3,)),
    ],
)
def test_a_ring_is_what_the_job_holds_of_the_devices_reset_together(
    node_type: str, node_devices: range, device: int, ring: tuple[int, ...]
) -> None:
    held = [d for d in (2, 3, 4, 9) if d in node_devices]
    book = a_book(
        a_group(),
        a_pod(devices=held),
        a_pod("x", group="", devices=(0, 1)),
        a_node(accelerator_type=node_type, devices=tuple(node_devices)),
    )
    assert book.ring_of(N1, device, JOB) == ring


def test_device_names_of_an_idle_a5_node_begin_with_npu() -> None:
    assert a_book(a_node(accelerator_type="850-Atlas-8p-8")).prefix_of(N1) == "npu"


def test_a_node_that_goes_touches_its_jobs_and_leaves_their_bindings() -> None:
    book = a_book(*the_demo())
    assert book.remove_node(N1) == Touched(frozenset({JOB}), frozenset({N1}))
    assert book.node(N1) is None
    assert [node.name for node in book.nodes()] == ["n2"]
    assert len(book.bindings(N1, 0)) == 1
    assert not book.remove_node(N1)


# --- lives


def test_replacing_one_pod_is_the_same_life_and_replacing_all_is_a_new_one() -> None:
    book = a_book(*the_demo())
    first = book.incarnation(JOB)
    assert first
    apply(book, a_pod("demo-1", uid="b2", node="n3", rank_index=1))
    assert book.incarnation(JOB) == first
    book.remove_pod("train", "demo-0")
    book.remove_pod("train", "demo-1")
    assert (book.incarnation(JOB), book.placed(JOB)) == (first, False)
    apply(book, a_pod("demo-0", uid="a3"))
    assert (book.incarnation(JOB), book.placed(JOB)) == (first, False)
    apply(book, a_pod("demo-1", uid="b3", node="n2", rank_index=1))
    assert book.placed(JOB)
    assert book.incarnation(JOB) not in ("", first)


def test_a_restarted_agent_goes_on_with_the_life_its_ledger_remembers() -> None:
    book = a_book(*the_demo())
    book.resume(JOB, Incarnation("before", frozenset({pod_digest("gone"), pod_digest("uid-demo-1")})))
    assert book.incarnation(JOB) == "before"
    life = book.life(JOB)
    assert life is not None
    assert life.members == {pod_digest("uid-demo-0"), pod_digest("uid-demo-1")}


def test_a_life_remembered_of_pods_all_gone_is_over() -> None:
    book = a_book(*the_demo())
    book.resume(JOB, Incarnation("before", frozenset({pod_digest("gone")})))
    assert book.incarnation(JOB) not in ("", "before")


# --- the book as a whole


def test_removing_what_is_not_there_touches_nothing() -> None:
    book = a_book(*the_demo())
    assert not book.remove_group("train", "none")
    assert not book.remove_rank_table("train", "none")
    assert not book.remove_node(NodeName("none"))


def test_sync_removes_what_is_no_longer_listed() -> None:
    book = a_book(*the_demo())
    book.apply_rank_table("train", "demo", RankTableFacts())
    touched = book.sync(read(a_node("n2")), {("train", "demo"): "unreadable"})
    assert touched == Touched(frozenset({JOB}), frozenset({N1, N2}))
    assert (book.jobs(), book.bindings(N1, 0), book.nodes()[0].name) == ((), (), "n2")


POOL = (
    *read(*the_demo()),
    *read(a_pod(uid="2", phase="Failed"), a_pod(uid="3", node="n2"), a_pod("demo-1", uid="4", node="", devices=())),
    *read(a_group(owner=""), a_group("other", min_member=1), a_pod("other-0", group="other", rank_index=None)),
    *read(a_node(accelerator_type="module", devices=range(8)), a_pod("loose", group="", phase="Pending")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(POOL), max_size=12))
def test_a_book_changed_step_by_step_answers_as_one_that_read_the_end_at_once(
    changes: list[Pod | PodGroup | Node],
) -> None:
    steps = JobBook()
    end: dict[object, Pod | PodGroup | Node] = {}
    for item in changes:
        match item:
            case Pod():
                steps.apply_pod(item)
                end["pod", item.namespace, item.name] = item
            case PodGroup():
                steps.apply_group(item)
                end["group", item.namespace, item.name] = item
            case Node():
                steps.apply_node(item)
                end["node", item.name] = item
    once = JobBook()
    once.sync(end.values())
    assert steps.findings() == once.findings()
    assert [job.id for job in steps.jobs()] == [job.id for job in once.jobs()]
    for node in (N1, N2):
        assert steps.devices_in_use(node) == once.devices_in_use(node)
        assert steps.product_of(node) == once.product_of(node)
        for device in range(4):
            assert steps.bindings(node, device) == once.bindings(node, device)
            for job in (JOB, OTHER):
                assert steps.ring_of(node, device, job) == once.ring_of(node, device, job)
