"""The rules of MindCluster's: ranges as in faultcodes §3, a bad rule skipped and named, the first of a code counts."""

import json
from typing import Any

import pytest

from agent.domain.policy import DurationRule, FrequencyRule, RelationRule
from agent.domain.vocab import Millis
from agent.wire.mindcluster import Entry, Foreign, Verdict, read_foreign

FREQUENCY = {"EventId": ["80C98000"], "TimeWindow": 86400, "Times": 2, "FaultHandling": "ManuallySeparateNPU"}
DURATION = {"EventId": ["81078603"], "FaultTimeout": 20, "RecoverTimeout": 60, "FaultHandling": "PreSeparateNPU"}


def read(name: str, value: Any) -> Foreign:
    return read_foreign(name, json.dumps(value).encode())


def customized(**blocks: Any) -> Foreign:
    return read("faultCustomization.json", blocks)


def only(file: Foreign) -> Entry:
    (entry,) = file.entries
    return entry


def test_rules_are_taken_as_they_are() -> None:
    file = customized(FaultFrequency=[{**FREQUENCY, "ReleaseTimeWindow": 172800}], FaultDuration=[DURATION])
    day, two = Millis(86_400_000), Millis(172_800_000)
    place = "FaultFrequency[0].EventId[0]"
    assert file.frequencies == (FrequencyRule("80C98000", day, 2, "ManuallySeparateNPU", two, place),)
    place = "FaultDuration[0].EventId[0]"
    assert file.durations == (DurationRule("81078603", Millis(20_000), Millis(60_000), "PreSeparateNPU", place),)
    assert {entry.verdict for entry in file.entries} == {Verdict.TAKEN}


@pytest.mark.parametrize(
    ("change", "verdict", "told"),
    [
        pytest.param({"TimeWindow": 60}, "taken", "", id="shortest-window"),
        pytest.param({"TimeWindow": 59}, "skipped", "TimeWindow 59 is not from 60 to 864000", id="window-too-short"),
        pytest.param({"TimeWindow": 864_001}, "skipped", "TimeWindow 864001 is not", id="window-too-long"),
        pytest.param({"Times": 100}, "taken", "", id="most-times"),
        pytest.param({"Times": 0}, "skipped", "Times 0 is not from 1 to 100", id="no-times"),
        pytest.param({"Times": 101}, "skipped", "Times 101 is not", id="too-many-times"),
        pytest.param({"ReleaseTimeWindow": 0}, "taken", "", id="never-released"),
        pytest.param({"ReleaseTimeWindow": 2**32}, "taken", "", id="never-by-its-mark"),
        pytest.param({"ReleaseTimeWindow": 59}, "skipped", "ReleaseTimeWindow 59 is not", id="release-too-short"),
        pytest.param(
            {"ReleaseTimeWindow": 2**32 + 1}, "skipped", "ReleaseTimeWindow 4294967297", id="release-too-long"
        ),
        pytest.param(
            {"FaultHandling": "RestartNPU"}, "skipped", "needs a ReleaseTimeWindow", id="not-manual-no-release"
        ),
        pytest.param(
            {"FaultHandling": "RestartNPU", "ReleaseTimeWindow": 2**32}, "skipped", "needs a", id="not-manual-never"
        ),
        pytest.param({"FaultHandling": "RestartNPU", "ReleaseTimeWindow": 60}, "taken", "", id="not-manual-released"),
        pytest.param({"FaultHandling": "Separate"}, "skipped", "did you mean 'SeparateNPU'", id="no-level"),
        pytest.param({"EventId": []}, "skipped", "lists no code", id="no-code"),
        pytest.param({"EventId": ["XYZ"]}, "impossible", "no hex number", id="no-hex"),
    ],
)
def test_a_frequency_rule(change: dict[str, Any], verdict: str, told: str) -> None:
    entry = only(customized(FaultFrequency=[{**FREQUENCY, **change}]))
    assert entry.verdict == verdict
    assert told in entry.reason


def test_the_mark_for_never_and_zero_are_the_same_rule() -> None:
    marked, zero = (
        customized(FaultFrequency=[{**FREQUENCY, "ReleaseTimeWindow": release}]).frequencies for release in (2**32, 0)
    )
    assert marked == zero
    assert marked[0].release_ms == 0


@pytest.mark.parametrize(
    ("change", "verdict", "told"),
    [
        pytest.param({"FaultTimeout": 0}, "taken", "", id="at-once"),
        pytest.param({"FaultTimeout": 600}, "taken", "", id="longest"),
        pytest.param({"FaultTimeout": 601}, "skipped", "FaultTimeout 601 is not from 0 to 600", id="too-long"),
        pytest.param({"RecoverTimeout": 86_401}, "skipped", "RecoverTimeout 86401 is not", id="recover-too-long"),
        pytest.param({"RecoverTimeout": -1}, "skipped", "RecoverTimeout -1 is not", id="negative"),
        pytest.param({"FaultHandling": "ManuallySeparateNPU"}, "skipped", "cannot be 'ManuallyS", id="manual"),
        pytest.param({"FaultHandling": "RestartNPU"}, "impossible", "a network code cannot become", id="network"),
    ],
)
def test_a_duration_rule(change: dict[str, Any], verdict: str, told: str) -> None:
    entry = only(customized(FaultDuration=[{**DURATION, **change}]))
    assert entry.verdict == verdict
    assert told in entry.reason


def test_the_first_valid_rule_of_a_code_counts() -> None:
    rules = [{**FREQUENCY, "Times": 0}, {**FREQUENCY, "Times": 3}, {**FREQUENCY, "EventId": ["80c98000"], "Times": 4}]
    file = customized(FaultFrequency=rules)
    assert [entry.verdict for entry in file.entries] == ["skipped", "taken", "repeated"]
    assert [rule.times for rule in file.frequencies] == [3]


def test_grace_tolerance_is_told_and_not_used() -> None:
    file = customized(GraceTolerance={"WaitDeviceResetTime": 181, "WaitProcessReadCMTime": 30})
    told = {entry.place: entry.reason for entry in file.entries}
    assert "181 is not from 60 to 180: device-plugin takes 150" in told["GraceTolerance.WaitDeviceResetTime"]
    assert {entry.verdict for entry in file.entries} == {Verdict.UNUSED}


def test_a_number_in_quotes_refuses_the_whole_file() -> None:
    file = customized(FaultFrequency=[FREQUENCY, {**FREQUENCY, "Times": "2"}])
    assert file.refusal.startswith("FaultFrequency[1].Times is text, not a whole number; device-plugin refuses")
    assert not file.frequencies


RELATION = {"TriggerFault": "8C1F8609", "RelationFaults": ["81078603"], "FaultStrategy": "SubHealth"}


@pytest.mark.parametrize(
    ("change", "verdict", "told"),
    [
        pytest.param({}, "taken", "", id="shipped"),
        pytest.param(
            {"RelationFaults": ["[0x08520003,na,L2,na]"], "FaultStrategy": "Separate"}, "taken", "", id="switch"
        ),
        pytest.param({"TriggerFault": "8c1f8609"}, "impossible", "no code that a fault can have", id="lower-case"),
        pytest.param({"RelationFaults": []}, "impossible", "lists no code", id="no-code"),
        pytest.param({"RelationFaults": ["[0x08520003,,L2,na]"]}, "impossible", "no code that", id="empty-part"),
        pytest.param({"FaultStrategy": "separate"}, "impossible", "did you mean 'Separate'?", id="strategy"),
    ],
)
def test_a_relation_rule(change: dict[str, Any], verdict: str, told: str) -> None:
    entry = only(read("relationFaultCustomization.json", [{**RELATION, **change}]))
    assert entry.verdict == verdict
    assert told in entry.reason


def test_relation_rules_and_their_times() -> None:
    file = read("relationFaultCustomization.json", [RELATION])
    assert file.relations == (RelationRule("8C1F8609", ("81078603",), "SubHealth", "[0]"),)
    times = [
        {"FaultCode": "81078603", "FaultType": "faultDevice", "TimeOutInterval": 300},
        {"FaultCode": "81078603", "FaultType": "faultDevice", "TimeOutInterval": 200},
        {"FaultCode": "", "TimeOutInterval": 1},
        {"FaultCode": "[0x08520003,na,L2,na]", "TimeOutInterval": -1},
        {"FaultCode": "zz", "TimeOutInterval": 1},
        {"FaultCode": "81078603", "TimeOutInterval": 86401},
    ]
    found = read("faultDuration.json", times)
    assert found.relation_timeouts == {"81078603": 200_000}
    assert [entry.verdict for entry in found.entries] == [
        "taken",
        "changed",
        "skipped",
        "skipped",
        "impossible",
        "impossible",
    ]


@pytest.mark.parametrize("name", ["relationFaultCustomization.json", "faultDuration.json"])
def test_an_object_where_clusterd_reads_a_list_is_refused(name: str) -> None:
    assert "the file is an object, not a list; ClusterD refuses the whole file" in read(name, {}).refusal


def test_of_two_rules_for_the_same_codes_the_stronger_counts() -> None:
    file = read("relationFaultCustomization.json", [RELATION, {**RELATION, "FaultStrategy": "Separate"}])
    assert [(rule.strategy, rule.place) for rule in file.relations] == [("Separate", "[0]")]
    assert file.entries[1].reason == "is at [0] before; the stronger, Separate, counts"
