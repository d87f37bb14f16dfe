"""One candidate for a lease as a process, to be paused and killed: while it leads it counts up a document.

    python tests/leaseprocess.py <kubeconfig> <namespace> <name> <me>

Each line on stdout is one JSON object: what it became, or a write that went through. It writes as the agent does: it
asks whether it leads right before each write, and never writes over a newer term.
"""

import asyncio
import json
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from agent.adapters.kube import KubeClient, KubeDocumentStore, KubeLease, KubeSettings, connect
from agent.app.lease import Election, Elector
from agent.domain.lease import LeaseTimes
from agent.domain.vocab import Millis
from agent.errors import Conflict, Fenced, Refused, Unavailable
from agent.ports import ConfigMap

TIMES = LeaseTimes(duration=3.0, renew_every=0.4, look_every=0.3, guard=0.8, request=1.0)


def say(**what: object) -> None:
    """One line, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def told(election: Election) -> None:
    """A turn of the election."""
    say(turn=election.turn.value, term=election.term, detail=election.detail)


class Counter:
    """The work: counts up `n` in the document, under the term it leads in."""

    def __init__(self, client: KubeClient, namespace: str, name: str, me: str) -> None:
        self._store = KubeDocumentStore(client, me)
        self._where = namespace, name
        self._me = me
        self.elector: Elector | None = None

    async def lead(self, term: int) -> None:
        """Write for as long as it may."""
        while True:
            with suppress(Conflict, Unavailable, Refused):
                await self._once(term)
            await asyncio.sleep(0.005)

    async def _once(self, term: int) -> None:
        live = await self._store.get(*self._where) or ConfigMap(*self._where)
        if int(live.data.get("term", "0")) > term:
            raise Fenced(f"term {live.data['term']} has begun")
        wanted = replace(live, data={"term": str(term), "who": self._me, "n": str(int(live.data.get("n", "0")) + 1)})
        if self.elector is None or not self.elector.is_leader():
            return
        stored = await self._store.put(wanted)
        say(wrote=int(stored.data["n"]), term=term)


async def main(kubeconfig: str, namespace: str, name: str, me: str) -> None:
    """Be a candidate until SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with await connect(KubeSettings(Path(kubeconfig))) as client:
        counter = Counter(client, namespace, name, me)
        counter.elector = Elector(
            KubeLease(client, namespace, name),
            me,
            TIMES,
            clock=time.monotonic,
            sleep=asyncio.sleep,
            now=lambda: Millis(time.time_ns() // 1_000_000),
            tell=told,
        )
        with suppress(asyncio.CancelledError):
            await counter.elector.lead(counter.lead)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
