"""Lint: what an agent would refuse, and what it would take though hardly anybody meant it."""

from datetime import date

import pytest

from agent.adapters.shipped import read_shipped
from agent.wire.policylint import Finding, Severity, lint

TODAY = date(2026, 6, 1)
SHIPPED = {
    "chip.yaml": b"""\
version: 1
levels:
  NotHandleFault:
    "81078603":
  RestartRequest:
    "80C98000":
  SeparateNPU:
    "80E18402":
""",
    "rules.yaml": b"version: 1\n",
}


def found(**own: str) -> list[Finding]:
    files = {f"site/{name}.yaml": text.encode() for name, text in own.items()}
    replaced = {path.rpartition("/")[2] for path in files}
    return lint({name: data for name, data in SHIPPED.items() if name not in replaced} | files, SHIPPED, TODAY)


def kinds(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(str(one.severity), one.kind, one.place) for one in findings]


def override(code: str, level: str, expires: str = "never") -> str:
    return f'version: 1\nchip:\n  "{code}": {{level: {level}, reason: r, expires: {expires}}}\n'


def rules(*lines: str) -> str:
    return "version: 1\n" + "\n".join(lines) + "\n"


def frequency(
    code: str, level: str = "ManuallySeparateNPU", times: int = 2, window: int = 86_400, more: str = ""
) -> str:
    item = f'EventId: ["{code}"], TimeWindow: {window}, Times: {times}, FaultHandling: {level}{more}'
    return f"FaultFrequency: [{{{item}}}]"


def duration(code: str, level: str, down: int = 20) -> str:
    return f'FaultDuration: [{{EventId: ["{code}"], FaultTimeout: {down}, RecoverTimeout: 60, FaultHandling: {level}}}]'


@pytest.mark.parametrize(
    ("own", "kind", "place", "told"),
    [
        pytest.param(
            {"chip": 'version: 1\nlevels:\n  RestartNPU:\n    "80E18402":\n  SeparateNPU:\n    "80E18402":\n'},
            "mistake",
            "site/chip.yaml:6",
            "'80E18402' is already under RestartNPU, line 4",
            id="code-in-two-levels",
        ),
        pytest.param(
            {"chip": 'version: 1\nlevels:\n  RestartNPU:\n    "80E18402":\n    "80E18402":\n'},
            "mistake",
            "site/chip.yaml:5",
            "'80E18402' stands twice in RestartNPU, first in line 4",
            id="listed-twice",
        ),
        pytest.param(
            {"chip": 'version: 1\nlevels:\n  RestartNPU:\n    "81078603":\n'},
            "mistake",
            "site/chip.yaml:4",
            "is a network code and cannot be RestartNPU",
            id="level-of-no-such-plane",
        ),
        pytest.param(
            {"rules": rules(frequency("80C98000", "RestartNPU"))},
            "mistake",
            "site/rules.yaml:2",
            "needs a ReleaseTimeWindow",
            id="not-manual-without-release",
        ),
        pytest.param(
            {"rules": rules(frequency("80C98000", times=101))},
            "mistake",
            "site/rules.yaml:2",
            "Times is 101; it must be from 1 to 100",
            id="out-of-range",
        ),
    ],
)
def test_what_an_agent_would_refuse_is_an_error(own: dict[str, str], kind: str, place: str, told: str) -> None:
    errors = [one for one in found(**own) if one.severity is Severity.ERROR]
    assert kinds(errors) == [("error", kind, place)]
    assert told in errors[0].text


@pytest.mark.parametrize(
    ("own", "severity", "kind", "place", "told"),
    [
        pytest.param(
            {"overrides": override("80E18402", "RestartNPU", "2026-05-31")},
            "warning",
            "expired",
            "site/overrides.yaml:3",
            "ended with 2026-05-31: SeparateNPU (chip.yaml:8) holds again",
            id="expired",
        ),
        pytest.param(
            {"overrides": override("DEADBEEF", "RestartNPU", "2026-05-31")},
            "warning",
            "expired",
            "site/overrides.yaml:3",
            "the code is unknown again",
            id="expired-and-unknown",
        ),
        pytest.param(
            {"overrides": override("80E18402", "RestartNPU", "2026-06-15")},
            "note",
            "expires-soon",
            "site/overrides.yaml:3",
            "ends with 2026-06-15",
            id="expires-soon",
        ),
        pytest.param(
            {"overrides": override("80e18402", "SeparateNPU")},
            "warning",
            "changes-nothing",
            "site/overrides.yaml:3",
            "it is SeparateNPU already, chip.yaml:8",
            id="changes-nothing",
        ),
        pytest.param(
            {"overrides": override("80E18403", "SeparateNPU")},
            "note",
            "adds-code",
            "site/overrides.yaml:3",
            "the nearest that is listed is 80E18402",
            id="adds-a-code",
        ),
        pytest.param(
            {"rules": rules(duration("80E18402", "RestartNPU"))},
            "warning",
            "unreachable",
            "site/rules.yaml:2",
            "never raises it: SeparateNPU (chip.yaml:8) is not below RestartNPU",
            id="duration-below-the-table",
        ),
        pytest.param(
            {"rules": rules(frequency("80E18402", "SeparateNPU", more=", ReleaseTimeWindow: 60"))},
            "warning",
            "unreachable",
            "site/rules.yaml:2",
            "is not below SeparateNPU",
            id="frequency-below-the-table",
        ),
        pytest.param(
            {"rules": rules(frequency("80C98000", times=4, window=60), duration("80C98000", "RestartNPU"))},
            "warning",
            "unreachable",
            "site/rules.yaml:2",
            "4 faults, each down for more than 20 s (site/rules.yaml:3), do not fit into 60 s",
            id="too-many-long-faults-for-the-window",
        ),
        pytest.param(
            {"rules": rules(duration("80C98001", "RestartNPU"))},
            "warning",
            "unlisted-code",
            "site/rules.yaml:2",
            "the nearest that is listed is 80C98000",
            id="rule-for-a-code-of-no-table",
        ),
        pytest.param(
            {"chip": 'version: 1\nlevels:\n  SeparateNPU:\n    "80E18402":\n'},
            "warning",
            "codes-lost",
            "site/chip.yaml:1",
            "2 of the 3 codes of the shipped chip.yaml would be lost and unknown: 81078603, 80C98000",
            id="a-copied-table-that-lost-codes",
        ),
    ],
)
def test_what_is_taken_and_hardly_meant(own: dict[str, str], severity: str, kind: str, place: str, told: str) -> None:
    findings = found(**own)
    assert kinds(findings) == [(severity, kind, place)]
    assert told in findings[0].text


def relation(more: str = "", code: str = "81078603", wait: int = 300) -> str:
    rule = f'FaultRelation: [{{TriggerFault: "80C98000", RelationFaults: ["{code}"], FaultStrategy: Separate}}]'
    time = f'{{FaultCode: "81078603", FaultType: faultDevice, TimeOutInterval: {wait}}}'
    return rules(rule, f"FaultRelationTimeout: [{time}{more}]")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(relation(), [], id="right"),
        pytest.param(
            relation(wait=0), [("unreachable", "site/rules.yaml:2", "81078603 waits for no trigger")], id="no-wait"
        ),
        pytest.param(
            relation(code="81078604"),
            [
                ("unlisted-code", "site/rules.yaml:2", "names 81078604, which its table does not list"),
                ("unreachable", "site/rules.yaml:2", "81078604 waits for no trigger"),
                ("changes-nothing", "site/rules.yaml:1", "gives a time to 81078603, which no relation rule"),
            ],
            id="other-code",
        ),
        pytest.param(
            relation(', {FaultCode: "[0x1,na,L2,na]", FaultType: faultSwitch, TimeOutInterval: 9}'),
            [("changes-nothing", "site/rules.yaml:1", "gives a time to [0x1,na,L2,na]")],
            id="time-that-nobody-waits",
        ),
    ],
)
def test_relation_rules_that_never_act(text: str, told: list[tuple[str, str, str]]) -> None:
    findings = found(rules=text)
    assert sorted((one.kind, one.place) for one in findings) == sorted((kind, place) for kind, place, _ in told)
    assert all(any(words in one.text for one in findings) for _, _, words in told)


def test_a_row_of_the_site_s_own_table_may_be_shadowed_by_its_override() -> None:
    chip = SHIPPED["chip.yaml"].decode().replace("SeparateNPU", "PreSeparateNPU")
    findings = found(chip=chip, overrides=override("80E18402", "RestartNPU"))
    assert kinds(findings) == [("warning", "shadowed", "site/chip.yaml:8")]
    assert "shadowed by the override at site/overrides.yaml:3" in findings[0].text


def test_three_long_faults_may_still_fit_into_the_window() -> None:
    assert found(rules=rules(frequency("80C98000", times=3, window=60), duration("80C98000", "RestartNPU"))) == []


def test_a_duration_rule_that_only_sorts_out_what_is_counted_is_worth_a_note() -> None:
    (note,) = found(rules=rules(frequency("80C98000"), duration("80C98000", "SubHealthFault")))
    assert kinds([note]) == [("note", "unreachable", "site/rules.yaml:3")]
    assert note.text.endswith("it still decides which faults the frequency rule counts")


def shipped_with(**own: str) -> list[Finding]:
    """Findings on the whole shipped policy with files of the site's own."""
    shipped = read_shipped("policies")
    files = {f"site/{name}.yaml": text.encode() for name, text in own.items()}
    replaced = {path.rpartition("/")[2] for path in files}
    return lint({name: data for name, data in shipped.items() if name not in replaced} | files, shipped, TODAY)


def test_an_override_that_leaves_a_shipped_rule_nothing_to_raise_is_told_at_the_override() -> None:
    (note,) = shipped_with(overrides=override("81078603", "SeparateNPU"))
    assert kinds([note]) == [("note", "unreachable", "site/overrides.yaml:3")]
    assert "leaves its duration rule to PreSeparateNPU (rules.yaml:" in note.text
    (warning,) = found(
        rules=rules(duration("81078603", "PreSeparateNPU")), overrides=override("81078603", "SeparateNPU")
    )
    assert kinds([warning]) == [("warning", "unreachable", "site/overrides.yaml:3")]


def test_an_override_that_leaves_the_rule_of_16_ports_nothing_to_raise_is_told() -> None:
    entry = "{level: Separate, reason: r, expires: never}"
    (note,) = shipped_with(overrides=f'version: 1\nswitch:\n  "[0x08520003,na,L2,na]": {entry}\n')
    assert kinds([note]) == [("note", "unreachable", "site/overrides.yaml:3")]
    assert "leaves the rule of 16 L2 ports nothing to raise" in note.text


LOST_RULES = [
    ("43 of the 43 frequency rules", "80C98000, 80B78000, 80B58000, …"),
    ("1 of the 1 duration rules", "81078603"),
    ("5 of the 5 relation rules", "8C1F8609 + 81078603, "),
    ("2 of the 2 relation time-outs", "81078603, [0x08520003,na,L2,na]"),
]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("version: 1\n", LOST_RULES, id="version-alone"),
        pytest.param(
            rules(frequency("80C98000")),
            [("42 of the 43 frequency rules", "80B78000, 80B58000, 80A18008, …"), *LOST_RULES[1:]],
            id="one-rule",
        ),
        pytest.param(
            rules(duration("81078603", "SeparateNPU", down=90)),
            [LOST_RULES[0], *LOST_RULES[2:]],
            id="a-changed-rule-is-not-lost",
        ),
    ],
)
def test_a_rules_file_that_drops_shipped_rules_is_told(text: str, told: list[tuple[str, str]]) -> None:
    findings = shipped_with(rules=text)
    assert kinds(findings) == [("warning", "rules-lost", "site/rules.yaml:1")] * len(told)
    for finding, (number, codes) in zip(findings, told, strict=True):
        assert finding.text.startswith(f"{number} of the shipped rules.yaml would be lost and act no more: {codes}")


def test_a_public_table_that_drops_a_sender_is_told() -> None:
    text = read_shipped("policies")["public.yaml"].decode().replace('  - "dpcStorage"\n', "")
    (finding,) = shipped_with(public=text)
    assert kinds([finding]) == [("warning", "senders-lost", "site/public.yaml:1")]
    assert "1 of the 6 senders" in finding.text
    assert "(RESOURCE_UNKNOWN): dpcStorage" in finding.text


@pytest.mark.parametrize(
    "own",
    [
        pytest.param({"rules": relation().replace("TimeOutInterval: 300", "TimeOutInterval: x")}, id="time-out"),
        pytest.param({"rules": relation().replace("[{Trigger", "[{trigger")}, id="relation-rule"),
        pytest.param({"chip": SHIPPED["chip.yaml"].decode().replace('"80C98000"', "80818000")}, id="row"),
        pytest.param({"public": "version: 1\nresources: CCAE\nlevels:\n"}, id="senders"),
    ],
)
def test_a_line_with_a_mistake_is_not_called_missing_too(own: dict[str, str]) -> None:
    assert {one.severity for one in found(**own)} == {Severity.ERROR}


def test_the_shipped_policy_has_no_finding() -> None:
    shipped = read_shipped("policies")
    assert lint(shipped, shipped, TODAY) == []


def test_findings_stand_in_the_order_of_their_lines() -> None:
    text = override("80E18402", "SeparateNPU") + '  "80C98000": {level: RestartRequest, reason: r, expires: never}\n'
    assert [one.place for one in found(overrides=text)] == ["site/overrides.yaml:3", "site/overrides.yaml:4"]
