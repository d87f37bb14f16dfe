"""`policy import` and `policy coverage`: MindCluster's own files, and what became of each entry."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import Command

from agent.adapters.shipped import read_policy_path
from agent.wire.policyfile import load_policy

CHIP = {"RestartNPUCodes": ["80E18402", "8G"], "SeparateNPUCodes": ["DEADBEEF"]}
RULES = {
    "FaultDuration": [
        {"EventId": ["81078603"], "FaultTimeout": 30, "RecoverTimeout": 60, "FaultHandling": "PreSeparateNPU"}
    ]
}


@pytest.fixture(name="ask")
def _ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


def put(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def config_map(**data: Any) -> dict[str, Any]:
    files = {f"{name}.json": json.dumps(value) for name, value in data.items()}
    meta = {"name": "mindx-dl-fault-config", "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"PollInterval": "300", **files}}


def test_a_file_becomes_a_policy_and_what_was_not_taken_is_named(ask: Command, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    code, out, _ = ask("policy", "import", put(tmp_path / "faultCode.json", CHIP), "--out", mine)
    assert code == 1
    assert "faultCode.json (device-plugin): 2 taken, 1 skipped" in out
    assert "! skipped    RestartNPUCodes[1]  8G: no hex number: device-plugin skips it" in out
    assert "801 codes of the chip table in force not in it, which would be unknown: 4C1F8608" in out
    assert f"written: {mine}/chip.yaml" in out
    policy = load_policy(read_policy_path(mine))
    assert {rule.code: rule.level for rule in policy.chip.values()} == {
        "80E18402": "RestartNPU",
        "DEADBEEF": "SeparateNPU",
    }


def test_a_config_map_gives_all_its_files(ask: Command, tmp_path: Path) -> None:
    cm = put(tmp_path / "cm.json", config_map(faultCode={"SeparateNPUCodes": ["DEADBEEF"]}, faultCustomization=RULES))
    code, out, _ = ask("policy", "import", cm, "--out", tmp_path / "mine", "--json")
    assert code == 0
    told = json.loads(out)
    assert [(file["file"], file["counts"]) for file in told["files"]] == [
        ("faultCode.json", {"taken": 1}),
        ("faultCustomization.json", {"taken": 1}),
    ]
    assert told["policy_files"] == ["chip.yaml", "rules.yaml"]
    policy = load_policy(read_policy_path(tmp_path / "mine"))
    assert policy.durations[0x81078603].fault_timeout_ms == 30_000


def test_a_data_key_that_is_nearly_a_file_is_not_passed_over(ask: Command, tmp_path: Path) -> None:
    cm = config_map(faultCode={"SeparateNPUCodes": ["DEADBEEF"]}, faultcustomization=RULES)
    code, out, _ = ask("policy", "import", put(tmp_path / "cm.json", cm))
    assert code == 1
    told = "data key 'faultcustomization.json' is no file of MindCluster's; did you mean 'faultCustomization.json'?"
    assert f"! not read: {told}" in out
    assert told in json.loads(ask("policy", "coverage", tmp_path / "cm.json", "--json")[1])["not_read"]


def test_without_out_nothing_is_written(ask: Command, tmp_path: Path) -> None:
    file = put(tmp_path / "other.json", {"SeparateNPUCodes": ["DEADBEEF"]})
    code, out, _ = ask("policy", "import", file, "--as", "faultCode.json")
    assert code == 0
    assert "nothing is written without --out; it would be chip.yaml" in out
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["other.json"]


def test_a_file_that_its_component_refuses_is_refused_and_writes_nothing(ask: Command, tmp_path: Path) -> None:
    file = put(tmp_path / "faultCode.json", '{"SeparateNPUCodes":[80818402]}')
    code, out, _ = ask("policy", "import", file, "--out", tmp_path / "mine")
    assert code == 1
    assert "refused: SeparateNPUCodes[0] is the number 80818402, not text; device-plugin refuses the whole" in out
    assert not (tmp_path / "mine" / "chip.yaml").exists()


def test_two_files_of_one_kind_would_lose_one_and_are_refused(ask: Command, tmp_path: Path) -> None:
    codes = {"publicFaultCode": {"SeparateNPUCodes": ["220001001"]}}
    files = [put(tmp_path / f"{name}.json", codes) for name in ("publicFaultConfiguration", "publicCustomization")]
    code, _, err = ask("policy", "import", *files, "--out", tmp_path / "mine")
    assert (code, "publicFaultConfiguration.json and publicCustomization.json: they become one" in err) == (2, True)
    assert not (tmp_path / "mine").exists()


def test_senders_and_rules_that_an_import_takes_away_are_told(ask: Command, tmp_path: Path) -> None:
    public = {"publicFaultCode": {}, "publicFaultResource": ["CCAE", "fd-online", "pingmesh", "Netmind", "dtfsStorage"]}
    files = [
        put(tmp_path / "publicCustomization.json", public),
        put(tmp_path / "faultCustomization.json", RULES),
    ]
    code, out, _ = ask("policy", "import", *files)
    assert code == 0
    assert "  1 sender in force not in it, whose records would be refused: dpcStorage\n" in out
    assert "  43 frequency rules in force not in it, which would hold no longer: 80C98000, " in out
    assert "duration rule" not in out.split("rules.yaml has")[0]
    told = json.loads(ask("policy", "import", *files, "--json")[1])
    assert told["files"][0]["would_be_lost"] == [{"kind": "sender", "code": "dpcStorage"}]
    assert len(told["files"][1]["would_be_lost"]) == 43


def test_what_rules_keep_of_the_policy_in_force_is_told(ask: Command, tmp_path: Path) -> None:
    relation = {"TriggerFault": "8C1F8609", "RelationFaults": ["81078603"], "FaultStrategy": "SubHealth"}
    files = [
        put(tmp_path / "faultDuration.json", "{"),
        put(tmp_path / "relationFaultCustomization.json", [relation]),
    ]
    code, out, _ = ask("policy", "import", *files, "--out", tmp_path / "mine")
    assert code == 1
    assert "! rules.yaml has the 2 relation time-outs of the policy in force: faultDuration.json was refused\n" in out
    assert "  rules.yaml has the 43 frequency rules and 1 duration rule of the policy in force: faultCust" in out
    assert "has the 5 relation rules" not in out
    assert "  4 relation rules in force not in it, which would hold no longer: 8C1F860B + 81078603, " in out
    told = json.loads(ask("policy", "import", *files, "--json")[1])
    assert [(one["file"], one["refused"]) for one in told["kept"]] == [
        ("faultCustomization.json", False),
        ("faultDuration.json", True),
    ]
    assert load_policy(read_policy_path(tmp_path / "mine")).relation_timeouts["81078603"] == 300_000
    # Without a rules file that is taken none is written, and nothing is kept in it.
    assert "rules.yaml" not in ask("policy", "import", files[0])[1]


def test_a_misspelt_list_is_told_with_the_nearest_name(ask: Command, tmp_path: Path) -> None:
    file = put(tmp_path / "faultCode.json", {"RestartRequestFaultCodes": ["80E18402"]})
    code, out, _ = ask("policy", "import", file)
    assert code == 1
    assert "its component knows no such key; did you mean 'RestartRequestCodes'?" in out


def test_nothing_is_overwritten(ask: Command, tmp_path: Path) -> None:
    file = put(tmp_path / "faultCode.json", CHIP)
    put(tmp_path / "chip.yaml", "mine")
    code, _, err = ask("policy", "import", file, "--out", tmp_path)
    assert (code, "is there already" in err) == (2, True)
    assert (tmp_path / "chip.yaml").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        pytest.param("faultcode.json", "{}", "did you mean 'faultCode.json'", id="other-name"),
        pytest.param("cm.yaml", "kind: Pod\nmetadata: {name: p}\n", "no ConfigMap with one", id="other-object"),
        pytest.param("cm.yaml", "a: [\n", "cm.yaml:2: no YAML", id="no-yaml"),
    ],
)
def test_what_is_no_such_file_is_wrong_use(ask: Command, tmp_path: Path, name: str, text: str, told: str) -> None:
    code, _, err = ask("policy", "import", put(tmp_path / name, text))
    assert code == 2
    assert told in err


def test_a_file_that_is_not_there_cannot_be_read(ask: Command, tmp_path: Path) -> None:
    code, _, err = ask("policy", "coverage", tmp_path / "none.json")
    assert (code, "none.json cannot be read: No such file" in err) == (3, True)


def test_coverage_tells_what_we_lack_and_what_we_rate_otherwise(ask: Command, tmp_path: Path) -> None:
    cm = config_map(faultCode={"SeparateNPUCodes": ["DEADBEEF"], "RestartNPUCodes": ["80E18402", "80E24E00"]})
    code, out, _ = ask("policy", "coverage", put(tmp_path / "cm.json", {"kind": "List", "items": [cm]}), "--json")
    assert code == 1
    (file,) = json.loads(out)["files"]
    assert (file["table"], file["same"], len(file["codes"])) == ("chip", 1, 802)
    told = {one["code"]: (one["there"], one["here"]) for one in file["codes"]}
    assert told["DEADBEEF"] == ({"code": "DEADBEEF", "level": "SeparateNPU", "place": "faultCode.json"}, None)
    assert told["80E18402"][0]["level"] == "RestartNPU"
    assert told["80E18402"][1]["level"] == "SeparateNPU"
    assert told["80E18402"][1]["place"].startswith("chip.yaml:")
    assert told["4C1F8608"][0] is None


def test_coverage_compares_rules_too(ask: Command, tmp_path: Path) -> None:
    code, out, _ = ask("policy", "coverage", put(tmp_path / "faultCustomization.json", RULES))
    assert code == 1
    assert "PreSeparateNPU after more than 30 s down" in out
    assert "80E18005" in out


def test_full_coverage_is_told_as_such(ask: Command, tmp_path: Path) -> None:
    file = put(tmp_path / "NodeDConfiguration.json", {"FaultTypeCode": {"SeparateFaultCodes": ["2C000031"]}})
    assert ask("policy", "import", file, "--out", tmp_path / "mine")[0] == 0
    code, out, _ = ask("policy", "coverage", file, "--policy", tmp_path / "mine")
    assert (code, out) == (
        0,
        "NodeDConfiguration.json: 1 code alike, 0 rated otherwise, 0 lacking here, 0 lacking there\n",
    )
