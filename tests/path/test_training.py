"""What our writes do to training, whatever else happens: the real coordinator, models of both readers, and the other
writers of the document in every order.

Three things must be true: in the end every pod trains, nobody is stopped without need, nothing of ours stays behind.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from readers import KILLED, RUNNING
from trainingsite import RANKS, Site

POD = st.sampled_from(sorted(RANKS))
REQUEST = "80BB8003"
CODES = ("80BB8003", "80CB8008", "81B38002", "80E24E00", "80E18402")
"""restart_request twice, restart, reset, and one that isolates."""


class Training(RuleBasedStateMachine):
    """Random stories of one job."""

    site: Site

    @initialize(external=st.booleans(), create=st.booleans(), lags=st.tuples(*[st.sampled_from([0, 3, 60])] * 2))
    def begin(self, external: bool, create: bool, lags: tuple[int, int]) -> None:
        self.site = Site(external, create, lags)
        self.site.advance(20)

    def teardown(self) -> None:
        if not hasattr(self, "site"):
            return
        try:
            self.site.settle()
            check_end(self.site)
        finally:
            self.site.close()

    # --- faults and time

    @rule(code=st.sampled_from(CODES), node=st.sampled_from(["n1", "n2"]), device=st.integers(0, 3))
    def fault(self, code: str, node: str, device: int) -> None:
        self.site.fault(code, node, device)

    @rule(code=st.sampled_from(CODES), node=st.sampled_from(["n1", "n2"]), device=st.integers(0, 3))
    def edge(self, code: str, node: str, device: int) -> None:
        self.site.fault(code, node, device, "once")

    @rule()
    def all_clear(self) -> None:
        self.site.clear()

    @rule(seconds=st.sampled_from([1, 5, 16, 31, 62, 95, 125]))
    def time(self, seconds: int) -> None:
        self.site.advance(seconds)

    # --- the coordinator

    @rule()
    def killed(self) -> None:
        self.site.stop()

    @rule(writes=st.one_of(st.none(), st.integers(1, 6)))
    def restarted(self, writes: int | None) -> None:
        self.site.start(writes)

    @rule()
    def released(self) -> None:
        self.site.release()

    # --- pods

    @rule(name=POD, seconds=st.sampled_from([0, 5, 40]), lag=st.sampled_from([0, 60]))
    def replaced(self, name: str, seconds: int, lag: int) -> None:
        self.site.lose(name)
        self.site.advance(seconds)
        self.site.replace(name, lag)

    @rule(seconds=st.sampled_from([0, 5, 40]))
    def all_replaced(self, seconds: int) -> None:
        for name in RANKS:
            self.site.lose(name)
        self.site.advance(seconds)
        for name in RANKS:
            self.site.replace(name)

    # --- other writers

    @rule(whole=st.booleans())
    def volcano_clears(self, whole: bool) -> None:
        if self.site.live is not None:
            self.site.volcano_rescheduled(whole=whole)

    @rule()
    def sub_healthy(self) -> None:
        """Volcano stops the workers, replaces the pods, and takes its word back."""
        site = self.site
        if site.live is None:
            return
        site.volcano_grace(1)
        site.advance(65)
        for name in RANKS:
            site.lose(name)
        site.advance(10)
        site.volcano_grace(0)
        for name in RANKS:
            site.replace(name)

    @rule(
        ranks=st.sampled_from([(0, 1, 2, 3), (4, 5, 6, 7), tuple(range(8))]),
        flushing=st.booleans(),
        again=st.booleans(),
        seconds=st.sampled_from([1, 10, 70]),
    )
    def process_recovery(self, ranks: tuple[int, ...], flushing: bool, again: bool, seconds: int) -> None:
        """ClusterD takes the list over, lists its faults, has the pods replaced, clears, and lets go."""
        site = self.site
        if site.live is None:
            return
        site.relabel(**{"process-recover-enable": "on"})
        if flushing:
            site.clusterd(FaultFlushing=True)
            site.advance(seconds)
        entries = [
            {
                "RankId": rank,
                "LogicId": 0,
                "Status": "fault",
                "Policy": "",
                "InitialPolicy": "",
                "ErrorCode": None,
                "ErrorCodeHex": "",
            }
            for rank in ranks
        ]
        site.clusterd(RankList=entries)
        site.advance(seconds)
        for name, held in RANKS.items():
            if set(held) & set(ranks):
                site.lose(name)
        site.advance(1)
        for name in RANKS:
            if name not in site.pods:
                site.replace(name)
        if again:
            site.clusterd(RetryTime=site.info().get("RetryTime", 0) + 1)
        else:
            site.clusterd()
        site.advance(seconds)
        site.relabel(**{"process-recover-enable": "off"})

    @precondition(lambda self: self.site.live is not None)
    @rule(seconds=st.sampled_from([1, 40]))
    def config_deleted_and_made_again(self, seconds: int) -> None:
        self.site.delete_config()
        self.site.advance(seconds)
        self.site.born()

    @invariant()
    def the_list_is_in_order(self) -> None:
        if hasattr(self, "site"):
            check_list(self.site.info())


def check_list(info: dict[str, Any]) -> None:
    """By RankId, no rank twice, every entry with a RankId."""
    ranks = [entry["RankId"] for entry in info.get("RankList") or []]
    assert ranks == sorted(set(ranks))


def check_end(site: Site) -> None:
    """Every pod trains, nothing of ours is left, and nobody was stopped without need."""
    story = "\n".join(site.story[-60:])
    assert site.dead() == [], story
    assert not site.info().get("RankList")
    assert site.ledger_courses() == 0
    for pod in site.pods.values():
        needless = site.needless(pod)
        assert len(needless) <= len(site.doubts), f"{pod.uid} stopped without need for {needless}\n{story}"
    assert site.taskd.errors == 0


TestTraining = Training.TestCase
TestTraining.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


# --- stories that once went wrong, and those that must go right -------------------------------------------------------


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site(lags=(0, 60))
    found.advance(20)
    yield found
    found.close()


def starts(site: Site) -> dict[str, tuple[int, int]]:
    """How often each pod's workers were started and stopped while they ran."""
    return {name: (pod.reader.starts, pod.reader.kills) for name, pod in sorted(site.pods.items())}


def test_one_recovery_stops_and_starts_every_pod_once_however_late_its_mount_is(site: Site) -> None:
    site.fault(REQUEST, "n1", 2)
    site.advance(20)
    site.clear()
    site.advance(400)
    assert (starts(site), site.taskd.restarts) == ({"demo-0": (2, 1), "demo-1": (2, 1)}, 1)
    check_end(site)


def test_two_equal_recoveries_in_a_row_stop_and_start_every_pod_twice(site: Site) -> None:
    for _ in range(2):
        site.fault(REQUEST, "n1", 2)
        site.advance(20)
        site.clear()
        site.advance(200)
    assert (starts(site), site.taskd.restarts) == ({"demo-0": (3, 2), "demo-1": (3, 2)}, 2)
    check_end(site)


def test_a_recovery_on_another_node_while_the_last_is_shown_recovered_restarts_once_more_and_not_twice() -> None:
    site = Site()
    site.advance(20)
    for node in ("n1", "n2"):
        site.fault(REQUEST, node, 2)
        site.advance(20)
        site.clear()
        site.advance(20)
    site.advance(400)
    assert (starts(site), site.taskd.restarts) == ({"demo-0": (3, 2), "demo-1": (3, 2)}, 2)
    check_end(site)
    site.close()


def test_a_failed_recovery_restarts_the_survivor_once_its_neighbour_is_replaced(site: Site) -> None:
    site.fault(REQUEST, "n1", 2)
    site.advance(90)
    site.lose("demo-0")
    site.advance(30)
    site.replace("demo-0")
    site.advance(400)
    assert site.states() == {"demo-0": RUNNING, "demo-1": RUNNING}
    assert starts(site)["demo-1"] == (2, 1)


@pytest.mark.parametrize("seconds", [5, 40, 130, 170], ids=["unrecovered", "failed", "failed still", "left"])
def test_a_scheduler_that_begins_anew_sets_retry_time_back_and_nobody_stays_dead(site: Site, seconds: int) -> None:
    site.volcano_rescheduled(whole=False)
    site.volcano_rescheduled(whole=False)
    site.advance(200)
    site.volcano_rescheduled(whole=True)
    assert site.info()["RetryTime"] == 0
    site.fault(REQUEST, "n1", 2)
    site.advance(seconds)
    site.volcano_rescheduled(whole=True)
    site.advance(500)
    assert site.states() == {"demo-0": RUNNING, "demo-1": RUNNING}
    assert site.info()["RetryTime"] == 3


def test_a_scheduler_that_begins_anew_while_recovered_is_shown_leaves_no_slow_pod_dead(site: Site) -> None:
    site.fault(REQUEST, "n1", 2)
    site.advance(20)
    site.clear()
    site.advance(5)
    site.volcano_rescheduled(whole=True)
    site.advance(400)
    assert site.states() == {"demo-0": RUNNING, "demo-1": RUNNING}


def test_volcano_s_clear_after_ours_is_the_last_word(site: Site) -> None:
    site.fault(REQUEST, "n1", 2)
    site.advance(10)
    site.lose("demo-0")
    site.replace("demo-0")
    site.advance(5)
    assert (site.info()["RankList"], site.info()["RetryTime"]) == ([], 1)
    site.volcano_rescheduled(whole=False)
    site.advance(500)
    assert (site.info()["RankList"], site.info()["RetryTime"]) == ([], 2)
    assert site.states() == {"demo-0": RUNNING, "demo-1": RUNNING}


def test_entries_erased_while_no_coordinator_knew_that_they_were_written_are_made_good() -> None:
    site = Site()
    site.advance(20)
    site.start(writes=3)
    site.fault(REQUEST, "n1", 2)
    assert site.coordinator is None
    assert {entry["Status"] for entry in site.info()["RankList"]} == {"unrecovered"}
    site.advance(20)
    assert site.states() == {"demo-0": KILLED, "demo-1": KILLED}
    site.clusterd()
    site.advance(400)
    assert site.states() == {"demo-0": KILLED, "demo-1": KILLED}
    site.start()
    site.clear()
    site.advance(400)
    assert site.states() == {"demo-0": RUNNING, "demo-1": RUNNING}
    check_end(site)
    site.close()


def test_a_config_that_is_deleted_and_made_again_gets_the_restart_that_the_workers_wait_for() -> None:
    site = Site(create=False)
    site.advance(20)
    site.fault(REQUEST, "n1", 2)
    site.advance(10)
    site.delete_config()
    site.advance(300)
    site.born()
    site.advance(200)
    assert site.states() == {"demo-0": RUNNING, "demo-1": RUNNING}
    assert (site.info()["RankList"], site.info()["RetryTime"]) == ([], 1)
    site.close()


@pytest.mark.parametrize("seconds", [5, 40, 100], ids=["unrecovered", "failed", "waiting for pods"])
@pytest.mark.parametrize("whole", [True, False], ids=["all pods", "one pod"])
def test_pods_replaced_in_the_middle_train_in_the_end(site: Site, seconds: int, whole: bool) -> None:
    site.fault(REQUEST, "n1", 2)
    site.advance(seconds)
    for name in RANKS if whole else ("demo-0",):
        site.lose(name)
    site.advance(20)
    for name in RANKS:
        if name not in site.pods:
            site.replace(name)
    site.advance(400)
    assert site.states() == {"demo-0": RUNNING, "demo-1": RUNNING}
    assert site.info()["RankList"] == []


@pytest.mark.parametrize("code", ["80818200", "8F180220", "80E18402", "81078603", "DEADBEEF"])
def test_no_pod_is_stopped_for_a_fault_that_needs_no_restart(site: Site, code: str) -> None:
    site.fault(code, "n1", 2)
    site.advance(400)
    assert (starts(site), site.taskd.restarts) == ({"demo-0": (1, 0), "demo-1": (1, 0)}, 0)
