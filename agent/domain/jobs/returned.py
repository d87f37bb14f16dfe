"""What an operator has recorded on a job's PodGroup as switched back by hand: plans of rail-borrow, or NPUs of them.

The one rule: a word that names neither a plan nor an NPU is told, and the others count.
"""

import re
from collections.abc import Mapping
from typing import Final

from agent.domain.vocab import RAIL_RETURNED

_PLAN_OR_NPU: Final = re.compile(r"[0-9a-f]{12}(/[a-z0-9][a-z0-9.-]{0,252}/[0-9]{1,4})?")


def rail_returned(annotations: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of the record (`8c4ff11067de` or `8c4ff11067de/n0/0`, commas between), each once in its order, and why
    each other one is none.
    """
    words = [word.strip() for word in annotations.get(RAIL_RETURNED, "").split(",")]
    good = dict.fromkeys(word for word in words if _PLAN_OR_NPU.fullmatch(word))
    bad = dict.fromkeys(word for word in words if word and word not in good)
    why = (
        f"{RAIL_RETURNED}: {word[:80]!r} is no plan (12 hex digits, lower case), nor an NPU of one (plan/node/npu)"
        for word in bad
    )
    return tuple(good), tuple(why)
