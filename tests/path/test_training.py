"""What our writes do to training, whatever else happens: the real coordinator, models of both readers, and the other
writers of the document in every order.

Three things must be true: in the end every pod trains, nobody is stopped without need, nothing of ours stays behind.
"""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from trainingsite import RANKS, Site

POD = st.sampled_from(sorted(RANKS))
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
TestTraining.settings = settings(max_examples=60, stateful_step_count=14, deadline=None)


def test_json_is_what_the_readers_read() -> None:
    assert json.loads("{}") == {}
