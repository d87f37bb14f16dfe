"""What rules over a whole job may make of a code, in sentences: relation rules and quiet rules.

The one rule: it tells what the policy and the deciders hold; which of it came to pass is told by `why fault`.
"""

from collections.abc import Iterator

from agent.domain.cluster.quiet import (
    ACCOMPANIES,
    ACCOMPANY_SPAN,
    IN_PLACE_LEVELS,
    IN_PLACE_SPAN,
    REQUEST_SPAN,
    RETRY_CODES,
    RETRY_SPAN,
    STRESS_CODES,
    UCE,
)
from agent.domain.jobs.filters import filter_key
from agent.domain.policy import Policy
from agent.domain.vocab import Plane, span_text


def relation_words(policy: Policy, code: str) -> Iterator[str]:
    """A sentence for each relation rule that names the code, as its trigger or as a fault that waits for one."""
    key = filter_key(code)
    for rule in policy.relations:
        waiting = {filter_key(one): one for one in rule.relations}
        place = f" ({rule.place})" if rule.place else ""
        if key == filter_key(rule.trigger):
            both = " and ".join(rule.relations)
            yield f"with {both} in one job: pods on {both} are {rule.strategy}{place}"
        elif key in waiting:
            span = span_text(policy.relation_timeouts.get(waiting[key], 0))
            others = "".join(f" and {one}" for name, one in waiting.items() if name != key)
            yield f"with {rule.trigger}{others} in its job within {span}: its pod is {rule.strategy}{place}"


def quiet_words(plane: Plane, code: str, level: str) -> Iterator[str]:
    """A sentence for each quiet rule that may keep the fault back; annotations of a job may name any code or level."""
    if plane not in (Plane.CHIP, Plane.NETWORK):
        return
    if code in ACCOMPANIES:
        span = span_text(ACCOMPANY_SPAN)
        yield f"for {span}, on every device; dropped if an {UCE} began there within {span} of it"
    if code in RETRY_CODES:
        yield f"for {span_text(RETRY_SPAN)}, where a job's recover-strategy is retry"
    if level in IN_PLACE_LEVELS:
        yield f"for {span_text(IN_PLACE_SPAN)}, where a job's recover-strategy is recover-in-place"
    if level == "RestartRequest":
        yield f"for {span_text(REQUEST_SPAN)}, in jobs that quiet.inference_jobs names"
    if code in STRESS_CODES:
        yield "while a stress test runs on the node"
