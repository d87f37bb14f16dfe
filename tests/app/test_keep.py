"""What a run keeps reads back the same, and anything else is refused with the file's name."""

import pytest

from agent.app.keep import Kept, kept_bytes, kept_of, report_of
from agent.domain.events import Position
from agent.domain.vocab import Millis, NodeName
from agent.errors import CannotRun

PLACE = ".state/cabinet/objects"


@pytest.mark.parametrize("to", [None, Position(1, 0, 42)])
def test_what_is_kept_reads_back_the_same(to: Position | None) -> None:
    kept = Kept([["Pod", "train", "p", {"kind": "Pod"}], ["Node", "", "n1", None]], to, Millis(1767225600000))
    assert kept_of(kept_bytes(kept), PLACE) == kept


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"", "no JSON", id="empty"),
        pytest.param(b'{"to":null,"clo', "no JSON", id="torn"),
        pytest.param(b"\0\0\0\0", "no JSON", id="zeroes"),
        pytest.param(b"[]", "no JSON object", id="list"),
        pytest.param(b'{"a":1}', "clock is no time", id="other keys"),
        pytest.param(b'{"to":null,"clock":true,"laid":[]}', "clock is no time", id="clock is a boolean"),
        pytest.param(b'{"to":null,"clock":-1,"laid":[]}', "clock is no time", id="clock is negative"),
        pytest.param(b'{"to":[1,2],"clock":1,"laid":[]}', "to is no place", id="two numbers"),
        pytest.param(b'{"to":[1,2,"3"],"clock":1,"laid":[]}', "to is no place", id="a text in it"),
        pytest.param(b'{"to":{},"clock":1,"laid":[]}', "to is no place", id="an object"),
        pytest.param(b'{"to":null,"clock":1}', "laid is no list", id="nothing laid"),
        pytest.param(b'{"to":null,"clock":1,"laid":[["Pod","a","b"]]}', "laid is no list", id="three of four"),
        pytest.param(b'{"to":null,"clock":1,"laid":[["Pod","a",5,null]]}', "laid is no list", id="a name is a number"),
        pytest.param(b'{"to":null,"clock":1,"laid":[["Pod","a","b",[]]]}', "laid is no list", id="no object"),
    ],
)
def test_a_damaged_file_is_named_with_its_reason_and_a_way_out(data: bytes, why: str) -> None:
    with pytest.raises(
        CannotRun, match=rf"\.state/cabinet/objects in the --out folder cannot be read: {why}"
    ) as caught:
        kept_of(data, PLACE)
    assert caught.value.hint == (
        "restore it, or move the --out folder away to begin anew; its documents show what was done"
    )


def test_a_report_that_cannot_be_read_is_named_by_its_file() -> None:
    with pytest.raises(CannotRun, match=r"\.state/reports/n1\.json in the --out folder cannot be read: report: no "):
        report_of(NodeName("n1"), b"")
