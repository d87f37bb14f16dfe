"""One node: its book, and the decider that turns records, ticks and probes into changes of it.

The one rule: a book changes only by `evolve`, with the changes that `decide`, `tick` or `probe` gave for it.

Device sources: stream order decides, times are for show. Public sources: time decides. What a rule over time
raised stays active after its recover until it has been clean for long enough.
"""

from agent.domain.node.book import NodeBook, evolve, next_deadline
from agent.domain.node.changes import (
    Advanced,
    Change,
    Cleared,
    Ignored,
    Outcome,
    Placed,
    Policed,
    Probed,
    Recovered,
    Relevelled,
    Shown,
    Skipped,
)
from agent.domain.node.deadlines import due_of
from agent.domain.node.decider import decide, probe, record_digest, tick
from agent.domain.node.draft import Rater

__all__ = [
    "Advanced",
    "Change",
    "Cleared",
    "Ignored",
    "NodeBook",
    "Outcome",
    "Placed",
    "Policed",
    "Probed",
    "Rater",
    "Recovered",
    "Relevelled",
    "Shown",
    "Skipped",
    "decide",
    "due_of",
    "evolve",
    "next_deadline",
    "probe",
    "record_digest",
    "tick",
]
