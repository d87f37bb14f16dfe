"""Requests and streams over loopback: time-outs, 401, 429, cut connections."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from scriptedkube import PATIENT_S, ScriptedKube, answer, event, kubeconfig, refusal, scripted, thing

from agent.adapters.kube.access import KubeSettings
from agent.adapters.kube.client import KubeClient, connect
from agent.adapters.kube.errors import Throttled, Unauthorised
from agent.adapters.kube.resources import CONFIG_MAPS, PODS
from agent.errors import CannotRun, Refused, Unavailable

Pair = tuple[ScriptedKube, KubeClient]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with scripted(tmp_path) as made:
        yield made


async def test_a_request_carries_token_agent_and_parameters(pair: Pair) -> None:
    server, client = pair
    server.answers(answer({"ok": "é"}))
    got = await client.call("update", CONFIG_MAPS, "a", "b", body={"x": "é"}, params={"fieldManager": "m"})
    assert got == {"ok": "é"}
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("PUT", "/api/v1/namespaces/a/configmaps/b")
    assert (asked.query, asked.body) == ({"fieldManager": "m"}, {"x": "é"})
    assert (asked.token, asked.agent, asked.content_type) == ("Bearer t1", "fault-agent", "application/json")


async def test_a_server_that_does_not_answer_is_unavailable_in_time(pair: Pair) -> None:
    server, client = pair
    server.answers(server.silent())
    with pytest.raises(Unavailable, match=r"get configmaps a/b: .* gave no answer within 0\.1 s"):
        await client.call("get", CONFIG_MAPS, "a", "b", within=0.1)


async def test_no_time_means_no_request(pair: Pair) -> None:
    server, client = pair
    with pytest.raises(Unavailable):
        await client.call("get", CONFIG_MAPS, "a", "b", within=0)
    assert server.asked == []


async def test_a_401_is_tried_once_more_with_the_token_now_on_disk(pair: Pair, tmp_path: Path) -> None:
    server, client = pair
    kubeconfig(tmp_path / "kubeconfig", server.url, {"token": "t2"})
    server.answers(refusal(401, "Unauthorized"), answer({}))
    await client.call("get", CONFIG_MAPS, "a", "b")
    assert [asked.token for asked in server.asked] == ["Bearer t1", "Bearer t2"]


async def test_a_401_with_the_same_token_on_disk_is_final(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(401, "Unauthorized"))
    with pytest.raises(Unauthorised):
        await client.call("get", CONFIG_MAPS, "a", "b")
    assert len(server.asked) == 1


async def test_a_second_401_is_final(pair: Pair, tmp_path: Path) -> None:
    server, client = pair
    kubeconfig(tmp_path / "kubeconfig", server.url, {"token": "t2"})
    server.answers(refusal(401), refusal(401))
    with pytest.raises(Unauthorised):
        await client.call("get", CONFIG_MAPS, "a", "b")
    assert len(server.asked) == 2


async def test_a_429_is_waited_for_as_long_as_it_asks(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(429, "slow down", {"Retry-After": "2"}), answer({"ok": 1}))
    assert await client.call("update", CONFIG_MAPS, "a", "b", body={}) == {"ok": 1}
    assert server.slept == [2.0]


async def test_a_429_that_asks_for_more_time_than_there_is_is_raised_with_it(pair: Pair) -> None:
    server, client = pair
    server.answers(refusal(429, "slow down", {"Retry-After": "90"}))
    with pytest.raises(Throttled) as caught:
        await client.call("get", CONFIG_MAPS, "a", "b")
    assert caught.value.retry_after == 90.0
    assert server.slept == []


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b""])
async def test_an_answer_that_is_no_object_is_named(pair: Pair, body: bytes) -> None:
    server, client = pair
    server.answers(answer(body))
    with pytest.raises(Unavailable, match="no JSON"):
        await client.call("get", CONFIG_MAPS, "a", "b")


async def test_a_closed_client_is_unavailable(pair: Pair) -> None:
    _, client = pair
    await client.close()
    await client.close()
    with pytest.raises(Unavailable, match="closed"):
        await client.call("get", CONFIG_MAPS, "a", "b")


class TestStream:
    async def test_lines_come_whole_however_they_are_cut_on_the_way(self, pair: Pair) -> None:
        server, client = pair
        server.answers(server.stream(b'{"a":', b"1}\n\n{", b'"b":2}\n{"c"', b":3}\n"))
        async with client.stream(PODS, "", {"watch": "1"}, PATIENT_S) as lines:
            assert [line async for line in lines] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']

    async def test_a_line_may_be_as_long_as_an_object_with_escapes(self, pair: Pair) -> None:
        server, client = pair
        long = b'"' + b"\\u003c" * 1_048_576 + b'"'
        server.answers(server.stream(long + b"\n"))
        async with client.stream(PODS, "", {}, PATIENT_S) as lines:
            assert [len(line) async for line in lines] == [6 * 1_048_576 + 2]

    async def test_a_cut_stream_gives_its_whole_lines_and_is_unavailable(self, pair: Pair) -> None:
        server, client = pair
        server.answers(server.stream(event("ADDED", thing("x", "1")), then="cut"))
        got: list[bytes] = []
        with pytest.raises(Unavailable, match="broke"):
            await self.read(client, got, PATIENT_S)
        assert len(got) == 1

    async def test_a_silent_stream_is_unavailable(self, pair: Pair) -> None:
        server, client = pair
        server.answers(server.stream(then="open"))
        with pytest.raises(Unavailable, match="no answer within"):
            await self.read(client, [], 0.1)

    async def test_a_refused_stream_says_which_right_is_missing(self, pair: Pair) -> None:
        server, client = pair
        server.answers(refusal(403, "forbidden"))
        with pytest.raises(Refused) as caught:
            await self.read(client, [], PATIENT_S)
        assert caught.value.hint == 'grant verb watch on pods (apiGroups [""]) in all namespaces'

    async def test_a_401_is_tried_once_more_here_too(self, pair: Pair, tmp_path: Path) -> None:
        server, client = pair
        kubeconfig(tmp_path / "kubeconfig", server.url, {"token": "t2"})
        server.answers(refusal(401), server.stream(b"{}\n"))
        got: list[bytes] = []
        await self.read(client, got, PATIENT_S)
        assert got == [b"{}"]

    async def read(self, client: KubeClient, into: list[bytes], seconds: float) -> None:
        async with client.stream(PODS, "", {}, seconds) as lines:
            async for line in lines:
                into += [line]


def patient(path: Path) -> KubeSettings:
    return KubeSettings(path, request_seconds=PATIENT_S, connect_seconds=PATIENT_S)


class TestConnect:
    async def test_the_server_is_asked_for_its_version(self, tmp_path: Path) -> None:
        async with scripted(tmp_path) as (server, _):
            server.answers(answer({"gitVersion": "v1.34.3"}))
            async with await connect(patient(tmp_path / "kubeconfig")):
                assert [asked.path for asked in server.asked] == ["/version"]

    async def test_credentials_that_are_not_accepted_are_no_start(self, tmp_path: Path) -> None:
        async with scripted(tmp_path) as (server, _):
            server.answers(refusal(401, "Unauthorized"))
            with pytest.raises(CannotRun, match="does not accept these credentials"):
                await connect(patient(tmp_path / "kubeconfig"))

    async def test_an_unreachable_server_is_unavailable(self, tmp_path: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            path = kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{free.getsockname()[1]}")
            with pytest.raises(Unavailable, match="cannot be reached"):
                await connect(patient(path))

    async def test_a_server_that_speaks_no_tls_is_no_start(self, tmp_path: Path) -> None:
        async with scripted(tmp_path) as (server, _):
            path = kubeconfig(tmp_path / "kubeconfig", server.url.replace("http:", "https:"))
            with pytest.raises(CannotRun, match="TLS with"):
                await connect(patient(path))

    async def test_a_cancelled_start_leaves_nothing_open(self, tmp_path: Path) -> None:
        async with scripted(tmp_path) as (server, _):
            server.answers(server.silent())
            starting = asyncio.ensure_future(connect(patient(tmp_path / "kubeconfig")))
            await server.was_asked.wait()
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
