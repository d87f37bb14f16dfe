"""What an imported file becomes: a policy file that is read back without a mistake and decides the same."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.domain.policy import CodeRule, DurationRule, Policy
from agent.domain.vocab import Millis
from agent.wire.mindcluster import COMPONENTS, Verdict, policy_texts, read_foreign
from agent.wire.policyfile import load_policy

KNOWN = Policy(chip={0x80E18402: CodeRule("80E18402", "SeparateNPU", "x", 'rows: "isolated"', "HBM")})


def imported(*files: tuple[str, Any]) -> Policy:
    texts = policy_texts([read_foreign(name, json.dumps(value).encode()) for name, value in files], KNOWN)
    return load_policy({name: text.encode() for name, text in texts.items()})


def test_a_table_keeps_the_meaning_that_is_known() -> None:
    policy = imported(("faultCode.json", {"RestartNPUCodes": ["80E18402", "020001002"]}))
    assert [(rule.code, rule.level) for rule in policy.chip.values()] == [
        ("020001002", "RestartNPU"),
        ("80E18402", "RestartNPU"),
    ]
    assert (policy.chip[0x80E18402].meaning, policy.chip[0x80E18402].module) == ('rows: "isolated"', "HBM")


def test_codes_of_one_rule_stay_together() -> None:
    rule = {"EventId": ["80C98000", "80B78000"], "TimeWindow": 60, "Times": 2, "FaultHandling": "ManuallySeparateNPU"}
    value = {"FaultFrequency": [rule]}
    texts = policy_texts([read_foreign("faultCustomization.json", json.dumps(value).encode())], KNOWN)
    assert 'EventId: ["80C98000", "80B78000"]' in texts["rules.yaml"]
    assert "FaultDuration: []" in texts["rules.yaml"]


def test_a_rules_file_holds_what_was_imported_and_keeps_the_other_rules_in_force() -> None:
    known = replace(
        KNOWN,
        durations={0x81078603: DurationRule("81078603", Millis(20_000), Millis(60_000), "PreSeparateNPU")},
        relation_timeouts={"81078603": Millis(300_000)},
    )
    rule = {"TriggerFault": "8C1F8609", "RelationFaults": ["[0x08520003,na,L2,na]"], "FaultStrategy": "SubHealth"}
    file = read_foreign("relationFaultCustomization.json", json.dumps([rule]).encode())
    policy = load_policy({"rules.yaml": policy_texts([file], known)["rules.yaml"].encode()})
    assert [(one.trigger, one.relations, one.strategy) for one in policy.relations] == [
        ("8C1F8609", ("[0x08520003,na,L2,na]",), "SubHealth")
    ]
    assert (policy.durations[0x81078603].fault_timeout_ms, policy.relation_timeouts) == (20_000, {"81078603": 300_000})


def test_a_refused_file_becomes_nothing() -> None:
    assert policy_texts([read_foreign("faultCode.json", b"[]")], KNOWN) == {}


_WORDS = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"\A[0-9A-Fa-f]{1,9}\Z"),
    st.from_regex(r"\A\[0x[0-9a-f]{8},(na|[0-9]+),(L2|cpu|na),na\]\Z"),
    st.sampled_from(["81078603", "RestartNPU", "ManuallySeparateNPU", "Separate", "2C000031", "220001001"]),
)
_KEYS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "NotHandleFaultCodes",
            "RestartNPUCodes",
            "SeparateFaultCodes",
            "SeparateNPUCodes",
            "FaultTypeCode",
            "publicFaultCode",
            "publicFaultResource",
            "FaultFrequency",
            "FaultDuration",
            "GraceTolerance",
            "EventId",
            "TimeWindow",
            "Times",
            "FaultTimeout",
            "RecoverTimeout",
            "FaultHandling",
            "TriggerFault",
            "RelationFaults",
            "FaultStrategy",
            "FaultCode",
            "TimeOutInterval",
        ]
    ),
)
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 90_000), st.floats(allow_nan=False), _WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=20,
)


@given(name=st.sampled_from(sorted(COMPONENTS)), value=_VALUES)
def test_any_json_is_judged_and_what_comes_of_it_is_a_policy(name: str, value: Any) -> None:
    file = read_foreign(name, json.dumps(value).encode())
    texts = policy_texts([file], KNOWN)
    policy = load_policy({text_name: text.encode() for text_name, text in texts.items()})
    if not file.refusal and file.table:
        rows: dict[Any, CodeRule] = getattr(policy, file.table)
        assert {rule.code: rule.level for rule in rows.values()} == dict(file.levels)
    assert all(entry.reason or entry.verdict is Verdict.TAKEN for entry in file.entries)


@given(name=st.sampled_from(sorted(COMPONENTS)), data=st.binary(max_size=60))
def test_any_bytes_are_judged(name: str, data: bytes) -> None:
    assert read_foreign(name, data).name == name
