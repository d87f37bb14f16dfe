"""The ledger and the plan go to text and back, the same bytes for the same values."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from a3table import A3_TABLE, JOB, NOW, fault, question
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.rail import decide
from agent.domain.rail.case import CommMode
from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import RailLedger, Reservation
from agent.domain.rail.words import Answer
from agent.domain.vocab import JobId, Millis, NodeName
from agent.errors import BadDocument
from agent.wire.railfile import (
    LEDGER_KEY,
    LEDGER_NAME,
    PLAN_KEY,
    PlanDocument,
    decode_ledger,
    decode_plan,
    encode_ledger,
    encode_plan,
    plan_document,
    plan_name,
    rail_plan_schema,
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
TEXT = (
    '{"schema":1,"cluster":"c1","entries":[{"id":"abc/n0/0","plan":"abc","job":"train/demo","job_uid":"u-1",'
    '"incarnation":"first","node":"n0","npu":0,"die_from":0,"die_to":1,"rank":0,"at":"2026-01-01T00:00:00.000Z",'
    '"rule":28,"reason":"BORROW","state":"advised","faulted":true,"links":[[0,8],[0,12]],'
    '"faults":["n0/network/0/81078603@1767225540000"],"events":["1:0:0:0"]}]}'
)


def test_the_documents_have_their_names() -> None:
    assert (LEDGER_NAME, LEDGER_KEY) == ("fault-agent-rails", "ledger.json")
    assert (plan_name("demo"), PLAN_KEY) == ("fault-agent-rail-demo", "plan.json")


def test_the_ledger_is_compact_with_its_keys_in_one_order() -> None:
    assert encode_ledger(RailLedger((ENTRY,)), "c1") == TEXT
    assert decode_ledger(TEXT, "c1") == RailLedger((ENTRY,))
    assert decode_ledger(TEXT.encode(), "c1") == RailLedger((ENTRY,))


def test_a_closed_entry_says_when() -> None:
    closed = RailLedger((replace(ENTRY, state=HoldState.CLOSED, closed_at=Millis(NOW + 1)),))
    text = encode_ledger(closed, "c1")
    assert text.endswith('"closed_at":"2026-01-01T00:00:00.001Z"}]}')
    assert decode_ledger(text, "c1") == closed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "ledger.json"),
        ("[" * 3000, "not JSON"),
        (TEXT.replace('"schema":1', '"schema":2'), "schema 2 is newer"),
        (TEXT.replace('"schema":1', '"schema":0'), "/schema"),
        (TEXT.replace('"c1"', '"c2"'), "cluster"),
        (TEXT.replace('"advised"', '"lent"'), "/entries/0/state"),
        (TEXT.replace("2026-01-01T00:00:00.000Z", "yesterday"), "/entries/0/at"),
        (TEXT.replace("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00"), "no time zone"),
        (TEXT.replace("[0,12]", "[0]"), "/entries/0/links"),
        (TEXT.replace('"npu":0', '"npu":-1'), "entries/0/npu"),
        (TEXT.replace('"npu":0', '"npu":1'), "not the pair"),
        (TEXT.replace('"rank":0', '"rank":"0"'), "entries/0/rank"),
        (TEXT.replace('"node":"n0",', ""), "entries/0/node"),
        (TEXT.replace("]}]}", "]}," + TEXT.split("[", 1)[1]), "held twice"),
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
            id=str(number),
            state=HoldState.CLOSED,
            closed_at=Millis(NOW + number),
            faults=long,
        )
        for number in range(400)
    ]
    text = encode_ledger(RailLedger((ENTRY, *closed)), "c1")
    assert len(text) <= 900_000
    kept = decode_ledger(text, "c1").entries
    assert kept[0] == ENTRY
    assert (kept[-1].id, len(kept)) == ("399", 201)


def test_held_npus_that_do_not_fit_are_refused_and_not_cut() -> None:
    wide = replace(ENTRY, faults=("x" * 900_000,))
    with pytest.raises(BadDocument, match="900000 fit"):
        encode_ledger(RailLedger((wide,)), "c1")


def planned(answer: Answer) -> PlanDocument:
    return plan_document(
        answer, cluster="c1", job=JobId("train/demo"), incarnation="first", plan="abc", faults=["b", "a", "b"], at=NOW
    )


def test_a_borrow_is_written_with_its_moves_and_advice() -> None:
    text = encode_plan(planned(decide(question(fault()))))
    document = orjson.loads(text)
    checked = document.pop("checked")
    assert [item["rule"] for item in checked] == list(range(1, 29))
    assert checked[27] == {"rule": 28, "code": "BORROW", "outcome": "passed", "detail": ""}
    assert document == {
        "schema": 1,
        "cluster": "c1",
        "job": "train/demo",
        "incarnation": "first",
        "plan": "abc",
        "state": "advised",
        "at": "2026-01-01T00:00:00.000Z",
        "rule": {"number": 28, "code": "BORROW"},
        "detail": "3 ranks go to the other die of their NPU",
        "faults": ["a", "b"],
        "moves": [
            {"node": "n0", "npu": 0, "device_from": 0, "device_to": 1, "rank": 0, "faulted": True},
            {"node": "n2", "npu": 0, "device_from": 0, "device_to": 1, "rank": 8, "faulted": False},
            {"node": "n3", "npu": 0, "device_from": 0, "device_to": 1, "rank": 12, "faulted": False},
        ],
        "links": [[0, 8], [0, 12]],
        "warnings": [
            {"code": "BANDWIDTH_HALVED", "detail": "two dies share one NIC: half the bandwidth, until repaired"},
            {
                "code": "PEERS_ASSUMED",
                "detail": "peers are not known; taken to be every rank of that device id in the other super-pods",
            },
        ],
        "advice": "Save a checkpoint soon, then repair the link. HCCL does not switch back by itself.",
    }
    assert text.startswith('{"schema":1,"cluster":"c1","job":"train/demo","incarnation":"first","plan":"abc","state":')


@pytest.mark.parametrize(
    ("answer", "state", "rule", "code"),
    [
        (decide(question(fault(), comm_mode=CommMode.UNKNOWN)), "refused", 14, "COMM_MODE_UNKNOWN"),
        (decide(question(fault(), product="")), "refused", 5, "UNSUPPORTED_PRODUCT"),
        (decide(question(fault(ended_at=NOW))), "noop", 3, "CLEAR"),
        (decide(question(fault(kind="hccs"))), "delegated", 6, "HCCS_PATH_SWITCH"),
        (decide(question(fault(kind="rdma_flap", started_at=NOW))), "observing", 9, "FLAP"),
    ],
)
def test_every_other_answer_is_written_without_moves(answer: Answer, state: str, rule: int, code: str) -> None:
    document = orjson.loads(encode_plan(planned(answer)))
    assert (document["state"], document["rule"], document["moves"]) == (state, {"number": rule, "code": code}, [])
    assert document.get("until") == ("2026-01-01T00:00:30.065Z" if state == "observing" else None)


def test_a_plan_whose_npus_are_not_yet_held_is_only_planned() -> None:
    answer = decide(question(fault()))
    made = plan_document(
        answer, cluster="c1", job=JOB, incarnation="first", plan="abc", faults=[], at=NOW, advised=False
    )
    assert made.state == "planned"


def test_a_plan_is_read_as_it_was_written() -> None:
    for answer in (decide(question(fault())), decide(question(fault(kind="rdma_flap", started_at=NOW)))):
        made = planned(answer)
        assert decode_plan(encode_plan(made)) == made
        assert encode_plan(decode_plan(encode_plan(made))) == encode_plan(made)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema":2}', '{"schema":1,"cluster":3}'])
def test_a_plan_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadDocument, match=r"plan\.json"):
        decode_plan(text)


def test_the_shipped_schema_is_the_one_the_code_makes() -> None:
    shipped = Path(__file__).parents[2] / "schemas" / "rail-plan.schema.json"
    assert shipped.read_text(encoding="utf-8") == rail_plan_schema()


def test_the_schema_names_every_key_that_a_plan_has() -> None:
    schema = orjson.loads(rail_plan_schema())
    document = orjson.loads(encode_plan(planned(decide(question(fault(kind="rdma_flap", started_at=NOW))))))
    assert set(document) <= set(schema["properties"])
    assert set(schema["required"]) <= set(document)
    assert set(schema["properties"]["state"]["enum"]) == {
        "planned",
        "advised",
        "refused",
        "observing",
        "noop",
        "delegated",
    }


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60), st.just(A3_TABLE)))
def test_no_bytes_crash_either_reader(raw: bytes | str) -> None:
    with pytest.raises(BadDocument):
        decode_ledger(raw, "c1")
    with pytest.raises(BadDocument):
        decode_plan(raw)


words = st.text(st.characters(codec="utf-8"), max_size=8)
entries = st.builds(
    lambda npu, odd, **rest: Reservation(npu=npu, die_from=2 * npu + odd, die_to=2 * npu + 1 - odd, **rest),
    npu=st.integers(0, 31),
    odd=st.integers(0, 1),
    id=words,
    plan=words,
    job=words.map(JobId),
    job_uid=words,
    incarnation=words,
    node=words.map(NodeName),
    rank=st.integers(0, 9999),
    at=st.integers(0, 4_102_444_800_000).map(Millis),
    rule=st.integers(0, 28),
    reason=words,
    state=st.just(HoldState.CLOSED),
    faulted=st.booleans(),
    links=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=2).map(tuple),
    faults=st.lists(words, max_size=2).map(tuple),
    events=st.lists(words, max_size=2).map(tuple),
    closed_at=st.one_of(st.none(), st.integers(0, 4_102_444_800_000).map(Millis)),
)


@settings(max_examples=100)
@given(st.lists(entries, max_size=3))
def test_any_ledger_comes_back_as_it_was(made: list[Reservation]) -> None:
    ledger = RailLedger(tuple(made))
    text = encode_ledger(ledger, "c1")
    assert decode_ledger(text, "c1") == ledger
    assert encode_ledger(decode_ledger(text, "c1"), "c1") == text
