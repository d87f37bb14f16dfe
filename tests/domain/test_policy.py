"""The policy book: look-ups, spellings, planes, unknown codes, the worst of several levels."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.events import Rating
from agent.domain.policy import CodeRule, DurationRule, Policy, chip_number, well_formed
from agent.domain.vocab import LEVELS, Millis, Plane, Source
from agent.errors import BadInput

POLICY = Policy(
    chip={
        0x80E18402: CodeRule("80E18402", "SeparateNPU", "chip.yaml:9", "rows isolated", "HBM"),
        0x81078603: CodeRule("81078603", "NotHandleFault", "chip.yaml:4"),
        0x020001002: CodeRule("020001002", "SeparateNPU", "chip.yaml:10"),
    },
    switch={"[0x08520003,na,L2,na]": CodeRule("[0x08520003,na,L2,na]", "NotHandle", "switch.yaml:4")},
    node={"0000001D": CodeRule("0000001D", "PreSeparateFault", "node.yaml:5")},
    public={"220001001": CodeRule("220001001", "SeparateNPU", "public.yaml:7")},
    dpu={"21000024": CodeRule("21000024", "SeparateDPU", "dpu.yaml:3")},
    durations={0x81078603: DurationRule("81078603", Millis(20_000), Millis(60_000), "PreSeparateNPU", "rules.yaml:5")},
    public_resources=frozenset({"CCAE"}),
)


@pytest.mark.parametrize(
    ("source", "code", "plane"),
    [
        pytest.param(Source.DCMI, "80E18402", Plane.CHIP, id="dcmi-chip"),
        pytest.param(Source.HCCN, "80E18402", Plane.CHIP, id="hccn-chip"),
        pytest.param(Source.DCMI, "81078603", Plane.NETWORK, id="link-down-by-dcmi"),
        pytest.param(Source.HCCN, "0x81078603", Plane.NETWORK, id="link-down-by-hccn"),
        pytest.param(Source.DCMI, "81078607", Plane.NETWORK, id="a5-link-event"),
        pytest.param(Source.DCMI, "110000002", Plane.NETWORK, id="a5-one-port"),
        pytest.param(Source.DCMI, "110001024", Plane.NETWORK, id="a5-two-ports"),
        pytest.param(Source.DCMI, "81B18603", Plane.CHIP, id="hyper-plane-is-chip"),
        pytest.param(Source.LINGQU, "[0x08520003,na,L2,na]", Plane.SWITCH, id="switch"),
        pytest.param(Source.IPMI, "81078603", Plane.NODE, id="same-digits-from-the-node"),
        pytest.param(Source.DPU, "21000024", Plane.DPU, id="dpu"),
        pytest.param(Source.PUBLIC, "110001024", Plane.PUBLIC, id="same-digits-from-a-public-source"),
    ],
)
def test_the_source_and_for_chips_the_code_decide_the_plane(source: Source, code: str, plane: Plane) -> None:
    assert POLICY.plane_of(source, code) is plane


@pytest.mark.parametrize(
    ("source", "sent", "spelled"),
    [
        pytest.param(Source.DCMI, "80e18402", "80E18402", id="case"),
        pytest.param(Source.DCMI, "0x80E18402", "80E18402", id="prefix"),
        pytest.param(Source.DCMI, "20001002", "020001002", id="leading-zero-of-the-table"),
        pytest.param(Source.DCMI, "0x00abcdef", "00ABCDEF", id="unknown-keeps-its-zeros"),
        pytest.param(Source.HCCN, "abc", "ABC", id="unknown-short"),
        pytest.param(Source.IPMI, "0000001d", "0000001D", id="node"),
        pytest.param(Source.IPMI, "zz00001d", "ZZ00001D", id="unknown-node"),
        pytest.param(Source.LINGQU, "[0x1,na,L2,na]", "[0x1,na,L2,na]", id="switch-as-sent"),
        pytest.param(Source.PUBLIC, "22000100x", "22000100x", id="public-as-sent"),
    ],
)
def test_a_code_has_one_spelling(source: Source, sent: str, spelled: str) -> None:
    assert POLICY.spell(source, sent) == spelled


@pytest.mark.parametrize(
    ("plane", "code", "rating"),
    [
        pytest.param(Plane.CHIP, "80e18402", Rating("SeparateNPU", "chip-table", "chip.yaml:9"), id="chip"),
        pytest.param(Plane.NETWORK, "81078603", Rating("NotHandleFault", "chip-table", "chip.yaml:4"), id="network"),
        pytest.param(
            Plane.SWITCH, "[0x08520003,na,L2,na]", Rating("NotHandle", "switch-table", "switch.yaml:4"), id="switch"
        ),
        pytest.param(Plane.NODE, "0000001d", Rating("PreSeparateFault", "node-table", "node.yaml:5"), id="node"),
        pytest.param(Plane.PUBLIC, "220001001", Rating("SeparateNPU", "public-table", "public.yaml:7"), id="public"),
        pytest.param(Plane.DPU, "21000024", Rating("SeparateDPU", "dpu-table", "dpu.yaml:3"), id="dpu"),
    ],
)
@pytest.mark.parametrize("severity", [None, 0, 3], ids=["unsaid", "suggestion", "critical"])
def test_a_known_code_has_its_tables_level_whatever_the_severity(
    plane: Plane, code: str, rating: Rating, severity: int | None
) -> None:
    assert POLICY.rate(plane, code, severity) == rating


@pytest.mark.parametrize(
    ("severity", "held"), [(None, True), (0, False), (1, False), (2, True), (3, True)], ids=lambda value: str(value)
)
@pytest.mark.parametrize(
    ("plane", "code", "level"),
    [
        pytest.param(Plane.CHIP, "DEADBEEF", "NotHandleFault", id="chip"),
        pytest.param(Plane.SWITCH, "[0x1,na,na,na]", "NotHandle", id="switch"),
        pytest.param(Plane.NODE, "FFFFFFFF", "NotHandleFault", id="node"),
        pytest.param(Plane.DPU, "99999999", "SubHealthFault", id="dpu-has-nothing-milder"),
    ],
)
def test_an_unknown_code_is_mild_and_held_from_severity_two_or_none(
    plane: Plane, code: str, level: str, severity: int | None, held: bool
) -> None:
    assert POLICY.rate(plane, code, severity) == Rating(level, "unknown-code", "", known=False, held=held)


def test_an_unknown_public_code_is_never_held_because_it_is_refused() -> None:
    assert not POLICY.public_known("999999999")
    assert POLICY.public_known("220001001")
    assert POLICY.rate(Plane.PUBLIC, "999999999", None).held is False


def test_the_level_of_held_chip_codes_can_be_raised_and_only_theirs() -> None:
    raised = Policy(unknown_held_level="SeparateNPU")
    assert raised.rate(Plane.CHIP, "DEADBEEF", 3) == Rating("SeparateNPU", "unknown-code", known=False, held=True)
    assert raised.rate(Plane.CHIP, "DEADBEEF", 1).level == "NotHandleFault"
    assert raised.rate(Plane.NODE, "FFFFFFFF", 3).level == "NotHandleFault"


def test_a_duration_rule_is_found_by_number_and_names_itself() -> None:
    rule = POLICY.duration("0x81078603")
    assert rule is not None
    assert rule.name == "duration:81078603"
    assert (rule.fault_timeout_ms, rule.recover_timeout_ms, rule.level) == (20_000, 60_000, "PreSeparateNPU")
    assert POLICY.duration("80E18402") is None
    assert POLICY.duration("[0x08520003,na,L2,na]") is None


@pytest.mark.parametrize(
    ("plane", "levels", "worst"),
    [
        pytest.param(Plane.CHIP, ["RestartNPU", "PreSeparateNPU", "FreeRestartNPU"], "PreSeparateNPU", id="chip"),
        pytest.param(Plane.CHIP, ["SeparateNPU", "ManuallySeparateNPU"], "ManuallySeparateNPU", id="manual"),
        pytest.param(Plane.CHIP, ["RestartRequest", "RestartBusiness"], "RestartBusiness", id="restarts"),
        pytest.param(Plane.NETWORK, ["NotHandleFault", "SubHealthFault"], "SubHealthFault", id="network"),
        pytest.param(Plane.SWITCH, ["PreSeparate", "Separate", "NotHandle"], "Separate", id="switch"),
        pytest.param(Plane.NODE, ["NotHandleFault", "PreSeparateFault"], "PreSeparateFault", id="node"),
        pytest.param(Plane.DPU, ["SubHealthFault", "SeparateDPU"], "SeparateDPU", id="dpu"),
        pytest.param(Plane.CHIP, [], "NormalNPU", id="no-chip-fault"),
        pytest.param(Plane.SWITCH, [], "", id="no-switch-fault"),
        pytest.param(Plane.DPU, [], "", id="no-dpu-fault"),
    ],
)
def test_the_worst_level_wins_in_its_planes_own_order(plane: Plane, levels: list[str], worst: str) -> None:
    assert POLICY.worst(plane, levels) == worst


def test_a_level_of_another_plane_is_named_as_wrong() -> None:
    with pytest.raises(BadInput, match="no level 'SeparateNPU' on the switch plane"):
        POLICY.worst(Plane.SWITCH, ["NotHandle", "SeparateNPU"])


def test_the_digest_follows_what_decides_and_not_how_it_is_written() -> None:
    base = Policy(chip={1: CodeRule("1", "SeparateNPU", "a:1"), 2: CodeRule("2", "RestartNPU", "a:2")})
    moved = Policy(chip={2: CodeRule("2", "RestartNPU", "b:7", "words"), 1: CodeRule("1", "SeparateNPU", "b:8")})
    assert base.digest == moved.digest
    assert len(base.digest) == 64
    others = [
        Policy(chip={1: CodeRule("1", "SeparateNPU"), 2: CodeRule("2", "SeparateNPU")}),
        Policy(node={"1": CodeRule("1", "SeparateNPU"), "2": CodeRule("2", "RestartNPU")}),
        Policy(chip=base.chip, unknown_held_level="SeparateNPU"),
        Policy(chip=base.chip, public_resources=frozenset({"x"})),
        Policy(chip=base.chip, durations=POLICY.durations),
    ]
    assert len({base.digest, *(other.digest for other in others)}) == 6


@pytest.mark.parametrize(
    ("source", "code", "possible"),
    [
        pytest.param(Source.DCMI, "1", True, id="chip-one-digit"),
        pytest.param(Source.DCMI, "0X020000002", True, id="chip-nine-digits"),
        pytest.param(Source.DCMI, "1234567890", False, id="chip-ten-digits"),
        pytest.param(Source.DCMI, "80E1840G", False, id="chip-not-hex"),
        pytest.param(Source.DCMI, "80E1_8402", False, id="chip-underscore"),
        pytest.param(Source.DCMI, "８０", False, id="chip-full-width-digits"),
        pytest.param(Source.DCMI, "80E18402\n", False, id="chip-newline"),
        pytest.param(Source.DCMI, "", False, id="chip-empty"),
        pytest.param(Source.LINGQU, "[a,b,c]", False, id="switch-three-parts"),
        pytest.param(Source.LINGQU, f"[{'a' * 42},b,c,d]", True, id="switch-fifty"),
        pytest.param(Source.LINGQU, f"[{'a' * 43},b,c,d]", False, id="switch-fifty-one"),
        pytest.param(Source.LINGQU, "0x08520003,na,L2,na", False, id="switch-no-brackets"),
        pytest.param(Source.IPMI, "0000001D", True, id="node"),
        pytest.param(Source.IPMI, "000001D", False, id="node-seven"),
        pytest.param(Source.DPU, "21000024", True, id="dpu"),
        pytest.param(Source.PUBLIC, "220001001", True, id="public"),
        pytest.param(Source.PUBLIC, "22000100", False, id="public-eight"),
    ],
)
def test_what_a_code_can_look_like(source: Source, code: str, possible: bool) -> None:
    assert well_formed(source, code) is possible


@settings(max_examples=60)
@given(st.integers(0, 16**9 - 1), st.booleans(), st.booleans())
def test_any_spelling_of_a_number_is_that_number(number: int, prefix: bool, lower: bool) -> None:
    text = f"{number:x}" if lower else f"{number:X}"
    assert chip_number(f"0x{text}" if prefix else text) == number


@settings(max_examples=100)
@given(st.sampled_from(Plane), st.text(max_size=60), st.none() | st.integers(0, 3))
def test_rating_is_total_and_stays_within_the_plane(plane: Plane, code: str, severity: int | None) -> None:
    assert POLICY.rate(plane, code, severity).level in LEVELS[plane]
    assert POLICY.worst(plane, [POLICY.rate(plane, code, severity).level]) in LEVELS[plane]
