"""Letting go: our entries leave and workers are told to start, what others are judged by stays; twice is once."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from kubebuilders import DEMO_JOB, DEMO_UID, a_config_map, the_demo
from rig import T0, Disk, Rig, WatchedStore
from virtualtime import VirtualTime

from agent.adapters.memory import MemoryDocumentStore
from agent.adapters.memorylease import MemoryLease
from agent.adapters.overlay import OverlayStore
from agent.app.bootstrap.common import if_acting
from agent.app.lease import Election, Elector
from agent.app.release import Letting, Released, is_job, jobs_named, release, while_leading
from agent.app.settings import settings_from
from agent.domain.events import Decision
from agent.domain.lease import LeaseTimes
from agent.domain.ledger import JobLedger
from agent.domain.vocab import JobId, Millis, Reason
from agent.errors import BadUsage, CannotRun, Fenced, Refused
from agent.ports import ConfigMap, DocumentStore
from agent.wire.ledgerfile import LEDGER_KEY

LABELS = {"fault-scheduling": "grace", "fault-retry-times": "3", "framework": "mindspore"}
SEPARATE, REQUEST = "80E18402", "80C98000"
RESET, VCJOB = "train/reset-config-demo", "volcano-system/vcjob-fault-npu-cm"
NOW = Millis(T0 + 60_000)


async def stopped() -> Rig:
    """A recovery in which our entries have stopped the workers of job `demo`."""
    rig = Rig(the_demo(LABELS))
    rig.fault(REQUEST)
    await rig.run()
    assert [one["Status"] for one in (await reset_json(rig))["RankList"]] == ["unrecovered"] * 4
    return rig


async def reset_json(rig: Rig) -> dict[str, Any]:
    data = await rig.data(RESET)
    assert data is not None
    found: dict[str, Any] = json.loads(data["reset.json"])
    return found


async def let_go_of(
    rig: Rig,
    names: tuple[str, ...] | None = None,
    *,
    store: DocumentStore | None = None,
    term: int | None = None,
    told: list[Decision] | None = None,
) -> list[Released]:
    _, wishes = if_acting(settings_from(rig.settings, "test"), solo=True)
    said: list[Decision] = [] if told is None else told

    async def flush() -> None:
        """The test keeps what was told."""

    letting = Letting(store or rig.disk.store, "fault-agent", wishes, said.append, flush)
    return await release(letting, rig.book, names, NOW, term)


def of(found: list[Released], document: str) -> Released:
    return next(one for one in found if one.document == document)


@pytest.mark.parametrize("names", [None, (DEMO_JOB,), ("train/demo",)])
async def test_entries_leave_and_workers_that_they_stopped_are_told_to_start(names: tuple[str, ...] | None) -> None:
    rig = await stopped()
    told: list[Decision] = []
    found = await let_go_of(rig, names, told=told)
    left = await reset_json(rig)
    assert (left["RankList"], left["RetryTime"]) == ([], 1)
    assert (of(found, RESET).reason, of(found, RESET).changed, of(found, RESET).job) == (
        Reason.WRITTEN,
        True,
        DEMO_JOB,
    )
    assert Reason.WRITTEN in [one.reason for one in told if one.document == RESET]
    again = await let_go_of(rig, names)
    assert [one for one in again if one.changed] == []
    assert (await reset_json(rig))["RetryTime"] == 1, "a second restart would be one too many"


async def test_what_others_are_judged_by_stays_as_it_stands() -> None:
    rig = await stopped()
    before = await rig.data(VCJOB)
    assert before is not None
    assert json.loads(before["remain-retry-times"]) == {DEMO_JOB: {"UUID": DEMO_UID, "Times": 3}}
    found = await let_go_of(rig)
    live = await rig.disk.store.get(*VCJOB.split("/"))
    assert live is not None
    assert (live.data, live.annotations) == (before, {})
    assert of(found, VCJOB).changed
    assert "a waiting job that is not in the map fails" in of(found, VCJOB).detail
    live = await rig.disk.store.get(*VCJOB.split("/"))
    assert live is not None
    assert live.annotations == {}


async def test_the_shared_documents_are_kept_when_single_jobs_are_released() -> None:
    rig = await stopped()
    found = await let_go_of(rig, (DEMO_JOB,))
    assert [one.document for one in found] == [RESET]
    live = await rig.disk.store.get(*VCJOB.split("/"))
    assert live is not None
    assert live.annotations["fault-agent/cluster"] == "solo"


async def test_a_dry_run_says_the_same_and_writes_nothing() -> None:
    rig = await stopped()
    before = await rig.disk.store.list()
    shadow = OverlayStore(MemoryDocumentStore(manager="fault-agent"), rig.disk.store)
    dry = await let_go_of(rig, store=shadow)
    assert await rig.disk.store.list() == before
    assert await let_go_of(rig) == dry


async def test_after_all_was_released_nothing_older_is_acted_on_and_after_one_job_it_is_as_before() -> None:
    rig = await stopped()
    await let_go_of(rig, (DEMO_JOB,))
    assert await act_since(rig) == T0
    await let_go_of(rig)
    assert await act_since(rig) is None
    again = Rig(the_demo(LABELS), disk=rig.disk)
    again.tick(120)
    await again.run()
    assert (await reset_json(again))["RankList"] == []
    assert Reason.RECOVERY_STARTED not in [one.reason for one in again.decisions]


async def act_since(rig: Rig) -> int | None:
    data = await rig.data("fault-agent/fault-agent-cluster")
    assert data is not None
    found: int | None = json.loads(data[LEDGER_KEY]).get("act_since")
    return found


async def test_entries_that_no_ledger_knows_leave_too() -> None:
    first = await stopped()
    reset = await first.disk.store.get(*RESET.split("/"))
    assert reset is not None
    rig = Rig(the_demo(LABELS), disk=Disk(store=MemoryDocumentStore([replace(reset, managers=())])))
    rig.build()
    rig.world.replace(the_demo(LABELS), ())
    await let_go_of(rig, (DEMO_JOB,))
    left = await reset_json(rig)
    assert (left["RankList"], left["RetryTime"]) == ([], 1)


async def test_a_document_that_cannot_be_read_is_told_and_left_alone() -> None:
    rig = await stopped()
    live = await rig.disk.store.get(*RESET.split("/"))
    assert live is not None
    await rig.disk.store.put(replace(live, data={"reset.json": "{"}))
    found = await let_go_of(rig)
    assert of(found, RESET).reason is Reason.DOCUMENT_UNREADABLE
    assert await rig.data(RESET) == {"reset.json": "{"}


async def test_a_ledger_that_cannot_be_read_is_told_and_its_job_left_alone() -> None:
    rig = await stopped()
    name = f"fault-agent-job-{DEMO_JOB.partition('/')[2]}"
    ledger = await rig.disk.store.get("train", name)
    assert ledger is not None
    await rig.disk.store.put(replace(ledger, data={LEDGER_KEY: "{"}))
    before = await reset_json(rig)
    for names in (None, (DEMO_JOB,)):
        found = await let_go_of(rig, names)
        assert of(found, f"train/{name}").reason is Reason.LEDGER_UNREADABLE
        assert await reset_json(rig) == before


async def test_a_document_of_another_cluster_s_agent_is_left_alone() -> None:
    rig = await stopped()
    live = await rig.disk.store.get(*RESET.split("/"))
    assert live is not None
    await rig.disk.store.put(replace(live, annotations={"fault-agent/cluster": "west"}))
    before = await reset_json(rig)
    found = await let_go_of(rig)
    assert of(found, RESET).reason is Reason.FOREIGN_WRITER_LIVE
    assert await reset_json(rig) == before


async def test_an_unknown_job_is_wrong_use_and_the_known_ones_are_named() -> None:
    rig = await stopped()
    with pytest.raises(BadUsage, match=r"no job train/other is known here \(known: train/demo\)$"):
        await let_go_of(rig, ("train/other",))
    for name in ("train/demo", "demo", DEMO_JOB, DEMO_JOB.partition("/")[2]):
        assert jobs_named(rig.book, [name]) == {DEMO_JOB}


async def test_a_bare_name_that_several_namespaces_have_is_wrong_use_and_they_are_named() -> None:
    rig = await stopped()
    other = JobId("west/demo")
    rig.book.ledgers[other] = JobLedger(other, rig.book.cluster_id)
    with pytest.raises(BadUsage, match=r"job demo is in several namespaces.*one of train/demo, west/demo"):
        jobs_named(rig.book, ["demo"])
    assert jobs_named(rig.book, ["west/demo"]) == {other}


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("train/demo-uid-1", True),
        ("demo-uid-1", True),
        ("train/demo", True),
        ("demo", True),
        ("dem", False),
        ("", False),
    ],
)
def test_a_job_is_meant_by_its_names_with_and_without_namespace_and_uid(asked: str, meant: bool) -> None:
    assert is_job("train/demo-uid-1", asked) is meant


async def test_a_later_term_fences_and_this_one_is_kept() -> None:
    rig = await stopped()
    await let_go_of(rig, term=7)
    data = await rig.data("fault-agent/fault-agent-cluster")
    assert data is not None
    assert json.loads(data[LEDGER_KEY])["term"] == 7
    with pytest.raises(Fenced):
        await let_go_of(rig, term=6)


class Refusing(WatchedStore):
    """A store that takes no document of this name."""

    name = ""

    async def put(self, document: ConfigMap) -> ConfigMap:
        if document.name == self.name:
            raise Refused(f"{document.name}: no right")
        return await super().put(document)


async def test_what_cannot_be_kept_in_the_job_s_ledger_is_not_done_and_told() -> None:
    rig = await stopped()
    before = await reset_json(rig)
    store = Refusing(rig.disk.store)
    store.name = f"fault-agent-job-{DEMO_JOB.partition('/')[2]}"
    found = await let_go_of(rig, store=store)
    assert of(found, f"train/{store.name}").reason is Reason.DOCUMENT_REFUSED
    assert RESET not in [one.document for one in found]
    assert await reset_json(rig) == before
    live = await rig.disk.store.get(*RESET.split("/"))
    assert live is not None
    assert live.annotations == {"fault-agent/cluster": "solo"}


async def test_a_cluster_s_ledger_that_is_refused_is_told_and_holds_up_no_job() -> None:
    rig = await stopped()
    store = Refusing(rig.disk.store)
    store.name = "fault-agent-cluster"
    found = await let_go_of(rig, store=store)
    assert of(found, "fault-agent/fault-agent-cluster").reason is Reason.DOCUMENT_REFUSED
    assert (await reset_json(rig))["RankList"] == []


# --- under the lease ---------------------------------------------------------------------------------------------

TIMES = LeaseTimes(duration=15.0, renew_every=2.0, look_every=1.0, guard=3.0, request=4.0)


class Candidate:
    """One process on a lease, in virtual time."""

    def __init__(self, name: str, lease: MemoryLease, time: VirtualTime) -> None:
        self.time = time
        self.heard: list[Election] = []
        self.elector = Elector(
            lease,
            name,
            TIMES,
            clock=time.clock,
            sleep=time.sleep,
            now=lambda: Millis(int(time.now * 1000)),
            tell=self.heard.append,
        )

    async def while_leading(self, work: Callable[[int], Awaitable[None]]) -> None:
        async def wait(begun: asyncio.Event) -> bool:
            await self.time.sleep(18.0)
            return begun.is_set()

        await while_leading(self.elector.lead, work, wait, lambda: self.heard[-1].detail)


async def for_ever(_term: int) -> None:
    await asyncio.Event().wait()


async def test_with_nobody_leading_it_is_done_under_the_lease_which_is_given_back() -> None:
    lease, time = MemoryLease(), VirtualTime()
    terms: list[int] = []
    me = Candidate("release", lease, time)

    async def work(term: int) -> None:
        assert me.elector.is_leader()
        terms.append(term)

    await me.while_leading(work)
    assert terms == [1]
    assert (await lease.read(1.0)).holder == ""


async def test_while_a_coordinator_leads_it_is_refused_and_nothing_is_done() -> None:
    lease, time = MemoryLease(), VirtualTime()
    leader = Candidate("coordinator-0", lease, time)
    leading = asyncio.create_task(leader.elector.lead(for_ever))
    await time.settle()
    me = Candidate("release", lease.another(), time)
    terms: list[int] = []

    async def work(term: int) -> None:
        terms.append(term)

    trying = asyncio.create_task(me.while_leading(work))
    await time.advance(20.0)
    with pytest.raises(CannotRun, match="a coordinator leads: coordinator-0"):
        await trying
    assert terms == []
    assert (await lease.read(1.0)).holder == "coordinator-0"
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)


async def test_a_dead_leader_is_waited_for_no_longer_than_its_lease_lasts() -> None:
    lease, time = MemoryLease(), VirtualTime()
    read = await lease.read(1.0)
    await lease.write(replace(read, holder="dead", term=4, seconds=15, renewed="x"), 1.0)
    terms: list[int] = []

    async def work(term: int) -> None:
        terms.append(term)

    trying = asyncio.create_task(Candidate("release", lease, time).while_leading(work))
    await time.advance(17.0)
    await trying
    assert terms == [5]


async def test_what_the_work_raises_is_raised() -> None:
    async def work(_term: int) -> None:
        raise BadUsage("no such job")

    with pytest.raises(BadUsage):
        await Candidate("release", MemoryLease(), VirtualTime()).while_leading(work)


async def test_a_reset_config_without_entries_of_ours_stays_as_it_is() -> None:
    rig = Rig(the_demo(LABELS))
    rig.apply(a_config_map("reset-config-demo", {"reset.json": '{"RankList":null}'}), 0)
    rig.tick(1)
    await rig.run()
    found = await let_go_of(rig)
    assert (of(found, RESET).reason, of(found, RESET).changed) == (Reason.UNCHANGED, False)
    assert await rig.data(RESET) == {"reset.json": '{"RankList":null}'}
