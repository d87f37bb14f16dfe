"""What every rule says of a fault: counted, how far, until when, and nothing of another policy's numbers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import SEPARATE, Command, a_recording
from recordlines import fault_line, write_lines
from rig import POLICY, T0

from agent.app.cli.answer import rules
from agent.app.cli.asked import Asked
from agent.app.cli.rules import Word, asked_for, strangers, words
from agent.app.standing import Evidence, Standing
from agent.domain.events import ActiveFault, DurationTimer, FaultKey, FrequencyCounter, NodeReport
from agent.domain.isolation import Count, Isolation
from agent.domain.ledger import ClusterLedger, JobLedger, Kept, Member, Related, Separation
from agent.domain.policy import Policy, RelationRule
from agent.domain.vocab import HOUR, MANUAL, JobId, Millis, NodeName, OccurrenceId, Plane, Source

N1 = NodeName("n1")
LINK = FaultKey(N1, Plane.NETWORK, "3", "81078603")
CHIP = FaultKey(N1, Plane.CHIP, "2", SEPARATE)
UNKNOWN = FaultKey(N1, Plane.CHIP, "2", "8F0000A2")
(LINK_RULE,) = [rule for rule in POLICY.durations.values() if rule.code == "81078603"]
"""Down for longer than 20 s it is PreSeparateNPU, until it was up for longer than 60 s."""


def fault(key: FaultKey, level: str, rule: str, severity: int | None = None) -> ActiveFault:
    return ActiveFault(key, Millis(T0), level, rule, OccurrenceId("0:0:0:0"), Source.DCMI, severity=severity)


def standing(*active: ActiveFault, timer: DurationTimer | None = None, clock: int = T0, policy: str = "") -> Standing:
    timers = () if timer is None else (timer,)
    report = NodeReport(
        "c", N1, 1, 1, "i", clock=Millis(clock), active=active, timers=timers, policy=policy or POLICY.digest
    )
    return Standing({N1: report})


def said(key: FaultKey, given: Standing, policy: Policy = POLICY) -> list[Word]:
    return list(words(key, given, policy, Evidence((), (), given).clock))


def test_the_table_says_the_level_and_where_it_stands() -> None:
    (word,) = said(CHIP, standing(fault(CHIP, "SeparateNPU", "chip-table")))
    assert (word.rule, word.said, word.level, word.until) == ("chip-table", "SeparateNPU", "SeparateNPU", None)
    assert word.place.startswith("chip.yaml:")
    assert str(word) == f"chip-table, {word.place}: SeparateNPU"


@pytest.mark.parametrize(
    ("severity", "text"),
    [
        (None, "no table knows it, without a severity: held until a person adds the code to the policy"),
        (2, "no table knows it, severity 2: held until a person adds the code to the policy"),
        (1, "no table knows it, severity 1: shown, nothing is done"),
    ],
)
def test_an_unknown_code_is_told_with_what_its_severity_makes_of_it(severity: int | None, text: str) -> None:
    (word,) = said(UNKNOWN, standing(fault(UNKNOWN, "NotHandleFault", "unknown-code", severity)))
    assert str(word) == f"unknown-code: NotHandleFault; {text}"


def timed(phase: str, since: int, due: int, clock: int) -> Word:
    timer = DurationTimer(LINK, phase, Millis(T0 + since), Millis(T0 + due))
    by_rule = {
        one.rule: one for one in said(LINK, standing(fault(LINK, "NotHandleFault", "x"), timer=timer, clock=T0 + clock))
    }
    table, word = by_rule["chip-table"], by_rule["duration:81078603"]
    assert "frequency:81078603" in by_rule
    assert (table.rule, table.said) == ("chip-table", "NotHandleFault")
    assert (word.rule, word.place) == ("duration:81078603", LINK_RULE.place)
    return word


def test_a_link_that_is_down_is_told_with_how_far_it_is_from_its_threshold() -> None:
    word = timed("down", 0, 20_000, 13_200)
    assert word.said == "down for 13.2 s of 20 s; PreSeparateNPU if still down after 2026-01-01 00:00:20.000Z"
    assert (word.level, word.counted, word.needed, word.until) == ("", 13_200, 20_000, T0 + 20_000)


def test_a_link_that_was_raised_is_told_with_since_when_and_what_ends_it() -> None:
    word = timed("raised", 20_000, 20_000, 45_000)
    assert word.said == (
        "PreSeparateNPU since 2026-01-01 00:00:20.000Z, while it is down and until it was up for longer than 60 s"
    )
    assert (word.level, word.until) == ("PreSeparateNPU", None)


def test_a_link_that_is_up_again_is_told_with_how_long_its_level_stays() -> None:
    word = timed("up", 40_000, 100_000, 55_000)
    assert word.said == (
        "PreSeparateNPU stays: up for 15 s of 60 s; cleared if still up after 2026-01-01 00:01:40.000Z"
    )
    assert (word.level, word.counted, word.needed, word.until) == ("PreSeparateNPU", 15_000, 60_000, T0 + 100_000)


def test_a_rule_that_times_nothing_says_what_it_would_take() -> None:
    word = said(LINK, standing(fault(LINK, "NotHandleFault", "x")))[1]
    assert word.said == "nothing is timed; PreSeparateNPU once down for longer than 20 s"


def test_by_another_policy_its_numbers_are_not_told_and_what_was_counted_is() -> None:
    timer = DurationTimer(LINK, "down", Millis(T0), Millis(T0 + 7000))
    other = standing(fault(LINK, "SubHealthFault", "site-table"), timer=timer, clock=T0 + 2000, policy="another")
    table, word = said(LINK, other)
    assert table == Word("site-table", "SubHealthFault, as the report says", level="SubHealthFault")
    assert str(word) == (
        "duration:81078603: down for 2 s of 7 s; its level if still down after 2026-01-01 00:00:07.000Z"
    )
    assert strangers(other, POLICY) == ["n1"]
    assert strangers(standing(), POLICY) == []


def test_of_a_node_without_a_report_no_rule_says_anything() -> None:
    assert said(LINK, Standing()) == []


@pytest.mark.parametrize(
    ("kind", "ref", "found"),
    [
        ("fault", "n1", [CHIP, LINK]),
        ("fault", "n1/network", [LINK]),
        ("fault", f"n1/chip/2/{SEPARATE}@{T0}", [CHIP]),
        ("fault", f"n1/chip/2/{SEPARATE}@1", []),
        ("fault", "0x81078603", [LINK]),
        ("node", "n1", []),
    ],
)
def test_rules_are_told_of_the_faults_that_are_asked_for(kind: str, ref: str, found: list[FaultKey]) -> None:
    given = standing(fault(CHIP, "SeparateNPU", "x"), fault(LINK, "NotHandleFault", "x"))
    assert asked_for(Asked("fault" if kind == "fault" else "node", ref), given) == found


# --- frequency, quiet, by hand ----------------------------------------------------------------------------------------

REQUEST = FaultKey(N1, Plane.CHIP, "2", "80C98000")
(TWICE,) = [rule for rule in POLICY.frequencies.values() if rule.code == "80C98000"]
"""Twice within a day it is ManuallySeparateNPU."""
DAY = 86_400_000
MILD = replace(TWICE, level="PreSeparateNPU", release_ms=Millis(600_000))
SITE = Policy(frequencies={0x80C98000: MILD})


def counted(phase: str, clock: int, *times: int, policy: Policy = POLICY, **given: Any) -> Word:
    counter = FrequencyCounter(REQUEST, phase, tuple(Millis(T0 + one) for one in times), **given)
    report = NodeReport("c", N1, 1, 1, "i", clock=Millis(T0 + clock), counters=(counter,), policy=policy.digest)
    (word,) = said(REQUEST, Standing({N1: report}), policy)
    assert (word.rule, word.place) == ("frequency:80C98000", TWICE.place)
    return word


def test_what_is_counted_is_told_with_what_is_missing_and_when_the_oldest_leaves_the_window() -> None:
    word = counted("counting", 3_600_000, 0, due=Millis(T0 + DAY))
    assert word.said == (
        "1 of 2 times within 1 day counted; ManuallySeparateNPU with 1 more,"
        " the oldest counts up to 2026-01-02 00:00:00.000Z"
    )
    assert (word.counted, word.needed, word.until, word.level) == (1, 2, T0 + DAY, "")


def test_a_fault_as_old_as_the_window_counts_and_an_older_one_does_not() -> None:
    assert counted("counting", DAY, 0, due=Millis(T0 + DAY)).counted == 1
    word = counted("counting", DAY + 1, 0, due=Millis(T0 + DAY))
    assert word.said == "0 of 2 times within 1 day counted; ManuallySeparateNPU with 2 more"


def test_a_manual_trip_is_told_with_who_ends_it() -> None:
    word = counted("held", 9000, level="ManuallySeparateNPU", tripped=Millis(T0 + 5000))
    assert word.said == (
        "ManuallySeparateNPU since 2026-01-01 00:00:05.000Z; held by the coordinator, until a person releases it"
    )
    released = counted("released", DAY, level="ManuallySeparateNPU", tripped=Millis(T0), due=Millis(T0 + 9000))
    assert released.said == "ManuallySeparateNPU of 2026-01-01 00:00:00.000Z was released at 2026-01-01 00:00:09.000Z"


def test_a_milder_trip_is_told_with_how_long_it_has_been_clean() -> None:
    given: dict[str, Any] = {"level": "PreSeparateNPU", "tripped": Millis(T0), "policy": SITE}
    assert counted("held", 5000, **given).said.endswith("; released once clean for longer than 10 min")
    word = counted("clean", 130_000, **given, recovered=Millis(T0 + 10_000), due=Millis(T0 + 610_000))
    assert word.said == (
        "PreSeparateNPU stays: clean for 2 min of 10 min; released if still clean after 2026-01-01 00:10:10.000Z"
    )
    assert (word.level, word.counted, word.needed, word.until) == ("PreSeparateNPU", 120_000, 600_000, T0 + 610_000)
    never = counted("clean", 130_000, **given, recovered=Millis(T0 + 10_000))
    assert never.said.startswith("PreSeparateNPU since 2026-01-01 00:00:00.000Z, recovered; ")


def test_a_code_with_a_frequency_rule_and_no_count_says_what_it_would_take() -> None:
    table, word = said(REQUEST, standing(fault(REQUEST, "RestartRequest", "chip-table")))
    assert (table.rule, word.said) == ("chip-table", "nothing is counted; ManuallySeparateNPU at 2 times within 1 day")


def test_what_was_counted_by_another_policy_is_told_without_its_numbers() -> None:
    counter = FrequencyCounter(REQUEST, "counting", (Millis(T0), Millis(T0 + 1)), Millis(T0 + 7))
    report = NodeReport("c", N1, 1, 1, "i", clock=Millis(T0), counters=(counter,), policy="another")
    (word,) = said(REQUEST, Standing({N1: report}))
    assert str(word) == "frequency:80C98000: 2 counted"


@pytest.mark.parametrize(
    ("until", "text"),
    [
        (T0 + 5000, "quiet: kept back up to 2026-01-01 00:00:05.000Z by UCE accompany, 5 s"),
        (None, "quiet: kept back for as long as that lasts by UCE accompany, 5 s"),
    ],
)
def test_what_is_kept_back_is_told_with_its_last_quiet_moment(until: int | None, text: str) -> None:
    kept = Kept(None if until is None else Millis(until), N1, "UCE accompany, 5 s")
    ledger = JobLedger(JobId("train/demo"), "c", quiet={"0:0:0:0~SeparateNPU~2": kept})
    given = standing(fault(CHIP, "SeparateNPU", "chip-table"))
    word = said(CHIP, Standing(given.reports, {ledger.job: ledger}))[-1]
    assert (str(word), word.until) == (text, until)


def test_a_separation_by_hand_and_what_is_counted_towards_one_are_told_also_without_the_fault() -> None:
    cluster = ClusterLedger(
        "c",
        separations={N1: (Separation(2, SEPARATE, Millis(T0)),)},
        counts={N1: {f"2/{SEPARATE}": Count((Millis(T0 + 1), Millis(T0 + 2)))}},
        isolation=Isolation(free=Millis(HOUR)),
    )
    given = Standing(standing().reports, cluster=cluster)
    assert asked_for(Asked("fault", f"n1/chip/2/{SEPARATE}"), given) == [CHIP]
    by_hand, count = map(str, said(CHIP, given))
    assert by_hand == (
        "manual-separation: ManuallySeparateNPU since 2026-01-01 00:00:00.000Z by counting (clusterd-config-cm); until"
        " 2026-01-01 01:00:00.000Z, or until a person releases it"
    )
    assert count == (
        "manual-count: 2 of 3 counted towards a manual separation (clusterd-config-cm), the newest of"
        " 2026-01-01 00:00:00.002Z"
    )


def test_a_trip_that_a_person_has_released_is_told_as_released() -> None:
    trip = OccurrenceId("0:0:1:20000000")
    counter = FrequencyCounter(REQUEST, "held", (), Millis(0), level=MANUAL, tripped=Millis(T0 + 5000), trip=trip)
    report = replace(standing().reports[N1], counters=(counter,))
    given = Standing({N1: report}, cluster=ClusterLedger("c", freed={trip: REQUEST}))
    (word,) = said(REQUEST, given)
    assert (word.rule, word.level) == ("frequency:80C98000", "")
    assert word.said == "ManuallySeparateNPU of 2026-01-01 00:00:05.000Z was released by a person"


def test_a_relation_fault_is_told_with_the_trigger_it_waits_for_and_until_when() -> None:
    site = Policy(
        relations=(RelationRule("8C1F8608", ("81078603", "81078605"), "Separate", "rules.yaml:9"),),
        relation_timeouts={"81078603": Millis(45_000)},
    )

    def told(key: FaultKey, clock: int) -> Word:
        given = standing(fault(key, "NotHandleFault", "x"), clock=T0 + clock, policy=site.digest)
        return said(key, given, site)[-1]

    wanted = "8C1F8608 and 81078605 in the job gives Separate to the pods on it; "
    word = told(LINK, 45_000)
    assert (word.rule, word.place, word.until) == ("relation:8C1F8608", "rules.yaml:9", T0 + 45_000)
    assert word.said == f"{wanted}waited for up to 2026-01-01 00:00:45.000Z"
    late = told(LINK, 45_001)
    assert (late.said, late.until) == (f"{wanted}the wait for it was over at 2026-01-01 00:00:45.000Z", None)
    trigger = told(FaultKey(N1, Plane.CHIP, "2", "8C1F8608"), 0)
    assert trigger.said == "a trigger: Separate for pods on 81078603 and 81078605, once the job has all of them"


def test_what_relations_have_come_to_for_a_pod_is_told_with_its_fault() -> None:
    ledger = JobLedger(
        JobId("train/demo"),
        "c",
        members=(Member("u1", "demo-0", N1, (3,)),),
        related={"u1": Related(LINK, True, Millis(T0)), "u2": Related(CHIP, False, Millis(T0))},
    )
    told = [str(word) for word in said(LINK, Standing(standing().reports, {ledger.job: ledger}))]
    assert told[-1] == "relation: Separate for pod demo-0 of train/demo since 2026-01-01 00:00:00.000Z"
    told = [str(word) for word in said(CHIP, Standing(standing().reports, {ledger.job: ledger}))]
    assert told == ["relation: SubHealth for pod u2 of train/demo since 2026-01-01 00:00:00.000Z"]


def test_of_many_faults_the_rules_of_a_few_are_told_and_how_many_more_there_are() -> None:
    word = Word("chip-table", "SeparateNPU")
    told = list(rules({FaultKey(N1, Plane.CHIP, str(one), SEPARATE): (word,) for one in range(12)}, Millis(T0)))
    assert told[:4] == [
        "",
        "Rules, as of 2026-01-01 00:00:00.000Z:",
        f"  n1/chip/0/{SEPARATE}",
        "    chip-table: SeparateNPU",
    ]
    assert (len(told), told[-1]) == (2 + 20 + 1, "  and 2 faults more; ask for one of them")
    assert list(rules({}, Millis(T0))) == []


# --- on the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def flapping(call: Command, tmp_path: Path) -> Path:
    """The --out folder of a link that is down for 5 s when the recording ends."""
    files = a_recording(tmp_path)
    write_lines(
        files / "events.jsonl",
        [fault_line("81078603", T0, 1, devices=(3,), resource="hccn"), fault_line(SEPARATE, T0 + 5000, 2, node="n9")],
    )
    call.replay(files)
    return files / "out"


def test_why_a_fault_ends_with_every_rule_that_looks_at_it(call: Command, flapping: Path) -> None:
    code, out, err = call("why", "fault", "81078603", "--out", flapping)
    assert (code, err) == (0, "")
    head, table, duration, often, *relations = out.partition("\n\nRules, as of 2026-01-01 00:00:05.000Z:\n")[
        2
    ].splitlines()
    assert head == "  n1/network/3/81078603"
    assert table.startswith("    chip-table, chip.yaml:")
    assert table.endswith(": NotHandleFault")
    assert duration == (
        f"    duration:81078603, {LINK_RULE.place}: down for 5 s of 20 s; PreSeparateNPU if still down after"
        " 2026-01-01 00:00:20.000Z"
    )
    assert often.startswith("    frequency:81078603, rules.yaml:")
    assert all(line.startswith("    relation:") for line in relations)
    assert "Rules, as of" not in call("why", "node", "n1", "--out", flapping)[1]


def test_for_machines_each_rule_is_an_object_behind_the_decisions(call: Command, flapping: Path) -> None:
    shown = json.loads(call("why", "fault", "81078603", "--out", flapping, "--json")[1])
    kinds = [one["kind"] for one in shown]
    assert kinds == sorted(kinds), "rules behind decisions"
    (duration,) = [one for one in shown if one["kind"] == "rule" and one["rule"].startswith("duration:")]
    assert duration == {
        "kind": "rule",
        "identity": "n1/network/3/81078603",
        "rule": "duration:81078603",
        "place": LINK_RULE.place,
        "level": "",
        "said": "down for 5 s of 20 s; PreSeparateNPU if still down after 2026-01-01 00:00:20.000Z",
        "counted": 5000,
        "needed": 20_000,
        "until": "2026-01-01T00:00:20.000Z",
    }


def test_a_policy_that_was_not_in_force_is_said_to_be_none(call: Command, flapping: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    call("policy", "export", own)
    file = own / "rules.yaml"
    text = file.read_text()
    assert "FaultTimeout: 20" in text
    file.write_text(text.replace("FaultTimeout: 20", "FaultTimeout: 30", 1))
    code, out, err = call("why", "fault", "81078603", "--out", flapping, "--policy", own)
    assert code == 0
    assert err.startswith("fault-agent: n1: rated by another policy than ")
    assert "    duration:81078603: down for 5 s of 20 s; its level if still down after" in out
