"""What tests of lost services share: an outage's length, and what must hold after it.

The one rule: an outage lasts `realcluster.OUTAGE_S`; a service that a test has stopped runs again when its block ends.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubebuilders import DEMO_JOB
from realcluster import RealCluster, texts
from services import harness

SEPARATE, REQUEST = "80E18402", "80BB8003"
"""REQUEST may occur again and again: no frequency rule counts it."""
FOUR = ("unrecovered",) * 4
MEMORY_MB = 160
"""Half as much again as a coordinator takes when nothing has happened; a node role takes much less."""
WELL = ("recovered",) * 4


def pass_time(seconds: float) -> None:
    """An outage takes its time; nothing is waited for meanwhile."""
    end = time.monotonic() + seconds
    harness.wait_until("the outage", lambda: "" if time.monotonic() >= end else "not over", seconds=seconds + 5)


@contextmanager
def away(stop: Callable[[], None], start: Callable[[], None]) -> Iterator[None]:
    """Something is stopped for the length of the block."""
    stop()
    try:
        yield
    finally:
        start()


def all_run(cluster: RealCluster) -> None:
    """No process has ended, none would be ended by the kubelet, and none has kept what the outage piled up."""
    for name, process in cluster.processes.items():
        assert process.running, cluster.said(name)
        assert cluster.http(name, "/livez")[0] == 200
        assert "Traceback" not in cluster.said(name), cluster.said(name)
        assert cluster.memory_mb(name) < MEMORY_MB


def once_each(cluster: RealCluster) -> None:
    """No step of a recovery was told twice."""
    told = texts(cluster.reasons(), DEMO_JOB)
    assert told.count("RECOVERY_STARTED") == 1
    assert told.count("RECOVERY_SUCCEEDED") == 1


def a_recovery(cluster: RealCluster) -> None:
    """From its beginning to its end; it has 30 s of its own, so no outage lies within."""
    cluster.until("U", lambda: cluster.statuses(*FOUR, retry=0))
    cluster.recover(REQUEST)
    cluster.until("R", lambda: cluster.statuses(*WELL, retry=1))
    once_each(cluster)
