"""A manual return that an operator has recorded: which reservations it names, and whether it can have worked.

The one rule: HCCL reports success also when it did nothing (its backup links were never built), so a record counts
only where what HCCL needs for a borrow holds, and no link of what returned is known to be down.
(hccl_communicator_host.cc:9131-9140, opretry_agent.cc:805-818)
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from agent.domain.rail.case import Case, HitKind, RailQuestion, open_case
from agent.domain.rail.decision import RULES
from agent.domain.rail.reservations import RailLedger, Reservation
from agent.domain.rail.words import FaultKind, RailFault

NEEDED: Final = range(10, 19)
"""Rules 10 to 18: would HCCL have built the backup links at all?"""


def named(entries: Iterable[Reservation], word: str) -> tuple[Reservation, ...]:
    """The reservations that a word of the record means: a plan, or one NPU of it (`plan/node/npu`)."""
    return tuple(entry for entry in entries if word in (entry.plan, entry.id))


def doubt(question: RailQuestion, entries: Collection[Reservation]) -> str:
    """Why the return of these reservations cannot have worked, or empty. `question`: all that bears on the job, with
    no fault in it.
    """
    ends = _ends(question, entries)
    if isinstance(ends, str):
        return ends
    for rule in RULES:
        if rule.number in NEEDED:
            for hit in rule.test(ends):
                if hit.kind is HitKind.REFUSE:
                    return f"rule {rule.number} {hit.code}: {hit.detail}"
    return down_end(question, entries)


def down_end(question: RailQuestion, entries: Collection[Reservation]) -> str:
    """The end of their links that is known to be down, in words, or empty: a return needs all of them up."""
    ends = _ends(question, entries)
    if isinstance(ends, str):
        return ""
    for seat in ends.faulted:
        if ends.link(seat.node, seat.device.device_id) == "down":
            return f"the link of {seat} is down, and a return needs it up at both ends"
    return ""


def _ends(question: RailQuestion, entries: Collection[Reservation]) -> Case | str:
    """As if the links were still to be made: every end of them as a failed rank whose fault has ended; or which rank
    no table lists.
    """
    peers: dict[int, set[int]] = {}
    for entry in entries:
        for one, other in entry.links:
            peers.setdefault(one, set()).add(other)
            peers.setdefault(other, set()).add(one)
    with_whom = {rank: tuple(sorted(found)) for rank, found in peers.items()}
    bare = replace(question, ledger=RailLedger(), faults=(), peers=with_whom)
    empty = open_case(bare)
    ends = []
    for rank in sorted({entry.rank for entry in entries} | set(peers)):
        seat = empty.seat(rank)
        if seat is None:
            return f"no completed rank table lists rank {rank}"
        ends.append(
            RailFault(f"rank {rank}", seat.node, seat.device.device_id, FaultKind.RDMA_DOWN, question.now, question.now)
        )
    return open_case(replace(bare, faults=tuple(ends)))
