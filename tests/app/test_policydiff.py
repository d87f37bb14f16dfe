"""Differences between policies: all that decides, and nothing else."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agent.app.policydiff import CodeChange, RuleChange, coverage, diff
from agent.domain.policy import CodeRule, DurationRule, FrequencyRule, Policy, RelationRule
from agent.domain.vocab import Millis
from agent.wire.mindcluster import read_foreign

SEPARATE = CodeRule("80E18402", "SeparateNPU", "a:1", "rows")
RESTART = CodeRule("80E18402", "RestartNPU", "b:1")
DURATION = DurationRule("81078603", Millis(20_000), Millis(60_000), "PreSeparateNPU")
FREQUENCY = FrequencyRule("80C98000", Millis(86_400_000), 2, "ManuallySeparateNPU")


def test_codes_that_are_rated_otherwise_or_missing_on_one_side() -> None:
    before = Policy(chip={0x80E18402: SEPARATE}, node={"2C000031": CodeRule("2C000031", "SeparateFault")})
    after = Policy(chip={0x80E18402: RESTART}, dpu={"21000024": CodeRule("21000024", "SeparateDPU")})
    changes = diff(before, after)
    assert changes.codes == (
        CodeChange("chip", "80E18402", SEPARATE, RESTART),
        CodeChange("node", "2C000031", before.node["2C000031"], None),
        CodeChange("dpu", "21000024", None, after.dpu["21000024"]),
    )
    assert changes.same == 0


def test_rules_and_settings() -> None:
    before = Policy(durations={0x81078603: DURATION}, public_resources=frozenset({"CCAE"}))
    after = Policy(
        frequencies={0x80C98000: FREQUENCY}, unknown_held_level="SeparateNPU", public_resources=frozenset({"pingmesh"})
    )
    assert diff(before, after).rules == (
        RuleChange("frequency", "80C98000", "", "ManuallySeparateNPU after 2 in 86400 s, until a person ends it"),
        RuleChange("duration", "81078603", "PreSeparateNPU after more than 20 s down, until more than 60 s up", ""),
        RuleChange("unknown_held_level", "", "NotHandleFault", "SeparateNPU", "rules.yaml"),
        RuleChange("public_resources", "", "CCAE", "pingmesh", "public.yaml"),
    )


def test_relation_rules_and_their_times() -> None:
    rule = RelationRule("8C1F8609", ("81078603",), "SubHealth", "a/rules.yaml:7")
    before = Policy(relations=(rule,), relation_timeouts={"81078603": Millis(300_000)})
    after = Policy(relations=(replace(rule, strategy="Separate", place="b/rules.yaml:9"),))
    assert diff(before, after).rules == (
        RuleChange("relation", "8C1F8609 + 81078603", "SubHealth", "Separate", "b/rules.yaml:9"),
        RuleChange("relation time-out", "81078603", "300 s", "", "rules.yaml"),
    )
    file = read_foreign("faultDuration.json", b'[{"FaultCode":"81078603","TimeOutInterval":200}]')
    assert coverage(file, before).rules == (
        RuleChange("relation time-out", "81078603", "200 s", "300 s", "rules.yaml"),
    )


def test_a_rule_that_differs_has_the_place_of_the_new_one_or_of_the_one_that_goes() -> None:
    before = Policy(durations={0x81078603: replace(DURATION, place="a/rules.yaml:3")})
    after = Policy(durations={0x81078603: replace(DURATION, level="SeparateNPU", place="b/rules.yaml:4")})
    assert [one.place for one in diff(before, after).rules] == ["b/rules.yaml:4"]
    assert [one.place for one in diff(before, Policy()).rules] == ["a/rules.yaml:3"]


def test_a_place_or_a_meaning_is_no_difference() -> None:
    other = CodeRule("80E18402", "SeparateNPU", "z:9", "other words")
    changes = diff(Policy(chip={0x80E18402: SEPARATE}), Policy(chip={0x80E18402: other}))
    assert (bool(changes), changes.same) == (False, 1)


_CODES = st.dictionaries(
    st.integers(1, 5), st.sampled_from(["RestartNPU", "SeparateNPU", "NotHandleFault"]), max_size=3
).map(lambda levels: {number: CodeRule(f"{number:08X}", level) for number, level in levels.items()})
_DURATIONS = st.dictionaries(st.integers(1, 2), st.integers(0, 2), max_size=1).map(
    lambda found: {
        number: DurationRule(f"{number:08X}", Millis(seconds * 1000), Millis(0), "SeparateNPU")
        for number, seconds in found.items()
    }
)
_POLICIES = st.builds(
    Policy,
    chip=_CODES,
    durations=_DURATIONS,
    unknown_held_level=st.sampled_from(["NotHandleFault", "SeparateNPU"]),
    public_resources=st.frozensets(st.sampled_from(["CCAE", "pingmesh"])),
)


@given(_POLICIES, _POLICIES)
def test_two_policies_differ_exactly_when_their_digests_do(before: Policy, after: Policy) -> None:
    assert bool(diff(before, after)) == (before.digest != after.digest)


def test_coverage_looks_at_what_the_file_holds() -> None:
    file = read_foreign("faultCode.json", b'{"RestartNPUCodes":["80e18402","DEADBEEF"]}')
    ours = Policy(chip={0x80E18402: SEPARATE}, node={"2C000031": CodeRule("2C000031", "SeparateFault")})
    changes = coverage(file, ours)
    assert [(one.code, one.after) for one in changes.codes] == [("80E18402", SEPARATE), ("DEADBEEF", None)]
    assert changes.rules == ()
