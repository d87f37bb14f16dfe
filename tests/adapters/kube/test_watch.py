"""List, watch, resume, list again: what is told is what happened."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from scriptedkube import ScriptedKube, event, page, refusal, scripted, thing

from agent.adapters.kube.client import KubeClient
from agent.adapters.kube.resources import NODES, POD_GROUPS, PODS, Watched
from agent.adapters.kube.watch import KubeWatch, Pace
from agent.errors import Refused

Pair = tuple[ScriptedKube, KubeClient]
Told = tuple[str, str, str]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with scripted(tmp_path) as made:
        yield made


class Following:
    """A watch being followed."""

    def __init__(self, watch: KubeWatch, changes: AsyncIterator[tuple[str, Mapping[str, Any]]]) -> None:
        self.watch = watch
        self._changes = changes

    async def next(self, count: int = 1) -> list[Told]:
        """The next changes: what, name, version."""
        return [_told(*await anext(self._changes)) for _ in range(count)]

    async def item(self) -> Mapping[str, Any]:
        return (await anext(self._changes))[1]


def _told(what: str, item: Mapping[str, Any]) -> Told:
    meta = item.get("metadata", {})
    return what, meta.get("name", ""), meta.get("resourceVersion", "")


@asynccontextmanager
async def following(pair: Pair, watched: Watched | None = None, pace: Pace | None = None) -> AsyncIterator[Following]:
    watch = KubeWatch(pair[1], watched or Watched(PODS), pace or Pace(), lambda: 0.5)
    async with aclosing(watch.changes()) as changes:
        yield Following(watch, changes)


LISTED = ("listed", "", "")


def bookmark(version: str) -> dict[str, Any]:
    return event("BOOKMARK", {"metadata": {"resourceVersion": version}})


def expired() -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


async def test_a_list_is_read_page_by_page_and_items_get_their_kind(pair: Pair) -> None:
    server, _ = pair
    server.answers(page([thing("a", "1"), thing("b", "2")], more="next"), page([thing("c", "3")], "9"))
    async with following(pair, Watched(PODS, labels="x=y", fields="spec.nodeName=n"), Pace(page=2)) as follow:
        first = await follow.item()
        assert (first["kind"], first["apiVersion"]) == ("Pod", "v1")
        assert await follow.next(3) == [("set", "b", "2"), ("set", "c", "3"), LISTED]
        assert follow.watch.lists == 1
    selectors = {"labelSelector": "x=y", "fieldSelector": "spec.nodeName=n"}
    assert [asked.query for asked in server.asked] == [
        {**selectors, "limit": "2"},
        {**selectors, "limit": "2", "continue": "next"},
    ]


async def test_a_page_that_expired_in_the_middle_begins_the_list_anew_and_tells_nothing_twice(pair: Pair) -> None:
    server, _ = pair
    server.answers(
        page([thing("a", "1"), thing("b", "2")], more="next"),
        refusal(410, "The provided continue parameter is too old"),
        page([thing("a", "1"), thing("b", "5")], more="next"),
        page([thing("c", "3")], "9"),
    )
    async with following(pair) as follow:
        assert await follow.next(5) == [
            ("set", "a", "1"),
            ("set", "b", "2"),
            ("set", "b", "5"),
            ("set", "c", "3"),
            LISTED,
        ]
        assert follow.watch.lists == 1


async def test_the_watch_goes_on_from_the_list_s_version_with_bookmarks_and_a_limit_of_time(pair: Pair) -> None:
    server, _ = pair
    server.answers(page([], "9"), server.stream(event("ADDED", thing("a", "10")), then="open"))
    async with following(pair) as follow:
        assert await follow.next(2) == [LISTED, ("set", "a", "10")]
    assert server.asked[1].query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "9",
        "timeoutSeconds": "60",
    }


@pytest.mark.parametrize("then", ["end", "cut"])
async def test_a_stream_that_ends_is_resumed_from_the_last_version_seen(pair: Pair, then: str) -> None:
    server, _ = pair
    server.answers(
        page([thing("a", "1")], "9"),
        server.stream(event("MODIFIED", thing("a", "10")), bookmark("20"), then=then),
        server.stream(event("DELETED", thing("a", "21")), event("ADDED", thing("b", "22")), then="open"),
    )
    async with following(pair) as follow:
        assert await follow.next(5) == [
            ("set", "a", "1"),
            LISTED,
            ("set", "a", "10"),
            ("gone", "a", "21"),
            ("set", "b", "22"),
        ]
        assert follow.watch.lists == 1
        assert follow.watch.error is None
    assert server.asked[2].query["resourceVersion"] == "20"


@pytest.mark.parametrize("way", ["status", "event"])
async def test_a_version_that_is_too_old_is_listed_again_and_what_is_gone_is_told(pair: Pair, way: str) -> None:
    server, _ = pair
    server.answers(
        page([thing("a", "1"), thing("b", "2"), thing("c", "3")], "9"),
        refusal(410, "too old resource version") if way == "status" else server.stream(expired()),
        page([thing("a", "1"), thing("c", "8"), thing("d", "10")], "30"),
        server.stream(event("MODIFIED", thing("d", "31")), then="open"),
    )
    async with following(pair) as follow:
        assert await follow.next(4) == [("set", "a", "1"), ("set", "b", "2"), ("set", "c", "3"), LISTED]
        assert await follow.next(5) == [
            ("set", "c", "8"),
            ("set", "d", "10"),
            ("gone", "b", "2"),
            LISTED,
            ("set", "d", "31"),
        ]
        assert follow.watch.lists == 2
    assert server.asked[2].query == {"limit": "500"}
    assert server.asked[3].query["resourceVersion"] == "30"


async def test_what_was_made_anew_while_nobody_looked_is_gone_and_set(pair: Pair) -> None:
    server, _ = pair
    server.answers(
        page([thing("a", "1", uid="u1")], "9"),
        refusal(410),
        page([thing("a", "12", uid="u2")], "30"),
    )
    async with following(pair) as follow:
        await follow.next(2)
        gone = await follow.item()
        assert gone == {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": "train", "name": "a", "uid": "u1", "resourceVersion": "1"},
        }
        assert await follow.next(2) == [("set", "a", "12"), LISTED]


async def test_an_event_that_is_known_already_is_not_told_again(pair: Pair) -> None:
    server, _ = pair
    server.answers(
        page([thing("a", "1")], "9"),
        server.stream(
            event("ADDED", thing("a", "1")),
            event("DELETED", thing("x", "10")),
            event("MODIFIED", thing("a", "11")),
            then="open",
        ),
    )
    async with following(pair) as follow:
        assert await follow.next(3) == [("set", "a", "1"), LISTED, ("set", "a", "11")]


async def test_an_unreachable_server_is_tried_again_with_growing_pauses_up_to_five_seconds(pair: Pair) -> None:
    server, _ = pair
    server.answers(*[refusal(503, "starting")] * 9, page([], "9"))
    async with following(pair) as follow:
        assert await follow.next() == [LISTED]
    assert server.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5, 2.5, 2.5]


async def test_a_version_the_server_never_reaches_is_doubted_in_the_end(pair: Pair) -> None:
    server, _ = pair
    too_large = refusal(504, "Timeout: Too large resource version: 9, current: 4")
    server.answers(page([thing("a", "9")], "9"), *[too_large] * 5, page([thing("a", "3")], "4"))
    async with following(pair) as follow:
        assert await follow.next(4) == [("set", "a", "9"), LISTED, ("set", "a", "3"), LISTED]


async def test_a_stream_that_ends_as_soon_as_it_begins_is_not_opened_in_a_circle(pair: Pair) -> None:
    server, _ = pair
    server.answers(page([], "9"), *[server.stream()] * 3, server.stream(event("ADDED", thing("a", "10")), then="open"))
    async with following(pair) as follow:
        assert await follow.next(2) == [LISTED, ("set", "a", "10")]
    assert len(server.slept) == 3


async def test_a_missing_right_is_kept_as_the_error_and_asked_for_again(pair: Pair) -> None:
    server, _ = pair
    server.answers(refusal(403, "no"), refusal(403, "no"), page([], "9"))
    async with following(pair) as follow:
        watch = follow.watch
        seen: list[object] = []

        async def sleep(seconds: float) -> None:
            seen.append((seconds, type(watch.error)))

        pair[1].sleep = sleep
        assert await follow.next() == [LISTED]
        assert seen == [(10.0, Refused), (10.0, Refused)]
        assert watch.error is None


async def test_a_throttled_list_waits_as_long_as_it_is_asked_to(pair: Pair) -> None:
    server, _ = pair
    server.answers(refusal(429, "slow", {"Retry-After": "45"}), page([], "9"))
    async with following(pair) as follow:
        assert await follow.next() == [LISTED]
    assert server.slept == [45.0]


async def test_a_kind_that_is_not_served_has_no_objects_and_is_looked_for_each_minute(pair: Pair) -> None:
    server, _ = pair
    group = thing("g", "5")
    server.answers(refusal(404, "404 page not found"), refusal(404), page([group], "9"), refusal(404), refusal(404))
    async with following(pair, Watched(POD_GROUPS, optional=True)) as follow:
        assert await follow.next() == [LISTED]
        assert (follow.watch.absent, follow.watch.error) == (True, None)
        assert await follow.next(3) == [LISTED, ("set", "g", "5"), LISTED]
        assert follow.watch.lists == 1
        # The CRD is taken away: its objects are gone.
        assert await follow.next(2) == [("gone", "g", "5"), LISTED]
    assert server.slept == [60.0, 60.0]


async def test_a_kind_that_must_be_served_and_is_not_is_an_error(pair: Pair) -> None:
    server, _ = pair
    server.answers(refusal(404), page([], "9"))
    async with following(pair, Watched(NODES)) as follow:
        assert await follow.next() == [LISTED]
    assert server.slept == [10.0]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"not json\n", id="no JSON"),
        pytest.param(b'{"type":"ADDED"}\n', id="no object"),
        pytest.param(b"[1]\n", id="a list"),
        pytest.param(
            b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcdserver: no leader"}}\n', id="an error"
        ),
    ],
)
async def test_an_event_that_cannot_be_used_cuts_the_stream_and_nothing_is_lost(pair: Pair, line: bytes) -> None:
    server, _ = pair
    server.answers(
        page([], "9"),
        server.stream(event("ADDED", thing("a", "10")), line),
        server.stream(event("ADDED", thing("b", "11")), then="open"),
    )
    async with following(pair) as follow:
        assert await follow.next(3) == [LISTED, ("set", "a", "10"), ("set", "b", "11")]
    assert server.asked[2].query["resourceVersion"] == "10"


async def test_a_stream_silent_for_too_long_is_opened_again(pair: Pair) -> None:
    server, _ = pair
    server.answers(
        page([], "9"), server.stream(then="open"), server.stream(event("ADDED", thing("a", "10")), then="open")
    )
    async with following(pair, pace=Pace(silence_seconds=0.1)) as follow:
        assert await follow.next(2) == [LISTED, ("set", "a", "10")]
        assert follow.watch.error is None
