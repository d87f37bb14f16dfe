"""`fault-agent why`: who is asked for, the answer for people and for machines, and how it stands now."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import REF, SEPARATE, Command
from kubebuilders import DEMO_GROUP, DEMO_JOB
from recordlines import fault_line, write_lines
from rig import T0

from agent.app.cli.answer import counted
from agent.domain.events import FaultKey, FrequencyCounter
from agent.domain.vocab import Millis, NodeName, Plane


@pytest.fixture
def judged(call: Command, files: Path) -> Path:
    """The --out folder of a replay."""
    write_lines(
        files / "events.jsonl",
        [
            fault_line(SEPARATE, T0, 1),
            fault_line(SEPARATE, T0 + 1000, 2, node="n9"),
            fault_line("80E24E00", T0 + 2000, 3, devices=(1,)),
            {"tick": T0 + 60_000},
        ],
    )
    call.replay(files)
    return files / "out"


def decided(out: str) -> list[dict[str, Any]]:
    """The decisions in the answer for machines."""
    return [one for one in json.loads(out) if one["kind"] == "decision"]


def faults(out: str) -> set[str]:
    """Faults that those decisions speak of."""
    named = [(one["fault"], *(cause["fault"] for cause in one["causes"])) for one in decided(out)]
    return {ref for refs in named for ref in refs if ref}


SWITCH_CODE = "[0x00f103b6,155908,na,na]"
SWITCH_FAULT = fault_line(
    SWITCH_CODE, T0, 1, devices=(), resource="lingqu", location={"switchChipId": 0, "switchPortId": 3}
)


@pytest.mark.parametrize("ref", [DEMO_JOB, "train/demo", "demo", DEMO_GROUP])
def test_why_a_job_by_its_id_or_its_name(call: Command, judged: Path, ref: str) -> None:
    code, out, err = call("why", "job", ref, "--out", judged, "--json")
    assert (code, err) == (0, "")
    # The first write gives the job its retries in remain-retry-times.
    assert [(one["reason"], one["job"], one["causes"]) for one in json.loads(out)] == [
        ("WRITTEN", "", [{"fault": "", "job": DEMO_JOB}]),
        ("ISOLATION_ONLY", DEMO_JOB, []),
        ("ISOLATION_ONLY", DEMO_JOB, []),
    ]


def test_why_a_node(call: Command, judged: Path) -> None:
    code, out, _ = call("why", "node", "n9", "--out", judged, "--json")
    assert code == 0
    assert [(one["reason"], one["fault"]) for one in json.loads(out)] == [
        ("FAULT_SHOWN", f"n9/chip/2/{SEPARATE}@{T0 + 1000}"),
        ("NO_JOB", f"n9/chip/2/{SEPARATE}@{T0 + 1000}"),
        ("WRITTEN", ""),
    ]


@pytest.mark.parametrize(
    ("ref", "count"), [(REF, 3), (f"n1/chip/2/{SEPARATE}", 3), ("n1/chip/2", 3), ("n1/chip", 6), ("n1", 6), ("n1/", 6)]
)
def test_why_a_fault_by_its_reference_or_the_front_of_it(call: Command, judged: Path, ref: str, count: int) -> None:
    code, out, _ = call("why", "fault", ref, "--out", judged, "--json")
    assert code == 0
    found = decided(out)
    assert len(found) == count
    assert found[0]["fault"] == REF
    assert set(found[0]) >= {"time", "reason", "detail", "fault", "level", "node", "job", "ranks", "document", "mode"}


@pytest.mark.parametrize(
    "ref",
    [
        f"n1/chip/2/{SEPARATE.lower()}",
        f"n1/chip/2/0x{SEPARATE}",
        f"n1/Chip/2/0X0{SEPARATE}",
        f"n1/chip/2/0{SEPARATE.lower()}@{T0}",
    ],
)
def test_a_chip_code_is_a_number_however_it_is_written(call: Command, judged: Path, ref: str) -> None:
    code, out, _ = call("why", "fault", ref, "--out", judged, "--json")
    assert (code, faults(out)) == (0, {REF})


@pytest.mark.parametrize("asked", [SEPARATE, f"0x{SEPARATE.lower()}", f"0{SEPARATE}"])
def test_a_code_alone_is_asked_for_on_every_node(call: Command, judged: Path, asked: str) -> None:
    code, out, _ = call("why", "fault", asked, "--out", judged, "--json")
    assert code == 0
    assert faults(out) == {REF, f"n9/chip/2/{SEPARATE}@{T0 + 1000}"}


def test_a_reference_with_another_time_is_another_fault(call: Command, judged: Path) -> None:
    assert call("why", "fault", f"n1/chip/2/{SEPARATE}@{T0 + 1}", "--out", judged)[0] == 1


@pytest.mark.parametrize("ref", [SWITCH_CODE, SWITCH_CODE.upper(), f"n1/switch/0.3/{SWITCH_CODE}", "n1/SWITCH"])
def test_a_switch_code_is_a_text_in_any_case(call: Command, files: Path, ref: str) -> None:
    write_lines(files / "events.jsonl", [SWITCH_FAULT])
    call.replay(files)
    code, out, _ = call("why", "fault", ref, "--out", files / "out", "--json")
    assert (code, faults(out)) == (0, {f"n1/switch/0.3/{SWITCH_CODE}@{T0}"})


def test_why_a_document_tells_each_time_it_was_written(call: Command, judged: Path) -> None:
    for ref in ("volcano-system/vcjob-fault-npu-cm", "vcjob-fault-npu-cm"):
        code, out, _ = call("why", "document", ref, "--out", judged)
        assert code == 0
        assert out.count("Z  WRITTEN  volcano-system/vcjob-fault-npu-cm\n") == 4
        assert f"    detail    no faulty node; retries: {DEMO_JOB} 3 left\n    because   {DEMO_JOB}\n" in out
        assert f"    detail    faulty: n1 CardUnhealthy\n    because   {REF}\n" in out
        assert out.partition("\nNow:\n")[2].splitlines() == [
            f"  active   {REF}  SeparateNPU",
            f"  active   n9/chip/2/{SEPARATE}@{T0 + 1000}  SeparateNPU",
            f"  active   n1/chip/1/80E24E00@{T0 + 2000}  RestartNPU",
        ]


PEOPLE = f"""\
Times are UTC; local time is UTC+08:00.

2026-01-01 00:00:00.000Z  FAULT_SHOWN  SeparateNPU  {REF}
    meaning   64 HBM rows isolated on the chip
    detail    SeparateNPU by chip-table
2026-01-01 00:00:00.000Z  ISOLATION_ONLY  SeparateNPU  {REF}
    job       {DEMO_JOB}  rank 2
    detail    SeparateNPU is answered by isolation, not in place
2026-01-01 00:00:00.000Z  WRITTEN  volcano-system/vcjob-fault-npu-cm
    detail    faulty: n1 CardUnhealthy
    because   {REF}

Now:
  active   {REF}  SeparateNPU
"""


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that lives eight hours ahead of UTC."""
    monkeypatch.setenv("TZ", "XXX-8")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_why_for_people_is_a_block_a_decision_and_nothing_of_it_is_cut(call: Command, judged: Path) -> None:
    code, out, err = call("why", "fault", REF, "--out", judged)
    told, _, rules = out.partition("\nRules, as of ")
    assert (code, told, err) == (0, PEOPLE, "")
    assert re.match(
        rf"2026-01-01 00:00:02.000Z:\n  n1/chip/2/{SEPARATE}\n    chip-table, chip.yaml:\d+: SeparateNPU\n", rules
    )


def test_on_a_terminal_details_are_broken_between_words_and_references_are_not(
    call: Command, judged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    _, out, _ = call("why", "fault", REF, "--out", judged)
    lines = out.splitlines()
    assert "    detail    SeparateNPU is answered by" in lines
    assert "              isolation, not in place" in lines
    assert f"2026-01-01 00:00:00.000Z  ISOLATION_ONLY  SeparateNPU  {REF}" in lines


def test_how_it_stands_tells_what_is_over_and_what_is_still_to_come(call: Command, files: Path) -> None:
    lines = [
        fault_line("80C98000", T0, 1),
        fault_line("80E00209", T0 + 1000, 2, devices=(1,)),
        fault_line("80E00209", T0 + 2000, 3, devices=(1,), assertion="recover"),
        fault_line("81078603", T0 + 3000, 4, devices=(3,), resource="hccn"),
        {"tick": T0 + 5000},
    ]
    write_lines(files / "events.jsonl", lines)
    call.replay(files)
    _, out, _ = call("why", "node", "n1", "--out", files / "out")
    *stands, report = out.partition("\nNow:\n")[2].splitlines()
    assert report.startswith("  report   n1: of 2026-01-01 00:00:03.000Z, policy ")
    assert stands == [
        f"  active   n1/chip/2/80C98000@{T0}  RestartRequest",
        "           counted: 1 since 2026-01-01 00:00:00.000Z",
        f"  active   n1/network/3/81078603@{T0 + 3000}  NotHandleFault",
        "           pending: raised if still down after 2026-01-01 00:00:23.000Z",
        "           pending: whether a rail is borrowed",
        f"  cleared  n1/chip/1/80E00209@{T0 + 1000}",
        f"  pending  {DEMO_JOB}  recovery 1 by restart_request: unrecovered until 2026-01-01 00:00:30.000Z",
    ]
    shown = json.loads(call("why", "node", "n1", "--out", files / "out", "--json")[1])
    assert {one["fault"].partition("@")[0]: one["active"] for one in shown if one["fault"]} == {
        "n1/chip/2/80C98000": True,
        "n1/chip/1/80E00209": False,
        "n1/network/3/81078603": True,
    }
    assert {one["meaning"] for one in shown} >= {"AI core instruction data check failed"}


def test_how_it_stands_tells_a_trip(call: Command, files: Path) -> None:
    lines = [
        fault_line("80C98000", T0, 1),
        fault_line("80C98000", T0 + 1000, 2, assertion="recover"),
        fault_line("80C98000", T0 + 2000, 3),
    ]
    write_lines(files / "events.jsonl", lines)
    call.replay(files)
    _, out, _ = call("why", "node", "n1", "--out", files / "out")
    assert "           tripped: ManuallySeparateNPU at 2026-01-01 00:00:02.000Z\n" in out.partition("\nNow:\n")[2]


@pytest.mark.parametrize(
    ("phase", "due", "said"),
    [
        ("held", 0, "tripped: SeparateNPU at 2026-01-01 00:00:00.000Z"),
        (
            "clean",
            T0 + 60_000,
            "tripped: SeparateNPU at 2026-01-01 00:00:00.000Z; released after 2026-01-01 00:01:00.000Z if clean",
        ),
        ("released", T0 + 5, "tripped: SeparateNPU at 2026-01-01 00:00:00.000Z, released at 2026-01-01 00:00:00.005Z"),
    ],
)
def test_what_a_frequency_rule_did_is_told(phase: str, due: int, said: str) -> None:
    key = FaultKey(NodeName("n1"), Plane.CHIP, "2", "80C98000")
    counter = FrequencyCounter(key, phase, due=Millis(due), level="SeparateNPU", tripped=Millis(T0))
    assert counted(counter) == said


def test_many_faults_that_are_over_are_counted(call: Command, files: Path) -> None:
    lines = []
    for number in range(11):
        at = T0 + number * 10_000
        lines += [
            fault_line(SEPARATE, at, 2 * number + 1),
            fault_line(SEPARATE, at + 5000, 2 * number + 2, assertion="recover"),
        ]
    write_lines(files / "events.jsonl", lines)
    call.replay(files)
    assert "  cleared  11 faults\n" in call("why", "node", "n1", "--out", files / "out")[1]


def test_without_the_state_of_its_node_nobody_knows_whether_a_fault_is_active(call: Command, judged: Path) -> None:
    (judged / ".state" / "reports" / "n9.json").write_text("torn")
    _, out, _ = call("why", "node", "n9", "--out", judged)
    assert f"  unknown  n9/chip/2/{SEPARATE}@{T0 + 1000}\n" in out
    shown = json.loads(call("why", "node", "n9", "--out", judged, "--json")[1])
    assert {one["active"] for one in shown if one["fault"]} == {None}


@pytest.mark.parametrize(("kind", "ref"), [("job", "nobody"), ("node", "n"), ("fault", "n1/chip/2/80E1840")])
def test_why_nothing_exits_1_and_says_what_is_known(call: Command, judged: Path, kind: str, ref: str) -> None:
    code, out, err = call("why", kind, ref, "--out", judged, "--json")
    assert (code, json.loads(out)) == (1, [])
    assert f"nothing was decided about {kind} {ref}; known here:\n  " in err


def test_a_torn_line_of_the_journal_is_a_finding_and_the_rest_is_shown(call: Command, judged: Path) -> None:
    with (judged / "audit.jsonl").open("ab") as file:
        file.write(b'{"reason":"NO_SUCH"}\n{"tor')
    code, out, err = call("why", "node", "n9", "--out", judged, "--json")
    assert code == 0
    assert len(json.loads(out)) == 3
    assert err.count("no audit line") == 2


def test_a_word_with_marks_of_markup_is_shown_as_it_is(call: Command, files: Path) -> None:
    write_lines(files / "events.jsonl", [SWITCH_FAULT])
    call.replay(files)
    _, out, _ = call("why", "node", "n1", "--out", files / "out")
    assert "/[0x0" in out


def test_what_is_kept_back_is_shown_with_its_release_time(call: Command, files: Path) -> None:
    write_lines(files / "events.jsonl", [fault_line("80C98009", T0, 1), {"tick": T0 + 1000}])
    call.replay(files)
    _, out, _ = call("why", "job", "demo", "--out", files / "out")
    assert out.partition("\nNow:\n")[2].splitlines() == [
        f"  active   n1/chip/2/80C98009@{T0}  RestartRequest",
        "           kept back until 2026-01-01 00:00:05.000Z by UCE accompany, 5 s",
    ]


def test_what_is_separated_and_related_is_shown(call: Command, files: Path) -> None:
    lines = [
        fault_line("81078603", T0, 1, devices=(3,), resource="hccn"),
        fault_line("8C1F860B", T0 + 1000, 2, assertion="once"),
        fault_line("80BB8003", T0 + 2000, 3, devices=(1,), assertion="once"),
        fault_line("80BB8003", T0 + 102_000, 4, devices=(1,), assertion="once"),
        fault_line("80BB8003", T0 + 202_000, 5, devices=(1,), assertion="once"),
        {"tick": T0 + 240_000},
    ]
    write_lines(files / "events.jsonl", lines)
    call.replay(files)
    _, out, _ = call("why", "job", "demo", "--out", files / "out")
    told = out.partition("\nNow:\n")[2].splitlines()
    assert told[-2:] == [
        (
            "  separated  n1 device 1 for 80BB8003: ManuallySeparateNPU since 2026-01-01 00:03:22.000Z by counting"
            " (clusterd-config-cm); until 2026-01-03 00:03:22.000Z, or until a person releases it"
        ),
        f"  related  {DEMO_JOB}  pod demo-0: Separate by n1/network/3/81078603 since 2026-01-01 00:00:01.000Z",
    ]
