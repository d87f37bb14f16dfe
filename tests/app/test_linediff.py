"""The diff of two texts: what people read, and that it is cheap for large ones."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.app.linediff import unified


def diff(old: str | None, new: str | None) -> list[str]:
    return list(unified(old, new, "old", "new"))


def test_a_changed_member_is_shown_with_three_lines_around_it() -> None:
    old = '{"a":1,"b":{"c":[1,2],"d":null},"e":"x","f":"y","g":"z","h":0}'
    new = '{"a":1,"b":{"c":[1,2,3],"d":null},"e":"x","f":"y","g":"z","h":0}'
    assert diff(old, new) == [
        "--- old",
        "+++ new",
        "@@ -3,7 +3,8 @@",
        '   "b": {',
        '     "c": [',
        "       1,",
        "-      2",
        "+      2,",
        "+      3",
        "     ],",
        '     "d": null',
        "   },",
    ]


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (None, "[]", ["@@ -0,0 +1 @@", "+[]"]),
        ('{"a":1}', None, ["@@ -1,3 +0,0 @@", "-{", '-  "a": 1', "-}"]),
        ("[]", "[1]", ["@@ -1 +1,3 @@", "-[]", "+[", "+  1", "+]"]),
        ("{", "{}", ["@@ -1 +1 @@", "-{", "+{}"]),
        ("a\nb\nc", "a\nc", ["@@ -1,3 +1,2 @@", " a", "-b", " c"]),
        ('["\\ud800"]', "[1]", ["@@ -1,3 +1,3 @@", " [", '-  "\ufffd"', "+  1", " ]"]),
    ],
)
def test_keys_that_come_and_go_and_texts_that_are_no_json(old: str | None, new: str | None, lines: list[str]) -> None:
    assert diff(old, new)[2:] == lines


def test_texts_that_show_the_same_have_no_diff() -> None:
    assert diff('{"a":[1,2]}', ' {"a": [1, 2]}\n') == []
    assert diff(None, "") == []


@pytest.mark.parametrize("depth", [900, 100_000])
def test_what_is_nested_too_deep_is_shown_as_it_is(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    assert diff(deep, "[]")[-1] == "+[]"


def nodes(count: int, second: int, first: int = 0) -> str:
    cards = [{"fault_type": "CardUnhealthy", "npu_name": f"Ascend910-{i}", "fault_level": "L"} for i in range(16)]
    listed = [
        {"FaultDeviceList": cards, "NodeName": f"n{number:04}", "UpdateTime": second}
        for number in range(first, first + count)
    ]
    return json.dumps(listed)


def test_nodes_are_compared_with_themselves_however_many_have_changed() -> None:
    # Compared line by line, as one text, three hundred nodes take minutes.
    lines = diff(nodes(300, 1), nodes(300, 2, first=1))
    removed, added = ([line for line in lines[2:] if line.startswith(sign)] for sign in "-+")
    assert len(removed) == 299 + 87, "one line of each node that stays, and the whole of the one that goes"
    assert len(added) == 299 + 87
    assert '-    "NodeName": "n0000",' in removed
    assert '+    "NodeName": "n0300",' in added


def applied(lines: Sequence[str], before: Sequence[str]) -> Iterator[str]:
    """What a reader of the diff makes of the old lines."""
    at = 0
    for line in lines[2:]:
        hunk = re.fullmatch(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@", line)
        if hunk is not None:
            start = int(hunk[1]) - (hunk[2] != ",0")
            yield from before[at:start]
            at = start
        elif line[0] == "+":
            yield line[1:]
        else:
            assert before[at] == line[1:]
            at += 1
            if line[0] == " ":
                yield line[1:]
    yield from before[at:]


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["", "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["NodeName", "a", "b"]), inner),
    max_leaves=12,
)


@given(old=VALUES, new=VALUES)
def test_the_old_lines_and_the_diff_give_the_new_lines(old: Any, new: Any) -> None:
    before, after = (json.dumps(value, indent=2).splitlines() for value in (old, new))
    assert list(applied(diff(json.dumps(old), json.dumps(new)), before)) == after
