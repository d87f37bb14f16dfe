"""Errors of aiokafka, TLS and the system in the agent's words: what was met, where, and what a person can do.

The one rule: whoever reads only the message can mend it. User, topic and operation are named; a password never is.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from typing import Final

from aiokafka import errors as kafka
from aiokafka.conn import create_conn

from agent.adapters.kafka.settings import KafkaSettings, connection_arguments
from agent.errors import AgentError, CannotRun, Refused, Unavailable

CREATE_HINT: Final = "create it with `fault-agent topics create`"
__REJECTED: Final = (kafka.SaslAuthenticationFailed, kafka.AuthenticationFailedError, kafka.IllegalSaslStateError)
_REJECTED: Final = (kafka.SaslAuthenticationFailed, kafka.AuthenticationFailedError, kafka.IllegalSaslStateError)
FOREIGN: Final = (
    kafka.KafkaError,
    kafka.ConsumerStoppedError,
    kafka.IllegalOperation,
    OSError,
    ValueError,
    AssertionError,
)
"""What calls into aiokafka may raise; ValueError and AssertionError are how it reports a broken exchange."""


def as_ours(
    error: BaseException, settings: KafkaSettings, doing: str, *, topic: str = "", operation: str = ""
) -> AgentError:
    """The error in our words. `doing`: the sentence begun, "write to topic x"; `operation`: the right it takes."""
    if isinstance(error, AgentError):
        return error
    for cause in _causes(error):
        if (found := _denied(cause, settings, doing, topic, operation)) is not None:
            return found
        if (found := _unreachable(cause, settings, doing)) is not None:
            return found
    return Unavailable(f"cannot {doing}: {_text(error)}")


async def why_unreachable(settings: KafkaSettings) -> AgentError:
    """Why no bootstrap server lets us in: aiokafka only says that none did, so each is tried once more by hand.

    An answer that will not change by waiting (password, certificate, name) goes before one that may. Bounded by
    the connect time-out.
    """
    arguments = await connection_arguments(settings)
    first: AgentError | None = None
    try:
        async with asyncio.timeout(settings.connect_timeout_s):
            for host, port in settings.servers:
                found = await _try(settings, host, port, arguments)
                if not isinstance(found, Unavailable):
                    return found
                first = first or found
    except TimeoutError:
        pass
    return first or Unavailable(f"no answer from {settings.bootstrap_servers} within {settings.connect_timeout_s:g} s")


async def _try(settings: KafkaSettings, host: str, port: int, arguments: dict[str, object]) -> AgentError:
    try:
        connection = await create_conn(host, port, **arguments)
    except FOREIGN as error:
        return as_ours(error, settings, f"connect to {host}:{port}")
    connection.close()
    return Unavailable(f"{host}:{port} lets us in but does not answer for the cluster")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from, the innermost first: that is where the reason is."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    yield from reversed(chain)


def _denied(error: BaseException, settings: KafkaSettings, doing: str, topic: str, operation: str) -> AgentError | None:
    user = settings.username or ("the certificate's name" if settings.cert_file else "anonymous")
    if isinstance(error, _REJECTED):
        return CannotRun(
            f"cannot {doing}: authentication failed for user {user} ({settings.sasl_mechanism})",
            hint="check kafka.username, kafka.password and kafka.sasl_mechanism",
        )
    if isinstance(error, kafka.UnsupportedSaslMechanismError | kafka.AuthenticationMethodNotSupported):
        return CannotRun(
            f"cannot {doing}: the broker does not offer {settings.sasl_mechanism}", hint="check kafka.sasl_mechanism"
        )
    if isinstance(error, kafka.TopicAuthorizationFailedError):
        right = operation or "Describe"
        return Refused(
            f"cannot {doing}: user {user} has no right to it",
            hint=f"give User:{user} the operation {right} on topic {topic}",
        )
    if isinstance(error, kafka.ClusterAuthorizationFailedError):
        where = f"topic {topic} (before Kafka 2.8 also IdempotentWrite on the cluster)" if topic else "the cluster"
        return Refused(
            f"cannot {doing}: user {user} has no right to it",
            hint=f"give User:{user} the operation {operation or 'Describe'} on {where}",
        )
    if isinstance(error, kafka.UnknownTopicOrPartitionError):
        return CannotRun(f"cannot {doing}: there is no topic {topic}", hint=CREATE_HINT)
    if isinstance(error, kafka.MessageSizeTooLargeError | kafka.RecordListTooLargeError | kafka.RecordTooLargeError):
        return Refused(
            f"cannot {doing}: the message is larger than the topic takes",
            hint=f"raise max.message.bytes of topic {topic}; `fault-agent topics check` says to what",
        )
    return None


def _unreachable(error: BaseException, settings: KafkaSettings, doing: str) -> AgentError | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return CannotRun(
            f"cannot {doing}: the broker's certificate is not trusted: {getattr(error, 'verify_message', error)}",
            hint="check kafka.ca_file, and that the certificate is for this host name",
        )
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "reason", None) or error  # only what OpenSSL raised has one
        if reason == "WRONG_VERSION_NUMBER":
            return CannotRun(
                f"cannot {doing}: the broker does not speak TLS there",
                hint="check kafka.security_protocol and the port",
            )
        return CannotRun(
            f"cannot {doing}: no TLS connection: {reason}",
            hint="check kafka.cert_file, kafka.key_file and kafka.ca_file",
        )
    if isinstance(error, socket.gaierror):
        kind = Unavailable if error.errno == socket.EAI_AGAIN else CannotRun
        return kind(f"cannot {doing}: unknown host ({error.strerror})", hint="check kafka.bootstrap_servers")
    if isinstance(error, ConnectionRefusedError):
        return Unavailable(
            f"cannot {doing}: nobody listens there", hint="check kafka.bootstrap_servers, and that the broker runs"
        )
    if isinstance(error, TimeoutError | kafka.KafkaTimeoutError | kafka.RequestTimedOutError):
        return Unavailable(f"cannot {doing}: no answer in time")
    if isinstance(error, ConnectionError | asyncio.IncompleteReadError | EOFError):
        hint = f"if this goes on, does that port {'speak' if settings.has_tls else 'expect'} TLS? "
        hint += "check kafka.security_protocol and the port"
        return Unavailable(f"cannot {doing}: the broker closed the connection", hint=hint)
    if isinstance(error, OSError):
        return Unavailable(f"cannot {doing}: {error.strerror or error}")
    return None


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
