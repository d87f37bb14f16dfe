"""Which nodes a dead letter speaks of."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.events import Position, Record
from agent.wire.letters import nodes_of


def letter(value: bytes | None, key: bytes | None = b"n1") -> Record:
    return Record(Position(0, 0, 0), key, value)


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"faults": [{"influence": [{"nodeName": "n2"}, {"nodeName": "n3"}]}]}, {"n1", "n2", "n3"}),
        ({"faults": [{"influence": [{"nodeName": 7}, "n2"]}, 3]}, {"n1"}),
        ({"faults": {"influence": []}}, {"n1"}),
        ([], {"n1"}),
        (None, {"n1"}),
    ],
)
def test_a_letter_speaks_of_its_key_and_of_those_its_value_names(value: Any, names: set[str]) -> None:
    assert nodes_of(letter(json.dumps(value).encode())) == names


def test_a_letter_without_key_and_value_speaks_of_nobody() -> None:
    assert nodes_of(letter(None, None)) == frozenset()


@given(st.one_of(st.none(), st.binary()), st.one_of(st.none(), st.binary()))
def test_no_letter_raises(value: bytes | None, key: bytes | None) -> None:
    assert all(nodes_of(letter(value, key)))
