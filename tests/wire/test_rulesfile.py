"""Frequency and duration rules of a policy file: ranges of faultCustomization.json, each mistake at its place."""

import pytest

from agent.domain.policy import DurationRule, FrequencyRule, Policy
from agent.domain.vocab import Millis
from agent.errors import BadPolicy
from agent.wire.policyfile import load_policy

FREQUENCY = {"EventId": '["80C98000"]', "TimeWindow": "86400", "Times": "2", "FaultHandling": "ManuallySeparateNPU"}
DURATION = {"EventId": '["81078603"]', "FaultTimeout": "20", "RecoverTimeout": "60", "FaultHandling": "PreSeparateNPU"}


def rules(kind: str, *given: dict[str, str]) -> Policy:
    lines = ["version: 1", f"{kind}:"]
    for one in given:
        lines += ["  -", *(f"    {key}: {value}" for key, value in one.items())]
    return load_policy({"rules.yaml": "\n".join(lines).encode()})


def mistakes(kind: str, *given: dict[str, str]) -> str:
    with pytest.raises(BadPolicy) as caught:
        rules(kind, *given)
    return str(caught.value)


def test_a_frequency_rule_has_its_spans_in_ms_and_no_release_is_never() -> None:
    policy = rules("FaultFrequency", FREQUENCY | {"EventId": '["80c98000", "80E18005"]'})
    rule = policy.frequency("80C98000")
    assert rule == FrequencyRule("80C98000", Millis(86_400_000), 2, "ManuallySeparateNPU", Millis(0), "rules.yaml:4")
    assert rule.name == "frequency:80C98000"
    assert policy.frequency("0x80e18005") is not None
    assert policy.frequency("80E18006") is None
    assert policy.frequency("no code") is None


@pytest.mark.parametrize(
    ("field", "low", "high"),
    [("TimeWindow", 60, 864_000), ("Times", 1, 100)],
)
def test_the_ends_of_a_range_are_in_it(field: str, low: int, high: int) -> None:
    for value in (low, high):
        assert len(rules("FaultFrequency", FREQUENCY | {field: str(value)}).frequencies) == 1
    for value in (low - 1, high + 1):
        assert f"it must be from {low} to {high}" in mistakes("FaultFrequency", FREQUENCY | {field: str(value)})


@pytest.mark.parametrize(
    ("seconds", "release"),
    [("0", 0), ("60", 60_000), ("172800", 172_800_000), ("4294967295", 4_294_967_295_000), ("4294967296", 0)],
)
def test_the_release_window_is_0_or_2_to_the_32_for_never(seconds: str, release: int) -> None:
    rule = rules("FaultFrequency", FREQUENCY | {"ReleaseTimeWindow": seconds}).frequency("80C98000")
    assert rule is not None
    assert rule.release_ms == release


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param({"ReleaseTimeWindow": "59"}, "is 59; it must be 0 (never) or from 60", id="release-short"),
        pytest.param({"ReleaseTimeWindow": "4294967297"}, "it must be from 0 to 4294967296", id="release-long"),
        pytest.param({"FaultHandling": "SubHealthFault"}, "to SubHealthFault needs a ReleaseTimeWindow", id="milder"),
        pytest.param(
            {"FaultHandling": "SubHealthFault", "ReleaseTimeWindow": "4294967296"},
            "needs a ReleaseTimeWindow of 60 or more",
            id="never-and-milder",
        ),
        pytest.param({"FaultHandling": "NormalNPU"}, "FaultHandling cannot be 'NormalNPU'", id="no-level"),
        pytest.param({"EventId": "[]"}, "EventId lists no code", id="no-code"),
        pytest.param({"EventId": '["80C98000", "80c98000"]'}, "already has a frequency rule, rules.yaml:4", id="twice"),
        pytest.param({"EventId": '["xyz"]'}, "'xyz' is no chip code", id="no-hex"),
        pytest.param({"EventId": "[80918000]"}, "put it in quotes", id="unquoted"),
        pytest.param(
            {"EventId": '["81078603"]', "FaultHandling": "RestartNPU", "ReleaseTimeWindow": "60"},
            "is a network code and cannot become RestartNPU",
            id="network",
        ),
        pytest.param({"Window": "3"}, "no key 'Window'; did you mean 'TimeWindow'?", id="unknown-key"),
    ],
)
def test_a_mistake_of_a_frequency_rule_is_told(given: dict[str, str], told: str) -> None:
    assert told in mistakes("FaultFrequency", FREQUENCY | given)


def test_a_missing_key_and_a_second_rule_for_a_code_are_told() -> None:
    told = mistakes("FaultFrequency", FREQUENCY, {"EventId": '["80C98000"]'}, FREQUENCY)
    assert "rules.yaml:9: the frequency rule has no TimeWindow" in told
    assert "'80C98000' already has a frequency rule, rules.yaml:4" in told


def test_a_milder_action_is_held_for_its_release_window() -> None:
    given = FREQUENCY | {"FaultHandling": "SubHealthFault", "ReleaseTimeWindow": "60"}
    assert rules("FaultFrequency", given).frequencies[0x80C98000].level == "SubHealthFault"


def test_a_code_may_have_a_rule_of_each_kind() -> None:
    text = "version: 1\nFaultFrequency:\n  - {%s}\nFaultDuration:\n  - {%s}\n"
    both = (FREQUENCY | {"EventId": '["81078603"]'}, DURATION)
    policy = load_policy({"rules.yaml": (text % tuple(_flow(one) for one in both)).encode()})
    assert policy.duration("81078603") == DurationRule(
        "81078603", Millis(20_000), Millis(60_000), "PreSeparateNPU", "rules.yaml:5"
    )
    assert policy.frequency("81078603") is not None


def test_a_duration_rule_cannot_ask_for_a_person() -> None:
    assert "cannot be 'ManuallySeparateNPU'" in mistakes(
        "FaultDuration", DURATION | {"FaultHandling": "ManuallySeparateNPU"}
    )


def test_the_digest_names_every_number_of_a_frequency_rule() -> None:
    changes = ({"TimeWindow": "60"}, {"Times": "3"}, {"ReleaseTimeWindow": "60"}, {"EventId": '["80C98001"]'})
    digests = {rules("FaultFrequency", FREQUENCY | change).digest for change in ({}, *changes)}
    assert len(digests) == 5


def _flow(rule: dict[str, str]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in rule.items())
