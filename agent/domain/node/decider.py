"""The node decider: what a record, a tick or a link probe means for one node's book.

The one rule: `decide`, `tick` and `probe` only read the book and return changes; `evolve` applies them, in order, with
nothing in between. The same records at the same stream times give the same changes anywhere: in the node role, in a
replay, and in the coordinator standing in for a silent node.
"""

from collections.abc import Mapping
from hashlib import blake2b

from agent.domain.events import Decoded, Record
from agent.domain.node.book import NodeBook, message_mark
from agent.domain.node.changes import Advanced, Change, Probed, Skipped
from agent.domain.node.deadlines import expire, expire_latest
from agent.domain.node.derived import device_and_derived
from agent.domain.node.draft import Draft, Rater
from agent.domain.node.moves import public, repeat
from agent.domain.node.repolicy import settle_policy
from agent.domain.vocab import Millis, Reason, Source


def record_digest(record: Record) -> str:
    """Hash of a record, to recognise after a restart that the topic behind a position is still the same (hex)."""
    hashed = blake2b(record.key or b"", digest_size=8)
    hashed.update(b"\0")
    hashed.update(record.value or b"")
    return hashed.hexdigest()


def decide(book: NodeBook, decoded: Decoded, now: Millis, policy: Rater, *, digest: str = "") -> tuple[Change, ...]:
    """What one record changes, `now` being its stream time (ms; never taken back behind the book's clock).

    A record already scanned gives one Skipped and nothing else. A repeated message id gives one Ignored with
    DUPLICATE_MESSAGE per event. Deadlines that lie before `now` come first, in their own order. Pure; cost does not
    depend on what happened before. `digest`: `record_digest` of the record, kept with the position.
    """
    place = decoded.position
    last = book.scanned.get(place.partition)
    if last is not None and (place.generation, place.offset) < (last.generation, last.offset):
        detail = f"{place} was read before, the next is {last.generation}:{place.partition}:{last.offset}"
        return (Skipped(place, Reason.DUPLICATE_MESSAGE, detail),)
    draft = Draft(book, now, policy)
    mark = message_mark(decoded.message_id) if decoded.message_id else b""
    repeated = bool(mark) and book.knows(mark)
    draft.changes.append(Advanced(draft.now, place, digest, b"" if repeated else mark))
    settle_policy(draft)
    if late := book.overdue(draft.now):
        expire(draft, late, draft.now)
    for event in decoded.events:
        if repeated:
            repeat(draft, event, decoded.message_id)
        elif event.source is Source.PUBLIC:
            public(draft, event)
        else:
            device_and_derived(draft, event)
    expire_latest(draft)
    return tuple(draft.changes)


def tick(book: NodeBook, now: Millis, policy: Rater) -> tuple[Change, ...]:
    """What the passing of time changes: deadlines before `now` (ms) and a policy that is not the last one."""
    draft = Draft(book, now, policy)
    if draft.now > book.clock:
        draft.changes.append(Advanced(draft.now))
    settle_policy(draft)
    expire(draft, book.overdue(draft.now), draft.now)
    expire_latest(draft)
    return tuple(draft.changes)


def probe(book: NodeBook, links: Mapping[int, str], at: Millis) -> tuple[Change, ...]:
    """A link probe of this node: device -> `up`, `down`; any other word, unknown. `at` in ms."""
    return (Advanced(max(at, book.clock)), Probed(dict(links), at))
