"""`policy lint`, `policy diff` and `replay --against`, as a person and as a machine see them."""

import json
from pathlib import Path

import pytest
from command import REF, SEPARATE, Command, a_recording
from recordlines import fault_line
from rig import T0


@pytest.fixture(name="ask")
def _ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


def site(folder: Path, level: str = "RestartNPU", expires: str = "never") -> Path:
    folder.mkdir()
    entry = f"{{level: {level}, reason: r, expires: {expires}}}"
    (folder / "overrides.yaml").write_text(f'version: 1\nchip:\n  "{SEPARATE}": {entry}\n', encoding="utf-8")
    return folder


def test_lint_of_the_shipped_policy_is_clean(ask: Command) -> None:
    code, out, _ = ask("policy", "lint", "--on", "2026-01-01")
    assert (code, out) == (0, "0 errors, 0 warnings, 0 notes on 2026-01-01\n")


def test_lint_tells_on_a_day_to_come_what_will_have_expired(ask: Command, tmp_path: Path) -> None:
    mine = site(tmp_path / "mine", expires="2999-12-31")
    assert ask("policy", "lint", mine)[0] == 0
    code, out, _ = ask("policy", "lint", mine, "--on", "3000-01-01", "--json")
    (finding,) = json.loads(out)
    assert code == 1
    assert (finding["severity"], finding["kind"]) == ("warning", "expired")
    assert finding["place"] == f"{mine.as_posix()}/overrides.yaml:3"


def test_lint_lists_every_mistake_with_its_place(ask: Command, tmp_path: Path) -> None:
    mine = site(tmp_path / "mine", level="RestartNpu")
    code, out, _ = ask("policy", "lint", mine)
    assert code == 1
    assert f"{mine.as_posix()}/overrides.yaml:3: error: level cannot be 'RestartNpu'; did you mean 'RestartNPU'?" in out


def test_diff_of_a_policy_with_itself_is_none(ask: Command) -> None:
    code, out, _ = ask("policy", "diff", "shipped", "shipped", "--json")
    told = json.loads(out)
    assert (code, told["codes"], told["rules"], told["before"] == told["after"]) == (0, [], [], True)


def test_diff_tells_the_code_and_the_decisions_that_change(ask: Command, tmp_path: Path) -> None:
    a_recording(tmp_path)
    mine = site(tmp_path / "mine")
    recording = ("--events", tmp_path / "events.jsonl", "--cluster", tmp_path / "cluster.json")
    code, out, _ = ask("policy", "diff", "shipped", mine, *recording, "--json")
    told = json.loads(out)
    assert code == 1
    (change,) = told["codes"]
    assert (change["code"], change["before"]["level"], change["after"]["level"]) == (
        SEPARATE,
        "SeparateNPU",
        "RestartNPU",
    )
    shown = [one for one in told["decisions"] if one["subject"] == REF]
    assert shown[0]["before"][0]["level"] == "SeparateNPU"
    assert shown[0]["after"][0]["level"] == "RestartNPU"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cluster.json", "events.jsonl", "mine"]


def test_diff_tells_a_rule_with_its_place_and_counts_in_words(ask: Command, tmp_path: Path) -> None:
    mine = site(tmp_path / "mine")
    assert ask("policy", "export", mine, "--only", "rules.yaml")[0] == 0
    rules = mine / "rules.yaml"
    rules.write_text(rules.read_text(encoding="utf-8").replace("FaultTimeout: 20\n", "FaultTimeout: 30\n"))
    code, out, _ = ask("policy", "diff", "shipped", mine)
    assert code == 1
    assert "1 code and 1 rule or setting different, " in out
    told = json.loads(ask("policy", "diff", "shipped", mine, "--json")[1])
    assert [one["place"].rpartition(":")[0] for one in told["rules"]] == [rules.as_posix()]
    assert told["rules"][0]["place"].rpartition("/")[2] in out  # a long place is folded


def test_the_word_shipped_is_a_policy_wherever_one_is_named(ask: Command, tmp_path: Path) -> None:
    assert ask("policy", "lint", "shipped")[0] == 0
    shown = [json.loads(ask("policy", "show", "--json", *more)[1])["digest"] for more in ((), ("--policy", "shipped"))]
    assert shown[0] == shown[1]
    a_recording(tmp_path)
    words = ("replay", tmp_path / "events.jsonl", "--cluster", tmp_path / "cluster.json")
    code, out, _ = ask(*words, "--policy", "shipped", "--against", "shipped", "--json")
    assert (code, json.loads(out)["decisions"]) == (0, [])
    code, _, err = ask("policy", "show", "--policy", "./shipped")
    assert (code, "no such policy file or folder" in err) == (3, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--events", "e.jsonl"], "--events needs --cluster"),
        (["--cluster", "c.yaml"], "are for --events"),
    ],
)
def test_half_a_question_is_wrong_use(ask: Command, words: list[str], told: str) -> None:
    code, _, err = ask("policy", "diff", "shipped", "shipped", *words)
    assert (code, told in err) == (2, True)


def test_replay_against_another_policy_tells_the_decisions_that_differ(ask: Command, tmp_path: Path) -> None:
    a_recording(tmp_path)
    mine = site(tmp_path / "mine")
    words = ("replay", tmp_path / "events.jsonl", "--cluster", tmp_path / "cluster.json")
    code, out, _ = ask(*words, "--against", mine)
    assert code == 1
    assert "1 decision differs\n" in out
    assert "FAULT_SHOWN SeparateNPU" in out
    assert "FAULT_SHOWN RestartNPU" in out
    code, out, _ = ask(*words, "--policy", mine, "--against", mine, "--json")
    assert (code, json.loads(out)["decisions"]) == (0, [])


def test_replay_against_leaves_no_folder_and_takes_none(ask: Command, tmp_path: Path) -> None:
    a_recording(tmp_path)
    code, _, err = ask.replay(tmp_path, "--against", "shipped")
    assert (code, "no --out or --continue with it" in err) == (2, True)
    code, _, err = ask("replay", tmp_path / "events.jsonl", "--cluster", tmp_path / "cluster.json")
    assert (code, "Missing option '--out'" in err) == (2, True)


def test_a_recording_is_judged_by_the_overrides_of_its_own_day(ask: Command, tmp_path: Path) -> None:
    a_recording(tmp_path, [fault_line(SEPARATE, T0, 1), {"tick": T0 + 60_000}])
    ended = site(tmp_path / "ended", expires="2026-01-01")
    code, out, _ = ask.replay(tmp_path, "--policy", ended, "--json")
    assert code == 0
    assert '"level":"RestartNPU"' in out
    assert "SeparateNPU" in ask("explain", SEPARATE, "--policy", ended)[1].splitlines()[0]
