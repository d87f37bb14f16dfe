"""How to reach a Kafka cluster, and the arguments aiokafka's clients take for it.

The one rule: a setting that cannot work is refused here by name, before a socket is opened; no password is shown.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from aiokafka.conn import collect_hosts

from agent.errors import BadUsage

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """One cluster and one identity on it. Raises BadUsage for what cannot work together."""

    bootstrap_servers: str
    """`host:port`, several joined by commas."""
    security_protocol: Protocol = "PLAINTEXT"
    sasl_mechanism: Mechanism = "SCRAM-SHA-512"
    username: str = ""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    """PEM of the authorities that are trusted; empty: those of the system."""
    cert_file: str = ""
    """PEM of the client's own certificate, for mutual TLS."""
    key_file: str = ""
    """PEM of its key, without a password; empty: it is in `cert_file`."""
    client_id: str = "fault-agent"
    connect_timeout_s: float = 5.0
    """For all of finding the cluster and being let in."""
    request_timeout_s: float = 10.0
    """For one answer of a broker."""
    close_timeout_s: float = 2.0
    """For letting go of a client; after that its connections are cut."""

    def __post_init__(self) -> None:
        if self.security_protocol not in _PROTOCOLS:
            raise BadUsage(f"kafka.security_protocol: {self.security_protocol!r} is none of {', '.join(_PROTOCOLS)}")
        if self.has_sasl and self.sasl_mechanism not in _MECHANISMS:
            raise BadUsage(f"kafka.sasl_mechanism: {self.sasl_mechanism!r} is none of {', '.join(_MECHANISMS)}")
        if self.has_sasl and not (self.username and self.password):
            raise BadUsage(f"kafka.username and kafka.password: both are needed for {self.security_protocol}")
        if self.key_file and not self.cert_file:
            raise BadUsage("kafka.cert_file: is needed beside kafka.key_file")
        try:
            hosts = collect_hosts(self.bootstrap_servers)
        except ValueError as error:
            raise BadUsage(f"kafka.bootstrap_servers: {self.bootstrap_servers!r} is not host:port[,…]") from error
        if not all(host and 0 < port < 65536 for host, port, _ in hosts):
            raise BadUsage(f"kafka.bootstrap_servers: {self.bootstrap_servers!r} is not host:port[,…]")

    @property
    def has_sasl(self) -> bool:
        """Whether a user name and a password are sent."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted and the broker shows a certificate."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def servers(self) -> list[tuple[str, int]]:
        """Host and port of each bootstrap server, as given."""
        return [(host, port) for host, port, _ in collect_hosts(self.bootstrap_servers, randomize=False)]


async def connection_arguments(settings: KafkaSettings) -> dict[str, Any]:
    """What every connection is made with, certificates read anew. Raises BadUsage for a file that cannot be used."""
    arguments: dict[str, Any] = {
        "client_id": settings.client_id,
        "request_timeout_ms": int(settings.request_timeout_s * 1000),
        "security_protocol": settings.security_protocol,
    }
    if settings.has_sasl:
        arguments |= {
            "sasl_mechanism": settings.sasl_mechanism,
            "sasl_plain_username": settings.username,
            "sasl_plain_password": settings.password,
        }
    if settings.has_tls:
        arguments["ssl_context"] = await asyncio.to_thread(_ssl_context, settings)
    return arguments


async def client_arguments(settings: KafkaSettings) -> Mapping[str, Any]:
    """What every client of the cluster is made with. Raises BadUsage for a file that cannot be used."""
    return {"bootstrap_servers": settings.bootstrap_servers, **await connection_arguments(settings)}


def _ssl_context(settings: KafkaSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
    except OSError as error:
        raise BadUsage(f"kafka.ca_file: {settings.ca_file}: {_reason(settings.ca_file, error)}") from error
    if settings.cert_file:
        try:
            # A key with a password would otherwise be asked for on the terminal.
            context.load_cert_chain(settings.cert_file, settings.key_file or None, password=lambda: "")
        except (OSError, ValueError) as error:
            files = " and ".join(name for name in (settings.cert_file, settings.key_file) if name)
            reason = _reason(settings.cert_file, error) or _reason(settings.key_file, error)
            raise BadUsage(f"kafka.cert_file and kafka.key_file: {files}: {reason}") from error
    return context


def _reason(name: str, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file" if not Path(name).exists() else ""
    if isinstance(error, ssl.SSLError):
        return f"not a PEM file that can be used ({getattr(error, 'reason', None) or error})"
    return str(error)
