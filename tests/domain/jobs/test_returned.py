"""The record of manual returns: what is taken of an annotation, and what is told instead."""

import pytest

from agent.domain.jobs.returned import rail_returned
from agent.domain.jobs.values import parse_labels
from agent.domain.vocab import JobId

PLAN = "8c4ff11067de"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        (" , ,", ()),
        (PLAN, (PLAN,)),
        (f" {PLAN} , {PLAN}/a3-node-0/12 ,{PLAN}", (PLAN, f"{PLAN}/a3-node-0/12")),
    ],
)
def test_plans_and_single_npus_are_taken_each_once(text: str, words: tuple[str, ...]) -> None:
    assert rail_returned({"fault-agent/rail-returned": text}) == (words, ())


@pytest.mark.parametrize(
    "word", ["all", "8C4FF11067DE", f"{PLAN}/n0", f"{PLAN}/n0/x", f"{PLAN}/N0/0", f"{PLAN}0", "x" * 999]
)
def test_any_other_word_is_told_and_the_rest_counts(word: str) -> None:
    words, why = rail_returned({"fault-agent/rail-returned": f"{word},{PLAN}"})
    assert words == (PLAN,)
    assert why == (
        (
            f"fault-agent/rail-returned: {word[:80]!r} is no plan (12 hex digits, lower case), nor an NPU of one"
            " (plan/node/npu)"
        ),
    )


def test_a_bad_word_is_a_finding_of_the_job() -> None:
    settings, findings = parse_labels(JobId("train/demo"), {}, {"fault-agent/rail-returned": f"all,{PLAN}"})
    assert settings.rail_returned == (PLAN,)
    assert [(str(one.code), one.object) for one in findings] == [("ANNOTATION_BAD", "PodGroup train/demo")]
