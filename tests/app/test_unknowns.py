"""Unknown codes that were seen: from reasons, reports and dead letters, by the policy that is asked."""

import json
from pathlib import Path

import orjson
import pytest
from command import Command, a_recording
from recordlines import fault_line
from rig import T0

from agent.app.unknowns import unknown_codes
from agent.domain.events import ActiveFault, Decision, FaultKey, NodeReport, Position, Record, UnknownCode
from agent.domain.policy import CodeRule, Policy
from agent.domain.vocab import Millis, NodeName, OccurrenceId, Plane, Reason, Source
from agent.wire.audit import AuditLine

KNOWN = Policy(chip={0x80E18402: CodeRule("80E18402", "SeparateNPU")})


def line(ref: str, at: int, reason: Reason = Reason.FAULT_SHOWN, occurrence: str = "0:0:1:0") -> AuditLine:
    return AuditLine(Decision(Millis(at), reason, fault=ref, level="NotHandleFault", occurrence=occurrence), "act", "p")


def letter(code: object, reason: bytes = b"CODE_UNKNOWN", at: int = 9) -> Record:
    value = orjson.dumps({"faults": [{"faultCode": code}]})
    return Record(Position(0, 0, 0), b"n1", value, (("fault-agent-reason", reason),), Millis(at))


def test_a_code_is_counted_by_its_occurrences_and_dated() -> None:
    lines = [
        line("n1/chip/0/DEADBEEF@5", 5),
        line("n1/chip/0/DEADBEEF@5", 6, Reason.HELD),
        line("n2/chip/1/DEADBEEF@7", 7, occurrence="0:0:2:0"),
        line("n1/chip/0/80E18402@5", 8),
        line("", 9),
    ]
    (one,) = unknown_codes(KNOWN, lines, (), ())
    assert (one.code, one.plane, len(one.occurrences), one.held) == ("DEADBEEF", Plane.CHIP, 2, True)
    assert (one.first, one.last, one.nodes, one.levels) == (5, 7, {"n1", "n2"}, {"NotHandleFault"})


def test_a_report_brings_what_is_active_and_what_it_remembers() -> None:
    key = FaultKey(NodeName("n1"), Plane.CHIP, "0", "DEADBEEF")
    fault = ActiveFault(
        key,
        Millis(3),
        "NotHandleFault",
        "unknown-code",
        OccurrenceId("0:0:1:0"),
        Source.DCMI,
        known=False,
        held=True,
        severity=2,
    )
    met = (
        UnknownCode(Plane.CHIP, "DEADBEEF", Source.DCMI, 2, 5, Millis(2), Millis(8)),
        UnknownCode(Plane.CHIP, "80E18402", Source.DCMI, 2, 1, Millis(2), Millis(9)),
    )
    report = NodeReport("c", NodeName("n1"), 1, 1, "i", active=(fault,), unknown=met)
    (one,) = unknown_codes(KNOWN, (), (report,), ())
    assert (one.active, one.severities, one.held, one.times) == (1, {2}, True, 5)
    assert (one.first, one.last) == (2, 8)


def test_public_codes_are_found_in_the_dead_letters_alone() -> None:
    letters = [letter("999999999"), letter("999999999", at=12), letter("999999998", b"NOT_JSON"), letter(7)]
    letters.append(Record(Position(0, 0, 1), None, b"{", (("fault-agent-reason", b"CODE_UNKNOWN"),), Millis(1)))
    (one,) = unknown_codes(KNOWN, (), (), letters)
    assert (one.code, one.plane, one.refused, one.levels, one.last) == ("999999999", Plane.PUBLIC, 2, set(), 12)


def test_those_met_last_come_first() -> None:
    lines = [line("n1/chip/0/00000001@1", 1), line("n1/chip/0/00000002@2", 2)]
    assert [one.code for one in unknown_codes(KNOWN, lines, (), ())] == ["00000002", "00000001"]


@pytest.fixture(name="ask")
def _ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


def test_the_command_lists_them_with_the_lines_that_add_them(ask: Command, tmp_path: Path) -> None:
    a_recording(tmp_path, [fault_line("DEADBEEF", T0, 1), {"tick": T0 + 1000}])
    ask.replay(tmp_path)
    code, out, _ = ask("policy", "unknown", "--out", tmp_path / "out")
    assert code == 0
    assert out.splitlines()[1].split() == ["DEADBEEF", "chip", "held", "1", "1", "n1", "2026-01-01", "00:00:00.000Z"]
    assert '  "DEADBEEF": {level: …, reason: "…", expires: never}' in out
    (one,) = json.loads(ask("policy", "unknown", "--out", tmp_path / "out", "--json")[1])
    assert (one["code"], one["held"], one["nodes"], one["table"]) == ("DEADBEEF", True, ["n1"], "chip")


def test_a_code_that_was_added_since_is_not_shown(ask: Command, tmp_path: Path) -> None:
    a_recording(tmp_path, [fault_line("DEADBEEF", T0, 1), {"tick": T0 + 1000}])
    ask.replay(tmp_path)
    entry = "{level: NotHandleFault, reason: r, expires: never}"
    (tmp_path / "overrides.yaml").write_text(f'version: 1\nchip:\n  "DEADBEEF": {entry}\n', encoding="utf-8")
    words = ("policy", "unknown", "--out", tmp_path / "out", "--policy", tmp_path / "overrides.yaml")
    assert ask(*words)[1] == "every code that was seen is in a table\n"


def test_a_folder_of_no_run_is_said(ask: Command, tmp_path: Path) -> None:
    code, _, err = ask("policy", "unknown", "--out", tmp_path)
    assert (code, "holds no audit.jsonl" in err) == (3, True)
