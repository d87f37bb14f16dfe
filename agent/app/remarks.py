"""What is wrong with the cluster's objects, told to who reads the log.

The one rule: each thing once, however often its object changes; and what is remembered of it stays small.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from agent.domain.jobs import FindingCode
from agent.domain.jobs.book import JobBook
from agent.domain.vocab import JobId

KEPT: Final = 1000
"""Findings that are not told again while they are remembered."""
AT_ONCE: Final = 100
"""Jobs whose labels are looked at in one turn."""


class Remarks:
    """Findings that were told, and jobs whose labels have not been looked at since they changed."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._told: dict[str, None] = {}
        self._waiting: dict[JobId, None] = {}

    def tell(self, finding: str) -> None:
        """Say it, if it was not said before."""
        if finding not in self._told:
            self._say(finding)
        self._told.pop(finding, None)
        self._told[finding] = None
        while len(self._told) > KEPT:
            del self._told[next(iter(self._told))]

    def touched(self, jobs: Iterable[JobId]) -> None:
        """Their objects have changed."""
        self._waiting.update(dict.fromkeys(jobs))

    def judge(self, book: JobBook) -> None:
        """Tell labels and annotations that count otherwise than they read, of AT_ONCE jobs at most."""
        for job in list(islice(self._waiting, AT_ONCE)):
            del self._waiting[job]
            for one in book.findings_of(job):
                if one.code in (FindingCode.LABEL_BAD, FindingCode.ANNOTATION_BAD):
                    self.tell(f"{one.code} {one.object}: {one.reason}")
