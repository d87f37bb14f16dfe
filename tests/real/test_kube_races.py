"""Our three documents among other writers, on a real API server: seeded races, and what may have happened to an object.

The others write as their components do, with raw requests: no resourceVersion, no labels kept, a fresh struct.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from contended import NAMESPACES, RESET, VCJOB, Bench
from contracts.races import SOLE, Make, RacesContract, a_user_makes_reset_config, is_as_wanted
from kubebuilders import DEMO_GROUP, DEMO_JOB, UNSCHEDULED, a_group
from kubeclients import clear, client_of, make_namespace
from rivals import KubeHand, clusterd_writes, volcano_reschedules, volcano_saves
from services.harness import Kube

from agent.adapters.kube import KubeClient, KubeDocumentStore
from agent.app.bootstrap.evidence import read_picture
from agent.app.settings import settings_from
from agent.domain.vocab import Reason


@pytest.fixture
async def client(kube_server: Kube) -> AsyncIterator[KubeClient]:
    async with client_of(kube_server.endpoint) as made:
        yield made


@pytest.fixture
def hand(kube_server: Kube) -> KubeHand:
    return KubeHand(kube_server.endpoint)


@pytest.fixture
def make(client: KubeClient, kube_server: Kube, hand: KubeHand) -> Make:
    at = kube_server.endpoint

    async def made(seed: int = 0, **settings: Any) -> Bench:
        for namespace in NAMESPACES:
            await asyncio.to_thread(make_namespace, at, namespace)
            await asyncio.to_thread(clear, at, f"/api/v1/namespaces/{namespace}/configmaps")
        return Bench(KubeDocumentStore(client), hand, seed, **settings)

    return made


class TestRacesOnTheApiServer(RacesContract):
    @pytest.fixture
    def seeds(self) -> int:
        return 2


async def test_writers_that_do_not_wait_for_each_other_lose_nothing_of_each_other(make: Make, hand: KubeHand) -> None:
    """No turns: the others write as fast as the server answers, while we do."""
    bench = await make(1, **SOLE)
    await a_user_makes_reset_config(hand)
    async with bench:
        stop = asyncio.Event()

        async def fight() -> int:
            rounds = 0
            while not stop.is_set():
                theirs = {"remain-retry-times": '{"x/y":{"UUID":"u","Times":1}}', "fault-node": ""}
                await (await volcano_saves(hand, *VCJOB, theirs))()
                await (await volcano_reschedules(hand, *RESET, bench.now, pod_level=True))()
                await (await clusterd_writes(hand, *RESET, "restartAllProcess", bench.now))()
                rounds += 1
            return rounds

        task = asyncio.create_task(fight())
        for _ in range(5):
            bench.event("80C98000")
            await bench.settle_somehow()
            bench.event("80C98000", "recover")
            await bench.settle_somehow()
            await bench.wait(20)
        stop.set()
        assert await task > 5
        bench.event("80E18402")
        await bench.advance(700)
        assert bench.store.lost == []
        assert is_as_wanted(VCJOB, await bench.data(VCJOB))
        assert Reason.INTERNAL not in {one.reason for one in bench.told}
        assert not any(ledger.courses for ledger in bench.book.ledgers.values())


async def test_what_a_job_waits_for_is_read_from_the_server(make: Make, kube_server: Kube, tmp_path: Path) -> None:
    at = kube_server.endpoint
    await make()
    clear(at, "/apis/scheduling.volcano.sh/v1beta1/namespaces/train/podgroups")
    group = a_group(phase="Pending", labels={"fault-scheduling": "maybe"}, conditions=[UNSCHEDULED])
    for key in ("uid", "creationTimestamp"):
        group["metadata"].pop(key, None)
    assert at.request("POST", "/apis/scheduling.volcano.sh/v1beta1/namespaces/train/podgroups", group).status == 201
    conf = "tiers: [{plugins: [{name: volcano-npu_v7_linux-aarch64}]}]"
    config = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "volcano-scheduler-configmap"}}
    config["data"] = {"volcano-scheduler.conf": conf}
    assert at.request("POST", "/api/v1/namespaces/volcano-system/configmaps", config).status == 201
    settings = settings_from({"cluster": {"id": "c"}, "kubernetes": {"kubeconfig": str(at.kubeconfig)}}, "test")
    for namespace in ("train", ""):
        found = await asyncio.to_thread(read_picture, settings, namespace, lambda job: job == DEMO_JOB)
        (now,) = found.jobs
        assert now.job.name == DEMO_GROUP
        assert [one.reason for one in now.waits] == ["JobEnqueueFailed"]
        assert [str(one.code) for one in now.findings] == ["LABEL_BAD"]
        assert found.scheduler is not None
        assert found.scheduler.plugin == "volcano-npu_v7_linux-aarch64"
    clear(at, "/apis/scheduling.volcano.sh/v1beta1/namespaces/train/podgroups")
