"""The policy in force: taken whole when its files change, the last good one kept, and every role goes over to it."""

import os
import signal
from collections.abc import Callable, Hashable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from agentprocess import AgentProcess
from kubebuilders import the_demo
from recordlines import append_lines, fault_line, journal, write_cluster, write_lines
from rig import POLICY, T0
from rolerig import CoordinatorRig, NodeRig, a_report

from agent.adapters.memory import Failures
from agent.app import node_role
from agent.app.bootstrap.common import keep_policy
from agent.app.bootstrap.coordinator import Status, split_words
from agent.app.bootstrap.coordinator import samples as coordinator_samples
from agent.app.bootstrap.node import not_ready
from agent.app.bootstrap.policies import policy_samples
from agent.app.policykeep import PolicyKeep
from agent.domain.policy import EndedOverride, Override, Policy
from agent.errors import BadPolicy, Unavailable

SEPARATE = 0x80E18402
MILDER = replace(POLICY, chip={**POLICY.chip, SEPARATE: replace(POLICY.chip[SEPARATE], level="RestartRequest")})
NEW, OLD = MILDER.digest[:12], POLICY.digest[:12]


class Files:
    """Policy files as a test has them: what loading gives, and their mark."""

    def __init__(self) -> None:
        self.value: Policy | BadPolicy = POLICY
        self.mark: Hashable = 1
        self.during: Callable[[], None] = lambda: None

    def put(self, value: Policy | BadPolicy, mark: Hashable) -> None:
        self.value, self.mark = value, mark

    def load(self) -> Policy:
        self.during()
        if isinstance(self.value, BadPolicy):
            raise self.value
        return self.value

    def keep(self) -> PolicyKeep:
        return PolicyKeep(POLICY, self.load, lambda: self.mark)


BAD = BadPolicy("no level 'X'\nchip.yaml:9: again", place="chip.yaml:7")


def test_a_changed_file_is_taken_and_said_once() -> None:
    files = Files()
    keep = files.keep()
    assert keep.look() == ""
    files.put(MILDER, 2)
    assert keep.look() == f"policy {NEW} in force, {OLD} before"
    assert (keep.policy, keep.short, keep.loads, keep.look()) == (MILDER, NEW, 1, "")


def test_overrides_that_end_are_named_when_what_lies_below_holds_again() -> None:
    day = date(2026, 1, 31)
    held = replace(POLICY.chip[SEPARATE], level="RestartRequest", override=Override("ticket", day))
    before = replace(POLICY, chip={**POLICY.chip, SEPARATE: held})
    ended = EndedOverride("chip", SEPARATE, "80E18402", "RestartRequest", "mine/overrides.yaml:3", "ticket", day)
    never = replace(ended, key=1, code="00000001")
    files = Files()
    files.put(replace(POLICY, ended=(ended, never)), 2)
    words = "the override of chip 80E18402 to RestartRequest (mine/overrides.yaml:3) ended with 2026-01-31"
    keep = PolicyKeep(before, files.load, lambda: files.mark)
    files.put(files.value, 3)
    assert keep.look() == f"policy {OLD} in force, {before.digest[:12]} before; {words}"


def test_a_bad_policy_keeps_the_last_good_one_and_degrades_until_it_is_mended() -> None:
    files = Files()
    keep = files.keep()
    files.put(BAD, 2)
    told = "chip.yaml:7: no level 'X' (and 1 more mistake)"
    assert keep.look() == f"policy not taken, {OLD} stays in force: {told}"
    assert keep.degraded == f"degraded: policy {OLD} stays in force, for {told}"
    assert (keep.policy, keep.failures) == (POLICY, 1)
    assert keep.look() == ""
    files.put(BAD, 3)
    assert keep.look() == ""  # said before
    files.put(POLICY, 4)
    assert keep.look() == f"policy {OLD} stays in force: the files say the same"
    assert keep.degraded == ""


def test_a_defect_of_the_reader_keeps_the_last_good_policy_too() -> None:
    files = Files()
    keep = files.keep()
    files.mark = 2
    files.during = lambda: [][1]
    assert keep.look() == f"policy not taken, {OLD} stays in force: IndexError: list index out of range"
    assert keep.policy is POLICY


def test_a_hang_up_reads_files_that_look_unchanged() -> None:
    files = Files()
    keep = files.keep()
    files.value = MILDER
    assert keep.look() == ""
    assert keep.look(force=True) == f"policy {NEW} in force, {OLD} before"
    assert keep.look(force=True) == f"policy {NEW} stays in force: the files say the same"


def test_files_that_change_while_they_are_read_are_not_taken_in_halves() -> None:
    files = Files()
    keep = files.keep()
    files.put(MILDER, 2)
    files.during = lambda: files.put(MILDER, 3)
    assert (keep.look(), keep.short) == ("", OLD)
    files.during = lambda: None
    assert keep.look() == f"policy {NEW} in force, {OLD} before"


def test_metrics_say_whether_the_newest_files_are_in_force() -> None:
    files = Files()
    keep = files.keep()
    files.put(BAD, 2)
    keep.look()
    values = {name: value for _, name, _, value, _ in policy_samples(keep)}
    assert values == {
        "fault_agent_policy_ok": 0.0,
        "fault_agent_policy_loads": 0,
        "fault_agent_policy_load_failures": 1,
    }


# --- files ------------------------------------------------------------------------------------------------------------


def overrides(level: str) -> str:
    return f'version: 1\nchip:\n  "80E18402": {{level: {level}, reason: r, expires: never}}\n'


def test_a_mounted_config_map_changes_by_its_link(tmp_path: Path) -> None:
    """The kubelet writes a new folder and moves the link ..data to it; the file's own name never changes."""
    for number, level in ((1, "RestartNPU"), (2, "RestartRequest")):
        folder = tmp_path / f"..2026_{number}"
        folder.mkdir()
        (folder / "overrides.yaml").write_text(overrides(level), encoding="utf-8")
    (tmp_path / "..data").symlink_to("..2026_1")
    (tmp_path / "overrides.yaml").symlink_to("..data/overrides.yaml")
    keep = keep_policy(tmp_path)
    assert (keep.policy.chip[SEPARATE].level, keep.look()) == ("RestartNPU", "")
    (tmp_path / "..data_tmp").symlink_to("..2026_2")
    os.replace(tmp_path / "..data_tmp", tmp_path / "..data")  # what the kubelet does
    assert keep.look().startswith("policy ")
    assert keep.policy.chip[SEPARATE].level == "RestartRequest"


def test_a_file_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    path.write_text(overrides("RestartNPU"), encoding="utf-8")
    keep = keep_policy(tmp_path)
    path.unlink()
    assert "the folder holds no policy file" in keep.look()
    assert keep.policy.chip[SEPARATE].level == "RestartNPU"
    path.write_text(overrides("RestartRequest"), encoding="utf-8")
    keep.look()
    assert (keep.policy.chip[SEPARATE].level, keep.degraded) == ("RestartRequest", "")


def test_a_hundred_thousand_overrides_are_taken(tmp_path: Path) -> None:
    entries = "".join(
        f'  "{number:08X}": {{level: RestartNPU, reason: r, expires: never}}\n' for number in range(1, 100_001)
    )
    (tmp_path / "overrides.yaml").write_text(f"version: 1\nchip:\n{entries}", encoding="utf-8")
    policy = keep_policy(tmp_path).policy
    assert len(policy.chip) == 100_802
    assert policy.chip[100_000].place == f"{tmp_path.as_posix()}/overrides.yaml:100002"


def test_the_shipped_policy_alone_never_changes() -> None:
    assert keep_policy(None).look() == ""


# --- the node role ----------------------------------------------------------------------------------------------------


async def test_a_new_policy_re_rates_what_is_active_at_once_and_stands_in_report_and_reasons() -> None:
    rig = await NodeRig().up()
    rig.stream.fault("80E18402")
    await rig.clock.advance(1)
    assert [fault.level for fault in rig.bus.last().active] == ["SeparateNPU"]
    assert rig.bus.last().policy == POLICY.digest
    rig.keep.policy = MILDER
    await rig.clock.advance(1.5)
    last = rig.bus.last()
    assert ([fault.level for fault in last.active], last.policy) == (["RestartRequest"], MILDER.digest)
    told = [(line.decision.level, line.policy) for line in rig.bus.lines()]
    assert told == [("SeparateNPU", OLD), ("RestartRequest", NEW)]
    await rig.end()


async def test_a_journal_that_is_away_keeps_no_policy_back_and_each_reason_names_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_role, "RETRY_S", (0.0,))
    rig = await NodeRig().up()
    rig.audit.failures.fail_next(*(Unavailable("away") for _ in range(10_000)))
    rig.stream.fault("80E18402")
    await rig.clock.advance(0.5)
    rig.keep.policy = MILDER
    await rig.clock.advance(1)
    assert (rig.bus.last().policy, rig.bus.lines()) == (MILDER.digest, [])
    rig.audit.failures = Failures()
    await rig.clock.advance(1)
    told = [(line.decision.level, line.policy) for line in rig.bus.lines()]
    assert told == [("SeparateNPU", OLD), ("RestartRequest", NEW)]
    await rig.end()


async def test_a_healthy_node_reports_its_new_policy_without_waiting_for_a_heartbeat() -> None:
    rig = await NodeRig().up()
    rig.keep.policy = MILDER
    await rig.clock.advance(1.5)
    assert rig.bus.last().policy == MILDER.digest
    assert rig.bus.lines() == []
    await rig.end()


async def test_a_restart_with_another_policy_re_rates_what_the_report_holds() -> None:
    first = NodeRig()
    first.stream.fault("80E18402")
    await first.up()
    await first.end()
    again = NodeRig(first.bus, first.stream, instance="b", policy=MILDER)
    await again.up()
    assert [fault.level for fault in first.bus.last().active] == ["RestartRequest"]
    await again.end()


# --- the coordinator --------------------------------------------------------------------------------------------------


async def test_the_coordinator_s_own_rules_go_over_too() -> None:
    rig = await CoordinatorRig().lead()
    assert rig.book.policy is POLICY
    rig.keep.policy = MILDER
    await rig.clock.advance(2)
    assert rig.book.policy is MILDER
    await rig.end()


async def test_readiness_says_degraded_and_why_once_the_role_is_current() -> None:
    files = Files()
    keep = files.keep()
    files.put(BAD, 2)
    keep.look()
    node = NodeRig()
    assert not_ready(node.role, keep) == "not caught up with the stream yet"
    await node.up()
    assert not_ready(node.role, keep) == keep.degraded
    await node.end()
    rig = await CoordinatorRig().lead()
    assert Status(keep).missing() == "Kafka and the API server are not reached yet"
    assert Status(keep, rig.role).missing() == keep.degraded
    assert Status(files.keep(), rig.role).missing() == ""
    await rig.end()


async def test_a_split_fleet_is_counted_and_said() -> None:
    rig = CoordinatorRig()
    for node, digest in (("n1", POLICY.digest), ("n2", MILDER.digest), ("n3", MILDER.digest)):
        rig.bus.foreign(a_report(node, policy=digest, caught_up=True))
    await rig.lead()
    assert rig.role.roll.policies() == {OLD: 1, NEW: 2}
    values = {name: value for _, name, _, value, labels in coordinator_samples(rig.role) if not labels}
    assert (values["fault_agent_policies"], values["fault_agent_other_policy_nodes"]) == (2, 2)
    await rig.end()


def test_a_split_is_told_in_words() -> None:
    assert split_words({"aaa": 5}, "aaa") == ""
    assert split_words({}, "aaa") == ""
    assert split_words({"bbb": 1, "aaa": 5}, "aaa") == (
        "policy split: 5 nodes by aaa, 1 nodes by bbb; this coordinator has aaa"
    )
    assert split_words({"bbb": 6}, "aaa") == "policy split: 6 nodes by bbb; this coordinator has aaa"


# --- solo -------------------------------------------------------------------------------------------------------------


def test_a_running_agent_goes_over_to_its_new_policy_on_sighup(tmp_path: Path) -> None:
    write_cluster(tmp_path / "cluster.json", the_demo({"fault-scheduling": "grace"}))
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "overrides.yaml").write_text("version: 1\n", encoding="utf-8")
    write_lines(tmp_path / "events.jsonl", [])
    words = (tmp_path / "events.jsonl", tmp_path / "cluster.json", tmp_path / "out", "--policy", str(mine))
    with AgentProcess(*words) as agent:
        append_lines(tmp_path / "events.jsonl", [fault_line("80E18402", T0, 1)])
        agent.until(lambda: any(line.get("level") == "SeparateNPU" for line in journal(tmp_path / "out")))
        (mine / "overrides.yaml").write_text(overrides("NoLevel"), encoding="utf-8")
        agent.process.send_signal(signal.SIGHUP)
        agent.until(lambda: "policy not taken" in agent.log.read_text(encoding="utf-8"))
        assert "overrides.yaml:3: level cannot be 'NoLevel'" in agent.log.read_text(encoding="utf-8")
        (mine / "overrides.yaml").write_text(overrides("RestartRequest"), encoding="utf-8")
        agent.process.send_signal(signal.SIGHUP)
        agent.until(lambda: any(line.get("level") == "RestartRequest" for line in journal(tmp_path / "out")))
        assert agent.end() == 0
    lines = [line for line in journal(tmp_path / "out") if line["reason"] == "FAULT_SHOWN"]
    assert [line["level"] for line in lines] == ["SeparateNPU", "RestartRequest"]
    assert lines[0]["policy"] != lines[1]["policy"]


@pytest.mark.parametrize("error", [BadPolicy("a", place="b:1"), BadPolicy("x")])
def test_the_first_mistake_is_told_alone_when_it_is_alone(error: BadPolicy) -> None:
    files = Files()
    keep = files.keep()
    files.put(error, 2)
    assert keep.look().endswith(str(error))
