"""Where a test gets a real service from: what the environment names, else what the cache holds, else not at all.

The one rule: a gap is never silent. What is missing raises ServiceMissingError, whose text says what and how to get it.

    with harness.kafka() as broker: ...             a broker of our own, from the cache
    with harness.kube(users=("reader",)) as api: ...

    TEST_KAFKA        host:port,... of a plain broker to use instead of our own
    TEST_KUBECONFIG   kubeconfig (with rights of an administrator) of a cluster to use instead
    TEST_REQUIRE_SERVICES  1: what is missing is a failure, not a skip (the gate sets it)

A service that a test stops, pauses or starts with other settings is always our own.
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from services import prepare
from services.collector import Collector
from services.kafkaserver import Kafka, KafkaEndpoint, KafkaTrio
from services.kubeserver import Kube, KubeEndpoint, endpoint_from
from services.processes import ServiceFailedError, ServiceMissingError, wait_until

__all__ = [
    "Collector",
    "Kafka",
    "KafkaEndpoint",
    "KafkaTrio",
    "Kube",
    "KubeEndpoint",
    "ServiceFailedError",
    "ServiceMissingError",
    "collector",
    "endpoint_from",
    "kafka",
    "kafka_from_environment",
    "kube",
    "kube_from_environment",
    "required",
    "wait_until",
]

KAFKA = "TEST_KAFKA"
KUBECONFIG = "TEST_KUBECONFIG"
REQUIRE = "TEST_REQUIRE_SERVICES"


def required() -> bool:
    """True when a missing service has to fail the run."""
    return os.environ.get(REQUIRE, "") not in ("", "0")


def kafka_from_environment() -> KafkaEndpoint | None:
    """The broker that the environment names, if it names one."""
    bootstrap = os.environ.get(KAFKA, "")
    return KafkaEndpoint(bootstrap) if bootstrap else None


def kube_from_environment(folder: Path) -> KubeEndpoint | None:
    """The cluster that the environment names, if it names one; `folder` takes its certificates."""
    kubeconfig = os.environ.get(KUBECONFIG, "")
    return endpoint_from(Path(kubeconfig), folder) if kubeconfig else None


def kafka(
    *, secured: bool = False, users: Mapping[str, str] | None = None, properties: Mapping[str, str] | None = None
) -> Kafka:
    """A broker of our own, not started yet: use it as a context manager. Raises ServiceMissingError."""
    return Kafka(_built("kafka") / "lib", _folder("kafka"), secured=secured, users=users, properties=properties)


def kafka_trio() -> KafkaTrio:
    """Three brokers of our own that are one Kafka: use it as a context manager. Raises ServiceMissingError."""
    return KafkaTrio(_built("kafka") / "lib", _folder("kafka"))


def kube(*, users: tuple[str, ...] = (), arguments: tuple[str, ...] = ()) -> Kube:
    """An API server of our own, not started yet: use it as a context manager. Raises ServiceMissingError."""
    return Kube(_built("kube"), _folder("kube"), users=users, arguments=arguments)


def collector() -> Collector:
    """An OpenTelemetry Collector of our own: use it as a context manager. Raises ServiceMissingError."""
    return Collector(_built("otelcol"), _folder("otelcol"))


def _built(name: str) -> Path:
    if why := prepare.why_missing(name):
        raise ServiceMissingError(f"{name}: {why}; get it with `make services`")
    return prepare.folder_of(name)


def _folder(name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"fault-agent-{name}-"))
