"""Three brokers that are one Kafka, as a real cluster has them: one of them lost, then most of them.

The one rule: as in test_faults_outage; and what one broker's loss moves (leaders, the group's coordinator) is nobody's
business but the client's.

Three brokers are heavy for two cores, so only `make soak` runs these.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from outages import FOUR, REQUEST, SEPARATE, WELL, a_recovery, all_run, away, once_each, pass_time
from realcluster import OUTAGE_S, SOAK, RealCluster
from services import harness

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SOAK, reason="three brokers are for `make soak`"),
]


@pytest.fixture(scope="module")
def trio() -> Iterator[harness.KafkaTrio]:
    with harness.kafka_trio() as brokers:
        yield brokers


@pytest.fixture
def cluster(trio: harness.KafkaTrio, kube_server: harness.Kube, tmp_path: Path) -> Iterator[RealCluster]:
    made = RealCluster(trio.endpoint, kube_server, tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_every_broker_is_lost_once_and_nobody_waits_for_it(cluster: RealCluster, trio: harness.KafkaTrio) -> None:
    cluster.up("n1", "c1", "c2")
    for device, broker in enumerate(trio.brokers, 9):
        with away(broker.process.kill, broker.start):
            cluster.occur(SEPARATE, device)
            cluster.until(f"without {device}", lambda: cluster.shown(*[SEPARATE] * (device - 8)))  # noqa: B023  # now
            all_run(cluster)
    cluster.occur(REQUEST)
    a_recovery(cluster)
    assert set(cluster.reports()[-1].totals.values()) == {1}
    all_run(cluster)


def test_a_broker_is_lost_in_the_middle_of_a_recovery(cluster: RealCluster, trio: harness.KafkaTrio) -> None:
    cluster.up("n1", "c1")
    cluster.occur(REQUEST)
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    with away(trio.brokers[0].process.kill, trio.brokers[0].start):
        cluster.recover(REQUEST)
        cluster.until("R", lambda: cluster.statuses(*WELL, retry=1))
    once_each(cluster)
    all_run(cluster)


def test_with_one_of_three_nothing_is_acknowledged_and_nothing_lost(
    cluster: RealCluster, trio: harness.KafkaTrio
) -> None:
    cluster.up("n1", "c1")
    cluster.occur(SEPARATE, 9)
    cluster.until("before", lambda: cluster.shown(SEPARATE))
    first, second, _ = trio.brokers
    try:
        first.process.kill()
        second.process.kill()
        pass_time(OUTAGE_S)
        all_run(cluster)
        assert cluster.leader() == "c1"
    finally:
        for broker in (first, second):
            broker.launch()
        for broker in (first, second):
            broker.wait()
    cluster.occur(REQUEST)
    cluster.recover(SEPARATE, 9)
    a_recovery(cluster)
    cluster.until("nothing faulty", lambda: cluster.shown())
    all_run(cluster)
