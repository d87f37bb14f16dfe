"""`explain` and `policy show`, as a person and as a machine see them."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.app.cli.explain import explain
from agent.app.cli.policy import policy
from agent.errors import BadPolicy

FACTS = Path(__file__).resolve().parents[2] / "policies" / "facts"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(explain, arguments)


def asked(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    answers: list[dict[str, Any]] = json.loads(result.stdout)
    return answers


def test_a_known_code_is_told_with_level_rule_and_effects() -> None:
    result = run("0x80e18402")
    assert result.exit_code == 0
    assert "80E18402  SeparateNPU  (rank 8 of 9 on the chip plane, source dcmi)" in result.stdout
    assert "HBM: 64 HBM rows isolated on the chip" in result.stdout
    assert "chip-table, chip.yaml:" in result.stdout
    (file,) = re.findall(r"^  file +(.+):\d+$", result.stdout, flags=re.MULTILINE)
    assert "80E18402" in Path(file).read_text(encoding="utf-8")
    for document in ("fault-node", "reset-config", "job-reschedule-reason", "rail-plan"):
        assert document in result.stdout


def test_json_answers_stand_in_the_order_asked() -> None:
    codes = ["220001001", "80E24E00", "[0x08520003,na,npu,na]", "0000001d", "21000024"]
    answers = asked(*codes)
    assert [(a["code"], a["source"], a["level"], a["rank"], a["plane"]) for a in answers] == [
        ("220001001", "public", "SeparateNPU", 8, "public"),
        ("80E24E00", "dcmi", "RestartNPU", 6, "chip"),
        ("[0x08520003,na,npu,na]", "lingqu", "Separate", 4, "switch"),
        ("0000001D", "ipmi", "PreSeparateFault", 1, "node"),
        ("21000024", "dpu", "SeparateDPU", 2, "dpu"),
    ]
    assert [a["policy"] for a in answers] == ["public.yaml", "chip.yaml", "switch.yaml", "node.yaml", "dpu.yaml"]
    assert all(a["known"] and not a["held"] and a["place"].startswith(f"{a['policy']}:") for a in answers)
    assert answers[1]["rule"] == "chip-table"
    assert answers[1]["effect"]["documents"]["reset-config"].startswith("recovery with policy reset")


def test_a_duration_rule_is_told() -> None:
    (answer,) = asked("81078603", "--source", "hccn")
    assert (answer["source"], answer["plane"], answer["level"]) == ("hccn", "network", "NotHandleFault")
    assert answer["duration"]["rule"] == "duration:81078603"
    assert (answer["duration"]["level"], answer["duration"]["fault_timeout_s"]) == ("PreSeparateNPU", 20)
    assert "PreSeparateNPU after more than 20 s down, until more than 60 s up again" in run("81078603").stdout


def test_a_code_with_a_duration_rule_is_told_before_and_after_the_rule_raises_it() -> None:
    before, _, after = run("81078603").stdout.partition("  once it is raised (PreSeparateNPU):\n")
    assert (
        "until it is raised (NotHandleFault):\n  device                 none; the chip's network stays healthy"
        in before
    )
    assert after.splitlines()[0] == "  device                 network of the chip unhealthy; the chip itself is not"
    assert "listed in NetworkUnhealthyNPU, element CardNetworkUnhealthy" in after
    known, other = asked("81078603", "80E18402")
    assert known["effect"]["documents"]["fault-node"] == "no entry"
    assert (known["raised"]["level"], known["raised"]["rank"]) == ("PreSeparateNPU", 7)
    listed = "listed in NetworkUnhealthyNPU, element CardNetworkUnhealthy"
    assert known["raised"]["effect"]["documents"]["fault-node"] == listed
    assert other["raised"] is None
    assert Path(other["file"].rpartition(":")[0]).is_file()


def test_a_frequency_rule_is_told_with_what_its_trip_does() -> None:
    answer, link, other = asked("80C98000", "81078603", "80E18402")
    assert answer["frequency"]["rule"] == "frequency:80C98000"
    assert (answer["frequency"]["times"], answer["frequency"]["time_window_s"]) == (2, 86_400)
    assert answer["tripped"]["effect"]["device"] == "chip unhealthy"
    assert link["frequency"]["release_time_window_s"] == 172_800
    assert (other["frequency"], other["tripped"]) == (None, None)
    said = run("80C98000").stdout
    assert (
        "ManuallySeparateNPU once it occurred on one device 2 times within 86400 s, until a person ends it (rules"
        in said
    )
    assert "  once it has tripped (ManuallySeparateNPU):\n  device                 chip unhealthy\n" in said
    assert (
        "once it was raised by its duration 5 times within 86400 s, until a person ends it, or until the last recover"
        in (run("81078603").stdout)
    )


@pytest.mark.parametrize(
    ("source", "table", "column", "number"),
    [
        ("dcmi", "chip_fault_codes", "code_hex", 803),
        ("lingqu", "switch_fault_codes", "code", 30),
        ("ipmi", "node_fault_codes", "code_hex", 59),
        ("public", "public_fault_codes", "code", 30),
        ("dpu", "dpu_fault_codes", "code_hex", 5),
    ],
)
def test_every_entry_of_the_facts_is_explained_with_its_level(
    source: str, table: str, column: str, number: int
) -> None:
    with (FACTS / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if "device-plugin" in row["source_file"] or source != "dcmi"]
    assert len(rows) == number
    answers = asked("--source", source, *(row[column] for row in rows))
    levels = {row[column]: row["level"] for row in rows} | ({"A2301001": "SeparateNPU"} if source == "dcmi" else {})
    assert {answer["code"]: answer["level"] for answer in answers} == levels
    for answer in answers:
        assert answer["known"]
        assert answer["place"]
        assert set(answer["effect"]["documents"]) == {
            "fault-node",
            "reset-config",
            "job-reschedule-reason",
            "rail-plan",
        }
        assert all(answer["effect"]["documents"].values())


@pytest.mark.parametrize(
    ("arguments", "held", "told"),
    [
        pytest.param(["DEADBEEF"], True, "no severity is given: held for a person", id="no-severity"),
        pytest.param(["DEADBEEF", "--severity", "3"], True, "severity 3 is major or critical", id="critical"),
        pytest.param(["DEADBEEF", "--severity", "1"], False, "severity 1 is minor at most", id="minor"),
    ],
)
def test_an_unknown_code_is_told_with_its_treatment_and_how_to_add_it(
    arguments: list[str], held: bool, told: str
) -> None:
    (answer,) = asked(*arguments)
    assert (answer["source"], answer["level"], answer["known"]) == ("dcmi", "NotHandleFault", False)
    assert (answer["rule"], answer["held"]) == ("unknown-code", held)
    assert len(answer["policy"]) == 64
    assert told in answer["note"]
    assert 'write "DEADBEEF": {level: …, reason: …, expires: never} under chip: in an overrides.yaml' in answer["note"]
    assert told in run(*arguments).stdout


@pytest.mark.parametrize(
    ("code", "source"),
    [
        pytest.param("[0x99999999,na,L2,na]", "lingqu", id="brackets"),
        pytest.param("ZZ000001", "ipmi", id="eight-letters"),
        pytest.param("Z20001001", "public", id="nine-letters"),
        pytest.param("999999999", "dcmi", id="nine-digits"),
    ],
)
def test_a_code_known_nowhere_goes_to_the_first_table_that_could_hold_it(code: str, source: str) -> None:
    (answer,) = asked(code)
    assert (answer["source"], answer["known"]) == (source, False)


def test_an_unknown_public_code_is_told_to_be_refused() -> None:
    (answer,) = asked("999999999", "--source", "public")
    assert answer["held"] is False
    assert "CODE_UNKNOWN" in answer["note"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["nope!"], "Expected is dcmi: 1 to 9 hex digits", id="no-table"),
        pytest.param(["[a,b]"], "lingqu: four parts in brackets", id="three-parts"),
        pytest.param(["80E18402", "12345", "--source", "public"], "'80E18402' is no fault code", id="first-bad"),
        pytest.param(["12345", "--source", "ipmi"], "Expected is ipmi: 8 letters or digits", id="named-table"),
        pytest.param(["80E18402", "--severity", "4"], "0<=x<=3", id="severity"),
        pytest.param([], "Missing argument", id="nothing-asked"),
    ],
)
def test_what_cannot_be_a_code_is_wrong_use(arguments: list[str], expected: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert expected in result.stderr


def test_a_code_in_two_tables_is_one_answer_that_names_the_other(tmp_path: Path) -> None:
    (tmp_path / "dpu.yaml").write_text('version: 1\nlevels:\n  SeparateDPU:\n    "80E18402": {meaning: "twin"}\n')
    (answer,) = asked("80E18402", "--policy", str(tmp_path))
    assert answer["source"] == "dcmi"
    place = f"{tmp_path.as_posix()}/dpu.yaml:4"
    assert answer["also"] == [{"source": "dpu", "level": "SeparateDPU", "place": place, "meaning": "twin"}]
    assert "ask with --source dpu" in run("80E18402", "--policy", str(tmp_path)).stdout
    (twin,) = asked("80E18402", "--policy", str(tmp_path), "--source", "dpu")
    assert (twin["level"], twin["policy"]) == ("SeparateDPU", f"{tmp_path.as_posix()}/dpu.yaml")


def test_a_bad_policy_is_told_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "chip.yaml"
    path.write_text("version: 1\nlevels:\n  SeparateNPU:\n    81078603:\n")
    result = run("80E18402", "--policy", str(path))
    assert isinstance(result.exception, BadPolicy)
    assert result.exception.place == f"{path.as_posix()}:4"


def test_policy_show_counts_every_table() -> None:
    result = CliRunner().invoke(policy, ["show"])
    assert result.exit_code == 0
    assert ["chip", "SeparateNPU", "8", "215"] in [line.split() for line in result.stdout.splitlines()]
    assert "fd-online" in result.stdout


def test_policy_show_lists_switch_codes_with_their_brackets() -> None:
    result = CliRunner().invoke(policy, ["show", "--table", "switch", "--level", "separate"])
    assert result.exit_code == 0
    assert "[0x08520003,na,npu,na]" in result.stdout
    assert "[0x08520003,na,L2,na]" not in result.stdout.partition("relation")[0]


def test_policy_show_tells_the_relation_rules() -> None:
    shown = CliRunner().invoke(policy, ["show"]).stdout
    assert "relation  8C1F8609 with 81078603 (5 min): SubHealth (rules.yaml:" in shown
    assert "relation  8C1F860B with [0x08520003,na,L2,na] (5 min): Separate (rules.yaml:" in shown
    plain = json.loads(CliRunner().invoke(policy, ["show", "--json"]).stdout)
    assert [(one["trigger"], one["relations"], one["strategy"]) for one in plain["relations"]] == [
        ("8C1F8609", ["81078603"], "SubHealth"),
        ("8C1F860B", ["81078603"], "Separate"),
        ("8C1F860B", ["[0x08520003,na,L2,na]"], "Separate"),
        ("8C1F8608", ["81078603"], "Separate"),
        ("4C1F8608", ["81078603"], "Separate"),
    ]
    assert plain["relation_timeouts"] == [
        {"code": "81078603", "time_out_s": 300},
        {"code": "[0x08520003,na,L2,na]", "time_out_s": 300},
    ]


def test_policy_show_of_a_level_that_the_table_does_not_have_is_wrong_use() -> None:
    result = CliRunner().invoke(policy, ["show", "--table", "node", "--level", "SeparateNPU"])
    assert result.exit_code == 2
    assert "the node table has no SeparateNPU; it has NotHandleFault, PreSeparateFault, SeparateFault" in result.output
    none = CliRunner().invoke(policy, ["show", "--table", "chip", "--level", "ManuallySeparateNPU"])
    assert (none.exit_code, "no code is listed there" in none.stdout) == (0, True)


def test_policy_show_for_machines() -> None:
    result = CliRunner().invoke(policy, ["show", "--table", "dpu", "--json"])
    shown = json.loads(result.stdout)
    assert shown["tables"]["dpu"]["levels"] == {"SeparateDPU": 2, "SubHealthFault": 3}
    assert shown["tables"]["dpu"]["list"][0]["code"] == "21000024"
    assert shown["durations"][0]["recover_timeout_s"] == 60
    assert len(shown["frequencies"]) == 43
    assert (shown["frequencies"][0]["code"], shown["frequencies"][0]["times"]) == ("80C98000", 2)
    assert len(shown["digest"]) == 64


@pytest.mark.parametrize("command", [explain, policy, policy.commands["show"]], ids=["explain", "policy", "show"])
def test_every_help_teaches_with_an_example(command: Any) -> None:
    assert "Example: fault-agent " in CliRunner().invoke(command, ["--help"]).output


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        ("n1/chip/2/80E18402@1767225600000", "80E18402"),
        ("n1/CHIP/2/0x80e18402", "80E18402"),
        ("n1/network/3/81078603@7", "81078603"),
        ("n1/switch/0.3/[0x08520003,na,npu,na]@7", "[0x08520003,na,npu,na]"),
        ("n1/node/CPU.1/0000001d", "0000001d"),
        ("n1/dpu/0/21000024", "21000024"),
        ("n1/public/CCAE:x/220001001@7", "220001001"),
    ],
)
def test_a_reference_is_taken_for_its_code_in_the_table_of_its_plane(ref: str, code: str) -> None:
    plane = ref.split("/")[1].lower()
    source = {"chip": "dcmi", "network": "dcmi", "switch": "lingqu", "node": "ipmi"}.get(plane, plane)
    assert asked(ref) == asked(code, "--source", source)


def test_what_only_looks_like_a_reference_is_no_code() -> None:
    result = CliRunner().invoke(explain, ["n1/cable/2/80E18402"])
    assert result.exit_code == 2
    assert "'n1/cable/2/80E18402' is no fault code" in result.output


def test_an_override_is_told_with_its_reason_its_end_and_what_lies_below(tmp_path: Path) -> None:
    entry = '{level: RestartNPU, reason: "ticket 4711", expires: 2999-12-31}'
    (tmp_path / "overrides.yaml").write_text(f'version: 1\nchip:\n  "80E18402": {entry}\n', encoding="utf-8")
    result = CliRunner().invoke(explain, ["80e18402", "--policy", str(tmp_path)])
    assert result.stdout.startswith("80E18402  RestartNPU  ")
    assert f"chip-override, {tmp_path.as_posix()}/overrides.yaml:3" in result.stdout
    assert "instead of SeparateNPU (chip.yaml:" in result.stdout
    assert "until 2999-12-31: ticket 4711" in result.stdout
    shown = CliRunner().invoke(policy, ["show", "--policy", str(tmp_path)])
    assert "override  chip 80E18402: RestartNPU, instead of SeparateNPU" in shown.stdout


def test_an_override_that_has_ended_is_told_beside_what_holds_again(tmp_path: Path) -> None:
    entry = '{level: RestartNPU, reason: "ticket 4711", expires: 2026-01-31}'
    text = f'version: 1\nchip:\n  "80E18402": {entry}\n  "DEADBEEF": {entry}\nnode:\n  "0000001d": '
    node = '{level: SeparateFault, reason: "ticket 4712", expires: 2026-01-31}'
    (tmp_path / "overrides.yaml").write_text(f"{text}{node}\n", encoding="utf-8")
    place = f"{tmp_path.as_posix()}/overrides.yaml"
    result = CliRunner().invoke(explain, ["0x80e18402", "--policy", str(tmp_path)])
    assert result.stdout.startswith("80E18402  SeparateNPU  ")
    words = f"the override of chip 80E18402 to RestartNPU ({place}:3) ended with 2026-01-31: ticket 4711"
    assert words in result.stdout
    unknown, node_code, other = asked("DEADBEEF", "0000001D", "80E24E00", "--policy", str(tmp_path))
    assert unknown["ended_override"] == {
        "table": "chip",
        "code": "DEADBEEF",
        "level": "RestartNPU",
        "place": f"{place}:4",
        "reason": "ticket 4711",
        "expires": "2026-01-31",
    }
    assert (unknown["known"], node_code["ended_override"]["level"], other["ended_override"]) == (
        False,
        "SeparateFault",
        None,
    )
    assert f"ended     {words}" in CliRunner().invoke(policy, ["show", "--policy", str(tmp_path)]).stdout


def told_of(code: str, word: str) -> list[str]:
    result = CliRunner().invoke(explain, [code])
    lines = [line.strip() for line in result.stdout.splitlines()]
    return [line.removeprefix(word).strip() for line in lines if line.startswith(f"{word} ")]


def test_a_code_is_told_with_the_relation_rules_that_name_it() -> None:
    assert [line.partition(" (rules.yaml:")[0] for line in told_of("8C1F860B", "relation")] == [
        "with 81078603 in one job: pods on 81078603 are Separate",
        "with [0x08520003,na,L2,na] in one job: pods on [0x08520003,na,L2,na] are Separate",
    ]
    assert [line.partition(" (rules.yaml:")[0] for line in told_of("81078603", "relation")] == [
        "with 8C1F8609 in its job within 5 min: its pod is SubHealth",
        "with 8C1F860B in its job within 5 min: its pod is Separate",
        "with 8C1F8608 in its job within 5 min: its pod is Separate",
        "with 4C1F8608 in its job within 5 min: its pod is Separate",
    ]
    assert told_of("80E18402", "relation") == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("[0x08520003,na,L2,na]", ["Separate while 16 or more distinct L2 ports of one switch chip are down"]),
        ("81078607", ["of the ports that it tells (A5), one down is also 110000002, and two are 110001024"]),
        ("110000002", ["follows from a 81078607 that tells one port down (A5)"]),
        ("0x81b18603", ["on an NPU of A5 it is also 020001002, and 020000002 while all NPUs of the node have it"]),
        ("020001002", ["follows from 81B18603 (A5), while not all NPUs of the node have it"]),
        ("[0x08520003,na,npu,na]", []),
    ],
)
def test_a_code_is_told_with_the_port_rules_that_look_at_it(code: str, words: list[str]) -> None:
    assert told_of(code, "ports") == words


def test_the_effect_of_16_ports_is_told_beside_that_of_one() -> None:
    result = CliRunner().invoke(explain, ["[0x08520003,na,L2,na]"])
    one, _, sixteen = result.stdout.partition("  once 16 ports are down (Separate):\n")
    assert "device                 none; the node stays Healthy" in one
    assert sixteen.startswith("  device                 ")
    assert "none; the node stays Healthy" not in sixteen


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "80C98009",
            [
                "for 5 s, on every device; dropped if an 80E01801 began there within 5 s of it",
                "for 60 s, where a job's recover-strategy is recover-in-place",
                "for 60 s, in jobs that quiet.inference_jobs names",
            ],
        ),
        ("8C1F860B", ["for 10 s, where a job's recover-strategy is retry"]),
        ("80818C05", ["while a stress test runs on the node"]),
        ("80E18402", []),
        ("0000001D", []),
    ],
)
def test_a_code_is_told_with_the_quiet_rules_that_may_keep_it_back(code: str, words: list[str]) -> None:
    assert told_of(code, "quiet") == words
