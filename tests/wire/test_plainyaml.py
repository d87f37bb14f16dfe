"""YAML in ConfigMaps of others: plain values, or one named error."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import BadDocument
from agent.wire.plainyaml import LONGEST, plain_yaml


def test_plain_values_come_as_they_are() -> None:
    assert plain_yaml("a: [1, true, 'x']\n", "here") == {"a": [1, True, "x"]}
    assert plain_yaml("", "here") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "here: no YAML that can be read: ParserError"),
        ("a: &x 1\nb: *x\n", "here: has an alias (*name)"),
        ("!!python/object:os.system x", "here: no YAML that can be read: ConstructorError"),
        ("!!timestamp 2026-99-99", "here: no YAML that can be read: "),
        ("[" * LONGEST, "here: no YAML that can be read: ScannerError: while increasing flow level exceeded"),
        ("- " * (LONGEST // 2), "here: no YAML that can be read: ScannerError: while increasing block level exceeded"),
        ("#" * (LONGEST + 1), "here: has 65537 characters, at most 65536 are read"),
    ],
    ids=["cut", "alias", "tag", "a value that is none", "deep flow", "deep block", "too long"],
)
def test_what_is_none_names_its_place(text: str, said: str) -> None:
    with pytest.raises(BadDocument) as bad:
        plain_yaml(text, "here")
    assert str(bad.value).startswith(said)


@given(st.text(max_size=60))
def test_any_text_gives_values_or_that_error(text: str) -> None:
    with suppress(BadDocument):
        plain_yaml(text, "here")
