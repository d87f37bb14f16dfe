"""`fault-agent rail`: the verbs about rail-borrow.

The one rule: nothing of it switches, reserves or writes anything.
"""

import click


@click.group(
    short_help="Ask about rail-borrow: what if a link fails, by which rule, who has borrowed.",
    epilog="Example: fault-agent rail plan --cluster cluster.yaml --fault n0/network/2 --links-up",
)
def rail() -> None:
    """Rail-borrow: may the traffic of a die whose link failed go over the other die of its NPU? HCCL does that by
    itself, or cannot; the agent tells which, before it happens and after.
    """
