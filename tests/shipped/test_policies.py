"""The shipped policy: it agrees with the facts it comes from, and every code is rated as they say."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.adapters.shipped import read_policy_path, read_shipped
from agent.domain.policy import Policy
from agent.domain.vocab import Source
from agent.errors import BadPolicy, CannotRun
from agent.wire.policyfile import load_policy

ROOT = Path(__file__).resolve().parents[2]
FACTS = ROOT / "policies" / "facts"
DEVICE_PLUGIN = "component/ascend-device-plugin/build/faultCode.json"


@pytest.fixture(scope="module", name="policy")
def shipped_policy() -> Policy:
    return load_policy(read_shipped("policies"))


def rows(name: str) -> list[dict[str, str]]:
    with (FACTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_files_are_what_the_facts_give() -> None:
    check = [sys.executable, str(ROOT / "policies" / "generate.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("source", "table", "column", "number"),
    [
        pytest.param(Source.DCMI, "chip_fault_codes", "code_hex", 802, id="chip"),
        pytest.param(Source.LINGQU, "switch_fault_codes", "code", 30, id="switch"),
        pytest.param(Source.IPMI, "node_fault_codes", "code_hex", 59, id="node"),
        pytest.param(Source.DPU, "dpu_fault_codes", "code_hex", 5, id="dpu"),
        pytest.param(Source.PUBLIC, "public_fault_codes", "code", 30, id="public"),
    ],
)
def test_every_code_has_the_level_of_its_fact(
    policy: Policy, source: Source, table: str, column: str, number: int
) -> None:
    facts = {
        row[column]: row["level"] for row in rows(table) if source is not Source.DCMI or DEVICE_PLUGIN in row.values()
    }
    if source is Source.DCMI:
        facts["A2301001"] = "SeparateNPU"
    rated = {code: policy.rate(policy.plane_of(source, code), code, None) for code in facts}
    assert {code: rating.level for code, rating in rated.items()} == facts
    assert len(rated) == number
    assert all(rating.known and not rating.held and rating.place for rating in rated.values())
    assert all(policy.spell(source, code) == code for code in facts)


@pytest.mark.parametrize(
    ("code", "level"),
    [
        ("81078603", "NotHandleFault"),
        ("81078607", "NotHandleFault"),
        ("110000002", "SubHealthFault"),
        ("110001024", "PreSeparateNPU"),
        ("80E18402", "SeparateNPU"),
        ("80C98000", "RestartRequest"),
        ("80E24E00", "RestartNPU"),
        ("80E01801", "RestartBusiness"),
        ("A2301001", "SeparateNPU"),
        ("B4060011", "RestartBusiness"),
        ("40F84E00", "RestartNPU"),
    ],
)
def test_well_known_chip_codes(policy: Policy, code: str, level: str) -> None:
    assert policy.rate(policy.plane_of(Source.DCMI, code), code, None).level == level


def test_the_table_sizes_by_level_are_those_of_the_device_plugin(policy: Policy) -> None:
    levels = [rule.level for rule in policy.chip.values()]
    assert {level: levels.count(level) for level in levels} == {
        "NotHandleFault": 132,
        "SubHealthFault": 13,
        "RestartRequest": 33,
        "RestartBusiness": 24,
        "FreeRestartNPU": 23,
        "RestartNPU": 162,
        "PreSeparateNPU": 200,
        "SeparateNPU": 215,
    }


def test_a_place_is_the_line_where_the_code_stands(policy: Policy) -> None:
    rating = policy.rate(policy.plane_of(Source.DCMI, "80E18402"), "80E18402", None)
    name, _, line = rating.place.rpartition(":")
    assert '"80E18402"' in (ROOT / "policies" / name).read_text(encoding="utf-8").splitlines()[int(line) - 1]


def test_the_only_duration_rule_is_that_of_a_link_down(policy: Policy) -> None:
    assert list(policy.durations) == [0x81078603]
    rule = policy.durations[0x81078603]
    assert (rule.fault_timeout_ms, rule.recover_timeout_ms, rule.level) == (20_000, 60_000, "PreSeparateNPU")
    assert policy.unknown_held_level == "NotHandleFault"


def test_the_frequency_rules_are_those_of_the_facts(policy: Policy) -> None:
    facts = {
        int(row["event_id"], 16): (int(row["times"]), int(row["release_time_window_s"] or 0), row["fault_handling"])
        for row in rows("custom_frequency_duration")
        if row["rule_type"] == "FaultFrequency"
    }
    rules = policy.frequencies
    assert {code: (one.times, one.release_ms // 1000, one.level) for code, one in rules.items()} == facts
    assert len(rules) == 43
    assert {one.window_ms for one in rules.values()} == {86_400_000}
    assert [code for code, one in rules.items() if one.times == 3] == [0x80E18005]
    link = policy.frequency("81078603")
    assert link is not None
    assert (link.times, link.release_ms, link.level) == (5, 172_800_000, "ManuallySeparateNPU")
    assert all(policy.rate(policy.plane_of(Source.DCMI, one.code), one.code, None).known for one in rules.values())


def test_the_public_senders_are_those_of_clusterd(policy: Policy) -> None:
    assert policy.public_resources == {"CCAE", "fd-online", "pingmesh", "Netmind", "dpcStorage", "dtfsStorage"}


def test_meanings_came_along(policy: Policy) -> None:
    assert sum(bool(rule.meaning) for rule in policy.chip.values()) == 195
    assert sum(bool(rule.meaning) for rule in policy.node.values()) == 54
    assert all(rule.meaning for rule in (*policy.public.values(), *policy.dpu.values()))


def test_the_schema_has_a_definition_per_policy_file() -> None:
    schema = json.loads(read_shipped("schemas")["policy.schema.json"])
    assert sorted(schema["$defs"]) == sorted(read_shipped("policies"))
    assert all(not definition["additionalProperties"] for definition in schema["$defs"].values())


def test_an_unknown_kind_cannot_run() -> None:
    with pytest.raises(CannotRun, match="install the package again"):
        read_shipped("nothing-of-this-name")


def test_a_folder_replaces_files_by_name(tmp_path: Path) -> None:
    (tmp_path / "dpu.yaml").write_text('version: 1\nlevels:\n  SeparateDPU:\n    "99999999":\n')
    (tmp_path / "README.md").write_text("words")
    (tmp_path / "facts").mkdir()
    policy = load_policy(read_policy_path(tmp_path))
    assert list(policy.dpu) == ["99999999"]
    assert policy.dpu["99999999"].place == f"{tmp_path.as_posix()}/dpu.yaml:4"
    assert len(policy.chip) == 802


def test_a_single_file_replaces_its_namesake(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("version: 1\nunknown_held_level: SeparateNPU\n")
    policy = load_policy(read_policy_path(path))
    assert policy.unknown_held_level == "SeparateNPU"
    assert not policy.durations
    assert load_policy(read_policy_path(None)).durations


def test_a_mounted_config_map_is_a_folder_of_links(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "dpu.yaml").write_text("version: 1\nlevels: {}\n")
    (tmp_path / "dpu.yaml").symlink_to("..data/dpu.yaml")
    assert load_policy(read_policy_path(tmp_path)).dpu == {}


def test_a_relative_file_is_still_told_from_the_shipped_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dpu.yaml").write_text("version: 1\nlevels: {}\n")
    monkeypatch.chdir(tmp_path)
    assert [name for name in read_policy_path(Path("dpu.yaml")) if name.endswith("dpu.yaml")] == ["./dpu.yaml"]


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_a_path_without_policy_is_a_bad_policy(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "missing" if kind == "missing" else tmp_path
    with pytest.raises(BadPolicy) as caught:
        read_policy_path(path)
    assert caught.value.place == str(path)
    assert caught.value.hint


def test_a_file_beyond_the_limit_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "chip.yaml"
    with path.open("wb") as file:
        file.truncate(50 * 1024 * 1024)
    found = read_policy_path(path)
    assert len(found[path.as_posix()]) == 10 * 1024 * 1024 + 1
    with pytest.raises(BadPolicy, match="at most 10485760"):
        load_policy(found)
