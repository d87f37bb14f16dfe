"""The command line: what each verb answers, its exit code, and that every error says what to do next."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from command import LABELS, SEPARATE, Command, decisions
from kubebuilders import a_pod, the_demo
from recordlines import document, fault_line, journal, write_cluster, write_lines
from rig import T0

from agent import __version__
from agent.app.cli.verbs import cli
from agent.app.settings import load_settings


@pytest.mark.parametrize("words", ["topics check", "topics create", "deadletter list", "deadletter requeue 0:0:1"])
def test_a_broker_that_is_not_there_is_told_in_one_line(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from agent.app.cli.main import main; main()", *words.split()],
        env={**os.environ, "FAULT_AGENT_KAFKA__BOOTSTRAP_SERVERS": "localhost:1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("fault-agent: cannot connect to localhost:1: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_an_option_too(call: Command, option: str) -> None:
    assert call(option) == (0, f"fault-agent {__version__}\n", "")


def test_the_version_is_one_line_and_json_when_asked(call: Command) -> None:
    code, out, _ = call("version")
    python = ".".join(map(str, sys.version_info[:3]))
    assert (code, out) == (0, f"fault-agent {__version__} (Python {python})\n")
    code, out, _ = call("version", "--json")
    assert json.loads(out) == {"version": __version__, "python": python}


def _verbs(group: click.Group, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        yield f"{before}{name}"
        if isinstance(command, click.Group):
            yield from _verbs(command, f"{before}{name} ")


VERBS = tuple(_verbs(cli))


@pytest.mark.parametrize("ask", ["-h", "--help"])
def test_help_shows_what_to_type(call: Command, ask: str) -> None:
    code, out, err = call(ask)
    assert (code, err) == (0, "")
    assert "See it work          fault-agent demo" in out


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_has_an_example(call: Command, verb: str) -> None:
    code, out, err = call(*verb.split(), "--help")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: ")
    assert re.search(r"Examples?:\s", out)


@pytest.mark.parametrize(
    "group", ["", *(verb for verb in VERBS if verb in ("policy", "config", "topics", "deadletter"))]
)
def test_no_summary_of_a_verb_is_cut(call: Command, group: str) -> None:
    _, out, _ = call(*group.split(), "--help")
    assert "..." not in out.partition("Commands:")[2]


def test_the_verbs_stand_in_the_order_a_newcomer_needs_them(call: Command) -> None:
    _, out, _ = call("--help")
    listed = [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line.startswith("  ")]
    assert listed[:4] == ["demo", "run", "replay", "explain"]


def test_a_clean_replay_exits_0_and_says_where_its_documents_lie(call: Command, files: Path) -> None:
    code, out, err = call.replay(files)
    assert (code, err) == (0, "")
    assert "\n1 record (and 1 line of objects, probes and ticks), " in out
    assert "volcano-system/vcjob-fault-npu-cm.json" in out
    assert document(files / "out", "volcano-system/vcjob-fault-npu-cm") is not None


def test_json_is_one_decision_a_line_and_then_the_summary(call: Command, files: Path) -> None:
    code, out, _ = call.replay(files, "--json")
    lines = decisions(out)
    assert code == 0
    assert [line["reason"] for line in lines] == ["WRITTEN", "FAULT_SHOWN", "ISOLATION_ONLY", "WRITTEN"]
    assert lines == journal(files / "out")
    assert lines[1]["time"] == "2026-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("no json at all", "KEY_MISSING  no key, events.jsonl line 2 · key: "),
        (json.dumps({"key": "n1", "value": {"id": 1}}), "FIELD_INVALID  n1, events.jsonl line 2 · id: "),
    ],
)
def test_bad_records_exit_1(call: Command, files: Path, line: str, what: str) -> None:
    write_lines(files / "events.jsonl", [fault_line(SEPARATE, T0, 1), line])
    code, out, _ = call.replay(files)
    assert code == 1
    assert f"00:00:00.000 ! DEAD_LETTER           {what}" in out
    assert "2 records, 4 decisions, 1 dead letter, 0 findings" in out
    assert len((files / "out" / "dead-letters.jsonl").read_text().splitlines()) == 1


def test_bad_objects_exit_1_and_are_named(call: Command, files: Path) -> None:
    objects = [*the_demo(LABELS), a_pod("stray", group="nowhere", node="n3")]
    write_cluster(files / "cluster.json", objects)
    code, out, _ = call.replay(files)
    assert code == 1
    assert "POD_WITHOUT_GROUP" in out


def test_a_folder_with_state_is_refused_or_gone_on_with(call: Command, files: Path) -> None:
    assert call.replay(files)[0] == 0
    before = (files / "out" / "audit.jsonl").read_bytes()
    code, _, err = call.replay(files)
    assert code == 2
    assert "--continue" in err
    assert (files / "out" / "audit.jsonl").read_bytes() == before
    code, _, err = call.replay(files, "--continue")
    assert (code, err) == (0, "")
    assert (files / "out" / "audit.jsonl").read_bytes() == before


def test_a_replay_goes_on_where_the_recording_was_longer(call: Command, files: Path) -> None:
    call.replay(files)
    with (files / "events.jsonl").open("a") as file:
        file.write(json.dumps(fault_line(SEPARATE, T0 + 90_000, 2, assertion="recover")) + "\n")
    code, out, _ = call.replay(files, "--continue", "--json")
    assert code == 0
    assert [line["reason"] for line in decisions(out)] == ["FAULT_CLEARED", "WRITTEN"]


def test_a_replay_that_could_not_begin_leaves_nothing_in_the_way_of_the_next(call: Command, files: Path) -> None:
    events, out = files / "events.jsonl", files / "out"
    assert call("replay", events, "--cluster", files / "nowhere", "--out", out)[0] == 3
    assert call("replay", files / "nowhere", "--cluster", files / "cluster.json", "--out", out)[0] == 3
    (out / ".state" / "reports").mkdir()  # as a run leaves it that failed before its first checkpoint
    (out / ".state" / "reports" / ".lock").touch()
    assert call.replay(files)[0] == 0


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
    (
        "a replay of a pipe",
        ["replay", "-", "--cluster", "x", "--out", "y"],
        "fault-agent run --role solo --events -",
    ),
    ("a level that does not exist", ["policy", "show", "--level", "seperatenpu"], "did you mean SeparateNPU or"),
    ("a level like none", ["policy", "show", "--level", "9"], "there are NormalNPU, NotHandleFault,"),
    ("settings that are not there", ["config", "show", "--config", "/nowhere.yaml"], "No such file or directory"),
]


@pytest.mark.parametrize(("words", "named"), [row[1:] for row in WRONG_USE], ids=[row[0] for row in WRONG_USE])
def test_wrong_use_exits_2_and_names_what_is_wrong(call: Command, words: list[str], named: str) -> None:
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err


SETTINGS = [
    ("mode: of\n", "mode"),
    ("moed: act\n", "did you mean mode?"),
    ("documents:\n  reset_confg: {}\n", "did you mean reset_config?"),
    ("scheduler_time_zone: Mars/Base\n", "Asia/Shanghai"),
    ("mode: [\n", "agent.yaml:2:1: no YAML: expected the node content, but found '<stream end>'"),
    ("max_event_age_s: !!timestamp x\n", "no YAML"),
    ("mode: act\n mode: act\n", "agent.yaml:2:6: no YAML: mapping values are not allowed here"),
    ("7\n", "a mapping of settings is expected"),
    ("max_event_age_s: -1\n", "max_event_age_s"),
    ("documents:\n  vcjob_fault_npu_cm:\n    namespace: 'Not A Name'\n", "documents.vcjob_fault_npu_cm.namespace"),
]


@pytest.mark.parametrize(("text", "named"), SETTINGS)
def test_a_wrong_setting_exits_2_and_is_named_with_its_place(call: Command, files: Path, text: str, named: str) -> None:
    (files / "agent.yaml").write_text(text)
    code, _, err = call.replay(files, "--config", files / "agent.yaml")
    assert code == 2
    assert named in err
    assert err.count("\n") == 1
    assert not (files / "out").exists()


CANNOT = [
    ("no events", ["replay", "{0}/none", "--cluster", "{0}/cluster.json", "--out", "{0}/out"], "no such file"),
    ("events are a folder", ["replay", "{0}", "--cluster", "{0}/cluster.json", "--out", "{0}/out"], "JSON Lines"),
    ("no cluster", ["replay", "{0}/events.jsonl", "--cluster", "{0}/none", "--out", "{0}/out"], "YAML or JSON"),
    (
        "out is a file",
        ["replay", "{0}/events.jsonl", "--cluster", "{0}/cluster.json", "--out", "{0}/events.jsonl"],
        "is a file, or lies below one",
    ),
    (
        "out lies below a file",
        ["replay", "{0}/events.jsonl", "--cluster", "{0}/cluster.json", "--out", "{0}/events.jsonl/x"],
        "is a file, or lies below one",
    ),
    (
        "out cannot be made",
        ["replay", "{0}/events.jsonl", "--cluster", "{0}/cluster.json", "--out", "/proc/none/x"],
        "--out /proc/none/x cannot be made: ",
    ),
    ("a demo where a file is", ["demo", "--out", "{0}/events.jsonl"], "is a file"),
    (
        "bad policy",
        ["replay", "{0}/events.jsonl", "--cluster", "{0}/cluster.json", "--out", "{0}/o", "--policy", "{0}/none"],
        "none",
    ),
    ("no journal", ["why", "job", "x", "--out", "{0}"], "--out"),
]


@pytest.mark.parametrize(("words", "named"), [row[1:] for row in CANNOT], ids=[row[0] for row in CANNOT])
def test_what_cannot_run_exits_3_and_says_why(call: Command, files: Path, words: list[str], named: str) -> None:
    code, out, err = call(*(word.format(files) for word in words))
    assert (code, out) == (3, "")
    assert err.startswith("fault-agent: ")
    assert named in err


def test_broken_off_while_it_starts_it_leaves_no_traceback(call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken_off() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("agent.app.cli.verbs.answer", broken_off)
    assert call("version") == (130, "", "fault-agent: stopped\n")


def test_the_entry_point_loads_nothing_before_it_can_be_broken_off() -> None:
    program = (
        "import sys; before = set(sys.modules); import agent.app.cli.main; print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout.strip() == "['agent', 'agent.app', 'agent.app.cli', 'agent.app.cli.main']"


# --- settings and policy ---------------------------------------------------------------------------------------------


def test_config_show_tells_what_each_role_settles_for_itself(call: Command) -> None:
    assert call("config", "show")[1].splitlines()[:3] == [
        "# left out: mode; act (solo), observe (node, coordinator)",
        "# left out: cluster.id; solo (solo), not set and refused (node, coordinator)",
        "# left out: documents.reset_config.create; true (solo), false (node, coordinator)",
    ]
    shown = json.loads(call("config", "show", "--json")[1])
    assert not {"mode", "cluster"} & set(shown["settings"])
    assert shown["by_role"] == {
        "solo": {"mode": "act", "cluster.id": "solo", "documents.reset_config.create": True},
        "node": {"mode": "observe", "cluster.id": None, "documents.reset_config.create": False},
        "coordinator": {"mode": "observe", "cluster.id": None, "documents.reset_config.create": False},
    }


CHOSEN = """\
mode: disabled
cluster: {id: prod}
documents: {reset_config: {create: false}}
kafka: {password_file: secret, prefix: mine}
reset: {frameworks: [mindspore, pytorch], executor: external}
"""


def test_config_show_tells_what_is_set_as_it_is(call: Command, files: Path) -> None:
    (files / "agent.yaml").write_text(CHOSEN)
    out = call("config", "show", "--config", files / "agent.yaml")[1]
    assert not out.startswith("#")
    assert "cluster:\n  id: prod\n" in out
    assert "\nmode: disabled\n" in out
    shown = json.loads(call("config", "show", "--json", "--config", files / "agent.yaml")[1])
    prod = {"mode": "disabled", "cluster.id": "prod", "documents.reset_config.create": False}
    assert shown["by_role"] == dict.fromkeys(("solo", "node", "coordinator"), prod)


@pytest.mark.parametrize("text", ["{}", CHOSEN])
@pytest.mark.parametrize("as_json", [False, True])
def test_what_config_show_prints_is_a_settings_file_that_means_the_same(
    call: Command, files: Path, text: str, as_json: bool
) -> None:
    (files / "agent.yaml").write_text(text)
    out = call("config", "show", "--config", files / "agent.yaml", *(["--json"] if as_json else []))[1]
    (files / "again.yaml").write_text(json.dumps(json.loads(out)["settings"]) if as_json else out)
    assert load_settings(files / "again.yaml") == load_settings(files / "agent.yaml")


def test_a_password_is_masked_and_its_mask_is_no_password(
    call: Command, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT_AGENT_KAFKA__PASSWORD", "open sesame")
    out = call("config", "show")[1]
    assert "sesame" not in out + call("config", "show", "--json")[1]
    assert "# kafka.password is set and masked; read again as ********** it is refused\n" in out
    (files / "again.yaml").write_text(out)
    assert call("config", "show", "--config", files / "again.yaml")[1] == out, "the variable lies over the mask"
    monkeypatch.delenv("FAULT_AGENT_KAFKA__PASSWORD")
    code, _, err = call("config", "show", "--config", files / "again.yaml")
    assert code == 2
    assert "kafka.password: Value error, ********** is how a set password is shown, not a password; give" in err


@pytest.mark.parametrize("role", ["node", "coordinator"])
def test_a_role_on_services_does_not_start_without_the_name_of_its_cluster(
    call: Command, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULT_AGENT_NODE__NAME", "n1")
    code, out, err = call("run", "--role", role)
    assert (code, out) == (2, "")
    assert err.startswith("fault-agent: cluster.id is not set (name this cluster")


def test_an_exported_policy_is_the_shipped_one_and_is_never_overwritten(call: Command, tmp_path: Path) -> None:
    own = tmp_path / "own"
    code, out, err = call("policy", "export", own)
    assert (code, err) == (0, "")
    names = ["chip.yaml", "dpu.yaml", "node.yaml", "overrides.yaml", "public.yaml", "rules.yaml", "switch.yaml"]
    assert out.splitlines() == [str(own / name) for name in names]
    digests = [
        json.loads(call("policy", "show", "--json", *more)[1])["digest"] for more in ((), ("--policy", str(own)))
    ]
    assert digests[0] == digests[1]
    other = tmp_path / "other"
    assert json.loads(call("policy", "export", other, "--json")[1]) == [str(other / name) for name in names]
    (own / "rules.yaml").unlink()
    code, out, err = call("policy", "export", own)
    assert (code, out) == (2, "")
    assert "nothing was written" in err
    assert not (own / "rules.yaml").exists()


def test_one_file_of_the_policy_is_exported_alone(call: Command, tmp_path: Path) -> None:
    own = tmp_path / "own"
    code, out, _ = call("policy", "export", own, "--only", "overrides.yaml")
    assert (code, out) == (0, f"{own}/overrides.yaml\n")
    assert [path.name for path in own.iterdir()] == ["overrides.yaml"]
    assert call("policy", "lint", own)[0] == 0


def test_a_policy_that_cannot_be_exported_is_said(call: Command) -> None:
    code, out, err = call("policy", "export", "/proc/none/x")
    assert (code, out) == (3, "")
    assert "cannot write the policy files into /proc/none/x" in err
