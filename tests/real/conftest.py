"""Real services for the tests of this folder: one of each for the whole run, started when first asked for.

The one rule: a test that stops, pauses or changes a service leaves it running and ready, or starts one of its own.

`kafka` and `kube` are endpoints (those of the environment, if it names any); `kafka_server`, `kafka_secured` and
`kube_server` are servers of our own that a test may restart.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from realcluster import RealCluster
from services import harness

T = TypeVar("T")
HERE = Path(__file__).parent
NOT_RUN = "not run for want of "
LINES_TOLD = 40
"""Of each failure that was tried again: on a quiet machine it is a defect all the same."""
START_TIMEOUT_S = 240
"""For a test that may have to start services first, on a machine that is busy."""

USERS = {"writer": "w-secret", "guarded": "g-secret", "stranger": "s-secret"}
"""Users of the secured broker with their passwords; rights are given by the tests, to `guarded` by one test alone."""

KUBE_USERS = ("reader", "stranger")
"""Named users of the API server; rights are given by the tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(START_TIMEOUT_S))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []) if report.longrepr]
    missing = Counter(reason.split(NOT_RUN, 1)[1] for reason in reasons if NOT_RUN in reason)
    for service, tests in sorted(missing.items()):
        terminalreporter.write_line(
            f"NOT RUN: {tests} test{'s' * (tests > 1)}, for want of {service}", yellow=True, bold=True
        )
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.write_sep("-", f"tried again: {report.nodeid}", yellow=True)
        terminalreporter.write_line(_why(report))


def _why(report: pytest.TestReport) -> str:
    """The last lines of a failure that was tried again: what it came to, without the way there."""
    return "\n".join(report.longreprtext.splitlines()[-LINES_TOLD:])


def _there(get: Callable[[], T]) -> T:
    try:
        return get()
    except harness.ServiceMissingError as missing:
        why = f"{NOT_RUN}{missing}"
    if harness.required():
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[harness.Kafka]:
    """A plain broker of our own."""
    with _there(harness.kafka) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_secured() -> Iterator[harness.Kafka]:
    """A broker of our own with SASL_SSL, mutual TLS and ACLs; USERS have no rights but those a test gives."""
    with _there(lambda: harness.kafka(secured=True, users=USERS)) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> harness.KafkaEndpoint:
    """A plain broker."""
    if given := harness.kafka_from_environment():
        return given
    server: harness.Kafka = request.getfixturevalue("kafka_server")
    return server.endpoint


@pytest.fixture(scope="session")
def kube_server() -> Iterator[harness.Kube]:
    """An API server of our own with the PodGroup CRD; KUBE_USERS have no rights but those a test gives."""
    with _there(lambda: harness.kube(users=KUBE_USERS)) as server:
        yield server


@pytest.fixture
def cluster(kafka_server: harness.Kafka, kube_server: harness.Kube, tmp_path: Path) -> Iterator[RealCluster]:
    """Topics, roles and a demo job of this test alone, on the servers of all."""
    made = RealCluster(kafka_server.endpoint, kube_server, tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def kube(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> harness.KubeEndpoint:
    """An API server, as administrator."""
    if given := harness.kube_from_environment(tmp_path_factory.mktemp("kubeconfig")):
        return given
    server: harness.Kube = request.getfixturevalue("kube_server")
    return server.endpoint


@pytest.fixture(scope="session")
def collector() -> Iterator[harness.Collector]:
    """An OpenTelemetry Collector that shows what it got."""
    with _there(harness.collector) as server:
        yield server
