"""What `demo`, `replay` and `run` tell a person and a machine: the timeline, what stands beside it, the summary."""

import io
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from agentprocess import AgentProcess
from command import LABELS, REF, SEPARATE, Command, decisions, summary
from kubebuilders import DEMO_JOB, a_node, a_pod, the_demo
from recordlines import append_lines, document, fault_line, journal, write_cluster, write_lines
from rig import T0

from agent.app.bootstrap import scenario
from agent.app.cli.places import LinePlaces, byte_place
from agent.app.cli.timeline import Timeline
from agent.app.telling import Letter
from agent.domain.events import Decision
from agent.domain.vocab import JobId, Millis, NodeName, Reason
from agent.wire.audit import AuditLine

STRAY = (
    "POD_WITHOUT_GROUP Pod train/stray: its PodGroup train/nowhere is not there: its devices count as used, "
    "but by no job"
)
VCJOB = "volcano-system/vcjob-fault-npu-cm"


# --- demo -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a demo; tests change copies of it."""
    place = tmp_path_factory.mktemp("made") / "night"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["fault-agent", "demo", "--out", str(place), "--json"])
        patch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO()))
        from agent.app.cli.main import main

        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
    return place


@pytest.fixture
def night(made: Path, tmp_path: Path) -> Path:
    """A copy of the folder of a demo."""
    copy = tmp_path / "night"
    for path in sorted(made.rglob("*")):
        target = copy / path.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            target.write_bytes(path.read_bytes())
    return copy


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_demo_begins_with_what_the_marks_mean_and_ends_with_commands_that_work(
    call: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "fault-agent").touch()
    call.started = str(tmp_path / "bin" / "fault-agent")
    code, out, _ = call("demo", "--out", "a night")
    assert code == 0
    assert out.splitlines()[0].startswith("time, reason, fault, level, job · detail.  ! a person must look")
    lines = len(scenario()[0].read_text(encoding="utf-8").splitlines())
    assert lines == 34 + 26
    assert "\n34 records (and 26 lines of objects, probes and ticks), " in out
    assert "7 nodes, 2 jobs, 6 pods were read" in out
    _, _, tried = out.partition("What to try next:\n")
    assert tried.splitlines()[:3] == [
        "  bin/fault-agent why job finetune-a2 --out 'a night'",
        "  bin/fault-agent why node a3-node-0 --out 'a night'",
        "  bin/fault-agent explain 80E18402 81078603",
    ]
    for line in ("why job finetune-a2", "why node a3-node-0"):
        assert call(*line.split(), "--out", "a night")[0] == 0


def test_a_command_found_on_the_path_is_shown_by_its_name(
    call: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "fault-agent"
    started.touch()
    started.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    call.started = str(started)
    assert "\n  fault-agent why job finetune-a2 --out " in call("demo", "--out", tmp_path / "night")[1]


def test_a_demo_does_not_take_the_place_of_another_unasked(call: Command, night: Path) -> None:
    before = tree(night)
    code, out, err = call("demo", "--out", night)
    assert (code, out) == (2, "")
    assert "--replace lets this one take its place" in err
    assert tree(night) == before


def test_a_demo_takes_the_place_of_an_earlier_one_when_asked(call: Command, night: Path) -> None:
    before = tree(night)
    code, out, _ = call("demo", "--out", night, "--replace")
    assert (code, out.splitlines()[-1]) == (0, "The scenario ended as expected.")
    after = tree(night)
    assert {**after, ".state/lock": b""} == {**before, ".state/lock": b""}


@pytest.mark.parametrize("more", [[], ["--replace"]], ids=["as it is", "--replace"])
@pytest.mark.parametrize("name", ["notes.txt", "train/notes.json", ".state/mine", "deep/er/fault-agent-rails.json"])
def test_a_demo_leaves_what_it_did_not_write(call: Command, night: Path, name: str, more: list[str]) -> None:
    (night / name).parent.mkdir(parents=True, exist_ok=True)
    (night / name).write_text("mine")
    before = tree(night)
    code, out, err = call("demo", "--out", night, *more)
    assert (code, out) == (2, "")
    assert f"holds what no demo wrote: {name}" in err
    assert tree(night) == before


def test_a_link_is_nothing_that_a_demo_wrote(call: Command, night: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("mine")
    (night / "train" / "reset-config-x.json").symlink_to(tmp_path / "mine.json")
    assert call("demo", "--out", night, "--replace")[0] == 2
    assert (tmp_path / "mine.json").read_text() == "mine"


@pytest.mark.parametrize("more", [[], ["--replace"]], ids=["as it is", "--replace"])
def test_a_folder_that_no_demo_made_is_refused(call: Command, files: Path, more: list[str]) -> None:
    call.replay(files)
    before = tree(files / "out")
    code, out, err = call("demo", "--out", files / "out", *more)
    assert (code, out) == (2, "")
    assert "was not made by a demo (give --out a new folder, or remove this one yourself)" in err
    assert tree(files / "out") == before


def test_an_empty_folder_and_one_with_a_lock_alone_are_ready_for_a_demo(call: Command, tmp_path: Path) -> None:
    for name in ("empty", "locked"):
        (tmp_path / name / ".state").mkdir(parents=True)
    (tmp_path / "locked" / ".state" / "lock").touch()
    for name in ("empty", "locked"):
        assert call("demo", "--out", tmp_path / name, "--replace", "--json")[0] == 0


# --- what is told -----------------------------------------------------------------------------------------------------


def test_the_summary_for_machines_says_all_that_the_one_for_people_does(call: Command, files: Path) -> None:
    write_lines(
        files / "events.jsonl", [fault_line(SEPARATE, T0, 1), "no json", fault_line("80E18400", T0, 2, node="n2")]
    )
    write_cluster(files / "cluster.json", [*the_demo(LABELS), a_pod("stray", group="nowhere", node="n3")])
    code, out, _ = call.replay(files, "--json")
    assert code == 1
    assert len(decisions(out)) == 6
    line = len(json.dumps(fault_line(SEPARATE, T0, 1))) + 1
    assert summary(out) == {
        "records": 3,
        "controls": 0,
        "decisions": 6,
        "dead_letter_count": 1,
        "dead_letters": [
            {
                "reason": "KEY_MISSING",
                "detail": "key: the record has none, so no node;"
                " value: invalid literal, expected 'null': line 1 column 1 (char 0)",
                "source": f"0:0:{line}",
                "key": "",
            }
        ],
        "findings": [
            STRAY,
        ],
        "documents": [
            "fault-agent/fault-agent-cluster.json",
            f"train/fault-agent-job-{DEMO_JOB.removeprefix('train/')}.json",
            "volcano-system/vcjob-fault-npu-cm.json",
        ],
        "nodes": 2,
        "jobs": 1,
        "pods": 3,
    }


def test_a_replay_that_read_no_job_says_so(call: Command, files: Path) -> None:
    write_cluster(files / "cluster.json", [a_node()])
    code, out, _ = call.replay(files)
    assert code == 0
    assert "1 node, 0 jobs, 0 pods were read\n! no job was read: --cluster holds no PodGroup" in out


def test_objects_that_came_with_the_stream_were_read_too(call: Command, files: Path) -> None:
    write_cluster(files / "cluster.json", [])
    applied = [{"apply": item, "time": T0} for item in the_demo(LABELS)]
    write_lines(files / "events.jsonl", [*applied, fault_line(SEPARATE, T0 + 1, 1)])
    assert "2 nodes, 1 job, 2 pods were read" in call.replay(files)[1]


def test_an_empty_recording_has_no_date(call: Command, files: Path) -> None:
    write_lines(files / "events.jsonl", [])
    code, out, _ = call.replay(files)
    assert code == 0
    assert "1970" not in out
    assert out.startswith("--:--:--.---   WRITTEN               → volcano-system/vcjob-fault-npu-cm")


def test_a_message_that_was_taken_in_part_names_the_faults_that_were_not(call: Command, files: Path) -> None:
    line: Any = json.loads(json.dumps(fault_line(SEPARATE, T0, 1)))
    line["value"]["faults"].append({**line["value"]["faults"][0], "faultCode": "zzz"})
    write_lines(files / "events.jsonl", [line])
    assert "CODE_INVALID  n1, events.jsonl line 1 faults[1] · faults[1].faultCode: " in call.replay(files)[1]


def shown(capsys: pytest.CaptureFixture[str], *given: Decision, meaning: str = "") -> list[str]:
    timeline = Timeline()
    for decision in given:
        timeline.show(AuditLine(decision, "act", "", meaning))
    return capsys.readouterr().out.splitlines()[1:]


def told(reason: Reason, at: int = T0, **given: Any) -> Decision:
    return Decision(Millis(at), reason, NodeName("n1"), REF, level="SeparateNPU", **given)


def test_a_line_says_when_what_and_where_and_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(
        capsys,
        told(Reason.FAULT_SHOWN, detail="SeparateNPU by chip-table"),
        told(Reason.ISOLATION_ONLY, job=JobId(DEMO_JOB), ranks=(0, 1, 2, 3), detail="isolated"),
        told(Reason.FAULT_CLEARED, T0 + 5, detail="was SeparateNPU for 0.0 s"),
        told(Reason.RECOVERY_FAILED, T0 + 5, detail="failed"),
        told(Reason.FAULT_SHOWN, T0 + 6, detail="SeparateNPU"),
        meaning="64 HBM rows isolated",
    )
    assert lines == [
        f"00:00:00.000   FAULT_SHOWN           n1/chip/2/{SEPARATE}  SeparateNPU · 64 HBM rows isolated",
        f"00:00:00.000 ! ISOLATION_ONLY        n1/chip/2/{SEPARATE}  train/demo rank 0-3 · isolated",
        f"00:00:00.005   FAULT_CLEARED         n1/chip/2/{SEPARATE} · was SeparateNPU for 0.0 s",
        f"00:00:00.005 ! RECOVERY_FAILED       n1/chip/2/{SEPARATE} · failed",
        f"00:00:00.006   FAULT_SHOWN           n1/chip/2/{SEPARATE}  SeparateNPU",
    ]


def test_a_fault_that_stays_shown_after_its_recover_says_its_level_there(capsys: pytest.CaptureFixture[str]) -> None:
    raised = "down for longer than 20 s: SeparateNPU by duration:81078603"
    lines = shown(
        capsys,
        told(Reason.FAULT_SHOWN, detail=raised),
        told(Reason.IN_USE, job=JobId(DEMO_JOB), detail="separated once the job has left the device"),
        told(Reason.FAULT_SHOWN, detail="it has recovered; shown on as SeparateNPU until clean for longer than 60 s"),
    )
    fault, kept = f"n1/chip/2/{SEPARATE}", "it has recovered; shown on until clean for longer than 60 s"
    assert lines == [
        f"00:00:00.000   FAULT_SHOWN           {fault}  SeparateNPU · {raised}",
        f"00:00:00.000   IN_USE                {fault}  train/demo · separated once the job has left the device",
        f"00:00:00.000   FAULT_SHOWN           {fault}  SeparateNPU · {kept}",
    ]


@pytest.mark.parametrize(
    ("detail", "shown_as"),
    [
        ("NotHandleFault by chip-table", ""),
        ("once, NotHandleFault by switch-table", " · once"),
        ("NotHandleFault by unknown-code", " · no table knows the code"),
        ("NotHandleFault by unknown-code, held for a person", " · no table knows the code, held for a person"),
        ("once, NotHandleFault by duration:81078603", " · once, by duration:81078603"),
        ("policy changed: NotHandleFault by chip-table", " · policy changed: NotHandleFault by chip-table"),
    ],
)
def test_the_level_of_a_line_is_not_said_again_beside_it(
    capsys: pytest.CaptureFixture[str], detail: str, shown_as: str
) -> None:
    fault = "n1/chip/2/8F0000A1"
    decision = Decision(
        Millis(T0), Reason.FAULT_SHOWN, NodeName("n1"), f"{fault}@{T0}", level="NotHandleFault", detail=detail
    )
    assert shown(capsys, decision) == [f"00:00:00.000   FAULT_SHOWN           {fault}  NotHandleFault{shown_as}"]


@pytest.mark.parametrize(
    ("reason", "marked"),
    [
        (Reason.HELD, True),
        (Reason.RECOVERY_FAILED, True),
        (Reason.RAIL_REFUSED, True),
        (Reason.NO_RESET_EXECUTOR, True),
        (Reason.LEDGER_UNREADABLE, True),
        (Reason.RECOVERY_SUCCEEDED, False),
        (Reason.DUPLICATE_MESSAGE, False),
        (Reason.IN_USE, False),
    ],
)
def test_what_a_person_must_look_at_is_marked_without_colour_too(
    capsys: pytest.CaptureFixture[str], reason: Reason, marked: bool
) -> None:
    (line,) = shown(capsys, told(reason))
    assert line.startswith("00:00:00.000 ! " if marked else "00:00:00.000   ")


def test_a_long_detail_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = shown(capsys, told(Reason.RAIL_REFUSED, detail="x" * 91))
    assert line.endswith(f" · {'x' * 89}…")


# --- places of letters ------------------------------------------------------------------------------------------------


def letter(offset: int, source: str = "", generation: int = 0) -> Letter:
    return Letter(Millis(T0), "n1", "NOT_JSON", "value: bad", source, generation, offset)


def test_a_place_in_a_finished_file_is_its_line(tmp_path: Path) -> None:
    path = tmp_path / "night.jsonl"
    path.write_bytes(b"ab\n\ncd\nef")
    places = LinePlaces(path)
    asked = [places.of(letter(offset)) for offset in (0, 3, 4, 7, 7, 4)]
    assert asked == [f"night.jsonl line {line}" for line in (1, 2, 3, 4, 4, 3)]
    assert places.of(letter(4, "0:0:4[0,2]")) == "night.jsonl line 3 faults[0,2]"
    path.unlink()
    assert places.of(letter(7)) == "night.jsonl byte 7"


def test_a_place_in_a_growing_file_is_its_byte_and_says_when_the_file_is_a_later_one() -> None:
    assert byte_place("events.jsonl", letter(9)) == "events.jsonl byte 9"
    assert byte_place("events.jsonl", letter(9, "2:0:9[1]", 2)) == "events.jsonl byte 9 of generation 2 faults[1]"


# --- run --------------------------------------------------------------------------------------------------------------


def test_a_run_says_what_it_follows_and_tells_letters_and_findings_as_they_come(files: Path) -> None:
    write_lines(files / "events.jsonl", [])
    with AgentProcess(files / "events.jsonl", files / "cluster.json", files / "out") as agent:
        agent.until(lambda: bool(journal(files / "out")))
        first = agent.log.read_text().splitlines()[0]
        assert first.startswith(f"fault-agent: following {files / 'events.jsonl'} on the objects of ")
        assert ": 2 nodes, 1 job, 2 pods; mode act, policy " in first
        assert first.endswith(f", writing to {files / 'out'}")
        append_lines(files / "events.jsonl", [{"key": "n1", "value": {"id": 1}, "timestamp": T0}])
        agent.until(
            lambda: "! DEAD_LETTER           FIELD_INVALID  n1, events.jsonl byte 0 · id" in agent.log.read_text()
        )
        stray = a_pod("stray", group="nowhere", node="n3")
        fresh = write_cluster(files / "fresh.json", [*the_demo(LABELS), stray])
        fresh.rename(files / "cluster.json")
        agent.until(lambda: "finding: POD_WITHOUT_GROUP Pod train/stray" in agent.log.read_text())
        append_lines(files / "events.jsonl", [{"apply": a_pod("other", group="nowhere", node="n4")}])
        agent.until(lambda: "finding: POD_WITHOUT_GROUP Pod train/other" in agent.log.read_text())
        assert agent.end() == 0
    log = agent.log.read_text()
    while_running = log.partition("\n\n")[0]
    assert while_running.count("Pod train/stray") == 1
    assert "\n1 record (and 1 line of objects, probes and ticks), 1 decision, 1 dead letter, 2 findings; " in log
    assert "; 2 nodes, 1 job, 4 pods were read\n" in log


def test_a_run_of_an_old_recording_says_how_old_it_is_and_what_judges_a_recording(files: Path) -> None:
    # T0 is the start of 2026, and no clock is before it.
    with AgentProcess(files / "events.jsonl", files / "cluster.json", files / "out") as agent:
        agent.until(lambda: bool(journal(files / "out")))
        assert agent.end() == 0
    (said,) = [line for line in agent.log.read_text().splitlines() if "the newest record is " in line]
    assert re.fullmatch(
        r"fault-agent: the newest record is .* old; run judges on the wall clock and begins nothing for what is older"
        r" than 15 min\. For a recording, on its own clock: fault-agent replay",
        said,
    )


def test_a_run_of_fresh_events_says_nothing_of_their_age(files: Path) -> None:
    write_lines(files / "events.jsonl", [fault_line(SEPARATE, int(time.time() * 1000), 1)])
    with AgentProcess(files / "events.jsonl", files / "cluster.json", files / "out") as agent:
        agent.until(lambda: bool(journal(files / "out")))
        assert agent.end() == 0
    assert "the newest record" not in agent.log.read_text()


def test_a_run_on_objects_without_a_job_says_so_at_once(files: Path) -> None:
    write_cluster(files / "cluster.json", [a_node()])
    with AgentProcess(files / "events.jsonl", files / "cluster.json", files / "out") as agent:
        agent.until(lambda: "fault-agent: no job was read: --cluster holds no PodGroup" in agent.log.read_text())
        assert agent.end() == 0


def test_a_run_of_a_pipe_ends_with_its_summary_for_machines(
    call: Command, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps(fault_line(SEPARATE, T0, 1)).encode(), b"no json"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines))))
    words: list[str | Path] = [
        "run",
        "--role",
        "solo",
        "--events",
        "-",
        "--cluster",
        files / "cluster.json",
        "--out",
        files / "out",
    ]
    code, out, err = call(*words, "--json")
    assert code == 0
    assert summary(out)["dead_letter_count"] == 1
    assert [one["reason"] for one in summary(out)["dead_letters"]] == ["KEY_MISSING"]
    assert document(files / "out", VCJOB) is not None
    assert f"DEAD_LETTER           KEY_MISSING  no key, standard input byte {len(lines[0]) + 1} · " in err


def test_a_run_that_could_not_begin_leaves_nothing_in_the_way_of_a_replay(call: Command, files: Path) -> None:
    words: list[str | Path] = [
        "run",
        "--role",
        "solo",
        "--cluster",
        files / "cluster.json",
        "--out",
        files / "out",
        "--events",
    ]
    assert call(*words, files / "nowhere")[0] == 3
    assert call.replay(files)[0] == 0
