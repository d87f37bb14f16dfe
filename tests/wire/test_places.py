"""Places as text: what a source is opened with comes back, anything else is no place."""

import pytest

from agent.domain.events import Scanned
from agent.domain.vocab import Millis
from agent.wire.places import decode_places, encode_places

PLACES = {0: Scanned(1, 40, Millis(5), "ab"), 11: Scanned(0, 0)}


def test_places_come_back() -> None:
    token = encode_places(PLACES)
    assert token is not None
    assert decode_places(token) == PLACES


def test_no_places_begin_at_the_earliest_record() -> None:
    assert encode_places({}) is None


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b'{"x":{"digest":"","generation":0,"offset":0}}',
        b'{"1":{"digest":""}}',
        b'{"generation":1}',
    ],
)
def test_what_is_no_place_is_none(token: bytes) -> None:
    assert decode_places(token) == {}
