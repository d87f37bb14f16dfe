"""Keys of others on a job: each row of the page holds, the good values without a finding, the bad one with one."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubebuilders import a_pod

from agent.domain.jobs import Pod
from agent.domain.jobs.others import OTHER_ANNOTATIONS, OTHER_LABELS, SHOWN, refused_annotations, refused_labels
from agent.domain.jobs.values import Finding, FindingCode, parse_labels
from agent.domain.vocab import JobId
from agent.errors import BadDocument
from agent.wire.kubeobjects import parse_object

JOB = JobId("train/demo")
PAGE = (Path(__file__).parents[3] / "docs" / "job-settings.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (label|annotation) `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", PAGE, flags=re.MULTILINE)
CODES = {"label": FindingCode.LABEL_BAD, "annotation": FindingCode.ANNOTATION_BAD}


def findings(where: str, key: str, value: str) -> tuple[Finding, ...]:
    given = ({key: value}, {}) if where == "label" else ({}, {key: value})
    return parse_labels(JOB, *given)[1]


def test_the_page_has_every_key_of_others() -> None:
    named = {(where, key) for where, key, *_ in ROWS}
    assert {("label", one.name) for one in OTHER_LABELS} <= named
    assert {("annotation", one.name) for one in OTHER_ANNOTATIONS} <= named
    assert len(ROWS) == len(named) == 32
    assert sorted(SHOWN) == sorted(key for _, key in named)


@pytest.mark.parametrize(("where", "key", "values", "absent", "bad"), ROWS, ids=[row[1] for row in ROWS])
def test_a_row_of_the_page(where: str, key: str, values: str, absent: str, bad: str) -> None:
    assert absent.strip()
    good = ["x", "7"] if values.strip() == "any" else re.findall(r"`([^`]+)`", values)
    assert good
    assert {value: findings(where, key, value) for value in good} == dict.fromkeys(good, ())
    assert findings(where, key, "") == () or key == "fault-retry-times"
    if bad.strip() != "–":
        (found,) = findings(where, key, bad.strip(" `"))
        assert (found.code, found.object) == (CODES[where], "PodGroup train/demo")
        assert found.reason.startswith(f"{key}: ")


POLICIES = re.findall(r"^\| `([a-z0-9A-Z-]+)` \| ([0-9–]+) \| ([0-9–]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)


def test_the_page_has_every_schedule_policy() -> None:
    (row,) = [one for one in OTHER_ANNOTATIONS if one.name == "huawei.com/schedule_policy"]
    assert row.words == f"one of {', '.join(name for name, *_ in POLICIES)}"
    assert len(POLICIES) == 16


@pytest.mark.parametrize(("name", "node", "ring", "pod"), POLICIES, ids=[row[0] for row in POLICIES])
def test_a_schedule_policy_is_taken_and_its_name_says_its_numbers(name: str, node: str, ring: str, pod: str) -> None:
    assert findings("annotation", "huawei.com/schedule_policy", name) == ()
    (found,) = findings("annotation", "huawei.com/schedule_policy", f"{name}x")
    assert found.code is FindingCode.ANNOTATION_BAD
    if told := re.match(r"chip([0-9]+)-node([0-9]+)", name):
        assert told.groups() == (ring, node)
        assert pod.startswith("yes") == name.endswith("-sp")


DEVICES = re.findall(r"^\| `([A-Za-z0-9_-]+)` \| ([0-9]+|none, a finding) \| (whole|slice|–) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("name", "card", "kind"), DEVICES, ids=[row[0] for row in DEVICES])
def test_a_name_of_a_device(name: str, card: str, kind: str) -> None:
    pod = a_pod(devices=(), annotations={"huawei.com/AscendReal": name})
    if card.startswith("none"):
        with pytest.raises(BadDocument, match=f"'{name}' is no device name"):
            parse_object(pod)
        return
    found = parse_object(pod)
    assert isinstance(found, Pod)
    assert (found.devices, found.virtual) == ((int(card),), kind == "slice")


def test_the_page_has_slices_and_whole_devices() -> None:
    assert [kind for *_, kind in DEVICES] == ["whole", "whole", "whole", "slice", "slice", "–"]


@pytest.mark.parametrize("key", [one.name for one in OTHER_LABELS])
def test_values_that_differ_between_pods_are_a_bad_value(key: str) -> None:
    (found,) = findings("label", key, "1|on")
    assert found.reason.startswith(f"{key}: '1|on' is not ")


@pytest.mark.parametrize(
    "text", ["level1=0", "level1=4,level3=8", "level1=4,", "level1=x", "level1", "level1=4;level2=8"]
)
def test_levels_are_counted_from_one_and_none_is_left_out(text: str) -> None:
    (found,) = findings("annotation", "huawei.com/affinity-config", text)
    assert found.code is FindingCode.ANNOTATION_BAD


@given(st.text(max_size=20), st.sampled_from([one.name for one in (*OTHER_LABELS, *OTHER_ANNOTATIONS)]))
def test_any_text_is_read_without_a_crash(value: str, key: str) -> None:
    told = [*refused_labels({key: value}), *refused_annotations({key: value})]
    assert all(reason.startswith(f"{key}: ") for reason in told)
    assert len(told) <= 1
