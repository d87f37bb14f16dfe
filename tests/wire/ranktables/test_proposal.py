"""Backups proposed for a table that has none."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from a3table import A3_TABLE, a3_document
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import BadDocument
from agent.wire.ranktables.inspect import inspect_table, open_table
from agent.wire.ranktables.judge import Mode
from agent.wire.ranktables.proposal import BORROWING, propose

Change = Callable[[dict[str, Any]], object]


def dies(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [die for server in document["server_list"] for die in server["device"]]


def bare(document: dict[str, Any]) -> None:
    """As ascend-operator writes it: no backups, no ports."""
    for die in dies(document):
        for key in ("device_port", "backup_device_ip", "backup_device_port", "host_port"):
            del die[key]


def proposed(*changes: Change) -> dict[str, Any]:
    document = a3_document()
    for change in changes:
        change(document)
    raw = propose(open_table(orjson.dumps(document))).text.encode()
    inspection = inspect_table(open_table(raw), BORROWING, Mode.DOC)
    assert [one.finding for one in inspection.found] == []
    made: dict[str, Any] = orjson.loads(raw)
    return made


def test_each_die_gets_the_other_die_of_its_npu_and_ports_that_do_not_clash() -> None:
    made = proposed(bare)
    assert dies(made)[2] == {
        "device_id": "2",
        "super_device_id": "2",
        "device_ip": "192.168.1.8",
        "rank_id": "2",
        "backup_device_ip": "192.168.1.9",
        "device_port": "16666",
        "backup_device_port": "16667",
    }
    assert [die["backup_device_ip"] for die in dies(made)[12:]] == [f"192.168.4.{n}" for n in (7, 6, 9, 8)]


def test_a_port_that_the_other_die_uses_itself_is_not_its_backup_port() -> None:
    made = proposed(bare, lambda d: dies(d)[1].update(device_port="16667"))
    assert [die["backup_device_port"] for die in dies(made)[:2]] == ["16668", "16667"]


def test_what_is_written_stays_and_unknown_fields_too() -> None:
    made = proposed(lambda d: d.update(note="ours"), lambda d: dies(d)[0].pop("backup_device_ip"))
    whole = a3_document()
    assert made == {**whole, "note": "ours"}


def test_the_first_of_several_addresses_is_taken() -> None:
    document = a3_document()
    bare(document)
    dies(document)[0]["device_ip"] = "fe80::1, 192.168.1.6"
    with pytest.raises(BadDocument, match="DEVICE_IP_INVALID"):  # the document takes one address
        propose(open_table(orjson.dumps(document)))


def unpaired(document: dict[str, Any]) -> None:
    bare(document)
    document["server_list"][3]["device"].pop()


def no_address(document: dict[str, Any]) -> None:
    bare(document)
    del dies(document)[1]["device_ip"]


REFUSED: list[tuple[Change, str, str]] = [
    (unpaired, "/server_list/3/device/2/backup_device_ip", "is not in the table"),
    (no_address, "/server_list/0/device/0/backup_device_ip", "has no device_ip"),
    (lambda d: d["server_list"][1].pop("host_ip"), "/server_list/1/host_ip", "HOST_IP_REQUIRED"),
    (lambda d: dies(d)[1].update(rank_id="0"), "/server_list/0/device/1/rank_id", "RANK_DUP"),
    (lambda d: dies(d)[1].update(rank_id=1), "/server_list/0/device/1/rank_id", "TYPE_NOT_STRING"),
    (lambda d: dies(d)[4].update(backup_device_ip="10.9.9.9"), "/server_list/1/device/0/backup_device_ip", "NOT_PAIR"),
    (lambda d: d["server_list"][0].update(hardware_type="800I-A2-32G"), "/server_list/0/hardware_type", "A2"),
    (lambda d: d.update(status="initializing"), "/status", "STATUS_NOT_READY"),
    (lambda d: d.update(version="2.0", rank_count=0, rank_list=[]), "/version", "2.0"),
]


@pytest.mark.parametrize(("change", "place", "words"), REFUSED)
def test_where_a_rule_cannot_be_kept_nothing_is_proposed(change: Change, place: str, words: str) -> None:
    document = a3_document()
    change(document)
    with pytest.raises(BadDocument) as caught:
        propose(open_table(orjson.dumps(document)))
    assert caught.value.place == place
    assert words in caught.value.reason


@pytest.mark.parametrize(
    ("field", "wrong", "code"),
    [("backup_device_ip", "10.9.9.9", "BACKUP_NOT_PAIR"), ("backup_device_port", "16666", "BACKUP_PORT_CLASH")],
)
def test_a_backup_that_does_not_serve_is_not_overwritten_and_once_taken_away_is_proposed(
    field: str, wrong: str, code: str
) -> None:
    document = a3_document()
    dies(document)[4][field] = wrong
    with pytest.raises(BadDocument, match=f"{code}: .*take {field} away from this die, and it is proposed anew"):
        propose(open_table(orjson.dumps(document)))
    del dies(document)[4][field]
    made = orjson.loads(propose(open_table(orjson.dumps(document))).text)
    assert dies(made)[4][field] == dies(a3_document())[4][field]


def test_a_backup_whose_die_has_no_other_is_not_said_to_be_proposed_anew() -> None:
    document = a3_document()
    document["server_list"][3]["device"].pop()
    with pytest.raises(BadDocument, match=r"BACKUP_NOT_PAIR: .*give the job both dies of each NPU"):
        propose(open_table(orjson.dumps(document)))


def test_a_proposal_is_its_own_proposal() -> None:
    document = a3_document()
    bare(document)
    once = propose(open_table(orjson.dumps(document)))
    twice = propose(open_table(once.text.encode()))
    assert (once.backups, once.ports) == (16, 32)
    assert (twice.text, twice.backups, twice.ports) == (once.text, 0, 0)


def refusal(raw: bytes) -> str:
    """Why nothing is proposed; empty when something is, which then passes every rule."""
    try:
        made = propose(open_table(raw))
    except BadDocument as error:
        return error.reason
    found = inspect_table(open_table(made.text.encode()), BORROWING, Mode.DOC).found
    return "".join(f"proposed with {one.finding.code}" for one in found if one.finding.severity == "error")


ports = st.one_of(st.none(), st.sampled_from(["1024", "16665", "16666", "16667", "16668", "65535"]))


@given(st.lists(st.tuples(ports, ports), min_size=16, max_size=16))
def test_whatever_ports_are_written_it_is_sound_or_refused(written: list[tuple[str | None, str | None]]) -> None:
    document = a3_document()
    bare(document)
    for die, (main, backup) in zip(dies(document), written, strict=True):
        die.update({key: port for key, port in (("device_port", main), ("backup_device_port", backup)) if port})
    reason = refusal(orjson.dumps(document))
    assert reason == "" or reason.startswith("BACKUP_PORT_CLASH")


@given(st.integers(0, len(A3_TABLE) - 1), st.binary(max_size=2), st.integers(0, 40))
def test_no_damage_crashes_it(at: int, put: bytes, cut: int) -> None:
    raw = A3_TABLE.encode()
    assert "proposed" not in refusal(raw[:at] + put + raw[at + cut :])
