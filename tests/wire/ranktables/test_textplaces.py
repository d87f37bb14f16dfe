"""Lines and columns of JSON pointers."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.ranktables.textplaces import line_and_column

TEXT = """{
  "a": [1, {"b": "x"},
    [true]],
  "a/b": 2,
  "c" : {"d": 12345678901234567890123}
}"""


def test_a_key_an_element_and_what_is_absent_have_places() -> None:
    asked = ["", "/a", "/a/1", "/a/1/b", "/a/2/0", "/c/d", "/c/none/deeper", "/a/7", "/zzz"]
    assert line_and_column(TEXT, asked) == {
        "": (1, 1),
        "/a": (2, 3),
        "/a/1": (2, 12),
        "/a/1/b": (2, 13),
        "/a/2/0": (3, 6),
        "/c/d": (5, 10),
        "/c/none/deeper": (5, 3),
        "/a/7": (2, 3),
        "/zzz": (1, 1),
    }


def test_what_is_nested_too_deeply_for_the_parser_is_no_error() -> None:
    deep = '{"a": ' + "[" * 100_000 + "]" * 100_000 + ', "b": 1}'
    assert line_and_column(deep, ["/b"]) == {"/b": (1, 1)}


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("ab\n", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), values, min_size=1, max_size=4), st.booleans())
def test_every_key_is_found_where_it_stands(document: dict[str, object], wide: bool) -> None:
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2 if wide else 0).decode()
    rows = text.split("\n")
    for key in document:
        line, column = line_and_column(text, [f"/{key}"])[f"/{key}"]
        assert rows[line - 1][column - 1 :].startswith(f'"{key}"')
