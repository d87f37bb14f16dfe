"""Two processes, one lease, one document, a real API server: paused, killed, stopped, cut off."""

import asyncio
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kubeclients import client_of, make_namespace, proxied, until
from services.harness import Kube

from agent.adapters.kube import KubeClient, KubeDocumentStore

DURATION_S = 3.0
"""As in leaseprocess.py."""
ROOT = Path(__file__).parents[2]


class Candidate:
    """A candidate process and what it said."""

    def __init__(self, process: asyncio.subprocess.Process, me: str) -> None:
        self._process = process
        self.me = me
        self.said: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    @property
    def turns(self) -> list[str]:
        return [line["turn"] for line in self.said if "turn" in line]

    @property
    def writes(self) -> int:
        return sum("wrote" in line for line in self.said)

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    async def end(self) -> None:
        if self._process.returncode is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
        await self._process.wait()
        await self._reading

    async def ended(self) -> int:
        return await asyncio.wait_for(self._process.wait(), 20)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.said.append(json.loads(line))


class Contest:
    """A lease and a document of one name, the document's history, and the candidates."""

    def __init__(self, client: KubeClient, kube: Kube, namespace: str) -> None:
        self._store = KubeDocumentStore(client, namespace=namespace)
        self._kube = kube
        self._namespace = namespace
        self.name = "contest"
        self.history: list[tuple[int, str, int]] = []
        """Term, who, count: each version of the document, as the watch told it."""
        self.candidates: list[Candidate] = []

    async def start(self, me: str, kubeconfig: Path | None = None) -> Candidate:
        config = str(kubeconfig or self._kube.endpoint.kubeconfig)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "tests" / "leaseprocess.py"),
            config,
            self._namespace,
            self.name,
            me,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        candidate = Candidate(process, me)
        self.candidates.append(candidate)
        return candidate

    async def leading(self, candidate: Candidate) -> None:
        begun = candidate.writes
        await until(f"{candidate.me} leads", lambda: candidate.writes > begun + 3)

    async def standing_by(self, candidate: Candidate) -> None:
        await until(f"{candidate.me} stands by", lambda: candidate.turns and candidate.turns[-1] == "standby")

    async def follow(self) -> None:
        async with aclosing(self._store.watch()) as changes:
            async for _, document in changes:
                if document.name == self.name:
                    self.history.append((int(document.data["term"]), document.data["who"], int(document.data["n"])))

    def check(self) -> None:
        """Terms never go back, each belongs to one process, and no write was lost."""
        terms = [term for term, _, _ in self.history]
        assert terms == sorted(terms)
        assert len({(term, who) for term, who, _ in self.history}) == len(set(terms))
        counts = [count for _, _, count in self.history]
        assert counts == list(range(counts[0], counts[0] + len(counts)))


@pytest.fixture
async def contest(kube_server: Kube) -> AsyncIterator[Contest]:
    namespace = make_namespace(kube_server.endpoint, f"test-{uuid.uuid4().hex[:8]}")
    async with client_of(kube_server.endpoint) as client, followed(Contest(client, kube_server, namespace)) as made:
        yield made


@asynccontextmanager
async def followed(contest: Contest) -> AsyncIterator[Contest]:
    watching = asyncio.create_task(contest.follow())
    try:
        yield contest
    finally:
        for candidate in contest.candidates:
            await candidate.end()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_leader_stopped_beyond_its_lease_never_writes_again_when_it_goes_on(contest: Contest) -> None:
    first = await contest.start("first")
    await contest.leading(first)
    second = await contest.start("second")
    await contest.standing_by(second)
    for leader, standby in ((first, second), (second, first)):
        # Stopped in the middle of whatever it is doing, a PUT in hand more often than not.
        leader.signal(signal.SIGSTOP)
        await contest.leading(standby)
        leader.signal(signal.SIGCONT)
        await contest.standing_by(leader)
        await contest.leading(standby)
    contest.check()
    assert list(dict.fromkeys(who for _, who, _ in contest.history)) == ["first", "second"]
    assert len({term for term, _, _ in contest.history}) == 3


async def test_a_killed_leader_is_followed_within_the_lease_and_two_seconds(contest: Contest) -> None:
    first = await contest.start("first")
    await contest.leading(first)
    second = await contest.start("second")
    await contest.standing_by(second)
    first.signal(signal.SIGKILL)
    killed = time.monotonic()
    await until("second leads", lambda: second.writes)
    assert time.monotonic() - killed < DURATION_S + 2
    contest.check()


async def test_a_leader_that_ends_in_order_hands_over_at_once(contest: Contest) -> None:
    first = await contest.start("first")
    await contest.leading(first)
    second = await contest.start("second")
    await contest.standing_by(second)
    first.signal(signal.SIGTERM)
    stopped = time.monotonic()
    assert await first.ended() == 0
    await until("second leads", lambda: second.writes)
    # Sooner than the lease would have run out.
    assert time.monotonic() - stopped < DURATION_S
    assert first.turns == ["leading", "released"]
    contest.check()


async def test_a_leader_cut_off_from_the_server_stops_and_comes_back_as_standby(
    contest: Contest, kube_server: Kube, tmp_path: Path
) -> None:
    async with proxied(kube_server.endpoint) as proxy:
        first = await contest.start("first", proxy.kubeconfig(kube_server.endpoint, tmp_path / "config"))
        await contest.leading(first)
        second = await contest.start("second")
        await contest.standing_by(second)
        proxy.closed = True
        proxy.cut()
        await until("first has stopped", lambda: "lost" in first.turns)
        await contest.leading(second)
        proxy.closed = False
        await contest.standing_by(first)
        contest.check()


async def test_a_restart_of_the_server_within_the_lease_or_beyond_it_leaves_one_leader(
    contest: Contest, kube_server: Kube
) -> None:
    both = [await contest.start("first"), await contest.start("second")]
    await until("one leads", lambda: sum(one.writes for one in both) > 3)
    kube_server.apiserver.kill()
    await asyncio.to_thread(kube_server.start_apiserver)
    before = [one.writes for one in both]
    await until("one leads on", lambda: sum(one.writes for one in both) > sum(before) + 3)
    contest.check()
