"""The command line: what each verb answers, its exit code, and that every error says what to do next."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kubebuilders import DEMO_GROUP, DEMO_JOB, a_pod, the_demo
from recordlines import document, fault_line, journal, write_cluster, write_lines
from rig import T0

from agent import __version__
from agent.app.cli.main import main

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST, SEPARATE = "80C98000", "80E18402"
REF = f"n1/chip/2/{SEPARATE}@{T0}"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run the command: exit code, standard output, standard error."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fault-agent", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        code = left.value.code
        shown = capsys.readouterr()
        return code if isinstance(code, int) else 0, shown.out, shown.err

    return run


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with an events file and a cluster file."""
    write_cluster(tmp_path / "cluster.json", the_demo(LABELS))
    write_lines(
        tmp_path / "events.jsonl",
        [fault_line(SEPARATE, T0, 1), {"tick": T0 + 60_000}],
    )
    return tmp_path


def replay(call: Call, files: Path, *more: str | Path) -> tuple[int, str, str]:
    return call("replay", files / "events.jsonl", "--cluster", files / "cluster.json", "--out", files / "out", *more)


def test_the_version_is_one_line_and_json_when_asked(call: Call) -> None:
    code, out, _ = call("version")
    python = ".".join(map(str, sys.version_info[:3]))
    assert (code, out) == (0, f"fault-agent {__version__} (Python {python})\n")
    code, out, _ = call("version", "--json")
    assert json.loads(out) == {"version": __version__, "python": python}


@pytest.mark.parametrize("verb", ["", "demo", "run", "replay", "explain", "why", "policy", "policy show", "version"])
@pytest.mark.parametrize("ask", ["-h", "--help"])
def test_help_teaches_and_exits_well(call: Call, verb: str, ask: str) -> None:
    code, out, err = call(*verb.split(), ask)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: ")
    if verb not in ("version", "policy"):
        assert "fault-agent" in out.partition("Options:")[2] or "Example:" in out or "See it work" in out


def test_the_verbs_stand_in_the_order_a_newcomer_needs_them(call: Call) -> None:
    _, out, _ = call("--help")
    listed = [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line.startswith("  ")]
    assert listed[:4] == ["demo", "run", "replay", "explain"]


def test_a_clean_replay_exits_0_and_says_where_its_documents_lie(call: Call, files: Path) -> None:
    code, out, err = replay(call, files)
    assert (code, err) == (0, "")
    assert "1 records" in out
    assert "volcano-system/vcjob-fault-npu-cm.json" in out
    assert document(files / "out", "volcano-system/vcjob-fault-npu-cm") is not None


def test_json_is_one_decision_a_line_and_nothing_else(call: Call, files: Path) -> None:
    code, out, _ = replay(call, files, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["reason"] for line in lines] == ["WRITTEN", "FAULT_SHOWN", "ISOLATION_ONLY", "WRITTEN"]
    assert lines == journal(files / "out")
    assert lines[1]["time"] == "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("line", "what"),
    [("no json at all", "1 dead letters"), (json.dumps({"key": "n1", "value": {"id": 1}}), "1 dead letters")],
)
def test_bad_records_exit_1(call: Call, files: Path, line: str, what: str) -> None:
    write_lines(files / "events.jsonl", [fault_line(SEPARATE, T0, 1), line])
    code, out, _ = replay(call, files)
    assert code == 1
    assert what in out
    assert len((files / "out" / "dead-letters.jsonl").read_text().splitlines()) == 1


def test_bad_objects_exit_1_and_are_named(call: Call, files: Path) -> None:
    objects = [*the_demo(LABELS), a_pod("stray", group="nowhere", node="n3")]
    write_cluster(files / "cluster.json", objects)
    code, out, _ = replay(call, files)
    assert code == 1
    assert "POD_WITHOUT_GROUP" in out


def test_a_folder_with_state_is_refused_or_gone_on_with(call: Call, files: Path) -> None:
    assert replay(call, files)[0] == 0
    before = (files / "out" / "audit.jsonl").read_bytes()
    code, _, err = replay(call, files)
    assert code == 2
    assert "--continue" in err
    assert (files / "out" / "audit.jsonl").read_bytes() == before
    code, _, err = replay(call, files, "--continue")
    assert (code, err) == (0, "")
    assert (files / "out" / "audit.jsonl").read_bytes() == before


def test_a_replay_goes_on_where_the_recording_was_longer(call: Call, files: Path) -> None:
    replay(call, files)
    with (files / "events.jsonl").open("a") as file:
        file.write(json.dumps(fault_line(SEPARATE, T0 + 90_000, 2, assertion="recover")) + "\n")
    code, out, _ = replay(call, files, "--continue", "--json")
    assert code == 0
    assert [json.loads(line)["reason"] for line in out.splitlines()] == ["FAULT_CLEARED", "WRITTEN"]


def test_a_replay_that_could_not_begin_leaves_nothing_in_the_way_of_the_next(call: Call, files: Path) -> None:
    events, out = files / "events.jsonl", files / "out"
    assert call("replay", events, "--cluster", files / "nowhere", "--out", out)[0] == 3
    assert call("replay", files / "nowhere", "--cluster", files / "cluster.json", "--out", out)[0] == 3
    assert replay(call, files)[0] == 0


WRONG_USE = [
    ("an unknown verb", ["dance"], "dance"),
    ("an unknown option", ["replay", "--loud"], "--loud"),
    ("a missing argument", ["replay"], "EVENTS"),
    ("a missing option", ["replay", "x"], "--cluster"),
    ("no code", ["explain"], "CODE"),
    ("no fault code", ["explain", "zzz"], "Expected is"),
    ("a role that does not exist", ["run", "--role", "king", "--events", "x"], "king"),
    ("a kind that does not exist", ["why", "pod", "x"], "pod"),
    ("a folder that is not there", ["why", "job", "x", "--out", "/nowhere"], "/nowhere"),
]


@pytest.mark.parametrize(("words", "named"), [row[1:] for row in WRONG_USE], ids=[row[0] for row in WRONG_USE])
def test_wrong_use_exits_2_and_names_what_is_wrong(call: Call, words: list[str], named: str) -> None:
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err


SETTINGS = [
    ("mode: of\n", "mode"),
    ("moed: act\n", "did you mean mode?"),
    ("documents:\n  reset_confg: {}\n", "did you mean reset_config?"),
    ("scheduler_time_zone: Mars/Base\n", "Asia/Shanghai"),
    ("mode: [\n", "no YAML"),
    ("7\n", "a mapping of settings is expected"),
    ("max_event_age_s: -1\n", "max_event_age_s"),
    ("documents:\n  vcjob_fault_npu_cm:\n    namespace: 'Not A Name'\n", "documents.vcjob_fault_npu_cm.namespace"),
]


@pytest.mark.parametrize(("text", "named"), SETTINGS)
def test_a_wrong_setting_exits_2_and_is_named_with_its_place(call: Call, files: Path, text: str, named: str) -> None:
    (files / "agent.yaml").write_text(text)
    code, _, err = replay(call, files, "--config", files / "agent.yaml")
    assert code == 2
    assert named in err
    assert not (files / "out").exists()


CANNOT = [
    ("no events", ["replay", "{0}/none", "--cluster", "{0}/cluster.json", "--out", "{0}/out"], "no such file"),
    ("events are a folder", ["replay", "{0}", "--cluster", "{0}/cluster.json", "--out", "{0}/out"], "JSON Lines"),
    ("no cluster", ["replay", "{0}/events.jsonl", "--cluster", "{0}/none", "--out", "{0}/out"], "YAML or JSON"),
    (
        "out is a file",
        ["replay", "{0}/events.jsonl", "--cluster", "{0}/cluster.json", "--out", "{0}/events.jsonl"],
        "events.jsonl",
    ),
    (
        "bad policy",
        ["replay", "{0}/events.jsonl", "--cluster", "{0}/cluster.json", "--out", "{0}/o", "--policy", "{0}/none"],
        "none",
    ),
    ("no journal", ["why", "job", "x", "--out", "{0}"], "--out"),
]


@pytest.mark.parametrize(("words", "named"), [row[1:] for row in CANNOT], ids=[row[0] for row in CANNOT])
def test_what_cannot_run_exits_3_and_says_why(call: Call, files: Path, words: list[str], named: str) -> None:
    code, out, err = call(*(word.format(files) for word in words))
    assert (code, out) == (3, "")
    assert err.startswith("fault-agent: ")
    assert named in err


# --- why --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def judged(call: Call, files: Path) -> Path:
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
    replay(call, files)
    return files / "out"


@pytest.mark.parametrize("ref", [DEMO_JOB, "train/demo", "demo", DEMO_GROUP])
def test_why_a_job_by_its_id_or_its_name(call: Call, judged: Path, ref: str) -> None:
    code, out, err = call("why", "job", ref, "--out", judged, "--json")
    assert (code, err) == (0, "")
    assert [one["reason"] for one in json.loads(out)] == ["ISOLATION_ONLY", "ISOLATION_ONLY"]


def test_why_a_node(call: Call, judged: Path) -> None:
    code, out, _ = call("why", "node", "n9", "--out", judged, "--json")
    assert code == 0
    assert [(one["reason"], one["fault"]) for one in json.loads(out)] == [
        ("FAULT_SHOWN", f"n9/chip/2/{SEPARATE}@{T0 + 1000}"),
        ("NO_JOB", f"n9/chip/2/{SEPARATE}@{T0 + 1000}"),
    ]


@pytest.mark.parametrize(
    ("ref", "count"), [(REF, 2), (f"n1/chip/2/{SEPARATE}", 2), ("n1/chip/2", 2), ("n1/chip", 4), ("n1", 4), ("n1/", 4)]
)
def test_why_a_fault_by_its_reference_or_the_front_of_it(call: Call, judged: Path, ref: str, count: int) -> None:
    code, out, _ = call("why", "fault", ref, "--out", judged, "--json")
    assert code == 0
    found = json.loads(out)
    assert len(found) == count
    assert found[0]["fault"] == REF
    assert set(found[0]) >= {"time", "reason", "detail", "fault", "level", "node", "job", "ranks", "document", "mode"}


def test_why_for_people_shows_both_times_and_the_reason(call: Call, judged: Path) -> None:
    code, out, _ = call("why", "fault", REF, "--out", judged)
    assert code == 0
    assert "2026-01-01 00:00:00.000Z (" in out
    assert "ISOLATION_ONLY" in out
    assert "rank 2" in out.replace("\n", " ")


@pytest.mark.parametrize(("kind", "ref"), [("job", "nobody"), ("node", "n"), ("fault", "n1/chip/2/80E1840")])
def test_why_nothing_exits_1_and_says_what_is_known(call: Call, judged: Path, kind: str, ref: str) -> None:
    code, out, err = call("why", kind, ref, "--out", judged, "--json")
    assert (code, json.loads(out)) == (1, [])
    assert f"nothing was decided about {kind} {ref}; known here: " in err


def test_a_torn_line_of_the_journal_is_a_finding_and_the_rest_is_shown(call: Call, judged: Path) -> None:
    with (judged / "audit.jsonl").open("ab") as file:
        file.write(b'{"reason":"NO_SUCH"}\n{"tor')
    code, out, err = call("why", "node", "n9", "--out", judged, "--json")
    assert code == 0
    assert len(json.loads(out)) == 2
    assert err.count("no audit line") == 2


def test_a_word_with_marks_of_markup_is_shown_as_it_is(call: Call, files: Path) -> None:
    code = "[0x00f103b6,155908,na,na]"
    line = fault_line(code, T0, 1, devices=(), resource="lingqu", location={"switchChipId": 0, "switchPortId": 3})
    write_lines(files / "events.jsonl", [line])
    replay(call, files)
    _, out, _ = call("why", "node", "n1", "--out", files / "out")
    assert "/[0x0" in out
