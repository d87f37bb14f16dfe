"""The ledger and the plan go to text and back, the same bytes for the same values."""

from dataclasses import replace

import pytest
from a3table import A3_TABLE, JOB, NOW
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import RailLedger, Reservation
from agent.domain.vocab import JobId, Millis, NodeName
from agent.errors import BadDocument
from agent.wire.railfile import (
    LEDGER_KEY,
    LEDGER_NAME,
    decode_ledger,
    encode_ledger,
)

ENTRY = Reservation(
    id="abc/n0/0",
    plan="abc",
    job=JOB,
    job_uid="u-1",
    incarnation="first",
    node=NodeName("n0"),
    npu=0,
    die_from=0,
    die_to=1,
    rank=0,
    at=NOW,
    rule=28,
    reason="BORROW",
    state=HoldState.ADVISED,
    faulted=True,
    links=((0, 8), (0, 12)),
    faults=("n0/network/0/81078603@1767225540000",),
    events=("1:0:0:0",),
)
PEER = replace(
    ENTRY, id="abc/n2/0", node=NodeName("n2"), rank=8, faulted=False, links=((0, 8),), state=HoldState.RESERVED
)
TEXT = (
    '{"schema":1,"cluster":"c1","plans":[{"plan":"abc","job":"train/demo","job_uid":"u-1","incarnation":"first",'
    '"at":"2026-01-01T00:00:00.000Z","rule":28,"reason":"BORROW","faults":["n0/network/0/81078603@1767225540000"],'
    '"events":["1:0:0:0"],"npus":[{"node":"n0","die":0,"rank":0,"state":"advised","faulted":true,"links":[8,12]},'
    '{"node":"n2","die":0,"rank":8,"state":"reserved","links":[0]}]}]}'
)


def test_the_document_has_its_name() -> None:
    assert (LEDGER_NAME, LEDGER_KEY) == ("fault-agent-rails", "ledger.json")


def test_the_ledger_says_once_per_plan_what_its_npus_share() -> None:
    assert encode_ledger(RailLedger((ENTRY, PEER)), "c1") == TEXT
    assert decode_ledger(TEXT, "c1") == RailLedger((ENTRY, PEER))
    assert decode_ledger(TEXT.encode(), "c1") == RailLedger((ENTRY, PEER))


def test_an_npu_that_answers_more_than_its_plan_says_so_itself() -> None:
    grown = replace(PEER, faults=(*PEER.faults, "n2/network/0/81078603@1767225550000"), events=("1:0:0:0", "1:0:9:0"))
    text = encode_ledger(RailLedger((ENTRY, grown)), "c1")
    assert '"events":["1:0:0:0","1:0:9:0"]}]}]}' in text
    assert decode_ledger(text, "c1") == RailLedger((ENTRY, grown))


def test_a_link_that_is_back_and_an_end_say_when() -> None:
    back = replace(ENTRY, link_back=Millis(NOW + 1))
    ended = replace(PEER, state=HoldState.RETURNED, closed_at=Millis(NOW + 2))
    text = encode_ledger(RailLedger((back, ended)), "c1")
    assert '"link_back":"2026-01-01T00:00:00.001Z"' in text
    assert text.endswith('"state":"returned","links":[0],"closed_at":"2026-01-01T00:00:00.002Z"}]}]}')
    assert decode_ledger(text, "c1") == RailLedger((back, ended))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "ledger.json"),
        ("[" * 3000, "not JSON"),
        (TEXT.replace('"schema":1', '"schema":2'), "schema 2 is newer"),
        (TEXT.replace('"schema":1', '"schema":0'), "/schema"),
        (TEXT.replace('"schema":1', '"schema":10000000000000000000000'), "schema 1e+22 is newer"),
        (TEXT.replace('"rule":28', '"rule":10000000000000000000000'), "plans/0/rule"),
        (TEXT.replace("[8,12]", "[8,10000000000000000000000]"), "plans/0/npus/0/links/1"),
        (TEXT.replace('"die":0', '"die":10000000000000000000000', 1), "plans/0/npus/0/die"),
        (TEXT.replace('"rank":0', '"rank":2147483648', 1), "plans/0/npus/0/rank"),
        (TEXT.replace('"c1"', '"c2"'), "cluster"),
        (TEXT.replace('"advised"', '"lent"'), "/plans/0/npus/0/state"),
        (TEXT.replace('"advised"', '"refused"'), "/plans/0/npus/0/state"),
        (TEXT.replace("2026-01-01T00:00:00.000Z", "yesterday"), "/plans/0/at"),
        (TEXT.replace("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00"), "no time zone"),
        (TEXT.replace("[8,12]", "[[8,12]]"), "plans/0/npus/0/links/0"),
        (TEXT.replace('"die":0', '"die":-1', 1), "plans/0/npus/0/die"),
        (TEXT.replace('"rank":0', '"rank":"0"'), "plans/0/npus/0/rank"),
        (TEXT.replace('"node":"n0",', ""), "plans/0/npus/0/node"),
        (TEXT.replace('"n2"', '"n0"'), "held twice"),
    ],
)
def test_a_ledger_that_cannot_be_trusted_is_refused_at_its_place(text: str, said: str) -> None:
    with pytest.raises(BadDocument, match="fault-agent-rails") as caught:
        decode_ledger(text, "c1")
    assert said in str(caught.value)


def test_history_gives_way_to_the_size_limit_and_held_npus_stay() -> None:
    long = tuple("n" * 250 + f"/network/0/81078603@{number}" for number in range(10))
    closed = [
        replace(
            ENTRY,
            id=f"{number}/n0/0",
            plan=str(number),
            state=HoldState.SUPERSEDED,
            closed_at=Millis(NOW + number),
            faults=long,
        )
        for number in range(400)
    ]
    text = encode_ledger(RailLedger((ENTRY, *closed)), "c1")
    assert len(text) <= 900_000
    kept = decode_ledger(text, "c1").entries
    assert kept[0] == ENTRY
    assert (kept[-1].plan, len(kept)) == ("399", 201)


def test_held_npus_that_do_not_fit_are_refused_and_not_cut() -> None:
    wide = replace(ENTRY, faults=("x" * 900_000,))
    with pytest.raises(BadDocument, match="900000 fit"):
        encode_ledger(RailLedger((wide,)), "c1")


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60), st.just(A3_TABLE)))
def test_no_bytes_crash_the_reader(raw: bytes | str) -> None:
    with pytest.raises(BadDocument):
        decode_ledger(raw, "c1")


words = st.text(st.characters(codec="utf-8"), max_size=8)
entries = st.builds(
    lambda plan, node, npu, odd, rank, ends, **rest: Reservation(
        id=f"{plan}/{node}/{npu}",
        plan=plan,
        node=NodeName(node),
        npu=npu,
        die_from=2 * npu + odd,
        die_to=2 * npu + 1 - odd,
        rank=rank,
        links=tuple((min(rank, other), max(rank, other)) for other in ends),
        **rest,
    ),
    plan=words,
    node=words,
    npu=st.integers(0, 31),
    odd=st.integers(0, 1),
    rank=st.integers(0, 9999),
    ends=st.lists(st.integers(0, 99), max_size=2),
    job=words.map(JobId),
    job_uid=words,
    incarnation=words,
    at=st.integers(0, 4_102_444_800_000).map(Millis),
    rule=st.integers(0, 28),
    reason=words,
    state=st.sampled_from([HoldState.SUPERSEDED, HoldState.RETURNED]),
    faulted=st.booleans(),
    faults=st.lists(words, max_size=2).map(tuple),
    events=st.lists(words, max_size=2).map(tuple),
    link_back=st.one_of(st.none(), st.integers(0, 4_102_444_800_000).map(Millis)),
    early=st.booleans(),
    closed_at=st.one_of(st.none(), st.integers(0, 4_102_444_800_000).map(Millis)),
)


@settings(max_examples=100)
@given(st.lists(entries, max_size=3))
def test_any_ledger_comes_back_as_it_was(made: list[Reservation]) -> None:
    ledger = RailLedger(tuple(made))
    text = encode_ledger(ledger, "c1")
    assert decode_ledger(text, "c1") == ledger
    assert encode_ledger(decode_ledger(text, "c1"), "c1") == text
