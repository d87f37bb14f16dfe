"""The tables of MindCluster's: per entry the verdict that its own component would give (faultcodes §1.3, §2.7, §3)."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from agent.wire.mindcluster import Foreign, Verdict, read_foreign

FACTS = Path(__file__).resolve().parents[3] / "policies" / "facts"


def read(name: str, value: Any) -> Foreign:
    return read_foreign(name, json.dumps(value).encode())


def verdicts(file: Foreign) -> dict[str, Verdict]:
    return {entry.place: entry.verdict for entry in file.entries}


def reasons(file: Foreign) -> str:
    return "\n".join(entry.reason for entry in file.entries)


@pytest.mark.parametrize(
    ("listed", "code", "verdict", "level", "told"),
    [
        pytest.param("RestartNPUCodes", "80E24E00", "taken", "RestartNPU", "", id="code"),
        pytest.param("RestartNPUCodes", "80e24e00", "taken", "RestartNPU", "", id="lower-case"),
        pytest.param("SeparateNPUCodes", "020001002", "taken", "SeparateNPU", "", id="nine-digits"),
        pytest.param("SeparateNPUCodes", "+80E24E00", "taken", "SeparateNPU", "", id="a-sign-that-go-takes"),
        pytest.param("SeparateNPUCodes", "000080E24E00", "taken", "SeparateNPU", "", id="more-zeros"),
        pytest.param("RestartNPUCodes", "0x80E24E00", "skipped", None, "device-plugin skips it", id="prefix"),
        pytest.param("RestartNPUCodes", "8OE24E00", "skipped", None, "no hex number", id="letter-o"),
        pytest.param("RestartNPUCodes", "", "skipped", None, "no hex number", id="empty"),
        pytest.param("RestartNPUCodes", "-1", "impossible", None, "no event carries", id="negative"),
        pytest.param("RestartNPUCodes", "180E24E00AA", "impossible", None, "no event carries", id="too-large"),
        pytest.param("SubHealthFaultCodes", "81078603", "taken", "SubHealthFault", "", id="network"),
        pytest.param(
            "RestartNPUCodes", "81078603", "changed", "NotHandleFault", "takes NotHandleFault", id="network-reset"
        ),
        pytest.param("SeparateNPUNetworkCodes", "81078607", "taken", "SeparateNPU", "", id="network-list"),
        pytest.param("SeparateNPUNetworkCodes", "80E24E00", "impossible", None, "no network code", id="not-network"),
    ],
)
def test_a_chip_code(listed: str, code: str, verdict: str, level: str | None, told: str) -> None:
    file = read("faultCode.json", {listed: [code]})
    (entry,) = file.entries
    assert (entry.place, entry.what, entry.verdict) == (f"{listed}[0]", code, verdict)
    assert told in entry.reason
    assert list(file.levels.values()) == ([] if level is None else [level])


def test_of_two_levels_the_more_severe_counts_and_of_two_spellings_the_first() -> None:
    value = {"SeparateNPUCodes": ["A2301001"], "RestartBusinessCodes": ["A2301001", "20001002", "020001002"]}
    file = read("faultCode.json", value)
    assert file.levels == {"A2301001": "SeparateNPU", "20001002": "RestartBusiness"}
    assert verdicts(file) == {
        "RestartBusinessCodes[0]": Verdict.REPEATED,
        "RestartBusinessCodes[1]": Verdict.TAKEN,
        "RestartBusinessCodes[2]": Verdict.REPEATED,
        "SeparateNPUCodes[0]": Verdict.TAKEN,
    }
    assert "is SeparateNPU too, and the more severe counts" in reasons(file)


def test_an_unknown_key_is_named() -> None:
    assert verdicts(read("faultCode.json", {"RestartNpuCode": ["80E24E00"]})) == {"RestartNpuCode": Verdict.UNUSED}


def test_a_list_that_is_written_twice_is_not_lost_in_silence() -> None:
    file = read_foreign("faultCode.json", b'{"SeparateNPUCodes":["80E18402"],"SeparateNPUCodes":["80E24E00"]}')
    assert file.levels == {"80E24E00": "SeparateNPU"}
    assert [(entry.place, str(entry.verdict)) for entry in file.entries] == [
        ("SeparateNPUCodes[0]", "taken"),
        ("SeparateNPUCodes", "unused"),
    ]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        pytest.param({"RestartNPUCodes": [7]}, "RestartNPUCodes[0] is the number 7, not text", id="number"),
        pytest.param({"RestartNPUCodes": "80E24E00"}, "RestartNPUCodes is text, not a list", id="text"),
        pytest.param([], "the file is a list, not an object", id="list"),
    ],
)
def test_a_value_of_the_wrong_kind_refuses_the_whole_file_as_go_does(value: Any, told: str) -> None:
    file = read("faultCode.json", value)
    assert file.refusal.startswith(f"{told}; device-plugin refuses the whole file and keeps what it has")
    assert (file.entries, file.levels) == ((), {})


def test_the_shipped_file_of_device_plugin_is_taken_with_its_two_oddities() -> None:
    keys = {"SubHealthFault": "SubHealthFaultCodes", "NotHandleFault": "NotHandleFaultCodes"}
    lists: dict[str, list[str]] = {}
    with (FACTS / "chip_fault_codes.csv").open(encoding="utf-8", newline="") as facts:
        for row in csv.DictReader(facts):
            if "device-plugin" in row["source_file"]:
                lists.setdefault(keys.get(row["level"], f"{row['level']}Codes"), []).append(row["code_hex"])
    lists["RestartBusinessCodes"].append("B4060011")
    file = read("faultCode.json", lists)
    assert len(file.entries) == 804
    assert len(file.levels) == 802
    odd = [(entry.what, entry.verdict) for entry in file.entries if entry.verdict is not Verdict.TAKEN]
    assert odd == [("A2301001", Verdict.REPEATED), ("B4060011", Verdict.REPEATED)]
    assert file.levels["A2301001"] == "SeparateNPU"


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        pytest.param("[0x08520003,na,L2,na]", "taken", id="code"),
        pytest.param("[0x08520003,,L2,na]", "impossible", id="empty-part"),
        pytest.param("[0x08520003, na,L2,na]", "impossible", id="blank"),
        pytest.param("[0x08520003,na,L2\x00,na]", "impossible", id="control"),
        pytest.param("0x08520003,na,L2,na", "skipped", id="no-brackets"),
        pytest.param("[0x08520003,na,L2]", "skipped", id="three-parts"),
        pytest.param("[" + "0" * 43 + ",a,b,c]", "skipped", id="51-characters"),
        pytest.param("[" + "0" * 42 + ",a,b,c]", "taken", id="50-characters"),
    ],
)
def test_a_switch_code(code: str, verdict: str) -> None:
    (entry,) = read("SwitchFaultCode.json", {"PreSeparateFaultCodes": [code]}).entries
    assert entry.verdict == verdict


def test_reset_codes_of_switches_are_separate() -> None:
    code = "[0x08520003,na,L2,na]"
    file = read("SwitchFaultCode.json", {"ResetFaultCodes": [code], "NotHandleFaultCodes": [code]})
    assert file.levels == {code: "Separate"}


def node(**lists: list[Any]) -> Foreign:
    return read("NodeDConfiguration.json", {"FaultTypeCode": lists})


def test_noded_takes_codes_in_any_case() -> None:
    file = node(PreSeparateFaultCodes=["2c000031", "2C000031"], SeparateFaultCodes=["0000001D"])
    assert file.levels == {"2C000031": "PreSeparateFault", "0000001D": "SeparateFault"}
    assert [entry.verdict for entry in file.entries] == ["taken", "repeated", "taken"]


@pytest.mark.parametrize(
    ("lists", "told"),
    [
        pytest.param({"SeparateFaultCodes": ["2C0031"]}, "SeparateFaultCodes[0] '2C0031' is no code", id="short"),
        pytest.param(
            {"SeparateFaultCodes": ["2C000031"], "NotHandleFaultCodes": ["2c000031"]},
            "SeparateFaultCodes[0] '2C000031' is NotHandleFault too",
            id="two-levels",
        ),
    ],
)
def test_noded_refuses_the_whole_file_for_one_bad_code(lists: dict[str, list[Any]], told: str) -> None:
    file = node(**lists)
    assert told in file.refusal
    assert "NodeD refuses the whole file and keeps what it has" in file.refusal
    assert not file.levels


def test_a_node_file_without_its_one_key_is_refused() -> None:
    assert "has no FaultTypeCode" in read("NodeDConfiguration.json", {}).refusal


def test_the_public_file() -> None:
    value = {
        "publicFaultCode": {
            "NotHandleFaultCodes": ["220001001", "100001011"],
            "SeparateNPUCodes": ["220001001", "22000100", "22000100\u00e9", "22000 001"],
        },
        "publicFaultResource": ["CCAE", "CCAE", "dcmi", ""],
    }
    file = read("publicFaultConfiguration.json", value)
    assert file.levels == {"220001001": "SeparateNPU", "100001011": "NotHandleFault"}
    assert file.resources == ("CCAE",)
    assert [(entry.what, str(entry.verdict)) for entry in file.entries] == [
        ("220001001", "repeated"),
        ("100001011", "taken"),
        ("220001001", "taken"),
        ("22000100", "impossible"),
        ("22000100\u00e9", "impossible"),
        ("22000 001", "impossible"),
        ("CCAE", "taken"),
        ("CCAE", "repeated"),
        ("dcmi", "impossible"),
        ("", "impossible"),
    ]
