"""Values of the cluster's objects: products, rings, merged labels and what they ask for."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.jobs import (
    FaultScheduling,
    FindingCode,
    JobLabels,
    Pod,
    Product,
    merge_annotations,
    merge_labels,
    parse_labels,
    product_of_hardware,
    product_of_labels,
    product_of_type,
    ring_size,
)
from agent.domain.vocab import JobId, NodeName

JOB = JobId("train/demo")


@pytest.mark.parametrize(
    ("value", "product"),
    [
        ("module", "910A"),
        ("half", "910A"),
        ("module-910b-8", "910B"),
        ("module-910B-16", "910B"),
        ("card-910b-2", "910B"),
        ("card-910b-infer", "910B-inference"),
        ("module-a3-16", "A3"),
        ("module-a3-16-super-pod", "A3"),
        ("module-a3-8-super-pod", "A3"),
        ("850-SuperPod-Atlas-8", "A5"),
        ("350-Atlas-4p-16", "A5"),
        ("card", "unknown"),
        ("", "unknown"),
        ("module|module-a3-16", "unknown"),
    ],
)
def test_an_accelerator_type_names_a_product(value: str, product: str) -> None:
    assert product_of_type(value) == Product(product)


@pytest.mark.parametrize(
    ("value", "product"),
    [
        ("800I-A2-32G", "910B-inference"),
        ("800T-A2-64G", "910B"),
        ("800I-A3-64G", "A3"),
        ("module-910b-8", "910B"),
        ("", "unknown"),
    ],
)
def test_a_rank_tables_hardware_type_names_a_product(value: str, product: str) -> None:
    assert product_of_hardware(value) == Product(product)


@pytest.mark.parametrize(
    ("labels", "product"),
    [
        ({"accelerator-type": "module-a3-16"}, "A3"),
        ({"ring-controller.atlas": "ascend-npu"}, "A5"),
        ({"ring-controller.atlas": "ascend-910b"}, "unknown"),
        ({}, "unknown"),
    ],
    ids=["type", "a5-ring-controller", "ring-controller-of-several", "none"],
)
def test_job_labels_name_a_product_only_when_they_are_plain(labels: dict[str, str], product: str) -> None:
    assert product_of_labels(labels) == Product(product)


@pytest.mark.parametrize(
    ("product", "devices", "size"),
    [
        (Product.A1, 8, 4),
        (Product.A2, 8, 8),
        (Product.A2, 16, 16),
        (Product.A2_INFERENCE, 8, 1),
        (Product.A3, 16, 16),
        (Product.A3, 8, 8),
        (Product.A5, 8, 1),
        (Product.UNKNOWN, 8, None),
    ],
)
def test_a_ring_is_as_big_as_the_product_resets_together(product: Product, devices: int, size: int | None) -> None:
    assert ring_size(product, devices) == size


@pytest.mark.parametrize(
    ("phase", "deleted", "bound", "live"),
    [
        ("Pending", False, (0, 1), True),
        ("Running", False, (0, 1), True),
        ("Running", True, (0, 1), False),
        ("Failed", False, (0, 1), False),
        ("Succeeded", False, (), False),
    ],
)
def test_a_pod_stays_bound_until_it_succeeded(phase: str, deleted: bool, bound: tuple[int, ...], live: bool) -> None:
    pod = Pod("train", "p", "u", node=NodeName("n1"), phase=phase, devices=(0, 1), deleted=deleted)
    assert (pod.bound, pod.live) == (bound, live)


def test_a_pod_that_is_not_scheduled_is_bound_to_nothing() -> None:
    assert Pod("train", "p", "u", phase="Pending", devices=(0,)).bound == ()


def test_values_that_differ_are_joined_in_one_order_whatever_the_order_of_pods() -> None:
    pods = [{"fault-scheduling": "grace", "a": "2"}, {"fault-scheduling": "off"}, {"fault-scheduling": "grace"}]
    expected = {"a": "1|2", "fault-scheduling": "grace|off", "framework": "mindspore"}
    group = {"a": "1", "framework": "mindspore"}
    assert merge_labels(group, pods) == expected
    assert merge_labels(group, reversed(pods)) == expected


def test_a_podgroups_annotation_goes_before_its_first_pods_and_other_pod_annotations_are_no_jobs() -> None:
    pod = {"huawei.com/recover_policy_path": "pod", "sp-block": "16", "hccl/rankIndex": "0"}
    assert merge_annotations({"sp-block": "8", "mine": "x"}, pod) == {
        "huawei.com/recover_policy_path": "pod",
        "sp-block": "8",
        "mine": "x",
    }


def test_a_job_without_labels_gets_what_volcano_assumes() -> None:
    assert parse_labels(JOB, {}, {}) == (
        JobLabels(
            fault_scheduling=FaultScheduling.ABSENT,
            fault_retry_times=0,
            framework="",
            process_recover="",
            sub_healthy_strategy="ignore",
            pod_rescheduling=False,
            pod_only=False,
            in_place="",
            comm_mode="",
        ),
        (),
    )


def test_every_label_is_read() -> None:
    labels = {
        "fault-scheduling": "external-force",
        "fault-retry-times": "3",
        "framework": "mindspore",
        "process-recover-enable": "pause",
        "subHealthyStrategy": "graceExit",
        "pod-rescheduling": "on",
    }
    annotations = {
        "huawei.com/recover_policy_path": "pod",
        "fault-agent/in-place-recovery": "off",
        "fault-agent/comm-mode": "rootinfo",
    }
    read, findings = parse_labels(JOB, labels, annotations)
    assert findings == ()
    assert read == JobLabels(
        FaultScheduling.EXTERNAL_FORCE, 3, "mindspore", "pause", "graceExit", True, True, "off", "rootinfo"
    )


def test_a_filter_that_names_what_does_not_exist_is_a_finding_of_the_job() -> None:
    annotations = {
        "huawei.com/schedule.filter.faultLevel": "RestartReqest:30",
        "huawei.com/schedule.filter.faultCode": "80G:10",
    }
    _, findings = parse_labels(JOB, {}, annotations)
    assert [one.code for one in findings] == [FindingCode.ANNOTATION_BAD] * 2
    assert "schedule.filter.faultCode: '80G:10': no fault has such a code" in findings[0].reason
    assert "schedule.filter.faultLevel: 'RestartReqest:30': no level" in findings[1].reason


@pytest.mark.parametrize(
    ("labels", "pod_only"),
    [
        ({"ome.io/inferenceservice": "x"}, True),
        ({"app": "mindie-ms-controller"}, True),
        ({"app": "mindie-ms-server"}, False),
    ],
    ids=["ome", "mindie-controller", "mindie-server"],
)
def test_an_inference_service_is_restarted_pod_by_pod(labels: dict[str, str], pod_only: bool) -> None:
    assert parse_labels(JOB, labels, {})[0].pod_only is pod_only


@pytest.mark.parametrize(
    ("key", "value", "field", "read"),
    [
        ("fault-scheduling", "grace|off", "fault_scheduling", FaultScheduling.BAD),
        ("fault-scheduling", "bad", "fault_scheduling", FaultScheduling.BAD),
        ("fault-retry-times", "many", "fault_retry_times", 0),
        ("fault-retry-times", "", "fault_retry_times", 0),
        ("fault-retry-times", "3|5", "fault_retry_times", 0),
        ("fault-retry-times", "٣", "fault_retry_times", 0),
        ("fault-retry-times", "101", "fault_retry_times", 101),
        ("fault-retry-times", "-1", "fault_retry_times", -1),
        ("process-recover-enable", "yes", "process_recover", ""),
        ("subHealthyStrategy", "leave", "sub_healthy_strategy", "ignore"),
        ("pod-rescheduling", "true", "pod_rescheduling", False),
    ],
)
def test_a_bad_label_gets_its_default_and_a_finding(key: str, value: str, field: str, read: object) -> None:
    parsed, findings = parse_labels(JOB, {key: value}, {})
    assert getattr(parsed, field) == read
    assert [(f.code, f.object) for f in findings] == [(FindingCode.LABEL_BAD, "PodGroup train/demo")]
    assert findings[0].reason.startswith(f"{key}: {value!r}")
    assert key != "fault-retry-times" or findings[0].reason.endswith(f"; it counts as {read}")


@pytest.mark.parametrize("key", ["fault-agent/in-place-recovery", "fault-agent/comm-mode"])
def test_a_bad_annotation_of_ours_counts_as_absent_and_is_a_finding(key: str) -> None:
    parsed, findings = parse_labels(JOB, {}, {key: "maybe"})
    assert (parsed.in_place, parsed.comm_mode) == ("", "")
    assert [f.code for f in findings] == [FindingCode.ANNOTATION_BAD]


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(["fault-scheduling", "fault-retry-times", "app", "x"]), st.text(max_size=8)))
def test_any_label_text_is_read_without_a_crash(labels: dict[str, str]) -> None:
    parsed, _ = parse_labels(JOB, labels, labels)
    assert isinstance(parsed.fault_retry_times, int)
