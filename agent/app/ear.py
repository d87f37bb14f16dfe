"""The leader's ear on the event stream: what no node's agent tells in time is given to the deputy.

The one rule: the next leader begins where nothing is left to be decided, so no record falls between two leaders; what
it hears twice is known by its occurrence or by the source in its dead letter.
"""

from collections.abc import Callable

from agent.app.coordinator_app import Coordinator
from agent.app.deputy import Deputy, told_by_deputy
from agent.app.trouble import Trouble
from agent.domain.events import Decision, Record, Scanned
from agent.domain.vocab import MINUTE, SECOND, Millis
from agent.errors import AgentError, Fenced, Verdict
from agent.ports import DeadLetters, FaultSource
from agent.wire.places import decode_places, encode_places

READ_LIMIT = 2000
NOTE_EVERY = MINUTE
"""Between two notes (ms) of how far the stream was heard; a letter is followed by one within a second."""
UNANSWERED = SECOND
REFUSED = 10 * SECOND
"""Before asking again (ms) for what a service has refused."""


class Ear:
    """Open while this replica leads."""

    def __init__(
        self,
        events: FaultSource,
        deputy: Deputy,
        coordinator: Coordinator,
        letters: DeadLetters,
        tell: Callable[[Decision], None],
        say: Callable[[str], None],
    ) -> None:
        self._events = events
        self._deputy = deputy
        self._coordinator = coordinator
        self._letters = letters
        self._tell = tell
        self._say = say
        self._trouble = Trouble(say)
        self._waiting: list[Record] = []
        self._deaf_until = Millis(0)
        self._has_heard = False
        self._noted_at = Millis(0)
        self._has_lettered = False
        """Since the last note: another leader would write those letters again."""
        self.is_open = False
        """The event stream is open: this replica stands in for silent nodes."""
        self.lettered = 0
        """Dead letters written."""

    def hears(self, now: Millis) -> bool:
        """Nothing keeps it from listening at this time."""
        return self._deaf_until <= now

    async def listen(self, now: Millis) -> None:
        """Hear what has come. A service that fails makes us deaf for a while; what the nodes report themselves is
        acted on all the same. Raises what stops the process, until it has worked once; Fenced.
        """
        if not self.hears(now):
            return
        try:
            await self._listen(now)
        except AgentError as error:
            if isinstance(error, Fenced) or (error.verdict is Verdict.STOP and not self._has_heard):
                raise
            self._trouble.tell(f"{error}; until then nobody speaks for silent nodes")
            self._deaf_until = Millis(now + (UNANSWERED if error.verdict is Verdict.RETRY else REFUSED))

    async def close(self) -> None:
        """The term is over."""
        self.is_open = False
        await self._events.close()

    async def _listen(self, now: Millis) -> None:
        if not self.is_open:
            await self._events.open(self._resume())
            self.is_open = self._has_heard = True
        batch = await self._events.read(READ_LIMIT)
        self._trouble.over()
        for notice in batch.notices:
            self._say(notice)
        self._deputy.hear((item for item in batch.items if isinstance(item, Record)), now)
        heard = self._deputy.due(now)
        self._waiting += heard.taken.letters
        for decision in heard.taken.decisions:
            self._tell(told_by_deputy(decision))
        for node, report in heard.reports.items():
            self._coordinator.stand_in(node, report)
        if self._waiting:
            letters = list(self._waiting)
            await self._letters.append(letters)
            self.lettered += len(letters)
            del self._waiting[: len(letters)]
            self._has_lettered = True
        await self._note(batch.resume, now)

    async def _note(self, resume: bytes, now: Millis) -> None:
        known = self._coordinator.book.cluster.heard
        if known and 0 <= now - self._noted_at < (SECOND if self._has_lettered else NOTE_EVERY):
            return
        settled = self._deputy.settled(decode_places(resume))
        if settled != known:
            await self._coordinator.heard(settled, now)
        self._noted_at, self._has_lettered = now, False

    def _resume(self) -> bytes | None:
        """Per partition, the earliest place that some node's report has not passed, or that the leader before us has
        left.
        """
        book = self._coordinator.book
        places: dict[int, Scanned] = dict(book.cluster.heard)
        for report in book.reports.values():
            for partition, at in report.scanned.items():
                known = places.get(partition)
                if known is None or (-at.generation, at.offset) < (-known.generation, known.offset):
                    places[partition] = at
        return encode_places(places)
