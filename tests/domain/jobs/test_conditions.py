"""Why a job waits: the four reasons of Volcano's plugin, as the page tells them."""

import re
from pathlib import Path

import pytest

from agent.domain.jobs.conditions import WAITING, Condition, Waiting, waiting
from agent.domain.vocab import Millis

PAGE = (Path(__file__).parents[3] / "docs" / "job-settings.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([A-Z][A-Za-z]+Failed)` \| ([^|]+) \| ([^|]+) \|$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("reason", ["JobEnqueueFailed", "JobValidateFailed", "NodePredicateFailed", "BatchOrderFailed"])
def test_a_reason_of_the_plugin_is_known_and_stands_on_the_page(reason: str) -> None:
    (row,) = [row for row in ROWS if row[0] == reason]
    assert WAITING[reason] == Waiting(row[1], row[2])
    assert waiting((Condition("Unschedulable", reason),)) == (Condition("Unschedulable", reason),)


def test_nothing_else_is_on_the_page_or_known() -> None:
    assert {row[0] for row in ROWS} == set(WAITING)
    assert len(ROWS) == len(WAITING) == 4


def test_what_says_why_a_job_waits_comes_newest_first_and_nothing_else_of_its_status() -> None:
    old = Condition("Unschedulable", "JobEnqueueFailed", "", Millis(1000))
    new = Condition("Unschedulable", "NotEnoughResources", "1/2 tasks in gang unschedulable", Millis(3000))
    undated = Condition("Unschedulable", "JobValidateFailed")
    other = Condition("Scheduled", "tasks in gang are ready to be scheduled", "", Millis(9000))
    assert waiting((other, old, undated)) == (old, undated)
    assert waiting((old, undated, new)) == (new, old, undated)
