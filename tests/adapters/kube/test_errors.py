"""Answers of the server as our errors."""

import json
from typing import Any

import pytest

from agent.adapters.kube.errors import Call, Gone, NotFound, Throttled, Unauthorised, error_of
from agent.adapters.kube.resources import CONFIG_MAPS, NODES, POD_GROUPS
from agent.errors import AgentError, Conflict, Refused, Unavailable, Verdict

CALL = Call("update", CONFIG_MAPS, "mindx-dl", "doc")


def status(message: str, code: int = 500) -> bytes:
    return json.dumps({"kind": "Status", "message": message, "code": code}).encode()


@pytest.mark.parametrize(
    ("code", "message", "expected", "verdict"),
    [
        pytest.param(400, "bad", Refused, "park", id="400"),
        pytest.param(401, "Unauthorized", Unauthorised, "park", id="401"),
        pytest.param(403, "forbidden", Refused, "park", id="403"),
        pytest.param(404, "not found", NotFound, "park", id="404"),
        pytest.param(408, "", Unavailable, "retry", id="408"),
        pytest.param(409, "the object has been modified", Conflict, "retry", id="409"),
        pytest.param(410, "too old resource version", Gone, "retry", id="410"),
        pytest.param(413, "Request entity too large", Refused, "park", id="413"),
        pytest.param(422, "must have at most 1048576 bytes", Refused, "park", id="422"),
        pytest.param(429, "too many requests", Throttled, "retry", id="429"),
        pytest.param(500, "etcdserver: request timed out", Unavailable, "retry", id="500"),
        pytest.param(500, "etcdserver: request is too large", Refused, "park", id="too large for etcd"),
        pytest.param(
            500,
            "rpc error: code = ResourceExhausted desc = trying to send message",
            Refused,
            "park",
            id="too large too",
        ),
        pytest.param(503, "", Unavailable, "retry", id="503"),
        pytest.param(504, "Timeout", Unavailable, "retry", id="504"),
        pytest.param(302, "", Refused, "park", id="a redirect is no answer"),
    ],
)
def test_each_status_has_its_error(code: int, message: str, expected: type[AgentError], verdict: str) -> None:
    error = error_of(CALL, code, status(message, code), {})
    assert type(error) is expected
    assert error.verdict is Verdict(verdict)
    assert str(error).startswith(f"update configmaps mindx-dl/doc: {code}")
    assert message in str(error)


@pytest.mark.parametrize(
    ("call", "right"),
    [
        pytest.param(CALL, 'verb update on configmaps (apiGroups [""]) in namespace mindx-dl', id="in a namespace"),
        pytest.param(
            Call("watch", POD_GROUPS),
            'verb watch on podgroups (apiGroups ["scheduling.volcano.sh"]) in all namespaces',
            id="in all",
        ),
        pytest.param(Call("list", NODES), 'verb list on nodes (apiGroups [""]) cluster-wide', id="no namespaces"),
    ],
)
def test_a_missing_right_is_named_as_a_role_would_grant_it(call: Call, right: str) -> None:
    assert error_of(call, 403, status('User "x" cannot'), {}).hint == f"grant {right}"


def test_a_namespace_on_its_way_out_is_no_missing_right() -> None:
    error = error_of(CALL, 403, status("because it is being terminated"), {})
    assert "grant" not in error.hint


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>Authorization: Bearer abc</html>", id="no JSON"),
        pytest.param(b'{"token": "abc"}', id="no Status"),
        pytest.param(b'["abc"]', id="no object"),
        pytest.param(b"", id="empty"),
    ],
)
def test_a_body_that_is_no_status_is_not_shown(body: bytes) -> None:
    assert "abc" not in str(error_of(CALL, 502, body, {}))


def test_a_long_message_is_cut() -> None:
    assert len(str(error_of(CALL, 422, status("x" * 100_000), {}))) < 400


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("", 1.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
        ("-1", 1.0),
        ("999999", 1.0),
        ("nan", 1.0),
    ],
)
def test_a_429_carries_how_long_to_wait(header: str, seconds: float) -> None:
    error: Any = error_of(CALL, 429, b"", {"Retry-After": header})
    assert error.retry_after == seconds


def test_a_verb_has_its_method_and_a_create_goes_to_the_collection() -> None:
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    assert [Call(verb, CONFIG_MAPS).method for verb in verbs] == ["GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE"]
    assert Call("create", CONFIG_MAPS, "a", "b").path == "/api/v1/namespaces/a/configmaps"
    assert Call("update", CONFIG_MAPS, "a", "b").path == "/api/v1/namespaces/a/configmaps/b"
