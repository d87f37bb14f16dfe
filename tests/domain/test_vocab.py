"""Words of the field: times and spans as people read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.vocab import span_text, utc_text


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (1_767_225_605_250, "2026-01-01 00:00:05.250Z"),
        (1, "1970-01-01 00:00:00.001Z"),
        (0, "before any event"),
        (-5, "before any event"),
        (10**18, "1000000000000000000ms"),
    ],
)
def test_a_time_is_read_in_utc_with_its_milliseconds(at: int, text: str) -> None:
    assert utc_text(at) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (0, "0 s"),
        (500, "0.5 s"),
        (12_000, "12 s"),
        (30_065, "30.065 s"),
        (60_000, "60 s"),
        (119_999, "119.999 s"),
        (120_000, "2 min"),
        (200_000, "3 min 20 s"),
        (3_600_000, "1 h"),
        (86_400_000, "1 day"),
        (28_842_716_300, "333 days 19 h"),
    ],
)
def test_a_span_is_read_in_two_units_at_most(span: int, text: str) -> None:
    assert span_text(span) == text


@given(st.integers())
def test_any_time_has_a_text(at: int) -> None:
    assert utc_text(at)


@given(st.integers(min_value=0, max_value=10**15))
def test_any_span_has_a_text_of_few_words(span: int) -> None:
    assert len(span_text(span).split()) in (2, 4)
