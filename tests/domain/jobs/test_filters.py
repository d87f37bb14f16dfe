"""The two filter annotations: every spelling that ClusterD takes, and what a bad one counts as (faultcodes.md §5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.jobs.filters import filter_key, parse_filter

SWITCH = "[0X08520003,NA,L2,NA]"


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        pytest.param("", {}, id="empty"),
        pytest.param(" , ，", {}, id="nothing but commas"),
        pytest.param("80E01801", {"80E01801": 60_000}, id="no span is 60 s"),
        pytest.param("80E01801:30", {"80E01801": 30_000}, id="a span"),
        pytest.param(" 80e01801 : 30 ", {"80E01801": 30_000}, id="spaces and case"),
        pytest.param("0x80e01801:30", {"80E01801": 30_000}, id="0x"),
        pytest.param("020001002:5", {"20001002": 5_000}, id="leading zeros"),
        pytest.param("8C1F8608:30, 80E01801", {"8C1F8608": 30_000, "80E01801": 60_000}, id="the documented example"),
        pytest.param("8C1F8608：30，80E01801：7", {"8C1F8608": 30_000, "80E01801": 7_000}, id="full-width"),
        pytest.param("[0x08520003,na,L2,na]:10,80E01801", {SWITCH: 10_000, "80E01801": 60_000}, id="switch code"),
        pytest.param("[0x08520003，na，L2，na]：10", {SWITCH: 10_000}, id="switch code, full-width"),
        pytest.param("[0x08520003,na,L2,na]", {SWITCH: 60_000}, id="switch code without span"),
        pytest.param("80E01801:0", {"80E01801": 0}, id="0 is not quiet"),
        pytest.param("80E01801:86400", {"80E01801": 86_400_000}, id="a day"),
        pytest.param("80E01801:1,80E01801:2", {"80E01801": 2_000}, id="the last of a key"),
        pytest.param("220001001:5", {"220001001": 5_000}, id="a public code"),
    ],
)
def test_a_filter_is_read(text: str, spans: dict[str, int]) -> None:
    found = parse_filter(text)
    assert (found.spans, found.problems) == (spans, ())


def test_levels_are_read() -> None:
    found = parse_filter("RestartRequest:30，Separate, SubHealthFault", levels=True)
    assert found.spans == {"RESTARTREQUEST": 30_000, "SEPARATE": 60_000, "SUBHEALTHFAULT": 60_000}
    assert found.problems == ()


@pytest.mark.parametrize(
    ("text", "spans", "told"),
    [
        pytest.param(
            "RestartReqest:30", {}, "no level, and nothing is kept quiet; did you mean RestartRequest?", id="misspelt"
        ),
        pytest.param(
            "Foo:10",
            {},
            "no level, and nothing is kept quiet; there is NotHandleFault, SubHealthFault, ",
            id="like-none",
        ),
        pytest.param("NormalNPU", {}, "no level, ", id="no-fault"),
        pytest.param(
            "SeparateDPU:5", {}, "no level, and nothing is kept quiet; did you mean SeparateNPU?", id="never-quiet"
        ),
        pytest.param(
            "restartrequest:120", {"RESTARTREQUEST": 120_000}, "written RestartRequest; it counts as that", id="case"
        ),
    ],
)
def test_a_misspelt_level_is_told_with_the_nearest(text: str, spans: dict[str, int], told: str) -> None:
    found = parse_filter(f"{text},SubHealthFault:1", levels=True)
    assert found.spans == {**spans, "SUBHEALTHFAULT": 1_000}
    (problem,) = found.problems
    assert problem.startswith(f"{text!r}: ")
    assert told in problem


@pytest.mark.parametrize("code", ["80G", "80E0l801", "0123456789", "[0x08520003,na,L2]", "RestartRequest"])
def test_what_can_be_no_code_is_told(code: str) -> None:
    found = parse_filter(f"{code}:10,80E01801")
    assert found.spans == {"80E01801": 60_000}
    (problem,) = found.problems
    assert problem.startswith(f"'{code}:10': no fault has such a code: 1 to 9 hex digits")


@pytest.mark.parametrize("span", ["86401", "-1", "x", "", "1.5", "1:2", "999999999999"])
def test_a_bad_span_counts_as_60_s_and_is_told(span: str) -> None:
    found = parse_filter(f"80E01801:{span},8C1F8608:1")
    assert found.spans == {"80E01801": 60_000, "8C1F8608": 1_000}
    assert len(found.problems) == 1
    assert "60 counts" in found.problems[0]


@pytest.mark.parametrize("text", [":30", "[0x08520003,na,L2,na"])
def test_an_item_that_names_nothing_is_told(text: str) -> None:
    found = parse_filter(text)
    assert found.spans == {}
    assert [problem.endswith("names nothing") for problem in found.problems] == [True]


@given(st.text(alphabet="[]:,，：0xX8Eab \t-9", max_size=40))
def test_any_text_is_read_and_every_span_is_in_range(text: str) -> None:
    parse_filter(text, levels=True)
    found = parse_filter(text)
    assert all(0 <= span <= 86_400_000 and span % 1000 == 0 for span in found.spans.values())
    assert all(key == filter_key(key) for key in found.spans)
