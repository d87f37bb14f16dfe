"""Kafka settings, resume tokens, wants of topics and foreign errors: everything of the adapter that needs no broker."""

import asyncio
import socket
import ssl
from dataclasses import replace
from typing import Any

import orjson
import pytest
from aiokafka import errors as kafka
from virtualtime import leap

from agent.adapters.kafka import KafkaReportLog, KafkaSettings, plan_of
from agent.adapters.kafka.errors import as_ours
from agent.adapters.kafka.places import Place, from_token, to_token
from agent.adapters.kafka.topics import Want, awake
from agent.domain.vocab import Millis
from agent.errors import AgentError, BadUsage, CannotRun, Refused, Unavailable

SASL = KafkaSettings("k:9093", security_protocol="SASL_SSL", username="ann", password="open sesame")

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no port number": ({"bootstrap_servers": "k:nine"}, "kafka.bootstrap_servers: 'k:nine' is not host:port"),
    "no host": ({"bootstrap_servers": ":9092"}, "kafka.bootstrap_servers"),
    "one of several": ({"bootstrap_servers": "k:9092,:1"}, "kafka.bootstrap_servers"),
    "port out of range": ({"bootstrap_servers": "k:70000"}, "kafka.bootstrap_servers"),
    "protocol": ({"security_protocol": "TLS"}, "kafka.security_protocol: 'TLS' is none of PLAINTEXT, SSL"),
    "mechanism": ({"sasl_mechanism": "GSSAPI"}, "kafka.sasl_mechanism: 'GSSAPI' is none of PLAIN"),
    "no user": ({"username": ""}, "kafka.username and kafka.password: both are needed for SASL_SSL"),
    "no password": ({"password": ""}, "kafka.username and kafka.password: both are needed for SASL_SSL"),
    "key without certificate": ({"key_file": "k.pem"}, "kafka.cert_file: is needed beside kafka.key_file"),
}


@pytest.mark.parametrize(("change", "said"), REFUSED.values(), ids=REFUSED)
def test_settings_that_cannot_work_are_refused_by_name(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadUsage) as caught:
        replace(SASL, **change)
    assert said in str(caught.value)


def test_the_password_is_shown_nowhere() -> None:
    assert "sesame" not in repr(SASL)
    assert "sesame" not in str(SASL)


def test_a_token_comes_back_as_it_was() -> None:
    places = {0: Place(2, 17, "ab", Millis(5)), 12: Place()}
    assert orjson.loads(to_token(places)) == {
        "0": {"generation": 2, "offset": 17, "digest": "ab", "time": 5},
        "12": {"generation": 0, "offset": 0, "digest": "", "time": 0},
    }
    assert from_token(to_token(places)) == places


@pytest.mark.parametrize(
    "token",
    [b"", b"{", b"null", b"[1]", b'{"a":{}}', b'{"0":1}', b'{"0":{"offset":1}}', b'{"0":{"generation":-1,"offset":1}}'],
    ids=repr,
)
def test_a_token_that_is_none_is_an_error_of_value(token: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_token(token)


WANTS: dict[str, tuple[Want, str, bool]] = {
    "same": (Want("is", "compact"), "compact", True),
    "more than that": (Want("is", "compact"), "compact,delete", False),
    "below the most": (Want("at most", "0.1"), "0.05", True),
    "above the most": (Want("at most", "0.1"), "0.5", False),
    "no limit where there must be one": (Want("at most", "600000"), "-1", False),
    "above the least": (Want("at least", "10"), "11", True),
    "below the least": (Want("at least", "10"), "9", False),
    "no limit": (Want("at least", "10"), "-1", True),
    "no number": (Want("at least", "10"), "many", False),
}


@pytest.mark.parametrize(("want", "value", "met"), WANTS.values(), ids=WANTS)
def test_a_want_is_met_or_not(want: Want, value: str, met: bool) -> None:
    assert want.is_met(value) is met


def test_the_plan_holds_what_a_compacted_checkpoint_needs() -> None:
    plan = plan_of(events="e", reports="r", audit="a", deadletter="d", event_partitions=6, report_partitions=12)
    assert [(one.name, one.partitions, one.may_grow) for one in plan] == [
        ("e", 6, True),
        ("r", 12, False),
        ("a", 1, True),
        ("d", 1, True),
    ]
    assert {name: want.value for name, want in plan[1].wants.items()} == {
        "cleanup.policy": "compact",
        "segment.bytes": "33554432",
        "max.compaction.lag.ms": "600000",
        "min.cleanable.dirty.ratio": "0.1",
        "max.message.bytes": "1327104",
    }
    assert {one.wants["cleanup.policy"].value for one in plan if one.name != "r"} == {"delete"}


def chained(outer: BaseException, inner: BaseException) -> BaseException:
    outer.__cause__ = inner
    return outer


ERRORS: dict[str, tuple[BaseException, type[AgentError], str]] = {
    "password": (kafka.SaslAuthenticationFailed("no"), CannotRun, "authentication failed for user ann"),
    "password inside": (
        chained(kafka.KafkaConnectionError("closed"), kafka.SaslAuthenticationFailed("no")),
        CannotRun,
        "authentication failed for user ann",
    ),
    "right on a topic": (
        kafka.TopicAuthorizationFailedError("t"),
        Refused,
        "give User:ann the operation Write on topic t",
    ),
    "right on the cluster": (
        kafka.ClusterAuthorizationFailedError(),
        Refused,
        "give User:ann the operation Write on topic t (before Kafka 2.8 also IdempotentWrite on the cluster)",
    ),
    "no topic": (kafka.UnknownTopicOrPartitionError(), CannotRun, "fault-agent topics create"),
    "too large": (kafka.MessageSizeTooLargeError(), Refused, "raise max.message.bytes of topic t"),
    "unknown host": (socket.gaierror(socket.EAI_NONAME, "not known"), CannotRun, "unknown host (not known)"),
    "names not answered": (socket.gaierror(socket.EAI_AGAIN, "later"), Unavailable, "unknown host (later)"),
    "nobody there": (ConnectionRefusedError(111, "refused"), Unavailable, "nobody listens there"),
    "closed": (ConnectionResetError(), Unavailable, "does that port speak TLS?"),
    "closed inside": (
        chained(kafka.KafkaConnectionError("closed"), asyncio.IncompleteReadError(b"", 4)),
        Unavailable,
        "the broker closed the connection",
    ),
    "no answer": (TimeoutError(), Unavailable, "no answer in time"),
    "no answer to a request": (kafka.RequestTimedOutError(), Unavailable, "no answer in time"),
    "no route": (OSError(113, "No route to host"), Unavailable, "No route to host"),
    "handshake": (ssl.SSLError(1, "alert"), CannotRun, "check kafka.cert_file"),
    "too few replicas": (kafka.NotEnoughReplicasError(), Unavailable, "NotEnoughReplicasError"),
    "anything": (kafka.KafkaError("odd"), Unavailable, "odd"),
}


@pytest.mark.parametrize(("error", "kind", "said"), ERRORS.values(), ids=ERRORS)
def test_a_foreign_error_becomes_ours_with_what_to_mend(
    error: BaseException, kind: type[AgentError], said: str
) -> None:
    ours = as_ours(error, SASL, "write to topic t", topic="t", operation="Write")
    assert type(ours) is kind
    assert str(ours).startswith("cannot write to topic t: ")
    assert said in str(ours)


def test_an_error_of_ours_stays_what_it_is() -> None:
    error = Refused("no")
    assert as_ours(error, SASL, "write") is error


@pytest.fixture
def silent_port() -> Any:
    """A port that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def opening(servers: str, within_s: float = 40.0) -> AgentError:
    settings = KafkaSettings(servers, connect_timeout_s=within_s, close_timeout_s=within_s)
    with pytest.raises(AgentError) as caught:
        await KafkaReportLog(settings, "t", 1).open()
    return caught.value


async def test_a_port_where_nobody_listens_is_unavailable() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        error = await opening(f"127.0.0.1:{port}")
    assert type(error) is Unavailable
    assert f"cannot connect to 127.0.0.1:{port}: nobody listens there" in str(error)


async def test_a_port_that_never_answers_is_given_up_in_time(silent_port: int) -> None:
    error = await opening(f"127.0.0.1:{silent_port}", within_s=0.5)
    assert type(error) is Unavailable
    assert "no answer" in str(error)


async def test_a_name_that_nobody_knows_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # how long a resolver takes over it is not ours
    error = await opening("kafka.invalid:9092")
    assert "unknown host" in str(error)
    assert "check kafka.bootstrap_servers" in str(error)


class Beginning:
    """As much of a Kafka client as is asked whether brokers are there: what each update of its metadata comes to."""

    def __init__(self, *updates: tuple[bool, set[int]]) -> None:
        self.cluster = self
        self._updates = list(updates)
        self._brokers: set[int] = set()

    async def force_metadata_update(self) -> bool:
        done, self._brokers = self._updates.pop(0) if len(self._updates) > 1 else self._updates[0]
        return done

    def brokers(self) -> set[int]:
        return self._brokers


async def test_a_broker_that_has_just_begun_is_waited_for_until_it_is_named() -> None:
    client: Any = Beginning((True, set()), (False, {1}), (True, {1}), (True, set()))
    await awake(client, 40.0)
    assert client.brokers() == {1}


async def test_a_cluster_that_names_no_broker_is_given_up_with_what_to_do() -> None:
    client: Any = Beginning((True, set()))
    waiting = asyncio.create_task(awake(client, 40.0))
    await asyncio.sleep(0)
    leap(40.0)
    with pytest.raises(Unavailable, match=r"names no broker that is there \(wait until a broker is up"):
        await waiting
