"""Events for people: once each, bounded, never in the way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from scriptedkube import PATIENT_S, ScriptedKube, answer, refusal, scripted

from agent.adapters.kube.announcer import REMEMBERED, WAITING_LIMIT, KubeAnnouncer
from agent.adapters.kube.client import KubeClient
from agent.domain.vocab import Millis

Pair = tuple[ScriptedKube, KubeClient]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with scripted(tmp_path) as made:
        yield made


def uid_of(kind: str, namespace: str, name: str) -> str:
    return f"uid-{name}"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.adapters.kube.announcer.SEND_SECONDS", PATIENT_S)


def announcer(client: KubeClient) -> KubeAnnouncer:
    return KubeAnnouncer(client, lambda: Millis(1767225600042), "coordinator-0", uid_of=uid_of, behind_s=0.0)


@asynccontextmanager
async def announcing(client: KubeClient) -> AsyncIterator[KubeAnnouncer]:
    """All that is announced within has been sent or given up when it ends."""
    words = announcer(client)
    words.start()
    yield words
    await words.close(PATIENT_S)


async def test_an_announcement_becomes_an_event_beside_its_object(pair: Pair) -> None:
    server, client = pair
    server.answers(answer({}, 201))
    async with announcing(client) as words:
        await words.announce("Pod", "train", "demo-0", "NoRank", "no rank for 0", True)
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/apis/events.k8s.io/v1/namespaces/train/events")
    name = asked.body["metadata"].pop("name")
    assert name.startswith("demo-0.")
    assert asked.body == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "train"},
        "eventTime": "2026-01-01T00:00:00.042000Z",
        "reportingController": "fault-agent",
        "reportingInstance": "coordinator-0",
        "action": "NoRank",
        "reason": "NoRank",
        "note": "no rank for 0",
        "type": "Warning",
        "regarding": {"kind": "Pod", "apiVersion": "v1", "name": "demo-0", "namespace": "train", "uid": "uid-demo-0"},
    }
    assert (words.tally.sent, words.tally.failed) == (1, 0)


@pytest.mark.parametrize(
    ("kind", "version"), [("Node", "v1"), ("PodGroup", "scheduling.volcano.sh/v1beta1"), ("Pod", "v1")]
)
async def test_each_kind_is_named_with_its_version(pair: Pair, kind: str, version: str) -> None:
    server, client = pair
    server.answers(answer({}, 201))
    async with announcing(client) as words:
        await words.announce(kind, "", "x", "R", "n", False)
    body = server.asked[0].body
    assert body["regarding"] == {"kind": kind, "apiVersion": version, "name": "x", "uid": "uid-x"}
    assert (body["metadata"]["namespace"], body["type"]) == ("default", "Normal")


async def test_the_same_again_makes_no_second_event_but_its_count_grows_by_doubling(pair: Pair) -> None:
    server, client = pair
    server.answers(*[answer({}, 201)] * 10)
    async with announcing(client) as words:
        for _ in range(9):
            await words.announce("Node", "", "n1", "Held", "code 80E18402", True)
    assert [asked.method for asked in server.asked] == ["POST", "PATCH", "PATCH", "PATCH"]
    assert [asked.body["series"]["count"] for asked in server.asked[1:]] == [2, 4, 8]
    assert server.asked[1].content_type == "application/merge-patch+json"
    assert server.asked[1].path.endswith(server.asked[0].body["metadata"]["name"])


async def test_another_note_is_another_event(pair: Pair) -> None:
    server, client = pair
    server.answers(*[answer({}, 201)] * 3)
    async with announcing(client) as words:
        await words.announce("Node", "", "n1", "Held", "one", True)
        await words.announce("Node", "", "n1", "Held", "two", True)
        await words.announce("Node", "", "n2", "Held", "one", True)
    assert len({asked.body["metadata"]["name"] for asked in server.asked}) == 3


async def test_what_an_earlier_process_said_is_counted_and_not_said_again(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(409, "already exists"), answer({}))
    async with announcing(client) as words:
        await words.announce("Node", "", "n1", "Held", "x", True)
    assert [asked.method for asked in server.asked] == ["POST", "PATCH"]
    assert words.tally.sent == 1


async def test_an_event_the_server_has_forgotten_is_made_anew_with_its_count(pair: Pair) -> None:
    server, client = pair
    server.answers(answer({}, 201), refusal(404), answer({}, 201))
    async with announcing(client) as words:
        await words.announce("Node", "", "n1", "Held", "x", True)
        await words.announce("Node", "", "n1", "Held", "x", True)
    assert [asked.method for asked in server.asked] == ["POST", "PATCH", "POST"]
    assert server.asked[2].body["series"]["count"] == 2


async def test_a_refusal_is_counted_and_the_next_is_sent(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(403, "no right"), answer({}, 201))
    async with announcing(client) as words:
        await words.announce("Node", "", "n1", "Held", "x", True)
        await words.announce("Node", "", "n2", "Held", "x", True)
    assert (words.tally.sent, words.tally.failed) == (1, 1)


async def test_more_than_may_wait_is_dropped_and_counted(pair: Pair) -> None:
    _, client = pair
    words = announcer(client)
    for number in range(WAITING_LIMIT + 5):
        await words.announce("Node", "", f"n{number}", "Held", "x", True)
    assert words.tally.dropped == 5


async def test_memory_of_what_was_said_is_bounded_and_the_oldest_goes_first(pair: Pair) -> None:
    _, client = pair
    words = announcer(client)
    for number in range(REMEMBERED + 1):
        await words.announce("Node", "", f"n{number}", "Held", "x", True)
    dropped = words.tally.dropped
    await words.announce("Node", "", f"n{REMEMBERED}", "Held", "x", True)
    # Known: its count is now two, which is told, and so waits (or is dropped) as news.
    assert words.tally.dropped == dropped + 1
    await words.announce("Node", "", f"n{REMEMBERED}", "Held", "x", True)
    assert words.tally.dropped == dropped + 1


async def test_long_words_are_cut_to_what_the_server_takes(pair: Pair) -> None:
    server, client = pair
    server.answers(answer({}, 201))
    async with announcing(client) as words:
        await words.announce("Pod", "train", "p" * 253, "R" * 500, "é" * 2000, True)
    body = server.asked[0].body
    assert (len(body["reason"]), len(body["note"].encode())) == (128, 1024)
    assert len(body["metadata"]["name"]) <= 253


async def test_the_end_does_not_wait_for_a_server_that_does_not_answer(pair: Pair) -> None:
    server, client = pair
    words = announcer(client)
    words.start()
    await words.announce("Node", "", "n1", "Held", "x", True)
    await words.announce("Node", "", "n2", "Held", "x", True)
    await server.was_asked.wait()
    await words.close(0.05)
    await words.close()
    assert words.tally.dropped == 1
