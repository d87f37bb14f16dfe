"""Ledgers in the document store: fenced by another writer, frozen when unreadable, never overwritten unread."""

from dataclasses import replace

import pytest
from kubebuilders import DEMO_GROUP, DEMO_JOB, a_pod, the_demo
from rig import Disk, Rig

from agent.adapters.memory import MemoryDocumentStore
from agent.app.ledgers import Ledgers
from agent.domain.cluster import ClusterBook, Limits
from agent.domain.events import Decision
from agent.domain.ledger import ClusterLedger, JobLedger
from agent.domain.vocab import JobId, Millis, Reason
from agent.errors import Conflict, Fenced, Refused, Unavailable
from agent.ports import ConfigMap

JOB = JobId(DEMO_JOB)
NAME = ("train", f"fault-agent-job-{DEMO_GROUP}")
CLUSTER = ("fault-agent", "fault-agent-cluster")
LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
REQUEST = "80C98000"


def book() -> ClusterBook:
    return ClusterBook("solo", Limits())


async def loaded(store: MemoryDocumentStore, into: ClusterBook) -> tuple[Ledgers, list[Decision]]:
    ledgers = Ledgers(store, "fault-agent")
    told: list[Decision] = []
    await ledgers.load(into, Millis(1), told.append)
    return ledgers, told


def change(into: ClusterBook, number: int) -> None:
    into.ledgers[JOB] = JobLedger(JOB, "solo", last_recovery=number)
    into.dirty.add(JOB)


async def test_what_was_stored_is_loaded() -> None:
    store = MemoryDocumentStore()
    first = book()
    ledgers, _ = await loaded(store, first)
    change(first, 3)
    first.cluster = replace(first.cluster, act_since=Millis(5))
    await ledgers.store(first)
    second = book()
    _, told = await loaded(store, second)
    assert told == []
    assert second.ledgers == {JOB: JobLedger(JOB, "solo", last_recovery=3)}
    assert second.cluster == ClusterLedger("solo", act_since=Millis(5))


async def test_a_book_without_changes_writes_nothing() -> None:
    store = MemoryDocumentStore()
    only = book()
    ledgers, _ = await loaded(store, only)
    await ledgers.store(only)
    assert list(await store.list()) == []


async def test_another_writer_fences_this_one() -> None:
    store = MemoryDocumentStore()
    first, second = book(), book()
    one, _ = await loaded(store, first)
    change(first, 1)
    await one.store(first)
    two, _ = await loaded(store, second)
    change(second, 2)
    await two.store(second)
    change(first, 3)
    with pytest.raises(Fenced, match="was changed by another writer"):
        await one.store(first)


async def test_another_writer_that_made_the_ledger_first_fences_too() -> None:
    store = MemoryDocumentStore()
    first = book()
    one, _ = await loaded(store, first)
    await store.as_manager("other").put(ConfigMap(*NAME, {"ledger.json": "{}"}))
    change(first, 1)
    with pytest.raises(Fenced):
        await one.store(first)


async def test_a_deletion_against_another_writer_fences_and_is_not_forgotten() -> None:
    store = MemoryDocumentStore()
    first = book()
    one, _ = await loaded(store, first)
    change(first, 1)
    await one.store(first)
    live = await store.get(*NAME)
    assert live is not None
    await store.as_manager("other").put(replace(live, data={"ledger.json": "{}"}))
    del first.ledgers[JOB]
    for _ in range(2):
        first.dirty.add(JOB)
        with pytest.raises(Fenced):
            await one.store(first)


async def test_a_write_whose_answer_got_lost_is_ours() -> None:
    store = MemoryDocumentStore()
    first = book()
    one, _ = await loaded(store, first)
    change(first, 1)
    await one.store(first)
    for number in (2, 3):
        change(first, number)
        store.failures.lose_answer(Unavailable("the answer got lost"))
        with pytest.raises(Unavailable):
            await one.store(first)
        assert first.dirty == {JOB}
    change(first, 4)
    await one.store(first)
    live = await store.get(*NAME)
    assert live is not None
    assert '"last_recovery":4' in live.data["ledger.json"]


async def test_a_write_that_did_not_happen_is_made_again() -> None:
    store = MemoryDocumentStore()
    first = book()
    one, _ = await loaded(store, first)
    change(first, 1)
    store.failures.fail_next(Unavailable("away"))
    with pytest.raises(Unavailable):
        await one.store(first)
    await one.store(first)
    assert first.dirty == set()


BAD = {
    "no JSON": "{",
    "no object": "[]",
    "other schema": '{"schema":2}',
    "no schema": "{}",
    "missing key": '{"schema":1,"cluster":"solo"}',
    "wrong type": f'{{"schema":1,"job":"{DEMO_JOB}","cluster":"solo","done":7}}',
    "other cluster": f'{{"schema":1,"job":"{DEMO_JOB}","cluster":"other"}}',
    "other job": '{"schema":1,"job":"train/elsewhere","cluster":"solo"}',
    "empty": "",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
async def test_an_unreadable_ledger_freezes_its_job_and_is_never_overwritten(text: str) -> None:
    disk = Disk(store=MemoryDocumentStore([ConfigMap(*NAME, {"ledger.json": text})]))
    rig = Rig(the_demo(LABELS), disk=disk)
    rig.fault(REQUEST)
    rig.delete("Pod", "train", "demo-0", 10)
    rig.apply(a_pod("demo-0", uid="uid-2", labels=LABELS), 20)
    rig.tick(600)
    await rig.run()
    assert await rig.data("/".join(NAME)) == {"ledger.json": text}
    assert await rig.data("train/reset-config-demo") is None
    told = [one for one in rig.decisions if one.reason is Reason.LEDGER_UNREADABLE]
    assert [one.document for one in told] == ["/".join(NAME)]
    assert "restore it, or delete it" in told[0].detail or "cluster.id" in told[0].detail


async def test_a_frozen_job_keeps_its_remaining_retries_in_the_document() -> None:
    text = f'{{"{DEMO_JOB}":{{"UUID":"u","Times":2}}}}'
    documents = [
        ConfigMap(*NAME, {"ledger.json": "{"}),
        ConfigMap("volcano-system", "vcjob-fault-npu-cm", {"fault-node": "", "remain-retry-times": text}),
    ]
    rig = Rig(the_demo(LABELS), disk=Disk(store=MemoryDocumentStore(documents)))
    rig.fault("80E18402")
    await rig.run()
    data = await rig.data("volcano-system/vcjob-fault-npu-cm")
    assert data is not None
    assert data["remain-retry-times"] == text


@pytest.mark.parametrize("text", ["{", '{"schema":1,"cluster":"other"}'], ids=["no JSON", "other cluster"])
async def test_an_unreadable_cluster_ledger_stays_as_it_is_and_the_rest_goes_on(text: str) -> None:
    rig = Rig(the_demo(LABELS), disk=Disk(store=MemoryDocumentStore([ConfigMap(*CLUSTER, {"ledger.json": text})])))
    rig.fault(REQUEST, 1)
    rig.tick(2)
    await rig.run()
    assert await rig.data("/".join(CLUSTER)) == {"ledger.json": text}
    assert Reason.RECOVERY_STARTED in [one.reason for one in rig.decisions]


async def test_a_conflict_is_never_taken_for_our_own_when_others_wrote_something_else() -> None:
    store = MemoryDocumentStore()
    first = book()
    one, _ = await loaded(store, first)
    change(first, 1)
    await one.store(first)
    store.failures.fail_next(Conflict("lost the race"))
    change(first, 2)
    with pytest.raises(Fenced):
        await one.store(first)


class Narrow:
    """A store that refuses the cluster's ledger while it is `full`."""

    def __init__(self) -> None:
        self.inner = MemoryDocumentStore()
        self.full = False
        self.tries = 0
        self.get, self.list, self.delete, self.watch = (
            self.inner.get,
            self.inner.list,
            self.inner.delete,
            self.inner.watch,
        )

    async def put(self, document: ConfigMap) -> ConfigMap:
        if (document.namespace, document.name) == CLUSTER:
            self.tries += 1
            if self.full:
                raise Refused("too large: 1,100,000 bytes")
        return await self.inner.put(document)


async def test_a_cluster_ledger_that_is_refused_holds_up_no_job_and_is_tried_again_when_asked() -> None:
    store, only = Narrow(), book()
    ledgers = Ledgers(store, "fault-agent")
    await ledgers.load(only, Millis(1), lambda _: None)
    only.cluster = replace(only.cluster, act_since=Millis(5))
    await ledgers.store(only)
    store.full = True
    only.cluster = replace(only.cluster, act_since=Millis(6))
    change(only, 3)
    assert await ledgers.store(only) == [("", "fault-agent/fault-agent-cluster", "too large: 1,100,000 bytes")]
    assert only.dirty == set()
    assert await store.get(*NAME) is not None
    change(only, 4)
    assert await ledgers.store(only) == []  # said once, and not asked for with every step
    assert store.tries == 2
    await ledgers.try_again(only)
    assert (store.tries, ledgers.cluster_refused) == (3, True)
    store.full = False
    await ledgers.try_again(only)
    assert ledgers.cluster_refused is False
    again = book()
    await loaded(store.inner, again)
    assert again.cluster.act_since == 6


async def test_a_term_that_cannot_be_written_begins_nothing() -> None:
    store, only = Narrow(), book()
    ledgers = Ledgers(store, "fault-agent")
    await ledgers.load(only, Millis(1), lambda _: None)
    store.full = True
    only.cluster = replace(only.cluster, term=2)
    with pytest.raises(Refused):
        await ledgers.store(only)
