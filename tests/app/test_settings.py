"""Settings files: what is refused, with its place and what to do instead."""

from pathlib import Path

import pytest

from agent.app.settings import load_settings
from agent.errors import BadUsage

BOMB = "\n".join(
    ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    + [
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
)


def refused(folder: Path, text: str | bytes) -> str:
    path = folder / "agent.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadUsage) as caught:
        load_settings(path)
    return str(caught.value).replace(str(folder), "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("mode: act\n\nmode: observe\n", "/agent.yaml:3: mode stands twice, first in line 1", id="top"),
        pytest.param("{mode: act, mode: act}", "/agent.yaml:1: mode stands twice, first in line 1", id="one line"),
        pytest.param(
            'lease:\n  renew_s: 3\n  "renew_s": 4\n', "/agent.yaml:3: renew_s stands twice, first in line 2", id="below"
        ),
    ],
)
def test_a_key_that_stands_twice_is_named_with_both_lines(tmp_path: Path, text: str, said: str) -> None:
    assert refused(tmp_path, text) == said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(BOMB, 1, id="bomb"),
        pytest.param("a: &a [*a]\n", 1, id="of itself"),
        pytest.param("cluster: {id: &x prod}\nnamespace: *x\n", 1, id="a plain one"),
    ],
)
def test_aliases_are_refused_before_they_are_followed(tmp_path: Path, text: str, line: int) -> None:
    said = refused(tmp_path, text)
    assert said.startswith("/agent.yaml:")
    assert said.endswith("aliases (*name) are not read in settings (write the value out)")


def test_the_same_name_in_two_places_is_no_repeat(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("documents:\n  vcjob_fault_npu_cm: {mode: act}\n  job_reschedule_reason: {mode: act}\nmode: act\n")
    assert load_settings(path).mode == "act"


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "null\n", "{}\n"])
def test_nothing_is_the_defaults(tmp_path: Path, text: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    assert load_settings(path) == load_settings(None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            "mode: off\n",
            "mode: Input should be 'disabled', 'observe' or 'act'; YAML reads off, no and false without quotes as a "
            "boolean: quote it",
            id="mode",
        ),
        pytest.param(
            "reset: {executor: no}\n", "reads off, no and false without quotes as a boolean: quote it", id="choice"
        ),
        pytest.param("volcano: on\n", "reads on, yes and true without quotes as a boolean: quote it", id="on"),
        pytest.param("cluster: {id: 7}\n", "YAML reads it as a number or a date: quote it", id="number"),
        pytest.param("cluster: {id: 2026-01-01}\n", "YAML reads it as a number or a date: quote it", id="date"),
        pytest.param("mode: [act]\n", "mode: Input should be 'disabled', 'observe' or 'act'", id="a list is no text"),
    ],
)
def test_what_yaml_makes_of_a_word_without_quotes_is_said(tmp_path: Path, text: str, said: str) -> None:
    assert refused(tmp_path, text).endswith(said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: [\n", ":2:1: no YAML", id="syntax"),
        pytest.param("mode: act\n---\nmode: act\n", ":2:1: no YAML", id="two documents"),
        pytest.param("a: " + "[" * 3000, "no YAML", id="deep"),
        pytest.param(b"\xff\xfe", "cannot read settings", id="no UTF-8"),
        pytest.param("- 1\n", "a mapping of settings is expected, not list", id="list"),
        pytest.param("x" * 1_048_577, "settings of more than 1048576 bytes are not read", id="endless"),
        pytest.param("? [a]\n: 1\n", "no YAML", id="a list as key"),
        pytest.param("? {a: 1}\n: 1\n", "no YAML", id="a mapping as key"),
    ],
)
def test_what_is_no_settings_file_is_named(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(BadUsage, match="more than 1048576 bytes"):
        load_settings(Path("/dev/zero"))


def test_a_variable_may_be_zero_or_false() -> None:
    settings = load_settings(
        None,
        {"FAULT_AGENT_HTTP__PORT": "0", "FAULT_AGENT_DOCUMENTS__VCJOB_FAULT_NPU_CM__SOLE_WRITER": "false"},
    )
    assert settings.http.port == 0
    assert settings.documents.vcjob_fault_npu_cm.sole_writer is False
