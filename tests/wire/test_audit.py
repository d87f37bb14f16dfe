"""Audit lines: one decision, one line of JSON that a person can ask "why" of."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.domain.events import Behind, Decision
from agent.domain.vocab import JobId, Millis, NodeName, Reason
from agent.errors import BadDocument
from agent.wire.audit import AuditLine, decode_all, decode_audit, encode_audit, fact_of, rfc3339

WHOLE = AuditLine(
    Decision(
        at=Millis(1767225600123),
        reason=Reason.RECOVERY_STARTED,
        node=NodeName("n1"),
        fault="n1/chip/2/80C98000@1767225600000",
        job=JobId("train/demo"),
        level="RestartRequest",
        detail="recovery 1, policy restart_request",
        document="train/reset-config-demo",
        occurrence="0:0:7:0",
        ranks=(0, 1),
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        causes=(Behind("n1/chip/2/80C98000@1767225600000", JobId("train/demo")), Behind("", JobId("train/other"))),
    ),
    "act",
    "b4bcfd12f569",
    "AI core instruction data check failed",
)


def test_a_line_says_all_of_a_decision_and_reads_back() -> None:
    line = encode_audit(WHOLE)
    assert json.loads(line) == {
        "schema": 1,
        "time": "2026-01-01T00:00:00.123Z",
        "at": 1767225600123,
        "reason": "RECOVERY_STARTED",
        "node": "n1",
        "fault": "n1/chip/2/80C98000@1767225600000",
        "level": "RestartRequest",
        "meaning": "AI core instruction data check failed",
        "job": "train/demo",
        "ranks": [0, 1],
        "document": "train/reset-config-demo",
        "detail": "recovery 1, policy restart_request",
        "occurrence": "0:0:7:0",
        "mode": "act",
        "policy": "b4bcfd12f569",
        "trace": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "causes": [
            {"fault": "n1/chip/2/80C98000@1767225600000", "job": "train/demo"},
            {"job": "train/other"},
        ],
    }
    assert decode_audit(line, "here") == WHOLE


def test_a_text_without_bytes_costs_only_its_own_letters() -> None:
    causes = (Behind("n1/public/\ud800:7/1@5", JobId("train/demo")),)
    line = AuditLine(Decision(Millis(0), Reason.HELD, detail="a\ud800b", ranks=(1,), causes=causes), "act", "")
    told = decode_audit(encode_audit(line), "here").decision
    assert (told.reason, told.detail, told.ranks) == (Reason.HELD, "a\ufffdb", (1,))
    assert told.causes == (Behind("n1/public/\ufffd:7/1@5", JobId("train/demo")),)


DEEP = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize("field", ["reason", "detail", "ranks", "at"])
def test_a_line_nested_without_end_is_a_finding(field: str) -> None:
    good, findings = decode_all([f'{{"at":1,"reason":"HELD","{field}":{DEEP}}}'.encode()], "audit.jsonl")
    assert good == []
    assert findings[0].startswith("audit.jsonl:1: no audit line")


def test_a_fact_nested_without_end_is_none() -> None:
    assert fact_of(f'{{"occurrence":{DEEP}}}'.encode()) is None


def test_what_is_empty_is_left_out() -> None:
    line = AuditLine(Decision(Millis(0), Reason.WRITTEN), "", "")
    assert json.loads(encode_audit(line)) == {
        "schema": 1,
        "time": "1970-01-01T00:00:00.000Z",
        "at": 0,
        "reason": "WRITTEN",
    }
    assert decode_audit(encode_audit(line), "here") == line


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (1767225600000, "2026-01-01T00:00:00.000Z"),
        (1767225600999, "2026-01-01T00:00:00.999Z"),
        (253402300799999, "9999-12-31T23:59:59.999Z"),
        (253402300800000, "253402300800000ms"),
        (10**30, "1" + "0" * 30 + "ms"),
    ],
)
def test_times_are_utc_with_milliseconds_or_said_as_they_are(at: int, text: str) -> None:
    assert rfc3339(at) == text


BAD = {
    "no JSON": b"{",
    "no object": b"[]",
    "a number": b"7",
    "no reason": b'{"at":1}',
    "a reason nobody knows": b'{"at":1,"reason":"BECAUSE"}',
    "no time": b'{"reason":"WRITTEN"}',
    "a time that is none": b'{"at":"x","reason":"WRITTEN"}',
    "ranks that are none": b'{"at":1,"reason":"WRITTEN","ranks":["x"]}',
    "ranks that are no list": b'{"at":1,"reason":"WRITTEN","ranks":7}',
    "no UTF-8": b"\xff",
    "empty": b"",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_is_no_line_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(BadDocument, match=r"audit\.jsonl:3: no audit line"):
        decode_audit(data, "audit.jsonl:3")


def test_a_bad_line_costs_itself_and_is_named() -> None:
    good, findings = decode_all([encode_audit(WHOLE), b"{", encode_audit(WHOLE)], "audit.jsonl")
    assert good == [WHOLE, WHOLE]
    assert len(findings) == 1
    assert findings[0].startswith("audit.jsonl:2: ")


@given(
    data=st.binary(max_size=40) | st.text(max_size=40).map(lambda text: json.dumps({"at": 1, "reason": text}).encode())
)
def test_no_bytes_break_the_reader(data: bytes) -> None:
    good, findings = decode_all([data], "x")
    assert len(good) + len(findings) == 1


@given(detail=st.text(), fault=st.text(), at=st.integers(0, 2**53))
def test_any_words_come_back(detail: str, fault: str, at: int) -> None:
    try:
        line = AuditLine(Decision(Millis(at), Reason.HELD, detail=detail, fault=fault), "act", "p")
        data = encode_audit(line)
    except TypeError:
        # A lone surrogate is no text that JSON could carry.
        assert any("\ud800" <= sign <= "\udfff" for sign in detail + fault)
        return
    assert b"\n" not in data
    assert decode_audit(data, "here") == line


def test_a_fact_is_what_a_line_says_of_an_occurrence_whenever_it_was_said() -> None:
    one = b'{"time":"a","at":1,"reason":"HELD","occurrence":"0:0:1:0","detail":"d"}'
    two = b'{"time":"b","at":2,"reason":"HELD","occurrence":"0:0:1:0","detail":"e","ranks":[1],"trace":"x"}'
    other = b'{"time":"a","at":1,"reason":"HELD","occurrence":"0:0:1:0","detail":"d","job":"a/b"}'
    assert fact_of(one) == fact_of(two) != fact_of(other)
    for line in (b'{"reason":"WRITTEN"}', b"{", b"[]", b"7"):
        assert fact_of(line) is None


def test_two_replacements_for_one_fault_are_two_facts() -> None:
    first, second = (
        f'{{"at":1,"reason":"RESCHEDULE_RECORDED","occurrence":"0:0:1:0","detail":"restart {n} of the job"}}'.encode()
        for n in (1, 2)
    )
    assert fact_of(first) == fact_of(first.replace(b'"at":1', b'"at":2')) != fact_of(second)
