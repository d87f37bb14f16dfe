"""Comments become blanks; all else keeps its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.ranktables.comments import without_comments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1} // end', '{"a": 1}       '),
        ('{/* two\n lines */"a": 1}', '{      \n         "a": 1}'),
        ('{"a": "http://x /* y */"}', '{"a": "http://x /* y */"}'),
        ('{"a": "\\"// z"}', '{"a": "\\"// z"}'),
        ("{} /* left open\n", "{}             \n"),
        ("/* // */ 1", "         1"),
        ("// /*\n1", "     \n1"),
    ],
    ids=["line", "block", "in a string", "behind an escaped quote", "left open", "line in block", "block in line"],
)
def test_comments_become_blanks(text: str, expected: str) -> None:
    assert without_comments(text) == expected


@given(st.text('"/*\\\n a1', max_size=40))
def test_every_character_keeps_its_line_and_column(text: str) -> None:
    left = without_comments(text)
    assert [len(row) for row in left.split("\n")] == [len(row) for row in text.split("\n")]
    assert all(after in (before, " ") for before, after in zip(text, left, strict=True))


def test_many_openings_without_a_close_cost_no_more_than_one() -> None:
    assert without_comments("/* " * 300_000) == " " * 900_000
