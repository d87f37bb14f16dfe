"""The plan of a job as text, and what it says of the NPUs that are held as their ledger stands."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from a3table import JOB, NOW, fault, question
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.rail import decide
from agent.domain.rail.case import CommMode
from agent.domain.rail.life import HoldState
from agent.domain.rail.reservations import RailLedger, Reservation, give_back, reserve
from agent.domain.rail.words import Answer, Borrow, Move
from agent.domain.vocab import JobId, Millis, NodeName
from agent.errors import BadDocument
from agent.wire.railplan import (
    PLAN_KEY,
    PlanDocument,
    as_held,
    decode_plan,
    encode_plan,
    plan_document,
    plan_name,
    rail_plan_schema,
)


def test_the_document_has_its_name() -> None:
    assert (plan_name("demo"), PLAN_KEY) == ("fault-agent-rail-demo", "plan.json")


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
        "executor": "plan-only",
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
        "moves_left_out": 0,
        "links_left_out": 0,
        "warnings": [
            {"code": "BANDWIDTH_HALVED", "detail": "two dies share one NIC: half the bandwidth, until repaired"},
            {
                "code": "PEERS_ASSUMED",
                "detail": "peers are not known; taken to be every rank of that device id in the other super-pods",
            },
        ],
        "advice": "Save a checkpoint soon, then repair the link. HCCL does not switch back by itself.",
        "held": [],
    }
    assert text.startswith('{"schema":1,"cluster":"c1","job":"train/demo","incarnation":"first","plan":"abc",')


def test_of_a_plan_of_a_very_large_job_the_failed_ranks_are_always_listed() -> None:
    moves = tuple(Move(NodeName(f"n{n}"), 0, 1, 0, n, faulted=n == 4_032) for n in range(4_033))
    made = planned(Borrow(moves, tuple((n, 4_032) for n in range(4_032))))
    assert (len(made.moves), made.moves_left_out) == (1_000, 3_033)
    assert (len(made.links), made.links_left_out) == (1_000, 3_032)
    assert [move.rank for move in made.moves] == [*range(999), 4_032]
    assert len(encode_plan(made)) < 150_000
    assert decode_plan(encode_plan(made)) == made


@pytest.mark.parametrize(
    ("answer", "state", "rule", "code"),
    [
        (decide(question(fault(), comm_mode=CommMode.UNKNOWN)), "refused", 14, "COMM_MODE_UNKNOWN"),
        (decide(question(fault(), product="")), "refused", 5, "UNSUPPORTED_PRODUCT"),
        (decide(question(fault(ended_at=NOW))), "noop", 3, "CLEAR"),
        (decide(question(fault(kind="hccs"))), "delegated", 6, "HCCS_PATH_SWITCH"),
        (decide(question(fault(kind="rdma_flap", started_at=NOW))), "observed", 9, "FLAP"),
    ],
)
def test_every_other_answer_is_written_without_moves(answer: Answer, state: str, rule: int, code: str) -> None:
    document = orjson.loads(encode_plan(planned(answer)))
    assert (document["state"], document["rule"], document["moves"]) == (state, {"number": rule, "code": code}, [])
    assert document.get("until") == ("2026-01-01T00:00:30.065Z" if state == "observed" else None)


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
        "observed",
        "planned",
        "advised",
        "refused",
        "expired",
        "superseded",
        "returned",
        "noop",
        "delegated",
    }


@settings(max_examples=100)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60)))
def test_no_bytes_crash_the_reader(raw: bytes | str) -> None:
    with pytest.raises(BadDocument):
        decode_plan(raw)


# --- as it is held --------------------------------------------------------------------------------------------------


def held_plan(**given_: str) -> tuple[PlanDocument, RailLedger]:
    """The plan of dies 0 and 2 of node n0 failing together, and the ledger that holds it."""
    answer = decide(question(fault(), fault(device=2), **given_))
    assert isinstance(answer, Borrow)
    ledger = reserve(RailLedger(), answer, job=JOB, job_uid="u", incarnation="first", now=NOW)
    assert isinstance(ledger, RailLedger)
    made = plan_document(
        answer, cluster="c1", job=JOB, incarnation="first", plan=ledger.entries[0].plan, faults=answer.faults, at=NOW
    )
    return made, ledger


def back(entries: tuple[Reservation, ...], *dies: int) -> list[Reservation]:
    return [replace(e, link_back=Millis(NOW + 1)) if e.faulted and e.die_from in dies else e for e in entries]


def test_a_plan_names_what_it_holds_and_which_links_failed() -> None:
    made, ledger = held_plan()
    found = as_held(made, ledger.entries)
    assert found.state == "advised"
    assert found.advice == "Save a checkpoint soon, then repair the link. HCCL does not switch back by itself."
    (one,) = found.held
    assert (one.plan, one.since, one.npus) == (made.plan, "2026-01-01T00:00:00.000Z", 6)
    assert [(die.node, die.npu, die.device, die.rank, die.link_back) for die in one.failed] == [
        ("n0", 0, 0, 0, None),
        ("n0", 1, 2, 2, None),
    ]


def test_the_job_s_exit_stays_in_the_advice() -> None:
    made, ledger = held_plan(sub_health_strategy="forceExit")
    assert "The job's subHealthyStrategy ends it" in as_held(made, ledger.entries).advice


def test_only_when_every_link_is_back_a_return_by_hand_is_advised() -> None:
    made, ledger = held_plan()
    some = as_held(made, back(ledger.entries, 2))
    assert some.advice.endswith("Up again is the link of n0/2: return by hand when the others are too.")
    every = as_held(made, back(ledger.entries, 0, 2))
    plan = made.plan
    assert every.advice == (
        f"The link is up again, traffic of plan {plan} stays on the other die: save a checkpoint (a return that fails"
        f" ends the job), check the repair, return by hand, then record it: fault-agent/rail-returned={plan}."
    )
    assert every.held[0].failed[0].link_back == "2026-01-01T00:00:00.001Z"
    assert as_held(every, ledger.entries).advice == as_held(made, ledger.entries).advice, "down again"


def test_a_plan_that_ended_says_how() -> None:
    made, ledger = held_plan()
    gone = [replace(e, state=HoldState.SUPERSEDED, closed_at=NOW) for e in ledger.entries]
    ended = as_held(made, gone)
    assert (ended.state, ended.held) == ("superseded", [])
    assert "the processes that did are gone" in ended.advice
    returned = as_held(made, give_back(ledger, {e.id for e in ledger.entries}, now=NOW).entries)
    assert (returned.state, returned.held) == ("returned", [])
    assert "may borrow again" in returned.advice


def test_another_answer_keeps_its_own_words_beside_what_an_earlier_plan_holds() -> None:
    _, ledger = held_plan()
    refusal = planned(decide(question(fault(), product="")))
    found = as_held(refusal, back(ledger.entries, 0, 2))
    assert (found.state, found.advice) == ("refused", refusal.advice)
    assert found.held[0].advice.startswith("The link is up again")


def test_saying_it_twice_changes_nothing() -> None:
    made, ledger = held_plan()
    for document in (made, planned(decide(question(fault(), product="")))):
        for entries in (ledger.entries, back(ledger.entries, 0, 2), back(ledger.entries, 2), ()):
            once = as_held(document, entries)
            assert as_held(once, entries) == once
            assert decode_plan(encode_plan(once)) == once
