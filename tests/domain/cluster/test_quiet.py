"""Quiet rules: who keeps which fault back until when, in every reader alike (faultcodes.md §5, contracts.md §6.8)."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import DEMO_JOB, a_group, a_pod, the_demo
from rig import POLICY, T0, Rig

from agent.domain.vocab import Reason

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
CODES, LEVELS = "huawei.com/schedule.filter.faultCode", "huawei.com/schedule.filter.faultLevel"
REQUEST, SEPARATE, SUB_HEALTH = "80C98000", "80E18402", "8C1F860A"
UCE, BUS, VECTOR_BUS = "80E01801", "80C98009", "80CB8009"
LINK, L2 = "81078603", "[0x08520003,na,L2,na]"
VCJOB = "volcano-system/vcjob-fault-npu-cm"
SERVER = {**LABELS, "app": "mindie-ms-server", "jobID": "chat"}
STRATEGY = "recover-strategy"


def demo(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **given: Any) -> Rig:
    return Rig(the_demo(labels or LABELS, annotations), given)


def listed(rig: Rig) -> list[tuple[float, list[str]]]:
    """When `fault-node` changed (seconds) and which codes it held from then on."""
    found: list[tuple[float, list[str]]] = []
    for document in rig.store.writes:
        if document.name == "vcjob-fault-npu-cm":
            nodes = json.loads(document.data["fault-node"])
            codes = [one["fault_code"] for node in nodes for one in node["FaultDeviceList"]]
            at = max((node["UpdateTime"] for node in nodes), default=0)
            if not found or found[-1][1] != codes:
                found.append((at - T0 / 1000 if at else 0, codes))
    return found


def said(rig: Rig, job: str = DEMO_JOB) -> list[tuple[float, str]]:
    """Seconds and reasons of what was decided about the job's faults."""
    return [((one.at - T0) / 1000, str(one.reason)) for one in rig.decisions if one.job == job and one.fault]


# --- 60 s for a RestartRequest of a subscribed inference job ----------------------------------------------------------


@pytest.mark.parametrize("pattern", ["app=mindie-ms-server", "jobID", "train/demo", DEMO_JOB])
async def test_a_restart_request_of_a_subscribed_job_is_kept_back_for_60_s(pattern: str) -> None:
    rig = demo(labels=SERVER, quiet={"inference_jobs": [pattern]})
    rig.fault(REQUEST, 1)
    rig.tick(100)
    await rig.run()
    assert said(rig) == [(1, "QUIET"), (61.001, "RECOVERY_STARTED"), (91.001, "RECOVERY_FAILED")]
    assert listed(rig) == [(0, []), (61, [REQUEST])]


@pytest.mark.parametrize("pattern", ["app=mindie-ms-controller", "ring", "train/other"])
async def test_a_job_that_is_not_meant_is_told_at_once(pattern: str) -> None:
    rig = demo(labels=SERVER, quiet={"inference_jobs": [pattern]})
    rig.fault(REQUEST, 1)
    rig.tick(2)
    await rig.run()
    assert said(rig) == [(1, "RECOVERY_STARTED")]
    assert listed(rig) == [(0, []), (1, [REQUEST])]


async def test_without_the_setting_nothing_is_kept_back() -> None:
    rig = demo(labels=SERVER)
    rig.fault(REQUEST, 1)
    rig.tick(2)
    await rig.run()
    assert said(rig) == [(1, "RECOVERY_STARTED")]


async def test_the_job_s_own_level_filter_takes_the_place_of_the_60_s() -> None:
    rig = demo({LEVELS: "RestartBusiness:5"}, SERVER, quiet={"inference_jobs": ["app"]})
    rig.fault(REQUEST, 1)
    rig.tick(2)
    await rig.run()
    assert said(rig) == [(1, "RECOVERY_STARTED")]


async def test_a_restart_request_of_a_switch_is_kept_back_too() -> None:
    rig = demo(labels=SERVER, quiet={"inference_jobs": ["app"]})
    where = {"switchChipId": 0, "switchPortId": 3}
    rig.fault("[0x00f1fef5,155914,npu,na]", 1, device=None, resource="lingqu", location=where)
    rig.tick(100)
    await rig.run()
    assert said(rig) == [(1, "QUIET"), (61.001, "PLANE_NEEDS_NO_RESET")]
    assert [(entry.node, entry.update_time - T0 // 1000) for entry in rig.book.entries.values()] == [("n1", 61)]


# --- annotations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "release"),
    [
        pytest.param({CODES: f"{SEPARATE}:30"}, 31, id="code"),
        pytest.param({CODES: SEPARATE.lower()}, 61, id="default 60 s"),
        pytest.param({LEVELS: "SeparateNPU:20"}, 21, id="level"),
        pytest.param({CODES: f"{SEPARATE}:5", LEVELS: "SeparateNPU:20"}, 6, id="the code's rule beats the level's"),
        pytest.param({CODES: f"{SEPARATE}:0", LEVELS: "SeparateNPU:20"}, None, id="also with 0"),
        pytest.param({CODES: "80C98000:30", LEVELS: "RestartRequest:20"}, None, id="another code and level"),
        pytest.param({CODES: f"{SEPARATE}:86401"}, 61, id="out of range is 60 s"),
    ],
)
async def test_a_filter_of_the_job_keeps_a_fault_back(annotations: dict[str, str], release: int | None) -> None:
    rig = demo(annotations)
    rig.fault(SEPARATE, 1)
    rig.tick(200)
    await rig.run()
    seen = 1 if release is None else release + 0.001
    quiet = [] if release is None else [(1, "QUIET")]
    assert said(rig) == [*quiet, (seen, "ISOLATION_ONLY")]
    assert listed(rig) == [(0, []), (int(seen), [SEPARATE])]


async def test_in_the_last_millisecond_a_fault_is_still_kept_back() -> None:
    rig = demo({CODES: f"{SEPARATE}:30"})
    rig.fault(SEPARATE, 1)
    rig.fault(REQUEST, 31)  # the job is looked at again
    rig.tick(31)
    await rig.run()
    assert said(rig) == [(1, "QUIET"), (31, "RECOVERY_STARTED")]
    assert listed(rig)[-1] == (31, [REQUEST])


async def test_the_release_time_is_told() -> None:
    rig = demo({CODES: f"{SEPARATE}:30"})
    rig.fault(SEPARATE, 1)
    rig.tick(2)
    await rig.run()
    told = [one for one in rig.decisions if one.reason is Reason.QUIET]
    expected = "kept back by schedule.filter.faultCode 80E18402, 30 s until 2026-01-01 00:00:31.000Z"
    assert [one.detail for one in told] == [expected]


async def test_a_switch_code_in_brackets_is_kept_back_for_the_whole_node() -> None:
    rig = demo({CODES: f"{L2}:30"})
    rig.fault(L2, 1, device=None, resource="lingqu", location={"switchChipId": 0, "switchPortId": 3})
    rig.tick(100)
    await rig.run()
    assert said(rig)[:2] == [(1, "QUIET"), (31.001, "PLANE_NEEDS_NO_RESET")]


async def test_a_fault_of_a_node_s_own_parts_is_never_quiet() -> None:
    rig = demo({LEVELS: "SeparateFault:60", CODES: "0000001D:60"})
    rig.fault("0000001D", 1, device=None, resource="ipmi")
    rig.tick(2)
    await rig.run()
    assert said(rig) == [(1, "PLANE_NEEDS_NO_RESET")]


async def test_a_device_of_two_jobs_is_shown_once_one_of_them_wants_it() -> None:
    second = a_group("other-1", owner="other", owner_uid="other", min_member=1, annotations={CODES: f"{SEPARATE}:10"})
    pod = a_pod("other-0", group="other-1", uid="uid-other", devices=(2,))
    rig = Rig([*the_demo(LABELS, {CODES: f"{SEPARATE}:30"}), second, pod])
    rig.fault(SEPARATE, 1)
    rig.tick(100)
    await rig.run()
    assert listed(rig) == [(0, []), (11, [SEPARATE])]
    assert said(rig, "train/other-1")[0] == (1, "QUIET")
    assert said(rig)[:2] == [(1, "QUIET"), (31.001, "ISOLATION_ONLY")]


async def test_an_idle_device_is_quiet_for_nobody() -> None:
    rig = demo({CODES: f"{SEPARATE}:30"})
    rig.fault(SEPARATE, 1, device=7)
    rig.tick(2)
    await rig.run()
    assert listed(rig) == [(0, []), (1, [SEPARATE])]


async def test_what_ends_while_it_is_kept_back_is_never_shown_and_starts_nothing() -> None:
    rig = demo({CODES: f"{REQUEST}:30"})
    rig.fault(REQUEST, 1)
    rig.clear(REQUEST, 20)
    rig.tick(100)
    await rig.run()
    assert said(rig) == [(1, "QUIET"), (20, "DROPPED")]
    assert listed(rig) == [(0, [])]


async def test_what_ended_before_it_was_read_was_quiet_as_well() -> None:
    rig = demo({CODES: f"{REQUEST}:30"})
    rig.fault(REQUEST, 1, assertion="once")
    rig.tick(100)
    await rig.run()
    assert said(rig) == [(1, "DROPPED")]


async def test_a_quiet_fault_makes_no_pod_a_suspect() -> None:
    rig = demo({CODES: f"{SEPARATE}:60"})
    rig.fault(SEPARATE, 1)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-new", node="n3", labels=LABELS), 20)
    rig.tick(30)
    await rig.run()
    assert Reason.RESCHEDULE_RECORDED not in [one.reason for one in rig.decisions]


async def test_a_quiet_fault_stands_in_no_way_of_a_recovery() -> None:
    rig = demo({CODES: f"{SEPARATE}:60"})
    rig.fault(SEPARATE, 1, device=3)
    rig.fault(REQUEST, 2)
    rig.clear(REQUEST, 5)
    rig.tick(30)
    await rig.run()
    assert said(rig) == [(1, "QUIET"), (2, "RECOVERY_STARTED"), (5, "RECOVERY_SUCCEEDED")]


async def test_a_rail_is_not_judged_while_its_link_fault_is_kept_back() -> None:
    rig = demo({CODES: f"{LINK}:50"})
    rig.fault(LINK, 1)
    rig.tick(100)
    await rig.run()
    judged = [at for at, reason in said(rig) if reason == "RAIL_REFUSED"]
    assert judged == [51.001]


async def test_a_rail_waits_too_for_the_level_that_a_rule_over_time_has_given_its_link_fault() -> None:
    # Down for more than 20 s it is PreSeparateNPU, and only that level is quiet, for 60 s from the fault's beginning.
    rig = demo({LEVELS: "PreSeparateNPU:60"})
    rig.fault(LINK, 1)
    rig.tick(100)
    await rig.run()
    judged = [at for at, reason in said(rig) if reason == "RAIL_REFUSED"]
    assert judged == [61.001]


async def test_longer_quiet_than_events_stay_young_is_released_all_the_same() -> None:
    rig = demo({CODES: f"{REQUEST}:3600"})
    rig.fault(REQUEST, 1)
    for minute in range(1, 60):
        rig.fault("80818200", minute * 60, device=1)  # the node reports on, and lets go of what is old
        rig.clear("80818200", minute * 60 + 1, device=1)
    rig.tick(3700)
    await rig.run()
    found = [(at, reason) for at, reason in said(rig) if reason != "LEVEL_NEEDS_NOTHING"]
    assert found[:2] == [(1, "QUIET"), (3601.001, "RECOVERY_STARTED")]


async def test_an_annotation_taken_away_releases_at_once() -> None:
    rig = demo({CODES: f"{REQUEST}:3600"})
    rig.fault(REQUEST, 1)
    rig.apply(a_group(labels=LABELS), 30)
    rig.tick(31)
    await rig.run()
    assert said(rig) == [(1, "QUIET"), (30, "RECOVERY_STARTED")]


# --- UCE accompany ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [BUS, VECTOR_BUS])
@pytest.mark.parametrize("uce", [-5, -1, 0, 5])
async def test_a_bus_fault_beside_a_memory_error_is_dropped(code: str, uce: int) -> None:
    rig = demo()
    for at, one in sorted([(10, code), (10 + uce, UCE)], key=lambda pair: pair[0]):
        rig.fault(one, at)
    rig.tick(40)
    await rig.run()
    assert {codes for _, found in listed(rig) for codes in found} == {UCE}
    last = next(one for one in rig.decisions if one.reason is Reason.DROPPED)
    assert last.detail == f"dropped by UCE accompany: {UCE} began within 5 s on the device"


@pytest.mark.parametrize(("uce", "device"), [(-5.001, 2), (5.001, 2), (0, 3)])
async def test_one_without_a_memory_error_is_told_after_5_s(uce: float, device: int) -> None:
    rig = demo()
    for at, code, where in sorted([(10, BUS, 2), (10 + uce, UCE, device)]):
        rig.fault(code, at, device=where)
    rig.tick(40)
    await rig.run()
    told = [(at, reason) for at, reason in said(rig) if reason == "QUIET"]
    assert told == [(10, "QUIET")]
    assert BUS in ",".join(listed(rig)[-1][1])


async def test_a_dropped_fault_stays_dropped_when_the_memory_error_is_long_over() -> None:
    rig = demo()
    rig.fault(UCE, 1)
    rig.fault(BUS, 3)
    rig.clear(UCE, 4)
    for minute in range(1, 60):
        rig.fault("80818200", minute * 60, device=1)
        rig.clear("80818200", minute * 60 + 1, device=1)
    rig.tick(3600)
    await rig.run()
    assert BUS not in {code for _, codes in listed(rig) for one in codes for code in one.split(",")}


@pytest.mark.parametrize("level", ["RestartNPU", "SeparateNPU"])
async def test_a_dropped_fault_stays_dropped_under_a_policy_that_gives_it_another_level(level: str) -> None:
    rig = demo()
    rig.fault(UCE, 10)
    rig.fault(BUS, 12)
    rig.clear(UCE, 20)
    rig.fault("80818200", 1500, device=1, assertion="once")  # by now no report tells of the memory error
    rig.tick(1600)
    await rig.run()
    row = POLICY.chip[int(BUS, 16)]
    policy = replace(POLICY, chip={**POLICY.chip, int(BUS, 16): replace(row, level=level)})
    again = Rig(rig.objects, disk=rig.disk, source=rig.source, policy=policy, _number=rig._number)
    again.fault("80818200", 1700, device=1, assertion="once")
    again.tick(1800)
    await again.run(resume=True)
    assert BUS not in {code for _, codes in listed(again) for one in codes for code in one.split(",")}
    assert [str(one.reason) for one in again.decisions if BUS in one.fault] == ["FAULT_SHOWN", "DROPPED"]


async def test_on_an_idle_device_too() -> None:
    rig = demo()
    rig.fault(BUS, 1, device=7)
    rig.tick(20)
    await rig.run()
    assert listed(rig) == [(0, []), (6, [BUS])]
    assert Reason.QUIET in [one.reason for one in rig.decisions]


# --- strategies of a job's own processes ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [UCE, "8C1F860B"])
async def test_retry_keeps_its_two_codes_back_for_10_s(code: str) -> None:
    rig = demo({STRATEGY: "retry,recover,exit"}, {**LABELS, "process-recover-enable": "on"})
    rig.fault(code, 1)
    rig.tick(40)
    await rig.run()
    assert [at for at, _ in said(rig)] == [1, 11.001]


@pytest.mark.parametrize(
    ("annotations", "labels"),
    [
        pytest.param({STRATEGY: "retry"}, {"process-recover-enable": "off"}, id="off"),
        pytest.param({STRATEGY: "retry"}, {}, id="no label"),
        pytest.param({STRATEGY: "recover"}, {"process-recover-enable": "on"}, id="another strategy"),
    ],
)
async def test_no_retry_no_quiet(annotations: dict[str, str], labels: dict[str, str]) -> None:
    rig = demo(annotations, {**LABELS, **labels})
    rig.fault(UCE, 1)
    rig.tick(2)
    await rig.run()
    assert "QUIET" not in [reason for _, reason in said(rig)]


IN_PLACE: dict[str, Any] = {
    "annotations": {STRATEGY: "recover-in-place"},
    "labels": {**LABELS, "process-recover-enable": "on"},
}


@pytest.mark.parametrize("code", [REQUEST, UCE])
async def test_recover_in_place_keeps_back_for_60_s(code: str) -> None:
    rig = demo(**IN_PLACE)
    rig.fault(code, 1)
    rig.tick(100)
    await rig.run()
    assert [at for at, _ in said(rig)] == [1, 61.001]


@pytest.mark.parametrize(
    ("code", "given", "strategy", "release"),
    [
        pytest.param(SEPARATE, {"device": 1}, "ignore", 10, id="a worse fault on the pod"),
        pytest.param(SEPARATE, {"device": 1, "node": "n2"}, "ignore", None, id="on another pod"),
        pytest.param(SUB_HEALTH, {"device": 1}, "ignore", None, id="sub-health is ignored"),
        pytest.param(SUB_HEALTH, {"device": 1}, "graceExit", 10, id="sub-health counts"),
        pytest.param("80818200", {"device": 1}, "ignore", None, id="nothing to handle"),
        pytest.param("22000026", {"device": 1, "resource": "dpu"}, "ignore", None, id="of a DPU"),
    ],
)
async def test_recover_in_place_only_while_the_pod_has_nothing_worse(
    code: str, given: dict[str, Any], strategy: str, release: int | None
) -> None:
    rig = demo(IN_PLACE["annotations"], {**IN_PLACE["labels"], "subHealthyStrategy": strategy})
    rig.fault(REQUEST, 1)
    rig.fault(code, 10, **given)
    rig.tick(100)
    await rig.run()
    shown = [at for at, codes in listed(rig) if REQUEST in ",".join(codes)]
    assert shown[0] == (61 if release is None else release)


async def test_a_separate_fault_beside_a_sub_healthy_one_is_noticed() -> None:
    # Quirk: ClusterD stops looking at the first SubHealth fault when the strategy is ignore (fault_utils.go:489).
    rig = demo(**IN_PLACE)
    rig.fault(SUB_HEALTH, 1, device=0)
    rig.fault(SEPARATE, 2, device=1)
    rig.fault(REQUEST, 3)
    rig.tick(4)
    await rig.run()
    assert listed(rig)[-1] == (3, [SUB_HEALTH, SEPARATE, REQUEST])


async def test_the_pod_of_rank_0_counts_too() -> None:
    rig = demo(**IN_PLACE)
    rig.fault(SEPARATE, 1, node="n1", device=0)
    rig.fault(REQUEST, 2, node="n2")
    rig.tick(3)
    await rig.run()
    assert listed(rig)[-1][1] == [SEPARATE, REQUEST]


# --- stress test ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["80818C05", "80818C06"])
async def test_findings_of_a_stress_test_are_kept_back_while_it_runs(code: str) -> None:
    rig = demo({"fault-agent/stress-test": "on"})
    rig.fault(code, 1)
    rig.fault(SEPARATE, 2, node="n2")
    rig.tick(2000)
    rig.apply(a_group(labels=LABELS), 2001)
    rig.tick(2002)
    await rig.run()
    assert code not in ",".join(listed(rig)[1][1])
    assert [at for at, reason in said(rig)] == [1, 2, 2001]
    assert code in ",".join(listed(rig)[-1][1]) or code == "80818C06"


async def test_a_job_that_has_ended_tests_nothing_any_more() -> None:
    rig = demo({"fault-agent/stress-test": "on"})
    rig.apply(a_group(labels=LABELS, annotations={"fault-agent/stress-test": "on"}, phase="Completed"), 1)
    rig.fault("80818C05", 2)
    rig.tick(3)
    await rig.run()
    assert listed(rig)[-1] == (2, ["80818C05"])


# --- restarts ---------------------------------------------------------------------------------------------------------


async def test_a_restart_while_a_fault_is_kept_back_changes_neither_word_nor_time() -> None:
    rig = demo({CODES: f"{REQUEST}:30"})
    rig.fault(REQUEST, 1)
    rig.tick(10)
    await rig.run()
    again = Rig(rig.objects, disk=rig.disk, source=rig.source)
    again.tick(100)
    await again.run(resume=True)
    assert said(rig) == [(1, "QUIET")]
    assert said(again)[0] == (31.001, "RECOVERY_STARTED")
    assert listed(again)[-1] == (31, [REQUEST])


# --- model ------------------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.tuples(
        st.integers(0, 120),
        st.sampled_from([REQUEST, UCE, BUS, SEPARATE]),
        st.sampled_from([1, 2]),
        st.booleans(),
    ),
    max_size=8,
)
SPANS = {REQUEST: 20, UCE: 7}


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(0, 8))
async def test_what_is_shown_is_what_a_slow_reference_shows(
    events: list[tuple[int, str, int, bool]], restart: int
) -> None:
    """A code is in `fault-node` when it is active and none of its rules keeps it back, or when its device was separated
    for it: the second 80C98000 or 80E01801 of a device within a day does that (custom_frequency_duration.csv).
    """
    events = sorted(events, key=lambda one: one[0])
    rig = demo({CODES: f"{REQUEST}:20,{UCE}:7"})
    for number, (at, code, device, there) in enumerate(events):
        (rig.fault if there else rig.clear)(code, at, device=device)
        if number == restart:
            await rig.run()
            rig = Rig(rig.objects, disk=rig.disk, source=rig.source, _number=rig._number)
    rig.tick(300)
    await rig.run(resume=True)
    begun: dict[tuple[str, int], int] = {}
    times: Counter[tuple[str, int]] = Counter()
    uces: dict[int, list[int]] = {1: [], 2: []}
    for at, code, device, there in events:
        if there:
            if (code, device) not in begun:
                times[code, device] += 1
                if code == UCE:
                    uces[device].append(at)
            begun.setdefault((code, device), at)
        else:
            begun.pop((code, device), None)
    shown = {
        (code, device)
        for (code, device), at in begun.items()
        if not (code == BUS and any(abs(at - one) <= 5 for one in uces[device]))
    }
    separated = {device for (code, device), count in times.items() if count >= 2 and code in (REQUEST, UCE)}
    shown |= {("", device) for device in separated - {device for _, device in shown}}  # it has no code of its own
    entry = rig.book.entries.get("n1")  # type: ignore[call-overload]  # a name
    found = {
        (code, int(one.npu_name.rpartition("-")[2]))
        for one in (entry.devices or () if entry is not None else ())
        for code in one.fault_code.split(",")
    }
    assert found == shown
