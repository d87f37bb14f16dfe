"""No rule of rail-borrow and none of its edge cases is without a test that names its number."""

import re

from houseplan import ROOT

CASES = ROOT / "tests" / "domain" / "rail"
BY_HAND = {16, 17, 18, 22}
"""Edge cases of a switch by hand: this agent asks for none. What a recorded return means is tested where it is read."""


def _numbers(shape: str) -> set[int]:
    texts = (path.read_text(encoding="utf-8") for path in sorted(CASES.glob("test_*.py")))
    return {int(number) for text in texts for number in re.findall(shape, text, flags=re.MULTILINE)}


def test_each_of_the_28_rules_has_a_case_under_its_number() -> None:
    assert _numbers(r'^ {4}\(?\n? *\(?"(\d+) [^"]+", *') | _numbers(r'^ {8}"(\d+) [^"]+",$') >= set(range(1, 29))


def test_each_of_the_23_edge_cases_has_a_test_under_its_number() -> None:
    assert _numbers(r"^(?:async )?def test_edge_(\d+)_") | BY_HAND == set(range(1, 24))
