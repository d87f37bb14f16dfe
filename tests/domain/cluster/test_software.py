"""Hardware or software, and what is separated by hand: counted, kept, released once (faultcodes.md §5)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubebuilders import DEMO_JOB, a_config_map, a_group, a_pod, the_demo
from rig import T0, Rig

from agent.domain.ledger import Separation
from agent.domain.vocab import Millis, NodeName, Reason

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, OTHER, SEPARATE, NOTHING, SUB_HEALTH = "80BB8003", "80C9800A", "80E18402", "80818200", "8C1F860A"
HOUR = 3600.0
COUNTING = ("FAULT_COUNTED", "SOFTWARE_FAULT", "SEPARATED", "SEPARATION_RELEASED")


def demo(**given: Any) -> Rig:
    return Rig(the_demo(LABELS, given.pop("annotations", None)), given)


def told(rig: Rig) -> list[tuple[float, str, str]]:
    """Seconds, reason and identity of what was said by the counting rules."""
    return [
        ((one.at - T0) / 1000, str(one.reason), one.fault.rpartition("@")[0])
        for one in rig.decisions
        if one.reason in COUNTING
    ]


def flash(rig: Rig, at: float, code: str = REQUEST, **given: Any) -> None:
    """A fault that begins and ends."""
    rig.fault(code, at, **given)
    rig.clear(code, at + 1, **given)


def conf(**given: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"enabled": True, "window": 24, "threshold": 3, "free": 48, **given}
    text = json.dumps(
        {
            "enabled": found["enabled"],
            "separate": {"fault_window_hours": found["window"], "fault_threshold": found["threshold"]},
            "release": {"fault_free_hours": found["free"]},
        }
    )
    return a_config_map("clusterd-config-cm", {"manually_separate_policy.conf": text}, namespace="cluster-system")


def manual(**nodes: str | list[str]) -> dict[str, Any]:
    data = {
        node: json.dumps({"Total": given, "Detail": {}}) if isinstance(given, list) else given
        for node, given in nodes.items()
    }
    return a_config_map("clusterd-manual-info-cm", data, namespace="cluster-system")


def listed(rig: Rig, node: str = "n1") -> list[tuple[str, str, str]]:
    entry = rig.book.entries.get(NodeName(node))
    return [(one.npu_name, one.level, one.fault_code) for one in (entry.devices or () if entry is not None else ())]


def separated(rig: Rig, node: str = "n1") -> list[tuple[int, str]]:
    return [(one.device, one.code) for one in rig.book.cluster.separations.get(NodeName(node), ())]


# --- software ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "node", "device", "code", "software"),
    [
        pytest.param(0, "n1", 3, REQUEST, True, id="at once"),
        pytest.param(30, "n2", 2, REQUEST, True, id="30 s later on another node"),
        pytest.param(30.001, "n2", 2, REQUEST, False, id="a moment too late"),
        pytest.param(5, "n2", 2, OTHER, False, id="another code"),
        pytest.param(5, "n1", 7, REQUEST, False, id="on a device of no job"),
    ],
)
async def test_the_same_code_on_another_device_of_the_job_is_a_software_fault(
    second: float, node: str, device: int, code: str, software: bool
) -> None:
    rig = demo()
    rig.fault(REQUEST, 10, assertion="once")
    rig.fault(code, 10 + second, node=node, device=device, assertion="once")
    rig.tick(100)
    await rig.run()
    both = [
        (10 + second, "SOFTWARE_FAULT", f"n1/chip/2/{REQUEST}"),
        (10 + second, "SOFTWARE_FAULT", f"{node}/chip/{device}/{code}"),
    ]
    assert sorted(told(rig)) == (sorted(both) if software else [])
    assert bool(rig.book.cluster.counts) is not software


async def test_a_software_fault_says_what_it_was_found_by() -> None:
    rig = demo()
    flash(rig, 10)
    flash(rig, 12, node="n2", device=1)
    rig.tick(50)
    await rig.run()
    first = next(one for one in rig.decisions if one.reason is Reason.SOFTWARE_FAULT)
    assert first.detail == (
        f"software: {REQUEST} on n2/chip/1 of the same job within 2 s; not counted against the device"
    )


async def test_devices_of_two_jobs_are_two_accidents() -> None:
    second = a_group("other-1", owner="other", owner_uid="other", min_member=1, labels=LABELS)
    rig = Rig([*the_demo(LABELS), second, a_pod("other-0", group="other-1", uid="uid-o", node="n3", labels=LABELS)])
    flash(rig, 10)
    flash(rig, 11, node="n3")
    rig.tick(100)
    await rig.run()
    assert told(rig) == []
    assert set(rig.book.cluster.counts) == {"n1", "n3"}


# --- counted ----------------------------------------------------------------------------------------------------------


async def test_the_third_within_a_day_separates_the_device() -> None:
    rig = demo()
    for at in (10, 110, 210):
        flash(rig, at)
    rig.tick(300)
    await rig.run()
    who = f"n1/chip/2/{REQUEST}"
    assert told(rig) == [(140.001, "FAULT_COUNTED", who), (240.001, "SEPARATED", who)]
    assert separated(rig) == [(2, REQUEST)]
    assert listed(rig) == [("Ascend910-2", "ManuallySeparateNPU", "")]


@pytest.mark.parametrize("code", [NOTHING, SUB_HEALTH])
async def test_mild_faults_do_not_count(code: str) -> None:
    rig = demo()
    for at in (10, 110, 210):
        flash(rig, at, code)
    rig.tick(300)
    await rig.run()
    assert rig.book.cluster.counts == {}


async def test_faults_of_a_device_without_a_job_do_not_count() -> None:
    rig = demo()
    for at in (10, 110, 210):
        flash(rig, at, device=7)
    rig.tick(300)
    await rig.run()
    assert rig.book.cluster.counts == {}


async def test_codes_and_devices_are_counted_apart() -> None:
    rig = demo()
    for at, code, device in ((10, REQUEST, 2), (110, OTHER, 2), (210, REQUEST, 1), (310, REQUEST, 2)):
        flash(rig, at, code, device=device)
    rig.tick(400)
    await rig.run()
    assert separated(rig) == []


async def test_what_a_filter_hides_is_not_counted() -> None:
    rig = demo(annotations={"huawei.com/schedule.filter.faultCode": f"{REQUEST}:60"})
    for at in (10, 110, 210):
        flash(rig, at)
    rig.tick(400)
    await rig.run()
    assert rig.book.cluster.counts == {}


async def test_what_a_filter_lets_go_is_counted_then() -> None:
    rig = demo(annotations={"huawei.com/schedule.filter.faultCode": f"{SEPARATE}:60"})
    rig.fault(SEPARATE, 10)
    rig.tick(400)
    await rig.run()
    assert [len(one.times) for one in rig.book.cluster.counts[NodeName("n1")].values()] == [1]


@pytest.mark.parametrize(
    ("given", "times", "trips"),
    [
        pytest.param({"threshold": 1}, [10], True, id="threshold 1"),
        pytest.param({"threshold": 5}, [10, 110, 210, 310], False, id="threshold 5"),
        pytest.param({"window": 1}, [10, 110, 10 + HOUR], False, id="window 1 h"),
        pytest.param({"enabled": False}, [10, 110, 210], False, id="switched off"),
        pytest.param({"window": 0}, [10, 110, 210], False, id="invalid at the start: off"),
    ],
)
async def test_the_policy_is_clusterd_s_own(given: dict[str, Any], times: list[float], trips: bool) -> None:
    rig = Rig([*the_demo(LABELS), conf(**given)])
    for at in times:
        flash(rig, at)
    rig.tick(max(times) + 100)
    await rig.run()
    assert bool(separated(rig)) is trips


async def test_an_invalid_policy_keeps_the_one_before() -> None:
    rig = Rig([*the_demo(LABELS), conf(threshold=1)])
    rig.apply(conf(threshold=0), 5)
    flash(rig, 10)
    rig.tick(100)
    await rig.run()
    assert separated(rig) == [(2, REQUEST)]
    assert ["separate.fault_threshold" in one for one in rig.world.findings] == [True]


# --- kept and released ------------------------------------------------------------------------------------------------


def three(rig: Rig) -> None:
    for at in (10, 110, 210):
        flash(rig, at)
    rig.tick(300)


async def test_it_is_released_after_its_window_once() -> None:
    rig = Rig([*the_demo(LABELS), conf(free=1)])
    three(rig)
    rig.tick(210 + HOUR - 0.001)
    rig.tick(210 + 3 * HOUR)
    await rig.run()
    released = [one for one in told(rig) if one[1] == "SEPARATION_RELEASED"]
    assert released == [(210 + HOUR, "SEPARATION_RELEASED", f"n1/chip/2/{REQUEST}")]
    assert (separated(rig), listed(rig)) == ([], [])


async def test_without_a_window_it_stays() -> None:
    rig = Rig([*the_demo(LABELS), conf(free=-1)])
    three(rig)
    rig.tick(1000 * HOUR)
    await rig.run()
    assert separated(rig) == [(2, REQUEST)]


async def test_a_person_releases_it_by_taking_the_name_out_of_the_list() -> None:
    rig = demo()
    three(rig)
    rig.apply(manual(n1=["Ascend910-2", "Ascend910-3"]), 310)
    rig.tick(320)
    rig.apply(manual(n1=["Ascend910-3"]), 330)
    rig.tick(340)
    await rig.run()
    assert told(rig)[-1] == (330, "SEPARATION_RELEASED", f"n1/chip/2/{REQUEST}")
    assert (separated(rig), listed(rig)) == ([], [])


@pytest.mark.parametrize("how", ["document", "node"])
async def test_the_whole_list_or_node_gone_releases_too(how: str) -> None:
    rig = demo()
    three(rig)
    rig.apply(manual(n1=["Ascend910-2"], n2=[]), 310)
    if how == "document":
        rig.delete("ConfigMap", "cluster-system", "clusterd-manual-info-cm", 330)
    else:
        rig.apply(manual(n2=[]), 330)
    rig.tick(340)
    await rig.run()
    assert separated(rig) == []


@pytest.mark.parametrize("bad", ["", "{", "{}", '{"Total":null}', '{"Total":["?"]}', "[]"])
async def test_a_malformed_value_releases_nothing(bad: str) -> None:
    # Quirk: ClusterD reads the whole ConfigMap as empty then and releases every device (cm.go:213-224).
    rig = demo()
    three(rig)
    rig.apply(manual(n1=["Ascend910-2"], n2=["Ascend910-1"]), 310)
    rig.apply(manual(n1=bad, n2="{"), 330)
    rig.tick(340)
    await rig.run()
    assert separated(rig) == [(2, REQUEST)]
    again = Rig(rig.objects, disk=rig.disk, source=rig.source)
    again.apply(manual(n1=["Ascend910-1"]), 400)
    again.tick(410)
    await again.run(resume=True)
    assert separated(again) == []


async def test_a_name_that_was_never_listed_releases_nothing() -> None:
    rig = demo()
    three(rig)
    rig.apply(manual(n1=["Ascend910-3"]), 310)
    rig.apply(manual(n1=[]), 330)
    rig.tick(340)
    await rig.run()
    assert separated(rig) == [(2, REQUEST)]


async def test_a_removal_while_nobody_was_looking_is_noticed() -> None:
    rig = demo()
    three(rig)
    rig.apply(manual(n1=["Ascend910-2"]), 310)
    rig.tick(320)
    await rig.run()
    rig.delete("ConfigMap", "cluster-system", "clusterd-manual-info-cm", 400)
    again = Rig(rig.objects, disk=rig.disk, source=rig.source)
    again.tick(410)
    await again.run(resume=True)
    assert [one[1] for one in told(again)] == ["SEPARATION_RELEASED"]


async def test_switching_it_off_releases_and_forgets() -> None:
    rig = Rig([*the_demo(LABELS), conf()])
    three(rig)
    flash(rig, 310, device=1)
    rig.tick(400)
    rig.apply(conf(enabled=False), 500)
    rig.tick(510)
    await rig.run()
    assert separated(rig) == []
    assert rig.book.cluster.counts == {}


@pytest.mark.parametrize("between", [[], [450.0]], ids=["nothing between", "a fault while it is off"])
async def test_switched_off_and_on_again_what_was_before_does_not_count(between: list[float]) -> None:
    rig = Rig([*the_demo(LABELS), conf()])
    three(rig)
    rig.apply(conf(enabled=False), 400)
    for at in between:
        flash(rig, at)
    rig.tick(460)
    rig.apply(conf(), 500)
    for at in (600, 700):
        flash(rig, at)
    rig.tick(800)
    await rig.run()
    assert separated(rig) == []
    assert [one[:2] for one in told(rig)][-3:] == [
        (240.001, "SEPARATED"),
        (400, "SEPARATION_RELEASED"),
        (730.001, "FAULT_COUNTED"),
    ]
    assert rig.book.cluster.counts[NodeName("n1")][f"2/{REQUEST}"].times == (T0 + 600_000, T0 + 700_000)


async def test_what_began_while_it_was_off_never_counts_though_nothing_had_been_counted() -> None:
    rig = Rig([*the_demo(LABELS), conf(enabled=False)])
    for at in (10, 110, 210):
        flash(rig, at)
    rig.apply(conf(), 220)
    rig.tick(600)
    await rig.run()
    assert told(rig) == []
    assert rig.book.cluster.counts == {}


async def test_a_released_device_begins_anew() -> None:
    rig = demo()
    three(rig)
    rig.apply(manual(n1=["Ascend910-2"]), 310)
    rig.apply(manual(n1=[]), 330)
    flash(rig, 400)
    flash(rig, 500)
    rig.tick(600)
    await rig.run()
    assert separated(rig) == []


async def test_a_further_trip_while_it_is_kept_begins_its_window_anew() -> None:
    rig = demo()
    for at in (10, 110, 210, 310, 410, 510):
        flash(rig, at)
    rig.tick(600)
    await rig.run()
    held = rig.book.cluster.separations[NodeName("n1")]
    assert [(one.device, one.since) for one in held] == [(2, T0 + 510_000)]


async def test_a_separated_device_starts_no_recovery_and_makes_its_pod_a_suspect() -> None:
    rig = demo()
    three(rig)
    rig.fault(REQUEST, 400, device=1)
    rig.delete("Pod", "train", "demo-0", 500)
    rig.apply(a_pod("demo-0", uid="uid-new", node="n3", labels=LABELS), 510)
    rig.tick(520)
    await rig.run()
    reasons = {(one.at - T0) / 1000: str(one.reason) for one in rig.decisions if one.job == DEMO_JOB and one.fault}
    assert reasons[400] == "ISOLATION_ONLY"
    assert Reason.RESCHEDULE_RECORDED in [one.reason for one in rig.decisions]


async def test_a_separation_outlives_restarts_and_the_job() -> None:
    rig = demo()
    three(rig)
    await rig.run()
    for pod in ("demo-0", "demo-1"):
        rig.delete("Pod", "train", pod, 400)
    rig.delete("PodGroup", "train", DEMO_JOB.partition("/")[2], 401)
    again = Rig(rig.objects, disk=rig.disk, source=rig.source)
    again.tick(500)
    await again.run(resume=True)
    assert listed(again) == [("Ascend910-2", "ManuallySeparateNPU", "")]
    assert told(again) == []
    assert again.book.cluster.separations == {
        NodeName("n1"): (
            Separation(2, REQUEST, Millis(T0 + 210_000), rig.book.cluster.separations[NodeName("n1")][0].occurrence),
        )
    }


# --- model ------------------------------------------------------------------------------------------------------------

FAULTS = st.lists(
    st.tuples(st.integers(0, 4000), st.sampled_from(["n1", "n2"]), st.sampled_from([1, 2])), max_size=10, unique=True
)


@settings(max_examples=25, deadline=None)
@given(FAULTS, st.integers(0, 10))
async def test_faults_and_restarts_separate_what_a_slow_reference_separates(
    faults: list[tuple[int, str, int]], restart: int
) -> None:
    """Reference: drop every fault with a like on another device within 30 s; three within an hour separate."""
    faults = sorted(faults)
    rig = Rig([*the_demo(LABELS), conf(window=1)])
    for number, (at, node, device) in enumerate(faults):
        rig.fault(OTHER, at, node=node, device=device, assertion="once")
        if number == restart:
            await rig.run()
            rig = Rig(rig.objects, disk=rig.disk, source=rig.source, _number=rig._number)
    rig.tick(5000)
    await rig.run(resume=True)
    own = [
        (at, node, device)
        for at, node, device in faults
        if not any(abs(at - other[0]) <= 30 and (node, device) != other[1:] for other in faults)
    ]
    expected: dict[tuple[str, int], int] = {}
    since: dict[tuple[str, int], list[int]] = {}
    for at, node, device in own:
        run = since.setdefault((node, device), [])
        run.append(at)
        if len(run) >= 3 and run[-1] - run[-3] < HOUR:
            expected[node, device] = at
            run.clear()
    found = {
        (str(node), one.device): (one.since - T0) // 1000
        for node, held in rig.book.cluster.separations.items()
        for one in held
    }
    assert found == expected
