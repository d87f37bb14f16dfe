"""No rule of rail-borrow and none of its edge cases is without a test that names its number."""

import re
from typing import Final

from houseplan import ROOT, cells

CASES: Final = ROOT / "tests" / "domain" / "rail"
BY_HAND: Final = {16, 17, 18, 22}
"""Edge cases of a switch by hand: no rule is asked about them, a recorded return is."""
EDGES: Final = set(range(1, 24))
CASE: Final = r'^    \(?\n? *"(\d+) [a-zA-Z]'
"""First word of a case in a table of cases: its number."""


def _numbers(name: str, shape: str) -> set[int]:
    text = (CASES / name).read_text(encoding="utf-8")
    return {int(number) for number in re.findall(shape, text, flags=re.MULTILINE)}


def test_each_of_the_28_rules_has_a_case_under_its_number() -> None:
    assert _numbers("test_rules.py", CASE) == set(range(1, 29))


def test_each_of_the_23_edge_cases_has_a_test_and_a_line_in_the_page() -> None:
    shape = r"^def test_edge_(\d+)_"
    assert _numbers("test_edges.py", shape) == EDGES - BY_HAND
    assert _numbers("test_by_hand.py", shape) == BY_HAND
    lines = cells("docs/rails.md", 0)
    told = {int(number) for line in lines for number in re.findall(r"(?:^|, )(\d+)(?=,| [a-z])", line)}
    assert told == EDGES


def test_each_edge_case_is_judged_in_every_mode() -> None:
    assert _numbers("test_edge_cases.py", CASE) == EDGES - BY_HAND
