"""Policy files: what is accepted, and that every mistake is told with its file and line."""

import json
from datetime import date

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.domain.policy import CodeRule, DurationRule, Policy
from agent.domain.vocab import Millis
from agent.errors import BadPolicy
from agent.wire.policyfile import examine, load_policy
from agent.wire.policylint import lint
from agent.wire.rulesfile import RULE_LEVELS

CHIP = b"""\
version: 1
levels:
  NotHandleFault:
  SeparateNPU:
    "80E18402": {module: HBM, meaning: "rows isolated"}
    "020001002":
"""
RULES = b"""\
version: 1
unknown_held_level: SeparateNPU
FaultDuration:
  - EventId: ["81078603", "81b18603"]
    FaultTimeout: 0
    RecoverTimeout: 86400
    FaultHandling: PreSeparateNPU
"""


def errors_of(name: str, text: str | bytes) -> str:
    with pytest.raises(BadPolicy) as caught:
        load_policy({name: text.encode() if isinstance(text, str) else text})
    return str(caught.value)


def test_files_become_one_policy() -> None:
    policy = load_policy(
        {
            "/etc/policy/chip.yaml": CHIP,
            "rules.yaml": RULES,
            "node.yaml": b'version: 1\nlevels:\n  SeparateFault:\n    "2c000031":\n',
            "switch.yaml": b'version: 1\nlevels:\n  Separate:\n    "[0x1,na,L2,na]": {meaning: gone}\n',
            "dpu.yaml": b'version: 1\nlevels: {SeparateDPU: {"21000024": }}\n',
            "public.yaml": b'version: 1\nresources: [CCAE]\nlevels:\n  PreSeparateNPU: {"110001022": }\n',
        }
    )
    first = CodeRule("80E18402", "SeparateNPU", "/etc/policy/chip.yaml:5", "rows isolated", "HBM")
    durations = {
        0x81078603: DurationRule("81078603", Millis(0), Millis(86_400_000), "PreSeparateNPU", "rules.yaml:4"),
        0x81B18603: DurationRule("81B18603", Millis(0), Millis(86_400_000), "PreSeparateNPU", "rules.yaml:4"),
    }
    assert policy == Policy(
        chip={0x80E18402: first, 0x20001002: CodeRule("020001002", "SeparateNPU", "/etc/policy/chip.yaml:6")},
        node={"2C000031": CodeRule("2C000031", "SeparateFault", "node.yaml:4")},
        switch={"[0x1,na,L2,na]": CodeRule("[0x1,na,L2,na]", "Separate", "switch.yaml:4", "gone")},
        dpu={"21000024": CodeRule("21000024", "SeparateDPU", "dpu.yaml:2")},
        public={"110001022": CodeRule("110001022", "PreSeparateNPU", "public.yaml:4")},
        durations=durations,
        public_resources=frozenset({"CCAE"}),
        unknown_held_level="SeparateNPU",
    )


def test_no_file_is_an_empty_policy() -> None:
    assert load_policy({}) == Policy()


def table(*lines: str, level: str = "SeparateNPU") -> str:
    return "\n".join(["version: 1", "levels:", f"  {level}:", *(f"    {line}" for line in lines)]) + "\n"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        pytest.param("chip.yaml", b"", "chip.yaml:1: the file is empty", id="empty"),
        pytest.param("chip.yaml", b"# only words\n", "chip.yaml:1: the file is empty", id="comment-only"),
        pytest.param("chip.yaml", b"\xef\xbb\xbfversion: 1\n", "chip.yaml:1: the file starts with a byte", id="bom"),
        pytest.param("chip.yaml", "version: 1".encode("utf-16"), "chip.yaml:1: the file starts", id="utf-16"),
        pytest.param("chip.yaml", b"version: 1\nlevels: \xff\n", "chip.yaml:2: the bytes are not", id="not-utf-8"),
        pytest.param("chip.yaml", b"version: 1\n\x07\n", "chip.yaml:2: a control character", id="control"),
        pytest.param("chip.yaml", b"x" * (10 * 1024 * 1024 + 1), "chip.yaml:1: the file has 10485761", id="too-large"),
        pytest.param("chip.yaml", "version: 1\nlevels:\n\tSeparateNPU:\n", "chip.yaml:3: not YAML", id="tab"),
        pytest.param("chip.yaml", "a: [1\nb: 2\n", "chip.yaml:2: not YAML", id="open-bracket"),
        pytest.param("chip.yaml", "version: 1\nlevels: {}\n---\na: 1\n", "chip.yaml:3: not YAML", id="two-documents"),
        pytest.param("chip.yaml", "[" * 5000, "chip.yaml:1: not YAML", id="too-deep"),
        pytest.param("chip.yaml", "version: 1\nlevels: &a {b: *a}\n", "chip.yaml:2: an alias", id="cycle"),
        pytest.param("chip.yaml", "a: &a {x: 1}\nb: *a\n", "chip.yaml:2: an alias", id="alias"),
        pytest.param("chip.yaml", "- a\n", "chip.yaml:1: the file must be a mapping", id="list"),
        pytest.param("chip.yaml", "levels: {}\n", "chip.yaml:1: the file has no 'version'", id="no-version"),
        pytest.param("chip.yaml", "version: 1\n", "chip.yaml:1: the file has no 'levels'", id="no-levels"),
        pytest.param("chip.yaml", "version: 2\nlevels: {}\n", "chip.yaml:1: version is 2", id="next-version"),
        pytest.param("chip.yaml", 'version: "1"\nlevels: {}\n', "without quotes", id="quoted-version"),
        pytest.param("chip.yaml", "version: 1\nlevels:\n", "chip.yaml:2: levels must be a mapping", id="null-levels"),
        pytest.param(
            "chip.yaml", "version: 1\nlevel: {}\n", "chip.yaml:2: the file has no key 'level'; did you mean", id="key"
        ),
        pytest.param("chip.yaml", table('"1":', '"1":'), "chip.yaml:5: '1' stands twice", id="duplicate-key"),
        pytest.param(
            "chip.yaml", table('"ab":', '"0AB":'), "chip.yaml:5: '0AB' is already under Sep", id="same-number-twice"
        ),
        pytest.param(
            "chip.yaml",
            table('"AB":') + '  RestartNPU:\n    "AB":\n',
            "chip.yaml:6: 'AB' is already under SeparateNPU, line 4",
            id="two-levels",
        ),
        pytest.param("chip.yaml", table("81078603:"), "chip.yaml:4: YAML reads '81078603' as a number", id="int-code"),
        pytest.param("chip.yaml", table("80.5e+2:"), "YAML reads '80.5e+2' as a number", id="float-code"),
        pytest.param("chip.yaml", table("off:"), "YAML reads 'off' as true or false", id="boolean-code"),
        pytest.param("chip.yaml", table("2026-01-01:"), "as a date", id="date-code"),
        pytest.param("chip.yaml", table("? [a]"), "chip.yaml:4: a key of SeparateNPU must be text", id="list-key"),
        pytest.param("chip.yaml", table('"0x1F":'), "chip.yaml:4: write '0x1F' without 0x", id="prefix"),
        pytest.param("chip.yaml", table('"XYZ":'), "chip.yaml:4: 'XYZ' is no chip code", id="not-hex"),
        pytest.param("chip.yaml", table('"1": "words"'), "the note of 1 must be a mapping", id="bare-note"),
        pytest.param("chip.yaml", table('"1": {meanin: x}'), "did you mean 'meaning'?", id="note-key"),
        pytest.param("chip.yaml", table('"1": {meaning: no}'), "YAML reads 'no' as true or false", id="boolean-note"),
        pytest.param("chip.yaml", table('"1": {meaning: "a\\tb"}'), "one line of printable text", id="unprintable"),
        pytest.param("chip.yaml", table('"1": {meaning: !!python/name:os x}'), "must be text", id="python-tag"),
        pytest.param(
            "chip.yaml",
            table(level="SeperateNPU"),
            "has no level 'SeperateNPU'; did you mean 'SeparateNPU'?",
            id="typo",
        ),
        pytest.param("chip.yaml", table(level="ManuallySeparateNPU"), "has no level 'Manually", id="manual-level"),
        pytest.param("chip.yaml", table(level="NormalNPU"), "has no level 'NormalNPU'", id="no-fault-level"),
        pytest.param(
            "chip.yaml",
            table('"81078603":', level="RestartNPU"),
            "chip.yaml:4: '81078603' is a network code and cannot be RestartNPU",
            id="network-code-cannot-restart",
        ),
        pytest.param("switch.yaml", table(level="SeparateNPU"), "did you mean 'Separate'?", id="chip-level-in-switch"),
        pytest.param("switch.yaml", table('"[a,b]":', level="Separate"), "four parts in brackets", id="switch-code"),
        pytest.param(
            "switch.yaml",
            table("[a,b,c,d]:", level="Separate"),
            "in brackets is put in quotes",
            id="unquoted-switch-code",
        ),
        pytest.param("node.yaml", table('"123":', level="SeparateFault"), "8 letters or digits", id="node-code"),
        pytest.param("public.yaml", table('"12":'), "exactly 9 characters", id="public-code"),
        pytest.param("public.yaml", table(level="RestartNPU"), "has no level 'RestartNPU'", id="public-restart"),
        pytest.param("public.yaml", "version: 1\nresources: a\nlevels: {}\n", "must be a list", id="resource-text"),
        pytest.param("public.yaml", "version: 1\nresources: [a, a]\nlevels: {}\n", "stands twice", id="resource-twice"),
        pytest.param(
            "public.yaml", "version: 1\nresources: [dcmi]\nlevels: {}\n", "is a device source", id="device-resource"
        ),
        pytest.param("chip.yaml", "version: 1\nresources: []\nlevels: {}\n", "no key 'resources'", id="not-here"),
        pytest.param("chips.yaml", CHIP, "chips.yaml:1: no policy file is called 'chips.yaml'; did you", id="file"),
        pytest.param(
            "faultCode.json", b"{}", "faultCode.json:1: a policy file is YAML; `fault-agent policy", id="json"
        ),
        pytest.param(
            "rules.yaml", "version: 1\nFaultFrequencies: []\n", "rules.yaml:2: the file has no key", id="rule"
        ),
        pytest.param("rules.yaml", "version: 1\nunknown_held_level: ManuallySeparateNPU\n", "cannot be", id="held"),
        pytest.param("rules.yaml", "version: 1\nFaultDuration: {}\n", "must be a list", id="durations-mapping"),
    ],
)
def test_a_mistake_is_told_with_file_and_line(name: str, text: str | bytes, told: str) -> None:
    assert told in errors_of(name, text)


def duration(event: str = '["81078603"]', fault: str = "20", recover: str = "60", level: str = "PreSeparateNPU") -> str:
    return (
        f"version: 1\nFaultDuration:\n  - EventId: {event}\n    FaultTimeout: {fault}\n"
        f"    RecoverTimeout: {recover}\n    FaultHandling: {level}\n"
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(duration(fault="601"), "rules.yaml:4: FaultTimeout (seconds) is 601; it must be", id="fault-high"),
        pytest.param(duration(fault="-1"), "rules.yaml:4: FaultTimeout (seconds) is -1", id="fault-negative"),
        pytest.param(duration(recover="86401"), "rules.yaml:5: RecoverTimeout (seconds) is 86401", id="recover-high"),
        pytest.param(duration(fault="1.5"), "rules.yaml:4: FaultTimeout (seconds) must be a whole", id="fraction"),
        pytest.param(duration(fault='"20"'), "without quotes", id="quoted"),
        pytest.param(duration(fault="020"), "must be a whole number", id="octal"),
        pytest.param(duration(fault="1:30"), "must be a whole number", id="sexagesimal"),
        pytest.param(duration(fault="9" * 5000), "must be a whole number", id="huge"),
        pytest.param(duration(level="ManuallySeparateNPU"), "rules.yaml:6: FaultHandling cannot be", id="manual"),
        pytest.param(duration(level="RestartNPU"), "rules.yaml:3: '81078603' is a network code", id="network-restart"),
        pytest.param(duration(event="[]"), "rules.yaml:3: EventId lists no code", id="no-code"),
        pytest.param(duration(event="[81078603]"), "rules.yaml:3: YAML reads '81078603' as a number", id="unquoted"),
        pytest.param(duration(event='["1", "01"]'), "'01' already has a duration rule, rules.yaml:3", id="twice"),
        pytest.param(duration(event='["x"]'), "'x' is no chip code", id="not-hex"),
        pytest.param(
            "version: 1\nFaultDuration:\n  - EventId: ['1']\n", "the duration rule has no FaultTimeout", id="missing"
        ),
    ],
)
def test_a_wrong_duration_rule_is_told(text: str, told: str) -> None:
    assert told in errors_of("rules.yaml", text)


def test_all_mistakes_of_all_files_are_told_in_order_of_place() -> None:
    with pytest.raises(BadPolicy) as caught:
        load_policy(
            {
                "node.yaml": b'version: 1\nlevels:\n  SeparateFault:\n    "1":\n',
                "chip.yaml": b'version: 3\nlevels:\n  SeparateNPU:\n    12345678:\n    "ok?":\n',
            }
        )
    starts = [line.split(" ")[0] for line in str(caught.value).splitlines()]
    assert starts == ["chip.yaml:1:", "chip.yaml:4:", "chip.yaml:5:", "node.yaml:4:"]
    assert caught.value.place == "chip.yaml:1"


def test_a_file_given_under_two_paths_is_refused() -> None:
    with pytest.raises(BadPolicy, match=r"b/chip.yaml:1: chip.yaml is given twice"):
        load_policy({"a/chip.yaml": CHIP, "b/chip.yaml": CHIP})


NAMES = st.sampled_from(
    ["chip.yaml", "switch.yaml", "node.yaml", "dpu.yaml", "public.yaml", "rules.yaml", "overrides.yaml", "other"]
)
KEYS = [
    "chip",
    "level",
    "reason",
    "expires",
    "FaultFrequency",
    "version",
    "levels",
    "resources",
    "FaultDuration",
    "EventId",
    "FaultTimeout",
    "SeparateNPU",
    "NotHandleFault",
]
VALUES = ["1", "20", "off", "~", "81078603", "'81078603'", "'[a,b,c,d]'", "a", "&a", "*a", "!", "!!int", "\t", "\n"]
WORDS = st.sampled_from([*KEYS, *VALUES, *":-[]{},?&*|>%#"])
YAML_LIKE = st.lists(WORDS | st.just("\n  ") | st.just(": "), max_size=40).map(lambda words: " ".join(words).encode())


@settings(max_examples=100, deadline=None)
@given(NAMES, st.binary(max_size=80) | st.text(max_size=80).map(str.encode) | YAML_LIKE)
def test_any_bytes_give_a_policy_or_a_named_mistake(name: str, data: bytes) -> None:
    try:
        load_policy({name: data})
    except BadPolicy as error:
        assert error.place.startswith(f"{name}:")  # noqa: PT017 - either outcome is right; the error must be placed


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.text(max_size=10) | st.sampled_from(KEYS),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*KEYS, "80E18402", "FaultHandling"]) | st.text(max_size=6), inner, max_size=5
        )
    ),
    max_leaves=25,
)


@settings(max_examples=100, deadline=None)
@given(NAMES, TREES, st.booleans())
def test_any_yaml_or_json_gives_a_policy_or_named_mistakes_and_never_more(
    name: str, value: object, as_json: bool
) -> None:
    text = json.dumps(value, default=str) if as_json else yaml.safe_dump(value, allow_unicode=True)
    path = f"site/{name}"
    examined = examine({path: text.encode("utf-8", "backslashreplace")})
    lines = text.count("\n") + 2
    assert all(problem.path == path and 1 <= problem.line <= lines and problem.reason for problem in examined.problems)
    for table, levels in PLANES.items():
        assert {row.level for row in getattr(examined.policy, table).values()} <= set(levels)


PLANES = {
    "chip": RULE_LEVELS,
    "switch": ("NotHandle", "SubHealthFault", "RestartRequest", "PreSeparate", "Separate"),
    "node": ("NotHandleFault", "PreSeparateFault", "SeparateFault"),
    "dpu": ("SubHealthFault", "SeparateDPU"),
    "public": ("NotHandleFault", "SubHealthFault", "PreSeparateNPU", "SeparateNPU"),
}


@settings(max_examples=100, deadline=None)
@given(NAMES, YAML_LIKE | st.binary(max_size=60))
def test_lint_never_fails(name: str, data: bytes) -> None:
    shipped = {"chip.yaml": CHIP}
    found = lint({**({} if name == "chip.yaml" else shipped), f"site/{name}": data}, shipped, date(2026, 1, 1))
    assert all(":" in finding.place and finding.text for finding in found)


def test_a_mistake_in_a_file_of_ten_megabytes_is_found_at_its_line() -> None:
    """One long list of what nothing reads: the place is right far down in a file that is as large as may be."""
    head = b"version: 1\nFaultDuration: []\n"
    rest = b"#" + b"x" * 98 + b"\n"
    data = head + rest * ((10 * 1024 * 1024 - len(head) - 20) // len(rest)) + b"wrong: 1\n"
    assert len(data) > 10_400_000
    line = data.count(b"\n")
    assert errors_of("rules.yaml", data).startswith(f"rules.yaml:{line}: the file has no key 'wrong'")
